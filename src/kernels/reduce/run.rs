//! Runs a reduction: the axes that each step reduces, and the number of its segments.
//!
//! The first step evaluates the expression over the group of reduced axes that is largest among
//! those along which every input has one stride; later steps merge its states as
//! [`plan`](super::plan) cuts them. [`windows`](super::windows) cuts tensors beyond one binding.

use smallvec::{SmallVec, smallvec};

use super::epilogue::{Epilogue, EpiloguePart, Extra};
use super::plan::{Group, Groups, Step, cut, push};
use super::program::{MAX_BINDINGS, MAX_INPUTS, Reads, StepProgram, Vec4s, part};
use super::states::States;
use super::windows::{outputs, span, walk_outputs};
use crate::device::{Binding, Device, Grid, Params, Profile, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::Expression;
use crate::kernels::op::OpContext;
use crate::layout::{AccessClass, Iteration, Strides, dense_strides};
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::{Dims, Tensor};

/// The most bytes of a state of which an invocation has four: a workgroup's states must fit 16 KiB.
const MAX_STATE_OF_FOUR: usize = 16;

/// Reductions of an expression's values for every element of a walk, over the same axes, with an
/// epilogue. Plain ops have constant programs.
pub struct ReductionProgram {
    /// The values of an element.
    pub expression: Expression,
    /// Its text.
    text: String,
    /// Their reductions.
    pub states: States,
    /// The epilogue of the results.
    pub epilogue: Epilogue,
}

impl ReductionProgram {
    /// The program of an expression, whose results are the outputs.
    pub fn new(expression: Expression, states: States) -> Self {
        let epilogue = Epilogue::none(&states);
        Self { text: expression.to_string(), expression, states, epilogue }
    }

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

    /// The texts of steps over a walk of class `class`, for `tests/shaders.rs`: every kind of
    /// source, sink and vec4s.
    pub fn shaders(&self, extras: &[Extra], class: &AccessClass, out: &mut Vec<Shader>) {
        // Every second input is read in vec4s.
        const READ: u32 = 0b0101_0101;
        let Self { expression, text, states, epilogue } = self;
        let accumulator = [states.accumulator()];
        let are_four = |types: &[DType]| types.iter().all(|t| vec4::supports(*t));
        // Steps over states have the same text for every walk. Steps over vec4s differ between
        // walks as other steps do, so the flat one suffices.
        let flat = usize::from(class.is_flat());
        let sources = [Reads::Elements(expression, text, class), Reads::States];
        for reads in sources.into_iter().take(1 + flat) {
            let read = match reads {
                Reads::Elements(..) => expression.inputs(),
                Reads::States => &accumulator,
            };
            // Parameters may take a buffer, as in `room`.
            let most = if read.len() > MAX_INPUTS { 2 * MAX_BINDINGS } else { MAX_BINDINGS - 1 };
            let mask = READ & ((1 << read.len()) - 1);
            let parts = epilogue.parts(extras, most - read.len());
            let parts = parts.iter().filter(|part| read.len() + part.tensors() <= most);
            let sinks: Vec<_> = [None].into_iter().chain(parts.map(Some)).collect();
            let vec4s = [Vec4s::None, Vec4s::Rows(mask), Vec4s::Columns(mask)];
            for vec4s in vec4s.into_iter().take(1 + 2 * flat) {
                for (finish, lanes) in sinks.iter().flat_map(|s| [1, 8, 64].map(|l| (*s, l))) {
                    let written = finish.map_or(accumulator.to_vec(), EpiloguePart::types);
                    let is_possible = match vec4s {
                        Vec4s::None => true,
                        Vec4s::Rows(_) => are_four(read),
                        Vec4s::Columns(_) => {
                            are_four(read) && are_four(&written) && self.has_small_states()
                        }
                    };
                    if !is_possible {
                        continue;
                    }
                    let workgroup = if lanes == 8 { 8 } else { WORKGROUP };
                    let columns = lanes == 64 && !matches!(vec4s, Vec4s::Rows(_));
                    let program =
                        StepProgram { states, reads, finish, vec4s, lanes, columns, workgroup };
                    out.push(program.shader());
                }
            }
        }
    }

    /// Whether an invocation may have four states.
    fn has_small_states(&self) -> bool {
        self.states.planes() * self.states.accumulator().size() <= MAX_STATE_OF_FOUR
    }
}

/// The operands of a program behind its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// The values of the expression's parameters.
    pub constants: &'a [f32],
    /// The epilogue's operands.
    pub extras: &'a [Extra],
    /// The outputs, in the order of the epilogue's.
    pub outputs: &'a [Tensor],
}

/// A program that runs.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The program.
    pub program: &'a ReductionProgram,
    /// Its operands behind the inputs.
    pub operands: Operands<'a>,
    /// How steps are cut.
    pub profile: Profile,
    /// Number of elements behind each output.
    pub total: u32,
}

