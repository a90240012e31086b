//! Scans along one axis: Cumsum, Cumprod, CumulativeLogsumexp. Each is a row with its identity and
//! its combination.
//!
//! A line is cut into chunks when there are too few lines to occupy the device: the chunks' totals
//! are scanned by the same program (recursively) and start the second pass. Half types are scanned
//! in float32 and rounded once at the end. The order of operations depends on the shape and the
//! adapter's class only, so results are reproducible.
//!
//! Where extents allow it an invocation takes four lines side by side, or four elements of a line,
//! at once ([`Vec4s`]). Tensors beyond one binding are scanned in windows of whole lines. A line
//! that does not fit by itself is always cut into chunks; their totals are computed and then their
//! scans, in windows of whole chunks.

mod text;

use crate::device::{Binding, Grid};
use crate::dtype::DType::{self, *};
use crate::dtype::{types, union};
use crate::error::Result;
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::kernels::scalar::cast::cast;
use crate::kernels::windows::{Scratch, largest, limit, part, ranges, write};
use crate::require;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;
use text::{ScanProgram, ScanVariant};

/// From this number of invocations on, each scans whole lines.
const MANY: usize = 4096;
/// Elements in a chunk if there are fewer lines.
const CHUNK: usize = 64;

/// One scan.
#[derive(Debug)]
pub struct Row {
    /// TensorFlow's op.
    pub op: &'static str,
    /// Element types, after TensorFlow's GPU list.
    pub types: &'static [DType],
    /// The neutral element as WGSL, given the element type.
    pub identity: fn(DType) -> String,
    /// The combination of `a` and `b` as WGSL; `{T}` stands for the type in which they are
    /// computed.
    pub combine: &'static str,
    /// The combination in float64, for tests.
    pub reference: fn(f64, f64) -> f64,
}

/// Every scan, sorted by name.
pub const ROWS: &[Row] = &[
    Row {
        op: "Cumprod",
        types: union!(types::FLOATS, types::INDEX),
        identity: |t| format!("{}(1)", t.value()),
        combine: "a * b",
        reference: |a, b| a * b,
    },
    Row {
        op: "Cumsum",
        types: union!(types::FLOATS, types::INDEX),
        identity: |t| format!("{}(0)", t.value()),
        combine: "a + b",
        reference: |a, b| a + b,
    },
    Row {
        op: "CumulativeLogsumexp",
        types: types::FLOATS,
        // The identity is a parameter, since WGSL has no infinite constants.
        identity: |t| format!("{}(bitcast<f32>(p.minus_infinity))", t.value()),
        combine: "log_sum_exp_{T}(a, b)",
        reference: |a, b| a.max(b) + (a.min(b) - a.max(b)).exp().ln_1p(),
    },
];

/// Registers the family.
pub fn register(registry: &mut Registry) {
    for row in ROWS {
        registry
            .op(row.op)
            .types("T", row.types)
            .types("Tidx", types::INDEX)
            .host(&["axis"])
            .kernel(move |attrs| {
                let scan = Scan {
                    row,
                    dtype: attrs.dtype("T")?,
                    exclusive: attrs.bool("exclusive")?,
                    reverse: attrs.bool("reverse")?,
                };
                Ok(move |ctx: &mut dyn OpContext| scan.run(ctx))
            });
    }
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = Vec::new();
    for row in ROWS {
        for &dtype in row.types {
            let computed = dtype.accumulator();
            for (pass, exclusive) in [
                (ScanPass::Totals, false),
                (ScanPass::Apply, false),
                (ScanPass::Apply, true),
                (ScanPass::Whole, true),
            ] {
                let shader = |stored: DType, vec4s: Vec4s| {
                    let loaded = dtype;
                    let variant =
                        ScanVariant { row, dtype, loaded, stored, pass, exclusive, vec4s };
                    ScanProgram::shader(variant)
                };
                shaders.push(shader(computed, Vec4s::None));
                if vec4::supports(dtype) {
                    let stored = if pass == ScanPass::Totals { computed } else { dtype };
                    let vec4s = [Vec4s::Lines, Vec4s::Elements];
                    shaders.extend(vec4s.map(|vec4s| shader(stored, vec4s)));
                }
            }
        }
    }
    shaders
}

struct Scan {
    row: &'static Row,
    dtype: DType,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    fn run(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let axis = ctx.host_i64(1, &format!("{}: axis", self.row.op))?;
        let x = ctx.input(0)?;
        let rank = x.rank() as i64;
        require!(
            (-rank..rank).contains(&axis),
            "Expected scan axis in the range [{}, {rank}), but got {axis}",
            -rank
        );
        let axis = axis.rem_euclid(rank) as usize;
        let y = ctx.output(0, x.dtype, &x.dims)?;
        if x.is_empty() {
            return Ok(());
        }
        let lines = Lines {
            outer: x.dims[..axis].iter().product(),
            n: x.dims[axis],
            inner: x.dims[axis + 1..].iter().product(),
        };
        if self.dtype.lanes() == 1 || Vec4s::of(&[&x, &y], lines) != Vec4s::None {
            return self.scan(ctx, &x, &y, lines, self.exclusive, self.reverse);
        }
        // Neighbouring lines share words of the output: scan into float32, then round.
        let wide = ctx.temp(F32, &x.dims)?;
        self.scan(ctx, &x, &wide, lines, self.exclusive, self.reverse)?;
        cast(ctx.device(), &wide, &y)
    }
}

