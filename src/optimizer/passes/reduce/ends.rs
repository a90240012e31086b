//! Sibling reductions whose results feed only a few more nodes, such as the gradients of
//! normalizations' weights: several over the same axes of the same shape become one node, whatever
//! they read.
//!
//! A node waits for all its inputs, so the join must not delay other computations: few nodes may be
//! reachable from each of the reductions, and none of the other reductions.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::kernels::expression::Value;
use crate::kernels::fused::reduce::{MAX_OUTPUTS, MAX_PLANES, MOST_INPUTS, OP, States};
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::plan::groups::{Sibling, join, pairs};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::TensorInfo;

/// The largest number of nodes that may be reached from a reduction: reshapes, and an optimizer's
/// step.
const MAX_REACHED: usize = 32;
/// The largest number of reductions over the same axes with which a reduction is tried: the last
/// ones.
const MAX_NEAR: usize = 8;

/// The axes over which a reduction runs, and its device. Reductions with the same ones can share a
/// pass.
#[derive(PartialEq, Eq, Hash)]
struct ReducedAxes {
    axes: Vec<i64>,
    keep_dims: bool,
    device: String,
}

/// The computation of one node.
#[derive(Clone)]
struct Reduction {
    /// The nodes that it replaces.
    nodes: Vec<NodeId>,
    inputs: Vec<Output>,
    draft: Draft,
    names: Vec<String>,
    /// The known type and shape of the space that is reduced.
    space: TensorInfo,
}

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if graph.has_control_flow() {
        return Ok(());
    }
    let (over, all): (Vec<ReducedAxes>, Vec<Reduction>) =
        order.iter().filter_map(|id| reduction(graph, *id)).unzip();
    let pairs = pairs(over.into_iter().enumerate(), MAX_NEAR);
    let joined = join("ends", graph, all, &pairs, |a, b| a.with(graph, b));
    for reduction in joined.into_iter().filter(|r| r.nodes.len() > 1) {
        // A pair that was joined before may have made a path from one to the other.
        let pair = [reduction.nodes[0], reduction.nodes[1]];
        if graph.ask("ends", pair, graph.are_siblings(&reduction.nodes)).is_some() {
            replace(graph, reduction);
        }
    }
    Ok(())
}

impl Sibling for Reduction {
    fn node(&self) -> NodeId {
        self.nodes[0]
    }

    fn inputs(&self) -> &[Output] {
        &self.inputs
    }
}

/// The reduction of a node and its axes, if it may be joined with others.
fn reduction(graph: &Graph, id: NodeId) -> Option<(ReducedAxes, Reduction)> {
    let node = graph.node(id);
    if node.op() != OP || graph.may_move(id).is_err() {
        return None;
    }
    let text = |name: &str| node.attr(name).and_then(Attr::string);
    let flag = |name: &str| node.attr(name).and_then(Attr::bool).unwrap_or(false);
    if text("epilogue").is_some_and(|text| !text.is_empty()) || flag("whole") {
        return None;
    }
    let draft = Draft::of(node)?;
    let expression = &draft.expression;
    // Plain sums of rows may be gradients of biases, which are fused into products.
    if expression.steps().is_empty() {
        return None;
    }
    let inputs = node.inputs().to_vec();
    let largest = inputs.iter().max_by_key(|i| graph.info(**i).len().unwrap_or(0))?;
    let space = graph.info(*largest).clone();
    let dims = space.shape.as_ref()?.iter().all(|d| d.known().is_some_and(|n| n > 0));
    // Each value must have the whole shape.
    let whole = expression.outputs().iter().all(|value| {
        let (_, read) = expression.select(&[*value]);
        read.iter().any(|i| graph.info(inputs[*i]).same_shape(&space))
    });
    let fits = inputs.iter().all(|i| graph.info(*i).broadcasts_to(&space));
    if !dims || !whole || !fits || expression.inputs().len() != inputs.len() {
        return None;
    }
    leads_to_few(graph, id).then(|| {
        let over = ReducedAxes {
            axes: node.attr("axes").and_then(Attr::ints).unwrap_or_default().to_vec(),
            keep_dims: flag("keep_dims"),
            device: node.device().to_owned(),
        };
        let names = text("reductions").unwrap_or_default().split(',').map(str::to_owned).collect();
        (over, Reduction { nodes: vec![id], inputs, draft, names, space })
    })
}

/// Whether few nodes are reachable from a node.
fn leads_to_few(graph: &Graph, id: NodeId) -> bool {
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    let mut stack = vec![id];
    while let Some(id) = stack.pop().filter(|_| seen.len() <= MAX_REACHED) {
        stack.extend(graph.users(id).iter().filter(|user| seen.insert(**user)));
    }
    seen.len() <= MAX_REACHED
}

impl Reduction {
    /// Both reductions in one node.
    ///
    /// # Errors
    /// The reason why none computes both.
    fn with(&self, graph: &Graph, other: &Self) -> Result<Self, Refusal> {
        check(self.space.same_shape(&other.space), Refusal::OtherShape)?;
        let mut both = self.clone();
        let inputs: Vec<Value> = (other.inputs.iter().zip(other.draft.expression.inputs()))
            .map(|(tensor, dtype)| match both.inputs.iter().position(|known| known == tensor) {
                Some(at) => Value::Input(at as u32),
                None => {
                    both.inputs.push(*tensor);
                    both.draft.input(*dtype)
                }
            })
            .collect();
        let values = both.draft.append(&other.draft, &inputs).ok_or(Refusal::Operand)?;
        values.into_iter().for_each(|value| both.draft.output(value));
        both.names.extend(other.names.iter().cloned());
        both.nodes.extend(&other.nodes);
        let states = both.states().ok_or(Refusal::Operand)?;
        let small = both.inputs.len() <= MOST_INPUTS
            && states.planes() <= MAX_PLANES
            && states.types().len() <= MAX_OUTPUTS;
        check(small, Refusal::TooManyTensors)?;
        graph.are_siblings(&both.nodes).map(|()| both)
    }

    /// The accumulators, if they have one type.
    fn states(&self) -> Option<States> {
        States::new(&self.names.join(","), &self.draft.expression.output_types()).ok()
    }
}

fn replace(graph: &mut Graph, reduction: Reduction) {
    let Reduction { ref nodes, ref draft, .. } = reduction;
    let Some(states) = reduction.states() else { return };
    let types = states.types();
    let outputs: Vec<Output> = nodes
        .iter()
        .flat_map(|node| {
            let count = graph.node(*node).infos().len() as u32;
            (0..count).map(|port| Output { node: *node, port })
        })
        .collect();
    if outputs.len() != types.len() {
        return;
    }
    let node = graph.node(nodes[0]);
    let own = |name: &'static str| Some((name, node.attr(name)?.clone()));
    let mut attrs = vec![
        ("T_in", draft.expression.inputs().into()),
        ("T_extra", Attr::from(&[][..] as &[crate::dtype::DType])),
        ("T_out", types[..].into()),
        ("epilogue", String::new().into()),
        ("epilogue_constants", Attr::from(&[][..] as &[f32])),
        ("reductions", reduction.names.join(",").into()),
    ];
    attrs.extend(draft.attrs());
    attrs.extend(["axes", "whole", "keep_dims"].into_iter().filter_map(own));
    let infos = outputs.iter().map(|output| graph.info(*output).clone()).collect();
    let inputs = reduction.inputs.clone();
    let new = fused(graph, nodes[0], "with_others", OP, inputs, attrs, infos);
    let ports: Vec<(Output, u32)> = outputs.into_iter().zip(0..).collect();
    graph.replace_region(nodes, new, &ports);
}
