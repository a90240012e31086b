//! `_WgpuHostStack`, `…Push`, `…Pop`: stacks in host memory of the values that a loop's steps leave
//! there for its gradient.
//!
//! TensorFlow keeps these values in lists, whose int32 elements are on the device: each shape that
//! a step leaves would be sent to the device, and the gradient's step would wait until it is read
//! back. A stack is an int32 vector in host memory. It begins with the most elements that the stack
//! may have (-1 for any number), the number that it has, the rank of the shape that elements must
//! fit (-1 for any shape), how many numbers of the vector are in use, and that shape's extents (-1
//! for any extent). Then come, for each element, its numbers, its extents and its rank; then room
//! for more. A push or a pop changes the vector in place if nothing else reads it; a push without
//! room copies it into one that is twice as long.

use crate::error::{Error, Result};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::op::{Attrs, OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Dims, HostTensor};

/// A new stack for elements of a shape, with the most elements that it may have.
pub const NEW: &str = "_WgpuHostStack";
/// A stack with one element more.
pub const PUSH: &str = "_WgpuHostStackPush";
/// A stack without its last element, and that element.
pub const POP: &str = "_WgpuHostStackPop";

/// The docs' note on these ops.
const NOTE: &str = "on the host, for shapes and counters that a loop's gradient needs there";
/// Numbers in front of the extents that elements must have.
const HEADER: usize = 4;
/// Positions of the numbers that change.
const LEN: usize = 1;
const USED: usize = 3;
/// A new stack has room for at least this many numbers.
const ROOM: usize = 64;

/// The signatures of the ops.
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

/// A vector of unknown length. Nothing is known of the element that is popped.
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

/// The numbers in front of a stack's elements.
struct Head {
    most: i32,
    len: i32,
    shape: Option<Vec<i32>>,
    used: usize,
    /// Numbers in front of the elements.
    front: usize,
    /// Numbers that the vector holds.
    capacity: usize,
}

impl Head {
    /// The head of the stack that is input 0.
    fn read(ctx: &mut dyn OpContext) -> Result<Self> {
        let mut head = None;
        ctx.read_host(0, &mut |stack| {
            head = Self::parse(stack);
            Ok(())
        })?;
        head.ok_or_else(|| Error::InvalidArgument("the vector is no stack".into()))
    }

    fn parse(stack: &[u8]) -> Option<Self> {
        let capacity = stack.len() / size_of::<i32>();
        let [most, len, rank, used] = numbers(stack, 0, HEADER)?.try_into().ok()?;
        let extents = usize::try_from(rank).unwrap_or(0);
        let (used, front) = (usize::try_from(used).ok()?, HEADER.checked_add(extents)?);
        let shape = if rank < 0 { None } else { Some(numbers(stack, HEADER, extents)?) };
        let is_stack = len >= 0 && front <= used && used <= capacity;
        is_stack.then_some(Self { most, len, shape, used, front, capacity })
    }

    /// The last element with its extents, and where it begins.
    fn last(&self, stack: &[u8]) -> Option<(Vec<i32>, Vec<i32>, usize)> {
        let before = |end: usize, n: i32| end.checked_sub(n.try_into().ok()?);
        let at = self.used - 1;
        let rank = *numbers(stack, at, 1)?.first()?;
        let at = before(at, rank)?;
        let dims = numbers(stack, at, rank as usize)?;
        let count = dims.iter().try_fold(1_i32, |n, extent| n.checked_mul(*extent))?;
        let at = before(at, count)?;
        let x = numbers(stack, at, count as usize)?;
        (at >= self.front).then_some((x, dims, at))
    }
}

/// `n` numbers of a stack from number `at` on.
fn numbers(stack: &[u8], at: usize, n: usize) -> Option<Vec<i32>> {
    const SIZE: usize = size_of::<i32>();
    let bytes = stack.get(at.checked_mul(SIZE)?..at.checked_add(n)?.checked_mul(SIZE)?)?;
    Some(bytes.chunks_exact(SIZE).map(bytemuck::pod_read_unaligned).collect())
}

/// Puts numbers into a stack from number `at` on, where it has room.
fn put(stack: &mut [u8], at: usize, values: &[i32]) {
    let at = at * size_of::<i32>();
    stack[at..][..size_of_val(values)].copy_from_slice(bytemuck::cast_slice(values));
}

/// The shape that elements must have, from an op's input: -1 alone stands for any shape.
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

/// The length of a vector for `used` numbers.
fn capacity(used: usize) -> Result<usize> {
    let capacity = used.max(ROOM).checked_next_power_of_two();
    capacity.filter(|n| i32::try_from(*n).is_ok()).ok_or_else(|| {
        Error::ResourceExhausted(format!("a stack of {used} numbers exceeds 32 bits"))
    })
}

