//! The program of tiles in workgroup memory: how invocations fill both operands' tiles, and the products of a step.

use std::fmt::Write;

use super::element::{element, lane, loader};
use super::text::{products, stores, tile_defines};
use super::{Lanes, LinesKind, RowsKind, Variant};
use crate::shader::Shader;

const WORKGROUP: &str = include_str!("../../../shaders/contract/workgroup.wgsl");

pub(super) fn program(shader: Shader, v: &Variant, depth: u32) -> Shader {
    let tile = v.tile;
    let threads = tile.threads();
    let (m, n) = (tile.m() as u32, tile.n() as u32);
    let by_depth = v.a.1 != Lanes::Edge;
    let slots = m * depth / 4;
    let mut rows = String::new();
    let mut fill = String::new();
    for t in 0..slots.div_ceil(threads) {
        let slot = format!("local_index + {}u", t * threads);
        let (row, k, least) = if by_depth {
            (format!("slot_a{t} / {}u", depth / 4), format!("slot_a{t} % {}u * 4u", depth / 4), 1)
        } else {
            (format!("slot_a{t} % {}u * 4u", m / 4), format!("slot_a{t} / {}u", m / 4), 4)
        };
        let _ = writeln!(rows, "    let slot_a{t} = {slot};");
        let _ = writeln!(rows, "    let row{t} = a_row(min(m_first + {row}, p.m - {least}u));");
        let store = format!("tile_a[slot_a{t}] = fetch_a(row{t}, a_first, k + {k}, k_end);");
        push_guarded(&mut fill, &store, &format!("slot_a{t}"), slots, (t + 1) * threads);
    }
    let slots = if v.b.1 == Lanes::Depth { n * depth / 16 } else { n * depth / 4 };
    for t in 0..slots.div_ceil(threads) {
        let _ = writeln!(fill, "        let slot_b{t} = local_index + {}u;", t * threads);
        let store = if v.b.1 == Lanes::Depth {
            format!("fetch_b_block(slot_b{t} % {d}u, slot_b{t} / {d}u, b_first, k, k_end, n_first);", d = depth / 4)
        } else {
            format!(
                "tile_b[slot_b{t}] = fetch_b(b_first, k + slot_b{t} / {q}u, k_end, n_first + slot_b{t} % {q}u * 4u);",
                q = n / 4
            )
        };
        push_guarded(&mut fill, &store, &format!("slot_b{t}"), slots, (t + 1) * threads);
    }
    let mut step = String::new();
    if by_depth {
        for row in 0..tile.rows {
            let _ = writeln!(
                step,
                "            let a{row} = tile_a[(lane_m * {r}u + {row}u) * {d}u + i];",
                r = tile.rows,
                d = depth / 4
            );
        }
    } else {
        for g in 0..tile.rows / 4 {
            for k in 0..4 {
                let _ = writeln!(
                    step,
                    "            let a{g}_{k} = tile_a[(i * 4u + {k}u) * {s}u + lane_m * {r}u + {g}u];",
                    s = m / 4,
                    r = tile.rows / 4
                );
            }
        }
    }
    for q in 0..tile.quads {
        for k in 0..4 {
            let _ = writeln!(
                step,
                "            let b{q}_{k} = tile_b[(i * 4u + {k}u) * {s}u + lane_n + {}u];",
                q * tile.lanes_n,
                s = n / 4
            );
        }
    }
    let of_row = |row: u32, k: u32| {
        if by_depth { element(v.a.0, &format!("a{row}"), k) } else { format!("a{}_{k}.{}", row / 4, lane(row)) }
    };
    step += &products(v, 4, of_row, "            ");
    tile_defines(shader, tile)
        .define("STORES", stores(tile))
        .define("DEPTH", format!("{depth}u"))
        .define("A_ROWS", rows)
        .define("FILL", fill)
        .define("STEP", step)
        .body(&fetch_text(v))
        .body(WORKGROUP)
}

/// A statement of the fill, guarded when the last round has more invocations than slots.
fn push_guarded(fill: &mut String, statement: &str, slot: &str, slots: u32, covered: u32) {
    let _ = if covered > slots {
        writeln!(fill, "        if {slot} < {slots}u {{\n            {statement}\n        }}")
    } else {
        writeln!(fill, "        {statement}")
    };
}

