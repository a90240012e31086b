//! A transform along one axis on the device: passes between temporary tensors, or Bluestein's
//! algorithm around them.

use super::plan::{LinePlan, MAX_LENGTH, factor};
use super::program::{Keep, Lines, Load, Stage, StageVariant};
use crate::device::{Binding, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::reduce::program::{part, window_bytes};
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// A transform of x[outer, extent, inner] to y[outer, kept, inner].
#[derive(Debug)]
pub struct Axis<'t> {
    /// The input.
    pub x: &'t Tensor,
    /// The output.
    pub y: &'t Tensor,
    /// Lines before the axis.
    pub outer: usize,
    /// Lines within an element of the axis.
    pub inner: usize,
    /// Length of the transform.
    pub n: usize,
    /// Extent of the axis in x; the transform takes the first `n` elements, and appends zeros if
    /// there are fewer.
    pub extent: usize,
    /// Extent of the axis in y.
    pub kept: usize,
    /// Whether the root is conjugated and the results are divided by `n`.
    pub inverse: bool,
    /// How x is read.
    pub load: Load,
    /// What is stored in y.
    pub keep: Keep,
}

/// Where a sequence of passes reads or writes.
#[derive(Debug, Clone, Copy)]
struct End {
    binding: Binding,
    extent: usize,
}

