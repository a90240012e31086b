//! Matrix products and convolutions with an epilogue: `_WgpuFusedMatMul` and similar ops are the
//! base ops with the attributes of an [`Epilogue`]. Its operands follow the two of the base op.
//!
//! The operands broadcast to the result by numpy's rule, but a vector always has one element for
//! each channel, also where channels are not the last dimension. They may make the result larger,
//! as in the ops that were fused; the epilogue then runs behind the contraction.

use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::contract::epilogue::{Bound, Epilogue};
use crate::kernels::contract::joined;
use crate::kernels::contract::plan::{Product, ProductPlan};
use crate::kernels::conv::attributes::{ConvAttributes, Family};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs, broadcast};
use crate::kernels::fused::cost;
use crate::kernels::matmul::{Batches, MatMul};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::broadcast_dims;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor, shape_text};

/// Batch products of one left operand with several right ones. Each has the same epilogue with
/// operands of its own, in the order of the products.
pub const JOINED: &str = "_WgpuFusedJoinedMatMul";

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
        name: JOINED,
        inputs: &["x: T", "y: N * T", "extra: T_extras"],
        outputs: &["output: N * T_out"],
        attrs: attrs!(
            "N: int >= 2",
            "T_extras: list(type) >= 0",
            "adj_x: bool = false",
            "adj_y: bool = false"
        ),
        stateful: false,
        shape: joined_shape,
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
        r.op(name).types("T", types).types("T_out", TYPES).kernel(move |attrs| {
            let base = base(attrs)?;
            let epilogue = checked(Epilogue::read(attrs, base.result(attrs.dtype("T")?))?)?;
            Ok(Fused { base, epilogue, op: name })
        });
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
    r.op(JOINED).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = Box::new(MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y")?);
        let epilogue = checked(Epilogue::read(attrs, attrs.dtype("T")?)?)?;
        let count = usize::try_from(attrs.int("N")?).unwrap_or(0);
        let (own, all) = (attrs.dtypes("T_extra")?, attrs.dtypes("T_extras")?);
        let fit = (2..=joined::MOST).contains(&count) && all == own.repeat(count);
        require!(fit, "{JOINED}: {count} products do not take operands of {all:?}");
        Ok(Joined { product: Fused { op: JOINED, base, epilogue }, count })
    });
}

/// Shader variants of sample epilogues.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = crate::kernels::contract::fused_variants();
    shaders.extend(crate::kernels::contract::product_variants());
    shaders.extend(crate::kernels::conv::fused_shaders());
    shaders
}

/// Accepts an epilogue if some pass may make it.
pub(super) fn checked(epilogue: Epilogue) -> Result<Epilogue> {
    cost::check(cost::contraction(cost::expression(epilogue.expression())))?;
    Ok(epilogue)
}

/// A product or convolution with an epilogue.
pub(super) struct Fused {
    /// The op, for errors.
    pub op: &'static str,
    /// The base op.
    pub base: Box<dyn Product>,
    /// The epilogue of its result.
    pub epilogue: Epilogue,
}

impl Kernel for Fused {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let extras = (2..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let operands = [ctx.input(0)?, ctx.input(1)?];
        match self.start(ctx, &operands, &extras, 0)? {
            Some(plan) => plan.enqueue(ctx),
            None => Ok(()),
        }
    }
}

