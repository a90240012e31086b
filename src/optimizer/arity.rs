//! The numbers of inputs of the ops that passes read.
//!
//! TensorFlow passes graphs that it has checked, so passes may access a node's inputs by index. A
//! graph that breaks this rule is refused before the passes see it.

use super::graph::Graph;
use crate::error::Result;
use crate::invalid;
use crate::kernels::reduce::table::REDUCTIONS;
use crate::kernels::scalar;

/// The least number of data inputs of each op, except the scalar functions and the reductions.
const LEAST: &[(&str, usize)] = &[
    ("AddN", 1),
    ("AssignAddVariableOp", 2),
    ("AssignSubVariableOp", 2),
    ("AssignVariableOp", 2),
    ("BatchMatMulV2", 2),
    ("BiasAdd", 2),
    ("BiasAddGrad", 1),
    ("BroadcastGradientArgs", 2),
    ("BroadcastTo", 2),
    ("Cast", 1),
    ("ConcatV2", 1),
    ("Conv2D", 2),
    ("Conv3D", 2),
    ("DepthwiseConv2dNative", 2),
    ("Enter", 1),
    ("Exit", 1),
    ("ExpandDims", 2),
    ("Fill", 2),
    ("FusedBatchNormV3", 5),
    ("Identity", 1),
    ("L2Loss", 1),
    ("MatMul", 2),
    ("Merge", 1),
    ("NextIteration", 1),
    ("OnesLike", 1),
    ("Pad", 2),
    ("PadV2", 3),
    ("PreventGradient", 1),
    ("ReadVariableOp", 1),
    ("RefEnter", 1),
    ("RefSwitch", 2),
    ("Reshape", 2),
    ("Shape", 1),
    ("Slice", 3),
    ("Snapshot", 1),
    ("Softmax", 1),
    ("Split", 2),
    ("Squeeze", 1),
    ("StopGradient", 1),
    ("StridedSlice", 4),
    ("Switch", 2),
    ("TensorListFromTensor", 1),
    ("TensorListGetItem", 2),
    ("TensorListPopBack", 1),
    ("TensorListPushBack", 2),
    ("TensorListSetItem", 3),
    ("TensorListStack", 1),
    ("Tile", 2),
    ("Transpose", 2),
    ("ZerosLike", 1),
    ("_SwitchN", 2),
    ("_WgpuFusedBatchMatMulV2", 2),
    ("_WgpuFusedBatchMatMulV3", 2),
    ("_WgpuFusedConv2D", 2),
    ("_WgpuFusedConv3D", 2),
    ("_WgpuFusedDepthwiseConv2dNative", 2),
    ("_WgpuFusedMatMul", 2),
];

/// The least number of data inputs of a node of this op that passes rely on.
fn least(op: &str) -> usize {
    if let Ok(at) = LEAST.binary_search_by_key(&op, |(name, _)| name) {
        return LEAST[at].1;
    }
    match scalar::find(op) {
        Some(row) => row.inputs.len(),
        None if REDUCTIONS.iter().any(|row| row.op == op) => 2,
        None => 0,
    }
}

/// Refuses a graph in which a node lacks inputs.
///
/// # Errors
/// `InvalidArgument`, with the first such node.
pub fn check(graph: &Graph) -> Result<()> {
    for id in graph.ids() {
        let node = graph.node(id);
        let (count, least) = (node.inputs().len(), least(node.op()));
        if count < least {
            invalid!(
                "{} of op {} has {count} inputs, but should have {least}",
                node.name(),
                node.op()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_says_what_is_missing() {
        assert!(LEAST.is_sorted_by(|a, b| a.0 < b.0));
        let check = |text: &str| check(&Graph::from_text(text).unwrap());
        assert!(
            check("x = Placeholder\na = Exp(x)\nb = Mul(x, a)\nc = Mean(a, b)\nd = Unknown")
                .is_ok()
        );
        for (node, least) in
            [("Mul(x)", 2), ("Exp(^x)", 1), ("Sum(x)", 2), ("Switch(x)", 2), ("PadV2(x, x)", 3)]
        {
            let error = check(&format!("x = Placeholder\nn = {node}")).unwrap_err();
            assert!(error.to_string().contains(&format!("should have {least}")), "{error}");
        }
    }
}
