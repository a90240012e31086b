//! The program of tiles in registers. An element of `a` belongs to a row, which all lanes along the
//! columns share. Each lane loads the element itself, or ([`TileKind::Subgroup`]) eight lanes
//! load eight different elements and broadcast them. Where groups of invocations share sums
//! ([`TileKind::Gemv`]), the groups take turns at the steps, and the first group adds the sums
//! and stores them.

use std::fmt::Write;

use super::element::{lane, loader, plus};
use super::text::{products, tile_defines};
use super::tile::{SUBGROUP, Tile, TileKind};
use super::{ALayoutKind, Lanes, TileVariant, bytes, column_sums};
use crate::dtype::DType;
use crate::shader::{Shader, codec};

const REGISTERS: &str = include_str!("../../../shaders/contract/registers.wgsl");

pub(super) fn program(shader: Shader, v: &TileVariant) -> Shader {
    let tile = v.tile;
    let shared = tile.kind == TileKind::Subgroup;
    // Loads by depth bring four steps; the contracted index is then a multiple of four.
    let by_depth = v.a.1 == Lanes::Depth || v.b.1 == Lanes::Depth;
    let steps = if by_depth || steps_of_load(v) > 1 { 4 } else { 1 };
    let guarded = steps > 1 && !by_depth;
    let a = RowLoads::of(v);
    let (mut step, mut clamped) = (String::new(), String::new());
    a.load(v, steps, guarded, &mut step);
    load_b(v, steps, guarded, &mut step, &mut clamped);
    step += &if shared {
        broadcasts(v, steps)
    } else {
        products(v, steps, |row, k| element(v, row, k), "            ")
    };
    let reduced = tile.groups() > 1;
    let plane = tile.lanes_m * tile.lanes_n;
    let lane_m = match (tile.lanes_m, reduced) {
        (1, _) => "0u".to_owned(),
        (_, false) => format!("local_index / {}u", tile.lanes_n),
        (_, true) => format!("local_index % {plane}u / {}u", tile.lanes_n),
    };
    // Every lane of a subgroup takes part in its broadcasts, and every invocation in the barriers
    // of a sum that it shares.
    let outside =
        if shared || reduced { "" } else { "    if n0 >= p.n {\n        return;\n    }\n" };
    let (first, stride) = if reduced {
        (
            format!("i_first + local_index / {plane}u * {steps}u"),
            format!("{}u", steps * tile.groups()),
        )
    } else {
        ("i_first".to_owned(), format!("{steps}u"))
    };
    let shader =
        if shared { shader.builtin("subgroup_invocation_id", "subgroup_lane") } else { shader };
    tile_defines(shader, v)
        .define("TILE_ID", if reduced { REPEATED } else { ONCE })
        .define("FIRST", first)
        .define("REDUCE", if reduced { reduction(v) } else { String::new() })
        .define("STORES", stores(v))
        .define("LANE_M", lane_m)
        .define("OUTSIDE", outside)
        .define("A_ROWS", a.rows)
        .define("B_COLUMNS", clamped)
        .define("LINES", a.lines)
        .define("STEPS", stride)
        .define("STEP", step)
        .body(&if reduced { shared_sums(tile, v.a.0) } else { String::new() })
        .body(&if is_in_quads(v) { quad_b(v.b.0) } else { String::new() })
        .body(REGISTERS)
}

/// `quad_b(i)`: four neighbours, by the number of their vec4 in the binding.
fn quad_b(dtype: DType) -> String {
    format!(
        "fn quad_b(i: u32) -> Vec4 {{\n    let w = b[i];\n    return {};\n}}\n",
        codec::unpack(dtype)
    )
}

/// Selects the tile where there are barriers, which all workgroups must meet: surplus ones repeat a
/// tile.
const REPEATED: &str = "    let workgroup = repeated(workgroup_id, num_workgroups);\n";
const ONCE: &str = "    let workgroup = workgroup_id.y * num_workgroups.x + workgroup_id.x;\n    \
                    if workgroup >= p.total {\n        return;\n    }\n";

/// Declares `shared_sums`, through which groups hand their sums over, and `plus`.
pub(super) fn shared_sums(tile: &Tile, dtype: DType) -> String {
    format!("var<workgroup> shared_sums: array<Vec4, {}>;\n\n{}", tile.threads(), plus(dtype))
}

/// Adds the groups' sums in pairs, for one sum of an invocation after the other.
fn reduction(v: &TileVariant) -> String {
    let (tile, plane) = (v.tile, v.tile.lanes_m * v.tile.lanes_n);
    let of_rows = (0..tile.rows)
        .flat_map(|row| (0..tile.vec4s).map(move |q| format!("c{row}_{q}")))
        .chain(column_sums::names(v));
    let mut text = String::new();
    for sum in of_rows {
        let _ = writeln!(text, "    shared_sums[local_index] = {sum};\n    workgroupBarrier();");
        let mut half = tile.groups() / 2;
        while half > 0 {
            let other = half * plane;
            let _ = writeln!(
                text,
                "    if local_index < {other}u {{\n        {sum} = plus({sum}, \
                 shared_sums[local_index + {other}u]);\n        shared_sums[local_index] = \
                 {sum};\n    }}\n    workgroupBarrier();"
            );
            half /= 2;
        }
    }
    text
}

