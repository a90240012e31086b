//! Runs a fused reduction: the axes that each step reduces, the number of its segments, and its
//! windows.
//!
//! The first step evaluates the expression over the group of reduced axes that is largest among
//! those along which every input has one stride; later steps merge its states as
//! [`plan`](crate::kernels::reduce::plan) cuts them. If a tensor exceeds the adapter's largest
//! binding, the walk is cut along an axis until its parts fit.

use smallvec::{SmallVec, smallvec};

use super::epilogue::{Epilogue, Extra, Part};
use super::program::{MAX_BINDINGS, MAX_INPUTS, Reads, Variant};
use super::state::States;
use crate::device::{Binding, Device, Grid, Params, Profile, Program};
use crate::error::{Error, Result};
use crate::kernels::expression::Expression;
use crate::kernels::op::OpContext;
use crate::kernels::reduce::plan::{Group, Groups, Step, cut, push};
use crate::kernels::reduce::program::{part, window_bytes};
use crate::layout::{AccessClass, Iteration};
use crate::shader::vec4;
use crate::tensor::{Dims, Tensor};

/// The most parts of a walk whose states are kept together; with more, their states are too large.
const MAX_PARTS: u64 = 64;

/// A reduction to run.
pub struct Work<'a> {
    /// The values of an element.
    pub expression: &'a Expression,
    /// Its text.
    pub text: &'a str,
    /// Their reductions.
    pub states: &'a States,
    /// The expression's parameters.
    pub constants: &'a [f32],
    /// The epilogue of the results.
    pub epilogue: &'a Epilogue,
    /// The epilogue's operands.
    pub extras: &'a [Extra],
    /// The node's outputs, in the order of the epilogue's.
    pub outputs: &'a [Tensor],
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
    const fn skip(self, count: usize) -> Self {
        match self {
            Self::Outputs(first) => Self::Outputs(first + count),
            Self::States(tensor, plane, first) => Self::States(tensor, plane, first + count),
        }
    }
}

/// The first step of a walk.
struct First {
    step: Step,
    /// The axis that it reduces.
    axis: Option<usize>,
    /// The axes that remain.
    rest: Groups,
}

