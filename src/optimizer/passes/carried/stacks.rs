//! Tensors that a loop carries as one stack are carried one by one.
//!
//! KerasHub keeps the keys and values of all layers in one tensor. Each step of `generate` takes
//! every layer's keys and values out of it, writes the ones of a token into them, and stacks them
//! for the next step, so that a token would cost several copies of the whole cache. If each layer's
//! tensor is a variable of the loop, nothing is taken out and nothing is stacked, and an update is
//! the last reader of its tensor and writes in place.
//!
//! A variable of a loop is a stack if each step ends with a `Pack` of it, and if its other readers
//! take single coordinates of the packed axis. The tensors in a stack may be stacks, too.

use super::variable::Carried;
use crate::dtype::DType;
use crate::kernels::movement::slice::StridedSpec;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::TensorInfo;

/// Replaces the stacks of all loops.
pub fn take_apart(graph: &mut Graph, order: &[NodeId]) {
    let is_merge = |id: &NodeId| graph.node(*id).op() == "Merge";
    let mut open: Vec<NodeId> = order.iter().copied().filter(is_merge).collect();
    if open.is_empty() {
        return;
    }
    let branches = Branches::of(graph, order);
    while let Some(merge) = open.pop() {
        if let Some(stack) = Stack::find(graph, &branches, merge) {
            open.extend(stack.replace(graph));
        }
    }
}

/// A stack that a loop carries.
struct Stack {
    carried: Carried,
    axis: usize,
    /// The tensors that a step packs, and the node that packs them.
    items: Vec<Output>,
    pack: NodeId,
    /// The nodes that take a tensor out, each with the tensor's number.
    picks: Vec<(NodeId, usize)>,
    /// The copies of the stack through which some of them read.
    copies: Vec<NodeId>,
    /// The tensors of the stack with which the loop begins, if a node packs them.
    begun: Option<Vec<Output>>,
    /// The type and shape of each tensor.
    info: TensorInfo,
}

impl Stack {
    fn find(graph: &Graph, branches: &Branches, merge: NodeId) -> Option<Self> {
        let carried = Carried::of(graph, merge)?;
        let output = |node, port| Output { node, port };
        let alone = carried.is_ours(graph)
            && graph.readers_in_any_order(output(merge, 0)).nth(1).is_none()
            && graph.waiters(carried.switch).next().is_none();
        let last = *graph.node(carried.next).inputs().first()?;
        let whole = graph.info(output(carried.switch, 1)).clone();
        let (axis, items) = packed(graph, last, &whole)?;
        let pack = last.node;
        // An item that exists in steps in which the stack does not would begin further steps.
        let together = items
            .iter()
            .all(|item| branches.agree(item.node, pack) && graph.node(item.node).op() != "Switch");
        let single = graph.users(pack) == [carried.next] && !graph.is_preserved(pack);
        let dtype = whole.dtype.filter(|dtype| *dtype != DType::I32)?;
        let (readers, copies) = readers(graph, &carried);
        let picks = readers.into_iter();
        let picks = picks.map(|id| Some((id, pick(graph, id, axis, items.len(), &whole)?)));
        let picks: Vec<(NodeId, usize)> = picks.collect::<Option<_>>()?;
        let first = *graph.node(carried.enter).inputs().first()?;
        let begun = packed(graph, first, &whole)
            .filter(|(at, begun)| *at == axis && begun.len() == items.len())
            .map(|(_, begun)| begun);
        // A loop without steps must not cost more.
        let exit = carried.exit.is_some_and(|exit| graph.is_read(exit));
        let mut shape = whole.shape?;
        shape.remove(axis);
        let info = TensorInfo { dtype: Some(dtype), shape: Some(shape) };
        let fits = alone && together && single && !picks.is_empty() && (begun.is_some() || !exit);
        fits.then_some(Self { carried, axis, items, pack, picks, copies, begun, info })
    }

