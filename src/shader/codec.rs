//! The layout of elements narrower than a word in words of `u32`: the expressions that read and
//! write them, one element or four elements at a time.

use crate::dtype::DType;

/// The number of bits by which an element's index is shifted to give the index of its word, and an
/// expression for the value of element `j` in its `word`.
pub(crate) fn lane(dtype: DType) -> (u32, String) {
    let (shift, mask, width) = match dtype.lanes() {
        4 => (2, 3, 8),
        2 => (1, 1, 16),
        _ => (0, 0, 32),
    };
    let value = match dtype {
        DType::Bool => format!("((word >> ((j & {mask}u) * {width}u)) & 0xffu) != 0u"),
        DType::U8 | DType::U16 => format!("extractBits(word, (j & {mask}u) * {width}u, {width}u)"),
        DType::I8 | DType::I16 => {
            format!("extractBits(bitcast<i32>(word), (j & {mask}u) * {width}u, {width}u)")
        }
        DType::F16 => "unpack2x16float(word >> ((j & 1u) * 16u)).x".to_owned(),
        DType::BF16 => "bitcast<f32>((word >> ((j & 1u) * 16u)) << 16u)".to_owned(),
        DType::F32 | DType::I32 => format!("bitcast<{}>(word)", dtype.value()),
        _ => "word".to_owned(),
    };
    (shift, value)
}

/// The lowest bits of a word that hold the value `v` of `dtype`.
pub(crate) const fn bits(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "select(0u, 1u, v)",
        DType::U8 => "v & 0xffu",
        DType::I8 => "bitcast<u32>(v) & 0xffu",
        DType::U16 => "v & 0xffffu",
        DType::I16 => "bitcast<u32>(v) & 0xffffu",
        DType::F16 => "f16_bits(v)",
        DType::BF16 => "bf16_bits(v)",
        DType::F32 | DType::I32 => "bitcast<u32>(v)",
        _ => "v",
    }
}

/// An expression that rounds the f32 value `v` to a 16-bit float and gives that as f32; None if no
/// rounding is needed.
pub(crate) const fn rounded(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F16 => Some("unpack2x16float(f16_bits(v)).x"),
        DType::BF16 => Some("bitcast<f32>(bf16_high(v))"),
        _ => None,
    }
}

/// The name of a library's function that rounds as [`rounded`] does.
pub(crate) const fn rounding(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F16 => Some("round_f16"),
        DType::BF16 => Some("round_bf16"),
        _ => None,
    }
}

/// The element type of an array that holds four values in each element.
pub(crate) const fn storage(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "vec4<f32>",
        DType::I32 => "vec4<i32>",
        DType::U32 => "vec4<u32>",
        _ if dtype.size() == 2 => "vec2<u32>",
        _ => "u32",
    }
}

/// Four values of `dtype` from their words `w`: a `vec4<u32>` for 32-bit types (here a `vec4` of
/// the type itself), a `vec2<u32>` for 16-bit types, else a `u32`.
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

/// The statements before the words of four values `v` of `dtype`, and the expression for these
/// words.
pub(crate) fn pack(dtype: DType) -> (&'static str, String) {
    match dtype {
        DType::F16 => ("", "f16_words(v)".to_owned()),
        DType::BF16 => ("", "bf16_words(v)".to_owned()),
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

fn pairs(a: &str, b: &str, c: &str, d: &str) -> String {
    format!("vec2({a} | ({b} << 16u), {c} | ({d} << 16u))")
}
