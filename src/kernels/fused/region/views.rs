//! Ops that only change a tensor's shape, or nothing. Outside of regions TensorFlow's own kernels
//! run them.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel, OpContext, OpContextExt};
use crate::require;
use crate::tensor::Dims;

/// An op that passes its first input on.
pub struct View {
    /// The op's name.
    pub op: &'static str,
    /// The number of inputs in host memory, which follow the tensor.
    pub host_inputs: usize,
    create: fn(&dyn Attrs) -> Result<Box<dyn Kernel>>,
}

/// The ops.
const VIEWS: &[View] = &[
    View { op: "ExpandDims", host_inputs: 1, create: |_| Ok(Box::new(expand)) },
    View { op: "Identity", host_inputs: 0, create: |_| Ok(Box::new(identity)) },
    View { op: "Reshape", host_inputs: 1, create: |_| Ok(Box::new(reshape)) },
    View { op: "Squeeze", host_inputs: 0, create: squeeze },
    View { op: "StopGradient", host_inputs: 0, create: |_| Ok(Box::new(identity)) },
];

impl View {
    /// The view of this op, for tensors of this type. TensorFlow keeps int32 in host memory.
    pub fn find(op: &str, dtype: Option<DType>) -> Option<&'static Self> {
        let is_on_device = dtype.is_some_and(|t| t.size() > 0 && t != DType::I32);
        VIEWS.iter().find(|view| view.op == op && is_on_device)
    }

    /// The kernel of a node.
    pub fn kernel(&self, attrs: &dyn Attrs) -> Result<Box<dyn Kernel>> {
        (self.create)(attrs)
    }
}

fn identity(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    ctx.forward_input(0, 0, &x.dims)
}

fn expand(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, axis) = (ctx.input(0)?, ctx.host_i64(1, "dim")?);
    let rank = x.rank() as i64;
    let at = if axis < 0 { axis + rank + 1 } else { axis };
    require!(
        (0..=rank).contains(&at),
        "Tried to expand dim index {axis} for tensor with {rank} dimensions."
    );
    let mut dims = x.dims;
    dims.insert(at as usize, 1);
    ctx.forward_input(0, 0, &dims)
}

fn squeeze(attrs: &dyn Attrs) -> Result<Box<dyn Kernel>> {
    let axes = attrs.ints("squeeze_dims")?;
    Ok(Box::new(move |ctx: &mut dyn OpContext| {
        let x = ctx.input(0)?;
        let rank = x.rank() as i64;
        let mut gone = vec![axes.is_empty(); x.rank()];
        for axis in &axes {
            let at = if *axis < 0 { axis + rank } else { *axis };
            require!(
                (0..rank).contains(&at),
                "Tried to squeeze dim index {axis} for tensor with {rank} dimensions."
            );
            let extent = x.dims[at as usize];
            require!(
                extent == 1,
                "Can not squeeze dim[{at}], expected a dimension of 1, got {extent}"
            );
            gone[at as usize] = true;
        }
        let kept = x.dims.iter().zip(&gone).filter(|(extent, gone)| !(**gone && **extent == 1));
        let dims: Dims = kept.map(|(extent, _)| *extent).collect();
        ctx.forward_input(0, 0, &dims)
    }))
}

fn reshape(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, wished) = (ctx.input(0)?, ctx.host_i64s(1)?);
    let (len, mut unknown) = (x.len(), None);
    let mut dims = Dims::new();
    for (at, extent) in wished.into_iter().enumerate() {
        if extent == -1 {
            require!(
                unknown.is_none(),
                "Only one input size may be -1, not both {} and {at}",
                unknown.unwrap_or(0)
            );
            unknown = Some(at);
        }
        let known = if extent == -1 { Ok(1) } else { usize::try_from(extent) };
        let negative =
            |_| Error::InvalidArgument(format!("Size {at} must be non-negative, not {extent}"));
        dims.push(known.map_err(negative)?);
    }
    let known = dims.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
    let known = known.ok_or_else(|| Error::InvalidArgument("the shape is too large".to_owned()))?;
    if let Some(at) = unknown {
        require!(
            known > 0,
            "reshape cannot infer the missing input size for an empty tensor unless all specified \
             input sizes are non-zero"
        );
        dims[at] = len / known;
        require!(
            dims[at] * known == len,
            "Input to reshape is a tensor with {len} values, but the requested shape requires a \
             multiple of {known}"
        );
    } else {
        require!(
            known == len,
            "Input to reshape is a tensor with {len} values, but the requested shape has {known}"
        );
    }
    ctx.forward_input(0, 0, &dims)
}
