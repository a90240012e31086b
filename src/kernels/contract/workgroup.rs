//! The program of tiles in workgroup memory: how invocations fill both operands' tiles, and the
//! products of a step.

use std::fmt::Write;

use super::element::{element, lane, loader};
use super::text::{products, stores, tile_defines};
use super::tile::TileKind;
use super::{ALayoutKind, BLayoutKind, Lanes, TileVariant, walk};
use crate::shader::Shader;

const WORKGROUP: &str = include_str!("../../../shaders/contract/workgroup.wgsl");
const DOUBLE: &str = include_str!("../../../shaders/contract/double.wgsl");

/// The load of an invocation from an operand into a tile.
pub(super) struct Slot {
    /// Its number, and the number below which it exists if the last round has more invocations than
    /// slots.
    number: String,
    guard: Option<u32>,
    /// The name and the type of the value on its way, and how it is loaded.
    name: String,
    ty: &'static str,
    fetch: String,
    /// Statements that put it into the tile.
    put: Vec<String>,
}

impl Slot {
    /// The declaration of the register, and its load.
    pub(super) fn load(&self) -> String {
        let Self { number, name, ty, fetch, .. } = self;
        match self.guard {
            None => format!("        let {name} = {fetch};\n"),
            Some(slots) => format!(
                "        var {name} = {ty}();\n        if {number} < {slots}u {{\n            \
                 {name} = {fetch};\n        }}\n"
            ),
        }
    }

    /// The stores of the slot into the tile.
    pub(super) fn store(&self) -> String {
        let statements =
            |indent: &str| self.put.iter().map(|s| format!("{indent}{s}\n")).collect::<String>();
        match self.guard {
            None => statements("        "),
            Some(slots) => {
                format!(
                    "        if {} < {slots}u {{\n{}        }}\n",
                    self.number,
                    statements("            ")
                )
            }
        }
    }
}

/// Writes the statements for a slot of `b`.
type PutB<'a> = dyn Fn(Option<&str>, &str, &str, &str) -> String + 'a;

/// How slots of both operands are loaded and stored: the first step, and the statements that put
/// them into the tiles.
pub(super) struct Place<'a> {
    /// The first step.
    pub k: &'a str,
    /// The statements for `a`, by a slot's number, its (first) row, its (first) step and the name
    /// of its value.
    pub a: &'a dyn Fn(&str, &str, &str, &str) -> String,
    /// The statements for `b`, by a slot's number (if it is in the order of the tile), its step,
    /// its number of four columns, and the name of its value.
    pub b: &'a PutB<'a>,
}

/// Slots of both operands; statements that are the same in all steps are added to `rows`.
pub(super) fn slots(
    v: &TileVariant,
    depth: u32,
    place: &Place<'_>,
    rows: &mut String,
) -> Vec<Slot> {
    let (threads, k) = (v.tile.threads(), place.k);
    let (m, n) = (v.tile.m() as u32, v.tile.n() as u32);
    let mut out = Vec::new();
    let total = m * depth / 4;
    for t in 0..total.div_ceil(threads) {
        let number = format!("slot_a{t}");
        let (row, own, least) = match v.a.1 {
            Lanes::Edge => {
                (format!("{number} % {}u * 4u", m / 4), format!("{number} / {}u", m / 4), 4)
            }
            _ => {
                (format!("{number} / {}u", depth / 4), format!("{number} % {}u * 4u", depth / 4), 1)
            }
        };
        let _ = writeln!(rows, "    let {number} = local_index + {}u;", t * threads);
        let _ = writeln!(rows, "    let row{t} = a_row(min(place.m + {row}, p.m - {least}u));");
        let name = format!("next_a{t}");
        out.push(Slot {
            guard: ((t + 1) * threads > total).then_some(total),
            ty: "Vec4",
            fetch: format!("fetch_a(row{t}, place.a, {k} + {own}, place.k_end)"),
            put: vec![(place.a)(&number, &row, &own, &name)],
            number,
            name,
        });
    }
    let square = v.b.1 == Lanes::Depth;
    let total = n * depth / if square { 16 } else { 4 };
    for t in 0..total.div_ceil(threads) {
        let (number, name) = (format!("slot_b{t}"), format!("next_b{t}"));
        let _ = writeln!(rows, "    let {number} = local_index + {}u;", t * threads);
        let (ty, fetch, put) = if square {
            let (step, quad) =
                (format!("{number} % {}u * 4u", depth / 4), format!("{number} / {}u", depth / 4));
            let put = (0..4)
                .map(|j| {
                    (place.b)(None, &format!("({step} + {j}u)"), &quad, &format!("{name}.k{j}"))
                })
                .collect();
            (
                "Square",
                format!(
                    "fetch_b_square(place.b, {k} + {step}, place.k_end, place.n + {quad} * 4u)"
                ),
                put,
            )
        } else {
            let (step, quad) = (format!("{number} / {}u", n / 4), format!("{number} % {}u", n / 4));
            let put = vec![(place.b)(Some(&number), &step, &quad, &name)];
            (
                "Vec4",
                format!("fetch_b(place.b, {k} + {step}, place.k_end, place.n + {quad} * 4u)"),
                put,
            )
        };
        out.push(Slot {
            guard: ((t + 1) * threads > total).then_some(total),
            ty,
            fetch,
            put,
            number,
            name,
        });
    }
    out
}

