//! Drawing a tensor of numbers from a generator, by the distributions of `shaders/random/`.

use std::fmt::Write;

use smallvec::{SmallVec, smallvec};

use super::philox::Generator;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP, codec};
use crate::tensor::Tensor;

/// The distribution to draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Floats in [0, 1).
    Uniform,
    /// Normal floats with mean 0 and deviation 1.
    Normal,
    /// The same between -2 and 2.
    TruncatedNormal,
    /// Integers from a [`Bounds`].
    UniformInt,
    /// Any integer of the type.
    UniformFullInt,
}

/// The integers `low <= x < low + range`; the range is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Smallest value.
    pub low: i64,
    /// Number of values.
    pub range: u64,
}

/// The place of the generator's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// On the host.
    Host(Generator),
    /// On the device: tensors that start with the counter's 16 bytes and the key's 8 bytes.
    Device {
        /// The counter.
        counter: &'a Tensor,
        /// The key.
        key: &'a Tensor,
    },
}

impl Distribution {
    /// Every distribution with the types it is drawn in.
    pub const ALL: [(Self, &'static [DType]); 5] = {
        use DType::{I32, I64, U32, U64};
        const FLOATS: &[DType] = types::FLOATS;
        [
            (Self::Uniform, FLOATS),
            (Self::Normal, FLOATS),
            (Self::TruncatedNormal, FLOATS),
            (Self::UniformInt, &[I32, I64]),
            (Self::UniformFullInt, &[I32, I64, U32, U64]),
        ]
    };

    /// The types in which it is drawn.
    pub fn types(self) -> &'static [DType] {
        Self::ALL[self as usize].1
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::TruncatedNormal => "truncated_normal",
            Self::UniformInt => "uniform_int",
            Self::UniformFullInt => "uniform_full_int",
        }
    }

    /// Base-2 logarithm of the samples reserved for a group of outputs. TensorFlow's CPU kernel
    /// reserves 256 numbers of 32 bits for each of a group's four (or two in float64) if it rejects
    /// some, and we draw exactly as it does.
    const fn samples_log2(self, dtype: DType) -> u32 {
        match (self, dtype) {
            (Self::TruncatedNormal, DType::F64) => 7,
            (Self::TruncatedNormal, _) => 8,
            _ => 0,
        }
    }
}

/// Words of 32 bits that one sample fills: 128 random bits make four numbers of up to 32 bits, or
/// two numbers of 64 bits.
const fn words(dtype: DType) -> usize {
    if dtype.size() == 2 { 2 } else { 4 }
}

/// Declares the output and `fn store`. An output is `aligned` if whole groups of words can be
/// bound.
fn output(s: Shader, words: usize, aligned: bool) -> Shader {
    let components = &["x", "y", "z", "w"][..words];
    let (s, at) = match (aligned, words) {
        (false, _) => (
            s.bind_raw("y", "u32", 4),
            "y[p.off_y + WORDSu * group + {place}u]".replace("WORDS", &words.to_string()),
        ),
        (true, 2) => (s.bind_raw("y", "vec2<u32>", 8), "y[p.off_y + group].{component}".to_owned()),
        (true, _) => {
            (s.bind_raw("y", "vec4<u32>", 16), "y[p.off_y + group].{component}".to_owned())
        }
    };
    let mut text = "fn store(group: u32, words: vec4<u32>, n: u32) {\n".to_owned();
    if aligned {
        let whole = components.concat();
        let _ = writeln!(
            text,
            "    if n >= {words}u {{\n        y[p.off_y + group] = words.{whole};\n        \
             return;\n    }}"
        );
    }
    for (place, component) in components.iter().enumerate() {
        let at = at.replace("{component}", component).replace("{place}", &place.to_string());
        let _ = writeln!(text, "    if n > {place}u {{\n        {at} = words.{component};\n    }}");
    }
    s.body(&(text + "}\n"))
}

