//! The order of a [`Graph`]'s nodes.

use std::sync::Arc;

use super::Graph;
use super::node::NodeId;
use super::ranks::Ranks;

impl Graph {
    /// The nodes in topological order: each comes after its inputs. Edges back into loops of
    /// TensorFlow 1 (`NextIteration` to `Merge`) don't count; the nodes that leave a loop come
    /// after the nodes that enter it. `None` for a graph with another cycle.
    pub fn order(&self) -> Option<Arc<[NodeId]>> {
        // Most passes change nothing, so the next pass can use the same order.
        let mut known = self.order.borrow_mut();
        let mut ranks = self.ranks.borrow_mut();
        let order = match &*known {
            Some((edits, order)) if *edits == self.edits && ranks.is_some() => {
                return Some(order.clone());
            }
            Some((edits, order)) if *edits == self.edits => order.clone(),
            _ => self.find_order()?.into(),
        };
        *ranks = Some(Ranks::new(&order, self.capacity()));
        *known = Some((self.edits, order.clone()));
        Some(order)
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

    /// The nodes of the data and control inputs of a node, once for each edge.
    pub fn used(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let node = self.node(id);
        node.inputs.iter().map(|i| i.node).chain(node.controls.iter().copied())
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
