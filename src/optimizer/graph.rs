//! A GraphDef under rewriting.
//!
//! Nodes live in a vector and are named by [`NodeId`]s, which stay valid until the node is removed. Edges are kept in both
//! directions. What a pass does not touch is written back byte for byte; of a node that changes, the attributes and
//! fields that stay keep their bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use super::attr::{Attr, constant};
use super::proto::OpDef;
use super::shape::TensorInfo;
use super::wire::{self, Record};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::invalid;
use crate::kernels::scalar;
use crate::tensor::HostTensor;

/// Ops without state that are known without TensorFlow, besides the elementwise ones.
const PURE: &[&str] = &[
    "BroadcastTo",
    "Cast",
    "Const",
    "ExpandDims",
    "Identity",
    "Mean",
    "Pack",
    "Reshape",
    "Shape",
    "Squeeze",
    "StopGradient",
    "Sum",
    "Tile",
    "Transpose",
];

/// A node's number in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// For tables by node: all numbers are below [`Graph::capacity`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tensor: an output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Output {
    /// Who makes it.
    pub node: NodeId,
    /// Which of its outputs, lists flattened.
    pub port: u32,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) name: String,
    pub(super) op: String,
    pub(super) device: String,
    pub(super) inputs: Vec<Output>,
    pub(super) controls: Vec<NodeId>,
    pub(super) attrs: BTreeMap<String, Attr>,
    /// Types and shapes of the outputs, as far as they are known.
    pub(super) infos: Vec<TensorInfo>,
    /// The node as it came, until it changes.
    original: Option<Bytes>,
    /// Fields beyond name, op, inputs, device and attributes.
    rest: Vec<Bytes>,
}

impl Node {
    /// Its unique name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its op.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// The device that it was placed on, as in `/job:localhost/replica:0/task:0/device:WGPU:0`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its data inputs, lists flattened.
    pub fn inputs(&self) -> &[Output] {
        &self.inputs
    }

    /// The nodes that run before it without giving it data.
    pub fn controls(&self) -> &[NodeId] {
        &self.controls
    }

    /// An attribute.
    pub fn attr(&self, name: &str) -> Option<&Attr> {
        self.attrs.get(name)
    }

    /// All attributes by name.
    pub const fn attrs(&self) -> &BTreeMap<String, Attr> {
        &self.attrs
    }

    /// The attribute `name`, a type of ours.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.attr(name)?.dtype()
    }

    /// Whether it was placed on one of our devices.
    pub fn on_wgpu(&self) -> bool {
        device_type(&self.device) == Some("WGPU")
    }

    fn encode(&self, nodes: &[Option<Self>]) -> Vec<u8> {
        let name = |id: NodeId| nodes[id.index()].as_ref().map_or("", |n| n.name.as_str());
        let mut out = Vec::new();
        wire::put(&mut out, 1, self.name.as_bytes());
        wire::put(&mut out, 2, self.op.as_bytes());
        for input in &self.inputs {
            let text = match input.port {
                0 => name(input.node).to_owned(),
                port => format!("{}:{port}", name(input.node)),
            };
            wire::put(&mut out, 3, text.as_bytes());
        }
        for control in &self.controls {
            wire::put(&mut out, 3, format!("^{}", name(*control)).as_bytes());
        }
        if !self.device.is_empty() {
            wire::put(&mut out, 4, self.device.as_bytes());
        }
        for (key, value) in &self.attrs {
            let mut entry = Vec::new();
            wire::put(&mut entry, 1, key.as_bytes());
            wire::put(&mut entry, 2, value.raw());
            wire::put(&mut out, 5, &entry);
        }
        self.rest.iter().for_each(|r| out.extend_from_slice(r));
        out
    }
}

/// The device type in a device's name: `WGPU` of `/job:localhost/replica:0/task:0/device:WGPU:0`.
pub fn device_type(device: &str) -> Option<&str> {
    let last = device.rsplit('/').next()?;
    let (kind, _) = last.strip_prefix("device:")?.split_once(':')?;
    Some(kind)
}

/// A node to be added, see [`Graph::add`].
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    /// The wished name; a suffix makes it unique.
    pub name: String,
    /// Its op.
    pub op: String,
    /// Its device.
    pub device: String,
    /// Its data inputs.
    pub inputs: Vec<Output>,
    /// Its control inputs.
    pub controls: Vec<NodeId>,
    /// Its attributes.
    pub attrs: Vec<(&'static str, Attr)>,
    /// Types and shapes of its outputs.
    pub infos: Vec<TensorInfo>,
}

/// A graph with edges in both directions.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Option<Node>>,
    index: FxHashMap<String, NodeId>,
    /// For each node, the nodes that use it, once for each edge.
    users: Vec<Vec<NodeId>>,
    /// Fields of the GraphDef beyond nodes.
    rest: Vec<Bytes>,
    preserved: FxHashSet<String>,
    op_defs: FxHashMap<String, OpDef>,
    changed: bool,
}

