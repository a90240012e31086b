//! Reads of one variable that see the same value become one, and so does what is computed alike from them.
//!
//! Keras reads the rate and the step counter anew for each variable that it trains, and raises the betas to a power each time. TensorFlow's own
//! deduplication stops at reads, for they have state; here it is known who writes the variable.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::Result;
use crate::kernels::scalar;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::order::Order;
use crate::optimizer::variables::{Branches, Variables, behind_identities};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if merge_reads(graph, &order) {
        merge_equal(graph, &order);
    }
    Ok(())
}

/// Merges reads; tells whether there is any read.
fn merge_reads(graph: &mut Graph, order: &[NodeId]) -> bool {
    let variables = Variables::of(graph);
    if variables.all().all(|uses| uses.reads.is_empty()) {
        return false;
    }
    // A read that is kept for its name alone has been merged before.
    let is_read = |graph: &Graph, id: &NodeId| graph.node(*id).on_wgpu() && !graph.users(*id).is_empty();
    if variables.all().all(|uses| uses.reads.iter().filter(|id| is_read(graph, id)).count() < 2) {
        return true;
    }
    let ranks = Order::of(graph, order);
    let branches = Branches::of(graph, order);
    for uses in variables.all() {
        let mut reads: Vec<NodeId> = uses.reads.iter().copied().filter(|id| is_read(graph, id)).collect();
        reads.sort_by_key(|r| ranks.rank(*r));
        let mut first: Vec<NodeId> = Vec::new();
        for read in reads {
            let same = first
                .iter()
                .copied()
                .find(|other| sees_the_same(graph, &ranks, &branches, &uses.writers, *other, read));
            match same {
                // Its name must stay, and a read costs nothing: only nobody reads it any more.
                Some(other) if graph.is_preserved(read) => {
                    graph.replace_readers(Output { node: read, port: 0 }, Output { node: other, port: 0 });
                }
                Some(other) => replace(graph, read, other),
                None => first.push(read),
            }
        }
    }
    true
}

/// Whether `b`, which comes no earlier than `a`, must see what `a` sees, and runs whenever that does.
fn sees_the_same(graph: &Graph, order: &Order, branches: &Branches, writers: &[NodeId], a: NodeId, b: NodeId) -> bool {
    let (x, y) = (graph.node(a), graph.node(b));
    let alike = x.device() == y.device()
        && x.dtype("dtype") == y.dtype("dtype")
        && behind_identities(graph, x.inputs()[0]) == behind_identities(graph, y.inputs()[0])
        && branches.conditions(a) == branches.conditions(b)
        && !branches.in_loop(a);
    let precedes = |a: NodeId, b: NodeId| order.precedes(graph, a, b);
    alike
        && y.controls().iter().all(|c| *c == a || precedes(*c, a))
        && writers.iter().all(|w| precedes(*w, a) && precedes(*w, b) || precedes(a, *w) && precedes(b, *w))
}

/// Ops whose equal nodes are merged, besides the elementwise ones.
const MERGED: &[&str] = &["Cast", "Const", "Identity", "Reshape"];

/// Merges nodes that compute the same of the same.
fn merge_equal(graph: &mut Graph, order: &[NodeId]) {
    type Key = ((Arc<str>, Arc<str>), SmallVec<[Output; 4]>, SmallVec<[NodeId; 4]>);
    let mut known: FxHashMap<Key, SmallVec<[NodeId; 1]>> = FxHashMap::default();
    for id in order.iter().copied() {
        if !graph.contains(id) || graph.is_preserved(id) {
            continue;
        }
        let node = graph.node(id);
        let op = node.op();
        if !node.on_wgpu() || !(MERGED.contains(&op) || scalar::find(op).is_some()) || !graph.is_pure(id) {
            continue;
        }
        let mut controls = SmallVec::from_slice(node.controls());
        controls.sort_unstable();
        let key = (node.shared_texts(), SmallVec::from_slice(node.inputs()), controls);
        let same = known.entry(key).or_default();
        let equal = same.iter().copied().find(|other| {
            let visible = |n: NodeId| graph.node(n).attrs().iter().filter(|(name, _)| !name.starts_with('_'));
            visible(*other).eq(visible(id))
        });
        match equal {
            Some(other) => replace(graph, id, other),
            None => same.push(id),
        }
    }
}

/// Lets everybody use `new` instead of `old`.
fn replace(graph: &mut Graph, old: NodeId, new: NodeId) {
    graph.replace_readers(Output { node: old, port: 0 }, Output { node: new, port: 0 });
    graph.replace_waiters(old, new);
    graph.remove(old);
}