/// The shader that draws `distribution` in `dtype`. It depends on whether the output is `aligned`
/// to whole groups of words, on whether the generator is `on_device` or in the parameters, and on
/// whether the adapter has 64-bit integers.
pub fn shader(
    distribution: Distribution,
    dtype: DType,
    on_device: bool,
    aligned: bool,
    int64: bool,
) -> Shader {
    let samples_log2 = distribution.samples_log2(dtype);
    let s = Shader::new(format!(
        "random {} {dtype} on_device={on_device} aligned={aligned} int64={int64}",
        distribution.name()
    ));
    let mut s = output(s, words(dtype), aligned)
        .u32s(&["words", "first_low", "first_high"])
        .library(if int64 { "mul_wide_u64" } else { "mul_wide" })
        .library("philox")
        .define("WORDS", words(dtype).to_string())
        .define("SAMPLES_LOG2", samples_log2.to_string())
        .define(
            "GROUP_HIGH",
            if samples_log2 == 0 {
                "0u".to_owned()
            } else {
                format!("group >> {}u", 32 - samples_log2)
            },
        );
    s = match (distribution, dtype.size()) {
        (Distribution::UniformInt, 8) => s.u32s(&["low", "low_high", "range", "range_high"]),
        (Distribution::UniformInt, _) => s.u32s(&["low", "range"]),
        _ => s,
    };
    s = generator(s, on_device).body(include_str!("../../../shaders/random/fill.wgsl"));
    match distribution {
        Distribution::Uniform if dtype == DType::F64 => {
            encoder(s, dtype).body(include_str!("../../../shaders/random/uniform_f64.wgsl"))
        }
        Distribution::Normal if dtype == DType::F64 => {
            encoder(s, dtype).body(include_str!("../../../shaders/random/normal_f64.wgsl"))
        }
        Distribution::TruncatedNormal if dtype == DType::F64 => encoder(s, dtype)
            .body(include_str!("../../../shaders/random/truncated_normal_f64.wgsl")),
        Distribution::Uniform => {
            // The number of bits is that of the significand.
            let (bits, unit) = match dtype {
                DType::F16 => ("10", "0.0009765625"),
                DType::BF16 => ("7", "0.0078125"),
                _ => ("23", "1.1920928955078125e-7"),
            };
            let s = s.define("BITS", bits).define("UNIT", unit);
            encoder(s, dtype).body(include_str!("../../../shaders/random/uniform.wgsl"))
        }
        Distribution::Normal => encoder(s, dtype)
            .library("box_muller")
            .body(include_str!("../../../shaders/random/normal.wgsl")),
        Distribution::TruncatedNormal => {
            let s = encoder(s, dtype).library("box_muller");
            s.body(include_str!("../../../shaders/random/truncated_normal.wgsl"))
        }
        Distribution::UniformInt if dtype.size() == 8 => {
            s.body(JOIN).body(include_str!("../../../shaders/random/uniform_int64.wgsl"))
        }
        Distribution::UniformInt => {
            s.body(include_str!("../../../shaders/random/uniform_int32.wgsl"))
        }
        Distribution::UniformFullInt => {
            s.body(include_str!("../../../shaders/random/uniform_full_int.wgsl"))
        }
    }
}

/// Joins the halves of a word of 64 bits.
const JOIN: &str =
    "fn join(low: u32, high: u32) -> u64 {\n    return (u64(high) << 32u) | u64(low);\n}\n";

/// Declares the generator's state and `fn generator`, which reads it.
pub fn generator(s: Shader, on_device: bool) -> Shader {
    let s = s.body("struct Generator {\n    counter: vec4<u32>,\n    key: vec2<u32>,\n}\n");
    if on_device {
        s.bind_raw("counter", "u32", 4).bind_raw("key", "u32", 4).body(
            "fn generator() -> Generator {
    let c = p.off_counter;
    let k = p.off_key;
    return Generator(
        vec4<u32>(counter[c], counter[c + 1u], counter[c + 2u], counter[c + 3u]),
        vec2<u32>(key[k], key[k + 1u]),
    );
}
",
        )
    } else {
        s.u32s(&["counter_0", "counter_1", "counter_2", "counter_3", "key_0", "key_1"]).body(
            "fn generator() -> Generator {\n    return Generator(vec4<u32>(p.counter_0, \
             p.counter_1, p.counter_2, p.counter_3), vec2<u32>(p.key_0, p.key_1));\n}\n",
        )
    }
}

