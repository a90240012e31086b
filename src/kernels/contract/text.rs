//! The shader of a [`Variant`]: a WGSL file for its tile's memory, one for its rows, and the unrolled register tile in between.

use std::fmt::Write;

use super::element::{declarations, element, lane, loader, multiply_add, words};
use super::geometry::Geometry;
use super::tile::{Memory, Tile};
use super::{Lanes, LinesKind, RowsKind, StoreKind, Variant};
use crate::dtype::DType;
use crate::shader::Shader;

const DENSE: &str = include_str!("../../../shaders/contract/rows_dense.wgsl");
const PATCH: &str = include_str!("../../../shaders/contract/rows_patch.wgsl");
const SPREAD: &str = include_str!("../../../shaders/contract/rows_spread.wgsl");
const WINDOW: &str = include_str!("../../../shaders/contract/rows_window.wgsl");
const REGISTERS: &str = include_str!("../../../shaders/contract/registers.wgsl");
const WORKGROUP: &str = include_str!("../../../shaders/contract/workgroup.wgsl");
/// What happens to four sums on their way to the result without an epilogue: nothing.
const FINISH: &str = "alias Stored = Quad;\n\nfn finish(v: Quad, line: u32, n: u32) -> Stored {\n    return v;\n}\n";

pub(super) fn shader(v: &Variant) -> Shader {
    let Tile { rows, quads, lanes_m, lanes_n, memory } = *v.tile;
    let mut shader = Shader::new(format!(
        "contract {:?} {rows}x{quads} in {lanes_m}x{lanes_n} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        memory, v.rows, v.lines, v.a, v.b, v.c, v.conjugated, v.epilogue
    ))
    .workgroup([v.tile.threads(), 1, 1])
    .body(&declarations(v.a.0));
    for (x, source, conjugated) in [("a", v.a, v.conjugated[0]), ("b", v.b, v.conjugated[1])] {
        shader = operand(shader, x, source).body(&loader(x, conjugated).1);
    }
    shader = match v.c.1 {
        StoreKind::Quads => quads_of(shader, "c", v.c.0),
        _ => shader.bind("c", v.c.0),
    };
    shader = shader
        .u32s(&["m", "n", "total", "splits", "chunk", "depth", "inner", "a_step", "b_step", "b_column", "c_split"]);
    shader = match v.rows {
        RowsKind::Dense => shader.u32s(&["a_row"]),
        kind => Geometry::declare(shader, v.spatial, kind == RowsKind::Window),
    };
    shader = match v.lines {
        LinesKind::Dense => shader.body("fn b_line(o: u32) -> u32 {\n    return o * p.inner * p.b_step;\n}\n"),
        LinesKind::Strided => {
            shader.u32s(&["b_outer"]).body("fn b_line(o: u32) -> u32 {\n    return o * p.b_outer;\n}\n")
        }
        LinesKind::Planar => shader
            .u32s(&["b_lines", "b_image", "b_outer"])
            .body("fn b_line(o: u32) -> u32 {\n    return o / p.b_lines * p.b_image + o % p.b_lines * p.b_outer;\n}\n"),
    };
    shader = match v.c.1 {
        StoreKind::Planes => shader
            .u32s(&["c_plane", "c_image"])
            .body("fn c_line(m: u32) -> u32 {\n    return m / p.c_plane * p.c_image + m % p.c_plane;\n}\n"),
        _ => shader.u32s(&["c_row"]).body("fn c_line(m: u32) -> u32 {\n    return m * p.c_row;\n}\n"),
    };
    shader = batch(shader, v);
    shader = shader.body(&store_text(v));
    shader = match &v.epilogue {
        Some(form) => form.declare(shader, quads_of).body(&form.finish(column(v.c.1), v.batch.is_none())),
        None => shader.body(FINISH),
    };
    shader = shader.body(match v.rows {
        RowsKind::Dense => DENSE,
        RowsKind::Patch => PATCH,
        RowsKind::Spread => SPREAD,
        RowsKind::Window => WINDOW,
    });
    shader = spatial_defines(shader, v.spatial);
    match memory {
        Memory::Registers => registers(shader, v),
        Memory::Workgroup(depth) => workgroup(shader, v, depth / words(v.a.0) as u32),
    }
}

