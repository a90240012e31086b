//! Reductions that share a pass. They run over the same axes of one shape, and read a common tensor
//! or tensors that one node makes. The pairs that save most come first.

use std::cell::Cell;

use rustc_hash::FxHashMap;

use super::epilogue::Scene;
use super::roots::ReducedAxes;
use super::{Region, Replacement, holds};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::is_view;
use crate::optimizer::plan::cost::{LAUNCH, Nanos};
use crate::optimizer::plan::groups::{Sibling, join, pairs, together};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::unions::Unions;

/// The largest number of reshapes between a reduction and the node that makes its input.
const MAX_VIEWS: usize = 4;
/// The largest number of reductions of one tensor with which a reduction is tried: the last ones.
const MAX_NEAR: usize = 16;

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

/// A region, and the node that can replace it.
struct Planned {
    region: Region,
    plan: Replacement,
}

impl Sibling for Planned {
    fn node(&self) -> NodeId {
        self.region.roots[0].nodes[0]
    }

    fn inputs(&self) -> &[Output] {
        &self.plan.values.inputs
    }
}

impl Planned {
    /// The nodes that its epilogue computes.
    fn followers(&self) -> &[NodeId] {
        self.plan.epilogue.as_ref().map_or(&[], |epilogue| &epilogue.members)
    }
}

/// For each region, the first one of the regions that compete with it for nodes behind them.
fn rivals(all: &[Planned]) -> Vec<usize> {
    let mut sets = Unions::new(all.len());
    let mut takers: FxHashMap<NodeId, usize> = FxHashMap::default();
    for (at, planned) in all.iter().enumerate() {
        for follower in planned.followers() {
            sets.join(*takers.entry(*follower).or_insert(at), at);
        }
    }
    let mut firsts: FxHashMap<usize, usize> = FxHashMap::default();
    (0..all.len()).map(|at| *firsts.entry(sets.root(at)).or_insert(at)).collect()
}

impl Scene<'_> {
    /// Joins regions that can share a pass and read a common tensor, or outputs of one node. A pair
    /// comes first if its node also computes all nodes that follow the two.
    ///
    /// Returns the regions in the order in which they must take in the nodes behind them. The last
    /// comes first: nodes after it may read values that the epilogue of an earlier region takes in.
    /// Regions that compete for nodes, directly or through others, stand together at the place of
    /// the last of them, and the one with the fewest nodes behind it comes first.
    pub fn merged(&self, regions: Vec<Region>) -> Vec<Region> {
        let planned = regions.into_iter().filter_map(|region| {
            let plan = region.plan(self.graph).ok()?;
            Some(Planned { plan: region.with_epilogue(self, plan), region })
        });
        let loses = Cell::new(false);
        let mut joined = self.joined(planned.collect(), |lost, _| {
            loses.set(loses.get() || lost > 0);
            lost == 0
        });
        if loses.get() {
            joined = self.joined(joined, |lost, saved| lost < saved);
        }
        joined.reverse();
        let rivals = rivals(&joined);
        let mut ordered: Vec<_> = joined.into_iter().zip(rivals).collect();
        ordered.sort_by_key(|(planned, rivals)| (*rivals, planned.followers().len()));
        ordered.into_iter().map(|(planned, _)| planned.region).collect()
    }

    /// Joins the pairs for which `accepts` says yes to the time that is lost and the time saved.
    fn joined(&self, items: Vec<Planned>, accepts: impl Fn(Nanos, Nanos) -> bool) -> Vec<Planned> {
        let mut numbers: FxHashMap<ReducedAxes, usize> = FxHashMap::default();
        let mut keys: Vec<(usize, (usize, NodeId))> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let count = numbers.len();
            let same = ReducedAxes { keep_dims: false, ..item.region.over.clone() };
            let number = *numbers.entry(same).or_insert(count);
            let makers = item.inputs().iter().map(|input| maker(self.graph, *input));
            keys.extend(makers.map(|maker| (at, (number, maker))));
        }
        let with = |a: &Planned, b: &Planned| self.both(a, b, &accepts);
        join("reduce", self.graph, items, &pairs(keys, MAX_NEAR), with)
    }

    /// Both regions in one pass.
    ///
    /// # Errors
    /// The reason why they stay apart.
    fn both(
        &self,
        a: &Planned,
        b: &Planned,
        accepts: impl Fn(Nanos, Nanos) -> bool,
    ) -> Result<Planned, Refusal> {
        holds(&[&a.plan.states, &b.plan.states])?;
        self.branches.run_together(a.node(), b.node())?;
        check(a.region.space.same_shape(&b.region.space), Refusal::OtherShape)?;
        let keep_dims = a.region.over.keep_dims || b.region.over.keep_dims;
        let region = Region {
            roots: [&a.region.roots[..], &b.region.roots].concat(),
            over: ReducedAxes { keep_dims, ..a.region.over.clone() },
            space: a.region.space.clone(),
        };
        let plan = region.plan(self.graph)?;
        // Values that one of the two computes must not be stored for both.
        let takes = |id: &NodeId| plan.members.binary_search(id).is_ok();
        check(a.plan.members.iter().chain(&b.plan.members).all(takes), Refusal::ReadElsewhere)?;
        let both = Planned { plan: region.with_epilogue(self, plan), region };
        // What follows one of the two takes another dispatch if the node of both has too many
        // tensors to compute it.
        let follows = |id: &NodeId| both.followers().contains(id);
        let loses = |part: &&&Planned| !part.followers().iter().all(follows);
        let lost = [a, b].iter().filter(loses).count() as Nanos * LAUNCH;
        check(accepts(lost, together(self.graph, a, b)), Refusal::TooManyTensors).map(|()| both)
    }
}
