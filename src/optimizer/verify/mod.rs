//! Checks that TensorFlow can still run a graph, and that it runs as before.
//!
//! The check runs after each pass that changed something. If a pass breaks a rule, the whole graph
//! stays unoptimized: TensorFlow gets the original graph, and the log names the pass.
//!
//! The rules: no cycle; each node's inputs are in one frame ([`Graph::check_frames`]); nodes that
//! were changed have the inputs, ports and types of their op's definition ([`signature`]);
//! preserved nodes and nodes of other devices keep their names and ops; the inputs of a `Merge`
//! exclude each other, and a step of a loop runs only if the loop goes on.

pub mod signature;

use rustc_hash::FxHashSet;

use super::branches::Branches;
use super::graph::{Graph, NodeId};
use crate::error::{Error, Result};

/// The properties of a graph that must not change.
pub struct Verifier {
    had_order: bool,
    had_frames: bool,
    /// The names and ops of nodes that no pass may change.
    kept: Vec<(String, String)>,
    /// Nodes that break the rule about `Merge`s and steps from the start.
    untidy: FxHashSet<String>,
}

impl Verifier {
    /// Records the properties of `graph` before the passes run. Rules that it breaks itself are not
    /// checked.
    pub fn new(graph: &Graph) -> Self {
        let kept = graph
            .ids()
            .filter(|id| graph.is_preserved(*id) || !graph.node(*id).on_wgpu())
            .map(|id| (graph.node(id).name().to_owned(), graph.node(id).op().to_owned()))
            .collect();
        Self {
            had_order: graph.order().is_some(),
            had_frames: graph.check_frames().is_ok(),
            kept,
            untidy: untidy(graph).into_iter().collect(),
        }
    }

    /// Checks the rules.
    ///
    /// # Errors
    /// `Internal`, with the first broken rule and the node that breaks it.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        if self.had_order && graph.order().is_none() {
            return Err(Error::Internal("the graph has a cycle".into()));
        }
        if self.had_frames {
            graph.check_frames()?;
        }
        for (name, op) in &self.kept {
            let id = graph.find(name);
            let now = id.map(|id| graph.node(id).op());
            // An assignment that a fused update replaces leaves its name to a node that waits for
            // the update.
            let waits = |id: NodeId| {
                graph.node(id).op() == "NoOp" && graph.node(id).on_wgpu() && !graph.is_read(id)
            };
            if now != Some(op) && !id.is_some_and(waits) {
                return Err(Error::Internal(format!(
                    "{name} of op {op} must stay, and {}",
                    now.map_or("is gone".to_owned(), |now| format!("its op is {now}"))
                )));
            }
        }
        for id in graph.ids().filter(|id| graph.node(*id).original().is_none()) {
            signature::check(graph, id)?;
        }
        match untidy(graph).into_iter().find(|name| !self.untidy.contains(name)) {
            Some(name) => Err(Error::Internal(format!(
                "{name} gets inputs of branches or iterations that do not run"
            ))),
            None => Ok(()),
        }
    }
}

/// `Merge`s with branches of which two may run, and `NextIteration`s that run even if the loop does
/// not go on.
fn untidy(graph: &Graph) -> Vec<String> {
    if !graph.has_control_flow() {
        return Vec::new();
    }
    let Some(order) = graph.order() else { return Vec::new() };
    let branches = Branches::of(graph, &order);
    let is_tidy = |id: &NodeId| {
        let node = graph.node(*id);
        match node.op() {
            "Merge" => node.inputs().iter().enumerate().all(|(at, a)| {
                graph.is_back_edge(a.node, *id)
                    || node.inputs()[..at]
                        .iter()
                        .all(|b| graph.is_back_edge(b.node, *id) || branches.exclude(graph, *a, *b))
            }),
            "NextIteration" => {
                node.inputs().iter().all(|input| branches.is_conditional(graph, *input))
            }
            _ => true,
        }
    };
    order.iter().filter(|id| !is_tidy(id)).map(|id| graph.node(*id).name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::graph::Output;

    const TEXT: &str = "preserve m
        x = Placeholder -> float32[]
        p = Placeholder -> bool[]
        s = Switch(x, p) {T: float32} -> float32[], float32[]
        a = Neg(s) {T: float32} -> float32[]
        b = Exp(s:1) {T: float32} -> float32[]
        m = Merge(a, b) {T: float32} -> float32[], int32[]";

    fn refused(change: impl FnOnce(&mut Graph)) -> String {
        let mut graph = Graph::from_text(TEXT).unwrap();
        let verifier = Verifier::new(&graph);
        verifier.check(&graph).unwrap();
        change(&mut graph);
        verifier.check(&graph).expect_err("a rule is broken").to_string()
    }

    fn id(graph: &Graph, name: &str) -> NodeId {
        graph.find(name).expect("it is there")
    }

    #[test]
    fn each_rule_is_checked() {
        let cycle = refused(|graph| {
            let (a, b) = (id(graph, "a"), id(graph, "b"));
            graph.set_input(a, 0, Output { node: b, port: 0 });
            graph.set_input(b, 0, Output { node: a, port: 0 });
        });
        assert!(cycle.contains("cycle"), "{cycle}");
        let op = refused(|graph| graph.set_op(id(graph, "m"), "Other"));
        assert!(op.contains("m of op Merge must stay, and its op is Other"), "{op}");
        let branch = refused(|graph| {
            let (a, x) = (id(graph, "a"), id(graph, "x"));
            graph.set_input(a, 0, Output { node: x, port: 0 });
        });
        assert!(branch.contains("m gets inputs of branches"), "{branch}");
        let ours = refused(|graph| graph.set_op(id(graph, "a"), "_WgpuFusedUpdate"));
        assert!(ours.contains('a'), "{ours}");
    }

    #[test]
    fn rules_that_a_graph_breaks_itself_are_not_asked_for() {
        let text = TEXT.replace("Neg(s)", "Neg(x)");
        let graph = Graph::from_text(&text).unwrap();
        Verifier::new(&graph).check(&graph).unwrap();
    }
}
