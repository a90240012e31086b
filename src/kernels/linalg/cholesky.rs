//! Cholesky, blocked. A matrix that is not positive definite becomes NaN in its lower triangle, as
//! on TensorFlow's own devices; nothing waits for the result.

use std::fmt::Write;

use smallvec::smallvec;

use super::batch::Batch;
use super::complex::{COMPLEX, Shape, embedded};
use super::lu::workgroup;
use super::order::{REALS, real};
use super::program::{Extents, Map, Part, map, update};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, F32, F64, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kind::Kind;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Most columns that are decomposed at a time in registers.
const EDGE: usize = 8;
/// The same in float64 where registers are few: 8 are 36 elements of a block, and more that spill.
const NARROW: usize = 4;
/// Matrices up to this size are decomposed in one dispatch.
const WHOLE: usize = 128;
/// Width of a panel of larger ones.
const PANEL: usize = 64;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Cholesky").types("T", REALS).items(&[(0, 2)]).kernel(|_| Ok(cholesky));
    r.op("Cholesky").types("T", COMPLEX).items(&[(0, 2)]).kernel(|_| {
        Ok(|ctx: &mut dyn OpContext| embedded(ctx, &[Shape::Hermitian], |ctx| cholesky(ctx)))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for dtype in REALS {
        for workgroup in [16, 64, 256] {
            let of = |kind: Kind| Panel::new(*dtype, workgroup, kind);
            for edge in [EDGE, NARROW] {
                let kinds = Kind::ALL.into_iter().filter(|kind| of(*kind).edge == edge);
                let kinds: Vec<_> = kinds.collect();
                if !kinds.is_empty() {
                    all.push(Panel { dtype: *dtype, workgroup, edge }.shader().only(kinds));
                }
            }
        }
    }
    all
}

fn cholesky(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let Batch { count, rows: n, .. } = Batch::square(&x)?;
    let dtype = x.dtype;
    let y = ctx.output(0, dtype, &x.dims)?;
    if x.is_empty() {
        return Ok(());
    }
    // With ones on the diagonal behind the last row, every matrix has whole blocks.
    let padded = n.next_multiple_of(EDGE);
    let state = ctx.temp(I32, &[count])?;
    let work = ctx.temp(dtype, &[count, padded, padded])?;
    let device = ctx.device();
    device.check_extent(work.len())?;
    map(device, Map::LowerPadded, Part::dense(&x, n, n), &state, n, &work, padded, padded)?;
    let panel = Panel::new(dtype, workgroup(padded), device.profile().kind());
    let whole = Part::dense(&work, padded, padded);
    let width = if padded <= WHOLE { padded } else { PANEL };
    for first in (0..padded).step_by(width) {
        let end = padded.min(first + width);
        device.enqueue(&Program {
            key: panel.key(),
            shader: &|| panel.shader(),
            bindings: smallvec![panel.matrices(&work), Binding::from(&state)],
            params: Params::new().u32(count).u32(padded).u32(first).u32(end),
            grid: Grid::groups(count),
        })?;
        let below = whole.from(end, first);
        let extents = Extents { batch: count, m: padded - end, n: padded - end, k: end - first };
        update(device, whole.from(end, end), below, below.transposed(true), extents, true)?;
    }
    map(device, Map::LowerIfOk, whole, &state, 0, &y, n, n)
}

/// All that the panels' text depends on.
#[derive(Debug, Clone, Copy)]
struct Panel {
    dtype: DType,
    workgroup: u32,
    /// Columns at a time.
    edge: usize,
}

impl Panel {
    /// The panel for a kind of adapters.
    fn new(dtype: DType, workgroup: u32, kind: Kind) -> Self {
        let is_narrow = dtype == F64 && kind == Kind::FewRegisters;
        Self { dtype, workgroup, edge: if is_narrow { NARROW } else { EDGE } }
    }

    fn key(self) -> Key {
        Key::new("linalg cholesky")
            .dtype(self.dtype)
            .number(self.workgroup)
            .number(self.edge as u32)
    }

    fn matrices(self, a: &Tensor) -> Binding {
        if self.dtype == F32 { Binding::raw(a, 16) } else { a.into() }
    }

    fn shader(self) -> Shader {
        let Self { dtype, workgroup, edge } = self;
        let shader = Shader::new(format!("linalg cholesky {dtype}, {edge} columns"));
        let (shader, access) = if dtype == F32 {
            (shader.bind_raw("a", "vec4<f32>", 16), IN_VEC4S)
        } else {
            (shader.bind("a", dtype), BY_ELEMENTS)
        };
        let [sums, step, put, declare, factor, solve, finish] = texts(edge);
        shader
            .bind("state", I32)
            .u32s(&["batch", "n", "first", "end"])
            .define("REAL", real(dtype))
            .define("ACCESS", access)
            .define("SUMS", sums)
            .define("STEP", step)
            .define("PUT", put)
            .define("DECLARE", declare)
            .define("FACTOR", factor)
            .define("SOLVE", solve)
            .define("FINISH", finish)
            .define("EDGE", edge.to_string())
            .workgroup([workgroup, 1, 1])
            .body(include_str!("../../../shaders/linalg/cholesky_panel.wgsl"))
    }
}

const IN_VEC4S: &str = "fn load_four(i: u32) -> four {\n    return a[p.off_a + i / 4u];\n}\n\nfn \
                        store_four(i: u32, v: four) {\n    a[p.off_a + i / 4u] = v;\n}\n";
const BY_ELEMENTS: &str = "fn load_four(i: u32) -> four {\n    return four(load_a(i), load_a(i + \
                           1u), load_a(i + 2u), load_a(i + 3u));\n}\n\nfn store_four(i: u32, v: \
                           four) {\n    store_a(i, v.x);\n    store_a(i + 1u, v.y);\n    \
                           store_a(i + 2u, v.z);\n    store_a(i + 3u, v.w);\n}\n";

/// The arithmetic on blocks of `edge` columns, unrolled: the sums' start, a step, what goes to
/// workgroup memory, the block's declaration, its decomposition, the solution for a row, and what
/// stores it.
fn texts(edge: usize) -> [String; 7] {
    let [mut sums, mut step, mut put, mut declare, mut factor, mut solve, mut finish] =
        [const { String::new() }; 7];
    for w in 0..edge {
        let (side, part) = (w / 4, ["x", "y", "z", "w"][w % 4]);
        if w % 4 == 0 {
            let _ = writeln!(sums, "            let side{side} = load_four(own + j + {w}u);");
            let _ = writeln!(
                finish,
                "            store_four(own + j + {w}u, four(s{w}, s{}, s{}, s{}));",
                w + 1,
                w + 2,
                w + 3
            );
        }
        let _ = writeln!(sums, "            var s{w} = side{side}.{part};");
        let other = format!("load_four(base + (j + {w}u) * n + k)");
        let _ = writeln!(step, "                s{w} -= product(x, {other});");
        let _ = writeln!(put, "                    diagonal[{}u + local_index] = s{w};", w * edge);
        for v in 0..w {
            let _ = writeln!(solve, "            s{w} -= s{v} * d{w}_{v};");
        }
        let _ = writeln!(solve, "            s{w} /= d{w}_{w};");
        for r in w..edge {
            let _ = writeln!(declare, "        var d{r}_{w} = real(0.0);");
            let _ = writeln!(factor, "                d{r}_{w} = diagonal[{}u];", w * edge + r);
        }
    }
    for c in 0..edge {
        let _ = writeln!(
            factor,
            "                is_positive = is_positive && !(d{c}_{c} <= real(0.0));"
        );
        let _ = writeln!(factor, "                d{c}_{c} = sqrt(d{c}_{c});");
        for r in c + 1..edge {
            let _ = writeln!(factor, "                d{r}_{c} /= d{c}_{c};");
        }
        for v in c + 1..edge {
            for r in v..edge {
                let _ = writeln!(factor, "                d{r}_{v} -= d{r}_{c} * d{v}_{c};");
            }
        }
    }
    [sums, step, put, declare, factor, solve, finish].map(|text| text.trim_end().to_owned())
}
