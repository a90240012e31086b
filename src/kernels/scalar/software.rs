//! Eight elements per invocation, in words of 64 bits, for software adapters: llvmpipe loads and
//! stores lane by lane, word by word, so that fewer and wider words halve an addition's time. GPUs
//! are better served by [`super::vec4`].

use crate::device::Device;
use crate::dtype::DType;
use crate::kind::Kind;
use crate::shader::{Shader, codec, vec4};

/// Elements in one unit.
pub const WIDTH: u32 = 8;

/// The fewest elements that are worth a pipeline besides that of four elements, which serves every
/// count.
pub const LEAST: usize = 1 << 17;

/// Whether eight elements at once are worth a pipeline of their own: for a walk over at least
/// [`LEAST`] elements, on an adapter with words of 64 bits.
pub fn suits(device: &Device, elements: usize) -> bool {
    let profile = device.profile();
    elements >= LEAST && profile.is_software() && profile.capabilities.int64
}

/// Bytes of eight elements.
pub const fn unit(dtype: DType) -> u32 {
    WIDTH * dtype.size() as u32
}

/// The element type of the raw array, and that of the words of four elements.
const fn storage(dtype: DType) -> (&'static str, &'static str) {
    match dtype.size() {
        4 => ("vec4<u64>", "vec4<u32>"),
        2 => ("vec2<u64>", "vec2<u32>"),
        _ => ("u64", "u32"),
    }
}

/// Declares the next binding with `fn read_NAME(t: u32) -> array<vec4<T>, 2>`: elements 8t to 8t+7.
#[must_use]
pub fn bind_read(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    assert!(vec4::supports(dtype), "{dtype} is wider than 32 bits");
    let (value, (array, words)) = (dtype.value(), storage(dtype));
    let four = if dtype.size() == 4 {
        format!("bitcast<vec4<{value}>>(w)")
    } else {
        codec::unpack(dtype).to_owned()
    };
    let halves = match dtype.size() {
        4 => [
            "vec4(u32(u.x), u32(u.x >> 32u), u32(u.y), u32(u.y >> 32u))",
            "vec4(u32(u.z), u32(u.z >> 32u), u32(u.w), u32(u.w >> 32u))",
        ],
        2 => ["vec2(u32(u.x), u32(u.x >> 32u))", "vec2(u32(u.y), u32(u.y >> 32u))"],
        _ => ["u32(u)", "u32(u >> 32u)"],
    };
    let [low, high] = halves;
    shader.bind_raw(name, array, unit(dtype)).body(&format!(
        "fn unpack_{name}(w: {words}) -> vec4<{value}> {{\n    return {four};\n}}\n\nfn \
         read_{name}(t: u32) -> array<vec4<{value}>, 2> {{\n    let u = {name}[p.off_{name} + \
         t];\n    return array<vec4<{value}>, 2>(\n        unpack_{name}({low}),\n        \
         unpack_{name}({high}),\n    );\n}}\n"
    ))
}

/// Declares the next binding with `fn write_NAME(t: u32, v: vec4<T>, w: vec4<T>)`, which stores
/// elements 8t to 8t+7.
#[must_use]
pub fn bind_write(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    assert!(vec4::supports(dtype), "{dtype} is wider than 32 bits");
    let (value, (array, words)) = (dtype.value(), storage(dtype));
    let (before, four) = codec::pack(dtype);
    let four = if dtype.size() == 4 { format!("bitcast<vec4<u32>>({four})") } else { four };
    let joined = |low: &str, high: &str| format!("u64({low}) | (u64({high}) << 32u)");
    let unit_text = match dtype.size() {
        4 => format!(
            "vec4<u64>(\n        {},\n        {},\n        {},\n        {},\n    )",
            joined("a.x", "a.y"),
            joined("a.z", "a.w"),
            joined("b.x", "b.y"),
            joined("b.z", "b.w")
        ),
        2 => format!("vec2<u64>({}, {})", joined("a.x", "a.y"), joined("b.x", "b.y")),
        _ => joined("a", "b"),
    };
    codec::with_library(shader.only([Kind::Software]), dtype)
        .bind_raw(name, array, unit(dtype))
        .body(&format!(
            "fn pack_{name}(v: vec4<{value}>) -> {words} {{\n{before}    return {four};\n}}\n\nfn \
         write_{name}(t: u32, v: vec4<{value}>, w: vec4<{value}>) {{\n    let a = \
         pack_{name}(v);\n    let b = pack_{name}(w);\n    {name}[p.off_{name} + t] = \
         {unit_text};\n}}\n"
        ))
}
