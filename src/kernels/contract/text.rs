//! The shader of a [`Variant`]: a WGSL file for its tile's memory, one for its rows, and the
//! unrolled register tile in between.

use std::fmt::Write;

use super::element::{declarations, element, loader, multiply_add, words};
use super::geometry::Geometry;
use super::tile::{Memory, Tile};
use super::{Lanes, LinesKind, RowsKind, StoreKind, Variant};
use crate::dtype::DType;
use crate::shader::Shader;

const PLACE: &str = include_str!("../../../shaders/contract/place.wgsl");
const DENSE: &str = include_str!("../../../shaders/contract/rows_dense.wgsl");
const PATCH: &str = include_str!("../../../shaders/contract/rows_patch.wgsl");
const SPREAD: &str = include_str!("../../../shaders/contract/rows_spread.wgsl");
pub(super) const WINDOW: &str = include_str!("../../../shaders/contract/rows_window.wgsl");
/// What happens to four sums on their way to the result without an epilogue: nothing.
pub(crate) const FINISH: &str =
    "alias Stored = Quad;\n\nfn finish(v: Quad, line: u32, n: u32) -> Stored {\n    return v;\n}\n";

pub(super) fn shader(v: &Variant) -> Shader {
    let Tile { rows, quads, lanes_m, lanes_n, memory } = *v.tile;
    let mut shader = Shader::new(format!(
        "contract {:?} {rows}x{quads} in {lanes_m}x{lanes_n} {:?} {:?} {:?} {:?} {:?} {:?} {:?} \
         {:?}",
        memory, v.cooperative, v.rows, v.lines, v.a, v.b, v.c, v.conjugated, v.epilogue
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
    shader = shader.u32s(&[
        "m", "n", "total", "splits", "chunk", "depth", "inner", "a_step", "b_step", "b_column",
        "c_split",
    ]);
    shader = match v.rows {
        RowsKind::Dense => shader.u32s(&["a_row"]),
        kind => Geometry::declare(shader, v.spatial, kind == RowsKind::Window),
    };
    shader = match v.lines {
        LinesKind::Dense => {
            shader.body("fn b_line(o: u32) -> u32 {\n    return o * p.inner * p.b_step;\n}\n")
        }
        LinesKind::Strided => shader
            .u32s(&["b_outer"])
            .body("fn b_line(o: u32) -> u32 {\n    return o * p.b_outer;\n}\n"),
        LinesKind::Planar => shader.u32s(&["b_lines", "b_image", "b_outer"]).body(
            "fn b_line(o: u32) -> u32 {\n    return o / p.b_lines * p.b_image + o % p.b_lines * \
             p.b_outer;\n}\n",
        ),
    };
    shader = match v.c.1 {
        _ if v.places => {
            shader.u32s(&["c_extent0", "c_extent1", "c_image", "c_row", "c_pixel"]).body(
                "fn c_line(m: u32) -> u32 {\n    let line = m / p.c_extent1;\n    return line / \
                 p.c_extent0 * p.c_image + line % p.c_extent0 * p.c_row + m % p.c_extent1 * \
                 p.c_pixel;\n}\n",
            )
        }
        StoreKind::Planes => shader.u32s(&["c_plane", "c_image"]).body(
            "fn c_line(m: u32) -> u32 {\n    return m / p.c_plane * p.c_image + m % \
             p.c_plane;\n}\n",
        ),
        StoreKind::Columns => {
            shader.u32s(&["c_column"]).body("fn c_line(m: u32) -> u32 {\n    return m;\n}\n")
        }
        _ => {
            shader.u32s(&["c_row"]).body("fn c_line(m: u32) -> u32 {\n    return m * p.c_row;\n}\n")
        }
    };
    shader = batch(shader, v);
    shader = shader.body(&store_text(v));
    shader = match &v.epilogue {
        Some(form) => {
            let channels = v.batch.is_none() && v.c.1 != StoreKind::Columns;
            form.declare(shader, quads_of).body(&form.finish(column(v.c.1), channels))
        }
        None => shader.body(FINISH),
    };
    shader = shader.body(match v.rows {
        RowsKind::Dense => DENSE,
        RowsKind::Patch => PATCH,
        RowsKind::Spread => SPREAD,
        RowsKind::Window => WINDOW,
    });
    shader = spatial_defines(shader, v.spatial).body(PLACE);
    match memory {
        Memory::Registers | Memory::Subgroup | Memory::Reduced(_) => {
            super::registers::program(shader, v)
        }
        Memory::Workgroup(depth) | Memory::Double(depth) => {
            super::workgroup::program(shader, v, depth / words(v.a.0) as u32)
        }
        Memory::Cooperative(_) => super::cooperative::program(
            shader,
            v,
            v.cooperative.expect("a tile of cooperative matrices comes with them"),
        ),
    }
}

/// Binds an operand with `load_NAME` or, for lanes of four, `load4_NAME(i)` at an element index
/// that is a multiple of 4.
fn operand(shader: Shader, name: &'static str, (dtype, lanes): (DType, Lanes)) -> Shader {
    if lanes == Lanes::One { shader.bind(name, dtype) } else { quads_of(shader, name, dtype) }
}

/// Binds four elements at a time, with `store4_c` for the result c, else with `load4_NAME`.
pub(crate) fn quads_of(shader: Shader, x: &'static str, dtype: DType) -> Shader {
    let value = if dtype == DType::I32 { "vec4<i32>" } else { "vec4<f32>" };
    let (ty, load, store, library) = match dtype {
        DType::F16 => (
            "vec2<u32>",
            "vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y))",
            "vec2<u32>(f16_bits(v.x) | (f16_bits(v.y) << 16u), f16_bits(v.z) | (f16_bits(v.w) << \
             16u))",
            Some("f16_bits"),
        ),
        DType::BF16 => (
            "vec2<u32>",
            "bitcast<vec4<f32>>(vec4<u32>(bits.x << 16u, bits.x & 0xffff0000u, bits.y << 16u, \
             bits.y & 0xffff0000u))",
            "vec2<u32>(bf16_bits(v.x) | (bf16_bits(v.y) << 16u), bf16_bits(v.z) | (bf16_bits(v.w) \
             << 16u))",
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
            "fn load4_{x}(i: u32) -> {value} {{\n    let bits = {x}[p.off_{x} + (i >> 2u)];\n    \
             return {load};\n}}\n"
        )
    };
    shader.bind_raw(x, ty, 4 * dtype.size() as u32).body(&access)
}

/// Declares `a_at`, `b_at` and `c_at`: where the operands of matrix z start.
fn batch(mut shader: Shader, v: &Variant) -> Shader {
    let Some(class) = &v.batch else {
        return shader.body(
            "fn a_start(z: u32) -> u32 {\n    return 0u;\n}\n\nfn b_start(z: u32) -> u32 {\n    \
             return 0u;\n}\n\nfn c_start(z: u32) -> u32 {\n    return 0u;\n}\n",
        );
    };
    shader = shader.u32s(&["a_matrix", "b_matrix", "c_matrix"]);
    class.declare(shader, &["a", "b", "c"]).body(
        "fn a_start(z: u32) -> u32 {\n    return index_a(z) * p.a_matrix;\n}\n\nfn b_start(z: \
         u32) -> u32 {\n    return index_b(z) * p.b_matrix;\n}\n\nfn c_start(z: u32) -> u32 {\n    \
         return index_c(z) * p.c_matrix;\n}\n",
    )
}

/// By what a column's number is multiplied.
fn column(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Planes => " * p.c_plane",
        StoreKind::Columns => " * p.c_column",
        _ => "",
    }
}

/// `fn store_quad(line, n, v)`: four columns from n on of the row that starts at `line`.
fn store_text(v: &Variant) -> String {
    match v.c.1 {
        StoreKind::Quads => {
            "fn store_quad(line: u32, n: u32, v: Stored) {\n    if n < p.n {\n        \
             store4_c(line + n, v);\n    }\n}\n"
                .to_owned()
        }
        kind => {
            let column = column(kind);
            let mut text = "fn store_quad(line: u32, n: u32, v: Stored) {\n".to_owned();
            for k in 0..4 {
                let _ = writeln!(
                    text,
                    "    if n + {k}u < p.n {{\n        store_c(line + (n + {k}u){column}, \
                         {});\n    }}",
                    element(v.c.0, "v", k)
                );
            }
            text + "}\n"
        }
    }
}

/// What differs between two and three spatial dimensions.
pub(super) fn spatial_defines(shader: Shader, spatial: usize) -> Shader {
    let three = spatial == 3;
    let pick = |text: &str| if three { text.to_owned() } else { String::new() };
    shader
        .define("IMAGE_OF", if three { "rest / p.out1 / p.out0" } else { "rest / p.out1" })
        .define("OUT0", pick("rest / p.out1 % p.out0"))
        .define("AXIS1", if three { "% p.kernel1" } else { "" })
        .define("IF_3D", if three { "" } else { "// " })
}

/// The products of `steps` inner steps.
pub(super) fn products(
    v: &Variant,
    steps: u32,
    element: impl Fn(u32, u32) -> String,
    indent: &str,
) -> String {
    let mut text = String::new();
    for k in 0..steps {
        for row in 0..v.tile.rows {
            for q in 0..v.tile.quads {
                let a = element(row, k);
                let _ = writeln!(
                    text,
                    "{indent}{}",
                    multiply_add(v.a.0, &a, &format!("b{q}_{k}"), &format!("c{row}_{q}"))
                );
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
pub(super) fn stores(tile: &Tile) -> String {
    let mut text = String::new();
    for row in 0..tile.rows {
        let _ = writeln!(
            text,
            "    if m0 + {row}u < p.m {{\n        let line = place.c + c_line(m0 + {row}u);"
        );
        for q in 0..tile.quads {
            let _ =
                writeln!(text, "        store_quad(line, n{q}, finish(c{row}_{q}, line, n{q}));");
        }
        text.push_str("    }\n");
    }
    text
}

/// `let n{q}`: the column of each quad. Lanes lie next to each other, so that a subgroup touches
/// one range.
fn columns(tile: &Tile) -> String {
    let mut text = String::new();
    for q in 0..tile.quads {
        let _ = writeln!(text, "    let n{q} = place.n + (lane_n + {}u) * 4u;", q * tile.lanes_n);
    }
    text
}

pub(super) fn tile_defines(shader: Shader, tile: &Tile) -> Shader {
    shader
        .define("TILE_M", format!("{}u", tile.m()))
        .define("TILE_N", format!("{}u", tile.n()))
        .define("LANES_N", format!("{}u", tile.lanes_n))
        .define("ROWS", format!("{}u", tile.rows))
        .define("COLUMNS", columns(tile))
        .define("SUMS", sums(tile))
}
