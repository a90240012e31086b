//! The shaders of attention: WGSL files, and between them the unrolled arithmetic on four elements
//! at a time.

use std::fmt::Write;

use super::tile::Tile;
use crate::device::Key;
use crate::dtype::DType;
use crate::shader::{Field, Shader, codec, vec4};

const FLAGS: &str = include_str!("../../../../shaders/fused/attention_flags.wgsl");
const SCORE: &str = include_str!("../../../../shaders/fused/attention_score.wgsl");
const SCORE_VEC4S: &str = include_str!("../../../../shaders/fused/attention_score_vec4s.wgsl");
const WEIGHTS: &str = include_str!("../../../../shaders/fused/attention_weights.wgsl");
const WORKGROUP: &str = include_str!("../../../../shaders/fused/attention_workgroup.wgsl");
const PAD: &str = include_str!("../../../../shaders/fused/attention_pad.wgsl");
const STATS: &str = include_str!("../../../../shaders/fused/attention_stats.wgsl");
const MERGE: &str = include_str!("../../../../shaders/fused/attention_merge.wgsl");

/// How rows of query, key and value are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loads {
    /// Four elements at a time; the rows have exactly the tile's width.
    Exact,
    /// Four elements at a time; elements beyond the rows are zeros.
    Padded,
}

/// How a row's sums are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// They are divided and stored in the result's type.
    Result,
    /// The same, and the row's maximum and sum of exponentials are stored for the gradient.
    Saved,
    /// They are stored with the row's maximum and sum of exponentials, for [`merge`].
    Partial,
}

/// All that shader text depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Type of query, key, value and result.
    pub dtype: DType,
    /// Type of the mask: booleans, or a float that is added.
    pub mask: Option<DType>,
    /// How rows are loaded.
    pub loads: Loads,
    /// How the sums are stored.
    pub store: Store,
    /// The part of the result that a workgroup computes.
    pub tile: Tile,
}

/// The parameters, in order; then `scale`, `fill` and `lowest`. With the offsets of six bindings
/// they fit 128 bytes of immediates: a buffer of parameters would cost a write for each program.
const PARAMS: &[&str] = &[
    "total", "chunk", "heads", "group", "queries", "keys", "depth", "width", "q_b", "q_h", "q_t",
    "k_b", "k_h", "k_t", "v_b", "v_h", "v_t", "m_b", "m_h", "m_t", "m_s", "flags",
];

/// The function that gives the row of the result for row t of a head.
pub const RESULT_ROW: &str = "fn result_row(b: u32, h: u32, t: u32) -> u32 {\n    return \
                              select((b * p.heads + h) * p.queries + t, (b * p.queries + t) * \
                              p.heads + h, (p.flags & HEADS_LAST) != 0u);\n}\n";

/// Declares the parameters behind `flags`, and `is_kept` and `score` for a mask of type `mask`.
pub fn score(shader: Shader, mask: Option<DType>) -> Shader {
    let (kept, bias) = match mask {
        None => ("", ""),
        Some(DType::Bool) => {
            (" & (load_extra(mask_at + s * p.m_s) == ((p.flags & KEEP) != 0u))", "")
        }
        Some(_) => ("", " + load_extra(mask_at + s * p.m_s)"),
    };
    flags(shader).define("KEPT", kept).define("BIAS", bias).body(SCORE)
}

/// The same for four keys at once: `are_kept` and `scores_of`.
fn score_vec4s(shader: Shader, mask: Option<DType>) -> Shader {
    let (kept, bias) = match mask {
        None => ("", ""),
        Some(DType::Bool) => {
            (" & (read_extra(mask_at + c) == vec4<bool>((p.flags & KEEP) != 0u))", "")
        }
        Some(_) => ("", " + read_extra(mask_at + c)"),
    };
    flags(shader).define("KEPT", kept).define("BIAS", bias).body(SCORE_VEC4S)
}

fn flags(shader: Shader) -> Shader {
    let names = ["scale", "fill", "lowest"];
    names.into_iter().fold(shader, |shader, name| shader.param(name, Field::F32)).body(FLAGS)
}

