//! Pooling of four channels at once: channels are the innermost dimension and a multiple of four.
//!
//! Gradients of windows that don't overlap write the elements that each window covers. Other
//! gradients gather. That of the maximum gathers by the numbers of the elements that were selected
//! from windows. A first program writes these numbers, so that no window is searched again for each
//! of its elements.

use smallvec::SmallVec;

use super::{AVERAGE, AVERAGE_GRAD, COMMON, Input, MAX, MAX_GRAD, Pool, WindowParams};
use crate::device::{Axes, Binding, Device, Grid, Key, KeyPart, declare_program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::iterations::nest;
use crate::kernels::op::OpContext;
use crate::shader::{Access, List, Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

const TYPES: &[DType] = types::FLOATS_BUT_F64;
/// The number that stands for no element of a window, and so the most elements that a window may
/// have.
const NO_TAP: usize = 255;
/// The most elements that an invocation writes: larger blocks would leave too few invocations.
const MAX_BLOCK: usize = 64;

/// Up to this extent one division in f32 tells a position's windows.
const MAX_EXTENT: usize = 1 << 20;

/// One program: its inputs' names and its text.
struct Vec4Program {
    name: &'static str,
    inputs: &'static [&'static str],
    text: &'static str,
}

macro_rules! vec4s {
    ($name:ident, $file:literal, $inputs:expr) => {
        const $name: Vec4Program = Vec4Program {
            name: $file,
            inputs: $inputs,
            text: include_str!(concat!("../../../../shaders/pool/vec4s/", $file, ".wgsl")),
        };
    };
}

vec4s!(VEC4_MAX, "max", &["x"]);
vec4s!(VEC4_AVERAGE, "average", &["x"]);
vec4s!(VEC4_AVERAGE_GRAD, "average_grad", &["dy"]);
vec4s!(AVERAGE_SPREAD, "average_spread", &["dy"]);
vec4s!(TAPS, "taps", &["x", "y"]);
vec4s!(VEC4_MAX_GRAD, "max_grad", &["taps", "dy"]);
vec4s!(MAX_SPREAD, "max_spread", &["x", "y", "dy"]);

const ALL: [&Vec4Program; 7] = [
    &VEC4_MAX,
    &VEC4_AVERAGE,
    &VEC4_AVERAGE_GRAD,
    &AVERAGE_SPREAD,
    &TAPS,
    &VEC4_MAX_GRAD,
    &MAX_SPREAD,
];

impl KeyPart for &Vec4Program {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.name)
    }
}

