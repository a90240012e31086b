//! The shader text for sums of the right operand's columns, see [`super::siblings`].

use std::fmt::Write;

use super::element::lane;
use super::tile_variant::{SumsKind, TileVariant};

/// The name of the sums' binding. Names of results begin with c.
pub(super) const NAME: &str = "c_sums";

/// `fn store_sums(place, n, v)`: the sums of four columns from n on.
pub(super) fn store_text(v: &TileVariant) -> String {
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
pub(super) fn names(v: &TileVariant) -> impl Iterator<Item = String> {
    let count = if v.sums == SumsKind::None { 0 } else { v.tile.vec4s };
    (0..count).map(|q| format!("sums{q}"))
}

/// Declares the registers of the sums, and whether the workgroup makes any.
pub(super) fn declare(v: &TileVariant) -> String {
    if v.sums == SumsKind::None {
        return String::new();
    }
    let sums = names(v).map(|name| format!("    var {name} = Vec4();\n"));
    sums.chain(["    let has_sums = place.m == 0u;\n".to_owned()]).collect()
}

/// Adds the values of the right operand that `steps` inner steps have loaded.
pub(super) fn steps(v: &TileVariant, steps: u32, indent: &str) -> String {
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
pub(super) fn stores(v: &TileVariant) -> String {
    if v.sums == SumsKind::None {
        return String::new();
    }
    let mut text = "    if has_sums && lane_m == 0u {\n".to_owned();
    for q in 0..v.tile.vec4s {
        let _ = writeln!(text, "        store_sums(place, n{q}, sums{q});");
    }
    text + "    }\n"
}
