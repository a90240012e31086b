//! What stands between the product of query and key and the weights: scale, mask, softmax,
//! conversions.

use super::labels::{Label, constant_operand, product, scalar, through};
use crate::dtype::DType;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// What stands between the weights and the product of query and key.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    /// The nodes.
    pub region: Vec<NodeId>,
    /// What products are multiplied with.
    pub scale: f64,
    transposed: bool,
    /// The mask.
    pub mask: Option<Mask>,
    /// The mask of the weights.
    pub zeroed_by: Option<Output>,
    /// Nodes that only want the shape of scores, with their axes.
    pub shapes: Vec<(NodeId, Vec<Label>)>,
}

/// A mask.
#[derive(Debug, Clone)]
pub struct Mask {
    /// What it does, as the op's attribute has it.
    pub kind: &'static str,
    /// Itself.
    pub operand: Output,
    /// Which booleans keep a score.
    pub keep: bool,
    /// What masked scores are, or are less by.
    pub fill: f64,
}

/// A node's first output, when one input alone reads it.
pub fn is_single_use(graph: &Graph, output: Output) -> bool {
    output.port == 0 && graph.node(output.node).on_wgpu() && is_read_once(graph, output)
}

/// Whether one input alone reads a tensor.
fn is_read_once(graph: &Graph, tensor: Output) -> bool {
    graph.readers_in_any_order(tensor).take(2).count() == 1
}

/// The softmax behind weights that a product reads.
pub struct Weights {
    /// Its input.
    pub input: Output,
    /// Its output.
    pub softmax: Output,
    /// The node besides gradients that reads that, if it is not the product.
    pub next: Option<NodeId>,
    /// Whether nobody else reads the weights, before or after they are converted and masked.
    pub is_single_use: bool,
}

/// The softmax behind the weights `last`, which a product of type `dtype` reads.
pub fn weights(graph: &Graph, last: Output, dtype: DType) -> Option<(Weights, Scores)> {
    let mut scores = Scores { scale: 1.0, ..Scores::default() };
    let (mut at, mut next, mut single) = (last, None, true);
    loop {
        let node = graph.node(at.node);
        let own = at.port == 0 && node.on_wgpu();
        let is_single_use = is_read_once(graph, at);
        // Only what the product reads and the softmax itself have other readers in gradients.
        if !own || (!is_single_use && at != last && node.op() != "Softmax") {
            return None;
        }
        single &= is_single_use;
        scores.region.push(at.node);
        let before = match node.op() {
            "Softmax" => {
                let own = node.dtype("T")?;
                let found =
                    Weights { input: node.inputs()[0], softmax: at, next, is_single_use: single };
                return (own == dtype || own == DType::F32).then_some((found, scores));
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

/// The product of query and key behind the softmax's input, with the labels of its result. What is
/// passed goes into `scores`.
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
            passed.transposed = true;
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

/// Whether nothing was met that a mask cannot be outside of.
fn is_plain(scores: &Scores) -> bool {
    scores.mask.is_none() && scores.scale == 1.0 && !scores.transposed
}

/// What a `SelectV2` does to scores: they, where they are kept, and what stands elsewhere. With a
/// penalty, the node that adds it.
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
