//! int32 values that a loop carries, and that the device writes, stay on the device.
//!
//! TensorFlow carries int32 in host memory, where counters and shapes are. The tokens of a text are
//! int32, too: the device chooses the next one and writes it into the text, and the next step reads
//! it there. So each step would wait for the device, and send the whole text there and back. This
//! pass lets the loop carry the same bits as float32, which TensorFlow keeps on the device.
//!
//! Nodes that only move such values, like a slice of the text, move the bits: a `Bitcast` behind
//! one becomes a `Bitcast` in front of it, or the other way round, until two of them cancel.

use rustc_hash::FxHashSet;

use super::variable::Carried;
use crate::dtype::DType;
use crate::optimizer::graph::{Frame, Graph, NewNode, NodeId, Output};
use crate::optimizer::passes::elementwise::integers::made_on_device;
use crate::optimizer::shape::TensorInfo;

/// Ops that move the elements of their first input.
const MOVES: &[&str] = &["ExpandDims", "Identity", "Reshape", "Slice", "Squeeze", "StridedSlice"];
/// The op with which a step writes into a tensor on the device.
const WRITE: &str = "XlaDynamicUpdateSlice";
/// The largest number of copies between a step's write and its end.
const MAX_COPIES: usize = 4;

/// The largest number of moves in a row, with computations between, that follow such values.
const MAX_ROUNDS: usize = 4;

/// Keeps the values of all loops there.
pub fn keep(graph: &mut Graph, order: &[NodeId]) {
    let is_merge = |id: &NodeId| graph.contains(*id) && graph.node(*id).op() == "Merge";
    let merges: Vec<NodeId> = order.iter().copied().filter(is_merge).collect();
    let mut bits: Vec<NodeId> = Vec::new();
    for merge in merges {
        if let Some(device) = written_on(graph, merge)
            && let Some(carried) = Carried::of(graph, merge)
        {
            bits.extend(as_bits(graph, &carried, &device));
        }
    }
    if bits.is_empty() {
        return;
    }
    let mut open = bits.clone();
    while let Some(id) = open.pop() {
        open.extend(move_behind(graph, id));
    }
    for _ in 0..MAX_ROUNDS {
        let Some(order) = graph.order() else { return };
        let there = made_on_device(graph, &order);
        let before = bits.len();
        for id in order.iter().copied() {
            bits.extend(move_there(graph, id, &there));
        }
        if bits.len() == before {
            break;
        }
    }
    let Some(order) = graph.order() else { return };
    let there = made_on_device(graph, &order);
    while let Some(id) = bits.pop() {
        if graph.contains(id) {
            bits.extend(move_in_front(graph, id, &there));
        }
    }
}

fn output(node: NodeId) -> Output {
    Output { node, port: 0 }
}

/// The device on which the steps of a loop write into the int32 tensor that `merge` begins.
fn written_on(graph: &Graph, merge: NodeId) -> Option<String> {
    let info = graph.info(output(merge));
    let fits = info.dtype == Some(DType::I32) && info.rank().is_some_and(|rank| rank > 0);
    let mut at = *graph.node(graph.node(merge).inputs().get(1)?.node).inputs().first()?;
    for _ in 0..MAX_COPIES {
        let node = graph.node(at.node);
        match node.op() {
            "Identity" => at = *node.inputs().first()?,
            WRITE => return (fits && node.on_wgpu()).then(|| node.device().to_owned()),
            _ => return None,
        }
    }
    None
}

/// Carries a variable as float32. Returns the `Bitcast`s around it.
fn as_bits(graph: &mut Graph, carried: &Carried, device: &str) -> Vec<NodeId> {
    let shape = graph.info(output(carried.merge)).shape.clone();
    let info = TensorInfo { dtype: Some(DType::F32), shape };
    let step = Output { node: carried.switch, port: 1 };
    let mut bits = Vec::new();
    let begin = graph.node(carried.enter).inputs()[0];
    bits.push(bitcast(graph, begin, DType::F32, device));
    let new = carried.beside(graph, output(bits[0]), &info, device);
    let last = graph.node(carried.next).inputs()[0];
    bits.push(bitcast(graph, last, DType::F32, device));
    graph.set_input(new.next, 0, output(bits[1]));
    // The old variable stays as it is, in case its nodes must stay.
    graph.set_input(carried.next, 0, step);
    let ours = carried.is_ours(graph);
    let carrying: FxHashSet<NodeId> = carried.nodes().collect();
    let mut tensors = vec![
        (output(carried.merge), output(new.merge)),
        (step, Output { node: new.switch, port: 1 }),
    ];
    tensors.extend(carried.exit.zip(new.exit).map(|(old, new)| (output(old), output(new))));
    for (old, new) in tensors {
        let mut readers: Vec<(NodeId, usize)> = graph.readers(old).collect();
        // A copy on another device is a transfer that its readers no longer need.
        let copies: Vec<NodeId> =
            readers.iter().map(|(id, _)| *id).filter(|id| is_transfer(graph, *id)).collect();
        for copy in &copies {
            readers.extend(graph.readers(output(*copy)));
        }
        readers.retain(|(id, _)| !carrying.contains(id) && !copies.contains(id));
        if !readers.is_empty() {
            let value = bitcast(graph, new, DType::I32, device);
            for (reader, index) in readers {
                graph.set_input(reader, index, output(value));
            }
            bits.push(value);
        }
    }
    if ours {
        carried.remove(graph, &new, &[]);
    }
    bits
}

/// Whether a node on another device passes a tensor on, and waits at most for its step to begin.
fn is_transfer(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let begins = |control: &NodeId| {
        let pivot = graph.node(*control);
        let of_switch = pivot.inputs().first().map(|input| graph.node(input.node).op());
        pivot.op() == "Identity" && of_switch == Some("Switch")
    };
    node.op() == "Identity"
        && !node.on_wgpu()
        && !graph.is_preserved(id)
        && node.controls().iter().all(begins)
}

