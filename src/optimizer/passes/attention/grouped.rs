//! Grouped-query attention as programs write it: the heads of key and value are repeated, so that
//! each serves several neighbouring heads of the query. `tf.repeat` becomes an `ExpandDims`, a
//! `Tile` of that axis and a `Reshape`; other programs write `BroadcastTo`. The attention reads the
//! original heads, and no repeated key is stored.
//!
//! This applies only to an attention without a gradient: the gradient's op has no groups.

use super::cuts::matches;
use crate::kernels::fused::attention::OP;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};

/// Removes the repetition of heads from every attention with repeated keys and values.
pub fn run(graph: &mut Graph) {
    let ids: Vec<_> = graph.ids().filter(|id| graph.node(*id).op() == OP).collect();
    for id in ids {
        if let Some([key, value]) = repeated(graph, id) {
            let before = [1, 2].map(|i| graph.node(id).inputs()[i]);
            graph.set_input(id, 1, key);
            graph.set_input(id, 2, value);
            graph.set_attr(id, "grouped", true);
            graph.set_attr(id, "broadcast", false);
            before.into_iter().for_each(|output| remove_unread(graph, output.node));
        }
    }
}

/// Key and value before the repetition of their heads.
fn repeated(graph: &Graph, id: NodeId) -> Option<[Output; 2]> {
    let node = graph.node(id);
    let text = |name: &str| node.attr(name).and_then(Attr::string);
    let flag = |name: &str| node.attr(name).and_then(Attr::bool).unwrap_or(false);
    let axis = if text("layout")? == "BTNH" { 2 } else { 1 };
    // An attention that saves values for a gradient has a second output.
    if node.infos().len() != 1 || flag("grouped") {
        return None;
    }
    let [query, key, value] = [0, 1, 2].map(|i| node.inputs()[i]);
    let sources = [source(graph, key, axis)?, source(graph, value, axis)?];
    let extents = sources.map(|source| heads(graph, source, axis));
    let heads_of_query = heads(graph, query, axis)?;
    let batches = [query, sources[0]].map(|x| graph.info(x).shape.as_ref().map(|s| s[0]));
    let same_batch = matches!(batches, [Some(a), Some(b)] if a.same(b));
    let fits = extents[0]? == extents[1]?
        && heads(graph, key, axis)? == heads_of_query
        && heads(graph, value, axis)? == heads_of_query
        && (same_batch || !flag("broadcast"));
    fits.then_some(sources)
}

fn heads(graph: &Graph, output: Output, axis: usize) -> Option<usize> {
    graph.info(output).shape.as_ref().filter(|s| s.len() == 4)?[axis].known()
}

/// The tensor whose heads `output` repeats along `axis`, with the copies of each head in a row.
fn source(graph: &Graph, output: Output, axis: usize) -> Option<Output> {
    let shape = |output: Output| graph.info(output).shape.as_ref();
    let first_input = |output: Output, ops: &[&str]| {
        let node = graph.node(output.node);
        let plain = output.port == 0 && node.on_wgpu() && node.controls().is_empty();
        (plain && ops.contains(&node.op())).then(|| node.inputs()[0])
    };
    let tiled = first_input(output, &["Reshape"])?;
    let spread = first_input(tiled, &["Tile", "BroadcastTo"])?;
    let plain = first_input(spread, &["ExpandDims", "Reshape"])?;
    let (heads, times) = (shape(plain)?.get(axis)?.known()?, shape(tiled)?.get(axis + 1)?.known()?);
    let with = |at: usize, extents: &[usize]| -> Option<Shape> {
        let plain = shape(plain).filter(|s| s.len() == 4)?;
        let extents = extents.iter().map(|n| Dim::Known(*n));
        Some(plain[..at].iter().copied().chain(extents).chain(plain[axis + 1..].to_vec()).collect())
    };
    let is_repeated = matches(shape(spread)?, &with(axis, &[heads, 1])?)
        && matches(shape(tiled)?, &with(axis, &[heads, times])?)
        && matches(shape(output)?, &with(axis, &[heads * times])?);
    (is_repeated && leaves_others(graph, tiled.node, axis + 1)).then_some(plain)
}

/// Whether a node repeats no axis except `axis`.
fn leaves_others(graph: &Graph, id: NodeId, axis: usize) -> bool {
    let node = graph.node(id);
    if node.op() == "Tile" {
        let multiples = graph.constant(node.inputs()[1]).and_then(|m| m.to_i64().ok());
        return multiples.is_some_and(|m| m.iter().enumerate().all(|(i, n)| i == axis || *n == 1));
    }
    let shape = |output: Output| graph.info(output).shape.as_ref();
    let (Some(before), Some(after)) =
        (shape(node.inputs()[0]), shape(Output { node: id, port: 0 }))
    else {
        return false;
    };
    before.iter().zip(after).enumerate().all(|(i, (a, b))| i == axis || a.same(*b))
}

/// Removes a node without readers, and the inputs that only it reads.
fn remove_unread(graph: &mut Graph, id: NodeId) {
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let unread = graph.contains(id)
            && graph.users(id).is_empty()
            && !graph.is_preserved(id)
            && graph.is_pure(id)
            && graph.node(id).controls().is_empty();
        if unread {
            open.extend(graph.node(id).inputs().iter().map(|input| input.node));
            graph.remove(id);
        }
    }
}
