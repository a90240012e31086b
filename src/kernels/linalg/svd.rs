//! Svd by one-sided Jacobi rotations, singular values descending.
//!
//! The columns of a tall matrix (or of a wide one's transpose) are rotated in disjoint pairs until
//! they are orthogonal: they are then the left vectors times the singular values, and the rotations
//! are the right vectors. The number of sweeps is fixed by the size, so that nothing waits for the
//! device. Where a singular value vanishes, and for the additional columns of `full_matrices`, an
//! orthonormal basis is completed.

use super::batch::{Batch, batch_dims};
use super::eigen::sweeps;
use super::lu::workgroup;
use super::number::{REALS, literal, real};
use super::order::{Pick, Picked, sort};
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType::{self, F64, I32};
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Iterations of an invocation in a dispatch, well below [`crate::device::Profile::loop_limit`].
const ITERATIONS: usize = 30_000;
/// Invocations that complete a basis.
const COMPLETERS: u32 = 256;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for op in ["BatchSvd", "Svd"] {
        r.op(op).types("T", REALS).items(&[(0, 2)]).kernel(Svd::new);
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each = |t: &DType| {
        let sized = [16, 64, 256]
            .map(|w| [RotateColumns::shader(*t, w), ColumnNorms::shader(*t, w)])
            .concat();
        [
            sized,
            vec![
                BeginSvd::shader(*t),
                Pick::shader(*t, Picked::SvdLeft),
                Pick::shader(*t, Picked::SvdRight),
                CompleteBasis::shader(*t, true),
                CompleteBasis::shader(*t, false),
            ],
        ]
        .concat()
    };
    REALS.iter().flat_map(each).collect()
}

struct Svd {
    vectors: bool,
    full: bool,
}

impl Svd {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self { vectors: attrs.bool("compute_uv")?, full: attrs.bool("full_matrices")? })
    }
}

impl Kernel for Svd {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let Batch { count, rows: m, cols: n } = Batch::of(&x)?;
        let (dtype, k, r) = (x.dtype, m.min(n), m.max(n));
        let dims = |last: &[usize]| [batch_dims(&x), last].concat();
        // This is TensorFlow's shape for outputs that were not asked for.
        let of = |rows, cols| if self.vectors { dims(&[rows, cols]) } else { Vec::new() };
        let s = ctx.output(0, dtype, &dims(&[k]))?;
        let u = ctx.output(1, dtype, &of(m, if self.full { m } else { k }))?;
        let v = ctx.output(2, dtype, &of(n, if self.full { n } else { k }))?;
        let (long, short) = if m < n { (&v, &u) } else { (&u, &v) };
        let cols = if self.full { r } else { k };
        if k == 0 {
            // There is no singular value: a full basis is the identity.
            return if self.vectors && !long.is_empty() {
                complete(ctx.device(), long, &s, Basis { batch: count, r, cols, k })
            } else {
                Ok(())
            };
        }
        if count == 0 {
            return Ok(());
        }
        let work = Work {
            w: ctx.temp(dtype, &[count, k, r])?,
            v: ctx.temp(dtype, &[count, k, k])?,
            scale: ctx.temp(dtype, &[count])?,
            norm: ctx.temp(dtype, &[count, k])?,
            order: ctx.temp(I32, &[count, k])?,
            count,
            k,
            r,
        };
        let device = ctx.device();
        device.check_extent(x.len().max(u.len()).max(v.len()))?;
        work.rotate(device, &x, m < n)?;
        sort(device, &work.norm, k, true, &s, &work.order)?;
        if !self.vectors {
            return Ok(());
        }
        for (picked, from, to, cols) in
            [(Picked::SvdLeft, &work.w, long, cols), (Picked::SvdRight, &work.v, short, k)]
        {
            Pick {
                x: from.into(),
                order: (&work.order).into(),
                norm: (&work.norm).into(),
                scale: (&work.scale).into(),
                y: to.into(),
                count: to.len(),
                rows: to.len() / count / cols,
                cols,
                k,
            }
            .enqueue(device, &Pick::of(dtype, picked), Grid::map(to.len(), dtype))?;
        }
        complete(device, long, &s, Basis { batch: count, r, cols, k })
    }
}

/// The iteration's memory: `k` rows of `r` elements to be made orthogonal, and the rotations.
struct Work {
    w: Tensor,
    v: Tensor,
    scale: Tensor,
    norm: Tensor,
    order: Tensor,
    count: usize,
    k: usize,
    r: usize,
}

