//! The gradient of a tensor that several layers read is a sum of products. Each product is stored,
//! and the epilogue of the next one adds it. They become one node, a product over a longer
//! contracted index.

use super::product::MatrixProduct;
use crate::error::Result;
use crate::kernels::contract::siblings::{MOST_TERMS, bindings_of_terms};
use crate::kernels::expression::Expression;
use crate::kernels::fused::products::ADDED;
use crate::kernels::fused::terms::without_term;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::TensorInfo;

/// The number of storage buffers that every adapter can bind at once.
const MAX_BINDINGS: usize = 8;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    for id in order.iter().copied() {
        if graph.contains(id)
            && let Some(sum) = Sum::of(graph, id)
        {
            sum.replace(graph);
        }
    }
    Ok(())
}

/// Products that are added up.
struct Sum {
    /// The products' nodes. The first one has the epilogue.
    nodes: Vec<NodeId>,
    products: Vec<MatrixProduct>,
    /// The epilogue of the sum, and its further operands.
    expression: Expression,
    extras: Vec<Output>,
}

impl Sum {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let product = MatrixProduct::of(graph, id)?;
        let expression: Expression = product.expression.parse().ok()?;
        let extras = product.extras.clone();
        let mut sum = Self { nodes: vec![id], products: vec![product], expression, extras };
        let mut at = 0;
        while at < sum.extras.len() && sum.products.len() < MOST_TERMS {
            if sum.add(graph, at).is_none() {
                at += 1;
            }
        }
        let pair = [id, *sum.nodes.get(1)?];
        graph.ask("added", pair, graph.is_one_node(&sum.nodes)).map(|()| sum)
    }

    /// Takes in a further operand if it is one of the products.
    fn add(&mut self, graph: &Graph, at: usize) -> Option<()> {
        let operand = self.extras[at];
        let (id, node) = (operand.node, graph.node(operand.node));
        let root = self.nodes[0];
        let [user] = graph.users(id) else { return None };
        let plain = matches!(node.op(), "BatchMatMulV2" | "MatMul");
        let alone = operand.port == 0 && *user == root && plain;
        if !alone {
            return None;
        }
        graph.ask("added", [id, root], graph.share_device(id, root))?;
        let product = MatrixProduct::of(graph, id)?;
        let bound = bindings_of_terms(self.products.len() + 1, self.extras.len() - 1);
        if bound > MAX_BINDINGS || !product.is_sibling(&self.products[0], graph) {
            return None;
        }
        self.expression = without_term(&self.expression, at + 1)?;
        self.extras.remove(at);
        self.nodes.push(id);
        self.products.push(product);
        Some(())
    }

    fn replace(self, graph: &mut Graph) {
        let Self { nodes, products, expression, extras } = self;
        let root = nodes[0];
        let types = expression.inputs()[1..].to_vec();
        let output = expression.output_types()[0];
        let of = |i: usize| products.iter().map(move |p| p.operands[i]);
        let exit = Output { node: root, port: 0 };
        let mut attrs = products[0].attrs();
        attrs.retain(|(name, _)| *name != "expression");
        attrs.extend([
            ("N", (products.len() as i64).into()),
            ("T_extra", types[..].into()),
            ("adj_y", products[0].transposed[1].into()),
            ("expression", expression.to_string().into()),
        ]);
        let inputs = of(0).chain(of(1)).chain(extras).collect();
        let infos = vec![TensorInfo { dtype: Some(output), ..graph.info(exit).clone() }];
        let new = fused(graph, root, "added", ADDED, inputs, attrs, infos);
        graph.replace_region(&nodes, new, &[(exit, 0)]);
    }
}