impl Graph {
    /// Reads a serialized GraphDef.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no GraphDef, or whose edges lead nowhere.
    pub fn parse(bytes: &Bytes) -> Result<Self> {
        let mut graph = Self::default();
        let mut inputs: Vec<Vec<String>> = Vec::new();
        for record in wire::records(bytes)? {
            if record.field == 1 {
                let (node, names) = parse_node(&record)?;
                graph.insert(node)?;
                inputs.push(names);
            } else {
                graph.rest.push(record.bytes);
            }
        }
        for (at, names) in inputs.iter().enumerate() {
            for name in names {
                graph.connect(NodeId(at as u32), name)?;
            }
        }
        Ok(graph)
    }

    /// Enters a node without edges; its number is the count of nodes so far.
    fn insert(&mut self, node: Node) -> Result<NodeId> {
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| Error::Internal("too many nodes".into()))?);
        if self.index.insert(node.name.clone(), id).is_some() {
            invalid!("the graph has two nodes named {}", node.name);
        }
        self.nodes.push(Some(node));
        self.users.push(Vec::new());
        Ok(id)
    }

    /// Adds the edge that an input's text names.
    fn connect(&mut self, to: NodeId, input: &str) -> Result<()> {
        let (name, port) = match (input.strip_prefix('^'), input.rsplit_once(':')) {
            (Some(name), _) => (name, None),
            (None, Some((name, port))) if port.bytes().all(|b| b.is_ascii_digit()) => {
                (name, Some(port.parse().map_err(|_| Error::InvalidArgument(format!("bad input {input}")))?))
            }
            _ => (input, Some(0)),
        };
        let Some(&from) = self.index.get(name) else {
            invalid!("input {input} of {} is not in the graph", self.node(to).name);
        };
        let node = self.nodes[to.index()].as_mut().expect("just inserted");
        match port {
            Some(port) => node.inputs.push(Output { node: from, port }),
            None => node.controls.push(from),
        }
        self.users[from.index()].push(to);
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

    /// Whether anything differs from what was parsed.
    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Names that must stay, with their ops: feeds, fetches and what TensorFlow keeps.
    pub fn preserve<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) {
        self.preserved.extend(names.into_iter().map(Into::into));
    }

    /// Whether a node must stay as it is.
    pub fn is_preserved(&self, id: NodeId) -> bool {
        self.preserved.contains(&self.node(id).name)
    }

    /// The names that must stay.
    pub const fn preserved(&self) -> &FxHashSet<String> {
        &self.preserved
    }

    /// Above every node's index.
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

    /// A node. Panics for one that was removed.
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

    /// The nodes that use this one, by data or control, once for each edge.
    pub fn users(&self, id: NodeId) -> &[NodeId] {
        &self.users[id.index()]
    }

    /// The data inputs that read a tensor: consumer and index.
    pub fn readers(&self, output: Output) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        let mut users = self.users[output.node.index()].clone();
        users.sort_unstable();
        users.dedup();
        users.into_iter().flat_map(move |user| {
            let inputs = self.node(user).inputs.iter().enumerate();
            inputs.filter(move |(_, i)| **i == output).map(move |(k, _)| (user, k))
        })
    }

    /// The nodes that wait for this one without reading it.
    pub fn waiters(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut users = self.users[id.index()].clone();
        users.sort_unstable();
        users.dedup();
        users.into_iter().filter(move |user| self.node(*user).controls.contains(&id))
    }

    /// Says what an op of the graph is.
    pub fn add_op_def(&mut self, def: OpDef) {
        self.op_defs.insert(def.name.clone(), def);
    }

    /// What an op is, if TensorFlow said so.
    pub fn op_def(&self, op: &str) -> Option<&OpDef> {
        self.op_defs.get(op)
    }

    /// Whether the node does nothing but compute its outputs from its data inputs. Unknown ops are taken for stateful ones.
    pub fn is_pure(&self, id: NodeId) -> bool {
        let op = self.node(id).op();
        match self.op_def(op) {
            Some(def) => !def.is_stateful,
            None => PURE.contains(&op) || scalar::find(op).is_some(),
        }
    }

    /// What is known of a tensor.
    pub fn info(&self, output: Output) -> TensorInfo {
        self.node(output.node).infos.get(output.port as usize).cloned().unwrap_or_default()
    }

    /// Says what is known of a node's outputs.
    pub fn set_infos(&mut self, id: NodeId, infos: Vec<TensorInfo>) {
        self.edit_quietly(id).infos = infos;
    }

    /// The elements of a Const, if they are few.
    pub fn constant(&self, output: Output) -> Option<HostTensor> {
        let node = self.node(output.node);
        (node.op == "Const").then(|| node.attr("value")?.tensor().and_then(constant))?
    }

    /// A node's data, which stays what it was for TensorFlow.
    fn edit_quietly(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.index()].as_mut().expect("the node was removed")
    }

    fn edit(&mut self, id: NodeId) -> &mut Node {
        self.changed = true;
        let node = self.edit_quietly(id);
        node.original = None;
        node
    }

    /// Sets an attribute.
    pub fn set_attr(&mut self, id: NodeId, name: &str, value: impl Into<Attr>) {
        self.edit(id).attrs.insert(name.to_owned(), value.into());
    }

    /// Removes an attribute.
    pub fn remove_attr(&mut self, id: NodeId, name: &str) {
        self.edit(id).attrs.remove(name);
    }

    /// Makes a node one of another op; its attributes are the caller's business.
    pub fn set_op(&mut self, id: NodeId, op: &str) {
        op.clone_into(&mut self.edit(id).op);
    }

    /// `wish`, or `wish_1`, `wish_2` …, whatever is free.
    pub fn unique_name(&self, wish: &str) -> String {
        if !self.index.contains_key(wish) && !self.preserved.contains(wish) {
            return wish.to_owned();
        }
        let free = |name: &String| !self.index.contains_key(name) && !self.preserved.contains(name);
        (1..).map(|n| format!("{wish}_{n}")).find(free).expect("there are more numbers than nodes")
    }

    /// Adds a node.
    pub fn add(&mut self, new: NewNode) -> NodeId {
        self.changed = true;
        let node = Node {
            name: self.unique_name(&new.name),
            op: new.op,
            device: new.device,
            inputs: Vec::new(),
            controls: Vec::new(),
            attrs: new.attrs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            infos: new.infos,
            original: None,
            rest: Vec::new(),
        };
        let id = self.insert(node).expect("the name is unique");
        self.set_inputs(id, new.inputs);
        for control in new.controls {
            self.add_control(id, control);
        }
        id
    }

    /// Replaces all data inputs.
    pub fn set_inputs(&mut self, id: NodeId, inputs: Vec<Output>) {
        for old in std::mem::take(&mut self.edit(id).inputs) {
            self.forget(old.node, id);
        }
        for input in &inputs {
            self.users[input.node.index()].push(id);
        }
        self.edit(id).inputs = inputs;
    }

    /// Replaces one data input.
    pub fn set_input(&mut self, id: NodeId, index: usize, input: Output) {
        let old = std::mem::replace(&mut self.edit(id).inputs[index], input);
        self.forget(old.node, id);
        self.users[input.node.index()].push(id);
    }

    /// Makes `id` wait for `control`, unless it does or is that node itself.
    pub fn add_control(&mut self, id: NodeId, control: NodeId) {
        if id != control && !self.node(id).controls.contains(&control) {
            self.edit(id).controls.push(control);
            self.users[control.index()].push(id);
        }
    }

    /// Makes `id` no longer wait for `control`.
    pub fn remove_control(&mut self, id: NodeId, control: NodeId) {
        if let Some(at) = self.node(id).controls.iter().position(|c| *c == control) {
            self.edit(id).controls.remove(at);
            self.forget(control, id);
        }
    }

    /// Drops one edge from the users of `used`.
    fn forget(&mut self, used: NodeId, user: NodeId) {
        let users = &mut self.users[used.index()];
        if let Some(at) = users.iter().position(|u| *u == user) {
            users.swap_remove(at);
        }
    }

    /// Lets every reader of `old` read `new` instead.
    pub fn replace_readers(&mut self, old: Output, new: Output) {
        let readers: Vec<_> = self.readers(old).collect();
        for (reader, index) in readers {
            self.set_input(reader, index, new);
        }
    }

    /// Lets whoever waits for `old` wait for `new` instead.
    pub fn replace_waiters(&mut self, old: NodeId, new: NodeId) {
        let waiters: Vec<_> = self.waiters(old).collect();
        for waiter in waiters {
            self.remove_control(waiter, old);
            self.add_control(waiter, new);
        }
    }

    /// Removes a node that nobody uses. Panics when somebody does, or when it is preserved.
    pub fn remove(&mut self, id: NodeId) {
        assert!(self.users(id).is_empty(), "{} is in use", self.node(id).name);
        assert!(!self.is_preserved(id), "{} is preserved", self.node(id).name);
        self.changed = true;
        let node = self.nodes[id.index()].take().expect("the node was removed");
        self.index.remove(&node.name);
        for used in node.inputs.iter().map(|i| i.node).chain(node.controls) {
            self.forget(used, id);
        }
    }

    /// Puts one node in place of a region. `outputs` pairs each tensor of the region that is used outside with the new node's
    /// port. The new node waits for what nodes of the region waited for, and whoever waited for one of them waits for it.
    /// The region must be convex ([`Graph::is_convex`]), and the new node must read what the region did.
    pub fn replace_region(&mut self, region: &[NodeId], new: NewNode, outputs: &[(Output, u32)]) -> NodeId {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let id = self.add(new);
        for member in region {
            let controls: Vec<_> =
                self.node(*member).controls.iter().copied().filter(|c| !inside.contains(c)).collect();
            for control in controls {
                self.add_control(id, control);
            }
        }
        for (old, port) in outputs {
            let readers: Vec<_> =
                self.readers(*old).filter(|(reader, _)| !inside.contains(reader) && *reader != id).collect();
            for (reader, index) in readers {
                self.set_input(reader, index, Output { node: id, port: *port });
            }
        }
        for member in region {
            let waiters: Vec<_> = self.waiters(*member).filter(|w| !inside.contains(w) && *w != id).collect();
            for waiter in waiters {
                self.remove_control(waiter, *member);
                self.add_control(waiter, id);
            }
        }
        self.remove_all(region);
        id
    }

    /// Removes nodes that only nodes among them use.
    pub fn remove_all(&mut self, region: &[NodeId]) {
        let mut left: Vec<NodeId> = region.to_vec();
        while !left.is_empty() {
            let before = left.len();
            let (free, used): (Vec<_>, Vec<_>) = left.into_iter().partition(|id| self.users(*id).is_empty());
            free.into_iter().for_each(|id| self.remove(id));
            left = used;
            assert!(left.len() < before, "{} is in use outside of its region", self.node(left[0]).name);
        }
    }

    /// The nodes with every node after those that it uses. Edges back into loops of TensorFlow 1 (`NextIteration` to `Merge`) don't
    /// count. `None` for another cycle.
    pub fn order(&self) -> Option<Vec<NodeId>> {
        let mut missing = vec![0u32; self.capacity()];
        let is_back = |node: &Node, from: NodeId| {
            matches!(node.op.as_str(), "Merge" | "RefMerge")
                && matches!(self.node(from).op.as_str(), "NextIteration" | "RefNextIteration")
        };
        let mut ready: Vec<NodeId> = Vec::new();
        for id in self.ids() {
            let node = self.node(id);
            let edges = node.inputs.iter().map(|i| i.node).chain(node.controls.iter().copied());
            missing[id.index()] = edges.filter(|used| !is_back(node, *used)).count() as u32;
            if missing[id.index()] == 0 {
                ready.push(id);
            }
        }
        ready.reverse();
        let mut order = Vec::with_capacity(self.capacity());
        while let Some(id) = ready.pop() {
            order.push(id);
            for user in self.users(id) {
                if is_back(self.node(*user), id) {
                    continue;
                }
                missing[user.index()] -= 1;
                if missing[user.index()] == 0 {
                    ready.push(*user);
                }
            }
        }
        (order.len() == self.len()).then_some(order)
    }

    /// Whether some path leads from `start` to a node of `targets` by at least one edge; nodes in `avoid` are not passed through.
    pub fn reaches(&self, start: &[NodeId], targets: &FxHashSet<NodeId>, avoid: &FxHashSet<NodeId>) -> bool {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack: Vec<NodeId> = start.to_vec();
        while let Some(id) = stack.pop() {
            for user in self.users(id) {
                if targets.contains(user) {
                    return true;
                }
                if !avoid.contains(user) && seen.insert(*user) {
                    stack.push(*user);
                }
            }
        }
        false
    }

    /// Whether no path leaves the region and comes back: only then can one node take its place.
    pub fn is_convex(&self, region: &[NodeId]) -> bool {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let outside: FxHashSet<NodeId> =
            region.iter().flat_map(|id| self.users(*id)).copied().filter(|u| !inside.contains(u)).collect();
        let outside: Vec<NodeId> = outside.into_iter().collect();
        !self.reaches(&outside, &inside, &inside)
    }
}

/// A node without edges, and its inputs' texts.
fn parse_node(record: &Record) -> Result<(Node, Vec<String>)> {
    let mut node = Node {
        name: String::new(),
        op: String::new(),
        device: String::new(),
        inputs: Vec::new(),
        controls: Vec::new(),
        attrs: BTreeMap::new(),
        infos: Vec::new(),
        original: Some(record.value.clone()),
        rest: Vec::new(),
    };
    let mut inputs = Vec::new();
    for part in wire::records(&record.value)? {
        match part.field {
            1 => node.name = wire::text(&part)?,
            2 => node.op = wire::text(&part)?,
            3 => inputs.push(wire::text(&part)?),
            4 => node.device = wire::text(&part)?,
            5 => {
                let (key, value) = wire::entry(&part)?;
                node.attrs.insert(key, Attr::encoded(value));
            }
            _ => node.rest.push(part.bytes),
        }
    }
    Ok((node, inputs))
}
