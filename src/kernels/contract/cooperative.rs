//! The program of cooperative matrices: operands in workgroup memory, which whole subgroups
//! multiply and sum in f32.
//!
//! The driver chooses the subgroup size within limits. A program is written for one subgroup size
//! and is correct with any other: if there are more subgroups than blocks, some repeat the work of
//! others; if there are fewer, each takes several rounds over the operands. Sums are added in the
//! same order in any case.
//!
//! Both tiles hold lines along k: rows of a and columns of b. Drivers then load the matrices of
//! either operand in a few wide accesses; from lines across k they loaded b element by element.

use std::fmt::Write;

use super::element::lane;
use super::matrix_text::{Factors, MatrixText};
use super::tile::{COOPERATIVE_DEPTH as DEPTH, MOST_BLOCKS, PADDING};
use super::{ALayoutKind, BLayoutKind, Lanes, TileVariant, walk, workgroup};
use crate::device::{Cooperative, Means};
use crate::dtype::DType;
use crate::shader::{Shader, codec};

const COOPERATIVE: &str = include_str!("../../../shaders/contract/cooperative.wgsl");
const DOUBLE: &str = include_str!("../../../shaders/contract/cooperative_double.wgsl");
const SINGLE: &str = include_str!("../../../shaders/contract/cooperative_single.wgsl");

/// Cuts a tile of `matrices_m` by `matrices_n` matrices into `count` blocks. Returns the number of
/// blocks in a column and in a row.
fn blocks(count: u32, matrices_m: u32, matrices_n: u32) -> (u32, u32) {
    let (mut blocks_m, mut blocks_n) = (1, 1);
    while blocks_m * blocks_n < count {
        // The longer side of a block is halved.
        let (m, n) = (matrices_m / blocks_m, matrices_n / blocks_n);
        if m >= n && m > 1 {
            blocks_m *= 2;
        } else if n > 1 {
            blocks_n *= 2;
        } else {
            break;
        }
    }
    (blocks_m, blocks_n)
}

/// The tiles of the operands.
const TILES: Factors = Factors { name: "tiles", a: ("tile_a", "LINE"), b: ("tile_b", "LINE") };

pub(super) fn program(shader: Shader, v: &TileVariant, cooperative: Cooperative) -> Shader {
    let Cooperative { size, lanes, means, .. } = cooperative;
    let tile = v.tile;
    let (m, n) = (tile.m() as u32, tile.n() as u32);
    let count = (tile.threads() / lanes).clamp(1, MOST_BLOCKS);
    let (blocks_m, blocks_n) = blocks(count, m / size.m, n / size.n);
    let (block_m, block_n) = (m / blocks_m, n / blocks_n);
    let text = MatrixText::new(cooperative);
    let (frags_m, frags_n) = (block_m / size.m, block_n / size.n);
    let (mut sums, mut step, mut stores) = (String::new(), String::new(), String::new());
    for i in 0..frags_m {
        let a = text.load_a(&TILES, &format!("at_a + {}u * LINE + i", i * size.m));
        let _ = writeln!(step, "                let a{i} = {a};");
    }
    for j in 0..frags_n {
        let b = text.load_b(&TILES, &format!("at_b + {}u * LINE + i", j * size.n));
        let _ = writeln!(step, "                let b{j} = {b};");
    }
    for i in 0..frags_m {
        for j in 0..frags_n {
            let zeros = text.zeros(("staged", "N"), "own", i * frags_n + j);
            let _ = writeln!(sums, "        var c{i}_{j} = {zeros};");
            let _ = writeln!(
                step,
                "                c{i}_{j} = {};",
                text.multiply_add(
                    &TILES,
                    [&format!("a{i}"), &format!("b{j}"), &format!("c{i}_{j}")]
                )
            );
            let _ = writeln!(
                stores,
                "        {}\n        workgroupBarrier();\n{}        workgroupBarrier();",
                text.store(&format!("c{i}_{j}"), "own", "N"),
                walk::staged_stores(v, i * size.m, j * size.n)
            );
        }
    }
    let mut multiplied = String::new();
    for (array, x) in [("a", "m"), ("b", "n")] {
        let _ = writeln!(
            multiplied,
            "            let at_{array} = current * PLACE + block_{x} * LINE;"
        );
    }
    let _ = write!(
        multiplied,
        "            for (var i = 0u; i < {DEPTH}u; i += K) {{\n{step}            }}"
    );
    let value = text.value();
    let [a, b] = operands(v, value);
    let each = |text: &dyn Fn(&Operand) -> String| text(&a) + &text(&b);
    let shader = text.declare(shader, &[TILES], frags_m * frags_n);
    // Emulated operands are f32, of which two places take more memory than there is.
    let buffers = if means == Means::Adapter { tile.buffers() } else { 1 };
    // Values on their way take registers: with one place, they are loaded when it is free.
    let steps = if buffers == 2 { DOUBLE } else { SINGLE };
    shader
        .define("LOOP", steps)
        .define("SUBGROUPS", text.subgroups())
        .define("ELEMENT", value)
        .define("TILE_M", format!("{m}u"))
        .define("TILE_N", format!("{n}u"))
        .define("DEPTH", format!("{DEPTH}u"))
        .define("LINE", format!("{}u", DEPTH + PADDING))
        .define("PLACE", format!("{}u", m * (DEPTH + PADDING)))
        .define("BUFFERS", format!("{buffers}u"))
        .define("BLOCKS_N", format!("{blocks_n}u"))
        .define("BLOCK_M", format!("{block_m}u"))
        .define("BLOCK_N", format!("{block_n}u"))
        .define("BLOCKS", format!("{}u", blocks_m * blocks_n))
        .define("SLOTS", each(&Operand::slots))
        .define("FIRST", each(&|x| x.loads(false)))
        .define("NEXT", each(&|x| x.loads(x.is_dense)))
        .define("PUTS", each(&Operand::puts))
        .define("SUMS", sums)
        .define("STEPS", multiplied)
        .define("STORES", stores)
        .body(&workgroup::fetch_text(v))
        .body(&each(&Operand::functions))
        .body(COOPERATIVE)
}

