//! The texts of [`crate::device::Schedule`]s: which tiles a workgroup computes, and where their
//! sums go.
//!
//! The program of a tile in workgroup memory is a function body: the entry point's if each
//! workgroup computes one tile, else that of a function `compute`, which the entry point calls for
//! one tile after the other.

use std::fmt::Write;

use super::element::{plus, words};
use super::tile::TileKind;
use super::tile_variant::{TileVariant, TileWalk};
use crate::shader::Shader;

const PERSISTENT: &str = include_str!("../../../shaders/contract/persistent.wgsl");
const SHARES: &str = include_str!("../../../shaders/contract/shares.wgsl");
const STREAM_K: &str = include_str!("../../../shaders/contract/stream_k.wgsl");
const FIX_UP: &str = include_str!("../../../shaders/contract/fix_up.wgsl");
const KEEP_STAGED: &str = include_str!("../../../shaders/contract/keep_staged.wgsl");

/// Declares the binding and the parameters of shares.
pub(super) fn declare(shader: Shader, v: &TileVariant) -> Shader {
    if !v.walk.has_shares() {
        return shader;
    }
    let bytes = 16 * words(v.a.0) as u32;
    shader.bind_raw("partial", "Vec4", bytes).u32s(&["steps", "shares", "share", "longer"])
}

/// The names of the parameters that the entry point hands on to `compute`.
fn arguments(v: &TileVariant) -> &'static [&'static str] {
    match v.tile.kind {
        TileKind::Cooperative { .. } => &["local_index", "subgroup_id", "num_subgroups"],
        _ => &["local_index"],
    }
}

/// How a body begins, up to its `place`.
pub(super) fn head(shader: Shader, v: &TileVariant) -> Shader {
    let slot = match v.walk {
        TileWalk::Tile => {
            return shader.define(
                "HEAD",
                "{{ENTRY}} {\n    let place = place_of(repeated(workgroup_id, num_workgroups));",
            );
        }
        TileWalk::StreamK => "slot: u32, ",
        TileWalk::Persistent | TileWalk::FixUp => "",
    };
    let names: Vec<_> = arguments(v).iter().map(|name| format!("{name}: u32")).collect();
    let shader = if v.walk == TileWalk::StreamK {
        shader
            .body(SHARES)
            .body("// The slot of a tile that is not cut.\nconst WHOLE = 0xffffffffu;\n")
    } else {
        shader
    };
    shader.define("HEAD", format!("fn compute(place: Place, {slot}{}) {{", names.join(", ")))
}

/// The entry point, where the tile's body is that of `compute`.
pub(super) fn entry(shader: Shader, v: &TileVariant) -> Shader {
    match v.walk {
        TileWalk::Persistent => shader.body(PERSISTENT),
        TileWalk::StreamK if v.cooperative.is_some() => shader.body(KEEP_STAGED).body(STREAM_K),
        TileWalk::StreamK => shader.body(STREAM_K),
        TileWalk::Tile | TileWalk::FixUp => return shader,
    }
    .define("ARGUMENTS", arguments(v).join(", "))
}

/// The program that adds up tiles that shares cut.
pub(super) fn fix_up(shader: Shader, v: &TileVariant) -> Shader {
    let depth = v.tile.steps(words(v.a.0)).expect("a tile in workgroup memory");
    shader
        .define("TILE_M", format!("{}u", v.tile.m()))
        .define("TILE_N", format!("{}u", v.tile.n()))
        .define("DEPTH", format!("{depth}u"))
        .body(&plus(v.a.0))
        .body(SHARES)
        .body(FIX_UP)
}

/// The stores of a tile's sums in registers; `whole` stores a tile that is not cut.
pub(super) fn stores(v: &TileVariant, whole: &str) -> String {
    if v.walk != TileWalk::StreamK {
        return whole.to_owned();
    }
    let tile = v.tile;
    let whole: String = whole.lines().map(|line| format!("    {line}\n")).collect();
    let mut text = format!(
        "    if slot == WHOLE {{\n{whole}    }} else {{\n        let at = p.off_partial + slot * \
         VEC4S + lane_m * {}u * ROW + lane_n;\n",
        tile.rows
    );
    for row in 0..tile.rows {
        for q in 0..tile.vec4s {
            let _ = writeln!(
                text,
                "        partial[at + {row}u * ROW + {}u] = c{row}_{q};",
                q * tile.lanes_n
            );
        }
    }
    text + "    }\n"
}

/// The stores of the sums that cooperative matrices have staged, from row `m` and column `n` of the
/// tile on.
pub(super) fn staged_stores(v: &TileVariant, m: u32, n: u32) -> String {
    let whole = format!(
        "store_staged(local_index, place.m + {m}u, place.n + {n}u, place.c, first, count);"
    );
    if v.walk != TileWalk::StreamK {
        return format!("        {whole}\n");
    }
    format!(
        "        if slot == WHOLE {{\n            {whole}\n        }} else {{\n            \
         keep_staged(local_index, {m}u, {n}u, slot, first, count);\n        }}\n"
    )
}
