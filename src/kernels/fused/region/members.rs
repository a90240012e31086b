//! The nodes of a region, as its attributes tell them.
//!
//! A node is a NodeDef. Its inputs are `3:1` for port 1 of the region's node number 3, `t0` for the
//! region's first tensor, `h0` for its first input in host memory, and `v0` for the handle of its
//! first variable. A node of op Const is a value in host memory, and one of op [`READ`] is the
//! value of a variable when the region begins. The attribute [`TYPES`] lists the types of a node's
//! outputs.

use std::sync::{Arc, LazyLock};

use prost::Message;
use rustc_hash::FxHashMap;

use super::OP;
use super::views::View;
use crate::attr::{Attr, constant};
use crate::device::Capabilities;
use crate::device::trace::Origin;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::fused::replaced::replaced_ops;
use crate::kernels::node::Node;
use crate::kernels::op::{Attrs, Kernel};
use crate::kernels::registry::{Registration, Registry};
use crate::proto::NodeDef;
use crate::tensor::HostTensor;

/// The attribute of a member that lists the types of its outputs.
pub const TYPES: &str = "_wgpu_types";

/// The op that reads a variable.
pub const READ: &str = "ReadVariableOp";

/// The kernels of all ops, for any adapter: TensorFlow places no node on a device whose adapter
/// lacks the node's types.
static ROWS: LazyLock<FxHashMap<&'static str, Vec<Registration>>> = LazyLock::new(|| {
    let mut rows: FxHashMap<_, Vec<Registration>> = FxHashMap::default();
    for row in Registry::new(Capabilities::FULL).rows() {
        rows.entry(row.op).or_default().push(row.clone());
    }
    rows
});

/// Whether we have a kernel for `op`, whatever its types.
pub fn has_kernel(op: &str) -> bool {
    ROWS.contains_key(op)
}

/// The registration that serves `op` with these types outside of regions.
pub fn registered(
    op: &str,
    dtype_of: impl Fn(&str) -> Option<DType>,
) -> Option<&'static Registration> {
    let fits = |row: &&Registration| row.types.iter().all(|(attr, t)| dtype_of(attr) == Some(*t));
    ROWS.get(op)?.iter().find(fits)
}

/// The registration that serves `op` with these types in a region. The kernel neither waits for the
/// device nor uses functions that only TensorFlow has.
pub fn row(op: &str, dtype_of: impl Fn(&str) -> Option<DType>) -> Option<&'static Registration> {
    registered(op, dtype_of).filter(|row| row.need.is_none() && row.note.is_empty() && op != OP)
}

/// Where an input of a member comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An output of an earlier member.
    Value(usize, usize),
    /// A tensor of the region's inputs, or behind them the value of a variable that is read.
    Tensor(usize),
    /// An input of the region in host memory.
    Host(usize),
    /// A constant in host memory.
    Constant(usize),
    /// The handle of a variable: an input of the region.
    Variable(usize),
}

/// A node of a region.
pub struct Member {
    /// The node's identity for profiles and errors.
    pub origin: Arc<Origin>,
    /// Its kernel.
    pub kernel: Box<dyn Kernel>,
    /// Its inputs.
    pub inputs: Vec<Source>,
    /// The types of its outputs, as far as they are known.
    pub types: Vec<DType>,
    /// Whether it changes variables.
    pub is_update: bool,
}

/// A variable that is read at the region's beginning.
pub struct Read {
    /// The reading node's identity for errors.
    pub origin: Arc<Origin>,
    /// The input of the region that is the variable's handle.
    pub handle: usize,
    /// The type that the node expects.
    pub dtype: Option<DType>,
}

/// The nodes of a region, in the order in which they run.
#[derive(Default)]
pub struct Members {
    /// The nodes.
    pub all: Vec<Member>,
    /// Values in host memory.
    pub constants: Vec<HostTensor>,
    /// The region's outputs: members' values, or values of variables.
    pub outputs: Vec<Source>,
    /// The number of tensors among the region's inputs.
    pub tensors: usize,
    /// The number of inputs in host memory, which follow them. The handles of variables come last.
    pub hosts: usize,
    /// The variables that are read.
    pub reads: Vec<Read>,
    /// For each tensor of the inputs, then for each read, the number of members' inputs and of
    /// region's outputs that it is.
    pub tensor_uses: Vec<u32>,
    /// For each port of each member, the number of inputs and of region's outputs that it is.
    pub uses: Vec<Vec<u32>>,
}

