//! Growth of a region from a reduction: first over the nodes that depend on it, then over the nodes
//! on which it depends, as far as the cost of its program allows. If the cost stops the growth, the
//! region is cut where it reads and writes the fewest tensors.

use std::collections::BTreeSet;

use super::super::member::{Extent, Role, Space, parameter};
use super::{Nodes, Region, Scene};
use crate::kernels::fused::cost::BOUND;
use crate::optimizer::graph::NodeId;
use crate::optimizer::legality::{Legal, check};
use crate::optimizer::refusal::Refusal;

/// The name of the pass, for reasons.
const PASS: &str = "rowwise";
/// The largest number of nodes that one growth in one direction visits.
const MAX_VISITS: usize = 2048;

/// All nodes that can join without a path that leaves the region and comes back, as far as the cost
/// allows.
pub fn grow(scene: &Scene<'_>, seed: NodeId) -> Region {
    let region = Region { members: Nodes::from_iter([seed]), copies: Nodes::default() };
    let mut growth = Growth { scene, seed, region, joined: Vec::new(), is_full: false };
    loop {
        let before = growth.joined.len();
        growth.spread(true);
        growth.spread(false);
        if growth.is_full || growth.joined.len() == before {
            return growth.cut();
        }
    }
}

/// Whether a node has more users than a growth visits.
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

    /// Takes in nodes that depend on the region if `down`, and nodes on which it depends otherwise.
    fn spread(&mut self, down: bool) {
        let (scene, seed) = (self.scene, self.seed);
        let graph = scene.graph;
        let near = |id: NodeId| -> Vec<(u64, NodeId)> {
            let next = if down { graph.users(id).to_vec() } else { graph.used(id).collect() };
            let fits = |id: &NodeId| graph.ask(PASS, [*id, seed], scene.member(*id)).is_some();
            let fit = next.into_iter().filter(fits);
            fit.filter_map(|id| Some((graph.place(id)?, id))).collect()
        };
        let mut ahead: BTreeSet<(u64, NodeId)> = BTreeSet::new();
        let mut joined: Vec<NodeId> = self.region.members.iter().copied().collect();
        for _ in 0..MAX_VISITS {
            if self.is_full || down && joined.iter().any(|id| is_wide(scene, *id)) {
                return;
            }
            joined.drain(..).for_each(|id| ahead.extend(near(id)));
            let next = if down { ahead.pop_first() } else { ahead.pop_last() };
            let Some((_, id)) = next else { return };
            if !self.has(id)
                && (down || self.ask(id, self.may_precede(id)).is_some())
                && self.join(id, down)
            {
                joined.push(id);
            }
        }
    }

    /// Whether a path leads from the region to a node over other nodes, or the other way round if
    /// the node is in front of it. The control inputs of a parameter do not matter to a node that
    /// takes its value.
    fn detours(&self, id: NodeId, down: bool) -> bool {
        let Scene { graph, .. } = self.scene;
        let (members, one) = (&self.region.members, &Nodes::from_iter([id]));
        let (from, to) = if down { (members, one) } else { (one, members) };
        graph.detours(from, to, |id| {
            let inputs = self.scene.inputs(id).into_iter().map(|i| i.node);
            inputs.chain(graph.node(id).controls().iter().copied())
        })
    }

    /// The answer to a question about a node beside the region.
    fn ask<T>(&self, id: NodeId, answer: Result<T, Refusal>) -> Option<T> {
        self.scene.graph.ask(PASS, [id, self.seed], answer)
    }

    /// Takes a node in if its role and the cost allow it.
    fn join(&mut self, id: NodeId, down: bool) -> bool {
        let legal = self
            .can_join(id)
            .and_then(|()| check(!self.detours(id, down), Refusal::Cycle))
            .and_then(|()| self.scene.branches.run_together(self.seed, id));
        if self.ask(id, legal).is_none() {
            return false;
        }
        self.region.members.insert(id);
        if let Err(refusal) = Refusal::check_size(self.scene.cost(&self.region)) {
            self.region.members.remove(&id);
            self.is_full = true;
            let graph = self.scene.graph;
            let mut near = graph.used(id).chain(graph.users(id).iter().copied());
            if let Some(neighbour) = near.find(|near| self.has(*near)) {
                graph.refuse(PASS, [id, neighbour], refusal);
            }
            return false;
        }
        self.joined.push(id);
        true
    }

    fn can_join(&self, id: NodeId) -> Legal {
        let scene = self.scene;
        let fits = match scene.member(id)? {
            // A tensor without the reduced axes cannot be an input.
            (role, Extent::Flat) if !matches!(role, Role::Reduce(_)) => {
                let node = scene.graph.node(id);
                let inputs = if role == Role::Copy { &node.inputs()[..1] } else { node.inputs() };
                inputs.iter().all(|i| self.has(i.node) || parameter(scene.graph, id, *i).is_some())
            }
            // The value has readers in all rows, and is never stored: it can only be a copy.
            (_, Extent::Column) => return Err(Refusal::SmallValue),
            (Role::Copy, Extent::Row) => self.has(scene.graph.node(id).inputs()[0].node),
            _ => true,
        };
        check(fits, Refusal::Operand)
    }

    /// Checks that a node that the region reads may be computed in every stage that needs it. An
    /// expensive node is only taken in if it has one user, or if it comes from reductions itself,
    /// like the exponentials of softmax.
    fn may_precede(&self, id: NodeId) -> Legal {
        let scene = self.scene;
        check(!is_wide(scene, id), Refusal::ReadElsewhere)?;
        let mut readers = scene.graph.readers_in_any_order(Scene::output(id));
        check(readers.any(|(user, _)| self.has(user)), Refusal::Alone)?;
        let is_row = matches!(scene.role(id), Some((Role::Reduce(_), _) | (_, Extent::Row)));
        let fits = is_row
            || Space::is_cheap(scene.graph, id)
            || scene.graph.users(id).len() == 1
            || self.is_derived(id);
        check(fits, Refusal::ReadElsewhere)
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
