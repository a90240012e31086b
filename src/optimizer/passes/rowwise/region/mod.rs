//! The nodes that one row program replaces: a region grown from a reduction, with copies of nodes
//! that are cheaper to compute than to read.

mod grow;

use std::cell::RefCell;
use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use super::member::{Extent, Role, Space, parameter};
use crate::kernels::fused::cost::BOUND;
use crate::kernels::fused::rowwise::program::reduction;
use crate::kernels::fused::rowwise::text::MAX_TENSORS;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::refusal::Refusal;
use grow::grow;

/// A set of nodes.
pub type Nodes = FxHashSet<NodeId>;

/// The nodes of a program.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// The nodes that it replaces.
    pub members: Nodes,
    /// The nodes that it computes as well, while they stay in the graph for other readers.
    pub copies: Nodes,
}

impl Region {
    /// Whether its program computes a node.
    fn has(&self, id: NodeId) -> bool {
        self.members.contains(&id) || self.copies.contains(&id)
    }
}

/// The role of a node, or the reason why it has none.
type Membership = Result<(Role, Extent), Refusal>;

/// A graph and rows.
pub struct Scene<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The rows.
    pub space: &'g Space,
    /// The conditions under which nodes run.
    branches: &'g Branches,
    /// Roles and tensors found so far.
    roles: RefCell<FxHashMap<NodeId, Membership>>,
    tensors: RefCell<FxHashMap<NodeId, Vec<Output>>>,
}

impl<'g> Scene<'g> {
    /// A scene for a graph, the conditions of its nodes, and rows.
    pub fn new(graph: &'g Graph, branches: &'g Branches, space: &'g Space) -> Self {
        Self { graph, space, branches, roles: RefCell::default(), tensors: RefCell::default() }
    }

    /// The role of a node in a program, if it has one.
    pub fn role(&self, id: NodeId) -> Option<(Role, Extent)> {
        self.member(id).ok()
    }

    /// The role of a node in a program, or the reason why it has none.
    fn member(&self, id: NodeId) -> Membership {
        *self.roles.borrow_mut().entry(id).or_insert_with(|| self.space.role(self.graph, id))
    }

    /// The region around `seed`.
    ///
    /// # Errors
    /// The reason why no program for it is worthwhile.
    pub fn region(&self, seed: NodeId) -> Result<Region, Refusal> {
        let mut region = grow(self, seed);
        self.leave(&mut region);
        self.copy(&mut region);
        self.shrink(&mut region).ok_or(Refusal::TooManyTensors)?;
        check(self.is_useful(&region), Refusal::Alone).map(|()| region)
    }

    /// The value of a node.
    pub const fn output(id: NodeId) -> Output {
        Output { node: id, port: 0 }
    }

