//! What a tile's program text depends on, and the [`Key`] that follows from it.

use super::contraction::{ALayout, BLayout, Contraction, Packing, Store};
use super::epilogue::EpilogueVariant;
use super::tile::Tile;
use super::weights::WeightsForm;
use crate::device::{Cooperative, Key, Means};
use crate::dtype::DType;
use crate::layout::AccessClass;
use crate::tensor::Tensor;

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
pub(super) struct TileVariant {
    pub tile: &'static Tile,
    pub a_layout: ALayoutKind,
    /// Spatial dimensions of the geometry: 2 or 3; 0 for dense rows.
    pub spatial: usize,
    pub b_layout: BLayoutKind,
    pub a: (DType, Lanes),
    pub b: (DType, Lanes),
    pub c: (DType, StoreKind),
    /// Whether rows of c are [`Store::Places`].
    pub places: bool,
    /// For tiles of cooperative matrices.
    pub cooperative: Option<Cooperative>,
    /// None for a single matrix.
    pub batch: Option<AccessClass>,
    /// The number of right operands and results that share the left operand: [`super::siblings`].
    pub parts: usize,
    /// The number of terms of a sum of products: [`super::siblings`].
    pub terms: usize,
    /// Where sums of the right operand's columns go: [`super::siblings`].
    pub sums: SumsKind,
    pub walk: TileWalk,
    pub conjugated: [bool; 2],
    pub packing: Option<Packing>,
    /// For a right operand that is quantized.
    pub weights: Option<WeightsForm>,
    pub epilogue: Option<EpilogueVariant>,
}

impl TileVariant {
    /// Whether the program loads four halves of this operand and does not convert them.
    pub(super) fn has_halves(&self, (dtype, lanes): (DType, Lanes)) -> bool {
        let takes = |c: Cooperative| c.means == Means::Adapter && c.element == DType::F16;
        let is_single = self.terms == 1 && self.parts == 1;
        is_single
            && (dtype, lanes != Lanes::One) == (DType::F16, true)
            && self.cooperative.is_some_and(takes)
    }
}

/// Where a program puts sums of the right operand's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumsKind {
    /// The program makes no sums.
    None,
    /// To a tensor, four at a time.
    Vec4s,
    /// To a tensor, one after the other.
    Elements,
    /// To the row behind the result's last one, in partial sums.
    Row,
}

/// Which tiles a workgroup computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TileWalk {
    /// One, or a part of one: `Schedule::DataParallel`.
    Tile,
    /// The tiles that `Schedule::Persistent` gives it.
    Persistent,
    /// A share of `Schedule::StreamK`.
    StreamK,
    /// The workgroup adds up a tile that shares cut.
    FixUp,
}

impl TileWalk {
    /// All walks but that of one tile.
    pub const MORE: [Self; 3] = [Self::Persistent, Self::StreamK, Self::FixUp];

