//! The shaders of the gradient.

use std::fmt::Write;

use super::super::lines::{columns, for_rows, indented, product, row, weighted};
use super::super::register_tile::{self, RegisterTile, Role};
use super::super::text::{
    Loads, RESULT_ROW, SUM_OF_PRODUCTS, Scoring, operand, score, vec4s_stored,
};
use crate::device::Key;
use crate::dtype::DType;
use crate::shader::Shader;

const REGISTERS: &str = include_str!("../../../../../shaders/fused/attention_grad_registers.wgsl");
const PRODUCTS: &str = include_str!("../../../../../shaders/fused/attention_grad_products.wgsl");
const SUMS: &str = include_str!("../../../../../shaders/fused/attention_grad_sums.wgsl");
const QUERY: &str = include_str!("../../../../../shaders/fused/attention_grad_query.wgsl");
const KEY: &str = include_str!("../../../../../shaders/fused/attention_grad_key.wgsl");
const ROWS: &str = include_str!("../../../../../shaders/fused/attention_grad_rows.wgsl");
const WEIGHTS: &str = include_str!("../../../../../shaders/fused/attention_grad_weights.wgsl");

/// The numbers of the own rows, read from where an earlier program has stored them.
const STORED_NUMBERS: &str = "\
    for (var slot = local_index; slot < ROWS; slot += WORKGROUP) {
        numbers[slot] = stored_numbers(b, h, min(first_row + slot, count - 1u));
    }";

/// The numbers of the own rows, computed and stored.
const MADE_NUMBERS: &str = "\
    workgroupBarrier();
    for (var slot = local_index; slot < ROWS; slot += WORKGROUP) {
        let t = min(first_row + slot, count - 1u);
        let at = result_row(b, h, t);
        var own_product = 0.0;
        for (var quad = 0u; quad < VEC4S; quad += 1u) {
            own_product += dot(own_width[quad * ROWS + slot], quad_result(at * p.width, quad));
        }
        let largest = load_saved(at * 2u);
        let base = select(largest, 0.0, largest < LOWEST_FINITE);
        let factor = 1.0 / load_saved(at * 2u + 1u);
        store_rows(at * 3u, base);
        store_rows(at * 3u + 1u, factor);
        store_rows(at * 3u + 2u, own_product);
        numbers[slot] = vec4<u32>(bitcast<u32>(base), bitcast<u32>(factor),
            bitcast<u32>(own_product), b * p.m_b + h * p.m_h + t * p.m_t);
    }";

/// The numbers of the positions.
const POSITION_NUMBERS: &str = "\
        for (var slot = local_index; slot < POSITIONS; slot += WORKGROUP) {
            numbers[slot] = stored_numbers(b, h, min(first + slot, p.queries - 1u));
        }";

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
pub struct GradientText {
    /// Type of operands and gradients.
    pub dtype: DType,
    /// Type of the mask.
    pub mask: Option<DType>,
    /// How rows are loaded.
    pub loads: Loads,
    /// The operand whose gradient it computes.
    pub side: Side,
    /// The part of the gradient that a workgroup computes.
    pub tile: RegisterTile,
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
        for (tile, kinds) in register_tile::all(Role::Gradient) {
            for loads in [Loads::Exact, Loads::Padded] {
                for (dtype, rows) in types.iter().flat_map(|t| rows_of(side).map(|r| (*t, r))) {
                    let variant =
                        GradientText { dtype, mask: None, loads, side, tile, rows, cut: false };
                    let masks = std::iter::once(None).chain(masks.iter().copied().map(Some));
                    let masks = masks.take(if tile.vec4s == 4 { usize::MAX } else { 1 });
                    let mut all: Vec<_> =
                        masks.map(|mask| GradientText { mask, ..variant }).collect();
                    if dtype == DType::F32 && tile.vec4s == 4 {
                        all.push(GradientText { cut: true, ..variant });
                    }
                    let shaders = all.iter().map(GradientText::shader);
                    out.extend(shaders.map(|shader| shader.only(kinds.iter().copied())));
                }
            }
        }
    }
    out
}

