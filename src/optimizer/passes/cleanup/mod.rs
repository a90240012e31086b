//! What stands in the way of fusion and costs dispatches for nothing: copies, conversions there and
//! back, transposes and changes of shape that cancel, constants that wait for something, sums that
//! are written as those of a bias, values that are asked for their shape alone, and nodes that
//! nobody uses.
//!
//! TensorFlow's own passes remove what is redundant by itself; here goes what is so for these
//! devices (an Identity on them is no more than a name), or because of what other passes of ours
//! left.

mod asked;
mod biases;
mod constants;
mod reshapes;

use crate::dtype::DType;
use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output, is_control_flow};

/// Ops whose output is their input.
const COPIES: &[&str] = &["Identity", "PreventGradient", "Snapshot", "StopGradient"];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    constants::release(graph);
    for id in order.iter() {
        reshapes::shorten(graph, *id);
        if biases::add(graph, *id) {
            continue;
        }
        if let Some(source) = source(graph, *id) {
            bypass(graph, *id, source);
        }
    }
    for id in order.iter().copied().rev() {
        if graph.contains(id) && is_dead(graph, id) {
            graph.remove(id);
        }
    }
    Ok(())
}

/// Whether nobody would miss the node.
pub fn is_dead(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let unused = graph.users(id).is_empty() && node.controls().is_empty();
    node.on_wgpu() && unused && !graph.is_preserved(id) && graph.is_pure(id)
}

/// The tensor that the node's output is equal to.
fn source(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    if !node.on_wgpu() || graph.is_preserved(id) || !node.controls().is_empty() {
        return None;
    }
    let input = *node.inputs().first()?;
    let from = graph.node(input.node);
    match node.op() {
        op if COPIES.contains(&op) => {
            // An Identity behind a Switch says which branch runs, and one of another device is a
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

/// Whether every value of `narrow` is one of `wide`, so that a conversion there and back changes
/// nothing.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::*;
    match narrow {
        F16 | BF16 => matches!(wide, F32 | F64),
        F32 => wide == F64,
        _ => false,
    }
}

fn permutation(graph: &Graph, perm: Output) -> Option<Vec<usize>> {
    let values = graph.constant(perm)?.to_i64().ok()?;
    let rank = values.len() as i64;
    values.into_iter().map(|p| usize::try_from(if p < 0 { p + rank } else { p }).ok()).collect()
}

/// Lets the node's users use `source` instead.
fn bypass(graph: &mut Graph, id: NodeId, source: Output) {
    graph.replace_readers(Output { node: id, port: 0 }, source);
    if graph.waiters(id).next().is_some() {
        let there = graph.control_of(source);
        graph.replace_waiters(id, there);
    }
    graph.remove(id);
}
