//! The frames of a [`Graph`]: the loop of TensorFlow 1's control flow that contains each node.
//!
//! TensorFlow's executor runs a node once for each iteration of its frame, and refuses a graph in
//! which a node has inputs from two frames. A node without inputs is outside of all loops,
//! whichever node reads it. A constant that a loop reads needs a control edge from a node of that
//! loop; [`Graph::add_constant`] adds both. Every other node is in the frame of its inputs.

use rustc_hash::FxHashMap;

use super::Graph;
use super::node::{NewNode, Node, NodeId, Output};
use crate::error::{Error, Result};
use crate::optimizer::attr::Attr;
use crate::optimizer::shape::TensorInfo;
use crate::tensor::HostTensor;

/// The frame of a node's outputs: a loop, or the outside of all loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Frame(u32);

impl Frame {
    /// Outside of all loops.
    pub const OUTSIDE: Self = Self(0);
}

/// All frames of a graph, and the frame of each node.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    /// The frame of each node's outputs, by the node's number. Nodes beyond the end are outside of
    /// all loops, so a graph without loops stores nothing here.
    of: Vec<Frame>,
    /// The name and parent of each frame except the first, which is the outside.
    loops: Vec<(String, Frame)>,
    by_name: FxHashMap<(String, Frame), Frame>,
    /// The `Enter`s of each loop.
    enters: FxHashMap<Frame, Vec<NodeId>>,
    /// The `LoopCond`s of each loop.
    conditions: FxHashMap<Frame, Vec<NodeId>>,
}

impl Frames {
    fn get(&self, id: NodeId) -> Frame {
        self.of.get(id.index()).copied().unwrap_or_default()
    }

    fn set(&mut self, id: NodeId, frame: Frame) {
        if id.index() >= self.of.len() {
            if frame == Frame::OUTSIDE {
                return;
            }
            self.of.resize(id.index() + 1, Frame::OUTSIDE);
        }
        self.of[id.index()] = frame;
    }

    /// Records a node that begins a loop or decides on its next step, with its frame.
    fn note(&mut self, node: &Node, id: NodeId, frame: Frame) {
        let of = match node.op() {
            "Enter" | "RefEnter" => &mut self.enters,
            "LoopCond" => &mut self.conditions,
            _ => return,
        };
        of.entry(frame).or_default().push(id);
    }

    /// The loop of this name within `parent`.
    fn child(&mut self, name: &str, parent: Frame) -> Frame {
        let next = Frame(self.loops.len() as u32 + 1);
        let frame = *self.by_name.entry((name.to_owned(), parent)).or_insert(next);
        if frame == next {
            self.loops.push((name.to_owned(), parent));
        }
        frame
    }

    fn parent(&self, frame: Frame) -> Frame {
        frame.0.checked_sub(1).map_or(frame, |at| self.loops[at as usize].1)
    }

    /// A loop's name, with the names of the loops around it.
    fn name(&self, frame: Frame) -> String {
        match frame.0.checked_sub(1).map(|at| &self.loops[at as usize]) {
            None => "no loop".to_owned(),
            Some((name, Frame::OUTSIDE)) => format!("loop {name:?}"),
            Some((name, parent)) => format!("loop {name:?} in {}", self.name(*parent)),
        }
    }

    /// The frame of a node's outputs, given the frame `inputs` of its inputs.
    fn behind(&mut self, node: &Node, inputs: Frame) -> Frame {
        match node.op() {
            "Enter" | "RefEnter" => {
                let name = node.attr("frame_name").and_then(Attr::string).unwrap_or_default();
                self.child(name, inputs)
            }
            "Exit" | "RefExit" => self.parent(inputs),
            _ => inputs,
        }
    }
}

impl Graph {
    /// The frame of a node's outputs: for an `Enter` the loop that it enters, for an `Exit` the
    /// frame that it leads to.
    pub fn frame(&self, id: NodeId) -> Frame {
        self.frames.get(id)
    }

    /// Finds the frames of all nodes from their edges.
    pub(super) fn find_frames(&mut self) {
        self.frames = self.frames_of_edges().unwrap_or_default();
        // The order that was found without frames lacks the edges between them.
        *self.order.borrow_mut() = None;
    }

    /// Finds the frame of a node from its inputs.
    pub(super) fn find_frame(&mut self, id: NodeId) {
        let inputs = self.used(id).next().map_or(Frame::OUTSIDE, |used| self.frame(used));
        let node = self.nodes[id.index()].as_ref().expect("the node was removed");
        let frame = self.frames.behind(node, inputs);
        self.frames.note(node, id, frame);
        self.frames.set(id, frame);
    }