impl GradientText {
    /// The key of its pipeline.
    pub fn key(&self) -> Key {
        let key = Key::new("attention_grad")
            .dtype(self.dtype)
            .number(self.loads as u32)
            .number(self.side as u32)
            .number(self.rows as u32)
            .number(u32::from(self.cut));
        let key = key.number(self.tile.vec4s).number(self.tile.rows);
        self.mask.map_or(key.clone(), |mask| key.dtype(mask))
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let Self { dtype, mask, loads, side, tile, rows, cut } = *self;
        let mut shader = Shader::new(format!(
            "attention gradient {dtype}, mask {mask:?}, {loads:?}, {side:?}, rows {rows:?}, cut \
             {cut}, {} vec4s, {} rows of {} lanes",
            tile.vec4s, tile.rows, tile.row_lanes
        ))
        .workgroup([tile.lanes(), 1, 1]);
        for (name, extent) in
            [("query", "depth"), ("key", "depth"), ("value", "width"), ("gradient", "width")]
        {
            shader = operand(shader, name, dtype, (loads, false), extent);
        }
        if rows == Rows::Made {
            shader =
                operand(shader, "result", dtype, (loads, false), "width").bind("saved", DType::F32);
        }
        shader = shader.bind("rows", DType::F32);
        for sum in side.sums() {
            shader = vec4s_stored(shader, sum.gradient, dtype);
        }
        if let Some(mask) = mask {
            shader = shader.bind("extra", mask);
        }
        shader = score(shader.u32s(PARAMS), Scoring::uncapped(mask))
            .body(RESULT_ROW)
            .body(SUM_OF_PRODUCTS);
        if cut {
            shader = shader.u32s(&["low", "high"]);
        }
        let (first, end) = if cut {
            ("max(first_position(first_row), p.low)", "min(end, p.high)")
        } else {
            ("first_position(first_row)", "end")
        };
        let (weights, numbers, functions) = match side {
            Side::Queries => ("", "ROWS", QUERY),
            Side::Keys => (
                "// The weights of the same.\nvar<workgroup> weights: array<vec4<f32>, LANES * \
                 ROW_STRIDE>;",
                "POSITIONS",
                KEY,
            ),
        };
        let (own, of_positions) = match (side, rows) {
            (Side::Keys, _) => ("", POSITION_NUMBERS),
            (Side::Queries, Rows::Stored) => (STORED_NUMBERS, ""),
            (Side::Queries, Rows::Made) => (MADE_NUMBERS, ""),
        };
        let products = |width: &str, sum: &str| {
            let own = format!("own_{width}[own_at + ");
            let lines = for_rows(&tile, 16, |r| product(&format!("{sum}{r}"), &own, r));
            PRODUCTS
                .replace("{{WIDTH}}", width)
                .replace("{{COLUMNS}}", &columns(16))
                .replace("{{PRODUCTS}}", &lines)
        };
        let zeros = |r| format!("var score{r} = vec4<f32>();\nvar change{r} = vec4<f32>();");
        let added = side.sums().iter().map(|sum| {
            SUMS.replace("{{WIDTH}}", sum.width)
                .replace("{{WEIGHTED}}", &weighted(&tile, 16, sum.weights, sum.name))
        });
        shader
            .define("ROW_LANES", tile.row_lanes.to_string())
            .define("LANES", tile.key_lanes.to_string())
            .define("ROWS", tile.workgroup_rows().to_string())
            .define("VEC4S", tile.vec4s.to_string())
            .define("QUADS", tile.key_quads().to_string())
            .define("WHOLE", tile.values().to_string())
            .define("TILE", tile.part().to_string())
            .define("WEIGHTS", weights)
            .define("NUMBERS", numbers)
            .define("SIDE", functions)
            .define("OWN_NUMBERS", own)
            .define("POSITION_NUMBERS", of_positions)
            .define("FIRST", first)
            .define("END", end)
            .define("SUMS", self.sums())
            .define("ZEROS", for_rows(&tile, 8, zeros))
            .define("PRODUCTS", products("depth", "score") + &products("width", "change"))
            .define("PAIRS", for_rows(&tile, 8, |r| self.pairs(r)))
            .define("ADD", added.collect::<String>())
            .define("STORE", for_rows(&tile, 4, |r| self.store(r)))
            .body(REGISTERS)
    }

