//! Elementwise nodes that follow reductions and have the elements of the results. The dispatch that
//! finishes the reductions computes them.
//!
//! Extents of 1 make no difference, and nodes that only add or drop them are ignored. If such a
//! node has a reader outside, it stays after the fused node. Updates of variables are left to the
//! pass `update`, which does them in place.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::values::{Element, Translation, Values, follower};
use crate::dtype::DType;
use crate::kernels::fused::reduce::{MAX_CONSTANTS, MAX_EXTRAS, MAX_OUTPUTS};
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::Draft;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::{Legal, check};
use crate::optimizer::meaning::{is_elementwise, is_view, number};
use crate::optimizer::passes::reshape::again;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, TensorInfo};

/// The largest number of nodes after reductions that are considered.
const MAX_NODES: usize = 48;

/// The nodes of one epilogue.
pub struct EpilogueNodes {
    /// The nodes that it replaces, without the reductions.
    pub members: Vec<NodeId>,
    /// Its expression. The inputs are the reductions' results, then the further operands.
    pub values: Translation,
    /// The tensors that it produces.
    pub outputs: Vec<Output>,
    /// For each output, the node that reshapes it if its extents differ from the results'.
    reshapes: Vec<Option<NodeId>>,
}

/// A graph, with what the searches for all epilogues need.
pub struct Scene<'g> {
    pub graph: &'g Graph,
    /// The conditions under which nodes run.
    pub branches: &'g Branches,
    /// Nodes that only updates of variables read.
    pub updates: &'g FxHashSet<NodeId>,
}

/// The place at which an epilogue is searched.
pub struct Search<'g> {
    pub scene: &'g Scene<'g>,
    /// The weight of the reduced values.
    pub reduced: u32,
    /// The reductions' results, with their types.
    pub results: &'g [(Output, DType)],
    /// The nodes that become the main part of the fused node.
    pub region: &'g [NodeId],
    /// The known type and shape of the results.
    pub kept: &'g TensorInfo,
}

/// The nodes that only compute values assigned to variables.
pub fn updates(graph: &Graph, order: &[NodeId]) -> FxHashSet<NodeId> {
    let mut found: FxHashSet<NodeId> = FxHashSet::default();
    for id in order.iter().rev() {
        let op = graph.node(*id).op();
        let mut readers = graph.readers_in_any_order(Output { node: *id, port: 0 }).peekable();
        let assigns = op.starts_with("Assign") && op.ends_with("VariableOp");
        if assigns
            || (is_elementwise(op)
                && readers.peek().is_some()
                && readers.all(|(reader, _)| found.contains(&reader)))
        {
            found.insert(*id);
        }
    }
    found
}

/// Whether two tensors certainly have the same elements in the same order: the same extents, except
/// for extents of 1.
fn same_elements(a: &TensorInfo, b: &TensorInfo) -> bool {
    let (Some(a), Some(b)) = (&a.shape, &b.shape) else { return false };
    let long = |dim: &&Dim| **dim != Dim::Known(1);
    let (mut a, mut b) = (a.iter().filter(long), b.iter().filter(long));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a.same(*b) => {}
            _ => return false,
        }
    }
}