impl Members {
    /// The members that a node's attributes hold.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        let tensors = attrs.dtypes("Ttensors")?.len();
        let hosts = attrs.dtypes("Thost")?.len();
        let mut members = Self { tensors, hosts, tensor_uses: vec![0; tensors], ..Self::default() };
        // The place of each node among the members or constants.
        let mut places: Vec<Source> = Vec::new();
        for bytes in attrs.byte_strings("nodes")? {
            let node = NodeDef::decode(&*bytes)
                .map_err(|e| Error::InvalidArgument(format!("{OP}: a node cannot be read: {e}")))?;
            places.push(members.add(node, &places, hosts)?);
        }
        let outputs = attrs.ints("outputs")?;
        for pair in outputs.chunks_exact(2) {
            let number = |k: usize| usize::try_from(pair[k]).ok();
            let place = number(0).and_then(|at| places.get(at));
            let output = match (place, number(1)) {
                (Some(Source::Value(at, _)), Some(port)) => Source::Value(*at, port),
                (Some(Source::Tensor(read)), Some(0)) => Source::Tensor(*read),
                _ => return Err(malformed(&format!("output {pair:?}"))),
            };
            members.outputs.push(output);
            members.count(output);
        }
        Ok(members)
    }

    /// Adds a node; returns its place.
    fn add(&mut self, node: NodeDef, places: &[Source], hosts: usize) -> Result<Source> {
        let attrs = Node::of(&node);
        if node.op == "Const" {
            let value = attrs.get("value").and_then(Attr::tensor).and_then(constant);
            self.constants.push(value.ok_or_else(|| malformed(&node.name))?);
            return Ok(Source::Constant(self.constants.len() - 1));
        }
        let handles = self.tensors + hosts;
        if node.op == READ {
            let handle = node.input.first().and_then(|text| text.strip_prefix('v')?.parse().ok());
            let handle: usize = handle.ok_or_else(|| malformed(&node.name))?;
            let dtype = attrs.dtype("dtype").ok();
            let origin = Arc::new(Origin { op: node.op, node: node.name, holds: String::new() });
            self.reads.push(Read { origin, handle: handles + handle, dtype });
            self.tensor_uses.push(0);
            return Ok(Source::Tensor(self.tensor_uses.len() - 1));
        }
        let source = |text: &String| self.source(text, places, hosts);
        let inputs: Option<Vec<Source>> = node.input.iter().map(source).collect();
        let inputs = inputs.ok_or_else(|| malformed(&node.name))?;
        inputs.iter().for_each(|input| self.count(*input));
        let kernel = kernel(&node.op, &attrs).map_err(|e| e.context(&node.op))?;
        let holds = replaced_ops(&node.op, &|attr| attrs.string(attr).ok()).join(", ");
        let types = attrs.dtypes(TYPES).unwrap_or_default();
        let origin = Arc::new(Origin { op: node.op, node: node.name, holds });
        let is_update = inputs.iter().any(|input| matches!(input, Source::Variable(_)));
        self.all.push(Member { origin, kernel, inputs, types, is_update });
        self.uses.push(Vec::new());
        Ok(Source::Value(self.all.len() - 1, 0))
    }

    /// The input with this text.
    fn source(&self, text: &str, places: &[Source], hosts: usize) -> Option<Source> {
        let below = |text: &str, end: usize| text.parse::<usize>().ok().filter(|n| *n < end);
        if let Some(number) = text.strip_prefix('t') {
            return below(number, self.tensors).map(Source::Tensor);
        }
        if let Some(number) = text.strip_prefix('h') {
            return below(number, hosts).map(|number| Source::Host(self.tensors + number));
        }
        if let Some(number) = text.strip_prefix('v') {
            return Some(Source::Variable(self.tensors + hosts + number.parse::<usize>().ok()?));
        }
        let (node, port) = text.split_once(':')?;
        match places.get(node.parse::<usize>().ok()?)? {
            Source::Value(node, _) => Some(Source::Value(*node, port.parse().ok()?)),
            constant => Some(*constant),
        }
    }

    /// Counts a use.
    fn count(&mut self, source: Source) {
        match source {
            Source::Value(node, port) => {
                let uses = &mut self.uses[node];
                uses.resize(uses.len().max(port + 1), 0);
                uses[port] += 1;
            }
            Source::Tensor(number) => self.tensor_uses[number] += 1,
            Source::Host(_) | Source::Constant(_) | Source::Variable(_) => {}
        }
    }
}

fn malformed(what: &str) -> Error {
    Error::InvalidArgument(format!("{OP}: {what} is malformed"))
}

/// The kernel of a node.
fn kernel(op: &str, attrs: &Node) -> Result<Box<dyn Kernel>> {
    if let Some(view) = View::find(op, attrs.dtype("T").ok()) {
        return view.kernel(attrs);
    }
    let row = row(op, |attr| attrs.dtype(attr).ok());
    (row.ok_or_else(|| Error::NotFound(format!("no kernel for {op} in a region")))?.create)(attrs)
}
