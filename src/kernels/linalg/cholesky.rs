//! Cholesky, blocked. A matrix that is not positive definite becomes NaN in its lower triangle, as
//! on TensorFlow's own devices; nothing waits for the result.

use std::fmt::Write;

use super::batch::Batch;
use super::lu::workgroup;
use super::number::{NUMBERS, Numbers};
use super::program::{Extents, Map, MatrixSlice, map, update};
use crate::device::{Binding, Grid, Key, KeyPart, declare_program};
use crate::dtype::DType::{self, F32, F64, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kind::Kind;
use crate::shader::{Shader, Storage};
use crate::tensor::Tensor;

/// The most columns that are decomposed at a time in registers.
const EDGE: usize = 8;
/// The same for complex numbers, and for float64 where registers are few: with 8 columns a block
/// has 36 elements, and more values that would spill.
const NARROW: usize = 4;
/// Matrices up to this size are decomposed in one dispatch.
const WHOLE: usize = 128;
/// Width of a panel of larger ones.
const PANEL: usize = 64;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Cholesky").types("T", NUMBERS).items(&[(0, 2)]).kernel(|_| Ok(cholesky));
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for dtype in NUMBERS {
        for workgroup in [16, 64, 256] {
            let of = |kind: Kind| Panel::new(*dtype, workgroup, kind);
            for edge in [EDGE, NARROW] {
                let kinds = Kind::ALL.into_iter().filter(|kind| of(*kind).edge == edge);
                let kinds: Vec<_> = kinds.collect();
                if !kinds.is_empty() {
                    all.push(
                        FactorPanel::shader(Panel { dtype: *dtype, workgroup, edge }).only(kinds),
                    );
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
    // Behind the last row there are ones on the diagonal, so every matrix has whole blocks.
    let padded = n.next_multiple_of(EDGE);
    let state = ctx.temp(I32, &[count])?;
    let work = ctx.temp(dtype, &[count, padded, padded])?;
    let device = ctx.device();
    device.check_extent(work.len())?;
    map(device, Map::LowerPadded, MatrixSlice::dense(&x, n, n), &state, n, &work, padded, padded)?;
    let panel = Panel::new(dtype, workgroup(padded), device.profile().kind());
    let whole = MatrixSlice::dense(&work, padded, padded);
    let width = if padded <= WHOLE { padded } else { PANEL };
    for first in (0..padded).step_by(width) {
        let end = padded.min(first + width);
        device.enqueue_counted(
            &FactorPanel {
                a: panel.matrices(&work),
                state: Binding::from(&state),
                batch: count,
                n: padded,
                first,
                end,
            }
            .program(&FactorPanel::of(panel), Grid::groups(count)),
            dtype.product_flops(
                count * (first..end).map(|j| (padded - j) * (j - first)).sum::<usize>(),
            ),
        )?;
        let below = whole.from(end, first);
        let extents = Extents { batch: count, m: padded - end, n: padded - end, k: end - first };
        update(device, whole.from(end, end), below, below.transposed(true), extents, true)?;
    }
    map(device, Map::LowerIfOk, whole, &state, 0, &y, n, n)
}

/// The properties that the panels' text depends on.
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
        let is_wide = dtype == F64 && kind == Kind::FewRegisters;
        let is_narrow = dtype.is_complex() || is_wide;
        Self { dtype, workgroup, edge: if is_narrow { NARROW } else { EDGE } }
    }

    fn matrices(self, a: &Tensor) -> Binding {
        if self.dtype == F32 { Binding::raw(a, 16) } else { a.into() }
    }

    fn storage(self) -> Storage {
        if self.dtype == F32 { Storage::Raw("vec4<f32>", 16) } else { Storage::Typed(self.dtype) }
    }
}

impl KeyPart for Panel {
    fn add_to(&self, key: Key) -> Key {
        key.dtype(self.dtype).number(self.workgroup).number(self.edge as u32)
    }
}

declare_program! {
    /// Decomposes a panel of columns.
    struct FactorPanel = "linalg cholesky"(panel: Panel);
    bindings { a: panel.storage(), state: I32 }
    params { batch: usize, n: usize, first: usize, end: usize }
}

impl FactorPanel {
    fn shader(panel: Panel) -> Shader {
        let Panel { dtype, workgroup, edge } = panel;
        let access = if dtype == F32 { IN_VEC4S } else { BY_ELEMENTS };
        let four = if dtype.is_complex() { COMPLEX } else { REAL };
        let [sums, step, put, declare, factor, solve, finish] = texts(dtype, edge);
        Self::declare(format!("linalg cholesky {dtype}, {edge} columns"), panel)
            .numbers(dtype)
            .define("ACCESS", format!("{four}{access}"))
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

const REAL: &str = "alias four = vec4<real>;

fn product(x: four, y: four) -> real {
    return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}
";
const COMPLEX: &str = "struct four {
    x: number,
    y: number,
    z: number,
    w: number,
}

fn product(x: four, y: four) -> number {
    return times(x.x, conjugate(y.x)) + times(x.y, conjugate(y.y)) + times(x.z, conjugate(y.z))
        + times(x.w, conjugate(y.w));
}
";
const IN_VEC4S: &str = "
fn load_four(i: u32) -> four {
    return a[p.off_a + i / 4u];
}

fn store_four(i: u32, v: four) {
    a[p.off_a + i / 4u] = v;
}
";
const BY_ELEMENTS: &str = "
fn load_four(i: u32) -> four {
    return four(load_a(i), load_a(i + 1u), load_a(i + 2u), load_a(i + 3u));
}

fn store_four(i: u32, v: four) {
    store_a(i, v.x);
    store_a(i + 1u, v.y);
    store_a(i + 2u, v.z);
    store_a(i + 3u, v.w);
}
";

/// The arithmetic on blocks of `edge` columns, unrolled: the start of the sums, a step, the values
/// that go to workgroup memory, the block's declaration, its decomposition, the solution for a row,
/// and its stores.
fn texts(dtype: DType, edge: usize) -> [String; 7] {
    let is_complex = dtype.is_complex();
    // The factor on the right is conjugated.
    let product = |a: &str, b: &str| {
        if is_complex { format!("times({a}, conjugate({b}))") } else { format!("{a} * {b}") }
    };
    let real_of = |a: &str| if is_complex { format!("real_of({a})") } else { a.to_owned() };
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
            let _ = writeln!(
                solve,
                "            s{w} -= {};",
                product(&format!("s{v}"), &format!("d{w}_{v}"))
            );
        }
        let _ = writeln!(solve, "            s{w} /= {};", real_of(&format!("d{w}_{w}")));
        for r in w..edge {
            let _ = writeln!(declare, "        var d{r}_{w} = number_of(real(0.0));");
            let _ = writeln!(factor, "                d{r}_{w} = diagonal[{}u];", w * edge + r);
        }
    }
    for c in 0..edge {
        let pivot = real_of(&format!("d{c}_{c}"));
        let _ = writeln!(
            factor,
            "                is_positive = is_positive && !({pivot} <= real(0.0));"
        );
        let _ = writeln!(factor, "                d{c}_{c} = number_of(sqrt({pivot}));");
        for r in c + 1..edge {
            let _ = writeln!(factor, "                d{r}_{c} /= {pivot};");
        }
        for v in c + 1..edge {
            for r in v..edge {
                let taken = product(&format!("d{r}_{c}"), &format!("d{v}_{c}"));
                let _ = writeln!(factor, "                d{r}_{v} -= {taken};");
            }
        }
    }
    [sums, step, put, declare, factor, solve, finish].map(|text| text.trim_end().to_owned())
}