/// Adds a `Bitcast` to `dtype`.
fn bitcast(graph: &mut Graph, x: Output, dtype: DType, device: &str) -> NodeId {
    let from = if dtype == DType::F32 { DType::I32 } else { DType::F32 };
    let info = TensorInfo { dtype: Some(dtype), shape: graph.info(x).shape.clone() };
    graph.add(NewNode {
        name: format!("{}/bits", graph.node(x.node).name()),
        op: "Bitcast".to_owned(),
        device: device.to_owned(),
        inputs: vec![x],
        controls: Vec::new(),
        attrs: vec![("T", from.into()), ("type", dtype.into())],
        infos: vec![info],
    })
}

/// Whether a node is a `Bitcast` between int32 and float32, with this result.
fn is_bitcast(graph: &Graph, id: NodeId, to: DType) -> bool {
    let node = graph.node(id);
    let from = if to == DType::F32 { DType::I32 } else { DType::F32 };
    let types = [node.dtype("T"), node.dtype("type")] == [Some(from), Some(to)];
    node.op() == "Bitcast" && types && graph.may_move(id).is_ok()
}

/// Makes all users of a `Bitcast` use `tensor`.
fn replace(graph: &mut Graph, id: NodeId, tensor: Output) {
    graph.replace_readers(output(id), tensor);
    if graph.waiters(id).next().is_some() {
        let there = graph.control_of(tensor);
        graph.replace_waiters(id, there);
    }
    graph.remove(id);
}

/// Whether a node moves int32 values.
fn moves(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let is_int32 = node.dtype("T") == Some(DType::I32);
    MOVES.contains(&node.op()) && is_int32 && graph.may_go(id).is_ok()
}

/// Makes a node move float32 values.
fn retype(graph: &mut Graph, id: NodeId) {
    graph.set_attr(id, "T", DType::F32);
    let mut infos = graph.node(id).infos().to_vec();
    infos.iter_mut().take(1).for_each(|info| info.dtype = Some(DType::F32));
    graph.set_infos(id, infos);
}

/// Makes the nodes that move the int32 result of a `Bitcast` move its input. Returns the `Bitcast`s
/// behind them.
fn move_behind(graph: &mut Graph, id: NodeId) -> Vec<NodeId> {
    if !is_bitcast(graph, id, DType::I32) {
        return Vec::new();
    }
    let source = graph.node(id).inputs()[0];
    let readers: Vec<(NodeId, usize)> = graph.readers(output(id)).collect();
    let moving = readers.into_iter().filter(|(_, index)| *index == 0).map(|(reader, _)| reader);
    let moving: Vec<NodeId> = moving.filter(|reader| moves(graph, *reader)).collect();
    moving.into_iter().map(|reader| move_bits(graph, reader, source)).collect()
}

/// Makes a node of a loop that moves int32 values of the device move bits. Returns the `Bitcast` in
/// front of it.
fn move_there(graph: &mut Graph, id: NodeId, there: &FxHashSet<Output>) -> Option<NodeId> {
    let in_loop = graph.frame(id) != Frame::OUTSIDE && moves(graph, id);
    let source = graph.node(id).inputs().first().copied();
    let source = source.filter(|source| in_loop && there.contains(source))?;
    let device = graph.node(id).device().to_owned();
    let bits = bitcast(graph, source, DType::F32, &device);
    move_bits(graph, id, output(bits));
    Some(bits)
}

/// Makes a node move float32 values instead of int32. Returns the `Bitcast` behind it.
fn move_bits(graph: &mut Graph, id: NodeId, source: Output) -> NodeId {
    let device = graph.node(id).device().to_owned();
    retype(graph, id);
    graph.set_input(id, 0, source);
    let readers: Vec<(NodeId, usize)> = graph.readers(output(id)).collect();
    let value = bitcast(graph, output(id), DType::I32, &device);
    for (reader, index) in readers {
        graph.set_input(reader, index, output(value));
    }
    value
}

/// Makes the node that moves the int32 input of a `Bitcast` move float32, if that input comes from
/// the device and is read nowhere else. Returns the `Bitcast`s in front of it.
fn move_in_front(graph: &mut Graph, id: NodeId, there: &FxHashSet<Output>) -> Vec<NodeId> {
    if !is_bitcast(graph, id, DType::F32) {
        return Vec::new();
    }
    let value = graph.node(id).inputs()[0];
    if is_bitcast(graph, value.node, DType::I32) {
        let source = graph.node(value.node).inputs()[0];
        replace(graph, id, source);
        return Vec::new();
    }
    let node = graph.node(value.node);
    let Some(source) = node.inputs().first() else { return Vec::new() };
    let operands = match node.op() {
        WRITE if node.on_wgpu() && !graph.is_preserved(value.node) => 2,
        _ if moves(graph, value.node) && there.contains(source) => 1,
        _ => return Vec::new(),
    };
    let readers: Vec<NodeId> = graph.readers(value).map(|(reader, _)| reader).collect();
    if !readers.iter().all(|reader| is_bitcast(graph, *reader, DType::F32)) {
        return Vec::new();
    }
    let device = node.device().to_owned();
    let mut front = Vec::new();
    for index in 0..operands {
        let operand = graph.node(value.node).inputs()[index];
        let bits = bitcast(graph, operand, DType::F32, &device);
        graph.set_input(value.node, index, output(bits));
        front.push(bits);
    }
    retype(graph, value.node);
    readers.into_iter().for_each(|reader| replace(graph, reader, value));
    front
}
