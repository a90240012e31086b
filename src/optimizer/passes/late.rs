//! Weights that a product reads in another form, as a transposed or a converted copy: the copy
//! waits for the product's other operand.
//!
//! Such a copy depends on nothing but a variable. So TensorFlow makes the copies of all layers when
//! a function begins, and in a loop it makes them for ten steps at once: a second copy of the model
//! or more. A wait costs nothing, since both nodes run on the device.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::kernels::fused::elementwise;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// Ops that make a copy.
const COPIES: &[&str] = &["Cast", "Transpose", elementwise::OP];
/// Ops that give a tensor another shape, where it is.
const VIEWS: &[&str] = &["ExpandDims", "Reshape", "Squeeze"];
/// Ops that wait for nothing and compute nothing.
const SOURCES: &[&str] = &["Const", "ReadVariableOp"];
/// Bytes. Smaller copies do not matter.
const LARGE: usize = 1 << 16;

/// Another form of a variable: the first large copies on the way to it.
type Form = Vec<NodeId>;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut places = vec![0; graph.capacity()];
    order.iter().enumerate().for_each(|(place, id)| places[id.index()] = place);
    let mut forms: FxHashMap<NodeId, Form> = FxHashMap::default();
    let mut waits = Vec::new();
    for id in order.iter().copied() {
        if is_form(graph, id, &forms) {
            // A form has one reader, so each list is moved on once.
            let inputs = graph.node(id).inputs();
            let mut form: Form =
                inputs.iter().filter_map(|i| forms.remove(&i.node)).flatten().collect();
            if form.is_empty() && is_large_copy(graph, id) {
                form.push(id);
            }
            forms.insert(id, form);
            continue;
        }
        // A `Merge` runs with one of its inputs alone.
        let node = graph.node(id);
        if !node.on_wgpu() || matches!(node.op(), "Merge" | "RefMerge") {
            continue;
        }
        let inputs = node.inputs().iter().map(|i| i.node);
        let (made, others): (Vec<_>, Vec<_>) = inputs.partition(|i| forms.contains_key(i));
        let others = others.into_iter().filter(|i| !is_source(graph, *i));
        let Some(other) = others.max_by_key(|i| places[i.index()]) else { continue };
        if graph.node(other).on_wgpu() {
            let firsts = made.iter().filter_map(|i| forms.remove(i)).flatten();
            waits.extend(firsts.map(|copy| (copy, other)));
        }
    }
    for (copy, other) in waits {
        if graph.frame(copy) == graph.frame(other) {
            graph.add_control(copy, other);
        }
    }
    Ok(())
}

fn is_source(graph: &Graph, id: NodeId) -> bool {
    SOURCES.contains(&graph.node(id).op())
}

/// Whether a node gives a variable another form for one reader, and waits for nothing else.
fn is_form(graph: &Graph, id: NodeId, forms: &FxHashMap<NodeId, Form>) -> bool {
    let node = graph.node(id);
    let reads = |i: &NodeId| forms.contains_key(i) || graph.node(*i).op() == "ReadVariableOp";
    (COPIES.contains(&node.op()) || VIEWS.contains(&node.op()))
        && graph.may_move_freely(id).is_ok()
        && graph.users(id).len() == 1
        && node.inputs().iter().any(|i| reads(&i.node))
        && node.inputs().iter().all(|i| reads(&i.node) || is_source(graph, i.node))
}

fn is_large_copy(graph: &Graph, id: NodeId) -> bool {
    let info = graph.info(Output { node: id, port: 0 });
    let bytes = info.len().zip(info.dtype).map(|(len, dtype)| len.saturating_mul(dtype.size()));
    COPIES.contains(&graph.node(id).op()) && bytes.is_some_and(|bytes| bytes >= LARGE)
}