/// A dense tensor seen as [outer, n, inner], scanned along n.
#[derive(Debug, Clone, Copy)]
struct Lines {
    outer: usize,
    n: usize,
    inner: usize,
}

/// The work of a program on a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanPass {
    /// Combines it to one value.
    Totals,
    /// Scans it from a given start.
    Apply,
    /// Scans it from the identity: the chunk is a whole line.
    Whole,
}

/// The elements that an invocation reads and writes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vec4s {
    /// Single elements.
    None,
    /// Elements of four lines side by side.
    Lines,
    /// Four elements of a line.
    Elements,
}

impl Vec4s {
    /// The vec4s that fit the lines of `tensors`.
    fn of(tensors: &[&Tensor], lines: Lines) -> Self {
        match lines {
            _ if !vec4::aligned(tensors) => Self::None,
            Lines { inner: 1, n, .. } if n.is_multiple_of(4) => Self::Elements,
            Lines { inner, .. } if inner.is_multiple_of(4) => Self::Lines,
            _ => Self::None,
        }
    }
}

impl Scan {
    /// Scans `x` into `y`. Its type is the one in which `x` is computed, or the op's if vec4s fit.
    fn scan(
        &self,
        ctx: &mut dyn OpContext,
        x: &Tensor,
        y: &Tensor,
        lines: Lines,
        exclusive: bool,
        reverse: bool,
    ) -> Result<()> {
        let Lines { outer, n, inner } = lines;
        let limit = limit(ctx.device().capabilities());
        if x.bytes().max(y.bytes()) > limit {
            return self.scan_windows(ctx, [x, y], lines, exclusive, reverse, limit);
        }
        ctx.device().check_extent(x.len())?;
        let vec4s = Vec4s::of(&[x, y], lines);
        let invocations = outer * inner / if vec4s == Vec4s::Lines { 4 } else { 1 };
        let longest = ctx.device().profile().loop_limit;
        if invocations >= MANY && n < longest || n <= CHUNK {
            let step =
                Dispatch { pass: ScanPass::Whole, lines, chunk: n, exclusive, reverse, vec4s };
            return self.enqueue(ctx, &step, &[x, y]);
        }
        let chunks = n.div_ceil(CHUNK);
        let computed = self.dtype.accumulator();
        let totals = ctx.temp(computed, &[outer, chunks, inner])?;
        let starts = ctx.temp(computed, &[outer, chunks, inner])?;
        let apply =
            Dispatch { pass: ScanPass::Apply, lines, chunk: CHUNK, exclusive, reverse, vec4s };
        self.enqueue(
            ctx,
            &Dispatch { pass: ScanPass::Totals, exclusive: false, ..apply },
            &[x, &totals],
        )?;
        self.scan(ctx, &totals, &starts, Lines { n: chunks, ..lines }, true, false)?;
        self.enqueue(ctx, &apply, &[x, y, &starts])
    }

    /// The same for tensors if one binding holds `limit` bytes.
    fn scan_windows(
        &self,
        ctx: &mut dyn OpContext,
        [x, y]: [&Tensor; 2],
        lines: Lines,
        exclusive: bool,
        reverse: bool,
        limit: u64,
    ) -> Result<()> {
        let Lines { outer, n, inner } = lines;
        let computed = self.dtype.accumulator();
        let widest = [x.dtype, y.dtype, computed].into_iter().map(DType::size).max().unwrap_or(1);
        let fits = |elements: usize| (elements * widest) as u64 <= limit;
        let count = largest(outer, |count| fits(count * n * inner));
        if count > 0 {
            let mut scratch = Scratch::new(ctx);
            for (first, outer) in ranges(outer, count) {
                let [x, y] = [x, y].map(|t| part(t, first * n * inner, outer * n * inner));
                let lines = Lines { outer, ..lines };
                write(scratch.window(), &y, |ctx, y| {
                    self.scan(ctx, &x, y, lines, exclusive, reverse)
                })?;
            }
            return Ok(());
        }
        let chunk = largest(n, |rows| fits(rows * inner)).min(CHUNK);
        if chunk < 2 {
            let columns = largest(inner, fits);
            return self.scan_rows(ctx, [x, y], lines, exclusive, reverse, columns);
        }
        let rows = largest(n, |rows| fits(rows * inner)) / chunk * chunk;
        let chunks = n.div_ceil(chunk);
        let totals = ctx.temp(computed, &[1, chunks, inner])?;
        let starts = ctx.temp(computed, &[1, chunks, inner])?;
        // Lines one after the other, each in windows of whole chunks in the order of the scan.
        let window = |t: &Tensor, line: usize, (first, count): (usize, usize)| {
            let at = if reverse { n - first - count } else { first };
            part(t, (line * n + at) * inner, count * inner)
        };
        let in_chunks = |t: &Tensor, (first, count): (usize, usize)| {
            part(t, first / chunk * inner, count.div_ceil(chunk) * inner)
        };
        let step = |x: &Tensor, y: &Tensor, pass, n| {
            let lines = Lines { outer: 1, n, inner };
            Dispatch { pass, lines, chunk, exclusive, reverse, vec4s: Vec4s::of(&[x, y], lines) }
        };
        let mut scratch = Scratch::new(ctx);
        for line in 0..outer {
            for at in ranges(n, rows) {
                let (x, y, totals) =
                    (window(x, line, at), window(y, line, at), in_chunks(&totals, at));
                let step = Dispatch { exclusive: false, ..step(&x, &y, ScanPass::Totals, at.1) };
                self.enqueue(scratch.window(), &step, &[&x, &totals])?;
            }
            let of_chunks = Lines { outer: 1, n: chunks, inner };
            self.scan(scratch.window(), &totals, &starts, of_chunks, true, false)?;
            for at in ranges(n, rows) {
                let (x, y, starts) =
                    (window(x, line, at), window(y, line, at), in_chunks(&starts, at));
                self.enqueue(
                    scratch.window(),
                    &step(&x, &y, ScanPass::Apply, at.1),
                    &[&x, &y, &starts],
                )?;
            }
        }
        Ok(())
    }

