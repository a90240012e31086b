//! Groups of nodes, each of which becomes one node. Merging groups never closes a cycle.
//!
//! A pass merges the groups of neighbours. Two groups may merge if no path leads from one to the
//! other through a third. The groups have ranks ([`super::ranks`]), so a search for such a path
//! visits only groups between the two.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::ranks::{Edges, Ranks};
use super::{Graph, NodeId};
use crate::optimizer::unions::Unions;

/// A partition of a graph's nodes whose groups form a graph without cycles.
#[derive(Debug)]
pub struct Clusters {
    /// The ranks of representatives.
    ranks: Ranks,
    edges: GroupEdges,
}

/// The other ends of a group's edges: nodes of other groups.
type Ends = SmallVec<[NodeId; 4]>;

/// The edges between groups. Each group has the list of its representative. A list names nodes, not
/// their groups: so a merge need not look for itself in the lists of its neighbours, which may be
/// long. Some neighbours occur several times.
#[derive(Debug)]
struct GroupEdges {
    /// The nodes of each group, by their indices.
    groups: Unions,
    /// The users, and the nodes that are used.
    ends: [Vec<Ends>; 2],
}

impl GroupEdges {
    fn group(&self, id: NodeId) -> NodeId {
        NodeId(self.groups.root(id.index()) as u32)
    }
}

impl Edges for GroupEdges {
    fn after(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.ends[0][id.index()].iter().map(|end| self.group(*end))
    }

    fn before(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.ends[1][id.index()].iter().map(|end| self.group(*end))
    }
}

impl Clusters {
    /// One group for each node, except the nodes of `bypassed`, which have no group: an edge to one
    /// of them leads to its users instead. `None` for a graph with a cycle.
    pub fn bypassing(graph: &Graph, bypassed: &FxHashSet<NodeId>) -> Option<Self> {
        let order = graph.order()?;
        let n = graph.capacity();
        let ends = [vec![Ends::new(); n], vec![Ends::new(); n]];
        let mut edges = GroupEdges { groups: Unions::new(n), ends };
        for id in order.iter().copied().filter(|id| !bypassed.contains(id)) {
            let mut users: Vec<NodeId> = graph.after(id).collect();
            while let Some(user) = users.pop() {
                if bypassed.contains(&user) {
                    users.extend(graph.after(user));
                } else {
                    edges.ends[0][id.index()].push(user);
                    edges.ends[1][user.index()].push(id);
                }
            }
        }
        Some(Self { ranks: Ranks::new(&order, n), edges })
    }

    /// The group of a node, represented by one of its nodes. Nodes of one group have the same
    /// representative.
    pub fn group(&self, id: NodeId) -> NodeId {
        self.edges.group(id)
    }

    /// Merges the groups of two nodes, unless the graph would get a cycle. Returns whether it
    /// merged them.
    pub fn merge(&mut self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.group(a), self.group(b));
        let (first, second) = if self.ranks.get(a) < self.ranks.get(b) { (a, b) } else { (b, a) };
        let merges = a == b || self.ranks.merge(&self.edges, first, second).is_some();
        if merges && a != b {
            self.absorb(first, second);
        }
        merges
    }

    /// Moves the edges of `second` to `first`. `second` ceases to exist.
    fn absorb(&mut self, first: NodeId, second: NodeId) {
        self.edges.groups.join(first.index(), second.index());
        for way in 0..self.edges.ends.len() {
            let moved = std::mem::take(&mut self.edges.ends[way][second.index()]);
            let mut own = std::mem::take(&mut self.edges.ends[way][first.index()]);
            own.extend(moved);
            // The edges between the two are gone.
            own.retain(|end| self.edges.group(*end) != first);
            self.edges.ends[way][first.index()] = own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str) -> Graph {
        Graph::from_text(text).unwrap()
    }

    fn singles(graph: &Graph) -> Option<Clusters> {
        Clusters::bypassing(graph, &FxHashSet::default())
    }

    #[test]
    fn a_detour_forbids_a_merge() {
        let g = graph("a = A\nb = B(a)\nc = C(a, b)\nd = D(c)");
        let id = |name: &str| g.find(name).unwrap();
        let mut clusters = singles(&g).unwrap();
        assert!(!clusters.merge(id("a"), id("c")), "a path leads through b");
        assert!(clusters.merge(id("a"), id("b")) && clusters.merge(id("c"), id("a")));
        assert_eq!(clusters.group(id("a")), clusters.group(id("c")));
        assert!(clusters.merge(id("d"), id("b")));
    }

    #[test]
    fn control_edges_count() {
        let g = graph("a = A\nb = B(^a)\nc = C(a, ^b)");
        let mut clusters = singles(&g).unwrap();
        assert!(!clusters.merge(g.find("a").unwrap(), g.find("c").unwrap()));
    }

    /// Random merges in random graphs: a merge must be refused exactly if the graph of groups would
    /// get a cycle.
    #[test]
    fn merges_agree_with_a_search_for_cycles() {
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..60 {
            let n = 12;
            let edges: Vec<(usize, usize)> =
                (0..18).map(|_| (below(n), below(n))).filter(|(a, b)| a < b).collect();
            let line = |i: usize| {
                let inputs: Vec<_> =
                    edges.iter().filter(|e| e.1 == i).map(|e| format!("n{}", e.0)).collect();
                if inputs.is_empty() {
                    format!("n{i} = A")
                } else {
                    format!("n{i} = A({})", inputs.join(", "))
                }
            };
            // The lines are not in the order of the edges.
            let text: Vec<String> = (0..n).rev().map(line).collect();
            let g = graph(&text.join("\n"));
            let id = |i: usize| g.find(&format!("n{i}")).unwrap();
            let mut clusters = singles(&g).unwrap();
            let mut label: Vec<usize> = (0..n).collect();
            for _ in 0..30 {
                let (a, b) = (below(n), below(n));
                let mut merged = label.clone();
                merged.iter_mut().filter(|l| **l == label[b]).for_each(|l| *l = label[a]);
                let allowed = !cyclic(&merged, &edges);
                assert_eq!(
                    clusters.merge(id(a), id(b)),
                    allowed,
                    "{a} and {b} of {edges:?} in {label:?}"
                );
                if allowed {
                    label = merged;
                }
            }
        }
    }

    /// Whether the graph of groups has a cycle.
    fn cyclic(label: &[usize], edges: &[(usize, usize)]) -> bool {
        let mut left: Vec<(usize, usize)> =
            edges.iter().map(|(a, b)| (label[*a], label[*b])).filter(|(a, b)| a != b).collect();
        loop {
            let before = left.len();
            let targets: Vec<usize> = left.iter().map(|e| e.1).collect();
            left.retain(|e| targets.contains(&e.0));
            if left.len() == before {
                return !left.is_empty();
            }
        }
    }
}
