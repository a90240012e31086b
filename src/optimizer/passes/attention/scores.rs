//! The nodes between the product of query and key and the weights: scale, mask, softmax and
//! conversions.

use super::cuts::{Cut, recut};
use super::labels::{Label, Labelled, constant_operand, product, scalar, through};
use crate::dtype::DType;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// The nodes between the product of query and key and the weights.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    /// The nodes.
    pub region: Vec<NodeId>,
    /// The factor by which the products are multiplied.
    pub scale: f64,
    /// The bound c of scores x, which are c tanh(x) instead.
    pub soft_cap: Option<f64>,
    rearranged: bool,
    /// The mask.
    pub mask: Option<Mask>,
    /// The mask of the weights, if it is applied to them again.
    pub zeroed_by: Option<Output>,
    /// The axes that reshapes cut, if queries are grouped.
    pub cuts: Vec<Cut>,
    /// Nodes that read only the shape of the scores, with the labels of its axes.
    pub shapes: Vec<(NodeId, Vec<Label>)>,
}

/// A mask.
#[derive(Debug, Clone)]
pub struct Mask {
    /// The kind of mask, as the op's attribute names it.
    pub kind: &'static str,
    /// The mask's tensor.
    pub operand: Output,
    /// The boolean that keeps a score.
    pub keep: bool,
    /// The value of masked scores, or the value added to them.
    pub fill: f64,
}

/// Whether a tensor is the first output of a node on our device and has a single reader.
pub fn is_single_use(graph: &Graph, output: Output) -> bool {
    output.port == 0 && graph.node(output.node).on_wgpu() && is_read_once(graph, output)
}

/// Whether a tensor has a single reader.
fn is_read_once(graph: &Graph, tensor: Output) -> bool {
    graph.readers_in_any_order(tensor).take(2).count() == 1
}

/// The softmax of the weights that a product reads.
pub struct Weights {
    /// The input of the softmax.
    pub input: Output,
    /// The output of the softmax.
    pub softmax: Output,
    /// The axes of the softmax.
    pub labels: Vec<Label>,
    /// The reader of that output besides gradients, unless it is the product.
    pub next: Option<NodeId>,
    /// Whether the weights have no other reader, before or after they are converted and masked.
    pub is_single_use: bool,
}

/// The softmax of the weights `last`, which a product of type `dtype` reads.
pub fn weights(
    graph: &Graph,
    (last, labels): &Labelled,
    dtype: DType,
) -> Option<(Weights, Scores)> {
    let mut scores = Scores { scale: 1.0, ..Scores::default() };
    let (mut at, mut next, mut single, mut labels) = (*last, None, true, labels.clone());
    loop {
        let node = graph.node(at.node);
        let own = at.port == 0 && node.on_wgpu();
        let is_single_use = is_read_once(graph, at);
        // Only the product's operand and the softmax itself may have other readers, in gradients.
        if !own || (!is_single_use && at != *last && node.op() != "Softmax") {
            return None;
        }
        single &= is_single_use;
        scores.region.push(at.node);
        let before = match node.op() {
            "Softmax" => {
                let own = node.dtype("T")?;
                if labels.len() == 5 {
                    scores.cuts.push(Cut::of_heads(graph, (at, &labels))?);
                }
                let input = node.inputs()[0];
                let found = Weights { input, softmax: at, labels, next, is_single_use: single };
                return (own == dtype || own == DType::F32).then_some((found, scores));
            }
            // The mask has the axes of the softmax.
            "Reshape" if scores.cuts.is_empty() && scores.zeroed_by.is_none() => {
                let before = node.inputs()[0];
                scores.cuts.push(Cut::of_rows(graph, &labels, before)?);
                labels = recut(graph, &scores.cuts, (at, &labels), before)?;
                before
            }
            "Cast"
                if node.dtype("DstT") == Some(dtype) && node.dtype("SrcT") == Some(DType::F32) =>
            {
                node.inputs()[0]
            }
            "SelectV2"
                if scores.zeroed_by.is_none() && scalar(graph, node.inputs()[2]) == Some(0.0) =>
            {
                scores.zeroed_by = Some(node.inputs()[0]);
                node.inputs()[1]
            }
            _ => return None,
        };
        next = Some(at.node);
        at = before;
    }
}

