//! The knowledge about a graph that one run of the optimizer keeps for the next.
//!
//! TensorFlow runs an optimizer twice over a graph, with its own passes in between. These change
//! little by then: control edges, and the encoding of constants. Inferring all types and shapes
//! anew would take longer than all of our passes. So if each node still computes what it did at the
//! end of the last run, it gets the types and shapes from that run.

use parking_lot::Mutex;

use super::attr::Attr;
use super::graph::{Graph, Node, Output};
use crate::kernels::scalar;

/// The last graph of one optimizer.
#[derive(Debug, Default)]
pub struct LastGraph(Mutex<Option<Graph>>);

impl LastGraph {
    /// Whether a run has ended.
    pub fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps a graph at the end of a run.
    pub fn keep(&self, graph: Graph) {
        *self.0.lock() = Some(graph);
    }

    /// Gives a graph the knowledge about its nodes and ops. Unless all nodes are known, it gives
    /// nothing and returns `false`.
    pub fn recall(&self, graph: &mut Graph) -> bool {
        let Some(last) = self.0.lock().take() else { return false };
        let known = |id| {
            last.find(graph.node(id).name())
                .filter(|old| computes_the_same(&last, last.node(*old), graph, graph.node(id)))
        };
        let Some(known) = graph.ids().map(|id| Some((id, known(id)?))).collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        graph.recall_journal(&last);
        for (id, old) in known {
            let node = last.node(old);
            graph.set_infos(id, node.infos.clone());
            if graph.op_def(node.op()).is_none()
                && let Some(def) = last.op_def(node.op())
            {
                graph.add_op_def(def.clone());
            }
        }
        true
    }
}

/// Whether two nodes compute the same values if their data inputs have the same values. Control
/// inputs make no difference.
fn computes_the_same(last: &Graph, old: &Node, graph: &Graph, new: &Node) -> bool {
    fn named<'g>(graph: &'g Graph, inputs: &[Output]) -> Vec<(&'g str, u32)> {
        inputs.iter().map(|i| (graph.node(i.node).name(), i.port)).collect()
    }
    let same_inputs = || {
        let (mut a, mut b) = (named(last, old.inputs()), named(graph, new.inputs()));
        // TensorFlow reorders the operands of commutative ops; shapes broadcast either way.
        if scalar::find(new.op()).is_some() {
            a.sort_unstable();
            b.sort_unstable();
        }
        a == b
    };
    if old.original().is_some() && old.original() == new.original() {
        return true;
    }
    let (a, b) = (old.attrs(), new.attrs());
    old.op() == new.op()
        && old.device() == new.device()
        && old.inputs().len() == new.inputs().len()
        && a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && is_equal(a.1, b.1))
        && same_inputs()
}

/// Whether two values are equal, even in different encodings.
fn is_equal(a: &Attr, b: &Attr) -> bool {
    let constants =
        || Some((super::attr::constant(a.tensor()?)?, super::attr::constant(b.tensor()?)?));
    a == b || constants().is_some_and(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "n = Const {value: tensor int32[2] [2, 3], dtype: int32} -> int32[2]\nx = \
                         _Arg -> float32[6]\ny = Reshape(x, n) -> float32[2, 3]\nz = Mul(y, x) -> \
                         float32[?]\nw = Exp(z, ^y) -> float32[?]";

    fn recalled(second: &str) -> Option<Graph> {
        let memory = LastGraph::default();
        memory.keep(Graph::from_text(FIRST).unwrap());
        let mut graph = Graph::from_text(second).unwrap();
        memory.recall(&mut graph).then_some(graph)
    }

    #[test]
    fn what_computes_the_same_keeps_its_shapes() {
        let second = "w = Exp(z)\nz = Mul(x, y, ^n)\nx = _Arg\ny = Reshape(x, n)\nn = Const \
                      {value: tensor int32[2] [2, 3], dtype: int32}";
        let graph =
            recalled(second).expect("only controls, the order of factors and that of nodes differ");
        let first = Graph::from_text(FIRST).unwrap();
        for id in first.ids() {
            let node = first.node(id);
            assert_eq!(
                graph.node(graph.find(node.name()).unwrap()).infos,
                node.infos,
                "{}",
                node.name()
            );
        }
    }

    #[test]
    fn a_graph_that_computes_anything_else_is_inferred_anew() {
        for (old, new) in [
            ("[2, 3]", "[3, 2]"),
            ("Exp(z", "Log(z"),
            ("Reshape(x, n)", "Reshape(n, x)"),
            ("w = ", "v = "),
        ] {
            let second = FIRST.replace(old, new);
            assert_ne!(second, FIRST);
            assert!(recalled(&second).is_none(), "{new}");
        }
    }

    #[test]
    fn it_is_told_once() {
        let memory = LastGraph::default();
        let mut graph = Graph::from_text(FIRST).unwrap();
        assert!(!memory.recall(&mut graph));
        memory.keep(graph.clone());
        assert!(memory.recall(&mut graph) && !memory.recall(&mut graph));
    }
}
