//! Products with the same left operand become one node, such as the query, key and value of an
//! attention, the gate and update of a feed-forward layer, and the gradients of their weights.
//!
//! The products may differ only in their right operands and in the operands of their epilogues, and
//! must be ready at the same time: the operands of the epilogues are weights, and the right
//! operands are weights too, or one node makes all of them. The kernel decides on the number of
//! dispatches.

use rustc_hash::FxHashMap;

use super::product::MatrixProduct;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::siblings::MOST_RESULTS;
use crate::kernels::fused::products::JOINED;
use crate::optimizer::branches::{Branches, Conditions};
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The largest number of changes of shape between a product and the node that makes its right
/// operand.
const MAX_ROW: usize = 8;

/// The properties that joined products share.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Shared {
    left: Output,
    device: String,
    /// The conditions under which it runs.
    conditions: Conditions,
    dtype: DType,
    transposed: [bool; 2],
    /// The rank and the extents of the right operands.
    right: Shape,
    /// The epilogue, with its parameters' bits, and the types and shapes of its operands.
    expression: String,
    constants: Vec<u32>,
    extras: Vec<(DType, Shape)>,
    output: DType,
    /// The node that makes the right operands; none for weights.
    maker: Option<NodeId>,
}

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let branches = Branches::of(graph, &order);
    let mut groups: Vec<(Shared, Vec<NodeId>)> = Vec::new();
    let mut known: FxHashMap<Shared, usize> = FxHashMap::default();
    for id in order.iter().copied() {
        if let Some(key) = shared(graph, &branches, id) {
            let at = *known.entry(key.clone()).or_insert_with(|| {
                groups.push((key, Vec::new()));
                groups.len() - 1
            });
            groups[at].1.push(id);
        }
    }
    for (key, products) in groups {
        for products in products.chunks(MOST_RESULTS).filter(|products| products.len() > 1) {
            let pair = [products[0], products[1]];
            if graph.ask("joined", pair, graph.are_siblings(products)).is_some() {
                replace(graph, &key, products);
            }
        }
    }
    Ok(())
}

/// The properties of a product, if it may be joined.
fn shared(graph: &Graph, branches: &Branches, id: NodeId) -> Option<Shared> {
    let product = MatrixProduct::of(graph, id)?;
    let shape = |tensor: Output| {
        let shape = graph.info(tensor).shape.clone()?;
        shape.iter().all(|d| *d != Dim::Unknown).then_some(shape)
    };
    // The further operands must not be ready later than the left operand.
    let extras = product.extras.iter().map(|extra| match maker(graph, *extra)? {
        None => Some((graph.info(*extra).dtype?, shape(*extra)?)),
        Some(_) => None,
    });
    let [left, right] = product.operands;
    Some(Shared {
        left,
        device: graph.node(id).device().to_owned(),
        conditions: branches.conditions(id),
        dtype: product.dtype,
        transposed: product.transposed,
        right: shape(right)?,
        extras: extras.collect::<Option<_>>()?,
        maker: maker(graph, right)?,
        constants: product.constants.iter().map(|c| c.to_bits()).collect(),
        expression: product.expression,
        output: product.output,
    })
}

/// The node that makes a right operand, before changes of shape and type. `Some(None)` for weights,
/// which exist from the start.
fn maker(graph: &Graph, mut tensor: Output) -> Option<Option<NodeId>> {
    for _ in 0..MAX_ROW {
        let node = graph.node(tensor.node);
        match node.op() {
            "ReadVariableOp" | "Const" | "_Arg" | "Placeholder" => return Some(None),
            "Reshape" | "ExpandDims" | "Squeeze" | "Cast" | "Identity" => {
                tensor = *node.inputs().first()?;
            }
            _ => return Some(Some(tensor.node)),
        }
    }
    None
}

fn replace(graph: &mut Graph, shared: &Shared, products: &[NodeId]) {
    let own: Vec<DType> = shared.extras.iter().map(|(dtype, _)| *dtype).collect();
    let inputs = |graph: &Graph, from: usize| -> Vec<Output> {
        let of = |id: &NodeId| graph.node(*id).inputs()[from..].to_vec();
        products.iter().flat_map(of).collect()
    };
    let rights = products.iter().map(|id| graph.node(*id).inputs()[1]);
    let constants: Vec<f32> = shared.constants.iter().map(|bits| f32::from_bits(*bits)).collect();
    let attrs = vec![
        ("N", (products.len() as i64).into()),
        ("T", shared.dtype.into()),
        ("T_extra", own[..].into()),
        ("T_extras", own.repeat(products.len())[..].into()),
        ("T_out", shared.output.into()),
        ("adj_x", shared.transposed[0].into()),
        ("adj_y", shared.transposed[1].into()),
        ("constants", constants[..].into()),
        ("expression", shared.expression.clone().into()),
    ];
    let results = products.iter().map(|id| Output { node: *id, port: 0 });
    let info = |of| TensorInfo { dtype: Some(shared.output), ..graph.info(of).clone() };
    let infos = results.clone().map(info).collect();
    let inputs = std::iter::once(shared.left).chain(rights).chain(inputs(graph, 2)).collect();
    let new = fused(graph, products[0], "joined", JOINED, inputs, attrs, infos);
    let ports: Vec<(Output, u32)> = results.zip(0..).collect();
    graph.replace_region(products, new, &ports);
}
