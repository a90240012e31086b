//! Variables of loops that stay where they are from step to step: stacks are carried one by one
//! ([`stacks`]), and int32 values that the device writes stay on the device ([`integers`]).

mod integers;
mod stacks;
mod variable;

use crate::error::Result;
use crate::optimizer::graph::Graph;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    stacks::take_apart(graph, &order);
    integers::keep(graph, &order);
    Ok(())
}