    /// Whether a tile's steps are cut into shares.
    pub const fn has_shares(self) -> bool {
        matches!(self, Self::StreamK | Self::FixUp)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ALayoutKind {
    Dense,
    Patch,
    Spread,
    Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BLayoutKind {
    Dense,
    Strided,
    Planar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// Four columns at once.
    Vec4s,
    /// Single elements, columns next to each other.
    Elements,
    /// Single elements, columns a plane apart.
    Planes,
    /// Single elements of a transposed result.
    Columns,
}

/// The way to load the operands of all terms: theirs if they agree, else element by element.
fn common(lanes: impl Iterator<Item = Lanes>) -> Lanes {
    let mut lanes = lanes;
    let first = lanes.next().unwrap_or(Lanes::One);
    if lanes.all(|other| other == first) { first } else { Lanes::One }
}

impl Contraction {
    pub(super) fn variant(&self, tile: &'static Tile) -> TileVariant {
        let ALayout::Terms { stride, others } = &self.a_layout else {
            return self.variant_of(tile);
        };
        let own = Self { a_layout: ALayout::Dense { stride: *stride }, ..self.clone() };
        let all = std::iter::once(own.variant_of(tile)).chain(
            others
                .iter()
                .map(|[a, b]| Self { a: a.clone(), b: b.clone(), ..own.clone() }.variant_of(tile)),
        );
        let all: Vec<TileVariant> = all.collect();
        let mut variant = all[0].clone();
        variant.terms = all.len();
        variant.a.1 = common(all.iter().map(|v| v.a.1));
        variant.b.1 = common(all.iter().map(|v| v.b.1));
        variant
    }

    /// The same for the operands of one term.
    fn variant_of(&self, tile: &'static Tile) -> TileVariant {
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
        let a = match &self.a_layout {
            ALayout::Dense { stride }
                if self.a_step == 1
                    && vec4s(&self.a, &[several(self.m, *stride), self.inner, a_matrix]) =>
            {
                Lanes::Depth
            }
            ALayout::Dense { stride: 1 }
                if four_rows && vec4s(&self.a, &[self.a_step, self.m, a_matrix]) =>
            {
                Lanes::Edge
            }
            ALayout::Dense { .. } | ALayout::Terms { .. } => Lanes::One,
            ALayout::Patch(g) if g.channels_last && vec4s(&self.a, &[g.channels, self.inner]) => {
                Lanes::Depth
            }
            ALayout::Spread(g) if g.channels_last && vec4s(&self.a, &[g.filters, self.inner]) => {
                Lanes::Depth
            }
            ALayout::Window(g)
                if four_rows
                    && g.channels_last
                    && vec4s(&self.a, &[g.channels, g.channels / g.groups]) =>
            {
                Lanes::Edge
            }
            _ => Lanes::One,
        };
        let outer = match self.b_layout {
            BLayout::Dense => 0,
            BLayout::Strided(stride) => stride,
            BLayout::Planar { image, stride, .. } => image | stride,
        };
        let b = if let Some(weights) = &self.weights {
            let (columns, lanes) = match weights.by_columns {
                true => (self.inner, Lanes::Depth),
                false => (self.n, Lanes::Edge),
            };
            if weights.in_fours(&self.b, columns) { lanes } else { Lanes::One }
        } else if self.b_column == 1 && vec4s(&self.b, &[self.n, self.b_step, outer, b_matrix]) {
            Lanes::Edge
        } else if self.b_step == 1
            && vec4s(&self.b, &[self.inner, several(self.n, self.b_column), outer, b_matrix])
        {
            Lanes::Depth
        } else {
            Lanes::One
        };
        let (a_layout, spatial) = match &self.a_layout {
            ALayout::Dense { .. } | ALayout::Terms { .. } => (ALayoutKind::Dense, 0),
            ALayout::Patch(g) => (ALayoutKind::Patch, g.spatial_class()),
            ALayout::Spread(g) => (ALayoutKind::Spread, g.spatial_class()),
            ALayout::Window(g) => (ALayoutKind::Window, g.spatial_class()),
        };
        TileVariant {
            tile,
            a_layout,
            spatial,
            b_layout: match self.b_layout {
                BLayout::Dense => BLayoutKind::Dense,
                BLayout::Strided(_) => BLayoutKind::Strided,
                BLayout::Planar { .. } => BLayoutKind::Planar,
            },
            a: (self.a.dtype, a),
            b: (self.b_type(), b),
            c: (self.c.dtype, self.store_kind(&self.c)),
            places: matches!(self.store, Store::Places { .. }),
            cooperative: None,
            batch: (!single).then(|| self.batch.class()),
            parts: 1,
            terms: 1,
            sums: SumsKind::None,
            walk: TileWalk::Tile,
            conjugated: self.conjugated,
            packing: self.packing,
            weights: self
                .weights
                .as_ref()
                .map(|weights| weights.form(self.b.dtype, b != Lanes::One)),
            epilogue: None,
        }
    }

    /// Whether four columns of the result are stored at once.
    pub(super) fn stores_vec4s(&self) -> bool {
        self.store_kind(&self.c) == StoreKind::Vec4s
    }

    pub(super) fn store_kind(&self, c: &Tensor) -> StoreKind {
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

impl TileVariant {
    /// Single matrices of dense rows and lines in f32, loaded and stored element by element.
    pub const fn plain(tile: &'static Tile) -> Self {
        Self {
            tile,
            a_layout: ALayoutKind::Dense,
            spatial: 0,
            b_layout: BLayoutKind::Dense,
            a: (DType::F32, Lanes::One),
            b: (DType::F32, Lanes::One),
            c: (DType::F32, StoreKind::Elements),
            places: false,
            cooperative: None,
            batch: None,
            parts: 1,
            terms: 1,
            sums: SumsKind::None,
            walk: TileWalk::Tile,
            conjugated: [false; 2],
            packing: None,
            weights: None,
            epilogue: None,
        }
    }

    pub fn key(&self) -> Key {
        let lanes = |l: Lanes| l as u32;
        let mut key = Key::new("contract")
            .number(self.tile.id())
            .number(self.a_layout as u32)
            .number(self.spatial as u32);
        key = key.number(self.b_layout as u32).dtype(self.a.0).number(lanes(self.a.1));
        key = key.dtype(self.b.0).number(lanes(self.b.1)).dtype(self.c.0).number(self.c.1 as u32);
        key = key
            .number(u32::from(self.places))
            .number(self.cooperative.map_or(0, Cooperative::id))
            .number(u32::from(self.conjugated[0]) | u32::from(self.conjugated[1]) << 1)
            .number(self.walk as u32)
            .number(self.parts as u32)
            .number(self.terms as u32)
            .number(self.sums as u32)
            .number(self.packing.map_or(0, |packing| 1 + packing as u32));
        if let Some(class) = &self.batch {
            key = class.key(key);
        }
        key = self.weights.iter().fold(key, |key, weights| weights.key(key));
        self.epilogue.iter().fold(key, |key, epilogue| epilogue.key(key))
    }
}
