//! The programs of transforms: one pass, and the steps of Bluestein's algorithm.

use super::butterfly;
use super::plan::RADICES;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::shader::{Field, Shader, WORKGROUP};

/// How a program reads the elements of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Complex elements.
    Complex,
    /// Real elements.
    Real,
    /// The first half of complex elements whose second half is the conjugates.
    Half,
}

/// The part of its results that a program stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The complex elements.
    Complex,
    /// Their real parts.
    Real,
}

/// The work of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A pass of this radix from x to y.
    Pass(usize),
    /// From the transforms of lines' halves in x to the spectra in y.
    Halves,
    /// Writes the filter to y.
    Chirp,
    /// Writes lines of x times the filter to y.
    ChirpIn,
    /// Multiplies y by the transformed filter.
    ChirpMul,
    /// Writes lines of x times the filter to y.
    ChirpOut,
}

impl Stage {
    /// Operations of an invocation: 5 N log2 N for a butterfly of N, the usual count for FFTs,
    /// whatever their algorithm takes; else the operations of the text.
    fn operations(self) -> usize {
        match self {
            Self::Pass(radix) => (5.0 * radix as f64 * (radix as f64).log2()).round() as usize,
            Self::Halves => 18,
            Self::Chirp => 2,
            Self::ChirpIn | Self::ChirpMul | Self::ChirpOut => 6,
        }
    }
}

/// The properties that a program's text depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The stage.
    pub stage: Stage,
    /// The type of a part.
    pub part: DType,
    /// How x is read.
    pub load: Load,
    /// What is stored in y.
    pub keep: Keep,
}

/// The parameters of a program; the stage decides which of them matter.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// Lines before the axis.
    pub outer: usize,
    /// Lines within an element of the axis.
    pub inner: usize,
    /// Length of the transform.
    pub n: usize,
    /// Product of the radices of earlier passes.
    pub span: usize,
    /// Extent of the axis in x.
    pub stride: usize,
    /// Elements of a line of x that are used; zeros follow them.
    pub available: usize,
    /// Extent of the axis in y.
    pub kept: usize,
    /// The divisor of the results.
    pub divisor: usize,
    /// Size of the convolution.
    pub size: usize,
    /// Whether the root is conjugated.
    pub inverse: bool,
}

impl Variant {
    fn key(&self) -> Key {
        let (name, radix) = match self.stage {
            Stage::Pass(radix) => ("pass", radix),
            Stage::Halves => ("halves", 0),
            Stage::Chirp => ("chirp", 0),
            Stage::ChirpIn => ("chirp in", 0),
            Stage::ChirpMul => ("chirp mul", 0),
            Stage::ChirpOut => ("chirp out", 0),
        };
        Key::new("fft")
            .name(name)
            .dtype(self.part)
            .number(radix as u32)
            .number(self.load as u32)
            .number(self.keep as u32)
    }

    /// The program's text.
    pub fn shader(&self) -> Shader {
        let complex = self.part.complex();
        let input = if self.load == Load::Real { self.part } else { complex };
        let output = if self.keep == Keep::Real { self.part } else { complex };
        let label =
            format!("fft {:?} {} {:?} to {:?}", self.stage, self.part, self.load, self.keep);
        let mut shader = Shader::new(label);
        if matches!(self.stage, Stage::Pass(_) | Stage::Halves | Stage::ChirpIn | Stage::ChirpOut) {
            shader = shader.bind("x", input);
        }
        if matches!(self.stage, Stage::ChirpIn | Stage::ChirpMul | Stage::ChirpOut) {
            shader = shader.bind("chirp", complex);
        }
        shader = declared(shader.bind("y", output))
            .define("ELEMENT", element(self.load))
            .define("KEEP", keep(self.keep))
            .define("TURN", turn(self.part));
        const COMMON: &str = include_str!("../../../shaders/fft/common.wgsl");
        let shader = match self.stage {
            Stage::Pass(radix) => shader
                .body(COMMON)
                .body(turn(self.part))
                .body(include_str!("../../../shaders/fft/pass.wgsl"))
                .define("BUTTERFLY", butterfly::body(radix))
                .define("RADIX", radix.to_string()),
            Stage::Halves => {
                shader.body(include_str!("../../../shaders/fft/halves.wgsl")).body(turn(self.part))
            }
            Stage::Chirp => shader.body(include_str!("../../../shaders/fft/chirp.wgsl")).map("y"),
            Stage::ChirpIn => shader
                .body(COMMON)
                .body(include_str!("../../../shaders/fft/chirp_in.wgsl"))
                .map("y"),
            Stage::ChirpMul => {
                shader.body(include_str!("../../../shaders/fft/chirp_mul.wgsl")).map("y")
            }
            Stage::ChirpOut => {
                shader.body(COMMON).body(include_str!("../../../shaders/fft/chirp_out.wgsl"))
            }
        };
        shader.define("REAL", self.part.value())
    }

