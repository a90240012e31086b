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
