//! Lines of the programs with tiles in registers, unrolled over an invocation's rows and over its
//! groups of four elements.

use super::register_tile::RegisterTile;

/// The row of the workgroup that is an invocation's number `r`.
pub fn row(r: u32) -> String {
    format!("row_lane + {r}u * ROW_LANES")
}

/// The lines of each row, indented.
pub fn for_rows(tile: &RegisterTile, indent: usize, lines: impl Fn(u32) -> String) -> String {
    indented(indent, (0..tile.rows).map(lines))
}

/// Texts of one or more lines, indented.
pub fn indented(indent: usize, texts: impl Iterator<Item = String>) -> String {
    let lines = |text: String| {
        text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect::<String>()
    };
    texts.map(lines).collect::<String>().trim_end().to_owned()
}

/// The first, second, third and fourth elements of a group of each of four positions, which lie
/// LANES apart in `tile`.
pub fn columns(indent: usize) -> String {
    let read = (0..4).map(|j| format!("let loaded{j} = tile[at + {j}u * LANES];"));
    let turned = ["x", "y", "z", "w"].map(|part| {
        let parts = [0, 1, 2, 3].map(|j| format!("loaded{j}.{part}")).join(", ");
        format!("let columns_{part} = vec4<f32>({parts});")
    });
    indented(indent, read.chain(turned))
}

/// Adds the products of a group of elements of row `r`, which is at `own`, with four positions.
pub fn product(sum: &str, own: &str, r: u32) -> String {
    format!(
        "{sum} = sum_of_products({own}{r}u * ROW_LANES], columns_x, columns_y, columns_z, \
         columns_w, {sum});"
    )
}

/// Adds four positions of `tile` with weights from the array `weights`.
pub fn weighted(tile: &RegisterTile, indent: usize, weights: &str, sum: &str) -> String {
    let place = |c: u32, j: u32| format!("at + {j}u * VEC4S + {}u", c * tile.key_lanes);
    let read = tile
        .own()
        .flat_map(|c| (0..4).map(move |j| format!("let loaded{j}_{c} = tile[{}];", place(c, j))));
    let sums = (0..tile.rows).map(|r| {
        let weight = format!("let weight{r} = {weights}[weights_at + {r}u * ROW_LANES];");
        let sums = tile.own().map(|c| {
            format!(
                "{sum}{r}_{c} = sum_of_products(weight{r}, loaded0_{c}, loaded1_{c}, loaded2_{c}, \
                 loaded3_{c}, {sum}{r}_{c});"
            )
        });
        std::iter::once(weight).chain(sums).collect::<Vec<_>>().join("\n")
    });
    indented(indent, read.chain(sums))
}
