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

use crate::device::Profile;
use crate::dtype::{DType, types, union};
use crate::error::Result;
use crate::kernels::contract::epilogue::Bound;
use crate::kernels::contract::plan::{Product, ProductPlan};
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};
use attributes::{ChannelGrouping, ConvAttributes, Family};
use general::General;

/// Element types, as on TensorFlow's GPU list.
const TYPES: &[DType] = types::FLOATS;
/// Element types of Conv, Conv2D and the gradient of its input.
const TYPES_I32: &[DType] = union!(types::FLOATS, &[DType::I32]);

/// The last argument tells whether a gradient gets a shape in host memory; the old forms get the
/// tensor itself.
type Run = fn(&mut dyn OpContext, &ConvAttributes, bool) -> Result<()>;

/// Each op, its family, its host arguments and the function that it runs.
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
        // This is the one op with a type for its sizes.
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

    fn plan<'e>(
        &self,
        profile: &Profile,
        operands: [&Tensor; 3],
        epilogue: Option<Bound<'e>>,
    ) -> Result<ProductPlan<'e>> {
        let [x, filter, _] = operands;
        let (g, _) = self.forward(&x.dims, &filter.dims)?;
        match self.family.grouping {
            ChannelGrouping::Depthwise => depthwise::forward(profile, &g, operands, epilogue),
            ChannelGrouping::Grouped => dense::forward(profile, &g, operands, epilogue),
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
    let Some(dx) = ctx.some_output(0, dy.dtype, &dims)? else { return Ok(()) };
    if dy.is_empty() || filter.is_empty() {
        return ctx.device().fill(dx.address, dx.bytes(), 0);
    }
    let profile = ctx.device().profile();
    let plan = match attributes.family.grouping {
        ChannelGrouping::Depthwise => depthwise::backprop_input(&profile, &g, [&filter, &dy, &dx])?,
        ChannelGrouping::Grouped => dense::backprop_input(&profile, &g, [&filter, &dy, &dx])?,
    };
    plan.enqueue(ctx)
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
    let Some(dw) = ctx.some_output(0, x.dtype, &dims)? else { return Ok(()) };
    if dy.is_empty() || x.is_empty() {
        return ctx.device().fill(dw.address, dw.bytes(), 0);
    }
    let profile = ctx.device().profile();
    let plan = match attributes.family.grouping {
        ChannelGrouping::Depthwise => depthwise::backprop_filter(&profile, &g, [&x, &dy, &dw])?,
        ChannelGrouping::Grouped => dense::backprop_filter(&profile, &g, [&x, &dy, &dw])?,
    };
    plan.enqueue(ctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Capabilities;
    use crate::kernels::contract::geometry::Geometry;
    use crate::kernels::contract::plan::Step;
    use crate::kernels::contract::{ALayout, Store};

    /// A convolution of 8 images of 16 by 16 with a square window, channels last.
    fn geometry(channels: usize, filters: usize, kernel: usize, stride: usize) -> Geometry {
        Geometry {
            batch: 8,
            channels,
            filters,
            groups: 1,
            input: [1, 16, 16],
            output: [1, 16 / stride, 16 / stride],
            kernel: [1, kernel, kernel],
            stride: [1, stride, stride],
            dilation: [1; 3],
            pad: [0, (kernel - 1) / 2, (kernel - 1) / 2],
            channels_last: true,
        }
    }

    /// Input, filter and output.
    fn operands(dtype: DType, g: &Geometry) -> [Tensor; 3] {
        let filter = g.taps() * g.channels * g.filters / g.groups;
        [
            Tensor::new(dtype, &[g.inputs()], 1 << 40),
            Tensor::new(dtype, &[filter], 2 << 40),
            Tensor::new(dtype, &[g.outputs()], 3 << 40),
        ]
    }

    #[test]
    fn a_convolution_is_one_contraction() {
        for (kernel, stride) in [(1, 1), (3, 1), (3, 2)] {
            let g = geometry(32, 64, kernel, stride);
            let [x, filter, y] = operands(DType::F32, &g);
            let plan = dense::forward(&Profile::AMD, &g, [&x, &filter, &y], None).unwrap();
            let [Step::Contract(c, None)] = plan.steps() else { panic!("{plan:?}") };
            let outputs = 8 * (16 / stride) * (16 / stride);
            assert_eq!([c.m, c.n, c.outer, c.inner], [outputs, 64, kernel * kernel, 32]);
            assert_eq!(matches!(c.a_layout, ALayout::Dense { .. }), kernel == 1);
            assert_eq!(c.store, Store::Rows(64));
        }
    }

    #[test]
    fn the_gradient_of_a_strided_input_is_a_contraction_for_each_phase() {
        let g = geometry(32, 64, 3, 2);
        let [dx, filter, dy] = operands(DType::F32, &g);
        let plan = dense::backprop_input(&Profile::AMD, &g, [&filter, &dy, &dx]).unwrap();
        let positions = plan.steps().iter().map(|step| match step {
            Step::Contract(c, None) => c.outer,
            other => panic!("{other:?}"),
        });
        // Each of nine kernel positions is in one phase.
        let mut positions: Vec<usize> = positions.collect();
        positions.sort_unstable();
        assert_eq!(positions, [1, 2, 2, 4]);
    }

    #[test]
    fn input_positions_that_no_window_sees_have_no_gradient() {
        let g = Geometry { kernel: [1, 1, 1], pad: [0; 3], ..geometry(32, 64, 1, 2) };
        let [dx, filter, dy] = operands(DType::F32, &g);
        let plan = dense::backprop_input(&Profile::AMD, &g, [&filter, &dy, &dx]).unwrap();
        assert!(
            matches!(plan.steps(), [Step::Zero(t), Step::Contract(c, None)]
                if *t == dx && c.m == 8 * 8 * 8),
            "{plan:?}"
        );
    }

    #[test]
    fn the_gradient_of_a_filter_is_summed_over_windows_of_images() {
        let g = geometry(32, 64, 3, 1);
        let [x, dw, dy] = operands(DType::F32, &g);
        // Two images of the output, of 64 KiB each.
        let capabilities = Capabilities { max_binding: 160 << 10, ..Profile::AMD.capabilities };
        let profile = Profile { capabilities, ..Profile::AMD };
        let plan = dense::backprop_filter(&profile, &g, [&x, &dy, &dw]).unwrap();
        let parts = plan.steps().iter().filter_map(|step| match step {
            Step::Contract(c, None) => Some(c.b.address),
            _ => None,
        });
        let images = |n: u64| dy.address + n * 2 * 64 * 1024;
        assert_eq!(parts.collect::<Vec<_>>(), [0, 1, 2, 3].map(images));
        // The temporary holds the sums so far and the next ones.
        assert_eq!(plan.temporaries(), [2 * dw.bytes()]);
        let last = plan.dispatches().last().unwrap();
        assert_eq!(last.bindings[1].address, dw.address);
    }

    #[test]
    fn parts_of_a_depthwise_filter_gradient_are_added_in_order() {
        let g = Geometry { groups: 32, ..geometry(32, 32, 3, 1) };
        let [x, dw, dy] = operands(DType::F16, &g);
        let plan = depthwise::backprop_filter(&Profile::AMD, &g, [&x, &dy, &dw]).unwrap();
        let [parts, finish] = plan.dispatches().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        assert_eq!(parts.bindings[2].address, finish.bindings[0].address);
        assert_eq!(finish.bindings[1].address, dw.address);
        assert_eq!(plan.temporaries(), [parts.bindings[2].bytes]);
    }
}
