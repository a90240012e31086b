//! Four elements per invocation: functions that read and write a whole `vec4` of any type of at
//! most 32 bits at once, so that elementwise programs run at the memory's speed. A tensor can be
//! accessed this way if its address is a multiple of [`unit()`].

use std::fmt::Write;

use super::{Shader, codec};
use crate::dtype::DType;
use crate::tensor::Tensor;

/// The number of elements in one unit.
pub const WIDTH: u32 = 4;

/// The number of bytes of four elements.
pub const fn unit(dtype: DType) -> u32 {
    WIDTH * dtype.size() as u32
}

/// Whether four elements of `dtype` fit a 16-byte unit.
pub const fn supports(dtype: DType) -> bool {
    matches!(dtype.size(), 1 | 2 | 4)
}

/// Declares the next binding with `fn read_NAME(t: u32) -> vec4<T>`: elements 4t to 4t+3.
#[must_use]
pub fn bind_read(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    assert!(supports(dtype), "{dtype} is wider than 32 bits");
    let (value, four) = (dtype.value(), codec::unpack(dtype));
    shader.bind_raw(name, codec::storage(dtype), unit(dtype)).body(&format!(
        "fn read_{name}(t: u32) -> vec4<{value}> {{\n    let w = {name}[p.off_{name} + t];\n    \
         return {four};\n}}\n"
    ))
}

/// Declares the next binding of f16 with `fn read_NAME(t: u32) -> vec4<f16>`: elements 4t to 4t+3,
/// which are not converted. The text needs the extension `f16`.
#[must_use]
pub fn bind_halves(shader: Shader, name: &'static str) -> Shader {
    shader.bind_raw(name, "vec4<f16>", unit(DType::F16)).body(&format!(
        "fn read_{name}(t: u32) -> vec4<f16> {{\n    return {name}[p.off_{name} + t];\n}}\n"
    ))
}

/// Declares the next binding with `fn write_NAME(t: u32, v: vec4<T>, n: u32)`, which stores the
/// first `n` elements (at most 4) and leaves other words untouched.
#[must_use]
pub fn bind_write(shader: Shader, name: &'static str, dtype: DType) -> Shader {
    writer(shader.bind_raw(name, codec::storage(dtype), unit(dtype)), name, dtype)
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
    let (before, words) = codec::pack(dtype);
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
    shader.body(&format!("fn write_{name}(t: u32, v: vec4<{value}>, n: u32) {{\n{text}}}\n"))
}

/// Appends the entry point of a program whose body defines `fn value(t: u32) -> vec4<T>`, four
/// elements of `output`, for each of `p.count` units t. Launch it with one invocation for each
/// unit.
#[must_use]
pub fn map(shader: Shader, output: &'static str) -> Shader {
    shader.body(&format!(
        "\n{{{{ENTRY}}}} {{\n    let t = \
         linear_id(workgroup_id, num_workgroups, local_index);\n    if t < p.count {{\n        \
         write_{output}(t, value(t), 4u);\n    }}\n}}"
    ))
}

/// Whether whole units of each tensor can be bound.
pub fn aligned(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| supports(t.dtype) && t.address.is_multiple_of(u64::from(unit(t.dtype))))
}
