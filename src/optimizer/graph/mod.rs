//! A GraphDef under rewriting.
//!
//! Nodes live in a vector. A [`NodeId`] names a node and stays valid until the node is removed.
//! Edges are kept in both directions. Nodes that no pass touches are written back byte for byte. In
//! a changed node, the unchanged attributes and fields keep their bytes.

pub mod clusters;
mod edges;
mod edit;
mod frames;
mod node;
pub mod paths;
mod ranks;
mod walk;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::device_type::DeviceType;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::invalid;
use crate::kernels::reduce::table::REDUCTIONS;
use crate::kernels::scalar;
use crate::optimizer::attr::constant;
use crate::optimizer::journal::{Apart, Journal, Original};
use crate::optimizer::outside::Outside;
use crate::optimizer::proto::OpDef;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, TensorInfo};
use crate::optimizer::wire;
use crate::tensor::HostTensor;
use edges::Users;
pub use frames::Frame;
use frames::Frames;
pub use node::{NewNode, Node, NodeId, Output, device_type};
use node::{Texts, parse_node};
use ranks::Ranks;

/// Stateless ops, known without TensorFlow, besides those in the tables of elementwise ops and
/// reductions.
const PURE: &[&str] = &[
    "Bitcast",
    "BroadcastGradientArgs",
    "BroadcastTo",
    "Cast",
    "Const",
    "ExpandDims",
    "GatherV2",
    "Identity",
    "Pack",
    "Reshape",
    "Shape",
    "Squeeze",
    "StopGradient",
    "StridedSlice",
    "Tile",
    "Transpose",
];

/// Ops that make parts of a graph run several times or not at all.
const CONTROL_FLOW: &[&str] = &[
    "Enter",
    "Exit",
    "LoopCond",
    "Merge",
    "NextIteration",
    "RefEnter",
    "RefExit",
    "RefMerge",
    "RefNextIteration",
    "RefSwitch",
    "Switch",
    "_SwitchN",
];

/// Whether nodes of this op decide which parts of a graph run, and how often.
pub fn is_control_flow(op: &str) -> bool {
    CONTROL_FLOW.binary_search(&op).is_ok()
}

/// A graph with edges in both directions.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Option<Node>>,
    index: FxHashMap<Arc<str>, NodeId>,
    /// For each node, the edges to its users.
    users: Vec<Users>,
    /// Fields of the GraphDef beyond nodes.
    rest: Vec<Bytes>,
    preserved: FxHashSet<String>,
    op_defs: FxHashMap<String, OpDef>,
    /// The type of our devices.
    device_type: DeviceType,
    edits: u64,
    /// The last suffix for each name that was wished several times.
    suffixes: FxHashMap<String, u32>,
    /// An order of the nodes, with the number of edits at which it was found.
    order: RefCell<Option<(u64, Arc<[NodeId]>)>>,
    /// The places of the nodes in that order, kept up to date since.
    ranks: RefCell<Option<Ranks>>,
    /// Whether the parsed graph had a node of [`CONTROL_FLOW`].
    has_control_flow: bool,
    /// Whether the parsed graph had a loop of TensorFlow 1.
    has_loops: bool,
    /// Whether the parsed graph had a node that leads into a frame.
    has_frames: bool,
    /// The frame of each node.
    frames: Frames,
    /// The decisions of passes, if they are kept.
    journal: Option<Journal>,
}

impl Graph {
    /// Reads a serialized GraphDef. Our devices have the default type.
    ///
    /// # Errors
    /// `InvalidArgument` if the bytes are no GraphDef, or an edge has no source.
    pub fn parse(bytes: &Bytes) -> Result<Self> {
        Self::parse_for(bytes, DeviceType::default())
    }