impl Work {
    fn rotate(&self, device: &Device, x: &Tensor, wide: bool) -> Result<()> {
        let Self { count, k, r, .. } = *self;
        let dtype = x.dtype;
        if k * r / 256 > ITERATIONS {
            return Err(Error::Unimplemented(format!(
                "Svd of matrices with {} elements on WGPU; the limit is {}",
                k * r,
                ITERATIONS * 256
            )));
        }
        BeginSvd {
            x: Binding::from(x),
            w: Binding::from(&self.w),
            basis: Binding::from(&self.v),
            scale: Binding::from(&self.scale),
            batch: count,
            k,
            r,
            wide,
        }
        .enqueue(device, &BeginSvd::of(dtype), Grid::groups(count))?;
        let workgroup = workgroup(r);
        let pairs = k.div_ceil(2);
        let rounds = if k < 2 { 0 } else { sweeps(dtype, k) * (2 * pairs - 1) };
        for round in 0..rounds {
            device.enqueue_counted(
                &RotateColumns {
                    w: Binding::from(&self.w),
                    basis: Binding::from(&self.v),
                    batch: count,
                    k,
                    r,
                    pairs,
                    round: round % (2 * pairs - 1),
                }
                .program(&RotateColumns::of(dtype, workgroup), Grid::groups(count * pairs)),
                dtype.product_flops(count * pairs * (6 * r + 3 * k)),
            )?;
        }
        device.enqueue_counted(
            &ColumnNorms {
                w: Binding::from(&self.w),
                scale: Binding::from(&self.scale),
                norm: Binding::from(&self.norm),
                rows: count * k,
                k,
                r,
            }
            .program(&ColumnNorms::of(dtype, workgroup), Grid::groups(count * k)),
            dtype.product_flops(count * k * r),
        )
    }
}

/// Extents of bases: `cols` columns of `r` elements; singular values exist for the first `k`
/// columns.
#[derive(Clone, Copy)]
struct Basis {
    batch: usize,
    r: usize,
    cols: usize,
    k: usize,
}

/// Replaces the columns of `u` whose singular value does not exist or vanishes.
fn complete(device: &Device, u: &Tensor, s: &Tensor, basis: Basis) -> Result<()> {
    let Basis { batch, r, cols, k } = basis;
    let dtype = u.dtype;
    // Loops count one iteration more than they run.
    let column = cols * (6 * r.div_ceil(COMPLETERS as usize) + 28) + 60;
    if column > 2 * ITERATIONS {
        return Err(Error::Unimplemented(format!(
            "Svd with {cols} singular vectors of {r} elements on WGPU"
        )));
    }
    let steps = (ITERATIONS / column).max(1);
    let branches = device.capabilities().workgroup_flags;
    for first in (0..cols).step_by(steps) {
        // The binding of an empty tensor needs some memory: u's own memory serves, and is not
        // written through this binding.
        let s = if s.is_empty() { u } else { s };
        CompleteBasis {
            u: Binding::from(u),
            s: Binding::from(s),
            batch,
            r,
            cols,
            k,
            first,
            end: cols.min(first + steps),
        }
        .enqueue(device, &CompleteBasis::of(dtype, branches), Grid::groups(batch))?;
    }
    Ok(())
}

/// The type's precision.
fn epsilon(dtype: DType) -> f64 {
    if dtype == F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

declare_program! {
    /// The columns of a matrix become rows of `w`, scaled if necessary; the basis begins as the
    /// identity.
    struct BeginSvd = "linalg svd begin"(dtype: DType);
    bindings { x: dtype, w: dtype, basis: dtype, scale: dtype }
    params { batch: usize, k: usize, r: usize, wide: bool }
}

impl BeginSvd {
    fn shader(dtype: DType) -> Shader {
        let (large, small) = if dtype == F64 { (1e150, 1e-150) } else { (1e15, 1e-15) };
        Self::declare("linalg svd begin", dtype)
            .define("REAL", real(dtype))
            .define("LARGE", literal(dtype, large))
            .define("SMALL", literal(dtype, small))
            .body(include_str!("../../../shaders/linalg/svd_begin.wgsl"))
    }
}

declare_program! {
    /// Rotates pairs of columns of a round.
    struct RotateColumns = "linalg svd step"(dtype: DType, workgroup: u32);
    bindings { w: dtype, basis: dtype }
    params { batch: usize, k: usize, r: usize, pairs: usize, round: usize }
    shader "linalg svd step" =>
        .workgroup([workgroup, 1, 1])
        .define("REAL", real(dtype))
        .define("EPSILON", literal(dtype, epsilon(dtype) / 4.0))
        .body(include_str!("../../../shaders/linalg/svd_step.wgsl"))
}

declare_program! {
    /// The norm of each column.
    struct ColumnNorms = "linalg svd norm"(dtype: DType, workgroup: u32);
    bindings { w: dtype, scale: dtype, norm: dtype }
    params { rows: usize, k: usize, r: usize }
    shader "linalg svd norm" =>
        .workgroup([workgroup, 1, 1])
        .define("REAL", real(dtype))
        .body(include_str!("../../../shaders/linalg/svd_norm.wgsl"))
}

declare_program! {
    /// Completes the singular vectors to a basis.
    struct CompleteBasis = "linalg svd complete"(dtype: DType, branches: bool);
    bindings { u: dtype, s: dtype }
    params { batch: usize, r: usize, cols: usize, k: usize, first: usize, end: usize }
}

impl CompleteBasis {
    fn shader(dtype: DType, branches: bool) -> Shader {
        let branch = if branches { "if workgroup_flag(local_index, vanishes)" } else { "" };
        Self::declare("linalg svd complete", dtype, branches)
            .define("BRANCH", branch)
            .workgroup([COMPLETERS, 1, 1])
            .define("REAL", real(dtype))
            .define("EPSILON", literal(dtype, epsilon(dtype)))
            .body(include_str!("../../../shaders/linalg/svd_complete.wgsl"))
    }
}
