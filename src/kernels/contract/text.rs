//! The shader of a [`TileVariant`]: a WGSL file for its tile's memory, one for its rows, and the
//! unrolled register tile in between.

use std::fmt::Write;

use super::bytes;
use super::element::element;
use super::epilogue::EpilogueVariant;
use super::tile::Tile;
use super::{Lanes, StoreKind, TileVariant, column_sums};
use crate::dtype::DType;
use crate::shader::{Shader, codec, vec4};

pub(super) const PLACE: &str = include_str!("../../../shaders/contract/place.wgsl");
pub(super) const DENSE: &str = include_str!("../../../shaders/contract/rows_dense.wgsl");
pub(super) const TERMS: &str = include_str!("../../../shaders/contract/rows_terms.wgsl");
pub(super) const PATCH: &str = include_str!("../../../shaders/contract/rows_patch.wgsl");
pub(super) const SPREAD: &str = include_str!("../../../shaders/contract/rows_spread.wgsl");
pub(super) const WINDOW: &str = include_str!("../../../shaders/contract/rows_window.wgsl");
/// The finish of four sums without an epilogue, which leaves them as they are.
pub(crate) const FINISH: &str =
    "alias Stored = Vec4;\n\nfn finish(v: Vec4, line: u32, n: u32) -> Stored {\n    return v;\n}\n";

/// Binds an operand with `load_NAME` or, for lanes of four, `load4_NAME(i)` at an element index
/// that is a multiple of 4.
pub(super) fn operand(
    shader: Shader,
    name: &'static str,
    (dtype, lanes): (DType, Lanes),
) -> Shader {
    if lanes == Lanes::One { shader.bind(name, dtype) } else { vec4s_of(shader, name, dtype) }
}

/// Binds a tensor of which four elements are accessed at a time: with `store4_NAME` for results,
/// whose names begin with c, else with `load4_NAME`.
pub(crate) fn vec4s_of(shader: Shader, x: &'static str, dtype: DType) -> Shader {
    let (value, word) = (dtype.value(), format!("{x}[p.off_{x} + (i >> 2u)]"));
    let shader = shader.bind_raw(x, codec::storage(dtype), vec4::unit(dtype));
    if x.starts_with('c') {
        let (before, words) = codec::pack(dtype);
        return shader.body(&format!(
            "fn store4_{x}(i: u32, v: vec4<{value}>) {{\n{before}    {word} = {words};\n}}\n"
        ));
    }
    let values = codec::unpack(dtype);
    shader.body(&format!(
        "fn load4_{x}(i: u32) -> vec4<{value}> {{\n    let w = {word};\n    return {values};\n}}\n"
    ))
}

/// The same for an operand of f16 that is not converted before it is used.
pub(super) fn halves_of(shader: Shader, x: &'static str) -> Shader {
    shader.bind_raw(x, "vec4<f16>", vec4::unit(DType::F16)).body(&format!(
        "fn load4_{x}(i: u32) -> vec4<f32> {{\n    return vec4<f32>({x}[p.off_{x} + (i >> \
         2u)]);\n}}\n"
    ))
}

/// Declares `a_at`, `b_at` and `c_at`: where the operands of matrix z start.
pub(super) fn batch(mut shader: Shader, v: &TileVariant) -> Shader {
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

/// The factor of a column's number in an index.
pub(super) fn column(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Planes => " * p.c_plane",
        StoreKind::Columns => " * p.c_column",
        _ => "",
    }
}

/// The statements that store `v`, a `Stored`, from element `at` of the result on.
pub(super) fn store4(
    epilogue: Option<&EpilogueVariant>,
    at: &str,
    v: &str,
    indent: &str,
) -> String {
    match epilogue.and_then(EpilogueVariant::second) {
        Some(second) => format!(
            "{indent}store4_c({at}, {v}.value);\n{indent}store4_{second}({at}, {v}.second);\n"
        ),
        None => format!("{indent}store4_c({at}, {v});\n"),
    }
}

/// `fn store_quad(line, n, v)`: four columns from n on of the row that starts at `line`.
pub(super) fn store_text(v: &TileVariant) -> String {
    match v.c.1 {
        StoreKind::Vec4s => {
            let store = store4(v.epilogue.as_ref(), "line + n", "v", "        ");
            format!(
                "fn store_quad(line: u32, n: u32, v: Stored) {{\n    if n < p.n {{\n{store}    \
                 }}\n}}\n"
            )
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

/// Defines the text that differs between two and three spatial dimensions.
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
    v: &TileVariant,
    steps: u32,
    element: impl Fn(u32, u32) -> String,
    indent: &str,
) -> String {
    let mut text = String::new();
    for k in 0..steps {
        for row in 0..v.tile.rows {
            for q in 0..v.tile.vec4s {
                let a = element(row, k);
                let _ = writeln!(
                    text,
                    "{indent}{}",
                    bytes::multiply_add(v, &a, &format!("b{q}_{k}"), &format!("c{row}_{q}"))
                );
            }
        }
    }
    text + &column_sums::steps(v, steps, indent)
}

/// `var c{row}_{quad} = Vec4();`
fn sums(v: &TileVariant) -> String {
    let tile = v.tile;
    let mut text = column_sums::declare(v);
    for row in 0..tile.rows {
        for q in 0..tile.vec4s {
            let _ = writeln!(text, "    var c{row}_{q} = Vec4();");
        }
    }
    text
}

/// Stores of the register tile with its first row at `m0` and quad q at column `n{q}`.
pub(super) fn stores(v: &TileVariant) -> String {
    let tile = v.tile;
    let mut text = String::new();
    for row in 0..tile.rows {
        let _ = writeln!(
            text,
            "    if m0 + {row}u < p.m {{\n        let line = place.c + c_line(m0 + {row}u);"
        );
        for q in 0..tile.vec4s {
            let _ =
                writeln!(text, "        store_quad(line, n{q}, finish(c{row}_{q}, line, n{q}));");
        }
        text.push_str("    }\n");
    }
    text + &column_sums::stores(v)
}

/// `let n{q}`: the column of each quad. Lanes lie next to each other, so that a subgroup touches
/// one range.
fn columns(tile: &Tile) -> String {
    let mut text = String::new();
    for q in 0..tile.vec4s {
        let _ = writeln!(text, "    let n{q} = place.n + (lane_n + {}u) * 4u;", q * tile.lanes_n);
    }
    text
}

pub(super) fn tile_defines(shader: Shader, v: &TileVariant) -> Shader {
    let tile = v.tile;
    shader
        .define("TILE_M", format!("{}u", tile.m()))
        .define("TILE_N", format!("{}u", tile.n()))
        .define("LANES_N", format!("{}u", tile.lanes_n))
        .define("ROWS", format!("{}u", tile.rows))
        .define("COLUMNS", columns(tile))
        .define("SUMS", sums(v))
}
