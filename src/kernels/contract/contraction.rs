//! What a contraction computes: its extents, the layouts of its operands and of its result.

use std::sync::Arc;

use smallvec::SmallVec;

use super::geometry::Geometry;
use super::weights::QuantizedWeights;
use crate::dtype::DType;
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// The most terms of a sum: each binds two tensors.
pub const MOST_TERMS: usize = 3;

/// Operands of each term of a sum of products behind the first one.
pub type OtherTerms = SmallVec<[[Tensor; 2]; MOST_TERMS - 1]>;

/// Columns of an invocation.
const WIDE: usize = 4;

/// What a row of `a` is.
#[derive(Debug, Clone)]
pub enum ALayout {
    /// Row m starts at element `m * stride`.
    Dense {
        /// Elements between rows.
        stride: usize,
    },
    /// The same for several tensors: each outer step is a term, see [`super::siblings`].
    Terms {
        /// Elements between rows.
        stride: usize,
        /// Both operands of each term behind the first one.
        others: OtherTerms,
    },
    /// Row m is an output position of a convolution; outer steps are kernel positions, inner ones
    /// input channels.
    Patch(Geometry),
    /// Row m is an input position; outer steps are kernel positions, inner ones output channels.
    /// `a` is the output's gradient.
    Spread(Geometry),
    /// Row m is a kernel position and an input channel; outer steps are lines of the output, inner
    /// ones positions on a line.
    Window(Geometry),
}

/// Where outer step o of `b` starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BLayout {
    /// At `o * inner * b_step`: k is one dense index.
    Dense,
    /// At `o * stride`.
    Strided(usize),
    /// At `o / count * image + o % count * stride`.
    Planar {
        /// Outer steps in an image.
        count: usize,
        /// Elements between images.
        image: usize,
        /// Elements between outer steps within an image.
        stride: usize,
    },
}

/// Where row m of `c` starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// At `m * stride`, with columns next to each other. A contraction that is cut may overwrite
    /// the elements between its rows.
    Rows(usize),
    /// At `m / plane * image + m % plane`, with columns `plane` apart: channels first.
    Planes {
        /// Elements of a plane.
        plane: usize,
        /// Elements between images.
        image: usize,
    },
    /// Rows are positions of images that have further positions in between. Row m starts at `m /
    /// (e0 * e1) * s0 + m / e1 % e0 * s1 + m % e1 * s2`, with columns next to each other. Not for
    /// contractions that are cut.
    Places {
        /// Positions in both directions.
        extents: [usize; 2],
        /// Elements between images, and between positions in both directions.
        strides: [usize; 3],
    },
    /// At m, with columns this far apart: the transpose of [`Store::Rows`].
    Columns(usize),
}

/// Where the four bytes of a word of `b` lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// In a row, next to each other: the bytes of `a` lie like this.
    Words,
    /// In four rows. Strides and indices of `b` count bytes.
    Rows,
}

/// One contraction over tensors whose layout is given in elements.
#[derive(Debug, Clone)]
pub struct Contraction {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Outer steps of the contracted index.
    pub outer: usize,
    /// Inner steps of the contracted index.
    pub inner: usize,
    /// The batch: a walk with the operands `a`, `b` and `c`, whose elements are whole matrices.
    pub batch: Iteration,
    /// Left operand.
    pub a: Tensor,
    /// Its rows.
    pub a_layout: ALayout,
    /// Elements between inner steps of `a`.
    pub a_step: usize,
    /// Elements between matrices of `a`.
    pub a_matrix: usize,
    /// Right operand, or its codes.
    pub b: Tensor,
    /// Its outer steps.
    pub b_layout: BLayout,
    /// Elements between inner steps of `b`.
    pub b_step: usize,
    /// Elements between columns of `b`.
    pub b_column: usize,
    /// Elements between matrices of `b`.
    pub b_matrix: usize,
    /// The result, in which every element belongs to one (z, m, n). With an epilogue, it is the
    /// epilogue's result.
    pub c: Tensor,
    /// Its layout.
    pub store: Store,
    /// Elements between matrices of `c`.
    pub c_matrix: usize,
    /// Whether `a` and `b` are conjugated; for complex types alone.
    pub conjugated: [bool; 2],
    /// How four bytes along the contracted index are one element of each operand; they are
    /// elements of their own without it.
    pub(super) packing: Option<Packing>,
    /// Quantized weights, if `b` holds their codes. Strides of `b` then count weights.
    pub(super) weights: Option<Arc<QuantizedWeights>>,
}

