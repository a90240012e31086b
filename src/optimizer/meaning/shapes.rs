//! The tensors of a graph that certainly have the same shape.

use super::Meaning;
use crate::kernels::scalar;
use crate::kernels::scalar::row::Shapes;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// Knowledge of the shapes of a graph's tensors.
pub trait KnownShapes {
    /// Whether two tensors certainly have the same shape.
    fn same(&self, a: Output, b: Output) -> bool;
    /// The rank of a tensor, if it is known.
    fn rank(&self, tensor: Output) -> Option<usize>;
}

/// What TensorFlow inferred.
impl KnownShapes for Graph {
    fn same(&self, a: Output, b: Output) -> bool {
        self.info(a).same_shape(self.info(b))
    }

    fn rank(&self, tensor: Output) -> Option<usize> {
        self.info(tensor).rank()
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

    fn origin(&self, output: Output) -> Output {
        self.origin[output.node.index()].filter(|_| output.port == 0).unwrap_or(output)
    }

    /// The input that has the shape of the node's only output.
    fn giver(&self, id: NodeId) -> Option<Output> {
        let node = self.graph.node(id);
        let (op, inputs) = (node.op(), node.inputs());
        let keeps = match op {
            "Bitcast" => Meaning::of(node).scalar().is_some(),
            "Cast" | "Identity" | "OnesLike" | "StopGradient" | "ZerosLike" => true,
            _ => false,
        };
        if keeps {
            return inputs.first().copied();
        }
        let row = scalar::find(op).filter(|row| row.inputs.len() == inputs.len())?;
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

impl KnownShapes for SameShapes<'_> {
    /// Because TensorFlow inferred it, or because one is computed from the other by nodes that keep
    /// any shape.
    fn same(&self, a: Output, b: Output) -> bool {
        if a == b || self.graph.same(a, b) {
            return true;
        }
        let (a, b) = (self.origin(a), self.origin(b));
        a == b || self.graph.same(a, b)
    }

    fn rank(&self, tensor: Output) -> Option<usize> {
        self.graph.rank(tensor)
    }
}