    fn sums(&self) -> String {
        let names = self.side.sums().iter().map(|sum| sum.name);
        let sums = names.flat_map(|name| {
            let own = (0..self.tile.rows).flat_map(|r| self.tile.own().map(move |c| (r, c)));
            own.map(move |(r, c)| format!("var {name}{r}_{c} = vec4<f32>();"))
        });
        indented(4, sums)
    }

    /// The gradients of scores, and the weights, of a row and four positions.
    fn pairs(&self, r: u32) -> String {
        let row = row(r);
        let mut out = format!("let row{r} = min(first_row + {row}, count - 1u);\n");
        for (j, part) in ["x", "y", "z", "w"].into_iter().enumerate() {
            let _ = writeln!(
                out,
                "let pair{r}_{j} = pair_of(score{r}.{part}, change{r}.{part}, row{r}, {row}, \
                 first + 4u * lane + {j}u, 4u * lane + {j}u, end);"
            );
        }
        for sum in self.side.sums() {
            let parts: Vec<_> = (0..4).map(|j| format!("pair{r}_{j}.{}", sum.part)).collect();
            let _ = writeln!(
                out,
                "{}[lane * ROW_STRIDE + {row}] = vec4<f32>({});",
                sum.weights,
                parts.join(", ")
            );
        }
        out
    }

    fn store(&self, r: u32) -> String {
        let mut out = format!("if first_row + {} < count {{\n", row(r));
        for sum in self.side.sums() {
            let (gradient, width) = (sum.gradient, sum.width);
            let _ = writeln!(
                out,
                "    let {gradient}_at = own_{width}_at(b, h, first_row + {}) >> 2u;",
                row(r)
            );
            for c in self.tile.own() {
                let quad = format!("lane + {}u", c * self.tile.key_lanes);
                let store = format!(
                    "store4_{gradient}({gradient}_at + {quad}, {}{r}_{c}{});",
                    sum.name, sum.factor
                );
                let _ = match self.loads {
                    Loads::Exact => writeln!(out, "    {store}"),
                    Loads::Padded => writeln!(
                        out,
                        "    if ({quad}) * 4u < p.{} {{\n        {store}\n    }}",
                        sum.width
                    ),
                };
            }
        }
        out + "}"
    }
}

/// Sums of a program, which become one gradient.
struct Sum {
    /// The gradient's binding.
    gradient: &'static str,
    /// The beginning of the sums' names.
    name: &'static str,
    /// The weights of the positions.
    weights: &'static str,
    /// The part of a pair that is the weight.
    part: &'static str,
    /// The operand of each position, which is as wide as keys (`depth`) or as values (`width`).
    width: &'static str,
    /// A last factor.
    factor: &'static str,
}

const OF_SCORES: Sum = Sum {
    gradient: "query_gradient",
    name: "sum",
    weights: "changes",
    part: "x",
    width: "depth",
    factor: " * p.scale",
};

const OF_WEIGHTS: Sum = Sum {
    gradient: "value_gradient",
    name: "value_sum",
    weights: "weights",
    part: "y",
    width: "width",
    factor: "",
};

impl Side {
    const fn sums(self) -> &'static [Sum] {
        match self {
            Self::Queries => &[OF_SCORES],
            Self::Keys => &[Sum { gradient: "key_gradient", ..OF_SCORES }, OF_WEIGHTS],
        }
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
    score(shader, Scoring::uncapped(mask)).workgroup([lanes, 1, 1]).body(WEIGHTS)
}
