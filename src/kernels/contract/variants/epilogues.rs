//! The variants that have epilogues, or several products.

use super::{has_kind, is_listed};
use crate::device::Cooperative;
use crate::dtype::DType;
use crate::kernels::contract::assembly::shader;
use crate::kernels::contract::epilogue::{Broadcast, Epilogue, EpilogueVariant};
use crate::kernels::contract::tile_variant::SumsKind;
use crate::kernels::contract::weights::WeightsForm;
use crate::kernels::contract::{
    ALayoutKind, Lanes, StoreKind, TileVariant, finish, siblings, tables, tile,
};
use crate::kernels::expression::Expression;
use crate::layout::Iteration;
use crate::shader::Shader;

/// Sample epilogues of a contraction of `dtype`: a bias and an activation, a cast, and every class
/// of operands.
pub fn samples(dtype: DType) -> Vec<(Epilogue, Vec<Broadcast>)> {
    let t = dtype.name();
    let other = if dtype == DType::F32 { DType::F16 } else { DType::F32 }.name();
    let texts = [
        (format!("x: {t}; c: 0; return x0"), vec![]),
        (
            format!("x: {t}, {t}; c: 0; s0 = AddV2<{t}>(x0, x1); s1 = Relu<{t}>(s0); return s1"),
            vec![Broadcast::Channel],
        ),
        (
            format!(
                "x: {t}, {t}, {t}, {t}; c: 0; s0 = Mul<{t}>(x0, x1); s1 = AddV2<{t}>(s0, x2); s2 \
                 = AddV2<{t}>(s1, x3); s3 = Erf<{t}>(s2); s4 = Cast<{t}, {other}>(s3); return s4"
            ),
            vec![Broadcast::Scalar, Broadcast::Channel, Broadcast::Full],
        ),
    ];
    parsed(texts)
}

/// The same for a product of int8, which is int32: it is scaled by rows and channels.
fn int8_samples() -> Vec<(Epilogue, Vec<Broadcast>)> {
    let text = |float: &str| {
        format!(
            "x: int32, {float}, {float}, {float}; c: 0; s0 = Cast<int32, {float}>(x0); s1 = \
             Mul<{float}>(x1, x2); s2 = RealDiv<{float}>(s0, s1); s3 = AddV2<{float}>(s2, x3); \
             return s3"
        )
    };
    let broadcasts = vec![Broadcast::Channel, Broadcast::Row, Broadcast::Channel];
    parsed(["float32", "float16"].map(|float| (text(float), broadcasts.clone())))
}

/// Epilogues of these texts.
fn parsed<const N: usize>(texts: [(String, Vec<Broadcast>); N]) -> Vec<(Epilogue, Vec<Broadcast>)> {
    let constants = |e: &Expression| vec![1.0; e.constants()];
    let parsed = texts
        .into_iter()
        .map(|(text, broadcasts)| (text.parse::<Expression>().expect("an expression"), broadcasts));
    parsed
        .map(|(e, broadcasts)| {
            (Epilogue::new(e.clone(), constants(&e)).expect("an epilogue"), broadcasts)
        })
        .collect()
}

/// Joined products: each tile of the tables with plain results or a bias, in turn.
fn joined_variants() -> Vec<Shader> {
    let mut out = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::F64] {
        let samples = samples(dtype);
        let bias = samples.iter().find(|(_, broadcasts)| broadcasts[..] == [Broadcast::Channel]);
        let (bias, broadcasts) = bias.expect("a sample with a bias");
        let tiles = tables::all().filter(|t| {
            has_kind(t, dtype) && !matches!(t.kind, tile::TileKind::Cooperative { .. })
        });
        for (at, tile) in tiles.enumerate() {
            let four = dtype.size() <= 4;
            let store = if four { StoreKind::Vec4s } else { StoreKind::Elements };
            let lanes = if four && at % 2 == 0 { Lanes::Edge } else { Lanes::One };
            let epilogue = EpilogueVariant::sample(bias, broadcasts, four);
            let epilogue = (at % 3 > 0 && bias.output() == dtype).then_some(epilogue);
            let plain = epilogue.is_none();
            let variant = TileVariant {
                a: (dtype, Lanes::One),
                b: (dtype, lanes),
                c: (dtype, store),
                parts: if plain { 3 } else { 2 },
                epilogue,
                ..TileVariant::plain(tile)
            };
            if plain && four && siblings::has_place(tile) {
                let whole = at % 2 == 0 || dtype.lanes() > 1;
                let sums = if whole { SumsKind::Vec4s } else { SumsKind::Elements };
                out.push(shader(&TileVariant { sums, ..variant.clone() }));
            }
            out.push(shader(&variant));
        }
    }
    out
}

