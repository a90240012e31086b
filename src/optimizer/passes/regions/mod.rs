//! Gathers nodes that need nothing from the host between them into `_WgpuRegion`s.
//!
//! A node belongs to a region if its kernel can run there ([`member`]). Regions are found by
//! levels: the level of a node is the most changes between regions and other nodes on a path to
//! it. A path that leaves the nodes of one level ends at a higher level, so it never comes back,
//! and one node can stand for them. Nodes of one level that no edges connect become regions of
//! their own, which need not wait for each other's inputs. An input that a node reads in host
//! memory parts it from the node that computes it on the device.
//!
//! A region reads its variables when it begins, and may change variables in the order of its nodes.
//! So a read that comes after a change is of a higher level than the change. A variable whose value
//! comes into a region from outside is not changed there ([`held`]).
//!
//! A node may wait for a value that another node of the step gives without an edge between the two,
//! such as one that leaves a queue. Nodes of a region wait for the same such nodes: otherwise the
//! value that goes into the queue could come from the region that waits for it.
//!
//! The other passes do not look into regions, so this one runs after them.

mod build;
mod held;
mod member;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::optimizer::branches::{Branches, Conditions};
use crate::optimizer::graph::{Frame, Graph, NodeId};
use crate::optimizer::outside::Outside;
use crate::optimizer::unions::Unions;
use member::{Member, Place, Role, is_region};

/// Ops that compute nothing.
const PLUMBING: &[&str] = &[
    "Const",
    "NoOp",
    "Placeholder",
    "VarHandleOp",
    "_Arg",
    "_DeviceArg",
    "_DeviceRetval",
    "_Retval",
];

/// Ops that wait for a value which another node of the step may give without an edge to them.
const WAITING: &[&str] = &[
    "AccumulatorTakeGradient",
    "BarrierTakeMany",
    "CollectiveBcastRecv",
    "CollectiveBcastRecvV2",
    "MapUnstage",
    "MapUnstageNoKey",
    "OrderedMapUnstage",
    "OrderedMapUnstageNoKey",
    "QueueDequeue",
    "QueueDequeueMany",
    "QueueDequeueManyV2",
    "QueueDequeueUpTo",
    "QueueDequeueUpToV2",
    "QueueDequeueV2",
    "Recv",
    "ResourceAccumulatorTakeGradient",
    "SparseAccumulatorTakeGradient",
    "Unstage",
    "_HostRecv",
    "_Recv",
];

/// The least number of nodes of a region, constants not counted.
const LEAST: usize = 3;
/// The number of rounds in which changes of held variables leave their regions. Then all changes
/// leave, so that time stays linear.
const ROUNDS: usize = 8;

/// A set of nodes of [`WAITING`] ops, a bit for each.
type Waits = u64;

/// What the nodes of a region have in common: their device, the loop that they are in, the
/// conditions under which they run, and the nodes of [`WAITING`] ops before them.
type Kind<'g> = (&'g str, Frame, Conditions, Waits);

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
    let Some(waits) = waits(graph, &order) else { return Ok(()) };
    let (regions, outside) = find(graph, &order, &waits);
    for (id, why) in outside.into_iter().filter(|(id, _)| is_told(graph, *id)).collect::<Vec<_>>() {
        graph.settle(vec![graph.original(id)], &Err(why));
    }
    for region in regions {
        let nodes = region.iter().map(|member| graph.original(member.id)).collect();
        let made = build::replace(graph, &region, checks);
        graph.settle(nodes, &made);
    }
    Ok(())
}

/// Whether people are told why a node is in no region: it computes something on our devices, or
/// with values of theirs.
fn is_told(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let mut beside = graph.used(id).chain(graph.users(id).iter().copied());
    graph.journal().is_some()
        && !PLUMBING.contains(&node.op())
        && !is_region(graph, id)
        && (node.on_wgpu() || beside.any(|other| graph.node(other).on_wgpu()))
}

/// The regions of a graph, each with its members in the order in which they run, and why the other
/// nodes are in none.
fn find(
    graph: &Graph,
    order: &[NodeId],
    waits: &[Waits],
) -> (Vec<Vec<Member>>, Vec<(NodeId, Outside)>) {
    let mut outside = Vec::new();
    let mut members: FxHashMap<NodeId, Member> = FxHashMap::default();
    for id in order {
        match Member::of(graph, *id) {
            Ok(member) => drop(members.insert(*id, member)),
            Err(why) => outside.push((*id, why)),
        }
    }
    let mut regions = connected(graph, order, waits, &members);
    // Without a change a region may fall into two, so that other values come from outside.
    for round in 0..=ROUNDS {
        let held: Vec<NodeId> =
            regions.iter().flat_map(|region| held::changes(graph, region, &members)).collect();
        if held.is_empty() {
            break;
        }
        let leaving = if round < ROUNDS {
            held
        } else {
            let changes = members.values().filter(|member| member.role == Role::Changes);
            changes.map(|member| member.id).collect()
        };
        for id in leaving {
            members.remove(&id);
            outside.push((id, Outside::Held));
        }
        regions = connected(graph, order, waits, &members);
    }
    let is_worth_it = |region: &Vec<NodeId>| {
        region.len() >= LEAST && region.iter().any(|id| members[id].role != Role::Reads)
    };
    let found: Vec<Vec<NodeId>> = regions.into_iter().filter(is_worth_it).collect();
    let sorted = found.iter().map(|region| in_order_of_execution(graph, region));
    let found =
        sorted.map(|ids| ids.iter().filter_map(|id| members.remove(id)).collect()).collect();
    outside.extend(members.into_keys().map(|id| (id, Outside::Small)));
    (found, outside)
}

