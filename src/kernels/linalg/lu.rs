//! LU decomposition with partial pivoting, and the ops that build on it: Lu, MatrixSolve and
//! MatrixInverse.
//!
//! A panel of columns is factored by one workgroup for each matrix, the rest of the matrix follows
//! by a triangular solve and a product. Lu, MatrixSolve and MatrixInverse refuse singular matrices,
//! as TensorFlow does: they wait for one word of each matrix.

use super::batch::{Batch, batch_dims};
use super::number::{NUMBERS, Numbers};
use super::program::{Extents, Map, MatrixSlice, block, map, update};
use super::solve::{Triangle, solve};
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType::{self, F32, I32};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_TO_CHECK};
use crate::kernels::scalar::cast::cast;
use crate::require;
use crate::shader::{Shader, Storage};
use crate::tensor::{HostTensor, Tensor};

const LOWER: Triangle = Triangle { upper: false, unit: true };
const UPPER: Triangle = Triangle { upper: true, unit: false };

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("Lu")
        .types("T", NUMBERS)
        .types("output_idx_type", INDEX)
        .items(&[(0, 2)])
        .note(WAITS_TO_CHECK)
        .kernel(|attrs| {
            let index = attrs.dtype("output_idx_type")?;
            Ok(move |ctx: &mut dyn OpContext| lu(ctx, index))
        });
    r.op("MatrixSolve").types("T", NUMBERS).items(&[(0, 2), (1, 2)]).note(WAITS_TO_CHECK).kernel(
        |attrs| {
            let adjoint = attrs.bool("adjoint")?;
            Ok(move |ctx: &mut dyn OpContext| matrix_solve(ctx, adjoint))
        },
    );
    r.op("MatrixInverse").types("T", NUMBERS).items(&[(0, 2)]).note(WAITS_TO_CHECK).kernel(
        |attrs| {
            let adjoint = attrs.bool("adjoint")?;
            Ok(move |ctx: &mut dyn OpContext| matrix_inverse(ctx, adjoint))
        },
    );
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each = |t: &DType| {
        let panels = [16, 64, 256]
            .map(|w| [false, true].map(|vec4s| FactorPanel::shader(*t, w, vec4s && *t == F32)));
        panels.concat()
    };
    NUMBERS.iter().flat_map(each).collect()
}

/// A decomposition: `lu` holds L (its unit diagonal is not stored) and U; row `i` of `L U` is row
/// `permutation[i]` of the input.
pub struct Decomposition {
    /// L and U of each matrix.
    pub lu: Tensor,
    permutation: Tensor,
    /// For each matrix, 1 if a pivot was zero, and the number of row swaps.
    pub state: Tensor,
    batch: Batch,
}

impl Decomposition {
    /// Decomposes the square matrices of `x`, or their adjoints, into `lu`.
    fn of(
        ctx: &mut dyn OpContext,
        x: &Tensor,
        adjoint: bool,
        batch: Batch,
        lu: Tensor,
        permutation: Tensor,
    ) -> Result<Self> {
        let (n, dtype) = (batch.rows, x.dtype);
        let state = ctx.temp(I32, &[batch.count, 2])?;
        let device = ctx.device();
        device.check_extent(x.len().max(2 * batch.count))?;
        let copy = if adjoint { Map::Conjugate } else { Map::Copy };
        map(device, copy, MatrixSlice::dense(x, n, n).transposed(adjoint), &state, 0, &lu, n, n)?;
        let workgroup = workgroup(n);
        let whole = MatrixSlice::dense(&lu, n, n);
        let vec4s = vec4s(&lu, n);
        for first in (0..n).step_by(block(n)) {
            let width = block(n).min(n - first);
            let end = first + width;
            device.enqueue_counted(
                &FactorPanel {
                    a: matrices(&lu, vec4s),
                    permutation: Binding::from(&permutation),
                    state: Binding::from(&state),
                    batch: batch.count,
                    n,
                    first,
                    end,
                }
                .program(&FactorPanel::of(dtype, workgroup, vec4s), Grid::groups(batch.count)),
                dtype.product_flops(
                    batch.count * (first..end).map(|j| (n - j) * (end - j)).sum::<usize>(),
                ),
            )?;
            let rest = n - end;
            solve(
                device,
                whole.from(first, first),
                LOWER,
                whole.from(first, end),
                batch.count,
                width,
                rest,
            )?;
            let extents = Extents { batch: batch.count, m: rest, n: rest, k: width };
            update(
                device,
                whole.from(end, end),
                whole.from(end, first),
                whole.from(first, end),
                extents,
                false,
            )?;
        }
        Ok(Self { lu, permutation, state, batch })
    }