declare_program! {
    /// Pooling of four channels at once.
    struct PoolVec4s = "pool vec4s"(program: &'static Vec4Program, dtype: DType);
    lists { tensors: List(program.bindings(dtype)) }
    bindings {}
    params { count: usize, channels: usize, windows: WindowParams, blocks: Axes<3> }
    shader format!("pool vec4s {} {dtype}", program.name) =>
        .define("QUOTIENTS", "small_quotients")
        .body(COMMON)
        .body(include_str!("../../../../shaders/pool/vec4s/places.wgsl"))
        .body(include_str!("../../../../shaders/pool/vec4s/blocks.wgsl"))
        .body(program.text)
        .body(include_str!("../../../../shaders/pool/vec4s/common.wgsl"))
}

impl Vec4Program {
    /// The inputs, then the result. The numbers of selected elements are words.
    fn bindings(&self, dtype: DType) -> impl Iterator<Item = (&'static str, Access)> {
        let taps = Access::Each(DType::U32);
        let of = move |name: &str| if name == "taps" { taps } else { Access::ReadVec4s(dtype) };
        let result = if self.name == "taps" { taps } else { Access::WriteVec4s(dtype) };
        self.inputs.iter().map(move |name| (*name, of(name))).chain([("result", result)])
    }

    /// Enqueues the program with invocations for all channels of `positions` positions of each
    /// image.
    fn enqueue(
        &'static self,
        device: &Device,
        g: &Geometry,
        tensors: &[Input<'_>],
        positions: usize,
    ) -> Result<()> {
        let vec4s = g.channels / 4;
        let count = g.batch * positions * vec4s;
        device.check_extent(count)?;
        let dtype =
            tensors.iter().map(|(_, t)| t.dtype).find(|t| *t != DType::U32).expect("an operand");
        let call = PoolVec4s {
            tensors: tensors.iter().map(|(n, t)| (*n, Binding::raw(t, unit(t.dtype)))).collect(),
            count,
            channels: vec4s,
            windows: WindowParams::of(g),
            blocks: Axes(blocks(g)),
        };
        let (of, grid) = (PoolVec4s::of(self, dtype), Grid::linear(count, WORKGROUP));
        device.enqueue_counted(&call.program(&of, grid), dtype.operations(g.pooled()))
    }
}

/// Bytes of four channels of a tensor. The numbers of selected elements are bytes, four in a word.
const fn unit(dtype: DType) -> u32 {
    if matches!(dtype, DType::U32) { 4 } else { vec4::unit(dtype) }
}

/// The number of blocks, each with the extents of the strides, that cover the padded input up to
/// its last element.
fn blocks(g: &Geometry) -> [usize; 3] {
    [0, 1, 2].map(|d| (g.input[d] + g.pad[d]).div_ceil(g.stride[d]))
}

/// Enqueues `pool` if it is a program of four channels at once. Returns whether it was.
pub(in crate::kernels::pool) fn enqueue(
    ctx: &mut dyn OpContext,
    pool: &'static Pool,
    g: &Geometry,
    inputs: &[Input<'_>],
    result: &Tensor,
) -> Result<bool> {
    let is_long = pool.is_long(&ctx.device().profile(), g, DType::F32);
    let apart = (0..3).all(|d| g.kernel[d] <= g.stride[d]) && nest(g.stride) <= MAX_BLOCK;
    let fits = g.channels_last
        && (0..3).all(|d| g.input[d] + g.pad[d] + g.kernel[d] + g.stride[d] < MAX_EXTENT)
        && g.channels.is_multiple_of(4)
        && inputs.iter().map(|(_, t)| *t).chain([result]).all(|t| {
            TYPES.contains(&t.dtype) && t.address.is_multiple_of(u64::from(vec4::unit(t.dtype)))
        });
    let (input, output) = (g.input_positions(), g.output_positions());
    let (program, positions) = match *pool {
        _ if !fits => return Ok(false),
        MAX | AVERAGE if is_long => return Ok(false),
        MAX => (&VEC4_MAX, output),
        AVERAGE => (&VEC4_AVERAGE, output),
        AVERAGE_GRAD if apart => (&AVERAGE_SPREAD, blocks(g).iter().product()),
        AVERAGE_GRAD if is_long => return Ok(false),
        AVERAGE_GRAD => (&VEC4_AVERAGE_GRAD, input),
        MAX_GRAD if apart => (&MAX_SPREAD, blocks(g).iter().product()),
        MAX_GRAD if g.taps() <= NO_TAP => {
            let [x, y, dy] = [inputs[0], inputs[1], inputs[2]];
            let taps = ctx.temp(DType::U32, &[g.batch, output, g.channels / 4])?;
            TAPS.enqueue(ctx.device(), g, &[x, y, ("result", &taps)], output)?;
            VEC4_MAX_GRAD.enqueue(
                ctx.device(),
                g,
                &[("taps", &taps), dy, ("result", result)],
                input,
            )?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    let tensors: SmallVec<[Input<'_>; 4]> =
        inputs.iter().copied().chain([("result", result)]).collect();
    program.enqueue(ctx.device(), g, &tensors, positions)?;
    Ok(true)
}

/// Every variant.
pub(in crate::kernels::pool) fn shaders() -> Vec<Shader> {
    ALL.iter()
        .flat_map(|program| TYPES.iter().map(|dtype| PoolVec4s::shader(program, *dtype)))
        .collect()
}
