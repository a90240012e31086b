//! Matrices that are reshaped and transposed.

use smallvec::SmallVec;

use super::Walk;
use crate::optimizer::graph::Output;
use crate::optimizer::passes::cleanup::permutation;

/// An extent of a view, and the distance of its elements in the matrix.
type Axis = (usize, usize);
/// A dimension of a view: axes of the matrix, outermost first. Those of extent 1 are left out.
type Dimension = SmallVec<[Axis; 2]>;

/// How a product's operand takes the elements of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrangement {
    /// Whether it is the transpose.
    pub is_transposed: bool,
    /// The columns of a head, if the matrix is a tensor `[heads, rows, width]` whose heads' columns
    /// stand next to each other.
    pub head: Option<usize>,
}

impl Walk<'_> {
    /// The matrix behind reshapes and transposes of a matrix, and whether these transpose it.
    pub fn matrix(&mut self, tensor: Output) -> Option<(Output, bool)> {
        let (source, dimensions) = self.view(tensor)?;
        let found = self.arrangement(source, &dimensions)?;
        found.head.is_none().then_some((source, found.is_transposed))
    }

    /// The matrix behind reshapes and transposes of a tensor whose dimensions in this order are
    /// those of a matrix of `dims`.
    pub fn arranged(
        &mut self,
        tensor: Output,
        order: &[usize],
        dims: [usize; 2],
    ) -> Option<(Output, Arrangement)> {
        let (source, dimensions) = self.view(tensor)?;
        let dimensions = reshaped(&permuted(&dimensions, order)?, &dims)?;
        Some((source, self.arrangement(source, &dimensions)?))
    }

    /// The arrangement of a matrix whose elements are in these places of `source`.
    fn arrangement(&self, source: Output, dimensions: &[Dimension]) -> Option<Arrangement> {
        let [rows, columns] = self.graph.info(source).dims()?[..] else { return None };
        let [first, second] = dimensions else { return None };
        let is = |dimension: &Dimension, wanted: Axis| match dimension[..] {
            [] => wanted.0 == 1,
            [axis] => axis == wanted,
            _ => false,
        };
        let are = |a, b| is(a, (rows, columns)) && is(b, (columns, 1));
        let plain = |is_transposed| Arrangement { is_transposed, head: None };
        if are(first, second) {
            return Some(plain(false));
        }
        if are(second, first) {
            return Some(plain(true));
        }
        let width = |own: &Dimension, of_heads: &Dimension| match of_heads[..] {
            [(heads, apart), (width, 1)] if heads * width == columns && apart == rows * width => {
                is(own, (rows, width)).then_some(width)
            }
            _ => None,
        };
        let of_heads = |is_transposed| move |head| Arrangement { is_transposed, head: Some(head) };
        let as_it_is = width(first, second).map(of_heads(false));
        as_it_is.or_else(|| width(second, first).map(of_heads(true)))
    }

    /// The tensor behind reshapes and transposes, and where its elements are.
    fn view(&mut self, tensor: Output) -> Option<(Output, Vec<Dimension>)> {
        let dims = self.graph.info(tensor).dims()?;
        let node = self.graph.node(tensor.node);
        match node.op() {
            "Reshape" => {
                let input = self.pass(tensor)?.inputs()[0];
                let (source, dimensions) = self.view(input)?;
                Some((source, reshaped(&dimensions, &dims)?))
            }
            "Transpose" => {
                let inputs = self.pass(tensor)?.inputs();
                let order = permutation(self.graph, inputs[1])?;
                let (source, dimensions) = self.view(inputs[0])?;
                Some((source, permuted(&dimensions, &order)?))
            }
            _ => {
                let stride = |at: usize| dims[at + 1..].iter().product();
                let axis = |(at, extent): (usize, &usize)| match extent {
                    1 => Dimension::new(),
                    _ => Dimension::from_slice(&[(*extent, stride(at))]),
                };
                Some((tensor, dims.iter().enumerate().map(axis).collect()))
            }
        }
    }
}

/// The dimensions in this order.
fn permuted(dimensions: &[Dimension], order: &[usize]) -> Option<Vec<Dimension>> {
    order.iter().map(|at| dimensions.get(*at).cloned()).collect()
}

/// The dimensions of a view with other extents.
fn reshaped(dimensions: &[Dimension], dims: &[usize]) -> Option<Vec<Dimension>> {
    // Neighbours that are one axis, innermost first.
    let mut whole: Vec<Axis> = Vec::new();
    for &(extent, stride) in dimensions.iter().flatten().rev() {
        match whole.last_mut() {
            Some((inner, apart)) if *inner * *apart == stride => *inner *= extent,
            _ => whole.push((extent, stride)),
        }
    }
    let mut whole = whole.into_iter();
    let (mut left, mut stride) = (1, 1);
    let mut out = Vec::new();
    for extent in dims.iter().rev() {
        let mut dimension = Dimension::new();
        let mut rest = *extent;
        while rest != 1 {
            if left == 1 {
                (left, stride) = whole.next()?;
            }
            // A dimension ends within an axis, or takes all that is left of it.
            let taken = if rest != 0 && left % rest == 0 { rest } else { left };
            if rest == 0 || left == 0 || rest % taken != 0 {
                return None;
            }
            dimension.insert(0, (taken, stride));
            (left, stride, rest) = (left / taken, stride * taken, rest / taken);
        }
        out.push(dimension);
    }
    out.reverse();
    (left == 1 && whole.next().is_none()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dimensions: &[&[Axis]]) -> Vec<Dimension> {
        dimensions.iter().map(|axes| Dimension::from_slice(axes)).collect()
    }

    #[test]
    fn views_of_a_matrix_have_the_axes_of_their_elements() {
        let matrix = of(&[&[(6, 20)], &[(20, 1)]]);
        let split = of(&[&[(6, 20)], &[(4, 5)], &[(5, 1)]]);
        assert_eq!(reshaped(&matrix, &[6, 4, 5]), Some(split));
        assert_eq!(reshaped(&matrix, &[120]), Some(of(&[&[(120, 1)]])));
        let transposed = of(&[&[(20, 1)], &[(6, 20)]]);
        let split = of(&[&[(4, 5)], &[(5, 1)], &[(6, 20)]]);
        assert_eq!(reshaped(&transposed, &[4, 5, 6]), Some(split));
        let joined = of(&[&[(20, 1), (6, 20)]]);
        assert_eq!(reshaped(&transposed, &[120]), Some(joined.clone()));
        assert_eq!(reshaped(&joined, &[20, 1, 6]), Some(of(&[&[(20, 1)], &[], &[(6, 20)]])));
        assert_eq!(reshaped(&matrix, &[7, 20]), None);
        assert_eq!(reshaped(&matrix, &[6, 10]), None);
        assert_eq!(reshaped(&transposed, &[8, 15]), None);
    }

    #[test]
    fn dimensions_of_heads_have_two_axes() {
        let heads = of(&[&[(3, 8)], &[(2, 24), (8, 1)]]);
        let whole = reshaped(&of(&[&[(3, 16)], &[(16, 1)]]), &[2, 3, 8]).expect("heads");
        assert_eq!(reshaped(&permuted(&whole, &[1, 0, 2]).unwrap(), &[3, 16]), Some(heads));
    }
}
