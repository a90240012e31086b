//! Linear algebra on batches of matrices: Cholesky, Lu, Qr, inverse, determinants, solves,
//! eigenvalues, singular values and tridiagonal systems, in float32 and float64; all except
//! singular values also in complex types ([`number`]).
//!
//! A matrix is factored in panels. One workgroup for each matrix walks down a panel; the rest of
//! the matrix, where most of the work is, follows in dispatches that fill the device. In a panel of
//! Cholesky and in a triangular solve, eight columns or equations at a time stay in registers.
//!
//! `tests/linalg` bounds residuals and orthogonality by a small multiple of the number of rows
//! times the type's precision.

mod batch;
mod cholesky;
mod determinant;
mod eigen;
mod lu;
mod number;
mod order;
mod program;
mod qr;
mod solve;
mod svd;
mod triangular;
mod tridiagonal;

use super::registry::Registry;
use crate::shader::Shader;

/// Registers the family.
pub fn register(r: &mut Registry) {
    cholesky::register(r);
    determinant::register(r);
    eigen::register(r);
    lu::register(r);
    qr::register(r);
    svd::register(r);
    triangular::register(r);
    tridiagonal::register(r);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let dense =
        [program::shaders(), cholesky::shaders(), lu::shaders(), qr::shaders(), solve::shaders()];
    [
        dense.concat(),
        determinant::shaders(),
        order::shaders(),
        eigen::shaders(),
        svd::shaders(),
        tridiagonal::shaders(),
    ]
    .concat()
}
