//! The shaders of the gradient.

use std::fmt::Write;

use super::super::text::{Loads, RESULT_ROW, operand, score, vec4s_stored};
use super::super::tile::{self, Tile};
use crate::device::Key;
use crate::dtype::DType;
use crate::shader::Shader;

const QUERY: &str = include_str!("../../../../../shaders/fused/attention_grad_query.wgsl");
const KEY: &str = include_str!("../../../../../shaders/fused/attention_grad_key.wgsl");
const TILES: &str = include_str!("../../../../../shaders/fused/attention_grad_tiles.wgsl");
const ROWS: &str = include_str!("../../../../../shaders/fused/attention_grad_rows.wgsl");
const WEIGHTS: &str = include_str!("../../../../../shaders/fused/attention_grad_weights.wgsl");

/// The numbers of a row, read from where an earlier program has stored them.
const STORED_ROW: &str = "    let own = vec3<f32>(load_rows(own_row * 3u), load_rows(own_row * 3u \
                          + 1u),\n        load_rows(own_row * 3u + 2u));";

/// The operand whose gradient a program computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The query: each row goes over the keys.
    Queries,
    /// Key and value: each row of both goes over the queries.
    Keys,
}

/// All that shader text depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Type of operands and gradients.
    pub dtype: DType,
    /// Type of the mask.
    pub mask: Option<DType>,
    /// How rows are loaded.
    pub loads: Loads,
    /// The operand whose gradient it computes.
    pub side: Side,
    /// The part of the gradient that a workgroup computes.
    pub tile: Tile,
    /// How the query's program gets the numbers of each row.
    pub rows: Rows,
    /// Whether a dispatch covers only some of the other side's rows.
    pub cut: bool,
}

/// How a program gets the numbers that a row needs besides its products: the number that is
/// subtracted from its scores, the factor of their exponentials, and the product of the result with
/// its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// An earlier program has stored them.
    Stored,
    /// The query's program computes them, and stores them for the other side's program.
    Made,
}

/// The parameters, in order; `scale`, `fill` and `lowest` follow them.
const PARAMS: &[&str] = &[
    "total", "heads", "queries", "keys", "depth", "width", "q_b", "q_h", "q_t", "k_b", "k_h",
    "k_t", "v_b", "v_h", "v_t", "m_b", "m_h", "m_t", "m_s", "flags",
];

/// The ways in which the program of a side may get the numbers of its rows.
fn rows_of(side: Side) -> impl Iterator<Item = Rows> {
    let made = (side == Side::Queries).then_some(Rows::Made);
    std::iter::once(Rows::Stored).chain(made)
}

/// Every variant: masks do not depend on tiles, nor do types.
pub fn variants(types: &[DType], masks: &[DType]) -> Vec<Shader> {
    let mut out = Vec::new();
    for mask in std::iter::once(None).chain(masks.iter().copied().map(Some)) {
        out.extend([8, 256].map(|lanes| weights(mask, lanes)));
    }
    for side in [Side::Queries, Side::Keys] {
        for (tile, kinds) in tile::all(true) {
            for loads in [Loads::Exact, Loads::Padded] {
                for (dtype, rows) in types.iter().flat_map(|t| rows_of(side).map(|r| (*t, r))) {
                    let variant =
                        Variant { dtype, mask: None, loads, side, tile: *tile, rows, cut: false };
                    let masks = std::iter::once(None).chain(masks.iter().copied().map(Some));
                    let masks = masks.take(if tile.vec4s == 4 { usize::MAX } else { 1 });
                    let mut all: Vec<_> = masks.map(|mask| Variant { mask, ..variant }).collect();
                    if dtype == DType::F32 && tile.vec4s == 4 {
                        all.push(Variant { cut: true, ..variant });
                    }
                    let shaders = all.iter().map(Variant::shader);
                    out.extend(shaders.map(|shader| shader.only(kinds.iter().copied())));
                }
            }
        }
    }
    out
}

/// Iterations of an invocation for each tile of the other side's rows.
pub const fn iterations(tile: &Tile) -> usize {
    (1 + (tile.keys * tile.vec4s).div_ceil(tile.lanes) + 2 * tile.keys / tile.step) as usize
}

