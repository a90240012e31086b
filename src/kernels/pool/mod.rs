//! Pooling by maximum and mean with its gradients, in two or three spatial dimensions, with
//! channels last or first.
//!
//! Gradients gather: each element of the input sums over the windows that contain it, in order,
//! without atomics. A tie goes to the first element of a window in row-major order, as with
//! TensorFlow's CPU kernels. A maximum ignores NaN unless the window has nothing else; TensorFlow's
//! CPU kernels may then give another result. The gradients by argmax take the indices that
//! MaxPoolWithArgmax gives for the same attributes; indices outside an element's windows are
//! ignored. Tensors beyond one binding are cut into images, planes or slabs (`windows`), windows of
//! more elements than an invocation may visit into parts (`program::cut`).

mod attributes;
mod program;
mod windows;

use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::op::{Attrs, Kernel, OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Dims, Tensor, named, shape_text};
use attributes::PoolAttributes;
pub use program::shaders;
use program::{Input, Pool};

/// Element types for three spatial dimensions, as on TensorFlow's GPU list.
const TYPES_3D: &[DType] = types::FLOATS_BUT_F64;
/// Element types for two spatial dimensions.
const TYPES_2D: &[DType] = types::FLOATS;

type Run = fn(&mut dyn OpContext, &PoolNode) -> Result<()>;

/// Where ksize and strides come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Attributes,
    /// Host inputs.
    Inputs,
}

/// Each op, its number of spatial dimensions, whether it takes a maximum, the source of the window,
/// and the function that it runs.
const OPS: &[(&str, usize, bool, Sizes, Run)] = &[
    ("AvgPool", 2, false, Sizes::Attributes, average),
    ("AvgPool3D", 3, false, Sizes::Attributes, average),
    ("AvgPool3DGrad", 3, false, Sizes::Attributes, average_grad),
    ("AvgPoolGrad", 2, false, Sizes::Attributes, average_grad),
    ("MaxPool", 2, true, Sizes::Attributes, maximum),
    ("MaxPool3D", 3, true, Sizes::Attributes, maximum),
    ("MaxPool3DGrad", 3, true, Sizes::Attributes, maximum_grad),
    ("MaxPool3DGradGrad", 3, true, Sizes::Attributes, maximum_grad_grad),
    ("MaxPoolGrad", 2, true, Sizes::Attributes, maximum_grad),
    ("MaxPoolGradGrad", 2, true, Sizes::Attributes, maximum_grad_grad),
    ("MaxPoolGradGradV2", 2, true, Sizes::Inputs, maximum_grad_grad),
    ("MaxPoolGradGradWithArgmax", 2, true, Sizes::Attributes, argmax_grad_grad),
    ("MaxPoolGradV2", 2, true, Sizes::Inputs, maximum_grad),
    ("MaxPoolGradWithArgmax", 2, true, Sizes::Attributes, argmax_grad),
    ("MaxPoolV2", 2, true, Sizes::Inputs, maximum),
    ("MaxPoolWithArgmax", 2, true, Sizes::Attributes, argmax),
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for &(op, spatial, maximum, sizes, run) in OPS {
        let types: &'static [&'static [DType]] = match op {
            // The op's two types must be equal: there is a registration for each type.
            "MaxPool3DGrad" => &[&[DType::F32], &[DType::F16], &[DType::BF16]],
            _ if spatial == 3 => &[TYPES_3D],
            _ => &[TYPES_2D],
        };
        for &types in types {
            let mut builder = r.op(op).types("T", types);
            if op == "MaxPool3DGrad" {
                builder = builder.types("TInput", types);
            }
            if op.ends_with("WithArgmax") {
                builder = builder.types("Targmax", &[DType::I64]);
            }
            if matches!(op, "AvgPoolGrad" | "AvgPool3DGrad") {
                builder = builder.host(&["orig_input_shape"]);
            }
            if sizes == Sizes::Inputs {
                builder = builder.host(&["ksize", "strides"]);
            }
            builder.kernel(move |attrs| PoolNode::new(attrs, spatial, maximum, sizes, run));
        }
    }
}

struct PoolNode {
    attributes: PoolAttributes,
    /// Whether an argmax counts through the whole batch.
    include_batch: bool,
    run: Run,
}

impl PoolNode {
    fn new(
        attrs: &dyn Attrs,
        spatial: usize,
        maximum: bool,
        sizes: Sizes,
        run: Run,
    ) -> Result<Self> {
        Ok(Self {
            attributes: PoolAttributes::read(attrs, spatial, maximum, sizes == Sizes::Attributes)?,
            include_batch: attrs.bool("include_batch_in_index").unwrap_or(false),
            run,
        })
    }

    fn output_dims(&self, g: &Geometry) -> Dims {
        self.attributes.format.shape(g.batch, g.channels, g.output)
    }

    /// The `per_image` parameter of programs with an argmax.
    fn per_image(&self, g: &Geometry) -> usize {
        if self.include_batch { 0 } else { g.channels * g.input_positions() }
    }

    fn check_rank(&self, name: &str, t: &Tensor) -> Result<()> {
        let rank = self.attributes.format.rank();
        require!(t.rank() == rank, "{name} must be {rank}-dimensional");
        Ok(())
    }
}

impl Kernel for PoolNode {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        (self.run)(ctx, self)
    }
}

fn check_shape(name: &str, t: &Tensor, expected: &[usize]) -> Result<()> {
    require!(
        t.dims[..] == *expected,
        "Expected {name} shape to be {}, but got {}",
        shape_text(expected),
        shape_text(&t.dims)
    );
    Ok(())
}

