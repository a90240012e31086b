//! Concat and Pack write parts of one output; Split, SplitV and Unpack read parts of one input.
//!
//! All see a tensor as (outer, axis, inner) with the inner extents merged into rows.

use super::plan::MemoryType;
use super::remap::{Axis, Background, Remap, Rule};
use super::shape;
use super::together::{self, Direction, Section};
use super::unit::Unit;
use super::walk::copy_strided;
use crate::device::Device;
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext, OpContextExt};
use crate::layout::Iteration;
use crate::tensor::{Dims, HostTensor, Tensor};
use crate::{invalid, require};

/// Rows of `row` elements in a tensor with `outer` rows of `total` elements, from element `begin`
/// of each.
#[derive(Debug, Clone, Copy)]
struct RowSlice {
    outer: usize,
    total: usize,
    begin: usize,
    row: usize,
}

impl RowSlice {
    /// Copies the dense tensor `src` into this part of `dst`.
    fn write(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        let Self { outer, total, begin, row } = *self;
        if outer * row == 0 {
            return Ok(());
        }
        let unit = Unit::of(src.dtype);
        let lanes = unit.lanes() as usize;
        // Packed rows that do not fill words share words with their neighbours: then one pass over
        // the whole output gives every word one owner, which keeps the elements that the other
        // parts wrote.
        let whole_words = [total, begin, row].iter().all(|n| n % lanes == 0)
            && src.address.is_multiple_of(4)
            && dst.address.is_multiple_of(4);
        if outer > 1 && !whole_words {
            return Remap {
                rule: Rule::Place,
                axes: [
                    Axis { out: outer, extent: outer, begin: 0, step: 1, stride: row as i64 },
                    Axis { out: total, extent: row, begin, step: 1, stride: 1 },
                ]
                .into_iter()
                .collect(),
                offset: 0,
                background: Background::Keep,
            }
            .enqueue(device, src, dst);
        }
        let walk = Iteration::over(&[outer, row])
            .operand(&[row as i64, 1], 0)
            .operand(&[total as i64, 1], begin as i64);
        copy_strided(device, &walk, src, dst)
    }

    /// Copies this part of `src` into the dense tensor `dst`.
    fn read(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        let walk = Iteration::over(&[self.outer, self.row])
            .operand(&[self.total as i64, 1], self.begin as i64)
            .operand(&[self.row as i64, 1], 0);
        copy_strided(device, &walk, src, dst)
    }

    fn write_host(&self, src: &HostTensor, dst: &mut [u8]) {
        let (size, n) = (src.dtype.size(), self.row * src.dtype.size());
        for o in 0..self.outer {
            dst[(o * self.total + self.begin) * size..][..n]
                .copy_from_slice(&src.bytes[o * n..][..n]);
        }
    }

    fn read_host(&self, src: &HostTensor, dims: &[usize]) -> HostTensor {
        let (size, n) = (src.dtype.size(), self.row * src.dtype.size());
        let rows = (0..self.outer)
            .flat_map(|o| src.bytes[(o * self.total + self.begin) * size..][..n].iter().copied());
        HostTensor { dtype: src.dtype, dims: dims.into(), bytes: rows.collect() }
    }
}

/// Moves `sections` to or from `whole`, which has `outer` rows of `total` elements: together if
/// that pays, else one by one.
fn move_all(
    device: &Device,
    direction: Direction,
    whole: &Tensor,
    (outer, total): (usize, usize),
    sections: &[Section],
) -> Result<()> {
    if together::enqueue(device, direction, whole, (outer, total), sections)? {
        return Ok(());
    }
    for Section { tensor, begin, row } in sections {
        let part = RowSlice { outer, total, begin: *begin, row: *row };
        match direction {
            Direction::Split => part.read(device, whole, tensor)?,
            Direction::Join => part.write(device, tensor, whole)?,
        }
    }
    Ok(())
}

/// The products of the extents before and after `axis`.
fn around(dims: &[usize], axis: usize) -> (usize, usize) {
    (dims[..axis].iter().product(), dims[axis + 1..].iter().product())
}

