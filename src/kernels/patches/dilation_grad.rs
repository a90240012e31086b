//! The gradients of Dilation2D: each window's gradient goes to the element, or to the filter's
//! value, of its first largest sum.

use super::dilation::{Attributes, Geometry, Search, TYPES, WindowParams};
use crate::device::{Device, Grid, declare_program};
use crate::dtype::DType::{self, *};
use crate::dtype::Operations;
use crate::error::Result;
use crate::kernels::items::Held;
use crate::kernels::iterations::STEPS;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for (op, wants_filter) in
        [("Dilation2DBackpropFilter", true), ("Dilation2DBackpropInput", false)]
    {
        // The filter's gradient sums over all images.
        let held: Held = if wants_filter { &[] } else { &[(0, 3), (2, 3)] };
        r.op(op).types("T", TYPES).items(held).kernel(move |attrs| {
            let attributes = Attributes::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext| gradient(ctx, &attributes, wants_filter))
        });
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for &t in TYPES {
        let sum = if t == F64 { F64 } else { F32 };
        all.extend([
            Search::shader(t, true, 1),
            InputGradient::shader(t, 1),
            FilterGradient::shader(t, sum),
            FoldDilation::shader(sum, t),
        ]);
    }
    for steps in &STEPS[1..] {
        all.extend([Search::shader(F32, true, *steps), InputGradient::shader(F32, *steps)]);
    }
    all
}

/// Inputs: input, filter, out_backprop.
fn gradient(ctx: &mut dyn OpContext, attributes: &Attributes, wants_filter: bool) -> Result<()> {
    let (x, filter, dy) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let g = attributes.geometry(&x, &filter)?;
    require!(dy.rank() == 4, "out_backprop must be 4-dimensional{}", shape_text(&dy.dims));
    require!(dy.dims[..] == g.dims(), "out_backprop has incompatible size.");
    let dims = if wants_filter { &filter.dims } else { &x.dims };
    let Some(result) = ctx.some_output(0, x.dtype, dims)? else { return Ok(()) };
    if dy.is_empty() {
        return ctx.device().fill(result.address, result.bytes(), 0);
    }
    let taken = ctx.temp(U32, &dy.dims)?;
    g.search(ctx.device(), &x, &filter, &taken)?;
    if wants_filter {
        filter_gradient(ctx, &g, &taken, &dy, &result)
    } else {
        input_gradient(ctx, &g, &taken, &dy, &result)
    }
}

fn input_gradient(
    ctx: &dyn OpContext,
    g: &Geometry,
    taken: &Tensor,
    dy: &Tensor,
    dx: &Tensor,
) -> Result<()> {
    let device = ctx.device();
    device.check_extent(dx.len())?;
    let dtype = dx.dtype;
    let steps = g.steps(device, dtype)?;
    device.enqueue_counted(
        &InputGradient {
            taken: taken.into(),
            dy: dy.into(),
            dx: dx.into(),
            count: dx.len(),
            geometry: g.params(),
        }
        .program(&InputGradient::of(dtype, steps), Grid::map(dx.len(), dtype)),
        operations(g, dy),
    )
}

/// Each value of the gradient is added once, and compared with each element of its window.
fn operations(g: &Geometry, dy: &Tensor) -> Operations {
    Operations { flops: dy.dtype.flops(dy.len()), others: (g.taps() * dy.len()) as u64 }
}

/// Runs of windows are summed in parallel, then the runs are added in order.
fn filter_gradient(
    ctx: &mut dyn OpContext,
    g: &Geometry,
    taken: &Tensor,
    dy: &Tensor,
    dw: &Tensor,
) -> Result<()> {
    let windows = g.batch * g.output[0] * g.output[1];
    let profile = ctx.device().profile();
    let runs = (profile.invocations / dw.len())
        .clamp(1, windows)
        .max(windows.div_ceil(profile.loop_limit));
    let run = windows.div_ceil(runs);
    let runs = windows.div_ceil(run);
    let (dtype, sum) = (dw.dtype, if dw.dtype == F64 { F64 } else { F32 });
    let partial = ctx.temp(sum, &[runs, dw.len()])?;
    let device = ctx.device();
    device.check_extent(partial.len())?;
    device.enqueue_counted(
        &FilterGradient {
            taken: taken.into(),
            dy: dy.into(),
            partial: (&partial).into(),
            count: partial.len(),
            geometry: g.params(),
            windows,
            run,
        }
        .program(&FilterGradient::of(dtype, sum), Grid::map(partial.len(), sum)),
        operations(g, dy),
    )?;
    fold(ctx, &partial, dw)
}

/// `y[i] = sum over s of partial[s][i]`, in order. On adapters that end loops early, parts are
/// summed first, then their sums.
fn fold(ctx: &mut dyn OpContext, partial: &Tensor, y: &Tensor) -> Result<()> {
    let limit = ctx.device().profile().loop_limit;
    let mut partial = partial.clone();
    while partial.dims[0] * y.dtype.lanes() as usize > limit {
        let splits = partial.dims[0].div_ceil(limit.max(2));
        let sums = ctx.temp(partial.dtype, &[splits, y.len()])?;
        fold_once(ctx.device(), &partial, &sums, splits)?;
        partial = sums;
    }
    fold_once(ctx.device(), &partial, y, 1)
}

/// Sums runs of equally many rows of `partial` into the `rows` rows of `y`.
fn fold_once(device: &Device, partial: &Tensor, y: &Tensor, rows: usize) -> Result<()> {
    let (sum, dtype) = (partial.dtype, y.dtype);
    let splits = partial.dims[0];
    device.enqueue_counted(
        &FoldDilation {
            partial: partial.into(),
            y: y.into(),
            count: y.len(),
            columns: y.len() / rows,
            splits,
            run: splits.div_ceil(rows),
        }
        .program(&FoldDilation::of(sum, dtype), Grid::map(y.len(), dtype)),
        sum.flops(partial.len()),
    )
}

declare_program! {
    /// Adds up the gradients of the windows that took an element, with `steps` columns in an
    /// iteration.
    struct InputGradient = "dilation input"(dtype: DType, steps: u32);
    bindings { taken: U32, dy: dtype, dx: dtype }
    params { count: usize, geometry: WindowParams }
    shader format!("dilation input {dtype} by {steps}") =>
        .define("REAL", dtype.value())
        .unrolled(steps, include_str!("../../../shaders/patches/dilation_input.wgsl"))
        .map("dx")
}

declare_program! {
    /// Adds up the gradients of the windows of a run that took an element of the filter.
    struct FilterGradient = "dilation filter"(dtype: DType, sum: DType);
    bindings { taken: U32, dy: dtype, partial: sum }
    params { count: usize, geometry: WindowParams, windows: usize, run: usize }
    shader format!("dilation filter {dtype}") =>
        .define("REAL", sum.value())
        .body(include_str!("../../../shaders/patches/dilation_filter.wgsl"))
        .map("partial")
}

declare_program! {
    /// Sums of parts.
    struct FoldDilation = "dilation fold"(sum: DType, dtype: DType);
    bindings { partial: sum, y: dtype }
    params { count: usize, columns: usize, splits: usize, run: usize }
    shader format!("dilation fold {sum} to {dtype}") =>
        .define("REAL", sum.value())
        .body(include_str!("../../../shaders/patches/dilation_fold.wgsl"))
        .map("y")
}
