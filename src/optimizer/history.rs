//! The place of each use of a variable among the nodes that write it.
//!
//! Automatic control dependencies put all uses of a variable in one order. Then the place of a use
//! follows from its neighbours in that order, and only the paths to these are searched. Where some
//! writers are unordered, the paths to each of them are searched, up to a limit.

use rustc_hash::FxHashMap;

use super::graph::paths::Places;
use super::graph::{Graph, NodeId};
use super::variables::{ASSIGNS, Uses, Variables};

/// The largest number of neighbouring writers without an order. Beyond it, nothing is known about
/// the variable.
const MAX_BREAKS: usize = 8;

/// The last node that wrote a variable before a given use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// No node in this graph.
    Nobody,
    /// This node.
    Node(NodeId),
    /// It is unknown: some writer may come before the use or after it.
    Unknown,
}

/// The places of the reads and assignments of a graph.
#[derive(Debug, Default)]
pub struct History {
    known: FxHashMap<NodeId, (usize, Writer)>,
}

/// The writers of one variable.
struct Writers {
    /// The nodes, in the graph's order.
    nodes: Vec<NodeId>,
    /// The indices of the writers from which no path leads to the next writer.
    breaks: Vec<usize>,
}

impl Writers {
    fn of(uses: &Uses, places: &Places<'_>) -> Self {
        let mut nodes = uses.writers.clone();
        nodes.sort_unstable_by_key(|w| places.of(*w));
        nodes.dedup();
        Self { nodes, breaks: Vec::new() }
    }

    fn neighbours(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.nodes.windows(2).map(|w| (w[0], w[1]))
    }

    /// The number of writers before a use in the order of the nodes, and the index of the first
    /// writer after it.
    fn around(&self, id: NodeId, places: &Places<'_>) -> (usize, usize) {
        let before = self.nodes.partition_point(|w| places.of(*w) < places.of(id));
        (before, before + usize::from(self.nodes.get(before) == Some(&id)))
    }

    /// The pairs of nodes that paths must connect if all writers are to be ordered with a use.
    fn asked(&self, id: NodeId, places: &Places<'_>) -> Vec<(NodeId, NodeId)> {
        let (before, after) = self.around(id, places);
        let ends =
            self.breaks.iter().copied().filter(|at| at + 1 < before).chain(before.checked_sub(1));
        let heads = self.breaks.iter().map(|at| at + 1).filter(|at| *at > after).chain(Some(after));
        let ends = ends.map(|at| (self.nodes[at], id));
        ends.chain(heads.filter_map(|at| Some((id, *self.nodes.get(at)?)))).collect()
    }

    /// The number of writers before a use that is ordered with all writers, and the last of them.
    fn last_before(&self, id: NodeId, places: &Places<'_>) -> (usize, Writer) {
        let (before, _) = self.around(id, places);
        let writer = match before.checked_sub(1) {
            None => Writer::Nobody,
            Some(last) if self.breaks.first().is_none_or(|at| *at >= last) => {
                Writer::Node(self.nodes[last])
            }
            Some(_) => Writer::Unknown,
        };
        (before, writer)
    }
}

impl History {
    /// Finds the place of every read and every assignment.
    pub fn of(graph: &Graph, places: &Places<'_>, variables: &Variables) -> Self {
        let mut all: Vec<(Writers, Vec<NodeId>)> = Vec::new();
        for uses in variables.all() {
            let writers = Writers::of(uses, places);
            let assigns =
                writers.nodes.iter().copied().filter(|w| ASSIGNS.contains(&graph.node(*w).op()));
            let asking: Vec<NodeId> = uses.reads.iter().copied().chain(assigns).collect();
            all.push((writers, asking));
        }
        let neighbours: Vec<_> = all.iter().flat_map(|(writers, _)| writers.neighbours()).collect();
        let mut answers = places.connected(&neighbours).into_iter();
        for (writers, _) in &mut all {
            let ordered = answers.by_ref().take(writers.nodes.len().saturating_sub(1));
            writers.breaks =
                ordered.enumerate().filter(|(_, ordered)| !ordered).map(|(at, _)| at).collect();
        }
        all.retain(|(writers, _)| writers.breaks.len() <= MAX_BREAKS);
        let mut pairs = Vec::new();
        let mut asked: Vec<(NodeId, &Writers, usize)> = Vec::new();
        for (writers, asking) in &all {
            for id in asking {
                let own = writers.asked(*id, places);
                asked.push((*id, writers, own.len()));
                pairs.extend(own);
            }
        }
        let mut answers = places.connected(&pairs).into_iter();
        let mut history = Self::default();
        for (id, writers, count) in asked {
            // `fold` takes all answers of this use, so that the next use gets its own.
            if answers.by_ref().take(count).fold(true, |all, answer| all & answer) {
                history.known.insert(id, writers.last_before(id, places));
            }
        }
        history
    }

    /// The number of writers of its variable before a read or an assignment, if it is certain that
    /// all other writers come after it.
    pub fn place(&self, id: NodeId) -> Option<usize> {
        self.known.get(&id).map(|(place, _)| *place)
    }

    /// The last node that writes the variable of `id` before `id` does.
    pub fn last_writer(&self, id: NodeId) -> Writer {
        self.known.get(&id).map_or(Writer::Unknown, |(_, writer)| *writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place and the last writer of each named use.
    fn history(text: &str, names: &[&str]) -> Vec<(Option<usize>, String)> {
        let graph = Graph::from_text(text).unwrap();
        let order = graph.order().unwrap();
        let history = History::of(&graph, &Places::new(&graph, &order), &Variables::of(&graph));
        let writer = |id| match history.last_writer(id) {
            Writer::Node(w) => graph.node(w).name().to_owned(),
            other => format!("{other:?}"),
        };
        let ids = names.iter().map(|name| graph.find(name).unwrap());
        ids.map(|id| (history.place(id), writer(id))).collect()
    }

    #[test]
    fn ordered_uses_know_their_last_writer() {
        let text = "h = VarHandleOp {shared_name: \"v\"}\nx = Placeholder\nr0 = \
                    ReadVariableOp(h)\ny = Exp(r0)\na = AssignAddVariableOp(h, y)\nr1 = \
                    ReadVariableOp(h, ^a)\nb = AssignVariableOp(h, x, ^r1)\nr2 = \
                    ReadVariableOp(h, ^b)";
        let some = |place, writer: &str| (Some(place), writer.to_owned());
        let wanted =
            [some(0, "Nobody"), some(0, "Nobody"), some(1, "a"), some(1, "a"), some(2, "b")];
        assert_eq!(history(text, &["r0", "a", "r1", "b", "r2"]), wanted);
    }

    #[test]
    fn a_use_without_an_order_is_unknown() {
        let text = "h = VarHandleOp {shared_name: \"v\"}\nx = Placeholder\na = \
                    AssignAddVariableOp(h, x)\nr = ReadVariableOp(h)\nb = AssignAddVariableOp(h, \
                    x)\nc = NoOp(^a, ^b)\ns = ReadVariableOp(h, ^c)";
        let unknown = || (None, "Unknown".to_owned());
        // The last read comes after both writers, but it is unknown which of them is the last.
        assert_eq!(
            history(text, &["r", "a", "b", "s"]),
            [unknown(), unknown(), unknown(), (Some(2), "Unknown".to_owned())]
        );
    }
}
