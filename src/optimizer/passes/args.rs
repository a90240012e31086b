//! ArgMax and ArgMin of an elementwise value that no other node reads.
//!
//! Keras's `argmax` converts its input to float32 and gives negative zeros a value of their own. So
//! the accuracy of a language model would store the logits again, in twice their bytes. A fused
//! reduction computes these values as it compares them.

use crate::error::Result;
use crate::kernels::fused::arg::{self, OP};
use crate::kernels::fused::elementwise;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Engine, Meaning};
use crate::optimizer::refusal::Refusal;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_reduction = |id: &NodeId| arg::reduction(graph.node(*id).op()).is_some();
    let reductions: Vec<NodeId> = order.iter().copied().filter(is_reduction).collect();
    if reductions.is_empty() {
        return Ok(());
    }
    let branches = Branches::of(graph, &order);
    for id in reductions {
        let Some(value) = graph.node(id).inputs().first().copied() else { continue };
        match Fusion::of(graph, &branches, id, value) {
            Ok(found) => found.replace(graph),
            Err(reason) if is_computed(graph, value.node) => {
                graph.refuse("args", [id, value.node], reason);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Whether a node computes elements.
fn is_computed(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op() == elementwise::OP || Meaning::of(node).scalar().is_some()
}

/// An arg-reduction with the node that computes its values.
struct Fusion {
    reduction: NodeId,
    /// The node that computes the values.
    maker: NodeId,
    /// The values, and the tensors that they are computed from.
    draft: Draft,
    tensors: Vec<Output>,
}

impl Fusion {
    /// The fusion of a node with the node that computes its input `value`.
    ///
    /// # Errors
    /// The reason why there is none.
    fn of(
        graph: &Graph,
        branches: &Branches,
        reduction: NodeId,
        value: Output,
    ) -> Result<Self, Refusal> {
        let maker = value.node;
        graph.may_go(reduction)?;
        graph.may_join(maker, reduction)?;
        graph.stays_inside(value, |reader| reader == reduction)?;
        branches.run_together(maker, reduction)?;
        graph.is_one_node(&[maker, reduction])?;
        let (draft, tensors) = Self::values(graph, maker)?;
        let expression = &draft.expression;
        check(arg::fits(tensors.len(), expression.constants()), Refusal::TooManyTensors)?;
        check(!draft.gives_parameters(), Refusal::Operand)?;
        check(arg::compares(expression.output_type(0)), Refusal::Type(expression.output_type(0)))?;
        // Several tensors may broadcast.
        let shape = graph.info(value);
        let are_whole = tensors.iter().all(|tensor| graph.info(*tensor).same_shape(shape));
        check(tensors.len() == 1 || are_whole, Refusal::OtherShape)?;
        Ok(Self { reduction, maker, draft, tensors })
    }

    /// The value that a node computes, and the tensors that it reads.
    fn values(graph: &Graph, maker: NodeId) -> Result<(Draft, Vec<Output>), Refusal> {
        let node = graph.node(maker);
        if node.op() == elementwise::OP {
            let draft = Draft::of(node).ok_or(Refusal::Operand)?;
            check(draft.expression.outputs().len() == 1, Refusal::TooManyTensors)?;
            return Ok((draft, node.inputs().to_vec()));
        }
        let scalar = Meaning::of(node).scalar().ok_or(Refusal::NoFunction)?;
        scalar.suits(Engine::Loop)?;
        // A node with several inputs may broadcast them, or read constants.
        let &[input] = node.inputs() else { return Err(Refusal::Operand) };
        let mut draft = Draft::default();
        let x = draft.input(scalar.input_type(0));
        let value = draft.scalar(&scalar, &[x]).ok_or(Refusal::Operand)?;
        draft.output(value);
        Ok((draft, vec![input]))
    }

    fn replace(self, graph: &mut Graph) {
        let node = graph.node(self.reduction);
        let (op, output_type) = (node.op().to_owned(), node.dtype("output_type"));
        let (Some(&dimension), Some(output_type)) = (node.inputs().get(1), output_type) else {
            return;
        };
        let mut attrs = vec![
            ("T_in", Attr::from(self.draft.expression.inputs())),
            ("output_type", output_type.into()),
            ("reduction", op.into()),
        ];
        attrs.extend(self.draft.attrs());
        let index = Output { node: self.reduction, port: 0 };
        let infos = vec![graph.info(index).clone()];
        let inputs = [&self.tensors[..], &[dimension]].concat();
        let new = fused(graph, self.reduction, "fused_arg", OP, inputs, attrs, infos);
        graph.replace_region(&[self.maker, self.reduction], new, &[(index, 0)]);
    }
}