/// The builder: a product of dense matrices, of which each method changes one property.
impl Contraction {
    /// The product of row-major matrices a[m][k] and b[k][n], for [m, k, n]. Matrices of a batch
    /// follow one another.
    pub fn product([m, k, n]: [usize; 3], [a, b, c]: [&Tensor; 3]) -> Self {
        Self {
            m,
            n,
            outer: 1,
            inner: k,
            batch: Iteration::over(&[]).broadcast(&[]).broadcast(&[]).broadcast(&[]),
            a: a.clone(),
            a_layout: ALayout::Dense { stride: k },
            a_step: 1,
            a_matrix: m * k,
            b: b.clone(),
            b_layout: BLayout::Dense,
            b_step: n,
            b_column: 1,
            b_matrix: k * n,
            c: c.clone(),
            store: Store::Rows(n),
            c_matrix: m * n,
            conjugated: [false; 2],
            packing: None,
            weights: None,
        }
    }

    /// The operands may be stored as their transposes, a[k][m] and b[n][k].
    #[must_use]
    pub fn transposed(self, [a, b]: [bool; 2]) -> Self {
        let [m, k, n] = [self.m, self.depth(), self.n];
        self.strided([if a { m } else { k }, if b { k } else { n }, n], [a, b])
    }

    /// Rows of the matrices, as they are stored, begin `rows` elements apart. The operands may be
    /// stored as their transposes.
    #[must_use]
    pub fn strided(self, [a, b, c]: [usize; 3], [a_transposed, b_transposed]: [bool; 2]) -> Self {
        let (row, a_step) = if a_transposed { (1, a) } else { (a, 1) };
        let (b_step, b_column) = if b_transposed { (1, b) } else { (b, 1) };
        self.left(ALayout::Dense { stride: row }, a_step)
            .right(b_step, b_column)
            .stored(Store::Rows(c))
    }

    /// The layout of `a`, and the elements between its inner steps.
    #[must_use]
    pub fn left(self, a_layout: ALayout, a_step: usize) -> Self {
        Self { a_layout, a_step, ..self }
    }

    /// Elements between inner steps and between columns of `b`.
    #[must_use]
    pub fn right(self, b_step: usize, b_column: usize) -> Self {
        Self { b_step, b_column, ..self }
    }

    /// The contracted index has `outer` steps of the length so far, and `b` has this layout.
    #[must_use]
    pub fn outer(self, outer: usize, b_layout: BLayout) -> Self {
        Self { outer, b_layout, ..self }
    }

    /// The layout of the result.
    #[must_use]
    pub fn stored(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// A product for each step of `batch`.
    #[must_use]
    pub fn over(self, batch: Iteration) -> Self {
        Self { batch, ..self }
    }

    /// The same for matrices of `a`, `b` and `c` that begin at multiples of these numbers of
    /// elements.
    #[must_use]
    pub fn batched(self, batch: Iteration, [a_matrix, b_matrix, c_matrix]: [usize; 3]) -> Self {
        Self { batch, a_matrix, b_matrix, c_matrix, ..self }
    }

    /// Which of `a` and `b` are conjugated.
    #[must_use]
    pub fn conjugated(self, conjugated: [bool; 2]) -> Self {
        Self { conjugated, ..self }
    }

    /// The same with codes for `b`.
    #[must_use]
    pub fn quantized(self, weights: QuantizedWeights) -> Self {
        let (b_step, b_column) = if weights.by_columns { (1, self.depth()) } else { (self.n, 1) };
        let weights = Some(Arc::new(weights));
        Self { weights, b_step, b_column, b_layout: BLayout::Dense, ..self }
    }
}

impl Contraction {
    /// The type of the values that loads of `b` give.
    pub(super) fn b_type(&self) -> DType {
        self.weights.as_ref().map_or(self.b.dtype, |weights| weights.dtype)
    }

    /// Whether neighbouring elements of `b` lie along the contracted index, not along columns.
    pub(super) const fn is_by_depth(&self) -> bool {
        self.b_step == 1 && self.n > 1 && self.b_column != 1
    }

    /// The contraction, or its transpose if that gives lanes more to do: an invocation computes
    /// four columns, and most of them do no work for a narrow result. The transpose is wide: `c^T =
    /// b^T a^T`, where the operands change places and no data is moved.
    pub(super) fn widened(mut self) -> Self {
        let (ALayout::Dense { stride }, BLayout::Dense, Store::Rows(line)) =
            (&self.a_layout, self.b_layout, self.store)
        else {
            return self;
        };
        let is_fixed = self.batch.len() != 1 || self.outer != 1 || self.weights.is_some();
        if is_fixed || self.n >= WIDE || self.m < WIDE {
            return self;
        }
        let a_row = *stride;
        self.a_layout = ALayout::Dense { stride: self.b_column };
        self.b_column = a_row;
        std::mem::swap(&mut self.m, &mut self.n);
        std::mem::swap(&mut self.a, &mut self.b);
        std::mem::swap(&mut self.a_step, &mut self.b_step);
        std::mem::swap(&mut self.a_matrix, &mut self.b_matrix);
        self.store = Store::Columns(line);
        self.conjugated.reverse();
        self
    }

    /// Length of the contracted index.
    pub(super) const fn depth(&self) -> usize {
        self.outer * self.inner
    }
}
