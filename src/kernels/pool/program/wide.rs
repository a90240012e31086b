//! Pooling of four channels at once, or of eight or sixteen on software adapters: channels are the
//! innermost dimension and a multiple of four.
//!
//! Gradients of windows that don't overlap write what each window covers. Other gradients gather;
//! that of the maximum does it by numbers of the elements that windows took, which a first program
//! writes, so that no window is searched again for each of its elements.

use smallvec::SmallVec;

use super::{
    AVERAGE, AVERAGE_GRAD, COMMON, MAX, MAX_GRAD, Pool, declare_windows, nest, window_params,
};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::conv::depthwise::check_iterations;
use crate::kernels::op::OpContext;
use crate::shader::{Shader, WORKGROUP, eight, vec4};
use crate::tensor::Tensor;

const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// The number that stands for no element of a window, so windows have at most as many.
const NO_TAP: usize = 255;
/// Most elements that an invocation writes: larger blocks would leave too few invocations.
const MAX_BLOCK: usize = 64;

/// Extents for which one division in f32 tells a position's windows.
const MAX_EXTENT: usize = 1 << 20;

/// One program: its inputs' names and its text.
struct Wide {
    name: &'static str,
    inputs: &'static [&'static str],
    /// Whether its text has lines for each four channels of an invocation.
    unrolls: bool,
    text: &'static str,
}

macro_rules! wide {
    ($name:ident, $file:literal, $inputs:expr, $unrolls:expr) => {
        const $name: Wide = Wide {
            name: $file,
            inputs: $inputs,
            unrolls: $unrolls,
            text: include_str!(concat!("../../../../shaders/pool/wide/", $file, ".wgsl")),
        };
    };
}

wide!(WIDE_MAX, "max", &["x"], true);
wide!(WIDE_AVERAGE, "average", &["x"], true);
wide!(WIDE_AVERAGE_GRAD, "average_grad", &["dy"], true);
wide!(AVERAGE_SPREAD, "average_spread", &["dy"], false);
wide!(TAPS, "taps", &["x", "y"], true);
wide!(WIDE_MAX_GRAD, "max_grad", &["taps", "dy"], true);
wide!(MAX_SPREAD, "max_spread", &["x", "y", "dy"], false);

const ALL: [&Wide; 7] = [
    &WIDE_MAX,
    &WIDE_AVERAGE,
    &WIDE_AVERAGE_GRAD,
    &AVERAGE_SPREAD,
    &TAPS,
    &WIDE_MAX_GRAD,
    &MAX_SPREAD,
];

/// How many channels an invocation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channels {
    /// Four.
    Four,
    /// So many times eight, for software adapters: finding windows costs them as much as reading
    /// them.
    Eights(usize),
}

impl Channels {
    const ALL: [Self; 3] = [Self::Four, Self::Eights(1), Self::Eights(2)];

    /// The most that these tensors and so many channels allow.
    fn of(device: &Device, program: &Wide, channels: usize, tensors: &[&Tensor]) -> Self {
        let aligned =
            |t: &&Tensor| t.address.is_multiple_of(u64::from(Self::Eights(1).unit(t.dtype)));
        let eights = program.unrolls && channels.is_multiple_of(8) && tensors.iter().all(aligned);
        match channels / 8 {
            _ if !eights || !device.profile().eight_wide() => Self::Four,
            n => Self::Eights(if n.is_multiple_of(2) { 2 } else { 1 }),
        }
    }

