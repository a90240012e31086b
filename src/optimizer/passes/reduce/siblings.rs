//! Reductions over the same axes of the same shape that share a pass: those that read a common
//! tensor, or tensors that one node makes.

use rustc_hash::FxHashMap;

use super::roots::ReducedAxes;
use super::{Region, Replacement};
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_view;
use crate::optimizer::plan::cost::shared;
use crate::optimizer::plan::groups::{Groups, pairs};
use crate::optimizer::plan::{Fusions, Parts, Planner, Saving};
use crate::optimizer::refusal::Refusal;

/// The largest number of reshapes between a reduction and the node that makes its input.
const MAX_VIEWS: usize = 4;
/// The largest number of reductions of one tensor with which a reduction is tried: the last ones.
const MAX_NEAR: usize = 8;

/// Joins regions that can share a pass and read a common tensor, or outputs of one node.
pub fn merged(graph: &Graph, branches: &Branches, regions: Vec<Region>) -> Vec<Region> {
    let mut numbers: FxHashMap<ReducedAxes, usize> = FxHashMap::default();
    let mut keys: Vec<(usize, (usize, NodeId))> = Vec::new();
    let (mut planned, mut roots) = (Vec::new(), Vec::new());
    for region in regions {
        let Ok(plan) = region.plan(graph) else { continue };
        let count = numbers.len();
        let same = ReducedAxes { keep_dims: false, ..region.over.clone() };
        let number = *numbers.entry(same).or_insert(count);
        let makers = plan.values.inputs.iter().map(|input| (number, maker(graph, *input)));
        keys.extend(makers.map(|key| (planned.len(), key)));
        roots.push(region.roots[0].nodes[0]);
        planned.push((region, plan));
    }
    let pairs = pairs(keys, MAX_NEAR);
    let mut siblings = Siblings { graph, branches, roots, regions: Groups::new(planned) };
    Planner::default().fuse(&mut siblings, &pairs);
    siblings.regions.into_items().map(|(region, _)| region).collect()
}

/// The node that makes a tensor's elements, before reshapes. The gradients of repeated heads, for
/// instance, are summed after a reshape.
fn maker(graph: &Graph, tensor: Output) -> NodeId {
    let mut id = tensor.node;
    for _ in 0..MAX_VIEWS {
        let node = graph.node(id);
        match node.inputs().first() {
            Some(input) if is_view(node) && node.controls().is_empty() => id = input.node,
            _ => break,
        }
    }
    id
}

/// Regions of reductions while they are joined.
struct Siblings<'g> {
    graph: &'g Graph,
    branches: &'g Branches,
    /// A reduction of each region as it was at first.
    roots: Vec<NodeId>,
    regions: Groups<(Region, Replacement)>,
}

impl Fusions for Siblings<'_> {
    type Candidate = [usize; 2];
    const PASS: &'static str = "reduce";

    fn graph(&self) -> &Graph {
        self.graph
    }

    fn nodes(&self, pair: [usize; 2]) -> [NodeId; 2] {
        pair.map(|at| self.roots[at])
    }

    fn parts(&self, pair: [usize; 2]) -> Parts {
        self.regions.parts(pair)
    }

    /// A dispatch, and the tensors that both read.
    fn saving(&self, pair: [usize; 2]) -> Option<Saving> {
        let [(_, a), (_, b)] = self.regions.pair(pair)?;
        let time = || shared(self.graph, &a.values.inputs, &b.values.inputs);
        (!a.is_full() && !b.is_full()).then(|| time().into())
    }

    fn fuse(&mut self, pair: [usize; 2]) -> Result<bool, Refusal> {
        let [(a, first), (b, second)] = self.regions.pair(pair).ok_or(Refusal::Alone)?;
        self.branches.run_together(a.roots[0].nodes[0], b.roots[0].nodes[0])?;
        if !a.space.same_shape(&b.space) {
            return Err(Refusal::OtherShape);
        }
        let keep_dims = a.over.keep_dims || b.over.keep_dims;
        let both = Region {
            roots: [&a.roots[..], &b.roots].concat(),
            over: ReducedAxes { keep_dims, ..a.over.clone() },
            space: a.space.clone(),
        };
        let plan = both.plan(self.graph)?;
        // Values that one of the two computes must not be stored for both.
        let mut taken = first.members.iter().chain(&second.members);
        if !taken.all(|id| plan.members.binary_search(id).is_ok()) {
            return Err(Refusal::ReadElsewhere);
        }
        self.regions.join(pair, (both, plan));
        Ok(true)
    }
}
