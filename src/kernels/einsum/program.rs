//! The two programs that only Einsum uses: products without a sum, and results on a diagonal.

use super::TYPES;
use crate::device::{Device, Grid, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::windows::{largest, limit, part, ranges, too_large};
use crate::layout::{AccessClass, Iteration, Strides, dense_strides};
use crate::shader::Shader;
use crate::tensor::Tensor;

declare_program! {
    /// The product of `a` and `b`, which are walked.
    struct Product = "einsum product"(dtype: DType, result: DType, class: &AccessClass);
    bindings { a: dtype, b: dtype, y: result }
    params { count: usize, walk: Iteration = (class, &["a", "b"]) }
}

impl Product {
    fn shader(dtype: DType, result: DType, class: &AccessClass) -> Shader {
        let product = if dtype.is_complex() {
            format!("{}(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)", dtype.value())
        } else {
            "a * b".to_owned()
        };
        let label = format!("einsum product {dtype} {result} {class:?}");
        Self::declare(label, dtype, result, class)
            .define("T", dtype.value())
            .define("PRODUCT", product)
            .body(include_str!("../../../shaders/einsum/product.wgsl"))
            .map("y")
    }
}

/// Enqueues `y[i] = a * b`, where `walk` has the operands `a` and `b`. `y` is dense, of the
/// operands' type or the one that they are computed in.
pub(super) fn product(
    device: &Device,
    walk: &Iteration,
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let limit = limit(device.capabilities());
    if [a, b, y].iter().any(|t| t.bytes() > limit) && !walk.dims().is_empty() {
        return product_windows(device, walk, [a, b], y, limit);
    }
    for t in [a, b, y] {
        device.check_extent(t.len())?;
    }
    let (class, count, walk) = (walk.class(), y.len(), walk.clone());
    let of = Product::of(a.dtype, y.dtype, &class);
    let (grid, operations) = (Grid::map(count, y.dtype), a.dtype.product_flops(count) / 2);
    let call = Product { a: a.into(), b: b.into(), y: y.into(), count, walk };
    device.enqueue_counted(&call.program(&of, grid), operations)
}

/// The same in windows of the outermost dimension.
fn product_windows(
    device: &Device,
    walk: &Iteration,
    operands: [&Tensor; 2],
    y: &Tensor,
    limit: u64,
) -> Result<()> {
    let (extent, inner) = (walk.dims()[0], &walk.dims()[1..]);
    let row: usize = inner.iter().product();
    // Elements of operand `k` from the first to the last one that `rows` rows read.
    let span = |k: usize, rows: usize| {
        let strides = walk.strides(k);
        let within = inner.iter().zip(&strides[1..]).map(|(n, s)| (n - 1) * *s as usize);
        1 + (rows - 1) * strides[0] as usize + within.sum::<usize>()
    };
    let fits = |rows: usize| {
        let read = [0, 1].map(|k| span(k, rows.max(1)) * operands[k].dtype.size());
        read.into_iter().chain([rows * row * y.dtype.size()]).all(|bytes| bytes as u64 <= limit)
    };
    for (first, rows) in ranges(extent, largest(extent, fits).max(1)) {
        let dims = [&[rows], inner].concat();
        let walk_part =
            [0, 1].into_iter().fold(Iteration::over(&dims), |w, k| w.operand(walk.strides(k), 0));
        let [a, b] =
            [0, 1].map(|k| part(operands[k], first * walk.strides(k)[0] as usize, span(k, rows)));
        let y = part(y, first * row, rows * row);
        if !y.address.is_multiple_of(4) {
            return Err(too_large(device.capabilities(), "a product's odd row of 16-bit floats"));
        }
        product(device, &walk_part.collapse(), &a, &b, &y)?;
    }
    Ok(())
}

declare_program! {
    /// The element of `x` where the walk over distances gives 0, else zero.
    struct Diagonal = "einsum diagonal"(dtype: DType, class: &AccessClass);
    bindings { x: dtype, y: dtype }
    params { count: usize, walk: Iteration = (class, &["x", "apart"]) }
    shader format!("einsum diagonal {dtype} {class:?}") =>
        .define("T", dtype.value())
        .body(include_str!("../../../shaders/einsum/diagonal.wgsl"))
        .map("y")
}

/// Enqueues the result whose dimension d is dimension `axes[d]` of `x`, zero where coordinates of
/// one axis differ.
pub(super) fn diagonal(device: &Device, x: &Tensor, axes: &[usize], y: &Tensor) -> Result<()> {
    let walk = diagonal_walk(&x.dims, axes);
    device.check_extent(y.len())?;
    let (class, count) = (walk.class(), y.len());
    let (of, grid) = (Diagonal::of(x.dtype, &class), Grid::map(count, x.dtype));
    Diagonal { x: x.into(), y: y.into(), count, walk }.enqueue(device, &of, grid)
}

/// A walk over the result with `x` and the weighted distances of coordinates. Distances of extent n
/// lie within ±(n - 1), so weights that grow by 2n never cancel; their product stays below 2^32
/// because a result has n elements more for each repeat.
fn diagonal_walk(dims: &[usize], axes: &[usize]) -> Iteration {
    let from = dense_strides(dims);
    let out: Vec<usize> = axes.iter().map(|a| dims[*a]).collect();
    let mut x: Strides = axes.iter().map(|_| 0).collect();
    let mut apart = x.clone();
    let mut weight = 1;
    for (d, axis) in axes.iter().enumerate() {
        let first = axes.iter().position(|a| a == axis).unwrap_or(d);
        if first == d {
            x[d] = from[*axis];
        } else if dims[*axis] > 1 {
            apart[first] -= weight;
            apart[d] += weight;
            weight *= 2 * dims[*axis] as i64;
        }
    }
    Iteration::over(&out).operand(&x, 0).operand(&apart, 0)
}

/// Every type with walks of ranks 1 and 5.
pub(super) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for &dtype in TYPES {
        for walk in [
            Iteration::over(&[2]).broadcast(&[2]).broadcast(&[2]),
            Iteration::over(&[2, 2, 2, 2, 2])
                .broadcast(&[2, 1, 2, 1, 2])
                .broadcast(&[1, 2, 1, 2, 1]),
        ] {
            out.push(Product::shader(dtype, dtype, &walk.class()));
        }
        out.push(Diagonal::shader(dtype, &diagonal_walk(&[2, 2], &[0, 1, 0, 0, 1]).class()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_vanish_on_the_diagonal_alone() {
        let (dims, axes) = ([3, 4], [0, 1, 0, 0, 1]);
        let walk = diagonal_walk(&dims, &axes);
        let strides = walk.strides(1);
        for i in 0..3 * 4 * 3 * 3 * 4 {
            let at = [i / 144, i / 36 % 4, i / 12 % 3, i / 4 % 3, i % 4];
            let apart: i64 = at.iter().zip(strides).map(|(c, s)| *c as i64 * s).sum();
            assert_eq!(
                apart as u32 == 0,
                at[0] == at[2] && at[0] == at[3] && at[1] == at[4],
                "{at:?}"
            );
        }
    }
}
