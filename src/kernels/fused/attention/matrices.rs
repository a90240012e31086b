//! The program of attention that multiplies cooperative matrices: which part of the result a
//! workgroup computes, and the text.
//!
//! Sums of cooperative matrices belong to whole subgroups, and no invocation knows which of them it
//! holds. So the scores go through workgroup memory to the invocations that make weights of them,
//! and the weighted values of [`KEYS`] keys go there to be added to the row's sums in registers:
//! these grow by more than products, since a larger maximum scales them down.

use std::fmt::Write;

use super::lines::indented;
use super::shape::Geometry;
use super::text::{Loads, Operands};
use crate::device::{Cooperative, Key, Profile};
use crate::kernels::contract::matrix_text::{Factors, MatrixText};
use crate::kernels::contract::tile::PADDING;
use crate::kind::Kind;
use crate::shader::Shader;

const MATRICES: &str = include_str!("../../../../shaders/fused/attention_matrices.wgsl");

/// Keys that a workgroup takes at a time.
pub const KEYS: u32 = 32;
/// Rows of a subgroup's block: as many as one matrix has, or two.
const BLOCK: u32 = 16;
/// The most elements of a row: with more, sums take more than 64 registers of an invocation.
const MOST_WIDTH: usize = 256;
/// The most sums of an invocation with many registers, and with few: with 16 of them Intel's
/// compiler for bmg (Mesa 26.2.6) spills 13 registers.
const MANY_SUMS: u32 = 64;
const FEW_SUMS: u32 = 8;
/// The most bytes of workgroup memory: with more, most GPUs run one workgroup at a time.
const MOST_MEMORY: u32 = 48 << 10;
/// The most invocations of a workgroup.
const MOST_THREADS: u32 = 256;
/// The fewest rows and keys that are worth matrices: one block, and one step.
const FEWEST: [usize; 2] = [16, 32];

/// Scores: rows of the query by keys.
const SCORES: Factors =
    Factors { name: "scores", a: ("query_tile", "DEPTH_LINE"), b: ("tile", "DEPTH_LINE") };
/// Weighted values: weights by elements of values.
const VALUES: Factors =
    Factors { name: "values", a: ("weights", "KEY_LINE"), b: ("tile", "KEY_LINE") };

/// The part of the result that a workgroup computes: `rows` rows, with `lanes` invocations each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixTile {
    /// Rows: 32 or 64.
    pub rows: u32,
    /// Invocations of a row.
    pub lanes: u32,
    /// Elements of a row of query and key, a multiple of 16.
    pub depth: u32,
    /// Elements of a value, a multiple of 16.
    pub width: u32,
    /// The matrices.
    pub cooperative: Cooperative,
}

impl MatrixTile {
    /// The tile for `matrices` of `rows` rows. None if the rows are too few or too wide.
    pub fn of(
        profile: &Profile,
        cooperative: Cooperative,
        g: &Geometry,
        [rows, matrices]: [usize; 2],
    ) -> Option<Self> {
        if rows < FEWEST[0] || g.keys < FEWEST[1] || g.depth.max(g.width) > MOST_WIDTH {
            return None;
        }
        let [depth, width] = [g.depth, g.width].map(|n| n.next_multiple_of(16) as u32);
        let sums = if profile.kind() == Kind::ManyRegisters { MANY_SUMS } else { FEW_SUMS };
        let least = if cooperative.lanes >= 64 { 4 } else { 2 };
        let of = |rows: u32| {
            let tile = Self { rows, lanes: 0, depth, width, cooperative };
            let wanted = width.div_ceil(sums).next_power_of_two();
            Self { lanes: wanted.clamp(least, tile.most_lanes()), ..tile }
        };
        let (tile, half) = (of(64), of(32));
        let memory = profile.capabilities.workgroup_memory.min(MOST_MEMORY);
        let fits = |tile: &Self| width <= sums * tile.lanes && tile.memory() <= memory;
        let is_busy = tile.workgroups(rows, matrices) >= profile.workgroups;
        [(rows > 32 && is_busy).then_some(tile), Some(half)].into_iter().flatten().find(fits)
    }

    /// Every tile with these matrices and this width of rows, for the list of variants.
    pub fn all(cooperative: Cooperative, width: u32) -> impl Iterator<Item = Self> {
        let of = move |rows, lanes| Self { rows, lanes, depth: width, width, cooperative };
        let tiles = [32, 64].into_iter().flat_map(move |rows| [2, 4, 8].map(|n| of(rows, n)));
        tiles.filter(|tile| tile.lanes <= tile.most_lanes() && tile.memory() <= MOST_MEMORY)
    }

