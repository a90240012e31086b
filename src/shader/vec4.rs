//! Four elements per invocation: how a program reads and writes a whole `vec4` of any type of at
//! most 32 bits at once, which is what makes elementwise programs run at the memory's speed. A
//! tensor takes part when its address is a multiple of [`unit`].

use std::fmt::Write;

use super::Shader;
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Elements in one unit.
pub const WIDTH: u32 = 4;

/// Bytes of four elements.
pub const fn unit(dtype: DType) -> u32 {
    WIDTH * dtype.size() as u32
}

/// Whether four elements of `dtype` fit a 16-byte unit.
pub const fn supports(dtype: DType) -> bool {
    matches!(dtype.size(), 1 | 2 | 4)
}

/// The element type of the raw array.
const fn storage(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "vec4<f32>",
        DType::I32 => "vec4<i32>",
        DType::U32 => "vec4<u32>",
        _ if dtype.size() == 2 => "vec2<u32>",
        _ => "u32",
    }
}

/// Four values of `dtype` of their words `w`: a `vec4<u32>` of 32-bit types (here in the type
/// itself), a `vec2<u32>` of 16-bit ones, else a `u32`.
pub(crate) const fn unpack(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "vec4(unpack2x16float(w.x), unpack2x16float(w.y))",
        DType::BF16 => {
            "bitcast<vec4<f32>>(vec4(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u))"
        }
        DType::U16 => "vec4(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u)",
        DType::I16 => "bitcast<vec4<i32>>(vec4(w.x << 16u, w.x, w.y << 16u, w.y)) >> vec4(16u)",
        DType::U8 => "(vec4(w) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu)",
        DType::I8 => "(vec4(bitcast<i32>(w)) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u)",
        DType::Bool => "(vec4(w) & vec4(0xffu, 0xff00u, 0xff0000u, 0xff000000u)) != vec4(0u)",
        _ => "w",
    }
}

/// What precedes the words of four values `v` of `dtype`, and these words.
pub(crate) fn pack(dtype: DType) -> (&'static str, String) {
    match dtype {
        DType::F16 => {
            ("", pairs("f16_bits(v.x)", "f16_bits(v.y)", "f16_bits(v.z)", "f16_bits(v.w)"))
        }
        DType::BF16 => {
            ("", pairs("bf16_bits(v.x)", "bf16_bits(v.y)", "bf16_bits(v.z)", "bf16_bits(v.w)"))
        }
        DType::U16 | DType::I16 => (
            "    let b = bitcast<vec4<u32>>(v) & vec4(0xffffu);\n",
            pairs("b.x", "b.y", "b.z", "b.w"),
        ),
        DType::U8 | DType::I8 => (
            "    let b = (bitcast<vec4<u32>>(v) & vec4(0xffu)) << vec4(0u, 8u, 16u, 24u);\n",
            "b.x | b.y | b.z | b.w".to_owned(),
        ),
        DType::Bool => (
            "    let b = select(vec4(0u), vec4(1u, 0x100u, 0x10000u, 0x1000000u), v);\n",
            "b.x | b.y | b.z | b.w".to_owned(),
        ),
        _ => ("", "v".to_owned()),
    }
}

/// The shader with the library that [`pack`] takes.
pub(crate) fn packing(shader: Shader, dtype: DType) -> Shader {
    match dtype {
        DType::F16 => shader.library("f16_bits"),
        DType::BF16 => shader.library("bf16_bits"),
        _ => shader,
    }
}

/// Declares the next binding with `fn read_NAME(t: u32) -> vec4<T>`: elements 4t to 4t+3.
#[must_use]
pub fn bind_read(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    assert!(supports(dtype), "{dtype} is wider than 32 bits");
    let (value, four) = (dtype.value(), unpack(dtype));
    shader.bind_raw(name, storage(dtype), unit(dtype)).body(&format!(
        "fn read_{name}(t: u32) -> vec4<{value}> {{\n    let w = {name}[p.off_{name} + t];\n    \
         return {four};\n}}\n"
    ))
}

/// Declares the next binding with `fn write_NAME(t: u32, v: vec4<T>, n: u32)`, which stores the
/// first `n` elements (at most 4) and leaves other words untouched.
#[must_use]
pub fn bind_write(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    writer(shader.bind_raw(name, storage(dtype), unit(dtype)), name, dtype)
}

/// Declares the next binding with the functions of [`bind_read`] and [`bind_write`].
#[must_use]
pub fn bind_update(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    writer(bind_read(shader, name, dtype), name, dtype)
}

fn writer(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    assert!(supports(dtype), "{dtype} is wider than 32 bits");
    let value = dtype.value();
    let at = format!("{name}[p.off_{name} + t]");
    let (before, words) = pack(dtype);
    let mut text = before.to_owned();
    let _ = match dtype.size() {
        1 => writeln!(text, "    {at} = {words};"),
        2 => {
            writeln!(
                text,
                "    let words = {words};\n    if n > 2u {{\n        {at} = words;\n    }} else \
                 {{\n        {at}.x = words.x;\n    }}"
            )
        }
        _ => writeln!(
            text,
            "    if n >= 4u {{\n        {at} = {words};\n        return;\n    }}\n    {at}.x = \
             v.x;\n    if n > 1u {{\n        {at}.y = v.y;\n    }}\n    if n > 2u {{\n        \
             {at}.z = v.z;\n    }}"
        ),
    };
    packing(shader, dtype)
        .body(&format!("fn write_{name}(t: u32, v: vec4<{value}>, n: u32) {{\n{text}}}\n"))
}

/// Appends the entry point of a program whose body defines `fn value(t: u32) -> vec4<T>`, four
/// elements of `output`, for each of `p.count` units t. Launch it with an invocation for each.
#[must_use]
pub fn map(shader: Shader, output: &'static str) -> Shader {
    shader.body(&format!(
        "\n@compute @workgroup_size({{{{WORKGROUP_SIZE}}}})\nfn main(\n    @builtin(workgroup_id) \
         workgroup_id: vec3<u32>,\n    @builtin(num_workgroups) num_workgroups: vec3<u32>,\n    \
         @builtin(local_invocation_index) local_index: u32,\n) {{\n    let t = \
         linear_id(workgroup_id, num_workgroups, local_index);\n    if t < p.count {{\n        \
         write_{output}(t, value(t), 4u);\n    }}\n}}"
    ))
}

/// Whether whole units of each tensor can be bound.
pub fn aligned(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| supports(t.dtype) && t.address.is_multiple_of(u64::from(unit(t.dtype))))
}

fn pairs(a: &str, b: &str, c: &str, d: &str) -> String {
    format!("vec2({a} | ({b} << 16u), {c} | ({d} << 16u))")
}
