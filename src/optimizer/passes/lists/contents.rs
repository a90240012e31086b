//! Which tensors become elements of which lists.

use rustc_hash::FxHashMap;

use super::Shapes;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::shape::Shape;

/// An element, or several.
#[derive(Debug, Clone, Copy)]
enum Element {
    /// The tensor itself.
    Whole(Output),
    /// Each coordinate of its first dimension.
    Rows(Output),
}

/// All that lists of one kind may hold, where the kind of a list is that of those it is made from.
#[derive(Debug, Default)]
struct Kind {
    elements: Vec<Element>,
    /// Whether something may be in them that the graph does not show.
    open: bool,
    /// The lists themselves.
    members: Vec<Output>,
}

/// The lists of a graph.
#[derive(Debug, Default)]
pub struct Lists {
    numbers: FxHashMap<Output, usize>,
    /// Towards the number that stands for all of a kind.
    parent: Vec<usize>,
    kinds: FxHashMap<usize, Kind>,
}

impl Lists {
    /// Of a graph whose nodes come in this order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut lists = Self::default();
        let mut elements: Vec<(Output, Element)> = Vec::new();
        for id in order.iter().copied() {
            let node = graph.node(id);
            let inputs = node.inputs();
            let output = |port| Output { node: id, port };
            let mut holds = |element| elements.push((output(0), element));
            match (node.op(), inputs) {
                ("TensorListFromTensor", [rows, ..]) => holds(Element::Rows(*rows)),
                ("TensorListPushBack", [_, item]) | ("TensorListSetItem", [_, _, item]) => holds(Element::Whole(*item)),
                _ => {}
            }
            match node.op() {
                // Loops carry tensors too; of them nothing is asked.
                "Enter" | "Exit" | "Identity" | "NextIteration" | "TensorListPopBack" | "TensorListPushBack"
                | "TensorListSetItem" => lists.join(output(0), inputs[0]),
                "Merge" => inputs.iter().for_each(|input| lists.join(output(0), *input)),
                "Switch" => [0, 1].into_iter().for_each(|port| lists.join(output(port), inputs[0])),
                _ => {}
            }
        }
        for (list, element) in elements {
            let kind = lists.kind(list);
            lists.kinds.entry(kind).or_default().elements.push(element);
        }
        for output in lists.numbers.keys().copied().collect::<Vec<_>>() {
            let kind = lists.kind(output);
            if let Some(kind) = lists.kinds.get_mut(&kind) {
                kind.open |= !is_shown(graph, output);
                kind.members.push(output);
            }
        }
        lists
    }

    /// All lists of each kind that gets its elements from nodes of the graph alone, one by one, with these, in no order.
    pub fn closed(&self) -> impl Iterator<Item = (&[Output], Vec<Output>)> {
        self.kinds.values().filter(|kind| !kind.open).filter_map(|kind| {
            let item = |element: &Element| match element {
                Element::Whole(item) => Some(*item),
                Element::Rows(_) => None,
            };
            Some((&kind.members[..], kind.elements.iter().map(item).collect::<Option<_>>()?))
        })
    }

    fn number(&mut self, list: Output) -> usize {
        let next = self.parent.len();
        let number = *self.numbers.entry(list).or_insert(next);
        if number == next {
            self.parent.push(next);
        }
        number
    }

    fn root(&self, mut number: usize) -> usize {
        while self.parent[number] != number {
            number = self.parent[number];
        }
        number
    }

    fn kind(&mut self, list: Output) -> usize {
        let number = self.number(list);
        self.root(number)
    }

    fn join(&mut self, a: Output, b: Output) {
        let (a, b) = (self.kind(a), self.kind(b));
        self.parent[a] = b;
    }

    /// The shape of every element of a list, if they have one.
    pub(super) fn element(&self, shapes: &Shapes<'_>, list: Output) -> Option<Shape> {
        let kind = self.kinds.get(&self.root(*self.numbers.get(&list)?))?;
        let shape = |element: &Element| match element {
            Element::Whole(item) => shapes.of(*item),
            Element::Rows(rows) => shapes.of(*rows).filter(|s| !s.is_empty()).map(|s| Shape::from_slice(&s[1..])),
        };
        let (first, others) = kind.elements.split_first().filter(|_| !kind.open)?;
        let first = shape(first)?;
        others.iter().all(|other| shape(other).as_ref() == Some(&first)).then_some(first)
    }
}

/// Whether the node that makes a list shows all that it adds to those that it is made from. Elements that a list has without having got them,
/// as `TensorListReserve` and `TensorListResize` make them, have shapes of their own.
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
        "TensorListSetItem" => node.attr("resize_if_index_out_of_bounds").and_then(|a| a.bool()) != Some(true),
        _ => false,
    };
    shown && !graph.is_preserved(list.node)
}
