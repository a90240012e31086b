//! SelfAdjointEigV2 by cyclic Jacobi rotations of disjoint pairs, eigenvalues ascending.
//!
//! The number of sweeps is fixed by the size (the iteration converges quadratically), so that
//! nothing waits for the device. Unlike TensorFlow's CPU kernel, which refuses them, matrices with
//! NaNs or infinities give NaNs.

use smallvec::smallvec;

use super::batch::{Batch, batch_dims};
use super::lu::workgroup;
use super::number::{NUMBERS, Numbers, bits, literal};
use super::order::{pick_shader, sort};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, F64, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::shader::{Field, Shader};
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
        let steps = [16, 64, 256].map(|w| step_shader(*t, w));
        [steps.to_vec(), vec![begin_shader(*t), diagonal_shader(*t), vectors_shader(*t)]].concat()
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
    device.enqueue(&Program {
        key: Key::new("linalg eigen begin").dtype(dtype),
        shader: &|| begin_shader(dtype),
        bindings: smallvec![Binding::from(&x), Binding::from(&basis), Binding::from(&a)],
        params: Params::new().u32(elements).u32(n),
        grid: Grid::map(x.len(), dtype),
    })?;
    rotate(device, [&a, &basis, &table], count, n)?;
    device.enqueue(&Program {
        key: Key::new("linalg eigen diagonal").dtype(dtype),
        shader: &|| diagonal_shader(dtype),
        bindings: smallvec![Binding::from(&a), Binding::from(&values)],
        params: Params::new().u32(values.len()).u32(n),
        grid: Grid::map(values.len(), dtype),
    })?;
    sort(device, &values, n, false, &e, &order)?;
    if !vectors {
        return Ok(());
    }
    device.enqueue(&Program {
        key: Key::new("linalg eigen vectors").dtype(dtype),
        shader: &|| vectors_shader(dtype),
        bindings: smallvec![
            Binding::from(&basis),
            Binding::from(&order),
            Binding::from(&values),
            Binding::from(&values),
            Binding::from(&v)
        ],
        params: Params::new().u32(elements).u32(n).u32(n).u32(n),
        grid: Grid::map(v.len(), dtype),
    })
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
            &Program {
                key: Key::new("linalg eigen step").dtype(dtype).number(workgroup),
                shader: &|| step_shader(dtype, workgroup),
                bindings: smallvec![Binding::from(a), Binding::from(basis), Binding::from(table)],
                params: Params::new()
                    .u32(count)
                    .u32(n)
                    .u32(pairs)
                    .u32(first)
                    .u32(steps.min(rounds - first)),
                grid: Grid::groups(count),
            },
            dtype.product_flops(6 * count * steps.min(rounds - first) * pairs * n),
        )?;
    }
    Ok(())
}

/// Invocations side by side along a row.
const fn across(workgroup: u32) -> u32 {
    if workgroup < 256 { 8 } else { 32 }
}

fn step_shader(dtype: DType, workgroup: u32) -> Shader {
    let (word, magnitude) = bits(dtype);
    Shader::new("linalg eigen step")
        .bind("a", dtype)
        .bind("basis", dtype)
        .bind("table", dtype)
        .u32s(&["batch", "n", "pairs", "first", "steps"])
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

/// Mirrors the lower triangle, which TensorFlow reads, with a real diagonal, and writes the
/// identity.
fn begin_shader(dtype: DType) -> Shader {
    Shader::new("linalg eigen begin")
        .bind("x", dtype)
        .bind("basis", dtype)
        .bind("a", dtype)
        .param("count", Field::U32)
        .param("n", Field::U32)
        .numbers(dtype)
        .body(include_str!("../../../shaders/linalg/eigen_begin.wgsl"))
        .map("a")
}

fn diagonal_shader(dtype: DType) -> Shader {
    Shader::new("linalg eigen diagonal")
        .bind("a", dtype)
        .bind("y", dtype)
        .param("count", Field::U32)
        .param("n", Field::U32)
        .body(&format!(
            "fn value(t: u32) -> {} {{\n    return load_a(t * p.n + t % p.n);\n}}",
            dtype.value()
        ))
        .map("y")
}

fn vectors_shader(dtype: DType) -> Shader {
    pick_shader(
        "linalg eigen vectors",
        dtype,
        "    return load_x((matrix * p.rows + i) * p.k + column);",
    )
}