/// Runs `pool` into output `o` of shape `dims`. If the source is empty and the result is not, the
/// result is zeros.
fn run(
    ctx: &mut dyn OpContext,
    pool: &'static Pool,
    g: &Geometry,
    inputs: &[Input<'_>],
    (o, dtype, dims): (usize, DType, &[usize]),
    per_image: usize,
) -> Result<Tensor> {
    let result = ctx.output(o, dtype, dims)?;
    if !result.is_empty() {
        if inputs.iter().any(|(_, t)| t.is_empty()) {
            ctx.device().fill(result.address, result.bytes(), 0)?;
        } else {
            windows::enqueue(ctx, pool, g, inputs, &result, per_image)?;
        }
    }
    Ok(result)
}

/// Inputs: value.
fn average(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let x = ctx.input(0)?;
    let g = node.attributes.geometry(ctx, &x.dims, 1)?;
    run(ctx, &program::AVERAGE, &g, &named![x], (0, x.dtype, &node.output_dims(&g)), 0).map(drop)
}

/// Inputs: orig_input_shape (host), grad.
fn average_grad(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let shape = ctx.host_input(0)?;
    let dy = ctx.input(1)?;
    let rank = node.attributes.format.rank();
    let expected = if rank == 4 { "out_backprop" } else { "orig_input_shape" };
    require!(shape.dims[..] == [rank], "{expected} must be 1-dimensional and {rank} elements");
    node.check_rank("out_backprop", &dy)?;
    let dims = ctx
        .host_i64s(0)?
        .into_iter()
        .map(|d| {
            usize::try_from(d)
                .map_err(|_| Error::InvalidArgument(format!("Dimension {d} must be >= 0")))
        })
        .collect::<Result<Dims>>()?;
    let g = node.attributes.geometry(ctx, &dims, 2)?;
    check_shape("grad", &dy, &node.output_dims(&g))?;
    run(ctx, &program::AVERAGE_GRAD, &g, &named![dy], (0, dy.dtype, &dims), 0).map(drop)
}

/// Inputs: input; for V2 also ksize and strides (host).
fn maximum(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let x = ctx.input(0)?;
    let g = node.attributes.geometry(ctx, &x.dims, 1)?;
    run(ctx, &program::MAX, &g, &named![x], (0, x.dtype, &node.output_dims(&g)), 0).map(drop)
}

/// Inputs: orig_input, orig_output, grad; for V2 also ksize and strides (host).
fn maximum_grad(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let (x, y, dy) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    for (name, t) in [("tensor_in", &x), ("tensor_out", &y), ("out_backprop", &dy)] {
        node.check_rank(name, t)?;
    }
    let g = node.attributes.geometry(ctx, &x.dims, 3)?;
    let expected = node.output_dims(&g);
    check_shape("orig_output", &y, &expected)?;
    check_shape("grad", &dy, &expected)?;
    let inputs = named![x, y, dy];
    run(ctx, &program::MAX_GRAD, &g, &inputs, (0, dy.dtype, &x.dims), 0).map(drop)
}

/// Inputs: orig_input, orig_output, gradient of the gradient of the input; for V2 also ksize and
/// strides (host).
fn maximum_grad_grad(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let (x, y, dd) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    for (name, t) in [("tensor_in", &x), ("tensor_out", &y), ("out_grad_backprop", &dd)] {
        node.check_rank(name, t)?;
    }
    let g = node.attributes.geometry(ctx, &x.dims, 3)?;
    let expected = node.output_dims(&g);
    check_shape("orig_output", &y, &expected)?;
    check_shape("grad", &dd, &x.dims)?;
    let inputs = named![x, y, g: dd];
    run(ctx, &program::MAX_PICK, &g, &inputs, (0, dd.dtype, &expected), 0).map(drop)
}

/// Inputs: input. Outputs: the maxima and their indices.
fn argmax(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let x = ctx.input(0)?;
    let g = node.attributes.geometry(ctx, &x.dims, 1)?;
    let dims = node.output_dims(&g);
    let y = run(ctx, &program::MAX, &g, &named![x], (0, x.dtype, &dims), 0)?;
    let (inputs, result) = (named![x, y], (1, DType::I64, &dims[..]));
    run(ctx, &program::ARGMAX, &g, &inputs, result, node.per_image(&g)).map(drop)
}

/// Inputs: input, grad, argmax, which must come from windows of the same attributes.
fn argmax_grad(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let (x, dy, indices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let g = node.attributes.geometry(ctx, &x.dims, 3)?;
    let expected = node.output_dims(&g);
    check_shape("grad", &dy, &expected)?;
    check_shape("argmax", &indices, &expected)?;
    let (inputs, result) = (named![argmax: indices, dy], (0, dy.dtype, &x.dims[..]));
    run(ctx, &program::ARGMAX_GRAD, &g, &inputs, result, node.per_image(&g)).map(drop)
}

/// Inputs: input, gradient of the gradient of the input, argmax.
fn argmax_grad_grad(ctx: &mut dyn OpContext, node: &PoolNode) -> Result<()> {
    let (x, dd, indices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let g = node.attributes.geometry(ctx, &x.dims, 3)?;
    let expected = node.output_dims(&g);
    check_shape("grad", &dd, &x.dims)?;
    check_shape("argmax", &indices, &expected)?;
    let (inputs, result) = (named![argmax: indices, g: dd], (0, dd.dtype, &expected[..]));
    run(ctx, &program::ARGMAX_PICK, &g, &inputs, result, node.per_image(&g)).map(drop)
}