impl Search<'_> {
    /// The largest epilogue that one node can compute.
    pub fn find(&self) -> Option<EpilogueNodes> {
        self.kept.shape.as_ref()?;
        let mut nodes = self.followers();
        while nodes.iter().any(|id| !is_view(self.scene.graph.node(*id))) {
            let fitting = self.draft(&nodes).and_then(|found| found.fits().map(|()| found));
            let refusal = match fitting {
                Ok(epilogue) => return Some(epilogue),
                Err(refusal) => refusal,
            };
            let uses =
                |user: NodeId, used: NodeId| self.scene.graph.used(user).any(|id| id == used);
            let is_leaf = |at: &usize| nodes.iter().all(|user| !uses(*user, nodes[*at]));
            let without =
                |at: usize| nodes.iter().copied().filter(|id| *id != nodes[at]).collect::<Vec<_>>();
            let size = |at: usize| {
                self.draft(&without(at)).map_or(usize::MAX, |epilogue| epilogue.tensors())
            };
            let leaf = (0..nodes.len()).rev().filter(is_leaf).min_by_key(|at| size(*at))?;
            let left = nodes.remove(leaf);
            self.scene.graph.refuse("reduce", [left, self.region[0]], refusal);
        }
        None
    }

    /// All nodes after the results that could be computed with them, in order.
    fn followers(&self) -> Vec<NodeId> {
        let place = |id: NodeId| self.scene.graph.place(id).map(|place| (place, id));
        let readers =
            |output: Output| self.scene.graph.readers(output).filter_map(|(id, _)| place(id));
        let mut ahead: BTreeSet<(u64, NodeId)> =
            self.results.iter().flat_map(|(r, _)| readers(*r)).collect();
        let mut inside: FxHashSet<NodeId> = self.region.iter().copied().collect();
        let mut found = Vec::new();
        while let Some((_, id)) = ahead.pop_first() {
            if found.len() == MAX_NODES {
                break;
            }
            if !inside.contains(&id)
                && let legal = self.follows(id, &inside)
                && self.scene.graph.ask("reduce", [id, self.region[0]], legal).is_some()
            {
                found.push(id);
                inside.insert(id);
                ahead.extend(readers(Output { node: id, port: 0 }));
            }
        }
        found
    }

    /// Checks that a node computes elements of the results' shape from values inside and from
    /// tensors that can be read with them.
    fn follows(&self, id: NodeId, inside: &FxHashSet<NodeId>) -> Legal {
        let graph = self.scene.graph;
        let node = graph.node(id);
        let output = Output { node: id, port: 0 };
        let root = self.region[0];
        graph.may_join(id, root)?;
        self.scene.branches.run_together(id, root)?;
        follower(graph, id)?;
        check(same_elements(graph.info(output), self.kept), Refusal::OtherShape)?;
        // Its update does it in place, and a value that nothing reads is dropped.
        let is_needed = is_view(node) || graph.readers_in_any_order(output).next().is_some();
        check(is_needed && !self.scene.updates.contains(&id), Refusal::Alone)?;
        let known = |input: &Output| {
            if !inside.contains(&input.node) {
                return self.is_operand(*input);
            }
            !self.region.contains(&input.node)
                || self.results.iter().any(|(result, _)| result == input)
        };
        let known = if is_view(node) {
            let (tensor, sizes) = node.inputs().split_at(1);
            inside.contains(&tensor[0].node)
                && known(&tensor[0])
                && sizes.iter().all(|s| graph.node(s.node).op() == "Const")
        } else {
            node.inputs().iter().all(known)
        };
        check(known, Refusal::Operand)?;
        let one = FxHashSet::from_iter([id]);
        check(!graph.detours(inside, &one, |id| graph.used(id)), Refusal::Cycle)
    }

    fn is_operand(&self, tensor: Output) -> bool {
        let info = self.scene.graph.info(tensor);
        info.is_single() || same_elements(info, self.kept)
    }

    fn draft(&self, nodes: &[NodeId]) -> Result<EpilogueNodes, Refusal> {
        let graph = self.scene.graph;
        let read_by = |output: Output, by: &dyn Fn(NodeId) -> bool| {
            graph.readers_in_any_order(output).any(|(reader, _)| by(reader))
        };
        // Nodes with other extents stay if they have readers outside.
        let mut staying: FxHashSet<NodeId> = FxHashSet::default();
        let mut outputs = Vec::new();
        let computed = nodes.iter().rev().map(|id| Output { node: *id, port: 0 });
        for tensor in computed.chain(self.results.iter().rev().map(|(r, _)| *r)) {
            let outside = |id: NodeId| {
                staying.contains(&id) || !(nodes.contains(&id) || self.region.contains(&id))
            };
            if read_by(tensor, &outside) {
                if is_view(graph.node(tensor.node)) {
                    staying.insert(tensor.node);
                } else {
                    outputs.push(tensor);
                }
            }
        }
        outputs.reverse();
        let reshapes = outputs
            .iter()
            .map(|output| self.reshape(*output, nodes))
            .collect::<Option<Vec<_>>>()
            .ok_or(Refusal::OtherShape)?;
        let types = outputs.iter().map(|o| Some((*o, self.dtype(*o)?)));
        let types = types.collect::<Option<Vec<_>>>().ok_or(Refusal::NoType)?;
        let mut inside: FxHashSet<NodeId> = nodes.iter().copied().collect();
        let mut values = Values::behind(graph, self.reduced, self.results, &inside, &types)?;
        // A tensor that follows from other operands is recomputed.
        while let Some(id) =
            values.inputs.iter().map(|i| i.node).find(|id| self.follows_from(*id, &values))
        {
            inside.insert(id);
            values = Values::behind(graph, self.reduced, self.results, &inside, &types)?;
        }
        let members = nodes.iter().copied().filter(|id| !staying.contains(id)).collect();
        Ok(EpilogueNodes { members, values, outputs, reshapes })
    }

    fn dtype(&self, tensor: Output) -> Option<DType> {
        let result =
            self.results.iter().find(|(result, _)| *result == tensor).map(|(_, dtype)| *dtype);
        result.or_else(|| match follower(self.scene.graph, tensor.node).ok()? {
            Element::Call(scalar) => Some(scalar.call.output()),
            Element::Same => None,
        })
    }

    /// Whether a node's value follows from operands that `values` has without it.
    fn follows_from(&self, id: NodeId, values: &Translation) -> bool {
        let graph = self.scene.graph;
        let inputs = graph.node(id).inputs();
        let small = |input: &Output| number(graph, *input).is_some();
        let called = matches!(follower(graph, id), Ok(Element::Call(_)));
        let whole = same_elements(graph.info(Output { node: id, port: 0 }), self.kept);
        called
            && whole
            && graph.node(id).on_wgpu()
            && inputs.iter().all(|i| values.inputs.contains(i) || small(i))
    }

    /// The node that gives an output its extents, if they differ from the results'. `None` if there
    /// is no such node.
    #[expect(clippy::option_option, reason = "two different ways of having no node")]
    fn reshape(&self, output: Output, nodes: &[NodeId]) -> Option<Option<NodeId>> {
        let graph = self.scene.graph;
        let wanted = graph.info(output);
        if wanted.same_shape(self.kept) || self.results.iter().any(|(result, _)| *result == output)
        {
            return Some(None);
        }
        let gives = |id: &&NodeId| {
            let node = graph.node(**id);
            let from_kept =
                node.op() == "Reshape" || graph.info(node.inputs()[0]).same_shape(self.kept);
            is_view(node)
                && from_kept
                && graph.info(Output { node: **id, port: 0 }).same_shape(wanted)
        };
        nodes.iter().find(gives).map(|id| Some(*id))
    }
}

