//! Caches of keys and values into which a mask lets rows pass. KerasHub's models write
//! `where(mask, row, slice(cache, begin))` at `begin`, so that the prompt's own rows stay: a copy
//! of the old rows, a selection and the update. One node does that in the cache
//! ([`crate::kernels::fused::masked_update`]).

use super::cleanup::is_dead;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::masked_update::{MAX_RANK, OP};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::TensorInfo;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    for id in order.iter().copied() {
        if graph.contains(id)
            && let Some(update) = MaskedUpdate::of(graph, id)
        {
            update.replace(graph, id);
        }
    }
    Ok(())
}

/// Such an update.
struct MaskedUpdate {
    cache: Output,
    mask: Output,
    row: Output,
    begin: Output,
    /// The nodes that select, and that take the old rows out.
    select: NodeId,
    slice: NodeId,
}

impl MaskedUpdate {
    /// The update of a node.
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let is_update = node.op() == "XlaDynamicUpdateSlice" && node.on_wgpu();
        let (true, &[cache, update, begin]) = (is_update, node.inputs()) else { return None };
        let rank = graph.info(cache).rank()?;
        let is_float = node.dtype("T").is_some_and(DType::is_float);
        let by_int32 = node.dtype("Tindices") == Some(DType::I32);
        // Between the update and the cache, nothing else may read.
        let alone = |output: Output, op: &str, reader: NodeId| {
            let node = graph.node(output.node);
            node.op() == op
                && output.port == 0
                && graph.share_device(output.node, id).is_ok()
                && graph.may_move(output.node).is_ok()
                && graph.users(output.node) == [reader]
        };
        if !is_float || !by_int32 || rank > MAX_RANK || !alone(update, "SelectV2", id) {
            return None;
        }
        let &[mask, row, old] = graph.node(update.node).inputs() else { return None };
        if !alone(old, "Slice", update.node) {
            return None;
        }
        let &[source, first, _] = graph.node(old.node).inputs() else { return None };
        let info = |output: Output| graph.info(output);
        let one_shape = info(row).same_shape(info(old)) && info(row).same_shape(info(update));
        let fits = source == cache && one_shape && are_equal(graph, first, begin);
        let (select, slice) = (update.node, old.node);
        // The slice's own index: it is in host memory, where the update reads it now.
        fits.then_some(Self { cache, mask, row, begin: first, select, slice })
    }

    fn replace(&self, graph: &mut Graph, id: NodeId) {
        let info: Vec<TensorInfo> = graph.node(id).infos().to_vec();
        graph.remove_attr(id, "Tindices");
        graph.set_op(id, OP);
        graph.set_inputs(id, vec![self.cache, self.mask, self.row, self.begin]);
        graph.set_infos(id, info);
        for node in [self.select, self.slice] {
            if is_dead(graph, node) {
                graph.remove(node);
            }
        }
    }
}

/// Whether two vectors of indices are equal for certain.
fn are_equal(graph: &Graph, a: Output, b: Output) -> bool {
    let values = |vector: Output| graph.constant(vector).and_then(|c| c.to_i64().ok());
    let packed = |vector: Output| {
        let node = graph.node(vector.node);
        (node.op() == "Pack" && vector.port == 0).then(|| (node.inputs(), node.attr("axis")))
    };
    a == b
        || values(a).is_some_and(|own| Some(own) == values(b))
        || packed(a).is_some_and(|own| Some(own) == packed(b))
}
