//! The gradient of attention, as TensorFlow's tape writes it. From the gradient of the result it
//! computes those of the values and of the weights, then those of the softmax, the mask and the
//! scale, and then the products with key and query.
//!
//! Grappler orders the factors of the softmax's gradient freely: they may come in any order, and
//! some may be multiplied beforehand. All readers of the weights must belong to the gradient, and
//! the values between must have no other use.

use super::ends::stops;
use super::labels::{
    DEPTH, Label, Labelled, constant_operand, permutation, product, scalar, through,
};
use super::scores::{Scores, Weights, is_single_use};
use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};

/// The forward pass that was found.
pub struct Forward<'a> {
    /// The softmax.
    pub weights: &'a Weights,
    /// The nodes between the softmax and the products.
    pub scores: &'a Scores,
    /// The product with the value.
    pub last: NodeId,
    /// The weights as that product reads them.
    pub operand: Labelled,
    /// Query, key and value as the products read them.
    pub tensors: [Labelled; 3],
    /// The type of the products.
    pub dtype: DType,
    /// The last axis of the values.
    pub width: Label,
}

/// The parts of the gradient.
#[derive(Debug)]
pub struct Gradient {
    /// The nodes.
    pub region: Vec<NodeId>,
    /// The gradient of the result, as the products read it.
    pub given: Labelled,
    /// The products that are the gradients of query, key and value, with the axes of their results.
    pub results: [(NodeId, Vec<Label>); 3],
    /// Tensors that products read. Their transposes may be unused afterwards.
    pub read: Vec<Labelled>,
}

/// The gradient of an attention, if all other readers of its weights belong to one.
pub fn gradient(graph: &Graph, f: &Forward<'_>) -> Option<Gradient> {
    let softmax = f.weights.softmax;
    let after = f.weights.next.unwrap_or(f.last);
    // The forward pass reads the weights once, and the gradient three times.
    if [softmax, f.operand.0]
        .iter()
        .any(|weights| graph.readers_in_any_order(*weights).nth(8).is_some())
    {
        return None;
    }
    let mut readers: Vec<NodeId> =
        graph.readers(softmax).map(|(id, _)| id).filter(|id| *id != after).collect();
    if f.operand.0 != softmax {
        readers.extend(graph.readers(f.operand.0).map(|(id, _)| id).filter(|id| *id != f.last));
    }
    let (products, factors): (Vec<_>, Vec<_>) =
        readers.into_iter().partition(|id| product(graph, *id).is_some());
    let ([value_id], [_, _]) = (&products[..], &factors[..]) else { return None };
    let (given, value_labels) = of_operand(graph, *value_id, &f.operand, f.width)?;

    let mean = factors.iter().find_map(|id| Mean::at(graph, *id, softmax))?;
    let factor = factors.iter().copied().find(|id| *id != mean.nodes[0])?;
    let mut region = vec![*value_id];
    region.extend(mean.nodes);
    let (change_id, change_labels) = change(graph, f, mean.of, &mut region)?;
    let walk = Walk::from(graph, f, mean.difference, factor, &mut region)?;

    let t = f.operand.1[f.operand.1.len() - 2];
    let ends: Vec<NodeId> = graph.readers(walk.at).map(|(id, _)| id).collect();
    let [one, two] = ends[..] else { return None };
    let end = (walk.at, walk.labels);
    let (one, two) =
        ((one, of_operand(graph, one, &end, DEPTH)?), (two, of_operand(graph, two, &end, DEPTH)?));
    let ((query_id, (key, query_labels)), (key_id, (query, key_labels))) =
        if one.1.1.contains(&t) { (one, two) } else { (two, one) };

    let changed = product(graph, change_id)?.rename(&change_labels, f.width)?;
    let of_change = graph.node(change_id).inputs().iter().copied().zip(changed);
    let (of_values, of_results): (Vec<Labelled>, Vec<Labelled>) =
        of_change.partition(|(_, labels)| !labels.contains(&t));
    let ([value], [result]) = (&of_values[..], &of_results[..]) else { return None };
    let read = vec![query, key, value.clone(), result.clone()];
    let [forward_query, forward_key, forward_value] = &f.tensors;
    let wanted = [forward_query, forward_key, forward_value, &given];
    if !read.iter().zip(wanted).all(|(a, b)| is_same(graph, a, b)) {
        return None;
    }
    region.extend([change_id, query_id, key_id]);
    let results = [(query_id, query_labels), (key_id, key_labels), (*value_id, value_labels)];
    let typed = [change_id, query_id, key_id, *value_id]
        .iter()
        .all(|id| graph.node(*id).dtype("T") == Some(f.dtype));
    typed.then_some(Gradient { region, given, results, read })
}