    /// The most invocations of a row.
    fn most_lanes(&self) -> u32 {
        (self.slab() / 4).min(MOST_THREADS / self.rows)
    }

    /// Workgroups for `matrices` of `rows` rows.
    pub const fn workgroups(&self, rows: usize, matrices: usize) -> usize {
        rows.div_ceil(self.rows as usize) * matrices
    }

    /// Invocations of a workgroup.
    const fn threads(&self) -> u32 {
        self.rows * self.lanes
    }

    /// Columns of the sums that go through workgroup memory at a time.
    const fn slab(&self) -> u32 {
        if self.width.is_multiple_of(32) { 32 } else { 16 }
    }

    /// The parts of a block of rows by columns, so that each subgroup has one.
    fn columns(&self) -> u32 {
        let subgroups = self.threads() / self.cooperative.lanes;
        let most = self.slab() / self.cooperative.size.n;
        (subgroups / (self.rows / BLOCK)).clamp(1, most.min(2))
    }

    /// Bytes of workgroup memory.
    pub fn memory(&self) -> u32 {
        let Self { rows, depth, width, .. } = *self;
        let [depth_line, key_line] = [depth, KEYS].map(|n| n + PADDING);
        let tile = (KEYS * depth_line).max(width * key_line);
        let factors = rows * (depth_line + key_line) + tile;
        let sums = rows * (KEYS.max(self.slab()) + 4) + self.cooperative.size.sums();
        MatrixText::new(self.cooperative).bytes() * factors
            + 4 * (sums + self.threads())
            + 16 * rows
    }
}

/// All that the text of the program depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOfMatrices {
    /// What it reads and stores.
    pub operands: Operands,
    /// The part of the result that a workgroup computes.
    pub tile: MatrixTile,
}

impl TextOfMatrices {
    /// How rows with these widths are loaded.
    pub fn loads(tile: &MatrixTile, g: &Geometry) -> Loads {
        let is_exact = [g.depth, g.width] == [tile.depth, tile.width].map(|n| n as usize);
        if is_exact { Loads::Exact } else { Loads::Padded }
    }

    /// The key of its pipeline.
    pub fn key(&self) -> Key {
        let MatrixTile { rows, lanes, depth, width, cooperative } = self.tile;
        [rows, lanes, depth, width, cooperative.id()]
            .into_iter()
            .fold(self.operands.key("attention matrices"), Key::number)
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let Self { operands, tile } = *self;
        let text = MatrixText::new(tile.cooperative);
        let value = text.value();
        let shader = Shader::new(format!("attention matrices {operands:?}, {tile:?}")).workgroup([
            tile.threads(),
            1,
            1,
        ]);
        let size = tile.cooperative.size;
        let matrices = |columns: u32| (BLOCK / size.m) * (columns / tile.columns() / size.n);
        let most = matrices(KEYS).max(matrices(tile.slab()));
        let shader = text.declare(shader, &[SCORES, VALUES], most);
        operands
            .declare(shader, value == "f16")
            .define("ROWS", tile.rows.to_string())
            .define("LANES", tile.lanes.to_string())
            .define("KEYS", KEYS.to_string())
            .define("BLOCK", BLOCK.to_string())
            .define("COLUMNS", tile.columns().to_string())
            .define("DEPTH", tile.depth.to_string())
            .define("WIDTH", tile.width.to_string())
            .define("SLAB", tile.slab().to_string())
            .define("PADDING", PADDING.to_string())
            .define("ELEMENT", value)
            .define("SUBGROUPS", text.subgroups())
            .define("SUMS", self.sums())
            .define("SCORES", self.products(&SCORES, "DEPTH", KEYS, 0))
            .define("LARGEST", self.largest())
            .define("WEIGHTS", self.weights())
            .define("SLABS", self.slabs())
            .define("STORE", self.store())
            .body(MATRICES)
    }

    /// The groups of four that an invocation has of `columns` columns.
    fn own(&self, columns: u32) -> impl Iterator<Item = u32> + use<> {
        0..columns / 4 / self.tile.lanes
    }