    /// Decomposes into temporary memory.
    pub fn temporary(
        ctx: &mut dyn OpContext,
        x: &Tensor,
        adjoint: bool,
        batch: Batch,
    ) -> Result<Self> {
        let lu = ctx.temp(x.dtype, &[batch.count, batch.rows, batch.rows])?;
        let permutation = ctx.temp(I32, &[batch.count, batch.rows])?;
        Self::of(ctx, x, adjoint, batch, lu, permutation)
    }

    /// Waits for the decomposition and fails with `message` if a pivot was zero.
    fn require_invertible(&self, device: &Device, message: &str) -> Result<()> {
        let mut state = HostTensor {
            dtype: I32,
            dims: self.state.dims.clone(),
            bytes: vec![0; self.batch.count * 8],
        };
        device.download(self.state.address, &mut state.bytes)?;
        require!(state.values::<i32>().chunks(2).all(|s| s[0] == 0), "{message}");
        Ok(())
    }

    /// Solves for right-hand sides whose rows are already permuted, in place.
    fn solve(&self, device: &Device, x: &Tensor, cols: usize) -> Result<()> {
        let n = self.batch.rows;
        for triangle in [LOWER, UPPER] {
            let (a, x) = (MatrixSlice::dense(&self.lu, n, n), MatrixSlice::dense(x, n, cols));
            solve(device, a, triangle, x, self.batch.count, n, cols)?;
        }
        Ok(())
    }
}

/// The number of invocations that decompose a matrix of `n` rows together.
pub const fn workgroup(n: usize) -> u32 {
    match n {
        0..=16 => 16,
        17..=64 => 64,
        _ => 256,
    }
}

/// Whether all groups of four elements in the rows of `n` x `n` matrices can be read at once.
pub fn vec4s(a: &Tensor, n: usize) -> bool {
    a.dtype == F32 && n.is_multiple_of(4) && a.address.is_multiple_of(16)
}

/// The tensor as [`storage`] declares it.
pub fn matrices(a: &Tensor, vec4s: bool) -> Binding {
    if vec4s { Binding::raw(a, 16) } else { a.into() }
}

/// Elements of matrices, four of a row together if `vec4s`: for such a binding, [`access`] has
/// `load_a` and `store_a`.
fn storage(dtype: DType, vec4s: bool) -> Storage {
    if vec4s { Storage::Raw("vec4<f32>", 16) } else { Storage::Typed(dtype) }
}

/// The functions `load_a` and `store_a` that [`storage`] lacks.
const fn access(vec4s: bool) -> &'static str {
    if !vec4s {
        return "";
    }
    "\nfn load_a(i: u32) -> f32 {\n    return a[p.off_a + i / 4u][i % 4u];\n}\n\nfn \
         store_a(i: u32, v: f32) {\n    a[p.off_a + i / 4u][i % 4u] = v;\n}\n"
}

declare_program! {
    /// Decomposes a panel of columns.
    struct FactorPanel = "linalg lu"(dtype: DType, workgroup: u32, vec4s: bool);
    bindings { a: storage(dtype, vec4s), permutation: I32, state: I32 }
    params { batch: usize, n: usize, first: usize, end: usize }
}

