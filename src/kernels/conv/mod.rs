//! Convolutions and their gradients with two or three spatial dimensions, grouped or depthwise,
//! channels last or first.
//!
//! [`attributes`] reads and checks what nodes say, [`window`] places windows, [`dense`] and
//! [`phases`] map convolutions on [`super::contract`], [`depthwise`] has the programs for filters
//! of single channels.

pub(crate) mod attributes;
mod dense;
pub(crate) mod depthwise;
mod general;
mod phases;
pub(crate) mod window;

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::epilogue::{Bound, Product};
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};
use attributes::{ConvAttributes, Depth, Family};
use general::General;

/// Element types, as on TensorFlow's GPU list.
const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];
/// Those of Conv, Conv2D and the gradient of its input.
const TYPES_I32: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32];

/// The last argument tells whether a gradient is given a shape in host memory; the old forms are
/// given the tensor itself.
type Run = fn(&mut dyn OpContext, &ConvAttributes, bool) -> Result<()>;

/// Op, its family, its host arguments and what it runs.
const OPS: &[(&str, Family, &[&str], Run)] = &[
    ("Conv2D", Family::CONV2D, &[], forward),
    ("Conv2DBackpropFilter", Family::CONV2D, &["filter_sizes"], backprop_filter),
    ("Conv2DBackpropInput", Family::CONV2D, &["input_sizes"], backprop_input),
    ("Conv3D", Family::CONV3D, &[], forward),
    ("Conv3DBackpropFilter", Family::CONV3D, &[], backprop_filter),
    ("Conv3DBackpropFilterV2", Family::CONV3D, &["filter_sizes"], backprop_filter),
    ("Conv3DBackpropInput", Family::CONV3D, &[], backprop_input),
    ("Conv3DBackpropInputV2", Family::CONV3D, &["input_sizes"], backprop_input),
    ("DepthwiseConv2dNative", Family::DEPTHWISE, &[], forward),
    ("DepthwiseConv2dNativeBackpropFilter", Family::DEPTHWISE, &["filter_sizes"], backprop_filter),
    ("DepthwiseConv2dNativeBackpropInput", Family::DEPTHWISE, &["input_sizes"], backprop_input),
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for &(op, family, host, run) in OPS {
        let types = if matches!(op, "Conv2D" | "Conv2DBackpropInput") { TYPES_I32 } else { TYPES };
        let builder = r.op(op).types("T", types).host(host);
        // The one op with a type for its sizes.
        let builder = if op == "Conv3DBackpropInputV2" {
            builder.types("Tshape", types::INDEX)
        } else {
            builder
        };
        builder.kernel(move |attrs| {
            Ok(Conv {
                attributes: ConvAttributes::read(attrs, family)?,
                run,
                sized: !host.is_empty(),
            })
        });
    }
    r.op("Conv").types("T", TYPES_I32).kernel(General::new);
}

/// Shader variants of this family; those of contractions are listed by `matmul`.
pub fn shaders() -> Vec<Shader> {
    depthwise::shaders()
}

/// Variants with sample epilogues.
pub fn fused_shaders() -> Vec<Shader> {
    depthwise::fused_shaders()
}

struct Conv {
    attributes: ConvAttributes,
    run: Run,
    sized: bool,
}

impl Kernel for Conv {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        (self.run)(ctx, &self.attributes, self.sized)
    }
}

/// Inputs: input, filter.
fn forward(ctx: &mut dyn OpContext, attributes: &ConvAttributes, _: bool) -> Result<()> {
    attributes.compute(ctx)
}

impl Product for ConvAttributes {
    fn shape(&self, x: &[usize], filter: &[usize]) -> Result<Dims> {
        Ok(self.forward(x, filter)?.1)
    }

    fn channel(&self, _: &[usize]) -> usize {
        self.channel_axis()
    }

    fn enqueue(
        &self,
        ctx: &mut dyn OpContext,
        operands: [&Tensor; 3],
        epilogue: Option<&Bound<'_>>,
    ) -> Result<()> {
        let [x, filter, _] = operands;
        let (g, _) = self.forward(&x.dims, &filter.dims)?;
        match self.family.depth {
            Depth::Wise => depthwise::forward(ctx, &g, operands, epilogue),
            Depth::Grouped => dense::forward(ctx, &g, operands, epilogue),
        }
    }
}

/// Inputs: input_sizes (host) or input, filter, gradient of the output.
fn backprop_input(ctx: &mut dyn OpContext, attributes: &ConvAttributes, sized: bool) -> Result<()> {
    let (filter, dy) = (ctx.input(1)?, ctx.input(2)?);
    let dims = if sized {
        let sizes = ctx.host_input(0)?;
        require!(sizes.dims.len() == 1, "{}", attributes.family.sizes_message(true, &sizes.dims));
        attributes.input_dims(&sizes.to_i64()?, &filter.dims, &dy.dims)?
    } else {
        ctx.input(0)?.dims
    };
    let g = attributes.backward(&dims, &filter.dims, &dy.dims, true)?;
    let dx = ctx.output(0, dy.dtype, &dims)?;
    if dx.is_empty() {
        return Ok(());
    }
    if dy.is_empty() || filter.is_empty() {
        return ctx.device().fill(dx.address, dx.bytes(), 0);
    }
    match attributes.family.depth {
        Depth::Wise => depthwise::backprop_input(ctx, &g, &filter, &dy, &dx),
        Depth::Grouped => dense::backprop_input(ctx, &g, &filter, &dy, &dx),
    }
}

/// Inputs: input, filter_sizes (host) or filter, gradient of the output.
fn backprop_filter(
    ctx: &mut dyn OpContext,
    attributes: &ConvAttributes,
    sized: bool,
) -> Result<()> {
    let (x, dy) = (ctx.input(0)?, ctx.input(2)?);
    let dims = if sized {
        let sizes = ctx.host_input(1)?;
        require!(sizes.dims.len() == 1, "{}", attributes.family.sizes_message(false, &sizes.dims));
        attributes.filter_dims(&sizes.to_i64()?)?
    } else {
        ctx.input(1)?.dims
    };
    let g = attributes.backward(&x.dims, &dims, &dy.dims, false)?;
    let dw = ctx.output(0, x.dtype, &dims)?;
    if dw.is_empty() {
        return Ok(());
    }
    if dy.is_empty() || x.is_empty() {
        return ctx.device().fill(dw.address, dw.bytes(), 0);
    }
    match attributes.family.depth {
        Depth::Wise => depthwise::backprop_filter(ctx, &g, &x, &dy, &dw),
        Depth::Grouped => dense::backprop_filter(ctx, &g, &x, &dy, &dw),
    }
}
