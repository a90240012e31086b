//! `_WgpuHostStack`, `…Push`, `…Pop`: what the steps of a loop leave in host memory for its
//! gradient, kept there.
//!
//! TensorFlow keeps it in lists, whose int32 elements are on the device: each shape that a step
//! leaves would be sent there, and the gradient's step would wait until it is read back. A stack is
//! an int32 vector in host memory: the most elements that it may have (-1 for any number), how many
//! it has, the rank of the shape that elements must fit (-1 for any shape) and its extents (-1 for
//! any extent); then for each element its numbers, its extents and its rank. Pushing copies the
//! vector, which is little as long as elements are shapes and counters.

use crate::error::{Error, Result};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::op::{Attrs, OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Dims, HostTensor};

/// A new stack for elements of a shape, of at most so many.
pub const NEW: &str = "_WgpuHostStack";
/// A stack with one element more.
pub const PUSH: &str = "_WgpuHostStackPush";
/// A stack without its last element, and that one.
pub const POP: &str = "_WgpuHostStackPop";

/// What the docs say of it.
const NOTE: &str = "on the host, for shapes and counters that a loop's gradient needs there";
/// Numbers in front of the extents that elements must have.
const HEADER: usize = 3;

/// Their signatures.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: NEW,
        inputs: &["element_shape: int32", "max_num_elements: int32"],
        outputs: &["stack: int32"],
        attrs: &[],
        stateful: false,
        shape: vectors,
    },
    OpDefinition {
        name: PUSH,
        inputs: &["stack: int32", "x: int32"],
        outputs: &["result: int32"],
        attrs: &[],
        stateful: false,
        shape: vectors,
    },
    OpDefinition {
        name: POP,
        inputs: &["stack: int32", "element_shape: int32"],
        outputs: &["result: int32", "x: int32"],
        attrs: &[],
        stateful: false,
        shape: vectors,
    },
];

/// A vector of unknown length. Nothing is known of what is popped.
fn vectors(_: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![Some(vec![None])])
}

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    let ops: [(&str, &[&str], Compute); 3] = [
        (NEW, &["element_shape", "max_num_elements", "stack"], new),
        (PUSH, &["stack", "x", "result"], push),
        (POP, &["stack", "element_shape", "result", "x"], pop),
    ];
    for (op, arguments, compute) in ops {
        registry.op(op).host(arguments).note(NOTE).kernel(move |_: &dyn Attrs| Ok(compute));
    }
}

/// A stack's numbers, and how many of them are in front of the elements.
fn stack(ctx: &mut dyn OpContext) -> Result<(Vec<i32>, usize)> {
    let stack = ctx.host_input(0)?.values::<i32>();
    let front = HEADER + stack.get(2).map_or(0, |rank| (*rank).max(0) as usize);
    require!(stack.len() >= front, "{} numbers are no stack", stack.len());
    Ok((stack, front))
}

/// The shape that elements must have, by an op's input: -1 alone for any.
fn element_shape(ctx: &mut dyn OpContext, i: usize) -> Result<Option<Vec<i32>>> {
    let shape = ctx.host_input(i)?;
    let extents = shape.values::<i32>();
    if shape.dims.is_empty() {
        require!(
            extents == [-1],
            "The only valid scalar shape tensor is the fully unknown shape specified as -1."
        );
        return Ok(None);
    }
    Ok(Some(extents))
}

fn fits(dims: &[i32], shape: &[i32]) -> bool {
    dims.len() == shape.len() && dims.iter().zip(shape).all(|(n, e)| *e < 0 || n == e)
}

fn output(ctx: &mut dyn OpContext, stack: &[i32]) -> Result<()> {
    ctx.host_output(0, &HostTensor::i32(&[stack.len()], stack))
}

fn new(ctx: &mut dyn OpContext) -> Result<()> {
    let (shape, most) = (element_shape(ctx, 0)?, ctx.host_i64(1, "max_num_elements")?);
    let mut stack = vec![most as i32, 0, shape.as_ref().map_or(-1, |s| s.len() as i32)];
    stack.extend(shape.unwrap_or_default());
    output(ctx, &stack)
}

fn push(ctx: &mut dyn OpContext) -> Result<()> {
    let ((mut stack, front), x) = (stack(ctx)?, ctx.host_input(1)?);
    let dims: Vec<i32> = x.dims.iter().map(|n| *n as i32).collect();
    let (most, len, shape) = (stack[0], stack[1], &stack[HEADER..front]);
    require!(
        stack[2] < 0 || fits(&dims, shape),
        "Tried to append a tensor with incompatible shape to a list. Op element shape: {dims:?} \
         list shape: {shape:?}"
    );
    require!(
        most < 0 || len < most,
        "Tried to push item into a full list list size: {len} max_num_elements: {most}"
    );
    stack[1] += 1;
    stack.extend(x.values::<i32>());
    stack.extend(&dims);
    stack.push(dims.len() as i32);
    output(ctx, &stack)
}

fn pop(ctx: &mut dyn OpContext) -> Result<()> {
    let ((mut stack, front), shape) = (stack(ctx)?, element_shape(ctx, 1)?);
    require!(stack[1] > 0, "Trying to pop from an empty list.");
    let mut take = |n: usize| {
        let rest = stack.len().checked_sub(n).filter(|rest| *rest >= front);
        rest.map(|rest| stack.split_off(rest))
            .ok_or_else(|| Error::Internal("a stack has lost an element".into()))
    };
    let rank = take(1)?[0];
    let dims = take(rank as usize)?;
    let x = take(dims.iter().map(|n| *n as usize).product())?;
    require!(
        shape.as_ref().is_none_or(|shape| fits(&dims, shape)),
        "Incompatible shapes during merge: {:?} vs. {dims:?}",
        shape.unwrap_or_default()
    );
    stack[1] -= 1;
    output(ctx, &stack)?;
    let dims: Dims = dims.iter().map(|n| *n as usize).collect();
    ctx.host_output(1, &HostTensor::i32(&dims, &x))
}
