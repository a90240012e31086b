//! Removes nodes that hinder fusion or cost dispatches without effect: copies, conversions back and
//! forth, transposes and reshapes that cancel, control inputs of constants, sums written as bias
//! additions, cubes written as powers, reductions of
//! single elements, values of which only the shape is read, and unused nodes.
//!
//! TensorFlow's own passes remove nodes that are redundant everywhere. This pass removes nodes that
//! are redundant on these devices (an Identity is only a name there), and those that our other
//! passes leave.

pub mod asked;
mod biases;
mod constants;
mod powers;
mod reshapes;
mod singles;

use crate::dtype::DType;
use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output, is_control_flow};

/// Ops that return their input unchanged.
const COPIES: &[&str] = &["Identity", "PreventGradient", "Snapshot", "StopGradient"];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    constants::release(graph);
    for id in order.iter() {
        reshapes::shorten(graph, *id);
        let rules = [biases::add, powers::cube, singles::reduction];
        if rules.iter().any(|replaces| replaces(graph, *id)) {
            continue;
        }
        if let Some(source) = source(graph, *id) {
            bypass(graph, *id, source);
        }
    }
    for id in order.iter().copied().rev() {
        // A shape that waits for a check, but that nothing reads, would keep its tensor.
        let is_unread = |id| graph.node(id).op() == "Shape" && graph.users(id).is_empty();
        if graph.contains(id) && (is_dead(graph, id) || is_unread(id) && graph.may_go(id).is_ok()) {
            graph.remove(id);
        }
    }
    Ok(())
}

/// Whether the node can be removed because nothing uses it.
pub fn is_dead(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let unused = graph.users(id).is_empty() && node.controls().is_empty();
    unused && graph.may_go(id).is_ok() && graph.is_pure(id)
}

/// The tensor that is equal to the node's output.
fn source(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    graph.may_move(id).ok()?;
    let input = *node.inputs().first()?;
    let from = graph.node(input.node);
    match node.op() {
        op if COPIES.contains(&op) => {
            // An Identity of a Switch tells which branch runs, and one on another device is a
            // transfer.
            (from.device() == node.device() && !is_control_flow(from.op())).then_some(input)
        }
        "Cast" if from.op() == "Cast" && from.on_wgpu() => {
            let (first, between, last) =
                (from.dtype("SrcT")?, from.dtype("DstT")?, node.dtype("DstT")?);
            (first == last && holds(between, first)).then_some(from.inputs()[0])
        }
        "Transpose" if from.op() == "Transpose" && from.on_wgpu() => {
            let inner = permutation(graph, from.inputs()[1])?;
            let outer = permutation(graph, node.inputs()[1])?;
            let back = outer.len() == inner.len()
                && outer.iter().enumerate().all(|(i, p)| inner.get(*p) == Some(&i));
            back.then_some(from.inputs()[0])
        }
        "Shape" => asked::source(graph, id),
        _ => reshapes::source(graph, id),
    }
}

/// Whether `wide` holds every value of `narrow`, so that a conversion there and back changes
/// nothing.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::*;
    match narrow {
        F16 | BF16 => matches!(wide, F32 | F64),
        F32 => wide == F64,
        _ => false,
    }
}

/// The order of dimensions that a constant lists.
pub fn permutation(graph: &Graph, perm: Output) -> Option<Vec<usize>> {
    let values = graph.constant(perm)?.to_i64().ok()?;
    let rank = values.len() as i64;
    values.into_iter().map(|p| usize::try_from(if p < 0 { p + rank } else { p }).ok()).collect()
}

/// Makes the node's users use `source` instead.
fn bypass(graph: &mut Graph, id: NodeId, source: Output) {
    graph.replace_readers(Output { node: id, port: 0 }, source);
    if graph.waiters(id).next().is_some() {
        let there = graph.control_of(source);
        graph.replace_waiters(id, there);
    }
    graph.remove(id);
}
