//! Cholesky, blocked. A matrix that is not positive definite becomes NaN in its lower triangle, as on TensorFlow's own devices; nothing waits for
//! the result.

use smallvec::smallvec;

use super::batch::Batch;
use super::lu::{access, fours, matrices, workgroup};
use super::order::{REALS, real};
use super::program::{Extents, Map, Part, block, map, update};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, F32, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::shader::Shader;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Cholesky").types("T", REALS).kernel(|_| Ok(cholesky));
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each =
        |t: &DType| [16, 64, 256].map(|w| [false, true].map(|fours| panel_shader(*t, w, fours && *t == F32))).concat();
    REALS.iter().flat_map(each).collect()
}

fn cholesky(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let Batch { count, rows: n, .. } = Batch::square(&x)?;
    let dtype = x.dtype;
    let y = ctx.output(0, dtype, &x.dims)?;
    if x.is_empty() {
        return Ok(());
    }
    let state = ctx.temp(I32, &[count])?;
    let work = ctx.temp(dtype, &x.dims)?;
    let device = ctx.device();
    map(device, Map::Lower, Part::dense(&x, n, n), &state, 0, &work, n, n)?;
    let workgroup = workgroup(n);
    let whole = Part::dense(&work, n, n);
    let fours = fours(&work, n);
    for first in (0..n).step_by(block(n)) {
        let width = block(n).min(n - first);
        let end = first + width;
        device.enqueue(&Program {
            key: Key::new("linalg cholesky").dtype(dtype).number(workgroup).number(u32::from(fours)),
            shader: &|| panel_shader(dtype, workgroup, fours),
            bindings: smallvec![matrices(&work, fours), Binding::from(&state)],
            params: Params::new().u32(count).u32(n).u32(first).u32(end),
            grid: Grid::groups(count),
        })?;
        let below = whole.from(end, first);
        let extents = Extents { batch: count, m: n - end, n: n - end, k: width };
        update(device, whole.from(end, end), below, below.transposed(true), extents, true)?;
    }
    map(device, Map::LowerIfOk, whole, &state, 0, &y, n, n)
}

fn panel_shader(dtype: DType, workgroup: u32, fours: bool) -> Shader {
    let eliminate = if fours {
        "for (var j = (k + 1u) / 4u; j < (min(p.end, i + 1u) + 3u) / 4u; j += 1u) {
                let at = p.off_a + (base + i * n) / 4u + j;
                let c = 4u * j - p.first;
                let others = vec4(column[c], column[c + 1u], column[c + 2u], column[c + 3u]);
                a[at] = select(a[at], a[at] - factor * others, 4u * j + vec4<u32>(0u, 1u, 2u, 3u) > vec4<u32>(k));
            }"
    } else {
        "for (var j = k + 1u; j < min(p.end, i + 1u); j += 1u) {
                store_a(base + i * n + j, load_a(base + i * n + j) - factor * column[j - p.first]);
            }"
    };
    access(Shader::new("linalg cholesky"), dtype, fours)
        .bind("state", I32)
        .u32s(&["batch", "n", "first", "end"])
        .define("REAL", real(dtype))
        .define("ELIMINATE", eliminate)
        .workgroup([workgroup, 1, 1])
        .body(include_str!("../../../shaders/linalg/cholesky_panel.wgsl"))
}
