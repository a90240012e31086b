//! Conditions of loops and branches stay in host memory, where TensorFlow compares int32 counters
//! and where its executor wants to know what to do next. A logical op between the two would run on
//! the device, and each step of a loop would wait for it.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::predicate;
use crate::optimizer::graph::{Graph, NodeId, Output, device_type};

/// Ops whose int32 kernels compare in host memory.
const COMPARISONS: &[&str] = &["Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"];

/// Ops that read this input in host memory.
const DECISIONS: &[(&str, usize)] =
    &[("If", 0), ("LoopCond", 0), ("StatelessIf", 0), ("Switch", 1)];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut chosen: FxHashSet<NodeId> = FxHashSet::default();
    for id in order.iter().copied() {
        let node = graph.node(id);
        if predicate::on_host(node.op()).is_some()
            && node.on_wgpu()
            && !graph.is_preserved(id)
            && node.inputs().iter().all(|input| is_there(graph, *input, &chosen))
        {
            chosen.insert(id);
        }
    }
    // What nobody wants there stays on the device, and so does what is computed from it. Either may
    // end what kept another node there.
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

/// Whether a tensor is in host memory when it is made.
fn is_there(graph: &Graph, output: Output, chosen: &FxHashSet<NodeId>) -> bool {
    let node = graph.node(output.node);
    let compared = COMPARISONS.contains(&node.op()) && node.dtype("T") == Some(DType::I32);
    compared
        || chosen.contains(&output.node)
        || predicate::is_on_host(node.op())
        || is_cpu(graph, output.node)
}

/// Whether somebody reads in host memory what the node makes. Others get a copy, for which nobody
/// waits.
fn is_wanted_there(graph: &Graph, id: NodeId, chosen: &FxHashSet<NodeId>) -> bool {
    graph.readers_in_any_order(Output { node: id, port: 0 }).any(|(reader, index)| {
        let op = graph.node(reader).op();
        DECISIONS.contains(&(op, index))
            || chosen.contains(&reader)
            || predicate::is_on_host(op)
            || is_cpu(graph, reader)
    })
}