/// The stores of every invocation, or of the first group's invocations alone.
fn stores(v: &TileVariant) -> String {
    let text = super::text::stores(v);
    if v.tile.groups() == 1 {
        return text;
    }
    let inner: String = text.lines().map(|line| format!("    {line}\n")).collect();
    format!("    if local_index < {}u {{\n{inner}    }}\n", v.tile.lanes_m * v.tile.lanes_n)
}

/// Steps that one load by rows brings. A tile with fewer rows than lanes lets the other lanes load
/// the next steps.
fn steps_of_load(v: &TileVariant) -> u32 {
    if v.tile.kind == TileKind::Subgroup && v.a.1 == Lanes::Edge {
        SUBGROUP * 4 / v.tile.rows
    } else {
        1
    }
}

/// One row's element at inner step `i + k`, in registers of the lane itself.
fn element(v: &TileVariant, row: u32, k: u32) -> String {
    match v.a.1 {
        Lanes::Depth => format!("a{row}.{}", lane(k)),
        Lanes::Edge => format!("a{}_{k}.{}", row / 4, lane(row)),
        Lanes::One => format!("a{row}_{k}"),
    }
}

/// The products of `steps` inner steps, for which each row's element comes from the lane that has
/// loaded it.
fn broadcasts(v: &TileVariant, steps: u32) -> String {
    let mut text = String::new();
    let per = steps_of_load(v);
    for k in 0..steps {
        for row in 0..v.tile.rows {
            let group = row / SUBGROUP;
            let (value, from) = match v.a.1 {
                Lanes::Depth => (format!("a{group}.{}", lane(k)), row % SUBGROUP),
                Lanes::Edge => (
                    format!("a0_{}.{}", k / per * per, lane(row)),
                    k % per * (v.tile.rows / 4) + row / 4,
                ),
                Lanes::One => (format!("a{group}_{k}"), row % SUBGROUP),
            };
            let _ =
                writeln!(text, "            let s{row}_{k} = subgroupBroadcast({value}, {from}u);");
            for q in 0..v.tile.vec4s {
                let sum = bytes::multiply_add(
                    v,
                    &format!("s{row}_{k}"),
                    &format!("b{q}_{k}"),
                    &format!("c{row}_{q}"),
                );
                let _ = writeln!(text, "            {sum}");
            }
        }
    }
    text
}

/// The loads of `a` by a lane: `groups` loads for each step or, by [`Lanes::Depth`], for four.
struct RowLoads {
    groups: u32,
    /// Statements before the loops.
    rows: String,
    /// Statements at the start of an outer step.
    lines: String,
}

impl RowLoads {
    fn of(v: &TileVariant) -> Self {
        let tile = v.tile;
        let shared = tile.kind == TileKind::Subgroup;
        let per_load = if v.a.1 == Lanes::Edge { 4 } else { 1 };
        let loads = tile.rows.div_ceil(per_load);
        let groups = if shared { loads.div_ceil(SUBGROUP) } else { loads };
        let (mut rows, mut lines) = (String::new(), String::new());
        let mut any = Vec::new();
        for g in 0..groups {
            let first = match (shared, per_load) {
                (false, _) => format!("{}u", g * per_load),
                (true, 1) => format!("{}u + subgroup_lane % {SUBGROUP}u", g * SUBGROUP),
                (true, _) => format!("subgroup_lane % {loads}u * {per_load}u"),
            };
            let _ = writeln!(rows, "    let row{g} = a_row(min(m0 + {first}, p.m - {per_load}u));");
            if g == 0 && steps_of_load(v) > 1 {
                let _ =
                    writeln!(rows, "    let lane_step = subgroup_lane % {SUBGROUP}u / {loads}u;");
            }
            let _ = writeln!(lines, "        let line{g} = a_line(row{g}, o);");
            let _ = writeln!(lines, "        let a_at{g} = place.a + line{g}.at;");
            any.push(format!("line{g}.inside"));
        }
        if v.a_layout != ALayoutKind::Dense && !shared {
            let _ = writeln!(
                lines,
                "        if !({}) {{\n            continue;\n        }}",
                any.join(" | ")
            );
        }
        Self { groups, rows, lines }
    }

