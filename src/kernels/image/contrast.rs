//! AdjustContrastv2 and AdjustContrast: the distance from each image's mean, by channel, times a
//! factor.

use smallvec::{SmallVec, smallvec};

use super::check_extents;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::reduce::plan::groups;
use crate::kernels::reduce::program::reduce;
use crate::kernels::reduce::table::Reduction;
use crate::kernels::registry::Registry;
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
    let mut all: Vec<_> =
        V1.iter().chain([&F16]).filter(|t| **t != F32).map(|t| widen_shader(*t)).collect();
    all.extend(V1.iter().map(|t| shader(*t, F32)));
    all.extend(V2.iter().map(|t| shader(*t, *t)));
    all
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
        widen(ctx, &x, &wide)?;
    }
    let mean = ctx.temp(F32, &[dims[0], dims[2]])?;
    reduce(ctx, Reduction::of("Mean"), &wide, &groups(&dims, &[false, true, false]), &mean)?;
    // An unbounded result does not use the other two scalars; the factor stands in for them.
    let factor = &scalars[0];
    let (low, high) = if bounded { (&scalars[1], &scalars[2]) } else { (factor, factor) };
    let tensors = [&x, &mean, factor, low, high, &y];
    ctx.device().enqueue_counted(
        &Program {
            key: Key::new("contrast").dtype(x.dtype).dtype(dtype).number(u32::from(bounded)),
            shader: &|| shader(x.dtype, dtype),
            bindings: tensors.into_iter().map(Binding::from).collect(),
            params: Params::new()
                .u32(y.len())
                .u32(dims[1] * dims[2])
                .u32(dims[2])
                .u32(u32::from(bounded)),
            grid: Grid::map(y.len(), dtype),
        },
        F32.flops(3 * y.len()),
    )
}

fn widen(ctx: &dyn OpContext, x: &Tensor, wide: &Tensor) -> Result<()> {
    let dtype = x.dtype;
    ctx.device().enqueue(&Program {
        key: Key::new("contrast widen").dtype(dtype),
        shader: &|| widen_shader(dtype),
        bindings: smallvec![x.into(), wide.into()],
        params: Params::new().u32(x.len()),
        grid: Grid::map(x.len(), F32),
    })
}

fn widen_shader(dtype: DType) -> Shader {
    Shader::new(format!("contrast widen {dtype}"))
        .bind("x", dtype)
        .bind("wide", F32)
        .u32s(&["count"])
        .body("fn value(i: u32) -> f32 {\n    return f32(load_x(i));\n}\n")
        .map("wide")
}

fn shader(input: DType, output: DType) -> Shader {
    Shader::new(format!("contrast {input} to {output}"))
        .bind("x", input)
        .bind("mean", F32)
        .bind("factor", F32)
        .bind("low", F32)
        .bind("high", F32)
        .bind("y", output)
        .u32s(&["count", "image", "channels", "bounded"])
        .body(include_str!("../../../shaders/image/contrast.wgsl"))
        .map("y")
}
