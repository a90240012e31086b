//! Matrix products and convolutions with an epilogue: `_WgpuFusedMatMul` and similar ops are the
//! base ops with the attributes of an [`Epilogue`]. Its operands follow the two of the base op.
//!
//! The operands broadcast to the result by numpy's rule, but a vector always has one element for
//! each channel, also where channels are not the last dimension. They may make the result larger,
//! as in the ops that were fused; the epilogue then runs behind the contraction.

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::plan::Product;
use crate::kernels::conv::attributes::{ConvAttributes, Family};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs, broadcast};
use crate::kernels::fused::sibling_products::{Fused, Products};
use crate::kernels::matmul::{Batches, MatMul};
use crate::kernels::op::Attrs;
use crate::kernels::registry::Registry;
use crate::shader::Shader;

/// Element types of the base op and of the result.
const TYPES: &[DType] = types::FLOATS;

/// The product of int8 in int32, which the epilogue turns into floats.
pub const INT8: &str = "_WgpuFusedBatchMatMulV3";

/// A product or convolution and the op that computes it with an epilogue.
pub const FUSED: &[(&str, &str)] = &[
    ("BatchMatMulV2", "_WgpuFusedBatchMatMulV2"),
    ("BatchMatMulV3", INT8),
    ("Conv2D", "_WgpuFusedConv2D"),
    ("Conv3D", "_WgpuFusedConv3D"),
    ("DepthwiseConv2dNative", "_WgpuFusedDepthwiseConv2dNative"),
    ("MatMul", "_WgpuFusedMatMul"),
];

/// The attributes of all ops.
macro_rules! attrs {
    ($($own:literal),*) => {
        attrs!(of "T: {float, half, bfloat16, double}"; $($own),*)
    };
    (of $dtype:literal; $($own:literal),*) => {
        &[
            $dtype,
            "T_extra: list(type) >= 0",
            "T_out: {float, half, bfloat16, double}",
            "expression: string",
            "constants: list(float)",
            $($own),*
        ]
    };
}