/// ConcatV2 (values, then axis) and Concat (axis, then values).
pub struct Concat {
    /// Index of the axis input; `None` when it comes last.
    pub axis: Option<usize>,
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let n = ctx.num_inputs() - 1;
        let (axis_input, first) = self.axis.map_or((n, 0), |a| (a, 1));
        let axis = ctx.host_i64(axis_input, "Concat dim tensor")?;
        let inputs = (first..first + n).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let dims = inputs[0].dims.clone();
        let rank = dims.len() as i64;
        let canonical = if axis < 0 { axis + rank } else { axis };
        require!(
            (0..rank).contains(&canonical),
            "ConcatOp : Expected concatenating dimensions in the range [{}, {rank}), but got \
             {axis}",
            -rank
        );
        let axis = canonical as usize;
        let mut out = dims.clone();
        out[axis] = 0;
        for (i, t) in inputs.iter().enumerate() {
            require!(
                t.dims.len() == dims.len(),
                "ConcatOp : Ranks of all input tensors should match: shape[0] = {} vs. shape[{i}] \
                 = {}",
                shape(&dims),
                shape(&t.dims)
            );
            for d in (0..dims.len()).filter(|d| *d != axis) {
                require!(
                    t.dims[d] == dims[d],
                    "ConcatOp : Dimension {d} in both shapes must be equal: shape[0] = {} vs. \
                     shape[{i}] = {}",
                    shape(&dims),
                    shape(&t.dims)
                );
            }
            out[axis] += t.dims[axis];
        }
        // If only one tensor has elements, it is the result.
        let mut with_elements = (0..n).filter(|i| !inputs[*i].is_empty());
        if let (Some(only), None) = (with_elements.next(), with_elements.next()) {
            return ctx.forward_input(first + only, 0, &out);
        }
        let dst = ctx.output(0, inputs[0].dtype, &out)?;
        let (outer, inner) = around(&out, axis);
        let total = out[axis] * inner;
        let mut end = 0;
        let sections = inputs.into_iter().map(|tensor| {
            let row = tensor.dims[axis] * inner;
            end += row;
            Section { tensor, begin: end - row, row }
        });
        let sections: Vec<_> = sections.collect();
        move_all(ctx.device(), Direction::Join, &dst, (outer, total), &sections)
    }
}

/// Pack: N tensors of one shape along a new axis.
pub struct Pack {
    /// The new axis; it may be negative.
    pub axis: i64,
    /// Where the tensors live.
    pub memory: MemoryType,
}

impl Pack {
    fn place(&self, shapes: &[Dims]) -> Result<(usize, Dims)> {
        let dims = &shapes[0];
        let rank = dims.len() as i64 + 1;
        let axis = if self.axis < 0 { self.axis + rank } else { self.axis };
        require!((0..rank).contains(&axis), "axis = {} not in [{}, {rank})", self.axis, -rank);
        if let Some(i) = (1..shapes.len()).find(|i| shapes[*i] != *dims) {
            invalid!(
                "Shapes of all inputs must match: values[0].shape = {} != values[{i}].shape = {}",
                shape(dims),
                shape(&shapes[i])
            );
        }
        let mut out = dims.clone();
        out.insert(axis as usize, shapes.len());
        Ok((axis as usize, out))
    }
}

impl Kernel for Pack {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let n = ctx.num_inputs();
        require!(n > 0, "Pack needs at least one input");
        match self.memory {
            MemoryType::Device => {
                let inputs = (0..n).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
                let (axis, out) =
                    self.place(&inputs.iter().map(|t| t.dims.clone()).collect::<Vec<_>>())?;
                if n == 1 {
                    return ctx.forward_input(0, 0, &out);
                }
                let dst = ctx.output(0, inputs[0].dtype, &out)?;
                let (outer, row) = around(&out, axis);
                let inputs = inputs.into_iter().enumerate();
                let sections: Vec<_> =
                    inputs.map(|(i, tensor)| Section { tensor, begin: i * row, row }).collect();
                move_all(ctx.device(), Direction::Join, &dst, (outer, n * row), &sections)
            }
            MemoryType::Host => {
                let inputs = (0..n).map(|i| ctx.host_input(i)).collect::<Result<Vec<_>>>()?;
                let (axis, out) =
                    self.place(&inputs.iter().map(|t| t.dims.clone()).collect::<Vec<_>>())?;
                let (outer, row) = around(&out, axis);
                let dtype = inputs[0].dtype;
                let mut bytes = vec![0; out.iter().product::<usize>() * dtype.size()];
                for (i, t) in inputs.iter().enumerate() {
                    RowSlice { outer, total: n * row, begin: i * row, row }
                        .write_host(t, &mut bytes);
                }
                ctx.host_output(0, &HostTensor { dtype, dims: out, bytes })
            }
        }
    }
}

/// The outputs of a split: each one's extents, and its start in a row of the input.
struct Pieces {
    outer: usize,
    total: usize,
    pieces: Vec<(Dims, usize, usize)>,
}

impl Pieces {
    fn new(dims: &[usize], axis: usize, sizes: &[usize], keep_axis: bool) -> Self {
        let (outer, inner) = around(dims, axis);
        let mut begin = 0;
        let pieces = sizes
            .iter()
            .map(|n| {
                let mut out = Dims::from_slice(dims);
                if keep_axis {
                    out[axis] = *n;
                } else {
                    out.remove(axis);
                }
                let piece = (out, begin, n * inner);
                begin += n * inner;
                piece
            })
            .collect();
        Self { outer, total: dims[axis] * inner, pieces }
    }

