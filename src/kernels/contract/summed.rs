//! A product with the sums of its right operand's columns: the gradients of a layer's weights and
//! of its bias. Workgroups of the first rows add up what they load of the right operand for their
//! products anyway, so that it is not read once more.
//!
//! The sums are one more row of the result, stored to a tensor of its own. Where the contracted
//! index is cut they are a row of the partial sums, and the program that adds those stores both. A
//! tile of cooperative matrices or of lanes that share loads has no place for them, nor have shares
//! of tiles: there they are not computed, and the caller reduces the operand itself.

use std::fmt::Write;

use super::choice::{self, Choice};
use super::element::lane;
use super::epilogue::{Bound, EpilogueVariant};
use super::plan::{Plan, Step};
use super::tile::{OperandMemory, Tile};
use super::variants::samples;
use super::{
    Contraction, Lanes, Lines, Store, StoreKind, Variant, assembly, finish, tables, text,
    validation,
};
use crate::device::{Binding, Profile, Schedule, check_extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Where a program puts sums of the right operand's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SumsKind {
    /// It makes none.
    None,
    /// To a tensor, four at a time.
    Vec4s,
    /// To a tensor, one after the other.
    Elements,
    /// To the row behind the result's last one, in partial sums.
    Row,
}

/// The name of the sums' binding. What begins with c is a result.
const NAME: &str = "c_sums";
/// Bindings in front of it: both operands and the result.
const AT: usize = 3;

/// Enqueues a plan, and where it is one program that can, the sums of the right operand's columns,
/// one for each column. Returns whether it has computed them.
pub fn enqueue(ctx: &mut dyn OpContext, plan: Plan<'_>, sums: &Tensor) -> Result<bool> {
    let programs = match plan.steps() {
        [Step::Contract(c, epilogue)] if plan.temporaries().is_empty() => {
            with_sums(ctx, c, epilogue.as_ref(), sums)?
        }
        _ => None,
    };
    match programs {
        Some(programs) => programs.enqueue(ctx).map(|()| true),
        None => plan.enqueue(ctx).map(|()| false),
    }
}

/// The programs of a contraction that makes sums as well.
fn with_sums(
    ctx: &mut dyn OpContext,
    c: &Contraction,
    epilogue: Option<&Bound<'_>>,
    sums: &Tensor,
) -> Result<Option<Plan<'static>>> {
    let profile = ctx.device().profile();
    let is_tuned = ctx.device().tuner().is_some() && profile.tile == 0;
    let plain = c.batch.len() == 1
        && c.n == sums.len()
        && c.lines == Lines::Dense
        && matches!(c.store, Store::Rows(_))
        && c.a.dtype.is_single();
    if is_tuned || !plain {
        return Ok(None);
    }
    let choice = choice::choose(&c.demand(profile, validation::usable(ctx, c.a.dtype, c.b.dtype)));
    programs(c, choice, epilogue, sums, &profile)
}

/// The same with a chosen tile.
fn programs(
    c: &Contraction,
    choice: Choice,
    epilogue: Option<&Bound<'_>>,
    sums: &Tensor,
    profile: &Profile,
) -> Result<Option<Plan<'static>>> {
    let Choice { tile, split_k, schedule } = choice;
    let extras = epilogue.map_or(0, Bound::extras);
    let fits = AT + 1 + extras <= profile.capabilities.max_bindings as usize;
    if !has_place(tile) || !fits || schedule == Schedule::StreamK {
        return Ok(None);
    }
    let mut variant = c.variant(tile);
    let vec4s = variant.c.1 == StoreKind::Vec4s;
    let four = c.n.is_multiple_of(4) && sums.address.is_multiple_of(4 * sums.dtype.size() as u64);
    let chunk = c.chunk(limit(&profile.capabilities), split_k);
    let mut plan = Plan::new();
    if chunk >= c.depth() {
        if !(vec4s || c.c.dtype.lanes() == 1) || !(four || sums.dtype.lanes() == 1) {
            return Ok(None);
        }
        variant.epilogue = epilogue.map(|e| e.variant(vec4s));
        variant.sums = if four { SumsKind::Vec4s } else { SumsKind::Elements };
        let mut dispatch = c.dispatch(variant, &c.c, chunk, None, epilogue);
        let unit = sums.dtype.size() as u32 * if four { 4 } else { 1 };
        dispatch.bindings.insert(AT, Binding::raw(sums, unit));
        plan.dispatch(dispatch);
        return Ok(Some(plan));
    }
    // With one row more, the partial sums of the result are those of all.
    let rows = Tensor::new(c.c.dtype, &[c.m + 1, c.n], c.c.address);
    let long = Contraction { c: rows, ..c.clone() };
    let chunk = long.chunk(limit(&profile.capabilities), split_k);
    let computed = c.a.dtype.accumulator();
    let partial = plan.temporary(computed, &[c.depth().div_ceil(chunk), long.c.len()]);
    check_extent(partial.len())?;
    if !finish::stores_both(&c.c, sums) || partial.bytes() > limit(&profile.capabilities) {
        return Ok(None);
    }
    variant.c = (computed, long.store_kind(&partial));
    variant.sums = SumsKind::Row;
    plan.dispatch(long.dispatch(variant, &partial, chunk, None, None));
    plan.dispatch(finish::dispatch_both(&partial, &c.c, sums, epilogue));
    Ok(Some(plan))
}

