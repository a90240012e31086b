//! The shader of a variant, put together from the texts of its operands, its tile and its epilogue.

use super::bytes;
use super::column_sums;
use super::contraction::Packing;
use super::element::{declarations, loader, words};
use super::geometry::Geometry;
use super::text::*;
use super::tile::{Tile, TileKind};
use super::tile_variant::{SumsKind, TileWalk};
use super::walk;
use super::{
    ALayoutKind, BLayoutKind, Lanes, StoreKind, TileVariant, cooperative, parts, registers, tables,
    workgroup,
};
use crate::shader::Shader;

/// Binds a result of the variant's type.
fn result(shader: Shader, name: &'static str, v: &TileVariant) -> Shader {
    match v.c.1 {
        StoreKind::Vec4s => vec4s_of(shader, name, v.c.0),
        _ => shader.bind(name, v.c.0),
    }
}

/// Binds the tensor of the sums, or the tensors of all parts; the stores use that of their own
/// part.
fn bind_sums(shader: Shader, v: &TileVariant) -> Shader {
    let (name, dtype) = (column_sums::NAME, v.a.0);
    let bind = |shader: Shader, name: &'static str| match v.sums {
        SumsKind::None | SumsKind::Row => shader,
        SumsKind::Vec4s => vec4s_of(shader, name, dtype),
        SumsKind::Elements => shader.bind(name, dtype),
    };
    if v.parts == 1 {
        return bind(shader, name);
    }
    let names = &parts::SUMS[..v.parts];
    let shader = names.iter().fold(shader, |shader, name| bind(shader, name));
    let value = dtype.value();
    match v.sums {
        SumsKind::None | SumsKind::Row => shader,
        SumsKind::Vec4s => {
            shader.body(&parts::store("store4", name, names, &format!("vec4<{value}>")))
        }
        SumsKind::Elements => shader.body(&parts::store("store", name, names, value)),
    }
}

/// Binds the right operands of all parts; the loads of `b` use that of their own part.
fn parts_of_b(shader: Shader, v: &TileVariant) -> Shader {
    let names = &parts::B[..v.parts];
    let shader = names.iter().fold(parts::declare(shader, v.parts), |s, b| operand(s, b, v.b));
    let value = v.b.0.value();
    shader.body(&match v.b.1 {
        Lanes::One => parts::load("load", "b", names, value),
        _ => parts::load("load4", "b", names, &format!("vec4<{value}>")),
    })
}

/// Binds the results of all parts.
fn parts_of_c(shader: Shader, v: &TileVariant) -> Shader {
    let names = &parts::C[..v.parts];
    let shader = names.iter().fold(shader, |s, c| result(s, c, v));
    let value = v.c.0.value();
    shader.body(&match v.c.1 {
        StoreKind::Vec4s => parts::store("store4", "c", names, &format!("vec4<{value}>")),
        _ => parts::store("store", "c", names, value),
    })
}

