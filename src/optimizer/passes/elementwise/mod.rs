//! Fuses chains and bundles of elementwise nodes into one `_WgpuFusedElementwise` each.
//!
//! Groups of neighbours merge: a producer with its consumer, and nodes that read the same large
//! tensor. The pairs that save most come first ([`plan`]). All outputs of a group have one shape,
//! that of its iteration. The group may also compute smaller values, if recomputing them costs next
//! to nothing, but no larger ones. Groups of one shape merge first, so that small nodes form a few
//! groups before large groups absorb some of them. Before all that, changes of shape between groups
//! are moved behind them ([`sinking`]).

pub mod integers;
mod member;
mod region;
mod sinking;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::kernels::fused::cost;
use crate::kernels::fused::elementwise::fits;
use crate::layout::broadcast_dims;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::clusters::Clusters;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{KnownShapes, SameShapes};
use crate::optimizer::plan::cost::{self as time, Nanos};
use crate::optimizer::plan::{Fusions, Parts, Planner, Saving};
use crate::optimizer::refusal::Refusal;
use member::{Member, Uniforms, looking_through, recomputed};
use region::Region;

/// The largest number of nodes of a group with values smaller than its iteration.
const MAX_SMALL: usize = 4;
/// The rounds of growth. A merge may make another one possible.
const ROUNDS: usize = 3;
/// The largest number of further readers of a tensor with which a reader is tried.
const MAX_READERS: usize = 8;

/// Two nodes whose groups may merge. The second one reads the first, or both read a tensor.
#[derive(Debug, Clone, Copy)]
struct Pair {
    nodes: [NodeId; 2],
    /// The tensor that both read.
    shared: Option<Output>,
    /// Whether other readers of the tensor lie between the two: once these are nodes of their own,
    /// the two would be neighbours. They merge if neither is worth a node.
    is_apart: bool,
    /// The time that a merge saves.
    saving: Nanos,
}

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    sinking::run(graph);
    let Some(groups) = Groups::grow(graph) else { return Ok(()) };
    let regions: Vec<Region> = groups.regions();
    // The outputs of earlier regions have become outputs of fused nodes.
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

/// Groups of elementwise nodes while they grow.
struct Groups<'g> {
    graph: &'g Graph,
    order: Arc<[NodeId]>,
    shapes: SameShapes<'g>,
    uniforms: Uniforms,
    /// Nodes that compute with int32 values of the device.
    integers: FxHashSet<NodeId>,
    members: FxHashMap<NodeId, Member>,
    /// Nodes without a group: views, and nodes that every reader computes again, see
    /// [`recomputed`].
    bypassed: FxHashSet<NodeId>,
    /// Members and recomputed nodes that read the input of a view instead of the view.
    through: FxHashSet<NodeId>,
    clusters: Clusters,
    /// The conditions under which nodes run.
    branches: Branches,
    /// The regions, by [`Clusters::group`].
    regions: FxHashMap<NodeId, Region>,
    /// Whether only groups of one shape merge now.
    same: bool,
}