/// Binds an operand with `load_NAME` or, for lanes of four, `load4_NAME(i)` at an element index that is a multiple of 4.
fn operand(shader: Shader, name: &'static str, (dtype, lanes): (DType, Lanes)) -> Shader {
    if lanes == Lanes::One { shader.bind(name, dtype) } else { quads_of(shader, name, dtype) }
}

/// Binds four elements at a time.
fn quads_of(shader: Shader, x: &'static str, dtype: DType) -> Shader {
    let value = if dtype == DType::I32 { "vec4<i32>" } else { "vec4<f32>" };
    let (ty, load, store, library) = match dtype {
        DType::F16 => (
            "vec2<u32>",
            "vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y))",
            "vec2<u32>(f16_bits(v.x) | (f16_bits(v.y) << 16u), f16_bits(v.z) | (f16_bits(v.w) << 16u))",
            Some("f16_bits"),
        ),
        DType::BF16 => (
            "vec2<u32>",
            "bitcast<vec4<f32>>(vec4<u32>(bits.x << 16u, bits.x & 0xffff0000u, bits.y << 16u, bits.y & 0xffff0000u))",
            "vec2<u32>(bf16_bits(v.x) | (bf16_bits(v.y) << 16u), bf16_bits(v.z) | (bf16_bits(v.w) << 16u))",
            Some("bf16_bits"),
        ),
        DType::F32 => ("vec4<f32>", "bits", "v", None),
        DType::I32 => ("vec4<i32>", "bits", "v", None),
        _ => panic!("no contraction of {dtype}"),
    };
    let shader = match library {
        Some(name) => shader.library(name),
        None => shader,
    };
    let access = if x == "c" {
        format!("fn store4_c(i: u32, v: {value}) {{\n    c[p.off_c + (i >> 2u)] = {store};\n}}\n")
    } else {
        format!(
            "fn load4_{x}(i: u32) -> {value} {{\n    let bits = {x}[p.off_{x} + (i >> 2u)];\n    return {load};\n}}\n"
        )
    };
    shader.bind_raw(x, ty, 4 * dtype.size() as u32).body(&access)
}

/// Declares `a_at`, `b_at` and `c_at`: where the operands of matrix z start.
fn batch(mut shader: Shader, v: &Variant) -> Shader {
    let Some(class) = &v.batch else {
        return shader.body(
            "fn a_start(z: u32) -> u32 {\n    return 0u;\n}\n\nfn b_start(z: u32) -> u32 {\n    return 0u;\n}\n\n\
             fn c_start(z: u32) -> u32 {\n    return 0u;\n}\n",
        );
    };
    shader = shader.u32s(&["a_matrix", "b_matrix", "c_matrix"]);
    class.declare(shader, &["a", "b", "c"]).body(
        "fn a_start(z: u32) -> u32 {\n    return index_a(z) * p.a_matrix;\n}\n\n\
         fn b_start(z: u32) -> u32 {\n    return index_b(z) * p.b_matrix;\n}\n\n\
         fn c_start(z: u32) -> u32 {\n    return index_c(z) * p.c_matrix;\n}\n",
    )
}

/// By what a column's number is multiplied.
fn column(kind: StoreKind) -> &'static str {
    if kind == StoreKind::Planes { " * p.c_plane" } else { "" }
}

/// `fn store_quad(line, n, v)`: four columns from n on of the row that starts at `line`.
fn store_text(v: &Variant) -> String {
    match v.c.1 {
        StoreKind::Quads => "fn store_quad(line: u32, n: u32, v: Stored) {\n    if n < p.n {\n        \
                             store4_c(line + n, v);\n    }\n}\n"
            .to_owned(),
        kind => {
            let column = column(kind);
            let mut text = "fn store_quad(line: u32, n: u32, v: Stored) {\n".to_owned();
            for k in 0..4 {
                let _ = writeln!(
                    text,
                    "    if n + {k}u < p.n {{\n        store_c(line + (n + {k}u){column}, {});\n    }}",
                    element(v.c.0, "v", k)
                );
            }
            text + "}\n"
        }
    }
}

