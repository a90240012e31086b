//! The list of shader variants of products with sums and of sums of products, for the tests.

use super::assembly;
use super::column_sums::SumsKind;
use super::epilogue::EpilogueVariant;
use super::summed::has_place;
use super::tile::OperandMemory;
use super::variants::{is_listed, samples};
use super::{Lanes, LinesKind, StoreKind, Variant, finish, tables};
use crate::device::Cooperative;
use crate::dtype::DType;
use crate::shader::Shader;

/// All of them.
pub fn product_variants() -> Vec<Shader> {
    [with_sums(), of_terms()].concat()
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
            let plain = Variant { a, b, ..Variant::plain(tile) };
            let own = if dtype == DType::F32 && at % 2 == 1 {
                (SumsKind::Elements, (dtype, StoreKind::Elements), None)
            } else {
                let epilogue = EpilogueVariant::sample(&epilogue, &broadcasts, true);
                (SumsKind::Vec4s, (result, StoreKind::Vec4s), Some(epilogue))
            };
            let row = (SumsKind::Row, (DType::F32, StoreKind::Vec4s), None);
            for (sums, c, epilogue) in [own, row] {
                out.push(assembly::shader(&Variant { sums, c, epilogue, ..plain.clone() }));
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
        let cooperative = match tile.memory {
            OperandMemory::Cooperative { size, bytes } => {
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
        out.push(assembly::shader(&Variant {
            a: (dtype, a),
            b: (dtype, b),
            c: (dtype, StoreKind::Vec4s),
            lines: LinesKind::Strided,
            terms: 2 + at % 2,
            cooperative,
            ..Variant::plain(tile)
        }));
    }
    out
}
