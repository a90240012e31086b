//! Sorts the eigenvalues or singular values of each matrix; the vectors then follow the same order.

use super::number::{NUMBERS, Numbers, real, zero};
use crate::device::{Binding, Device, Grid, declare_program, enum_key_parts};
use crate::dtype::DType::{self, I32};
use crate::dtype::Operations;
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS
        .iter()
        .flat_map(|t| [OrderRows::shader(*t, false), OrderRows::shader(*t, true)])
        .collect()
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
    device.enqueue_counted(
        &OrderRows {
            x: Binding::from(x),
            y: Binding::from(y),
            order: Binding::from(order),
            count: device.check_extent(count)?,
            k,
        }
        .program(&OrderRows::of(dtype, descending), Grid::linear(count, WORKGROUP)),
        // Each value is compared with all others of its matrix.
        Operations::unreported(2 * count * k),
    )
}

declare_program! {
    /// Sorts the values of each matrix by their ranks.
    struct OrderRows = "linalg order"(dtype: DType, descending: bool);
    bindings { x: dtype, y: dtype, order: I32 }
    params { count: u32, k: usize }
    shader if descending { "linalg order, descending" } else { "linalg order, ascending" } =>
        .numbers(dtype)
        .define("BEFORE", if descending { "a > b" } else { "a < b" })
        .body(include_str!("../../../shaders/linalg/order.wgsl"))
}

/// The matrices whose columns [`Pick`] takes in the order of a sort.
#[derive(Debug, Clone, Copy)]
pub enum Picked {
    /// Left singular vectors: columns of norm 1.
    SvdLeft,
    /// Right singular vectors.
    SvdRight,
    /// Eigenvectors.
    Eigen,
}

impl Picked {
    const fn label(self) -> &'static str {
        match self {
            Self::SvdLeft => "linalg svd left",
            Self::SvdRight => "linalg svd right",
            Self::Eigen => "linalg eigen vectors",
        }
    }

    /// WGSL of element `i` of `column` in `matrix`.
    fn element(self, dtype: DType) -> String {
        match self {
            Self::SvdLeft => format!(
                "    let size = load_norm(matrix * p.k + column);\n    let x = load_x((matrix * \
                 p.k + column) * p.rows + i) * load_scale(matrix);\n    return select(x / size, \
                 x, size == {}(0.0));",
                real(dtype)
            ),
            Self::SvdRight => "    return load_x((matrix * p.k + column) * p.rows + i);".to_owned(),
            Self::Eigen => "    return load_x((matrix * p.rows + i) * p.k + column);".to_owned(),
        }
    }
}

enum_key_parts!(Picked);

declare_program! {
    /// The values of a permuted matrix, `y[matrix, i, c]` for `c < cols`. Columns from `k` on are
    /// zero.
    pub struct Pick = "linalg pick"(dtype: DType, picked: Picked);
    bindings { x: dtype, order: I32, norm: dtype, scale: dtype, y: dtype }
    params { count: usize, rows: usize, cols: usize, k: usize }
}

impl Pick {
    pub fn shader(dtype: DType, picked: Picked) -> Shader {
        let text = format!(
            "fn value(t: u32) -> {real} {{\n    let matrix = t / (p.rows * p.cols);\n    let i = t \
             / p.cols % p.rows;\n    let c = t % p.cols;\n    if c >= p.k {{\n        return \
             {zero};\n    }}\n    let column = u32(load_order(matrix * p.k + \
             c));\n{element}\n}}",
            real = dtype.value(),
            zero = zero(dtype),
            element = picked.element(dtype),
        );
        Self::declare(picked.label(), dtype, picked).body(&text).map("y")
    }
}
