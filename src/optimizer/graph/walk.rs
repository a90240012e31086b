//! Paths in a [`Graph`].

use rustc_hash::FxHashSet;

use super::Graph;
use super::node::{Node, NodeId};

impl Graph {
    /// The nodes with every node after those that it uses. Edges back into loops of TensorFlow 1 (`NextIteration` to `Merge`) don't
    /// count. `None` for another cycle.
    pub fn order(&self) -> Option<Vec<NodeId>> {
        let mut missing = vec![0u32; self.capacity()];
        let is_back = |node: &Node, from: NodeId| {
            matches!(node.op.as_str(), "Merge" | "RefMerge")
                && matches!(self.node(from).op.as_str(), "NextIteration" | "RefNextIteration")
        };
        let mut ready: Vec<NodeId> = Vec::new();
        for id in self.ids() {
            let node = self.node(id);
            let edges = node.inputs.iter().map(|i| i.node).chain(node.controls.iter().copied());
            missing[id.index()] = edges.filter(|used| !is_back(node, *used)).count() as u32;
            if missing[id.index()] == 0 {
                ready.push(id);
            }
        }
        ready.reverse();
        let mut order = Vec::with_capacity(self.capacity());
        while let Some(id) = ready.pop() {
            order.push(id);
            for user in self.users(id) {
                if is_back(self.node(*user), id) {
                    continue;
                }
                missing[user.index()] -= 1;
                if missing[user.index()] == 0 {
                    ready.push(*user);
                }
            }
        }
        (order.len() == self.len()).then_some(order)
    }

    /// Whether some path leads from `start` to a node of `targets` by at least one edge; nodes in `avoid` are not passed through.
    pub fn reaches(&self, start: &[NodeId], targets: &FxHashSet<NodeId>, avoid: &FxHashSet<NodeId>) -> bool {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut stack: Vec<NodeId> = start.to_vec();
        while let Some(id) = stack.pop() {
            for user in self.users(id) {
                if targets.contains(user) {
                    return true;
                }
                if !avoid.contains(user) && seen.insert(*user) {
                    stack.push(*user);
                }
            }
        }
        false
    }

    /// Whether no path leaves the region and comes back: only then can one node take its place.
    pub fn is_convex(&self, region: &[NodeId]) -> bool {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let outside: FxHashSet<NodeId> =
            region.iter().flat_map(|id| self.users(*id)).copied().filter(|u| !inside.contains(u)).collect();
        let outside: Vec<NodeId> = outside.into_iter().collect();
        !self.reaches(&outside, &inside, &inside)
    }
}
