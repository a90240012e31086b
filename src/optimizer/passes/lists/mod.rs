//! Shapes of what passes through lists, and of what is computed from it.
//!
//! TensorFlow keeps in lists what the steps of a loop leave for its gradient, and infers nothing about what comes out of them again: hardly a
//! shape of a recurrent layer's gradient is known, so nothing of it could be fused. But all elements of a list that the graph makes come
//! from its nodes, and where all of those have one shape, so has every element.
//!
//! What a loop computes from it may be carried to the next step. Such a value is taken to have the shape with which the loop begins; where
//! the step then gives another one, or one that is not known, it is not, and all is inferred anew. What is left holds in the first
//! step, and in each step that follows one in which it holds.
//!
//! The pass adds knowledge and changes no node.

pub mod contents;
mod rules;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};
use contents::Lists;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let unknown = |output: &Output| graph.info(*output).dims().is_none();
    if !order.iter().filter_map(|id| element_of(graph, *id)).any(|element| unknown(&element)) {
        return Ok(());
    }
    let lists = Lists::of(graph, &order);
    let fixed = fixed_symbols(graph, &order);
    let mut refuted: FxHashSet<NodeId> = FxHashSet::default();
    let found = loop {
        let mut shapes = Shapes { graph, lists: &lists, fixed: &fixed, found: FxHashMap::default() };
        let carried = shapes.infer(&order, &refuted);
        let wrong = |id: &NodeId| {
            let begun = shapes.of(Output { node: *id, port: 0 });
            graph.node(*id).inputs().iter().any(|input| shapes.of(*input) != begun)
        };
        let wrong: Vec<NodeId> = carried.into_iter().filter(wrong).collect();
        if wrong.is_empty() {
            break shapes.found;
        }
        refuted.extend(wrong);
    };
    for (output, shape) in found {
        let mut infos = graph.node(output.node).infos.clone();
        if let Some(info) = infos.get_mut(output.port as usize) {
            info.shape = Some(shape);
            graph.set_infos(output.node, infos);
        }
    }
    Ok(())
}

/// The tensor that a node takes out of a list.
fn element_of(graph: &Graph, id: NodeId) -> Option<Output> {
    let port = match graph.node(id).op() {
        "TensorListGetItem" => 0,
        "TensorListPopBack" => 1,
        _ => return None,
    };
    Some(Output { node: id, port })
}

/// The unknown extents that are the same in every step of every loop: those of tensors outside of loops.
fn fixed_symbols(graph: &Graph, order: &[NodeId]) -> FxHashSet<u32> {
    let mut inside = vec![false; graph.capacity()];
    let mut fixed = FxHashSet::default();
    for id in order {
        let leaves = |used: NodeId| matches!(graph.node(used).op(), "Exit" | "RefExit");
        let enters = matches!(graph.node(*id).op(), "Enter" | "RefEnter");
        inside[id.index()] = enters || graph.used(*id).any(|used| inside[used.index()] && !leaves(used));
        if !inside[id.index()] {
            let shapes = graph.node(*id).infos.iter().flat_map(|info| &info.shape);
            fixed.extend(shapes.flatten().filter_map(|d| if let Dim::Symbol(s) = d { Some(*s) } else { None }));
        }
    }
    fixed
}

/// Shapes that are the same each time that a node runs.
struct Shapes<'g> {
    graph: &'g Graph,
    lists: &'g Lists,
    fixed: &'g FxHashSet<u32>,
    /// Those of tensors of which TensorFlow did not know them.
    found: FxHashMap<Output, Shape>,
}

impl Shapes<'_> {
    /// The shape of a tensor.
    fn of(&self, output: Output) -> Option<Shape> {
        let is_fixed = |d: &Dim| match d {
            Dim::Known(_) => true,
            Dim::Symbol(s) => self.fixed.contains(s),
            Dim::Unknown => false,
        };
        let known = self.graph.info(output).shape.filter(|shape| shape.iter().all(is_fixed));
        known.or_else(|| self.found.get(&output).cloned())
    }

    /// Finds what follows from the lists, and returns where it was taken that a step leaves a shape as it was.
    fn infer(&mut self, order: &[NodeId], refuted: &FxHashSet<NodeId>) -> Vec<NodeId> {
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
                rules::results(self, id)
            };
            for (shape, port) in results.into_iter().zip(0..) {
                let output = Output { node: id, port };
                if let Some(shape) = shape.filter(|shape| self.of(output).is_none() && self.agrees(output, shape)) {
                    self.found.insert(output, shape);
                }
            }
        }
        carried
    }

    /// Whether a shape contradicts nothing that TensorFlow knows.
    fn agrees(&self, output: Output, shape: &Shape) -> bool {
        let same = |(a, b): (&Dim, &Dim)| a.known().is_none() || b.known().is_none() || a == b;
        let known = self.graph.info(output).shape;
        known.is_none_or(|known| known.len() == shape.len() && known.iter().zip(shape).all(same))
    }

    /// The shape that all of some tensors have.
    fn common(&self, tensors: &[Output]) -> Option<Shape> {
        let first = self.of(*tensors.first()?)?;
        tensors[1..].iter().all(|t| self.of(*t).as_ref() == Some(&first)).then_some(first)
    }
}
