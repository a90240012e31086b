//! Elementwise values that gradients compute again.
//!
//! The gradient of a GELU reads three values that the forward pass had on its way. Each would be
//! written for it and read again, as large as the activation. But all of them follow from the
//! activation's argument, which is stored anyway. So nodes that need such a value later compute it
//! from there; what remains for the forward pass can then be one epilogue.
//!
//! A value is computed again if elementwise nodes alone read it, of which some are wanted with it
//! and others later, behind a product or a reduction; and if it follows by few functions from one
//! stored tensor that is no reduction's: rows keep what they need.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::kernels::fused::cost;
use crate::kernels::reduce::table::REDUCTIONS;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::scalars::{SameShapes, Scalar};

/// Most nodes of a value that are computed again, and their weight ([`cost::again`]).
const MAX_NODES: usize = 24;
const MAX_WEIGHT: u32 = 256;
/// Most readers of a value that are looked at.
const MAX_USERS: usize = 32;

/// Ops that cost nothing, or as little as what is elementwise.
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
    // The last ones first: a copy reads what was copied for its own readers, not for earlier ones.
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

/// The same node once more, which reads what was copied for `level`.
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

/// A value that is to be computed again.
struct Wanted {
    /// Its nodes, each behind its inputs; the value is the last one.
    nodes: Vec<NodeId>,
    /// Who reads the copy, and at which level.
    readers: Vec<(NodeId, u32)>,
}

/// The elementwise nodes of a graph.
struct Values<'g> {
    graph: &'g Graph,
    shapes: SameShapes<'g>,
    /// What each node computes, if it is elementwise.
    scalars: Vec<Option<Scalar>>,
    /// Whether it may be copied: gradients are made to wait for the one before them.
    plain: Vec<bool>,
    /// How many products, reductions and the like come before each node is first wanted.
    levels: Vec<u32>,
    /// Values that are found to be computed again.
    again: FxHashSet<NodeId>,
}

impl<'g> Values<'g> {
    fn of(graph: &'g Graph, order: &[NodeId]) -> Self {
        let shapes = SameShapes::new(graph, order);
        let mut scalars = vec![None; graph.capacity()];
        let mut plain = vec![false; graph.capacity()];
        // Where each node may begin, and where those behind it may.
        let (mut levels, mut behind) = (vec![0; graph.capacity()], vec![0; graph.capacity()]);
        for id in order {
            let node = graph.node(*id);
            plain[id.index()] = node.controls().is_empty()
                && graph.waiters(*id).next().is_none()
                && !graph.is_preserved(*id);
            let scalar = Scalar::of(&shapes, *id);
            // A single element says nothing about what comes when, nor does a node that gradients
            // are made to wait for.
            let large = node.inputs().iter().filter(|i| graph.info(**i).len() != Some(1));
            levels[id.index()] = large.map(|i| behind[i.node.index()]).max().unwrap_or(0);
            let heavy = scalar.is_none() && !LIGHT.contains(&node.op());
            behind[id.index()] = levels[id.index()] + u32::from(heavy);
            scalars[id.index()] = scalar.filter(|s| s.call.output().is_float());
        }
        // What is elementwise is wanted when the first of its readers is.
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

    /// What becomes of a value that is to be computed again.
    fn value(&self, id: NodeId) -> Option<Wanted> {
        let readers = self.readers(id)?;
        if readers.later.is_empty() || !readers.are_elementwise {
            return None;
        }
        let mut found =
            Search { nodes: Vec::new(), seen: FxHashSet::default(), weight: 0, leaf: None };
        self.collect(id, Output { node: id, port: 0 }, &mut found)?;
        found.leaf?;
        Some(Wanted { nodes: found.nodes, readers: readers.later })
    }

    /// Appends the nodes of a value, down to what is stored.
    fn collect(&self, id: NodeId, of: Output, found: &mut Search) -> Option<()> {
        if !found.seen.insert(id) {
            return Some(());
        }
        let scalar = self.scalars[id.index()].filter(|_| self.plain[id.index()])?;
        let node = self.graph.node(id);
        found.weight += cost::again(scalar.call) * (node.inputs().len().max(2) - 1) as u32;
        if found.seen.len() > MAX_NODES || found.weight > MAX_WEIGHT {
            return None;
        }
        for input in node.inputs() {
            if input.port == 0 && !self.is_stored(input.node) {
                self.collect(input.node, of, found)?;
            } else if self.graph.info(*input).len() != Some(1) && found.leaf != Some(*input) {
                // Another tensor would be read as well.
                let of_reduction =
                    REDUCTIONS.iter().any(|r| r.op == self.graph.node(input.node).op());
                if found.leaf.is_some() || of_reduction || !self.shapes.same(*input, of) {
                    return None;
                }
                found.leaf = Some(*input);
            }
        }
        found.nodes.push(id);
        Some(())
    }

    /// Whether a node's value is in memory anyway.
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

/// Who reads a value.
struct Readers {
    /// Nodes that are wanted later than the first one, and when.
    later: Vec<(NodeId, u32)>,
    /// Whether all readers are elementwise nodes.
    are_elementwise: bool,
}

/// The nodes of a value so far.
struct Search {
    nodes: Vec<NodeId>,
    seen: FxHashSet<NodeId>,
    weight: u32,
    /// The stored tensor that it follows from.
    leaf: Option<Output>,
}
