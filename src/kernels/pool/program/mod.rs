//! The programs of pooling: one WGSL file for each, with the same windows and parameters.

pub(super) mod vec4s;

use smallvec::SmallVec;

use crate::device::{Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::conv::depthwise::check_iterations;
use crate::shader::{Shader, library};
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
    /// Whether it searches for the element that a window took.
    matches: bool,
    text: &'static str,
}

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
    /// Its gradient.
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
    /// Gradient by index.
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
    /// Its gradient.
    AVERAGE_GRAD, "average_grad", &["dy"], false
);

const ALL: &[Pool] =
    &[MAX, MAX_GRAD, MAX_PICK, ARGMAX, ARGMAX_GRAD, ARGMAX_PICK, AVERAGE, AVERAGE_GRAD];

impl Pool {
    fn shader(&self, dtype: DType, channels_last: bool) -> Shader {
        let mut shader =
            Shader::new(format!("pool {} {dtype} channels_last={channels_last}", self.name));
        for &input in self.inputs {
            shader = shader.bind(input, if input == "argmax" { DType::I64 } else { dtype });
        }
        shader = shader.bind("result", if *self == ARGMAX { DType::I64 } else { dtype });
        shader = shader.u32s(&["count", "channels", "per_image", "elements", "base"]);
        shader = declare_windows(shader)
            .library("quotient")
            .library(library::of_type("special", dtype))
            .define("VALUE", dtype.value())
            .define("QUOTIENTS", "quotients")
            .body("alias Value = {{VALUE}};\n")
            .body(COMMON)
            .body(if channels_last { CHANNELS_LAST } else { CHANNELS_FIRST });
        if self.matches {
            shader = shader.body(FIRST_MATCH);
        }
        shader.body(self.text).map("result")
    }

    /// Most iterations of all loops of one invocation.
    pub(super) fn iterations(&self, g: &Geometry, result: DType) -> usize {
        let mut windows = [0; 3];
        for (d, w) in windows.iter_mut().enumerate() {
            *w = g.kernel[d].div_ceil(g.stride[d]).min(g.output[d]);
        }
        let window = nest([0, 1, 2].map(|d| g.kernel[d].min(g.input[d])));
        let element = match self.name {
            "max_grad" => nest(windows) + windows.iter().product::<usize>() * window,
            "argmax_grad" | "average_grad" => nest(windows),
            _ => window,
        };
        // An invocation computes all lanes of a word, one after the other.
        element * result.lanes() as usize
    }

    /// Whether `input` has the shape of what is pooled.
    pub(super) fn is_pooled(input: &str) -> bool {
        matches!(input, "x" | "g")
    }

    /// Names of the operands.
    pub(super) const fn inputs(&self) -> &'static [&'static str] {
        self.inputs
    }

    /// Whether the result has the shape of what is pooled.
    pub(super) fn is_gradient(&self) -> bool {
        matches!(self.name, "max_grad" | "argmax_grad" | "average_grad")
    }

    /// Enqueues the program. The first number is that of the elements of an image where indices
    /// count within images, else 0; the second one is the index of the first element.
    pub fn enqueue(
        &'static self,
        device: &Device,
        g: &Geometry,
        inputs: &[&Tensor],
        result: &Tensor,
        (per_image, base): (usize, usize),
    ) -> Result<()> {
        let elements = g.batch * g.channels * g.input_positions();
        for n in [base, elements, result.len(), g.batch * g.channels * g.output_positions()] {
            device.check_extent(n)?;
        }
        check_iterations(&device.profile(), self.iterations(g, result.dtype))?;
        let dtype = if *self == ARGMAX { inputs[0].dtype } else { result.dtype };
        let last = g.channels_last;
        let params =
            Params::new().u32(result.len()).u32(g.channels).u32(per_image).u32(elements).u32(base);
        device.enqueue_counted(
            &Program {
                key: Key::new("pool").name(self.name).dtype(dtype).number(u32::from(last)),
                shader: &|| self.shader(dtype, last),
                bindings: inputs
                    .iter()
                    .copied()
                    .chain([result])
                    .map(Into::into)
                    .collect::<SmallVec<_>>(),
                params: window_params(params, g),
                grid: Grid::map(result.len(), result.dtype),
            },
            dtype.flops(g.pooled()),
        )
    }
}

/// Iterations of three loops, one in the other.
pub(super) const fn nest([a, b, c]: [usize; 3]) -> usize {
    a * (1 + b * (1 + c))
}

/// Declares what [`window_params`] appends.
pub(super) fn declare_windows(mut shader: Shader) -> Shader {
    for d in 0..3 {
        for name in ["in", "out", "kernel", "stride", "pad"] {
            shader = shader.u32s(&[&format!("{name}{d}")]);
        }
    }
    shader
}

/// The extents of input, output and windows.
pub(super) fn window_params(mut params: Params, g: &Geometry) -> Params {
    for d in 0..3 {
        for list in [&g.input, &g.output, &g.kernel, &g.stride, &g.pad] {
            params = params.u32(list[d]);
        }
    }
    params
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = vec4s::shaders();
    for pool in ALL {
        for dtype in super::TYPES_2D {
            out.extend([true, false].map(|last| pool.shader(*dtype, last)));
        }
    }
    out
}
