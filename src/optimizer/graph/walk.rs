//! Paths in a [`Graph`].

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Graph;
use super::node::NodeId;

/// The largest number of nodes that a search for a path visits. If a search needs more, the path
/// counts as found, so that time stays linear.
const MAX_SEARCHED: usize = 1 << 14;

impl Graph {
    /// The nodes in topological order: each comes after its inputs. Edges back into loops of
    /// TensorFlow 1 (`NextIteration` to `Merge`) don't count; the nodes that leave a loop come
    /// after the nodes that enter it. `None` for a graph with another cycle.
    pub fn order(&self) -> Option<Arc<[NodeId]>> {
        // Most passes change nothing, so the next pass can use the same order.
        let mut known = self.order.borrow_mut();
        match &*known {
            Some((edits, order)) if *edits == self.edits => Some(order.clone()),
            _ => {
                let order: Arc<[NodeId]> = self.find_order()?.into();
                *known = Some((self.edits, order.clone()));
                Some(order)
            }
        }
    }

    fn find_order(&self) -> Option<Vec<NodeId>> {
        let mut missing = vec![0u32; self.capacity()];
        let mut ready: Vec<NodeId> = Vec::new();
        for id in self.ids() {
            let edges = self.preceding(id);
            missing[id.index()] = edges.filter(|used| !self.is_back_edge(*used, id)).count() as u32;
            if missing[id.index()] == 0 {
                ready.push(id);
            }
        }
        ready.reverse();
        let mut order = Vec::with_capacity(self.capacity());
        while let Some(id) = ready.pop() {
            order.push(id);
            for user in self.following(id) {
                if self.is_back_edge(id, user) {
                    continue;
                }
                missing[user.index()] -= 1;
                if missing[user.index()] == 0 {
                    ready.push(user);
                }
            }
        }
        (order.len() == self.len()).then_some(order)
    }

    /// Whether an edge leads back into a loop of TensorFlow 1.
    pub fn is_back_edge(&self, from: NodeId, to: NodeId) -> bool {
        self.has_loops
            && matches!(self.node(to).op(), "Merge" | "RefMerge")
            && matches!(self.node(from).op(), "NextIteration" | "RefNextIteration")
    }

    /// Whether some path of at least one edge leads from `start` to a node of `targets` without
    /// passing through a node of `avoid`. The answer is also yes if the search would take too long.
    pub fn reaches(
        &self,
        start: &[NodeId],
        targets: &FxHashSet<NodeId>,
        avoid: &FxHashSet<NodeId>,
    ) -> bool {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack: Vec<NodeId> = start.to_vec();
        for _ in 0..MAX_SEARCHED {
            let Some(id) = stack.pop() else { return false };
            for user in self.following(id) {
                if targets.contains(&user) {
                    return true;
                }
                if !avoid.contains(&user) && seen.insert(user) {
                    stack.push(user);
                }
            }
        }
        true
    }

    /// Whether it is certain that no path leaves the region and comes back. Only then can one node
    /// replace the region.
    pub fn is_convex(&self, region: &[NodeId]) -> bool {
        self.is_convex_without(region, &FxHashSet::default())
    }

    /// Like [`Self::is_convex`], without the nodes `left_out`, none of which is in the region.
    pub fn is_convex_without(&self, region: &[NodeId], left_out: &FxHashSet<NodeId>) -> bool {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let is_end = |id: &&NodeId| {
            let users = self.users(**id);
            users.is_empty()
                || users.iter().any(|user| !inside.contains(user) && !left_out.contains(user))
        };
        // All other nodes lead to the only end, so a path from the end to one of them would be a
        // cycle.
        if region.iter().filter(is_end).count() <= 1 {
            return true;
        }
        // Search down from the users of the region and up from its inputs, in turn. Whichever
        // search finishes first decides.
        let outside = |ids: Vec<NodeId>| {
            ids.into_iter()
                .filter(|id| !inside.contains(id) && !left_out.contains(id))
                .collect::<Vec<_>>()
        };
        let mut below =
            Search::from(outside(region.iter().flat_map(|id| self.users(*id)).copied().collect()));
        let mut above =
            Search::from(outside(region.iter().flat_map(|id| self.used(*id)).collect()));
        for _ in 0..MAX_SEARCHED {
            for (search, down) in [(&mut below, true), (&mut above, false)] {
                let Some(id) = search.stack.pop() else { return true };
                let next: Vec<NodeId> =
                    if down { self.following(id).collect() } else { self.preceding(id).collect() };
                if next.iter().any(|n| inside.contains(n)) {
                    return false;
                }
                search.stack.extend(
                    next.into_iter().filter(|n| !left_out.contains(n) && search.seen.insert(*n)),
                );
            }
        }
        false
    }

    /// The nodes of the data and control inputs of a node, once for each edge.
    pub fn used(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let node = self.node(id);
        node.inputs.iter().map(|i| i.node).chain(node.controls.iter().copied())
    }
}

/// A search under way.
struct Search {
    seen: FxHashSet<NodeId>,
    stack: Vec<NodeId>,
}

impl Search {
    fn from(start: Vec<NodeId>) -> Self {
        let seen: FxHashSet<NodeId> = start.iter().copied().collect();
        Self { stack: seen.iter().copied().collect(), seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every region of small random graphs: it is convex if no pair of paths contradicts
    /// that.
    #[test]
    fn convexity_is_that_of_all_paths() {
        let mut state = 7u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let n = 7;
            let edges: Vec<(usize, usize)> =
                (0..9).map(|_| (below(n), below(n))).filter(|(a, b)| a < b).collect();
            let line = |i: usize| {
                let inputs: Vec<_> =
                    edges.iter().filter(|e| e.1 == i).map(|e| format!("n{}", e.0)).collect();
                if inputs.is_empty() {
                    format!("n{i} = A")
                } else {
                    format!("n{i} = A({})", inputs.join(", "))
                }
            };
            let graph = Graph::from_text(&(0..n).map(line).collect::<Vec<_>>().join("\n")).unwrap();
            let mut path = vec![vec![false; n]; n];
            edges.iter().for_each(|(a, b)| path[*a][*b] = true);
            for k in 0..n {
                for i in 0..n {
                    for j in 0..n {
                        path[i][j] |= path[i][k] && path[k][j];
                    }
                }
            }
            for bits in 1..1u32 << n {
                let holds = |i: usize| bits >> i & 1 == 1;
                let all = || 0..n;
                let comes_back = |out: usize| {
                    !holds(out)
                        && all().any(|a| holds(a) && path[a][out])
                        && all().any(|b| holds(b) && path[out][b])
                };
                let region: Vec<NodeId> = all()
                    .filter(|i| holds(*i))
                    .map(|i| graph.find(&format!("n{i}")).unwrap())
                    .collect();
                assert_eq!(
                    graph.is_convex(&region),
                    !all().any(comes_back),
                    "{bits:b} of {edges:?}"
                );
            }
        }
    }
}
