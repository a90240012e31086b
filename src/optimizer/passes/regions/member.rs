//! The nodes that a region may hold.

use crate::attr::Attr;
use crate::dtype::DType;
use crate::kernels::definitions;
use crate::kernels::fused::region::OP;
use crate::kernels::fused::region::members::{READ, has_kernel, registered, row};
use crate::kernels::fused::region::views::View;
use crate::optimizer::graph::{Graph, NodeId, Output, is_control_flow};
use crate::optimizer::outside::Outside;
use crate::optimizer::proto::AttrValue;
use crate::optimizer::variables::ASSIGNS;
use crate::optimizer::verify::signature;

/// Ops that run functions.
const CALLS: &[&str] = &[
    "Case",
    "If",
    "PartitionedCall",
    "RemoteCall",
    "StatefulPartitionedCall",
    "StatelessCase",
    "StatelessIf",
    "StatelessWhile",
    "SymbolicGradient",
    "While",
];

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
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn of(graph: &Graph, id: NodeId) -> Result<Self, Outside> {
        let node = graph.node(id);
        if !node.on_wgpu() {
            let device = node.device().rsplit("device:").next().unwrap_or("");
            return Err(Outside::Elsewhere(device.into()));
        }
        let is_typed =
            |port: u32| node.infos().get(port as usize).is_some_and(|i| i.dtype.is_some());
        let last = graph.last_port_read(id).map_or(0, |(port, _)| port);
        let (role, places) = if node.op() == READ {
            reading(graph, id)?
        } else if let Some(view) = View::find(node.op(), node.dtype("T")) {
            if node.inputs().len() != 1 + view.host_inputs {
                return Err(Outside::Malformed);
            }
            let place = |i| if i == 0 { Place::Device } else { Place::Host };
            (Role::Computes, (0..node.inputs().len()).map(place).collect())
        } else {
            computing(graph, id)?
        };
        match role {
            Role::Computes if !(0..=last).all(is_typed) => return Err(Outside::NoType),
            Role::Computes if graph.is_preserved(id) => return Err(Outside::Preserved),
            Role::Computes if !is_stateless(graph, id) => return Err(Outside::State),
            // Nothing takes a value of a name that reads an argument of a function.
            Role::Reads if graph.is_preserved(id) && !reads_an_argument(graph, id) => {
                return Err(Outside::Preserved);
            }
            Role::Computes | Role::Reads | Role::Changes => {}
        }
        if places.len() != node.inputs().len() {
            return Err(Outside::Malformed);
        }
        let defaults = defaults(graph, id).ok_or(Outside::Malformed)?;
        Ok(Self { id, role, places, defaults })
    }
}

/// The role and the places of a ReadVariableOp. TensorFlow keeps int32 in host memory.
fn reading(graph: &Graph, id: NodeId) -> Result<(Role, Vec<Place>), Outside> {
    let dtype = graph.node(id).dtype("dtype").ok_or(Outside::NoType)?;
    if dtype.size() == 0 || dtype == DType::I32 {
        return Err(Outside::ResultOnHost);
    }
    if !graph.is_read(id) {
        return Err(Outside::Unread);
    }
    if graph.info(Output { node: id, port: 0 }).dtype != Some(dtype) {
        return Err(Outside::NoType);
    }
    Ok((Role::Reads, vec![Place::Handle]))
}

/// The role and the places of a node with a kernel of ours.
fn computing(graph: &Graph, id: NodeId) -> Result<(Role, Vec<Place>), Outside> {
    let node = graph.node(id);
    let Some(row) = row(node.op(), |attr| node.dtype(attr)) else {
        return Err(no_row(graph, id));
    };
    if ASSIGNS.contains(&node.op()) {
        return Ok((Role::Changes, vec![Place::Handle, Place::Device]));
    }
    let (inputs, outputs) = signature::arguments(graph, node);
    let is_on_host = |name: &str| row.host_memory.contains(&name);
    let (Some(inputs), Some(outputs)) = (inputs, outputs) else {
        let places = vec![Place::Device; node.inputs().len()];
        let is_known = row.host_memory.is_empty();
        return is_known.then_some((Role::Computes, places)).ok_or(Outside::Malformed);
    };
    if outputs.iter().any(|(name, _)| is_on_host(name)) {
        return Err(Outside::ResultOnHost);
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
        (false, _) => Ok((Role::Computes, places)),
        (true, true) => Ok((Role::Changes, places)),
        (true, false) => Err(Outside::State),
    }
}

/// Why a region has no kernel for a node.
fn no_row(graph: &Graph, id: NodeId) -> Outside {
    let node = graph.node(id);
    if is_control_flow(node.op()) || CALLS.contains(&node.op()) {
        return Outside::ControlFlow;
    }
    match registered(node.op(), |attr| node.dtype(attr)) {
        Some(row) if !row.note.is_empty() => Outside::Host(row.note),
        Some(_) => Outside::Needs,
        None if has_kernel(node.op()) => Outside::Types,
        None => Outside::NotOurs,
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