/// How the invocations of a workgroup bring an operand into its tile: each loads vec4s, along k or
/// across k, and stores lines of `steps` elements along k.
struct Operand {
    name: &'static str,
    lines: u32,
    threads: u32,
    /// Whether a vec4 is four neighbouring lines of a step, and not four steps of a line.
    across: bool,
    /// Whether one binding has its elements in vec4s, at a fixed distance for each step: the loads
    /// of whole steps need no check and little arithmetic.
    is_dense: bool,
    /// The values in `w`, what the binding has for four elements.
    values: &'static str,
    /// The type of the elements in the tile.
    value: &'static str,
}

/// The operands a and b of a variant.
fn operands(v: &TileVariant, value: &'static str) -> [Operand; 2] {
    let threads = v.tile.threads();
    let values = |x: (DType, Lanes)| if v.has_halves(x) { "w" } else { codec::unpack(x.0) };
    let is_single = v.terms == 1 && v.parts == 1;
    [
        Operand {
            name: "a",
            lines: v.tile.m() as u32,
            threads,
            across: v.a.1 == Lanes::Edge,
            is_dense: is_single && v.a_layout == ALayoutKind::Dense && v.a.1 != Lanes::One,
            values: values(v.a),
            value,
        },
        Operand {
            name: "b",
            lines: v.tile.n() as u32,
            threads,
            across: v.b.1 != Lanes::Depth,
            is_dense: is_single
                && v.weights.is_none()
                && v.b_layout == BLayoutKind::Dense
                && v.b.1 != Lanes::One,
            values: values(v.b),
            value,
        },
    ]
}

impl Operand {
    /// Steps of a slot's lines. A slot across k has four steps if there are enough slots, so that
    /// its elements change places in registers.
    fn steps(&self) -> u32 {
        if self.across { (self.lines * DEPTH / 4 / self.threads).clamp(1, 4) } else { 4 }
    }

    /// Lines of a slot.
    const fn width(&self) -> u32 {
        if self.across { 4 } else { 1 }
    }

    /// The number of slots of an invocation.
    fn count(&self) -> u32 {
        self.lines * DEPTH / (self.steps() * self.width() * self.threads)
    }

