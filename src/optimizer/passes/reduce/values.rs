//! The values that are reduced, as one expression of the tensors outside.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::kernels::expression::{Call, Expression, Value};
use crate::kernels::fused::cost::{self, BOUND};
use crate::kernels::scalar::row::{Row, Shapes};
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::scalars::{call_of, is_sum, must_broadcast};
use crate::optimizer::shape::TensorInfo;

/// The most constants in one node.
const MAX_CONSTANTS: usize = 16;

/// The function that a node applies to each element.
pub enum Elementwise {
    /// A call of a function.
    Call(Call),
    /// The sum of all inputs by this function.
    Sum(Call),
    /// A repetition of its first input along axes of extent 1.
    Repeat,
}

/// The function that a node applies to each element of a tensor with the shape of `space`. `None`
/// if the node does something else, or might.
pub fn elementwise(graph: &Graph, id: NodeId, space: &TensorInfo) -> Option<Elementwise> {
    let node = graph.node(id);
    let info = |k: usize| graph.info(node.inputs()[k]);
    let fits = |k: usize| info(k).broadcasts_to(space);
    if matches!(node.op(), "Tile" | "BroadcastTo") {
        return fits(0).then_some(Elementwise::Repeat);
    }
    let call = call_of(node)?;
    if !call.inputs().into_iter().chain([call.output()]).all(is_ours) {
        return None;
    }
    let mut all = 0..node.inputs().len();
    if is_sum(node) {
        return all.all(|k| info(k).same_shape(space)).then_some(Elementwise::Sum(call));
    }
    let whole = match call {
        Call::Row(row, _) => all.all(fits) && shapes_agree(graph, node, row, space),
        Call::Cast(..) => true,
    };
    whole.then_some(Elementwise::Call(call))
}

/// The types that live on the device and that both reductions and expressions support.
pub const fn is_ours(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::I64 | DType::Bool)
}

/// Whether the node broadcasts its inputs.
fn shapes_agree(graph: &Graph, node: &Node, row: &Row, space: &TensorInfo) -> bool {
    let same = |k: usize| graph.info(node.inputs()[k]).same_shape(space);
    let scalar = |k: usize| graph.info(node.inputs()[k]).rank() == Some(0);
    let mut all = 0..node.inputs().len();
    match row.shapes {
        Shapes::Broadcast => true,
        Shapes::BroadcastOr(_) => must_broadcast(node),
        Shapes::Same | Shapes::Select => all.all(same),
        Shapes::SameOrScalar | Shapes::Bounds => all.all(|k| same(k) || scalar(k)),
    }
}

/// Translates tensors to values of one expression.
pub struct Values<'g> {
    graph: &'g Graph,
    /// The known type and shape of the values; none for values after reductions.
    space: Option<&'g TensorInfo>,
    /// Nodes that become part of the expression.
    inside: &'g FxHashSet<NodeId>,
    expression: Expression,
    inputs: Vec<Output>,
    constants: Vec<f32>,
    known: FxHashMap<Output, Value>,
}

/// An expression and its operands.
pub struct Translation {
    /// The expression of the values.
    pub expression: Expression,
    /// Its inputs.
    pub inputs: Vec<Output>,
    /// Its parameters.
    pub constants: Vec<f32>,
}

impl<'g> Values<'g> {
    /// Translates the values `wanted`, with their types, from the nodes `inside` and the tensors
    /// outside.
    pub fn translate(
        graph: &'g Graph,
        space: &'g TensorInfo,
        inside: &'g FxHashSet<NodeId>,
        wanted: &[(Output, DType)],
    ) -> Option<Translation> {
        let (expression, inputs, constants) = Self::new(graph, Some(space), inside).all(wanted)?;
        if expression.outputs().iter().any(|v| matches!(v, Value::Constant(_))) {
            return None;
        }
        let small = cost::reduce(cost::expression(&expression), 0) <= BOUND
            && constants.len() <= MAX_CONSTANTS;
        small.then_some(Translation { expression, inputs, constants })
    }

