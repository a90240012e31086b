//! Which nodes one row program takes over: grown from a reduction, with copies of nodes that are cheaper computed than read.

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::member::{Extent, Role, Space, parameter};
use crate::kernels::fused::rows::program::Reduction;
use crate::kernels::fused::rows::text::MAX_TENSORS;
use crate::optimizer::graph::{Graph, NodeId, Output};

type Nodes = FxHashSet<NodeId>;

/// Most nodes in one program, which bounds the time in which drivers compile it.
const MAX_NODES: usize = 200;

/// The nodes of a program.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// Nodes that it replaces.
    pub members: Nodes,
    /// Nodes that it computes as well, while they stay for others.
    pub copies: Nodes,
}

/// A graph with its nodes in order, and rows.
pub struct Scene<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The rows.
    pub space: &'g Space,
    /// The nodes, each after those that it uses.
    order: &'g [NodeId],
    /// Each node's place in the order.
    places: Vec<usize>,
    /// What was asked before.
    roles: RefCell<FxHashMap<NodeId, Option<(Role, Extent)>>>,
    tensors: RefCell<FxHashMap<NodeId, Vec<Output>>>,
}

impl<'g> Scene<'g> {
    /// A graph whose nodes have this order, and rows.
    pub fn new(graph: &'g Graph, order: &'g [NodeId], space: &'g Space) -> Self {
        let mut places = vec![0; graph.capacity()];
        order.iter().enumerate().for_each(|(place, id)| places[id.index()] = place);
        Self { graph, space, order, places, roles: RefCell::default(), tensors: RefCell::default() }
    }

    /// What a node does in a program.
    pub fn role(&self, id: NodeId) -> Option<(Role, Extent)> {
        *self.roles.borrow_mut().entry(id).or_insert_with(|| self.space.role(self.graph, id))
    }

    /// The region around `seed`, if a program over it is worth while.
    pub fn region(&self, seed: NodeId) -> Option<Region> {
        let mut region = Region { members: self.grow(seed), copies: Nodes::default() };
        self.leave(&mut region);
        self.copy(&mut region);
        self.shrink(&mut region)?;
        self.is_useful(&region).then_some(region)
    }

    fn output(id: NodeId) -> Output {
        Output { node: id, port: 0 }
    }

    /// All nodes that can join without a path that leaves the region and comes back.
    fn grow(&self, seed: NodeId) -> Nodes {
        let graph = self.graph;
        let derived = self.derived();
        let mut region = Nodes::from_iter([seed]);
        loop {
            let before = region.len();
            // Nodes outside that depend on the region; what depends on them must stay outside.
            let mut after = vec![false; graph.capacity()];
            for id in self.order.iter().filter(|id| !region.contains(id)).copied().collect::<Vec<_>>() {
                let node = graph.node(id);
                let reads = node.inputs().iter().any(|i| region.contains(&i.node));
                let waits = node.controls().iter().any(|c| region.contains(c));
                // What a parameter waits for does not matter to who takes its value.
                let needs = |i: &&Output| after[i.node.index()] && parameter(graph, id, **i).is_none();
                let late = node.controls().iter().any(|c| after[c.index()]) || node.inputs().iter().any(|i| needs(&i));
                // What only waits for the region, as TensorFlow's constants make it, may be in the way of what reads both.
                if (reads || waits) && !late && region.len() < MAX_NODES && self.can_join(&region, id) {
                    region.insert(id);
                } else {
                    after[id.index()] = reads || waits || late;
                }
            }
            let mut ahead = vec![false; graph.capacity()];
            for id in self.order.iter().rev().filter(|id| !region.contains(id)).copied().collect::<Vec<_>>() {
                let output = Self::output(id);
                let is_read = graph.readers(output).any(|(user, _)| region.contains(&user));
                let early = graph.users(id).iter().any(|user| ahead[user.index()]);
                let joins = is_read && !early && region.len() < MAX_NODES;
                if joins && self.may_precede(&derived, id) && self.can_join(&region, id) {
                    region.insert(id);
                } else {
                    let mut readers = graph.readers(output).map(|(user, _)| user);
                    let needed = |user: NodeId| region.contains(&user) && parameter(graph, user, output).is_none();
                    let awaited = graph.waiters(id).any(|user| region.contains(&user));
                    ahead[id.index()] = early || awaited || readers.any(needed);
                }
            }
            if region.len() == before {
                return region;
            }
        }
    }

