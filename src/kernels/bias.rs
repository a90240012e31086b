//! BiasAdd, BiasAddV1 and BiasAddGrad, for channels in the last or the second dimension.

use smallvec::smallvec;

use super::reduce::plan::groups;
use super::reduce::program::{part, reduce, window_bytes};
use super::reduce::table::Reduction;
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::{Tensor, shape_text};
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
            reduce(ctx, Reduction::of("Sum"), &dy, &groups(&dy.dims, &reduced), &db)
        })
    });
    r.op("BiasAddV1")
        .types("T", TYPES)
        .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| bias_add(ctx, ChannelAxis::Last)));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let vec4s = TYPES.iter().filter(|t| vec4::supports(**t)).map(|t| vec4s_shader(*t));
    TYPES.iter().map(|t| shader(*t)).chain(vec4s).collect()
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

/// The parameters `phase` and `rest` of a window that starts at element `first`: its channel and
/// the position within that channel.
pub(super) fn phase(first: usize, inner: usize, channels: usize) -> (usize, usize) {
    ((first / inner) % channels, first % inner)
}

/// Calls `f` with the first element and the length of each window of the `count` elements of up to
/// `size` bytes. A window is a whole number of words.
pub(super) fn element_windows(
    device: &Device,
    count: usize,
    size: usize,
    mut f: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let window = (window_bytes(device) as usize / size) & !3;
    for first in (0..count).step_by(window) {
        f(first, window.min(count - first))?;
    }
    Ok(())
}

fn shader(dtype: DType) -> Shader {
    Shader::new(format!("BiasAdd {dtype}"))
        .bind("x", dtype)
        .bind("bias", dtype)
        .bind("y", dtype)
        .u32s(&["count", "inner", "channels", "phase", "rest"])
        .library("quotient")
        .define("VALUE", dtype.value())
        .body(include_str!("../../shaders/bias_add.wgsl"))
        .map("y")
}

fn bias_add(ctx: &mut dyn OpContext, channel: ChannelAxis) -> Result<()> {
    let profile = ctx.device().profile();
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
    let inner = x.dims[axis + 1..].iter().product();
    add(ctx.device(), profile, &x, &bias, inner, &y)
}

/// The program for channels that are innermost and a multiple of four.
fn vec4s_shader(dtype: DType) -> Shader {
    let shader = vec4::bind_read(Shader::new(format!("BiasAdd {dtype} in vec4s")), "x", dtype);
    vec4::bind_write(vec4::bind_read(shader, "bias", dtype), "y", dtype)
        .u32s(&["count", "units", "rows", "step"])
        .library("quotient")
        .define("CHANNEL", "let bias_value = read_bias(c);")
        .define("WRITE", "write_y(i, read_x(i) + bias_value, 4u);")
        .body(include_str!("../../shaders/norm_rows.wgsl"))
}

/// Adds to rows of channels, four at a time.
fn add_vec4s(
    device: &Device,
    profile: Profile,
    x: &Tensor,
    bias: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let (channels, units) = (bias.len(), bias.len() / 4);
    let in_vec4s = |binding: Binding| Binding { unit: vec4::unit(x.dtype), ..binding };
    let most = (window_bytes(device) as usize / (channels * x.dtype.size())).max(1);
    let all = x.len() / channels;
    for first in (0..all).step_by(most) {
        let rows = most.min(all - first);
        device.check_extent(rows * channels)?;
        let step = row_step(profile, rows, units);
        let window = |t: &Tensor| in_vec4s(part(t, first * channels, rows * channels));
        device.enqueue_counted(
            &Program {
                key: Key::new("bias_add vec4s").dtype(x.dtype),
                shader: &|| vec4s_shader(x.dtype),
                bindings: smallvec![window(x), in_vec4s(bias.into()), window(y)],
                params: Params::new().u32(step * units).u32(units).u32(rows).u32(step),
                grid: Grid::linear(step * units, WORKGROUP),
            },
            x.dtype.flops(rows * channels),
        )?;
    }
    Ok(())
}

/// The most rows of an invocation.
const MOST_ROWS: usize = 8;

/// The distance from one row of `units` vec4s of an invocation to the next: an invocation has
/// several rows if that leaves enough invocations.
pub(super) fn row_step(profile: Profile, rows: usize, units: usize) -> usize {
    rows.div_ceil((rows * units / profile.invocations).clamp(1, MOST_ROWS))
}

fn add(
    device: &Device,
    profile: Profile,
    x: &Tensor,
    bias: &Tensor,
    inner: usize,
    y: &Tensor,
) -> Result<()> {
    if inner == 1 && bias.len().is_multiple_of(4) && !x.is_empty() && vec4::aligned(&[x, bias, y]) {
        return add_vec4s(device, profile, x, bias, y);
    }
    element_windows(device, y.len(), y.dtype.size(), |first, count| {
        let (phase, rest) = phase(first, inner, bias.len());
        device.check_extent(inner)?;
        device.enqueue_counted(
            &Program {
                key: Key::new("bias_add").dtype(x.dtype),
                shader: &|| shader(x.dtype),
                bindings: smallvec![part(x, first, count), bias.into(), part(y, first, count)],
                params: Params::new().u32(count).u32(inner).u32(bias.len()).u32(phase).u32(rest),
                grid: Grid::map(count, y.dtype),
            },
            x.dtype.flops(count),
        )
    })
}
