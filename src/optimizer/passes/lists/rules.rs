//! Shapes of outputs from those of inputs, for the ops that loops of recurrent layers and their gradients are made of.

use super::Shapes;
use crate::kernels::scalar;
use crate::kernels::scalar::row;
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};

/// The shapes of a node's outputs in their order, as far as there is a rule.
pub fn results(shapes: &Shapes<'_>, id: NodeId) -> Vec<Option<Shape>> {
    let node = shapes.graph.node(id);
    let inputs = node.inputs();
    let first = || shapes.of(*inputs.first()?);
    match node.op() {
        "BiasAdd" | "Cast" | "Enter" | "Exit" | "Identity" | "NextIteration" | "OnesLike" | "PreventGradient"
        | "StopGradient" | "ZerosLike" => vec![first()],
        "Switch" => vec![first(), first()],
        "TensorListGetItem" => vec![shapes.lists.element(shapes, inputs[0])],
        "TensorListPopBack" => vec![None, shapes.lists.element(shapes, inputs[0])],
        "AddN" => vec![shapes.common(inputs)],
        "ConcatV2" => vec![concatenation(shapes, inputs)],
        "MatMul" => {
            let flag = |name| node.attr(name).and_then(|a| a.bool()) == Some(true);
            vec![product(shapes, inputs, [flag("transpose_a"), flag("transpose_b")])]
        }
        op => vec![scalar::find(op).filter(|row| row.inputs.len() == inputs.len()).and_then(|row| match row.shapes {
            row::Shapes::Broadcast | row::Shapes::BroadcastOr(_) => broadcast(shapes, inputs),
            row::Shapes::Same => shapes.common(inputs),
            _ => None,
        })],
    }
}

/// numpy broadcasting.
fn broadcast(shapes: &Shapes<'_>, inputs: &[Output]) -> Option<Shape> {
    let all: Vec<Shape> = inputs.iter().map(|input| shapes.of(*input)).collect::<Option<_>>()?;
    let rank = all.iter().map(|s| s.len()).max()?;
    let extent = |d: usize| {
        let mut extents =
            all.iter().filter_map(|s| s.get((d + s.len()).checked_sub(rank)?)).filter(|d| **d != Dim::Known(1));
        let Some(first) = extents.next() else { return Some(Dim::Known(1)) };
        extents.all(|other| other == first).then_some(*first)
    };
    (0..rank).map(extent).collect()
}

/// Values, then the axis.
fn concatenation(shapes: &Shapes<'_>, inputs: &[Output]) -> Option<Shape> {
    let (axis, values) = inputs.split_last()?;
    let axis = *shapes.graph.constant(*axis)?.to_i64().ok()?.first()?;
    let all: Vec<Shape> = values.iter().map(|input| shapes.of(*input)).collect::<Option<_>>()?;
    let mut result = all.first()?.clone();
    let axis = usize::try_from(if axis < 0 { axis + result.len() as i64 } else { axis }).ok()?;
    let others = |s: &Shape| s.iter().zip(&result).enumerate().all(|(d, (a, b))| d == axis || a == b);
    if axis >= result.len() || !all.iter().all(|s| s.len() == result.len() && others(s)) {
        return None;
    }
    result[axis] = Dim::Known(all.iter().map(|s| s[axis].known()).sum::<Option<usize>>()?);
    Some(result)
}

/// A product of two matrices.
fn product(shapes: &Shapes<'_>, inputs: &[Output], transposed: [bool; 2]) -> Option<Shape> {
    let [a, b] = inputs else { return None };
    let (a, b) = (shapes.of(*a)?, shapes.of(*b)?);
    let matrices = a.len() == 2 && b.len() == 2;
    matrices.then(|| [a[usize::from(transposed[0])], b[usize::from(!transposed[1])]].into_iter().collect())
}