    /// Nodes whose values come from reductions of these rows.
    fn derived(&self) -> Nodes {
        let mut derived = Nodes::default();
        for id in self.order {
            let comes = |i: &Output| derived.contains(&i.node);
            match self.role(*id) {
                Some((Role::Reduce(_), _)) => drop(derived.insert(*id)),
                Some(_) if self.graph.node(*id).inputs().iter().any(comes) => drop(derived.insert(*id)),
                _ => {}
            }
        }
        derived
    }

    /// Whether a node ahead of the region may be computed in every stage that needs it. What is dear is only taken in where it is
    /// needed once, or where it comes from reductions itself, as the exponentials of softmax.
    fn may_precede(&self, derived: &Nodes, id: NodeId) -> bool {
        let is_row = matches!(self.role(id), Some((Role::Reduce(_), _) | (_, Extent::Row)));
        is_row || Space::is_cheap(self.graph, id) || derived.contains(&id) || self.graph.users(id).len() == 1
    }

    fn can_join(&self, region: &Nodes, id: NodeId) -> bool {
        match self.role(id) {
            // A tensor without the reduced axes has no place among the inputs.
            Some((role, Extent::Flat)) if !matches!(role, Role::Reduce(_)) => {
                let node = self.graph.node(id);
                let inputs = if role == Role::Copy { &node.inputs()[..1] } else { node.inputs() };
                inputs.iter().all(|i| region.contains(&i.node) || parameter(self.graph, id, *i).is_some())
            }
            Some((Role::Copy, Extent::Row)) => region.contains(&self.graph.node(id).inputs()[0].node),
            role => role.is_some(),
        }
    }