    /// The members and copies, in topological order.
    pub fn nodes(&self, region: &Region) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = region.members.iter().chain(&region.copies).copied().collect();
        nodes.sort_by_cached_key(|id| self.graph.place(*id));
        nodes
    }

    /// The inputs of a node that are tensors for a program. Parameters are not, and neither are
    /// inputs that give axes or shapes.
    pub fn inputs(&self, id: NodeId) -> Vec<Output> {
        let found = || {
            let node = self.graph.node(id);
            let count = match self.role(id) {
                Some((Role::Reduce(_) | Role::Copy, _)) => 1,
                _ => node.inputs().len(),
            };
            node.inputs()[..count]
                .iter()
                .filter(|i| parameter(self.graph, id, **i).is_none())
                .copied()
                .collect()
        };
        self.tensors.borrow_mut().entry(id).or_insert_with(found).clone()
    }

    /// The tensors that a program reads, in the order of their first use.
    pub fn tensors(&self, region: &Region) -> Vec<Output> {
        let mut tensors = Vec::new();
        for id in self.nodes(region) {
            for input in self.inputs(id) {
                if !region.has(input.node) && !tensors.contains(&input) {
                    tensors.push(input);
                }
            }
        }
        tensors
    }

    /// The members that have readers outside.
    pub fn exports(&self, region: &Region) -> Vec<NodeId> {
        let dead = self.dead(region);
        let stays = |user: NodeId| !region.members.contains(&user) && !dead.contains(&user);
        let is_read = |id: &NodeId| {
            self.graph.readers_in_any_order(Self::output(*id)).any(|(user, _)| stays(user))
        };
        let nodes = self.nodes(region);
        nodes.into_iter().filter(|id| region.members.contains(id) && is_read(id)).collect()
    }

    /// The copied nodes that have no user left in the graph.
    fn dead(&self, region: &Region) -> Nodes {
        let mut copies: Vec<NodeId> = region.copies.iter().copied().collect();
        copies.sort_by_cached_key(|id| Reverse(self.graph.place(*id)));
        let mut dead = Nodes::default();
        for id in copies {
            if self
                .graph
                .users(id)
                .iter()
                .all(|user| region.members.contains(user) || dead.contains(user))
            {
                dead.insert(id);
            }
        }
        dead
    }

    /// The nodes of the region whose values depend on its reductions.
    fn behind(&self, region: &Region) -> Nodes {
        let mut behind = Nodes::default();
        for id in self.nodes(region) {
            let is_reduced = matches!(self.role(id), Some((Role::Reduce(_), _)));
            if is_reduced || self.inputs(id).iter().any(|i| behind.contains(&i.node)) {
                behind.insert(id);
            }
        }
        behind
    }

    /// Leaves nodes to other reductions if only these read them outside the region, and they do not
    /// depend on a reduction of this region: the other reductions compute them on the way.
    fn leave(&self, region: &mut Region) {
        let behind = self.behind(region);
        for id in self.nodes(region).into_iter().rev() {
            let is_full = matches!(self.role(id), Some((_, Extent::Full)));
            let is_free =
                is_full && !behind.contains(&id) && self.graph.waiters(id).next().is_none();
            if is_free && self.feeds_reductions(region, id, 4, &mut FxHashMap::default()) {
                region.members.remove(&id);
                region.copies.insert(id);
            }
        }
        self.drop_idle(region);
    }

    /// Whether there are readers outside, and all of them lead to reductions through elementwise
    /// nodes. `known` holds the answers so far.
    fn feeds_reductions(
        &self,
        region: &Region,
        id: NodeId,
        depth: usize,
        known: &mut FxHashMap<(NodeId, usize), bool>,
    ) -> bool {
        if let Some(feeds) = known.get(&(id, depth)) {
            return *feeds;
        }
        let readers = self.graph.readers(Self::output(id)).map(|(user, _)| user);
        let outside: Vec<NodeId> = readers.filter(|u| !region.members.contains(u)).collect();
        let feeds = !outside.is_empty()
            && outside.iter().all(|user| {
                let is_reduction = reduction(self.graph.node(*user).op()).is_some();
                let is_elementwise = || matches!(self.role(*user), Some((_, Extent::Full)));
                is_reduction
                    || region.copies.contains(user)
                    || (depth > 0
                        && is_elementwise()
                        && self.feeds_reductions(region, *user, depth - 1, known))
            });
        known.insert((id, depth), feeds);
        feeds
    }

    /// Takes in copies of nodes that are cheaper to compute than to read.
    fn copy(&self, region: &mut Region) {
        loop {
            let known: FxHashSet<Output> =
                self.nodes(region).iter().flat_map(|id| self.inputs(*id)).collect();
            let next = self
                .tensors(region)
                .into_iter()
                .find(|t| self.is_cheaper_copied(&known, region, *t));
            let Some(next) = next else { return };
            region.copies.insert(next.node);
            if self.cost(region) > BOUND {
                region.copies.remove(&next.node);
                return;
            }
        }
    }

    fn is_cheaper_copied(
        &self,
        known: &FxHashSet<Output>,
        region: &Region,
        tensor: Output,
    ) -> bool {
        let Some((role, extent)) = self.role(tensor.node) else { return false };
        let node = self.graph.node(tensor.node);
        if matches!(role, Role::Reduce(_)) || !node.controls().is_empty() || extent == Extent::Flat
        {
            return false;
        }
        let inputs = self.inputs(tensor.node);
        let is_known = |i: &Output| known.contains(i) || region.has(i.node);
        let is_small = |i: &Output| self.space.extent(self.graph.info(*i)) != Some(Extent::Full);
        let narrows = |i: &Output| {
            let size = |o: &Output| {
                self.graph.info(*o).dtype.map_or(usize::MAX, crate::dtype::DType::size)
            };
            node.op() == "Cast" && size(i) < size(&tensor)
        };
        match extent {
            Extent::Full => {
                Space::is_cheap(self.graph, tensor.node)
                    && inputs.iter().all(|i| is_known(i) || is_small(i) || narrows(i))
            }
            // A dispatch for a few elements takes longer than computing them again in each row.
            Extent::Column => {
                role != Role::Copy && Space::is_cheap(self.graph, tensor.node) && inputs.len() < 2
            }
            Extent::Row | Extent::Flat => role != Role::Copy && inputs.iter().all(is_known),
        }
    }

    /// Drops nodes at the edge of the region until it fits a program; `None` if none is left.
    fn shrink(&self, region: &mut Region) -> Option<()> {
        loop {
            let exports = self.exports(region).len();
            let count = self.tensors(region).len() + exports;
            if count <= MAX_TENSORS && exports > 0 && self.cost(region) <= BOUND {
                return Some(());
            }
            let edge = Edge::of(self, region);
            let nodes = self.nodes(region).into_iter().filter(|id| region.members.contains(id));
            let given_up = nodes.filter(|id| edge.holds(*id)).min_by_key(|id| {
                let is_reduced = matches!(self.role(*id), Some((Role::Reduce(_), _)));
                (edge.tensors_without(*id), is_reduced)
            })?;
            region.members.remove(&given_up);
            self.drop_idle(region);
        }
    }

    /// Drops copies that no member needs.
    fn drop_idle(&self, region: &mut Region) {
        for id in self.nodes(region).into_iter().rev() {
            let is_used = self.graph.users(id).iter().any(|user| region.has(*user));
            if region.copies.contains(&id) && !is_used {
                region.copies.remove(&id);
            }
        }
    }

    /// Whether elements depend on a reduction of their row. A reduction without such elements runs
    /// better by itself.
    fn is_useful(&self, region: &Region) -> bool {
        let behind = self.behind(region);
        let is_full = |id: &&NodeId| matches!(self.role(**id), Some((_, Extent::Full)));
        region.members.iter().filter(|id| behind.contains(id)).any(|id| is_full(&id))
    }
}

