//! Contractions of tensors beyond one binding: parts of the contracted index, the rows, the columns
//! and the batch whose operands and results fit.
//!
//! Results are cut first, along the axis that is outermost in them, so that each window of the
//! result is one range. Where its operands still do not fit, they are cut along whatever axis makes
//! them longest: a part of the contracted index is added to the others as [`Sums`]; a part of
//! columns, which lies apart from its neighbours in the window, is stored at its places. Rows that
//! are positions of images are not cut in here: convolutions cut images themselves.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::epilogue::Bound;
use super::geometry::Geometry;
use super::plan::ProductPlan;
use super::sums::Sums;
use super::{ALayout, BLayout, Contraction, Store, StoreKind};
use crate::device::{Capabilities, Profile};
use crate::error::Result;
use crate::kernels::windows::{largest, limit, part, ranges, too_large};
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// The operands, as indices.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// An axis that may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// A dimension of the batch.
    Batch(usize),
    /// Dense rows.
    Row,
    /// Rows that stay together.
    Positions,
    /// Columns.
    Column,
    /// A dimension of a convolution's kernel.
    Kernel(usize),
    /// Inner steps of the contracted index.
    Step,
}

/// An axis with the distances, in elements of each tensor, from one of its steps to the next.
#[derive(Debug, Clone, Copy)]
struct Extent {
    axis: Axis,
    size: usize,
    strides: [usize; 3],
    /// The same, but 0 where a part of the axis reaches as far as the whole.
    reaches: [usize; 3],
    /// Whether it is summed over.
    summed: bool,
}

type Sizes = SmallVec<[usize; 12]>;
/// First step and number of steps of each axis.
type Cut = SmallVec<[(usize, usize); 12]>;

/// A contraction's axes, and how much of each fits.
struct Cuts {
    axes: SmallVec<[Extent; 12]>,
    /// Elements of a tensor beyond its first one that stay, however the axes are cut.
    base: [usize; 3],
    /// Bytes of an element. For the result, the bytes of its sums, if they are more.
    bytes: [u64; 3],
    limit: u64,
}

