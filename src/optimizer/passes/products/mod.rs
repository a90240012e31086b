//! Matrix products that several nodes compute and one node can.
//!
//! The gradient of a weight that multiplied a batch of matrices is one product for each of them,
//! and TensorFlow sums these: a single product over the rows of all does the same, see [`summed`].
//! Products with the same left operand are [`joined`], once their epilogues have been found. Other
//! products also make the gradient of a bias: [`column_sums`]. Products that are added up are one
//! product over a longer index: [`added`]. A product may store both an activation and its argument:
//! [`argument`].

use crate::optimizer::graph::{Graph, NodeId};

pub mod added;
pub mod argument;
pub mod column_sums;
pub mod joined;
mod product;
pub mod quantized;
pub mod summed;

/// Whether it is certain that no path leads from either node to the other. Only then can one node
/// compute both.
fn are_independent(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let uses = |user: NodeId, used: NodeId| graph.used(user).any(|id| id == used);
    !uses(a, b) && !uses(b, a) && graph.is_convex(&[a, b])
}