    /// What is the same in all steps: the first line and step of each slot, and where a dense
    /// operand's elements lie.
    fn slots(&self) -> String {
        let Self { name: x, lines, threads, across, .. } = *self;
        let (steps, width) = (self.steps(), self.width());
        let quads = if across { lines } else { DEPTH } / 4;
        let mut text = String::new();
        for t in 0..self.count() {
            let (line, step) = match (t, across) {
                (0, true) => (
                    format!("local_index % {quads}u * 4u"),
                    format!("local_index / {quads}u * {steps}u"),
                ),
                (0, false) => {
                    (format!("local_index / {quads}u"), format!("local_index % {quads}u * 4u"))
                }
                // The slots of an invocation differ by a constant.
                (t, true) => {
                    (format!("line_{x}0"), format!("step_{x}0 + {}u", t * threads / quads * steps))
                }
                (t, false) => {
                    (format!("line_{x}0 + {}u", t * threads / quads), format!("step_{x}0"))
                }
            };
            let _ = writeln!(text, "    let line_{x}{t} = {line};\n    let step_{x}{t} = {step};");
            let edge = match x {
                "a" => format!("a_row(min(place.m + line_a{t}, p.m - {width}u))"),
                _ => format!("place.n + line_b{t}"),
            };
            let _ = writeln!(text, "    let edge_{x}{t} = {edge};");
            if self.is_dense {
                let line = match x {
                    "a" => format!("edge_a{t}.at"),
                    _ => format!("min(edge_b{t}, p.n - {width}u) * p.b_column"),
                };
                let _ = writeln!(
                    text,
                    "    let base_{x}{t} = (place.{x} + {line} + step_{x}{t} * p.{x}_step) >> 2u;"
                );
            }
        }
        text
    }

    /// The loads of step `k`: of a dense operand's whole steps, or of those below `end`.
    fn loads(&self, whole: bool) -> String {
        let Self { name: x, value, across, .. } = *self;
        let load = |t: u32, j: u32| {
            if whole {
                return format!("quad_{x}(base_{x}{t}, ((k + {j}u) * p.{x}_step) >> 2u)");
            }
            let step = format!("k + step_{x}{t} + {j}u");
            let fetch = match x {
                "a" => format!("fetch_a(edge_a{t}, place.a, {step}, end)"),
                _ if across => format!("fetch_b(place.b, {step}, end, edge_b{t})"),
                _ => format!("fetch_b_column(place.b, {step}, end, edge_b{t})"),
            };
            format!("vec4<{value}>({fetch})")
        };
        let vec4s = if across { self.steps() } else { 1 };
        (0..self.count())
            .flat_map(|t| (0..vec4s).map(move |j| (t, j)))
            .map(|(t, j)| format!("            let {x}{t}_{j} = {};\n", load(t, j)))
            .collect()
    }

    /// The stores of what was loaded to the place that begins at `put`.
    fn puts(&self) -> String {
        let (x, value, steps) = (self.name, self.value, self.steps());
        let mut text = String::new();
        for (t, line) in (0..self.count()).flat_map(|t| (0..self.width()).map(move |l| (t, l))) {
            let at = format!("put + (line_{x}{t} + {line}u) * LINE + step_{x}{t}");
            let own = |j: u32| format!("{x}{t}_{j}.{}", lane(line));
            let _ = match (self.across, steps) {
                (false, _) => writeln!(text, "            put_{x}({at}, {x}{t}_0);"),
                (true, 4) => {
                    let turned: Vec<_> = (0..4).map(own).collect();
                    let turned = turned.join(", ");
                    writeln!(text, "            put_{x}({at}, vec4<{value}>({turned}));")
                }
                _ => (0..steps).try_for_each(|j| {
                    writeln!(text, "            tile_{x}[{at} + {j}u] = {};", own(j))
                }),
            };
        }
        text
    }

    /// `put`: stores four steps of a line; `quad`: loads a vec4 of a dense operand.
    fn functions(&self) -> String {
        let Self { name: x, value, values, .. } = *self;
        let mut text = String::new();
        if self.steps() == 4 {
            let stores: String =
                (0..4).map(|k| format!("    tile_{x}[at + {k}u] = v.{};\n", lane(k))).collect();
            let _ = writeln!(text, "fn put_{x}(at: u32, v: vec4<{value}>) {{\n{stores}}}\n");
        }
        if self.is_dense {
            let _ = writeln!(
                text,
                "fn quad_{x}(base: u32, step: u32) -> vec4<{value}> {{\n    let w = \
                 {x}[p.off_{x} + step + base];\n    return vec4<{value}>({values});\n}}\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_many_as_subgroups_and_nearly_square() {
        assert_eq!(blocks(8, 8, 8), (4, 2));
        assert_eq!(blocks(4, 4, 4), (2, 2));
        assert_eq!(blocks(1, 4, 4), (1, 1));
        assert_eq!(blocks(8, 1, 2), (1, 2));
    }
}
