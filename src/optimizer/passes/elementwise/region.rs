//! A group, and the fused node that replaces it.

use rustc_hash::FxHashMap;

use super::member::Member;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::expression::{Call, Value};
use crate::kernels::fused::elementwise::OP;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_view;
use crate::optimizer::shape::Dim;

/// The largest number of views in a row that are searched.
const MAX_ROW: usize = 8;

/// A group of nodes that one node can replace.
#[derive(Debug, Clone)]
pub struct Region {
    /// In topological order.
    pub members: Vec<NodeId>,
    /// The computations of members, of recomputed nodes and of views, in topological order.
    pub steps: Vec<(NodeId, Member)>,
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
        let (inputs, views) = self.without_views(graph);
        let draft = self.draft(graph, &inputs, &views).ok_or_else(|| {
            Error::Internal(format!("no expression for the group of {:?}", self.outputs))
        })?;
        let root = self.outputs[self.outputs.len() - 1].node;
        let mut attrs = vec![
            ("T_in", draft.expression.inputs().into()),
            ("T_out", draft.expression.output_types()[..].into()),
        ];
        attrs.extend(draft.attrs());
        let infos = self.outputs.iter().map(|o| graph.info(*o).clone()).collect();
        let mut new = fused(graph, root, "wgpu_fused", OP, inputs, attrs, infos);
        new.controls = (self.constants.iter())
            .flat_map(|(c, _)| graph.node(c.node).controls().to_vec())
            .collect();
        let outputs: Vec<(Output, u32)> =
            self.outputs.iter().zip(0..).map(|(o, port)| (*o, port)).collect();
        let id = graph.replace_region(&self.replaced(graph), new, &outputs);
        for (constant, _) in &self.constants {
            graph.remove_unused(constant.node);
        }
        Ok(id)
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

    /// The inputs without each one whose elements another input has in the same places; and the
    /// inputs that were left out, each with the input that has its elements.
    fn without_views(&self, graph: &Graph) -> (Vec<Output>, Vec<(Output, Output)>) {
        let mut views = Vec::new();
        for view in &self.inputs {
            let mut tensor = *view;
            for _ in 0..MAX_ROW {
                let Some(from) = in_same_places(graph, tensor) else { break };
                tensor = from;
                if self.inputs.contains(&from) && views.iter().all(|(other, _)| *other != from) {
                    views.push((from, *view));
                }
            }
        }
        let is_left = |input: &&Output| views.iter().all(|(other, _)| other != *input);
        let inputs = self.inputs.iter().filter(is_left).copied().collect();
        // A view of a view has the elements of both.
        let last = |view: &Output| views.iter().find(|(other, _)| other == view).map(|(_, v)| *v);
        let ends = views.iter().map(|(tensor, view)| {
            (*tensor, std::iter::successors(Some(*view), last).last().unwrap_or(*view))
        });
        (inputs, ends.collect())
    }

    /// The members' computation of `inputs`. The first tensor of each pair of `views` has the
    /// elements of the second one.
    fn draft(&self, graph: &Graph, inputs: &[Output], views: &[(Output, Output)]) -> Option<Draft> {
        let mut draft = Draft::default();
        let mut values: FxHashMap<Output, Value> = FxHashMap::default();
        for (input, dtype) in inputs.iter().zip(self.input_types(graph, inputs)) {
            values.insert(*input, draft.input(dtype));
        }
        for (tensor, view) in views {
            values.insert(*tensor, values[view]);
        }
        for (constant, value) in &self.constants {
            let number = draft.constant(*value);
            let value = match graph.info(*constant).dtype {
                Some(DType::I32) => draft.call(Call::Cast(DType::F32, DType::I32), &[number])?,
                _ => number,
            };
            values.insert(*constant, value);
        }
        for (id, member) in &self.steps {
            let args: Vec<Value> =
                member.arguments(graph.node(*id).inputs()).iter().map(|i| values[i]).collect();
            let value = match member {
                Member::Call(scalar) => draft.scalar(scalar, &args)?,
                Member::Repeat(_) | Member::View(_) => args[0],
            };
            values.insert(Output { node: *id, port: 0 }, value);
        }
        self.outputs.iter().for_each(|o| draft.output(values[o]));
        Some(draft)
    }

    /// The types of the inputs, as the members read them.
    fn input_types(&self, graph: &Graph, inputs: &[Output]) -> Vec<DType> {
        let of = |input: &Output| {
            self.steps.iter().find_map(|(id, member)| {
                let at =
                    member.arguments(graph.node(*id).inputs()).iter().position(|i| i == input)?;
                Some(member.input_type(at))
            })
        };
        inputs.iter().map(|i| of(i).expect("a step reads it")).collect()
    }
}

/// The tensor that `view` reshapes, if `view` only has more extents of 1 in front: then both
/// broadcast to it alike.
fn in_same_places(graph: &Graph, view: Output) -> Option<Output> {
    let node = graph.node(view.node);
    let from = *node.inputs().first().filter(|_| is_view(node))?;
    let [of_view, of_tensor] = [view, from].map(|output| graph.info(output).shape.as_ref());
    let (of_view, of_tensor) = (of_view?, of_tensor?);
    let more = of_view.len().checked_sub(of_tensor.len())?;
    let (ones, rest) = of_view.split_at(more);
    let is_same = rest.iter().zip(of_tensor).all(|(a, b)| a.same(*b));
    (ones.iter().all(|extent| *extent == Dim::Known(1)) && is_same).then_some(from)
}
