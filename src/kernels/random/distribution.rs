//! Drawing a tensor of numbers from a generator, by the distributions of `shaders/random/`.

use std::fmt::Write;

use super::philox::Generator;
use crate::device::{Binding, Device, Grid, declare_params, declare_program, enum_key_parts};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::shader::{Raw, Shader, Storage, WORKGROUP, codec};
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

declare_params! {
    /// The integers `low <= x < low + range`; the range is not 0.
    #[derive(Debug, Default)]
    pub struct Bounds { low: u64, range: u64 }
}

enum_key_parts!(Distribution);

/// The place of the generator's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSource<'a> {
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

/// A binding of groups of `words` words, or of single words unless outputs are `aligned`.
const fn groups(words: usize, aligned: bool) -> Storage {
    match (aligned, words) {
        (false, _) => Raw("u32", 4),
        (true, 2) => Raw("vec2<u32>", 8),
        (true, _) => Raw("vec4<u32>", 16),
    }
}

/// `fn store` for an output of [`groups`].
fn store(words: usize, aligned: bool) -> String {
    let components = &["x", "y", "z", "w"][..words];
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
        let at = if aligned {
            format!("y[p.off_y + group].{component}")
        } else {
            format!("y[p.off_y + {words}u * group + {place}u]")
        };
        let _ = writeln!(text, "    if n > {place}u {{\n        {at} = words.{component};\n    }}");
    }
    text + "}\n"
}

declare_program! {
    /// Draws `distribution` in `dtype`. The output may be `aligned` to whole groups of words; the
    /// generator is `on_device` or in the parameters; the adapter may have 64-bit integers.
    pub struct RandomNumbers = "random numbers"(
        distribution: Distribution, dtype: DType, on_device: bool, aligned: bool, int64: bool
    );
    bindings { y: groups(words(dtype), aligned) }
    optional { counter: state(on_device), key: state(on_device) }
    params {
        words: usize, first: u64,
        bounds: Option<Bounds> = distribution == Distribution::UniformInt,
        generator: Option<Generator> = !on_device,
    }
}

impl RandomNumbers {
    pub fn shader(
        distribution: Distribution,
        dtype: DType,
        on_device: bool,
        aligned: bool,
        int64: bool,
    ) -> Shader {
        let samples_log2 = distribution.samples_log2(dtype);
        let label = format!(
            "random {} {dtype} on_device={on_device} aligned={aligned} int64={int64}",
            distribution.name()
        );
        let s = Self::declare(label, distribution, dtype, on_device, aligned, int64)
            .body(&store(words(dtype), aligned))
            .body(if int64 { MUL_WIDE } else { "" })
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
        let s = generator(s, on_device).body(include_str!("../../../shaders/random/fill.wgsl"));
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
            Distribution::Normal => {
                encoder(s, dtype).body(include_str!("../../../shaders/random/normal.wgsl"))
            }
            Distribution::TruncatedNormal => encoder(s, dtype)
                .body(include_str!("../../../shaders/random/truncated_normal.wgsl")),
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
}

/// Joins the halves of a word of 64 bits.
/// `mul_wide` with 64-bit integers, in the place of the library's function.
const MUL_WIDE: &str = include_str!("../../../shaders/random/mul_wide_u64.wgsl");

const JOIN: &str =
    "fn join(low: u32, high: u32) -> u64 {\n    return (u64(high) << 32u) | u64(low);\n}\n";

/// The binding of the generator's counter, or of its key.
pub fn state(on_device: bool) -> Option<Storage> {
    on_device.then_some(Raw("u32", 4))
}

/// Appends `fn generator`, which reads the bindings `counter` and `key` of a generator `on_device`,
/// or the parameters of a [`Generator`].
pub fn generator(s: Shader, on_device: bool) -> Shader {
    let s = s.body("struct Generator {\n    counter: vec4<u32>,\n    key: vec2<u32>,\n}\n");
    s.body(if on_device {
        "fn generator() -> Generator {
    let c = p.off_counter;
    let k = p.off_key;
    return Generator(
        vec4<u32>(counter[c], counter[c + 1u], counter[c + 2u], counter[c + 3u]),
        vec2<u32>(key[k], key[k + 1u]),
    );
}
"
    } else {
        "fn generator() -> Generator {\n    return Generator(p.counter[0], p.key[0].xy);\n}\n"
    })
}

