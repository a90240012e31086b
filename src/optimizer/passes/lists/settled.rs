//! Numbers that the graph computes from shapes although they are fully known: the target shapes of
//! reshapes, with at most one unknown extent, and the element counts of means. Each costs work on
//! the host in every step, and a count also costs an upload.

use super::{Shapes, extents};
use crate::dtype::DType;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::passes::cleanup;
use crate::optimizer::shape::Dim;
use crate::tensor::HostTensor;

/// A value that becomes a constant.
pub struct Settled {
    id: NodeId,
    value: HostTensor,
}

/// The target shapes of `Reshape`s, and the results of `Cast`s of extents.
pub fn find(shapes: &Shapes<'_>, order: &[NodeId]) -> Vec<Settled> {
    let value = |id: NodeId| {
        let node = shapes.graph.node(id);
        if shapes.graph.may_go(id).is_err() {
            return None;
        }
        let input = |i: usize| node.inputs().get(i).copied();
        match node.op() {
            "Reshape" => {
                let target = input(1)?;
                let is_open = shapes.graph.node(target.node).op() != "Const"
                    && shapes.graph.info(target).dtype == Some(DType::I32);
                let shape = shapes.of(Output { node: id, port: 0 }).filter(|_| is_open)?;
                let unknown = shape.iter().filter(|d| d.known().is_none()).count();
                let extents = shape.iter().map(|d| match d {
                    Dim::Known(0) => None,
                    Dim::Known(n) => i32::try_from(*n).ok(),
                    _ => Some(-1),
                });
                let extents = extents.collect::<Option<Vec<i32>>>()?;
                (unknown <= 1).then(|| HostTensor::i32(&[extents.len()], &extents))
            }
            "Cast" => {
                let counts = node.dtype("SrcT") == Some(DType::I32)
                    && node.dtype("DstT") == Some(DType::F32)
                    && node.controls().is_empty();
                let is_scalar = shapes.graph.info(input(0)?).rank() == Some(0);
                let extents = extents::of(shapes, input(0)?).filter(|_| counts && is_scalar)?;
                let [Dim::Known(n)] = extents[..] else { return None };
                // Below this limit the conversion is exact.
                (n < 1 << 24).then(|| HostTensor::floats(DType::F32, &[], &[n as f64]))
            }
            _ => None,
        }
    };
    order.iter().filter_map(|id| Some(Settled { id: *id, value: value(*id)? })).collect()
}

/// Puts the constants in place, and removes the nodes that computed them if they are not used
/// otherwise.
pub fn replace(graph: &mut Graph, settled: Vec<Settled>) {
    let mut left: Vec<NodeId> = Vec::new();
    for Settled { id, value } in settled {
        if !graph.contains(id) {
            continue;
        }
        let node = graph.node(id);
        let is_shape = node.op() == "Reshape";
        let suffix = if is_shape { "shape" } else { "settled" };
        let (name, device) = (format!("{}/{suffix}", node.name()), node.device().to_owned());
        let input = node.inputs()[0];
        let new = if is_shape {
            graph.add_constant(name, &device, &value, input)
        } else {
            let sources = sources(graph, input);
            graph.add_constant_from(name, &device, &value, &sources)
        };
        if is_shape {
            left.push(graph.node(id).inputs()[1].node);
            graph.set_input(id, 1, new);
        } else {
            graph.replace_readers(Output { node: id, port: 0 }, new);
            left.push(id);
        }
    }
    while let Some(id) = left.pop() {
        if graph.contains(id) && cleanup::is_dead(graph, id) {
            left.extend(graph.used(id));
            graph.remove(id);
        }
    }
}

/// The tensors whose shapes decide a number. A constant that replaces the number exists wherever
/// they do.
fn sources(graph: &Graph, number: Output) -> Vec<Output> {
    let mut sources = Vec::new();
    let mut open = vec![number];
    while let Some(output) = open.pop() {
        let node = graph.node(output.node);
        match node.op() {
            "Const" => {}
            "Shape" | "ShapeN" => sources.push(node.inputs()[output.port as usize]),
            "Cast" | "ConcatV2" | "ExpandDims" | "GatherV2" | "Identity" | "Pack" | "Prod"
            | "Slice" | "StridedSlice" => open.extend(node.inputs()),
            _ => sources.push(output),
        }
    }
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// The largest number of nodes that are visited for one edge.
const MAX_ANCESTORS: usize = 128;

/// Drops a control edge from a node that only computes shapes, or does nothing, if its target waits
/// for the same nodes anyhow. TensorFlow's gradients have such edges, and a node that waits cannot
/// be fused.
pub fn release(graph: &mut Graph, order: &[NodeId]) {
    if graph.has_control_flow() {
        return;
    }
    for id in order.iter().copied() {
        if !graph.contains(id) || graph.may_go(id).is_err() {
            continue;
        }
        for control in graph.node(id).controls().to_vec() {
            if asks(graph, control) && waits_for(graph, id, control) {
                graph.remove_control(id, control);
            }
        }
    }
}

/// Whether a node only computes shapes, or does nothing.
fn asks(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op(), "Shape" | "NoOp" | "BroadcastGradientArgs")
        && !graph.is_preserved(id)
}

/// Whether the inputs of a node already make it wait for all nodes for which another node waits.
fn waits_for(graph: &Graph, id: NodeId, other: NodeId) -> bool {
    let (mut wanted, mut asking) = (Vec::new(), vec![other]);
    for looked_at in 0.. {
        let Some(next) = asking.pop() else { break };
        let (more, others): (Vec<NodeId>, Vec<NodeId>) =
            graph.used(next).partition(|used| asks(graph, *used));
        asking.extend(more);
        wanted.extend(others);
        if looked_at + wanted.len() > MAX_ANCESTORS {
            return false;
        }
    }
    let mut seen = vec![id];
    let mut at = 0;
    while at < seen.len() && seen.len() < MAX_ANCESTORS && !wanted.is_empty() {
        let node = graph.node(seen[at]);
        let controls = node.controls().iter().copied().filter(|c| *c != other);
        let used: Vec<NodeId> = node.inputs().iter().map(|i| i.node).chain(controls).collect();
        for used in used {
            if used != other && !seen.contains(&used) {
                seen.push(used);
                wanted.retain(|w| *w != used);
            }
        }
        at += 1;
    }
    wanted.is_empty()
}
