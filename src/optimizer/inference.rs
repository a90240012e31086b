//! Types and shapes from TensorFlow, and whether they agree around loops.
//!
//! TensorFlow infers a loop's shapes by going around it until nothing changes. With the shapes that
//! nodes of ours hold in attributes it can stop too early: a value that grows with each iteration
//! then has the extents of the first one, and a pass that trusts them gives each later iteration a
//! wrong shape.

use super::Item;
use super::graph::{Graph, NodeId, Output};
use super::shape::{Dim, TensorInfo};
use crate::error::{Error, Result};

/// Asks TensorFlow for ops, types and shapes. Where its answers disagree about a loop, it is asked
/// once more without the shapes in our nodes. If they still disagree, no shape is known.
///
/// # Errors
/// The errors of TensorFlow.
pub fn ask(graph: &mut Graph, item: &dyn Item) -> Result<()> {
    let ids: Vec<NodeId> = graph.ids().collect();
    for id in &ids {
        if graph.op_def(graph.node(*id).op()).is_none()
            && let Some(def) = item.op_def(graph.node(*id).op())?
        {
            graph.add_op_def(def);
        }
    }
    let has_ours = ids.iter().any(|id| graph.node(*id).is_ours());
    for annotated in [true, false] {
        if annotated && !has_ours {
            continue;
        }
        item.infer(annotated)?;
        take(graph, &ids, item)?;
        let Some(merge) = disagreement(graph, &ids) else { return Ok(()) };
        let name = graph.node(merge).name();
        log::debug!("optimizer: TensorFlow's shapes disagree at {name} (with ours: {annotated})");
    }
    for id in ids {
        if graph.constant_info(id).is_none() {
            let infos = graph.node(id).infos().iter();
            let shapeless = infos.map(|info| TensorInfo { shape: None, ..info.clone() }).collect();
            graph.set_infos(id, shapeless);
        }
    }
    Ok(())
}

/// Gives each node its inferred types and shapes.
fn take(graph: &mut Graph, ids: &[NodeId], item: &dyn Item) -> Result<()> {
    for id in ids.iter().copied() {
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

/// A `Merge` that has an extent which one of its inputs has not, or may not have.
fn disagreement(graph: &Graph, ids: &[NodeId]) -> Option<NodeId> {
    ids.iter().copied().filter(|id| graph.node(*id).op() == "Merge").find(|id| {
        let merged = graph.info(Output { node: *id, port: 0 });
        graph.node(*id).inputs().iter().any(|input| !holds(merged, graph.info(*input)))
    })
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
    use crate::optimizer::proto::OpDef;

    /// A value that grows in a loop. TensorFlow's answers are those of a text: of the first if the
    /// shapes in our nodes are asked for, else of the second.
    struct Asked([Graph; 2], std::cell::Cell<usize>);

    impl Asked {
        fn new(merged: [&str; 2]) -> Self {
            let texts = merged.map(|merged| {
                Graph::from_text(&format!(
                    "start = Placeholder() -> int32[4, 1]
enter = Enter(start) -> int32[4, 1]
merge = Merge(enter, next) -> int32[{merged}], int32[]
ours = _WgpuFusedElementwise(merge) -> int32[{merged}]
next = NextIteration(ours) -> int32[4, ?3]
"
                ))
                .expect("a graph")
            });
            Self(texts, std::cell::Cell::new(0))
        }

        fn asked(&self) -> Graph {
            let mut graph =
                Graph::from_text(&self.0[0].to_text()).expect("the text of a graph is a graph");
            ask(&mut graph, self).expect("answers");
            graph
        }
    }

    impl Item for Asked {
        fn preserved(&self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }

        fn infer(&self, annotated: bool) -> Result<()> {
            self.1.set(usize::from(!annotated));
            Ok(())
        }

        fn infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
            let graph = &self.0[self.1.get()];
            Ok(graph.find(name).map(|id| graph.node(id).infos().to_vec()).unwrap_or_default())
        }

        fn input_infos(&self, _name: &str) -> Result<Vec<TensorInfo>> {
            Ok(Vec::new())
        }

        fn op_def(&self, _op: &str) -> Result<Option<OpDef>> {
            Ok(None)
        }
    }

    fn merged(graph: &Graph) -> Option<Vec<Dim>> {
        let node = graph.find("merge").expect("the merge");
        graph.info(Output { node, port: 0 }).shape.as_ref().map(|shape| shape.to_vec())
    }

    #[test]
    fn a_loop_of_the_first_iteration_is_asked_for_again_without_our_shapes() {
        let graph = Asked::new(["4, 1", "4, ?3"]).asked();
        assert_eq!(merged(&graph), Some(vec![Dim::Known(4), Dim::Symbol(3)]));
    }

    #[test]
    fn shapes_that_agree_are_asked_for_once() {
        let item = Asked::new(["4, ?3", "4, 1"]);
        assert_eq!(merged(&item.asked()), Some(vec![Dim::Known(4), Dim::Symbol(3)]));
        assert_eq!(item.1.get(), 0, "our shapes were asked for last");
    }

    #[test]
    fn shapes_that_never_agree_are_unknown() {
        let graph = Asked::new(["4, 1", "4, 1"]).asked();
        assert_eq!(merged(&graph), None);
        let start = graph.find("start").expect("the start");
        assert!(graph.info(Output { node: start, port: 0 }).dtype.is_some(), "the type is kept");
    }
}
