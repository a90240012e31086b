//! Chains and bundles of elementwise nodes become one `_WgpuFusedElementwise` each.
//!
//! A group grows along edges from producers to consumers, then sideways to nodes that read the same
//! large tensor. All that leaves a group has one shape, that of its iteration. What is smaller may
//! be computed within when it costs next to nothing again and again; nothing larger is. Groups of
//! one shape grow first, so that what is small is divided into few nodes before large ones take
//! parts of it. Changes of shape between them come behind them first ([`sinking`]).

mod member;
mod region;
mod sinking;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::kernels::fused::cost::{self, BOUND};
use crate::kernels::fused::elementwise::fits;
use crate::layout::broadcast_dims;
use crate::optimizer::branches::Branches;
use crate::optimizer::clusters::Clusters;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::scalars::SameShapes;
use member::{Member, Uniforms, looking_through, recomputed};
use region::Region;

/// Most nodes of a group whose values are smaller than its iteration.
const MAX_SMALL: usize = 4;
/// Rounds of growing; a merge may make room for another.
const ROUNDS: usize = 3;
/// Most readers of a tensor before another one that it is tried with, where none of them has found
/// company yet.
const MAX_LONELY: usize = 8;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    sinking::run(graph);
    let Some(groups) = Groups::grow(graph) else { return Ok(()) };
    let regions: Vec<Region> = groups.regions();
    // What earlier regions gave is now a fused node's.
    let mut moved: FxHashMap<Output, Output> = FxHashMap::default();
    for mut region in regions {
        region
            .inputs
            .iter_mut()
            .for_each(|input| *input = moved.get(input).copied().unwrap_or(*input));
        let fused = region.emit(graph)?;
        moved.extend(
            region.outputs.iter().zip(0..).map(|(old, port)| (*old, Output { node: fused, port })),
        );
    }
    Ok(())
}

/// Groups of elementwise nodes, under way.
struct Groups<'g> {
    graph: &'g Graph,
    order: Arc<[NodeId]>,
    position: Vec<u32>,
    shapes: SameShapes<'g>,
    uniforms: Uniforms,
    members: FxHashMap<NodeId, Member>,
    /// Nodes without a group: views, and nodes that every reader computes again, see
    /// [`recomputed`].
    bypassed: FxHashSet<NodeId>,
    /// Members, and nodes that are computed again, that read what is behind a view.
    through: FxHashSet<NodeId>,
    clusters: Clusters,
    /// Under which conditions nodes run, where not all of them do.
    branches: Option<Branches>,
    /// By [`Clusters::group`].
    regions: FxHashMap<NodeId, Region>,
    /// Pairs of groups that did not merge, each with its size: as long as neither grows, they never
    /// will.
    refused: FxHashSet<(bool, [(NodeId, usize); 2])>,
}

impl<'g> Groups<'g> {
    fn grow(graph: &'g Graph) -> Option<Self> {
        let order = graph.order()?;
        let mut position = vec![0; graph.capacity()];
        order.iter().enumerate().for_each(|(at, id)| position[id.index()] = at as u32);
        let shapes = SameShapes::new(graph, &order);
        let uniforms = Uniforms::of(graph, &order);
        let is_read =
            |id: NodeId| graph.readers_in_any_order(Output { node: id, port: 0 }).next().is_some();
        let eligible = |id: &NodeId| !graph.is_preserved(*id) && is_read(*id);
        let members: FxHashMap<NodeId, Member> = (order.iter().filter(|id| eligible(id)))
            .filter_map(|id| Some((*id, Member::of(graph, &shapes, &uniforms, *id)?)))
            .collect();
        let mut bypassed = recomputed(graph, &order, &uniforms, &members);
        let through = looking_through(graph, &shapes, &uniforms, &members, &order, &bypassed);
        bypassed.extend(order.iter().filter(|id| matches!(members.get(id), Some(Member::View(_)))));
        let mut groups = Self {
            clusters: Clusters::bypassing(graph, &bypassed)?,
            branches: graph.has_control_flow().then(|| Branches::of(graph, &order)),
            regions: FxHashMap::default(),
            refused: FxHashSet::default(),
            graph,
            order,
            position,
            shapes,
            uniforms,
            members,
            bypassed,
            through,
        };
        for id in groups.order.clone().iter().copied() {
            if groups.is_member(id)
                && let Some(region) = groups.region(vec![id], Output { node: id, port: 0 })
            {
                groups.regions.insert(id, region);
            }
        }
        for _ in 0..ROUNDS {
            while groups.along_edges(true) + groups.sideways() > 0 {}
            if groups.along_edges(false) == 0 {
                break;
            }
        }
        Some(groups)
    }