impl Axis<'_> {
    /// The type of a part.
    fn part(&self) -> DType {
        self.x.dtype.part()
    }

    /// Enqueues the transform. Lines that exceed a binding together are transformed in turn.
    pub fn enqueue(&self, ctx: &mut dyn OpContext) -> Result<()> {
        require!(
            self.n <= MAX_LENGTH / 4,
            "a transform of {} elements exceeds this device's {}",
            self.n,
            MAX_LENGTH / 4
        );
        if let Some((view, half)) = self.halves(ctx)? {
            return self.enqueue_halves(ctx, &view, &half);
        }
        let plan = LinePlan::of(self.n);
        let working = plan.working_length(self.n);
        let complex = self.part().complex();
        let line = |extent: usize, dtype: DType| (extent * self.inner * dtype.size()) as u64;
        let longest = line(self.extent, self.x.dtype)
            .max(line(self.kept, self.y.dtype))
            .max(line(working, complex));
        let rows = ((window_bytes(ctx.device()) / longest) as usize).min(self.outer);
        if rows == 0 {
            return Err(Error::ResourceExhausted(format!(
                "a transform of {} along {} elements exceeds this adapter's largest storage \
                 binding",
                shape_text(&self.x.dims),
                self.n
            )));
        }
        let temps = match &plan {
            LinePlan::Passes(radices) => radices.len().min(3) - 1,
            LinePlan::Convolution(_) => 3,
        };
        let temps: Vec<Tensor> = (0..temps)
            .map(|_| ctx.temp(complex, &[rows, working, self.inner]))
            .collect::<Result<_>>()?;
        let filter = match &plan {
            LinePlan::Passes(_) => None,
            LinePlan::Convolution(size) => Some(self.filter(ctx, *size)?),
        };
        for first in (0..self.outer).step_by(rows) {
            let rows = rows.min(self.outer - first);
            let (reads, writes) = (self.extent * self.inner, self.kept * self.inner);
            let x = End { binding: part(self.x, first * reads, rows * reads), extent: self.extent };
            let y = End { binding: part(self.y, first * writes, rows * writes), extent: self.kept };
            match (&plan, &filter) {
                (LinePlan::Passes(radices), _) => {
                    let lines = Lines { available: self.extent.min(self.n), ..self.lines() };
                    self.passes(
                        ctx.device(),
                        radices,
                        (rows, lines),
                        (x, self.load),
                        (y, self.keep),
                        &temps,
                    )?;
                }
                (LinePlan::Convolution(size), Some((chirp, transformed))) => {
                    self.convolve(ctx.device(), *size, rows, (x, y), (chirp, transformed), &temps)?;
                }
                (LinePlan::Convolution(_), None) => unreachable!("made above"),
            }
        }
        Ok(())
    }

    /// A real input seen as half the number of complex ones, and memory for their transforms;
    /// `None` if that is not possible.
    fn halves(&self, ctx: &mut dyn OpContext) -> Result<Option<(Tensor, Tensor)>> {
        let complex = self.part().complex();
        let is_whole =
            self.extent == self.n && self.kept == self.n / 2 + 1 && self.n.is_multiple_of(2);
        let window = window_bytes(ctx.device());
        if self.load != Load::Real
            || self.inner != 1
            || !is_whole
            || !self.x.address.is_multiple_of(complex.size() as u64)
            || self.x.bytes().max(self.y.bytes()) > window
        {
            return Ok(None);
        }
        let dims = [self.outer, self.n / 2];
        Ok(Some((Tensor::new(complex, &dims, self.x.address), ctx.temp(complex, &dims)?)))
    }

    /// The spectra of real lines from the transforms of `view`, which go to `half`.
    fn enqueue_halves(&self, ctx: &mut dyn OpContext, view: &Tensor, half: &Tensor) -> Result<()> {
        let h = self.n / 2;
        Axis { x: view, y: half, n: h, extent: h, kept: h, load: Load::Complex, ..*self }
            .enqueue(ctx)?;
        let count = self.outer * (h / 2 + 1);
        self.stage(Stage::Halves).enqueue(
            ctx.device(),
            self.lines(),
            count,
            &[("x", half.into()), ("y", self.y.into())],
        )
    }

    /// The parameters that all programs of the transform share.
    fn lines(&self) -> Lines {
        Lines {
            inner: self.inner,
            n: self.n,
            span: 1,
            stride: self.extent,
            available: self.extent,
            kept: self.n,
            divisor: if self.inverse { self.n } else { 1 },
            size: self.n,
            sign: if self.inverse { -1 } else { 1 },
        }
    }

    /// Passes of `radices` over `outer` times lines of `lines.n` elements, of which the first
    /// `lines.available` are read. The divisor applies once.
    fn passes(
        &self,
        device: &Device,
        radices: &[usize],
        (outer, lines): (usize, Lines),
        (x, load): (End, Load),
        (y, keep): (End, Keep),
        temps: &[Tensor],
    ) -> Result<()> {
        let mut span = 1;
        let mut source = x;
        for (i, &radix) in radices.iter().enumerate() {
            let last = i + 1 == radices.len();
            let target = if last {
                y
            } else {
                End {
                    binding: part(&temps[i % 2], 0, outer * lines.n * lines.inner),
                    extent: lines.n,
                }
            };
            let variant = StageVariant {
                stage: Stage::Pass(radix),
                part: self.part(),
                load: if i == 0 { load } else { Load::Complex },
                keep: if last { keep } else { Keep::Complex },
            };
            let told = Lines {
                span,
                stride: source.extent,
                available: if i == 0 { lines.available } else { lines.n },
                kept: target.extent,
                divisor: if last { lines.divisor } else { 1 },
                ..lines
            };
            let count = outer * (lines.n / radix) * lines.inner;
            let tensors = [("x", source.binding), ("y", target.binding)];
            variant.enqueue(device, told, count, &tensors)?;
            span *= radix;
            source = target;
        }
        Ok(())
    }

    /// The filter of Bluestein's algorithm, and its transform.
    fn filter(&self, ctx: &mut dyn OpContext, size: usize) -> Result<(Tensor, Tensor)> {
        let complex = self.part().complex();
        let [chirp, transformed, a, b] = [(); 4].map(|()| ctx.temp(complex, &[size]));
        let (chirp, transformed, temps) = (chirp?, transformed?, [a?, b?]);
        let lines = Lines { size, divisor: 1, sign: 1, ..self.lines() };
        let list = factor(size).expect("a size of small factors");
        self.stage(Stage::Chirp).enqueue(ctx.device(), lines, size, &[("y", (&chirp).into())])?;
        let whole = Lines { n: size, inner: 1, available: size, ..lines };
        let end = |t: &Tensor| End { binding: Binding::from(t), extent: size };
        let ends = ((end(&chirp), Load::Complex), (end(&transformed), Keep::Complex));
        self.passes(ctx.device(), &list, (1, whole), ends.0, ends.1, &temps)?;
        Ok((chirp, transformed))
    }

    /// A program that reads and keeps complex elements.
    fn stage(&self, stage: Stage) -> StageVariant {
        StageVariant { stage, part: self.part(), load: Load::Complex, keep: Keep::Complex }
    }

    /// Transforms some lines as a convolution with the filter.
    fn convolve(
        &self,
        device: &Device,
        size: usize,
        rows: usize,
        (x, y): (End, End),
        (chirp, transformed): (&Tensor, &Tensor),
        temps: &[Tensor],
    ) -> Result<()> {
        let count = rows * size * self.inner;
        let [a, b] = [0, 1].map(|i| End { binding: part(&temps[i], 0, count), extent: size });
        let [chirp, transformed] = [chirp, transformed].map(|t| ("chirp", Binding::from(t)));
        let lines = Lines { size, available: self.extent.min(self.n), ..self.lines() };
        let load = StageVariant { load: self.load, ..self.stage(Stage::ChirpIn) };
        load.enqueue(device, lines, count, &[("x", x.binding), chirp, ("y", a.binding)])?;
        let list = factor(size).expect("a size of small factors");
        let whole = Lines { n: size, available: size, divisor: 1, sign: 1, ..lines };
        let complex = |end: End| (end, Load::Complex);
        let kept = |end: End| (end, Keep::Complex);
        // A source is free for later passes once it has been read.
        let spare = |source: usize| [temps[2].clone(), temps[source].clone()];
        self.passes(device, &list, (rows, whole), complex(a), kept(b), &spare(0))?;
        let tensors = [transformed, ("y", b.binding)];
        self.stage(Stage::ChirpMul).enqueue(device, whole, count, &tensors)?;
        let back = Lines { divisor: size, sign: -1, ..whole };
        self.passes(device, &list, (rows, back), complex(b), kept(a), &spare(1))?;
        let told = Lines { stride: size, kept: y.extent, ..lines };
        let keep = StageVariant { keep: self.keep, ..self.stage(Stage::ChirpOut) };
        let tensors = [("x", a.binding), chirp, ("y", y.binding)];
        keep.enqueue(device, told, rows * y.extent * self.inner, &tensors)
    }
}