    /// Reads the pieces of input `input` into the outputs.
    fn run(&self, ctx: &mut dyn OpContext, input: usize, memory: MemoryType) -> Result<()> {
        if let ([(out, ..)], MemoryType::Device) = (&self.pieces[..], memory) {
            return ctx.forward_input(input, 0, out);
        }
        let (outer, total) = (self.outer, self.total);
        match memory {
            MemoryType::Device => {
                let src = ctx.input(input)?;
                let outputs = self.pieces.iter().enumerate().map(|(o, (out, begin, row))| {
                    Ok(Section { tensor: ctx.output(o, src.dtype, out)?, begin: *begin, row: *row })
                });
                let sections = outputs.collect::<Result<Vec<_>>>()?;
                move_all(ctx.device(), Direction::Split, &src, (outer, total), &sections)
            }
            MemoryType::Host => {
                let src = ctx.host_input(input)?;
                for (o, (out, begin, row)) in self.pieces.iter().enumerate() {
                    let part = RowSlice { outer, total, begin: *begin, row: *row };
                    ctx.host_output(o, &part.read_host(&src, out))?;
                }
                Ok(())
            }
        }
    }
}

fn dims_of(ctx: &mut dyn OpContext, input: usize, memory: MemoryType) -> Result<Dims> {
    Ok(match memory {
        MemoryType::Device => ctx.input(input)?.dims,
        MemoryType::Host => ctx.host_input(input)?.dims,
    })
}

fn split_axis(axis: i64, rank: usize) -> Result<usize> {
    let rank = rank as i64;
    let canonical = if axis < 0 { axis + rank } else { axis };
    require!(
        (0..rank).contains(&canonical),
        "-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}"
    );
    Ok(canonical as usize)
}

/// Split: inputs split_dim (0) and value (1), into equal parts.
pub struct Split {
    /// Number of outputs.
    pub num_split: i64,
    /// Where the tensors live.
    pub memory: MemoryType,
}

impl Kernel for Split {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let axis = ctx.host_i64(0, "split_dim")?;
        let dims = dims_of(ctx, 1, self.memory)?;
        let axis = split_axis(axis, dims.len())?;
        require!(
            self.num_split > 0,
            "Number of ways to split should be > 0, but got {}",
            self.num_split
        );
        let n = self.num_split as usize;
        require!(
            dims[axis] % n == 0,
            "Number of ways to split should evenly divide the split dimension, but got split_dim \
             {axis} (size = {}) and num_split {n}",
            dims[axis]
        );
        Pieces::new(&dims, axis, &vec![dims[axis] / n; n], true).run(ctx, 1, self.memory)
    }
}

/// SplitV: inputs value (0), size_splits (1) and split_dim (2).
pub struct SplitV {
    /// Where the tensors live.
    pub memory: MemoryType,
}

impl Kernel for SplitV {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = dims_of(ctx, 0, self.memory)?;
        let sizes = ctx.host_input(1)?;
        require!(
            sizes.dims.len() == 1,
            "size_splits must be 1-D, got shape {}",
            shape(&sizes.dims)
        );
        let mut sizes = super::index_values(&sizes)?;
        let axis = split_axis(ctx.host_i64(2, "split_dim")?, dims.len())?;
        let extent = dims[axis] as i64;
        let mut unknown = None;
        let mut known = 0i64;
        for (i, s) in sizes.iter().enumerate() {
            if *s == -1 {
                require!(unknown.is_none(), "There can only be one -1 in the input.");
                unknown = Some(i);
            } else {
                require!(*s >= 0, "Split size at index {i} must be >= 0. Got: {s}");
                known = known.saturating_add(*s);
            }
        }
        require!(
            if unknown.is_some() { known <= extent } else { known == extent },
            "Determined shape must either match input shape along split_dim exactly if fully \
             specified, or be less than the size of the input along split_dim if not fully \
             specified.  Got: {known}"
        );
        if let Some(i) = unknown {
            sizes[i] = extent - known;
        }
        let sizes: Vec<usize> = sizes.iter().map(|s| *s as usize).collect();
        Pieces::new(&dims, axis, &sizes, true).run(ctx, 0, self.memory)
    }
}

/// Unpack: one output for each coordinate of an axis.
pub struct Unpack {
    /// The axis; it may be negative.
    pub axis: i64,
    /// Number of outputs.
    pub num: i64,
}

impl Kernel for Unpack {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = ctx.input(0)?.dims;
        let rank = dims.len() as i64;
        let axis = if self.axis < 0 { self.axis + rank } else { self.axis };
        require!((0..rank).contains(&axis), "axis = {} not in [{}, {rank})", self.axis, -rank);
        let axis = axis as usize;
        require!(
            dims[axis] as i64 == self.num,
            "Input shape axis {axis} must equal {}, got shape {}",
            self.num,
            shape(&dims)
        );
        Pieces::new(&dims, axis, &vec![1; dims[axis]], false).run(ctx, 0, MemoryType::Device)
    }
}