/// The shader that turns scores into weights, for a mask of type `mask`, with `lanes` invocations
/// for each row; with `vec4s` they take four keys at once, which parameters then count in vec4s.
pub fn weights(mask: Option<DType>, lanes: u32, vec4s: bool) -> Shader {
    let label = format!("attention weights, mask {mask:?}, {lanes} lanes, vec4s: {vec4s}");
    let names = ["total", "heads", "queries", "keys", "block", "m_b", "m_h", "m_t", "m_s", "flags"];
    let (unit, size) = if vec4s { ("vec4<f32>", 16) } else { ("f32", 4) };
    let shader = Shader::new(label).bind_raw("scores", unit, size);
    let shader = match mask {
        Some(mask) if vec4s => vec4::bind_read(shader, "extra", mask),
        Some(mask) => shader.bind("extra", mask),
        None => shader,
    };
    let shader = shader.u32s(&names);
    let shader = if vec4s {
        score_vec4s(shader, mask).body(VEC4S)
    } else {
        score(shader, mask).body(SINGLES)
    };
    shader
        .workgroup([weights_workgroup(lanes), 1, 1])
        .define("LANES", lanes.to_string())
        .body(WEIGHTS)
}

/// Invocations of a workgroup in which each row has `lanes`.
pub const fn weights_workgroup(lanes: u32) -> u32 {
    if lanes == 1 { 64 } else { lanes }
}

/// The definitions of the weights' shader for single keys.
const SINGLES: &str = "\
const UNIT = 1u;
alias Scores = f32;
alias Kept = bool;

fn kept_at(t: u32, c: u32, mask_at: u32) -> Kept {
    return is_kept(t, c, mask_at);
}

fn score_at(at: u32, t: u32, c: u32, mask_at: u32) -> Scores {
    return score(scores[p.off_scores + at + c], is_kept(t, c, mask_at), c, mask_at);
}

fn largest_of(v: Scores) -> f32 {
    return v;
}

fn sum_of(v: Scores) -> f32 {
    return v;
}
";

/// The same for four keys.
const VEC4S: &str = "\
const UNIT = 4u;
alias Scores = vec4<f32>;
alias Kept = vec4<bool>;

fn kept_at(t: u32, c: u32, mask_at: u32) -> Kept {
    return are_kept(t, c, mask_at);
}

fn score_at(at: u32, t: u32, c: u32, mask_at: u32) -> Scores {
    return scores_of(scores[p.off_scores + at + c], are_kept(t, c, mask_at), c, mask_at);
}

fn largest_of(v: Scores) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

fn sum_of(v: Scores) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
";

impl Variant {
    /// The key of its pipeline.
    pub fn key(&self) -> Key {
        let key = Key::new("attention")
            .dtype(self.dtype)
            .number(self.loads as u32)
            .number(self.store as u32);
        let key = key.number(self.tile.vec4s).number(self.tile.loop_id());
        self.mask.map_or(key.clone(), |mask| key.dtype(mask))
    }

    /// The type of the stored sums.
    pub const fn stored(&self) -> DType {
        match self.store {
            Store::Result | Store::Saved => self.dtype,
            Store::Partial => DType::F32,
        }
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let Self { dtype, mask, loads, tile, .. } = *self;
        let mut shader = Shader::new(format!(
            "attention {dtype}, mask {mask:?}, {loads:?}, {:?}, {} vec4s, {}",
            self.store,
            tile.vec4s,
            tile.loop_text()
        ))
        .workgroup([tile.lanes, 1, 1]);
        for (name, extent) in [("query", "depth"), ("key", "depth"), ("value", "width")] {
            shader = operand(shader, name, dtype, loads, extent);
        }
        shader = vec4s_stored(shader, "result", self.stored());
        if self.store != Store::Result {
            shader = shader.bind("stats", DType::F32);
        }
        if let Some(mask) = mask {
            shader = shader.bind("extra", mask);
        }
        shader = score(shader.u32s(PARAMS), mask).body(RESULT_ROW);
        let own = tile.vec4s / tile.parts;
        let mut query = String::new();
        let mut sums = String::new();
        for c in 0..own {
            let _ = writeln!(query, "    let q{c} = quad_query(query_at, {});", self.quad(c));
            let _ = writeln!(sums, "    var sum{c} = vec4<f32>();");
        }
        shader = shader.define("QUERY", query.trim_end()).define("SUMS", sums.trim_end());
        shader
            .define("PARTS", tile.parts.to_string())
            .define("KEYS", tile.keys.to_string())
            .define("TAKEN", if tile.rolled { "min(KEYS, end - s_first)" } else { "KEYS" })
            .define("VEC4S", tile.vec4s.to_string())
            .define("STEP_KEYS", tile.step.to_string())
            .define("PRODUCTS", self.workgroup_products())
            .define("STEP", self.workgroup_step())
            .define("STORE", self.store_text())
            .body(WORKGROUP)
    }

