//! Whether one node may take the place of others: the questions that do not depend on what a fused
//! op computes. Each check tells the reason why not.

use super::branches::Branches;
use super::graph::{Graph, NodeId, Output};
use super::refusal::Refusal;

/// The answer to a question: a reason if the answer is no.
pub type Legal = Result<(), Refusal>;

/// The answer of a condition.
///
/// # Errors
/// `refusal`, if it does not hold.
pub const fn check(holds: bool, refusal: Refusal) -> Legal {
    if holds { Ok(()) } else { Err(refusal) }
}

impl Graph {
    /// Checks that a node runs on one of our devices, and that its name need not stay.
    ///
    /// # Errors
    /// `OtherDevice` or `Preserved`.
    pub fn may_go(&self, id: NodeId) -> Legal {
        check(self.node(id).on_wgpu(), Refusal::OtherDevice)?;
        check(!self.is_preserved(id), Refusal::Preserved)
    }

    /// Checks that a node may go, and that it waits for nothing but its data.
    ///
    /// # Errors
    /// `OtherDevice`, `Preserved`, or `OtherConditions` for a node that waits.
    pub fn may_move(&self, id: NodeId) -> Legal {
        self.may_go(id)?;
        check(self.node(id).controls().is_empty(), Refusal::OtherConditions)
    }

    /// Checks that a node may go, that it waits for nothing but its data, and that no node waits
    /// for it.
    ///
    /// # Errors
    /// `OtherDevice`, `Preserved`, or `OtherConditions` if one node waits for another.
    pub fn may_move_freely(&self, id: NodeId) -> Legal {
        self.may_go(id)?;
        check(self.is_alone(id), Refusal::OtherConditions)
    }

    /// Whether a node waits for nothing but its data, and no node waits for it.
    pub fn is_alone(&self, id: NodeId) -> bool {
        self.node(id).controls().is_empty() && self.waiters(id).next().is_none()
    }

    /// Checks that two nodes run on the same device.
    ///
    /// # Errors
    /// `OtherDevice`.
    pub fn share_device(&self, a: NodeId, b: NodeId) -> Legal {
        check(self.node(a).device() == self.node(b).device(), Refusal::OtherDevice)
    }

    /// Checks that a node may go, and that it runs on the device of another one.
    ///
    /// # Errors
    /// `OtherDevice` or `Preserved`.
    pub fn may_join(&self, id: NodeId, other: NodeId) -> Legal {
        self.share_device(id, other)?;
        self.may_go(id)
    }

    /// Checks that only nodes `inside` read a tensor.
    ///
    /// # Errors
    /// `ReadElsewhere`.
    pub fn stays_inside(&self, tensor: Output, inside: impl Fn(NodeId) -> bool) -> Legal {
        let mut readers = self.readers_in_any_order(tensor);
        check(readers.all(|(reader, _)| inside(reader)), Refusal::ReadElsewhere)
    }

    /// Checks that no path leaves the nodes and comes back.
    ///
    /// # Errors
    /// `Cycle`.
    pub fn is_one_node(&self, nodes: &[NodeId]) -> Legal {
        check(self.is_convex(nodes), Refusal::Cycle)
    }

    /// Checks that no path leads from one of the nodes to another one.
    ///
    /// # Errors
    /// `Cycle`.
    pub fn are_siblings(&self, nodes: &[NodeId]) -> Legal {
        check(self.are_independent(nodes), Refusal::Cycle)
    }
}

impl Branches {
    /// Checks that two nodes run under the same conditions. A fused node runs once all its inputs
    /// exist. So a result that always exists must not wait for an input that exists only in one
    /// branch.
    ///
    /// # Errors
    /// `OtherConditions`.
    pub fn run_together(&self, a: NodeId, b: NodeId) -> Legal {
        check(self.agree(a, b), Refusal::OtherConditions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_its_reason() {
        let text = "preserve kept
            x = Placeholder -> float32[4]
            a = Exp(x) {T: float32} -> float32[4]
            b = Neg(a) {T: float32} -> float32[4]
            c = AddV2(a, b, ^x) {T: float32} -> float32[4]
            kept = Tanh(c) {T: float32} -> float32[4]
            far = Tanh(c) {T: float32} @CPU:0 -> float32[4]";
        let graph = Graph::from_text(text).unwrap();
        let id = |name: &str| graph.find(name).unwrap();
        let [x, a, b, c] = ["x", "a", "b", "c"].map(id);
        assert_eq!(graph.may_go(id("far")), Err(Refusal::OtherDevice));
        assert_eq!(graph.may_join(id("far"), a), Err(Refusal::OtherDevice));
        assert_eq!(graph.may_go(id("kept")), Err(Refusal::Preserved));
        assert_eq!((graph.may_go(c), graph.may_move(b)), (Ok(()), Ok(())));
        assert_eq!(graph.may_move(c), Err(Refusal::OtherConditions));
        assert_eq!(graph.may_move_freely(x), Err(Refusal::OtherConditions));
        let of = |node| Output { node, port: 0 };
        assert_eq!(graph.stays_inside(of(a), |id| id == b), Err(Refusal::ReadElsewhere));
        assert_eq!(graph.stays_inside(of(b), |id| id == c), Ok(()));
        assert_eq!(graph.is_one_node(&[a, c]), Err(Refusal::Cycle));
        assert_eq!(graph.is_one_node(&[a, b, c]), Ok(()));
        assert_eq!(graph.are_siblings(&[a, b]), Err(Refusal::Cycle));
    }

    #[test]
    fn nodes_of_two_branches_do_not_run_together() {
        let text = "x = Placeholder -> float32[4]
            p = Placeholder -> bool[]
            s = Switch(x, p) {T: float32} -> float32[4], float32[4]
            a = Exp(s) {T: float32} -> float32[4]
            b = Neg(s) {T: float32} -> float32[4]
            c = Neg(s:1) {T: float32} -> float32[4]
            d = Exp(x) {T: float32} -> float32[4]";
        let graph = Graph::from_text(text).unwrap();
        let branches = Branches::of(&graph, &graph.order().unwrap());
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| graph.find(name).unwrap());
        assert_eq!(branches.run_together(a, b), Ok(()));
        for other in [c, d] {
            assert_eq!(branches.run_together(a, other), Err(Refusal::OtherConditions));
        }
    }
}
