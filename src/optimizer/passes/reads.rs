//! Merges reads of one variable that see the same value, and then the nodes that compute the same
//! from them.
//!
//! For each variable that it trains, Keras reads the learning rate and the step counter anew, and
//! raises the betas to a power. TensorFlow's own deduplication stops at reads, for they have state.
//! This pass knows the nodes that write the variable.
//!
//! A function names its reads as control outputs, so a read stays when its readers are gone. It
//! becomes a `NoOp`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::error::Result;
use crate::kernels::scalar;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::paths::Places;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::history::History;
use crate::optimizer::variables::{Handles, Variables};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if merge_reads(graph, &order) {
        merge_equal(graph, &order);
        end_unread(graph, &order);
    }
    Ok(())
}

/// Makes a `NoOp` of each read without readers whose variable is an argument of the function: the
/// results of a function are nodes of their own, so nothing else takes the value.
fn end_unread(graph: &mut Graph, order: &[NodeId]) {
    for id in order.iter().copied().filter(|id| graph.contains(*id)).collect::<Vec<_>>() {
        let node = graph.node(id);
        let is_argument = |input: &Output| graph.node(input.node).op() == "_Arg";
        let is_unread = node.op() == "ReadVariableOp"
            && node.on_wgpu()
            && node.inputs().iter().all(is_argument)
            && !graph.is_read(id);
        if is_unread {
            graph.set_no_op(id);
        }
    }
}

/// The number of rounds. A round compares reads of one state with the first of them. Reads that
/// wait for other nodes than the first are compared in the next round.
const ROUNDS: usize = 4;

/// Merges reads. Returns whether there is any read.
fn merge_reads(graph: &mut Graph, order: &[NodeId]) -> bool {
    let variables = Variables::of(graph);
    if variables.all().all(|uses| uses.reads.is_empty()) {
        return false;
    }
    // A read that is kept only for its name has been merged before.
    let is_read = |id: &NodeId| graph.node(*id).on_wgpu() && !graph.users(*id).is_empty();
    if variables.all().all(|uses| uses.reads.iter().filter(|id| is_read(id)).nth(1).is_none()) {
        return true;
    }
    let places = Places::new(graph, order);
    let mut reads: Vec<NodeId> =
        variables.all().flat_map(|uses| &uses.reads).copied().filter(|id| is_read(id)).collect();
    reads.sort_unstable_by_key(|read| places.of(*read));
    let same = same_reads(graph, order, &places, &variables, &reads);
    for (read, first) in same {
        // The read's name must stay.
        if graph.is_preserved(read) {
            graph.replace_readers(Output { node: read, port: 0 }, Output { node: first, port: 0 });
        } else {
            replace(graph, read, first);
        }
    }
    true
}

/// The reads that must see the same value as an earlier read, and run whenever it does, each with
/// that read.
fn same_reads(
    graph: &Graph,
    order: &[NodeId],
    places: &Places<'_>,
    variables: &Variables,
    reads: &[NodeId],
) -> Vec<(NodeId, NodeId)> {
    let branches = Branches::of(graph, order);
    let history = History::of(graph, places, variables);
    let mut handles = Handles::default();
    let mut alike: FxHashMap<_, Vec<NodeId>> = FxHashMap::default();
    let mut keys = Vec::new();
    for read in reads.iter().copied() {
        let (Some(place), false) = (history.place(read), branches.in_loop(read)) else { continue };
        let node = graph.node(read);
        let handle = handles.behind_identities(graph, node.inputs()[0]);
        let key = (handle, place, branches.conditions(read), node.dtype("dtype"), node.device());
        let group = alike.entry(key).or_default();
        if group.is_empty() {
            keys.push(key);
        }
        group.push(read);
    }
    let mut groups: Vec<Vec<NodeId>> = keys.iter().filter_map(|key| alike.remove(key)).collect();
    let mut same = Vec::new();
    for _ in 0..ROUNDS {
        groups.retain(|group| group.len() > 1);
        // The nodes for which a read waits must come before the first read.
        let waits = |first: NodeId, read: NodeId| {
            graph
                .node(read)
                .controls()
                .iter()
                .filter(move |c| **c != first)
                .map(move |c| (*c, first))
        };
        let others =
            || groups.iter().flat_map(|group| group[1..].iter().map(|read| (group[0], *read)));
        let pairs: Vec<_> = others().flat_map(|(first, read)| waits(first, read)).collect();
        let mut answers = places.connected(&pairs).into_iter();
        let mut left: Vec<Vec<NodeId>> = Vec::new();
        for group in &groups {
            let (first, mut rest) = (group[0], Vec::new());
            for read in group[1..].iter().copied() {
                if answers
                    .by_ref()
                    .take(waits(first, read).count())
                    .fold(true, |all, answer| all & answer)
                {
                    same.push((read, first));
                } else {
                    rest.push(read);
                }
            }
            left.push(rest);
        }
        groups = left;
    }
    same
}

/// Ops of which equal nodes are merged, besides the elementwise ones.
const MERGED: &[&str] = &["Cast", "Const", "Identity", "Reshape"];

/// Merges nodes that compute the same function of the same inputs.
fn merge_equal(graph: &mut Graph, order: &[NodeId]) {
    type Key = ((Arc<str>, Arc<str>), SmallVec<[Output; 4]>, SmallVec<[NodeId; 4]>, u64);
    let mut known: FxHashMap<Key, SmallVec<[NodeId; 1]>> = FxHashMap::default();
    for id in order.iter().copied() {
        if !graph.contains(id) || graph.is_preserved(id) {
            continue;
        }
        let node = graph.node(id);
        let op = node.op();
        if !node.on_wgpu()
            || !(MERGED.contains(&op) || scalar::find(op).is_some())
            || !graph.is_pure(id)
        {
            continue;
        }
        let mut controls = SmallVec::from_slice(node.controls());
        controls.sort_unstable();
        // Constants differ only in their attributes.
        let mut hasher = FxHasher::default();
        visible(graph, id).for_each(|(name, value)| (name, value.raw()).hash(&mut hasher));
        let key =
            (node.shared_texts(), SmallVec::from_slice(node.inputs()), controls, hasher.finish());
        let same = known.entry(key).or_default();
        match same.iter().copied().find(|other| visible(graph, *other).eq(visible(graph, id))) {
            Some(other) => replace(graph, id, other),
            None => same.push(id),
        }
    }
}

/// The attributes that decide the node's computation.
fn visible(graph: &Graph, id: NodeId) -> impl Iterator<Item = (&String, &Attr)> {
    graph.node(id).attrs().iter().filter(|(name, _)| !name.starts_with('_'))
}

/// Makes all users of `old` use `new`.
fn replace(graph: &mut Graph, old: NodeId, new: NodeId) {
    graph.replace_readers(Output { node: old, port: 0 }, Output { node: new, port: 0 });
    graph.replace_waiters(old, new);
    graph.remove(old);
}
