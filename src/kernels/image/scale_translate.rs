//! ScaleAndTranslate and its gradient: resizing by a sampling kernel, which is stretched if the
//! image shrinks.
//!
//! Both take a pass along rows and one along columns, with the same program: the gradient's spans
//! are the transposed ones. Spans depend only on arguments in host memory, so the host computes
//! them.

use super::resize::Launch;
use super::spans::{Axis, Sampling, Spans};
use super::{check_extents, check_image};
use crate::device::{Device, declare_program};
use crate::dtype::{
    DType::{self, *},
    types::FLOATS,
    union,
};
use crate::error::{Error, Result};
use crate::kernels::iterations::{STEPS, steps};
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::too_large;
use crate::require;
use crate::shader::{Access, Shader, vec4};
use crate::tensor::{Tensor, shape_text};

/// The types of TensorFlow's CPU kernel except int32, which is in host memory.
const TYPES: &[DType] = union!(FLOATS, &[I8, I16, I64, U8, U16]);

/// Registers both.
pub fn register(r: &mut Registry) {
    r.op("ScaleAndTranslate")
        .types("T", TYPES)
        .host(&["size", "scale", "translation"])
        .items(&[(0, 3)])
        .kernel(|attrs| {
            let sampled = Sampled::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext| sampled.forward(ctx))
        });
    r.op("ScaleAndTranslateGrad").types("T", &[F32]).host(&["scale", "translation"]).kernel(
        |attrs| {
            let sampled = Sampled::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext| sampled.gradient(ctx))
        },
    );
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for wide in [false, true] {
        let fits = |t: &&DType| !wide || vec4::supports(**t);
        all.extend(TYPES.iter().filter(fits).map(|t| ResizeBySpans::shader(*t, wide, 1)));
        all.extend(STEPS[1..].iter().map(|steps| ResizeBySpans::shader(F32, wide, *steps)));
    }
    all
}

/// The attributes of a node.
struct Sampled {
    sampling: Sampling,
    antialias: bool,
}

impl Sampled {
    fn of(attrs: &dyn Attrs) -> Result<Self> {
        let sampling = Sampling::of(&attrs.string("kernel_type")?)?;
        Ok(Self { sampling, antialias: attrs.bool("antialias")? })
    }

    /// Inputs: images, size, scale, translation (all three on the host).
    fn forward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let [batch, height, width, channels] = check_image(&x, "input must be 4-dimensional")?;
        let size = ctx.host_input(1)?;
        let shown = shape_text(&size.dims);
        require!(size.dims.len() == 1, "output_shape_t must be 1-dimensional{shown}");
        require!(size.dims[0] == 2, "output_shape_t must have two elements{shown}");
        let size = size.to_i64()?;
        require!(size.iter().all(|n| *n > 0), "output dimensions must be positive");
        require!(channels > 0, "image must have at least one channel");
        require!(height > 0 && width > 0, "input image must be of non-zero size");
        let [rows, columns] = [size[0] as usize, size[1] as usize];
        let axes = axes(ctx, 2, [height, width], [rows, columns])?;
        let Some(y) = ctx.some_output(0, F32, &[batch, rows, columns, channels])? else {
            return Ok(());
        };
        let spans = self.spans(ctx.device(), axes)?;
        let partial = ctx.temp(F32, &[batch, rows, width, channels])?;
        two_passes(ctx, [&x, &partial, &y], &spans)
    }

    /// Inputs: grads, original_image (of which only the shape counts), scale, translation.
    fn gradient(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (dy, x) = (ctx.input(0)?, ctx.input(1)?);
        let [batch, rows, columns, channels] =
            check_image(&dy, "input_grad must be 4-dimensional")?;
        let [_, height, width, _] = check_image(&x, "original_image must be 4-dimensional")?;
        let axes = axes(ctx, 2, [height, width], [rows, columns])?;
        let Some(dx) = ctx.some_output(0, F32, &[batch, height, width, channels])? else {
            return Ok(());
        };
        let [rows, columns] = self.spans(ctx.device(), axes)?;
        let spans = [(rows, height), (columns, width)].map(|(spans, extent)| {
            let most = (ctx.device().capabilities().max_binding / 4).saturating_sub(extent as u64);
            spans.transposed(extent, most as usize).ok_or_else(|| too_many(ctx.device()))
        });
        let [rows, columns] = spans;
        let spans = [rows?, columns?];
        if dy.is_empty() || spans.iter().any(|s| s.size == 0) {
            return ctx.device().fill(dx.address, dx.bytes(), 0);
        }
        let partial = ctx.temp(F32, &[batch, height, dy.dims[2], channels])?;
        two_passes(ctx, [&dy, &partial, &dx], &spans)
    }

    /// The spans of rows and of columns.
    fn spans(&self, device: &Device, axes: [Axis; 2]) -> Result<[Spans; 2]> {
        for axis in &axes {
            let words = (axis.reach(self.sampling, self.antialias) + 1) as u64;
            let bytes = words.saturating_mul(axis.resized as u64).saturating_mul(4);
            if bytes > device.capabilities().max_binding {
                return Err(too_many(device));
            }
        }
        Ok(axes.map(|axis| axis.spans(self.sampling, self.antialias)))
    }
}

