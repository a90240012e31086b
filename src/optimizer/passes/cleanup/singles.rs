//! Reductions over axes of one element, which only change the shape. The gradient of a product sums
//! over the axes along which an operand was broadcast, also where the batch has one item.

use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::passes::reshape::reshape;
use crate::optimizer::shape::Dim;

/// Reductions that return a single float unchanged.
const REDUCTIONS: &[&str] = &["Max", "Mean", "Min", "Prod", "Sum"];

/// Replaces a reduction over axes of one element by its input, or by a reshape of it. Returns
/// whether it did.
pub fn reduction(graph: &mut Graph, id: NodeId) -> bool {
    let Some(dims) = kept(graph, id) else { return false };
    let output = Output { node: id, port: 0 };
    let (input, info) = (graph.node(id).inputs()[0], graph.info(output).clone());
    let name = format!("{}/single", graph.node(id).name());
    let source = if graph.info(input).same_shape(&info) {
        Some(input)
    } else {
        reshape(graph, &name, input, &dims)
    };
    let Some(source) = source else { return false };
    if source.node != input.node {
        graph.set_infos(source.node, vec![info]);
        graph.stand_for(source.node, &[id]);
    }
    super::bypass(graph, id, source);
    true
}

/// The extents of the result of a reduction over axes of one element.
fn kept(graph: &Graph, id: NodeId) -> Option<Vec<Option<usize>>> {
    let node = graph.node(id);
    let &[input, axes] = node.inputs() else { return None };
    graph.may_move(id).ok().filter(|()| REDUCTIONS.contains(&node.op()))?;
    node.dtype("T").filter(|dtype| dtype.is_float())?;
    // The pass `sums` makes one product of the gradient of weights and its sum over a batch.
    let of_weights = graph.node(input.node).attr("adj_x").and_then(Attr::bool) == Some(true);
    let shape = graph.info(input).shape.as_ref().filter(|_| !of_weights)?;
    let rank = i64::try_from(shape.len()).ok()?;
    let axes = graph.constant(axes)?.to_i64().ok()?;
    let is_single = |axis: &i64| {
        let at = usize::try_from(if *axis < 0 { axis + rank } else { *axis }).ok();
        at.and_then(|at| shape.get(at)) == Some(&Dim::Known(1))
    };
    let result = graph.info(Output { node: id, port: 0 });
    let dims: Vec<Option<usize>> = result.shape.as_ref()?.iter().map(|d| d.known()).collect();
    let keeps = node.attr("keep_dims").and_then(Attr::bool) == Some(true);
    let left = if keeps { shape.len() } else { shape.len().checked_sub(axes.len())? };
    let unknown = dims.iter().filter(|extent| extent.is_none()).count();
    let fits = dims.len() == left && unknown < 2 && (unknown == 0 || !dims.contains(&Some(0)));
    (!axes.is_empty() && axes.iter().all(is_single) && fits).then_some(dims)
}