    /// The slabs of the sums, each with an invocation's groups of four in it.
    fn own_sums(&self) -> impl Iterator<Item = (u32, u32)> + use<'_> {
        let slabs = 0..self.tile.width / self.tile.slab();
        slabs.flat_map(|s| self.own(self.tile.slab()).map(move |i| (s, i)))
    }

    fn sums(&self) -> String {
        let sums = self.own_sums().map(|(s, i)| format!("var sum{s}_{i} = vec4<f32>();"));
        indented(4, sums)
    }

    /// The products of a subgroup's blocks: `depth` steps, for `columns` columns from `first` on,
    /// which go to `staged`.
    fn products(&self, factors: &Factors, depth: &str, columns: u32, first: u32) -> String {
        let text = MatrixText::new(self.tile.cooperative);
        let size = self.tile.cooperative.size;
        let columns = columns / self.tile.columns();
        let (frags_m, frags_n) = (BLOCK / size.m, columns / size.n);
        let frags = || (0..frags_m).flat_map(|i| (0..frags_n).map(move |j| (i, j)));
        let Factors { a: (_, line_a), b: (_, line_b), .. } = factors;
        let (mut sums, mut step, mut stores) = (String::new(), String::new(), String::new());
        for i in 0..frags_m {
            let a = text.load_a(factors, &format!("at_a + {}u * {line_a} + i", i * size.m));
            let _ = writeln!(step, "        let a{i} = {a};");
        }
        for j in 0..frags_n {
            let b = text.load_b(factors, &format!("at_b + {}u * {line_b} + i", j * size.n));
            let _ = writeln!(step, "        let b{j} = {b};");
        }
        for (i, j) in frags() {
            let c = format!("c{i}_{j}");
            let zeros = text.zeros(("no_sums", "N"), "0", i * frags_n + j);
            let sum = text.multiply_add(factors, [&format!("a{i}"), &format!("b{j}"), &c]);
            let at = format!(
                "(row_first + {}u) * STAGED_LINE + column_first + {}u",
                i * size.m,
                j * size.n
            );
            let _ = writeln!(sums, "    var {c} = {zeros};");
            let _ = writeln!(step, "        {c} = {sum};");
            let _ = writeln!(stores, "    {}", text.store(&c, &at, "STAGED_LINE"));
        }
        indented(
            8,
            std::iter::once(format!(
                "for (var round = 0u; round < BLOCKS; round += count) {{\n    let block = \
                 min(round + subgroup_id % count, BLOCKS - 1u);\n    let row_first = block / \
                 COLUMNS * BLOCK;\n    let column_first = block % COLUMNS * {columns}u;\n    let \
                 at_a = row_first * {line_a};\n    let at_b = ({first}u + column_first) * \
                 {line_b};\n{sums}    for (var i = 0u; i < {depth}; i += K) {{\n{step}    \
                 }}\n{stores}}}"
            )),
        )
    }

    /// Makes scores of the products, and tells the other invocations of the row the largest one.
    fn largest(&self) -> String {
        let lanes = self.tile.lanes;
        let scores = self.own(KEYS).map(|i| {
            format!(
                "let own{i} = vec4<u32>(s_first + (lane + {0}u) * 4u) + vec4<u32>(0u, 1u, 2u, \
                 3u);\nlet s{i} = min(own{i}, vec4<u32>(p.keys - 1u));\nlet x{i} = \
                 scores_of(staged_quad(row * STAGED_LINE + (lane + {0}u) * 4u), row_of[row], \
                 s{i}, own{i} < vec4<u32>(end));",
                i * lanes
            )
        });
        let largest = self.own(KEYS).map(|i| format!("largest_of(x{i})"));
        let largest = largest.reduce(|all, x| format!("max({all}, {x})")).unwrap_or_default();
        let told = format!("of_lanes[local_index] = {largest};");
        indented(8, scores.chain(std::iter::once(told)))
    }

    /// Updates the running maximum and the sum of exponentials, and stores the weights.
    fn weights(&self) -> String {
        let lanes = (0..self.tile.lanes).map(|i| format!("of_lanes[row * LANES + {i}u]"));
        let top = lanes.fold("largest".to_owned(), |top, x| format!("max({top}, {x})"));
        let start = format!(
            "let top = {top};\nlet base = base_of(top);\nlet shrink = exp(largest - \
             base);\nlargest = top;"
        );
        let each = self.own(KEYS).map(|i| {
            let factor = if i == 0 { "shrink" } else { "1.0" };
            format!(
                "let e{i} = exp(x{i} - base);\ntotal = fma(total, {factor}, (e{i}.x + e{i}.y) \
                 + (e{i}.z + e{i}.w));\nput_weights(row * KEY_LINE + (lane + {0}u) * 4u, \
                 weight_of(e{i}, row, s{i}));",
                i * self.tile.lanes
            )
        });
        indented(8, std::iter::once(start).chain(each))
    }

    /// Adds the weighted values, a slab of columns after the other.
    fn slabs(&self) -> String {
        let slab = self.tile.slab();
        let count = self.tile.width / slab;
        let slabs = (0..count).map(|s| {
            let products = self.products(&VALUES, "KEYS", slab, s * slab);
            let sums = self.own(slab).map(|i| {
                format!(
                    "sum{s}_{i} = fma(sum{s}_{i}, vec4<f32>(shrink), staged_quad(row * \
                     STAGED_LINE + (lane + {}u) * 4u));",
                    i * self.tile.lanes
                )
            });
            let last = (s + 1 < count).then(|| "workgroupBarrier();".to_owned());
            let after = std::iter::once("workgroupBarrier();".to_owned()).chain(sums).chain(last);
            format!("{products}\n{}", indented(8, after))
        });
        slabs.collect::<Vec<_>>().join("\n")
    }

    fn store(&self) -> String {
        let quads = self.tile.slab() / 4;
        let sums = self.own_sums().map(|(s, i)| {
            (format!("lane + {}u", s * quads + i * self.tile.lanes), format!("sum{s}_{i}"))
        });
        indented(4, std::iter::once(self.operands.stores("row", self.tile.lanes, "largest", sums)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Capabilities, MatrixSize};
    use crate::kernels::fused::attention::shape::{Heads, Layout};

    const MEMORY: u32 = 32 << 10;

    fn tile(
        base: Profile,
        cooperative: Cooperative,
        [rows, keys, width]: [usize; 3],
        matrices: usize,
    ) -> Option<MatrixTile> {
        let capabilities = Capabilities { workgroup_memory: MEMORY, ..base.capabilities };
        let profile = Profile { capabilities, ..base };
        let dims = |n| [matrices, 1, n, width];
        let shapes = [&dims(rows)[..], &dims(keys), &dims(keys)];
        let g = Geometry::new(shapes, None, Layout::HeadsFirst, Heads::Equal).unwrap();
        MatrixTile::of(&profile, cooperative, &g, [rows, matrices])
    }

    #[test]
    fn tiles_suit_the_rows_and_fit() {
        let nvidia = |sizes, n| tile(Profile::NVIDIA, Cooperative::F16, sizes, n);
        let shape = |tile: MatrixTile| (tile.rows, tile.lanes, tile.columns());
        assert_eq!(nvidia([128, 128, 64], 384).map(shape), Some((64, 2, 1)));
        assert_eq!(nvidia([128, 128, 64], 12).map(shape), Some((32, 2, 1)), "few workgroups");
        assert_eq!(nvidia([20, 128, 64], 999).map(shape), Some((32, 2, 1)), "few rows");
        assert_eq!(nvidia([128, 128, 128], 384).map(shape), Some((32, 2, 1)), "wide rows");
        assert_eq!(nvidia([15, 128, 64], 384), None);
        assert_eq!(nvidia([128, 31, 64], 384), None);
        assert_eq!(nvidia([128, 128, 257], 384), None);
        // AMD's subgroups of 64 invocations have 16 rows each.
        let amd = Cooperative { lanes: 64, ..Cooperative::F16 };
        assert_eq!(tile(Profile::AMD, amd, [128, 128, 64], 384).map(shape), Some((64, 4, 1)));
        let intel = Cooperative { size: MatrixSize::new(8, 16, 16), ..Cooperative::F16 };
        let intel = |width| tile(Profile::INTEL, intel, [128, 128, width], 384).map(shape);
        assert_eq!(intel(32), Some((64, 4, 2)));
        assert_eq!(intel(64), Some((32, 8, 2)));
        assert_eq!(intel(128), None, "too many sums");
    }

    #[test]
    fn invocations_share_rows_and_slabs_evenly() {
        for width in (16..=256).step_by(16) {
            for tile in MatrixTile::all(Cooperative::F16, width) {
                assert!(tile.threads() <= MOST_THREADS, "{tile:?}");
                let quads = [KEYS / 4, tile.slab() / 4];
                assert!(quads.iter().all(|n| n.is_multiple_of(tile.lanes)), "{tile:?}");
                assert!(width.is_multiple_of(tile.slab()), "{tile:?}");
            }
        }
    }
}