impl FactorPanel {
    fn shader(dtype: DType, workgroup: u32, vec4s: bool) -> Shader {
        let (swap, eliminate) = if vec4s {
            (
                "for (var j = local_index; j < n / 4u; j += WORKGROUP) {
                let upper = a[p.off_a + (base + k * n) / 4u + j];
                a[p.off_a + (base + k * n) / 4u + j] = a[p.off_a + (base + pivot_row * n) / 4u + \
             j];
                a[p.off_a + (base + pivot_row * n) / 4u + j] = upper;
            }",
                "for (var j = (k + 1u) / 4u; j < p.end / 4u; j += 1u) {
                    let at = p.off_a + (base + i * n) / 4u + j;
                    let next = a[at] - factor * a[p.off_a + (base + k * n) / 4u + j];
                    a[at] = select(a[at], next, 4u * j + vec4<u32>(0u, 1u, 2u, 3u) > vec4<u32>(k));
                }",
            )
        } else {
            (
                "for (var j = local_index; j < n; j += WORKGROUP) {
                let upper = load_a(base + k * n + j);
                store_a(base + k * n + j, load_a(base + pivot_row * n + j));
                store_a(base + pivot_row * n + j, upper);
            }",
                "for (var j = k + 1u; j < p.end; j += 1u) {
                    store_a(base + i * n + j, load_a(base + i * n + j) - times(factor, load_a(base \
             + k * n + j)));
                }",
            )
        };
        Self::declare("linalg lu", dtype, workgroup, vec4s)
            .numbers(dtype)
            .define("ACCESS", access(vec4s))
            .define("SWAP", swap)
            .define("ELIMINATE", eliminate)
            .workgroup([workgroup, 1, 1])
            .body(include_str!("../../../shaders/linalg/lu_panel.wgsl"))
    }
}

fn lu(ctx: &mut dyn OpContext, index: DType) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 2, "Input tensor must have rank >= 2, got {}", x.rank());
    let batch = Batch::square(&x)?;
    let y = ctx.output(0, x.dtype, &x.dims)?;
    let permutation = ctx.output(1, index, &x.dims[..x.rank() - 1])?;
    if x.is_empty() {
        return Ok(());
    }
    let narrow = if index == I32 { permutation.clone() } else { ctx.temp(I32, &permutation.dims)? };
    let decomposition = Decomposition::of(ctx, &x, false, batch, y, narrow)?;
    let device = ctx.device();
    decomposition.require_invertible(device, "Input is not invertible.")?;
    if index == I32 {
        return Ok(());
    }
    cast(device, &decomposition.permutation, &permutation)
}

fn matrix_solve(ctx: &mut dyn OpContext, adjoint: bool) -> Result<()> {
    let (a, b) = (ctx.input(0)?, ctx.input(1)?);
    require!(a.rank() == b.rank(), "All input tensors must have the same rank.");
    let (batch, right) = (Batch::of(&a)?, Batch::of(&b)?);
    require!(
        batch_dims(&a) == batch_dims(&b),
        "All input tensors must have the same outer dimensions."
    );
    require!(batch.rows == batch.cols, "First input (lhs) must be a square matrix.");
    require!(batch.rows == right.rows, "Input matrix and rhs are incompatible.");
    let Some(y) = ctx.some_output(0, b.dtype, &b.dims)? else { return Ok(()) };
    let decomposition = Decomposition::temporary(ctx, &a, adjoint, batch)?;
    let device = ctx.device();
    decomposition.require_invertible(device, "Input matrix is not invertible.")?;
    let (rows, cols) = (right.rows, right.cols);
    device.check_extent(b.len())?;
    map(
        device,
        Map::Permuted,
        MatrixSlice::dense(&b, rows, cols),
        &decomposition.permutation,
        0,
        &y,
        rows,
        cols,
    )?;
    decomposition.solve(device, &y, cols)
}

fn matrix_inverse(ctx: &mut dyn OpContext, adjoint: bool) -> Result<()> {
    let x = ctx.input(0)?;
    let batch = Batch::square(&x)?;
    let Some(y) = ctx.some_output(0, x.dtype, &x.dims)? else { return Ok(()) };
    let n = batch.rows;
    let decomposition = Decomposition::temporary(ctx, &x, adjoint, batch)?;
    let device = ctx.device();
    decomposition.require_invertible(device, "Input is not invertible.")?;
    map(
        device,
        Map::PermutedIdentity,
        MatrixSlice::dense(&x, n, n),
        &decomposition.permutation,
        0,
        &y,
        n,
        n,
    )?;
    decomposition.solve(device, &y, n)
}
