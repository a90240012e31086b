//! Fuses reductions over the innermost axes with the elementwise nodes around them, if the results
//! flow back into the elements that were reduced. One `_WgpuFusedRowwise` node replaces
//! normalizations, softmax and the like, and their gradients, as Keras writes them.
//!
//! A region starts at a reduction with known axes. It grows over elementwise nodes with the shape
//! of the reduced tensor or of its rows, and over other reductions of the same rows. [`member`]
//! tells which nodes can take part. [`grow`] and [`region`] choose among them, as far as the
//! [`estimate`] of the program's cost allows. [`build`] writes the program.

mod build;
mod estimate;
mod member;
mod region;

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NewNode, NodeId};
use crate::optimizer::legality::check;
use crate::optimizer::plan::by_saving;
use crate::optimizer::plan::cost::unwritten;
use crate::optimizer::refusal::Refusal;
use build::Replacement;
use member::Space;
use region::{Region, Scene};

/// Runs the pass. The largest rows come first, and gradients before other rows of the same size:
/// they recompute cheap values, so that the forward pass need not keep these.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(nodes) = graph.order() else { return Ok(()) };
    let branches = Branches::of(graph, &nodes);
    // Gradients are last in the order.
    let is_seed = |id: &NodeId| Space::may_seed(graph, *id);
    let seeds: Vec<NodeId> = nodes.iter().rev().copied().filter(is_seed).collect();
    let rows = |graph: &Graph, id: NodeId| graph.node(id).inputs().first().copied();
    let saving = |id| rows(graph, id).map_or(0, |rows| unwritten(graph.info(rows)));
    for seed in by_saving(seeds, saving) {
        if graph.contains(seed)
            && let Some(rows) = rows(graph, seed)
            && let planned = plan(graph, &branches, seed)
            && let Some((region, new)) = graph.ask("rowwise", [seed, rows.node], planned)
        {
            replace(graph, &region, new);
        }
    }
    Ok(())
}

/// The region around `seed`, and its replacement.
fn plan(
    graph: &Graph,
    branches: &Branches,
    seed: NodeId,
) -> Result<(Region, Replacement), Refusal> {
    let space = Space::of(graph, seed).ok_or(Refusal::Alone)?;
    let scene = Scene::new(graph, branches, &space);
    let region = scene.region(seed)?;
    let new = build::build(&scene, &region).ok_or(Refusal::Operand)?;
    check(is_acyclic(graph, &region, &new.node), Refusal::Cycle).map(|()| (region, new))
}

/// Whether no input and no control input of the new node depends on its outputs.
fn is_acyclic(graph: &Graph, region: &Region, new: &NewNode) -> bool {
    let members: Vec<NodeId> = region.members.iter().copied().collect();
    let controls = members.iter().flat_map(|id| graph.node(*id).controls());
    let needed = new.inputs.iter().map(|i| i.node).chain(controls.copied());
    let needed: FxHashSet<NodeId> = needed.filter(|id| !region.members.contains(id)).collect();
    !graph.reaches(&members, &needed, &FxHashSet::default())
}

fn replace(graph: &mut Graph, region: &Region, new: Replacement) {
    let mut members: Vec<NodeId> = region.members.iter().copied().collect();
    members.sort_unstable();
    // Copies that only the region used are removed with it.
    let mut copies: Vec<NodeId> = region.copies.iter().copied().collect();
    copies.sort_unstable();
    graph.replace_region(&members, new.node, &new.outputs);
    loop {
        let idle =
            |id: &NodeId| graph.users(*id).is_empty() && graph.node(*id).controls().is_empty();
        let Some(at) = copies.iter().position(idle) else { return };
        graph.remove(copies.swap_remove(at));
    }
}
