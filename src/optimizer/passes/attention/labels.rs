//! Labels of axes, and the labels of matrix products.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// An axis.
pub type Label = u32;
/// A tensor and its axes.
pub type Labelled = (Output, Vec<Label>);
/// The axis over which query and key are contracted.
pub const DEPTH: Label = u32::MAX;

/// The labels of a product's operands and result.
pub struct Product {
    /// The labels of the operands.
    pub operands: [Vec<Label>; 2],
    /// The labels of the result.
    pub result: Vec<Label>,
    /// Whether batches broadcast.
    pub broadcasts: bool,
    /// The type of the operands and the result.
    pub dtype: DType,
}

/// The only label for which `is_it` holds.
pub fn only(labels: &[Label], is_it: impl Fn(&Label) -> bool) -> Option<Label> {
    let mut found = labels.iter().copied().filter(|l| is_it(l));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// A product of two matrices for each batch, with known ranks.
pub fn product(graph: &Graph, id: NodeId) -> Option<Product> {
    let node = graph.node(id);
    if !node.on_wgpu() || node.inputs().len() != 2 {
        return None;
    }
    let dtype = node.dtype("T").filter(|t| t.is_single())?;
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
                let plain =
                    text.chars().all(|c| c.is_ascii_alphabetic()) && distinct.len() == text.len();
                (plain && (2..=5).contains(&text.len()))
                    .then(|| text.chars().map(Label::from).collect::<Vec<_>>())
            };
            ([labels(a)?, labels(b)?], labels(result)?, false)
        }
        _ => return None,
    };
    Some(Product { operands, result, broadcasts, dtype })
}

impl Product {
    /// The operands' labels if the result has `labels`. The contracted label becomes `inner`.
    pub fn rename(&self, labels: &[Label], inner: Label) -> Option<[Vec<Label>; 2]> {
        if self.result.len() != labels.len() {
            return None;
        }
        let contracted = only(&self.operands[0], |l| !self.result.contains(l))?;
        let rename = |operand: &[Label]| {
            let new = operand.iter().map(|l| match self.result.iter().position(|r| r == l) {
                Some(at) => Some(labels[at]),
                None => (*l == contracted).then_some(inner),
            });
            new.collect::<Option<Vec<_>>>()
        };
        Some([rename(&self.operands[0])?, rename(&self.operands[1])?])
    }

    /// The labels of the other operand and of the result if operand `i` has `labels`. The label
    /// that is missing from operand `i` becomes `free`.
    pub fn complete(&self, i: usize, labels: &[Label], free: Label) -> Option<[Vec<Label>; 2]> {
        let (own, other) = (&self.operands[i], &self.operands[1 - i]);
        if own.len() != labels.len() {
            return None;
        }
        let missing = only(other, |l| !own.contains(l))?;
        let rename = |operand: &[Label]| {
            let new = operand.iter().map(|l| match own.iter().position(|o| o == l) {
                Some(at) => Some(labels[at]),
                None => (*l == missing).then_some(free),
            });
            new.collect::<Option<Vec<_>>>()
        };
        Some([rename(other)?, rename(&self.result)?])
    }
}

/// The labels before a transpose that gives `labels`.
pub fn through(graph: &Graph, perm: Output, labels: &[Label]) -> Option<Vec<Label>> {
    let perm = permutation(graph, perm, labels.len())?;
    let mut before = labels.to_vec();
    for (i, p) in perm.into_iter().enumerate() {
        before[p] = labels[i];
    }
    Some(before)
}

pub fn permutation(graph: &Graph, perm: Output, rank: usize) -> Option<Vec<usize>> {
    let values = graph.constant(perm)?.to_i64().ok()?;
    let axis = |p: i64| {
        usize::try_from(if p < 0 { p + rank as i64 } else { p }).ok().filter(|p| *p < rank)
    };
    let perm = values.into_iter().map(axis).collect::<Option<Vec<_>>>()?;
    let distinct: FxHashSet<usize> = perm.iter().copied().collect();
    (perm.len() == rank && distinct.len() == rank).then_some(perm)
}

/// The only element of a constant.
pub fn scalar(graph: &Graph, output: Output) -> Option<f64> {
    graph
        .constant(output)
        .filter(|v| v.dtype.is_float() && v.dims.is_empty())
        .map(|v| v.to_f64()[0])
}

/// The non-constant operand of a `Mul` or `RealDiv`, and the constant.
pub fn constant_operand(graph: &Graph, inputs: &[Output], commutes: bool) -> Option<(Output, f64)> {
    let [a, b] = inputs else { return None };
    match (scalar(graph, *b), commutes) {
        (Some(by), _) => Some((*a, by)),
        (None, true) => scalar(graph, *a).map(|by| (*b, by)),
        (None, false) => None,
    }
}