pub(super) fn shader(v: &TileVariant) -> Shader {
    let Tile { rows, vec4s, lanes_m, lanes_n, kind } = *v.tile;
    let walk = match v.walk {
        TileWalk::Tile => String::new(),
        walk => format!(" {walk:?}"),
    };
    let parts = match v.parts {
        1 => String::new(),
        parts => format!(" joined {parts}"),
    };
    let terms = match v.terms {
        1 => String::new(),
        terms => format!(" of {terms} terms"),
    };
    let sums = match v.sums {
        SumsKind::None => String::new(),
        kind => format!(" with sums {kind:?}"),
    };
    let form = format!("{walk}{parts}{terms}{sums}");
    let mut shader = Shader::new(format!(
        "contract{form} {:?} {rows}x{vec4s} in {lanes_m}x{lanes_n} {:?} {:?} {:?} {:?} \
         {:?} {:?} {:?} {:?} {:?} {:?}",
        kind,
        v.cooperative,
        v.a_layout,
        v.b_layout,
        v.a,
        v.b,
        v.c,
        v.conjugated,
        v.packing,
        v.weights,
        v.epilogue
    ))
    .workgroup([v.tile.threads(), 1, 1])
    .only(tables::kinds(v.tile, v.a.0))
    .body(&declarations(v.a.0))
    .body(bytes::declarations(v.packing));
    shader = if v.terms > 1 { shader.body("var<private> part: u32;\n") } else { shader };
    let operands = [("a", v.a, v.conjugated[0]), ("b", v.b, v.conjugated[1])];
    for (x, source, conjugated) in operands.into_iter().filter(|_| v.walk != TileWalk::FixUp) {
        shader = match x {
            _ if v.terms > 1 => {
                let names = if x == "a" { &parts::A[..] } else { &parts::B[..] };
                names[..v.terms].iter().fold(shader, |s, name| operand(s, name, source))
            }
            "b" if v.parts > 1 => parts_of_b(shader, v),
            "b" if v.packing == Some(Packing::Rows) => bytes::bind_rows(shader),
            _ => match (&v.weights, x) {
                (Some(weights), "b") => weights.bind(shader, v.b.1 != Lanes::One, vec4s_of),
                _ if v.has_halves(source) => halves_of(shader, x),
                _ => operand(shader, x, source),
            },
        };
        if v.terms > 1 {
            shader = shader.body(&load_term(v, x));
        }
        shader = shader.body(&loader(x, conjugated).1);
    }
    shader = if v.parts > 1 { parts_of_c(shader, v) } else { result(shader, "c", v) };
    shader = bind_sums(shader, v);
    shader = walk::declare(shader, v).u32s(&[
        "m", "n", "total", "split_k", "chunk", "depth", "inner", "a_step", "b_step", "b_column",
        "c_split",
    ]);
    shader = match v.a_layout {
        ALayoutKind::Dense => shader.u32s(&["a_row"]),
        kind => Geometry::declare(shader, v.spatial, kind == ALayoutKind::Window),
    };
    shader = match v.b_layout {
        BLayoutKind::Dense => {
            shader.body("fn b_line(o: u32) -> u32 {\n    return o * p.inner * p.b_step;\n}\n")
        }
        BLayoutKind::Strided if v.terms > 1 => shader
            .u32s(&["b_outer"])
            .body("fn b_line(o: u32) -> u32 {\n    part = o;\n    return o * p.b_outer;\n}\n"),
        BLayoutKind::Strided => shader
            .u32s(&["b_outer"])
            .body("fn b_line(o: u32) -> u32 {\n    return o * p.b_outer;\n}\n"),
        BLayoutKind::Planar => shader.u32s(&["b_lines", "b_image", "b_outer"]).body(
            "fn b_line(o: u32) -> u32 {\n    return o / p.b_lines * p.b_image + o % p.b_lines * \
             p.b_outer;\n}\n",
        ),
    };
    if let Some(weights) = &v.weights {
        shader = weights.declare(shader);
    }
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
            let shader = match v.parts {
                1 => form.declare(shader, vec4s_of),
                parts => form.declare_parts(shader, parts, vec4s_of),
            };
            shader.body(&form.finish(column(v.c.1), channels))
        }
        None => shader.body(FINISH),
    };
    shader = shader.body(match v.a_layout {
        ALayoutKind::Dense if v.terms > 1 => TERMS,
        ALayoutKind::Dense => DENSE,
        ALayoutKind::Patch => PATCH,
        ALayoutKind::Spread => SPREAD,
        ALayoutKind::Window => WINDOW,
    });
    let matrix = "column_tile / tiles_n";
    let matrix = if v.parts > 1 { format!("part_of({matrix})") } else { matrix.to_owned() };
    shader = spatial_defines(shader, v.spatial).define("MATRIX", matrix).body(PLACE);
    shader = shader.body(&column_sums::store_text(v));
    if v.walk == TileWalk::FixUp {
        return walk::fix_up(shader, v);
    }
    shader = walk::head(shader, v);
    let shader = match kind {
        TileKind::Registers | TileKind::Subgroup | TileKind::Gemv(_) => {
            registers::program(shader, v)
        }
        TileKind::Workgroup { depth, .. } => {
            workgroup::program(shader, v, depth / words(v.a.0) as u32)
        }
        TileKind::Cooperative { .. } => cooperative::program(
            shader,
            v,
            v.cooperative.expect("a tile of cooperative matrices comes with them"),
        ),
    };
    walk::entry(shader, v)
}

/// The functions that load operand `name` from the tensor of the term.
fn load_term(v: &TileVariant, name: &str) -> String {
    let (source, names) = if name == "a" { (v.a, &parts::A[..]) } else { (v.b, &parts::B[..]) };
    let value = source.0.value();
    match source.1 {
        Lanes::One => parts::load("load", name, &names[..v.terms], value),
        _ => parts::load("load4", name, &names[..v.terms], &format!("vec4<{value}>")),
    }
}