impl Fused {
    /// Enqueues the product of two operands with its epilogue into the output `port`, except for
    /// the plan that is returned.
    pub fn start(
        &self,
        ctx: &mut dyn OpContext,
        operands: &[Tensor; 2],
        extras: &[Tensor],
        port: usize,
    ) -> Result<Option<ProductPlan<'_>>> {
        self.start_in(ctx, operands, extras, |ctx, dims| {
            Ok([ctx.output(port, self.epilogue.output(), dims)?])
        })
    }

    /// The same, into the tensors that `outputs` makes for these dims: one for each value of the
    /// epilogue.
    pub fn start_in<const N: usize>(
        &self,
        ctx: &mut dyn OpContext,
        [a, b]: &[Tensor; 2],
        extras: &[Tensor],
        outputs: impl FnOnce(&mut dyn OpContext, &[usize]) -> Result<[Tensor; N]>,
    ) -> Result<Option<ProductPlan<'_>>> {
        let result = self.base.shape(&a.dims, &b.dims)?;
        let axis = self.base.channel(&result);
        let extras = channels(extras, result.len(), axis);
        let dims = extras.iter().try_fold(result.clone(), |dims, extra| {
            broadcast_dims(&dims, &extra.dims).map_err(|_| {
                let (dims, extra) = (shape_text(&dims), shape_text(&extra.dims));
                Error::InvalidArgument(format!(
                    "{}: Incompatible shapes: {dims} vs. {extra}",
                    self.op
                ))
            })
        })?;
        let outputs = outputs(ctx, &dims)?;
        let (output, second) = (&outputs[0], outputs.get(1));
        if output.is_empty() {
            return Ok(None);
        }
        let profile = ctx.device().profile();
        let more = extras.len() + usize::from(second.is_some());
        let fits = Epilogue::fits(more, profile.capabilities.max_bindings);
        let products = fits && !a.is_empty() && !b.is_empty() && dims == result;
        let bound = if products { self.epilogue.bind(&dims, axis, &extras) } else { None };
        if let Some(bound) = bound {
            let bound = second.cloned().into_iter().fold(bound, Bound::with_second);
            let plan = self.base.plan(&profile, [a, b, output], Some(bound))?;
            if second.is_none_or(|second| plan.stores_pairs(second)) {
                return Ok(Some(plan));
            }
        }
        let between = ctx.temp(self.base.result(a.dtype), &result)?;
        self.base.plan(&profile, [a, b, &between], None)?.enqueue(ctx)?;
        self.epilogue.after(ctx.device(), &between, &extras, &outputs)?;
        Ok(None)
    }
}

/// Several products of one left operand.
struct Joined {
    /// The product with its epilogue.
    product: Fused,
    /// The number of products.
    count: usize,
}

impl Kernel for Joined {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let extras = self.product.epilogue.expression().inputs().len() - 1;
        let first = 1 + self.count;
        let mut plans = Vec::with_capacity(self.count);
        for part in 0..self.count {
            let operands = [ctx.input(0)?, ctx.input(1 + part)?];
            let own = (0..extras).map(|i| ctx.input(first + part * extras + i));
            let own = own.collect::<Result<Vec<_>>>()?;
            plans.extend(self.product.start(ctx, &operands, &own, part)?);
        }
        joined::enqueue(ctx, plans)
    }
}

/// Turns vectors into the channels of a result of `rank`; every other operand stays as it is.
pub(super) fn channels(extras: &[Tensor], rank: usize, axis: usize) -> Vec<Tensor> {
    let of = |extra: &Tensor| {
        if extra.rank() != 1 {
            return extra.clone();
        }
        let mut dims: Dims = std::iter::repeat_n(1, rank - axis).collect();
        dims[0] = extra.dims[0];
        extra.reshaped(&dims)
    };
    extras.iter().map(of).collect()
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

/// All results have the same shape. Shape functions do not see the number of results, but there are
/// at most as many as right operands. A vector at the end has an element for each column.
fn joined_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [a, b, others @ ..] = inputs.shapes else { return Ok(Vec::new()) };
    let mut shapes = vec![a.clone(), b.clone()];
    shapes.extend(others.last().filter(|s| s.as_ref().is_some_and(|s| s.len() == 1)).cloned());
    let result = matmul_shape(&ShapeInputs { shapes: &shapes, dtype: inputs.dtype })?;
    Ok(vec![result[0].clone(); inputs.shapes.len() - 1])
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
        assert_eq!(of(matmul_shape, &[None, b.clone()]), None);
        assert_eq!(of(joined_shape, &[a.clone(), b.clone(), b.clone()]), shape(&[-1, -1]));
        let bias = shape(&[4]);
        assert_eq!(of(joined_shape, &[a, b.clone(), b, bias.clone(), bias]), shape(&[-1, 4]));
        let (x, f) = (shape(&[8, 9, 9, 3]), shape(&[3, 3, 3, 16]));
        assert_eq!(of(conv_shape, &[x.clone(), f.clone(), shape(&[16])]), shape(&[8, -1, -1, -1]));
        assert_eq!(
            of(conv_shape, &[x.clone(), f.clone(), shape(&[1, 1, 1, 16])]),
            shape(&[8, -1, -1, 16])
        );
        assert_eq!(of(conv_shape, &[x, f, None]), None);
    }
}
