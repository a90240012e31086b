//! Groups of nodes, each of which becomes one node. Merging groups never closes a cycle.
//!
//! A pass merges the groups of neighbours. Two groups may merge if no path leads from one to the
//! other through a third. The groups are kept in a topological order (that of Pearce and Kelly), so
//! a search for such a path visits only groups between the two.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::graph::{Graph, NodeId};

/// A partition of a graph's nodes whose groups form a graph without cycles.
#[derive(Debug)]
pub struct Clusters {
    /// Links towards the representative of each node's group.
    parent: Vec<u32>,
    /// The position of each group in a topological order, valid for representatives.
    rank: Vec<u32>,
    /// The edges between groups. Some occur several times, for groups have few.
    users: Vec<Edges>,
    used: Vec<Edges>,
}

/// The largest number of groups that a search for a path visits. Two groups that need a longer
/// search stay apart, so that time stays linear.
const MAX_SEARCHED: usize = 1 << 11;

/// The other ends of a group's edges.
type Edges = SmallVec<[u32; 4]>;

impl Clusters {
    /// One group for each node; `None` for a graph with a cycle.
    pub fn new(graph: &Graph) -> Option<Self> {
        Self::bypassing(graph, &FxHashSet::default())
    }

    /// One group for each node, except the nodes of `bypassed`, which have no group: an edge to one
    /// of them leads to its users instead.
    pub fn bypassing(graph: &Graph, bypassed: &FxHashSet<NodeId>) -> Option<Self> {
        let order = graph.order()?;
        let n = graph.capacity();
        let mut clusters = Self {
            parent: (0..n as u32).collect(),
            rank: vec![0; n],
            users: vec![Edges::new(); n],
            used: vec![Edges::new(); n],
        };
        for (rank, id) in order.iter().enumerate() {
            clusters.rank[id.index()] = rank as u32;
        }
        for id in order.iter().copied().filter(|id| !bypassed.contains(id)) {
            let mut users: Vec<NodeId> = graph.following(id).collect();
            while let Some(user) = users.pop() {
                if bypassed.contains(&user) {
                    users.extend(graph.following(user));
                } else if clusters.rank[id.index()] < clusters.rank[user.index()] {
                    // An edge back into a loop has no place in the order.
                    clusters.users[id.index()].push(user.0);
                    clusters.used[user.index()].push(id.0);
                }
            }
        }
        Some(clusters)
    }

    /// The group of a node, represented by one of its nodes. Nodes of one group have the same
    /// representative.
    pub fn group(&self, id: NodeId) -> NodeId {
        let mut at = id.0;
        while self.parent[at as usize] != at {
            at = self.parent[at as usize];
        }
        NodeId(at)
    }

    /// Whether the groups of two nodes can merge.
    pub fn can_merge(&self, a: NodeId, b: NodeId) -> bool {
        self.between(a, b).is_some()
    }

    /// Merges the groups of two nodes, unless the graph would get a cycle. Returns whether it
    /// merged them.
    pub fn merge(&mut self, a: NodeId, b: NodeId) -> bool {
        let Some(between) = self.between(a, b) else { return false };
        if let Some((first, second, between)) = between {
            self.join(first, second, between);
        }
        true
    }

    /// For two groups that can merge: the earlier one, the later one, and the groups between them
    /// in the order, those that follow the earlier one and those that precede the later one.
    /// `Some(None)` if the two are the same group.
    #[expect(clippy::type_complexity, reason = "the parts have no name of their own")]
    fn between(&self, a: NodeId, b: NodeId) -> Option<Option<(u32, u32, [Vec<u32>; 2])>> {
        let (a, b) = (self.group(a).0, self.group(b).0);
        if a == b {
            return Some(None);
        }
        let (first, second) =
            if self.rank[a as usize] < self.rank[b as usize] { (a, b) } else { (b, a) };
        let (floor, last) = (self.rank[first as usize], self.rank[second as usize]);
        let within = |group: &u32| (floor + 1..last).contains(&self.rank[*group as usize]);
        let mut between: [FxHashSet<u32>; 2] = Default::default();
        let ways = [(&self.users, first, second), (&self.used, second, first)];
        for (seen, (edges, start, end)) in between.iter_mut().zip(ways) {
            // Only a path of more than one edge leads through a third group.
            let mut stack: Vec<u32> =
                edges[start as usize].iter().copied().filter(within).collect();
            stack.retain(|group| seen.insert(*group));
            while let Some(at) = stack.pop() {
                if seen.len() > MAX_SEARCHED || edges[at as usize].contains(&end) {
                    return None;
                }
                stack.extend(
                    edges[at as usize]
                        .iter()
                        .copied()
                        .filter(|group| within(group) && seen.insert(*group)),
                );
            }
        }
        Some(Some((first, second, between.map(|seen| seen.into_iter().collect()))))
    }

    /// Merges `first` and `second`. Of the groups between them, those in `after` follow `first` and
    /// those in `before` precede `second`.
    fn join(&mut self, first: u32, second: u32, [mut after, mut before]: [Vec<u32>; 2]) {
        before.sort_unstable_by_key(|g| self.rank[*g as usize]);
        after.sort_unstable_by_key(|g| self.rank[*g as usize]);
        let moved: Vec<u32> = before.into_iter().chain([first]).chain(after).collect();
        let mut ranks: Vec<u32> =
            moved.iter().chain([&second]).map(|g| self.rank[*g as usize]).collect();
        ranks.sort_unstable();
        for (group, rank) in moved.iter().zip(ranks) {
            self.rank[*group as usize] = rank;
        }
        self.absorb(first, second);
    }

    /// Moves the edges of `second` to `first`. `second` ceases to exist.
    fn absorb(&mut self, first: u32, second: u32) {
        self.parent[second as usize] = first;
        for user in std::mem::take(&mut self.users[second as usize]) {
            replace(&mut self.used[user as usize], second, first);
            self.users[first as usize].push(user);
        }
        for used in std::mem::take(&mut self.used[second as usize]) {
            replace(&mut self.users[used as usize], second, first);
            self.used[first as usize].push(used);
        }
        // The edges between the two groups are gone.
        self.users[first as usize].retain(|user| *user != first);
        self.used[first as usize].retain(|used| *used != first);
    }
}

/// Redirects edges that end in `old` to `new`.
fn replace(edges: &mut Edges, old: u32, new: u32) {
    edges.iter_mut().filter(|edge| **edge == old).for_each(|edge| *edge = new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(text: &str) -> Graph {
        Graph::from_text(text).unwrap()
    }

    #[test]
    fn a_detour_forbids_a_merge() {
        let g = graph("a = A\nb = B(a)\nc = C(a, b)\nd = D(c)");
        let id = |name: &str| g.find(name).unwrap();
        let mut clusters = Clusters::new(&g).unwrap();
        assert!(!clusters.can_merge(id("a"), id("c")), "a path leads through b");
        assert!(clusters.merge(id("a"), id("b")) && clusters.merge(id("c"), id("a")));
        assert_eq!(clusters.group(id("a")), clusters.group(id("c")));
        assert!(clusters.merge(id("d"), id("b")));
    }

    #[test]
    fn control_edges_count() {
        let g = graph("a = A\nb = B(^a)\nc = C(a, ^b)");
        let clusters = Clusters::new(&g).unwrap();
        assert!(!clusters.can_merge(g.find("a").unwrap(), g.find("c").unwrap()));
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
            let mut clusters = Clusters::new(&g).unwrap();
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
