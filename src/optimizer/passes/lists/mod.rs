//! Shapes of the tensors that pass through lists, and of the values computed from them.
//!
//! A loop leaves values for its gradient in lists. TensorFlow infers nothing about the elements
//! that are taken out again, so hardly a shape of a recurrent layer's gradient is known, and
//! nothing could be fused there. But all elements of a list that the graph makes come from its
//! nodes. If all of these have one shape, so has every element.
//!
//! Values that a loop computes from an element may be carried to the next step. Such a value is
//! assumed to keep the shape with which the loop begins. If the step then yields another shape, or
//! an unknown one, the assumption is dropped, and all shapes are inferred anew. The assumptions
//! that remain hold in the first step, and in each step after one in which they hold.
//!
//! TensorFlow gives an unknown extent, such as a batch size, a new number each time that it finds
//! one. If a tensor has one extent by TensorFlow's inference and another by these rules, the two
//! are equal, and they are equal in the whole graph.
//!
//! The same rules serve gradients for an unknown batch size, which compute shapes while the program
//! runs.
//!
//! An extent may be a multiple of another one ([`multiples`]). Shapes and counts that are fully
//! known become constants ([`settled`]).
//!
//! With this knowledge, sums of gradients over dimensions that might have been broadcast, but were
//! not, are removed ([`sums`]), and lists from which no op takes an element are no longer filled
//! ([`unread`]).

pub mod contents;
mod extents;
mod multiples;
mod places;
mod rules;
mod settled;
mod sums;
mod unread;

use std::cell::RefCell;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cleanup::asked::take_targets;
use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};
use contents::Lists;
use places::Places;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let asks = |id: &NodeId| {
        let node = graph.node(*id);
        match node.op() {
            "BroadcastGradientArgs" | "TensorListGetItem" | "TensorListPopBack" => true,
            "Reshape" => {
                node.inputs().get(1).is_some_and(|shape| graph.node(shape.node).op() != "Const")
            }
            _ => false,
        }
    };
    if !order.iter().any(asks) {
        return Ok(());
    }
    settled::release(graph, &order);
    take_targets(graph, &order);
    let Some(order) = graph.order() else { return Ok(()) };
    let lists = Lists::of(graph, &order);
    let places = Places::of(graph, &order);
    let mut refuted: FxHashSet<NodeId> = FxHashSet::default();
    let mut rounds = 0;
    let shapes = loop {
        rounds += 1;
        let mut shapes = Shapes::new(graph, &lists, &places);
        let carried = shapes.infer(&order, &refuted);
        let wrong = |id: &NodeId| {
            let begun = shapes.of(Output { node: *id, port: 0 });
            graph.node(*id).inputs().iter().any(|input| shapes.of(*input) != begun)
        };
        if !carried.iter().any(wrong) {
            break shapes;
        }
        refuted.extend(carried.iter().copied().filter(|id| rounds >= MAX_REFUTATIONS || wrong(id)));
    };
    let superfluous = sums::superfluous(&shapes, &order);
    let constants = settled::find(&shapes, &order);
    for (id, infos) in shapes.news(&order) {
        graph.set_infos(id, infos);
    }
    sums::remove(graph, &superfluous);
    settled::replace(graph, constants);
    unread::run(graph)
}

/// Shapes that are the same each time that a node runs.
struct Shapes<'g> {
    graph: &'g Graph,
    lists: &'g Lists,
    places: &'g Places,
    /// The shapes of tensors for which TensorFlow did not know them.
    found: FxHashMap<Output, Shape>,
    /// For an unknown extent, an extent that equals it.
    equal: FxHashMap<u32, Dim>,
    /// For an extent that is a multiple of another, the factor and the other extent.
    multiples: FxHashMap<u32, (usize, u32)>,
    /// For a factor and an extent, the multiple.
    products: FxHashMap<(usize, u32), u32>,
    /// The shapes of list elements by kind, as far as they were requested in this sweep.
    elements: RefCell<FxHashMap<usize, Asked>>,
}

/// The answer to a request for the shape of a list's elements.
#[derive(Default)]
struct Asked {
    shape: Option<Shape>,
    /// The number of requests made without an answer.
    vain: usize,
}

/// The largest number of sweeps over the graph. The shapes found hold even if more could be found.
const MAX_SWEEPS: usize = 32;
/// The number of refutations after which all assumptions are given up at once, instead of the wrong
/// ones only.
const MAX_REFUTATIONS: usize = 16;
/// The largest number of attempts in one sweep to find the shape of a list's elements.
const MAX_VAIN: usize = 8;

impl<'g> Shapes<'g> {
    fn new(graph: &'g Graph, lists: &'g Lists, places: &'g Places) -> Self {
        Self {
            graph,
            lists,
            places,
            found: FxHashMap::default(),
            equal: FxHashMap::default(),
            multiples: FxHashMap::default(),
            products: FxHashMap::default(),
            elements: RefCell::default(),
        }
    }

