//! Keeps int32 values that a loop saves for its gradient in host memory, where shapes and counters
//! are made and used.
//!
//! TensorFlow saves them in lists with elements on the device: each element would be sent there,
//! and each step of the gradient would wait for its elements to come back. If only nodes of this
//! graph make, fill and empty a list, it becomes a stack in host memory
//! ([`crate::kernels::fused::stack`]). It stays a list if an element may be made on the device,
//! like indices that come out of another list.

use super::lists::contents::{CARRIERS, Lists, are_stacks};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::stack;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::{Dim, TensorInfo};

/// Ops with int32 outputs that are in host memory on every device. Ops that pass a tensor on are
/// not listed: TensorFlow keeps the int32 tensors of control flow in host memory.
const HOST: &[&str] =
    &["Const", "Rank", "Shape", "ShapeN", "Size", "TensorListElementShape", "TensorListLength"];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let pops = |id: &NodeId| graph.node(*id).op() == "TensorListPopBack" && is_int32(graph, *id);
    if !order.iter().any(pops) {
        return Ok(());
    }
    let lists = Lists::with_origins(graph, &order);
    let on_host = |item: &Output| {
        let op = graph.node(item.node).op();
        HOST.contains(&op) || CARRIERS.contains(&op)
    };
    let kinds = lists.closed().filter(|(_, items)| items.iter().all(on_host));
    let kinds: Vec<_> = kinds.filter_map(|(members, _)| replaceable(graph, members)).collect();
    for id in kinds.into_iter().flatten() {
        replace(graph, id);
    }
    Ok(())
}

fn is_int32(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).dtype("element_dtype") == Some(DType::I32)
}

/// The nodes that make and pass on all lists of one kind, if stacks can replace these.
fn replaceable(graph: &Graph, members: &[Output]) -> Option<Vec<NodeId>> {
    let mut nodes: Vec<NodeId> = members.iter().map(|list| list.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let device = graph.node(*nodes.first()?).device();
    let fits = |id: &NodeId| {
        let node = graph.node(*id);
        let known = match node.op() {
            "EmptyTensorList" => {
                is_int32(graph, *id) && node.dtype("shape_type") == Some(DType::I32)
            }
            "TensorListPopBack" | "TensorListPushBack" => is_int32(graph, *id),
            op => CARRIERS.contains(&op),
        };
        known && node.on_wgpu() && node.device() == device && !graph.is_preserved(*id)
    };
    let popped = nodes.iter().any(|id| graph.node(*id).op() == "TensorListPopBack");
    let all = popped && nodes.iter().all(fits) && are_stacks(graph, members);
    all.then_some(nodes)
}

fn replace(graph: &mut Graph, id: NodeId) {
    let stack =
        TensorInfo { dtype: Some(DType::I32), shape: Some([Dim::Unknown].into_iter().collect()) };
    let mut infos = graph.node(id).infos.clone();
    let op = graph.node(id).op().to_owned();
    let ours = match &*op {
        "EmptyTensorList" => stack::NEW,
        "TensorListPushBack" => stack::PUSH,
        "TensorListPopBack" => stack::POP,
        _ => {
            graph.set_attr(id, "T", DType::I32);
            &op
        }
    };
    if ours != op {
        graph.set_op(id, ours);
        ["element_dtype", "shape_type"].into_iter().for_each(|name| graph.remove_attr(id, name));
    }
    let lists = if op == "Switch" { 2 } else { 1 };
    infos.iter_mut().take(lists).for_each(|info| info.clone_from(&stack));
    graph.set_infos(id, infos);
}
