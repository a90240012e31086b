//! Enqueues one step of a reduction: its inputs, the vec4s that it can read and write, and its
//! bindings and parameters.

use smallvec::{SmallVec, smallvec};

use super::epilogue::{EpiloguePart, Extra};
use super::plan::Step;
use super::program::{MAX_BINDINGS, MAX_INPUTS, Reads, StepProgram, Vec4s, part};
use super::reduction::ReductionProgram;
use crate::device::{Binding, Device, Grid, Params, Profile, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::{AccessClass, Iteration};
use crate::shader::vec4;
use crate::tensor::Tensor;

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
/// The tensors that a step reads.
pub struct StepInputs {
    /// How the expression's inputs are read, where it is evaluated.
    class: Option<AccessClass>,
    vec4s: Vec4s,
    bindings: SmallVec<[Binding; 8]>,
    /// The first parameters, in the order of the text's declarations. The parameters of the written
    /// tensors follow.
    params: Params,
}

impl Work<'_> {
    /// The element type of the states.
    pub const fn accumulator(&self) -> DType {
        self.program.states.accumulator()
    }

    /// Numbers in a state.
    pub fn planes(&self) -> usize {
        self.program.states.planes()
    }

    /// The inputs of a step that evaluates the expression.
    pub fn elements(
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
    pub fn earlier(
        &self,
        step: &Step,
        before: &Tensor,
        plane: usize,
        sink: Sink<'_>,
    ) -> StepInputs {
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
    pub fn room(&self, device: &Device, source: &StepInputs) -> usize {
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
    pub fn enqueue(
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
                let extras = finish.extras(self.operands.extras);
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
            finish: finish.map(|part| part.with(self.operands.extras)),
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
