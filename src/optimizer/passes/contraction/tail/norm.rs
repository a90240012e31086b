//! Batch normalization at inference after a convolution:
//! `(x - mean) * (rsqrt(variance + epsilon) * scale) + offset`.

use super::Builder;
use crate::dtype::DType;
use crate::kernels::expression::{Call, Value};
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::Node;

/// Whether a node is a batch normalization with given moments.
pub(super) fn is_inference(node: &Node) -> bool {
    node.op() == "FusedBatchNormV3" && node.attr("is_training").and_then(Attr::bool) == Some(false)
}

/// The normalized value of `x`.
pub(super) fn value(
    builder: &mut Builder<'_>,
    node: &Node,
    x: Value,
    behind: bool,
) -> Option<Value> {
    builder.check_format(node, "NHWC")?;
    let (dtype, moments) = (node.dtype("T")?, node.dtype("U")?);
    if moments != DType::F32 {
        return None;
    }
    // The op's other outputs are only for training.
    let id = builder.graph.find(node.name())?;
    if builder
        .graph
        .users(id)
        .iter()
        .any(|u| builder.graph.node(*u).inputs().iter().any(|i| i.node == id && i.port > 0))
    {
        return None;
    }
    let [_, scale, offset, mean, variance] = node.inputs()[..] else { return None };
    let mut vectors =
        [scale, offset, mean, variance].into_iter().map(|v| builder.channel_vector(v, behind));
    let [scale, offset, mean, variance] =
        [vectors.next()??, vectors.next()??, vectors.next()??, vectors.next()??];
    let epsilon = builder.draft.constant(node.attr("epsilon")?.float()?);
    let mut x = x;
    if dtype != moments {
        x = builder.draft.call(Call::Cast(dtype, moments), &[x])?;
    }
    let centered = builder.draft.row("Sub", moments, &[x, mean])?;
    let variance = builder.draft.row("AddV2", moments, &[variance, epsilon])?;
    let inverse = builder.draft.row("Rsqrt", moments, &[variance])?;
    let slope = builder.draft.row("Mul", moments, &[inverse, scale])?;
    let scaled = builder.draft.row("Mul", moments, &[centered, slope])?;
    let y = builder.draft.row("AddV2", moments, &[scaled, offset])?;
    if dtype == moments { Some(y) } else { builder.draft.call(Call::Cast(moments, dtype), &[y]) }
}
