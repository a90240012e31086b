//! What all passes about products know of a matrix product.

use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// A matrix product of two operands with its epilogue, whose node only its inputs and outputs tie
/// to its place in the graph.
pub(in crate::optimizer::passes) struct MatrixProduct {
    pub dtype: DType,
    /// Whether the left and the right operand are transposed.
    pub transposed: [bool; 2],
    pub operands: [Output; 2],
    /// The epilogue: its text, its parameters, its further operands and the type of its result.
    pub expression: String,
    pub constants: Vec<f32>,
    pub extras: Vec<Output>,
    pub output: DType,
}

impl MatrixProduct {
    /// The product that a node computes.
    pub fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let names = match node.op() {
            "BatchMatMulV2" | "_WgpuFusedBatchMatMulV2" => ["adj_x", "adj_y"],
            "MatMul" | "_WgpuFusedMatMul" => ["transpose_a", "transpose_b"],
            _ => return None,
        };
        graph.may_move(id).ok()?;
        let dtype = node.dtype("T").filter(|t| t.is_float())?;
        let transposed = names.map(|name| node.attr(name).and_then(Attr::bool).unwrap_or(false));
        let [left, right, extras @ ..] = node.inputs() else { return None };
        let (expression, constants) = match node.attr("expression") {
            Some(text) => (text.string()?.to_owned(), node.attr("constants")?.floats()?.to_vec()),
            None => (plain(dtype), Vec::new()),
        };
        Some(Self {
            dtype,
            transposed,
            operands: [*left, *right],
            expression,
            constants,
            extras: extras.to_vec(),
            output: node.dtype("T_out").unwrap_or(dtype),
        })
    }

    /// Whether the product has no epilogue.
    pub fn is_plain(&self) -> bool {
        self.expression == plain(self.dtype)
    }

    /// Whether both products have operands of the same types and shapes.
    pub fn is_sibling(&self, other: &Self, graph: &Graph) -> bool {
        let same =
            |i: usize| graph.info(self.operands[i]).same_shape(graph.info(other.operands[i]));
        (self.dtype, self.transposed) == (other.dtype, other.transposed) && same(0) && same(1)
    }

    /// The attributes that all fused ops of sibling products have.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![
            ("T", self.dtype.into()),
            ("T_out", self.output.into()),
            ("adj_x", self.transposed[0].into()),
            ("constants", self.constants[..].into()),
            ("expression", self.expression.clone().into()),
        ]
    }
}

/// The epilogue that changes nothing.
fn plain(dtype: DType) -> String {
    format!("x: {dtype}; c: 0; return x0")
}