pub(super) fn program(shader: Shader, v: &TileVariant, depth: u32) -> Shader {
    let tile = v.tile;
    let (m, n) = (tile.m() as u32, tile.n() as u32);
    let by_depth = v.a.1 != Lanes::Edge;
    let double = matches!(tile.kind, TileKind::Workgroup { buffers: 2, .. });
    let (k, put_a, put_b, at_a, at_b) = if double {
        ("k_next", "put_a + ", "put_b + ", "at_a + ", "at_b + ")
    } else {
        ("k", "", "", "", "")
    };
    let place = Place {
        k,
        a: &|number, _, _, name| format!("tile_a[{put_a}{number}] = {name};"),
        b: &|number, step, quad, name| match number {
            Some(number) => format!("tile_b[{put_b}{number}] = {name};"),
            None => format!("tile_b[{put_b}{step} * {}u + {quad}] = {name};", n / 4),
        },
    };
    let mut rows = String::new();
    let slots = slots(v, depth, &place, &mut rows);
    let loads: String = slots.iter().map(Slot::load).collect();
    let stores_of_loads: String = slots.iter().map(Slot::store).collect();
    let mut step = String::new();
    if by_depth {
        for row in 0..tile.rows {
            let _ = writeln!(
                step,
                "            let a{row} = tile_a[{at_a}(lane_m * {r}u + {row}u) * {d}u + i];",
                r = tile.rows,
                d = depth / 4
            );
        }
    } else {
        for g in 0..tile.rows / 4 {
            for k in 0..4 {
                let _ = writeln!(
                    step,
                    "            let a{g}_{k} = tile_a[{at_a}(i * 4u + {k}u) * {s}u + lane_m * \
                     {r}u + {g}u];",
                    s = m / 4,
                    r = tile.rows / 4
                );
            }
        }
    }
    for q in 0..tile.vec4s {
        for k in 0..4 {
            let _ = writeln!(
                step,
                "            let b{q}_{k} = tile_b[{at_b}(i * 4u + {k}u) * {s}u + lane_n + {}u];",
                q * tile.lanes_n,
                s = n / 4
            );
        }
    }
    let of_row = |row: u32, k: u32| {
        if by_depth {
            element(v.a.0, &format!("a{row}"), k)
        } else {
            format!("a{}_{k}.{}", row / 4, lane(row))
        }
    };
    step += &products(v, 4, of_row, "            ");
    let steps =
        format!("        for (var i = 0u; i < {}u; i += 1u) {{\n{step}\n        }}", depth / 4);
    tile_defines(shader, v)
        .define("STORES", walk::stores(v, &stores(v)))
        .define("DEPTH", format!("{depth}u"))
        .define("A_ROWS", rows)
        .define("LOADS", loads)
        .define("PUTS", stores_of_loads)
        .define("STEPS", steps)
        .body(&fetch_text(v))
        .body(if double { DOUBLE } else { WORKGROUP })
}

