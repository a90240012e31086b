//! BiasAdd, BiasAddV1 and BiasAddGrad, for channels in the last or the second dimension.

use super::reduce::reduce;
use super::scalar::map::Signature;
use super::scalar::row::Function;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use crate::tensor::{Dims, shape_text};
use crate::{invalid, require};

const TYPES: &[DType] = union!(types::FLOATS, &[I32]);
const GRADIENT_TYPES: &[DType] = types::FLOATS;

/// Registers the family.
pub fn register(r: &mut Registry) {
    r.op("BiasAdd").types("T", TYPES).kernel(move |attrs: &dyn Attrs| {
        let channel = ChannelAxis::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| bias_add(ctx, channel))
    });
    r.op("BiasAddGrad").types("T", GRADIENT_TYPES).kernel(move |attrs: &dyn Attrs| {
        let channel = ChannelAxis::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| {
            let dy = ctx.input(0)?;
            require!(dy.rank() >= 2, "Input tensor must be at least 2D: {}", shape_text(&dy.dims));
            let axis = channel.axis(dy.rank());
            let db = ctx.output(0, dy.dtype, &[dy.dims[axis]])?;
            let reduced: Vec<bool> = (0..dy.rank()).map(|d| d != axis).collect();
            reduce(ctx, "Sum", &dy, &reduced, &db)
        })
    });
    r.op("BiasAddV1")
        .types("T", TYPES)
        .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| bias_add(ctx, ChannelAxis::Last)));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|dtype| add(*dtype, |program| program.shaders())).collect()
}

/// The dimension that holds the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAxis {
    /// NHWC, NDHWC.
    Last,
    /// NCHW, NCDHW.
    Second,
}

impl ChannelAxis {
    /// Reads the attribute `data_format`.
    pub fn of(attrs: &dyn Attrs) -> Result<Self> {
        match attrs.string("data_format")?.as_str() {
            "NHWC" | "NDHWC" => Ok(Self::Last),
            "NCHW" | "NCDHW" => Ok(Self::Second),
            _ => invalid!("Invalid data format"),
        }
    }

    /// The channels' dimension of a tensor of `rank`, which is at least 2.
    pub const fn axis(self, rank: usize) -> usize {
        match self {
            Self::Last => rank - 1,
            Self::Second => 1,
        }
    }
}

/// Calls `f` with the elementwise program that adds two tensors.
fn add<R>(dtype: DType, f: impl FnOnce(&Signature<'_>) -> R) -> R {
    let value = dtype.value();
    let function = || Function {
        name: "bias_add".to_owned(),
        text: format!("fn bias_add(x: {value}, y: {value}) -> {value} {{\n    return x + y;\n}}\n"),
    };
    f(&Signature {
        op: "BiasAdd",
        inputs: &[dtype; 2],
        outputs: &[dtype],
        attrs: &[],
        function: &function,
        operations: 1,
    })
}

fn bias_add(ctx: &mut dyn OpContext, channel: ChannelAxis) -> Result<()> {
    let (x, bias) = (ctx.input(0)?, ctx.input(1)?);
    require!(x.rank() >= 2, "Input tensor must be at least 2D: {}", shape_text(&x.dims));
    require!(bias.rank() == 1, "Biases must be 1D: {}", shape_text(&bias.dims));
    let axis = channel.axis(x.rank());
    require!(
        bias.dims[0] == x.dims[axis],
        "Must provide as many biases as the last dimension of the input tensor: {} vs. {}",
        shape_text(&bias.dims),
        shape_text(&x.dims)
    );
    let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    let mut column = Dims::from_elem(1, x.rank() - axis);
    column[0] = bias.dims[0];
    let inputs = [x, bias.reshaped(&column)];
    add(y.dtype, |program| program.run(ctx.device(), &inputs, &[y], &[]))
}