/// `fetch_a`, `fetch_b` and `fetch_b_block`: four neighbours of an operand, zeros beyond `end`.
fn fetch_text(v: &Variant) -> String {
    let (load_a, load_b) = (loader("a", v.conjugated[0]).0, loader("b", v.conjugated[1]).0);
    let (outer, inner) = if v.rows == RowsKind::Dense { ("0u", "kk") } else { ("kk / p.inner", "kk % p.inner") };
    let inside = match v.rows {
        RowsKind::Dense => None,
        RowsKind::Patch | RowsKind::Spread => Some("line.inside"),
        RowsKind::Window => Some("line.inside && a_inside(row, i)"),
    };
    let checked = |ty: &str, zero: &str, load: &str| {
        let check = inside.map_or(String::new(), |c| format!("    if !({c}) {{\n        return {zero};\n    }}\n"));
        format!(
            "fn fetch_a_at(row: Row, first: u32, kk: u32, end: u32) -> {ty} {{\n    if kk >= end {{\n        \
             return {zero};\n    }}\n    let i = {inner};\n    let line = a_line(row, {outer});\n{check}    return {load};\n}}\n\n"
        )
    };
    let mut text = match v.a.1 {
        Lanes::One => checked("Scalar", "Scalar()", &format!("{load_a}(first + line.at + i * p.a_step)")),
        Lanes::Depth => checked("Quad", "Quad()", "load4_a(first + line.at + i)"),
        Lanes::Edge => checked("Quad", "Quad()", "load4_a(first + line.at + i * p.a_step)"),
    };
    text.push_str("fn fetch_a(row: Row, first: u32, k: u32, end: u32) -> Quad {\n    return ");
    if v.a.1 == Lanes::One {
        let parts: Vec<_> = (0..4).map(|k| format!("fetch_a_at(row, first, k + {k}u, end)")).collect();
        let _ = writeln!(text, "four(\n        {},\n    );\n}}\n", parts.join(",\n        "));
    } else {
        text.push_str("fetch_a_at(row, first, k, end);\n}\n\n");
    }
    let line = match v.lines {
        LinesKind::Dense => "kk * p.b_step".to_owned(),
        _ => "b_line(kk / p.inner) + kk % p.inner * p.b_step".to_owned(),
    };
    match v.b.1 {
        Lanes::One => {
            let parts: Vec<_> =
                (0..4).map(|j| format!("{load_b}(line + min(n + {j}u, p.n - 1u) * p.b_column)")).collect();
            let _ = writeln!(
                text,
                "fn fetch_b(first: u32, kk: u32, end: u32, n: u32) -> Quad {{\n    if kk >= end {{\n        \
                 return Quad();\n    }}\n    let line = first + {line};\n    return four(\n        {},\n    );\n}}\n",
                parts.join(",\n        ")
            );
        }
        Lanes::Edge => {
            let _ = writeln!(
                text,
                "fn fetch_b(first: u32, kk: u32, end: u32, n: u32) -> Quad {{\n    if kk >= end {{\n        \
                 return Quad();\n    }}\n    return load4_b(first + {line} + min(n, p.n - 4u));\n}}\n"
            );
        }
        Lanes::Depth => {
            let mut body = String::new();
            for j in 0..4 {
                let _ = writeln!(
                    body,
                    "        t{j} = load4_b(line + min(n_first + quad * 4u + {j}u, p.n - 1u) * p.b_column);"
                );
            }
            let mut stores = String::new();
            for k in 0..4 {
                let l = lane(k);
                let _ = writeln!(
                    stores,
                    "    tile_b[(k4 * 4u + {k}u) * {}u + quad] = four(t0.{l}, t1.{l}, t2.{l}, t3.{l});",
                    v.tile.n() / 4
                );
            }
            let _ = writeln!(
                text,
                "fn fetch_b_block(k4: u32, quad: u32, first: u32, k: u32, end: u32, n_first: u32) {{\n    \
                 let kk = k + k4 * 4u;\n    var t0 = Quad();\n    var t1 = Quad();\n    var t2 = Quad();\n    \
                 var t3 = Quad();\n    if kk < end {{\n        let line = first + {line};\n{body}    }}\n{stores}}}\n"
            );
        }
    }
    text
}
