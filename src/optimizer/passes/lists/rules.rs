//! Shapes of outputs from shapes of inputs, for the ops in the loops of recurrent layers, in losses
//! and in their gradients.

use super::{Shapes, extents, sums};
use crate::kernels::scalar;
use crate::kernels::scalar::row;
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};

/// The shapes of a node's outputs, in their order, as far as there is a rule.
pub fn results(shapes: &Shapes<'_>, id: NodeId) -> Vec<Option<Shape>> {
    let node = shapes.graph.node(id);
    let inputs = node.inputs();
    let first = || shapes.of(*inputs.first()?);
    match node.op() {
        "BiasAdd" | "Cast" | "Enter" | "Exit" | "Identity" | "NextIteration" | "OnesLike"
        | "PreventGradient" | "StopGradient" | "ZerosLike" => vec![first()],
        "Switch" => vec![first(), first()],
        "TensorListGetItem" => vec![shapes.lists.element(shapes, inputs[0])],
        "TensorListPopBack" => vec![None, shapes.lists.element(shapes, inputs[0])],
        "TensorListStack" => vec![stack(shapes, id)],
        "Fill" => vec![inputs.first().and_then(|dims| extents::of(shapes, *dims))],
        "BroadcastTo" | "Reshape" => {
            vec![inputs.get(1).and_then(|shape| extents::of(shapes, *shape))]
        }
        "Split" => parts(shapes, id),
        "StridedSlice" => vec![slice(shapes, id)],
        "StridedSliceGrad" => vec![inputs.first().and_then(|shape| extents::of(shapes, *shape))],
        "Sum" => vec![first().filter(|_| sums::keeps_all(shapes, id))],
        "Transpose" => vec![transpose(shapes, inputs)],
        "AddN" => vec![shapes.common(inputs)],
        "ConcatV2" => vec![concatenation(shapes, inputs)],
        "SparseSoftmaxCrossEntropyWithLogits" => {
            vec![inputs.get(1).and_then(|labels| shapes.of(*labels)), first()]
        }
        "MatMul" => {
            let flag = |name| node.attr(name).and_then(|a| a.bool()) == Some(true);
            vec![product(shapes, inputs, [flag("transpose_a"), flag("transpose_b")])]
        }
        "BatchMatMulV2" => {
            let flag = |name| node.attr(name).and_then(|a| a.bool()) == Some(true);
            vec![products(shapes, inputs, [flag("adj_x"), flag("adj_y")])]
        }
        op => {
            vec![scalar::find(op).filter(|row| row.inputs.len() == inputs.len()).and_then(|row| {
                match row.shapes {
                    row::Shapes::Broadcast | row::Shapes::BroadcastOr(_) => {
                        broadcast(shapes, inputs)
                    }
                    row::Shapes::Same => shapes.common(inputs),
                    _ => None,
                }
            })]
        }
    }
}

/// The shape of a batch of matrix products. One operand has the whole batch; the other has it too,
/// or has none.
fn products(shapes: &Shapes<'_>, inputs: &[Output], transposed: [bool; 2]) -> Option<Shape> {
    let [a, b] = inputs else { return None };
    let (a, b) = (shapes.of(*a)?, shapes.of(*b)?);
    let (batch_a, edges_a) = a.split_at_checked(a.len().checked_sub(2)?)?;
    let (batch_b, edges_b) = b.split_at_checked(b.len().checked_sub(2)?)?;
    let batch = if batch_a.len() >= batch_b.len() { batch_a } else { batch_b };
    let whole = |other: &[Dim]| other.is_empty() || other == batch;
    (whole(batch_a) && whole(batch_b)).then(|| {
        let edges = [edges_a[usize::from(transposed[0])], edges_b[usize::from(!transposed[1])]];
        batch.iter().copied().chain(edges).collect()
    })
}

/// The shape that results from numpy broadcasting.
fn broadcast(shapes: &Shapes<'_>, inputs: &[Output]) -> Option<Shape> {
    let all: Vec<Shape> = inputs.iter().map(|input| shapes.of(*input)).collect::<Option<_>>()?;
    let rank = all.iter().map(|s| s.len()).max()?;
    let extent = |d: usize| {
        let mut extents = all
            .iter()
            .filter_map(|s| s.get((d + s.len()).checked_sub(rank)?))
            .filter(|d| **d != Dim::Known(1));
        let Some(first) = extents.next() else { return Some(Dim::Known(1)) };
        extents.all(|other| other == first).then_some(*first)
    };
    (0..rank).map(extent).collect()
}

