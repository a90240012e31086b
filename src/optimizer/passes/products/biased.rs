//! The gradient of a bias is the sum of the rows of an operand in the product that makes the
//! gradient of the layer's weights. The product's kernel can sum the rows on the way, so both
//! become one node. The gradient of a bias of several dimensions, as in layers with heads, is the
//! sum over the dimensions in front of the bias's own.

use rustc_hash::FxHashMap;

use super::are_independent;
use crate::error::Result;
use crate::kernels::fused::products::WITH_SUMS;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::passes::reshape::give_extents;
use crate::optimizer::shape::{Dim, TensorInfo};

/// The largest number of changes of shape between a tensor and its reader.
const MAX_ROW: usize = 8;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    // The sums of each tensor's columns. The number of columns is the second part of the key.
    let mut sums: FxHashMap<(Output, usize), NodeId> = FxHashMap::default();
    for id in order.iter().copied() {
        if let Some((rows, columns)) = summed(graph, id) {
            sums.entry((rows, columns)).or_insert(id);
        }
    }
    for product in order.iter().copied() {
        if graph.contains(product)
            && let Some((rows, columns)) = right(graph, product)
            && let Some(sum) = sums.get(&(rows, columns)).copied()
            && graph.node(sum).device() == graph.node(product).device()
            && are_independent(graph, product, sum)
        {
            sums.remove(&(rows, columns));
            replace(graph, product, sum, columns);
        }
    }
    Ok(())
}

/// The tensor that has the same elements as `tensor` in the same order.
pub(super) fn elements(graph: &Graph, mut tensor: Output) -> Output {
    for _ in 0..MAX_ROW {
        let node = graph.node(tensor.node);
        match (node.op(), node.inputs().first()) {
            ("Reshape" | "ExpandDims" | "Squeeze" | "Identity", Some(input))
                if node.controls().is_empty() =>
            {
                tensor = *input;
            }
            _ => break,
        }
    }
    tensor
}

/// Whether a node may be fused into another one.
fn is_free(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.on_wgpu()
        && !graph.is_preserved(id)
        && node.controls().is_empty()
        && node.dtype("T").is_some_and(|t| t.is_float())
}

/// The last extent of a tensor of rows.
pub(super) fn columns(graph: &Graph, tensor: Output) -> Option<usize> {
    let shape = graph.info(tensor).shape.as_ref().filter(|s| s.len() >= 2)?;
    shape.last()?.known().filter(|n| *n > 0)
}

/// The tensor whose rows a node sums, and its number of columns.
fn summed(graph: &Graph, id: NodeId) -> Option<(Output, usize)> {
    let node = graph.node(id);
    if !is_free(graph, id) {
        return None;
    }
    if node.op() == "Sum" {
        return summed_over_first(graph, id);
    }
    if node.op() != "BiasAddGrad" {
        return None;
    }
    if node.attr("data_format").and_then(Attr::string).is_some_and(|f| f != "NHWC") {
        return None;
    }
    let rows = *node.inputs().first()?;
    Some((elements(graph, rows), columns(graph, rows)?))
}

/// Like [`summed`], for a sum over all dimensions but the last ones. The elements of these are the
/// columns.
fn summed_over_first(graph: &Graph, id: NodeId) -> Option<(Output, usize)> {
    let &[rows, axes] = graph.node(id).inputs() else { return None };
    let shape = graph.info(rows).shape.as_ref()?;
    let mut axes = graph.constant(axes)?.to_i64().ok()?;
    let rank = shape.len() as i64;
    axes.iter_mut().filter(|axis| **axis < 0).for_each(|axis| *axis += rank);
    axes.sort_unstable();
    let first = !axes.is_empty() && axes.iter().copied().eq(0..axes.len() as i64);
    let columns = shape.get(axes.len()..)?.iter().map(|d| d.known());
    let columns = columns.product::<Option<usize>>().filter(|n| *n > 0)?;
    (first && axes.len() < shape.len()).then(|| (elements(graph, rows), columns))
}

/// The tensor that is the right operand of a matrix product, and its number of columns.
fn right(graph: &Graph, id: NodeId) -> Option<(Output, usize)> {
    let node = graph.node(id);
    let turned = match node.op() {
        "MatMul" | "_WgpuFusedMatMul" => "transpose_b",
        "BatchMatMulV2" | "_WgpuFusedBatchMatMulV2" => "adj_y",
        _ => return None,
    };
    let matrices = node.inputs()[..2].iter().all(|i| graph.info(*i).rank() == Some(2));
    let is_turned = node.attr(turned).and_then(Attr::bool).unwrap_or(false);
    if !is_free(graph, id) || !matrices || is_turned {
        return None;
    }
    let rows = node.inputs()[1];
    Some((elements(graph, rows), columns(graph, rows)?))
}

fn replace(graph: &mut Graph, product: NodeId, sum: NodeId, columns: usize) {
    let node = graph.node(product);
    let Some(dtype) = node.dtype("T") else { return };
    // The extents of the sums that their readers expect.
    let dims = graph.info(first(sum)).shape.as_ref();
    let dims = dims.and_then(|shape| shape.iter().map(|d| d.known()).collect::<Option<Vec<_>>>());
    let Some(dims) = dims.filter(|dims| dims.iter().product::<usize>() == columns) else { return };
    if graph.node(sum).dtype("T") != Some(dtype) {
        return;
    }
    let flag = |name: &str| node.attr(name).and_then(Attr::bool).unwrap_or(false);
    let plain = format!("x: {dtype}; c: 0; return x0");
    let expression = node.attr("expression").cloned().unwrap_or_else(|| plain.into());
    let constants = node.attr("constants").cloned();
    let extras = node.attr("T_extra").cloned();
    let output = node.dtype("T_out").unwrap_or(dtype);
    let new = NewNode {
        name: format!("{}/with_sums", node.name()),
        op: WITH_SUMS.to_owned(),
        device: node.device().to_owned(),
        inputs: node.inputs().to_vec(),
        controls: Vec::new(),
        attrs: vec![
            ("T", dtype.into()),
            ("T_extra", extras.unwrap_or_else(|| Attr::from(&[][..] as &[crate::dtype::DType]))),
            ("T_out", output.into()),
            ("adj_x", (flag("transpose_a") || flag("adj_x")).into()),
            ("constants", constants.unwrap_or_else(|| Attr::from(&[][..] as &[f32]))),
            ("expression", expression),
        ],
        infos: vec![
            TensorInfo { dtype: Some(output), ..graph.info(first(product)).clone() },
            TensorInfo {
                dtype: Some(dtype),
                shape: Some([Dim::Known(columns)].into_iter().collect()),
            },
        ],
    };
    let new = graph.replace_region(&[product, sum], new, &[(first(product), 0), (first(sum), 1)]);
    give_extents(graph, Output { node: new, port: 1 }, &dims);
}

const fn first(node: NodeId) -> Output {
    Output { node, port: 0 }
}
