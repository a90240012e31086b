//! Runs a reduction: the axes that each step reduces, and the number of its segments.
//!
//! The first step evaluates the expression over the group of reduced axes that is largest among
//! those along which every input has one stride; later steps merge its states as
//! [`plan`](super::plan) cuts them. If a tensor exceeds the adapter's largest binding, the walk is
//! cut along an axis until its parts fit.

use super::epilogue::Extra;
use super::plan::{Group, Groups, Step, cut, push};
use super::program::window_bytes;
use super::reduction::ReductionProgram;
use super::steps::{Bases, Operands, Sink, Work, outputs, span, walk_outputs};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::windows::{Scratch, part, ranges};
use crate::layout::{Iteration, Strides, dense_strides};
use crate::tensor::{Dims, Tensor};

/// The most parts of a walk whose states are kept together; with more, their states are too large.
const MAX_PARTS: u64 = 64;

impl ReductionProgram {
    /// Enqueues the program for inputs that broadcast to `dims`, whose axis `d` is reduced if
    /// `reduced[d]`.
    pub fn run<'a>(
        &self,
        ctx: &mut dyn OpContext,
        inputs: impl Iterator<Item = &'a Tensor> + Clone,
        operands: Operands<'_>,
        dims: &[usize],
        reduced: &[bool],
    ) -> Result<()> {
        if operands.outputs[0].is_empty() {
            return Ok(());
        }
        let extents = dims.iter().zip(reduced);
        let total = extents.clone().filter(|(_, reduced)| **reduced).map(|(n, _)| n).product();
        if self.states.counts() {
            ctx.device().check_extent(total)?;
        }
        // The outputs' strides, 0 along reduced axes, keep reduced and kept axes apart.
        let kept: Dims = extents.map(|(n, reduced)| if *reduced { 1 } else { *n }).collect();
        let strides = dense_strides(&kept);
        let strides: Strides =
            strides.iter().zip(reduced).map(|(s, reduced)| if *reduced { 0 } else { *s }).collect();
        let walk = inputs.clone().fold(Iteration::over(dims), |w, x| w.broadcast(&x.dims));
        let profile = ctx.device().profile();
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        let work = Work { program: self, operands, profile, total };
        let bases = inputs.map(|x| x.address).collect();
        work.reduce(ctx, &walk.operand(&strides, 0).collapse(), &bases, Sink::Outputs(0))
    }
}

/// The first step of a walk.
struct First {
    /// The step.
    step: Step,
    /// The axis that it reduces.
    axis: Option<usize>,
    /// The axes that remain.
    rest: Groups,
}

impl Work<'_> {
    /// Reduces the elements of `walk`, whose operands are the inputs, then the outputs, to `sink`.
    fn reduce(
        &self,
        ctx: &mut dyn OpContext,
        walk: &Iteration,
        bases: &Bases,
        sink: Sink<'_>,
    ) -> Result<()> {
        if walk.is_empty() {
            // There is nothing to reduce: the results are the identities.
            let count = outputs(walk);
            let splat = Iteration::over(&[count]);
            let walk = bases.iter().fold(splat, |w, _| w.operand(&[0], 0));
            let rest = Groups::from_slice(&[Group { extent: count, reduced: false }]);
            return self.run_first(
                ctx,
                &walk,
                bases,
                First { step: Step::each(count, 0), axis: None, rest },
                sink,
            );
        }
        let first = self.first(walk);
        if self.fits(ctx.device(), walk, &first) {
            self.run_first(ctx, walk, bases, first, sink)
        } else {
            self.cut(ctx, walk, bases, sink)
        }
    }

    /// Runs the first step, and the steps behind it.
    fn run_first(
        &self,
        ctx: &mut dyn OpContext,
        walk: &Iteration,
        bases: &Bases,
        first: First,
        sink: Sink<'_>,
    ) -> Result<()> {
        let First { step, axis, rest } = first;
        let elements = |sink| self.elements(&step, walk, bases, axis, sink);
        if rest.iter().all(|g| !g.reduced) {
            let elements = elements(sink);
            match sink {
                Sink::States(..) => return self.enqueue(ctx.device(), &step, elements, sink, None),
                Sink::Outputs(_) => {
                    let room = self.room(ctx.device(), &elements);
                    if let [part] = self.program.epilogue.parts(room)
                        && part.tensors() <= room
                    {
                        return self.enqueue(ctx.device(), &step, elements, sink, Some(part));
                    }
                }
            }
        }
        let count = step.outputs();
        let states = ctx.temp(self.accumulator(), &[self.planes() * count])?;
        let kept = Sink::States(&states, count, 0);
        self.enqueue(ctx.device(), &step, elements(kept), kept, None)?;
        self.merge(ctx, &states, rest, sink)
    }

    /// Reduces states, whose extents form `left`, to `sink`.
    fn merge(
        &self,
        ctx: &mut dyn OpContext,
        states: &Tensor,
        mut left: Groups,
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut before = states.clone();
        let mut plane: usize = left.iter().map(|g| g.extent).product();
        loop {
            let (step, rest) = match Step::largest(self.profile, &left) {
                Some(step) => step,
                None => (Step::each(plane, 1), left),
            };
            let states = |sink| self.earlier(&step, &before, plane, sink);
            if rest.iter().all(|g| !g.reduced) {
                if matches!(sink, Sink::States(..)) {
                    return self.enqueue(ctx.device(), &step, states(sink), sink, None);
                }
                let room = self.room(ctx.device(), &states(sink));
                return self.program.epilogue.parts(room).iter().try_for_each(|p| {
                    self.enqueue(ctx.device(), &step, states(sink), sink, Some(p))
                });
            }
            let count = step.outputs();
            let after = ctx.temp(before.dtype, &[self.planes() * count])?;
            let kept = Sink::States(&after, count, 0);
            self.enqueue(ctx.device(), &step, states(kept), kept, None)?;
            (before, plane, left) = (after, count, rest);
        }
    }

    /// The first step of a walk.
    fn first(&self, walk: &Iteration) -> First {
        let dims = walk.dims();
        let kept = walk.strides(walk_outputs(walk));
        let Some(axis) = (0..dims.len()).filter(|d| kept[*d] == 0).max_by_key(|d| dims[*d]) else {
            let rest = Groups::from_slice(&[Group { extent: walk.len(), reduced: false }]);
            return First { step: Step::each(walk.len(), 1), axis: None, rest };
        };
        let product = |range: &[usize]| range.iter().product::<usize>();
        let (outer, extent, inner) =
            (product(&dims[..axis]), dims[axis], product(&dims[axis + 1..]));
        let (segments, lanes) = cut(self.profile, outer, extent, inner);
        let mut rest = Groups::new();
        for (d, dim) in dims.iter().enumerate() {
            push(
                &mut rest,
                Group { extent: if d == axis { segments } else { *dim }, reduced: kept[d] == 0 },
            );
        }
        First { step: Step { outer, extent, inner, segments, lanes }, axis: Some(axis), rest }
    }

    /// Whether indices and bindings suffice for the walk.
    fn fits(&self, device: &Device, walk: &Iteration, first: &First) -> bool {
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
    fn cut(
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