    /// The same where there are too many lines side by side for two elements of each to fit: some
    /// columns at a time, element after element.
    fn scan_rows(
        &self,
        ctx: &mut dyn OpContext,
        [x, y]: [&Tensor; 2],
        Lines { outer, n, inner }: Lines,
        exclusive: bool,
        reverse: bool,
        columns: usize,
    ) -> Result<()> {
        let computed = self.dtype.accumulator();
        let mut states = [ctx.temp(computed, &[columns])?, ctx.temp(computed, &[columns])?];
        for (line, (first, count)) in
            (0..outer).flat_map(|line| ranges(inner, columns).map(move |at| (line, at)))
        {
            let lines = Lines { outer: 1, n: 1, inner: count };
            for k in 0..n {
                let row = line * n + if reverse { n - 1 - k } else { k };
                let [x, y] = [x, y].map(|t| part(t, row * inner + first, count));
                let [old, new] = [0, 1].map(|i| part(&states[i], 0, count));
                let pass = if k == 0 { ScanPass::Whole } else { ScanPass::Apply };
                for (to, exclusive) in [(&y, exclusive), (&new, false)] {
                    let vec4s = Vec4s::of(&[&x, to], lines);
                    let step = Dispatch { pass, lines, chunk: 1, exclusive, reverse: false, vec4s };
                    let tensors = [&x, to, &old];
                    self.enqueue(ctx, &step, &tensors[..if k == 0 { 2 } else { 3 }])?;
                }
                states.swap(0, 1);
            }
        }
        Ok(())
    }

    fn enqueue(&self, ctx: &mut dyn OpContext, step: &Dispatch, tensors: &[&Tensor]) -> Result<()> {
        let Dispatch {
            pass,
            lines: Lines { outer, mut n, mut inner },
            mut chunk,
            exclusive,
            reverse,
            vec4s,
        } = *step;
        let chunks = n.div_ceil(chunk);
        let operations = self.dtype.operations(outer * n * inner);
        match vec4s {
            Vec4s::None => {}
            Vec4s::Lines => inner /= 4,
            Vec4s::Elements => (n, chunk) = (n / 4, chunk / 4),
        }
        let count = outer * chunks * inner;
        let variant = ScanVariant {
            row: self.row,
            dtype: self.dtype,
            loaded: tensors[0].dtype,
            stored: tensors[1].dtype,
            pass,
            exclusive,
            vec4s,
        };
        let binding = |k: usize| {
            let (t, in_vec4s) = (tensors[k], variant.in_vec4s()[k]);
            if in_vec4s { Binding::raw(t, vec4::unit(t.dtype)) } else { Binding::from(t) }
        };
        let (x, y, starts) = (binding(0), binding(1), (tensors.len() > 2).then(|| binding(2)));
        let minus_infinity = f32::NEG_INFINITY.to_bits();
        let call =
            ScanProgram { x, y, starts, count, n, inner, chunks, chunk, reverse, minus_infinity };
        let (of, grid) = (ScanProgram::of(variant), Grid::linear(count, WORKGROUP));
        ctx.device().enqueue_counted(&call.program(&of, grid), operations)
    }
}

/// One dispatch.
#[derive(Debug, Clone, Copy)]
struct Dispatch {
    pass: ScanPass,
    lines: Lines,
    /// Elements of a chunk.
    chunk: usize,
    exclusive: bool,
    reverse: bool,
    vec4s: Vec4s,
}