impl<'g> Groups<'g> {
    fn grow(graph: &'g Graph) -> Option<Self> {
        let order = graph.order()?;
        let shapes = SameShapes::new(graph, &order);
        let uniforms = Uniforms::of(graph, &order);
        let integers = integers::on_device(graph, &order);
        let eligible = |id: &NodeId| !graph.is_preserved(*id) && graph.is_read(*id);
        let members: FxHashMap<NodeId, Member> = (order.iter().filter(|id| eligible(id)))
            .filter_map(|id| {
                Some((*id, Member::of(graph, &shapes, &uniforms, &integers, *id).ok()?))
            })
            .collect();
        let mut bypassed = recomputed(graph, &order, &uniforms, &members);
        let through = looking_through(graph, &shapes, &uniforms, &members, &order, &bypassed);
        bypassed.extend(order.iter().filter(|id| matches!(members.get(id), Some(Member::View(_)))));
        let mut groups = Self {
            clusters: Clusters::bypassing(graph, &bypassed)?,
            branches: Branches::of(graph, &order),
            regions: FxHashMap::default(),
            same: true,
            graph,
            order,
            shapes,
            uniforms,
            integers,
            members,
            bypassed,
            through,
        };
        for id in groups.order.clone().iter().copied() {
            if groups.is_member(id)
                && let Ok(region) = groups.region(vec![id], Output { node: id, port: 0 })
            {
                groups.regions.insert(id, region);
            }
        }
        let pairs = groups.pairs();
        let (mut alike, mut mixed) = (Planner::default(), Planner::default());
        for _ in 0..ROUNDS {
            groups.same = true;
            alike.fuse(&mut groups, &pairs);
            groups.same = false;
            if mixed.fuse(&mut groups, &pairs) == 0 {
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

    /// Whether the group of `reader` computes `id` again, or reads the input of `id` instead.
    /// `reader` is a member or a node that is computed again.
    fn does_without(&self, reader: NodeId, id: NodeId) -> bool {
        self.bypassed.contains(&id) && (!self.is_view(id) || self.through.contains(&reader))
    }

    /// The node whose inputs replace `id`, which `reader` does without: `reader` if `id` is a view,
    /// `id` itself if it is recomputed.
    fn reader(&self, reader: NodeId, id: NodeId) -> NodeId {
        if self.is_view(id) { reader } else { id }
    }

    /// The stored tensors that a member reads.
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

    /// The tensor above all views and recomputed nodes.
    fn behind(&self, mut tensor: Output) -> Output {
        while self.bypassed.contains(&tensor.node) {
            tensor = self.graph.node(tensor.node).inputs()[0];
        }
        tensor
    }

    /// Whether a node outside of a group needs the value stored, either the value itself or a view
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

    /// All pairs of neighbours.
    fn pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let mut readers: Vec<(Option<u64>, Output, NodeId)> = Vec::new();
        for id in self.order.iter().copied().filter(|id| self.is_member(*id)) {
            let value = Output { node: id, port: 0 };
            for tensor in self.reads(id) {
                readers.push((self.graph.place(tensor.node), tensor, id));
                let Some(member) = self.members.get(&tensor.node) else { continue };
                // The tensor is neither written nor read. A smaller one is computed again.
                let is_small = !self.shapes.same(tensor, value);
                let weight = if is_small { member.weight() } else { 0 };
                let saving = (time::LAUNCH + 2 * time::transfer(self.graph.info(tensor)))
                    .saturating_sub(time::computation(weight, self.graph.info(value)));
                let nodes = [tensor.node, id];
                pairs.push(Pair { nodes, shared: None, is_apart: false, saving });
            }
        }
        // Sorted by tensors, then by readers. Readers next to each other run under the same
        // conditions, if any two of them do.
        let conditions = |id: NodeId| self.branches.conditions(id);
        readers.sort_by_key(|(position, tensor, id)| (*position, tensor.port, conditions(*id)));
        readers.dedup();
        for (at, (_, tensor, id)) in readers.iter().enumerate() {
            let saving = time::LAUNCH + time::transfer(self.graph.info(*tensor));
            let others = readers[at + 1..].iter().take(MAX_READERS).take_while(|r| r.1 == *tensor);
            pairs.extend(others.enumerate().map(|(between, (.., other))| {
                let (nodes, shared, is_apart) = ([*id, *other], Some(*tensor), between > 0);
                Pair { nodes, shared, is_apart, saving }
            }));
        }
        pairs
    }

    fn region_of(&self, id: NodeId) -> Option<&Region> {
        self.regions.get(&self.clusters.group(id))
    }

    /// The region of these nodes, which are in topological order, or the reason why one node cannot
    /// replace them.
    fn region(&self, members: Vec<NodeId>, shape: Output) -> Result<Region, Refusal> {
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
                // A repetition of unknown extent may fail.
                if repeats_here && self.graph.info(value).dims().is_none() {
                    return Err(Refusal::OtherShape);
                }
                if leaves || !self.members[id].is_cheap() || small > MAX_SMALL {
                    return Err(Refusal::SmallValue);
                }
            }
            // A node that waits for other nodes may not run at all where the members without that
            // wait do.
            if graph.has_control_flow() && outer_controls(graph, *id, &inside) != controls {
                return Err(Refusal::OtherConditions);
            }
            repeats |= repeats_here;
            for input in self.reads(*id) {
                // A view that must be read as such lies between two members.
                if self.bypassed.contains(&input.node) && inside.contains(&self.behind(input).node)
                {
                    return Err(Refusal::OtherShape);
                }
                if !inside.contains(&input.node) && seen.insert(input) {
                    read.push(input);
                }
            }
        }
        let (constants, inputs) = self.split(&read, shape);
        let covered = !repeats || self.covers(&inputs, shape);
        let steps = self.steps(&members);
        let all = steps.iter().map(|(_, step)| step.weight()).fold(0, u32::saturating_add);
        // A single node is accepted at any cost, for it cannot be divided.
        if members.len() > 1 {
            Refusal::check_size(cost::elementwise(all))?;
        }
        if !fits(inputs.len(), outputs.len()) {
            return Err(Refusal::TooManyTensors);
        }
        Ok(Region { members, steps, shape, inputs, constants, outputs, covered })
    }

