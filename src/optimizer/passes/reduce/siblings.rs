//! Reductions over the same axes of the same shape that share a pass: those that read a common
//! tensor, or tensors that one node makes.

use rustc_hash::FxHashMap;

use super::roots::ReducedAxes;
use super::{Region, Replacement};
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::is_view;
use crate::optimizer::plan::groups::{Sibling, join, pairs};
use crate::optimizer::refusal::Refusal;

/// The largest number of reshapes between a reduction and the node that makes its input.
const MAX_VIEWS: usize = 4;
/// The largest number of reductions of one tensor with which a reduction is tried: the last ones.
const MAX_NEAR: usize = 8;

/// Joins regions that can share a pass and read a common tensor, or outputs of one node.
pub fn merged(graph: &Graph, branches: &Branches, regions: Vec<Region>) -> Vec<Region> {
    let mut numbers: FxHashMap<ReducedAxes, usize> = FxHashMap::default();
    let mut keys: Vec<(usize, (usize, NodeId))> = Vec::new();
    let mut planned: Vec<Planned> = Vec::new();
    for region in regions {
        let Ok(plan) = region.plan(graph) else { continue };
        let count = numbers.len();
        let same = ReducedAxes { keep_dims: false, ..region.over.clone() };
        let number = *numbers.entry(same).or_insert(count);
        let makers = plan.values.inputs.iter().map(|input| (number, maker(graph, *input)));
        keys.extend(makers.map(|key| (planned.len(), key)));
        planned.push(Planned { region, plan });
    }
    let with = |a: &Planned, b: &Planned| a.with(b, graph, branches);
    let joined = join("reduce", graph, planned, &pairs(keys, MAX_NEAR), with);
    joined.into_iter().map(|planned| planned.region).collect()
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

    fn is_full(&self) -> bool {
        self.plan.is_full()
    }
}

impl Planned {
    /// Both regions in one pass.
    ///
    /// # Errors
    /// The reason why they stay apart.
    fn with(&self, other: &Self, graph: &Graph, branches: &Branches) -> Result<Self, Refusal> {
        let (a, b) = (&self.region, &other.region);
        branches.run_together(self.node(), other.node())?;
        check(a.space.same_shape(&b.space), Refusal::OtherShape)?;
        let keep_dims = a.over.keep_dims || b.over.keep_dims;
        let region = Region {
            roots: [&a.roots[..], &b.roots].concat(),
            over: ReducedAxes { keep_dims, ..a.over.clone() },
            space: a.space.clone(),
        };
        let plan = region.plan(graph)?;
        // Values that one of the two computes must not be stored for both.
        let mut taken = self.plan.members.iter().chain(&other.plan.members);
        let takes = taken.all(|id| plan.members.binary_search(id).is_ok());
        check(takes, Refusal::ReadElsewhere).map(|()| Self { region, plan })
    }
}