    fn is_member(&self, id: NodeId) -> bool {
        self.members.contains_key(&id) && !self.bypassed.contains(&id)
    }

    fn is_view(&self, id: NodeId) -> bool {
        matches!(self.members.get(&id), Some(Member::View(_)))
    }

    /// Whether the group of `reader`, a member or a node that it computes again, computes `id`
    /// again, or does without it.
    fn does_without(&self, reader: NodeId, id: NodeId) -> bool {
        self.bypassed.contains(&id) && (!self.is_view(id) || self.through.contains(&reader))
    }

    /// Who reads what `id`, which `reader` does without, reads: itself if it computes.
    fn reader(&self, reader: NodeId, id: NodeId) -> NodeId {
        if self.is_view(id) { reader } else { id }
    }

    /// What a member reads, where that is stored.
    fn reads(&self, id: NodeId) -> impl Iterator<Item = Output> + '_ {
        let stored = move |mut tensor: Output| {
            let mut reader = id;
            while self.does_without(reader, tensor.node) {
                reader = self.reader(reader, tensor.node);
                tensor = self.graph.node(tensor.node).inputs()[0];
            }
            tensor
        };
        self.members[&id].arguments(self.graph.node(id).inputs()).iter().copied().map(stored)
    }

    /// What is behind views and what is computed again.
    fn behind(&self, mut tensor: Output) -> Output {
        while self.bypassed.contains(&tensor.node) {
            tensor = self.graph.node(tensor.node).inputs()[0];
        }
        tensor
    }

    /// Whether somebody outside of a group needs the value stored, itself or what is behind a view
    /// of it.
    fn leaves(&self, value: Output, inside: &FxHashSet<NodeId>) -> bool {
        let mut open = vec![(value, false)];
        while let Some((value, viewed)) = open.pop() {
            for (reader, _) in self.graph.readers_in_any_order(value) {
                let next = Output { node: reader, port: 0 };
                let is_bypassed = self.bypassed.contains(&reader);
                if is_bypassed && self.is_view(reader) {
                    open.push((next, true));
                } else if viewed && !self.through.contains(&reader) {
                    return true;
                } else if is_bypassed {
                    open.push((next, false));
                } else if !inside.contains(&reader) {
                    return true;
                }
            }
        }
        false
    }

    /// Merges producers into consumers, of the same shape alone if `same`; returns how often.
    fn along_edges(&mut self, same: bool) -> usize {
        let mut merged = 0;
        for id in self.order.clone().iter().copied() {
            if !self.is_member(id) {
                continue;
            }
            for input in self.reads(id).collect::<Vec<_>>() {
                merged += usize::from(self.try_merge(input.node, id, same));
            }
        }
        merged
    }

    /// Merges groups that iterate over the same shape and read the same tensor of that shape.
    fn sideways(&mut self) -> usize {
        let mut merged = 0;
        let mut readers: Vec<(u32, Output, NodeId)> = Vec::new();
        for id in self.order.iter().filter(|id| self.is_member(**id)) {
            readers.extend(
                self.reads(*id).map(|tensor| (self.position[tensor.node.index()], tensor, *id)),
            );
        }
        // In the order of tensors, then of readers; those next to each other run under the same
        // conditions, if any two do.
        let conditions =
            |id: NodeId| self.branches.as_ref().map(|branches| branches.conditions(id));
        readers.sort_by_key(|(position, tensor, id)| (*position, tensor.port, conditions(*id)));
        readers.dedup();
        for pair in readers.windows(2).filter(|w| w[0].1 == w[1].1) {
            let (tensor, a, b) = (pair[0].1, pair[0].2, pair[1].2);
            let large = |r: &Region| self.shapes.same(r.shape, tensor);
            if self.region_of(a).is_some_and(large) && self.region_of(b).is_some_and(large) {
                merged += usize::from(self.try_merge(a, b, true));
            }
        }
        merged + self.among_lonely(&readers)
    }

    /// Merges groups that read the same tensor, sorted by it, and are not worth a node. Groups
    /// between them keep them from being neighbours; once those are nodes, they would be.
    fn among_lonely(&mut self, readers: &[(u32, Output, NodeId)]) -> usize {
        let mut merged = 0;
        let mut before: Vec<NodeId> = Vec::new();
        let mut seen: Option<Output> = None;
        for (_, tensor, id) in readers {
            if seen != Some(*tensor) {
                before.clear();
                seen = Some(*tensor);
            }
            let is_lonely =
                |r: &Region| self.shapes.same(r.shape, *tensor) && !self.is_worth_a_node(r);
            if !self.region_of(*id).is_some_and(is_lonely) {
                continue;
            }
            for other in &before {
                merged += usize::from(self.try_merge(*other, *id, true));
            }
            if before.len() == MAX_LONELY {
                before.remove(0);
            }
            before.push(*id);
        }
        merged
    }

    fn region_of(&self, id: NodeId) -> Option<&Region> {
        self.regions.get(&self.clusters.group(id))
    }

    /// Merges the groups of two nodes if one node can replace both, and if they have the same shape
    /// where it must be the `same`; where it must not, `b` uses `a`.
    fn try_merge(&mut self, a: NodeId, b: NodeId, same: bool) -> bool {
        let (first, second) = (self.clusters.group(a), self.clusters.group(b));
        let (Some(x), Some(y)) = (self.regions.get(&first), self.regions.get(&second)) else {
            return false;
        };
        // What is computed again may count in both.
        if first == second || cost::elementwise(x.own + y.own) > BOUND {
            return false;
        }
        if self.graph.node(a).device() != self.graph.node(b).device() {
            return false;
        }
        if same && !self.shapes.same(x.shape, y.shape) {
            return false;
        }
        // A node runs when all that it reads is there: one that is always needed may not get an
        // input that is there in one branch alone.
        let conditions = |branches: &Branches| [a, b].map(|id| branches.conditions(id));
        if self.branches.as_ref().map(conditions).is_some_and(|[a, b]| a != b) {
            return false;
        }
        let pair = (same, [(first, x.members.len()), (second, y.members.len())]);
        if self.refused.contains(&pair) {
            return false;
        }
        let mut members = [&x.members[..], &y.members].concat();
        members.sort_unstable_by_key(|id| self.position[id.index()]);
        let region = self.region(members, y.shape);
        let Some(region) = region.filter(|_| self.clusters.merge(a, b)) else {
            self.refused.insert(pair);
            return false;
        };
        self.regions.remove(&first);
        self.regions.remove(&second);
        self.regions.insert(self.clusters.group(a), region);
        true
    }

    /// The group of these nodes, which are in topological order; `None` where one node cannot
    /// replace them.
    fn region(&self, members: Vec<NodeId>, shape: Output) -> Option<Region> {
        let graph = self.graph;
        let inside: FxHashSet<NodeId> = members.iter().copied().collect();
        let mut small = 0;
        let (mut read, mut outputs, mut repeats) = (Vec::new(), Vec::new(), false);
        let mut seen: FxHashSet<Output> = FxHashSet::default();
        let controls = outer_controls(graph, members[0], &inside);
        for id in &members {
            let value = Output { node: *id, port: 0 };
            let leaves = self.leaves(value, &inside);
            if leaves {
                outputs.push(value);
            }
            let repeats_here = matches!(self.members[id], Member::Repeat(_));
            if !self.shapes.same(value, shape) {
                small += 1;
                // A repetition of unknown extent may be an error.
                if repeats_here && self.graph.info(value).dims().is_none() {
                    return None;
                }
                if leaves || !self.members[id].is_cheap() || small > MAX_SMALL {
                    return None;
                }
            }
            // What waits for something else may not run at all where the others do.
            if self.branches.is_some() && outer_controls(graph, *id, &inside) != controls {
                return None;
            }
            repeats |= repeats_here;
            for input in self.reads(*id) {
                // A view that must be read as such comes between two members.
                if self.bypassed.contains(&input.node) && inside.contains(&self.behind(input).node)
                {
                    return None;
                }
                if !inside.contains(&input.node) && seen.insert(input) {
                    read.push(input);
                }
            }
        }
        let (constants, inputs) = self.split(&read, shape);
        let covered = !repeats || self.covers(&inputs, shape);
        let steps = self.steps(&members);
        let weight = |id: &NodeId| self.members[id].weight(graph.node(*id).inputs().len());
        let own = members.iter().map(weight).fold(0, u32::saturating_add);
        let all = steps.iter().map(|(id, _)| weight(id)).fold(0, u32::saturating_add);
        // What one node does cannot be divided.
        let small = members.len() == 1 || cost::elementwise(all) <= BOUND;
        (small && fits(inputs.len(), outputs.len())).then_some(Region {
            members,
            steps,
            own,
            shape,
            inputs,
            constants,
            outputs,
            covered,
        })
    }

    /// What a group computes, with what is computed again and views, in topological order.
    fn steps(&self, members: &[NodeId]) -> Vec<(NodeId, Member)> {
        let mut ids = members.to_vec();
        let mut seen: FxHashSet<NodeId> = members.iter().copied().collect();
        for id in members {
            let inputs = |reader: NodeId, id: NodeId| {
                self.graph.node(id).inputs().iter().map(move |input| (reader, input.node))
            };
            let mut above: Vec<(NodeId, NodeId)> = inputs(*id, *id).collect();
            while let Some((reader, input)) = above.pop() {
                if self.does_without(reader, input) && seen.insert(input) {
                    ids.push(input);
                    above.extend(inputs(self.reader(reader, input), input));
                }
            }
        }
        ids.sort_unstable_by_key(|id| self.position[id.index()]);
        ids.into_iter().map(|id| (id, self.members[&id])).collect()
    }

    /// Constants that can become parameters, and all other inputs: a constant may have a shape when
    /// the others give the iteration its shape without it.
    fn split(&self, read: &[Output], shape: Output) -> (Vec<(Output, f32)>, Vec<Output>) {
        let values: Vec<Option<f32>> = read.iter().map(|o| self.uniforms.value(*o)).collect();
        let rank = |o: Output| self.graph.info(o).rank();
        let tensors: Vec<Output> =
            read.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|(o, _)| *o).collect();
        let covered = self.covers(&tensors, shape);
        let (mut constants, mut inputs) = (Vec::new(), Vec::new());
        for (output, value) in read.iter().zip(values) {
            match value {
                Some(v) if covered || rank(*output) == Some(0) => constants.push((*output, v)),
                _ => inputs.push(*output),
            }
        }
        (constants, inputs)
    }

    /// Whether the tensors surely broadcast to the iteration's whole shape.
    fn covers(&self, tensors: &[Output], shape: Output) -> bool {
        if tensors.iter().any(|t| self.shapes.same(*t, shape)) {
            return true;
        }
        let dims = tensors.iter().map(|t| self.graph.info(*t).dims()).collect::<Option<Vec<_>>>();
        let (Some(dims), Some(want)) = (dims, self.graph.info(shape).dims()) else { return false };
        let both =
            dims.iter().try_fold(crate::tensor::Dims::new(), |all, d| broadcast_dims(&all, d));
        both.is_ok_and(|both| both[..] == want[..])
    }

    /// The groups that are worth a node of their own, in topological order.
    fn regions(self) -> Vec<Region> {
        let settled = self.regions.values().filter_map(|region| self.settled(region));
        let mut regions: Vec<Region> = settled.filter(is_more_than_one).collect();
        regions.sort_unstable_by_key(|r| self.position[r.members[0].index()]);
        regions
    }

    /// Whether one node comes in the place of a group.
    fn is_worth_a_node(&self, region: &Region) -> bool {
        match region.covered {
            true => is_more_than_one(region),
            false => self.settled(region).is_some_and(|r| is_more_than_one(&r)),
        }
    }

    /// The group, without repetitions where these alone give the iteration its shape.
    fn settled(&self, region: &Region) -> Option<Region> {
        if region.covered {
            return Some(region.clone());
        }
        let (repeats, others): (Vec<NodeId>, Vec<NodeId>) =
            region.members.iter().partition(|id| matches!(self.members[*id], Member::Repeat(_)));
        let inner = |id: &NodeId| self.reads(*id).any(|input| region.members.contains(&input.node));
        if others.is_empty() || repeats.iter().any(inner) {
            return None;
        }
        self.region(others, region.shape)
    }
}

/// Whether a group computes more than one node does.
fn is_more_than_one(region: &Region) -> bool {
    region.steps.iter().filter(|(_, member)| !matches!(member, Member::View(_))).nth(1).is_some()
}

/// What a node waits for outside of its group.
fn outer_controls(graph: &Graph, id: NodeId, inside: &FxHashSet<NodeId>) -> Vec<NodeId> {
    let mut controls: Vec<NodeId> =
        graph.node(id).controls().iter().copied().filter(|c| !inside.contains(c)).collect();
    controls.sort_unstable();
    controls
}
