//! The ops that a fused node replaces, for profiles, errors and pictures.

use super::rowwise::program::{Action, RowProgram};
use super::{DEFINITIONS, arg, contraction, products, quantized};
use crate::kernels::expression::Expression;

/// The value of a string attribute.
pub type StringAttr<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The names of the ops that a node of `op` replaces: its product or convolution, then the other
/// ops in the order in which it computes them. Only nodes of [`DEFINITIONS`] replace any.
pub fn replaced_ops(op: &str, attr: StringAttr<'_>) -> Vec<&'static str> {
    let is_ours = DEFINITIONS.iter().copied().flatten().any(|definition| definition.name == op);
    if is_ours { base_op(op).into_iter().chain(called_ops(attr)).collect() } else { Vec::new() }
}

/// The product or convolution that a fused op computes.
fn base_op(op: &str) -> Option<&'static str> {
    match op {
        products::JOINED
        | products::ADDED
        | products::JOINED_WITH_SUMS
        | products::WITH_ARGUMENT
        | products::WITH_SUMS
        | quantized::QUANTIZED => Some("MatMul"),
        quantized::EINSUM => Some("Einsum"),
        _ => contraction::FUSED.iter().find(|(_, fused)| *fused == op).map(|(base, _)| *base),
    }
}

/// The ops in a node's expression or row program.
pub fn called_ops(attr: StringAttr<'_>) -> Vec<&'static str> {
    let calls = |e: &Expression| e.steps().iter().map(|s| s.call.op()).collect::<Vec<_>>();
    if let Some(Ok(e)) = attr("expression").map(|text| text.parse()) {
        let reduction = attr("reduction").and_then(|name| arg::reduction(&name));
        return calls(&e).into_iter().chain(reduction.map(|row| row.op)).collect();
    }
    let Some(Ok(program)) = attr("program").map(|text| text.parse::<RowProgram>()) else {
        return Vec::new();
    };
    let of_stage = program.stages().iter().flat_map(|stage| {
        let mut ops = calls(&stage.expression);
        if let Action::Reduce(reductions) = &stage.action {
            ops.extend(reductions.iter().map(|reduction| reduction.op));
        }
        ops
    });
    of_stage.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::fused::rowwise;

    #[test]
    fn a_fused_node_replaces_its_product_and_the_ops_of_its_text() {
        let ops = |op: &str, attr: &str, text: &str| {
            replaced_ops(op, &|name| (name == attr).then(|| text.to_owned()))
        };
        let relu = "x: float32; c: 0; s0 = Relu<float32>(x0); return s0";
        assert_eq!(ops("_WgpuFusedConv2D", "expression", relu), ["Conv2D", "Relu"]);
        assert_eq!(ops(products::ADDED, "expression", relu), ["MatMul", "Relu"]);
        assert_eq!(ops("_WgpuFusedElementwise", "expression", relu), ["Relu"]);
        let softmax = "Max: x: float32; c: 0; return x0 | full: x: float32, float32; c: 0; s0 = \
                       Sub<float32>(x0, x1); s1 = Exp<float32>(s0); return s1 | return y0";
        assert_eq!(ops(rowwise::OP, "program", softmax), ["Max", "Sub", "Exp"]);
        assert!(ops("Relu", "expression", relu).is_empty());
        assert!(ops(rowwise::OP, "program", "no program").is_empty());
    }
}
