//! The shaders of attention: WGSL files, and between them the unrolled arithmetic on four elements
//! at a time.

use std::fmt::Write;

use super::lines::{columns, for_rows, product, row, weighted};
use super::register_tile::RegisterTile;
use crate::device::Key;
use crate::dtype::DType;
use crate::shader::{Field, Shader, codec, vec4};

const FLAGS: &str = include_str!("../../../../shaders/fused/attention_flags.wgsl");
const SCORE: &str = include_str!("../../../../shaders/fused/attention_score.wgsl");
const SCORE_VEC4S: &str = include_str!("../../../../shaders/fused/attention_score_vec4s.wgsl");
const WEIGHTS: &str = include_str!("../../../../shaders/fused/attention_weights.wgsl");
const ONLINE: &str = include_str!("../../../../shaders/fused/attention_online.wgsl");
const PLACE: &str = include_str!("../../../../shaders/fused/attention_place.wgsl");
const REGISTERS: &str = include_str!("../../../../shaders/fused/attention_registers.wgsl");
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

/// The kind of scores: their functions have a text for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scoring {
    /// Type of the mask: booleans, or a float that is added.
    pub mask: Option<DType>,
    /// Whether there is a soft cap.
    pub is_capped: bool,
}

impl Scoring {
    /// Without a soft cap.
    pub const fn uncapped(mask: Option<DType>) -> Self {
        Self { mask, is_capped: false }
    }

    /// The key of a program, with these properties.
    pub fn add_to(self, key: Key) -> Key {
        let key = key.number(u32::from(self.mask.is_some())).number(u32::from(self.is_capped));
        self.mask.map_or(key.clone(), |mask| key.dtype(mask))
    }

    /// Declares the parameters behind `flags`.
    fn declare(self, shader: Shader) -> Shader {
        let names = ["scale", "fill", "lowest"];
        let shader =
            names.into_iter().fold(shader, |s, name| s.param(name, Field::F32)).body(FLAGS);
        if self.is_capped { shader.param("soft_cap", Field::F32) } else { shader }
    }

    /// The text of scores before a mask, for scaled products `x`: vectors or single ones.
    const fn product(self, vectors: bool) -> &'static str {
        match (self.is_capped, vectors) {
            (false, _) => "x",
            (true, false) => "p.soft_cap * tanh_f32(x)",
            (true, true) => {
                "p.soft_cap * vec4<f32>(tanh_f32(x.x), tanh_f32(x.y), tanh_f32(x.z), tanh_f32(x.w))"
            }
        }
    }
}

/// The operands and results of a program that sees each key once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// Type of query, key, value and result.
    pub dtype: DType,
    /// How softmax sees the products.
    pub scoring: Scoring,
    /// How rows are loaded.
    pub loads: Loads,
    /// How the sums are stored.
    pub store: Store,
}

/// All that the text of the program with tiles in registers depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TiledText {
    /// What it reads and stores.
    pub operands: Operands,
    /// The part of the result that a workgroup computes.
    pub tile: RegisterTile,
}

/// The parameters, in order; then `scale`, `fill`, `lowest` and, if there is one, `soft_cap`.
/// With the offsets of six bindings they fit 128 bytes of immediates: a buffer of parameters would
/// cost a write for each program.
const PARAMS: &[&str] = &[
    "total", "chunk", "heads", "group", "queries", "keys", "depth", "width", "q_b", "q_h", "q_t",
    "k_b", "k_h", "k_t", "v_b", "v_h", "v_t", "m_b", "m_h", "m_t", "m_s", "flags",
];

/// The function that adds the products of four factors with four vectors.
pub const SUM_OF_PRODUCTS: &str =
    include_str!("../../../../shaders/fused/attention_sum_of_products.wgsl");

/// The function that gives the row of the result for row t of a head.
pub const RESULT_ROW: &str = "fn result_row(b: u32, h: u32, t: u32) -> u32 {\n    return \
                              select((b * p.heads + h) * p.queries + t, (b * p.queries + t) * \
                              p.heads + h, (p.flags & HEADS_LAST) != 0u);\n}\n";

/// Declares the parameters behind `flags`, and `is_kept` and `score`.
pub fn score(shader: Shader, scoring: Scoring) -> Shader {
    let (kept, bias) = match scoring.mask {
        None => ("", ""),
        Some(DType::Bool) => {
            (" & (load_extra(mask_at + s * p.m_s) == ((p.flags & KEEP) != 0u))", "")
        }
        Some(_) => ("", " + load_extra(mask_at + s * p.m_s)"),
    };
    let shader = scoring.declare(shader).define("KEPT", kept).define("BIAS", bias);
    shader.define("CAPPED", scoring.product(false)).body(SCORE)
}

