//! SelfAdjointEigV2 by cyclic Jacobi rotations of disjoint pairs, eigenvalues ascending.
//!
//! The number of sweeps is fixed by the size (the iteration converges quadratically), so that
//! nothing waits for the device. Unlike TensorFlow's CPU kernel, which refuses them, matrices with
//! NaNs or infinities give NaNs.

use super::batch::{Batch, batch_dims};
use super::lu::workgroup;
use super::number::{NUMBERS, Numbers, bits, literal};
use super::order::{Pick, Picked, sort};
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType::{self, F64, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Iterations of an invocation in a dispatch, well below [`crate::device::Profile::loop_limit`].
const ITERATIONS: usize = 30_000;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("SelfAdjointEigV2").types("T", NUMBERS).items(&[(0, 2)]).kernel(|attrs| {
        let vectors = attrs.bool("compute_v")?;
        Ok(move |ctx: &mut dyn OpContext| eigen(ctx, vectors))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each = |t: &DType| {
        let steps = [16, 64, 256].map(|w| RotatePlanes::shader(*t, w));
        [
            steps.to_vec(),
            vec![BeginEigen::shader(*t), Diagonal::shader(*t), Pick::shader(*t, Picked::Eigen)],
        ]
        .concat()
    };
    NUMBERS.iter().flat_map(each).collect()
}

/// Sweeps over all pairs until rotations vanish: a few for any matrix, slowly more with the number
/// of rows. Wider types take one or two more sweeps.
pub fn sweeps(dtype: DType, n: usize) -> usize {
    let bits = usize::BITS - n.leading_zeros();
    if dtype.part() == F64 { 8 + bits as usize } else { 6 + bits as usize }
}

fn eigen(ctx: &mut dyn OpContext, vectors: bool) -> Result<()> {
    let x = ctx.input(0)?;
    let Batch { count, rows: n, .. } = Batch::square(&x)?;
    let dtype = x.dtype;
    let mut dims = batch_dims(&x).to_vec();
    dims.push(n);
    let e = ctx.output(0, dtype, &dims)?;
    // This is TensorFlow's shape for an output that was not asked for.
    let v = ctx.output(1, dtype, if vectors { &x.dims } else { &[] })?;
    if x.is_empty() {
        return Ok(());
    }
    let a = ctx.temp(dtype, &x.dims)?;
    let basis = ctx.temp(dtype, &x.dims)?;
    let pairs = n.div_ceil(2);
    let table = ctx.temp(dtype, &[count, pairs, 2])?;
    let values = ctx.temp(dtype, &dims)?;
    let order = ctx.temp(I32, &dims)?;
    let device = ctx.device();
    let elements = device.check_extent(x.len())?;
    BeginEigen {
        x: Binding::from(&x),
        basis: Binding::from(&basis),
        a: Binding::from(&a),
        count: elements,
        n,
    }
    .enqueue(device, &BeginEigen::of(dtype), Grid::map(x.len(), dtype))?;
    rotate(device, [&a, &basis, &table], count, n)?;
    Diagonal { a: Binding::from(&a), y: Binding::from(&values), count: values.len(), n }.enqueue(
        device,
        &Diagonal::of(dtype),
        Grid::map(values.len(), dtype),
    )?;
    sort(device, &values, n, false, &e, &order)?;
    if !vectors {
        return Ok(());
    }
    Pick {
        x: (&basis).into(),
        order: (&order).into(),
        norm: (&values).into(),
        scale: (&values).into(),
        y: (&v).into(),
        count: v.len(),
        rows: n,
        cols: n,
        k: n,
    }
    .enqueue(device, &Pick::of(dtype, Picked::Eigen), Grid::map(v.len(), dtype))
}

/// All sweeps over `count` matrices of `n` rows.
fn rotate(device: &Device, [a, basis, table]: [&Tensor; 3], count: usize, n: usize) -> Result<()> {
    if n < 2 {
        return Ok(());
    }
    let (dtype, pairs) = (a.dtype, n.div_ceil(2));
    let workgroup = workgroup(n);
    let (lanes, across) = (workgroup as usize, across(workgroup) as usize);
    let wide =
        |rows: usize, cols: usize| rows.div_ceil(lanes / across) * (cols.div_ceil(across) + 1);
    let work = wide(pairs.div_ceil(2), pairs + 1) + pairs.div_ceil(lanes) + wide(n, pairs) + 1;
    let rounds = sweeps(dtype, n) * (2 * pairs - 1);
    let steps = (ITERATIONS / work).max(1);
    for first in (0..rounds).step_by(steps) {
        device.enqueue_counted(
            &RotatePlanes {
                a: Binding::from(a),
                basis: Binding::from(basis),
                table: Binding::from(table),
                batch: count,
                n,
                pairs,
                first,
                steps: steps.min(rounds - first),
            }
            .program(&RotatePlanes::of(dtype, workgroup), Grid::groups(count)),
            dtype.product_flops(6 * count * steps.min(rounds - first) * pairs * n),
        )?;
    }
    Ok(())
}

/// Invocations side by side along a row.
const fn across(workgroup: u32) -> u32 {
    if workgroup < 256 { 8 } else { 32 }
}

declare_program! {
    /// Rotates the planes of some rounds.
    struct RotatePlanes = "linalg eigen step"(dtype: DType, workgroup: u32);
    bindings { a: dtype, basis: dtype, table: dtype }
    params { batch: usize, n: usize, pairs: usize, first: usize, steps: usize }
}

impl RotatePlanes {
    fn shader(dtype: DType, workgroup: u32) -> Shader {
        let (word, magnitude) = bits(dtype);
        Self::declare("linalg eigen step", dtype, workgroup)
            .workgroup([workgroup, 1, 1])
            .numbers(dtype)
            .define(
                "NEGLIGIBLE",
                literal(
                    dtype,
                    (if dtype.part() == F64 { f64::EPSILON } else { f32::EPSILON.into() }) / 256.0,
                ),
            )
            .define("ACROSS", format!("{}u", across(workgroup)))
            .define("WORD", word)
            .define("MAGNITUDE", magnitude)
            .define(
                "INFINITE",
                if dtype.part() == F64 { "0x7ff0000000000000lu" } else { "0x7f800000u" },
            )
            .body(include_str!("../../../shaders/linalg/eigen_step.wgsl"))
    }
}

declare_program! {
    /// Mirrors the lower triangle, which TensorFlow reads, with a real diagonal, and writes the
    /// identity.
    struct BeginEigen = "linalg eigen begin"(dtype: DType);
    bindings { x: dtype, basis: dtype, a: dtype }
    params { count: u32, n: usize }
    shader "linalg eigen begin" =>
        .numbers(dtype)
        .body(include_str!("../../../shaders/linalg/eigen_begin.wgsl"))
        .map("a")
}

declare_program! {
    /// The diagonal of each matrix.
    struct Diagonal = "linalg eigen diagonal"(dtype: DType);
    bindings { a: dtype, y: dtype }
    params { count: usize, n: usize }
    shader "linalg eigen diagonal" =>
        .body(&format!(
            "fn value(t: u32) -> {} {{\n    return load_a(t * p.n + t % p.n);\n}}",
            dtype.value()
        ))
        .map("y")
}