/// The error of weights beyond one binding.
fn too_many(device: &Device) -> Error {
    too_large(device.capabilities(), "the weights of an axis")
}

/// The axes of rows and columns, from the host inputs scale (`first`) and translation.
fn axes(
    ctx: &mut dyn OpContext,
    first: usize,
    extents: [usize; 2],
    resized: [usize; 2],
) -> Result<[Axis; 2]> {
    let scales = pair(ctx, first)?;
    // TensorFlow's threads treat subnormal numbers as zero.
    require!(scales.iter().all(|s| *s >= f32::MIN_POSITIVE), "Scale must be greater than zero.");
    let translations = pair(ctx, first + 1)?;
    Ok([0, 1].map(|k| Axis {
        extent: extents[k],
        resized: resized[k],
        scale: scales[k],
        translation: translations[k],
    }))
}

/// The two numbers of host input `i`.
fn pair(ctx: &mut dyn OpContext, i: usize) -> Result<[f32; 2]> {
    let t = ctx.host_input(i)?;
    require!(t.dims.len() == 1, "t must be 1-dimensional{}", shape_text(&t.dims));
    require!(t.dims[0] == 2, "t must have two elements{}", shape_text(&t.dims));
    let v = t.values::<f32>();
    Ok([v[0], v[1]])
}

/// Runs two passes, from the first tensor by way of the second to the third: rows, then columns.
fn two_passes(
    ctx: &dyn OpContext,
    tensors: [&Tensor; 3],
    [rows, columns]: &[Spans; 2],
) -> Result<()> {
    let [x, partial, y] = tensors;
    let device = ctx.device();
    check_extents(device, &tensors)?;
    let [_, height, width, channels] = [x.dims[0], x.dims[1], x.dims[2], x.dims[3]];
    pass(device, x, partial, (height, width * channels), rows)?;
    pass(device, partial, y, (width, channels), columns)
}

/// A pass along one axis, of `extent` positions of `inner` elements.
fn pass(
    device: &Device,
    src: &Tensor,
    dst: &Tensor,
    (extent, inner): (usize, usize),
    spans: &Spans,
) -> Result<()> {
    let steps = steps(&device.profile(), |steps| spans.size.div_ceil(steps))?;
    let (dtype, launch) = (src.dtype, Launch::of(src, dst, inner));
    let call = ResizeBySpans {
        src: launch.binding(src),
        dst: launch.binding(dst),
        count: launch.count,
        inner: launch.inner,
        extent,
        resized: spans.starts.len(),
        size: spans.size,
    };
    let of = ResizeBySpans::of(dtype, launch.wide, steps);
    let flops = DType::F32.flops(2 * spans.size * dst.len());
    let program = call.program(&of, launch.grid(dst));
    device.enqueue_table(&program, spans.words(), src.bytes() + dst.bytes(), flops)
}

declare_program! {
    /// Adds up the positions of a span, `steps` of them in an iteration.
    struct ResizeBySpans = "resize by spans"(dtype: DType, wide: bool, steps: u32);
    table spans;
    bindings { src: Access::read(dtype, wide), dst: Access::write(F32, wide) }
    params { count: usize, inner: usize, extent: usize, resized: usize, size: usize }
}

impl ResizeBySpans {
    fn shader(dtype: DType, wide: bool, steps: u32) -> Shader {
        let label = format!("resize by spans {dtype} wide={wide} by {steps}");
        let shader = Launch::define(Self::declare(label, dtype, wide, steps), F32, wide)
            .unrolled(steps, include_str!("../../../shaders/image/spans.wgsl"));
        Launch::map(shader, wide)
    }
}
