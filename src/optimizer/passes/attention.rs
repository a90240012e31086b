//! Attention as Keras and hand-written transformers spell it out: the product of query and key, a scale, a mask, softmax, the product with the
//! value; with transposes, and conversions of 16-bit floats to float32 and back, around and between.
//!
//! Axes carry labels: those of an `Einsum`'s equation, or made up for a `BatchMatMulV2`. Following the labels through transposes says which
//! operand is the query and where its heads are. Values between the ops must have no other use, which leaves graphs with
//! gradients alone. The conversion of weights to 16 bits goes with the ops: it only rounds values between 0 and 1.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::attention::OP;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};

/// An axis.
type Label = u32;
/// The axis that query and key are contracted over.
const DEPTH: Label = u32::MAX;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let ids: Vec<_> = graph.ids().collect();
    for id in ids {
        if graph.contains(id)
            && let Some(found) = Found::at(graph, id)
        {
            found.replace(graph);
        }
    }
    Ok(())
}

/// The labels of a product's operands and result.
struct Product {
    operands: [Vec<Label>; 2],
    result: Vec<Label>,
    /// Whether batches broadcast.
    broadcasts: bool,
    dtype: DType,
}

/// What stands between the weights and the product of query and key.
#[derive(Debug, Clone, Default)]
struct Scores {
    region: Vec<NodeId>,
    scale: f64,
    transposed: bool,
    mask: Option<Mask>,
    zeroed_by: Option<Output>,
}

#[derive(Debug, Clone)]
struct Mask {
    kind: &'static str,
    operand: Output,
    keep: bool,
    fill: f64,
}

/// A tensor that an operand may be read from, and what it is multiplied with on the way.
struct Stop {
    at: Output,
    labels: Vec<Label>,
    scale: f64,
    passed: Vec<NodeId>,
}

/// An attention to be replaced.
struct Found {
    region: Vec<NodeId>,
    /// Nodes that may be of no use any more.
    passed: Vec<NodeId>,
    result: Output,
    inputs: Vec<Output>,
    attrs: Vec<(&'static str, Attr)>,
}

impl Found {
    /// The attention whose product with the value is the node `id`.
    fn at(graph: &Graph, id: NodeId) -> Option<Self> {
        let last = product(graph, id)?;
        (0..2).find_map(|i| Self::with_weights(graph, id, &last, i))
    }

    fn with_weights(graph: &Graph, id: NodeId, last: &Product, i: usize) -> Option<Self> {
        let node = graph.node(id);
        let labels = &last.operands[i];
        let (value, value_labels) = (node.inputs()[1 - i], &last.operands[1 - i]);
        let (weights, mut scores) = weights(graph, node.inputs()[i], last.dtype)?;
        let (first_id, labels_first) = products_of(graph, weights, labels.clone(), &mut scores, 0)?;
        let first = product(graph, first_id)?;
        if first.broadcasts != last.broadcasts || first.dtype != last.dtype {
            return None;
        }
        let operands = first.rename(&labels_first)?;
        let rank = labels.len();
        let (lead, t, s) = (&labels[..rank - 2], labels[rank - 2], labels[rank - 1]);
        let width = only(value_labels, |l| !labels.contains(l))?;
        let key = usize::from(operands[1].contains(&s));
        let inputs = graph.node(first_id).inputs();
        let results = results(graph, id, &last.result);
        let layout = |name, arrange: &dyn Fn(Label, Label) -> Vec<Label>| {
            let find = |at: Output, labels: &[Label], wanted: Vec<Label>, is_product: bool| {
                stops(graph, at, labels, is_product).into_iter().rev().find(|stop| stop.labels == wanted)
            };
            let query = find(inputs[1 - key], &operands[1 - key], arrange(t, DEPTH), true)?;
            let key = find(inputs[key], &operands[key], arrange(s, DEPTH), true)?;
            let value = find(value, value_labels, arrange(s, width), false)?;
            let result = results.iter().rev().find(|(_, labels)| *labels == arrange(t, width))?;
            Some((name, [query, key, value], result.0))
        };
        let heads_last = |position, last| match lead {
            [batch, heads] => vec![*batch, position, *heads, last],
            _ => Vec::new(),
        };
        let heads_first = |position, last| [lead, &[position, last]].concat();
        let (layout, stops, result) = layout("BTNH", &heads_last).or_else(|| layout("BNTH", &heads_first))?;
        let mut region = scores.region.clone();
        region.extend([first_id, id]);
        region.extend((result.node != id).then_some(result.node));
        let scale = (scores.scale * stops[0].scale * stops[1].scale) as f32;
        let mask = scores.mask.as_ref();
        let zero_masked = match (scores.zeroed_by, mask) {
            (None, _) => false,
            (Some(by), Some(mask)) if mask.kind != "bias" && mask.keep && mask.operand == by => true,
            _ => return None,
        };
        let extra: Vec<DType> = match mask {
            None => Vec::new(),
            Some(mask) => {
                let info = graph.info(mask.operand);
                let fits = info.rank().is_some_and(|r| r <= rank);
                fits.then_some(vec![info.dtype?])?
            }
        };
        let types_fit = extra.iter().all(|t| match mask.map(|m| m.kind) {
            Some("bias") => matches!(t, DType::F32 | DType::F16 | DType::BF16),
            _ => *t == DType::Bool,
        });
        let device = node.device();
        let legal = region.iter().all(|id| graph.node(*id).device() == device && !graph.is_preserved(*id));
        if !types_fit || !legal || !scale.is_finite() || !graph.is_convex(&region) {
            return None;
        }
        let passed = stops.iter().flat_map(|s| s.passed.clone()).collect();
        let inputs = stops.iter().map(|s| s.at).chain(mask.map(|m| m.operand)).collect();
        let attrs = vec![
            ("T", last.dtype.into()),
            ("Textra", extra[..].into()),
            ("layout", layout.into()),
            ("scale", scale.into()),
            ("mask", mask.map_or("none", |m| m.kind).into()),
            ("keep", mask.is_none_or(|m| m.keep).into()),
            ("fill", (mask.map_or(0.0, |m| m.fill) as f32).into()),
            ("causal", false.into()),
            ("zero_masked", zero_masked.into()),
            ("broadcast", last.broadcasts.into()),
        ];
        Some(Self { region, passed, result, inputs, attrs })
    }