/// The ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: "_WgpuFusedBatchMatMulV2",
        inputs: &["x: T", "y: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!("adj_x: bool = false", "adj_y: bool = false"),
        stateful: false,
        shape: matmul_shape,
    },
    OpDefinition {
        name: INT8,
        inputs: &["x: T", "y: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!(of "T: {int8}"; "adj_x: bool = false", "adj_y: bool = false"),
        stateful: false,
        shape: matmul_shape,
    },
    OpDefinition {
        name: "_WgpuFusedConv2D",
        inputs: &["input: T", "filter: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!(
            "strides: list(int)",
            "use_cudnn_on_gpu: bool = true",
            "padding: {'SAME', 'VALID', 'EXPLICIT'}",
            "explicit_paddings: list(int) = []",
            "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
            "dilations: list(int) = [1, 1, 1, 1]"
        ),
        stateful: false,
        shape: conv_shape,
    },
    OpDefinition {
        name: "_WgpuFusedConv3D",
        inputs: &["input: T", "filter: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!(
            "strides: list(int)",
            "padding: {'SAME', 'VALID', 'EXPLICIT'}",
            "explicit_paddings: list(int) = []",
            "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
            "dilations: list(int) = [1, 1, 1, 1, 1]"
        ),
        stateful: false,
        shape: conv_shape,
    },
    OpDefinition {
        name: "_WgpuFusedDepthwiseConv2dNative",
        inputs: &["input: T", "filter: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!(
            "strides: list(int)",
            "padding: {'SAME', 'VALID', 'EXPLICIT'}",
            "explicit_paddings: list(int) = []",
            "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
            "dilations: list(int) = [1, 1, 1, 1]"
        ),
        stateful: false,
        shape: conv_shape,
    },
    OpDefinition {
        name: "_WgpuFusedMatMul",
        inputs: &["a: T", "b: T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: attrs!("transpose_a: bool = false", "transpose_b: bool = false"),
        stateful: false,
        shape: matmul_shape,
    },
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    type Base = fn(&dyn Attrs) -> Result<Box<dyn Product>>;
    let mut op_of = |name: &'static str, types: &'static [DType], base: Base| {
        r.op(name)
            .types("T", types)
            .types("T_out", TYPES)
            .kernel(move |attrs| Ok(Products::from(Fused::read(attrs, name, base(attrs)?, 1)?)));
    };
    let batches: Base =
        |attrs| Ok(Box::new(MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y")?));
    op_of(INT8, &[DType::I8], batches);
    let mut op = |name, base| op_of(name, TYPES, base);
    op("_WgpuFusedBatchMatMulV2", batches);
    op("_WgpuFusedConv2D", |attrs| Ok(Box::new(ConvAttributes::read(attrs, Family::CONV2D)?)));
    op("_WgpuFusedConv3D", |attrs| Ok(Box::new(ConvAttributes::read(attrs, Family::CONV3D)?)));
    op("_WgpuFusedDepthwiseConv2dNative", |attrs| {
        Ok(Box::new(ConvAttributes::read(attrs, Family::DEPTHWISE)?))
    });
    op("_WgpuFusedMatMul", |attrs| {
        Ok(Box::new(MatMul::new(attrs, Batches::Matrices, "transpose_a", "transpose_b")?))
    });
}

/// Shader variants of sample epilogues.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = crate::kernels::contract::fused_variants();
    shaders.extend(crate::kernels::contract::product_variants());
    shaders.extend(crate::kernels::conv::fused_shaders());
    shaders
}

/// Shape functions do not see which operands are transposed: the last two extents are those of
/// further operands, or unknown.
pub(super) fn matmul_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [Some(a), Some(b), extras @ ..] = inputs.shapes else { return Ok(vec![None]) };
    let batch = |shape: &[Option<usize>]| Some(shape[..shape.len().saturating_sub(2)].to_vec());
    let Some(mut result) = broadcast(&[batch(a), batch(b)])? else { return Ok(vec![None]) };
    result.extend([None, None]);
    let shapes: Vec<PartialShape> =
        std::iter::once(Some(result)).chain(extras.iter().cloned()).collect();
    Ok(vec![broadcast(&shapes)?])
}

/// The batch is the input's; further operands may tell the other extents. The position of the
/// channels is unknown, so vectors tell nothing.
fn conv_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [Some(input), Some(filter), extras @ ..] = inputs.shapes else { return Ok(vec![None]) };
    let mut result = vec![None; filter.len()];
    if let (Some(to), Some(from)) = (result.first_mut(), input.first()) {
        *to = *from;
    }
    let extras = extras.iter().filter(|e| e.as_ref().is_none_or(|e| e.len() != 1)).cloned();
    let shapes: Vec<PartialShape> = std::iter::once(Some(result)).chain(extras).collect();
    Ok(vec![broadcast(&shapes)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[i64]) -> PartialShape {
        Some(dims.iter().map(|d| usize::try_from(*d).ok()).collect())
    }

    fn of(
        function: crate::kernels::definition::ShapeFunction,
        shapes: &[PartialShape],
    ) -> PartialShape {
        function(&ShapeInputs { shapes, dtype: &|_| None }).unwrap().remove(0)
    }

    #[test]
    fn shapes_are_what_is_sure_without_attributes() {
        let (a, b) = (shape(&[2, 3]), shape(&[3, 4]));
        assert_eq!(of(matmul_shape, &[a.clone(), b.clone()]), shape(&[-1, -1]));
        assert_eq!(of(matmul_shape, &[a.clone(), b.clone(), shape(&[4])]), shape(&[-1, 4]));
        assert_eq!(of(matmul_shape, &[a.clone(), b.clone(), shape(&[2, 4])]), shape(&[2, 4]));
        assert_eq!(of(matmul_shape, &[shape(&[5, 2, 3]), shape(&[1, 3, 4])]), shape(&[5, -1, -1]));
        assert_eq!(of(matmul_shape, &[None, b]), None);
        let (x, f) = (shape(&[8, 9, 9, 3]), shape(&[3, 3, 3, 16]));
        assert_eq!(of(conv_shape, &[x.clone(), f.clone(), shape(&[16])]), shape(&[8, -1, -1, -1]));
        assert_eq!(
            of(conv_shape, &[x.clone(), f.clone(), shape(&[1, 1, 1, 16])]),
            shape(&[8, -1, -1, 16])
        );
        assert_eq!(of(conv_shape, &[x, f, None]), None);
    }
}
