//! Matrix products that several nodes compute and one node can.
//!
//! The gradient of a weight that multiplied a batch of matrices is one product for each of them,
//! and TensorFlow sums these: a single product over the rows of all does the same, see [`summed`].
//! Products with the same left operand are [`joined`], once their epilogues have been found. Other
//! products also make the gradient of a bias: [`column_sums`]. Products that are added up are one
//! product over a longer index: [`added`]. A product may store both an activation and its argument:
//! [`argument`].

pub mod added;
pub mod argument;
pub mod column_sums;
pub mod joined;
pub(super) mod product;
pub mod quantized;
pub mod summed;
