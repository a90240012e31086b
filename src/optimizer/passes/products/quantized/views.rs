//! Matrices that are reshaped and transposed.

use super::Walk;
use crate::optimizer::graph::Output;
use crate::optimizer::passes::cleanup::permutation;

/// An extent of a view, and the distance of its elements in the matrix.
type Axis = (usize, usize);

impl Walk<'_> {
    /// The matrix behind reshapes and transposes of a matrix, and whether these transpose it.
    pub fn matrix(&mut self, tensor: Output) -> Option<(Output, bool)> {
        let (source, axes) = self.view(tensor)?;
        self.oriented(source, &axes)
    }

    /// The same for dimensions in this order, which are then those of a matrix of `dims`.
    pub fn arranged(
        &mut self,
        tensor: Output,
        order: &[usize],
        dims: [usize; 2],
    ) -> Option<(Output, bool)> {
        let (source, axes) = self.view(tensor)?;
        let axes: Vec<Axis> =
            order.iter().map(|at| axes.get(*at).copied()).collect::<Option<_>>()?;
        self.oriented(source, &reshaped(&axes, &dims)?)
    }

    /// A matrix whose elements are in these places of `source`, and whether it is the transpose.
    fn oriented(&self, source: Output, axes: &[Axis]) -> Option<(Output, bool)> {
        let [rows, columns] = self.graph.info(source).dims()?[..] else { return None };
        let are = |wanted: [Axis; 2]| {
            let same = |(a, b): (&Axis, &Axis)| a.0 == b.0 && (a.0 == 1 || a.1 == b.1);
            axes.len() == 2 && axes.iter().zip(&wanted).all(same)
        };
        let (row, column) = ((rows, columns), (columns, 1));
        let is_transposed = !are([row, column]);
        (!is_transposed || are([column, row])).then_some((source, is_transposed))
    }

    /// The tensor behind reshapes and transposes, and where its elements are.
    fn view(&mut self, tensor: Output) -> Option<(Output, Vec<Axis>)> {
        let dims = self.graph.info(tensor).dims()?;
        let node = self.graph.node(tensor.node);
        match node.op() {
            "Reshape" => {
                let input = self.pass(tensor)?.inputs()[0];
                let (source, axes) = self.view(input)?;
                Some((source, reshaped(&axes, &dims)?))
            }
            "Transpose" => {
                let inputs = self.pass(tensor)?.inputs();
                let order = permutation(self.graph, inputs[1])?;
                let (source, axes) = self.view(inputs[0])?;
                Some((
                    source,
                    order.iter().map(|at| axes.get(*at).copied()).collect::<Option<_>>()?,
                ))
            }
            _ => {
                let stride = |at: usize| dims[at + 1..].iter().product();
                let axes = dims.iter().enumerate().map(|(at, extent)| (*extent, stride(at)));
                Some((tensor, axes.collect()))
            }
        }
    }
}

/// The axes of a view with other extents, if it needs no copy.
fn reshaped(axes: &[Axis], dims: &[usize]) -> Option<Vec<Axis>> {
    // Neighbours that are one axis, innermost first.
    let mut whole: Vec<Axis> = Vec::new();
    for &(extent, stride) in axes.iter().rev().filter(|(extent, _)| *extent != 1) {
        match whole.last_mut() {
            Some((inner, apart)) if *inner * *apart == stride => *inner *= extent,
            _ => whole.push((extent, stride)),
        }
    }
    let mut whole = whole.into_iter();
    let (mut left, mut stride) = (1, 1);
    let mut out = Vec::new();
    for extent in dims.iter().rev() {
        if *extent != 1 && left == 1 {
            (left, stride) = whole.next()?;
        }
        if *extent == 0 || left % extent != 0 {
            return None;
        }
        out.push((*extent, stride));
        (left, stride) = (left / extent, stride * extent);
    }
    out.reverse();
    (left == 1 && whole.next().is_none()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_a_matrix_need_no_copy_while_its_axes_stay_whole() {
        let matrix = [(6, 20), (20, 1)];
        assert_eq!(reshaped(&matrix, &[6, 4, 5]), Some(vec![(6, 20), (4, 5), (5, 1)]));
        assert_eq!(reshaped(&matrix, &[120]), Some(vec![(120, 1)]));
        assert_eq!(reshaped(&[(20, 1), (6, 20)], &[4, 5, 6]), Some(vec![(4, 5), (5, 1), (6, 20)]));
        assert_eq!(reshaped(&[(20, 1), (6, 20)], &[120]), None);
        assert_eq!(reshaped(&[(20, 1), (6, 20)], &[20, 1, 6]).map(|axes| axes.len()), Some(3));
        assert_eq!(reshaped(&matrix, &[7, 20]), None);
        assert_eq!(reshaped(&matrix, &[6, 10]), None);
    }
}
