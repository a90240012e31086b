//! The gradient of the input of a convolution whose stride is greater than one: one contraction for
//! each phase.
//!
//! The kernel positions that cover an input position depend on its remainder by the stride. Input
//! positions of equal remainders form a phase. They see the same kernel positions, like a
//! convolution with stride one and fewer positions. So nothing is computed for kernel positions
//! that do not fit.

use crate::device::Profile;
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::plan::{ProductPlan, Step};
use crate::kernels::contract::{ALayout, BLayout, Contraction, Store};
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// One spatial dimension of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Phase {
    /// The first input position; every stride-th position from there on belongs to the phase.
    first: usize,
    /// Input positions.
    count: usize,
    /// First kernel position that covers them.
    tap: usize,
    /// Distance to the next kernel position.
    step: usize,
    /// Kernel positions, possibly none.
    taps: usize,
    /// Output position of the first input position under the first kernel position.
    pad: i64,
    /// The distance by which each further kernel position moves the output position back.
    dilation: usize,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The phases of dimension `d`, which cover each input position once.
fn phases(g: &Geometry, d: usize) -> impl Iterator<Item = Phase> {
    let (stride, dilation, kernel, pad, input) =
        (g.stride[d], g.dilation[d], g.kernel[d], g.pad[d], g.input[d]);
    let common = gcd(stride, dilation);
    let step = stride / common;
    (0..stride.min(input)).map(move |first| {
        let place = |tap: usize| (first + pad) as i64 - (tap * dilation) as i64;
        let tap = (0..step.min(kernel)).find(|tap| place(*tap) % stride as i64 == 0);
        Phase {
            first,
            count: (input - first).div_ceil(stride),
            tap: tap.unwrap_or(0),
            step,
            taps: tap.map_or(0, |tap| (kernel - tap).div_ceil(step)),
            pad: tap.map_or(0, |tap| place(tap) / stride as i64),
            dilation: dilation / common,
        }
    })
}

/// Whether contractions can store `columns` columns of a result at places of an image.
pub(super) fn stores_at_once(dx: &Tensor, columns: usize) -> bool {
    dx.dtype.lanes() == 1
        || columns.is_multiple_of(4) && dx.address.is_multiple_of(4 * dx.dtype.size() as u64)
}

/// Whether [`backprop_input`] takes this case: two spatial dimensions with channels last, and
/// results that are stored at once.
pub(super) fn apply(g: &Geometry, dx: &Tensor) -> bool {
    g.channels_last
        && g.spatial_class() == 2
        && g.stride[1] * g.stride[2] > 1
        && stores_at_once(dx, g.channels / g.groups)
        && g.taps() * (g.filters / g.groups) <= Contraction::LONGEST_WHOLE
}

/// The part of a tensor from element `first` on.
fn behind(t: &Tensor, first: usize) -> Tensor {
    Tensor::new(t.dtype, &[t.len() - first], t.address + (first * t.dtype.size()) as u64)
}

/// Appends the phases; every element of `dx` is written.
pub(super) fn backprop_input(
    plan: &mut ProductPlan<'_>,
    profile: &Profile,
    g: &Geometry,
    batch: &Iteration,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<()> {
    let (channels, filters) = (g.channels / g.groups, g.filters / g.groups);
    let line = channels * g.filters;
    let pairs = || phases(g, 1).flat_map(|p1| phases(g, 2).map(move |p2| (p1, p2)));
    if pairs().any(|(p1, p2)| p1.taps * p2.taps == 0) {
        plan.push(Step::Zero(dx.clone()));
    }
    for (p1, p2) in pairs().filter(|(p1, p2)| p1.taps * p2.taps > 0) {
        let phase = Geometry {
            input: [1, p1.count, p2.count],
            kernel: [1, p1.taps, p2.taps],
            stride: [1; 3],
            dilation: [1, p1.dilation, p2.dilation],
            // Shaders add positions and padding as u32, which wraps correctly for negative padding.
            pad: [0, p1.pad as i32 as u32 as usize, p2.pad as i32 as u32 as usize],
            ..g.clone()
        };
        let (b, c) = (
            behind(filter, (p1.tap * g.kernel[2] + p2.tap) * line),
            behind(dx, (p1.first * g.input[2] + p2.first) * g.channels),
        );
        let (pixel, row) = (g.stride[2] * g.channels, g.stride[1] * g.input[2] * g.channels);
        let b_layout = if p1.taps == 1 {
            BLayout::Strided(p2.step * line)
        } else {
            BLayout::Planar {
                count: p2.taps,
                image: p1.step * g.kernel[2] * line,
                stride: p2.step * line,
            }
        };
        Contraction::product([g.batch * p1.count * p2.count, filters, channels], [dy, &b, &c])
            .outer(p1.taps * p2.taps, b_layout)
            .left(ALayout::Spread(phase), 1)
            .right(1, g.filters)
            .stored(Store::Places {
                extents: [p1.count, p2.count],
                strides: [g.input_positions() * g.channels, row, pixel],
            })
            .batched(batch.clone(), [filters, filters, channels])
            .add_to(plan, profile, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of an input position and a kernel position that covers it is in one phase, with
    /// the right output position.
    #[test]
    fn phases_have_each_product_once() {
        for (input, kernel, stride, dilation, pad) in [
            (7, 3, 2, 1, 1),
            (8, 2, 2, 1, 0),
            (5, 1, 3, 1, 0),
            (9, 4, 2, 2, 3),
            (2, 5, 3, 2, 4),
            (6, 3, 4, 6, 0),
        ] {
            let g = Geometry {
                batch: 1,
                channels: 1,
                filters: 1,
                groups: 1,
                input: [1, 1, input],
                output: [1; 3],
                kernel: [1, 1, kernel],
                stride: [1, 1, stride],
                dilation: [1, 1, dilation],
                pad: [0, 0, pad],
                channels_last: true,
            };
            let mut found = Vec::new();
            for p in phases(&g, 2) {
                for (i, t) in (0..p.count).flat_map(|i| (0..p.taps).map(move |t| (i, t))) {
                    let y = i as i64 + p.pad - (t * p.dilation) as i64;
                    found.push((p.first + i * stride, p.tap + t * p.step, y));
                }
            }
            let mut want = Vec::new();
            for (x, k) in (0..input).flat_map(|x| (0..kernel).map(move |k| (x, k))) {
                let d = (x + pad) as i64 - (k * dilation) as i64;
                if d % stride as i64 == 0 {
                    want.push((x, k, d / stride as i64));
                }
            }
            found.sort_unstable();
            assert_eq!(found, want, "{g:?}");
        }
    }
}
