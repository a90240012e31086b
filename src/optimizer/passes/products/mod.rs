//! Matrix products that several nodes spell out and one product computes.
//!
//! The gradient of a weight that a batch of matrices was multiplied by is a product for each of
//! them, which TensorFlow then sums: one product over the rows of all, see [`summed`].

mod summed;

use crate::error::Result;
use crate::optimizer::graph::Graph;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    summed::run(graph);
    Ok(())
}
