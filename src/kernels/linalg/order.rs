//! Sorts the eigenvalues or singular values of each matrix; the vectors then follow the same order.

use smallvec::smallvec;

use super::number::{NUMBERS, Numbers, zero};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, I32};
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS.iter().flat_map(|t| [shader(*t, false), shader(*t, true)]).collect()
}

/// Sorts the last dimension of `x` (of `k` > 0 values, complex ones by their real parts) into `y`.
/// `order` (int32) receives the old place of each value.
pub fn sort(
    device: &Device,
    x: &Tensor,
    k: usize,
    descending: bool,
    y: &Tensor,
    order: &Tensor,
) -> Result<()> {
    let (dtype, count) = (x.dtype, x.len());
    device.enqueue(&Program {
        key: Key::new("linalg order").dtype(dtype).number(u32::from(descending)),
        shader: &|| shader(dtype, descending),
        bindings: smallvec![Binding::from(x), Binding::from(y), Binding::from(order)],
        params: Params::new().u32(device.check_extent(count)?).u32(k),
        grid: Grid::linear(count, WORKGROUP),
    })
}

fn shader(dtype: DType, descending: bool) -> Shader {
    Shader::new(if descending { "linalg order, descending" } else { "linalg order, ascending" })
        .bind("x", dtype)
        .bind("y", dtype)
        .bind("order", I32)
        .u32s(&["count", "k"])
        .numbers(dtype)
        .define("BEFORE", if descending { "a > b" } else { "a < b" })
        .body(include_str!("../../../shaders/linalg/order.wgsl"))
}

/// The values of a permuted matrix, `y[matrix, i, c]` for `c < cols`, as a [`Shader::map`];
/// `element` is the expression's text, in terms of `matrix`, `i`, `c` and `from`, the place of
/// column `c` before the sort, below `p.k`.
pub fn pick_shader(label: &'static str, dtype: DType, element: &str) -> Shader {
    let text = format!(
        "fn value(t: u32) -> {real} {{\n    let matrix = t / (p.rows * p.cols);\n    let i = t / \
         p.cols % p.rows;\n    let c = t % p.cols;\n    if c >= p.k {{\n        return \
         {zero};\n    }}\n    let column = u32(load_order(matrix * p.k + c));\n{element}\n}}",
        real = dtype.value(),
        zero = zero(dtype)
    );
    Shader::new(label)
        .bind("x", dtype)
        .bind("order", I32)
        .bind("norm", dtype)
        .bind("scale", dtype)
        .bind("y", dtype)
        .u32s(&["count", "rows", "cols", "k"])
        .body(&text)
        .map("y")
}
