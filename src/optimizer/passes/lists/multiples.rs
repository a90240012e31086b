//! Unknown extents that are multiples of others. A layer that flattens a batch of sequences into
//! rows gives the product of batch and length a number of its own, and then restores the shape of
//! its input. The element counts of the tensors relate these numbers to each other.

use super::Shapes;
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
        let mut shape = match self.graph.constant(*target) {
            Some(target) => {
                let target = target.to_i64().ok()?;
                let known = known.filter(|s| s.len() == target.len());
                let of = |(d, n): (usize, i64)| match usize::try_from(n) {
                    Ok(n) => Dim::Known(n),
                    Err(_) => known.as_ref().map_or(Dim::Unknown, |s| s[d]),
                };
                target.into_iter().enumerate().map(of).collect()
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
        if others == 0 || !factor.is_multiple_of(others) {
            return None;
        }
        let factor = factor / others;
        shape[open] = match (extent, factor) {
            (None, n) => Dim::Known(n),
            (Some(s), 1) => Dim::Symbol(s),
            (Some(s), _) => {
                if let Dim::Symbol(own) = self.representative(shape[open])
                    && self.places.is_fixed(own)
                    && own != s
                    && self.places.always_runs(id)
                {
                    self.multiples.entry(own).or_insert((factor, s));
                }
                return None;
            }
        };
        Some(shape)
    }
}