    /// The computations of a group, with recomputed nodes and views, in topological order.
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
        ids.sort_by_cached_key(|id| self.graph.place(*id));
        ids.into_iter().map(|id| (id, self.members[&id])).collect()
    }

    /// Separates the constants that can become parameters from all other inputs. A constant with a
    /// shape can become one if the other inputs give the iteration its shape.
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

    /// Whether the tensors certainly broadcast to the whole shape of the iteration.
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

    /// The groups that are worth a node, in topological order.
    fn regions(self) -> Vec<Region> {
        let settled = self.regions.values().filter_map(|region| self.settled(region));
        let trimmed = settled.map(|region| self.without_ends(region));
        let mut regions: Vec<Region> = trimmed.filter(|region| self.is_enough(region)).collect();
        regions.sort_by_cached_key(|r| self.graph.place(r.members[0]));
        regions
    }

    /// Whether a node replaces the group.
    fn is_worth_a_node(&self, region: &Region) -> bool {
        match region.covered {
            true => self.is_enough(region),
            false => self.settled(region).is_some_and(|r| self.is_enough(&r)),
        }
    }

    /// Whether a fused node gains anything: it replaces more than one node, or one that would
    /// compute on the host.
    fn is_enough(&self, region: &Region) -> bool {
        let computes = |id: &NodeId| self.integers.contains(id) && !self.is_bitcast(*id);
        is_more_than_one(region) || region.members.iter().any(computes)
    }

    fn is_bitcast(&self, id: NodeId) -> bool {
        self.members.get(&id).is_some_and(|member| member.is_bitcast())
    }

    /// The group, without bitcasts at its ends that would write what memory holds anyway: a
    /// `Bitcast` of its own is another name for the memory of its input.
    fn without_ends(&self, region: Region) -> Region {
        let is_end = |id: &NodeId| {
            let value = Output { node: *id, port: 0 };
            let is_stored = |input: Output| {
                !region.members.contains(&input.node) || region.outputs.contains(&input)
            };
            self.is_bitcast(*id)
                && region.outputs.contains(&value)
                && !self.graph.readers(value).any(|(id, _)| region.members.contains(&id))
                && self.reads(*id).all(is_stored)
        };
        let (ends, others): (Vec<NodeId>, Vec<NodeId>) =
            region.members.iter().partition(|id| is_end(id));
        if ends.is_empty() || others.is_empty() {
            return region;
        }
        self.region(others, region.shape).map_or(region, |rest| self.without_ends(rest))
    }

    /// The group, without its repetitions if only they give the iteration its shape.
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
        self.region(others, region.shape).ok()
    }
}

impl Fusions for Groups<'_> {
    type Candidate = Pair;

    fn refuse(&self, pair: Pair, refusal: Refusal) {
        self.graph.refuse("elementwise", pair.nodes, refusal);
    }

    fn parts(&self, pair: Pair) -> Parts {
        pair.nodes.map(|id| {
            let group = self.clusters.group(id);
            (group.index(), self.regions.get(&group).map_or(0, |region| region.members.len()))
        })
    }

    fn saving(&self, pair: Pair) -> Option<Saving> {
        let [a, b] = pair.nodes.map(|id| self.clusters.group(id));
        (a != b).then_some(Saving { comes_first: !pair.is_apart, time: pair.saving })
    }

    /// Merges the groups if one node can replace both. With [`Groups::same`], they must have the
    /// same shape. Otherwise the second node must use the first. Readers of a tensor merge only if
    /// the groups have the tensor's shape.
    fn fuse(
        &mut self,
        Pair { nodes: [a, b], shared, is_apart, .. }: Pair,
    ) -> Result<bool, Refusal> {
        let (Some(x), Some(y)) = (self.region_of(a), self.region_of(b)) else { return Ok(false) };
        let fits = |region: &Region| {
            let reads = |tensor| self.same && self.shapes.same(region.shape, tensor);
            shared.is_none_or(reads) && !(is_apart && self.is_worth_a_node(region))
        };
        if !fits(x) || !fits(y) {
            return Ok(false);
        }
        self.graph.share_device(a, b)?;
        if self.same && !self.shapes.same(x.shape, y.shape) {
            return Err(Refusal::OtherShape);
        }
        self.branches.run_together(a, b)?;
        let mut members = [&x.members[..], &y.members].concat();
        members.sort_by_cached_key(|id| self.graph.place(*id));
        let region = self.region(members, y.shape)?;
        let old = [a, b].map(|id| self.clusters.group(id));
        if !self.clusters.merge(a, b) {
            return Err(Refusal::Cycle);
        }
        old.iter().for_each(|group| {
            self.regions.remove(group);
        });
        self.regions.insert(self.clusters.group(a), region);
        Ok(true)
    }
}

/// Whether a group computes more than one node does.
fn is_more_than_one(region: &Region) -> bool {
    let computes = |member: Member| !matches!(member, Member::View(_)) && !member.is_bitcast();
    region.steps.iter().filter(|(_, member)| computes(*member)).nth(1).is_some()
}

/// The control inputs of a node from outside its group.
fn outer_controls(graph: &Graph, id: NodeId, inside: &FxHashSet<NodeId>) -> Vec<NodeId> {
    let mut controls: Vec<NodeId> =
        graph.node(id).controls().iter().copied().filter(|c| !inside.contains(c)).collect();
    controls.sort_unstable();
    controls
}