impl EpilogueNodes {
    fn tensors(&self) -> usize {
        self.values.inputs.len() + self.outputs.len()
    }

    /// Checks that the kernel takes it.
    fn fits(&self) -> Legal {
        let Draft { expression, constants } = &self.values.draft;
        let outputs = expression.outputs().len();
        let is_small = self.values.inputs.len() <= MAX_EXTRAS
            && (1..=MAX_OUTPUTS).contains(&outputs)
            && constants.len() <= MAX_CONSTANTS;
        check(is_small, Refusal::TooManyTensors)?;
        let computes = !self.values.draft.gives_parameters() && !expression.steps().is_empty();
        check(computes, Refusal::Alone)
    }

    /// Adds reshapes after the outputs whose extents differ from the results'.
    pub fn reshape(&self, graph: &mut Graph) {
        let types = self.values.draft.expression.output_types();
        for ((output, pattern), dtype) in self.outputs.iter().zip(&self.reshapes).zip(types) {
            let Some(pattern) = pattern else { continue };
            let name = format!("{}/shape", graph.node(output.node).name());
            let info = TensorInfo { dtype: Some(dtype), ..graph.info(*output).clone() };
            let new = again(graph, &name, *pattern, *output, info);
            let readers: Vec<_> =
                graph.readers(*output).filter(|(id, _)| !self.members.contains(id)).collect();
            let shaped = graph.add(new);
            for (reader, index) in readers {
                graph.set_input(reader, index, Output { node: shaped, port: 0 });
            }
        }
    }
}
