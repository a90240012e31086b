//! Integers that the graph computes from shapes, and that are extents of tensors.

use std::cell::Cell;

use super::Shapes;
use crate::dtype::DType;
use crate::kernels::movement::slice::{Masks, StridedSpec};
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};

/// The largest number of nodes between a value and the shapes from which it is computed.
const MAX_DEPTH: u32 = 8;
/// The largest number of nodes that are visited for one value.
const MAX_NODES: u32 = 512;

/// The elements of a vector or scalar of extents that are the same each time that its node runs. A
/// scalar counts as a vector of one element.
pub fn of(shapes: &Shapes<'_>, output: Output) -> Option<Shape> {
    search(shapes, output, MAX_DEPTH, &Cell::new(MAX_NODES))
}

/// The extents of which a vector consists that is the target of a `Reshape`; `None` for an extent
/// that follows from the others.
pub fn of_target(shapes: &Shapes<'_>, output: Output) -> Option<Vec<Option<Dim>>> {
    if let Some(target) = constant(shapes, output) {
        let extent = |n: i64| usize::try_from(n).ok().map(Dim::Known);
        return Some(target.into_iter().map(extent).collect());
    }
    let node = shapes.graph.node(output.node);
    let scalar = |input: &Output| match constant(shapes, *input) {
        Some(number) if number == [-1] => Some(None),
        _ => Some(Some(single(of(shapes, *input)?)?)),
    };
    (node.op() == "Pack").then(|| node.inputs().iter().map(scalar).collect())?
}

/// `left` is the number of nodes that may still be visited.
fn search(shapes: &Shapes<'_>, output: Output, depth: u32, left: &Cell<u32>) -> Option<Shape> {
    let depth = depth.checked_sub(1)?;
    left.set(left.get().checked_sub(1)?);
    let node = shapes.graph.node(output.node);
    let inputs = node.inputs();
    let input = |index: usize| search(shapes, *inputs.get(index)?, depth, left);
    let is_from_list = matches!(node.op(), "TensorListGetItem" | "TensorListPopBack");
    if !is_from_list && shapes.graph.info(output).rank().is_none_or(|rank| rank > 1) {
        return None;
    }
    match node.op() {
        "Const" => constant(shapes, output)?
            .into_iter()
            .map(|n| Some(Dim::Known(usize::try_from(n).ok()?)))
            .collect(),
        "Shape" => shapes.of(*inputs.first()?),
        // TensorFlow keeps the shapes of the variables that a function captures in attributes of
        // the function's arguments.
        "VariableShape" => {
            let handle = shapes.graph.node(inputs.first()?.node);
            let of_variables =
                (handle.op() == "_Arg").then(|| handle.attr("_handle_shapes")?.shapes())??;
            let [Some(extents)] = &of_variables[..] else { return None };
            Some(extents.iter().map(|n| Dim::Known(*n)).collect())
        }
        "ShapeN" => shapes.of(*inputs.get(output.port as usize)?),
        "Enter" | "Exit" | "ExpandDims" | "Identity" | "Switch" => input(0),
        "Cast" if ["SrcT", "DstT"].map(|name| node.dtype(name)).iter().all(is_extent) => input(0),
        "Pack" => {
            inputs.iter().map(|scalar| single(search(shapes, *scalar, depth, left)?)).collect()
        }
        "ConcatV2" => {
            let vectors = inputs.len().checked_sub(1)?;
            let parts: Vec<Shape> = (0..vectors).map(input).collect::<Option<_>>()?;
            Some(parts.into_iter().flatten().collect())
        }
        "GatherV2" => {
            let vector = input(0)?;
            let at = constant(shapes, *inputs.get(1)?)?;
            at.into_iter().map(|i| vector.get(usize::try_from(i).ok()?).copied()).collect()
        }
        "Prod" => {
            let all = input(0)?.into_iter().filter(|d| *d != Dim::Known(1));
            let mut open = all.clone().filter(|d| d.known().is_none());
            let known: usize = all.filter_map(Dim::known).product();
            let product = match (open.next(), open.next(), known) {
                (None, _, n) => Dim::Known(n),
                (Some(extent), None, 1) => extent,
                _ => return None,
            };
            let whole = shapes.graph.info(output).rank() == Some(0);
            whole.then(|| Shape::from_slice(&[product]))
        }
        "Slice" => {
            let (vector, begin, size) = (
                input(0)?,
                single_number(shapes, *inputs.get(1)?)?,
                single_number(shapes, *inputs.get(2)?)?,
            );
            let begin = usize::try_from(begin).ok()?;
            let end = if size < 0 {
                vector.len()
            } else {
                begin.checked_add(usize::try_from(size).ok()?)?
            };
            vector.get(begin..end).map(Shape::from_slice)
        }
        "StridedSlice" => {
            let vector = input(0)?;
            let (spec, _) = slice(shapes, output.node, &[vector.len()])?;
            let at = |i: usize| {
                vector
                    .get(usize::try_from(spec.begin[0] + i as i64 * spec.stride[0]).ok()?)
                    .copied()
            };
            (0..spec.count[0]).map(at).collect()
        }
        _ if is_from_list => {
            let items = shapes.lists.items(*inputs.first()?)?;
            let (first, others) = items.split_first()?;
            let first = search(shapes, *first, depth, left)?;
            others
                .iter()
                .all(|other| search(shapes, *other, depth, left).as_ref() == Some(&first))
                .then_some(first)
        }
        _ => None,
    }
}

/// The part that a `StridedSlice` takes of a tensor with these extents, if it is constant.
pub fn slice(shapes: &Shapes<'_>, id: NodeId, dims: &[usize]) -> Option<(StridedSpec, Masks)> {
    let node = shapes.graph.node(id);
    let masks = node.slice_masks();
    let [_, begin, end, strides] = node.inputs() else { return None };
    let [begin, end, strides] = [begin, end, strides].map(|vector| constant(shapes, *vector));
    Some((StridedSpec::resolve(&begin?, &end?, &strides?, &masks, dims).ok()?, masks))
}

/// Whether a type is one for extents.
fn is_extent(dtype: &Option<DType>) -> bool {
    matches!(dtype, Some(DType::I32 | DType::I64))
}

/// The element of a vector that has only one.
fn single(extents: Shape) -> Option<Dim> {
    if let [extent] = extents[..] { Some(extent) } else { None }
}

fn constant(shapes: &Shapes<'_>, output: Output) -> Option<Vec<i64>> {
    shapes.graph.constant(output)?.to_i64().ok()
}

fn single_number(shapes: &Shapes<'_>, output: Output) -> Option<i64> {
    if let [n] = constant(shapes, output)?[..] { Some(n) } else { None }
}