/// `fetch_a` and `fetch_b`: four neighbours of an operand, zeros beyond `end`. `fetch_b_square`:
/// four columns of four steps.
pub(super) fn fetch_text(v: &TileVariant) -> String {
    let (load_a, load_b) = (loader("a", v.conjugated[0]).0, loader("b", v.conjugated[1]).0);
    let (outer, inner) = match v.a_layout {
        ALayoutKind::Dense if v.terms == 1 => ("0u", "kk"),
        _ => ("kk / p.inner", "kk % p.inner"),
    };
    let inside = match v.a_layout {
        ALayoutKind::Dense => None,
        ALayoutKind::Patch | ALayoutKind::Spread => Some("line.inside"),
        ALayoutKind::Window => Some("line.inside && a_inside(row, i)"),
    };
    let checked = |ty: &str, zero: &str, load: &str| {
        let check = inside.map_or(String::new(), |c| {
            format!("    if !({c}) {{\n        return {zero};\n    }}\n")
        });
        format!(
            "fn fetch_a_at(row: Row, first: u32, kk: u32, end: u32) -> {ty} {{\n    if kk >= end \
             {{\n        return {zero};\n    }}\n    let i = {inner};\n    let line = a_line(row, \
             {outer});\n{check}    return {load};\n}}\n\n"
        )
    };
    let mut text = match v.a.1 {
        Lanes::One => {
            checked("Scalar", "Scalar()", &format!("{load_a}(first + line.at + i * p.a_step)"))
        }
        Lanes::Depth => checked("Vec4", "Vec4()", "load4_a(first + line.at + i)"),
        Lanes::Edge => checked("Vec4", "Vec4()", "load4_a(first + line.at + i * p.a_step)"),
    };
    text.push_str("fn fetch_a(row: Row, first: u32, k: u32, end: u32) -> Vec4 {\n    return ");
    if v.a.1 == Lanes::One {
        let parts: Vec<_> =
            (0..4).map(|k| format!("fetch_a_at(row, first, k + {k}u, end)")).collect();
        let _ = writeln!(text, "four(\n        {},\n    );\n}}\n", parts.join(",\n        "));
    } else {
        text.push_str("fetch_a_at(row, first, k, end);\n}\n\n");
    }
    let line = match v.b_layout {
        BLayoutKind::Dense => "kk * p.b_step".to_owned(),
        _ => "b_line(kk / p.inner) + kk % p.inner * p.b_step".to_owned(),
    };
    match v.b.1 {
        Lanes::One => {
            let parts: Vec<_> = (0..4)
                .map(|j| format!("{load_b}(line + min(n + {j}u, p.n - 1u) * p.b_column)"))
                .collect();
            let _ = writeln!(
                text,
                "fn fetch_b(first: u32, kk: u32, end: u32, n: u32) -> Vec4 {{\n    if kk >= end \
                 {{\n        return Vec4();\n    }}\n    let line = first + {line};\n    return \
                 four(\n        {},\n    );\n}}\n",
                parts.join(",\n        ")
            );
        }
        Lanes::Edge => {
            let _ = writeln!(
                text,
                "fn fetch_b(first: u32, kk: u32, end: u32, n: u32) -> Vec4 {{\n    if kk >= end \
                 {{\n        return Vec4();\n    }}\n    return load4_b(first + {line} + min(n, \
                 p.n - 4u));\n}}\n"
            );
        }
        Lanes::Depth => {
            let mut body = String::new();
            for j in 0..4 {
                let _ = writeln!(
                    body,
                    "        t{j} = load4_b(line + min(n + {j}u, p.n - 1u) * p.b_column);"
                );
            }
            let turned: Vec<_> = (0..4)
                .map(|k| {
                    let l = lane(k);
                    format!("four(t0.{l}, t1.{l}, t2.{l}, t3.{l})")
                })
                .collect();
            let _ = writeln!(
                text,
                "struct Square {{\n    k0: Vec4,\n    k1: Vec4,\n    k2: Vec4,\n    k3: \
                 Vec4,\n}}\n\nfn fetch_b_square(first: u32, kk: u32, end: u32, n: u32) -> Square \
                 {{\n    var t0 = Vec4();\n    var t1 = Vec4();\n    var t2 = Vec4();\n    var t3 \
                 = Vec4();\n    if kk < end {{\n        let line = first + {line};\n{body}    \
                 }}\n    return Square(\n        {},\n    );\n}}\n",
                turned.join(",\n        ")
            );
        }
    }
    text
}
