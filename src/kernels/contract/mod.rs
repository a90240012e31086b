//! Contractions: `c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n]`, the one program behind
//! matrix products and convolutions.
//!
//! The contracted index k is `outer * inner` long: a convolution walks its kernel positions outside
//! and its channels inside, a matrix product has one outer step. The rows of `a` may be matrix
//! rows, image patches, …: each kind is a [`Rows`] with a WGSL file of its own; everything else is
//! strides. Two shapes of program exist, see [`tile`]: operands in registers, and in workgroup
//! memory. [`choice`] selects one and its size, or `tuned` finds the fastest. A [`plan`] holds the
//! steps to enqueue: `windows` and `programs` make it, `run` and `chosen` carry it out.
//!
//! Products are computed and summed in f32, f64, i32 or complex numbers of either float, see
//! [`element`]; those of 16-bit floats in f32. A long contraction is cut into chunks whose partial
//! sums go to a temporary buffer and are added in order by [`finish`]: deterministic, precise for
//! any length, and parallel when the result is small. An [`epilogue`] (bias, activation, residual)
//! is applied once, to whole sums: where they are stored, or in [`finish`]. Tensors beyond one
//! binding are cut by `windows`. For cooperative matrices see [`validation`].

mod apart;
mod assembly;
pub mod choice;
mod chosen;
mod column_sums;
pub mod cooperative;
pub mod element;
pub mod epilogue;
pub mod finish;
pub mod geometry;
pub mod images;
pub mod joined;
mod narrow;
mod parts;
pub mod plan;
mod probe;
pub mod product;
mod programs;
mod registers;
mod run;
mod sample_products;
mod shares;
pub mod software;
pub mod summed;
pub(crate) mod sums;
pub mod tables;
pub mod terms;
pub(crate) mod text;
pub mod tile;
mod tuned;
pub mod validation;
mod variants;
mod walk;
mod windows;
mod workgroup;

use crate::device::{Cooperative, Key};
use crate::dtype::DType;
use crate::layout::{AccessClass, Iteration};
use crate::shader::Shader;
use crate::tensor::Tensor;
use column_sums::SumsKind;
use epilogue::EpilogueVariant;
use geometry::Geometry;
pub use sample_products::product_variants;
use tile::Tile;
pub use variants::{fused_variants, samples, variants};
use walk::Walk;

/// What a row of `a` is.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Row m starts at element `m * stride`.
    Dense {
        /// Elements between rows.
        stride: usize,
    },
    /// The same for several tensors: each outer step is a term, see [`terms`].
    Terms {
        /// Elements between rows.
        stride: usize,
        /// Both operands of each term behind the first one.
        others: terms::Others,
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
pub enum Lines {
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
    /// At `m * stride`, with columns next to each other.
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
    pub rows: Rows,
    /// Elements between inner steps of `a`.
    pub a_step: usize,
    /// Elements between matrices of `a`.
    pub a_matrix: usize,
    /// Right operand.
    pub b: Tensor,
    /// Its outer steps.
    pub lines: Lines,
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
}

/// How an operand is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// Element by element.
    One,
    /// Four neighbours along the contracted index.
    Depth,
    /// Four neighbours along the edge: rows of `a`, columns of `b`.
    Edge,
}

