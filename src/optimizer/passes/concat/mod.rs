//! Concatenations of elementwise values, as in rotary embeddings: the halves of a tensor are
//! rotated by sines and cosines and joined again. One node reads the halves in place, and writes
//! the result.
//!
//! A region is a concatenation and the elementwise nodes that lead only to it. Its inputs are parts
//! of a tensor that is divided in the same way as the result is joined, and other tensors that
//! broadcast ([`pieces`] lists the nodes that divide and join). Where two halves are only
//! exchanged and the arithmetic comes after that, as in Keras's layers, the region goes on with the
//! elementwise nodes behind the concatenation. Extents of the other axes may be unknown, such as a
//! batch size, if they are certainly equal.

mod pieces;
mod region;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{Engine, SameShapes, Scalar, scalar};
use crate::optimizer::plan::by_saving;
use crate::optimizer::plan::cost::unwritten;
use pieces::{JOINS, Join};

/// Runs the pass. The largest results come first.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let scalars: FxHashMap<NodeId, Scalar> = {
        let shapes = SameShapes::new(graph, &order);
        let of = |id: &NodeId| Some((*id, scalar(graph, &shapes, *id, Engine::Loop).ok()?));
        order.iter().filter_map(of).collect()
    };
    let is_join = |id: &NodeId| JOINS.contains(&graph.node(*id).op());
    let joins: Vec<NodeId> = order.iter().copied().filter(is_join).collect();
    let whole = |id| Output { node: id, port: 0 };
    for id in by_saving(joins, |id| unwritten(graph.info(whole(id)))) {
        // Regions of other concatenations may have taken this one, as an operand.
        if graph.contains(id)
            && let Some(join) = Join::of(graph, id)
            && let Some(replacement) = region::find(graph, &scalars, &join)
        {
            replacement.replace(graph);
        }
    }
    Ok(())
}