    /// The nodes that run after this one: its users, and for an `Enter` the `LoopCond` of its loop.
    /// So the nodes that leave a loop come after the nodes that enter it, even if only a later
    /// iteration connects them.
    pub fn following(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let is_enter = matches!(self.node(id).op(), "Enter" | "RefEnter");
        let others = self.frames.conditions.get(&self.frame(id)).filter(|_| is_enter);
        self.users(id).iter().copied().chain(self.present(others, "LoopCond"))
    }

    /// The nodes that run before this one: its inputs, and for a `LoopCond` the `Enter`s of its
    /// loop.
    pub fn preceding(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let is_condition = self.node(id).op() == "LoopCond";
        let others = self.frames.enters.get(&self.frame(id)).filter(|_| is_condition);
        self.used(id).chain(self.present(others, "Enter"))
    }

    fn present<'g>(
        &'g self,
        noted: Option<&'g Vec<NodeId>>,
        op: &'static str,
    ) -> impl Iterator<Item = NodeId> + use<'g> {
        let is_there = move |id: &NodeId| self.contains(*id) && self.node(*id).op().ends_with(op);
        noted.into_iter().flatten().copied().filter(is_there)
    }

    /// `None` for a graph with a cycle.
    fn frames_of_edges(&self) -> Option<Frames> {
        let mut frames = Frames::default();
        if self.has_frames {
            for id in self.order()?.iter().copied() {
                // An edge back into the loop comes from a later node.
                let mut used = self.used(id).filter(|used| !self.is_back_edge(*used, id));
                let inputs = used.next().map_or(Frame::OUTSIDE, |used| frames.get(used));
                let frame = frames.behind(self.node(id), inputs);
                frames.note(self.node(id), id, frame);
                frames.set(id, frame);
            }
        }
        Some(frames)
    }

    /// Checks that the inputs of each node are in one frame, as TensorFlow will.
    ///
    /// # Errors
    /// `Internal`, with the first node that has inputs from two frames, or whose frame is not the
    /// one that [`Self::frame`] gives.
    pub fn check_frames(&self) -> Result<()> {
        if !self.has_frames {
            return Ok(());
        }
        let Some(frames) = self.frames_of_edges() else { return Ok(()) };
        for id in self.ids() {
            let mut used = self.used(id);
            let first = used.next();
            let other = first.and_then(|first| {
                used.find(|used| frames.get(*used) != frames.get(first)).map(|used| (first, used))
            });
            if let Some((first, other)) = other {
                return Err(Error::Internal(format!(
                    "{} of op {} reads {} in {} and {} in {}",
                    self.node(id).name(),
                    self.node(id).op(),
                    self.node(first).name(),
                    frames.name(frames.get(first)),
                    self.node(other).name(),
                    frames.name(frames.get(other)),
                )));
            }
            let (found, known) = (frames.get(id), self.frame(id));
            if frames.name(found) != self.frames.name(known) {
                return Err(Error::Internal(format!(
                    "{} of op {} moved from {} to {}",
                    self.node(id).name(),
                    self.node(id).op(),
                    self.frames.name(known),
                    frames.name(found),
                )));
            }
        }
        Ok(())
    }

    /// Adds a constant that is read together with the tensor `beside`, in the frame of that tensor.
    pub fn add_constant(
        &mut self,
        name: String,
        device: &str,
        value: &HostTensor,
        beside: Output,
    ) -> Output {
        let is_in_loop = self.frame(beside.node) != Frame::OUTSIDE;
        let controls = if is_in_loop { vec![beside.node] } else { Vec::new() };
        self.add_const(name, device, value, controls)
    }

    /// Adds a constant that replaces a tensor computed from `sources`. It exists in the iterations
    /// and branches in which all the sources exist.
    pub fn add_constant_from(
        &mut self,
        name: String,
        device: &str,
        value: &HostTensor,
        sources: &[Output],
    ) -> Output {
        let controls = if self.has_control_flow() {
            sources.iter().map(|source| self.control_of(*source)).collect()
        } else {
            Vec::new()
        };
        self.add_const(name, device, value, controls)
    }

    fn add_const(
        &mut self,
        name: String,
        device: &str,
        value: &HostTensor,
        controls: Vec<NodeId>,
    ) -> Output {
        let node = self.add(NewNode {
            name,
            op: "Const".to_owned(),
            device: device.to_owned(),
            inputs: Vec::new(),
            controls,
            attrs: vec![("dtype", value.dtype.into()), ("value", value.into())],
            infos: vec![TensorInfo::known(value.dtype, &value.dims)],
        });
        Output { node, port: 0 }
    }

    /// A node that runs exactly if a tensor exists. A control edge from a `Switch` itself would
    /// lead into both branches.
    pub fn control_of(&mut self, tensor: Output) -> NodeId {
        let node = self.node(tensor.node);
        if !matches!(node.op(), "Switch" | "RefSwitch" | "_SwitchN") {
            return tensor.node;
        }
        let known = self.readers(tensor).map(|(reader, _)| reader).find(|reader| {
            let reader = self.node(*reader);
            reader.op() == "Identity"
                && reader.device() == node.device()
                && reader.controls().is_empty()
        });
        if let Some(known) = known {
            return known;
        }
        let new = NewNode {
            name: format!("{}/branch_{}", node.name(), tensor.port),
            op: "Identity".to_owned(),
            device: node.device().to_owned(),
            inputs: vec![tensor],
            controls: Vec::new(),
            attrs: node.attr("T").map(|dtype| ("T", dtype.clone())).into_iter().collect(),
            infos: vec![self.info(tensor).clone()],
        };
        self.add(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop in a loop, each with a constant.
    const LOOPS: &str = "x = Placeholder -> float32[]
        o = Enter(x) {frame_name: \"outer\"} -> float32[]
        m = Merge(o, n) -> float32[], int32[]
        c = Const(^m) {value: tensor float32[] [1], dtype: float32} -> float32[]
        i = Enter(m) {frame_name: \"inner\"} -> float32[]
        k = Merge(i, l) -> float32[], int32[]
        d = Const(^k) {value: tensor float32[] [1], dtype: float32} -> float32[]
        a = AddV2(k, d) {T: float32} -> float32[]
        l = NextIteration(a) -> float32[]
        e = Exit(a) -> float32[]
        b = AddV2(e, c) {T: float32} -> float32[]
        n = NextIteration(b) -> float32[]
        y = Exit(b) -> float32[]
        z = Neg(y) {T: float32} -> float32[]";

    #[test]
    fn nodes_are_in_the_frame_of_their_inputs() {
        let graph = Graph::from_text(LOOPS).unwrap();
        let name =
            |node: &str| graph.frames.name(graph.frame(graph.find(node).expect("it is there")));
        for node in ["x", "y", "z"] {
            assert_eq!(name(node), "no loop", "{node}");
        }
        for node in ["o", "m", "c", "e", "b", "n"] {
            assert_eq!(name(node), "loop \"outer\"", "{node}");
        }
        for node in ["i", "k", "d", "a", "l"] {
            assert_eq!(name(node), "loop \"inner\" in loop \"outer\"", "{node}");
        }
        graph.check_frames().unwrap();
    }

    #[test]
    fn a_constant_without_an_edge_of_control_is_outside_and_told() {
        let graph = Graph::from_text(&LOOPS.replace("Const(^k)", "Const")).unwrap();
        let error = graph.check_frames().unwrap_err().to_string();
        assert!(
            error.contains("a of op AddV2 reads k in loop \"inner\" in loop \"outer\" and d in no"),
            "{error}"
        );
    }

    #[test]
    fn a_new_constant_gets_its_edge_of_control() {
        let mut graph = Graph::from_text(LOOPS).unwrap();
        let value = HostTensor::i32(&[], &[1]);
        for (beside, frame) in [("x", "no loop"), ("b", "loop \"outer\"")] {
            let tensor = Output { node: graph.find(beside).unwrap(), port: 0 };
            let made = graph.add_constant(format!("{beside}/new"), "", &value, tensor);
            assert_eq!(graph.frames.name(graph.frame(made.node)), frame);
            assert_eq!(graph.node(made.node).controls().is_empty(), beside == "x");
        }
        graph.check_frames().unwrap();
    }

    #[test]
    fn a_constant_in_the_place_of_a_branch_stays_in_the_branch() {
        let text = "x = Placeholder -> float32[]\np = Placeholder -> bool[]\ns = Switch(x, p) {T: \
                    float32} -> float32[], float32[]\na = Neg(s:1) {T: float32} -> float32[]\nm = \
                    Merge(s, a) {T: float32} -> float32[], int32[]";
        let mut graph = Graph::from_text(text).unwrap();
        let value = HostTensor::floats(crate::dtype::DType::F32, &[], &[2.0]);
        let (s, a) = (graph.find("s").unwrap(), graph.find("a").unwrap());
        let made = graph.add_constant_from("c".into(), "", &value, &[Output { node: s, port: 1 }]);
        let branch = graph.find("s/branch_1").unwrap();
        assert_eq!(graph.node(made.node).controls(), [branch]);
        graph.replace_readers(Output { node: a, port: 0 }, made);
        graph.remove(a);
        // The identity that exists already serves the next constant.
        let again = graph.add_constant_from("d".into(), "", &value, &[Output { node: s, port: 1 }]);
        assert_eq!(graph.node(again.node).controls().len(), 1);
    }
}