/// The same for four keys at once: `are_kept` and `scores_of`.
fn score_vec4s(shader: Shader, scoring: Scoring) -> Shader {
    let (kept, bias) = match scoring.mask {
        None => ("", ""),
        Some(DType::Bool) => {
            (" & (read_extra(mask_at + c) == vec4<bool>((p.flags & KEEP) != 0u))", "")
        }
        Some(_) => ("", " + read_extra(mask_at + c)"),
    };
    let shader = scoring.declare(shader).define("KEPT", kept).define("BIAS", bias);
    shader.define("CAPPED", scoring.product(true)).body(SCORE_VEC4S)
}

/// The shader that turns scores into weights, with `lanes` invocations for each row; with `vec4s`
/// they take four keys at once, which parameters then count in vec4s.
pub fn weights(scoring: Scoring, lanes: u32, vec4s: bool) -> Shader {
    let Scoring { mask, is_capped } = scoring;
    let capped = if is_capped { ", capped" } else { "" };
    let label = format!("attention weights, mask {mask:?}{capped}, {lanes} lanes, vec4s: {vec4s}");
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
        score_vec4s(shader, scoring).body(VEC4S)
    } else {
        score(shader, scoring).body(SINGLES)
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

impl Operands {
    /// The key of the program `family`, to be refined.
    pub fn key(&self, family: &str) -> Key {
        let key =
            Key::new(family).dtype(self.dtype).number(self.loads as u32).number(self.store as u32);
        self.scoring.add_to(key)
    }

    /// The type of the stored sums.
    pub const fn stored(&self) -> DType {
        match self.store {
            Store::Result | Store::Saved => self.dtype,
            Store::Partial => DType::F32,
        }
    }

    /// Declares the bindings, the parameters and the functions of scores. Groups of query, key and
    /// value are halves if the program computes with these, else f32.
    pub fn declare(&self, mut shader: Shader, halves: bool) -> Shader {
        for (name, extent) in [("query", "depth"), ("key", "depth"), ("value", "width")] {
            shader = operand(shader, name, self.dtype, (self.loads, halves), extent);
        }
        shader = vec4s_stored(shader, "result", self.stored());
        if self.store != Store::Result {
            shader = shader.bind("stats", DType::F32);
        }
        if let Some(mask) = self.scoring.mask {
            shader = shader.bind("extra", mask);
        }
        score(shader.u32s(PARAMS), self.scoring)
            .body(RESULT_ROW)
            .define("PLACE", PLACE)
            .body(ONLINE)
    }

    /// Stores the row of the workgroup that is `row`: groups of four elements with their sums.
    /// `lanes` invocations share the row, and `largest` is its running maximum.
    pub fn stores(
        &self,
        row: &str,
        lanes: u32,
        largest: &str,
        sums: impl Iterator<Item = (String, String)>,
    ) -> String {
        let mut out = format!("if first_row + {row} < rows {{\n");
        let at = format!("row_of[{row}].w");
        let totals = (0..lanes).map(|i| format!("of_lanes[lanes + {i}u]"));
        let totals = totals.collect::<Vec<_>>().join(" + ");
        let _ = writeln!(out, "    let lanes = ({row}) * LANES;");
        let _ = writeln!(out, "    let total = {totals};");
        let _ = match self.store {
            Store::Partial => {
                writeln!(out, "    let at = split * (p.total / tiles / splits) * rows + {at};")
            }
            Store::Result | Store::Saved => writeln!(out, "    let at = {at};"),
        };
        if self.store != Store::Result {
            let _ = writeln!(
                out,
                "    if lane == 0u {{\n        store_stats(at * 2u, {largest});\n        \
                 store_stats(at * 2u + 1u, total);\n    }}"
            );
        }
        for (quad, sum) in sums {
            let value = match self.store {
                Store::Partial => sum,
                Store::Result | Store::Saved => format!("finished({sum}, total, {largest})"),
            };
            let store = format!("store4_result(at * (p.width >> 2u) + {quad}, {value});");
            let _ = match self.loads {
                Loads::Exact => writeln!(out, "    {store}"),
                Loads::Padded => {
                    writeln!(out, "    if ({quad}) * 4u < p.width {{\n        {store}\n    }}")
                }
            };
        }
        out + "}"
    }
}

impl TiledText {
    /// The key of its pipeline.
    pub fn key(&self) -> Key {
        self.operands.key("attention").number(self.tile.vec4s).number(self.tile.rows)
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let Self { operands, tile } = *self;
        let shader = Shader::new(format!(
            "attention {operands:?}, {} vec4s, {} rows of {} lanes",
            tile.vec4s, tile.rows, tile.row_lanes
        ))
        .workgroup([tile.lanes(), 1, 1]);
        operands
            .declare(shader, false)
            .body(SUM_OF_PRODUCTS)
            .define("ROW_LANES", tile.row_lanes.to_string())
            .define("LANES", tile.key_lanes.to_string())
            .define("ROWS", tile.workgroup_rows().to_string())
            .define("VEC4S", tile.vec4s.to_string())
            .define("KEY_QUADS", tile.key_quads().to_string())
            .define("VALUES", tile.values().to_string())
            .define("TILE", tile.part().to_string())
            .define("SUMS", self.sums())
            .define("SCORES", for_rows(&tile, 8, |r| format!("var x{r} = vec4<f32>();")))
            .define("COLUMNS", columns(16))
            .define(
                "PRODUCTS",
                for_rows(&tile, 16, |r| product(&format!("x{r}"), "query_tile[query_at + ", r)),
            )
            .define("LARGEST", for_rows(&tile, 8, largest))
            .define("WEIGHTS", self.weights())
            .define("WEIGHTED", weighted(&tile, 16, "weights", "sum"))
            .define(
                "TOTALS",
                for_rows(&tile, 4, |r| format!("of_lanes[{}] = total{r};", of_lane(r))),
            )
            .define("STORE", for_rows(&tile, 4, |r| self.store(r)))
            .body(REGISTERS)
    }

    fn sums(&self) -> String {
        for_rows(&self.tile, 4, |r| {
            let sums = self.tile.own().map(|c| format!("var sum{r}_{c} = vec4<f32>();"));
            let own = ["var largest{r} = p.lowest;", "var total{r} = 0.0;"];
            let own = own.map(|line| line.replace("{r}", &r.to_string()));
            sums.chain(own).collect::<Vec<_>>().join("\n")
        })
    }

    /// Updates the running maximum, the sum of exponentials and the sums of values by the scores
    /// `x0`, `x1`, ….
    fn weights(&self) -> String {
        for_rows(&self.tile, 8, |r| {
            let lanes = (0..self.tile.key_lanes).map(|i| format!("of_lanes[lanes{r} + {i}u]"));
            let top = lanes.fold(format!("largest{r}"), |top, x| format!("max({top}, {x})"));
            let shrunk: String =
                self.tile.own().map(|c| format!("sum{r}_{c} *= shrink{r};\n")).collect();
            format!(
                "let lanes{r} = ({}) * LANES;\nlet top{r} = {top};\nlet base{r} = \
                 base_of(top{r});\nlet shrink{r} = exp(largest{r} - base{r});\nlargest{r} = \
                 top{r};\nlet e{r} = exp(x{r} - base{r});\ntotal{r} = fma(total{r}, shrink{r}, \
                 (e{r}.x + e{r}.y) + (e{r}.z + e{r}.w));\n{shrunk}weights[lane * \
                 ROW_STRIDE + {0}] = weight_of(e{r}, {0}, s);",
                row(r)
            )
        })
    }

    fn store(&self, r: u32) -> String {
        let lanes = self.tile.key_lanes;
        let sums = self.tile.own();
        let sums = sums.map(|c| (format!("lane + {}u", c * lanes), format!("sum{r}_{c}")));
        self.operands.stores(&row(r), lanes, &format!("largest{r}"), sums)
    }
}

/// The place of an invocation's number for its row `r`.
fn of_lane(r: u32) -> String {
    format!("({}) * LANES + lane", row(r))
}

/// Makes scores of the products, and tells the other invocations of the row the largest one.
fn largest(r: u32) -> String {
    format!(
        "x{r} = scores_of(x{r}, row_of[{}], s, inside);\nof_lanes[{}] = largest_of(x{r});",
        row(r),
        of_lane(r)
    )
}

/// Binds an operand with `quad_NAME(at, c)`: group c of the row that starts at element `at`, as
/// halves or as f32.
pub fn operand(
    shader: Shader,
    x: &'static str,
    dtype: DType,
    (loads, halves): (Loads, bool),
    extent: &str,
) -> Shader {
    let (shader, value) = if halves {
        (vec4::bind_halves(shader, x), "f16")
    } else {
        (vec4::bind_read(shader, x, dtype), "f32")
    };
    match loads {
        Loads::Exact => shader.body(&format!(
            "fn quad_{x}(at: u32, c: u32) -> vec4<{value}> {{\n    return read_{x}((at >> 2u) + \
             c);\n}}\n"
        )),
        Loads::Padded => shader.body(&format!(
            "fn quad_{x}(at: u32, c: u32) -> vec4<{value}> {{\n    let is_inside = c * 4u < \
             p.{extent};\n    return select(vec4<{value}>(), read_{x}(select(0u, (at >> 2u) + c, \
             is_inside)), is_inside);\n}}\n"
        )),
    }
}

/// Binds a result with `store4_NAME(i, v)`, which counts in vec4s.
pub fn vec4s_stored(shader: Shader, x: &'static str, dtype: DType) -> Shader {
    let (before, words) = codec::pack(dtype);
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
