//! Folds nodes in front of a contraction into its attributes: a transpose of the last two
//! dimensions of a matrix product's operand, and zero padding of a convolution's input. Dimensions
//! of extent 1 count as nothing: a transpose that moves no others is no copy. Weights of one head
//! are reshaped without one. A product of one row reads the weights of heads as they are.

mod heads;

use super::contraction::attributes;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::contraction::INT8;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::meaning::fused_product;
use crate::optimizer::shape::{Dim, TensorInfo};
use crate::tensor::HostTensor;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    for id in order.iter().copied() {
        if !graph.contains(id) || graph.may_go(id).is_err() {
            continue;
        }
        match fused_product(graph.node(id).op()) {
            Some("_WgpuFusedMatMul") => transposes(graph, id, ["transpose_a", "transpose_b"]),
            Some("_WgpuFusedBatchMatMulV2" | INT8) => {
                transposes(graph, id, ["adj_x", "adj_y"]);
                heads::drop_single(graph, id);
                heads::separate(graph, id);
            }
            Some(fused) => pad(graph, id, fused),
            None => {}
        }
    }
    Ok(())
}

/// Reads operands as they were before a transpose. Repeats that for a transpose of a transpose.
fn transposes(graph: &mut Graph, id: NodeId, flags: [&'static str; 2]) {
    // The batch forms conjugate complex matrices when they transpose them.
    let node = graph.node(id);
    let dtype = node.dtype("T").or_else(|| node.dtype("Ta"));
    if !dtype.is_some_and(|t| t.is_float() || t.is_integer()) {
        return;
    }
    for (k, flag) in flags.into_iter().enumerate() {
        while let Some(transpose) = transposed(graph, graph.node(id).inputs()[k]) {
            let Some(old) = graph.node(id).attr(flag).and_then(Attr::bool) else { break };
            let source = graph.node(transpose).inputs()[0];
            graph.set_attr(id, flag, !old);
            graph.set_input(id, k, source);
            drop_unused(graph, transpose);
        }
        if let Some((transpose, perm)) = nearly_transposed(graph, graph.node(id).inputs()[k])
            && let Some(old) = graph.node(id).attr(flag).and_then(Attr::bool)
        {
            let view = with_order(graph, transpose, &perm);
            graph.set_attr(id, flag, !old);
            graph.set_input(id, k, view);
            drop_unused(graph, transpose);
        }
    }
}

/// The node that makes `operand` by a transpose which, with the last two dimensions of its result
/// swapped, would move only dimensions of extent 1; and the order of dimensions that it then has.
fn nearly_transposed(graph: &Graph, operand: Output) -> Option<(NodeId, Vec<i32>)> {
    let node = graph.node(operand.node);
    if node.op() != "Transpose" || !node.on_wgpu() || !node.controls().is_empty() {
        return None;
    }
    let shape = graph.info(node.inputs()[0]).shape.as_ref()?;
    let perm = graph.constant(node.inputs()[1])?.to_i64().ok()?;
    let rank = perm.len();
    let perm = perm.iter().map(|p| i32::try_from(p.rem_euclid(rank as i64)).ok());
    let mut perm = perm.collect::<Option<Vec<i32>>>()?;
    if rank < 2 || shape.len() != rank || !moves(shape, &perm) {
        return None;
    }
    perm.swap(rank - 2, rank - 1);
    (!moves(shape, &perm)).then_some((operand.node, perm))
}

/// Whether a transpose of a tensor with these extents moves a dimension of more than one element.
fn moves(shape: &[Dim], perm: &[i32]) -> bool {
    let long = perm.iter().filter(|p| shape.get(**p as usize) != Some(&Dim::Known(1)));
    !long.is_sorted()
}

/// The result of a transpose like `transpose` with another order of dimensions.
fn with_order(graph: &mut Graph, transpose: NodeId, perm: &[i32]) -> Output {
    let node = graph.node(transpose);
    let (name, device, source) =
        (format!("{}/rows", node.name()), node.device().to_owned(), node.inputs()[0]);
    let info = graph.info(source).clone();
    let shape = info.shape.map(|shape| perm.iter().map(|p| shape[*p as usize]).collect());
    let types = [node.attr("T").map(|t| ("T", t.clone())), Some(("Tperm", DType::I32.into()))];
    let value = HostTensor::i32(&[perm.len()], perm);
    let order = graph.add_constant(format!("{name}/order"), &device, &value, source);
    let node = graph.add(NewNode {
        name,
        op: "Transpose".to_owned(),
        device,
        inputs: vec![source, order],
        controls: Vec::new(),
        attrs: types.into_iter().flatten().collect(),
        infos: vec![TensorInfo { dtype: info.dtype, shape }],
    });
    Output { node, port: 0 }
}

/// The node that makes `operand` by a transpose of the last two dimensions.
fn transposed(graph: &Graph, operand: Output) -> Option<NodeId> {
    let node = graph.node(operand.node);
    if node.op() != "Transpose" || !node.on_wgpu() || !node.controls().is_empty() {
        return None;
    }
    let perm = graph.constant(node.inputs()[1])?.to_i64().ok()?;
    let rank = perm.len();
    let expected = |d: usize| match d + 2 {
        n if n == rank => rank - 1,
        n if n == rank + 1 => rank - 2,
        _ => d,
    };
    let swaps = rank >= 2
        && perm.iter().enumerate().all(|(d, p)| p.rem_euclid(rank as i64) == expected(d) as i64);
    swaps.then_some(operand.node)
}

fn drop_unused(graph: &mut Graph, id: NodeId) {
    if graph.users(id).is_empty() && !graph.is_preserved(id) {
        graph.remove(id);
    }
}

/// Makes a convolution pad its input itself.
fn pad(graph: &mut Graph, id: NodeId, fused: &'static str) {
    let Some((pad, paddings)) = padded(graph, id) else { return };
    let source = graph.node(pad).inputs()[0];
    let node = graph.node(id);
    // Only Conv3D has no such attribute.
    if node.op() == "Conv3D" {
        let Some(dtype) = node.dtype("T") else { return };
        let epilogue = [
            ("T_extra", Attr::from(&[][..] as &[DType])),
            ("T_out", dtype.into()),
            ("constants", Attr::from(&[][..] as &[f32])),
            ("expression", format!("x: {dtype}; c: 0; return x0").into()),
        ];
        let known = attributes(node, fused, epilogue);
        let strange: Vec<String> = node
            .attrs()
            .keys()
            .filter(|name| known.iter().all(|(k, _)| k != name))
            .cloned()
            .collect();
        strange.iter().for_each(|name| graph.remove_attr(id, name));
        known.into_iter().for_each(|(name, value)| graph.set_attr(id, name, value));
        graph.set_op(id, fused);
    }
    graph.set_attr(id, "padding", "EXPLICIT");
    graph.set_attr(id, "explicit_paddings", &paddings[..]);
    for control in graph.node(pad).controls().to_vec() {
        graph.add_control(id, control);
    }
    graph.set_input(id, 0, source);
    graph.replace_waiters(pad, id);
    graph.remove(pad);
}

/// The node that pads the input of a convolution with zeros, if it has no other reader, and the sum
/// of its paddings and the convolution's.
fn padded(graph: &Graph, id: NodeId) -> Option<(NodeId, Vec<i64>)> {
    let conv = graph.node(id);
    conv.dtype("T").filter(|t| t.is_float())?;
    let input = conv.inputs()[0];
    let node = graph.node(input.node);
    let zero = match node.op() {
        "Pad" => true,
        "PadV2" => graph.constant(node.inputs()[2])?.to_f64() == [0.0],
        _ => return None,
    };
    let mut readers = graph.readers(input);
    let alone = readers.next().is_some() && readers.next().is_none();
    if !zero || !alone || graph.may_go(input.node).is_err() {
        return None;
    }
    // A node that waits for the padding, and for which the convolution waits, would become part of
    // a cycle.
    if graph.users(input.node).len() > 1 {
        return None;
    }
    let paddings = graph.constant(node.inputs()[1])?.to_i64().ok()?;
    let given = conv.attr("explicit_paddings").and_then(Attr::ints).unwrap_or_default();
    let before = match conv.attr("padding").and_then(Attr::string)? {
        "VALID" => vec![0; paddings.len()],
        "EXPLICIT" if given.len() == paddings.len() => given.to_vec(),
        _ => return None,
    };
    let format = conv.attr("data_format").and_then(Attr::string).unwrap_or("NHWC");
    let rank = paddings.len() / 2;
    let channel = if format.starts_with("NC") { 1 } else { rank.checked_sub(1)? };
    let spatial = |at: usize| at / 2 != 0 && at / 2 != channel;
    let expected = if fused_product(conv.op()) == Some("_WgpuFusedConv3D") { 5 } else { 4 };
    let fits = rank == expected
        && paddings.iter().enumerate().all(|(at, p)| *p == 0 || (*p > 0 && spatial(at)));
    fits.then(|| (input.node, paddings.iter().zip(&before).map(|(a, b)| a + b).collect()))
}