    /// Like [`Self::parse`], with our devices' type.
    ///
    /// # Errors
    /// Those of [`Self::parse`].
    pub fn parse_for(bytes: &Bytes, device_type: DeviceType) -> Result<Self> {
        let mut graph = Self { device_type, ..Self::default() };
        let mut inputs: Vec<(NodeId, &str)> = Vec::new();
        let mut texts = Texts::default();
        for record in wire::records(bytes) {
            let record = record?;
            if record.field == 1 {
                let id = NodeId(graph.nodes.len() as u32);
                let node = parse_node(bytes, record.value, device_type, &mut texts, |name| {
                    inputs.push((id, name))
                })?;
                graph.insert(node)?;
            } else {
                graph.rest.push(bytes.slice_ref(record.bytes));
            }
        }
        for (id, name) in inputs {
            graph.connect(id, name)?;
        }
        graph.find_frames();
        Ok(graph)
    }

    /// Adds a node without edges. Its number is the count of nodes so far.
    fn insert(&mut self, node: Node) -> Result<NodeId> {
        let id = NodeId(
            u32::try_from(self.nodes.len())
                .map_err(|_| Error::Internal("too many nodes".into()))?,
        );
        if self.index.insert(node.name.clone(), id).is_some() {
            invalid!("the graph has two nodes named {}", node.name);
        }
        self.has_control_flow |= is_control_flow(node.op());
        self.has_loops |= matches!(node.op(), "NextIteration" | "RefNextIteration");
        self.has_frames |= matches!(node.op(), "Enter" | "RefEnter");
        self.nodes.push(Some(node));
        self.users.push(Users::default());
        self.ranks.get_mut().iter_mut().for_each(|ranks| ranks.add(id));
        Ok(id)
    }

    /// Adds the edge that the text of an input describes.
    fn connect(&mut self, to: NodeId, input: &str) -> Result<()> {
        let (name, port) = match (input.strip_prefix('^'), input.rsplit_once(':')) {
            (Some(name), _) => (name, None),
            (None, Some((name, port))) if port.bytes().all(|b| b.is_ascii_digit()) => (
                name,
                Some(
                    port.parse()
                        .map_err(|_| Error::InvalidArgument(format!("bad input {input}")))?,
                ),
            ),
            _ => (input, Some(0)),
        };
        let Some(&from) = self.index.get(name) else {
            invalid!("input {input} of {} is not in the graph", self.node(to).name);
        };
        match port {
            Some(port) => self.push_input(to, Output { node: from, port }),
            None => self.push_control(to, from),
        }
        Ok(())
    }

