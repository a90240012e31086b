//! Matrix products that several nodes spell out and one node computes.
//!
//! The gradient of a weight that a batch of matrices was multiplied by is a product for each of
//! them, which TensorFlow then sums: one product over the rows of all, see [`summed`]. Products of
//! one left operand are [`joined`], once their epilogues have been found; others make the gradient
//! of a bias too: [`biased`]. Products whose results are added up are one over a longer index:
//! [`added`].

pub mod added;
pub mod biased;
pub mod joined;
pub mod summed;
