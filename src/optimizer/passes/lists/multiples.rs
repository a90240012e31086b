//! Unknown extents that are multiples of others. A layer that flattens a batch of sequences into
//! rows gives the product of batch and length a number of its own, and then restores the shape of
//! its input. The element counts of the tensors relate these numbers to each other.

use super::{Shapes, extents};
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::shape::{Dim, Shape};

/// The largest number of steps from an extent to the extent of which it is a multiple.
const MAX_STEPS: usize = 32;

/// A number of elements: a factor times at most one unknown extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    factor: usize,
    extent: Option<u32>,
}

impl Shapes<'_> {
    /// The number of elements of a shape, if at most one extent is unknown.
    fn count(&self, shape: &[Dim]) -> Option<Count> {
        let mut count = Count { factor: 1, extent: None };
        for dim in shape {
            let mut dim = self.representative(*dim);
            for _ in 0..MAX_STEPS {
                let Dim::Symbol(s) = dim else { break };
                let Some((factor, of)) = self.multiples.get(&s) else { break };
                count.factor = count.factor.checked_mul(*factor)?;
                dim = self.representative(Dim::Symbol(*of));
            }
            match dim {
                Dim::Known(n) => count.factor = count.factor.checked_mul(n)?,
                Dim::Symbol(s) if count.extent.is_none() => count.extent = Some(s),
                _ => return None,
            }
        }
        Some(count)
    }

    /// The shape of a `Reshape` in which one extent follows from the others, as long as that extent
    /// has a number.
    pub(super) fn reshaped(&mut self, id: NodeId) -> Option<Shape> {
        let output = Output { node: id, port: 0 };
        let [input, target] = self.graph.node(id).inputs() else { return None };
        let input = self.of(*input)?;
        let known = self.graph.info(output).shape.clone();
        let mut shape = match extents::of_target(self, *target) {
            Some(target) => {
                let known = known.filter(|s| s.len() == target.len());
                let own = |d: usize| known.as_ref().map_or(Dim::Unknown, |s| s[d]);
                let given = target.into_iter().enumerate();
                given.map(|(d, extent)| extent.unwrap_or_else(|| own(d))).collect()
            }
            None => known?,
        };
        let open: Vec<usize> =
            (0..shape.len()).filter(|d| self.representative(shape[*d]).known().is_none()).collect();
        let [open] = open[..] else { return None };
        let others = shape.iter().enumerate().filter(|(d, _)| *d != open);
        let others: usize =
            others.map(|(_, d)| self.representative(*d).known()).product::<Option<usize>>()?;
        let Count { factor, extent } = self.count(&input)?;
        if factor == 0 || others == 0 || !factor.is_multiple_of(others) {
            return None;
        }
        let factor = factor / others;
        shape[open] = match (extent, factor) {
            (None, n) => Dim::Known(n),
            (Some(s), 1) => Dim::Symbol(s),
            (Some(s), _) => {
                let Dim::Symbol(own) = self.representative(shape[open]) else { return None };
                if !self.places.is_fixed(own) || own == s || !self.places.always_runs(id) {
                    return None;
                }
                self.relate(own, factor, s);
                self.representative(Dim::Symbol(own))
            }
        };
        Some(shape)
    }

    /// Writes down that an extent is a multiple of another one. Equal multiples of one extent are
    /// equal, and so are extents that have an equal multiple.
    fn relate(&mut self, own: u32, factor: usize, of: u32) {
        let (other, before) = *self.multiples.entry(own).or_insert((factor, of));
        if other == factor {
            self.equate(Dim::Symbol(before), Dim::Symbol(of));
        }
        if let Dim::Symbol(of) = self.representative(Dim::Symbol(of)) {
            let first = *self.products.entry((factor, of)).or_insert(own);
            self.equate(Dim::Symbol(first), Dim::Symbol(own));
        }
    }
}
