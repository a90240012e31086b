//! The list of shader variants for the tests.

mod epilogues;

use super::assembly::shader;
use super::contraction::Packing;
use super::epilogue::EpilogueVariant;
use super::tile::{self, Tile};
use super::tile_variant::TileWalk;
use super::{ALayoutKind, BLayoutKind, Lanes, StoreKind, TileVariant, software, tables};
use crate::device::{Cooperative, MatrixSize};
use crate::dtype::DType;
use crate::layout::Iteration;
use crate::shader::Shader;

pub use epilogues::{fused_variants, samples};

/// The layouts of both operands.
type Layouts = (ALayoutKind, BLayoutKind);

const MATRICES: Layouts = (ALayoutKind::Dense, BLayoutKind::Dense);
const PATCHES: Layouts = (ALayoutKind::Patch, BLayoutKind::Dense);
const SPREAD: Layouts = (ALayoutKind::Spread, BLayoutKind::Strided);
const WINDOWS: Layouts = (ALayoutKind::Window, BLayoutKind::Dense);
const PLANES: Layouts = (ALayoutKind::Window, BLayoutKind::Planar);

/// Every variant that the kernels can ask for, for the shader tests: each tile with each row kind,
/// access and type, though not each combination of the types' accessors with everything else.
pub fn variants() -> Vec<Shader> {
    let mut out = Vec::new();
    for tile in tables::all() {
        let mut push = |(a_layout, b_layout): Layouts, spatial, dtype, lanes: [Lanes; 2], store| {
            let [a, b] = lanes.map(|lanes| (dtype, lanes));
            let c = (dtype, store);
            let plain = TileVariant::plain(tile);
            out.push(shader(&TileVariant { a_layout, spatial, b_layout, a, b, c, ..plain }));
        };
        let lanes = ALL_LANES.into_iter();
        for a in lanes.filter(|a| *a != Lanes::Edge || tile.rows.is_multiple_of(4)) {
            for b in ALL_LANES {
                push(MATRICES, 0, DType::F32, [a, b], StoreKind::Vec4s);
                for dtype in [DType::F16, DType::BF16].into_iter().filter(|_| a == b) {
                    push(MATRICES, 0, dtype, [a, b], StoreKind::Vec4s);
                }
            }
            for spatial in [2, 3] {
                for store in [StoreKind::Vec4s, StoreKind::Elements, StoreKind::Planes] {
                    if a != Lanes::Edge {
                        push(PATCHES, spatial, DType::F32, [a, Lanes::Edge], store);
                        push(SPREAD, spatial, DType::F32, [a, Lanes::Depth], store);
                    }
                    if a != Lanes::Depth {
                        push(WINDOWS, spatial, DType::F32, [a, Lanes::Edge], store);
                        push(PLANES, spatial, DType::F32, [a, Lanes::One], store);
                    }
                }
            }
        }
        for walk in [
            Iteration::over(&[2]).broadcast(&[2]).broadcast(&[2]).broadcast(&[2]),
            Iteration::over(&[2]).broadcast(&[1]).broadcast(&[2]).broadcast(&[2]),
            Iteration::over(&[2, 3]).broadcast(&[2, 3]).operand(&[1, 2], 0).operand(&[1, 2], 0),
            Iteration::over(&[2, 3, 2, 2, 2])
                .broadcast(&[2, 1, 2, 1, 2])
                .broadcast(&[1, 3, 1, 2, 1])
                .broadcast(&[2, 3, 2, 2, 2]),
        ] {
            out.push(shader(&TileVariant {
                a: (DType::F32, Lanes::Depth),
                b: (DType::F32, Lanes::Edge),
                c: (DType::F32, StoreKind::Vec4s),
                batch: Some(walk.class()),
                ..TileVariant::plain(tile)
            }));
        }
    }
    for (i, tile) in tables::all().enumerate() {
        out.extend(wide(tile, i));
    }
    out.extend(DTYPES.map(super::finish::shader));
    out.extend(software_tiles());
    out.extend(places());
    out.extend(cooperative());
    out.extend(walks());
    for dtype in DTYPES.into_iter().filter(|t| super::finish::in_vec4s(*t)) {
        out.push(super::finish::vec4_text(dtype.accumulator(), dtype, None));
    }
    out
}

const ALL_LANES: [Lanes; 3] = [Lanes::One, Lanes::Depth, Lanes::Edge];