    /// Translates the values `wanted` of nodes after reductions. `reduced` is the weight of the
    /// reduced values. The first inputs of the expression are the reductions' results.
    pub fn behind(
        graph: &'g Graph,
        reduced: u32,
        results: &[(Output, DType)],
        inside: &'g FxHashSet<NodeId>,
        wanted: &[(Output, DType)],
    ) -> Option<Translation> {
        let mut values = Self::new(graph, None, inside);
        for (tensor, dtype) in results {
            let value = values.expression.input(*dtype);
            values.known.insert(*tensor, value);
        }
        let (expression, inputs, constants) = values.all(wanted)?;
        let small = cost::reduce(reduced, cost::expression(&expression)) <= BOUND;
        small.then_some(Translation { expression, inputs, constants })
    }

    fn new(graph: &'g Graph, space: Option<&'g TensorInfo>, inside: &'g FxHashSet<NodeId>) -> Self {
        Self {
            graph,
            space,
            inside,
            expression: Expression::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            known: FxHashMap::default(),
        }
    }

    fn all(mut self, wanted: &[(Output, DType)]) -> Option<(Expression, Vec<Output>, Vec<f32>)> {
        for (tensor, dtype) in wanted {
            let value = self.value(*tensor, *dtype)?;
            self.expression.output(value);
        }
        Some((self.expression, self.inputs, self.constants))
    }

    fn value(&mut self, tensor: Output, dtype: DType) -> Option<Value> {
        if let Some(value) = self.known.get(&tensor) {
            return Some(*value);
        }
        let value = if self.inside.contains(&tensor.node) {
            self.computed(tensor.node)?
        } else if let Some(number) = self.number(tensor, dtype) {
            self.constants.push(number);
            self.expression.constant()
        } else {
            self.inputs.push(tensor);
            self.expression.input(dtype)
        };
        self.known.insert(tensor, value);
        Some(value)
    }

    /// The only element of a constant, if a parameter can hold it and the constant does not affect
    /// the shape of the result.
    fn number(&self, tensor: Output, dtype: DType) -> Option<f32> {
        let constant = self.graph.constant(tensor)?;
        let rank = self.space.map_or(Some(usize::MAX), TensorInfo::rank)?;
        let single = constant.dims.iter().all(|d| *d == 1) && constant.dims.len() <= rank;
        let float = dtype.is_single() && constant.dtype == dtype;
        (single && float).then(|| constant.to_f64()[0] as f32)
    }

    fn computed(&mut self, id: NodeId) -> Option<Value> {
        let node = self.graph.node(id);
        let kind = match self.space {
            Some(space) => elementwise(self.graph, id, space),
            None => follower(self.graph, id),
        };
        match kind? {
            Elementwise::Repeat => self.value(node.inputs()[0], node.dtype("T")?),
            Elementwise::Sum(add) => {
                let mut sum = None;
                for input in node.inputs() {
                    let value = self.value(*input, add.output())?;
                    sum = Some(match sum {
                        None => value,
                        Some(sum) => self.expression.step(add, &[sum, value]).ok()?,
                    });
                }
                sum
            }
            Elementwise::Call(call) => {
                let mut args = Vec::new();
                for (input, dtype) in node.inputs().iter().zip(call.inputs()) {
                    args.push(self.value(*input, dtype)?);
                }
                if let Call::Row(Row { attr: Some(attr), .. }, _) = call {
                    self.constants.push(node.attr(attr)?.float()?);
                    args.push(self.expression.constant());
                }
                self.expression.step(call, &args).ok()
            }
        }
    }
}

/// Whether a node only changes the extents of its first input.
pub fn reshapes(node: &Node) -> bool {
    matches!(node.op(), "ExpandDims" | "Reshape" | "Squeeze")
}

/// The function that a node after a reduction applies to each element.
pub fn follower(graph: &Graph, id: NodeId) -> Option<Elementwise> {
    let node = graph.node(id);
    match node.op() {
        "Tile" | "BroadcastTo" => None,
        _ if reshapes(node) => Some(Elementwise::Repeat),
        _ => elementwise(graph, id, graph.info(Output { node: id, port: 0 })),
    }
}