    /// Carries the tensors one by one. Returns the nodes that begin them.
    fn replace(self, graph: &mut Graph) -> Vec<NodeId> {
        let Self { carried, axis, items, pack, picks, copies, begun, info } = self;
        let begun = begun.unwrap_or_else(|| unpacked(graph, &carried, axis, items.len(), &info));
        let device = graph.node(carried.merge).device().to_owned();
        let parts: Vec<Carried> =
            begun.iter().map(|begin| carried.beside(graph, *begin, &info, &device)).collect();
        for (part, item) in parts.iter().zip(&items) {
            graph.set_input(part.next, 0, *item);
            for control in graph.node(pack).controls().to_vec() {
                graph.add_control(part.next, control);
            }
        }
        for (id, number) in picks {
            let part = Output { node: parts[number].switch, port: 1 };
            if graph.waiters(id).next().is_some() {
                let there = graph.control_of(part);
                graph.replace_waiters(id, there);
            }
            graph.replace_readers(Output { node: id, port: 0 }, part);
            graph.remove(id);
        }
        for copy in copies {
            if graph.waiters(copy).next().is_some() {
                let there = graph.control_of(Output { node: parts[0].switch, port: 1 });
                graph.replace_waiters(copy, there);
            }
            graph.remove(copy);
        }
        if let Some(exit) = carried.exit {
            let ends = parts.iter().filter_map(|part| part.exit);
            if graph.is_read(exit) {
                let inputs = ends.map(|node| Output { node, port: 0 }).collect();
                let attrs = of_stack("N", axis, items.len(), &info);
                let infos = graph.node(carried.merge).infos()[..1].to_vec();
                let stack = graph.add(fused(graph, exit, "stack", "Pack", inputs, attrs, infos));
                let output = |node| Output { node, port: 0 };
                graph.replace_readers(output(exit), output(stack));
            }
        }
        carried.remove(graph, &parts[0], &[pack]);
        parts.iter().map(|part| part.merge).collect()
    }
}

/// The nodes that read the variable in a step, directly or through a copy, and the copies.
/// TensorFlow leaves a copy for three and more readers; it waits for the step to begin.
fn readers(graph: &Graph, carried: &Carried) -> (Vec<NodeId>, Vec<NodeId>) {
    let of = |node, port| graph.readers(Output { node, port }).map(|(id, _)| id);
    let is_copy = |id: &NodeId| {
        let node = graph.node(*id);
        node.op() == "Identity"
            && node.on_wgpu()
            && !graph.is_preserved(*id)
            && node.controls().iter().all(|control| carried.begins_step(graph, *control))
    };
    let (copies, mut readers): (Vec<NodeId>, Vec<NodeId>) =
        of(carried.switch, 1).partition(is_copy);
    readers.extend(copies.iter().flat_map(|copy| of(*copy, 0)));
    (readers, copies)
}

/// The tensors of the stack that enters a loop, taken out in front of it.
fn unpacked(
    graph: &mut Graph,
    carried: &Carried,
    axis: usize,
    count: usize,
    info: &TensorInfo,
) -> Vec<Output> {
    let (enter, attrs) = (carried.enter, of_stack("num", axis, count, info));
    let (inputs, infos) = (graph.node(enter).inputs().to_vec(), vec![info.clone(); count]);
    let node = graph.add(fused(graph, enter, "unstack", "Unpack", inputs, attrs, infos));
    (0..count as u32).map(|port| Output { node, port }).collect()
}

/// The attributes of a `Pack` or an `Unpack`, which names the number of tensors `count`.
fn of_stack(
    count: &'static str,
    axis: usize,
    tensors: usize,
    info: &TensorInfo,
) -> Vec<(&'static str, Attr)> {
    let dtype = info.dtype.map(|dtype| ("T", dtype.into()));
    [(count, (tensors as i64).into()), ("axis", (axis as i64).into())]
        .into_iter()
        .chain(dtype)
        .collect()
}

/// The axis and the tensors of a stack that a `Pack` makes.
fn packed(graph: &Graph, stack: Output, info: &TensorInfo) -> Option<(usize, Vec<Output>)> {
    let node = graph.node(stack.node);
    let rank = info.rank()? as i64;
    let axis = node.attr("axis").and_then(Attr::int)?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let fits = node.op() == "Pack" && node.on_wgpu() && (0..rank).contains(&axis);
    fits.then(|| (axis as usize, node.inputs().to_vec()))
}

/// The coordinate of `axis` of which a node takes everything. The axis has `count` coordinates.
fn pick(graph: &Graph, id: NodeId, axis: usize, count: usize, of: &TensorInfo) -> Option<usize> {
    /// Stands for an unknown extent: only a slice without an end takes all of it.
    const ANY: usize = i64::MAX as usize;
    let node = graph.node(id);
    let &[_, begin, end, strides] = node.inputs() else { return None };
    let plain = node.op() == "StridedSlice"
        && node.on_wgpu()
        && node.controls().is_empty()
        && !graph.is_preserved(id);
    let [begin, end, strides] =
        [begin, end, strides].map(|vector| graph.constant(vector)?.to_i64().ok());
    let mut dims: Vec<usize> =
        of.shape.as_ref()?.iter().map(|extent| extent.known().unwrap_or(ANY)).collect();
    dims[axis] = count;
    let spec = StridedSpec::resolve(&begin?, &end?, &strides?, &node.slice_masks(), &dims).ok()?;
    let is_whole = |d: usize| spec.begin[d] == 0 && spec.stride[d] == 1 && spec.count[d] == dims[d];
    let single = spec.count[axis] == 1 && (0..dims.len()).all(|d| d == axis || is_whole(d));
    dims.remove(axis);
    let fits = plain && single && spec.shape[..] == dims[..];
    fits.then_some(usize::try_from(spec.begin[axis]).ok()?)
}
