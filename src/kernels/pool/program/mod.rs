//! The programs of pooling: one WGSL file for each, with the same windows and parameters.
//!
//! A program takes whole windows in one dispatch. Where that takes more iterations than the
//! adapter's loops may have, dispatches take parts of the windows ([`cut`]), in row-major order,
//! and each goes on from the values that the previous one stored.

mod cut;
pub(super) mod vec4s;

use crate::device::{Axes, Device, Grid, Key, KeyPart, Profile, declare_params, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::finish;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::iterations::{LoopPart, nest, parts};
use crate::kernels::op::OpContext;
use crate::shader::{List, Shader};
use crate::tensor::Tensor;

pub(super) const COMMON: &str = include_str!("../../../../shaders/pool/common.wgsl");
const CHANNELS_LAST: &str = include_str!("../../../../shaders/pool/channels_last.wgsl");
const CHANNELS_FIRST: &str = include_str!("../../../../shaders/pool/channels_first.wgsl");
const FIRST_MATCH: &str = include_str!("../../../../shaders/pool/first_match.wgsl");

/// One program: its inputs' names and its text.
#[derive(Debug, PartialEq, Eq)]
pub struct Pool {
    name: &'static str,
    inputs: &'static [&'static str],
    /// Whether it searches for the element that was selected from a window.
    matches: bool,
    text: &'static str,
}

/// The name of an input in its program, and the input.
pub type Input<'a> = (&'static str, &'a Tensor);

macro_rules! pool {
    ($(#[$doc:meta])* $name:ident, $file:literal, $inputs:expr, $matches:expr) => {
        $(#[$doc])*
        pub const $name: Pool = Pool {
            name: $file,
            inputs: $inputs,
            matches: $matches,
            text: include_str!(concat!("../../../../shaders/pool/", $file, ".wgsl")),
        };
    };
}

pool!(
    /// Largest element.
    MAX, "max", &["x"], false
);
pool!(
    /// The gradient of the maximum.
    MAX_GRAD, "max_grad", &["x", "y", "dy"], true
);
pool!(
    /// The gradient of the gradient.
    MAX_PICK, "max_pick", &["x", "y", "g"], true
);
pool!(
    /// Index of the largest element.
    ARGMAX, "argmax", &["x", "y"], true
);
pool!(
    /// The gradient of the maximum, by index.
    ARGMAX_GRAD, "argmax_grad", &["argmax", "dy"], false
);
pool!(
    /// The gradient of the gradient, by index.
    ARGMAX_PICK, "argmax_pick", &["argmax", "g"], false
);
pool!(
    /// Mean.
    AVERAGE, "average", &["x"], false
);
pool!(
    /// The gradient of the mean.
    AVERAGE_GRAD, "average_grad", &["dy"], false
);

const ALL: &[Pool] =
    &[MAX, MAX_GRAD, MAX_PICK, ARGMAX, ARGMAX_GRAD, ARGMAX_PICK, AVERAGE, AVERAGE_GRAD];

impl KeyPart for &Pool {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.name)
    }
}

declare_params! {
    /// The extents of input, output and windows.
    pub(super) struct WindowParams {
        input: Axes<3>, output: Axes<3>, kernel: Axes<3>, stride: Axes<3>, pad: Axes<3>,
    }
}

impl WindowParams {
    pub(super) const fn of(g: &Geometry) -> Self {
        let (input, output, pad) = (Axes(g.input), Axes(g.output), Axes(g.pad));
        Self { input, output, kernel: Axes(g.kernel), stride: Axes(g.stride), pad }
    }
}

declare_program! {
    /// Pooling over whole windows, or over parts of them if it `is_cut`.
    struct PoolProgram = "pool"(
        pool: &'static Pool, dtype: DType, channels_last: bool, is_cut: bool
    );
    lists { inputs: List(pool.typed_inputs(dtype)) }
    bindings { result: pool.result(dtype, is_cut) }
    params {
        count: usize, channels: usize, per_image: usize, elements: usize, base: usize,
        windows: WindowParams, part: Option<LoopPart> = is_cut,
    }
}

impl PoolProgram {
    fn shader(pool: &'static Pool, dtype: DType, channels_last: bool, is_cut: bool) -> Shader {
        let label =
            format!("pool {} {dtype} channels_last={channels_last} cut={is_cut}", pool.name);
        let shader = Self::declare(label, pool, dtype, channels_last, is_cut)
            .define("VALUE", dtype.value())
            .define("RESULT", pool.result(dtype, is_cut).value())
            .define("QUOTIENTS", "quotients")
            .body("alias Value = {{VALUE}};\nalias Result = {{RESULT}};\n")
            .body(COMMON)
            .body(if channels_last { CHANNELS_LAST } else { CHANNELS_FIRST })
            .body(if is_cut { cut::CUT } else { cut::WHOLE });
        let shader = if pool.matches { shader.body(FIRST_MATCH) } else { shader };
        shader.body(pool.text).map("result")
    }
}

impl Pool {
    /// The inputs of a program for elements of `dtype`.
    fn typed_inputs(&self, dtype: DType) -> impl Iterator<Item = (&'static str, DType)> {
        let of = move |name: &str| if name == "argmax" { DType::I64 } else { dtype };
        self.inputs.iter().map(move |name| (*name, of(name)))
    }