    fn replace(self, graph: &mut Graph) {
        let last = graph.node(self.result.node);
        let new = NewNode {
            name: format!("{}/attention", last.name()),
            op: OP.to_owned(),
            device: last.device().to_owned(),
            inputs: self.inputs,
            controls: Vec::new(),
            attrs: self.attrs,
            infos: vec![graph.info(self.result)],
        };
        graph.replace_region(&self.region, new, &[(self.result, 0)]);
        for id in self.passed {
            if graph.contains(id) && graph.users(id).is_empty() && !graph.is_preserved(id) {
                graph.remove(id);
            }
        }
    }
}

/// The only label for which `is_it` holds.
fn only(labels: &[Label], is_it: impl Fn(&Label) -> bool) -> Option<Label> {
    let mut found = labels.iter().copied().filter(|l| is_it(l));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// A product of two matrices for each batch, with ranks that are known.
fn product(graph: &Graph, id: NodeId) -> Option<Product> {
    let node = graph.node(id);
    if !node.on_wgpu() || node.inputs().len() != 2 {
        return None;
    }
    let dtype = node.dtype("T").filter(|t| matches!(t, DType::F32 | DType::F16 | DType::BF16))?;
    let (operands, result, broadcasts) = match node.op() {
        "BatchMatMulV2" => {
            let rank = graph.info(node.inputs()[0]).rank()?;
            if graph.info(node.inputs()[1]).rank() != Some(rank) || !(2..=4).contains(&rank) {
                return None;
            }
            let of = |rows: Label, columns: Label, transposed: bool| {
                let edges = if transposed { [columns, rows] } else { [rows, columns] };
                (0..rank as Label - 2).chain(edges).collect::<Vec<_>>()
            };
            let flag = |name| node.attr(name).and_then(Attr::bool);
            let (m, k, n) = (10, 11, 12);
            ([of(m, k, flag("adj_x")?), of(k, n, flag("adj_y")?)], of(m, n, false), true)
        }
        "Einsum" => {
            let (inputs, result) = node.attr("equation")?.string()?.split_once("->")?;
            let (a, b) = inputs.split_once(',')?;
            let labels = |text: &str| {
                let distinct: FxHashSet<char> = text.chars().collect();
                let plain = text.chars().all(|c| c.is_ascii_alphabetic()) && distinct.len() == text.len();
                (plain && (2..=4).contains(&text.len())).then(|| text.chars().map(Label::from).collect::<Vec<_>>())
            };
            ([labels(a)?, labels(b)?], labels(result)?, false)
        }
        _ => return None,
    };
    Some(Product { operands, result, broadcasts, dtype })
}

impl Product {
    /// The operands' labels where the result's are `labels`; the contracted one becomes [`DEPTH`].
    fn rename(&self, labels: &[Label]) -> Option<[Vec<Label>; 2]> {
        if self.result.len() != labels.len() {
            return None;
        }
        let contracted = only(&self.operands[0], |l| !self.result.contains(l))?;
        let rename = |operand: &[Label]| {
            let new = operand.iter().map(|l| match self.result.iter().position(|r| r == l) {
                Some(at) => Some(labels[at]),
                None => (*l == contracted).then_some(DEPTH),
            });
            new.collect::<Option<Vec<_>>>()
        };
        Some([rename(&self.operands[0])?, rename(&self.operands[1])?])
    }
}

/// A node's first output, when one input alone reads it.
fn is_single_use(graph: &Graph, output: Output) -> bool {
    output.port == 0 && graph.node(output.node).on_wgpu() && graph.readers(output).count() == 1
}

/// The only element of a constant.
fn scalar(graph: &Graph, output: Output) -> Option<f64> {
    graph.constant(output).filter(|v| v.dtype.is_float() && v.dims.is_empty()).map(|v| v.to_f64()[0])
}

/// The softmax's input behind weights that a product of type `dtype` reads.
fn weights(graph: &Graph, mut at: Output, dtype: DType) -> Option<(Output, Scores)> {
    let mut scores = Scores { scale: 1.0, ..Scores::default() };
    loop {
        if !is_single_use(graph, at) {
            return None;
        }
        let node = graph.node(at.node);
        scores.region.push(at.node);
        match node.op() {
            "Softmax" => {
                let own = node.dtype("T")?;
                return (own == dtype || own == DType::F32).then_some((node.inputs()[0], scores));
            }
            "Cast" if node.dtype("DstT") == Some(dtype) && node.dtype("SrcT") == Some(DType::F32) => {
                at = node.inputs()[0];
            }
            "SelectV2" if scores.zeroed_by.is_none() && scalar(graph, node.inputs()[2]) == Some(0.0) => {
                scores.zeroed_by = Some(node.inputs()[0]);
                at = node.inputs()[1];
            }
            _ => return None,
        }
    }
}

/// The product of query and key behind the softmax's input, with the labels of its result. What is passed goes into `scores`.
fn products_of(
    graph: &Graph,
    at: Output,
    labels: Vec<Label>,
    scores: &mut Scores,
    uses: usize,
) -> Option<(NodeId, Vec<Label>)> {
    let node = graph.node(at.node);
    let single = at.port == 0 && node.on_wgpu() && graph.readers(at).count() == uses.max(1);
    if !single || scores.region.len() > 12 {
        return None;
    }
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
                && matches!(node.dtype("SrcT"), Some(DType::F16 | DType::BF16)) =>
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
                tried.mask = Some(Mask { kind: "bias", operand: inputs[1 - i], keep: true, fill: 0.0 });
                products_of(graph, inputs[i], labels.clone(), &mut tried, 1).map(|found| (found, tried))
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

/// The operand of a `Mul` or `RealDiv` that is no constant, and the constant.
fn constant_operand(graph: &Graph, inputs: &[Output], commutes: bool) -> Option<(Output, f64)> {
    let [a, b] = inputs else { return None };
    match (scalar(graph, *b), commutes) {
        (Some(by), _) => Some((*a, by)),
        (None, true) => scalar(graph, *a).map(|by| (*b, by)),
        (None, false) => None,
    }
}

/// What a `SelectV2` does to scores: they, where they are kept, and what stands elsewhere. With a penalty, the node that adds it.
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

/// The labels before a transpose that are `labels` after it.
fn through(graph: &Graph, perm: Output, labels: &[Label]) -> Option<Vec<Label>> {
    let perm = permutation(graph, perm, labels.len())?;
    let mut before = labels.to_vec();
    for (i, p) in perm.into_iter().enumerate() {
        before[p] = labels[i];
    }
    Some(before)
}

fn permutation(graph: &Graph, perm: Output, rank: usize) -> Option<Vec<usize>> {
    let values = graph.constant(perm)?.to_i64().ok()?;
    let axis = |p: i64| usize::try_from(if p < 0 { p + rank as i64 } else { p }).ok().filter(|p| *p < rank);
    let perm = values.into_iter().map(axis).collect::<Option<Vec<_>>>()?;
    let distinct: FxHashSet<usize> = perm.iter().copied().collect();
    (perm.len() == rank && distinct.len() == rank).then_some(perm)
}

/// From where an operand may be read: itself, or what it was transposed and scaled from.
fn stops(graph: &Graph, at: Output, labels: &[Label], may_scale: bool) -> Vec<Stop> {
    let mut out = vec![Stop { at, labels: labels.to_vec(), scale: 1.0, passed: Vec::new() }];
    while let Some(stop) = out.last() {
        let node = graph.node(stop.at.node);
        if stop.at.port != 0 || !node.on_wgpu() || !node.controls().is_empty() {
            break;
        }
        let next = match node.op() {
            "Transpose" => through(graph, node.inputs()[1], &stop.labels).map(|labels| (node.inputs()[0], labels, 1.0)),
            "Mul" if may_scale => {
                constant_operand(graph, node.inputs(), true).map(|(x, by)| (x, stop.labels.clone(), by))
            }
            _ => None,
        };
        let Some((at, labels, by)) = next else { break };
        let passed = stop.passed.iter().copied().chain([stop.at.node]).collect();
        let scale = stop.scale * by;
        out.push(Stop { at, labels, scale, passed });
    }
    out
}

/// What may be the attention's result: that of its last product, or what a transpose makes of it.
fn results(graph: &Graph, id: NodeId, labels: &[Label]) -> Vec<(Output, Vec<Label>)> {
    let own = Output { node: id, port: 0 };
    let mut out = vec![(own, labels.to_vec())];
    let mut readers = graph.readers(own);
    if let (Some((reader, 0)), None) = (readers.next(), readers.next()) {
        let node = graph.node(reader);
        if node.op() == "Transpose"
            && node.on_wgpu()
            && !graph.is_preserved(reader)
            && let Some(perm) = permutation(graph, node.inputs()[1], labels.len())
        {
            out.push((Output { node: reader, port: 0 }, perm.iter().map(|p| labels[*p]).collect()));
        }
    }
    out
}
