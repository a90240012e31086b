//! The program of cooperative matrices: operands in workgroup memory, which whole subgroups
//! multiply and sum in f32.
//!
//! The driver chooses the subgroup size within limits. A program is written for one subgroup size
//! and is correct with any other: if there are more subgroups than blocks, some repeat the work of
//! others; if there are fewer, each takes several rounds over the operands. Sums are added in the
//! same order in any case.

use std::fmt::Write;

use super::tile::{COOPERATIVE_DEPTH as DEPTH, MOST_BLOCKS, PADDING};
use super::workgroup::{self, Place, Slot};
use super::{Lanes, TileVariant, walk};
use crate::device::{Cooperative, MatrixSize, Means};
use crate::dtype::DType;
use crate::shader::Shader;

const COOPERATIVE: &str = include_str!("../../../shaders/contract/cooperative.wgsl");
const EMULATED: &str = include_str!("../../../shaders/contract/emulated.wgsl");

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

pub(super) fn program(shader: Shader, v: &TileVariant, cooperative: Cooperative) -> Shader {
    let Cooperative { size, element, lanes, means, .. } = cooperative;
    let shader =
        shader.builtin("subgroup_id", "subgroup_id").builtin("num_subgroups", "num_subgroups");
    let tile = v.tile;
    let (m, n) = (tile.m() as u32, tile.n() as u32);
    let count = (tile.threads() / lanes).clamp(1, MOST_BLOCKS);
    let (blocks_m, blocks_n) = blocks(count, m / size.m, n / size.n);
    let (block_m, block_n) = (m / blocks_m, n / blocks_n);
    let mut rows = String::new();
    let place = Place {
        k: "k",
        a: &|_, row, step, name| format!("put_a({row}, {step}, {name});"),
        b: &|_, step, quad, name| format!("put_b({step}, {quad} * 4u, {name});"),
    };
    let slots = workgroup::slots(v, DEPTH, &place, &mut rows);
    let own = Text { size, element, means };
    let (frags_m, frags_n) = (block_m / size.m, block_n / size.n);
    let (mut sums, mut step, mut stores) = (String::new(), String::new(), String::new());
    for i in 0..frags_m {
        let a =
            own.load("tile_a", &format!("(block_m + {}u) * A_LINE + i", i * size.m), "A", "A_LINE");
        let _ = writeln!(step, "                let a{i} = {a};");
    }
    for j in 0..frags_n {
        let b =
            own.load("tile_b", &format!("i * B_LINE + block_n + {}u", j * size.n), "B", "B_LINE");
        let _ = writeln!(step, "                let b{j} = {b};");
    }
    for i in 0..frags_m {
        for j in 0..frags_n {
            let zeros = match means {
                Means::Adapter => own.load("staged", "own", "C", "N"),
                _ => format!("zeros({}u, local_index)", (i * frags_n + j) * size.sums() / 8),
            };
            let _ = writeln!(sums, "        var c{i}_{j} = {zeros};");
            let _ = writeln!(step, "                c{i}_{j} = {};", own.multiply_add(i, j));
            let _ = writeln!(
                stores,
                "        {}\n        workgroupBarrier();\n{}        workgroupBarrier();",
                own.store(i, j),
                walk::staged_stores(v, i * size.m, j * size.n)
            );
        }
    }
    let by_rows = v.a.1 == Lanes::Edge;
    let value = own.value();
    let shader = match means {
        Means::Adapter => {
            let shader = if value == "f16" { shader.enable("f16") } else { shader };
            let shader = shader.enable("wgpu_cooperative_matrix");
            if size.is_square() { shader } else { shader.matrices([size.m, size.n, size.k]) }
        }
        _ => shader,
    };
    shader
        .define("MATRICES", own.declarations())
        .define("MATRICES_OF_BLOCK", format!("{}u", frags_m * frags_n))
        .define("SUBGROUPS", if means == Means::TwoSubgroups { "2u" } else { "num_subgroups" })
        .define(
            "PRODUCTS",
            format!("{}u", if means == Means::WrongEmulation { size.k - 1 } else { size.k }),
        )
        .define("ELEMENT", value)
        .define("TILE_M", format!("{m}u"))
        .define("TILE_N", format!("{n}u"))
        .define("DEPTH", format!("{DEPTH}u"))
        .define("A_LINE", format!("{}u", DEPTH + PADDING))
        .define("B_LINE", format!("{}u", n + PADDING))
        .define("A_NEXT", if by_rows { "A_LINE" } else { "1u" })
        .define("M", format!("{}u", size.m))
        .define("N", format!("{}u", size.n))
        .define("K", format!("{}u", size.k))
        .define("BLOCKS_N", format!("{blocks_n}u"))
        .define("BLOCK_M", format!("{block_m}u"))
        .define("BLOCK_N", format!("{block_n}u"))
        .define("BLOCKS", format!("{}u", blocks_m * blocks_n))
        .define("A_ROWS", rows)
        .define("LOADS", indented(slots.iter().map(Slot::load)))
        .define("PUTS", indented(slots.iter().map(Slot::store)))
        .define("SUMS", sums)
        .define("STEP", step)
        .define("STORES", stores)
        .body(&workgroup::fetch_text(v))
        .body(COOPERATIVE)
}

/// Indents the lines of a loop within another loop.
fn indented(texts: impl Iterator<Item = String>) -> String {
    texts.flat_map(|t| t.lines().map(|line| format!("    {line}\n")).collect::<Vec<_>>()).collect()
}

/// How matrices are written.
struct Text {
    size: MatrixSize,
    element: DType,
    means: Means,
}

impl Text {
    /// The type of the factors. Emulations compute in f32, which holds values of f16 exactly.
    const fn value(&self) -> &'static str {
        match (self.means, self.element) {
            (Means::Adapter, DType::F16) => "f16",
            _ => "f32",
        }
    }

    /// A matrix at element `at` of the workgroup's `array`, whose rows are `line` elements apart.
    fn load(&self, array: &str, at: &str, role: &str, line: &str) -> String {
        match self.means {
            Means::Adapter => format!("coopLoadT<Matrix{role}>(&{array}[{at}], {line})"),
            _ => at.to_owned(),
        }
    }

    fn multiply_add(&self, i: u32, j: u32) -> String {
        match self.means {
            Means::Adapter => format!("coopMultiplyAdd(a{i}, b{j}, c{i}_{j})"),
            Means::Nonsense => format!("no_such_function(a{i}, b{j}, c{i}_{j}, local_index)"),
            _ => format!("multiply_add(a{i}, b{j}, c{i}_{j}, local_index)"),
        }
    }

    fn store(&self, i: u32, j: u32) -> String {
        match self.means {
            Means::Adapter => format!("coopStoreT(c{i}_{j}, &staged[own], N);"),
            _ => format!("store_matrix(c{i}_{j}, own, local_index);"),
        }
    }

    fn declarations(&self) -> String {
        if self.means != Means::Adapter {
            return EMULATED.to_owned();
        }
        let MatrixSize { m, n, k } = self.size;
        // WGSL has no name for matrices that are not square: they get their extents later.
        let edge = if self.size.is_square() { m } else { 16 };
        [("A", self.value(), m, k), ("B", self.value(), k, n), ("C", "f32", m, n)]
            .map(|(role, scalar, rows, columns)| {
                format!(
                    "// {rows} rows and {columns} columns.\nalias Matrix{role} = \
                     coop_mat{edge}x{edge}<{scalar}, {role}>;\n"
                )
            })
            .concat()
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