impl Contraction {
    /// Appends the contraction in windows.
    pub(super) fn add_windows<'e>(
        &self,
        plan: &mut ProductPlan<'e>,
        profile: &Profile,
        epilogue: Option<&Bound<'e>>,
    ) -> Result<()> {
        let widest = epilogue.map_or(self.c.dtype.size(), Bound::widest);
        let cuts = Cuts {
            axes: self.axes(),
            base: self.base(),
            bytes: [
                self.a.dtype.size() as u64,
                self.b.dtype.size() as u64,
                (2 * self.a.dtype.accumulator().size()).max(widest) as u64,
            ],
            limit: limit(&profile.capabilities),
        };
        // Results that are stored at places are cut by convolutions alone.
        let sizes = if matches!(self.store, Store::Places { .. }) { None } else { cuts.sizes() };
        let Some((outer, inner)) = sizes else {
            let (m, n, depth) = (self.m, self.n, self.depth());
            return Err(too_large(
                &profile.capabilities,
                &format!("an image or row of a product of {m}x{depth} by {depth}x{n}"),
            ));
        };
        let whole: Cut = cuts.axes.iter().map(|e| (0, e.size)).collect();
        let mut windows = cuts.cuts(&whole, &outer, |e| !e.summed);
        windows.sort_by_key(|window| cuts.offsets(window)[C]);
        for window in windows {
            let start = cuts.offsets(&window)[C];
            let len = cuts.span(C, &counts(&window));
            let bound = epilogue.map(|e| e.window(start, len));
            plan.window(|plan| {
                plan.write(&part(&self.c, start, len), |plan, result| {
                    self.add_window(plan, profile, &cuts, &window, &inner, result, bound)
                })
            })?;
        }
        Ok(())
    }

    /// Appends one window of the result, in parts of at most `sizes`.
    #[expect(clippy::too_many_arguments, reason = "a window and where it goes")]
    fn add_window<'e>(
        &self,
        plan: &mut ProductPlan<'e>,
        profile: &Profile,
        cuts: &Cuts,
        window: &Cut,
        sizes: &Sizes,
        result: &Tensor,
        epilogue: Option<Bound<'e>>,
    ) -> Result<()> {
        let start = cuts.offsets(window)[C];
        let is_cut = |summed: bool| {
            let cut = |((e, (_, n)), size): ((&Extent, &(usize, usize)), &usize)| {
                e.summed == summed && n > size
            };
            cuts.axes.iter().zip(window).zip(sizes).any(cut)
        };
        let (steps, apart) = (is_cut(true), is_cut(false));
        let add = |plan: &mut ProductPlan<'e>, cut: &Cut, c: &Tensor, at, apart, epilogue| {
            plan.contract(self.part(&profile.capabilities, cuts, cut, c, at, apart)?, epilogue)
        };
        if !steps && !apart {
            return add(plan, window, result, 0, false, epilogue);
        }
        let kind = self.store_kind(result);
        let vec4s = sizes
            .iter()
            .zip(&cuts.axes)
            .all(|(n, e)| e.axis != Axis::Column || n.is_multiple_of(4));
        let at_once = self.c.dtype.lanes() == 1 || kind == StoreKind::Vec4s && vec4s;
        if !steps && at_once {
            for columns in cuts.cuts(window, sizes, |e| !e.summed) {
                let at = cuts.offsets(&columns)[C] - start;
                let bound =
                    epilogue.as_ref().map(|e| e.window(at, cuts.span(C, &counts(&columns))));
                add(plan, &columns, result, at, true, bound)?;
            }
            return Ok(());
        }
        let mut sums = Sums::new(plan, self.a.dtype, result.len());
        for depth in cuts.cuts(window, sizes, |e| e.summed) {
            let slice = sums.next(plan);
            for columns in cuts.cuts(&depth, sizes, |e| !e.summed) {
                let at = cuts.offsets(&columns)[C] - start;
                add(plan, &columns, &slice, at, apart, None)?;
            }
        }
        sums.finish(plan, result, epilogue.as_ref(), kind == StoreKind::Vec4s);
        Ok(())
    }

    /// The part of the contraction that `cut` describes, into `c` from element `at` on. `apart`
    /// tells that the elements between its rows are not its own.
    fn part(
        &self,
        capabilities: &Capabilities,
        cuts: &Cuts,
        cut: &Cut,
        c: &Tensor,
        at: usize,
        apart: bool,
    ) -> Result<Self> {
        let [a_at, b_at, _] = cuts.offsets(cut);
        let at = [a_at, b_at, at];
        let counts = counts(cut);
        let view =
            |k: usize, t: &Tensor| part(t, at[k], cuts.span(k, &counts).min(t.len() - at[k]));
        let mut part = self.clone();
        (part.a, part.c) = (view(A, &self.a), view(C, c));
        match &self.weights {
            None => part.b = view(B, &self.b),
            Some(weights) => {
                let range = |axis| {
                    let at = cuts.axes.iter().position(|e| e.axis == axis);
                    at.map_or((0, 0), |at| cut[at])
                };
                let ((step, steps), (column, columns)) = (range(Axis::Step), range(Axis::Column));
                let (codes, own) = weights.part(&self.b, [step, column], [steps, columns]);
                (part.b, part.weights) = (codes, Some(Arc::new(own)));
            }
        }
        let mut dims: SmallVec<[usize; 6]> = SmallVec::from_slice(self.batch.dims());
        for (extent, &(first, count)) in cuts.axes.iter().zip(cut) {
            match extent.axis {
                Axis::Positions => {}
                Axis::Batch(d) => dims[d] = count,
                Axis::Row => part.m = count,
                Axis::Column => part.n = count,
                Axis::Step => {
                    if self.outer > 1 && part.b_layout == BLayout::Dense && count < self.inner {
                        part.b_layout = BLayout::Strided(self.inner * self.b_step);
                    }
                    part.inner = count;
                }
                Axis::Kernel(d) => {
                    if let ALayout::Patch(g) | ALayout::Spread(g) | ALayout::Window(g) =
                        &mut part.a_layout
                    {
                        g.crop_kernel(d, first, count);
                    }
                }
            }
        }
        match &part.a_layout {
            ALayout::Dense { .. } | ALayout::Terms { .. } => {}
            ALayout::Patch(g) => part.outer = g.taps(),
            ALayout::Spread(g) => {
                part.outer = g.taps();
                if let BLayout::Planar { count, .. } = &mut part.b_layout {
                    *count = g.kernel[2];
                }
            }
            ALayout::Window(g) => part.m = g.taps() * (g.channels / g.groups),
        }
        if dims[..] != *self.batch.dims() {
            let walk =
                (0..3).fold(Iteration::over(&dims), |w, k| w.operand(self.batch.strides(k), 0));
            part.batch = walk.collapse();
        }
        if apart {
            let Store::Rows(stride) = self.store else {
                return Err(too_large(
                    capabilities,
                    "a filter of images whose channels come first",
                ));
            };
            part.store = Store::Places { extents: [1, 1], strides: [stride, 0, 0] };
        }
        Ok(part)
    }

    fn axes(&self) -> SmallVec<[Extent; 12]> {
        // With channels last, an image holds all groups and channels.
        let inside = match &self.a_layout {
            ALayout::Patch(g) | ALayout::Spread(g) => [g.channels_last, false, false],
            ALayout::Window(g) => [g.channels_last, g.channels_last, false],
            ALayout::Dense { .. } | ALayout::Terms { .. } => [false; 3],
        };
        let mut axes = SmallVec::new();
        let mut push = |axis, size, strides: [usize; 3], summed| {
            let reaches = [A, B, C].map(|k| if inside[k] { 0 } else { strides[k] });
            axes.push(Extent { axis, size, strides, reaches, summed });
        };
        let matrices = [self.a_matrix, self.b_matrix, self.c_matrix];
        let own = [self.b_step, self.b_column];
        let [b_step, b_column] = self.weights.as_ref().map_or(own, |weights| weights.strides());
        for (d, size) in self.batch.dims().iter().enumerate() {
            let strides =
                [A, B, C].map(|k| self.batch.strides(k)[d].unsigned_abs() as usize * matrices[k]);
            push(Axis::Batch(d), *size, strides, false);
        }
        let (row, column) = match self.store {
            Store::Rows(stride) => (stride, 1),
            Store::Planes { plane, .. } => (1, plane),
            Store::Columns(stride) => (1, stride),
            Store::Places { .. } => (1, 1),
        };
        push(Axis::Column, self.n, [0, b_column, column], false);
        match (&self.a_layout, self.store) {
            (ALayout::Dense { stride }, Store::Rows(_) | Store::Columns(_)) => {
                push(Axis::Row, self.m, [*stride, 0, row], false);
            }
            (ALayout::Window(g), _) => {
                push(Axis::Positions, g.channels / g.groups, [0, 0, row], false)
            }
            (_, Store::Planes { plane, image }) => {
                push(Axis::Positions, self.m / plane, [0, 0, image], false)
            }
            _ => push(Axis::Positions, self.m, [0, 0, row], false),
        }
        let kernel = |g: &Geometry, d: usize| g.kernel[d + 1..].iter().product::<usize>();
        match &self.a_layout {
            ALayout::Dense { .. } | ALayout::Terms { .. } => {
                push(Axis::Step, self.inner, [self.a_step, b_step, 0], true);
            }
            ALayout::Patch(g) | ALayout::Spread(g) => {
                for d in 0..3 {
                    let line = match self.b_layout {
                        BLayout::Dense => kernel(g, d) * self.inner * self.b_step,
                        BLayout::Strided(stride) => kernel(g, d) * stride,
                        BLayout::Planar { stride, .. } if d == 2 => stride,
                        BLayout::Planar { image, .. } => {
                            image * if d == 0 { g.kernel[1] } else { 1 }
                        }
                    };
                    push(Axis::Kernel(d), g.kernel[d], [0, line, 0], true);
                }
                push(Axis::Step, self.inner, [self.a_step, self.b_step, 0], true);
            }
            ALayout::Window(g) => {
                for d in 0..3 {
                    let rows = kernel(g, d) * (g.channels / g.groups);
                    push(Axis::Kernel(d), g.kernel[d], [0, 0, rows * row], false);
                }
            }
        }
        axes
    }

    /// Elements of a tensor beyond the first one that no axis cuts.
    fn base(&self) -> [usize; 3] {
        let images = |g: &Geometry, channels: usize, positions: usize, planes: usize| {
            (g.batch - 1) * channels * positions + planes * positions - 1
        };
        let stored = match self.store {
            Store::Planes { plane, .. } => plane - 1,
            _ => 0,
        };
        let all = |t: &Tensor| t.len() - 1;
        match &self.a_layout {
            ALayout::Dense { .. } | ALayout::Terms { .. } => {
                [0, self.weights.as_ref().map_or(0, |weights| weights.base(&self.b)), stored]
            }
            ALayout::Patch(g) if g.channels_last => [all(&self.a), 0, stored],
            ALayout::Spread(g) if g.channels_last => [all(&self.a), 0, stored],
            ALayout::Patch(g) => [images(g, g.channels, g.input_positions(), 1), 0, stored],
            ALayout::Spread(g) => [images(g, g.filters, g.output_positions(), 1), 0, stored],
            ALayout::Window(g) => {
                if g.channels_last {
                    return [all(&self.a), all(&self.b), 0];
                }
                let planes = g.channels / g.groups;
                [
                    images(g, g.channels, g.input_positions(), planes),
                    images(g, g.filters, g.output_positions(), 1),
                    0,
                ]
            }
        }
    }
}