/// The tensors that a step reads.
struct Source {
    /// How the expression's inputs are read, where it is evaluated.
    class: Option<AccessClass>,
    /// The inputs that are read four elements at once: [`Variant::vec4s`].
    vec4s: u32,
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
        let elements = self.elements(&step, walk, bases, axis);
        if rest.iter().all(|g| !g.reduced) {
            match sink {
                Sink::States(..) => return self.enqueue(ctx.device(), &step, elements, sink, None),
                Sink::Outputs(_) => {
                    let room = self.room(ctx.device(), &elements);
                    if let [part] = &self.epilogue.parts(self.extras, room)[..]
                        && part.tensors() <= room
                    {
                        return self.enqueue(ctx.device(), &step, elements, sink, Some(part));
                    }
                }
            }
        }
        let count = step.outputs();
        let states = ctx.temp(self.states.accumulator(), &[self.states.planes() * count])?;
        self.enqueue(ctx.device(), &step, elements, Sink::States(&states, count, 0), None)?;
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
            let (step, rest) = match Step::largest(self.profile, &left, usize::MAX) {
                Some(step) => step,
                None => (Step::each(plane, 1), left),
            };
            let states = || Source {
                class: None,
                vec4s: 0,
                bindings: smallvec![(&before).into()],
                params: self.params(&step).u32(plane),
            };
            if rest.iter().all(|g| !g.reduced) {
                if matches!(sink, Sink::States(..)) {
                    return self.enqueue(ctx.device(), &step, states(), sink, None);
                }
                let parts = self.epilogue.parts(self.extras, self.room(ctx.device(), &states()));
                return parts
                    .iter()
                    .try_for_each(|p| self.enqueue(ctx.device(), &step, states(), sink, Some(p)));
            }
            let count = step.outputs();
            let after = ctx.temp(before.dtype, &[self.states.planes() * count])?;
            self.enqueue(ctx.device(), &step, states(), Sink::States(&after, count, 0), None)?;
            (before, plane, left) = (after, count, rest);
        }
    }

    fn first(&self, walk: &Iteration) -> First {
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
        First {
            step: Step { outer, extent, inner, segments, lanes, windows: 1 },
            axis: Some(axis),
            rest,
        }
    }

    /// Whether indices and bindings suffice for the walk.
    fn fits(&self, device: &Device, walk: &Iteration, first: &First) -> bool {
        let limit = window_bytes(device);
        let states =
            (first.step.outputs() * self.states.planes() * self.states.accumulator().size()) as u64;
        let inputs = self.expression.inputs().iter().enumerate();
        walk.len() < u32::MAX as usize
            && states <= limit
            && inputs.into_iter().all(|(k, dtype)| span(walk, k) * dtype.size() as u64 <= limit)
    }

    /// Bytes of the states of all outputs of a walk.
    fn state_bytes(&self, walk: &Iteration) -> u64 {
        (outputs(walk) * self.states.planes() * self.states.accumulator().size()) as u64
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
            let strides = self
                .expression
                .inputs()
                .iter()
                .enumerate()
                .map(|(k, t)| walk.strides(k)[axis] as usize * t.size());
            bases.iter().zip(strides).map(|(base, stride)| base + (start * stride) as u64).collect()
        };
        let row_outputs = walk.strides(marker)[axis] as usize;
        if row_outputs > 0 {
            // Outputs of a part start at a whole word.
            if matches!(sink, Sink::Outputs(..)) && !row_outputs.is_multiple_of(4) {
                rows = rows / 4 * 4;
                if rows == 0 {
                    return Err(too_large());
                }
            }
            for start in (0..extent).step_by(rows) {
                let part = sub(rows.min(extent - start));
                self.reduce(ctx, &part, &at(start), sink.skip(start * row_outputs))?;
            }
            return Ok(());
        }
        let (parts, kept) = (extent.div_ceil(rows), outputs(walk));
        let states = ctx.temp(self.states.accumulator(), &[self.states.planes() * parts * kept])?;
        if states.bytes() > window_bytes(ctx.device()) {
            return Err(too_large());
        }
        for (p, start) in (0..extent).step_by(rows).enumerate() {
            let part = sub(rows.min(extent - start));
            self.reduce(ctx, &part, &at(start), Sink::States(&states, parts * kept, p * kept))?;
        }
        let mut left = Groups::new();
        push(&mut left, Group { extent: parts, reduced: true });
        push(&mut left, Group { extent: kept, reduced: false });
        self.merge(ctx, &states, left, sink)
    }

    /// The source of a step that evaluates the expression.
    fn elements(
        &self,
        step: &Step,
        walk: &Iteration,
        bases: &Bases,
        axis: Option<usize>,
    ) -> Source {
        let inputs = (0..bases.len())
            .fold(Iteration::over(walk.dims()), |w, k| w.operand(walk.strides(k), 0))
            .collapse();
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        let vec4s = axis.map_or(0, |axis| self.vec4s(step, walk, bases, axis));
        for (k, dtype) in self.expression.inputs().iter().enumerate() {
            let elements = if step.extent == 0 { 0 } else { span(walk, k) };
            let size = dtype.size() as u64;
            let unit = if vec4s >> k & 1 != 0 { vec4::unit(*dtype) } else { size as u32 };
            bindings.push(Binding { address: bases[k], bytes: elements * size, unit });
        }
        let step =
            &Step { extent: if vec4s == 0 { step.extent } else { step.extent / 4 }, ..*step };
        let steps = (0..bases.len()).map(|k| axis.map_or(0, |axis| walk.strides(k)[axis] as u32));
        let params = steps.fold(self.params(step), Params::u32);
        let params = self.constants.iter().fold(params, |p, c| p.f32(*c));
        Source { class: Some(inputs.class()), vec4s, bindings, params: inputs.params(params) }
    }

    /// The inputs that a step can read four elements at once; none unless all others have one
    /// element for each run.
    fn vec4s(&self, step: &Step, walk: &Iteration, bases: &Bases, axis: usize) -> u32 {
        if step.inner != 1 || step.extent == 0 || !step.extent.is_multiple_of(4) {
            return 0;
        }
        let mut vec4s = 0;
        for (k, dtype) in self.expression.inputs().iter().enumerate() {
            let outer = || {
                walk.strides(k)
                    .iter()
                    .enumerate()
                    .filter(|(d, _)| *d != axis)
                    .map(|(_, stride)| stride)
            };
            match walk.strides(k)[axis] {
                0 => {}
                1 if vec4::supports(*dtype)
                    && bases[k].is_multiple_of(u64::from(vec4::unit(*dtype)))
                    && outer().all(|stride| stride % 4 == 0) =>
                {
                    vec4s |= 1 << k;
                }
                _ => return 0,
            }
        }
        vec4s
    }

    /// Bindings that a step has left for the epilogue's operands and the outputs.
    fn room(&self, device: &Device, source: &Source) -> usize {
        let own = MAX_BINDINGS + source.params.scalars.len() + self.epilogue.constants().len();
        let bytes = 4 * (own.next_multiple_of(4) + source.params.vec4s.len());
        let buffer = bytes > device.capabilities().immediates as usize;
        let all = match self.expression.inputs().len() > MAX_INPUTS {
            true => device.capabilities().max_bindings as usize,
            false => MAX_BINDINGS,
        };
        all - source.bindings.len() - usize::from(buffer)
    }

    fn params(&self, step: &Step) -> Params {
        let params =
            Params::new().u32(step.outputs()).u32(step.extent).u32(step.inner).u32(step.segments);
        self.states.parameters().into_iter().fold(params.u32(self.total), |p, (_, v)| p.u32(v))
    }

    /// Enqueues a step that writes states, or some of the outputs.
    fn enqueue(
        &self,
        device: &Device,
        step: &Step,
        source: Source,
        sink: Sink<'_>,
        finish: Option<&Part>,
    ) -> Result<()> {
        let Source { class, vec4s, mut bindings, mut params } = source;
        let count = step.outputs();
        device.check_extent(count * self.states.planes())?;
        match (sink, finish) {
            (Sink::Outputs(first), Some(finish)) => {
                let extras = finish.extras.iter();
                bindings.extend(extras.map(|e| {
                    if e.whole { part(&e.tensor, first, count) } else { (&e.tensor).into() }
                }));
                bindings
                    .extend(finish.outputs.iter().map(|y| part(&self.outputs[*y], first, count)));
                params = self.epilogue.constants().iter().fold(params, |p, c| p.f32(*c));
            }
            (Sink::States(states, plane, first), _) => {
                bindings.push(part(states, first, (self.states.planes() - 1) * plane + count));
                params = params.u32(plane);
            }
            (Sink::Outputs(_), None) => unreachable!("outputs are written in parts"),
        }
        let workgroup = step.lanes.workgroup;
        let reads = class
            .as_ref()
            .map_or(Reads::States, |class| Reads::Elements(self.expression, self.text, class));
        let variant = Variant {
            states: self.states,
            reads,
            finish,
            vec4s,
            lanes: step.lanes.count,
            columns: step.columns(),
            workgroup,
        };
        let invocations = count.div_ceil(variant.unit() as usize) * step.lanes.count as usize;
        let operations = match reads {
            Reads::Elements(expression, ..) => {
                expression.operations() as usize + self.states.reductions()
            }
            Reads::States => self.states.planes(),
        };
        let elements = step.outer * step.extent * step.inner;
        device.enqueue_counted(
            &Program {
                key: variant.key(),
                shader: &|| variant.shader(),
                bindings,
                params,
                grid: Grid::linear(invocations, workgroup),
            },
            self.states.accumulator().flops(operations * elements),
        )
    }
}

/// The operand of a walk that stands for the outputs.
fn walk_outputs(walk: &Iteration) -> usize {
    walk.operands() - 1
}

/// Number of outputs: the product of the extents that are kept.
fn outputs(walk: &Iteration) -> usize {
    let kept = walk.strides(walk_outputs(walk));
    walk.dims().iter().zip(kept).filter(|(_, stride)| **stride != 0).map(|(dim, _)| dim).product()
}

/// Elements from the first to the last that operand `k` of a walk reads.
fn span(walk: &Iteration, k: usize) -> u64 {
    walk.dims().iter().zip(walk.strides(k)).map(|(d, s)| (*d as u64 - 1) * *s as u64).sum::<u64>()
        + 1
}
