//! The program of tiles in workgroup memory: how invocations fill both operands' tiles, and the
//! products of a step.

use std::fmt::Write;

use super::element::{element, has_vectors, lane, loader};
use super::text::{products, stores, tile_defines};
use super::tile::TileKind;
use super::{ALayoutKind, BLayoutKind, Lanes, TileVariant, walk};
use crate::shader::Shader;

const WORKGROUP: &str = include_str!("../../../shaders/contract/workgroup.wgsl");
const DOUBLE: &str = include_str!("../../../shaders/contract/double.wgsl");

/// The load of an invocation from an operand into a tile.
struct Slot {
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
    fn load(&self) -> String {
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
    fn store(&self) -> String {
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

/// Slots of both operands, which are loaded from step `k` on and stored from the places `put` on;
/// statements that are the same in all steps are added to `rows`.
fn slots(v: &TileVariant, depth: u32, k: &str, put: [&str; 2], rows: &mut String) -> Vec<Slot> {
    let (threads, [put_a, put_b]) = (v.tile.threads(), put);
    // The quotient and the remainder of slot t by a width, of the first slot where they differ by
    // a constant.
    let split = |name: &str, t: u32, width: u32| {
        if !threads.is_multiple_of(width) {
            return (format!("{name}{t} / {width}u"), format!("{name}{t} % {width}u"));
        }
        let (quotient, remainder) = (format!("{name}0 / {width}u"), format!("{name}0 % {width}u"));
        match t * threads / width {
            0 => (quotient, remainder),
            more => (format!("({quotient} + {more}u)"), remainder),
        }
    };
    let (m, n) = (v.tile.m() as u32, v.tile.n() as u32);
    let mut out = Vec::new();
    let total = m * depth / 4;
    for t in 0..total.div_ceil(threads) {
        let number = format!("slot_a{t}");
        let (row, own, least) = match v.a.1 {
            Lanes::Edge => {
                let (own, quad) = split("slot_a", t, m / 4);
                (format!("{quad} * 4u"), own, 4)
            }
            _ => {
                let (row, quad) = split("slot_a", t, depth / 4);
                (row, format!("{quad} * 4u"), 1)
            }
        };
        let _ = writeln!(rows, "    let {number} = local_index + {}u;", t * threads);
        let _ = writeln!(rows, "    let row{t} = a_row(min(place.m + {row}, p.m - {least}u));");
        let name = format!("next_a{t}");
        out.push(Slot {
            guard: ((t + 1) * threads > total).then_some(total),
            ty: "Vec4",
            fetch: format!("fetch_a(row{t}, place.a, {k} + {own}, place.k_end)"),
            put: vec![format!("tile_a[{put_a}{number}] = {name};")],
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
            let (quad, step) = split("slot_b", t, depth / 4);
            let step = format!("{step} * 4u");
            let put = (0..4)
                .map(|j| {
                    format!("tile_b[{put_b}({step} + {j}u) * {}u + {quad}] = {name}.k{j};", n / 4)
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
            let (step, quad) = split("slot_b", t, n / 4);
            let put = vec![format!("tile_b[{put_b}{number}] = {name};")];
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
    let mut rows = String::new();
    let slots = slots(v, depth, k, [put_a, put_b], &mut rows);
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
        .body(&if v.b.1 == Lanes::Depth { square_text() } else { String::new() })
        .body(if double { DOUBLE } else { WORKGROUP })
}

/// `fetch_a`, and `fetch_b` or, where its neighbours are along k, `fetch_b_column`: four neighbours
/// of an operand, zeros beyond `end`. None of them branches where a quad is a vector, so that the
/// loads of a step go out together and share their arithmetic: beyond the end, the last step is
/// loaded.
pub(super) fn fetch_text(v: &TileVariant) -> String {
    let (load_a, load_b) = (loader("a", v.conjugated[0]).0, loader("b", v.conjugated[1]).0);
    let (outer, inner) = match v.a_layout {
        ALayoutKind::Dense if v.terms == 1 => ("0u", "at"),
        _ => ("at / p.inner", "at % p.inner"),
    };
    let (is_inside, place) = match v.a_layout {
        ALayoutKind::Dense => ("", "first + line.at"),
        ALayoutKind::Patch | ALayoutKind::Spread => (" & line.inside", "first + line.at"),
        ALayoutKind::Window => {
            (" & line.inside & a_inside(row, i)", "select(0u, first + line.at, line.inside)")
        }
    };
    let fetch_at = |ty: &str, steps: u32, load: &str| {
        let is_inside = format!("(kk < end){is_inside}");
        format!(
            "fn fetch_a_at(row: Row, first: u32, kk: u32, end: u32) -> {ty} {{\n    let at = \
             min(kk, end - {steps}u);\n    let i = {inner};\n    let line = a_line(row, \
             {outer});\n{}    return {};\n}}\n\n",
            left_early(v, ty, &is_inside),
            kept(v, ty, load, &is_inside)
        )
    };
    let mut text = match v.a.1 {
        Lanes::One => fetch_at("Scalar", 1, &format!("{load_a}({place} + i * p.a_step)")),
        Lanes::Depth => fetch_at("Vec4", 4, &format!("load4_a({place} + i)")),
        Lanes::Edge => fetch_at("Vec4", 1, &format!("load4_a({place} + i * p.a_step)")),
    };
    text.push_str("fn fetch_a(row: Row, first: u32, k: u32, end: u32) -> Vec4 {\n    return ");
    if v.a.1 == Lanes::One {
        let parts: Vec<_> =
            (0..4).map(|k| format!("fetch_a_at(row, first, k + {k}u, end)")).collect();
        let _ = writeln!(text, "four(\n        {},\n    );\n}}\n", parts.join(",\n        "));
    } else {
        text.push_str("fetch_a_at(row, first, k, end);\n}\n\n");
    }
    let steps = if v.b.1 == Lanes::Depth { 4 } else { 1 };
    // Weights are found by their step and column, other elements by their index.
    let line = match v.b_layout {
        _ if v.weights.is_some() => "",
        BLayoutKind::Dense => "    let line = first + at * p.b_step;\n",
        _ => "    let line = first + b_line(at / p.inner) + at % p.inner * p.b_step;\n",
    };
    let name = if v.b.1 == Lanes::Depth { "fetch_b_column" } else { "fetch_b" };
    let column = |j: u32| match v.weights {
        Some(_) => format!("at, min(n + {j}u, p.n - 1u)"),
        None => format!("line + min(n + {j}u, p.n - 1u) * p.b_column"),
    };
    let load = match v.b.1 {
        Lanes::Depth => format!("load4_b({})", column(0)),
        Lanes::Edge => {
            let line = if v.weights.is_some() { "at, " } else { "line + " };
            format!("load4_b({line}min(n, p.n - 4u))")
        }
        Lanes::One => {
            let parts: Vec<_> = (0..4).map(|j| format!("{load_b}({})", column(j))).collect();
            format!("four(\n        {},\n    )", parts.join(",\n        "))
        }
    };
    let _ = writeln!(
        text,
        "fn {name}(first: u32, kk: u32, end: u32, n: u32) -> Vec4 {{\n    let at = min(kk, end - \
         {steps}u);\n{}{line}    return {};\n}}\n",
        left_early(v, "Vec4", "kk < end"),
        kept(v, "Vec4", &load, "kk < end")
    );
    text
}

/// `fetch_b_square`: four steps of four columns, turned so that each vec4 is a step.
fn square_text() -> String {
    let columns: String = (0..4)
        .map(|j| format!("    let t{j} = fetch_b_column(first, kk, end, n + {j}u);\n"))
        .collect();
    let turned: Vec<_> = (0..4)
        .map(|k| {
            let l = lane(k);
            format!("four(t0.{l}, t1.{l}, t2.{l}, t3.{l})")
        })
        .collect();
    format!(
        "struct Square {{\n    k0: Vec4,\n    k1: Vec4,\n    k2: Vec4,\n    k3: Vec4,\n}}\n\nfn \
         fetch_b_square(first: u32, kk: u32, end: u32, n: u32) -> Square {{\n{columns}    return \
         Square(\n        {},\n    );\n}}\n\n",
        turned.join(",\n        ")
    )
}

/// The value `load` of a fetch if `is_inside`, else zeros.
fn kept(v: &TileVariant, ty: &str, load: &str, is_inside: &str) -> String {
    if has_vectors(v.a.0) {
        format!("select({ty}(), {load}, {is_inside})")
    } else {
        load.to_owned()
    }
}

/// The branch of a fetch that leaves with zeros unless `is_inside`, where [`kept`] cannot choose.
fn left_early(v: &TileVariant, ty: &str, is_inside: &str) -> String {
    if has_vectors(v.a.0) {
        return String::new();
    }
    format!("    if !({is_inside}) {{\n        return {ty}();\n    }}\n")
}