/// The other operand and the result of a product that reads `operand` once. The label that is
/// missing from the operand becomes `free`.
fn of_operand(
    graph: &Graph,
    id: NodeId,
    operand: &Labelled,
    free: Label,
) -> Option<(Labelled, Vec<Label>)> {
    let inputs = graph.node(id).inputs();
    let i = inputs.iter().position(|x| *x == operand.0)?;
    let [other, result] = product(graph, id)?.complete(i, &operand.1, free)?;
    (inputs[1 - i] != operand.0).then_some(((inputs[1 - i], other), result))
}

/// Whether two tensors are the same except for transposes.
fn is_same(graph: &Graph, a: &Labelled, b: &Labelled) -> bool {
    let b = stops(graph, &[], b, false);
    stops(graph, &[], a, false)
        .iter()
        .any(|a| b.iter().any(|b| (a.at, &a.labels) == (b.at, &b.labels)))
}

/// The only node that reads a tensor.
fn only_reader(graph: &Graph, at: Output) -> Option<NodeId> {
    let mut readers = graph.readers_in_any_order(at);
    let (id, _) = readers.next()?;
    readers.next().is_none().then_some(id)
}

/// For each row, the gradients of the weights, less their mean weighted by the weights.
struct Mean {
    nodes: [NodeId; 3],
    /// The gradients of the weights.
    of: Output,
    difference: Output,
}

impl Mean {
    /// The mean that begins with the node `id`, which multiplies the weights by their gradients.
    fn at(graph: &Graph, id: NodeId, weights: Output) -> Option<Self> {
        let output = |node| Output { node, port: 0 };
        let product = graph.node(id);
        let of = *product.inputs().iter().find(|x| **x != weights)?;
        let sum_id = only_reader(graph, output(id))?;
        let sum = graph.node(sum_id);
        let axes = graph.constant(*sum.inputs().get(1)?)?.to_i64().ok()?;
        let last = graph.info(weights).rank().map(|r| r as i64 - 1);
        let is_last = matches!(axes[..], [axis] if axis == -1 || Some(axis) == last);
        let keeps = sum.attr("keep_dims").and_then(Attr::bool) == Some(true);
        let difference_id = only_reader(graph, output(sum_id))?;
        let difference = graph.node(difference_id);
        let fits = (product.op(), sum.op(), difference.op()) == ("Mul", "Sum", "Sub")
            && sum.inputs()[0] == output(id)
            && is_last
            && keeps
            && difference.inputs() == [of, output(sum_id)]
            && graph.readers(of).count() == 2;
        fits.then(|| Self {
            nodes: [id, sum_id, difference_id],
            of,
            difference: output(difference_id),
        })
    }
}