    /// The type that a program for elements of `dtype` stores. Parts of sums are not rounded.
    fn result(&self, dtype: DType, is_cut: bool) -> DType {
        match *self {
            ARGMAX => DType::I64,
            MAX => dtype,
            _ if is_cut => dtype.accumulator(),
            _ => dtype,
        }
    }

    /// Extents of the loops over an element's window, or over the windows that contain it.
    fn loops(&self, g: &Geometry) -> [usize; 3] {
        [0, 1, 2].map(|d| match self.name {
            "max_grad" | "argmax_grad" | "average_grad" => {
                g.kernel[d].div_ceil(g.stride[d]).min(g.output[d])
            }
            "argmax_pick" => 0,
            _ => g.kernel[d].min(g.input[d]),
        })
    }

    /// The most iterations of all loops of one invocation.
    fn iterations(&self, g: &Geometry, result: DType) -> usize {
        let loops = self.loops(g);
        let element = match self.name {
            // Each window is searched.
            "max_grad" => nest(loops) + loops.iter().product::<usize>() * nest(MAX.loops(g)),
            _ => nest(loops),
        };
        // An invocation computes all lanes of a word, one after the other.
        element * result.lanes() as usize
    }

    /// Whether one dispatch would have more iterations than the adapter's loops may have.
    pub(super) fn is_long(&self, profile: &Profile, g: &Geometry, result: DType) -> bool {
        self.iterations(g, result) > profile.loop_limit
    }

    /// Bytes of an element of the result, or of the value that is kept for it between parts of
    /// windows.
    pub(super) fn widest(&self, result: DType, is_long: bool) -> usize {
        self.result(result, is_long).size().max(result.size())
    }

    /// Whether it searches windows for the elements that were selected, and uses these otherwise
    /// than to store their indices.
    pub(super) fn searches(&self) -> bool {
        self.matches && *self != ARGMAX
    }

    /// Whether there is a form that takes parts of windows.
    fn is_cut(&self) -> bool {
        [MAX, ARGMAX, ARGMAX_GRAD, AVERAGE, AVERAGE_GRAD].contains(self)
    }

    /// Whether `input` has the shape of the pooled tensor.
    pub(super) fn is_pooled(input: &str) -> bool {
        matches!(input, "x" | "g")
    }

    /// Whether the result has the shape of the pooled tensor.
    pub(super) fn is_gradient(&self) -> bool {
        matches!(self.name, "max_grad" | "argmax_grad" | "average_grad")
    }

    /// Enqueues the program. The first number is the number of elements of an image if indices
    /// count within images, else 0; the second one is the index of the first element.
    pub fn enqueue(
        &'static self,
        ctx: &mut dyn OpContext,
        g: &Geometry,
        inputs: &[Input<'_>],
        result: &Tensor,
        numbers: (usize, usize),
    ) -> Result<()> {
        let profile = ctx.device().profile();
        if !self.is_long(&profile, g, result.dtype) {
            return self.dispatch(ctx.device(), g, inputs, result, numbers, None);
        }
        if self.searches() {
            // Each window is searched once, for the index of the element that it selects.
            let indices = ctx.temp(DType::I64, &[g.outputs()])?;
            ARGMAX.enqueue(ctx, g, &inputs[..2], &indices, (0, 0))?;
            let by_index = if *self == MAX_GRAD { &ARGMAX_GRAD } else { &ARGMAX_PICK };
            return by_index.enqueue(ctx, g, &[("argmax", &indices), inputs[2]], result, (0, 0));
        }
        let dtype = self.result(result.dtype, true);
        let sums =
            if dtype == result.dtype { result.clone() } else { ctx.temp(dtype, &result.dims)? };
        let most = profile.loop_limit / dtype.lanes() as usize;
        for part in parts(self.loops(g), most) {
            self.dispatch(ctx.device(), g, inputs, &sums, numbers, Some(part))?;
        }
        if sums == *result { Ok(()) } else { finish::enqueue(ctx.device(), &sums, result) }
    }

    fn dispatch(
        &'static self,
        device: &Device,
        g: &Geometry,
        inputs: &[Input<'_>],
        result: &Tensor,
        (per_image, base): (usize, usize),
        part: Option<LoopPart>,
    ) -> Result<()> {
        let elements = g.batch * g.channels * g.input_positions();
        for n in [base, elements, result.len(), g.batch * g.channels * g.output_positions()] {
            device.check_extent(n)?;
        }
        // All inputs before the result are floats.
        let dtype = inputs[inputs.len() - 1].1.dtype;
        let call = PoolProgram {
            inputs: inputs.iter().map(|(name, t)| (*name, (*t).into())).collect(),
            result: result.into(),
            count: result.len(),
            channels: g.channels,
            per_image,
            elements,
            base,
            windows: WindowParams::of(g),
            part,
        };
        let of = PoolProgram::of(self, dtype, g.channels_last, part.is_some());
        let grid = Grid::map(result.len(), result.dtype);
        device.enqueue_counted(&call.program(&of, grid), dtype.operations(g.pooled()))
    }
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = vec4s::shaders();
    for pool in ALL {
        for dtype in super::TYPES_2D {
            for last in [true, false] {
                out.push(PoolProgram::shader(pool, *dtype, last, false));
                if pool.is_cut() {
                    out.push(PoolProgram::shader(pool, *dtype, last, true));
                }
            }
        }
    }
    out
}