    /// The group of four elements that is the invocation's own number `c`.
    fn quad(&self, c: u32) -> String {
        if self.tile.parts == 1 {
            format!("{c}u")
        } else {
            format!("{}u + part", c * self.tile.parts)
        }
    }

    /// Products of the invocation's own elements with the tile's keys.
    fn workgroup_products(&self) -> String {
        let pad = "            ";
        let (keys, own) = (self.tile.step, self.tile.vec4s / self.tile.parts);
        let mut out = String::new();
        for j in 0..keys {
            let _ = writeln!(out, "{pad}var dot{j} = vec4<f32>();");
        }
        for c in 0..own {
            for j in 0..keys {
                let quad = self.quad(c);
                let _ = writeln!(
                    out,
                    "{pad}dot{j} = fma(q{c}, key_tile[(j + {j}u) * VEC4S + {quad}], dot{j});"
                );
            }
        }
        for j in 0..keys {
            let _ = writeln!(
                out,
                "{pad}products[(j + {j}u) * WORKGROUP + local_index] = dot{j}.x + dot{j}.y + \
                 dot{j}.z + dot{j}.w;"
            );
        }
        out.trim_end().to_owned()
    }

    /// One step over the tile's keys from `j` on, once their products are computed.
    fn workgroup_step(&self) -> String {
        let pad = "            ";
        let mut out = String::new();
        for j in 0..self.tile.step {
            let _ = writeln!(out, "{pad}let s{j} = min(s + {j}u, p.keys - 1u);");
            let _ = writeln!(
                out,
                "{pad}let products{j} = (j + {j}u) * WORKGROUP + local_index - part;"
            );
            let sum: Vec<_> =
                (0..self.tile.parts).map(|i| format!("products[products{j} + {i}u]")).collect();
            let _ = writeln!(out, "{pad}let kept{j} = is_kept(row, s{j}, mask_at);");
            let _ = writeln!(
                out,
                "{pad}let x{j} = select(p.lowest, score({}, kept{j}, s{j}, mask_at), s + {j}u < \
                 end);",
                sum.join(" + ")
            );
        }
        out + &self.online(self.tile.step, pad, |c, j| {
            format!("value_tile[(j + {j}u) * VEC4S + {}]", self.quad(c))
        })
    }

    /// Updates the running maximum, the sum of exponentials and the sums of values by scores `x0`,
    /// `x1`, ….
    fn online(&self, keys: u32, pad: &str, value: impl Fn(u32, u32) -> String) -> String {
        let mut out = String::new();
        let of_keys = |prefix: &str| (0..keys).map(|j| format!("{prefix}{j}")).collect::<Vec<_>>();
        let top = of_keys("x")
            .into_iter()
            .fold("largest".to_owned(), |top, x| format!("max({top}, {x})"));
        let _ = writeln!(out, "{pad}let top = {top};");
        // As long as there is no finite score, minus infinity less itself would be NaN.
        let _ = writeln!(out, "{pad}let base = select(top, 0.0, top < LOWEST_FINITE);");
        let _ = writeln!(out, "{pad}let shrink = exp(largest - base);");
        let _ = writeln!(out, "{pad}largest = top;");
        for j in 0..keys {
            let _ = writeln!(out, "{pad}let e{j} = exp(x{j} - base);");
            let _ = writeln!(
                out,
                "{pad}let w{j} = vec4<f32>(select(0.0, e{j}, kept{j} | ((p.flags & ZERO_MASKED) \
                 == 0u)));"
            );
        }
        let _ = writeln!(out, "{pad}total = fma(total, shrink, {});", of_keys("e").join(" + "));
        for c in 0..self.tile.vec4s / self.tile.parts {
            for j in 0..keys {
                let before = if j == 0 { format!("sum{c} * shrink") } else { format!("sum{c}") };
                let _ = writeln!(out, "{pad}sum{c} = fma(w{j}, {}, {before});", value(c, j));
            }
        }
        out.trim_end().to_owned()
    }