/// What differs between two and three spatial dimensions.
fn spatial_defines(shader: Shader, spatial: usize) -> Shader {
    let three = spatial == 3;
    let pick = |text: &str| if three { text.to_owned() } else { String::new() };
    shader
        .define("IMAGE_OF", if three { "rest / p.out1 / p.out0" } else { "rest / p.out1" })
        .define("OUT0", pick("rest / p.out1 % p.out0"))
        .define("AXIS1", if three { "% p.kernel1" } else { "" })
        .define("IF_3D", if three { "" } else { "// " })
}

/// One row's element at inner step `i + k`.
fn a_element(v: &Variant, row: u32, k: u32) -> String {
    match v.a.1 {
        Lanes::Depth => format!("a{row}.{}", lane(k)),
        Lanes::Edge => format!("a{}_{k}.{}", row / 4, lane(row)),
        Lanes::One => format!("a{row}_{k}"),
    }
}

/// The products of `steps` inner steps.
fn products(v: &Variant, steps: u32, element: impl Fn(u32, u32) -> String, indent: &str) -> String {
    let mut text = String::new();
    for k in 0..steps {
        for row in 0..v.tile.rows {
            for q in 0..v.tile.quads {
                let a = element(row, k);
                let _ =
                    writeln!(text, "{indent}{}", multiply_add(v.a.0, &a, &format!("b{q}_{k}"), &format!("c{row}_{q}")));
            }
        }
    }
    text
}

/// `var c{row}_{quad} = Quad();`
fn sums(tile: &Tile) -> String {
    let mut text = String::new();
    for row in 0..tile.rows {
        for q in 0..tile.quads {
            let _ = writeln!(text, "    var c{row}_{q} = Quad();");
        }
    }
    text
}

/// Stores of the register tile with its first row at `m0` and quad q at column `n{q}`.
fn stores(tile: &Tile) -> String {
    let mut text = String::new();
    for row in 0..tile.rows {
        let _ = writeln!(text, "    if m0 + {row}u < p.m {{\n        let line = c_first + c_line(m0 + {row}u);");
        for q in 0..tile.quads {
            let _ = writeln!(text, "        store_quad(line, n{q}, finish(c{row}_{q}, line, n{q}));");
        }
        text.push_str("    }\n");
    }
    text
}

/// `let n{q}`: the column of each quad. Lanes lie next to each other, so that a subgroup touches one range.
fn columns(tile: &Tile) -> String {
    let mut text = String::new();
    for q in 0..tile.quads {
        let _ = writeln!(text, "    let n{q} = n_first + (lane_n + {}u) * 4u;", q * tile.lanes_n);
    }
    text
}

fn tile_defines(shader: Shader, tile: &Tile) -> Shader {
    shader
        .define("TILE_M", format!("{}u", tile.m()))
        .define("TILE_N", format!("{}u", tile.n()))
        .define("LANES_N", format!("{}u", tile.lanes_n))
        .define("ROWS", format!("{}u", tile.rows))
        .define("COLUMNS", columns(tile))
        .define("SUMS", sums(tile))
        .define("STORES", stores(tile))
}

