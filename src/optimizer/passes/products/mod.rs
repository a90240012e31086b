//! Matrix products that several nodes spell out and one node computes.
//!
//! The gradient of a weight that a batch of matrices was multiplied by is a product for each of
//! them, which TensorFlow then sums: one product over the rows of all, see [`summed`]. Products of
//! one left operand are [`joined`], once their epilogues have been found; others make the gradient
//! of a bias too: [`biases`]. Products whose results are added up are one over a longer index:
//! [`added`]. A product stores an activation and its argument: [`argument`].

use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId};

pub mod added;
pub mod argument;
mod biased;
pub mod joined;
mod joined_sums;
pub mod summed;

/// Puts the gradients of biases into the products that make those of their weights.
pub fn biases(graph: &mut Graph) -> Result<()> {
    biased::run(graph)?;
    joined_sums::run(graph)
}

/// Whether surely no path leads from either node to the other: only then can one node compute both.
fn are_independent(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let uses = |user: NodeId, used: NodeId| graph.used(user).any(|id| id == used);
    !uses(a, b) && !uses(b, a) && graph.is_convex(&[a, b])
}