/// Whether the invocations of a tile can make sums: those that share loads hold no whole operand.
const fn has_place(tile: &Tile) -> bool {
    !matches!(tile.memory, OperandMemory::Subgroup | OperandMemory::Cooperative { .. })
}

/// Binds the tensor of the sums.
pub(super) fn bind(shader: Shader, v: &Variant) -> Shader {
    match v.sums {
        SumsKind::None | SumsKind::Row => shader,
        SumsKind::Vec4s => text::vec4s_of(shader, NAME, v.a.0),
        SumsKind::Elements => shader.bind(NAME, v.a.0),
    }
}

/// `fn store_sums(place, n, v)`: the sums of four columns from n on.
pub(super) fn store_text(v: &Variant) -> String {
    let stores = match v.sums {
        SumsKind::None => return String::new(),
        SumsKind::Row => "    store_quad(place.c + c_line(p.m), n, v);\n".to_owned(),
        SumsKind::Vec4s => format!("    if n < p.n {{\n        store4_{NAME}(n, v);\n    }}\n"),
        SumsKind::Elements => (0..4)
            .map(|k| {
                let x = lane(k);
                format!(
                    "    if n + {k}u < p.n {{\n        store_{NAME}(n + {k}u, v.{x});\n    }}\n"
                )
            })
            .collect(),
    };
    format!("\nfn store_sums(place: Place, n: u32, v: Vec4) {{\n{stores}}}\n")
}

/// The registers of the sums.
pub(super) fn names(v: &Variant) -> impl Iterator<Item = String> {
    let count = if v.sums == SumsKind::None { 0 } else { v.tile.vec4s };
    (0..count).map(|q| format!("sums{q}"))
}

/// Declares the registers of the sums, and whether the workgroup makes any.
pub(super) fn declare(v: &Variant) -> String {
    if v.sums == SumsKind::None {
        return String::new();
    }
    let sums = names(v).map(|name| format!("    var {name} = Vec4();\n"));
    sums.chain(["    let has_sums = place.m == 0u;\n".to_owned()]).collect()
}

/// Adds up what `steps` inner steps have loaded.
pub(super) fn steps(v: &Variant, steps: u32, indent: &str) -> String {
    if v.sums == SumsKind::None {
        return String::new();
    }
    let mut text = format!("{indent}if has_sums {{\n");
    for k in 0..steps {
        for q in 0..v.tile.vec4s {
            let _ = writeln!(text, "{indent}    sums{q} += b{q}_{k};");
        }
    }
    let _ = writeln!(text, "{indent}}}");
    text
}

/// Stores the sums.
pub(super) fn stores(v: &Variant) -> String {
    if v.sums == SumsKind::None {
        return String::new();
    }
    let mut text = "    if has_sums && lane_m == 0u {\n".to_owned();
    for q in 0..v.tile.vec4s {
        let _ = writeln!(text, "        store_sums(place, n{q}, sums{q});");
    }
    text + "    }\n"
}

/// Products with sums of the right operand's columns: each tile that makes them, with each way to
/// store them in turn, plain or with an epilogue; and the finishing program.
pub(super) fn variants() -> Vec<Shader> {
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
