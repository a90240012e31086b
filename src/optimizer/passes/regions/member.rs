//! The nodes that a region may hold.

use crate::attr::Attr;
use crate::kernels::definitions;
use crate::kernels::fused::region::OP;
use crate::kernels::fused::region::members::row;
use crate::kernels::fused::region::views::View;
use crate::optimizer::graph::{Graph, NodeId};
use crate::optimizer::proto::AttrValue;
use crate::optimizer::verify::signature;

/// A node that a region may hold.
pub struct Member {
    /// The node.
    pub id: NodeId,
    /// For each input, whether it is in host memory.
    pub on_host: Vec<bool>,
    /// Attributes that the node lacks, with the defaults of its op.
    pub defaults: Vec<(String, Attr)>,
}

/// Whether a node is a region.
pub fn is_region(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op() == OP && graph.node(id).on_wgpu()
}

impl Member {
    /// The node as a member: it is on one of our devices, has no state, all its outputs are on the
    /// device, its name need not stay, and its kernel is ours and does not wait for the device.
    pub fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        if !node.on_wgpu() || graph.is_preserved(id) || !is_stateless(graph, id) {
            return None;
        }
        let is_typed =
            |port: u32| node.infos().get(port as usize).is_some_and(|i| i.dtype.is_some());
        let last = graph.last_port_read(id).map_or(0, |(port, _)| port);
        if !(0..=last).all(is_typed) {
            return None;
        }
        let on_host = match View::find(node.op(), node.dtype("T")) {
            Some(view) => {
                (node.inputs().len() == 1 + view.host_inputs).then_some(())?;
                (0..node.inputs().len()).map(|i| i > 0).collect()
            }
            None => {
                let row = row(node.op(), |attr| node.dtype(attr))?;
                let (inputs, outputs) = signature::arguments(graph, node);
                let is_on_host = |name: &str| row.host_memory.contains(&name);
                match (inputs, outputs) {
                    (Some(inputs), Some(outputs)) => {
                        if outputs.iter().any(|(name, _)| is_on_host(name)) {
                            return None;
                        }
                        let flags = inputs
                            .iter()
                            .flat_map(|(name, types)| types.iter().map(|_| is_on_host(name)));
                        flags.collect()
                    }
                    _ if row.host_memory.is_empty() => vec![false; node.inputs().len()],
                    _ => return None,
                }
            }
        };
        (on_host.len() == node.inputs().len()).then_some(())?;
        Some(Self { id, on_host, defaults: defaults(graph, id)? })
    }
}

/// Whether a node only computes its outputs from its inputs.
fn is_stateless(graph: &Graph, id: NodeId) -> bool {
    let is_ours = |op| definitions().any(|def| def.name == op && !def.stateful);
    graph.is_pure(id) || is_ours(graph.node(id).op())
}

/// The attributes that a node leaves to the defaults of its op. `None` if one has no default.
fn defaults(graph: &Graph, id: NodeId) -> Option<Vec<(String, Attr)>> {
    let node = graph.node(id);
    let attrs = graph.op_def(node.op()).map_or(&[][..], |def| &def.attr);
    let missing = attrs.iter().filter(|attr| node.attr(&attr.name).is_none());
    missing
        .map(|attr| {
            let AttrValue { value } = attr.default_value.clone()?;
            Some((attr.name.clone(), Attr::from(value?)))
        })
        .collect()
}
