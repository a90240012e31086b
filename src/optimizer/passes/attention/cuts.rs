//! Axes that reshapes cut in two, in attention with grouped queries: the heads of the query are
//! cut into the heads of the keys and a group of heads for each, and rows of a product are cut into
//! the heads of a group and positions.

use super::labels::Label;
use crate::optimizer::graph::{Graph, Output};
use crate::optimizer::shape::{Dim, Shape};

/// The query's heads, which a group of heads for each head of the keys makes up.
pub const HEADS: Label = Label::MAX - 1;
/// The heads of a group, where an equation does not name them.
const GROUP: Label = Label::MAX - 2;
/// The positions of the query, where an equation does not name them.
const POSITION: Label = Label::MAX - 3;

/// An axis that a reshape cuts in two.
#[derive(Debug, Clone)]
pub struct Cut {
    whole: Label,
    parts: [Label; 2],
    extents: [Dim; 2],
}

impl Cut {
    /// The rows of the weights, which have the axes `labels` as a product reads them, before the
    /// reshape from `before`.
    pub fn of_rows(graph: &Graph, labels: &[Label], before: Output) -> Option<Self> {
        let ([_, _, rows, _], Some([_, _, group, position, _])) =
            (labels, graph.info(before).shape.as_deref())
        else {
            return None;
        };
        Some(Self { whole: *rows, parts: [GROUP, POSITION], extents: [*group, *position] })
    }

    /// The query's heads, if the weights have the axes `labels`: batch, head of the keys, head of
    /// its group, row and key.
    pub fn of_heads(graph: &Graph, (weights, labels): (Output, &[Label])) -> Option<Self> {
        let ([_, heads, group, _, _], Some([_, a, b, _, _])) =
            (labels, graph.info(weights).shape.as_deref())
        else {
            return None;
        };
        Some(Self { whole: HEADS, parts: [*heads, *group], extents: [*a, *b] })
    }

    /// Whether this axis of a tensor certainly is the first of the two parts.
    pub fn starts_with(&self, (label, extent): (&Label, &Dim)) -> bool {
        *label == self.parts[0] && extent.known().is_some() && *extent == self.extents[0]
    }

    /// The axes of a tensor with the shape `to`, if it has the elements of a tensor with the shape
    /// `from` and the axes `labels`, and this axis is cut or made whole between them.
    fn between(&self, labels: &[Label], from: &Shape, to: &Shape) -> Option<Vec<Label>> {
        let parts = self.extents;
        let whole = [Dim::Known(parts[0].known()?.checked_mul(parts[1].known()?)?)];
        let (at, old, new, label): (_, &[Dim], &[Dim], &[Label]) = if from.len() < to.len() {
            (labels.iter().position(|l| *l == self.whole)?, &whole, &parts, &self.parts)
        } else {
            let at = labels.windows(2).position(|pair| pair == self.parts)?;
            (at, &parts, &whole, std::slice::from_ref(&self.whole))
        };
        let end = at + old.len();
        let expected: Shape = [&from[..at], new, &from[end..]].concat().into();
        let is_cut = from.get(at..end)? == old && matches(to, &expected);
        is_cut.then(|| [&labels[..at], label, &labels[end..]].concat())
    }
}

/// The axes of `to` if it is a reshape of a tensor with known axes, or the other way round, and one
/// of `cuts` lies between them.
pub fn recut(
    graph: &Graph,
    cuts: &[Cut],
    (from, labels): (Output, &[Label]),
    to: Output,
) -> Option<Vec<Label>> {
    let [from, to] = [from, to].map(|tensor| graph.info(tensor).shape.as_ref());
    let (from, to) = (from.filter(|shape| shape.len() == labels.len())?, to?);
    cuts.iter().find_map(|cut| cut.between(labels, from, to))
}

/// Whether two shapes with the same number of elements are certainly equal: at most one extent is
/// in doubt, and the other extents, none of which is 0, determine it.
pub fn matches(a: &Shape, b: &Shape) -> bool {
    let (same, open): (Vec<_>, Vec<_>) = a.iter().zip(b).partition(|(a, b)| a.same(**b));
    a.len() == b.len()
        && match open[..] {
            [] => true,
            [(x, y)] => {
                (x.known().is_none() || y.known().is_none())
                    && same.iter().all(|(a, _)| a.known().is_some_and(|n| n > 0))
            }
            _ => false,
        }
}
