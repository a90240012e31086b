//! The order in which a view of weights holds their elements.

use crate::dtype::DType;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::is_view;
use crate::optimizer::passes::cleanup::permutation;

/// An axis of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    /// Its index in the shape of the weights.
    label: usize,
    extent: usize,
}

/// The axes of the weights in the order in which a tensor holds them, and the tensor's extents.
/// Axes of extent 1 do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    axes: Vec<Axis>,
    extents: Vec<usize>,
}

/// A view of weights as a matrix `[depth, heads * width]`, where `width` is the last extent of the
/// weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// The number of rows.
    pub depth: usize,
    /// The number of heads.
    pub heads: usize,
    /// The last extent of the weights.
    pub width: usize,
    /// The extents of the other axes, in the order of the weights.
    pub leading: Vec<usize>,
    /// The indices of these extents, in the order of the view.
    pub order: Vec<usize>,
}

impl Matrix {
    /// The number of columns.
    pub const fn columns(&self) -> usize {
        self.heads * self.width
    }

    /// The number of rows of width [`Self::width`].
    pub const fn rows(&self) -> usize {
        self.depth * self.heads
    }

    /// Whether the view moves no elements.
    pub fn keeps_order(&self) -> bool {
        self.order.is_sorted()
    }
}

/// Whether a `Cast` converts a float to a float.
pub fn is_of_floats(node: &Node) -> bool {
    let is_float = |name| node.dtype(name).is_some_and(DType::is_float);
    node.op() == "Cast" && is_float("SrcT") && is_float("DstT")
}

impl Axes {
    /// The axes of weights with these extents.
    pub fn of(extents: &[usize]) -> Self {
        let axes = extents.iter().copied().enumerate();
        let axes = axes.map(|(label, extent)| Axis { label, extent });
        Self { axes: axes.filter(|axis| axis.extent != 1).collect(), extents: extents.to_vec() }
    }

    /// The same axes in a tensor with other extents.
    pub fn with_extents(&self, extents: Vec<usize>) -> Self {
        Self { axes: self.axes.clone(), extents }
    }

    /// The axes of the result of `view`, if it moves axes, changes extents, or converts a tensor
    /// with these axes.
    pub fn behind(&self, graph: &Graph, view: NodeId) -> Option<Self> {
        let node = graph.node(view);
        match node.op() {
            "Cast" => is_of_floats(node).then(|| self.clone()),
            "Transpose" => self.moved(&permutation(graph, *node.inputs().get(1)?)?),
            _ if is_view(node) => {
                let extents = graph.info(Output { node: view, port: 0 }).dims()?;
                Some(self.with_extents(extents))
            }
            _ => None,
        }
    }

    /// The axes behind a transpose.
    fn moved(&self, order: &[usize]) -> Option<Self> {
        let groups = self.groups()?;
        let mut moved = Self { axes: Vec::new(), extents: Vec::new() };
        for dimension in order {
            moved.axes.extend_from_slice(groups.get(*dimension)?);
            moved.extents.push(self.extents[*dimension]);
        }
        (order.len() == groups.len()).then_some(moved)
    }

    /// The axes of each dimension; `None` if an axis lies in two dimensions.
    fn groups(&self) -> Option<Vec<&[Axis]>> {
        let mut rest = &self.axes[..];
        let groups = self.extents.iter().map(|extent| {
            let (mut product, mut count) = (1usize, 0);
            while product < *extent {
                product = product.checked_mul(rest.get(count)?.extent)?;
                count += 1;
            }
            let (group, behind) = rest.split_at(count);
            rest = behind;
            (product == *extent).then_some(group)
        });
        let groups = groups.collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(groups)
    }

    /// The axes as a matrix, if the last axis of the weights is innermost in its columns. The
    /// weights have `rank` dimensions.
    pub fn matrix(&self, rank: usize) -> Option<Matrix> {
        let groups = self.groups()?;
        let ([rows, columns], [depth, _]) = (&groups[..], &self.extents[..]) else { return None };
        let (last, heads) = columns.split_last()?;
        let mut sorted: Vec<Axis> = rows.iter().chain(heads.iter()).copied().collect();
        let labels: Vec<usize> = sorted.iter().map(|axis| axis.label).collect();
        sorted.sort_unstable_by_key(|axis| axis.label);
        let place = |label: &usize| sorted.iter().position(|axis| axis.label == *label);
        (last.label + 1 == rank).then_some(Matrix {
            depth: *depth,
            heads: heads.iter().map(|axis| axis.extent).product(),
            width: last.extent,
            leading: sorted.iter().map(|axis| axis.extent).collect(),
            order: labels.iter().map(place).collect::<Option<_>>()?,
        })
    }

    /// Whether the tensor holds the elements in the order of the weights, as a matrix with these
    /// extents.
    pub fn is_original(&self, extents: [usize; 2]) -> bool {
        self.axes.is_sorted_by_key(|axis| axis.label) && self.extents == extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_heads_are_matrices() {
        let weights = Axes::of(&[4, 640, 256]);
        let view = weights.moved(&[1, 0, 2]).unwrap().with_extents(vec![640, 1024]);
        let matrix = view.matrix(3).unwrap();
        assert_eq!((matrix.depth, matrix.heads, matrix.width), (640, 4, 256));
        assert_eq!((matrix.leading, matrix.order), (vec![4, 640], vec![1, 0]));
        let back = view.with_extents(vec![640, 4, 256]).moved(&[1, 0, 2]).unwrap();
        assert!(back.with_extents(vec![2560, 256]).is_original([2560, 256]));
        assert!(!view.with_extents(vec![2560, 256]).is_original([2560, 256]));
        // The heads may be rows, or there may be one.
        let rows = weights.with_extents(vec![2560, 256]).matrix(3).unwrap();
        assert!(rows.keeps_order() && (rows.depth, rows.heads) == (2560, 1));
        let one = Axes::of(&[1, 640, 256]).moved(&[1, 0, 2]).unwrap();
        let one = one.with_extents(vec![640, 256]).matrix(3).unwrap();
        assert!(one.keeps_order() && (one.depth, one.heads) == (640, 1));
    }

    #[test]
    fn other_views_are_none() {
        let weights = Axes::of(&[4, 6, 8]);
        // The last axis is not the last any more.
        assert!(weights.moved(&[0, 2, 1]).unwrap().with_extents(vec![4, 48]).matrix(3).is_none());
        // An axis lies in two dimensions.
        assert!(weights.with_extents(vec![8, 24]).matrix(3).is_none());
        assert!(weights.with_extents(vec![2, 12, 8]).moved(&[1, 0, 2]).is_none());
        assert!(weights.moved(&[1, 0]).is_none() && weights.matrix(3).is_none());
    }
}
