//! A topological order that is kept up to date while a graph is rewritten.
//!
//! Each node has a rank above the ranks of its inputs. A new node gets a rank between those of its
//! inputs and its users; only nodes between the two in the old order move (Pearce and Kelly, "A
//! dynamic topological sort algorithm for directed acyclic graphs", 2006). Searches for paths need
//! not look beyond the ranks of the paths' ends.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::graph::{Graph, NodeId};

/// The distance between the ranks of the initial nodes. It is small in tests, so that free ranks
/// run out.
const GAP: u64 = if cfg!(test) { 4 } else { 1 << 32 };
/// The largest number of nodes that a search for a path visits. If a search needs more, the path
/// counts as found, so that time stays linear.
const MAX_SEARCHED: usize = 1 << 12;
/// The rank of a node that is not in the order.
const NONE: u64 = u64::MAX;

/// The ranks of a graph's nodes. Edges back into loops of TensorFlow 1 don't count.
pub struct Order {
    rank: Vec<u64>,
    /// The ranks that new nodes got, even if these are gone: no two nodes have the same rank.
    given: FxHashSet<u64>,
}

impl Order {
    /// The order of [`Graph::order`]; `None` for a graph with a cycle.
    pub fn new(graph: &Graph) -> Option<Self> {
        Some(Self::of(graph, &graph.order()?))
    }

