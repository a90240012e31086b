//! Qr by Householder reflections, with LAPACK's signs. TensorFlow runs its Qr in host memory; ours
//! stays on the device.
//!
//! Small matrices take one dispatch. Larger ones take one dispatch for each reflection; many
//! workgroups share its columns.

use super::batch::{Batch, batch_dims};
use super::number::{NUMBERS, Numbers, bits};
use super::program::{Map, MatrixSlice, map};
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType::{self, F16, F32, I32};
use crate::error::Result;
use crate::kernels::nested_context::NestedContext;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kernels::scalar::cast::cast;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

/// A matrix of up to this many elements has all of its reflections computed by one workgroup.
const SMALL: usize = 64 * 64;
/// Columns for a workgroup, as in the shader.
const COLUMNS: usize = 16;
/// Invocations of a workgroup.
const INVOCATIONS: u32 = 256;
/// Iterations of an invocation in a dispatch, well below [`crate::device::Profile::loop_limit`].
const ITERATIONS: usize = 30_000;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Qr").types("T", NUMBERS).items(&[(0, 2)]).kernel(|attrs| {
        let full = attrs.bool("full_matrices")?;
        Ok(move |ctx: &mut dyn OpContext| qr(ctx, full))
    });
    r.op("Qr").types("T", &[F16]).items(&[(0, 2)]).kernel(|attrs| {
        let full = attrs.bool("full_matrices")?;
        Ok(move |ctx: &mut dyn OpContext| in_f32(ctx, |ctx| qr(ctx, full)))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS.iter().flat_map(|t| [Reflect::shader(*t, true), Reflect::shader(*t, false)]).collect()
}

/// Runs `f` on input 0 in float32 and rounds its two results.
fn in_f32(ctx: &mut dyn OpContext, f: impl FnOnce(&mut dyn OpContext) -> Result<()>) -> Result<()> {
    let x = ctx.input(0)?;
    let wide = ctx.temp(F32, &x.dims)?;
    if !x.is_empty() {
        cast(ctx.device(), &x, &wide)?;
    }
    let inputs = [wide];
    let mut nested = NestedContext::new(ctx, &inputs);
    f(&mut nested)?;
    let outputs = nested.outputs;
    for (i, output) in outputs.into_iter().flatten().enumerate() {
        let y = ctx.output(i, x.dtype, &output.dims)?;
        if !y.is_empty() {
            cast(ctx.device(), &output, &y)?;
        }
    }
    Ok(())
}

fn qr(ctx: &mut dyn OpContext, full: bool) -> Result<()> {
    let x = ctx.input(0)?;
    let Batch { count, rows: m, cols: n } = Batch::of(&x)?;
    let reflections = m.min(n);
    let inner = if full { m } else { reflections };
    let dims = |rows, cols| {
        let mut dims = Dims::from_slice(batch_dims(&x));
        dims.extend([rows, cols]);
        dims
    };
    let dtype = x.dtype;
    let q = ctx.output(0, dtype, &dims(m, inner))?;
    let r = ctx.output(1, dtype, &dims(inner, n))?;
    let work = ctx.temp(dtype, &x.dims)?;
    let side = ctx.temp(dtype, &[count, reflections, 3])?;
    // The maps need a table, but do not read it.
    let unread = ctx.temp(I32, &[1])?;
    let device = ctx.device();
    device.check_extent(q.len().max(r.len()).max(x.len()))?;
    map(device, Map::Copy, MatrixSlice::dense(&x, m, n), &unread, 0, &work, m, n)?;
    map(device, Map::Identity, MatrixSlice::dense(&x, m, n), &unread, 0, &q, m, inner)?;
    if x.is_empty() {
        return Ok(());
    }
    let matrices = Matrices { a: &work, side: &side, count, m, n, reflections };
    matrices.reflect(device, true, &work, n)?;
    map(device, Map::Triangle, MatrixSlice::dense(&work, m, n), &side, reflections, &r, inner, n)?;
    matrices.reflect(device, false, &q, inner)
}

/// Matrices whose columns hold reflections, and the table of the reflections' scalars.
struct Matrices<'t> {
    a: &'t Tensor,
    side: &'t Tensor,
    count: usize,
    m: usize,
    n: usize,
    reflections: usize,
}

