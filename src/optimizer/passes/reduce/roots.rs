//! Reductions of a graph: their nodes and axes, and pairs of means that are a mean and a variance.

use crate::dtype::DType;
use crate::kernels::fused::reduce::MOMENTS;
use crate::kernels::reduce::table::REDUCTIONS;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};

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

/// The way in which reductions run over a tensor. Reductions with the same manner can share a pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Manner {
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
pub fn reduction(graph: &Graph, id: NodeId) -> Option<(Root, Manner)> {
    let node = graph.node(id);
    let of_bias = node.op() == "BiasAddGrad";
    let name = if of_bias { "Sum" } else { node.op() };
    let row = REDUCTIONS.iter().find(|r| r.op == name)?;
    if !node.on_wgpu() || graph.is_preserved(id) {
        return None;
    }
    let dtype = if row.types == [DType::Bool] { DType::Bool } else { node.dtype("T")? };
    if dtype == DType::I32 || !row.types.contains(&dtype) {
        return None;
    }
    let flag = node.attr("keep_dims").and_then(Attr::bool).unwrap_or(false);
    let keep_dims = flag && row.op != "L2Loss" && !of_bias;
    let root =
        Root { name: row.op, nodes: vec![id], reader: id, dtype, outputs: vec![id], keep_dims };
    let device = node.device().to_owned();
    if row.op == "L2Loss" {
        return Some((root, Manner { axes: Vec::new(), whole: true, keep_dims: false, device }));
    }
    if of_bias {
        let axes = all_but_channels(graph, id)?;
        return Some((root, Manner { axes, whole: false, keep_dims: false, device }));
    }
    let mut axes = graph.constant(*node.inputs().get(1)?)?.to_i64().ok()?;
    if let Some(rank) = graph.info(node.inputs()[0]).rank() {
        let rank = rank as i64;
        axes.iter_mut().filter(|a| **a < 0).for_each(|a| *a += rank);
        if axes.iter().any(|a| !(0..rank).contains(a)) {
            return None;
        }
    }
    axes.sort_unstable();
    axes.dedup();
    (!axes.is_empty()).then_some((root, Manner { axes, whole: false, keep_dims, device }))
}

/// The axes over which the gradient of a bias is summed.
fn all_but_channels(graph: &Graph, id: NodeId) -> Option<Vec<i64>> {
    let node = graph.node(id);
    let rank = graph.info(node.inputs()[0]).rank().filter(|rank| *rank >= 2)? as i64;
    let second = node.attr("data_format").and_then(Attr::string) == Some("NCHW");
    let channels = if second { 1 } else { rank - 1 };
    Some((0..rank).filter(|axis| *axis != channels).collect())
}

/// The mean and the variance in one reduction. `id` must be the mean of the squared differences
/// from the mean over the same axes, written with `SquaredDifference`, or with `Sub` and `Square`.
pub fn moments(graph: &Graph, id: NodeId) -> Option<(Root, Manner)> {
    let (variance, manner) = reduction(graph, id)?;
    let own = |n: NodeId| {
        let node = graph.node(n);
        node.on_wgpu() && node.device() == manner.device && !graph.is_preserved(n)
    };
    let only = |n: NodeId, reader: NodeId| {
        own(n)
            && graph
                .readers_in_any_order(Output { node: n, port: 0 })
                .all(|(user, _)| user == reader)
    };
    if variance.name != "Mean" || !variance.dtype.is_float() {
        return None;
    }
    let mut nodes = vec![id];
    let mut squares = graph.node(id).inputs()[0].node;
    if !only(squares, id) {
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
    } else if graph.node(squares).op() != "SquaredDifference" {
        return None;
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
        let mut readers = graph.readers_in_any_order(Output { node: mean, port: 0 });
        let unread = readers.all(|(user, _)| nodes.contains(&user));
        // The mean must keep its axes, for it is subtracted. The two outputs have the same shape
        // unless one is not used.
        let alike = of_mean.keep_dims && (manner.keep_dims || unread);
        let same = root.name == "Mean" && root.dtype == variance.dtype && root.tensor(graph) == x;
        let manners = of_mean.axes == manner.axes && of_mean.device == manner.device;
        nodes.push(mean);
        (alike && same && manners).then(|| {
            let root = Root {
                name: MOMENTS,
                nodes,
                reader: mean,
                dtype: root.dtype,
                outputs: vec![mean, id],
                keep_dims: manner.keep_dims,
            };
            (root, manner.clone())
        })
    })
}
