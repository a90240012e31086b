//! Groups of nodes, each of which becomes one node. Merging groups never closes a cycle.
//!
//! A pass merges the groups of neighbours. Two groups may merge if no path leads from one to the
//! other through a third. The groups have ranks ([`super::ranks`]), so a search for such a path
//! visits only groups between the two.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::ranks::{Edges, Ranks};
use super::{Graph, NodeId};

/// A partition of a graph's nodes whose groups form a graph without cycles.
#[derive(Debug)]
pub struct Clusters {
    /// Links towards the representative of each node's group.
    parent: Vec<NodeId>,
    /// The ranks of representatives.
    ranks: Ranks,
    edges: GroupEdges,
}

/// The other ends of a group's edges.
type Ends = SmallVec<[NodeId; 4]>;

/// The edges between groups, by representatives. Some occur several times, for groups have few.
#[derive(Debug)]
struct GroupEdges {
    users: Vec<Ends>,
    used: Vec<Ends>,
}

impl Edges for GroupEdges {
    fn after(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.users[id.index()].iter().copied()
    }

    fn before(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.used[id.index()].iter().copied()
    }
}

impl Clusters {
    /// One group for each node, except the nodes of `bypassed`, which have no group: an edge to one
    /// of them leads to its users instead. `None` for a graph with a cycle.
    pub fn bypassing(graph: &Graph, bypassed: &FxHashSet<NodeId>) -> Option<Self> {
        let order = graph.order()?;
        let n = graph.capacity();
        let mut edges = GroupEdges { users: vec![Ends::new(); n], used: vec![Ends::new(); n] };
        for id in order.iter().copied().filter(|id| !bypassed.contains(id)) {
            let mut users: Vec<NodeId> = graph.after(id).collect();
            while let Some(user) = users.pop() {
                if bypassed.contains(&user) {
                    users.extend(graph.after(user));
                } else {
                    edges.users[id.index()].push(user);
                    edges.used[user.index()].push(id);
                }
            }
        }
        let parent = (0..n as u32).map(NodeId).collect();
        Some(Self { parent, ranks: Ranks::new(&order, n), edges })
    }

    /// The group of a node, represented by one of its nodes. Nodes of one group have the same
    /// representative.
    pub fn group(&self, mut id: NodeId) -> NodeId {
        while self.parent[id.index()] != id {
            id = self.parent[id.index()];
        }
        id
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
        self.parent[second.index()] = first;
        let GroupEdges { users, used } = &mut self.edges;
        redirect(users, used, first, second);
        redirect(used, users, first, second);
    }
}

/// Moves the edges of `second` in one direction to `first`, at both ends. The edges between the two
/// are gone.
fn redirect(own: &mut [Ends], others: &mut [Ends], first: NodeId, second: NodeId) {
    let moved = std::mem::take(&mut own[second.index()]);
    for other in &moved {
        let ends = others[other.index()].iter_mut();
        ends.filter(|end| **end == second).for_each(|end| *end = first);
    }
    own[first.index()].extend(moved);
    own[first.index()].retain(|end| *end != first && *end != second);
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
