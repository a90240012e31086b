//! The one place that makes fused nodes: their expressions with the values of the parameters, and
//! the nodes themselves.

use super::attr::Attr;
use super::graph::{Graph, NewNode, Node, NodeId, Output};
use super::meaning::Scalar;
use super::shape::TensorInfo;
use crate::dtype::DType;
use crate::kernels::expression::{Call, Expression, Value};

/// The computation of a fused node under construction. Equal parameters are one parameter.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The expression.
    pub expression: Expression,
    /// The values of its parameters.
    pub constants: Vec<f32>,
}

impl Draft {
    /// The expression of a fused node, with the node's parameters.
    pub fn of(node: &Node) -> Option<Self> {
        let expression: Expression = node.attr("expression")?.string()?.parse().ok()?;
        let constants = node.attr("constants").and_then(Attr::floats)?.to_vec();
        (constants.len() == expression.constants()).then_some(Self { expression, constants })
    }

    /// Adds an input.
    pub fn input(&mut self, dtype: DType) -> Value {
        self.expression.input(dtype)
    }

    /// The parameter with this value.
    pub fn constant(&mut self, value: f32) -> Value {
        match self.constants.iter().position(|c| c.to_bits() == value.to_bits()) {
            Some(at) => Value::Constant(at as u32),
            None => {
                self.constants.push(value);
                self.expression.constant()
            }
        }
    }

    /// A call; `None` if the arguments do not fit.
    pub fn call(&mut self, call: Call, args: &[Value]) -> Option<Value> {
        self.expression.step(call, args).ok()
    }

    /// A call of the scalar function of `op`.
    pub fn row(&mut self, op: &str, dtype: DType, args: &[Value]) -> Option<Value> {
        self.call(Call::row(op, dtype)?, args)
    }

    /// The value of a node for the elements of its inputs.
    pub fn scalar(&mut self, scalar: &Scalar, args: &[Value]) -> Option<Value> {
        let (first, further) = args.split_at_checked(scalar.call.inputs().len())?;
        let mut first = first.to_vec();
        first.extend(scalar.attr.map(|value| self.constant(value)));
        let value = self.call(scalar.call, &first)?;
        further.iter().try_fold(value, |sum, term| self.call(scalar.call, &[sum, *term]))
    }

    /// Adds an output.
    pub fn output(&mut self, value: Value) {
        self.expression.output(value);
    }

    /// Appends another computation, in which `inputs` take the place of its inputs. Returns its
    /// outputs. Its parameters stay apart.
    pub fn append(&mut self, other: &Self, inputs: &[Value]) -> Option<Vec<Value>> {
        let values = self.expression.append(&other.expression, inputs).ok()?;
        self.constants.extend(&other.constants);
        Some(values)
    }

    /// Whether an output is a parameter. No kernel stores one.
    pub fn gives_parameters(&self) -> bool {
        self.expression.outputs().iter().any(|value| matches!(value, Value::Constant(_)))
    }

    /// The attributes `constants` and `expression` of a fused node.
    pub fn attrs(&self) -> [(&'static str, Attr); 2] {
        [
            ("constants", self.constants[..].into()),
            ("expression", self.expression.to_string().into()),
        ]
    }
}

/// A node of `op` without control inputs, on the device of the node `like` and named after it.
pub fn fused(
    graph: &Graph,
    like: NodeId,
    suffix: &str,
    op: &str,
    inputs: Vec<Output>,
    attrs: Vec<(&'static str, Attr)>,
    infos: Vec<TensorInfo>,
) -> NewNode {
    let like = graph.node(like);
    NewNode {
        name: format!("{}/{suffix}", like.name()),
        op: op.to_owned(),
        device: like.device().to_owned(),
        inputs,
        controls: Vec::new(),
        attrs,
        infos,
    }
}