impl Variant {
    /// The key of its pipeline.
    pub fn key(&self) -> Key {
        let key = Key::new("attention_grad")
            .dtype(self.dtype)
            .number(self.loads as u32)
            .number(self.side as u32)
            .number(self.rows as u32)
            .number(u32::from(self.cut));
        let key = key.number(self.tile.vec4s).number(self.tile.loop_id());
        self.mask.map_or(key.clone(), |mask| key.dtype(mask))
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let Self { dtype, mask, loads, side, tile, rows, cut } = *self;
        let mut shader = Shader::new(format!(
            "attention gradient {dtype}, mask {mask:?}, {loads:?}, {side:?}, rows {rows:?}, cut \
             {cut}, {} vec4s, {}",
            tile.vec4s,
            tile.loop_text()
        ))
        .workgroup([tile.lanes, 1, 1]);
        for (name, extent) in
            [("query", "depth"), ("key", "depth"), ("value", "width"), ("gradient", "width")]
        {
            shader = operand(shader, name, dtype, loads, extent);
        }
        if rows == Rows::Made {
            shader = operand(shader, "result", dtype, loads, "width").bind("saved", DType::F32);
        }
        shader = shader.bind("rows", DType::F32);
        let results: &[&str] = match side {
            Side::Queries => &["query_gradient"],
            Side::Keys => &["key_gradient", "value_gradient"],
        };
        for name in results {
            shader = vec4s_stored(shader, name, dtype);
        }
        if let Some(mask) = mask {
            shader = shader.bind("extra", mask);
        }
        shader = score(shader.u32s(PARAMS), mask).body(RESULT_ROW);
        if cut {
            shader = shader.u32s(&["low", "high"]);
        }
        let (first, end) = match (side, cut) {
            (Side::Queries, false) => ("0u", "end"),
            (Side::Queries, true) => ("p.low", "min(end, p.high)"),
            (Side::Keys, false) => ("start", "p.queries"),
            (Side::Keys, true) => ("max(start, p.low)", "min(p.queries, p.high)"),
        };
        // The invocation's own rows of operands, and their places in the other side's tiles.
        let taken = match side {
            _ if !tile.rolled => "POSITIONS",
            Side::Queries => "min(POSITIONS, end - first)",
            Side::Keys => "min(POSITIONS, p.queries - first)",
        };
        let (own, body) = match side {
            Side::Queries => {
                ([("q", "query", "query_at"), ("g", "gradient", "gradient_at")], QUERY)
            }
            Side::Keys => ([("q", "key", "key_at"), ("g", "value", "value_at")], KEY),
        };
        let mut loaded = String::new();
        for (own, name, at) in own {
            for c in 0..tile.vec4s / tile.parts {
                let _ = writeln!(loaded, "    let {own}{c} = quad_{name}({at}, {});", self.quad(c));
            }
        }
        let sums = (0..tile.vec4s / tile.parts).fold(String::new(), |mut out, c| {
            let _ = match side {
                Side::Queries => writeln!(out, "    var sum{c} = vec4<f32>();"),
                Side::Keys => writeln!(
                    out,
                    "    var sum{c} = vec4<f32>();\n    var value_sum{c} = vec4<f32>();"
                ),
            };
            out
        });
        shader
            .define("PARTS", tile.parts.to_string())
            .define("POSITIONS", tile.keys.to_string())
            .define("TAKEN", taken)
            .define("FIRST", first)
            .define("END", end)
            .define("VEC4S", tile.vec4s.to_string())
            .define("STEP_POSITIONS", tile.step.to_string())
            .define("OWN", loaded.trim_end())
            .define("ROW", if rows == Rows::Made { self.row() } else { STORED_ROW.to_owned() })
            .define("SUMS", sums.trim_end())
            .define("PRODUCTS", self.products())
            .define("STEP", self.step())
            .define("STORE", self.store())
            .body(TILES)
            .body(body)
    }

    /// The group of four elements that is the invocation's own number `c`.
    fn quad(&self, c: u32) -> String {
        if self.tile.parts == 1 {
            format!("{c}u")
        } else {
            format!("{}u + part", c * self.tile.parts)
        }
    }

    /// The numbers of the row. Its invocations add up the product of result and gradient together.
    fn row(&self) -> String {
        let products: Vec<_> = (0..self.tile.vec4s / self.tile.parts)
            .map(|c| format!("dot(g{c}, quad_result(gradient_at, {}))", self.quad(c)))
            .collect();
        let parts: Vec<_> =
            (0..self.tile.parts).map(|i| format!("scores[local_index - part + {i}u]")).collect();
        format!(
            "    scores[local_index] = {};\n    workgroupBarrier();\n    let largest = \
             load_saved(own_row * 2u);\n    let own = vec3<f32>(select(largest, 0.0, largest < \
             LOWEST_FINITE),\n        1.0 / load_saved(own_row * 2u + 1u), {});\n    if part == \
             0u {{\n        store_rows(own_row * 3u, own.x);\n        store_rows(own_row * 3u + \
             1u, own.y);\n        store_rows(own_row * 3u + 2u, own.z);\n    }}",
            products.join("\n        + "),
            parts.join("\n        + ")
        )
    }

