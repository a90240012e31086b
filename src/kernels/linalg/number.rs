//! The common interface of real and complex matrices: shaders are written for a `number`, whose
//! products, quotients and absolute values have names ([`Numbers::numbers`]).

use crate::dtype::{
    DType::{self, C64, C128, F32, F64},
    types,
};
use crate::shader::Shader;

/// The types of decompositions and solves.
pub const NUMBERS: &[DType] = &[F32, F64, C64, C128];
/// The types of the Jacobi iterations and of tridiagonal systems.
pub const REALS: &[DType] = types::F32_F64;

/// WGSL's name of a real type, or of the type of a complex type's parts.
pub const fn real(dtype: DType) -> &'static str {
    if matches!(dtype.part(), F64) { "f64" } else { "f32" }
}

/// WGSL's name of the unsigned type of the same width as a real type, and the mask of the bits of
/// an absolute value.
pub const fn bits(dtype: DType) -> (&'static str, &'static str) {
    if matches!(dtype.part(), F64) {
        ("u64", "0x7ffffffffffffffflu")
    } else {
        ("u32", "0x7fffffffu")
    }
}

/// A literal of a real type, which has no suffix for f32 and `lf` for f64.
pub fn literal(dtype: DType, value: f64) -> String {
    if dtype.part() == F64 { format!("{value:e}lf") } else { format!("{value:e}") }
}

/// A zero of a real or complex type, which must not be a constructor without arguments.
pub fn zero(dtype: DType) -> String {
    let part = literal(dtype, 0.0);
    if dtype.is_complex() { format!("{}({part}, {part})", dtype.value()) } else { part }
}

/// Text of a shader in terms of numbers.
pub trait Numbers {
    /// Fills `{{NUMBERS}}` with the declarations of `real`, `number` and the functions `number_of`
    /// and `real_of`, `conjugate`, `modulus`, `times` and `over`, for elements of `dtype`.
    #[must_use]
    fn numbers(self, dtype: DType) -> Self;
}

impl Numbers for Shader {
    fn numbers(self, dtype: DType) -> Self {
        let text = if dtype.is_complex() {
            include_str!("../../../shaders/linalg/number_complex.wgsl")
        } else {
            include_str!("../../../shaders/linalg/number_real.wgsl")
        };
        self.define("NUMBERS", text.replace("{{REAL}}", real(dtype)).trim_end())
    }
}