/// How many steps of each axis a part has.
fn counts(cut: &Cut) -> Sizes {
    cut.iter().map(|(_, n)| *n).collect()
}

impl Cuts {
    fn full(&self) -> Sizes {
        self.axes.iter().map(|e| e.size).collect()
    }

    /// Elements from the first to the last one of tensor `k` that a part of `sizes` touches, both
    /// included.
    fn span(&self, k: usize, sizes: &Sizes) -> usize {
        let reach = self.axes.iter().zip(sizes).map(|(e, size)| (size - 1) * e.reaches[k]);
        self.base[k] + 1 + reach.sum::<usize>()
    }

    fn fits(&self, k: usize, sizes: &Sizes) -> bool {
        self.span(k, sizes) as u64 * self.bytes[k] <= self.limit
    }

    /// The axis among `of` along which tensor `k` is longest. Dimensions of a kernel are cut from
    /// the outermost one on.
    fn longest(&self, k: usize, sizes: &Sizes, of: impl Fn(&Extent) -> bool) -> Option<usize> {
        let open = |i: &usize| sizes[*i] > 1 && self.axes[*i].reaches[k] > 0 && of(&self.axes[*i]);
        let found = (0..self.axes.len())
            .filter(open)
            .max_by_key(|i| (sizes[*i] - 1) * self.axes[*i].reaches[k])?;
        let is_kernel = |i: usize| matches!(self.axes[i].axis, Axis::Kernel(_));
        if is_kernel(found) {
            (0..=found).find(|i| is_kernel(*i) && sizes[*i] > 1)
        } else {
            Some(found)
        }
    }

