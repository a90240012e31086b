//! A group, and the fused node that replaces it.

use rustc_hash::FxHashMap;

use super::member::Member;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::elementwise::OP;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};

/// A group of nodes that one node can replace.
#[derive(Debug, Clone)]
pub struct Region {
    /// In topological order.
    pub members: Vec<NodeId>,
    /// The computations of members, of recomputed nodes and of views, in topological order.
    pub steps: Vec<(NodeId, Member)>,
    /// The members' weight.
    pub own: u32,
    /// A tensor of the iteration's shape.
    pub shape: Output,
    /// Tensors from outside, without [`Region::constants`].
    pub inputs: Vec<Output>,
    /// Constants that become parameters.
    pub constants: Vec<(Output, f32)>,
    /// The members' values that are used outside.
    pub outputs: Vec<Output>,
    /// Whether the inputs certainly broadcast to the whole shape of the iteration.
    pub covered: bool,
}

impl Region {
    /// Replaces the members by the fused node.
    pub fn emit(&self, graph: &mut Graph) -> Result<NodeId> {
        let (expression, constants) = self.expression(graph)?;
        let root = graph.node(self.outputs[self.outputs.len() - 1].node);
        let new = NewNode {
            name: format!("{}/wgpu_fused", root.name()),
            op: OP.to_owned(),
            device: root.device().to_owned(),
            inputs: self.inputs.clone(),
            controls: self
                .constants
                .iter()
                .flat_map(|(c, _)| graph.node(c.node).controls().to_vec())
                .collect(),
            attrs: vec![
                ("T_in", expression.inputs().into()),
                ("T_out", expression.output_types()[..].into()),
                ("constants", constants[..].into()),
                ("expression", expression.to_string().into()),
            ],
            infos: self.outputs.iter().map(|o| graph.info(*o).clone()).collect(),
        };
        let outputs: Vec<(Output, u32)> =
            self.outputs.iter().zip(0..).map(|(o, port)| (*o, port)).collect();
        let fused = graph.replace_region(&self.replaced(graph), new, &outputs);
        for (constant, _) in &self.constants {
            let id = constant.node;
            let unused =
                graph.contains(id) && graph.users(id).is_empty() && !graph.is_preserved(id);
            if unused && graph.node(id).on_wgpu() {
                graph.remove(id);
            }
        }
        Ok(fused)
    }

    /// The members, and the recomputed nodes and views that only they use. A view may still be read
    /// by a member that needs it as such.
    fn replaced(&self, graph: &Graph) -> Vec<NodeId> {
        let mut replaced: Vec<NodeId> = self.steps.iter().map(|(id, _)| *id).collect();
        for (id, _) in self.steps.iter().rev().filter(|(id, _)| !self.members.contains(id)) {
            let read = self.inputs.iter().any(|input| input.node == *id);
            if read || graph.users(*id).iter().any(|user| !replaced.contains(user)) {
                replaced.retain(|r| r != id);
            }
        }
        replaced
    }

    /// The members' expression and its parameters.
    fn expression(&self, graph: &Graph) -> Result<(Expression, Vec<f32>)> {
        let mut expression = Expression::new();
        let mut values: FxHashMap<Output, Value> = FxHashMap::default();
        let mut parameters: Vec<f32> = Vec::new();
        let types = self.input_types(graph);
        for (input, dtype) in self.inputs.iter().zip(types) {
            values.insert(*input, expression.input(dtype));
        }
        let mut parameter = |expression: &mut Expression, value: f32| -> Value {
            let at = parameters.iter().position(|p| p.to_bits() == value.to_bits()).unwrap_or_else(
                || {
                    parameters.push(value);
                    expression.constant();
                    parameters.len() - 1
                },
            );
            Value::Constant(at as u32)
        };
        for (constant, value) in &self.constants {
            values.insert(*constant, parameter(&mut expression, *value));
        }
        for (id, member) in &self.steps {
            let args: Vec<Value> =
                member.arguments(graph.node(*id).inputs()).iter().map(|i| values[i]).collect();
            let mut value = args[0];
            if let Member::Call(scalar) = member {
                let arity = scalar.call.inputs().len();
                let mut call: Vec<Value> = args[..arity].to_vec();
                call.extend(scalar.attr.map(|a| parameter(&mut expression, a)));
                value = expression.step(scalar.call, &call)?;
                for next in &args[arity..] {
                    value = expression.step(scalar.call, &[value, *next])?;
                }
            }
            values.insert(Output { node: *id, port: 0 }, value);
        }
        self.outputs.iter().for_each(|o| expression.output(values[o]));
        Ok((expression, parameters))
    }

    /// The types of the inputs, as the members read them.
    fn input_types(&self, graph: &Graph) -> Vec<DType> {
        let of = |input: &Output| {
            self.steps.iter().find_map(|(id, member)| {
                let at =
                    member.arguments(graph.node(*id).inputs()).iter().position(|i| i == input)?;
                Some(member.input_type(at))
            })
        };
        self.inputs.iter().map(|i| of(i).expect("a step reads it")).collect()
    }
}