/// The shape of a concatenation. Its inputs are the values, then the axis.
fn concatenation(shapes: &Shapes<'_>, inputs: &[Output]) -> Option<Shape> {
    let (axis, values) = inputs.split_last()?;
    let axis = *shapes.graph.constant(*axis)?.to_i64().ok()?.first()?;
    let all: Vec<Shape> = values.iter().map(|input| shapes.of(*input)).collect::<Option<_>>()?;
    let mut result = all.first()?.clone();
    let axis = usize::try_from(if axis < 0 { axis + result.len() as i64 } else { axis }).ok()?;
    let others =
        |s: &Shape| s.iter().zip(&result).enumerate().all(|(d, (a, b))| d == axis || a == b);
    if axis >= result.len() || !all.iter().all(|s| s.len() == result.len() && others(s)) {
        return None;
    }
    result[axis] = Dim::Known(all.iter().map(|s| s[axis].known()).sum::<Option<usize>>()?);
    Some(result)
}

/// The shape of a product of two matrices.
fn product(shapes: &Shapes<'_>, inputs: &[Output], transposed: [bool; 2]) -> Option<Shape> {
    let [a, b] = inputs else { return None };
    let (a, b) = (shapes.of(*a)?, shapes.of(*b)?);
    let matrices = a.len() == 2 && b.len() == 2;
    matrices.then(|| {
        [a[usize::from(transposed[0])], b[usize::from(!transposed[1])]].into_iter().collect()
    })
}

/// The shapes of equal parts of a tensor. The inputs are the axis, then the value.
fn parts(shapes: &Shapes<'_>, id: NodeId) -> Vec<Option<Shape>> {
    let node = shapes.graph.node(id);
    let count = node.infos.len();
    let part = || {
        let [axis, value] = node.inputs() else { return None };
        let mut shape = shapes.of(*value)?;
        let axis = *shapes.graph.constant(*axis)?.to_i64().ok()?.first()?;
        let axis = usize::try_from(if axis < 0 { axis + shape.len() as i64 } else { axis }).ok()?;
        let extent = shape.get_mut(axis)?;
        let whole = extent.known().filter(|n| n.is_multiple_of(count))?;
        *extent = Dim::Known(whole.checked_div(count)?);
        Some(shape)
    };
    vec![part(); count]
}

/// The shape of a slice that keeps all unknown extents whole.
fn slice(shapes: &Shapes<'_>, id: NodeId) -> Option<Shape> {
    let inputs = shapes.graph.node(id).inputs();
    let whole = shapes.of(*inputs.first()?)?;
    let entries = shapes.graph.constant(*inputs.get(3)?)?.dims.iter().product();
    // Each dimension is cut on its own: dimensions that stay whole may have any extent.
    let dims: Vec<usize> = whole.iter().map(|d| d.known().unwrap_or(1)).collect();
    let (spec, masks) = extents::slice(shapes, id, &dims)?;
    let bit = |mask: i64, d: usize| d < entries && mask & (1 << d) != 0;
    let is_whole =
        |d: usize| d >= entries || (bit(masks.begin & masks.end, d) && spec.stride[d] == 1);
    let kept = (0..whole.len()).filter(|d| !bit(masks.shrink_axis, *d));
    let extent = |d: usize| match whole[d] {
        Dim::Known(_) => Some(Dim::Known(spec.count[d])),
        unknown => is_whole(d).then_some(unknown),
    };
    if masks.ellipsis != 0 || masks.new_axis != 0 { None } else { kept.map(extent).collect() }
}

/// The shape of all elements of a list, stacked. Elements that were never set get the shape of the
/// others, unless the node gives a whole shape.
fn stack(shapes: &Shapes<'_>, id: NodeId) -> Option<Shape> {
    let [list, said] = shapes.graph.node(id).inputs() else { return None };
    let count = *shapes.graph.info(Output { node: id, port: 0 }).shape.as_ref()?.first()?;
    let element = shapes.lists.element(shapes, *list).or_else(|| {
        let said = shapes.graph.constant(*said)?.to_i64().ok()?;
        said.iter().any(|n| *n < 0).then(|| shapes.lists.given(shapes, *list))?
    })?;
    (count != Dim::Unknown).then(|| std::iter::once(count).chain(element).collect())
}

/// The shape after a permutation of the dimensions.
fn transpose(shapes: &Shapes<'_>, inputs: &[Output]) -> Option<Shape> {
    let [value, permutation] = inputs else { return None };
    let value = shapes.of(*value)?;
    let permutation =
        shapes.graph.constant(*permutation)?.to_i64().ok().filter(|p| p.len() == value.len())?;
    let extent = |p: i64| {
        value.get(usize::try_from(if p < 0 { p + value.len() as i64 } else { p }).ok()?).copied()
    };
    permutation.into_iter().map(extent).collect()
}
