//! ArgMax and ArgMin along one axis, of a tensor or of the values of an expression. The first of
//! equal values wins and NaN never does, as in TensorFlow's CPU kernels; if all values are NaN, the
//! result is 0.

pub mod values;
pub(super) mod vec4s;

use smallvec::SmallVec;

use super::program::part;
use crate::device::{
    Binding, Device, Grid, Key, KeyPart, NamedBindings, declare_params, declare_program,
};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::{List, Shader, WORKGROUP, vec4};
use crate::tensor::{Tensor, shape_text};
use crate::{invalid, require};
use values::{Constants, Values};
use vec4s::Layout;

/// An arg-reduction.
#[derive(Debug, Clone, Copy)]
pub struct ArgReduction {
    /// TensorFlow's op.
    pub op: &'static str,
    /// WGSL: whether value `a` beats value `b`; false for NaN.
    pub beats: &'static str,
    /// Whether `a` beats `b`, for tests.
    pub reference: fn(f64, f64) -> bool,
}

/// Both ops.
pub const ARG_REDUCTIONS: &[ArgReduction] = &[
    ArgReduction { op: "ArgMax", beats: "a > b", reference: |a, b| a > b },
    ArgReduction { op: "ArgMin", beats: "a < b", reference: |a, b| a < b },
];

/// The types of TensorFlow's GPU kernels, and the integers that only its CPU kernels have.
pub const TYPES: &[DType] = union!(types::FLOATS, types::INTS_BUT_I32, &[Bool]);
/// The types of the indices.
pub const OUTPUTS: &[DType] = types::INDEX;

/// Registers both ops.
pub(super) fn register(r: &mut Registry) {
    for row in ARG_REDUCTIONS {
        r.op(row.op)
            .types("T", TYPES)
            .types("output_type", OUTPUTS)
            .types("Tidx", &[I32])
            .host(&["dimension"])
            .kernel(move |attrs: &dyn Attrs| {
                Arg::new(row, attrs, Values::of_tensor(attrs.dtype("T")?), Constants::default())
            });
    }
}

/// The kernel of a node. Its inputs are the tensors that the values are computed from, which have
/// one shape, and the dimension in host memory.
pub struct Arg {
    row: &'static ArgReduction,
    output: DType,
    /// The values that are compared.
    values: Values,
    constants: Constants,
    /// The best values of an earlier step.
    best: Values,
}

impl Arg {
    /// Reads the attribute `output_type`. `constants` are the parameters of `values`.
    ///
    /// # Errors
    /// Without the attribute.
    pub fn new(
        row: &'static ArgReduction,
        attrs: &dyn Attrs,
        values: Values,
        constants: Constants,
    ) -> Result<Self> {
        let best = Values::of_tensor(values.dtype().accumulator());
        Ok(Self { row, output: attrs.dtype("output_type")?, values, constants, best })
    }
}

impl Kernel for Arg {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let count = self.values.inputs().len();
        let x = (0..count).map(|i| ctx.input(i)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        let dims = &x[0].dims;
        for other in &x[1..] {
            require!(
                other.dims == *dims,
                "the shapes {} and {} of the inputs differ",
                shape_text(dims),
                shape_text(&other.dims)
            );
        }
        let dimension = ctx.host_input(count)?;
        require!(
            dimension.dims.is_empty(),
            "dim must be a scalar, but received tensor of shape: {}",
            shape_text(&dimension.dims)
        );
        let dimension = dimension.to_i64()?[0];
        let rank = dims.len() as i64;
        let axis = if dimension < 0 { dimension + rank } else { dimension };
        if !(0..rank).contains(&axis) {
            invalid!("Expected dimension in the range [{}, {rank}), but got {dimension}", -rank);
        }
        let axis = axis as usize;
        let extent = dims[axis];
        require!(extent > 0, "Reduction axis {dimension} is empty in shape {}", shape_text(dims));
        let mut kept = dims.clone();
        kept.remove(axis);
        let Some(y) = ctx.some_output(0, self.output, &kept)? else { return Ok(()) };
        let outer: usize = dims[..axis].iter().product();
        let inner: usize = dims[axis + 1..].iter().product();
        self.reduce(ctx, &x, [outer, extent, inner], &y)
    }
}

