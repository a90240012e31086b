//! The gradient of an activation such as GELU reads the activation's argument. So the product that
//! makes the argument cannot store only the activation's value instead. It stores both, and the
//! activation needs no node of its own.
//!
//! A change of shape may lie between the two; then the activation's readers get one too.

use super::product::MatrixProduct;
use crate::error::Result;
use crate::kernels::contract::epilogue::MAX_CONSTANTS;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::cost::{self, BOUND};
use crate::kernels::fused::elementwise;
use crate::kernels::fused::products::{MOST_BESIDE_ARGUMENT, WITH_ARGUMENT};
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::meaning::{Engine, KnownShapes, SameShapes, Scalar, scalar};
use crate::optimizer::passes::reshape::again;
use crate::optimizer::shape::{Dim, TensorInfo};

/// The number of columns that are stored at once.
const COLUMNS: usize = 4;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if graph.has_control_flow() {
        return Ok(());
    }
    let pairs: Vec<Pair> = {
        let shapes = SameShapes::new(graph, &order);
        order.iter().filter_map(|id| Pair::find(graph, &shapes, *id)).collect()
    };
    for pair in pairs {
        // A product has one activation, and an earlier pair may lie between the two nodes.
        if graph.contains(pair.product)
            && let legal = graph.is_one_node(&pair.nodes())
            && graph.ask("arguments", [pair.product, pair.activation], legal).is_some()
        {
            pair.replace(graph);
        }
    }
    Ok(())
}

/// An activation, and the product that makes its argument.
struct Pair {
    product: NodeId,
    /// Whether the product's operands are transposed.
    transposed: [bool; 2],
    /// The change of shape between the two.
    view: Option<NodeId>,
    activation: NodeId,
    expression: Expression,
    constants: Vec<f32>,
}

impl Pair {
    /// The pair of an activation.
    fn find(graph: &Graph, shapes: &SameShapes<'_>, activation: NodeId) -> Option<Self> {
        graph.may_move_freely(activation).ok()?;
        let node = graph.node(activation);
        let function = function(graph, shapes, activation)?;
        (0..node.inputs().len()).find_map(|at| Self::of(graph, shapes, activation, &function, at))
    }

    /// The pair of an activation if input `at` is the argument.
    fn of(
        graph: &Graph,
        shapes: &SameShapes<'_>,
        activation: NodeId,
        (function, constants): &(Expression, Vec<f32>),
        at: usize,
    ) -> Option<Self> {
        let node = graph.node(activation);
        let argument = node.inputs()[at];
        let (product, view) = match graph.node(argument.node).op() {
            "ExpandDims" | "Reshape" | "Squeeze"
                if graph.may_move_freely(argument.node).is_ok() =>
            {
                (graph.node(argument.node).inputs()[0], Some(argument.node))
            }
            _ => (argument, None),
        };
        let read_elsewhere = graph.users(product.node).len() > 1
            || view.is_some_and(|view| graph.users(view).len() > 1);
        if !read_elsewhere {
            return None;
        }
        let made = MatrixProduct::of(graph, product.node)?;
        let legal = graph
            .share_device(product.node, activation)
            .and_then(|()| graph.may_move_freely(product.node));
        graph.ask("arguments", [product.node, activation], legal)?;
        let (from, dtype) = (made.dtype, made.output);
        let columns = graph.info(product).shape.as_ref()?.last()?.known()?;
        let fits = from.is_single()
            && dtype.is_single()
            && columns.is_multiple_of(COLUMNS)
            && columns > 0
            && shapes.same(argument, Output { node: activation, port: 0 });
        if !fits {
            return None;
        }
        let others = node.inputs().iter().copied().filter(|other| *other != argument);
        let others: Vec<Output> = others.collect();
        let readable = |other: &Output| {
            if other.node == product.node || Some(other.node) == view {
                return false;
            }
            let info = graph.info(*other);
            let is_row =
                is_row(info, columns) && view.is_none_or(|_| keeps(graph, argument, columns));
            let is_full = view.is_none() && shapes.same(*other, argument);
            info.rank() == Some(0) || is_row || is_full
        };
        if !others.iter().all(readable) {
            return None;
        }
        let (mut extras, mut all) = (made.extras.len(), made.constants.clone());
        let mut expression = Expression::new();
        let own: Expression = made.expression.parse().ok()?;
        let taken: Vec<Value> = own.inputs().iter().map(|t| expression.input(*t)).collect();
        let value = *expression.append(&own, &taken).ok()?.first()?;
        let mut inputs: Vec<Value> = Vec::new();
        for (input, dtype) in node.inputs().iter().zip(function.inputs()) {
            if *input == argument {
                inputs.push(value);
                continue;
            }
            extras += 1;
            inputs.push(expression.input(*dtype));
        }
        all.extend(constants);
        let result = *expression.append(function, &inputs).ok()?.first()?;
        expression.output(result);
        expression.output(value);
        let small = extras <= MOST_BESIDE_ARGUMENT
            && all.len() == expression.constants()
            && all.len() <= MAX_CONSTANTS
            && cost::contraction(cost::expression(&expression)) <= BOUND;
        let typed = expression.output_types() == [dtype; 2];
        (small && typed).then(|| Self {
            product: product.node,
            transposed: made.transposed,
            view,
            activation,
            expression,
            constants: all,
        })
    }