    /// The ranks of a graph's nodes that are in this order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut rank = vec![NONE; graph.capacity()];
        for (at, id) in (1..).zip(order) {
            rank[id.index()] = at * GAP;
        }
        Self { rank, given: FxHashSet::default() }
    }

    /// The rank of a node; none for a new node that was not entered.
    pub fn rank(&self, id: NodeId) -> Option<u64> {
        self.rank.get(id.index()).copied().filter(|rank| *rank != NONE)
    }

    /// Enters a new node of the graph, with its edges. `None` if these close a cycle.
    pub fn enter(&mut self, graph: &Graph, id: NodeId) -> Option<()> {
        self.rank.resize(graph.capacity(), NONE);
        let ranks = |order: &Self, ids: &[NodeId]| {
            ids.iter().filter_map(|n| order.rank(*n)).collect::<Vec<_>>()
        };
        let (used, users): (Vec<NodeId>, &[NodeId]) =
            (graph.preceding(id).collect(), &graph.following(id).collect::<Vec<_>>());
        let mut below = ranks(self, &used).into_iter().max().unwrap_or(0);
        let mut above = ranks(self, users).into_iter().min().unwrap_or(below + 2 * GAP);
        if above <= below {
            let behind = self.between(graph, users, above..=below, true);
            let before = self.between(graph, &used, above..=below, false);
            if behind.iter().any(|n| before.contains(n)) {
                return None;
            }
            (below, above) = self.part(before, behind);
        }
        match (below + (above - below) / 2..above)
            .find(|rank| rank % GAP != 0 && !self.given.contains(rank))
        {
            Some(rank) => {
                self.given.insert(rank);
                self.rank[id.index()] = rank;
            }
            None => *self = Self::new(graph)?,
        }
        Some(())
    }

    /// The nodes with these ranks on paths from `start`, which lead to users if `down`, and to
    /// inputs otherwise.
    fn between(
        &self,
        graph: &Graph,
        start: &[NodeId],
        ranks: std::ops::RangeInclusive<u64>,
        down: bool,
    ) -> FxHashSet<NodeId> {
        let within = |n: &NodeId| self.rank(*n).is_some_and(|rank| ranks.contains(&rank));
        let mut seen: FxHashSet<NodeId> = start.iter().copied().filter(within).collect();
        let mut stack: Vec<NodeId> = seen.iter().copied().collect();
        while let Some(id) = stack.pop() {
            for next in self.next(graph, id, down) {
                if within(&next) && seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        seen
    }

    /// The users of a node, or its inputs, without edges back into loops.
    fn next(&self, graph: &Graph, id: NodeId, down: bool) -> SmallVec<[NodeId; 8]> {
        let own = self.rank(id);
        if down {
            graph.following(id).filter(|n| self.rank(*n) > own).collect()
        } else {
            graph.preceding(id).filter(|n| self.rank(*n) < own).collect()
        }
    }

    /// Deals the ranks of two sets of nodes out anew: `before` gets the lower ones, `behind` the
    /// upper ones. Returns the two ranks where the sets meet.
    fn part(&mut self, before: FxHashSet<NodeId>, behind: FxHashSet<NodeId>) -> (u64, u64) {
        let sorted = |nodes: FxHashSet<NodeId>| {
            let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
            nodes.sort_unstable_by_key(|n| self.rank[n.index()]);
            nodes
        };
        let (before, behind) = (sorted(before), sorted(behind));
        let nodes = [&before[..], &behind].concat();
        let mut ranks: Vec<u64> = nodes.iter().map(|n| self.rank[n.index()]).collect();
        ranks.sort_unstable();
        for (node, rank) in nodes.iter().zip(&ranks) {
            self.rank[node.index()] = *rank;
        }
        (ranks[before.len() - 1], ranks[before.len()])
    }

    /// Whether it is certain that no path leaves the region and comes back. Only then can one node
    /// replace the region.
    pub fn is_convex(&self, graph: &Graph, region: &[NodeId]) -> bool {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let outside = |down: bool| -> FxHashSet<NodeId> {
            let next = region.iter().flat_map(|id| self.next(graph, *id, down));
            next.filter(|id| !inside.contains(id)).collect()
        };
        let (below, above) = (outside(true), outside(false));
        !below.iter().any(|id| above.contains(id)) && !self.meet(graph, &inside, [below, above])
    }

    /// Whether a search down from the first set of nodes, or one up from the second, reaches a node
    /// of `ends`. Both stay between the ranks of `ends`. They advance in turn, and whichever
    /// finishes first decides.
    fn meet(
        &self,
        graph: &Graph,
        ends: &FxHashSet<NodeId>,
        starts: [FxHashSet<NodeId>; 2],
    ) -> bool {
        let ranks = ends.iter().filter_map(|n| self.rank(*n));
        let (Some(first), Some(last)) = (ranks.clone().min(), ranks.max()) else { return false };
        let within =
            |id: &NodeId| self.rank(*id).is_some_and(|rank| (first..=last).contains(&rank));
        let mut stacks =
            starts.each_ref().map(|start| start.iter().copied().filter(within).collect::<Vec<_>>());
        let mut seen = starts;
        for _ in 0..MAX_SEARCHED {
            for (way, stack) in stacks.iter_mut().enumerate() {
                let Some(id) = stack.pop() else { return false };
                for next in self.next(graph, id, way == 0) {
                    if ends.contains(&next) {
                        return true;
                    }
                    if within(&next) && seen[way].insert(next) {
                        stack.push(next);
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::optimizer::graph::NewNode;

    /// Whether every node's rank is above the ranks of its inputs.
    fn holds(order: &Order, graph: &Graph) -> bool {
        graph.ids().all(|id| {
            graph.used(id).all(|used| order.rank(used).unwrap() < order.rank(id).unwrap())
        })
    }

    /// Random convex regions of random graphs become nodes. Both tests for convexity must agree.
    #[test]
    fn the_order_follows_replacements() {
        let mut state = 3u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let (mut replaced, mut refused) = (0, 0);
        for _ in 0..150 {
            let n = 24;
            let edges: BTreeSet<(usize, usize)> =
                (0..40).map(|_| (below(n), below(n))).filter(|(a, b)| a < b).collect();
            let line = |i: usize| {
                let inputs: Vec<_> =
                    edges.iter().filter(|e| e.1 == i).map(|e| format!("^n{}", e.0)).collect();
                if inputs.is_empty() {
                    format!("n{i} = A")
                } else {
                    format!("n{i} = A({})", inputs.join(", "))
                }
            };
            let text: Vec<String> = (0..n).rev().map(line).collect();
            let mut graph = Graph::from_text(&text.join("\n")).unwrap();
            let mut order = Order::new(&graph).unwrap();
            for step in 0..8 {
                let left: Vec<NodeId> = graph.ids().collect();
                let mut region: Vec<NodeId> = (0..3).map(|_| left[below(left.len())]).collect();
                region.sort_unstable();
                region.dedup();
                let convex = order.is_convex(&graph, &region);
                assert_eq!(convex, graph.is_convex(&region));
                if convex {
                    let new =
                        NewNode { name: format!("m{step}"), op: "A".into(), ..NewNode::default() };
                    let id = graph.replace_region(&region, new, &[]);
                    order.enter(&graph, id).unwrap();
                    assert!(holds(&order, &graph));
                    replaced += 1;
                } else {
                    refused += 1;
                }
            }
        }
        assert!(replaced > 100 && refused > 100, "{replaced} {refused}");
    }

    #[test]
    fn a_cycle_is_seen() {
        let mut graph = Graph::from_text("a = A\nb = A(^a)\nc = A(^b)").unwrap();
        let id = |graph: &Graph, name: &str| graph.find(name).unwrap();
        let mut order = Order::new(&graph).unwrap();
        let (a, c) = (id(&graph, "a"), id(&graph, "c"));
        let new = graph.add(NewNode {
            name: "d".into(),
            op: "A".into(),
            controls: vec![c],
            ..NewNode::default()
        });
        graph.add_control(a, new);
        assert!(order.enter(&graph, new).is_none());
    }
}