    /// With `guarded` loads, steps may lie beyond the last one; they bring zeros.
    fn load(&self, v: &TileVariant, steps: u32, guarded: bool, step: &mut String) {
        let load_a = loader("a", v.conjugated[0]).0;
        let per = steps_of_load(v);
        for g in 0..self.groups {
            if v.a.1 == Lanes::Depth {
                let load = format!("load4_a(a_at{g} + i)");
                let value = if v.a_layout == ALayoutKind::Dense {
                    load
                } else {
                    format!("select(Vec4(), {load}, line{g}.inside)")
                };
                let _ = writeln!(step, "            let a{g} = {value};");
                continue;
            }
            let (load, zero) = if v.a.1 == Lanes::Edge {
                ("load4_a", "Vec4()")
            } else {
                (&load_a[..], "Scalar()")
            };
            for k in (0..steps).step_by(per as usize) {
                let own = if per > 1 { " + lane_step" } else { "" };
                let _ = writeln!(step, "            let i{g}_{k} = i + {k}u{own};");
                let mut conditions = Vec::new();
                if v.a_layout != ALayoutKind::Dense {
                    conditions.push(format!("line{g}.inside"));
                }
                if v.a_layout == ALayoutKind::Window {
                    conditions.push(format!("a_inside(row{g}, i{g}_{k})"));
                }
                if guarded {
                    conditions.push(format!("i{g}_{k} < i_end"));
                }
                let at = format!("a_at{g} + i{g}_{k} * p.a_step");
                let _ = match (&conditions[..], v.a_layout) {
                    ([], _) => writeln!(step, "            let a{g}_{k} = {load}({at});"),
                    ([inside], ALayoutKind::Patch | ALayoutKind::Spread) => {
                        writeln!(
                            step,
                            "            let a{g}_{k} = select({zero}, {load}({at}), {inside});"
                        )
                    }
                    _ => writeln!(
                        step,
                        "            let in{g}_{k} = {};\n            let a{g}_{k} = \
                         select({zero}, {load}(select(0u, {at}, in{g}_{k})), in{g}_{k});",
                        conditions.join(" && ")
                    ),
                };
            }
        }
    }
}

/// Whether vec4s of `b` are loaded by their numbers: four columns of a step, in one binding. A step
/// then takes an addition, not a product and a division.
fn is_in_quads(v: &TileVariant) -> bool {
    let is_plain = v.weights.is_none() && v.packing.is_none();
    v.b.1 == Lanes::Edge && v.parts == 1 && v.terms == 1 && is_plain
}

/// The vec4s of `b`, and in `clamped` the columns that they are loaded from.
fn load_b(v: &TileVariant, steps: u32, guarded: bool, step: &mut String, clamped: &mut String) {
    let load_b = loader("b", v.conjugated[1]).0;
    let within = |k: u32, load: String| {
        if guarded && k > 0 { format!("select(Vec4(), {load}, i + {k}u < i_end)") } else { load }
    };
    // Weights are found by their step and column, other elements by their index.
    let is_quantized = v.weights.is_some();
    let apart = if is_quantized { "" } else { " * p.b_column" };
    let at = |k: u32, column: String| match is_quantized {
        true => format!("i + {k}u, {column}"),
        false => format!("b_at + (i + {k}u) * p.b_step + {column}"),
    };
    let in_quads = is_in_quads(v);
    if in_quads {
        let _ = writeln!(step, "            let b_line0 = (b_at + i * p.b_step) >> 2u;");
        for k in 1..steps {
            let _ =
                writeln!(step, "            let b_line{k} = b_line{} + (p.b_step >> 2u);", k - 1);
        }
    }
    for q in 0..v.tile.vec4s {
        if in_quads {
            let _ =
                writeln!(clamped, "    let b_column{q} = p.off_b + (min(n{q}, p.n - 4u) >> 2u);");
        } else if v.b.1 == Lanes::Edge {
            let _ = writeln!(clamped, "    let b_column{q} = min(n{q}, p.n - 4u);");
        } else {
            for j in 0..4 {
                let _ = writeln!(
                    clamped,
                    "    let b_column{q}_{j} = min(n{q} + {j}u, p.n - 1u){apart};"
                );
            }
        }
        match v.b.1 {
            Lanes::Depth => {
                for j in 0..4 {
                    let at = match is_quantized {
                        true => at(0, format!("b_column{q}_{j}")),
                        false => format!("b_at + b_column{q}_{j} + i"),
                    };
                    let _ = writeln!(step, "            let t{q}_{j} = load4_b({at});");
                }
                for k in 0..4 {
                    let parts: Vec<_> = (0..4).map(|j| format!("t{q}_{j}.{}", lane(k))).collect();
                    let _ =
                        writeln!(step, "            let b{q}_{k} = four({});", parts.join(", "));
                }
            }
            Lanes::Edge => {
                for k in 0..steps {
                    let load = match in_quads {
                        true => format!("quad_b(b_line{k} + b_column{q})"),
                        false => format!("load4_b({})", at(k, format!("b_column{q}"))),
                    };
                    let load = within(k, load);
                    let _ = writeln!(step, "            let b{q}_{k} = {load};");
                }
            }
            Lanes::One => {
                for k in 0..steps {
                    let parts: Vec<_> = (0..4)
                        .map(|j| format!("{load_b}({})", at(k, format!("b_column{q}_{j}"))))
                        .collect();
                    let load = within(
                        k,
                        format!(
                            "four(\n                {},\n            )",
                            parts.join(",\n                ")
                        ),
                    );
                    let _ = writeln!(step, "            let b{q}_{k} = {load};");
                }
            }
        }
    }
}