/// The product of query and key whose result leads to the softmax's input, with the labels of its
/// result. The nodes on the way go into `scores`.
pub fn products_of(
    graph: &Graph,
    at: Output,
    labels: Vec<Label>,
    scores: &mut Scores,
    uses: usize,
) -> Option<(NodeId, Vec<Label>)> {
    let node = graph.node(at.node);
    let (shapes, readers): (Vec<NodeId>, Vec<NodeId>) =
        graph.readers(at).map(|(id, _)| id).partition(|id| graph.node(*id).op() == "Shape");
    let single = at.port == 0 && node.on_wgpu() && readers.len() == uses.max(1);
    if !single || scores.region.len() > 12 {
        return None;
    }
    scores.shapes.extend(shapes.into_iter().map(|id| (id, labels.clone())));
    if product(graph, at.node).is_some() {
        return Some((at.node, labels));
    }
    let inputs = node.inputs();
    let mut passed = scores.clone();
    passed.region.push(at.node);
    let next = match node.op() {
        "Mul" | "RealDiv" => {
            let (x, by) = constant_operand(graph, inputs, node.op() == "Mul")?;
            passed.scale *= if node.op() == "Mul" { by } else { 1.0 / by };
            (x, labels, 1)
        }
        "Cast"
            if node.dtype("DstT") == Some(DType::F32)
                && node.dtype("SrcT").is_some_and(DType::is_narrow_float) =>
        {
            (inputs[0], labels, 1)
        }
        "Transpose" => {
            let labels = through(graph, inputs[1], &labels)?;
            passed.rearranged = true;
            (inputs[0], labels, 1)
        }
        "Tanh" if passed.soft_cap.is_none() => {
            passed.soft_cap = Some(std::mem::replace(&mut passed.scale, 1.0));
            (inputs[0], labels, 1)
        }
        "Reshape" => {
            let labels = recut(graph, &passed.cuts, (at, &labels), inputs[0])?;
            passed.rearranged = true;
            (inputs[0], labels, 1)
        }
        "AddV2" | "Add" if is_plain(&passed) => {
            let found = (0..2).find_map(|i| {
                let mut tried = passed.clone();
                tried.mask =
                    Some(Mask { kind: "bias", operand: inputs[1 - i], keep: true, fill: 0.0 });
                products_of(graph, inputs[i], labels.clone(), &mut tried, 1)
                    .map(|found| (found, tried))
            });
            let (found, tried) = found?;
            *scores = tried;
            return Some(found);
        }
        "SelectV2" if is_plain(&passed) => {
            let (x, keep, fill, between) = choice(graph, inputs)?;
            let kind = if between.is_some() { "penalty" } else { "choice" };
            passed.mask = Some(Mask { kind, operand: inputs[0], keep, fill });
            passed.region.extend(between);
            (x, labels, 1 + usize::from(between.is_some()))
        }
        _ => return None,
    };
    *scores = passed;
    products_of(graph, next.0, next.1, scores, next.2)
}

/// Whether a mask may come before the nodes that were passed: there is no scale, soft cap,
/// transpose, reshape or other mask among them.
fn is_plain(scores: &Scores) -> bool {
    let is_scaled = scores.scale != 1.0 || scores.soft_cap.is_some();
    scores.mask.is_none() && !is_scaled && !scores.rearranged
}

/// The effect of a `SelectV2` on scores: the scores, the boolean that keeps them, and the value of
/// the others. For a penalty, also the node that adds it.
fn choice(graph: &Graph, inputs: &[Output]) -> Option<(Output, bool, f64, Option<NodeId>)> {
    let [_, yes, no] = inputs else { return None };
    for (x, other, keep) in [(*yes, *no, true), (*no, *yes, false)] {
        if let Some(fill) = scalar(graph, other) {
            return Some((x, keep, fill, None));
        }
        let node = graph.node(other.node);
        let sign = match node.op() {
            "Sub" => -1.0,
            "AddV2" | "Add" => 1.0,
            _ => continue,
        };
        if node.inputs()[0] == x
            && is_single_use(graph, other)
            && let Some(by) = scalar(graph, node.inputs()[1])
        {
            return Some((x, keep, sign * by, Some(other.node)));
        }
    }
    None
}
