//! The decisions of the optimizer about each node of a graph, for people.

use super::graph::{Graph, NodeId};
use super::journal::Original;
use super::meaning::{Engine, Fold, Meaning, scalar};
use super::refusal::Refusal;

/// What became of a node on one of our devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub id: NodeId,
    /// The nodes that it replaces.
    pub replaced: Vec<Original>,
    /// Why it is not part of a fused node.
    pub refusal: Option<Refusal>,
    /// The pass that refused to fuse it, and the neighbour, if it was not the node itself.
    pub by: Option<(&'static str, String)>,
}

/// The decisions about an optimized graph that kept a journal, in the order of its nodes.
pub fn decisions(graph: &Graph) -> Vec<Decision> {
    graph.ids().filter_map(|id| decision(graph, id)).collect()
}

fn decision(graph: &Graph, id: NodeId) -> Option<Decision> {
    let node = graph.node(id);
    let journal = graph.journal()?;
    let replaced = journal.replaced(node.name()).to_vec();
    let whole = |refusal| Decision { id, replaced: replaced.clone(), refusal, by: None };
    if !node.on_wgpu() {
        return None;
    }
    if node.is_ours() {
        return Some(whole(None));
    }
    let own = match Meaning::of(node) {
        Meaning::Constant | Meaning::Identity | Meaning::Store => return None,
        // Functions of shapes and handles compute nothing.
        Meaning::Opaque(Refusal::NoFunction) if !computes(graph, id) => return None,
        Meaning::Opaque(refusal) => Some(refusal),
        Meaning::Scalar(_) => scalar(graph, graph, id, Engine::Loop).err(),
        Meaning::Fold(_) => Fold::of(graph, id).err(),
        Meaning::Bias(_) | Meaning::Product | Meaning::Repeat | Meaning::View => None,
    };
    let own = own.or_else(|| graph.is_preserved(id).then_some(Refusal::Preserved));
    let apart = journal.apart(node.name());
    // Some passes know ops that no fused op computes with all neighbours.
    if own.is_some_and(|own| own != Refusal::NoFunction || apart.is_none()) {
        return Some(whole(own));
    }
    Some(Decision {
        id,
        replaced,
        refusal: Some(apart.as_ref().map_or(Refusal::Alone, |apart| apart.refusal)),
        by: apart.map(|apart| (apart.pass, apart.neighbour.to_string())),
    })
}

/// Whether a node makes a tensor of elements from others.
fn computes(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let is_value = node.infos().iter().any(|info| info.dtype.is_some_and(|t| t.is_float()));
    is_value && !node.inputs().is_empty() && !matches!(node.op(), "ReadVariableOp" | "IdentityN")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::passes::{PASSES, run_all};

    #[test]
    fn each_node_has_its_origin_or_a_reason() {
        let text = "preserve out, kept
            x = Placeholder -> float32[4]
            z = Placeholder -> float32[8]
            a = Exp(x) {T: float32} -> float32[4]
            b = Neg(a) {T: float32} -> float32[4]
            c = Cast(b) {SrcT: float32, DstT: float16, Truncate: true} -> float16[4]
            l = Igamma(x, x) {T: float32} -> float32[4]
            d = Tanh(z) {T: float32} -> float32[8]
            kept = Tanh(x) {T: float32} -> float32[4]
            out = Custom(b, c, l, d)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run_all(&PASSES.iter().collect::<Vec<_>>(), &mut graph).unwrap();
        let found = decisions(&graph);
        let of = |name: &str| {
            let decision = found.iter().find(|d| graph.node(d.id).name() == name);
            decision.unwrap_or_else(|| panic!("no decision about {name}"))
        };
        let fused: Vec<&str> = of("b/wgpu_fused").replaced.iter().map(|o| &*o.name).collect();
        assert_eq!(fused, ["a", "b"]);
        assert_eq!(of("c").refusal, Some(Refusal::Truncates));
        assert_eq!(of("l").refusal, Some(Refusal::LongLoops));
        assert_eq!(of("d").refusal, Some(Refusal::Alone));
        assert_eq!(of("kept").refusal, Some(Refusal::Preserved));
    }

    /// The reason why `node` is not fused, the pass, and the neighbour.
    fn apart(text: &str, node: &str) -> (Refusal, &'static str, String) {
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run_all(&PASSES.iter().collect::<Vec<_>>(), &mut graph).unwrap();
        let found = decisions(&graph);
        let decision = found.iter().find(|d| graph.node(d.id).name() == node).unwrap();
        let (pass, neighbour) = decision.by.clone().unwrap();
        (decision.refusal.unwrap(), pass, neighbour)
    }

    #[test]
    fn a_product_tells_why_the_node_behind_it_stays() {
        let text = "preserve out
            x = Placeholder -> float32[4, 8]
            w = Placeholder -> float32[8, 6]
            p = MatMul(x, w) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 6]
            a = Relu(p) {T: float32} @CPU:0 -> float32[4, 6]
            out = Custom(a)";
        let found = apart(text, "p");
        assert_eq!(found, (Refusal::OtherDevice, "contraction", "a".to_owned()));
    }

    #[test]
    fn a_reduction_tells_why_the_node_behind_it_stays() {
        let text = "preserve out
            x = Placeholder -> float32[4, 8]
            y = Placeholder -> float32[6, 4]
            axis = Const {value: tensor int32[] [1]} -> int32[]
            s = Sum(x, axis) {T: float32, keep_dims: false} -> float32[4]
            m = Mul(s, y) {T: float32} -> float32[6, 4]
            out = Custom(m)";
        let shape = |neighbour: &str| (Refusal::OtherShape, "reduce", neighbour.to_owned());
        assert_eq!((apart(text, "s"), apart(text, "m")), (shape("m"), shape("s")));
    }

    #[test]
    fn an_einsum_of_quantized_weights_tells_why_it_does_not_decode_them() {
        let text = "preserve out
            x = Placeholder -> float32[8, 2, 3]
            q = Placeholder -> int8[8, 6]
            s = Placeholder -> float32[6]
            c = Cast(q) {SrcT: int8, DstT: float32} -> float32[8, 6]
            m = Mul(c, s) {T: float32} -> float32[8, 6]
            e = Einsum(x, m) {T: float32, N: 2, equation: \"dbt,dn->btn\"} -> float32[2, 3, 6]
            out = Custom(e)";
        assert_eq!(apart(text, "e"), (Refusal::Operand, "quantized", "m".to_owned()));
    }
}