/// The product that computes the gradients of the weights, and the labels of its result. The nodes
/// between go into `region`.
fn change(
    graph: &Graph,
    f: &Forward<'_>,
    of: Output,
    region: &mut Vec<NodeId>,
) -> Option<(NodeId, Vec<Label>)> {
    let (mut at, mut labels, mut zeroed) = (of, f.operand.1.clone(), false);
    loop {
        if at.port != 0 || (at != of && !is_single_use(graph, at)) {
            return None;
        }
        if product(graph, at.node).is_some() {
            return (zeroed == f.scores.zeroed_by.is_some()).then_some((at.node, labels));
        }
        let node = graph.node(at.node);
        region.push(at.node);
        at = match node.op() {
            "Cast" if converts(node, f.dtype) => node.inputs()[0],
            "Transpose" => {
                labels = through(graph, node.inputs()[1], &labels)?;
                node.inputs()[0]
            }
            "SelectV2" if !zeroed && f.scores.zeroed_by == Some(node.inputs()[0]) => {
                zeroed = scalar(graph, node.inputs()[2]) == Some(0.0);
                zeroed.then_some(node.inputs()[1])?
            }
            _ => return None,
        };
    }
}

/// Whether a `Cast` converts between float32 and the type of the products.
fn converts(node: &Node, dtype: DType) -> bool {
    let fits = |name| matches!(node.dtype(name), Some(t) if t == dtype || t == DType::F32);
    fits("SrcT") && fits("DstT")
}

/// The path from the differences to the gradients of query and key.
struct Walk {
    at: Output,
    labels: Vec<Label>,
    scale: f64,
    weighed: bool,
    masked: bool,
}

impl Walk {
    /// Walks from `at` until products read the tensor. `factor` is the reader of the weights on the
    /// path.
    fn from(
        graph: &Graph,
        f: &Forward<'_>,
        at: Output,
        factor: NodeId,
        region: &mut Vec<NodeId>,
    ) -> Option<Self> {
        let mut walk =
            Self { at, labels: f.operand.1.clone(), scale: 1.0, weighed: false, masked: false };
        while let Some(reader) = only_reader(graph, walk.at) {
            walk.pass(graph, f, reader, factor, region)?;
            region.push(reader);
            walk.at = Output { node: reader, port: 0 };
        }
        let kind = f.scores.mask.as_ref().map_or("none", |m| m.kind);
        let scale = f.scores.scale;
        let whole = walk.weighed
            && kind != "penalty"
            && walk.masked == (kind == "choice")
            && (walk.scale - scale).abs() <= 1e-6 * scale.abs();
        whole.then_some(walk)
    }

    fn pass(
        &mut self,
        graph: &Graph,
        f: &Forward<'_>,
        id: NodeId,
        factor: NodeId,
        region: &mut Vec<NodeId>,
    ) -> Option<()> {
        let node = graph.node(id);
        let inputs = node.inputs();
        match node.op() {
            "Mul" => {
                let other = *inputs.iter().find(|x| **x != self.at)?;
                if let Some(by) = scalar(graph, other) {
                    self.scale *= by;
                    return Some(());
                }
                if other != f.weights.softmax {
                    // The weights were multiplied by a constant beforehand.
                    let (x, by) = constant_operand(graph, graph.node(factor).inputs(), true)?;
                    let fits = graph.node(factor).op() == "Mul" && x == f.weights.softmax;
                    if !fits
                        || other != (Output { node: factor, port: 0 })
                        || !is_single_use(graph, other)
                    {
                        return None;
                    }
                    region.push(factor);
                    self.scale *= by;
                }
                !std::mem::replace(&mut self.weighed, true)
            }
            "RealDiv" => {
                self.scale /= scalar(graph, inputs[1])?;
                inputs[0] == self.at
            }
            "Cast" => converts(node, f.dtype),
            "Transpose" => {
                let perm = permutation(graph, inputs[1], self.labels.len())?;
                self.labels = perm.iter().map(|p| self.labels[*p]).collect();
                true
            }
            "SelectV2" => {
                let mask = f.scores.mask.as_ref().filter(|m| m.kind == "choice")?;
                let (kept, zero) = if mask.keep { (1, 2) } else { (2, 1) };
                let fits = inputs[0] == mask.operand
                    && inputs[kept] == self.at
                    && scalar(graph, inputs[zero]) == Some(0.0);
                fits && !std::mem::replace(&mut self.masked, true)
            }
            _ => false,
        }
        .then_some(())
    }
}
