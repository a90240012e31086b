//! Reads the weights of heads as they are for a product with one row.
//!
//! Keras's `einsum("btd,ndh->btnh", x, w)`, which projects queries in Gemma, becomes
//! `x @ reshape(transpose(w, [1, 0, 2]), [d, n * h])`: all weights are copied for each token. With
//! one row, `reshape(x, [1, 1, d]) @ w` is a product for each head, and its result `[n, 1, h]` has
//! the elements in the same order. With more rows the heads would stand before the rows. Weights
//! that are decoded from codes stay for the pass `quantized`, which reads the codes where they lie.
//!
//! The weights of one head, `reshape(transpose(w, [1, 0, 2]), [d, h])`, are a reshape of `w` for
//! any number of rows.

use super::{drop_unused, moves};
use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_view;
use crate::optimizer::passes::reshape::reshape;
use crate::optimizer::shape::{Dim, TensorInfo};

/// Rewrites the product `id` of a batch form, if it has one row and its weights are copied so.
pub(super) fn separate(graph: &mut Graph, id: NodeId) {
    if let Some(weights) = weights(graph, id) {
        rewrite(graph, id, &weights);
    }
}

/// Reshapes the weights of one head without their transpose, which moves no elements.
pub(super) fn drop_single(graph: &mut Graph, id: NodeId) {
    let Some((reshape, transpose)) = single(graph, id) else { return };
    let source = graph.node(transpose).inputs()[0];
    graph.set_input(reshape, 0, source);
    drop_unused(graph, transpose);
}

/// The reshape and the transpose between weights of one head and the product `id`.
fn single(graph: &Graph, id: NodeId) -> Option<(NodeId, NodeId)> {
    let weights = *graph.node(id).inputs().get(1)?;
    let reshape = graph.node(weights.node);
    let is_matrix = graph.info(weights).rank() == Some(2) && reshape.op() == "Reshape";
    let moved = *reshape.inputs().first().filter(|_| is_matrix)?;
    let transpose = graph.node(moved.node);
    let may_move = |id: NodeId| graph.may_move(id).is_ok();
    if transpose.op() != "Transpose" || !may_move(weights.node) || !may_move(moved.node) {
        return None;
    }
    let shape = graph.info(transpose.inputs()[0]).shape.as_deref()?;
    let perm = graph.constant(transpose.inputs()[1])?.to_i64().ok()?;
    let perm = perm.iter().map(|p| i32::try_from(*p).ok().filter(|p| *p >= 0));
    let perm = perm.collect::<Option<Vec<i32>>>()?;
    let stays = perm.len() == shape.len() && !moves(shape, &perm);
    stays.then_some((weights.node, moved.node))
}

/// Weights of heads, and the nodes that copy them.
struct Weights {
    /// The tensor `[heads, depth, width]`.
    tensor: Output,
    extents: [usize; 3],
    reshape: NodeId,
    transpose: NodeId,
}

/// The most nodes between weights and their codes that are looked at.
const MOST_STEPS: usize = 16;

/// Whether a tensor is computed from codes of 8 bits: by a scale at least.
fn is_decoded(graph: &Graph, tensor: Output) -> bool {
    let mut open = vec![(tensor, false)];
    for _ in 0..MOST_STEPS {
        let Some((tensor, is_scaled)) = open.pop() else { return false };
        let node = graph.node(tensor.node);
        let is_byte = matches!(node.dtype("SrcT"), Some(DType::I8 | DType::U8));
        match node.op() {
            "Cast" if is_scaled && is_byte => return true,
            "Mul" | "RealDiv" | "Sub" => open.extend(node.inputs().iter().map(|x| (*x, true))),
            op if op == "Cast" || is_view(node) => {
                open.extend(node.inputs().first().map(|x| (*x, is_scaled)));
            }
            _ => {}
        }
    }
    false
}

/// The extents of a tensor that are all known.
fn extents(graph: &Graph, tensor: Output) -> Option<Vec<usize>> {
    graph.info(tensor).shape.as_ref()?.iter().map(|d| d.known()).collect()
}

/// The weights of the product, if it may read them as they are.
fn weights(graph: &Graph, id: NodeId) -> Option<Weights> {
    let node = graph.node(id);
    let is_plain = |flag| node.attr(flag).and_then(Attr::bool) == Some(false);
    if !is_plain("adj_x") || !is_plain("adj_y") || node.attr("expression").is_some() {
        return None;
    }
    let [x, y] = node.inputs()[..] else { return None };
    let copied = |id: NodeId| graph.may_move(id).is_ok();
    let is_reshape = y.port == 0 && is_view(graph.node(y.node)) && copied(y.node);
    let transposed = is_reshape.then(|| graph.node(y.node).inputs()[0])?;
    let transpose = graph.node(transposed.node);
    if transpose.op() != "Transpose" || !copied(transposed.node) {
        return None;
    }
    if graph.constant(transpose.inputs()[1])?.to_i64().ok()? != [1, 0, 2] {
        return None;
    }
    let tensor = transpose.inputs()[0];
    let &[heads, depth, width] = extents(graph, tensor)?.as_slice() else { return None };
    let rows = extents(graph, x)?;
    let is_one_row = rows.split_last()? == (&depth, &vec![1; rows.len() - 1][..]);
    let is_matrix = extents(graph, y)? == [depth, heads.checked_mul(width)?];
    let fits = is_one_row && is_matrix && heads > 1 && !is_decoded(graph, tensor);
    let [reshape, transpose] = [y.node, transposed.node];
    fits.then_some(Weights { tensor, extents: [heads, depth, width], reshape, transpose })
}

fn rewrite(graph: &mut Graph, id: NodeId, weights: &Weights) {
    let [heads, depth, width] = weights.extents;
    let result = Output { node: id, port: 0 };
    let Some(extents) = extents(graph, result) else { return };
    let (name, x) = (graph.node(id).name().to_owned(), graph.node(id).inputs()[0]);
    let is_shaped = graph.info(x).rank() == Some(3);
    let row = [Some(1), Some(1), Some(depth)];
    let shaped = |graph: &mut Graph| reshape(graph, &format!("{name}/row"), x, &row);
    let Some(x) = (if is_shaped { Some(x) } else { shaped(graph) }) else { return };
    let readers: Vec<_> = graph.readers(result).collect();
    let extents: Vec<_> = extents.into_iter().map(Some).collect();
    let Some(joined) = reshape(graph, &format!("{name}/heads"), result, &extents) else { return };
    let dtype = graph.info(result).dtype;
    let shape = [heads, 1, width].into_iter().map(Dim::Known).collect();
    graph.set_inputs(id, vec![x, weights.tensor]);
    graph.set_infos(id, vec![TensorInfo { dtype, shape: Some(shape) }]);
    for (reader, index) in readers {
        graph.set_input(reader, index, joined);
    }
    [weights.reshape, weights.transpose].into_iter().for_each(|id| drop_unused(graph, id));
}