    /// Makes `axis` as small as tensor `k` needs. False where it cannot be cut.
    fn shrink(&self, k: usize, sizes: &mut Sizes, axis: usize) -> bool {
        if self.axes[axis].axis == Axis::Positions {
            return false;
        }
        let fits = |size: usize| {
            let mut part = sizes.clone();
            part[axis] = size;
            self.fits(k, &part)
        };
        sizes[axis] = largest(sizes[axis] - 1, fits).max(1);
        true
    }

    /// The sizes of windows of the result, and those of the parts whose products are added up, if
    /// there are sizes that fit.
    fn sizes(&self) -> Option<(Sizes, Sizes)> {
        let mut sizes = self.full();
        // The axis of the largest stride cuts the result into ranges.
        let outermost = |sizes: &Sizes| {
            let open = |i: &usize| sizes[*i] > 1 && self.axes[*i].strides[C] > 0;
            (0..self.axes.len()).filter(open).max_by_key(|i| self.axes[*i].strides[C])
        };
        loop {
            let first = outermost(&sizes);
            if !self.fits(C, &sizes) {
                if !self.shrink(C, &mut sizes, first?) {
                    return None;
                }
                continue;
            }
            let tight = [A, B].into_iter().find(|k| {
                !self.fits(*k, &sizes)
                    && first.is_some()
                    && self.longest(*k, &sizes, |_| true) == first
            });
            match (tight, first) {
                (Some(k), Some(first)) if self.shrink(k, &mut sizes, first) => {}
                _ => break,
            }
        }
        let windows = sizes.clone();
        for k in [A, B] {
            while !self.fits(k, &sizes) {
                let axis = self.longest(k, &sizes, |e| e.axis != Axis::Positions)?;
                self.shrink(k, &mut sizes, axis);
            }
        }
        // Partial sums of all chunks are bound at once; parts whose rows lie apart are not cut into
        // chunks.
        let apart =
            self.axes.iter().zip(windows.iter().zip(&sizes)).any(|(e, (w, s))| !e.summed && w > s);
        let depth = |sizes: &Sizes| {
            let summed = self.axes.iter().zip(sizes).filter(|(e, _)| e.summed);
            summed.map(|(_, size)| *size).product::<usize>()
        };
        let most = if apart {
            1
        } else {
            (self.limit / (self.span(C, &windows) as u64 * self.bytes[C])).max(1) as usize
        };
        while depth(&sizes) > most.saturating_mul(Contraction::LONGEST_WHOLE) {
            let summed = |i: &usize| self.axes[*i].summed && sizes[*i] > 1;
            let kernel = |i: &usize| matches!(self.axes[*i].axis, Axis::Kernel(_));
            let all = || (0..self.axes.len()).filter(summed);
            let axis = all().find(kernel).or_else(|| all().next())?;
            let others = depth(&sizes) / sizes[axis];
            let most = largest(sizes[axis] - 1, |size| {
                size * others <= most.saturating_mul(Contraction::LONGEST_WHOLE)
            });
            sizes[axis] = most.max(1);
        }
        Some((windows, sizes))
    }

    fn offsets(&self, cut: &Cut) -> [usize; 3] {
        [A, B, C]
            .map(|k| self.axes.iter().zip(cut).map(|(e, (first, _))| first * e.strides[k]).sum())
    }

    /// Cuts the part `cut` into parts of `sizes`, along the axes for which `of` holds; the last
    /// axis runs fastest.
    fn cuts(&self, cut: &Cut, sizes: &Sizes, of: impl Fn(&Extent) -> bool) -> Vec<Cut> {
        let mut parts: Vec<Cut> = vec![smallvec![]];
        for ((extent, &(first, count)), size) in self.axes.iter().zip(cut).zip(sizes) {
            let size = if of(extent) { *size } else { count };
            let each = ranges(count, size).map(|(at, n)| (first + at, n));
            parts = parts
                .into_iter()
                .flat_map(|head| {
                    each.clone().map(move |range| {
                        let mut part = head.clone();
                        part.push(range);
                        part
                    })
                })
                .collect();
        }
        parts
    }
}