    fn nodes(&self) -> Vec<NodeId> {
        [self.product, self.activation].into_iter().chain(self.view).collect()
    }

    fn replace(&self, graph: &mut Graph) {
        let (product, activation) = (first(self.product), first(self.activation));
        let node = graph.node(self.product);
        // An earlier pair may have replaced operands of this one.
        let argument = first(self.view.unwrap_or(self.product));
        let beside = graph.node(self.activation).inputs().iter().filter(|i| **i != argument);
        let inputs = node.inputs().iter().chain(beside).copied().collect();
        let dtype = self.expression.output_types()[0];
        let info = TensorInfo { dtype: Some(dtype), ..graph.info(product).clone() };
        let new = NewNode {
            name: format!("{}/with_argument", graph.node(self.activation).name()),
            op: WITH_ARGUMENT.to_owned(),
            device: node.device().to_owned(),
            inputs,
            controls: Vec::new(),
            attrs: vec![
                ("T", self.expression.inputs()[0].into()),
                ("T_extra", self.expression.inputs()[1..].into()),
                ("T_out", dtype.into()),
                ("adj_x", self.transposed[0].into()),
                ("adj_y", self.transposed[1].into()),
                ("constants", self.constants[..].into()),
                ("expression", self.expression.to_string().into()),
            ],
            infos: vec![info.clone(), info],
        };
        let both = graph.add(new);
        graph.stand_for(both, &[self.product, self.activation]);
        graph.replace_readers(product, Output { node: both, port: 1 });
        let mut value = first(both);
        if let Some(view) = self.view {
            let (name, info) = (graph.node(self.activation).name(), graph.info(activation).clone());
            let new = again(graph, &format!("{name}/behind"), view, value, info);
            value = first(graph.add(new));
        }
        graph.replace_readers(activation, value);
        graph.remove_all(&[self.activation, self.product]);
    }
}

/// The expression of an elementwise node with one output, and its parameters.
fn function(graph: &Graph, shapes: &SameShapes<'_>, id: NodeId) -> Option<(Expression, Vec<f32>)> {
    let node = graph.node(id);
    if node.op() == elementwise::OP {
        let expression: Expression = node.attr("expression")?.string()?.parse().ok()?;
        let constants = node.attr("constants")?.floats()?.to_vec();
        return (expression.outputs().len() == 1).then_some((expression, constants));
    }
    let Scalar { call, attr, .. } = scalar(graph, shapes, id, Engine::Loop).ok()?;
    let mut expression = Expression::new();
    let mut args: Vec<Value> = call.inputs().into_iter().map(|t| expression.input(t)).collect();
    args.extend(attr.map(|_| expression.constant()));
    let value = expression.step(call, &args).ok()?;
    expression.output(value);
    (expression.inputs().len() == node.inputs().len())
        .then(|| (expression, attr.into_iter().collect()))
}

/// Whether a tensor is certainly a vector with one element for each column.
fn is_row(info: &TensorInfo, columns: usize) -> bool {
    info.shape.as_deref() == Some(&[Dim::Known(columns)])
}

/// Whether the columns are a tensor's last dimension.
fn keeps(graph: &Graph, tensor: Output, columns: usize) -> bool {
    let last = graph.info(tensor).shape.as_ref().and_then(|s| s.last().copied());
    last == Some(Dim::Known(columns))
}

const fn first(node: NodeId) -> Output {
    Output { node, port: 0 }
}
