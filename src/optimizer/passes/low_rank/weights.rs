//! The weights without the product that was added to them, as the products with them read them.

use super::find::LowRank;
use crate::dtype::DType;
use crate::optimizer::graph::{Graph, NewNode, Node, Output};

/// The attributes of conversions, transposes and reshapes.
const TYPES: [&str; 6] = ["DstT", "SrcT", "T", "Tperm", "Tshape", "Truncate"];

/// The largest number of views in a row that are copied.
const MAX_ROW: usize = 8;

/// Makes the views of the sum read the weights.
pub fn read_weights(graph: &mut Graph, found: &LowRank) {
    let weights = found.weights;
    let sum = Output { node: found.sum, port: 0 };
    let readers: Vec<_> = graph.readers(sum).collect();
    for (reader, index) in readers {
        graph.set_input(reader, index, weights);
        // Weights that were widened for the sum are read as they are stored.
        if let Some(source) = unwidened(graph.node(weights.node), graph.node(reader))
            && graph.waiters(reader).next().is_none()
        {
            graph.replace_readers(Output { node: reader, port: 0 }, source);
            graph.remove_unused(reader);
        }
    }
}

/// Gives the products that transpose the weights a copy of their own, if others read a copy, too:
/// one of both kinds runs in the forward pass, the other one in the backward pass. A shared copy
/// would be kept from the one to the other.
pub fn copy_again(graph: &mut Graph, found: &LowRank) {
    let (backward, forward): (Vec<_>, Vec<_>) =
        found.products.iter().partition(|product| product.is_transposed);
    let Some(first) = backward.first().filter(|_| !forward.is_empty()) else { return };
    if found.matrix.keeps_order() {
        return;
    }
    let shared = graph.node(first.id).inputs()[1];
    let mut views = Vec::new();
    let mut tensor = shared;
    let op = |id| graph.node(id).op();
    while views.len() < MAX_ROW && matches!(op(tensor.node), "Transpose" | "Reshape") {
        views.push(tensor.node);
        tensor = graph.node(tensor.node).inputs()[0];
    }
    // A second conversion of the same tensor would become one with the first. So it comes last.
    let conversion = (op(tensor.node) == "Cast").then_some(tensor.node);
    if let Some(id) = conversion {
        tensor = graph.node(id).inputs()[0];
    }
    let dtype = graph.info(tensor).dtype;
    for view in views.into_iter().rev().chain(conversion) {
        let node = graph.node(view);
        let mut attrs: Vec<_> =
            TYPES.iter().filter_map(|t| Some((*t, node.attr(t)?.clone()))).collect();
        let mut info = graph.info(shared).clone();
        if Some(view) != conversion {
            info.shape.clone_from(&graph.info(Output { node: view, port: 0 }).shape);
            info.dtype = dtype;
            attrs.retain(|(name, _)| *name != "T");
            attrs.extend(dtype.map(|dtype| ("T", dtype.into())));
        }
        let others = node.inputs()[1..].iter().copied();
        let new = NewNode {
            name: format!("{}/backward", node.name()),
            op: node.op().to_owned(),
            device: node.device().to_owned(),
            inputs: std::iter::once(tensor).chain(others).collect(),
            controls: node.controls().to_vec(),
            attrs,
            infos: vec![info],
        };
        tensor = Output { node: graph.add(new), port: 0 };
    }
    for product in backward {
        if graph.node(product.id).inputs()[1] == shared {
            graph.set_input(product.id, 1, tensor);
        }
    }
}

/// The tensor that one conversion widens and the next one narrows to its own type.
fn unwidened(widening: &Node, narrowing: &Node) -> Option<Output> {
    let is_pair = widening.op() == "Cast" && narrowing.op() == "Cast";
    let (from, between) = (widening.dtype("SrcT")?, widening.dtype("DstT")?);
    let is_there_and_back = is_pair && narrowing.dtype("DstT")? == from;
    (is_there_and_back && between == DType::F32).then(|| widening.inputs()[0])
}
