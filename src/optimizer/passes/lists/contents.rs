//! The tensors that become elements of each list.

use rustc_hash::FxHashMap;

use super::Shapes;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::Shape;
use crate::optimizer::unions::Unions;

/// Ops that pass lists on: from input 0, or, for `Merge`, from all inputs.
pub const CARRIERS: &[&str] = &["Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"];

/// Whether the lists are only passed on, and only have last elements added and removed.
pub fn are_stacks(graph: &Graph, members: &[Output]) -> bool {
    let takes_it = |(reader, index): (NodeId, usize)| {
        let op = graph.node(reader).op();
        let takes =
            CARRIERS.contains(&op) || matches!(op, "TensorListPopBack" | "TensorListPushBack");
        takes && (index == 0 || op == "Merge")
    };
    members.iter().all(|list| graph.readers_in_any_order(*list).all(takes_it))
}

/// One element or several.
#[derive(Debug, Clone, Copy)]
enum Element {
    /// The tensor itself.
    Whole(Output),
    /// Each coordinate of its first dimension.
    Rows(Output),
}

/// The possible contents of all lists of one kind. A list has the kind of the lists from which it
/// is made.
#[derive(Debug, Default)]
struct Kind {
    elements: Vec<Element>,
    /// The elements that are tensors of their own.
    items: Vec<Output>,
    /// Whether the lists may hold elements that the graph does not show.
    open: bool,
    /// Whether the lists may hold reserved elements that no op has set, with shapes of their own.
    reserved: bool,
    /// The lists of this kind.
    members: Vec<Output>,
}

/// The lists of a graph.
#[derive(Debug, Default)]
pub struct Lists {
    numbers: FxHashMap<Output, usize>,
    /// The lists of each kind.
    sets: Unions,
    kinds: FxHashMap<usize, Kind>,
}

impl Lists {
    /// The lists of a graph, whose nodes come in topological order. Lists that begin as the same
    /// empty list are not of one kind for that reason alone.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        Self::joined(graph, order, |list| graph.node(list.node).op() != "EmptyTensorList")
    }

    /// Like [`Self::of`], but all lists that begin as one empty list are of one kind with that
    /// list.
    pub fn with_origins(graph: &Graph, order: &[NodeId]) -> Self {
        Self::joined(graph, order, |_| true)
    }

    fn joined(graph: &Graph, order: &[NodeId], joins: impl Fn(Output) -> bool) -> Self {
        let mut lists = Self::default();
        let mut elements: Vec<(Output, Element)> = Vec::new();
        for id in order.iter().copied() {
            let node = graph.node(id);
            let inputs = node.inputs();
            let output = |port| Output { node: id, port };
            let mut holds = |element| elements.push((output(0), element));
            match (node.op(), inputs) {
                ("TensorListFromTensor", [rows, ..]) => holds(Element::Rows(*rows)),
                ("TensorListPushBack", [_, item]) | ("TensorListSetItem", [_, _, item]) => {
                    holds(Element::Whole(*item))
                }
                _ => {}
            }
            // Loops carry tensors too; their kinds are not used.
            let (outputs, sources) = match node.op() {
                "Enter" | "Exit" | "Identity" | "NextIteration" | "TensorListPopBack"
                | "TensorListPushBack" | "TensorListSetItem" => (1, &inputs[..1]),
                "Merge" => (1, inputs),
                "Switch" => (2, &inputs[..1]),
                _ => (0, &inputs[..0]),
            };
            for port in 0..outputs {
                lists.number(output(port));
                sources
                    .iter()
                    .filter(|source| joins(**source))
                    .for_each(|source| lists.join(output(port), *source));
            }
        }
        for (list, element) in elements {
            let kind = lists.kind(list);
            let kind = lists.kinds.entry(kind).or_default();
            kind.elements.push(element);
            kind.items.extend(if let Element::Whole(item) = element { Some(item) } else { None });
        }
        for output in lists.numbers.keys().copied().collect::<Vec<_>>() {
            let kind = lists.kind(output);
            if let Some(kind) = lists.kinds.get_mut(&kind) {
                let reserves = is_reserved(graph, output);
                kind.reserved |= reserves;
                kind.open |= !reserves && !is_shown(graph, output);
                kind.members.push(output);
            }
        }
        lists
    }

    /// For each kind that gets its elements only from nodes of the graph, one by one: all its lists
    /// and all its elements. The kinds come in no particular order.
    pub fn closed(&self) -> impl Iterator<Item = (&[Output], &[Output])> {
        self.kinds.values().filter_map(|kind| Some((&kind.members[..], kind.items()?)))
    }

    /// The elements of a list, if it gets them only from nodes of the graph, one by one.
    pub fn items(&self, list: Output) -> Option<&[Output]> {
        self.kind_of(list)?.items()
    }

    fn kind_of(&self, list: Output) -> Option<&Kind> {
        self.kinds.get(&self.sets.root(*self.numbers.get(&list)?))
    }

    fn number(&mut self, list: Output) -> usize {
        *self.numbers.entry(list).or_insert_with(|| self.sets.add())
    }

    fn kind(&mut self, list: Output) -> usize {
        let number = self.number(list);
        self.sets.root(number)
    }

    fn join(&mut self, a: Output, b: Output) {
        let (a, b) = (self.number(a), self.number(b));
        self.sets.join(a, b);
    }

    /// The shape of every element of a list, if all elements have the same shape.
    pub(super) fn element(&self, shapes: &Shapes<'_>, list: Output) -> Option<Shape> {
        self.kind_of(list).filter(|kind| !kind.reserved).and_then(|_| self.given(shapes, list))
    }

    /// The shape of every element that was set in a list, if all of these have the same shape.
    pub(super) fn given(&self, shapes: &Shapes<'_>, list: Output) -> Option<Shape> {
        let number = self.sets.root(*self.numbers.get(&list)?);
        let kind = self.kinds.get(&number).filter(|kind| !kind.open)?;
        shapes.of_elements(number, || kind.element(shapes))
    }
}

impl Kind {
    fn items(&self) -> Option<&[Output]> {
        let complete = !self.open && !self.reserved && self.items.len() == self.elements.len();
        complete.then_some(&self.items)
    }

    fn element(&self, shapes: &Shapes<'_>) -> Option<Shape> {
        let shape = |element: &Element| match element {
            Element::Whole(item) => shapes.of(*item),
            Element::Rows(rows) => {
                shapes.of(*rows).filter(|s| !s.is_empty()).map(|s| Shape::from_slice(&s[1..]))
            }
        };
        let (first, others) = self.elements.split_first()?;
        let first = shape(first)?;
        others.iter().all(|other| shape(other).as_ref() == Some(&first)).then_some(first)
    }
}

/// Whether the node reserves elements that no op has set.
fn is_reserved(graph: &Graph, list: Output) -> bool {
    graph.node(list.node).op() == "TensorListReserve" && !graph.is_preserved(list.node)
}

/// Whether the node that makes a list has every new element among its inputs.
fn is_shown(graph: &Graph, list: Output) -> bool {
    let node = graph.node(list.node);
    let shown = match node.op() {
        "EmptyTensorList"
        | "Enter"
        | "Exit"
        | "Identity"
        | "Merge"
        | "NextIteration"
        | "Switch"
        | "TensorListFromTensor"
        | "TensorListPopBack"
        | "TensorListPushBack" => true,
        "TensorListSetItem" => {
            node.attr("resize_if_index_out_of_bounds").and_then(|a| a.bool()) != Some(true)
        }
        _ => false,
    };
    shown && !graph.is_preserved(list.node)
}
