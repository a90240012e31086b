//! ArgMax and ArgMin along one axis. The first of equal values wins and NaN never does, as in
//! TensorFlow's CPU kernels; if all values are NaN, the result is 0.

pub(super) mod vec4s;

use super::program::part;
use crate::device::{Binding, Device, Grid, Key, KeyPart, declare_params, declare_program};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::{Tensor, shape_text};
use crate::{invalid, require};
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
const TYPES: &[DType] = union!(types::FLOATS, types::INTS_BUT_I32, &[Bool]);
const OUTPUTS: &[DType] = types::INDEX;

/// Registers both ops.
pub(super) fn register(r: &mut Registry) {
    for row in ARG_REDUCTIONS {
        r.op(row.op)
            .types("T", TYPES)
            .types("output_type", OUTPUTS)
            .types("Tidx", &[I32])
            .host(&["dimension"])
            .kernel(move |attrs: &dyn Attrs| {
                let output = attrs.dtype("output_type")?;
                Ok(move |ctx: &mut dyn OpContext| compute(ctx, row, output))
            });
    }
}

fn compute(ctx: &mut dyn OpContext, row: &'static ArgReduction, output: DType) -> Result<()> {
    let x = ctx.input(0)?;
    let dimension = ctx.host_input(1)?;
    require!(
        dimension.dims.is_empty(),
        "dim must be a scalar, but received tensor of shape: {}",
        shape_text(&dimension.dims)
    );
    let dimension = dimension.to_i64()?[0];
    let rank = x.rank() as i64;
    let axis = if dimension < 0 { dimension + rank } else { dimension };
    if !(0..rank).contains(&axis) {
        invalid!("Expected dimension in the range [{}, {rank}), but got {dimension}", -rank);
    }
    let axis = axis as usize;
    let extent = x.dims[axis];
    require!(extent > 0, "Reduction axis {dimension} is empty in shape {}", shape_text(&x.dims));
    let mut dims = x.dims.clone();
    dims.remove(axis);
    let y = ctx.output(0, output, &dims)?;
    if y.is_empty() {
        return Ok(());
    }
    let outer: usize = x.dims[..axis].iter().product();
    let inner: usize = x.dims[axis + 1..].iter().product();
    arg_reduce(ctx, row, &x, [outer, extent, inner], &y)
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
    /// A step of a reduction of `input`. It begins with `pairs` if indices come with the values,
    /// from an earlier step. The `last` step keeps the indices alone.
    struct ArgStep = "arg_reduce"(
        row: &'static ArgReduction, input: DType, output: DType, pairs: bool, last: bool
    );
    bindings { x: input, y: output }
    optional { at: pairs.then_some(I32), best: (!last).then_some(input.accumulator()) }
    params { params: ArgParams }
}

impl ArgStep {
    fn shader(
        row: &'static ArgReduction,
        input: DType,
        output: DType,
        pairs: bool,
        last: bool,
    ) -> Shader {
        let is_nan = match input {
            t if t.is_single() => "(bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u",
            F64 => "a != a",
            _ => "false",
        };
        let label = format!("{} {input} to {output}", row.op);
        Self::declare(label, row, input, output, pairs, last)
            .define("VALUE", if input == Bool { "u32" } else { input.value() })
            .define("LOAD", if input == Bool { "select(0u, 1u, load_x(e))" } else { "load_x(e)" })
            .define("IS_NAN", is_nan)
            .define("BEATS", row.beats)
            .define("INDEX", if pairs { "u32(load_at(e))" } else { "r" })
            .define("KEEP_BEST", if last { "" } else { "store_best(i, best_value);" })
            .define("OUTPUT", output.value())
            .body(include_str!("../../../../shaders/arg_reduce.wgsl"))
    }
}

/// Every text.
pub(super) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for row in ARG_REDUCTIONS {
        for &dtype in TYPES {
            for &output in OUTPUTS {
                out.push(ArgStep::shader(row, dtype, output, false, true));
                out.push(ArgStep::shader(row, dtype.accumulator(), output, true, true));
            }
            out.push(ArgStep::shader(row, dtype, I32, false, false));
        }
    }
    out
}