    /// The GraphDef, serialized.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for node in self.nodes.iter().flatten() {
            match &node.original {
                Some(original) => wire::put(&mut out, 1, original),
                None => wire::put(&mut out, 1, &node.encode(&self.nodes)),
            }
        }
        self.rest.iter().for_each(|r| out.extend_from_slice(r));
        out
    }

    /// Whether the graph differs from the parsed one.
    pub const fn is_changed(&self) -> bool {
        self.edits > 0
    }

    /// The number of edits so far. As long as it stays the same, the graph does.
    pub const fn edits(&self) -> u64 {
        self.edits
    }

    /// Keeps the decisions of passes from now on.
    pub fn keep_journal(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// The decisions of passes, if they are kept.
    pub const fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Writes down that `pass` did not fuse two neighbours. Reasons that lie in one node alone are
    /// none of the two.
    pub fn refuse(&self, pass: &'static str, [a, b]: [NodeId; 2], refusal: Refusal) {
        let Some(journal) = self
            .journal
            .as_ref()
            .filter(|_| !matches!(refusal, Refusal::Alone | Refusal::NoFunction))
        else {
            return;
        };
        for (id, neighbour) in [(a, b), (b, a)].into_iter().filter(|_| a != b) {
            let neighbour = self.node(neighbour).name.clone();
            journal.part(self.node(id).name.clone(), Apart { pass, neighbour, refusal });
        }
    }

    /// The answer to a question of `pass` about two neighbours; the reason of a refusal is written
    /// down.
    pub fn ask<T>(
        &self,
        pass: &'static str,
        neighbours: [NodeId; 2],
        answer: Result<T, Refusal>,
    ) -> Option<T> {
        answer.inspect_err(|refusal| self.refuse(pass, neighbours, *refusal)).ok()
    }

    /// Writes down that a new node computes what `nodes` computed.
    pub fn stand_for(&mut self, new: NodeId, nodes: &[NodeId]) {
        if self.journal.is_none() {
            return;
        }
        let nodes = nodes.iter().map(|id| self.original(*id)).collect();
        let name = self.node(new).name.clone();
        if let Some(journal) = &mut self.journal {
            journal.replace(name, nodes);
        }
    }

    /// Writes down that these nodes are in a region of this name, or why they are in none.
    pub fn settle(&mut self, nodes: Vec<Original>, region: &Result<Arc<str>, Outside>) {
        if let Some(journal) = &mut self.journal {
            nodes.into_iter().for_each(|node| journal.place(node, region.clone()));
        }
    }

    /// A node as the journal knows it.
    pub fn original(&self, id: NodeId) -> Original {
        let node = self.node(id);
        Original { name: node.name.clone(), op: node.op.clone() }
    }

    /// Takes over the decisions about nodes of an earlier run.
    pub(super) fn recall_journal(&mut self, earlier: &Self) {
        if let (Some(journal), Some(earlier)) = (&mut self.journal, &earlier.journal) {
            journal.recall(earlier);
        }
    }

    /// Adds names of nodes that must stay, with their ops: feeds, fetches and the nodes that
    /// TensorFlow keeps.
    pub fn preserve<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) {
        self.preserved.extend(names.into_iter().map(Into::into));
    }

    /// Whether a node must stay unchanged.
    pub fn is_preserved(&self, id: NodeId) -> bool {
        self.preserved.contains(self.node(id).name())
    }

    /// The names of the nodes that must stay.
    pub const fn preserved(&self) -> &FxHashSet<String> {
        &self.preserved
    }

    /// A number above every node's index.
    pub const fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.iter().flatten().count()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All nodes, in the order of the GraphDef.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes.len() as u32).map(NodeId).filter(|id| self.nodes[id.index()].is_some())
    }

    /// A node. Panics if it was removed.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.index()].as_ref().expect("the node was removed")
    }

    /// Whether the node is still there.
    pub fn contains(&self, id: NodeId) -> bool {
        self.nodes.get(id.index()).is_some_and(Option::is_some)
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.index.get(name).copied()
    }

    /// Adds the definition of an op.
    pub fn add_op_def(&mut self, def: OpDef) {
        self.op_defs.insert(def.name.clone(), def);
    }

    /// The definition of an op, if TensorFlow gave it.
    pub fn op_def(&self, op: &str) -> Option<&OpDef> {
        self.op_defs.get(op)
    }

    /// Whether nodes may run under different conditions. If not, every node runs once.
    pub const fn has_control_flow(&self) -> bool {
        self.has_control_flow
    }

    /// Whether the node only computes its outputs from its data inputs. Unknown ops count as
    /// stateful.
    pub fn is_pure(&self, id: NodeId) -> bool {
        let op = self.node(id).op();
        match self.op_def(op) {
            Some(def) => !def.is_stateful,
            None => {
                let reduces = || REDUCTIONS.iter().any(|row| row.op == op);
                PURE.contains(&op) || scalar::find(op).is_some() || reduces()
            }
        }
    }

    /// The known type and shape of a tensor.
    pub fn info(&self, output: Output) -> &TensorInfo {
        const UNKNOWN: &TensorInfo = &TensorInfo { dtype: None, shape: None };
        self.node(output.node).infos.get(output.port as usize).unwrap_or(UNKNOWN)
    }

    /// The elements of a Const, unless there are too many.
    pub fn constant(&self, output: Output) -> Option<HostTensor> {
        let node = self.node(output.node);
        (node.op() == "Const").then(|| node.attr("value")?.tensor().and_then(constant))?
    }

    /// The type and shape of a Const.
    pub fn constant_info(&self, id: NodeId) -> Option<TensorInfo> {
        let node = self.node(id);
        let tensor = (node.op() == "Const").then(|| node.attr("value")?.tensor())??;
        let dims = tensor.tensor_shape.iter().flat_map(|shape| &shape.dim);
        let shape =
            dims.map(|d| usize::try_from(d.size).ok().map(Dim::Known)).collect::<Option<_>>()?;
        Some(TensorInfo { dtype: DType::from_tf(tensor.dtype), shape: Some(shape) })
    }
}
