//! Cubes, which TensorFlow writes as a power: the GELU with a hyperbolic tangent has one. A power
//! takes more instructions than the rest of that activation, so its gradient would not compute it
//! again. On a CPU, TensorFlow makes the same two products of it.

use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::number;

/// Replaces a `Pow` with the exponent 3 by the product of its base and the square of that. Returns
/// whether it did.
pub fn cube(graph: &mut Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let ("Pow", &[base, exponent]) = (node.op(), node.inputs()) else { return false };
    let output = Output { node: id, port: 0 };
    let (of_base, info) = (graph.info(base), graph.info(output).clone());
    // An exponent of more dimensions than the base would change the shape.
    let is_three = number(graph, exponent)
        .is_some_and(|n| n.value == 3.0 && of_base.rank().is_some_and(|rank| n.rank <= rank));
    let is_float = info.dtype.is_some_and(|dtype| dtype.is_float());
    if !is_three || !is_float || graph.may_go(id).is_err() {
        return false;
    }
    let Some(dtype) = node.attr("T").cloned() else { return false };
    let attrs = || vec![("T", dtype.clone())];
    let square = fused(graph, id, "square", "Square", vec![base], attrs(), vec![info.clone()]);
    let square = Output { node: graph.add(square), port: 0 };
    let cube = fused(graph, id, "cube", "Mul", vec![base, square], attrs(), vec![info]);
    graph.replace_region(&[id], cube, &[(output, 0)]);
    true
}
