//! The list of shader variants of products with sums, of sums of products, and of products with two
//! results, for the tests.

use super::assembly;
use super::epilogue::{Broadcast, Epilogue, EpilogueVariant};
use super::siblings::has_place;
use super::tile::TileKind;
use super::tile_variant::SumsKind;
use super::variants::{is_listed, samples};
use super::{BLayoutKind, Lanes, StoreKind, TileVariant, finish, tables};
use crate::device::Cooperative;
use crate::dtype::DType;
use crate::layout::Iteration;
use crate::shader::Shader;

/// Every variant of such products.
pub fn product_variants() -> Vec<Shader> {
    [with_sums(), of_terms(), of_pairs()].concat()
}

/// An activation and its argument.
const PAIR: &str = "x: T, T; c: 1; s0 = AddV2<T>(x0, x1); s1 = Sigmoid<T>(s0); s2 = Mul<T>(s1, \
                    c0); return s2, s0";

/// Products with two results: each tile, in turn with and without a batch, and the finishing
/// program.
fn of_pairs() -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[2]).broadcast(&[2]).broadcast(&[2]).class();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let expression = PAIR.replace('T', dtype.name()).parse().expect("an expression");
        let epilogue = Epilogue::pair(expression, vec![0.5]).expect("an epilogue");
        let sample = EpilogueVariant::sample(&epilogue, &[Broadcast::Channel], true);
        let tiles = tables::all().filter(|t| !matches!(t.kind, TileKind::Cooperative { .. }));
        for (at, tile) in tiles.enumerate() {
            out.push(assembly::shader(&TileVariant {
                a: (dtype, Lanes::One),
                b: (dtype, Lanes::Edge),
                c: (dtype, StoreKind::Vec4s),
                batch: (at % 2 == 1).then(|| batch.clone()),
                epilogue: Some(sample.clone()),
                ..TileVariant::plain(tile)
            }));
        }
        out.push(finish::vec4_text(dtype.accumulator(), dtype, Some(&sample)));
    }
    out
}

/// Products with sums of the right operand's columns: each tile that makes them, with each way to
/// store them in turn, plain or with an epilogue; and the finishing program.
fn with_sums() -> Vec<Shader> {
    let mut out = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let (epilogue, broadcasts) = samples(dtype).pop().expect("samples");
        let result = epilogue.output();
        let tiles = tables::all().filter(|t| has_place(t));
        for (at, tile) in tiles.enumerate() {
            let lanes = [Lanes::Edge, Lanes::One][at % 2];
            let (a, b) = ((dtype, Lanes::One), (dtype, lanes));
            let plain = TileVariant { a, b, ..TileVariant::plain(tile) };
            let own = if dtype == DType::F32 && at % 2 == 1 {
                (SumsKind::Elements, (dtype, StoreKind::Elements), None)
            } else {
                let epilogue = EpilogueVariant::sample(&epilogue, &broadcasts, true);
                (SumsKind::Vec4s, (result, StoreKind::Vec4s), Some(epilogue))
            };
            let row = (SumsKind::Row, (DType::F32, StoreKind::Vec4s), None);
            for (sums, c, epilogue) in [own, row] {
                out.push(assembly::shader(&TileVariant { sums, c, epilogue, ..plain.clone() }));
            }
        }
        let sample = EpilogueVariant::sample(&epilogue, &broadcasts, true);
        let types = [dtype.accumulator(), dtype];
        out.push(finish::both_text(types[0], [dtype; 2], None));
        out.push(finish::both_text(types[0], [result, dtype], Some(&sample)));
    }
    out
}

/// Each tile with loads of each kind in turn, for the list of variants.
fn of_terms() -> Vec<Shader> {
    let mut out = Vec::new();
    let loads = [Lanes::Edge, Lanes::One, Lanes::Depth];
    let tiles = tables::all().chain(&tables::COOPERATIVE);
    for (at, tile) in tiles.enumerate() {
        let cooperative = match tile.kind {
            TileKind::Cooperative { size, bytes } => {
                let element = if bytes == 2 { DType::F16 } else { DType::F32 };
                Some(Cooperative { size, element, ..Cooperative::F16 })
            }
            _ => None,
        };
        if cooperative.is_some_and(|c| !is_listed(c.size)) {
            continue;
        }
        let dtype = cooperative.map_or(DType::F32, |c| c.element);
        let a = if tile.rows.is_multiple_of(4) { loads[at % 3] } else { loads[1 + at % 2] };
        let b = loads[(at + at / 3) % 3];
        out.push(assembly::shader(&TileVariant {
            a: (dtype, a),
            b: (dtype, b),
            c: (dtype, StoreKind::Vec4s),
            b_layout: BLayoutKind::Strided,
            terms: 2 + at % 2,
            cooperative,
            ..TileVariant::plain(tile)
        }));
    }
    out
}
