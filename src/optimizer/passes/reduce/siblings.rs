//! Reductions that share a pass. They run over the same axes of one shape, and read a common tensor
//! or tensors that one node makes.

use rustc_hash::FxHashMap;

use super::roots::ReducedAxes;
use super::{Region, Replacement};
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::is_view;
use crate::optimizer::refusal::Refusal;

/// The largest number of reshapes between a reduction and the node that makes its input.
const MAX_VIEWS: usize = 4;
/// The largest number of regions of one tensor to which a reduction is tried to be added: the last
/// ones. So time stays linear.
const MAX_OPEN: usize = 32;

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

/// Joins regions that can share a pass and read a common tensor, or outputs of one node.
pub fn merged(graph: &Graph, branches: &Branches, regions: Vec<Region>) -> Vec<Region> {
    // Each region, with the nodes that it takes in.
    let mut all: Vec<(Region, Vec<NodeId>)> = Vec::new();
    let mut full: Vec<bool> = Vec::new();
    let mut numbers: FxHashMap<ReducedAxes, usize> = FxHashMap::default();
    // The regions to which further reductions may be added, by axes and by the nodes that they
    // read.
    let mut open: FxHashMap<(usize, NodeId), Vec<usize>> = FxHashMap::default();
    for region in regions {
        let Ok(plan) = region.plan(graph) else { continue };
        let count = numbers.len();
        let same = ReducedAxes { keep_dims: false, ..region.over.clone() };
        let number = *numbers.entry(same).or_insert(count);
        let mut near: Vec<usize> = Vec::new();
        for input in &plan.values.inputs {
            if let Some(regions) = open.get_mut(&(number, maker(graph, *input))) {
                regions.retain(|at| !full[*at]);
                near.extend(&*regions);
            }
        }
        near.sort_unstable();
        near.dedup();
        let joined = near.into_iter().find_map(|at| {
            let (other, members) = &all[at];
            let pair = [other, &region].map(|region| region.roots[0].nodes[0]);
            let joined = join(graph, branches, [(other, members), (&region, &plan.members)]);
            graph.ask("reduce", pair, joined).map(|(both, joined)| (at, both, joined))
        });
        let (at, region, plan) = joined.unwrap_or((all.len(), region, plan));
        let is_full = plan.is_full();
        for input in plan.values.inputs {
            let regions = open.entry((number, maker(graph, input))).or_default();
            if !regions.contains(&at) {
                regions.push(at);
            }
            if regions.len() > MAX_OPEN {
                regions.remove(0);
            }
        }
        let found = (region, plan.members);
        if at == all.len() {
            all.push(found);
            full.push(is_full);
        } else {
            (all[at], full[at]) = (found, is_full);
        }
    }
    all.into_iter().map(|(region, _)| region).collect()
}

/// Two regions in one pass, given with the nodes that each takes in.
///
/// # Errors
/// The reason why they stay apart.
fn join(
    graph: &Graph,
    branches: &Branches,
    [(a, of_a), (b, of_b)]: [(&Region, &Vec<NodeId>); 2],
) -> Result<(Region, Replacement), Refusal> {
    branches.run_together(a.roots[0].nodes[0], b.roots[0].nodes[0])?;
    check(a.space.same_shape(&b.space), Refusal::OtherShape)?;
    let keep_dims = a.over.keep_dims || b.over.keep_dims;
    let both = Region {
        roots: [&a.roots[..], &b.roots].concat(),
        over: ReducedAxes { keep_dims, ..a.over.clone() },
        space: a.space.clone(),
    };
    let plan = both.plan(graph)?;
    // Values that one of the two computes must not be stored for both.
    let takes = |id: &NodeId| plan.members.binary_search(id).is_ok();
    check(of_a.iter().chain(of_b).all(takes), Refusal::ReadElsewhere).map(|()| (both, plan))
}
