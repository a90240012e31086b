//! Growth of a region from a reduction: first over the nodes that depend on it, then over the nodes
//! on which it depends, as far as the cost of its program allows. If the cost stops the growth, the
//! region is cut where it reads and writes the fewest tensors.

use std::collections::BTreeSet;

use super::super::member::{Extent, Role, Space, parameter};
use super::{Nodes, Region, Scene};
use crate::kernels::fused::cost::BOUND;
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::refusal::Refusal;

/// The largest number of nodes that one search for paths around a region visits. Nodes farther away
/// do not join.
const MAX_VISITS: usize = 2048;

/// All nodes that can join without a path that leaves the region and comes back, as far as the cost
/// allows.
pub fn grow(scene: &Scene<'_>, seed: NodeId) -> Region {
    let region = Region { members: Nodes::from_iter([seed]), copies: Nodes::default() };
    let mut growth = Growth { scene, seed, region, joined: Vec::new(), is_full: false };
    loop {
        let before = growth.joined.len();
        growth.down();
        growth.up();
        if growth.is_full || growth.joined.len() == before {
            return growth.cut();
        }
    }
}

/// The nodes to visit, by rank, and those of them that may join.
#[derive(Default)]
struct Ahead {
    nodes: BTreeSet<(u64, NodeId)>,
    open: Nodes,
}

impl Ahead {
    fn add(&mut self, scene: &Scene<'_>, id: NodeId, may_join: bool) {
        let Some(rank) = scene.graph.place(id) else { return };
        self.nodes.insert((rank, id));
        if may_join && scene.role(id).is_some() {
            self.open.insert(id);
        }
    }
}

/// Whether a node has more users than a search for paths visits.
fn is_wide(scene: &Scene<'_>, id: NodeId) -> bool {
    scene.graph.users(id).len() > MAX_VISITS
}

struct Growth<'s, 'g> {
    scene: &'s Scene<'g>,
    /// The reduction with which it begins.
    seed: NodeId,
    region: Region,
    /// The members except the first one, in the order in which they joined.
    joined: Vec<NodeId>,
    /// Whether a node was refused for its cost.
    is_full: bool,
}

impl Growth<'_, '_> {
    fn has(&self, id: NodeId) -> bool {
        self.region.members.contains(&id)
    }

    /// Takes in nodes that depend on the region.
    fn down(&mut self) {
        let scene = self.scene;
        let graph = scene.graph;
        let users = |id: NodeId| {
            let rank = scene.graph.place(id);
            graph.users(id).iter().copied().filter(move |user| scene.graph.place(*user) > rank)
        };
        // Nodes outside that depend on the region. Nodes that depend on these must stay outside.
        let mut after = Nodes::default();
        let mut ahead = Ahead::default();
        if self.region.members.iter().any(|id| is_wide(scene, *id)) {
            return;
        }
        self.region
            .members
            .iter()
            .flat_map(|id| users(*id))
            .for_each(|user| ahead.add(scene, user, true));
        for _ in 0..MAX_VISITS {
            if ahead.open.is_empty() || self.is_full {
                return;
            }
            let Some((_, id)) = ahead.nodes.pop_first() else { return };
            ahead.open.remove(&id);
            if self.has(id) {
                continue;
            }
            let node = graph.node(id);
            let reads = node.inputs().iter().any(|i| self.has(i.node));
            let waits = node.controls().iter().any(|c| self.has(*c));
            // The control inputs of a parameter do not matter to a node that takes its value.
            let needs = |i: &Output| after.contains(&i.node) && parameter(graph, id, *i).is_none();
            let late = node.controls().iter().any(|c| after.contains(c))
                || node.inputs().iter().any(needs);
            // A node that only waits for the region, like TensorFlow's constants, would otherwise
            // separate the region from nodes that read both.
            let joins = (reads || waits) && !late && self.join(id);
            if !joins && (reads || waits || late) {
                after.insert(id);
            }
            if joins || reads || waits || late {
                if is_wide(scene, id) {
                    return;
                }
                users(id).for_each(|user| ahead.add(scene, user, joins));
            }
        }
    }

