//! Sums that Keras writes as the addition of a bias: the addition of a residual with no extent but
//! the last above 1, such as one word in a decoder. As a sum of two tensors of one shape, it is
//! fused into the product that makes one of them.

use crate::optimizer::attr::Attr;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// Replaces a `BiasAdd` by an addition if its vector is a reshaped tensor of the other operand's
/// shape. Returns whether it did.
pub fn add(graph: &mut Graph, id: NodeId) -> bool {
    let Some(other) = added(graph, id) else { return false };
    let node = graph.node(id);
    let Some(dtype) = node.attr("T").cloned() else { return false };
    let output = Output { node: id, port: 0 };
    let (inputs, infos) = (vec![node.inputs()[0], other], vec![graph.info(output).clone()]);
    let new = fused(graph, id, "sum", "AddV2", inputs, vec![("T", dtype)], infos);
    graph.replace_region(&[id], new, &[(output, 0)]);
    true
}

/// The tensor that is added to the first operand, in the shape of that operand.
fn added(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    let of_channels = node.attr("data_format").and_then(Attr::string).unwrap_or("NHWC") == "NHWC";
    if node.op() != "BiasAdd" || !of_channels || graph.may_go(id).is_err() {
        return None;
    }
    let &[value, vector] = node.inputs() else { return None };
    let view = graph.node(vector.node);
    let plain = matches!(view.op(), "Reshape" | "Squeeze")
        && view.controls().is_empty()
        && view.device() == node.device();
    let source = *view.inputs().first().filter(|_| plain)?;
    let dims = graph.info(value).dims()?;
    let fits = graph.info(source).dims()? == dims && graph.info(vector).dims()?.len() == 1;
    let (channels, lead) = dims.split_last()?;
    (fits && *channels > 1 && lead.iter().all(|d| *d == 1)).then_some(source)
}
