//! Contractions: `c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n]`, the one program behind
//! matrix products and convolutions.
//!
//! The contracted index k is `outer * inner` long: a convolution walks its kernel positions outside
//! and its channels inside, a matrix product has one outer step. The rows of `a` may be matrix
//! rows, image patches, …: each [`ALayout`] has a WGSL file of its own; everything else is strides.
//! Two shapes of program exist, see [`tile`]: operands in registers, and in workgroup memory.
//!
//! A [`Contraction`] and a [`plan`] of several say what to compute. [`choice`] selects a tile and
//! its size, unless [`shipped`] knows a better one; `choices` keeps it, or `tuned` finds the
//! fastest. Then [`programs`] are what to dispatch, and `run` enqueues them.
//!
//! Products are computed and summed in f32, f64, i32 or complex numbers of either float, see
//! [`element`]; those of 16-bit floats in f32. A long contraction is cut into chunks whose partial
//! sums go to a temporary buffer and are added in order by [`finish`]: deterministic, precise for
//! any length, and parallel when the result is small. An [`epilogue`] (bias, activation, residual)
//! is applied once, to whole sums: where they are stored, or in [`finish`]. Tensors beyond one
//! binding are cut by `windows`. For cooperative matrices see [`validation`].

mod apart;
mod assembly;
mod bytes;
pub mod choice;
pub mod choices;
mod column_sums;
mod contraction;
pub mod cooperative;
pub mod element;
pub mod epilogue;
pub mod finish;
pub mod geometry;
pub mod images;
pub mod matrix_text;
mod parts;
pub mod plan;
mod probe;
pub mod programs;
mod registers;
mod run;
mod sample_products;
mod shares;
pub mod shipped;
pub mod siblings;
pub mod software;
pub(crate) mod sums;
pub mod tables;
pub(crate) mod text;
pub mod tile;
mod tile_variant;
mod tuned;
pub mod validation;
mod variants;
mod walk;
pub mod weights;
mod windows;
mod workgroup;

pub use contraction::{ALayout, BLayout, Contraction, Store};
pub use run::usable;
pub use sample_products::product_variants;
pub use tile_variant::Lanes;
use tile_variant::{ALayoutKind, BLayoutKind, StoreKind, TileVariant};
pub use tuned::{Timings, timings};
pub use variants::{fused_variants, listed_matrices, samples, variants};
