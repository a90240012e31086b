//! Elementwise nodes as calls in expressions, and the tensors that certainly have the same shape.

use super::graph::{Graph, Node, NodeId, Output};
use crate::dtype::DType;
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::kernels::scalar::row::{Row, Shapes};

/// The scalar function that an elementwise node computes for each element.
#[derive(Debug, Clone, Copy)]
pub struct Scalar {
    /// The call. A node with more inputs than it takes is a chain of such calls (`AddN`).
    pub call: Call,
    /// The value of the function's attribute, if it has one.
    pub attr: Option<f32>,
}

/// Whether tensors of the type may be inputs and outputs of expressions. int32 tensors are
/// TensorFlow's shapes, in host memory.
pub const fn is_fusible(dtype: DType) -> bool {
    dtype.is_float()
        || dtype.is_integer() && !matches!(dtype, DType::I32)
        || matches!(dtype, DType::Bool)
}

/// The function that a node calls for its inputs' elements. A sum ([`is_sum`]) calls it once for
/// each further input. `None` for a node that is not elementwise, and for one whose function must
/// not be part of a larger kernel. Every pass uses this function, and checks shapes and types
/// itself.
pub fn call_of(node: &Node) -> Option<Call> {
    let call = match node.op() {
        "Cast" => {
            if node.attr("Truncate").and_then(|a| a.bool()) == Some(true) {
                return None;
            }
            Call::Cast(node.dtype("SrcT")?, node.dtype("DstT")?)
        }
        "AddN" => Call::row("AddV2", node.dtype("T")?)?,
        op => {
            let row = crate::kernels::scalar::find(op)?;
            if node.inputs().len() != row.inputs.len() {
                return None;
            }
            Call::row(op, if row.is_typed() { node.dtype("T")? } else { DType::Bool })?
        }
    };
    (!cost::loops_long(call)).then_some(call)
}

/// Whether a node adds an arbitrary number of tensors of one shape.
pub fn is_sum(node: &Node) -> bool {
    node.op() == "AddN"
}

/// Whether a comparison ([`Shapes::BroadcastOr`]) fails for shapes that do not broadcast, as it
/// does by TensorFlow's default.
pub fn must_broadcast(node: &Node) -> bool {
    node.attr("incompatible_shape_error").is_none_or(|a| a.bool() == Some(true))
}

impl Scalar {
    /// The scalar function of `id`. The node must be on one of our devices and have types that live
    /// in device memory, and its shapes must follow the rules of broadcasting.
    pub fn of(shapes: &SameShapes<'_>, id: NodeId) -> Option<Self> {
        let node = shapes.graph.node(id);
        if !node.on_wgpu() || node.inputs().is_empty() {
            return None;
        }
        let same = |ports: &[Output]| ports.windows(2).all(|w| shapes.same(w[0], w[1]));
        let call = call_of(node)?;
        let fits = match call {
            _ if is_sum(node) => node.inputs().len() > 1 && same(node.inputs()),
            Call::Row(row, _) => shapes_fit(shapes, id, row),
            Call::Cast(..) => true,
        };
        let attr = match call {
            Call::Row(Row { attr: Some(name), .. }, _) => Some(node.attr(name)?.float()?),
            _ => None,
        };
        let fusible = call.inputs().into_iter().chain([call.output()]).all(is_fusible);
        (fits && fusible).then_some(Self { call, attr })
    }

    /// Whether it costs next to nothing to compute the node again for each element of a larger
    /// tensor.
    pub fn is_cheap(self) -> bool {
        cost::is_cheap(self.call)
    }
}

/// Whether the function's rule for shapes amounts to broadcasting for the node's shapes.
fn shapes_fit(shapes: &SameShapes<'_>, id: NodeId, row: &Row) -> bool {
    let node = shapes.graph.node(id);
    let inputs = node.inputs();
    let is_scalar = |o: &Output| shapes.graph.info(*o).rank() == Some(0);
    let same = |a: &Output, b: &Output| shapes.same(*a, *b);
    match row.shapes {
        Shapes::Broadcast => true,
        Shapes::BroadcastOr(_) => must_broadcast(node),
        Shapes::Same => inputs.windows(2).all(|w| same(&w[0], &w[1])),
        Shapes::Select => {
            same(&inputs[1], &inputs[2]) && (is_scalar(&inputs[0]) || same(&inputs[0], &inputs[1]))
        }
        Shapes::Bounds => {
            inputs[1..].iter().all(|bound| is_scalar(bound) || same(bound, &inputs[0]))
        }
        Shapes::SameOrScalar => {
            let tensors: Vec<&Output> = inputs.iter().filter(|o| !is_scalar(o)).collect();
            tensors.windows(2).all(|w| same(w[0], w[1]))
        }
    }
}

/// The tensors that certainly have the same shape.
#[derive(Debug)]
pub struct SameShapes<'g> {
    graph: &'g Graph,
    /// For each node with one output, the tensor that has the output's shape by construction.
    origin: Vec<Option<Output>>,
}

impl<'g> SameShapes<'g> {
    /// Finds them in a graph whose nodes come in topological order.
    pub fn new(graph: &'g Graph, order: &[NodeId]) -> Self {
        let mut shapes = Self { graph, origin: vec![None; graph.capacity()] };
        for id in order {
            shapes.origin[id.index()] = shapes.giver(*id).map(|giver| shapes.origin(giver));
        }
        shapes
    }

    /// Whether two tensors certainly have the same shape: because TensorFlow inferred it, or
    /// because one is computed from the other by nodes that keep any shape.
    pub fn same(&self, a: Output, b: Output) -> bool {
        let inferred = |a: Output, b: Output| self.graph.info(a).same_shape(self.graph.info(b));
        if a == b || inferred(a, b) {
            return true;
        }
        let (a, b) = (self.origin(a), self.origin(b));
        a == b || inferred(a, b)
    }

    fn origin(&self, output: Output) -> Output {
        self.origin[output.node.index()].filter(|_| output.port == 0).unwrap_or(output)
    }

    /// The input that has the shape of the node's only output.
    fn giver(&self, id: NodeId) -> Option<Output> {
        let node = self.graph.node(id);
        let (op, inputs) = (node.op(), node.inputs());
        if matches!(op, "Cast" | "Identity" | "OnesLike" | "StopGradient" | "ZerosLike") {
            return inputs.first().copied();
        }
        let row =
            crate::kernels::scalar::find(op).filter(|row| row.inputs.len() == inputs.len())?;
        match row.shapes {
            Shapes::Same | Shapes::Bounds => inputs.first().copied(),
            Shapes::Broadcast => {
                let mut tensors = inputs.iter().filter(|o| self.graph.info(**o).rank() != Some(0));
                let first = *tensors.next()?;
                tensors.all(|o| self.origin(*o) == self.origin(first)).then_some(first)
            }
            _ => None,
        }
    }
}