const DTYPES: [DType; 9] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::C64,
    DType::C128,
    DType::I32,
    DType::I16,
    DType::I64,
];

/// Types of matrix products alone: no convolution has them.
const fn of_matrices(dtype: DType) -> bool {
    dtype.is_complex() || matches!(dtype, DType::I16 | DType::I64)
}

/// Tiles of software adapters: results by columns, and each kind of rows where loads are shared.
fn software_tiles() -> Vec<Shader> {
    let mut out = Vec::new();
    for tile in software::LANES.iter().chain(software::SUBGROUPS) {
        let (a, b, c) = (
            (DType::F32, Lanes::Depth),
            (DType::F32, Lanes::One),
            (DType::F32, StoreKind::Columns),
        );
        out.push(shader(&TileVariant { a, b, c, ..TileVariant::plain(tile) }));
    }
    for tile in tables::all().filter(|t| t.kind == tile::TileKind::Subgroup) {
        for (a_layout, spatial, lanes) in [
            (ALayoutKind::Dense, 0, Lanes::Depth),
            (ALayoutKind::Dense, 0, Lanes::One),
            (ALayoutKind::Patch, 2, Lanes::Depth),
            (ALayoutKind::Spread, 3, Lanes::Depth),
            (ALayoutKind::Window, 2, Lanes::Edge),
        ] {
            let (a, b, c) =
                ((DType::F16, lanes), (DType::F32, Lanes::Edge), (DType::F32, StoreKind::Vec4s));
            out.push(shader(&TileVariant {
                a_layout,
                spatial,
                a,
                b,
                c,
                ..TileVariant::plain(tile)
            }));
        }
    }
    out
}

/// Results whose rows have others in between, and operands whose lines lie on planes, with each
/// tile.
fn places() -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[1]).broadcast(&[2]).broadcast(&[2]).class();
    for (i, tile) in tables::all().enumerate() {
        let dtype = [DType::F32, DType::F16][i % 2];
        for (b, store) in [(Lanes::Depth, StoreKind::Vec4s), (Lanes::One, StoreKind::Elements)] {
            let c = (if store == StoreKind::Vec4s { dtype } else { DType::F32 }, store);
            for b_layout in [BLayoutKind::Strided, BLayoutKind::Planar, BLayoutKind::Dense] {
                let dense = b_layout == BLayoutKind::Dense;
                out.push(shader(&TileVariant {
                    a_layout: if dense { ALayoutKind::Dense } else { ALayoutKind::Spread },
                    spatial: if dense { 0 } else { 2 },
                    b_layout,
                    a: (dtype, b),
                    b: (dtype, b),
                    c,
                    places: true,
                    batch: dense.then(|| batch.clone()),
                    ..TileVariant::plain(tile)
                }));
            }
        }
    }
    out
}

/// Sizes of matrices that known adapters list: AMD and NVIDIA, Intel, Apple, in this order.
const LISTED: [MatrixSize; 3] =
    [MatrixSize::new(16, 16, 16), MatrixSize::new(8, 16, 16), MatrixSize::new(8, 8, 8)];

/// Whether a known adapter lists matrices of this size.
pub(super) fn is_listed(size: MatrixSize) -> bool {
    LISTED.contains(&size)
}

/// The matrices that known adapters list, with types of operands that they multiply.
pub fn listed_matrices() -> Vec<(Cooperative, DType)> {
    let f16 = LISTED.map(|size| (Cooperative { size, ..Cooperative::F16 }, DType::F16));
    let size = LISTED[2];
    let f32 = [DType::F32, DType::BF16]
        .map(|dtype| (Cooperative { size, element: DType::F32, ..Cooperative::F16 }, dtype));
    f16.into_iter().chain(f32).collect()
}

