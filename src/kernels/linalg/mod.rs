//! Dense linear algebra on batches of float32 matrices: Cholesky, Lu, Qr, inverse, determinants and solves.
//!
//! A matrix is factored in panels. One workgroup for each matrix walks down a panel; the rest of the matrix, where the work is, follows in
//! dispatches that fill the device. `tests/linalg.rs` bounds residuals and orthogonality by a small multiple of the number of rows
//! times float32's precision.

mod batch;
mod cholesky;
mod lu;
mod program;
mod qr;
mod triangular;

use super::registry::Registry;
use crate::shader::Shader;

/// Registers the family.
pub fn register(r: &mut Registry) {
    cholesky::register(r);
    lu::register(r);
    qr::register(r);
    triangular::register(r);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [program::shaders(), cholesky::shaders(), lu::shaders(), qr::shaders()].concat()
}