impl Matrices<'_> {
    /// Computes the reflections (`factor`), or applies them, the last one first, to the identity in
    /// `q` of `cols` columns.
    fn reflect(&self, device: &Device, factor: bool, q: &Tensor, cols: usize) -> Result<()> {
        let Self { count, m, n, reflections, .. } = *self;
        let dtype = q.dtype;
        let tiles = cols.div_ceil(COLUMNS);
        let one_group = m * cols <= SMALL || count >= 256;
        let groups = if one_group { 1 } else { tiles };
        let (all, lanes) = (INVOCATIONS as usize, INVOCATIONS as usize / COLUMNS);
        let work =
            tiles.div_ceil(groups) * (2 * m.div_ceil(lanes) + lanes + 3) + 2 * m.div_ceil(all) + 19;
        let steps = if groups == 1 { (ITERATIONS / work).max(1) } else { 1 };
        for done in (0..reflections).step_by(steps) {
            let steps = steps.min(reflections - done);
            let first = if factor { done } else { reflections - 1 - done };
            // Each reflection takes a product with its column, and another product with the result
            // of the first.
            let taken = if factor { done..done + steps } else { first + 1 - steps..first + 1 };
            let products: usize = taken.map(|i| (m - i) * (cols - i)).sum();
            device.enqueue_counted(
                &Reflect {
                    a: Binding::from(self.a),
                    side: Binding::from(self.side),
                    q: Binding::from(q),
                    batch: count,
                    groups,
                    m,
                    n,
                    cols,
                    reflections,
                    first,
                    steps,
                }
                .program(&Reflect::of(dtype, factor), Grid::groups(count * groups)),
                dtype.product_flops(2 * count * products),
            )?;
        }
        Ok(())
    }
}

declare_program! {
    /// Computes reflections, or applies them.
    struct Reflect = "linalg reflect"(dtype: DType, factor: bool);
    bindings { a: dtype, side: dtype, q: dtype }
    params {
        batch: usize, groups: usize, m: usize, n: usize, cols: usize, reflections: usize,
        first: usize, steps: usize,
    }
}

impl Reflect {
    fn shader(dtype: DType, factor: bool) -> Shader {
        let step = if factor {
            "        let k = p.first + s;\n        let h = reflection(base, k, local_index);\n\
             \x20       if group % p.groups == 0u && local_index == 0u {\n            let at = \
             3u * (matrix * p.reflections + k);\n            store_side(at, \
             h.diagonal);\n            store_side(at + 1u, h.scale);\n            \
             store_side(at + 2u, h.tau);\n        }\n        let first_column = k + 1u;\n\
             \x20       workgroupBarrier();"
        } else {
            "        let k = p.first - s;\n        let at = 3u * (matrix * p.reflections + k);\n\
             \x20       let h = Reflection(load_side(at), load_side(at + 1u), \
             conjugate(load_side(at + 2u)));\n        let first_column = k;"
        };
        let (word, magnitude) = bits(dtype);
        Self::declare(
            if factor { "linalg reflect, factor" } else { "linalg reflect, apply" },
            dtype,
            factor,
        )
        .workgroup([INVOCATIONS, 1, 1])
        .numbers(dtype)
        .define("WORD", word)
        .define("MAGNITUDE", magnitude)
        .define("SIZE", if dtype.is_complex() { COMPLEX_SIZE } else { REAL_SIZE })
        .define("STEP", step)
        .body(include_str!("../../../shaders/linalg/reflect.wgsl"))
    }
}

const REAL_SIZE: &str = "fn size_of(x: number) -> word {
    return bits_of(x);
}

fn is_real(z: number) -> bool {
    return true;
}

fn square(z: number) -> real {
    return z * z;
}";
const COMPLEX_SIZE: &str = "fn size_of(z: number) -> word {
    return larger(bits_of(z.x), bits_of(z.y));
}

fn is_real(z: number) -> bool {
    return bits_of(z.y) == word(0);
}

fn square(z: number) -> real {
    return z.x * z.x + z.y * z.y;
}";
