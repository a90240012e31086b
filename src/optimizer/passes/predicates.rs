//! Keeps conditions of loops and branches in host memory, where TensorFlow compares int32 counters
//! and where its executor needs the decision. A logical op between the two would run on the device,
//! and each step of a loop would wait for it.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::predicate;
use crate::optimizer::graph::{Graph, NodeId, Output, device_type};

/// Ops with int32 kernels that compare in host memory.
const COMPARISONS: &[&str] = &["Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"];

/// Ops that read a bool in host memory, and the input that holds it.
pub const DECISIONS: &[(&str, usize)] =
    &[("If", 0), ("LoopCond", 0), ("StatelessIf", 0), ("Switch", 1)];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut chosen: FxHashSet<NodeId> = FxHashSet::default();
    for id in order.iter().copied() {
        let node = graph.node(id);
        if predicate::on_host(node.op()).is_some()
            && graph.may_go(id).is_ok()
            && node.inputs().iter().all(|input| is_there(graph, *input, &chosen))
        {
            chosen.insert(id);
        }
    }
    // A value that is not needed on the host stays on the device, and so do the values that are
    // computed from it. Each removal may take away the reason for which another node was chosen.
    let mut doubtful: Vec<NodeId> = chosen.iter().copied().collect();
    while let Some(id) = doubtful.pop() {
        let node = graph.node(id);
        let stays = || {
            node.inputs().iter().all(|input| is_there(graph, *input, &chosen))
                && is_wanted_there(graph, id, &chosen)
        };
        if chosen.contains(&id) && !stays() {
            chosen.remove(&id);
            let readers = graph.readers(Output { node: id, port: 0 }).map(|(reader, _)| reader);
            doubtful.extend(
                readers
                    .chain(node.inputs().iter().map(|input| input.node))
                    .filter(|n| chosen.contains(n)),
            );
        }
    }
    for id in order.iter().copied().filter(|id| chosen.contains(id)) {
        if let Some(op) = predicate::on_host(graph.node(id).op()) {
            graph.set_op(id, op);
        }
    }
    Ok(())
}

fn is_cpu(graph: &Graph, id: NodeId) -> bool {
    device_type(graph.node(id).device()) == Some("CPU")
}

/// Whether a tensor is produced in host memory.
fn is_there(graph: &Graph, output: Output, chosen: &FxHashSet<NodeId>) -> bool {
    let node = graph.node(output.node);
    let compared = COMPARISONS.contains(&node.op()) && node.dtype("T") == Some(DType::I32);
    compared
        || chosen.contains(&output.node)
        || predicate::is_on_host(node.op())
        || is_cpu(graph, output.node)
}

/// Whether a reader needs the node's output in host memory. Other readers get a copy, for which no
/// thread waits.
fn is_wanted_there(graph: &Graph, id: NodeId, chosen: &FxHashSet<NodeId>) -> bool {
    graph.readers_in_any_order(Output { node: id, port: 0 }).any(|(reader, index)| {
        let op = graph.node(reader).op();
        DECISIONS.contains(&(op, index))
            || chosen.contains(&reader)
            || predicate::is_on_host(op)
            || is_cpu(graph, reader)
    })
}