/// Members of one kind and level that edges connect.
fn connected(
    graph: &Graph,
    order: &[NodeId],
    waits: &[Waits],
    members: &FxHashMap<NodeId, Member>,
) -> Vec<Vec<NodeId>> {
    let levels = Levels::of(graph, order, waits, members);
    let mut groups = Unions::new(graph.capacity());
    for id in members.keys() {
        for used in graph.used(*id).filter(|used| members.contains_key(used)) {
            if levels.are_equal(*id, used) {
                groups.join(id.index(), used.index());
            }
        }
    }
    let mut regions: FxHashMap<usize, Vec<NodeId>> = FxHashMap::default();
    let mut roots = Vec::new();
    for id in order.iter().filter(|id| members.contains_key(id)) {
        let root = groups.root(id.index());
        let region = regions.entry(root).or_default();
        if region.is_empty() {
            roots.push(root);
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
    fn of(
        graph: &'g Graph,
        order: &[NodeId],
        waits: &[Waits],
        members: &FxHashMap<NodeId, Member>,
    ) -> Self {
        let branches = Branches::of(graph, order);
        let mut all =
            Self { kinds: vec![None; graph.capacity()], levels: vec![0; graph.capacity()] };
        // Whether members of its kind and level change variables on a path to the node.
        let mut changed = vec![false; graph.capacity()];
        for id in order {
            let member = members.get(id);
            let role = match member {
                Some(member) => Some(member.role),
                None => is_region(graph, *id).then_some(Role::Computes),
            };
            let kind = role.map(|_| {
                let conditions = branches.conditions(*id);
                (graph.node(*id).device(), graph.frame(*id), conditions, waits[id.index()])
            });
            let before = || graph.preceding(*id).filter(|used| !graph.is_back_edge(*used, *id));
            let level = before()
                .map(|used| {
                    let theirs = all.kinds[used.index()];
                    all.levels[used.index()] + u32::from(theirs.is_some() && theirs != kind)
                })
                .max()
                .unwrap_or(0);
            // TensorFlow copies a tensor of the device for a node that reads it in host memory.
            let places = member.map_or(&[][..], |member| &member.places);
            let inputs = graph.node(*id).inputs().iter().zip(places);
            let copied = inputs.filter(|(_, place)| **place == Place::Host);
            let level = copied
                .filter(|(input, _)| all.kinds[input.node.index()].is_some())
                .map(|(input, _)| all.levels[input.node.index()] + 1)
                .fold(level, u32::max);
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

/// For each node the nodes of [`WAITING`] ops for which it waits. `None` if the graph has more of
/// them than a set holds.
fn waits(graph: &Graph, order: &[NodeId]) -> Option<Vec<Waits>> {
    let mut all: Vec<Waits> = vec![0; graph.capacity()];
    let mut count = 0;
    for id in order {
        let before = graph.preceding(*id).filter(|used| !graph.is_back_edge(*used, *id));
        let mut own = before.fold(0, |own, used| own | all[used.index()]);
        if WAITING.contains(&graph.node(*id).op()) {
            own |= Waits::checked_shl(1, count)?;
            count += 1;
        }
        all[id.index()] = own;
    }
    Some(all)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_in_a_region_or_has_a_reason() {
        let text = "preserve kept, out
            x = Placeholder -> float32[4]
            a = Exp(x) {T: float32} -> float32[4]
            b = Neg(a) {T: float32} -> float32[4]
            c = Tanh(b) {T: float32} -> float32[4]
            kept = Exp(c) {T: float32} -> float32[4]
            far = Neg(c) {T: float32} @CPU:0 -> float32[4]
            farther = Neg(far) {T: float32} @CPU:0 -> float32[4]
            farthest = Neg(farther) {T: float32} @CPU:0 -> float32[4]
            next = Switch(c, far) {T: float32} -> float32[4], float32[4]
            found = Where(c) {T: float32} -> int64[?, 1]
            own = Custom(c) -> float32[4]
            untyped = Exp(own) {T: float32}
            alone = Exp(own) {T: float32} -> float32[4]
            out = Custom(alone, untyped, found, next, farthest, kept)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run(&mut graph).unwrap();
        let placed = graph.journal().unwrap().placed();
        let region = |name: &str| placed[name].region.as_ref().map(|region| &**region);
        for name in ["a", "b", "c"] {
            assert_eq!(region(name), Ok("c/region"), "{name}");
        }
        for (name, why) in [
            ("kept", Outside::Preserved),
            ("far", Outside::Elsewhere("CPU:0".into())),
            ("next", Outside::ControlFlow),
            ("own", Outside::NotOurs),
            ("untyped", Outside::NoType),
            ("alone", Outside::Small),
        ] {
            assert_eq!(region(name), Err(&why), "{name}");
        }
        assert!(matches!(region("found"), Err(Outside::Host(_))));
        assert!(placed.contains_key("farthest"), "a node of the device reads it");
        assert!(!placed.contains_key("farther") && !placed.contains_key("x"));
    }
}