fn registers(shader: Shader, v: &Variant) -> Shader {
    let tile = v.tile;
    let (load_a, load_b) = (loader("a", v.conjugated[0]).0, loader("b", v.conjugated[1]).0);
    let checked = v.rows != RowsKind::Dense;
    let steps = if v.a.1 == Lanes::Depth || v.b.1 == Lanes::Depth { 4 } else { 1 };
    let per_group = if v.a.1 == Lanes::Edge { 4 } else { 1 };
    let groups = tile.rows.div_ceil(per_group);
    let mut rows = String::new();
    let mut lines = String::new();
    let mut any = Vec::new();
    for g in 0..groups {
        let first = g * per_group;
        let _ = writeln!(rows, "    let row{g} = a_row(min(m0 + {first}u, p.m - {per_group}u));");
        let _ = writeln!(lines, "        let line{g} = a_line(row{g}, o);");
        let _ = writeln!(lines, "        let a_at{g} = a_first + line{g}.at;");
        any.push(format!("line{g}.inside"));
    }
    if checked {
        let _ = writeln!(lines, "        if !({}) {{\n            continue;\n        }}", any.join(" || "));
    }
    let mut step = String::new();
    for g in 0..groups {
        if v.a.1 == Lanes::Depth {
            let load = format!("load4_a(a_at{g} + i)");
            let value = if checked { format!("select(Quad(), {load}, line{g}.inside)") } else { load };
            let _ = writeln!(step, "            let a{g} = {value};");
            continue;
        }
        let (load, zero) = if v.a.1 == Lanes::Edge { ("load4_a", "Quad()") } else { (&load_a[..], "Scalar()") };
        for k in 0..steps {
            let at = format!("a_at{g} + (i + {k}u) * p.a_step");
            match v.rows {
                RowsKind::Dense => {
                    let _ = writeln!(step, "            let a{g}_{k} = {load}({at});");
                }
                RowsKind::Patch | RowsKind::Spread => {
                    let _ = writeln!(step, "            let a{g}_{k} = select({zero}, {load}({at}), line{g}.inside);");
                }
                RowsKind::Window => {
                    let _ = writeln!(
                        step,
                        "            let in{g}_{k} = line{g}.inside && a_inside(row{g}, i + {k}u);\n            \
                         let a{g}_{k} = select({zero}, {load}(select(0u, {at}, in{g}_{k})), in{g}_{k});"
                    );
                }
            }
        }
    }
    let mut clamped = String::new();
    for q in 0..tile.quads {
        if v.b.1 == Lanes::Edge {
            let _ = writeln!(clamped, "    let b_column{q} = min(n{q}, p.n - 4u);");
        } else {
            for j in 0..4 {
                let _ = writeln!(clamped, "    let b_column{q}_{j} = min(n{q} + {j}u, p.n - 1u) * p.b_column;");
            }
        }
        match v.b.1 {
            Lanes::Depth => {
                for j in 0..4 {
                    let _ = writeln!(step, "            let t{q}_{j} = load4_b(b_at + b_column{q}_{j} + i);");
                }
                for k in 0..4 {
                    let parts: Vec<_> = (0..4).map(|j| format!("t{q}_{j}.{}", lane(k))).collect();
                    let _ = writeln!(step, "            let b{q}_{k} = four({});", parts.join(", "));
                }
            }
            Lanes::Edge => {
                for k in 0..steps {
                    let _ = writeln!(
                        step,
                        "            let b{q}_{k} = load4_b(b_at + (i + {k}u) * p.b_step + b_column{q});"
                    );
                }
            }
            Lanes::One => {
                for k in 0..steps {
                    let parts: Vec<_> =
                        (0..4).map(|j| format!("{load_b}(b_at + (i + {k}u) * p.b_step + b_column{q}_{j})")).collect();
                    let _ = writeln!(
                        step,
                        "            let b{q}_{k} = four(\n                {},\n            );",
                        parts.join(",\n                ")
                    );
                }
            }
        }
    }
    step += &products(v, steps, |row, k| a_element(v, row, k), "            ");
    let lane_m = if tile.lanes_m == 1 { "0u".to_owned() } else { format!("local_index / {}u", tile.lanes_n) };
    tile_defines(shader, tile)
        .define("LANE_M", lane_m)
        .define("A_ROWS", rows)
        .define("B_COLUMNS", clamped)
        .define("LINES", lines)
        .define("STEPS", format!("{steps}u"))
        .define("STEP", step)
        .body(REGISTERS)
}

fn workgroup(shader: Shader, v: &Variant, depth: u32) -> Shader {
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
