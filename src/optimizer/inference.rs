//! Types and shapes from TensorFlow, and where they disagree around loops.
//!
//! TensorFlow infers a loop's shapes by going around it until nothing changes, and can stop too
//! early: a value that grows with each iteration then has the extents of the first one.

use rustc_hash::FxHashSet;

use super::Item;
use super::graph::{Graph, NodeId, Output};
use super::shape::{Dim, TensorInfo};
use crate::error::{Error, Result};

/// Asks TensorFlow for ops, types and shapes.
///
/// # Errors
/// The errors of TensorFlow.
pub fn ask(graph: &mut Graph, item: &dyn Item) -> Result<()> {
    let ids: Vec<NodeId> = graph.ids().collect();
    item.infer(ids.iter().any(|id| graph.node(*id).is_ours()))?;
    for id in ids {
        if graph.op_def(graph.node(id).op()).is_none()
            && let Some(def) = item.op_def(graph.node(id).op())?
        {
            graph.add_op_def(def);
        }
        let known = graph.constant_info(id).map(|info| vec![info]);
        // The question takes longer than the check, and the type of an output without readers is
        // never needed.
        let infos = match known {
            Some(infos) => infos,
            None if graph.is_read(id) => item.infos(graph.node(id).name())?,
            None => continue,
        };
        graph.set_infos(id, infos);
    }
    Ok(())
}

/// The nodes whose shapes may be those of a loop's first iteration: a `Merge` with an extent that
/// one of its inputs has not, or may not have, and all nodes that use its value. They hold until
/// the graph runs, where kernels look at the shapes that there are, but no constant may be made of
/// them.
pub fn doubted(graph: &Graph, order: &[NodeId]) -> FxHashSet<NodeId> {
    let mut found: FxHashSet<NodeId> = FxHashSet::default();
    for id in order {
        let node = graph.node(*id);
        let merged = graph.info(Output { node: *id, port: 0 });
        let disagrees = node.op() == "Merge"
            && node.inputs().iter().any(|input| !holds(merged, graph.info(*input)));
        if disagrees || node.inputs().iter().any(|input| found.contains(&input.node)) {
            found.insert(*id);
        }
    }
    found
}

/// Whether all that is known of a merged tensor holds for one of its inputs.
fn holds(merged: &TensorInfo, input: &TensorInfo) -> bool {
    let Some(merged) = &merged.shape else { return true };
    input.shape.as_ref().is_some_and(|input| {
        merged.len() == input.len()
            && merged.iter().zip(input).all(|(m, i)| !matches!(m, Dim::Known(_)) || m == i)
    })
}

/// Checks that we read the edges as TensorFlow does: each input has the type that TensorFlow
/// inferred for it.
///
/// # Errors
/// An internal error, which names the input.
pub fn check_edges(graph: &Graph, item: &dyn Item) -> Result<()> {
    for id in graph.ids() {
        let node = graph.node(id);
        let inferred = item.input_infos(node.name())?;
        for (index, (info, input)) in inferred.iter().zip(node.inputs()).enumerate() {
            let ours = graph.info(*input);
            if ours.dtype.is_some() && info.dtype.is_some() && ours.dtype != info.dtype {
                return Err(Error::Internal(format!(
                    "input {index} of {} is {info:?} for TensorFlow, and {ours:?} for us",
                    node.name()
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_first_iteration_is_doubted_with_all_that_uses_it() {
        let text = "start = Placeholder() -> int32[4, 1]
enter = Enter(start) -> int32[4, 1]
merge = Merge(enter, next) -> int32[4, 1], int32[]
other = Merge(enter, same) -> int32[4, 1], int32[]
same = NextIteration(other) -> int32[4, 1]
reader = Neg(merge) -> int32[4, 1]
next = NextIteration(reader) -> int32[4, ?3]
";
        let graph = Graph::from_text(text).expect("a graph");
        let order = graph.order().expect("an order");
        let found = doubted(&graph, &order);
        let mut names: Vec<&str> = found.iter().map(|id| graph.node(*id).name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["merge", "next", "reader"]);
    }
}