impl KeyPart for &ArgReduction {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.op)
    }
}

declare_params! {
    /// The number of invocations, the extents in front of the outputs, and the segments of each
    /// row.
    pub(super) struct ArgParams { count: usize, extent: usize, inner: usize, segments: usize }
}

declare_program! {
    /// A step of a reduction of `values`. It begins with `pairs` if indices come with the values,
    /// from an earlier step. The `last` step keeps the indices alone.
    struct ArgStep = "arg_reduce"(
        row: &'static ArgReduction, values: &Values, output: DType, pairs: bool, last: bool
    );
    lists { x: List(values.bindings(false)) }
    bindings { y: output }
    optional {
        at: pairs.then_some(I32),
        best: (!last).then_some(values.dtype().accumulator()),
    }
    params { params: ArgParams, constants: Constants = values.constants() }
}

impl ArgStep {
    fn shader(
        row: &'static ArgReduction,
        values: &Values,
        output: DType,
        pairs: bool,
        last: bool,
    ) -> Shader {
        let dtype = values.dtype();
        let is_nan = match dtype {
            t if t.is_single() => "(bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u",
            F64 => "a != a",
            _ => "false",
        };
        let value = values.load("e");
        let label = format!("{} {dtype} to {output}", row.op);
        let shader = Self::declare(label, row, values, output, pairs, last)
            .define("VALUE", if dtype == Bool { "u32" } else { dtype.value() })
            .define("LOAD", if dtype == Bool { format!("select(0u, 1u, {value})") } else { value })
            .define("IS_NAN", is_nan)
            .define("BEATS", row.beats)
            .define("INDEX", if pairs { "u32(load_at(e))" } else { "r" })
            .define("KEEP_BEST", if last { "" } else { "store_best(i, best_value);" })
            .define("OUTPUT", output.value());
        values.define(shader).body(include_str!("../../../../shaders/arg_reduce.wgsl"))
    }
}

/// Every text for tensors, and the texts of some expressions.
pub(super) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for row in ARG_REDUCTIONS {
        let mut with = |values: &Values| {
            for &output in OUTPUTS {
                out.push(ArgStep::shader(row, values, output, false, true));
                let best = Values::of_tensor(values.dtype().accumulator());
                out.push(ArgStep::shader(row, &best, output, true, true));
            }
            out.push(ArgStep::shader(row, values, I32, false, false));
        };
        TYPES.iter().for_each(|dtype| with(&Values::of_tensor(*dtype)));
        values::samples().iter().for_each(&mut with);
    }
    out
}

impl Arg {
    fn reduce(
        &self,
        ctx: &mut dyn OpContext,
        x: &[Tensor],
        [outer, extent, inner]: [usize; 3],
        y: &Tensor,
    ) -> Result<()> {
        let profile = ctx.device().profile();
        let tensors: SmallVec<[&Tensor; 4]> = x.iter().collect();
        let layout = Layout::of(&self.values, extent, inner).filter(|_| vec4::aligned(&tensors));
        // There are two steps where the extent is long and outputs are few, or where it exceeds the
        // iterations of one invocation.
        let each = layout.map_or(inner, |layout| layout.invocations(inner));
        let length = layout.map_or(extent, |layout| layout.units(extent, inner)[0]);
        let wanted = (profile.invocations / (outer * each)).min(length / 64).min(1024);
        let segments = wanted.max(length.div_ceil(profile.loop_limit)).max(1);
        let values = Compared { values: &self.values, x, at: None, constants: &self.constants };
        let extents = [outer, extent, inner, segments];
        if segments < 2 {
            return self.run(ctx.device(), &values, layout, extents, None, y);
        }
        let best = ctx.temp(self.best.dtype(), &[outer * segments * inner])?;
        let at = ctx.temp(I32, &[outer * segments * inner])?;
        let device = ctx.device();
        self.run(device, &values, layout, extents, Some(&best), &at)?;
        let pairs = Compared {
            values: &self.best,
            x: std::slice::from_ref(&best),
            at: Some(&at),
            constants: &Constants::default(),
        };
        self.run(device, &pairs, None, [outer, segments, inner, 1], None, y)
    }

