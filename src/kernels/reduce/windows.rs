//! Walks beyond an adapter's largest binding: they are cut along an axis until their parts fit.

use super::plan::{Group, Groups, push};
use super::program::window_bytes;
use super::run::{Bases, First, Operands, Sink, Work};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::windows::{Scratch, part, ranges};
use crate::layout::Iteration;
use crate::tensor::{Dims, Tensor};

use super::epilogue::Extra;

/// The most parts of a walk whose states are kept together; with more, their states are too large.
const MAX_PARTS: u64 = 64;

impl Work<'_> {
    /// Whether indices and bindings suffice for the walk.
    pub fn fits(&self, device: &Device, walk: &Iteration, first: &First) -> bool {
        let limit = window_bytes(device);
        let states = first.step.outputs() * self.planes() * self.accumulator().size();
        let mut inputs = self.program.expression.inputs().iter().enumerate();
        walk.len() < u32::MAX as usize
            && states as u64 <= limit
            && inputs.all(|(k, dtype)| span(walk, k) * dtype.size() as u64 <= limit)
    }

    /// Bytes of the states of all outputs of a walk.
    fn state_bytes(&self, walk: &Iteration) -> u64 {
        (outputs(walk) * self.planes() * self.accumulator().size()) as u64
    }

    /// Reduces parts of the walk along one axis, each on its own. That is the outermost axis, or
    /// the outermost kept axis if the states of several parts would be too large.
    pub fn cut(
        &self,
        ctx: &mut dyn OpContext,
        walk: &Iteration,
        bases: &Bases,
        sink: Sink<'_>,
    ) -> Result<()> {
        let marker = walk_outputs(walk);
        let device = ctx.device();
        let is_small =
            |walk: &Iteration| self.state_bytes(walk) <= window_bytes(device) / MAX_PARTS;
        let kept = (0..walk.dims().len()).find(|d| walk.strides(marker)[*d] != 0);
        let axis = kept.filter(|_| !is_small(walk)).unwrap_or(0);
        let too_large = || {
            Error::ResourceExhausted(format!(
                "a reduction of {:?} elements exceeds this adapter's largest storage binding",
                walk.dims()
            ))
        };
        let Some(&extent) = walk.dims().get(axis) else { return Err(too_large()) };
        let sub = |rows: usize| {
            let mut dims = Dims::from_slice(walk.dims());
            dims[axis] = rows;
            (0..=marker)
                .fold(Iteration::over(&dims), |w, k| w.operand(walk.strides(k), 0))
                .collapse()
        };
        let suffices = |part: &Iteration| {
            self.fits(device, part, &self.first(part)) || (axis > 0 && is_small(part))
        };
        let mut rows = extent;
        while rows > 1 && !suffices(&sub(rows)) {
            rows = rows.div_ceil(2);
        }
        let at = |start: usize| -> Bases {
            let inputs = self.program.expression.inputs().iter().enumerate();
            let strides = inputs.map(|(k, t)| walk.strides(k)[axis] as usize * t.size());
            bases.iter().zip(strides).map(|(base, stride)| base + (start * stride) as u64).collect()
        };
        let row_outputs = walk.strides(marker)[axis] as usize;
        if row_outputs > 0 {
            // Parts of four rows begin at a whole word of every output.
            if rows < extent && rows >= 4 {
                rows = rows / 4 * 4;
            }
            let mut scratch = Scratch::new(ctx);
            for (start, rows) in ranges(extent, rows) {
                let first = sink.skip(start * row_outputs);
                self.reduce_apart(scratch.window(), &sub(rows), &at(start), first)?;
            }
            return Ok(());
        }
        let (parts, kept) = (extent.div_ceil(rows), outputs(walk));
        let states = ctx.temp(self.accumulator(), &[self.planes() * parts * kept])?;
        if states.bytes() > window_bytes(ctx.device()) {
            return Err(too_large());
        }
        for (p, (start, rows)) in ranges(extent, rows).enumerate() {
            let sink = Sink::States(&states, parts * kept, p * kept);
            self.reduce(ctx, &sub(rows), &at(start), sink)?;
        }
        let mut left = Groups::new();
        push(&mut left, Group { extent: parts, reduced: true });
        push(&mut left, Group { extent: kept, reduced: false });
        self.merge(ctx, &states, left, sink)
    }

    /// Reduces a part. Programs store and bind whole words: where the part of an output or of an
    /// operand begins within a word, the part gets tensors of its own, which are copied.
    fn reduce_apart(
        &self,
        ctx: &mut dyn OpContext,
        walk: &Iteration,
        bases: &Bases,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Operands { constants, extras, outputs: all } = self.operands;
        let first = match sink {
            Sink::Outputs(first) => first,
            Sink::States(..) => return self.reduce(ctx, walk, bases, sink),
        };
        let is_whole = |t: &Tensor| (first * t.dtype.size()).is_multiple_of(4);
        let wholes = extras.iter().filter(|extra| extra.whole).map(|extra| &extra.tensor);
        if all.iter().chain(wholes).all(is_whole) {
            return self.reduce(ctx, walk, bases, sink);
        }
        let count = outputs(walk);
        let own = all.iter().map(|y| ctx.temp(y.dtype, &[count])).collect::<Result<Vec<_>>>()?;
        let extras = extras.iter().map(|extra| {
            if !extra.whole {
                return Ok(extra.clone());
            }
            let (from, to) =
                (part(&extra.tensor, first, count), ctx.temp(extra.tensor.dtype, &[count])?);
            ctx.device().copy(to.address, from.address, from.bytes())?;
            Ok(Extra { tensor: to, whole: true })
        });
        let extras = extras.collect::<Result<Vec<_>>>()?;
        let operands = Operands { constants, extras: &extras, outputs: &own };
        Work { operands, ..*self }.reduce(ctx, walk, bases, Sink::Outputs(0))?;
        own.iter().zip(all).try_for_each(|(from, y)| {
            ctx.device().copy(part(y, first, count).address, from.address, from.bytes())
        })
    }
}

/// The operand of a walk that stands for the outputs.
pub fn walk_outputs(walk: &Iteration) -> usize {
    walk.operands() - 1
}

/// Number of outputs: the product of the extents that are kept.
pub fn outputs(walk: &Iteration) -> usize {
    let kept = walk.strides(walk_outputs(walk));
    walk.dims().iter().zip(kept).filter(|(_, stride)| **stride != 0).map(|(dim, _)| dim).product()
}

/// Elements from the first to the last that operand `k` of a walk reads.
pub fn span(walk: &Iteration, k: usize) -> u64 {
    walk.dims().iter().zip(walk.strides(k)).map(|(d, s)| (*d as u64 - 1) * *s as u64).sum::<u64>()
        + 1
}
