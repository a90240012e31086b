//! ImageProjectiveTransformV2 and V3: each output position reads the image at the point to which a
//! projective transform maps it.

use super::{check_extents, host_pair};
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, codec};
use crate::tensor::shape_text;

const TYPES: &[DType] = union!(types::FLOATS_BUT_BF16, types::INDEX, &[U8]);

/// Fill modes, in the shader's numbers.
const MODES: [&str; 4] = ["CONSTANT", "NEAREST", "REFLECT", "WRAP"];

/// Registers the ops.
pub fn register(r: &mut Registry) {
    let create = |filled: bool| {
        move |attrs: &dyn Attrs| {
            let transform = Transform::of(attrs, filled)?;
            Ok(move |ctx: &mut dyn OpContext| transform.compute(ctx))
        }
    };
    r.op("ImageProjectiveTransformV2")
        .types("dtype", TYPES)
        .host(&["output_shape"])
        .items(&[(0, 3), (1, 1)])
        .kernel(create(false));
    r.op("ImageProjectiveTransformV3")
        .types("dtype", TYPES)
        .host(&["output_shape", "fill_value"])
        .items(&[(0, 3), (1, 1)])
        .kernel(create(true));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().map(|t| ProjectiveTransform::shader(*t)).collect()
}

struct Transform {
    bilinear: bool,
    mode: usize,
    /// Whether the fill value is an input.
    filled: bool,
}

impl Transform {
    fn of(attrs: &dyn Attrs, filled: bool) -> Result<Self> {
        let (interpolation, mode) = (attrs.string("interpolation")?, attrs.string("fill_mode")?);
        require!(
            matches!(interpolation.as_str(), "NEAREST" | "BILINEAR"),
            "Invalid interpolation {interpolation}. Supported types: NEAREST, BILINEAR"
        );
        let Some(number) = MODES.iter().position(|m| *m == mode) else {
            crate::invalid!(
                "Invalid mode {mode}. Supported types: REFLECT, WRAP, CONSTANT, NEAREST"
            );
        };
        Ok(Self { bilinear: interpolation == "BILINEAR", mode: number, filled })
    }

    /// Inputs: images, transforms, output_shape (host), for V3 fill_value (host).
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (images, transforms) = (ctx.input(0)?, ctx.input(1)?);
        require!(images.rank() == 4, "Input images must have rank 4");
        let [batch, height, width, channels] =
            [images.dims[0], images.dims[1], images.dims[2], images.dims[3]];
        require!(
            transforms.rank() == 2
                && (transforms.dims[0] == batch || transforms.dims[0] == 1)
                && transforms.dims[1] == 8,
            "Input transform should be num_images x 8 or 1 x 8"
        );
        let size = host_pair(ctx, 2, "output shape")?;
        require!(size.iter().all(|n| *n > 0), "output dimensions must be positive");
        let mut fill = 0.0;
        if self.filled {
            let t = ctx.host_input(3)?;
            require!(t.dims.is_empty(), "fill_value must be a scalar{}", shape_text(&t.dims));
            fill = t.values::<f32>()[0];
        }
        let (rows, columns) = (size[0] as usize, size[1] as usize);
        let result = ctx.output(0, images.dtype, &[batch, rows, columns, channels])?;
        let device = ctx.device();
        check_extents(device, &[&images, &result])?;
        if result.is_empty() {
            return Ok(());
        }
        let dtype = images.dtype;
        ProjectiveTransform {
            images: (&images).into(),
            transforms: (&transforms).into(),
            result: (&result).into(),
            count: result.len(),
            height,
            width,
            channels,
            rows,
            columns,
            mode: self.mode,
            bilinear: self.bilinear,
            stride: if transforms.dims[0] == 1 { 0 } else { 8 },
            fill,
        }
        .enqueue(device, &ProjectiveTransform::of(dtype), Grid::map(result.len(), dtype))
    }
}

declare_program! {
    /// The transformed images.
    struct ProjectiveTransform = "projective transform"(dtype: DType);
    bindings { images: dtype, transforms: F32, result: dtype }
    params {
        count: usize, height: usize, width: usize, channels: usize, rows: usize, columns: usize,
        mode: usize, bilinear: bool, stride: usize, fill: f32,
    }
}

impl ProjectiveTransform {
    fn shader(dtype: DType) -> Shader {
        // C++ truncates; the bytes wrap around.
        let convert = match dtype {
            I64 => "f32_to_i64(v)",
            I32 => "f32_to_i32(v)",
            U8 => "bitcast<u32>(f32_to_i32(v)) & 0xffu",
            F64 => "f64(v)",
            // The value is already rounded to the type where the fill value takes part in the
            // interpolation.
            _ => codec::rounded(dtype).unwrap_or("v"),
        };
        Self::declare(format!("projective transform {dtype}"), dtype)
            .define("VALUE", dtype.value())
            .define("CONVERT", convert)
            .body(include_str!("../../../shaders/image/transform.wgsl"))
            .map("result")
    }
}