fn new(ctx: &mut dyn OpContext) -> Result<()> {
    let (shape, most) = (element_shape(ctx, 0)?, ctx.host_i64(1, "max_num_elements")?);
    let rank = shape.as_ref().map_or(-1, |s| s.len() as i32);
    let shape = shape.unwrap_or_default();
    let used = HEADER + shape.len();
    let mut stack = vec![most as i32, 0, rank, used as i32];
    stack.extend(shape);
    stack.resize(capacity(used)?, 0);
    ctx.host_output(0, &HostTensor::i32(&[stack.len()], &stack))
}

fn push(ctx: &mut dyn OpContext) -> Result<()> {
    let (head, x) = (Head::read(ctx)?, ctx.host_input(1)?);
    let dims: Vec<i32> = x.dims.iter().map(|n| *n as i32).collect();
    let Head { most, len, used, .. } = head;
    require!(
        head.shape.as_ref().is_none_or(|shape| fits(&dims, shape)),
        "Tried to append a tensor with incompatible shape to a list. Op element shape: {dims:?} \
         list shape: {:?}",
        head.shape.unwrap_or_default()
    );
    require!(
        most < 0 || len < most,
        "Tried to push item into a full list list size: {len} max_num_elements: {most}"
    );
    let element = [x.values::<i32>(), dims.clone(), vec![dims.len() as i32]].concat();
    let end = used + element.len();
    let capacity = capacity(end)?;
    let add = |stack: &mut [u8]| {
        put(stack, LEN, &[len + 1]);
        put(stack, USED, &[end as i32]);
        put(stack, used, &element);
        Ok(())
    };
    if end <= head.capacity {
        return ctx.change_host(0, 0, &mut { add });
    }
    let mut stack = ctx.host_input(0)?;
    stack.bytes.resize(capacity * size_of::<i32>(), 0);
    stack.dims = Dims::from_slice(&[capacity]);
    add(&mut stack.bytes)?;
    ctx.host_output(0, &stack)
}

fn pop(ctx: &mut dyn OpContext) -> Result<()> {
    let (head, shape) = (Head::read(ctx)?, element_shape(ctx, 1)?);
    require!(head.len > 0, "Trying to pop from an empty list.");
    let mut last = None;
    ctx.read_host(0, &mut |stack| {
        last = head.last(stack);
        Ok(())
    })?;
    let (x, dims, at) =
        last.ok_or_else(|| Error::Internal("a stack has lost an element".into()))?;
    require!(
        shape.as_ref().is_none_or(|shape| fits(&dims, shape)),
        "Incompatible shapes during merge: {:?} vs. {dims:?}",
        shape.unwrap_or_default()
    );
    ctx.change_host(0, 0, &mut |stack| {
        put(stack, LEN, &[head.len - 1]);
        put(stack, USED, &[at as i32]);
        Ok(())
    })?;
    let dims: Dims = dims.iter().map(|n| *n as usize).collect();
    ctx.host_output(1, &HostTensor::i32(&dims, &x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of an element `[7, 8]` and the scalar 9.
    fn example() -> Vec<i32> {
        let mut stack = vec![-1, 2, -1, 10, 7, 8, 2, 1, 9, 0];
        stack.resize(ROOM, 0);
        stack
    }

    #[test]
    fn elements_are_found_from_the_end() {
        let stack = example();
        let bytes: &[u8] = bytemuck::cast_slice(&stack);
        let mut head = Head::parse(bytes).unwrap();
        assert_eq!((head.most, head.len, head.front, head.capacity), (-1, 2, HEADER, ROOM));
        assert_eq!(head.last(bytes), Some((vec![9], vec![], 8)));
        head.used = 8;
        assert_eq!(head.last(bytes), Some((vec![7, 8], vec![2], 4)));
    }

    #[test]
    fn other_vectors_are_refused() {
        let refuse = |at: usize, value: i32| {
            let mut stack = example();
            stack[at] = value;
            let bytes: &[u8] = bytemuck::cast_slice(&stack);
            Head::parse(bytes).and_then(|head| head.last(bytes)).is_none()
        };
        assert!(!refuse(0, 5));
        assert!(
            [(1, -1), (2, 100), (3, 3), (3, 1000), (3, -1), (9, -1), (9, 5)]
                .into_iter()
                .all(|(at, value)| refuse(at, value))
        );
        assert!(Head::parse(&[1, 2, 3]).is_none());
        assert!(capacity(1 << 31).is_err());
    }
}