    fn store_text(&self) -> String {
        let pad = "        ";
        let mut out = String::new();
        let finished = |c: u32| match self.store {
            Store::Result | Store::Saved => {
                format!(
                    "select(sum{c} / total, vec4<f32>(not_a_number()), largest < LOWEST_FINITE)"
                )
            }
            Store::Partial => format!("sum{c}"),
        };
        let _ = match self.store {
            Store::Result => writeln!(out, "{pad}let start = at;"),
            Store::Saved => writeln!(
                out,
                "{pad}let start = at;\n{pad}let stats_at = at / p.width * \
                 2u;\n{pad}store_stats(stats_at, largest);\n{pad}store_stats(stats_at + 1u, \
                 total);"
            ),
            Store::Partial => writeln!(
                out,
                "{pad}let start = split * (p.total / tiles / splits) * rows * p.width + \
                 at;\n{pad}let stats_at = start / p.width * 2u;\n{pad}store_stats(stats_at, \
                 largest);\n{pad}store_stats(stats_at + 1u, total);"
            ),
        };
        for c in 0..self.tile.vec4s / self.tile.parts {
            let quad = self.quad(c);
            let value = finished(c);
            let _ = match self.loads {
                Loads::Exact => {
                    writeln!(out, "{pad}store4_result((start >> 2u) + {quad}, {value});")
                }
                Loads::Padded => writeln!(
                    out,
                    "{pad}if ({quad}) * 4u < p.width {{\n{pad}    store4_result((start >> 2u) + \
                     {quad}, {value});\n{pad}}}"
                ),
            };
        }
        out.trim_end().to_owned()
    }
}

/// Binds an operand with `quad_NAME(at, c)`: group c of the row that starts at element `at`.
pub fn operand(
    shader: Shader,
    x: &'static str,
    dtype: DType,
    loads: Loads,
    extent: &str,
) -> Shader {
    let shader = vec4::bind_read(shader, x, dtype);
    match loads {
        Loads::Exact => shader.body(&format!(
            "fn quad_{x}(at: u32, c: u32) -> vec4<f32> {{\n    return read_{x}((at >> 2u) + \
             c);\n}}\n"
        )),
        Loads::Padded => shader.body(&format!(
            "fn quad_{x}(at: u32, c: u32) -> vec4<f32> {{\n    let is_inside = c * 4u < \
             p.{extent};\n    return select(vec4<f32>(), read_{x}(select(0u, (at >> 2u) + c, \
             is_inside)), is_inside);\n}}\n"
        )),
    }
}

/// Binds a result with `store4_NAME(i, v)`, which counts in vec4s.
pub fn vec4s_stored(shader: Shader, x: &'static str, dtype: DType) -> Shader {
    let (before, words) = codec::pack(dtype);
    let shader = codec::with_library(shader, dtype);
    shader.bind_raw(x, codec::storage(dtype), vec4::unit(dtype)).body(&format!(
        "fn store4_{x}(i: u32, v: vec4<f32>) {{\n{before}    {x}[p.off_{x} + i] = {words};\n}}\n"
    ))
}

/// The shader that merges the results of splits of the keys.
pub fn merge(dtype: DType) -> Shader {
    Shader::new(format!("attention merge to {dtype}"))
        .bind("result", dtype)
        .bind("partial", DType::F32)
        .bind("stats", DType::F32)
        .u32s(&["count", "splits", "width", "padded"])
        .param("lowest", Field::F32)
        .param("nan", Field::F32)
        .body(MERGE)
        .map("result")
}

/// The shader that merges the maxima and sums of splits of the keys.
pub fn merge_stats() -> Shader {
    Shader::new("attention stats")
        .bind("saved", DType::F32)
        .bind("stats", DType::F32)
        .u32s(&["count", "splits"])
        .param("lowest", Field::F32)
        .body(STATS)
        .map("saved")
}

/// The shader that gives rows another width and type.
pub fn pad(from: DType, to: DType) -> Shader {
    Shader::new(format!("attention pad {from} to {to}"))
        .bind("x", from)
        .bind("y", to)
        .u32s(&["count", "depth", "width"])
        .body(PAD)
        .map("y")
}
