//! Elementwise values that gradients recompute.
//!
//! The gradient of a GELU reads three intermediate values of the forward pass. Each would be
//! written for it and read again, and each is as large as the activation. But all of them follow
//! from the activation's argument, which is stored anyway. So nodes that need such a value later
//! compute it from the argument. The forward pass can then be one epilogue.
//!
//! A value is recomputed if it has only elementwise readers, of which some run with it and others
//! later, after a product or a reduction; and if it follows by a few functions from one stored
//! tensor that is not the result of a reduction: row-wise fusion keeps the values it needs. A value
//! that follows from two vectors, such as the products of the scales of rows and of columns, is
//! recomputed from them: they have fewer elements than the value.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::meaning::{Engine, KnownShapes, Meaning, SameShapes, Scalar, scalar};
use crate::optimizer::shape::Dim;

/// The largest number of recomputed nodes for one value, and their weight ([`Scalar::again`]).
const MAX_NODES: usize = 24;
const MAX_WEIGHT: u32 = 256;
/// The largest number of vectors of which a product or another value is recomputed, and the largest
/// weight of that value.
const MAX_FACTORS: usize = 2;
const MAX_OUTER_WEIGHT: u32 = 32;
/// The fewest elements of a value for each one of a tensor that is broadcast to it. An unknown
/// extent, such as a batch, counts as many: it costs little if it is not.
const MANY: usize = 16;
/// The largest number of a value's readers that are considered.
const MAX_USERS: usize = 32;

/// Ops that cost nothing, or no more than elementwise ops.
const LIGHT: &[&str] = &[
    "BiasAdd",
    "BroadcastGradientArgs",
    "BroadcastTo",
    "Const",
    "ExpandDims",
    "Identity",
    "Placeholder",
    "ReadVariableOp",
    "Reshape",
    "Shape",
    "Squeeze",
    "StopGradient",
    "Tile",
    "_Arg",
];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if graph.has_control_flow() {
        return Ok(());
    }
    let wanted = Values::of(graph, &order).wanted(&order);
    let mut again: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
    // The last values come first: a copy reads the copies for its own readers, not those for
    // earlier ones.
    for Wanted { nodes, readers } in wanted.into_iter().rev() {
        for (reader, level) in readers {
            let value = *nodes.last().expect("a value is one of its nodes");
            for id in &nodes {
                if !again.contains_key(&(*id, level)) {
                    let new = copy(graph, *id, level, &again);
                    again.insert((*id, level), new);
                }
            }
            let new = Output { node: again[&(value, level)], port: 0 };
            let old = Output { node: value, port: 0 };
            let places: Vec<usize> =
                graph.readers(old).filter(|(id, _)| *id == reader).map(|(_, k)| k).collect();
            places.into_iter().for_each(|k| graph.set_input(reader, k, new));
        }
    }
    Ok(())
}

/// A copy of the node, which reads the copies for `level`.
fn copy(
    graph: &mut Graph,
    id: NodeId,
    level: u32,
    again: &FxHashMap<(NodeId, u32), NodeId>,
) -> NodeId {
    let node = graph.node(id);
    let input = |input: &Output| match again.get(&(input.node, level)) {
        Some(copy) => Output { node: *copy, port: input.port },
        None => *input,
    };
    let name = node.name().to_owned();
    let (op, device) = (node.op().to_owned(), node.device().to_owned());
    let (inputs, infos) = (node.inputs().iter().map(input).collect(), node.infos().to_vec());
    let attrs: Vec<_> = node.attrs().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let new = NewNode {
        name: format!("{name}/again"),
        op,
        device,
        inputs,
        controls: Vec::new(),
        attrs: Vec::new(),
        infos,
    };
    let new = graph.add(new);
    attrs.into_iter().for_each(|(name, value)| graph.set_attr(new, &name, value));
    new
}

/// A value to be recomputed.
struct Wanted {
    /// The nodes that compute it, each after its inputs; the last one is the value.
    nodes: Vec<NodeId>,
    /// The readers of the copy, and the level of each.
    readers: Vec<(NodeId, u32)>,
}

/// The elementwise nodes of a graph.
struct Values<'g> {
    graph: &'g Graph,
    shapes: SameShapes<'g>,
    /// The scalar function of each node, if it is elementwise.
    scalars: Vec<Option<Scalar>>,
    /// Whether the node may be copied. Gradients have control edges that forbid it.
    plain: Vec<bool>,
    /// The number of products, reductions and the like that come before each node is first needed.
    levels: Vec<u32>,
    /// The values that will be recomputed.
    again: FxHashSet<NodeId>,
}

