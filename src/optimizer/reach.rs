//! Which nodes come before which: all paths of a graph, as bits.
//!
//! Made once for a graph; [`Reach::contract`] follows when one node takes the place of several.

use rustc_hash::FxHashMap;

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
            for used in node.inputs().iter().map(|i| i.node).chain(node.controls().iter().copied()) {
                // An edge back into a loop comes from a node that has no position yet.
                let Some(from) = Some(position[used.index()] as usize).filter(|p| *p < at) else { continue };
                // The order puts everything before `from` in front of it, so its words end there.
                let end = from / 64 + 1;
                for (to, from) in own[..end].iter_mut().zip(&before[from * words..][..end]) {
                    *to |= from;
                }
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

    /// Follows the replacement of `nodes` by `new`.
    pub fn contract(&mut self, nodes: &[NodeId], new: NodeId) {
        let mut before = self.ancestors(nodes);
        for node in nodes {
            let at = self.position(*node);
            before[at / 64] |= 1 << (at % 64);
        }
        let positions: Vec<usize> = nodes.iter().map(|n| self.position(*n)).collect();
        // Their bits, by word: rows have many words, and the nodes are in few of them.
        let mut masks: FxHashMap<usize, u64> = FxHashMap::default();
        for at in &positions {
            *masks.entry(at / 64).or_default() |= 1 << (at % 64);
        }
        let mut masks: Vec<(usize, u64)> = masks.into_iter().collect();
        masks.sort_unstable();
        for row in self.bits.chunks_exact_mut(self.words) {
            if masks.iter().any(|(word, mask)| row[*word] & mask != 0) {
                row.iter_mut().zip(&before).for_each(|(r, b)| *r |= b);
            }
        }
        // The nodes themselves precede none among them any more; whoever asks does so by the new one.
        for at in &positions {
            self.bits[at * self.words..][..self.words].copy_from_slice(&before);
        }
        if let Some(first) = nodes.first() {
            let first = self.later.get(first).copied().unwrap_or(*first);
            self.later.insert(new, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_known_and_follow_a_contraction() {
        let text = "a = Placeholder\nb = Exp(a)\nc = Exp(b)\nd = Exp(a)\ne = Exp(d, ^c)\nf = Placeholder\ng = Exp(f)";
        let graph = Graph::from_text(text).unwrap();
        let id = |name: &str| graph.find(name).unwrap();
        let mut reach = Reach::new(&graph, &graph.order().unwrap());
        assert!(reach.precedes(id("a"), id("e")) && reach.precedes(id("b"), id("e")));
        assert!(
            !reach.precedes(id("b"), id("d")) && !reach.precedes(id("e"), id("a")) && !reach.precedes(id("a"), id("a"))
        );
        assert!(!reach.precedes(id("f"), id("e")));
        // d and g become one node: what comes before g now comes before e.
        reach.contract(&[id("d"), id("g")], id("d"));
        assert!(
            reach.precedes(id("f"), id("e")) && reach.precedes(id("g"), id("e")) && !reach.precedes(id("f"), id("c"))
        );
    }
}
