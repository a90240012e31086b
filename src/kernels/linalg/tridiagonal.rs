//! TridiagonalSolve and TridiagonalMatMul.

use super::batch::batch_dims;
use super::number::{NUMBERS, Numbers};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};

/// Equations that an invocation handles in a dispatch, below every
/// [`crate::device::Profile::loop_limit`].
const EQUATIONS: usize = 32_768;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("TridiagonalSolve").types("T", NUMBERS).items(&[(0, 2), (1, 2)]).kernel(|attrs| {
        let pivot = attrs.bool("partial_pivoting")?;
        let perturb = attrs.bool("perturb_singular")?;
        require!(
            pivot || !perturb,
            "Setting perturb_singular requires also setting partial_pivoting."
        );
        if perturb {
            // TensorFlow's GPU kernel has no such mode either.
            return Err(Error::Unimplemented(
                "perturb_singular=True is not supported by TridiagonalSolve on WGPU".into(),
            ));
        }
        Ok(move |ctx: &mut dyn OpContext| solve(ctx, pivot))
    });
    r.op("TridiagonalMatMul")
        .types("T", NUMBERS)
        .items(&[(0, 2), (1, 2), (2, 2), (3, 2)])
        .kernel(|_| Ok(multiply));
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS
        .iter()
        .flat_map(|t| [SolveTridiagonal::shader(*t), MultiplyTridiagonal::shader(*t)])
        .collect()
}

fn solve(ctx: &mut dyn OpContext, pivot: bool) -> Result<()> {
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    require!(a.rank() == b.rank(), "All input tensors must have the same rank.");
    require!(a.rank() >= 2, "Input tensor 0 must have rank >= 2, got {}", a.rank());
    require!(
        batch_dims(&a) == batch_dims(&b),
        "All input tensors must have the same outer dimensions."
    );
    let [rows, n] = [a.dims[a.rank() - 2], a.dims[a.rank() - 1]];
    let [equations, cols] = [b.dims[b.rank() - 2], b.dims[b.rank() - 1]];
    require!(
        rows == 3,
        "Expected diagonals to be provided as a matrix with 3 rows, got {rows} rows."
    );
    require!(
        n == equations,
        "Expected the same number of left-hand sides and right-hand sides, got {n} and \
         {equations}."
    );
    let dtype = a.dtype;
    let Some(y) = ctx.some_output(0, dtype, &b.dims)? else { return Ok(()) };
    let systems = y.len() / n;
    let u = ctx.temp(dtype, &[systems, n, 3])?;
    let device = ctx.device();
    device.check_extent(u.len())?;
    let enqueue = |first: usize, end: usize, backward: bool| {
        device.enqueue_counted(
            &SolveTridiagonal {
                diagonals: Binding::from(&a),
                rhs: Binding::from(&b),
                u: Binding::from(&u),
                y: Binding::from(&y),
                count: systems,
                n,
                cols,
                first,
                end,
                backward,
                pivot,
            }
            .program(&SolveTridiagonal::of(dtype), Grid::linear(systems, WORKGROUP)),
            dtype.product_flops(2 * systems * (end - first)),
        )
    };
    for first in (0..n).step_by(EQUATIONS) {
        enqueue(first, n.min(first + EQUATIONS), false)?;
    }
    for first in (0..n).step_by(EQUATIONS).rev() {
        enqueue(first, n.min(first + EQUATIONS), true)?;
    }
    Ok(())
}

declare_program! {
    /// Eliminates some rows of each system, or substitutes them.
    struct SolveTridiagonal = "linalg tridiagonal solve"(dtype: DType);
    bindings { diagonals: dtype, rhs: dtype, u: dtype, y: dtype }
    params {
        count: usize, n: usize, cols: usize, first: usize, end: usize, backward: bool, pivot: bool,
    }
    shader "linalg tridiagonal solve" =>
        .numbers(dtype)
        .body(include_str!("../../../shaders/linalg/tridiagonal_solve.wgsl"))
}

fn multiply(ctx: &mut dyn OpContext) -> Result<()> {
    let diagonals = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
    let x = ctx.input(3)?;
    require!(x.rank() >= 2, "Input tensor 3 must have rank >= 2, got {}", x.rank());
    require!(
        diagonals.iter().all(|d| d.rank() == x.rank()),
        "All input tensors must have the same rank."
    );
    require!(
        diagonals.iter().all(|d| batch_dims(d) == batch_dims(&x)),
        "All input tensors must have the same outer dimensions."
    );
    let [n, cols] = [x.dims[x.rank() - 2], x.dims[x.rank() - 1]];
    for (diagonal, name) in diagonals.iter().zip(["superdiagonal", "diagonal", "subdiagonal"]) {
        require!(diagonal.dims[x.rank() - 2..] == [1, n], "Invalid {name} shape.");
    }
    let dtype = x.dtype;
    let Some(y) = ctx.some_output(0, dtype, &x.dims)? else { return Ok(()) };
    let device = ctx.device();
    let [above, middle, below] = &diagonals;
    device.enqueue_counted(
        &MultiplyTridiagonal {
            above: Binding::from(above),
            middle: Binding::from(middle),
            below: Binding::from(below),
            x: Binding::from(&x),
            y: Binding::from(&y),
            count: device.check_extent(y.len())?,
            n,
            cols,
        }
        .program(&MultiplyTridiagonal::of(dtype), Grid::map(y.len(), dtype)),
        dtype.product_flops(3 * y.len()),
    )
}

declare_program! {
    /// The product of tridiagonal matrices and dense ones.
    struct MultiplyTridiagonal = "linalg tridiagonal multiply"(dtype: DType);
    bindings { above: dtype, middle: dtype, below: dtype, x: dtype, y: dtype }
    params { count: u32, n: usize, cols: usize }
    shader "linalg tridiagonal multiply" =>
        .numbers(dtype)
        .body(include_str!("../../../shaders/linalg/tridiagonal_multiply.wgsl"))
        .map("y")
}