/// The edge of a region, and its inputs and outputs without a given node there.
struct Edge<'s, 'g> {
    scene: &'s Scene<'g>,
    region: &'s Region,
    /// The nodes that nodes of the region read or wait for.
    used: Nodes,
    /// The number of nodes of the region that read each tensor.
    readers: FxHashMap<Output, usize>,
    exports: Nodes,
    tensors: usize,
}

impl<'s, 'g> Edge<'s, 'g> {
    fn of(scene: &'s Scene<'g>, region: &'s Region) -> Self {
        let (mut used, mut readers) = (Nodes::default(), FxHashMap::default());
        for id in region.members.iter().chain(&region.copies) {
            used.extend(scene.graph.used(*id));
            for tensor in Self::read(scene, *id) {
                *readers.entry(tensor).or_insert(0) += 1;
            }
        }
        let exports: Nodes = scene.exports(region).into_iter().collect();
        let tensors =
            readers.keys().filter(|tensor| !region.has(tensor.node)).count() + exports.len();
        Self { scene, region, used, readers, exports, tensors }
    }

    /// The tensors that a node reads, each once.
    fn read(scene: &Scene<'_>, id: NodeId) -> Vec<Output> {
        let mut tensors = scene.inputs(id);
        tensors.sort_unstable();
        tensors.dedup();
        tensors
    }

    /// Whether no node of the region uses `id`, or `id` reads no node of the region.
    fn holds(&self, id: NodeId) -> bool {
        !self.used.contains(&id)
            || !self.scene.graph.node(id).inputs().iter().any(|i| self.region.has(i.node))
    }

    /// The number of tensors that the region reads and writes without the member `id`.
    fn tensors_without(&self, id: NodeId) -> usize {
        let (scene, region) = (self.scene, self.region);
        // Copies may be dropped with it, and the inputs of others may have to be stored.
        if scene.graph.used(id).any(|used| region.copies.contains(&used)) {
            let mut rest = region.clone();
            rest.members.remove(&id);
            scene.drop_idle(&mut rest);
            return scene.tensors(&rest).len() + scene.exports(&rest).len();
        }
        let is_last = |tensor: &&Output| !region.has(tensor.node) && self.readers[tensor] == 1;
        let unread = Self::read(scene, id).iter().filter(is_last).count();
        let own = usize::from(self.readers.contains_key(&Scene::output(id)));
        let inputs = scene.graph.node(id).inputs().iter().filter(|i| i.port == 0).map(|i| i.node);
        let stored: Nodes =
            inputs.filter(|n| region.members.contains(n) && !self.exports.contains(n)).collect();
        self.tensors + own + stored.len() - unread - usize::from(self.exports.contains(&id))
    }
}
