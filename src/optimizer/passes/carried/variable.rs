//! Variables of loops, as TensorFlow's executor carries them from step to step.

use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::TensorInfo;

/// The attributes of the ops that carry a tensor, besides its type.
const ATTRS: [&str; 4] = ["N", "frame_name", "is_constant", "parallel_iterations"];

/// A variable of a loop: the nodes that carry it.
#[derive(Clone, Copy)]
pub struct Carried {
    /// The node that takes the first value into the loop.
    pub enter: NodeId,
    /// The node that begins a step.
    pub merge: NodeId,
    /// The node that decides whether the step runs.
    pub switch: NodeId,
    /// The node that takes the last value out of the loop, if there is one.
    pub exit: Option<NodeId>,
    /// The node that ends a step.
    pub next: NodeId,
}

impl Carried {
    /// The variable whose steps begin at `merge`, if it is one.
    pub fn of(graph: &Graph, merge: NodeId) -> Option<Self> {
        let &[begin, back] = graph.node(merge).inputs() else { return None };
        let is = |id: NodeId, op: &str| graph.node(id).op() == op;
        let output = |node, port| Output { node, port };
        let readers = |tensor| graph.readers_in_any_order(tensor).map(|(id, _)| id);
        let mut switches = readers(output(merge, 0)).filter(|id| is(*id, "Switch"));
        let (switch, other) = (switches.next()?, switches.next());
        let condition = graph.node(switch).inputs().get(1)?;
        let mut exits = readers(output(switch, 0));
        let exit = exits.next();
        let fits = is(merge, "Merge")
            && is(begin.node, "Enter")
            && is(back.node, "NextIteration")
            && is(condition.node, "LoopCond")
            && other.is_none()
            && exit.is_none_or(|id| is(id, "Exit"))
            && exits.next().is_none()
            && readers(output(merge, 1)).next().is_none();
        fits.then_some(Self { enter: begin.node, merge, switch, exit, next: back.node })
    }

    /// All its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        [self.enter, self.merge, self.switch, self.next].into_iter().chain(self.exit)
    }

    /// Whether all its nodes are on our devices, and none is preserved.
    pub fn is_ours(&self, graph: &Graph) -> bool {
        self.nodes().all(|id| graph.may_go(id).is_ok())
    }

    /// Whether a node waits for nothing but the decision that a step runs.
    pub fn begins_step(&self, graph: &Graph, id: NodeId) -> bool {
        let condition = graph.node(self.switch).inputs()[1];
        let node = graph.node(id);
        let switch = |input: &Output| {
            let node = graph.node(input.node);
            node.op() == "Switch" && node.inputs().get(1) == Some(&condition)
        };
        node.op() == "Identity"
            && node.controls().is_empty()
            && matches!(node.inputs(), [input] if input.port == 1 && switch(input))
    }

    /// Adds a variable of the same loop on `device`, with the first value `begin`. Its steps leave
    /// it as it is until the caller gives `next` another input.
    pub fn beside(
        &self,
        graph: &mut Graph,
        begin: Output,
        info: &TensorInfo,
        device: &str,
    ) -> Self {
        let output = |node, port| Output { node, port };
        let one = vec![info.clone()];
        let condition = graph.node(self.switch).inputs()[1];
        let mut like = |id: NodeId, inputs: Vec<Output>, infos: Vec<TensorInfo>| {
            let node = graph.node(id);
            let known = ATTRS.iter().filter_map(|name| Some((*name, node.attr(name)?.clone())));
            let dtype = info.dtype.map(|dtype| ("T", Attr::from(dtype)));
            let new = NewNode {
                name: format!("{}/part", node.name()),
                op: node.op().to_owned(),
                device: device.to_owned(),
                inputs,
                controls: node.controls().to_vec(),
                attrs: known.chain(dtype).collect(),
                infos,
            };
            graph.add(new)
        };
        let enter = like(self.enter, vec![begin], one.clone());
        let number = TensorInfo::known(DType::I32, &[]);
        let begun = vec![output(enter, 0); 2];
        let merge = like(self.merge, begun, vec![info.clone(), number]);
        let switch = like(self.switch, vec![output(merge, 0), condition], vec![info.clone(); 2]);
        let exit = self.exit.map(|exit| like(exit, vec![output(switch, 0)], one.clone()));
        let next = like(self.next, vec![output(switch, 1)], one);
        graph.set_input(merge, 1, output(next, 0));
        Self { enter, merge, switch, exit, next }
    }

    /// Removes the variable, for which `other` stands, with nodes of which it is the last reader.
    pub fn remove(&self, graph: &mut Graph, other: &Self, with: &[NodeId]) {
        for (old, new) in self.nodes().zip(other.nodes()) {
            graph.replace_waiters(old, new);
        }
        // Nodes that wait for each other in a circle are not removed.
        let begin = graph.node(self.enter).inputs()[0];
        graph.set_input(self.next, 0, begin);
        graph.remove_all(&self.nodes().chain(with.iter().copied()).collect::<Vec<_>>());
    }
}
