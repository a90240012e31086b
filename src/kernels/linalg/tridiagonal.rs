//! TridiagonalSolve and TridiagonalMatMul.

use smallvec::smallvec;

use super::batch::batch_dims;
use super::number::{NUMBERS, Numbers};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader, WORKGROUP};

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
    NUMBERS.iter().flat_map(|t| [solve_shader(*t), multiply_shader(*t)]).collect()
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
    let y = ctx.output(0, dtype, &b.dims)?;
    if y.is_empty() {
        return Ok(());
    }
    let systems = y.len() / n;
    let u = ctx.temp(dtype, &[systems, n, 3])?;
    let device = ctx.device();
    device.check_extent(u.len())?;
    let enqueue = |first: usize, end: usize, backward: bool| {
        device.enqueue_counted(
            &Program {
                key: Key::new("linalg tridiagonal solve").dtype(dtype),
                shader: &|| solve_shader(dtype),
                bindings: smallvec![
                    Binding::from(&a),
                    Binding::from(&b),
                    Binding::from(&u),
                    Binding::from(&y)
                ],
                params: (Params::new().u32(systems).u32(n).u32(cols).u32(first).u32(end))
                    .u32(u32::from(backward))
                    .u32(u32::from(pivot)),
                grid: Grid::linear(systems, WORKGROUP),
            },
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

fn solve_shader(dtype: DType) -> Shader {
    Shader::new("linalg tridiagonal solve")
        .bind("diagonals", dtype)
        .bind("rhs", dtype)
        .bind("u", dtype)
        .bind("y", dtype)
        .u32s(&["count", "n", "cols", "first", "end", "backward", "pivot"])
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
    let y = ctx.output(0, dtype, &x.dims)?;
    if y.is_empty() {
        return Ok(());
    }
    let device = ctx.device();
    let [above, middle, below] = &diagonals;
    device.enqueue_counted(
        &Program {
            key: Key::new("linalg tridiagonal multiply").dtype(dtype),
            shader: &|| multiply_shader(dtype),
            bindings: smallvec![
                Binding::from(above),
                Binding::from(middle),
                Binding::from(below),
                Binding::from(&x),
                Binding::from(&y)
            ],
            params: Params::new().u32(device.check_extent(y.len())?).u32(n).u32(cols),
            grid: Grid::map(y.len(), dtype),
        },
        dtype.product_flops(3 * y.len()),
    )
}

fn multiply_shader(dtype: DType) -> Shader {
    Shader::new("linalg tridiagonal multiply")
        .bind("above", dtype)
        .bind("middle", dtype)
        .bind("below", dtype)
        .bind("x", dtype)
        .bind("y", dtype)
        .param("count", Field::U32)
        .u32s(&["n", "cols"])
        .numbers(dtype)
        .body(include_str!("../../../shaders/linalg/tridiagonal_multiply.wgsl"))
        .map("y")
}
