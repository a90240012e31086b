//! The programs of transforms: one pass, and the steps of Bluestein's algorithm.

use super::butterfly;
use super::plan::RADICES;
use crate::device::{
    Binding, Device, Grid, Key, KeyPart, declare_params, declare_program, enum_key_parts,
};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::shader::{List, Shader, WORKGROUP};

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
pub struct StageVariant {
    /// The stage.
    pub stage: Stage,
    /// The type of a part.
    pub part: DType,
    /// How x is read.
    pub load: Load,
    /// What is stored in y.
    pub keep: Keep,
}

declare_params! {
    /// The parameters of a program; the stage decides which of them matter: the lines within an
    /// element of the axis, the length of the transform, the product of the radices of earlier
    /// passes, the extent of the axis in x, the elements of a line of x that are used (zeros follow
    /// them), the extent of the axis in y, the divisor of the results, the size of the convolution,
    /// and -1 if the root is conjugated, else 1.
    #[derive(Debug)]
    pub struct Lines {
        inner: usize, n: usize, span: usize, stride: usize, available: usize, kept: usize,
        divisor: usize, size: usize, sign: i32,
    }
}

enum_key_parts!(Load, Keep);

impl KeyPart for StageVariant {
    fn add_to(&self, key: Key) -> Key {
        let key = match self.stage {
            Stage::Pass(radix) => radix.add_to(key),
            Stage::Halves => key.name("halves"),
            Stage::Chirp => key.name("chirp"),
            Stage::ChirpIn => key.name("chirp in"),
            Stage::ChirpMul => key.name("chirp mul"),
            Stage::ChirpOut => key.name("chirp out"),
        };
        self.keep.add_to(self.load.add_to(self.part.add_to(key)))
    }
}

declare_program! {
    /// A stage on x, the filter and y, as far as it has them.
    struct StageProgram = "fft"(variant: StageVariant);
    lists { tensors: List(variant.bindings()) }
    bindings {}
    params { count: u32, lines: Lines }
}

impl StageVariant {
    /// The names and types of its bindings.
    fn bindings(self) -> impl Iterator<Item = (&'static str, DType)> {
        let Self { stage, part, load, keep } = self;
        let has_x = !matches!(stage, Stage::Chirp | Stage::ChirpMul);
        let has_chirp = matches!(stage, Stage::ChirpIn | Stage::ChirpMul | Stage::ChirpOut);
        let complex = part.complex();
        let x = has_x.then_some(("x", if load == Load::Real { part } else { complex }));
        let chirp = has_chirp.then_some(("chirp", complex));
        let y = ("y", if keep == Keep::Real { part } else { complex });
        x.into_iter().chain(chirp).chain([y])
    }

    /// Enqueues `count` invocations on `tensors`.
    pub fn enqueue(
        self,
        device: &Device,
        lines: Lines,
        count: usize,
        tensors: &[(&'static str, Binding)],
    ) -> Result<()> {
        let tensors = tensors.iter().copied().collect();
        let call = StageProgram { tensors, count: device.check_extent(count)?, lines };
        let (of, grid) = (StageProgram::of(self), Grid::linear(count, WORKGROUP));
        let operations = self.part.flops(count * self.stage.operations());
        device.enqueue_counted(&call.program(&of, grid), operations)
    }
}

impl StageProgram {
    fn shader(variant: StageVariant) -> Shader {
        let StageVariant { stage, part, load, keep } = variant;
        let shader = Self::declare(format!("fft {stage:?} {part} {load:?} to {keep:?}"), variant)
            .define("ELEMENT", element(load))
            .define("KEEP", kept(keep))
            .define("TURN", turn(part));
        const COMMON: &str = include_str!("../../../shaders/fft/common.wgsl");
        let shader = match stage {
            Stage::Pass(radix) => shader
                .body(COMMON)
                .body(turn(part))
                .body(include_str!("../../../shaders/fft/pass.wgsl"))
                .define("BUTTERFLY", butterfly::body(radix))
                .define("RADIX", radix.to_string()),
            Stage::Halves => {
                shader.body(include_str!("../../../shaders/fft/halves.wgsl")).body(turn(part))
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
        shader.define("REAL", part.value())
    }
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

const fn kept(keep: Keep) -> &'static str {
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
        let variant =
            |stage, (load, keep)| StageProgram::shader(StageVariant { stage, part, load, keep });
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
