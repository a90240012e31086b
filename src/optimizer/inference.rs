//! Types and shapes from TensorFlow, and where they disagree around loops.
//!
//! TensorFlow infers a loop's shapes by going around it until nothing changes, and can stop too
//! early: a value that grows with each iteration then has the extents of the first one. Such shapes
//! are forgotten. The pass `lists` infers the shapes of values that keep theirs.

use rustc_hash::FxHashSet;

use super::Item;
use super::graph::{Graph, NodeId, Output};
use super::shape::{Dim, TensorInfo};
use crate::error::{Error, Result};

/// Asks TensorFlow for ops, types and shapes, and forgets shapes that may be wrong.
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
    for id in doubted(graph) {
        let infos = graph.node(id).infos().iter();
        let infos = infos.map(|info| TensorInfo { shape: None, ..info.clone() }).collect();
        graph.set_infos(id, infos);
    }
    Ok(())
}

/// The nodes whose shapes may be those of a loop's first iteration. These are each `Merge` with an
/// extent that one of its inputs has not, or may not have, and all nodes that compute with its
/// value, also in later iterations.
fn doubted(graph: &Graph) -> Vec<NodeId> {
    let disagrees = |id: &NodeId| {
        let merged = graph.info(Output { node: *id, port: 0 });
        graph.node(*id).op() == "Merge"
            && graph.node(*id).inputs().iter().any(|input| !holds(merged, graph.info(*input)))
    };
    let mut found: Vec<NodeId> = graph.ids().filter(disagrees).collect();
    let mut seen: FxHashSet<NodeId> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(id) = found.get(at).copied() {
        at += 1;
        for user in graph.users(id).iter().copied() {
            let node = graph.node(user);
            // A predicate decides where a value goes, not its shape.
            let shaping = if node.op() == "Switch" { 1 } else { node.inputs().len() };
            let reads = node.inputs().iter().take(shaping).any(|input| input.node == id);
            if reads && graph.constant_info(user).is_none() && seen.insert(user) {
                found.push(user);
            }
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
    fn a_value_of_the_first_iteration_is_doubted_with_all_that_computes_with_it() {
        let text = "start = Placeholder() -> int32[4, 1]
enter = Enter(start) -> int32[4, 1]
merge = Merge(enter, next) -> int32[4, 1], int32[]
reader = Neg(merge) -> int32[4, 1]
next = NextIteration(reader) -> int32[4, ?3]
kept = Merge(enter, same) -> int32[4, 1], int32[]
same = NextIteration(kept) -> int32[4, 1]
copy = Merge(enter, last) -> int32[4, 1], int32[]
last = NextIteration(reader) -> int32[4, 1]
";
        let graph = Graph::from_text(text).expect("a graph");
        let mut names: Vec<&str> =
            doubted(&graph).into_iter().map(|id| graph.node(id).name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["copy", "last", "merge", "next", "reader"]);
    }
}