    /// Takes in nodes on which the region depends.
    fn up(&mut self) {
        let scene = self.scene;
        let graph = scene.graph;
        let used = |id: NodeId| {
            let rank = scene.graph.place(id);
            graph.used(id).filter(move |used| scene.graph.place(*used) < rank)
        };
        // Nodes outside on which the region depends. Nodes on which these depend must stay outside.
        let mut before = Nodes::default();
        let mut ahead = Ahead::default();
        self.region
            .members
            .iter()
            .flat_map(|id| used(*id))
            .for_each(|used| ahead.add(scene, used, true));
        for _ in 0..MAX_VISITS {
            if ahead.open.is_empty() || self.is_full {
                return;
            }
            let Some((_, id)) = ahead.nodes.pop_last() else { return };
            ahead.open.remove(&id);
            if self.has(id) {
                continue;
            }
            if is_wide(scene, id) {
                before.insert(id);
                used(id).for_each(|used| ahead.add(scene, used, false));
                continue;
            }
            let output = Scene::output(id);
            let is_read = graph.readers_in_any_order(output).any(|(user, _)| self.has(user));
            let early = graph.users(id).iter().any(|user| before.contains(user));
            let joins = is_read && !early && self.may_precede(id) && self.join(id);
            if !joins {
                let mut readers = graph.readers_in_any_order(output).map(|(user, _)| user);
                let needed =
                    |user: NodeId| self.has(user) && parameter(graph, user, output).is_none();
                let awaited = graph
                    .users(id)
                    .iter()
                    .any(|user| self.has(*user) && graph.node(*user).controls().contains(&id));
                if !(early || awaited || readers.any(needed)) {
                    continue;
                }
                before.insert(id);
            }
            used(id).for_each(|used| ahead.add(scene, used, joins));
        }
    }

    /// Takes a node in if its role and the cost allow it.
    fn join(&mut self, id: NodeId) -> bool {
        if self.is_full || !self.can_join(id) {
            return false;
        }
        // The program runs once all its inputs exist, so that an input that exists in one branch
        // alone would take the other results away.
        if !self.scene.run_alike(self.seed, id) {
            self.scene.graph.refuse("rowwise", id, self.seed, Refusal::OtherConditions);
            return false;
        }
        self.region.members.insert(id);
        if self.scene.cost(&self.region) > BOUND {
            self.region.members.remove(&id);
            self.is_full = true;
            let graph = self.scene.graph;
            let mut near = graph.used(id).chain(graph.users(id).iter().copied());
            if let Some(neighbour) = near.find(|near| self.has(*near)) {
                graph.refuse("rowwise", id, neighbour, Refusal::TooLarge);
            }
            return false;
        }
        self.joined.push(id);
        true
    }

    fn can_join(&self, id: NodeId) -> bool {
        let scene = self.scene;
        match scene.role(id) {
            // A tensor without the reduced axes cannot be an input.
            Some((role, Extent::Flat)) if !matches!(role, Role::Reduce(_)) => {
                let node = scene.graph.node(id);
                let inputs = if role == Role::Copy { &node.inputs()[..1] } else { node.inputs() };
                inputs.iter().all(|i| self.has(i.node) || parameter(scene.graph, id, *i).is_some())
            }
            // The value has readers in all rows, and is never stored: it can only be a copy.
            Some((_, Extent::Column)) => false,
            Some((Role::Copy, Extent::Row)) => self.has(scene.graph.node(id).inputs()[0].node),
            role => role.is_some(),
        }
    }

    /// Whether a node before the region may be computed in every stage that needs it. An expensive
    /// node is only taken in if it has one user, or if it comes from reductions itself, like the
    /// exponentials of softmax.
    fn may_precede(&self, id: NodeId) -> bool {
        let scene = self.scene;
        let is_row = matches!(scene.role(id), Some((Role::Reduce(_), _) | (_, Extent::Row)));
        is_row
            || Space::is_cheap(scene.graph, id)
            || scene.graph.users(id).len() == 1
            || self.is_derived(id)
    }

    /// Whether a node's value depends on reductions of these rows.
    fn is_derived(&self, id: NodeId) -> bool {
        let mut seen = Nodes::from_iter([id]);
        let mut stack = vec![id];
        while let Some(id) = stack.pop().filter(|_| seen.len() < MAX_VISITS) {
            match self.scene.role(id) {
                Some((Role::Reduce(_), _)) => return true,
                Some(_) => {
                    let inputs = self.scene.graph.node(id).inputs().iter().map(|i| i.node);
                    stack.extend(inputs.filter(|input| seen.insert(*input)));
                }
                None => {}
            }
        }
        false
    }

    /// The region, if its cost was within the limit. Otherwise the smaller region with the least
    /// traffic, among those that use at least half of the allowed cost.
    fn cut(self) -> Region {
        let Self { scene, mut region, joined, is_full, .. } = self;
        if !is_full {
            return region;
        }
        let mut best = (scene.traffic(&region), region.clone());
        for id in joined.into_iter().rev() {
            region.members.remove(&id);
            if scene.cost(&region) < BOUND / 2 {
                break;
            }
            let traffic = scene.traffic(&region);
            if traffic < best.0 {
                best = (traffic, region.clone());
            }
        }
        best.1
    }
}