fn arg_reduce(
    ctx: &mut dyn OpContext,
    row: &'static ArgReduction,
    x: &Tensor,
    [outer, extent, inner]: [usize; 3],
    y: &Tensor,
) -> Result<()> {
    let profile = ctx.device().profile();
    let layout = Layout::of(x.dtype, extent, inner).filter(|_| vec4::aligned(&[x]));
    // There are two steps where the extent is long and outputs are few, or where it exceeds the
    // iterations of one invocation.
    let each = layout.map_or(inner, |layout| layout.invocations(inner));
    let length = layout.map_or(extent, |layout| layout.units(extent, inner)[0]);
    let wanted = (profile.invocations / (outer * each)).min(length / 64).min(1024);
    let segments = wanted.max(length.div_ceil(profile.loop_limit)).max(1);
    if segments < 2 {
        return match layout {
            Some(layout) => vec4s(ctx.device(), row, layout, x, [outer, extent, inner, 1], None, y),
            None => run(ctx.device(), row, x, None, [outer, extent, inner, 1], None, y),
        };
    }
    let best = ctx.temp(x.dtype.accumulator(), &[outer * segments * inner])?;
    let at = ctx.temp(I32, &[outer * segments * inner])?;
    let device = ctx.device();
    let extents = [outer, extent, inner, segments];
    match layout {
        Some(layout) => vec4s(device, row, layout, x, extents, Some(&best), &at)?,
        None => run(device, row, x, None, extents, Some(&best), &at)?,
    }
    run(device, row, &best, Some(&at), [outer, segments, inner, 1], None, y)
}

/// Enqueues the first step by vec4s, in windows along `outer` if it exceeds a binding. Without
/// `best` it is the last step, too.
fn vec4s(
    device: &Device,
    row: &'static ArgReduction,
    layout: Layout,
    x: &Tensor,
    [outer, extent, inner, segments]: [usize; 4],
    best: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let rows = window_rows(device, x.dtype, [outer, extent, inner, segments]);
    let [units, inner_units] = layout.units(extent, inner);
    for o in (0..outer).step_by(rows) {
        let rows = rows.min(outer - o);
        let reads = rows * extent * inner;
        let (to, count) = (o * segments * inner, rows * segments * inner);
        device.check_extent(reads)?;
        let invocations = rows * segments * layout.invocations(inner);
        let of = vec4s::ArgVec4s::of(row, x.dtype, y.dtype, best.is_none(), layout);
        let call = vec4s::ArgVec4s {
            x: Binding { unit: vec4::unit(x.dtype), ..part(x, o * extent * inner, reads) },
            y: part(y, to, count),
            best: best.map(|t| part(t, to, count)),
            params: ArgParams { count: invocations, extent: units, inner: inner_units, segments },
            worst: if (row.reference)(1.0, 0.0) { f32::NEG_INFINITY } else { f32::INFINITY },
            nan: f32::NAN,
        };
        let grid = Grid::linear(invocations, WORKGROUP);
        device.enqueue_counted(&call.program(&of, grid), x.dtype.flops(reads))?;
    }
    Ok(())
}

/// Rows of `outer` such that each tensor fits a binding.
fn window_rows(
    device: &Device,
    input: DType,
    [outer, extent, inner, segments]: [usize; 4],
) -> usize {
    let bytes = (extent * inner * input.size()).max(segments * inner * 8) as u64;
    (((device.capabilities().max_binding - 256).min(1 << 31) / bytes) as usize).clamp(1, outer)
}

/// Enqueues one step, in windows along `outer` if it exceeds a binding.
fn run(
    device: &Device,
    row: &'static ArgReduction,
    x: &Tensor,
    at: Option<&Tensor>,
    [outer, extent, inner, segments]: [usize; 4],
    best: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let rows = window_rows(device, x.dtype, [outer, extent, inner, segments]);
    for o in (0..outer).step_by(rows) {
        let rows = rows.min(outer - o);
        let (from, reads) = (o * extent * inner, rows * extent * inner);
        let (to, count) = (o * segments * inner, rows * segments * inner);
        device.check_extent(reads)?;
        let call = ArgStep {
            x: part(x, from, reads),
            y: part(y, to, count),
            at: at.map(|t| part(t, from, reads)),
            best: best.map(|t| part(t, to, count)),
            params: ArgParams { count, extent, inner, segments },
        };
        let of = ArgStep::of(row, x.dtype, y.dtype, at.is_some(), best.is_none());
        let grid = Grid::map(count, y.dtype);
        device.enqueue_counted(&call.program(&of, grid), x.dtype.flops(reads))?;
    }
    Ok(())
}