/// Products with quantized weights: each tile with each way to load them, in turn with each way to
/// decode them.
fn quantized_variants() -> Vec<Shader> {
    let mut out = Vec::new();
    for (turn, tile) in tables::all().chain(&tables::COOPERATIVE).enumerate() {
        let cooperative = match tile.kind {
            tile::TileKind::Cooperative { size, bytes: 2 } if is_listed(size) => {
                Some(Cooperative { size, ..Cooperative::F16 })
            }
            tile::TileKind::Cooperative { .. } => continue,
            _ => None,
        };
        for (at, lanes) in [Lanes::One, Lanes::Edge, Lanes::Depth].into_iter().enumerate() {
            let by_columns = lanes == Lanes::Depth || lanes == Lanes::One && turn % 2 == 1;
            let dtype = [DType::F16, DType::F32][usize::from(cooperative.is_none())];
            out.push(shader(&TileVariant {
                a: (dtype, if lanes == Lanes::One { lanes } else { Lanes::Depth }),
                b: (dtype, lanes),
                c: (dtype, StoreKind::Vec4s),
                cooperative,
                weights: Some(WeightsForm::sample(3 * turn + at, lanes != Lanes::One, by_columns)),
                ..TileVariant::plain(tile)
            }));
        }
    }
    out
}

/// Variants with sample epilogues: each way to store, with and without a batch, for each type, and
/// the finishing program.
pub fn fused_variants() -> Vec<Shader> {
    let mut out = Vec::new();
    let batch = Iteration::over(&[2]).broadcast(&[2]).broadcast(&[2]).broadcast(&[2]).class();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8] {
        let samples = if dtype == DType::I8 { int8_samples() } else { samples(dtype) };
        for (epilogue, broadcasts) in samples {
            let result = epilogue.output();
            let tiles = tables::all().filter(|t| has_kind(t, dtype));
            for tile in tiles.step_by(3) {
                let mut push = |a_layout, spatial, store, batch| {
                    let vec4s = store == StoreKind::Vec4s;
                    let (lanes, c) = (Lanes::One, (result, store));
                    let epilogue = Some(EpilogueVariant::sample(&epilogue, &broadcasts, vec4s));
                    let (a, b) = ((dtype, lanes), (dtype, lanes));
                    out.push(shader(&TileVariant {
                        a_layout,
                        spatial,
                        a,
                        b,
                        c,
                        batch,
                        epilogue,
                        ..TileVariant::plain(tile)
                    }));
                };
                for batch in [None, Some(batch.clone())] {
                    if result.size() <= 4 {
                        push(ALayoutKind::Dense, 0, StoreKind::Vec4s, batch.clone());
                    }
                    if result.lanes() == 1 && dtype == DType::I8 {
                        push(ALayoutKind::Dense, 0, StoreKind::Elements, batch.clone());
                        push(ALayoutKind::Dense, 0, StoreKind::Columns, None);
                    } else if result.lanes() == 1 {
                        push(ALayoutKind::Patch, 2, StoreKind::Elements, batch.clone());
                        push(ALayoutKind::Patch, 3, StoreKind::Planes, batch);
                        push(ALayoutKind::Dense, 0, StoreKind::Columns, None);
                    }
                }
            }
            let sample = EpilogueVariant::sample(&epilogue, &broadcasts, false);
            out.push(finish::text(dtype.accumulator(), result, Some(&sample)));
            if dtype.size() <= 4 && result.size() <= 4 {
                let sample = EpilogueVariant::sample(&epilogue, &broadcasts, true);
                out.push(finish::vec4_text(dtype.accumulator(), result, Some(&sample)));
            }
        }
    }
    out.extend(joined_variants());
    out.extend(quantized_variants());
    out
}