/// Cooperative matrices on subgroups of all sizes, with each way to load, each kind of rows and
/// each way to store, and with epilogues. Matrices that no known adapter lists come in one way
/// only.
fn cooperative() -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[2]).broadcast(&[1]).broadcast(&[2]).class();
    for (i, tile) in tables::COOPERATIVE.iter().enumerate() {
        let tile::TileKind::Cooperative { size, bytes } = tile.kind else { continue };
        let element = if bytes == 2 { DType::F16 } else { DType::F32 };
        let of = |(a_layout, b_layout): Layouts, a, b, c, lanes| TileVariant {
            a_layout,
            spatial: if a_layout == ALayoutKind::Dense { 0 } else { 2 + i % 2 },
            b_layout,
            a: (element, a),
            b: (element, b),
            cooperative: Some(Cooperative { size, element, lanes, ..Cooperative::F16 }),
            c,
            ..TileVariant::plain(tile)
        };
        let mut push = |variant: TileVariant| out.push(shader(&variant));
        let is_listed = if bytes == 2 { LISTED.contains(&size) } else { size == LISTED[2] };
        let vec4s = (element, StoreKind::Vec4s);
        if !is_listed {
            push(of(MATRICES, Lanes::Edge, Lanes::Depth, vec4s, 32));
            continue;
        }
        for (a, b) in ALL_LANES.into_iter().flat_map(|a| ALL_LANES.map(|b| (a, b))) {
            push(of(MATRICES, a, b, vec4s, 32));
            // AMD's subgroups.
            if size == LISTED[0] {
                push(of(MATRICES, a, b, vec4s, 64));
            }
        }
        let usual = |c, lanes| of(MATRICES, Lanes::Depth, Lanes::Edge, c, lanes);
        for lanes in [8, 16, 32, 64, 128] {
            let single = (DType::F32, StoreKind::Elements);
            push(TileVariant { batch: Some(batch.clone()), ..usual(single, lanes) });
        }
        let planes = (DType::F32, StoreKind::Planes);
        push(of(PATCHES, Lanes::Depth, Lanes::Edge, vec4s, 32));
        push(of(SPREAD, Lanes::Depth, Lanes::Depth, planes, 64));
        push(of(PLANES, Lanes::Edge, Lanes::One, vec4s, 32));
        for (epilogue, broadcasts) in samples(element) {
            let c = (epilogue.output(), StoreKind::Vec4s);
            let epilogue = Some(EpilogueVariant::sample(&epilogue, &broadcasts, true));
            push(TileVariant { epilogue, ..usual(c, 32) });
        }
    }
    out
}

/// Persistent workgroups, shares of stream-K and the program that adds up the tiles they cut: each
/// tile that has these schedules, with each kind of rows, and in turn each type, way to store and
/// epilogue.
fn walks() -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[2]).broadcast(&[1]).broadcast(&[2]).class();
    let tiles = tables::all().filter(|t| t.steps(1).is_some());
    for (i, tile) in tiles.chain(&tables::COOPERATIVE).enumerate() {
        let cooperative = match tile.kind {
            tile::TileKind::Cooperative { size, bytes } => {
                let element = if bytes == 2 { DType::F16 } else { DType::F32 };
                Some(Cooperative { size, element, ..Cooperative::F16 })
            }
            _ => None,
        };
        let is_listed = cooperative.is_none_or(|c| LISTED.contains(&c.size));
        for walk in TileWalk::MORE.into_iter().filter(|_| is_listed) {
            let mut push = |v: TileVariant| {
                let dtype = cooperative.map_or(v.a.0, |c| c.element);
                let (a, b) = ((dtype, v.a.1), (dtype, v.b.1));
                out.push(shader(&TileVariant { walk, cooperative, a, b, ..v }));
            };
            let plain = TileVariant::plain(tile);
            let vec4s = (DType::F16, StoreKind::Vec4s);
            let edge = (DType::F16, Lanes::Edge);
            push(TileVariant { a: (DType::F16, Lanes::Depth), b: edge, c: vec4s, ..plain.clone() });
            push(TileVariant { batch: Some(batch.clone()), ..plain.clone() });
            let (a_layout, b_layout) = [PATCHES, SPREAD, PLANES][i % 3];
            let lanes = [Lanes::Depth, Lanes::Depth, Lanes::Edge][i % 3];
            let c = (DType::F32, [StoreKind::Planes, StoreKind::Vec4s][i % 2]);
            let a = (DType::F32, lanes);
            push(TileVariant { a_layout, b_layout, spatial: 2 + i % 2, a, c, ..plain.clone() });
            let c = (DType::F32, StoreKind::Elements);
            push(TileVariant { places: true, a_layout, b_layout, spatial: 2, c, ..plain.clone() });
            push(TileVariant { c: (DType::F32, StoreKind::Columns), ..plain.clone() });
            for (epilogue, broadcasts) in samples(DType::F32) {
                let c = (epilogue.output(), StoreKind::Vec4s);
                let epilogue = Some(EpilogueVariant::sample(&epilogue, &broadcasts, true));
                push(TileVariant { c, epilogue, ..plain.clone() });
            }
            for dtype in DTYPES.into_iter().skip(2) {
                if cooperative.is_some() || !has_kind(tile, dtype) {
                    continue;
                }
                let (a, c) = ((dtype, Lanes::One), (dtype.accumulator(), StoreKind::Elements));
                push(TileVariant { a, b: a, c, ..plain.clone() });
            }
        }
    }
    out
}

