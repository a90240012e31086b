//! Which nodes come before which: all paths of a graph, as bits.
//!
//! Made once for a graph; [`Reach::contract`] follows when one node takes the place of several.

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::{Graph, NodeId};

/// The ancestors of every node, by data and control edges. Edges back into loops of TensorFlow 1 don't count.
pub struct Reach {
    /// Position of a node's bit, by node index.
    position: Vec<u32>,
    /// Nodes that came later, and the nodes in whose place they stand.
    later: FxHashMap<NodeId, NodeId>,
    words: usize,
    bits: Vec<u64>,
}

/// A set of nodes.
pub type Set = Vec<u64>;

impl Reach {
    /// The paths of a graph whose nodes have this order, see [`Graph::order`].
    pub fn new(graph: &Graph, order: &[NodeId]) -> Self {
        let words = order.len().div_ceil(64);
        let mut position = vec![u32::MAX; graph.capacity()];
        let mut bits = vec![0u64; words * order.len()];
        for (at, id) in order.iter().enumerate() {
            let node = graph.node(*id);
            let (before, own) = bits.split_at_mut(at * words);
            let own = &mut own[..words];
            let mut filled = 0;
            for used in node.inputs().iter().map(|i| i.node).chain(node.controls().iter().copied()) {
                // An edge back into a loop comes from a node that has no position yet.
                let Some(from) = Some(position[used.index()] as usize).filter(|p| *p < at) else { continue };
                // The order puts everything before `from` in front of it, so its words end there.
                let end = from / 64 + 1;
                let theirs = &before[from * words..][..end];
                // Memory that is written before it is read costs one page fault instead of two.
                let (both, new) = theirs.split_at(end.min(filled));
                own[..both.len()].iter_mut().zip(both).for_each(|(to, from)| *to |= from);
                own[both.len()..end].copy_from_slice(new);
                filled = filled.max(end);
                own[from / 64] |= 1 << (from % 64);
            }
            position[id.index()] = at as u32;
        }
        Self { position, later: FxHashMap::default(), words, bits }
    }

    fn position(&self, id: NodeId) -> usize {
        let id = self.later.get(&id).copied().unwrap_or(id);
        self.position[id.index()] as usize
    }

    /// Whether a path leads from `a` to `b`.
    pub fn precedes(&self, a: NodeId, b: NodeId) -> bool {
        let a = self.position(a);
        self.bits[self.position(b) * self.words + a / 64] >> (a % 64) & 1 == 1
    }

    /// The place of a node in the order.
    pub fn rank(&self, id: NodeId) -> usize {
        self.position(id)
    }

    /// Everything that comes before some node of `nodes`.
    pub fn ancestors(&self, nodes: &[NodeId]) -> Set {
        let mut set = vec![0; self.words];
        for node in nodes {
            let row = &self.bits[self.position(*node) * self.words..][..self.words];
            set.iter_mut().zip(row).for_each(|(s, r)| *s |= r);
        }
        set
    }

    /// Whether a set that [`Reach::ancestors`] made holds a node.
    pub fn holds(&self, set: &Set, id: NodeId) -> bool {
        let at = self.position(id);
        set[at / 64] >> (at % 64) & 1 == 1
    }

    /// Follows the replacement of `nodes` by `new`, which the graph shows already.
    pub fn contract(&mut self, graph: &Graph, nodes: &[NodeId], new: NodeId) {
        let Some(first) = nodes.first() else { return };
        let mut before = self.ancestors(nodes);
        for node in nodes {
            let at = self.position(*node);
            before[at / 64] |= 1 << (at % 64);
        }
        let first = self.later.get(first).copied().unwrap_or(*first);
        self.later.insert(new, first);
        let at = self.position(new);
        self.bits[at * self.words..][..self.words].copy_from_slice(&before);
        let mut seen: FxHashSet<NodeId> = FxHashSet::from_iter([new]);
        let mut stack = vec![new];
        while let Some(id) = stack.pop() {
            for user in graph.users(id).iter().copied() {
                if graph.is_back_edge(id, user) || !seen.insert(user) {
                    continue;
                }
                let at = self.position(user);
                let row = &mut self.bits[at * self.words..][..self.words];
                row.iter_mut().zip(&before).for_each(|(r, b)| *r |= b);
                stack.push(user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::graph::{NewNode, Output};

    #[test]
    fn paths_are_known_and_follow_a_contraction() {
        let text = "a = Placeholder\nb = Exp(a)\nc = Exp(b)\nd = Exp(a)\ne = Exp(d, ^c)\nf = Placeholder\ng = Exp(f)";
        let mut graph = Graph::from_text(text).unwrap();
        let ids = ["a", "b", "c", "d", "e", "f", "g"].map(|name| graph.find(name).unwrap());
        let id = |name: &str| ids[usize::from(name.as_bytes()[0] - b'a')];
        let mut reach = Reach::new(&graph, &graph.order().unwrap());
        assert!(reach.precedes(id("a"), id("e")) && reach.precedes(id("b"), id("e")));
        assert!(
            !reach.precedes(id("b"), id("d")) && !reach.precedes(id("e"), id("a")) && !reach.precedes(id("a"), id("a"))
        );
        assert!(!reach.precedes(id("f"), id("e")));
        // d and g become one node: what comes before g now comes before e.
        let new = NewNode { name: "h".into(), op: "Exp".into(), inputs: vec![], ..NewNode::default() };
        let d = Output { node: id("d"), port: 0 };
        let h = graph.replace_region(&[id("d"), id("g")], new, &[(d, 0)]);
        reach.contract(&graph, &[id("d"), id("g")], h);
        assert!(reach.precedes(id("f"), id("e")) && reach.precedes(h, id("e")) && reach.precedes(id("f"), h));
        assert!(!reach.precedes(id("f"), id("c")) && !reach.precedes(id("e"), h));
    }
}