impl<'g> Values<'g> {
    fn of(graph: &'g Graph, order: &[NodeId]) -> Self {
        let shapes = SameShapes::new(graph, order);
        let mut scalars = vec![None; graph.capacity()];
        let mut plain = vec![false; graph.capacity()];
        // The level at which each node may begin, and the level for its readers.
        let (mut levels, mut behind) = (vec![0; graph.capacity()], vec![0; graph.capacity()]);
        for id in order {
            let node = graph.node(*id);
            plain[id.index()] = graph.may_move_freely(*id).is_ok();
            let scalar = scalar(graph, &shapes, *id, Engine::Loop).ok();
            // An input with a single element does not count for the levels, nor does a control
            // input of a gradient.
            let large = node.inputs().iter().filter(|i| graph.info(**i).len() != Some(1));
            levels[id.index()] = large.map(|i| behind[i.node.index()]).max().unwrap_or(0);
            let heavy = scalar.is_none() && !LIGHT.contains(&node.op());
            behind[id.index()] = levels[id.index()] + u32::from(heavy);
            scalars[id.index()] = scalar.filter(|s| s.call.output().is_float());
        }
        // An elementwise node is needed when the first of its readers is.
        for id in order.iter().rev().filter(|id| scalars[id.index()].is_some()) {
            let readers = graph.users(*id).iter().map(|user| levels[user.index()]);
            levels[id.index()] = readers.min().unwrap_or(levels[id.index()]);
        }
        Self { graph, shapes, scalars, plain, levels, again: FxHashSet::default() }
    }

    fn wanted(mut self, order: &[NodeId]) -> Vec<Wanted> {
        let mut all = Vec::new();
        for id in order {
            if let Some(wanted) = self.value(*id) {
                self.again.insert(*id);
                all.push(wanted);
            }
        }
        all
    }

    /// The recomputation of a value, if it is worthwhile.
    fn value(&self, id: NodeId) -> Option<Wanted> {
        let readers = self.readers(id)?;
        if readers.later.is_empty() || !readers.are_elementwise {
            return None;
        }
        let mut found = Search::default();
        self.collect(id, Output { node: id, port: 0 }, &mut found)?;
        let is_light = found.weight <= MAX_OUTER_WEIGHT;
        match (found.leaf, found.factors.len()) {
            (Some(_), 0) => {}
            (None, 1..=MAX_FACTORS) if is_light => {}
            _ => return None,
        }
        Some(Wanted { nodes: found.nodes, readers: readers.later })
    }

    /// Appends the nodes of a value, down to stored tensors.
    fn collect(&self, id: NodeId, of: Output, found: &mut Search) -> Option<()> {
        if !found.seen.insert(id) {
            return Some(());
        }
        let scalar = self.scalars[id.index()].filter(|_| self.plain[id.index()])?;
        let node = self.graph.node(id);
        found.weight = found.weight.saturating_add(scalar.again());
        if found.seen.len() > MAX_NODES || found.weight > MAX_WEIGHT {
            return None;
        }
        for input in node.inputs() {
            if input.port == 0 && !self.is_stored(input.node) {
                self.collect(input.node, of, found)?;
            } else if self.is_factor(*input, of) {
                if !found.factors.contains(input) {
                    found.factors.push(*input);
                }
            } else if self.graph.info(*input).len() != Some(1) && found.leaf != Some(*input) {
                // A second tensor would have to be read as well.
                let made = Meaning::of(self.graph.node(input.node));
                let of_reduction = matches!(made, Meaning::Fold(_));
                if found.leaf.is_some() || of_reduction || !self.shapes.same(*input, of) {
                    return None;
                }
                found.leaf = Some(*input);
            }
        }
        found.nodes.push(id);
        Some(())
    }

    /// Whether a tensor is broadcast along a dimension in which `of` has many elements.
    fn is_factor(&self, input: Output, of: Output) -> bool {
        let (input, of) = (self.graph.info(input), self.graph.info(of));
        let (Some(dims), Some(all)) = (&input.shape, &of.shape) else { return false };
        let more = all.len().saturating_sub(dims.len());
        let own = std::iter::repeat_n(&Dim::Known(1), more).chain(dims);
        let is_many = |extent: &Dim| extent.known().is_none_or(|extent| extent >= MANY);
        let is_wide = own.zip(all).any(|(own, all)| *own == Dim::Known(1) && is_many(all));
        !input.is_single() && input.broadcasts_to(of) && is_wide
    }

    /// Whether a node's value is stored anyway.
    fn is_stored(&self, id: NodeId) -> bool {
        let passes = |readers: Readers| {
            readers.are_elementwise && (readers.later.is_empty() || self.again.contains(&id))
        };
        !self.readers(id).is_some_and(passes)
    }

    fn readers(&self, id: NodeId) -> Option<Readers> {
        self.scalars[id.index()].filter(|_| self.plain[id.index()])?;
        let users = self.graph.users(id);
        if users.len() > MAX_USERS {
            return None;
        }
        let own = self.levels[id.index()];
        let mut readers = Readers { later: Vec::new(), are_elementwise: true };
        for user in users {
            let level = self.levels[user.index()];
            readers.are_elementwise &= self.scalars[user.index()].is_some();
            if level > own && !readers.later.contains(&(*user, level)) {
                readers.later.push((*user, level));
            }
        }
        Some(readers)
    }
}

/// The readers of a value.
struct Readers {
    /// The nodes that run later than the first reader, and the level of each.
    later: Vec<(NodeId, u32)>,
    /// Whether all readers are elementwise nodes.
    are_elementwise: bool,
}

/// The nodes of a value that were found so far.
#[derive(Default)]
struct Search {
    nodes: Vec<NodeId>,
    seen: FxHashSet<NodeId>,
    weight: u32,
    /// The stored tensor from which the value follows.
    leaf: Option<Output>,
    /// Smaller stored tensors from which it follows by broadcasting.
    factors: Vec<Output>,
}