/// Whether some kind of adapters takes a tile for elements of this type.
fn has_kind(tile: &Tile, dtype: DType) -> bool {
    tables::kinds(tile, dtype).next().is_some()
}

/// Types without loads in vec4s, and i32: matrices with each tile, convolutions with one kind of
/// rows for each.
fn wide(tile: &'static Tile, number: usize) -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[2]).broadcast(&[1]).broadcast(&[2]).class();
    let dense = TileVariant {
        a: (DType::F64, Lanes::One),
        b: (DType::F64, Lanes::One),
        c: (DType::F64, StoreKind::Elements),
        ..TileVariant::plain(tile)
    };
    for dtype in DTYPES.into_iter().skip(3).filter(|t| has_kind(tile, *t)) {
        let of = |v: &TileVariant| TileVariant {
            a: (dtype, v.a.1),
            b: (dtype, v.b.1),
            // Narrow results are stored as sums first.
            c: (dtype.accumulator(), v.c.1),
            ..v.clone()
        };
        let conjugated =
            if dtype.is_complex() { [true, number.is_multiple_of(2)] } else { [false; 2] };
        out.push(shader(&of(&dense)));
        out.push(shader(&of(&TileVariant {
            batch: Some(batch.clone()),
            conjugated,
            ..dense.clone()
        })));
        out.extend(integers(tile, dtype));
        if of_matrices(dtype) {
            continue;
        }
        let (a_layout, b_layout) = [PATCHES, SPREAD, PLANES][number % 3];
        for (spatial, store) in [(2, StoreKind::Elements), (3, StoreKind::Planes)] {
            let c = (dtype, store);
            out.push(shader(&of(&TileVariant { a_layout, b_layout, spatial, c, ..dense.clone() })));
        }
        if dtype == DType::I32 {
            let c = (dtype, StoreKind::Vec4s);
            for lanes in [Lanes::Edge, Lanes::Depth] {
                let (a, b) = ((dtype, Lanes::Depth), (dtype, lanes));
                out.push(shader(&TileVariant { a, b, c, ..dense.clone() }));
            }
        }
    }
    out
}

/// Products of narrow integers, whose operands are read in vec4s: results in the same type, and of
/// int8 in int32.
fn integers(tile: &'static Tile, dtype: DType) -> Vec<Shader> {
    if dtype != DType::I16 {
        return Vec::new();
    }
    let of = |element: DType, result: DType| {
        let (a, b, c) =
            ((element, Lanes::Depth), (element, Lanes::Edge), (result, StoreKind::Vec4s));
        let single = (element, Lanes::One);
        let sums = (DType::I32, StoreKind::Elements);
        [
            shader(&TileVariant { a, b, c, ..TileVariant::plain(tile) }),
            shader(&TileVariant { a: single, b: single, c: sums, ..TileVariant::plain(tile) }),
        ]
    };
    [of(DType::I16, DType::I16).to_vec(), of(DType::I8, DType::I32).to_vec(), packed(tile)].concat()
}

/// Products of int8 by words of four bytes: words and rows, loaded in each way.
fn packed(tile: &'static Tile) -> Vec<Shader> {
    let of = |packing, a, (b, lanes)| {
        shader(&TileVariant {
            a: (DType::I32, a),
            b: (b, lanes),
            c: (DType::I32, StoreKind::Vec4s),
            packing: Some(packing),
            ..TileVariant::plain(tile)
        })
    };
    vec![
        of(Packing::Words, Lanes::Depth, (DType::I32, Lanes::Depth)),
        of(Packing::Words, Lanes::One, (DType::I32, Lanes::One)),
        of(Packing::Rows, Lanes::Depth, (DType::I8, Lanes::Edge)),
        of(Packing::Rows, Lanes::One, (DType::I8, Lanes::Edge)),
    ]
}