    /// The shape of a tensor, if it is known and the same each time.
    fn of(&self, output: Output) -> Option<Shape> {
        let is_fixed = |d: &Dim| match d {
            Dim::Known(_) => true,
            Dim::Symbol(s) => self.places.is_fixed(*s),
            Dim::Unknown => false,
        };
        let known =
            self.graph.info(output).shape.clone().filter(|shape| shape.iter().all(is_fixed));
        let shape = known.or_else(|| self.found.get(&output).cloned())?;
        Some(shape.into_iter().map(|d| self.representative(d)).collect())
    }

    /// The extent that represents all extents equal to this one.
    fn representative(&self, mut extent: Dim) -> Dim {
        while let Dim::Symbol(s) = extent
            && let Some(other) = self.equal.get(&s)
        {
            extent = *other;
        }
        extent
    }

    /// Makes two extents equal. They are represented by a known extent, or else by the one with the
    /// smaller number.
    fn equate(&mut self, a: Dim, b: Dim) {
        match (self.representative(a), self.representative(b)) {
            (Dim::Symbol(a), Dim::Symbol(b)) if a != b => {
                self.equal.insert(a.max(b), Dim::Symbol(a.min(b)));
            }
            (Dim::Symbol(s), known @ Dim::Known(_)) | (known @ Dim::Known(_), Dim::Symbol(s)) => {
                self.equal.insert(s, known);
            }
            _ => {}
        }
    }

    /// Infers shapes from the lists. Returns the nodes for which it was assumed that a step keeps a
    /// shape.
    fn infer(&mut self, order: &[NodeId], refuted: &FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut carried = Vec::new();
        for _ in 0..MAX_SWEEPS {
            let before = self.known();
            self.elements.get_mut().clear();
            carried = self.sweep(order, refuted);
            // An element may be taken out of a list by an earlier node than the one that puts it
            // in.
            if self.known() == before {
                break;
            }
        }
        carried
    }

    /// Counts of the known facts.
    fn known(&self) -> [usize; 4] {
        let Self { found, equal, multiples, products, .. } = self;
        [found.len(), equal.len(), multiples.len(), products.len()]
    }

    /// The shape of the elements of lists of a kind, which `find` finds. Once it is known, it is
    /// kept for the rest of the sweep.
    fn of_elements(&self, kind: usize, find: impl FnOnce() -> Option<Shape>) -> Option<Shape> {
        let mut elements = self.elements.borrow_mut();
        let asked = elements.entry(kind).or_default();
        if asked.shape.is_none() && asked.vain < MAX_VAIN {
            asked.shape = find();
            asked.vain += 1;
        }
        asked.shape.clone()
    }

    fn sweep(&mut self, order: &[NodeId], refuted: &FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut carried = Vec::new();
        for id in order.iter().copied() {
            let node = self.graph.node(id);
            let results = if node.op() == "Merge" {
                let (back, begin): (Vec<Output>, Vec<Output>) =
                    node.inputs().iter().partition(|input| self.graph.is_back_edge(input.node, id));
                let shape = if refuted.contains(&id) { None } else { self.common(&begin) };
                if shape.is_some() && !back.is_empty() {
                    carried.push(id);
                }
                vec![shape]
            } else {
                let mut results = rules::results(self, id);
                if node.op() == "Reshape" && results == [None] {
                    results = vec![self.reshaped(id)];
                }
                results
            };
            for (shape, port) in results.into_iter().zip(0..) {
                let output = Output { node: id, port };
                let Some(shape) = shape.filter(|shape| self.agrees(output, shape)) else {
                    continue;
                };
                match self.of(output) {
                    None => drop(self.found.insert(output, shape)),
                    Some(known) if self.places.always_runs(id) => {
                        known.into_iter().zip(shape).for_each(|(a, b)| self.equate(a, b));
                    }
                    Some(_) => {}
                }
            }
        }
        carried
    }

    /// Whether a shape is consistent with TensorFlow's knowledge.
    fn agrees(&self, output: Output, shape: &Shape) -> bool {
        let same = |(a, b): (&Dim, &Dim)| a.known().is_none() || b.known().is_none() || a == b;
        let known = self.graph.info(output).shape.as_ref();
        known.is_none_or(|known| known.len() == shape.len() && known.iter().zip(shape).all(same))
    }

    /// The shape of some tensors, if all have the same.
    fn common(&self, tensors: &[Output]) -> Option<Shape> {
        let first = self.of(*tensors.first()?)?;
        tensors[1..].iter().all(|t| self.of(*t).as_ref() == Some(&first)).then_some(first)
    }

    /// The nodes for which more is known now than before, with their outputs' types and shapes.
    fn news(&self, order: &[NodeId]) -> Vec<(NodeId, Vec<TensorInfo>)> {
        let of_node = |id: &NodeId| {
            let infos = &self.graph.node(*id).infos;
            let renewed: Vec<TensorInfo> = infos
                .iter()
                .zip(0..)
                .map(|(info, port)| {
                    let found = self.found.get(&Output { node: *id, port });
                    let shape = found
                        .or(info.shape.as_ref())
                        .map(|s| s.iter().map(|d| self.representative(*d)).collect());
                    TensorInfo { dtype: info.dtype, shape }
                })
                .collect();
            (renewed != *infos).then_some((*id, renewed))
        };
        order.iter().filter_map(of_node).collect()
    }
}