impl Source<'_> {
    /// Whether the state lies on the device.
    pub const fn on_device(&self) -> bool {
        matches!(self, Self::Device { .. })
    }

    /// Adds the parameters and bindings that [`generator`] declared.
    pub fn add(&self, mut params: Params, bindings: &mut SmallVec<[Binding; 8]>) -> Params {
        match self {
            Self::Host(generator) => {
                for word in generator.counter.into_iter().chain(generator.key) {
                    params = params.u32(word);
                }
            }
            Self::Device { counter, key } => {
                bindings.push(Binding { address: counter.address, bytes: 16, unit: 4 });
                bindings.push(Binding { address: key.address, bytes: 8, unit: 4 });
            }
        }
        params
    }
}

/// Adds `fn encode`, which packs four floats into a group's words.
fn encoder(s: Shader, dtype: DType) -> Shader {
    if dtype == DType::F64 {
        return s.library("box_muller_wide_f64").body(
            "fn encode(v: vec2<f64>) -> vec4<u32> {\n    let a = bitcast<u64>(v.x);\n    let b = \
             bitcast<u64>(v.y);\n    return vec4<u32>(u32(a & 0xfffffffflu), u32(a >> 32u), u32(b \
             & 0xfffffffflu), u32(b >> 32u));\n}\n",
        );
    }
    let words = match dtype {
        DType::F16 | DType::BF16 => format!("vec4<u32>({}, 0u, 0u)", codec::pack(dtype).1),
        _ => "bitcast<vec4<u32>>(v)".to_owned(),
    };
    let s = codec::with_library(s, dtype);
    s.body(&format!("fn encode(v: vec4<f32>) -> vec4<u32> {{\n    return {words};\n}}\n"))
}

/// Fills `output` with numbers of `distribution`; `bounds` matter only to
/// [`Distribution::UniformInt`]. The output may have any size: each number depends only on its
/// index, so windows are drawn one by one.
pub fn fill(
    device: &Device,
    output: &Tensor,
    distribution: Distribution,
    bounds: Bounds,
    source: Source<'_>,
) -> Result<()> {
    let dtype = output.dtype;
    let on_device = source.on_device();
    let int64 = device.capabilities().int64;
    let aligned = output.address.is_multiple_of(4 * words(dtype) as u64);
    let key = Key::new("random")
        .name(distribution.name())
        .dtype(dtype)
        .number(on_device.into())
        .number(u32::from(aligned) + 2 * u32::from(int64));
    // Word indices stay far below 2^32, however much the adapter can bind.
    let window = (device.capabilities().max_binding.min(1 << 30) / 32 * 8) as usize;
    let total = (output.bytes() as usize).div_ceil(4);
    for first in (0..total).step_by(window) {
        let count = window.min(total - first);
        let samples_before = ((first / words(dtype)) as u64) << distribution.samples_log2(dtype);
        let mut params =
            Params::new().u32(count).u32(samples_before as u32).u32(samples_before >> 32);
        if distribution == Distribution::UniformInt {
            let (low, range) = (bounds.low.cast_unsigned(), bounds.range);
            params = match dtype.size() {
                8 => params.u32(low as u32).u32(low >> 32).u32(range as u32).u32(range >> 32),
                _ => params.u32(low as u32).u32(range as u32),
            };
        }
        let y = Binding {
            address: output.address + 4 * first as u64,
            bytes: 4 * count as u64,
            unit: if aligned { 4 * words(dtype) as u32 } else { 4 },
        };
        let mut bindings: SmallVec<[Binding; 8]> = smallvec![y];
        params = source.add(params, &mut bindings);
        device.enqueue(&Program {
            key: key.clone(),
            shader: &|| shader(distribution, dtype, on_device, aligned, int64),
            bindings,
            params,
            grid: Grid::linear(count.div_ceil(words(dtype)), WORKGROUP),
        })?;
    }
    Ok(())
}

/// The shader of [`advance`].
pub fn advance_shader() -> Shader {
    Shader::new("random advance")
        .bind_raw("state", "u32", 4)
        .u32s(&["low", "high"])
        .library("philox")
        .workgroup([1, 1, 1])
        .body(include_str!("../../../shaders/random/advance.wgsl"))
}

/// Moves the counter at the start of `state` on by `samples`.
pub fn advance(device: &Device, state: &Tensor, samples: u64) -> Result<()> {
    device.enqueue(&Program {
        key: Key::new("random").name("advance"),
        shader: &advance_shader,
        bindings: smallvec![Binding { address: state.address, bytes: 16, unit: 4 }],
        params: Params::new().u32(samples as u32).u32(samples >> 32),
        grid: Grid([1, 1, 1]),
    })
}
