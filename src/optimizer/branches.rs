//! The conditions under which the nodes of a graph run.

use rustc_hash::FxHashMap;

use super::graph::{Graph, NodeId, Output};

/// The largest number of conditions of one node. A node with more counts as unknown.
const MAX_CONDITIONS: usize = 64;

/// A set of conditions, as a number: the branches of `Switch`es and the loops of TensorFlow 1 that
/// contain a node.
pub type Conditions = u32;

/// The conditions of all nodes.
pub struct Branches {
    /// The sets by number; `None` for a set with too many conditions.
    sets: Vec<Option<Vec<Condition>>>,
    of: Vec<Conditions>,
    /// Whether all nodes run.
    is_uniform: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Condition {
    Branch(Output, u32),
    Loop(String),
}

/// The set without duplicates; `None` if it has too many conditions.
fn limited(mut set: Vec<Condition>) -> Option<Vec<Condition>> {
    set.sort_unstable();
    set.dedup();
    (set.len() <= MAX_CONDITIONS).then_some(set)
}

impl Branches {
    /// Finds the conditions of a graph's nodes, given in topological order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut known: FxHashMap<Vec<Condition>, Conditions> =
            FxHashMap::from_iter([(Vec::new(), 0)]);
        let mut branches = Self {
            sets: vec![Some(Vec::new())],
            of: vec![0; graph.capacity()],
            is_uniform: !graph.has_control_flow(),
        };
        if branches.is_uniform {
            return branches;
        }
        // The conditions outside of each loop.
        let mut around: FxHashMap<String, Option<Vec<Condition>>> = FxHashMap::default();
        for id in order {
            let set = branches.find(graph, *id, &mut around);
            let next = branches.sets.len() as u32;
            let number = match &set {
                // Unknown conditions get a number of their own.
                None => next,
                Some(set) => *known.entry(set.clone()).or_insert(next),
            };
            if number == next {
                branches.sets.push(set);
            }
            branches.of[id.index()] = number;
        }
        branches
    }

    fn find(
        &self,
        graph: &Graph,
        id: NodeId,
        around: &mut FxHashMap<String, Option<Vec<Condition>>>,
    ) -> Option<Vec<Condition>> {
        let node = graph.node(id);
        if self.is_plain(graph, id) {
            return Some(Vec::new());
        }
        let set =
            if node.op() == "Merge" { self.merged(graph, id)? } else { self.united(graph, id)? };
        match node.op() {
            "Enter" => {
                let frame =
                    node.attr("frame_name").and_then(|a| a.string()).unwrap_or_default().to_owned();
                let outside = around.entry(frame.clone()).or_insert_with(|| Some(Vec::new()));
                *outside =
                    outside.take().and_then(|outside| limited([outside, set.clone()].concat()));
                limited([set, vec![Condition::Loop(frame)]].concat())
            }
            "Exit" => {
                let loops = set.iter().filter_map(|c| match c {
                    Condition::Loop(frame) => around.get(frame),
                    Condition::Branch(..) => None,
                });
                // The innermost loop has the most conditions around it.
                let loops: Vec<_> = loops.map(Option::as_ref).collect::<Option<_>>()?;
                Some(loops.into_iter().max_by_key(|a| a.len()).cloned().unwrap_or_default())
            }
            _ => Some(set),
        }
    }

    /// Whether a node and all its inputs run unconditionally.
    fn is_plain(&self, graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        let free = |used: NodeId| self.of[used.index()] == 0;
        node.op() != "Enter"
            && node.controls().iter().all(|control| free(*control))
            && node
                .inputs()
                .iter()
                .all(|input| free(input.node) && !switches(graph.node(input.node).op()))
    }

    /// The conditions under which an input arrives.
    fn of_input(&self, graph: &Graph, input: Output) -> Option<Vec<Condition>> {
        let mut set = self.sets[self.conditions(input.node) as usize].clone()?;
        let from = graph.node(input.node);
        if switches(from.op()) {
            // The `Switch` of a loop leaves the loop or stays in it.
            set.push(Condition::Branch(*from.inputs().get(1)?, input.port));
        }
        Some(set)
    }

    /// The conditions of a node that runs when all its inputs have arrived.
    fn united(&self, graph: &Graph, id: NodeId) -> Option<Vec<Condition>> {
        let mut all = Vec::new();
        for input in graph.node(id).inputs() {
            all.extend(self.of_input(graph, *input)?);
            if all.len() > 4 * MAX_CONDITIONS {
                all = limited(all)?;
            }
        }
        for control in graph.node(id).controls() {
            all.extend(self.sets[self.conditions(*control) as usize].clone()?);
            if all.len() > 4 * MAX_CONDITIONS {
                all = limited(all)?;
            }
        }
        limited(all)
    }

    /// The conditions of a node that runs when one input has arrived. The input from a loop's
    /// previous step arrives only if the input from outside has arrived before.
    fn merged(&self, graph: &Graph, id: NodeId) -> Option<Vec<Condition>> {
        let node = graph.node(id);
        let inputs = node.inputs().iter().filter(|input| !graph.is_back_edge(input.node, id));
        let inputs = inputs.map(|input| self.of_input(graph, *input));
        let controls =
            node.controls().iter().map(|c| self.sets[self.conditions(*c) as usize].clone());
        let mut sets = inputs.chain(controls);
        let mut common = sets.next().unwrap_or_else(|| Some(Vec::new()))?;
        for set in sets {
            let set = set?;
            common.retain(|condition| set.contains(condition));
        }
        limited(common)
    }

    /// Whether two nodes certainly run under the same conditions. If nodes do not all run, one that
    /// a pass has added since agrees with none.
    pub fn agree(&self, a: NodeId, b: NodeId) -> bool {
        let of = |id: NodeId| self.of.get(id.index());
        self.is_uniform || of(a).is_some() && of(a) == of(b)
    }

    /// The conditions of a node. Equal numbers mean equal conditions.
    pub fn conditions(&self, id: NodeId) -> Conditions {
        self.of[id.index()]
    }

    /// Whether two tensors never exist together: they come from different branches of one decision.
    /// If the conditions of one are unknown, the answer is yes.
    pub fn exclude(&self, graph: &Graph, a: Output, b: Output) -> bool {
        let (Some(a), Some(b)) = (self.of_input(graph, a), self.of_input(graph, b)) else {
            return true;
        };
        a.iter().any(|condition| {
            let Condition::Branch(decision, port) = condition else { return false };
            let other =
                |c: &Condition| matches!(c, Condition::Branch(d, p) if d == decision && p != port);
            b.iter().any(other)
        })
    }

    /// Whether a tensor comes from a branch. If its conditions are unknown, the answer is yes.
    pub fn is_conditional(&self, graph: &Graph, tensor: Output) -> bool {
        let set = self.of_input(graph, tensor);
        set.is_none_or(|set| set.iter().any(|c| matches!(c, Condition::Branch(..))))
    }

    /// Whether a node is in a loop, or may be.
    pub fn in_loop(&self, id: NodeId) -> bool {
        let set = self.sets[self.conditions(id) as usize].as_ref();
        set.is_none_or(|set| set.iter().any(|c| matches!(c, Condition::Loop(_))))
    }
}

/// Whether only some of an op's outputs are alive.
fn switches(op: &str) -> bool {
    matches!(op, "RefSwitch" | "Switch" | "_SwitchN")
}
