//! The types that a contraction computes in: the scalar and the group of four columns that the
//! generated text calls `Scalar` and `Vec4`.
//!
//! 16-bit floats are computed in f32. A `Vec4` of complex numbers is a struct of two vectors, so
//! that its parts multiply as vectors do. One of int64 is a struct of scalars: there are no vectors
//! of 64-bit integers.

use crate::dtype::DType;
use crate::kind::Kind;

/// 32-bit words of a scalar.
pub(super) fn words(dtype: DType) -> usize {
    dtype.accumulator().size() / 4
}

/// Words by which tiles shrink so that sums fit the registers. An int32 counts as two where
/// registers are few: Intel's compiler takes some of them for its products, and spilled 2 to 17
/// registers in tiles of four rows (dg2, Mesa 25.0.7).
pub(super) fn registers(dtype: DType, kind: Kind) -> usize {
    if dtype.accumulator() == DType::I32 && kind == Kind::FewRegisters { 2 } else { words(dtype) }
}

/// Whether a `Vec4` is a vector, and not a struct.
pub(super) fn has_vectors(dtype: DType) -> bool {
    !dtype.is_complex() && dtype != DType::I64
}

/// `x`, `y`, `z` or `w`.
pub(super) fn lane(k: u32) -> &'static str {
    ["x", "y", "z", "w"][k as usize % 4]
}

/// Declares `Scalar`, `Vec4`, `four(x, y, z, w)` and, for complex numbers, `mac`.
pub(super) fn declarations(dtype: DType) -> String {
    let (scalar, part) =
        (dtype.accumulator().value(), if dtype.accumulator().size() > 8 { "f64" } else { "f32" });
    let head = format!("alias Scalar = {scalar};\n");
    if dtype == DType::I64 {
        return head + INT64;
    }
    if !dtype.is_complex() {
        return head
            + &format!(
                "alias Vec4 = vec4<{scalar}>;\n\nfn four(x: Scalar, y: Scalar, z: Scalar, w: \
                 Scalar) -> Vec4 {{\n    return Vec4(x, y, z, w);\n}}\n"
            );
    }
    head + &format!(
        "struct Vec4 {{\n    re: vec4<{part}>,\n    im: vec4<{part}>,\n}}\n\nfn four(x: Scalar, \
         y: Scalar, z: Scalar, w: Scalar) -> Vec4 {{\n    return Vec4(vec4<{part}>(x.x, y.x, z.x, \
         w.x), vec4<{part}>(x.y, y.y, z.y, w.y));\n}}\n\nfn mac(a: Scalar, b: Vec4, c: Vec4) -> \
         Vec4 {{\n    return Vec4(c.re + (a.x * b.re - a.y * b.im), c.im + (a.x * b.im + a.y * \
         b.re));\n}}\n"
    )
}

/// The declarations of int64 behind `Scalar`.
const INT64: &str = "struct Vec4 {
    x: i64,
    y: i64,
    z: i64,
    w: i64,
}

fn four(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Vec4 {
    return Vec4(x, y, z, w);
}

fn mac(a: Scalar, b: Vec4, c: Vec4) -> Vec4 {
    return Vec4(c.x + a * b.x, c.y + a * b.y, c.z + a * b.z, c.w + a * b.w);
}
";

/// Declares `plus(x, y)`, a sum of two `Vec4`s.
pub(super) fn plus(dtype: DType) -> String {
    let sum = match dtype {
        DType::C64 | DType::C128 => "Vec4(x.re + y.re, x.im + y.im)",
        DType::I64 => "Vec4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w)",
        _ => "x + y",
    };
    format!("fn plus(x: Vec4, y: Vec4) -> Vec4 {{\n    return {sum};\n}}\n")
}

/// Element `k` of the quad `name`.
pub(super) fn element(dtype: DType, name: &str, k: u32) -> String {
    let k = lane(k);
    if dtype.is_complex() {
        format!("Scalar({name}.re.{k}, {name}.im.{k})")
    } else {
        format!("{name}.{k}")
    }
}

/// The statement `c += a * b` for a scalar and two vec4s. f64 does without `fma`, which not every
/// driver has for it.
pub(super) fn multiply_add(dtype: DType, a: &str, b: &str, c: &str) -> String {
    match dtype.accumulator() {
        DType::F32 => format!("{c} = fma(Vec4({a}), {b}, {c});"),
        DType::C64 | DType::C128 | DType::I64 => format!("{c} = mac({a}, {b}, {c});"),
        _ => format!("{c} += Vec4({a}) * {b};"),
    }
}

/// The function that loads single elements of operand `x`, conjugated or as they are, and its
/// declaration if it needs one.
pub(super) fn loader(x: &str, conjugated: bool) -> (String, String) {
    if !conjugated {
        return (format!("load_{x}"), String::new());
    }
    let name = format!("load_conjugate_{x}");
    let text = format!(
        "fn {name}(i: u32) -> Scalar {{\n    let v = load_{x}(i);\n    return Scalar(v.x, \
         -v.y);\n}}\n"
    );
    (name, text)
}
