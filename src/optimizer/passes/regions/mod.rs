//! Gathers nodes that need nothing from the host between them into `_WgpuRegion`s.
//!
//! A node belongs to a region if its kernel can run there ([`member`]). Regions are found by
//! levels: the level of a node is the most changes between regions and other nodes on a path to
//! it. A path that leaves the nodes of one level ends at a higher level, so it never comes back,
//! and one node can stand for them. Nodes of one level that no edges connect become regions of
//! their own, which need not wait for each other's inputs.
//!
//! A region reads its variables when it begins, and may change variables in the order of its nodes.
//! So a read that comes after a change is of a higher level than the change. A variable whose value
//! comes into a region from outside is not changed there ([`held`]).
//!
//! The other passes do not look into regions, so this one runs after them.

mod build;
mod held;
mod member;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::optimizer::branches::{Branches, Conditions};
use crate::optimizer::graph::{Frame, Graph, NodeId};
use member::{Member, Role, is_region};

/// The least number of nodes of a region, constants not counted.
const LEAST: usize = 3;
/// The number of rounds in which changes of held variables leave their regions. Then all changes
/// leave, so that time stays linear.
const ROUNDS: usize = 8;

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
    let mut members: FxHashMap<NodeId, Member> =
        order.iter().filter_map(|id| Some((*id, Member::of(graph, *id)?))).collect();
    let mut regions = connected(graph, order, &members);
    // Without a change a region may fall into two, so that other values come from outside.
    for round in 0..=ROUNDS {
        let held: Vec<NodeId> =
            regions.iter().flat_map(|region| held::changes(graph, region, &members)).collect();
        if held.is_empty() {
            break;
        }
        if round < ROUNDS {
            held.iter().for_each(|id| drop(members.remove(id)));
        } else {
            members.retain(|_, member| member.role != Role::Changes);
        }
        regions = connected(graph, order, &members);
    }
    let is_worth_it = |region: &Vec<NodeId>| {
        region.len() >= LEAST && region.iter().any(|id| members[id].role != Role::Reads)
    };
    let found: Vec<Vec<NodeId>> = regions.into_iter().filter(is_worth_it).collect();
    let sorted = found.iter().map(|region| in_order_of_execution(graph, region));
    sorted.map(|ids| ids.iter().filter_map(|id| members.remove(id)).collect()).collect()
}

/// Members of one kind and level that edges connect.
fn connected(
    graph: &Graph,
    order: &[NodeId],
    members: &FxHashMap<NodeId, Member>,
) -> Vec<Vec<NodeId>> {
    let role = |id: NodeId| match members.get(&id) {
        Some(member) => Some(member.role),
        None => is_region(graph, id).then_some(Role::Computes),
    };
    let levels = Levels::of(graph, order, role);
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
    roots.iter().filter_map(|root| regions.remove(root)).collect()
}

/// The level of each node, and for members their kind.
struct Levels<'g> {
    kinds: Vec<Option<Kind<'g>>>,
    levels: Vec<u32>,
}

impl<'g> Levels<'g> {
    fn of(graph: &'g Graph, order: &[NodeId], role: impl Fn(NodeId) -> Option<Role>) -> Self {
        let branches = Branches::of(graph, order);
        let mut all =
            Self { kinds: vec![None; graph.capacity()], levels: vec![0; graph.capacity()] };
        // Whether members of its kind and level change variables on a path to the node.
        let mut changed = vec![false; graph.capacity()];
        for id in order {
            let role = role(*id);
            let kind = role
                .map(|_| (graph.node(*id).device(), graph.frame(*id), branches.conditions(*id)));
            let before = || graph.preceding(*id).filter(|used| !graph.is_back_edge(*used, *id));
            let level = before()
                .map(|used| {
                    let theirs = all.kinds[used.index()];
                    all.levels[used.index()] + u32::from(theirs.is_some() && theirs != kind)
                })
                .max()
                .unwrap_or(0);
            let is_changed = kind.is_some()
                && before().any(|used| {
                    let at = used.index();
                    changed[at] && all.kinds[at] == kind && all.levels[at] == level
                });
            let is_late = is_changed && role == Some(Role::Reads);
            all.levels[id.index()] = level + u32::from(is_late);
            all.kinds[id.index()] = kind;
            changed[id.index()] = is_changed && !is_late || role == Some(Role::Changes);
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
