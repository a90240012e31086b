//! Shapes of what passes through lists, and of what is computed from it.
//!
//! TensorFlow keeps in lists what the steps of a loop leave for its gradient, and infers nothing
//! about what comes out of them again: hardly a shape of a recurrent layer's gradient is known, so
//! nothing of it could be fused. But all elements of a list that the graph makes come from its
//! nodes, and where all of those have one shape, so has every element.
//!
//! What a loop computes from it may be carried to the next step. Such a value is taken to have the
//! shape with which the loop begins; where the step then gives another one, or one that is not
//! known, it is not, and all is inferred anew. What is left holds in the first step, and in each
//! step that follows one in which it holds.
//!
//! Unknown extents, as the size of a batch is one, have a number each time that TensorFlow finds
//! one. Where a tensor has one extent by what TensorFlow inferred and another one by these rules,
//! both are the same, and so they are in the whole graph.
//!
//! The same rules serve gradients for a batch of unknown size, which ask for shapes while the
//! program runs.
//!
//! An extent may be a multiple of another one ([`multiples`]). Shapes and counts of which nothing
//! is open then become constants ([`settled`]).
//!
//! With what is known then, sums of gradients over what might have been broadcast, but was not,
//! vanish ([`sums`]), and lists out of which nobody takes an element are no longer filled
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
    /// Those of tensors of which TensorFlow did not know them.
    found: FxHashMap<Output, Shape>,
    /// For an unknown extent, the one that it is equal to.
    equal: FxHashMap<u32, Dim>,
    /// For one that is a multiple of another, the factor and the other one.
    multiples: FxHashMap<u32, (usize, u32)>,
    /// The shapes of the elements of lists by kind, as far as somebody has asked in this sweep.
    elements: RefCell<FxHashMap<usize, Asked>>,
}

/// What somebody who asked for the shape of a list's elements was told.
#[derive(Default)]
struct Asked {
    shape: Option<Shape>,
    /// How often nothing was known.
    vain: usize,
}

/// Most sweeps over the graph: what they have found holds, whether more could be found or not.
const MAX_SWEEPS: usize = 32;
/// Most times that wrong assumptions are given up one by one, before all of them are.
const MAX_REFUTATIONS: usize = 16;
/// Times that it is looked anew, in one sweep, whether the shape of a list's elements is known.
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
            elements: RefCell::default(),
        }
    }

    /// The shape of a tensor.
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

    /// The extent that stands for all that are equal to this one.
    fn representative(&self, mut extent: Dim) -> Dim {
        while let Dim::Symbol(s) = extent
            && let Some(other) = self.equal.get(&s)
        {
            extent = *other;
        }
        extent
    }

    /// Makes equal extents one: a known one, or that of the least number.
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

    /// Finds what follows from the lists, and returns where it was taken that a step leaves a shape
    /// as it was.
    fn infer(&mut self, order: &[NodeId], refuted: &FxHashSet<NodeId>) -> Vec<NodeId> {
        let mut carried = Vec::new();
        for _ in 0..MAX_SWEEPS {
            let before = self.known();
            self.elements.get_mut().clear();
            carried = self.sweep(order, refuted);
            // What comes out of a list may come before what is put into it.
            if self.known() == before {
                break;
            }
        }
        carried
    }

    /// How much is known.
    fn known(&self) -> [usize; 3] {
        [self.found.len(), self.equal.len(), self.multiples.len()]
    }

    /// The shape of the elements of lists of a kind, which `find` finds: once in a sweep, unless
    /// nothing was known yet.
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

    /// Whether a shape contradicts nothing that TensorFlow knows.
    fn agrees(&self, output: Output, shape: &Shape) -> bool {
        let same = |(a, b): (&Dim, &Dim)| a.known().is_none() || b.known().is_none() || a == b;
        let known = self.graph.info(output).shape.as_ref();
        known.is_none_or(|known| known.len() == shape.len() && known.iter().zip(shape).all(same))
    }

    /// The shape that all of some tensors have.
    fn common(&self, tensors: &[Output]) -> Option<Shape> {
        let first = self.of(*tensors.first()?)?;
        tensors[1..].iter().all(|t| self.of(*t).as_ref() == Some(&first)).then_some(first)
    }

    /// What is known now of nodes of which less was known before.
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
