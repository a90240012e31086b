//! The nodes that a region may hold.

use crate::attr::Attr;
use crate::dtype::DType;
use crate::kernels::definitions;
use crate::kernels::fused::region::OP;
use crate::kernels::fused::region::members::{READ, row};
use crate::kernels::fused::region::views::View;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::proto::AttrValue;
use crate::optimizer::variables::ASSIGNS;
use crate::optimizer::verify::signature;

/// What a node does in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It computes its outputs from its inputs.
    Computes,
    /// It reads a variable.
    Reads,
    /// It changes variables, and has no outputs.
    Changes,
}

/// Where an input of a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the device's memory.
    Device,
    /// In host memory.
    Host,
    /// It is the handle of a variable.
    Handle,
}

/// A node that a region may hold.
pub struct Member {
    /// The node.
    pub id: NodeId,
    /// What it does.
    pub role: Role,
    /// The place of each input.
    pub places: Vec<Place>,
    /// Attributes that the node lacks, with the defaults of its op.
    pub defaults: Vec<(String, Attr)>,
}

/// Whether a node is a region.
pub fn is_region(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op() == OP && graph.node(id).on_wgpu()
}

impl Member {
    /// The node as a member: it is on one of our devices, has no state but variables, all its
    /// outputs are on the device, its name need not stay or may become a `NoOp`'s, and its kernel
    /// is ours and does not wait for the device.
    pub fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        if !node.on_wgpu() {
            return None;
        }
        let is_typed =
            |port: u32| node.infos().get(port as usize).is_some_and(|i| i.dtype.is_some());
        let last = graph.last_port_read(id).map_or(0, |(port, _)| port);
        let (role, places) = if node.op() == READ {
            reading(graph, id)?
        } else if let Some(view) = View::find(node.op(), node.dtype("T")) {
            (node.inputs().len() == 1 + view.host_inputs).then_some(())?;
            let place = |i| if i == 0 { Place::Device } else { Place::Host };
            (Role::Computes, (0..node.inputs().len()).map(place).collect())
        } else {
            computing(graph, id)?
        };
        let may_go = match role {
            Role::Computes => {
                (0..=last).all(is_typed) && !graph.is_preserved(id) && is_stateless(graph, id)
            }
            // Nothing takes a value of a name that reads an argument of a function.
            Role::Reads => !graph.is_preserved(id) || reads_an_argument(graph, id),
            Role::Changes => true,
        };
        (may_go && places.len() == node.inputs().len()).then_some(())?;
        Some(Self { id, role, places, defaults: defaults(graph, id)? })
    }
}

/// The role and the places of a ReadVariableOp. TensorFlow keeps int32 in host memory.
fn reading(graph: &Graph, id: NodeId) -> Option<(Role, Vec<Place>)> {
    let dtype = graph.node(id).dtype("dtype")?;
    let is_on_device = dtype.size() > 0 && dtype != DType::I32;
    let is_typed = graph.info(Output { node: id, port: 0 }).dtype == Some(dtype);
    (is_on_device && is_typed && graph.is_read(id)).then(|| (Role::Reads, vec![Place::Handle]))
}

/// The role and the places of a node with a kernel of ours.
fn computing(graph: &Graph, id: NodeId) -> Option<(Role, Vec<Place>)> {
    let node = graph.node(id);
    let row = row(node.op(), |attr| node.dtype(attr))?;
    if ASSIGNS.contains(&node.op()) {
        return Some((Role::Changes, vec![Place::Handle, Place::Device]));
    }
    let (inputs, outputs) = signature::arguments(graph, node);
    let is_on_host = |name: &str| row.host_memory.contains(&name);
    let (Some(inputs), Some(outputs)) = (inputs, outputs) else {
        let places = vec![Place::Device; node.inputs().len()];
        return row.host_memory.is_empty().then_some((Role::Computes, places));
    };
    if outputs.iter().any(|(name, _)| is_on_host(name)) {
        return None;
    }
    let place = |name: &str, dtype: Option<DType>| match dtype {
        Some(DType::Resource) => Place::Handle,
        _ if is_on_host(name) => Place::Host,
        _ => Place::Device,
    };
    let places: Vec<Place> = inputs
        .iter()
        .flat_map(|(name, types)| types.iter().map(|dtype| place(name, *dtype)))
        .collect();
    match (places.contains(&Place::Handle), outputs.is_empty()) {
        (false, _) => Some((Role::Computes, places)),
        (true, true) => Some((Role::Changes, places)),
        (true, false) => None,
    }
}

/// Whether a node reads a variable that is an argument of the function: the results of a function
/// are nodes of their own.
fn reads_an_argument(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).inputs().iter().all(|input| graph.node(input.node).op() == "_Arg")
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
