//! Products with the same left operand become one node, such as the query, key and value of an
//! attention, the gate and update of a feed-forward layer, and the gradients of their weights.
//!
//! The products may differ only in their right operands and in the operands of their epilogues, and
//! must be ready at the same time: the operands of the epilogues are weights, and the right
//! operands are weights too, or one node makes all of them. The kernel decides on the number of
//! dispatches.

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::joined::MOST;
use crate::kernels::fused::contraction::JOINED;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The largest number of changes of shape between a product and the node that makes its right
/// operand.
const MAX_ROW: usize = 8;

/// The properties that joined products share.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Kind {
    left: Output,
    device: String,
    dtype: DType,
    flags: [bool; 2],
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
    let mut kinds: Vec<(Kind, Vec<NodeId>)> = Vec::new();
    let mut known: FxHashMap<Kind, usize> = FxHashMap::default();
    for id in order.iter().copied() {
        if let Some(kind) = kind(graph, id) {
            let at = *known.entry(kind.clone()).or_insert_with(|| {
                kinds.push((kind, Vec::new()));
                kinds.len() - 1
            });
            kinds[at].1.push(id);
        }
    }
    for (kind, products) in kinds {
        for products in products.chunks(MOST).filter(|products| products.len() > 1) {
            let reads =
                |id: &NodeId| graph.node(*id).inputs().iter().any(|i| products.contains(&i.node));
            if !products.iter().any(reads) && graph.is_convex(products) {
                replace(graph, &kind, products);
            }
        }
    }
    Ok(())
}

/// The properties of a product, if it may be joined.
fn kind(graph: &Graph, id: NodeId) -> Option<Kind> {
    let node = graph.node(id);
    let flags = match node.op() {
        "BatchMatMulV2" | "_WgpuFusedBatchMatMulV2" => ["adj_x", "adj_y"],
        "MatMul" | "_WgpuFusedMatMul" => ["transpose_a", "transpose_b"],
        _ => return None,
    };
    if !node.on_wgpu() || graph.is_preserved(id) || !node.controls().is_empty() {
        return None;
    }
    let dtype = node.dtype("T").filter(|t| t.is_float())?;
    let flags = flags.map(|name| node.attr(name).and_then(Attr::bool).unwrap_or(false));
    let (left, right) = (node.inputs()[0], node.inputs()[1]);
    let shape = |tensor: Output| {
        let shape = graph.info(tensor).shape.clone()?;
        shape.iter().all(|d| *d != Dim::Unknown).then_some(shape)
    };
    // The further operands must not be ready later than the left operand.
    let extras = node.inputs()[2..].iter().map(|extra| match maker(graph, *extra)? {
        None => Some((graph.info(*extra).dtype?, shape(*extra)?)),
        Some(_) => None,
    });
    let text = node.attr("expression");
    Some(Kind {
        left,
        device: node.device().to_owned(),
        dtype,
        flags,
        right: shape(right)?,
        expression: match text {
            Some(text) => text.string()?.to_owned(),
            None => format!("x: {dtype}; c: 0; return x0"),
        },
        constants: match text {
            Some(_) => node.attr("constants")?.floats()?.iter().map(|c| c.to_bits()).collect(),
            None => Vec::new(),
        },
        extras: extras.collect::<Option<_>>()?,
        output: if text.is_some() { node.dtype("T_out")? } else { dtype },
        maker: maker(graph, right)?,
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

fn replace(graph: &mut Graph, kind: &Kind, products: &[NodeId]) {
    let own: Vec<DType> = kind.extras.iter().map(|(dtype, _)| *dtype).collect();
    let inputs = |graph: &Graph, from: usize| -> Vec<Output> {
        let of = |id: &NodeId| graph.node(*id).inputs()[from..].to_vec();
        products.iter().flat_map(of).collect()
    };
    let rights = products.iter().map(|id| graph.node(*id).inputs()[1]);
    let constants: Vec<f32> = kind.constants.iter().map(|bits| f32::from_bits(*bits)).collect();
    let new = NewNode {
        name: format!("{}/joined", graph.node(products[0]).name()),
        op: JOINED.to_owned(),
        device: kind.device.clone(),
        inputs: std::iter::once(kind.left).chain(rights).chain(inputs(graph, 2)).collect(),
        controls: Vec::new(),
        attrs: vec![
            ("N", (products.len() as i64).into()),
            ("T", kind.dtype.into()),
            ("T_extra", own[..].into()),
            ("T_extras", own.repeat(products.len())[..].into()),
            ("T_out", kind.output.into()),
            ("adj_x", kind.flags[0].into()),
            ("adj_y", kind.flags[1].into()),
            ("constants", constants[..].into()),
            ("expression", kind.expression.clone().into()),
        ],
        infos: products
            .iter()
            .map(|id| TensorInfo {
                dtype: Some(kind.output),
                shape: graph.info(Output { node: *id, port: 0 }).shape.clone(),
            })
            .collect(),
    };
    let ports: Vec<(Output, u32)> =
        products.iter().map(|id| Output { node: *id, port: 0 }).zip(0..).collect();
    graph.replace_region(products, new, &ports);
}