    /// The part of the invocation's own elements in the products of its rows with those of both
    /// tiles.
    fn products(&self) -> String {
        let pad = "            ";
        let mut out = String::new();
        for j in 0..self.tile.step {
            let _ = writeln!(
                out,
                "{pad}var score{j} = vec4<f32>();\n{pad}var change{j} = vec4<f32>();"
            );
        }
        for c in 0..self.tile.vec4s / self.tile.parts {
            for j in 0..self.tile.step {
                let at = format!("(j + {j}u) * VEC4S + {}", self.quad(c));
                let _ = writeln!(out, "{pad}score{j} = fma(q{c}, depth_tile[{at}], score{j});");
                let _ = writeln!(out, "{pad}change{j} = fma(g{c}, width_tile[{at}], change{j});");
            }
        }
        for j in 0..self.tile.step {
            for (name, array) in [("score", "scores"), ("change", "changes")] {
                let _ = writeln!(
                    out,
                    "{pad}{array}[(j + {j}u) * WORKGROUP + local_index] = {name}{j}.x + \
                     {name}{j}.y + {name}{j}.z + {name}{j}.w;"
                );
            }
        }
        out.trim_end().to_owned()
    }

    /// One step over the positions of the tiles from `j` on, once their products are computed.
    fn step(&self) -> String {
        let pad = "            ";
        let mut out = String::new();
        for j in 0..self.tile.step {
            let _ = writeln!(out, "{pad}let at{j} = (j + {j}u) * WORKGROUP + local_index - part;");
            let sum = |array: &str| {
                let parts: Vec<_> =
                    (0..self.tile.parts).map(|i| format!("{array}[at{j} + {i}u]")).collect();
                parts.join(" + ")
            };
            let _ = writeln!(
                out,
                "{pad}let weight{j} = {}({}, {}, first + j + {j}u{});",
                if self.side == Side::Queries { "of_key" } else { "of_query" },
                sum("scores"),
                sum("changes"),
                if self.side == Side::Queries { ", row, mask_at, end, own" } else { ", s, b, h" },
            );
            for c in 0..self.tile.vec4s / self.tile.parts {
                let at = format!("(j + {j}u) * VEC4S + {}", self.quad(c));
                let _ = writeln!(
                    out,
                    "{pad}sum{c} = fma(vec4<f32>(weight{j}.x), depth_tile[{at}], sum{c});"
                );
                if self.side == Side::Keys {
                    let _ = writeln!(
                        out,
                        "{pad}value_sum{c} = fma(vec4<f32>(weight{j}.y), width_tile[{at}], \
                         value_sum{c});"
                    );
                }
            }
        }
        out.trim_end().to_owned()
    }

    fn store(&self) -> String {
        let pad = "        ";
        let mut out = String::new();
        let stores: &[(&str, &str, &str, &str)] = match self.side {
            Side::Queries => &[("query_gradient", "query_at", "depth", "sum{c} * p.scale")],
            Side::Keys => &[
                ("key_gradient", "key_at", "depth", "sum{c} * p.scale"),
                ("value_gradient", "value_at", "width", "value_sum{c}"),
            ],
        };
        for (name, at, extent, value) in stores {
            for c in 0..self.tile.vec4s / self.tile.parts {
                let (quad, value) = (self.quad(c), value.replace("{c}", &c.to_string()));
                let store = format!("store4_{name}(({at} >> 2u) + {quad}, {value});");
                let _ = match self.loads {
                    Loads::Exact => writeln!(out, "{pad}{store}"),
                    Loads::Padded => writeln!(
                        out,
                        "{pad}if ({quad}) * 4u < p.{extent} {{\n{pad}    {store}\n{pad}}}"
                    ),
                };
            }
        }
        out.trim_end().to_owned()
    }
}

/// The shader of [`super::prepare`].
pub fn rows(dtype: DType) -> Shader {
    Shader::new(format!("attention gradient, rows of {dtype}"))
        .bind("result", dtype)
        .bind("gradient", dtype)
        .bind("saved", DType::F32)
        .bind("rows", DType::F32)
        .u32s(&["count", "width"])
        .workgroup([64, 1, 1])
        .body(ROWS)
}

/// The shader that turns gradients of weights into gradients of products, for a mask of type
/// `mask`, with `lanes` invocations for each row.
pub fn weights(mask: Option<DType>, lanes: u32) -> Shader {
    let shader =
        Shader::new(format!("attention gradient of weights, mask {mask:?}, {lanes} lanes"))
            .bind("weights", DType::F32)
            .bind("changes", DType::F32);
    let shader = mask.into_iter().fold(shader, |shader, mask| shader.bind("extra", mask));
    let shader =
        shader.u32s(&["total", "heads", "queries", "keys", "m_b", "m_h", "m_t", "m_s", "flags"]);
    score(shader, mask).workgroup([lanes, 1, 1]).body(WEIGHTS)
}
