//! AdjustContrastv2 and AdjustContrast: the distance from each image's mean, by channel, times a
//! factor.

use smallvec::SmallVec;

use super::check_extents;
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::reduce::reduce;
use crate::kernels::registry::Registry;
use crate::kernels::scalar::cast::cast;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

const V2: &[DType] = types::F32_F16;
const V1: &[DType] = &[F32, F64, U8, I8, I16, I32];

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for (op, types, bounded) in [("AdjustContrast", V1, true), ("AdjustContrastv2", V2, false)] {
        r.op(op)
            .types("T", types)
            .items(&[(0, 3)])
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| adjust_contrast(ctx, bounded)));
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let bounded = V1.iter().map(|t| AdjustContrast::shader(*t, F32));
    bounded.chain(V2.iter().map(|t| AdjustContrast::shader(*t, *t))).collect()
}

/// Inputs: images, contrast_factor; if the result is bounded also min_value and max_value, all
/// float32 scalars on the device.
fn adjust_contrast(ctx: &mut dyn OpContext, bounded: bool) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 3, "input must be at least 3-D, got shape{}", shape_text(&x.dims));
    let names: &[&str] =
        if bounded { &["contrast_factor", "min_value", "max_value"] } else { &["contrast_factor"] };
    let mut scalars = SmallVec::<[Tensor; 3]>::new();
    for (i, name) in names.iter().enumerate() {
        let s = ctx.input(1 + i)?;
        require!(s.dims.is_empty(), "{name} must be scalar: {}", shape_text(&s.dims));
        scalars.push(s);
    }
    let dtype = if bounded { F32 } else { x.dtype };
    let y = ctx.output(0, dtype, &x.dims)?;
    check_extents(ctx.device(), &[&x])?;
    if y.is_empty() {
        return Ok(());
    }
    let (lead, image) = x.dims.split_at(x.rank() - 3);
    let dims = [lead.iter().product(), image[0] * image[1], image[2]];
    // The mean is in float32: TensorFlow sums in float32 for every type.
    let wide = if x.dtype == F32 { x.clone() } else { ctx.temp(F32, &dims)? };
    if x.dtype != F32 {
        cast(ctx.device(), &x, &wide)?;
    }
    let mean = ctx.temp(F32, &[dims[0], dims[2]])?;
    reduce(ctx, "Mean", &wide.reshaped(&dims), &[false, true, false], &mean)?;
    // An unbounded result does not use the other two scalars; the factor stands in for them.
    let factor = &scalars[0];
    let (low, high) = if bounded { (&scalars[1], &scalars[2]) } else { (factor, factor) };
    ctx.device().enqueue_counted(
        &AdjustContrast {
            x: (&x).into(),
            mean: (&mean).into(),
            factor: factor.into(),
            low: low.into(),
            high: high.into(),
            y: (&y).into(),
            count: y.len(),
            image: dims[1] * dims[2],
            channels: dims[2],
            bounded,
        }
        .program(&AdjustContrast::of(x.dtype, dtype), Grid::map(y.len(), dtype)),
        F32.flops(3 * y.len()),
    )
}

declare_program! {
    /// The distance from an image's mean, times a factor.
    struct AdjustContrast = "contrast"(input: DType, output: DType);
    bindings { x: input, mean: F32, factor: F32, low: F32, high: F32, y: output }
    params { count: usize, image: usize, channels: usize, bounded: bool }
    shader format!("contrast {input} to {output}") =>
        .body(include_str!("../../../shaders/image/contrast.wgsl"))
        .map("y")
}
