//! Reductions of a graph: their nodes and axes, and pairs of means that are a mean and a variance.

use crate::dtype::DType;
use crate::kernels::fused::reduce::MOMENTS;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Axes, Fold};
use crate::optimizer::refusal::Refusal;

/// One reduction, or the mean and the variance of one tensor.
#[derive(Debug, Clone)]
pub struct Root {
    /// Its name in `_WgpuFusedReduce`.
    pub name: &'static str,
    /// The nodes that it replaces. The first input of the last one is the reduced tensor.
    pub nodes: Vec<NodeId>,
    /// The node whose first input is the reduced tensor.
    pub reader: NodeId,
    /// The type of the reduced tensor.
    pub dtype: DType,
    /// The nodes whose outputs it produces, in order.
    pub outputs: Vec<NodeId>,
    /// Whether reduced axes stay in its outputs, with extent 1.
    pub keep_dims: bool,
}

impl Root {
    /// The reduced tensor.
    pub fn tensor(&self, graph: &Graph) -> Output {
        graph.node(self.reader).inputs()[0]
    }
}

/// The axes over which reductions run, and their device. Reductions with the same ones can share a
/// pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReducedAxes {
    /// The axes, sorted, counted from the front where the rank is known.
    pub axes: Vec<i64>,
    /// Whether all axes are reduced, whatever the rank.
    pub whole: bool,
    /// Whether reduced axes stay, with extent 1.
    pub keep_dims: bool,
    /// The device on which it runs.
    pub device: String,
}

/// The reduction of a node, if its axes are known.
pub fn reduction(graph: &Graph, id: NodeId) -> Option<(Root, ReducedAxes)> {
    let Fold { reduction, dtype, axes, keep_dims } = Fold::of(graph, id).ok()?;
    graph.may_go(id).ok()?;
    let root = Root {
        name: reduction.op,
        nodes: vec![id],
        reader: id,
        dtype,
        outputs: vec![id],
        keep_dims,
    };
    let whole = axes == Axes::All;
    let axes = match axes {
        Axes::All => Vec::new(),
        Axes::AllButChannels(axes) | Axes::Given(axes) => axes,
    };
    let device = graph.node(id).device().to_owned();
    Some((root, ReducedAxes { axes, whole, keep_dims, device }))
}

/// The mean and the variance in one reduction. `id` must be the mean of the squared differences
/// from the mean over the same axes, written with `SquaredDifference`, or with `Sub` and `Square`.
pub fn moments(graph: &Graph, id: NodeId) -> Option<(Root, ReducedAxes)> {
    let (variance, over) = reduction(graph, id)?;
    let only = |n: NodeId, reader: NodeId| {
        let inside = |user| user == reader;
        let legal = graph.may_join(n, id);
        let legal = legal.and_then(|()| graph.stays_inside(Output { node: n, port: 0 }, inside));
        graph.ask("reduce", [id, n], legal).is_some()
    };
    if variance.name != "Mean" || !variance.dtype.is_float() {
        return None;
    }
    let mut nodes = vec![id];
    let mut squares = graph.node(id).inputs()[0].node;
    let is_square = matches!(graph.node(squares).op(), "Square" | "SquaredDifference");
    if !is_square || !only(squares, id) {
        return None;
    }
    nodes.push(squares);
    if graph.node(squares).op() == "Square" {
        let difference = graph.node(squares).inputs()[0].node;
        if graph.node(difference).op() != "Sub" || !only(difference, squares) {
            return None;
        }
        squares = difference;
        nodes.push(squares);
    }
    let &[a, b] = graph.node(squares).inputs() else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, mean)| {
        let mut nodes = nodes.clone();
        let mut mean = mean.node;
        if graph.node(mean).op() == "StopGradient" && only(mean, squares) {
            nodes.push(mean);
            mean = graph.node(mean).inputs()[0].node;
        }
        let (root, of_mean) = reduction(graph, mean)?;
        let mean_value = Output { node: mean, port: 0 };
        let unread = graph.stays_inside(mean_value, |user| nodes.contains(&user)).is_ok();
        // The mean must keep its axes, for it is subtracted. The two outputs have the same shape
        // unless one is not used.
        let alike = of_mean.keep_dims && (over.keep_dims || unread);
        let same = root.name == "Mean" && root.dtype == variance.dtype && root.tensor(graph) == x;
        let legal = check(of_mean.axes == over.axes && alike, Refusal::OtherShape);
        let legal = legal.and_then(|()| graph.share_device(mean, id));
        nodes.push(mean);
        (same && graph.ask("reduce", [id, mean], legal).is_some()).then(|| {
            let root = Root {
                name: MOMENTS,
                nodes,
                reader: mean,
                dtype: root.dtype,
                outputs: vec![mean, id],
                keep_dims: over.keep_dims,
            };
            (root, over.clone())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variance_tells_why_it_is_apart_from_the_mean() {
        let text = "x = Placeholder -> float32[4, 8]
            rows = Const {value: tensor int32[] [1]} -> int32[]
            columns = Const {value: tensor int32[] [0]} -> int32[]
            m = Mean(x, columns) {T: float32, keep_dims: true} -> float32[1, 8]
            d = SquaredDifference(x, m) {T: float32} -> float32[4, 8]
            v = Mean(d, rows) {T: float32, keep_dims: true} -> float32[4, 1]";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        assert!(moments(&graph, graph.find("v").unwrap()).is_none());
        let apart = graph.journal().unwrap().apart("v").unwrap();
        assert_eq!((&*apart.neighbour, apart.refusal), ("m", Refusal::OtherShape));
    }
}
