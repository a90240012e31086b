//! Gathers nodes that need nothing from the host between them into `_WgpuRegion`s.
//!
//! A node belongs to a region if its kernel can run there ([`member`]). Regions are found by
//! levels: the level of a node is the most changes between regions and other nodes on a path to
//! it. A path that leaves the nodes of one level ends at a higher level, so it never comes back,
//! and one node can stand for them. Nodes of one level that no edges connect become regions of
//! their own, which need not wait for each other's inputs.
//!
//! The other passes do not look into regions, so this one runs after them.

mod build;
mod member;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::optimizer::branches::{Branches, Conditions};
use crate::optimizer::graph::{Frame, Graph, NodeId};
use member::{Member, is_region};

/// The least number of nodes of a region, constants not counted.
const LEAST: usize = 3;

/// What the nodes of a region have in common: their device, the loop that they are in, and the
/// conditions under which they run.
type Kind<'g> = (&'g str, Frame, Conditions);

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    gather(graph, false)
}

/// Runs the pass. The regions check their replays.
pub fn run_checked(graph: &mut Graph) -> Result<()> {
    gather(graph, true)
}

fn gather(graph: &mut Graph, checks: bool) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    for region in find(graph, &order) {
        build::replace(graph, &region, checks);
    }
    Ok(())
}

/// The regions of a graph, each with its members in the order in which they run.
fn find(graph: &Graph, order: &[NodeId]) -> Vec<Vec<Member>> {
    let members: FxHashMap<NodeId, Member> =
        order.iter().filter_map(|id| Some((*id, Member::of(graph, *id)?))).collect();
    if members.len() < LEAST {
        return Vec::new();
    }
    let levels = Levels::of(graph, order, |id| members.contains_key(&id) || is_region(graph, id));
    let mut groups = Groups::new(graph);
    for id in members.keys() {
        for used in graph.used(*id).filter(|used| members.contains_key(used)) {
            if levels.are_equal(*id, used) {
                groups.join(*id, used);
            }
        }
    }
    let mut regions: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
    let mut roots = Vec::new();
    for id in order.iter().filter(|id| members.contains_key(id)) {
        let region = regions.entry(groups.root(*id)).or_default();
        if region.is_empty() {
            roots.push(groups.root(*id));
        }
        region.push(*id);
    }
    let mut members = members;
    let found = roots.iter().filter_map(|root| regions.remove(root));
    let found = found.filter(|region| region.len() >= LEAST);
    let sorted = found.map(|region| in_order_of_execution(graph, &region));
    sorted.map(|ids| ids.iter().filter_map(|id| members.remove(id)).collect()).collect()
}

/// The level of each node, and for members their kind.
struct Levels<'g> {
    kinds: Vec<Option<Kind<'g>>>,
    levels: Vec<u32>,
}

impl<'g> Levels<'g> {
    fn of(graph: &'g Graph, order: &[NodeId], is_member: impl Fn(NodeId) -> bool) -> Self {
        let branches = Branches::of_control_flow(graph, order);
        let conditions = |id| branches.as_ref().map_or(0, |branches| branches.conditions(id));
        let mut all =
            Self { kinds: vec![None; graph.capacity()], levels: vec![0; graph.capacity()] };
        for id in order {
            let kind = || (graph.node(*id).device(), graph.frame(*id), conditions(*id));
            let kind = is_member(*id).then(kind);
            let level = graph
                .preceding(*id)
                .filter(|used| !graph.is_back_edge(*used, *id))
                .map(|used| {
                    let theirs = all.kinds[used.index()];
                    all.levels[used.index()] + u32::from(theirs.is_some() && theirs != kind)
                })
                .max();
            all.levels[id.index()] = level.unwrap_or(0);
            all.kinds[id.index()] = kind;
        }
        all
    }

    /// Whether two members are of one kind and level.
    fn are_equal(&self, a: NodeId, b: NodeId) -> bool {
        let of = |id: NodeId| (self.kinds[id.index()], self.levels[id.index()]);
        of(a) == of(b)
    }
}

/// Groups of nodes, each with a node that represents it.
struct Groups {
    parents: Vec<NodeId>,
}

impl Groups {
    fn new(graph: &Graph) -> Self {
        Self { parents: (0..graph.capacity() as u32).map(NodeId).collect() }
    }

    fn root(&mut self, mut id: NodeId) -> NodeId {
        while self.parents[id.index()] != id {
            let above = self.parents[self.parents[id.index()].index()];
            self.parents[id.index()] = above;
            id = above;
        }
        id
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b).index()] = a.min(b);
    }
}

/// The nodes in the order in which TensorFlow's executor runs them: a node follows those that were
/// ready before it.
fn in_order_of_execution(graph: &Graph, region: &[NodeId]) -> Vec<NodeId> {
    let mut missing: FxHashMap<NodeId, usize> = region.iter().map(|id| (*id, 0)).collect();
    for id in region {
        let inside = graph.used(*id).filter(|used| missing.contains_key(used)).count();
        missing.insert(*id, inside);
    }
    let mut sorted: Vec<NodeId> = region.iter().copied().filter(|id| missing[id] == 0).collect();
    let mut next = 0;
    while let Some(id) = sorted.get(next).copied() {
        next += 1;
        // A user occurs once for each edge.
        for user in graph.users(id) {
            if let Some(left) = missing.get_mut(user) {
                *left -= 1;
                if *left == 0 {
                    sorted.push(*user);
                }
            }
        }
    }
    sorted
}