    /// The members and copies in order.
    pub fn nodes(&self, region: &Region) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = region.members.iter().chain(&region.copies).copied().collect();
        nodes.sort_unstable_by_key(|id| self.places[id.index()]);
        nodes
    }

    /// The inputs of a node that are tensors to a program: not parameters, and not what says axes or shapes.
    pub fn inputs(&self, id: NodeId) -> Vec<Output> {
        let found = || {
            let node = self.graph.node(id);
            let count = match self.role(id) {
                Some((Role::Reduce(_) | Role::Copy, _)) => 1,
                _ => node.inputs().len(),
            };
            node.inputs()[..count].iter().filter(|i| parameter(self.graph, id, **i).is_none()).copied().collect()
        };
        self.tensors.borrow_mut().entry(id).or_insert_with(found).clone()
    }

    /// The tensors that a program reads, in the order of their first use.
    pub fn tensors(&self, region: &Region) -> Vec<Output> {
        let mut tensors = Vec::new();
        for id in self.nodes(region) {
            for input in self.inputs(id) {
                let inside = region.members.contains(&input.node) || region.copies.contains(&input.node);
                if !inside && !tensors.contains(&input) {
                    tensors.push(input);
                }
            }
        }
        tensors
    }

    /// Whether a member's value is read by a node that stays.
    pub fn is_read_outside(&self, region: &Region, id: NodeId) -> bool {
        let stays = |user: NodeId| !region.members.contains(&user) && !self.is_dead(region, user);
        self.graph.readers(Self::output(id)).any(|(user, _)| stays(user))
    }

    /// Whether a copied node has no user of its own left.
    fn is_dead(&self, region: &Region, id: NodeId) -> bool {
        let mut users = self.graph.users(id).iter();
        region.copies.contains(&id) && users.all(|u| region.members.contains(u) || self.is_dead(region, *u))
    }

    /// The members whose values others read.
    pub fn exports(&self, region: &Region) -> Vec<NodeId> {
        let nodes = self.nodes(region);
        nodes.into_iter().filter(|id| region.members.contains(id) && self.is_read_outside(region, *id)).collect()
    }

    /// The nodes of the region whose values come from its reductions.
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

    /// Leaves to other reductions what they alone read and what costs no reduction of this region: they compute it as they go.
    fn leave(&self, region: &mut Region) {
        let behind = self.behind(region);
        for id in self.nodes(region).into_iter().rev() {
            let is_full = matches!(self.role(id), Some((_, Extent::Full)));
            let is_free = is_full && !behind.contains(&id) && self.graph.waiters(id).next().is_none();
            if is_free && self.feeds_reductions(region, id, 4) {
                region.members.remove(&id);
                region.copies.insert(id);
            }
        }
        self.drop_idle(region);
    }

    /// Whether readers outside exist, and all lead to reductions by elementwise nodes.
    fn feeds_reductions(&self, region: &Region, id: NodeId, depth: usize) -> bool {
        let outside: Vec<NodeId> =
            self.graph.readers(Self::output(id)).map(|(u, _)| u).filter(|u| !region.members.contains(u)).collect();
        let leads = |user: &NodeId| {
            let is_reduction = Reduction::of(self.graph.node(*user).op()).is_some();
            let is_elementwise = matches!(self.role(*user), Some((_, Extent::Full)));
            let known = region.copies.contains(user);
            is_reduction || known || (is_elementwise && depth > 0 && self.feeds_reductions(region, *user, depth - 1))
        };
        !outside.is_empty() && outside.iter().all(leads)
    }

    /// Takes in copies of the nodes whose values are cheaper computed than read.
    fn copy(&self, region: &mut Region) {
        loop {
            let known: FxHashSet<Output> = self.nodes(region).iter().flat_map(|id| self.inputs(*id)).collect();
            let next = self.tensors(region).into_iter().find(|t| self.is_cheaper_copied(&known, region, *t));
            let Some(next) = next.filter(|_| region.copies.len() < MAX_NODES) else { return };
            region.copies.insert(next.node);
        }
    }

    fn is_cheaper_copied(&self, known: &FxHashSet<Output>, region: &Region, tensor: Output) -> bool {
        let Some((role, extent)) = self.role(tensor.node) else { return false };
        let node = self.graph.node(tensor.node);
        if matches!(role, Role::Reduce(_)) || !node.controls().is_empty() || extent == Extent::Flat {
            return false;
        }
        let inputs = self.inputs(tensor.node);
        let is_inside = |i: &Output| region.members.contains(&i.node) || region.copies.contains(&i.node);
        let is_known = |i: &Output| known.contains(i) || is_inside(i);
        let is_small = |i: &Output| self.space.extent(&self.graph.info(*i)) != Some(Extent::Full);
        let narrows = |i: &Output| {
            let size = |o: &Output| self.graph.info(*o).dtype.map_or(usize::MAX, crate::dtype::DType::size);
            node.op() == "Cast" && size(i) < size(&tensor)
        };
        match extent {
            Extent::Full => {
                Space::is_cheap(self.graph, tensor.node)
                    && inputs.iter().all(|i| is_known(i) || is_small(i) || narrows(i))
            }
            _ => role != Role::Copy && inputs.iter().all(is_known),
        }
    }

    /// Gives up nodes at the edge of the region until it fits a program; `None` where nothing is left.
    fn shrink(&self, region: &mut Region) -> Option<()> {
        loop {
            let exports = self.exports(region).len();
            let count = self.tensors(region).len() + exports;
            if count <= MAX_TENSORS && exports > 0 {
                return Some(());
            }
            let users_inside = |id: NodeId| {
                self.graph.users(id).iter().any(|u| region.members.contains(u) || region.copies.contains(u))
            };
            let fed_inside = |id: NodeId| {
                let is_in = |i: &Output| region.members.contains(&i.node) || region.copies.contains(&i.node);
                self.graph.node(id).inputs().iter().any(is_in)
            };
            let cost = |id: NodeId| {
                let mut rest = region.clone();
                rest.members.remove(&id);
                self.drop_idle(&mut rest);
                self.tensors(&rest).len() + self.exports(&rest).len()
            };
            let edge: Vec<NodeId> = self.nodes(region).into_iter().filter(|id| region.members.contains(id)).collect();
            let is_edge = |id: &NodeId| !users_inside(*id) || !fed_inside(*id);
            let given_up = edge.into_iter().filter(is_edge).min_by_key(|id| {
                let is_reduced = matches!(self.role(*id), Some((Role::Reduce(_), _)));
                (cost(*id), is_reduced)
            })?;
            region.members.remove(&given_up);
            self.drop_idle(region);
        }
    }

    /// Drops copies that no member needs.
    fn drop_idle(&self, region: &mut Region) {
        for id in self.nodes(region).into_iter().rev() {
            let is_used = self.graph.users(id).iter().any(|u| region.members.contains(u) || region.copies.contains(u));
            if region.copies.contains(&id) && !is_used {
                region.copies.remove(&id);
            }
        }
    }

    /// Whether elements depend on a reduction of their row: a reduction that leads to nothing else is done better by itself.
    fn is_useful(&self, region: &Region) -> bool {
        let behind = self.behind(region);
        let is_full = |id: &&NodeId| matches!(self.role(**id), Some((_, Extent::Full)));
        region.members.iter().filter(|id| behind.contains(id)).any(|id| is_full(&id))
    }
}