    /// Channels of an element of the bindings.
    const fn width(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eights(_) => 8,
        }
    }

    /// Elements of the bindings that an invocation has.
    const fn count(self) -> usize {
        match self {
            Self::Four => 1,
            Self::Eights(n) => n,
        }
    }

    /// Bytes of an element of a binding; numbers of taken elements are bytes.
    fn unit(self, dtype: DType) -> u32 {
        match (self, dtype) {
            (_, DType::U32) => self.width() as u32,
            (Self::Four, _) => vec4::unit(dtype),
            (Self::Eights(_), _) => eight::unit(dtype),
        }
    }

    /// The text with a line for each four channels in place of lines with `{{Q}}` or, for its half
    /// of a binding's element, `{{HALF}}`, and for each element of a binding in place of lines with
    /// `{{E}}`.
    fn unrolled(self, text: &str) -> String {
        let halves = self.width() / 4;
        let mut out = String::new();
        for line in text.lines() {
            let each = if ["{{Q}}", "{{HALF}}"].iter().any(|mark| line.contains(mark)) {
                self.count() * halves
            } else if line.contains("{{E}}") {
                self.count()
            } else {
                1
            };
            for i in 0..each {
                let (e, half) = (i / halves, i % halves);
                let (half_of, word) = match self {
                    Self::Four => (e.to_string(), format!("of_taps{e}")),
                    Self::Eights(_) => {
                        (format!("{e}[{half}]"), format!("u32(of_taps{e} >> {}u)", 32 * half))
                    }
                };
                let joined = match self {
                    Self::Four => format!("word_of(taken{i})"),
                    Self::Eights(_) => {
                        format!(
                            "u64(word_of(taken{})) | (u64(word_of(taken{})) << 32u)",
                            2 * i,
                            2 * i + 1
                        )
                    }
                };
                let line = line
                    .replace("{{Q}}", &i.to_string())
                    .replace("{{HALF}}", &half_of)
                    .replace("{{WORD}}", &word)
                    .replace("{{E}}", &i.to_string())
                    .replace("{{FIRST}}", &(i * halves).to_string())
                    .replace("{{SECOND}}", &(i * halves + halves - 1).to_string())
                    .replace("{{JOINED}}", &joined);
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }
}

impl Wide {
    fn shader(&self, dtype: DType, channels: Channels) -> Shader {
        let mut shader = Shader::new(format!("pool wide {} {dtype} {channels:?}", self.name));
        let taps = if channels == Channels::Four { "u32" } else { "u64" };
        for &input in self.inputs {
            shader = match (input, channels) {
                ("taps", _) => shader.bind_raw("taps", taps, channels.unit(DType::U32)),
                (_, Channels::Four) => vec4::bind_read(shader, input, dtype),
                (_, Channels::Eights(_)) => eight::bind_read(shader, input, dtype),
            };
        }
        shader = match (self.name, channels) {
            ("taps", _) => shader.bind_raw("result", taps, channels.unit(DType::U32)),
            (_, Channels::Four) => vec4::bind_write(shader, "result", dtype).body(
                "fn store_result(i: u32, v: vec4<f32>, same: vec4<f32>) {\n    write_result(i, v, \
                 4u);\n}\n",
            ),
            (_, Channels::Eights(_)) => eight::bind_write(shader, "result", dtype).body(
                "fn store_result(i: u32, v: vec4<f32>, w: vec4<f32>) {\n    write_result(i, v, \
                 w);\n}\n",
            ),
        };
        shader = declare_windows(shader.u32s(&["count", "channels", "part"]))
            .u32s(&["blocks0", "blocks1", "blocks2"]);
        shader
            .library("quotient")
            .define("QUOTIENTS", "small_quotients")
            .body(COMMON)
            .body(include_str!("../../../../shaders/pool/wide/places.wgsl"))
            .body(include_str!("../../../../shaders/pool/wide/blocks.wgsl"))
            .body(&channels.unrolled(self.text))
            .body(include_str!("../../../../shaders/pool/wide/common.wgsl"))
    }

    /// Enqueues the program with invocations for all channels of `positions` positions of each
    /// image.
    fn enqueue(
        &'static self,
        device: &Device,
        g: &Geometry,
        tensors: &[&Tensor],
        positions: usize,
    ) -> Result<()> {
        let channels = Channels::of(device, self, g.channels, tensors);
        self.enqueue_by(channels, device, g, tensors, positions)
    }

    fn enqueue_by(
        &'static self,
        channels: Channels,
        device: &Device,
        g: &Geometry,
        tensors: &[&Tensor],
        positions: usize,
    ) -> Result<()> {
        let units = g.channels / channels.width();
        let part = units / channels.count();
        let count = g.batch * positions * part;
        device.check_extent(count)?;
        let dtype = tensors.iter().map(|t| t.dtype).find(|t| *t != DType::U32).expect("an operand");
        let mut params = window_params(Params::new().u32(count).u32(units).u32(part), g);
        for blocks in blocks(g) {
            params = params.u32(blocks);
        }
        device.enqueue(&Program {
            key: Key::new("pool wide")
                .name(self.name)
                .dtype(dtype)
                .number((channels.width() * channels.count()) as u32),
            shader: &|| self.shader(dtype, channels),
            bindings: tensors
                .iter()
                .map(|t| Binding::raw(t, channels.unit(t.dtype)))
                .collect::<SmallVec<_>>(),
            params,
            grid: Grid::linear(count, WORKGROUP),
        })
    }
}

/// Blocks of as many elements as the strides that cover the padded input up to its last element.
fn blocks(g: &Geometry) -> [usize; 3] {
    [0, 1, 2].map(|d| (g.input[d] + g.pad[d]).div_ceil(g.stride[d]))
}

/// Enqueues `pool` if it is one of four channels at once, and says whether it was.
pub(in crate::kernels::pool) fn enqueue(
    ctx: &mut dyn OpContext,
    pool: &'static Pool,
    g: &Geometry,
    inputs: &[&Tensor],
    result: &Tensor,
) -> Result<bool> {
    let fits = g.channels_last
        && (0..3).all(|d| g.input[d] + g.pad[d] + g.kernel[d] + g.stride[d] < MAX_EXTENT)
        && g.channels.is_multiple_of(4)
        && inputs.iter().chain([&result]).all(|t| {
            TYPES.contains(&t.dtype) && t.address.is_multiple_of(u64::from(vec4::unit(t.dtype)))
        });
    let apart = (0..3).all(|d| g.kernel[d] <= g.stride[d]) && nest(g.stride) <= MAX_BLOCK;
    let (input, output) = (g.input_positions(), g.output_positions());
    let (program, positions) = match *pool {
        _ if !fits => return Ok(false),
        MAX => (&WIDE_MAX, output),
        AVERAGE => (&WIDE_AVERAGE, output),
        AVERAGE_GRAD if apart => (&AVERAGE_SPREAD, blocks(g).iter().product()),
        AVERAGE_GRAD => (&WIDE_AVERAGE_GRAD, input),
        MAX_GRAD if apart => (&MAX_SPREAD, blocks(g).iter().product()),
        MAX_GRAD if g.taps() <= NO_TAP => {
            let [x, y, dy] = [inputs[0], inputs[1], inputs[2]];
            let taps = ctx.temp(DType::U32, &[g.batch, output, g.channels / 4])?;
            let channels =
                Channels::of(ctx.device(), &TAPS, g.channels, &[x, y, dy, result, &taps]);
            TAPS.enqueue_by(channels, ctx.device(), g, &[x, y, &taps], output)?;
            WIDE_MAX_GRAD.enqueue_by(channels, ctx.device(), g, &[&taps, dy, result], input)?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    check_iterations(ctx.device(), pool.iterations(g, DType::F32))?;
    let tensors: SmallVec<[&Tensor; 4]> = inputs.iter().copied().chain([result]).collect();
    program.enqueue(ctx.device(), g, &tensors, positions)?;
    Ok(true)
}

/// Every variant.
pub(in crate::kernels::pool) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for wide in ALL {
        let channels = Channels::ALL.iter().filter(|c| wide.unrolls || **c == Channels::Four);
        out.extend(channels.flat_map(|c| TYPES.iter().map(|dtype| wide.shader(*dtype, *c))));
    }
    out
}