impl StateSource<'_> {
    /// Whether the state lies on the device.
    pub const fn on_device(&self) -> bool {
        matches!(self, Self::Device { .. })
    }

    /// The state on the host.
    pub const fn generator(&self) -> Option<Generator> {
        match *self {
            Self::Host(generator) => Some(generator),
            Self::Device { .. } => None,
        }
    }

    /// The bindings of the counter and the key on the device.
    pub fn bindings(&self) -> [Option<Binding>; 2] {
        match self {
            Self::Host(_) => [None; 2],
            Self::Device { counter, key } => {
                [(counter, 16), (key, 8)].map(|(t, bytes)| Some(words_of(t, bytes)))
            }
        }
    }
}

/// The first `bytes` bytes of `t` in words.
pub const fn words_of(t: &Tensor, bytes: u64) -> Binding {
    Binding { address: t.address, bytes, unit: 4 }
}

/// Adds `fn encode`, which packs four floats into a group's words.
fn encoder(s: Shader, dtype: DType) -> Shader {
    if dtype == DType::F64 {
        return s.body(
            "fn encode(v: vec2<f64>) -> vec4<u32> {\n    let a = bitcast<u64>(v.x);\n    let b = \
             bitcast<u64>(v.y);\n    return vec4<u32>(u32(a & 0xfffffffflu), u32(a >> 32u), u32(b \
             & 0xfffffffflu), u32(b >> 32u));\n}\n",
        );
    }
    let words = match dtype {
        DType::F16 | DType::BF16 => format!("vec4<u32>({}, 0u, 0u)", codec::pack(dtype).1),
        _ => "bitcast<vec4<u32>>(v)".to_owned(),
    };
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
    source: StateSource<'_>,
) -> Result<()> {
    let dtype = output.dtype;
    let on_device = source.on_device();
    let int64 = device.capabilities().int64;
    let aligned = output.address.is_multiple_of(4 * words(dtype) as u64);
    let of = RandomNumbers::of(distribution, dtype, on_device, aligned, int64);
    let [counter, key] = source.bindings();
    let (is_bounded, generator) = (distribution == Distribution::UniformInt, source.generator());
    let bounds = is_bounded.then_some(bounds);
    // Word indices stay far below 2^32, however much the adapter can bind.
    let window = (device.capabilities().max_binding.min(1 << 30) / 32 * 8) as usize;
    let total = (output.bytes() as usize).div_ceil(4);
    for first in (0..total).step_by(window) {
        let count = window.min(total - first);
        let y = Binding {
            address: output.address + 4 * first as u64,
            bytes: 4 * count as u64,
            unit: if aligned { 4 * words(dtype) as u32 } else { 4 },
        };
        let first = ((first / words(dtype)) as u64) << distribution.samples_log2(dtype);
        let grid = Grid::linear(count.div_ceil(words(dtype)), WORKGROUP);
        let call = RandomNumbers { y, counter, key, words: count, first, bounds, generator };
        call.enqueue(device, &of, grid)?;
    }
    Ok(())
}

declare_program! {
    /// Moves the counter at the start of `state` on.
    pub struct Advance = "random advance"();
    bindings { state: Raw("u32", 4) }
    params { samples: u64 }
    shader "random advance" =>
        .workgroup([1, 1, 1])
        .body(include_str!("../../../shaders/random/advance.wgsl"))
}

/// Moves the counter at the start of `state` on by `samples`.
pub fn advance(device: &Device, state: &Tensor, samples: u64) -> Result<()> {
    let call = Advance { state: words_of(state, 16), samples };
    call.enqueue(device, &Advance::of(), Grid([1, 1, 1]))
}