    /// Enqueues `count` invocations on the bindings: x, the filter and y, as far as the stage has
    /// them.
    pub fn enqueue(
        &self,
        device: &Device,
        lines: &Lines,
        count: usize,
        bindings: &[Binding],
    ) -> Result<()> {
        device.enqueue_counted(
            &Program {
                key: self.key(),
                shader: &|| self.shader(),
                bindings: bindings.iter().copied().collect(),
                params: Params::new()
                    .u32(device.check_extent(count)?)
                    .u32(lines.inner)
                    .u32(lines.n)
                    .u32(lines.span)
                    .u32(lines.stride)
                    .u32(lines.available)
                    .u32(lines.kept)
                    .u32(lines.divisor)
                    .u32(lines.size)
                    .i32(if lines.inverse { -1 } else { 1 }),
                grid: Grid::linear(count, WORKGROUP),
            },
            self.part.flops(count * self.stage.operations()),
        )
    }
}

/// The parameters of all programs.
fn declared(shader: Shader) -> Shader {
    shader
        .u32s(&["count", "inner", "n", "span", "stride", "available", "kept", "divisor", "size"])
        .param("sign", Field::I32)
}

const fn turn(part: DType) -> &'static str {
    match part {
        F64 => include_str!("../../../shaders/fft/turn_f64.wgsl"),
        _ => include_str!("../../../shaders/fft/turn_f32.wgsl"),
    }
}

const fn element(load: Load) -> &'static str {
    match load {
        Load::Complex => {
            "if k >= p.available {\n        return Complex();\n    }\n    let z = load_x((o * \
             p.stride + k) * p.inner + c);\n    return Complex(z.x, z.y * Real(p.sign));"
        }
        Load::Real => {
            "if k >= p.available {\n        return Complex();\n    }\n    return Complex(load_x((o \
             * p.stride + k) * p.inner + c), Real());"
        }
        Load::Half => {
            "let folded = k > p.n / 2u;\n    let at = select(k, p.n - k, folded);\n    if at >= \
             p.available {\n        return Complex();\n    }\n    let z = load_x((o * p.stride + \
             at) * p.inner + c);\n    return Complex(z.x, z.y * Real(select(p.sign, -p.sign, \
             folded)));"
        }
    }
}

const fn keep(keep: Keep) -> &'static str {
    match keep {
        Keep::Complex => {
            "store_y((o * p.kept + k) * p.inner + c, Complex(z.x, z.y * Real(p.sign)));"
        }
        Keep::Real => "store_y((o * p.kept + k) * p.inner + c, z.x);",
    }
}

/// Every text that transforms may need.
pub fn shaders() -> Vec<Shader> {
    // No op reads real elements and keeps real parts.
    let ends = [
        (Load::Complex, Keep::Complex),
        (Load::Complex, Keep::Real),
        (Load::Real, Keep::Complex),
        (Load::Half, Keep::Complex),
        (Load::Half, Keep::Real),
    ];
    let mut out = Vec::new();
    for part in [F32, F64] {
        let variant = |stage, (load, keep)| Variant { stage, part, load, keep }.shader();
        for radix in RADICES {
            out.extend(ends.map(|e| variant(Stage::Pass(*radix), e)));
        }
        out.push(variant(Stage::Halves, ends[0]));
        out.extend(
            [
                (Stage::Chirp, ends[0]),
                (Stage::ChirpMul, ends[0]),
                (Stage::ChirpOut, ends[0]),
                (Stage::ChirpOut, ends[1]),
            ]
            .map(|(s, e)| variant(s, e)),
        );
        out.extend([ends[0], ends[2], ends[3]].map(|e| variant(Stage::ChirpIn, e)));
    }
    out
}