/// Addresses of the inputs.
pub type Bases = SmallVec<[u64; 6]>;

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub enum Sink<'a> {
    /// To the outputs, from this element on.
    Outputs(usize),
    /// To states, in planes of this many elements, from this element of each plane on.
    States(&'a Tensor, usize, usize),
}

impl Sink<'_> {
    /// The sink of the results behind the first `count`.
    pub const fn skip(self, count: usize) -> Self {
        match self {
            Self::Outputs(first) => Self::Outputs(first + count),
            Self::States(tensor, plane, first) => Self::States(tensor, plane, first + count),
        }
    }
}

/// The first step of a walk.
pub struct First {
    /// The step.
    pub step: Step,
    /// The axis that it reduces.
    axis: Option<usize>,
    /// The axes that remain.
    rest: Groups,
}

/// The tensors that a step reads.
struct StepInputs {
    /// How the expression's inputs are read, where it is evaluated.
    class: Option<AccessClass>,
    vec4s: Vec4s,
    bindings: SmallVec<[Binding; 8]>,
    /// Parameters in the order in which the text declares them, up to those of the tensors that it
    /// writes.
    params: Params,
}

impl Work<'_> {
    /// Reduces the elements of `walk`, whose operands are the inputs, then the outputs, to `sink`.
    pub fn reduce(
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
                    if let [part] = &self.program.epilogue.parts(self.operands.extras, room)[..]
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

    /// The element type of the states.
    pub const fn accumulator(&self) -> DType {
        self.program.states.accumulator()
    }

    /// Numbers in a state.
    pub fn planes(&self) -> usize {
        self.program.states.planes()
    }

    /// Reduces states, whose extents form `left`, to `sink`.
    pub fn merge(
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
                let parts = self.program.epilogue.parts(self.operands.extras, room);
                return parts.iter().try_for_each(|p| {
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
    pub fn first(&self, walk: &Iteration) -> First {
        let dims = walk.dims();
        let kept = walk.strides(walk_outputs(walk));
        let Some(axis) = (0..dims.len()).filter(|d| kept[*d] == 0).max_by_key(|d| dims[*d]) else {
            return First { step: Step::each(walk.len(), 1), axis: None, rest: Groups::new() };
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

    /// The inputs of a step that evaluates the expression.
    fn elements(
        &self,
        step: &Step,
        walk: &Iteration,
        bases: &Bases,
        axis: Option<usize>,
        sink: Sink<'_>,
    ) -> StepInputs {
        let inputs = (0..bases.len())
            .fold(Iteration::over(walk.dims()), |w, k| w.operand(walk.strides(k), 0))
            .collapse();
        let vec4s = axis.map_or(Vec4s::None, |axis| self.vec4s(walk, bases, axis, sink));
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        let mut params = self.params(&vec4s.step(step));
        for (k, dtype) in self.program.expression.inputs().iter().enumerate() {
            let elements = if step.extent == 0 { 0 } else { span(walk, k) };
            let size = dtype.size() as u64;
            let unit = if vec4s.has(k) { vec4::unit(*dtype) } else { size as u32 };
            bindings.push(Binding { address: bases[k], bytes: elements * size, unit });
            let stride = axis.map_or(0, |axis| walk.strides(k)[axis] as u32);
            let in_vec4s = vec4s.writes() && vec4s.has(k);
            params = params.u32(if in_vec4s { stride / vec4::WIDTH } else { stride });
        }
        let params = self.operands.constants.iter().fold(params, |p, c| p.f32(*c));
        StepInputs { class: Some(inputs.class()), vec4s, bindings, params: inputs.params(params) }
    }

    /// The inputs of a step that reads `before`, states in planes of `plane` elements.
    fn earlier(&self, step: &Step, before: &Tensor, plane: usize, sink: Sink<'_>) -> StepInputs {
        let vec4s = match (step.extent, step.inner) {
            _ if !vec4::aligned(&[before]) => Vec4s::None,
            (4.., 1) if step.extent.is_multiple_of(4) => Vec4s::Rows(1),
            (_, 4..) if step.inner.is_multiple_of(4) && self.stores_vec4s(sink) => {
                Vec4s::Columns(1)
            }
            _ => Vec4s::None,
        };
        let width = if vec4s == Vec4s::None { 1 } else { vec4::WIDTH };
        let mut states = Binding::from(before);
        states.unit *= width;
        let params = self.params(&vec4s.step(step)).u32(plane / width as usize);
        StepInputs { class: None, vec4s, bindings: smallvec![states], params }
    }

    /// The vec4s that a step can read; none unless all inputs without vec4s have one element for
    /// each run of rows, or for four columns.
    fn vec4s(&self, walk: &Iteration, bases: &Bases, axis: usize, sink: Sink<'_>) -> Vec4s {
        let is_row = axis == walk.dims().len() - 1;
        // The axes along which neighbours lie, which are one where all inputs walk them as one.
        let from = if is_row { axis } else { axis + 1 };
        let neighbours = (0..bases.len())
            .fold(Iteration::over(&walk.dims()[from..]), |w, k| {
                w.operand(&walk.strides(k)[from..], 0)
            })
            .collapse();
        let is_whole = |stride: &i64| stride % 4 == 0;
        if !neighbours.dims().last().is_some_and(|n| n.is_multiple_of(4))
            || !(is_row || self.stores_vec4s(sink))
        {
            return Vec4s::None;
        }
        let mut inputs = 0;
        for (k, dtype) in self.program.expression.inputs().iter().enumerate() {
            match neighbours.strides(k).split_last() {
                Some((0, _)) => {}
                Some((1, outer))
                    if vec4::supports(*dtype)
                        && bases[k].is_multiple_of(u64::from(vec4::unit(*dtype)))
                        && outer.iter().chain(&walk.strides(k)[..from]).all(is_whole) =>
                {
                    inputs |= 1 << k;
                }
                _ => return Vec4s::None,
            }
        }
        match inputs {
            0 => Vec4s::None,
            _ if is_row => Vec4s::Rows(inputs),
            _ => Vec4s::Columns(inputs),
        }
    }

    /// Whether the states or outputs of a step over columns can be written in vec4s.
    fn stores_vec4s(&self, sink: Sink<'_>) -> bool {
        let is_whole = |t: &Tensor, first: usize| vec4::aligned(&[t]) && first.is_multiple_of(4);
        self.program.has_small_states()
            && match sink {
                Sink::Outputs(first) => self.operands.outputs.iter().all(|y| is_whole(y, first)),
                Sink::States(states, plane, first) => {
                    plane.is_multiple_of(4) && is_whole(states, first)
                }
            }
    }

    /// Bindings that a step has left for the epilogue's operands and the outputs.
    fn room(&self, device: &Device, source: &StepInputs) -> usize {
        let own =
            MAX_BINDINGS + source.params.scalars.len() + self.program.epilogue.constants().len();
        let bytes = 4 * (own.next_multiple_of(4) + source.params.vec4s.len());
        let buffer = bytes > device.capabilities().immediates as usize;
        let all = match self.program.expression.inputs().len() > MAX_INPUTS {
            true => device.capabilities().max_bindings as usize,
            false => MAX_BINDINGS,
        };
        all - source.bindings.len() - usize::from(buffer)
    }

    fn params(&self, step: &Step) -> Params {
        let params =
            Params::new().u32(step.outputs()).u32(step.extent).u32(step.inner).u32(step.segments);
        let parameters = self.program.states.parameters().into_iter();
        parameters.fold(params.u32(self.total), |p, (_, v)| p.u32(v))
    }

    /// Enqueues a step that writes states, or some of the outputs.
    fn enqueue(
        &self,
        device: &Device,
        step: &Step,
        inputs: StepInputs,
        sink: Sink<'_>,
        finish: Option<&EpiloguePart>,
    ) -> Result<()> {
        let StepInputs { class, vec4s, mut bindings, mut params } = inputs;
        let ReductionProgram { expression, text, states, epilogue } = self.program;
        let count = step.outputs();
        let width = if vec4s.writes() { vec4::WIDTH } else { 1 };
        device.check_extent(count * states.planes())?;
        let written = |t: &Tensor, first: usize, count: usize| {
            let written = part(t, first, count);
            Binding { unit: written.unit * width, ..written }
        };
        match (sink, finish) {
            (Sink::Outputs(first), Some(finish)) => {
                let extras = finish.extras.iter();
                bindings.extend(extras.map(|e| {
                    if e.whole { part(&e.tensor, first, count) } else { (&e.tensor).into() }
                }));
                let outputs = finish.outputs.iter().map(|y| &self.operands.outputs[*y]);
                bindings.extend(outputs.map(|y| written(y, first, count)));
                params = epilogue.constants().iter().fold(params, |p, c| p.f32(*c));
            }
            (Sink::States(kept, plane, first), _) => {
                bindings.push(written(kept, first, (states.planes() - 1) * plane + count));
                params = params.u32(plane / width as usize);
            }
            (Sink::Outputs(_), None) => unreachable!("outputs are written in parts"),
        }
        let reads =
            class.as_ref().map_or(Reads::States, |class| Reads::Elements(expression, text, class));
        let workgroup = step.lanes.workgroup;
        let program = StepProgram {
            states,
            reads,
            finish,
            vec4s,
            lanes: step.lanes.count,
            columns: step.columns(),
            workgroup,
        };
        let units = vec4s.step(step).outputs().div_ceil(program.unit() as usize);
        let operations = match reads {
            Reads::Elements(..) => expression.operations() as usize + states.reductions(),
            Reads::States => states.planes(),
        };
        let elements = step.outer * step.extent * step.inner;
        device.enqueue_counted(
            &Program {
                key: program.key(),
                shader: &|| program.shader(),
                bindings,
                params,
                grid: Grid::linear(units * step.lanes.count as usize, workgroup),
            },
            states.accumulator().operations(operations * elements),
        )
    }
}