/// All that shader text depends on.
#[derive(Debug, Clone, PartialEq)]
struct Variant {
    tile: &'static Tile,
    rows: RowsKind,
    /// Spatial dimensions of the geometry: 2 or 3; 0 for dense rows.
    spatial: usize,
    lines: LinesKind,
    a: (DType, Lanes),
    b: (DType, Lanes),
    c: (DType, StoreKind),
    /// Whether rows of c are [`Store::Places`].
    places: bool,
    /// For tiles of cooperative matrices.
    cooperative: Option<Cooperative>,
    /// None for a single matrix.
    batch: Option<AccessClass>,
    /// The number of right operands and results that share the left operand: [`joined`].
    parts: usize,
    /// The number of terms of a sum of products: [`terms`].
    terms: usize,
    /// Where sums of the right operand's columns go: [`summed`].
    sums: SumsKind,
    walk: Walk,
    conjugated: [bool; 2],
    epilogue: Option<EpilogueVariant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowsKind {
    Dense,
    Patch,
    Spread,
    Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinesKind {
    Dense,
    Strided,
    Planar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    /// Four columns at once.
    Vec4s,
    /// Single elements, columns next to each other.
    Elements,
    /// Single elements, columns a plane apart.
    Planes,
    /// Single elements of a transposed result.
    Columns,
}

impl Contraction {
    fn variant(&self, tile: &'static Tile) -> Variant {
        let Rows::Terms { stride, others } = &self.rows else { return self.variant_of(tile) };
        let own = Self { rows: Rows::Dense { stride: *stride }, ..self.clone() };
        let all = std::iter::once(own.variant_of(tile)).chain(
            others
                .iter()
                .map(|[a, b]| Self { a: a.clone(), b: b.clone(), ..own.clone() }.variant_of(tile)),
        );
        let all: Vec<Variant> = all.collect();
        let mut variant = all[0].clone();
        variant.terms = all.len();
        variant.a.1 = terms::common(all.iter().map(|v| v.a.1));
        variant.b.1 = terms::common(all.iter().map(|v| v.b.1));
        variant
    }

    /// The same for the operands of one term.
    fn variant_of(&self, tile: &'static Tile) -> Variant {
        let single = self.batch.len() == 1;
        let vec4s = |t: &Tensor, strides: &[usize]| {
            t.address.is_multiple_of(4 * t.dtype.size() as u64)
                && t.dtype.size() <= 4
                && strides.iter().all(|s| s.is_multiple_of(4))
        };
        let a_matrix = if single { 0 } else { self.a_matrix };
        let b_matrix = if single { 0 } else { self.b_matrix };
        // Loads by rows come in vec4s: a tile of one row takes elements.
        let four_rows = tile.rows.is_multiple_of(4);
        // The distance of a row from the next one, where there is one.
        let several = |extent: usize, stride: usize| if extent == 1 { 0 } else { stride };
        let a = match &self.rows {
            Rows::Dense { stride }
                if self.a_step == 1
                    && vec4s(&self.a, &[several(self.m, *stride), self.inner, a_matrix]) =>
            {
                Lanes::Depth
            }
            Rows::Dense { stride: 1 }
                if four_rows && vec4s(&self.a, &[self.a_step, self.m, a_matrix]) =>
            {
                Lanes::Edge
            }
            Rows::Dense { .. } | Rows::Terms { .. } => Lanes::One,
            Rows::Patch(g) if g.channels_last && vec4s(&self.a, &[g.channels, self.inner]) => {
                Lanes::Depth
            }
            Rows::Spread(g) if g.channels_last && vec4s(&self.a, &[g.filters, self.inner]) => {
                Lanes::Depth
            }
            Rows::Window(g)
                if four_rows
                    && g.channels_last
                    && vec4s(&self.a, &[g.channels, g.channels / g.groups]) =>
            {
                Lanes::Edge
            }
            _ => Lanes::One,
        };
        let outer = match self.lines {
            Lines::Dense => 0,
            Lines::Strided(stride) => stride,
            Lines::Planar { image, stride, .. } => image | stride,
        };
        let b = if self.b_column == 1 && vec4s(&self.b, &[self.n, self.b_step, outer, b_matrix]) {
            Lanes::Edge
        } else if self.b_step == 1
            && vec4s(&self.b, &[self.inner, several(self.n, self.b_column), outer, b_matrix])
        {
            Lanes::Depth
        } else {
            Lanes::One
        };
        let (rows, spatial) = match &self.rows {
            Rows::Dense { .. } | Rows::Terms { .. } => (RowsKind::Dense, 0),
            Rows::Patch(g) => (RowsKind::Patch, g.spatial_class()),
            Rows::Spread(g) => (RowsKind::Spread, g.spatial_class()),
            Rows::Window(g) => (RowsKind::Window, g.spatial_class()),
        };
        Variant {
            tile,
            rows,
            spatial,
            lines: match self.lines {
                Lines::Dense => LinesKind::Dense,
                Lines::Strided(_) => LinesKind::Strided,
                Lines::Planar { .. } => LinesKind::Planar,
            },
            a: (self.a.dtype, a),
            b: (self.b.dtype, b),
            c: (self.c.dtype, self.store_kind(&self.c)),
            places: matches!(self.store, Store::Places { .. }),
            cooperative: None,
            batch: (!single).then(|| self.batch.class()),
            parts: 1,
            terms: 1,
            sums: SumsKind::None,
            walk: Walk::Tile,
            conjugated: self.conjugated,
            epilogue: None,
        }
    }

    /// Whether four columns of the result are stored at once.
    fn stores_vec4s(&self) -> bool {
        self.store_kind(&self.c) == StoreKind::Vec4s
    }

    fn store_kind(&self, c: &Tensor) -> StoreKind {
        let matrix = if self.batch.len() == 1 { 0 } else { self.c_matrix };
        let vec4s = |strides: &[usize]| {
            [self.n, matrix].iter().chain(strides).all(|s| s.is_multiple_of(4))
                && c.address.is_multiple_of(4 * c.dtype.size() as u64)
                && c.dtype.size() <= 4
        };
        match self.store {
            Store::Planes { .. } => StoreKind::Planes,
            Store::Columns(_) => StoreKind::Columns,
            Store::Rows(stride) if vec4s(&[stride]) => StoreKind::Vec4s,
            Store::Places { strides, .. } if vec4s(&strides) => StoreKind::Vec4s,
            Store::Rows(_) | Store::Places { .. } => StoreKind::Elements,
        }
    }
}

impl Variant {
    /// Single matrices of dense rows and lines in f32, loaded and stored element by element.
    const fn plain(tile: &'static Tile) -> Self {
        Self {
            tile,
            rows: RowsKind::Dense,
            spatial: 0,
            lines: LinesKind::Dense,
            a: (DType::F32, Lanes::One),
            b: (DType::F32, Lanes::One),
            c: (DType::F32, StoreKind::Elements),
            places: false,
            cooperative: None,
            batch: None,
            parts: 1,
            terms: 1,
            sums: SumsKind::None,
            walk: Walk::Tile,
            conjugated: [false; 2],
            epilogue: None,
        }
    }

    fn key(&self) -> Key {
        let lanes = |l: Lanes| l as u32;
        let mut key = Key::new("contract")
            .number(self.tile.id())
            .number(self.rows as u32)
            .number(self.spatial as u32);
        key = key.number(self.lines as u32).dtype(self.a.0).number(lanes(self.a.1));
        key = key.dtype(self.b.0).number(lanes(self.b.1)).dtype(self.c.0).number(self.c.1 as u32);
        key = key
            .number(u32::from(self.places))
            .number(self.cooperative.map_or(0, Cooperative::id))
            .number(u32::from(self.conjugated[0]) | u32::from(self.conjugated[1]) << 1)
            .number(self.walk as u32)
            .number(self.parts as u32)
            .number(self.terms as u32)
            .number(self.sums as u32);
        if let Some(class) = &self.batch {
            key = class.key(key);
        }
        self.epilogue.iter().fold(key, |key, epilogue| epilogue.key(key))
    }

    fn shader(&self) -> Shader {
        assembly::shader(self)
    }
}