    /// Enqueues one step, in windows along `outer` if it exceeds a binding. With a `layout` it
    /// reads vec4s. Without `best` it is the last step.
    fn run(
        &self,
        device: &Device,
        compared: &Compared<'_>,
        layout: Option<Layout>,
        extents @ [outer, extent, inner, segments]: [usize; 4],
        best: Option<&Tensor>,
        y: &Tensor,
    ) -> Result<()> {
        let Compared { values, at, constants, .. } = *compared;
        let (row, last, constants) = (self.row, best.is_none(), || constants.clone());
        let rows = compared.window_rows(device, extents);
        for o in (0..outer).step_by(rows) {
            let rows = rows.min(outer - o);
            let (from, reads) = (o * extent * inner, rows * extent * inner);
            let (to, count) = (o * segments * inner, rows * segments * inner);
            device.check_extent(reads)?;
            let x = compared.parts(from, reads, layout.is_some());
            let (best, flops) = (best.map(|t| part(t, to, count)), values.flops(reads));
            let y_part = part(y, to, count);
            let Some(layout) = layout else {
                let params = ArgParams { count, extent, inner, segments };
                let at = at.map(|t| part(t, from, reads));
                let of = ArgStep::of(row, values, y.dtype, at.is_some(), last);
                let call = ArgStep { x, y: y_part, at, best, params, constants: constants() };
                device.enqueue_counted(&call.program(&of, Grid::map(count, y.dtype)), flops)?;
                continue;
            };
            let ([extent, inner], invocations) =
                (layout.units(extent, inner), rows * segments * layout.invocations(inner));
            let params = ArgParams { count: invocations, extent, inner, segments };
            let is_max = (row.reference)(1.0, 0.0);
            let worst = if is_max { f32::NEG_INFINITY } else { f32::INFINITY };
            let of = vec4s::ArgVec4s::of(row, values, y.dtype, last, layout);
            let call = vec4s::ArgVec4s {
                x,
                y: y_part,
                best,
                params,
                constants: constants(),
                worst,
                nan: f32::NAN,
            };
            let grid = Grid::linear(invocations, WORKGROUP);
            device.enqueue_counted(&call.program(&of, grid), flops)?;
        }
        Ok(())
    }
}

/// What a step compares.
struct Compared<'a> {
    values: &'a Values,
    /// The tensors that the values are computed from.
    x: &'a [Tensor],
    /// The values' indices, if they come from an earlier step.
    at: Option<&'a Tensor>,
    constants: &'a Constants,
}

impl Compared<'_> {
    /// `count` elements of each tensor from element `first` on.
    fn parts(&self, first: usize, count: usize, in_vec4s: bool) -> NamedBindings {
        let part = |t: &Tensor| match in_vec4s {
            true => Binding { unit: vec4::unit(t.dtype), ..part(t, first, count) },
            false => part(t, first, count),
        };
        values::NAMES.into_iter().zip(self.x.iter().map(part)).collect()
    }

    /// Rows of `outer` such that each tensor fits a binding.
    fn window_rows(&self, device: &Device, [outer, extent, inner, segments]: [usize; 4]) -> usize {
        let widest = self.x.iter().map(|t| t.dtype.size()).max().unwrap_or(1);
        let bytes = (extent * inner * widest).max(segments * inner * 8) as u64;
        (((device.capabilities().max_binding - 256).min(1 << 31) / bytes) as usize).clamp(1, outer)
    }
}
