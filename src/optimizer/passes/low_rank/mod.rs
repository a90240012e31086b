//! Weights to which a product of low rank is added, as low-rank adapters (LoRA) do.
//!
//! Keras adds `s * A @ B` to the weights `W` of a layer in each step, and then multiplies:
//! `y = x @ (W + s * A @ B)`. `A` has few columns, the rank `r`. So a training step stores the sum
//! and its transposed copies, until the gradients are computed, and computes the gradient of the
//! sum, `x^T @ dy`, only to multiply it with `A` and `B`. All three are as large as the weights.
//! This pass multiplies with the factors instead:
//!
//! ```text
//! y  = x @ W + s * (x @ A) @ B        dA = x^T @ G
//! dx = dy @ W^T + G @ A^T             dB = s * (x @ A)^T @ dy
//!                                     with G = s * dy @ B^T
//! ```
//!
//! The products read the weights by views that transpose and reshape all dimensions but the last.
//! Such a view of the sum is a matrix `[depth, heads * width]`, where `width` is the last
//! dimension. The same view of `A` is a matrix `[depth, heads * r]`. The products with `B` run for
//! each head: on `x @ A` as a matrix with `r` columns, and on `dy` as one with `width` columns.
//!
//! A product over `n` rows takes `n * depth * heads * width` multiplications. The pass saves one,
//! the gradient of the sum, and adds `3 * n * heads * r * (depth + width)`: both factors of `y`, of
//! `dx` and of the gradients of `A` and `B`, where `x @ A` and `G` are used twice. With `16 * r` at
//! most `depth` and at most `width`, the sum is at most 3/8 of the saved product. Without gradients
//! the pass would only add products, so such a graph stays as it is.
//!
//! Keras writes an `EinsumDense` as an `Einsum` if the batch and the length are both unknown. The
//! pass leaves such products alone.
//!
//! The results are not the same bits. In 16 bits, the sum `W + s * A @ B` is rounded to the type of
//! the weights, and its gradient, too. Now `A`, `B`, `x @ A` and `G` are rounded, and the two parts
//! of `y` and `dx` before they are added. So the error of the adapter's part is in proportion to
//! that part, however small it is beside the weights.

mod axes;
mod find;
mod rewrite;
mod weights;

use crate::error::Result;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NodeId};
use find::LowRank;
use rewrite::{KnownMatrices, replace};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_sum = |id: &NodeId| matches!(graph.node(*id).op(), "Add" | "AddV2");
    let sums: Vec<NodeId> = order.iter().copied().filter(is_sum).collect();
    let branches = Branches::of(graph, &order);
    // A tensor that several products read is reshaped once.
    let mut matrices = KnownMatrices::default();
    for id in sums {
        match LowRank::of(graph, &branches, id) {
            Ok(Some(found)) => replace(graph, &found, &mut matrices),
            Ok(None) => {}
            Err((neighbour, reason)) => graph.refuse("low_rank", [id, neighbour], reason),
        }
    }
    Ok(())
}
