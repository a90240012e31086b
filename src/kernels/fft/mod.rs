//! Fast Fourier transforms of any length along the last axes: complex, of real input, and to real
//! output.
//!
//! An op is a row of [`ROWS`]: the number of its axes, which end is real, and the direction. A
//! transform of several axes transforms one after the other: the real one first in forward
//! transforms, and last in inverse ones. Along an axis ([`transform`]) a length of small prime
//! factors takes Stockham passes ([`plan`], [`butterfly`]), any other length takes Bluestein's
//! algorithm around such passes.

pub mod butterfly;
pub mod plan;
pub mod program;
pub mod transform;

use super::op::{Attrs, Kernel, OpContext};
use super::registry::Registry;
use crate::dtype::DType::*;
use crate::error::Result;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor, shape_text};
use program::{Keep, Load};
use transform::Axis;

/// The end of a transform that is real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Real {
    /// Neither end.
    Neither,
    /// The input; the output is the first half of the spectrum.
    Input,
    /// The output; the input is the first half of the spectrum.
    Output,
}

/// The axes that an op transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axes {
    /// The last `n` axes.
    Last(usize),
    /// The last axes that the inputs `fft_length` (1) and `axes` (2) name.
    Given,
}

/// One op.
#[derive(Debug)]
pub struct Row {
    /// TensorFlow's op.
    pub op: &'static str,
    /// The axes.
    pub axes: Axes,
    /// The real end.
    pub real: Real,
    /// Whether it is the inverse transform.
    pub inverse: bool,
}

const fn row(op: &'static str, axes: Axes, real: Real, inverse: bool) -> Row {
    Row { op, axes, real, inverse }
}

/// Every op, sorted.
pub const ROWS: &[Row] = &[
    row("BatchFFT", Axes::Last(1), Real::Neither, false),
    row("BatchFFT2D", Axes::Last(2), Real::Neither, false),
    row("BatchFFT3D", Axes::Last(3), Real::Neither, false),
    row("BatchIFFT", Axes::Last(1), Real::Neither, true),
    row("BatchIFFT2D", Axes::Last(2), Real::Neither, true),
    row("BatchIFFT3D", Axes::Last(3), Real::Neither, true),
    row("FFT", Axes::Last(1), Real::Neither, false),
    row("FFT2D", Axes::Last(2), Real::Neither, false),
    row("FFT3D", Axes::Last(3), Real::Neither, false),
    row("FFTND", Axes::Given, Real::Neither, false),
    row("IFFT", Axes::Last(1), Real::Neither, true),
    row("IFFT2D", Axes::Last(2), Real::Neither, true),
    row("IFFT3D", Axes::Last(3), Real::Neither, true),
    row("IFFTND", Axes::Given, Real::Neither, true),
    row("IRFFT", Axes::Last(1), Real::Output, true),
    row("IRFFT2D", Axes::Last(2), Real::Output, true),
    row("IRFFT3D", Axes::Last(3), Real::Output, true),
    row("IRFFTND", Axes::Given, Real::Output, true),
    row("RFFT", Axes::Last(1), Real::Input, false),
    row("RFFT2D", Axes::Last(2), Real::Input, false),
    row("RFFT3D", Axes::Last(3), Real::Input, false),
    row("RFFTND", Axes::Given, Real::Input, false),
];

/// Registers the family. TensorFlow's GPU kernels take both precisions in one registration without
/// types.
pub fn register(registry: &mut Registry) {
    for row in ROWS {
        let kernel = move |_: &dyn Attrs| Ok(Transform { row });
        let host: &'static [&'static str] = match (row.axes, row.real) {
            (Axes::Given, _) => &["fft_length", "axes"],
            (_, Real::Neither) => &[],
            _ => &["fft_length"],
        };
        if row.op.starts_with("Batch") {
            // Their types are fixed: complex64.
            registry.op(row.op).kernel(kernel);
            continue;
        }
        for part in [F32, F64] {
            let mut builder = registry.op(row.op).types("Tcomplex", part.complex().alone());
            if row.real != Real::Neither {
                builder = builder.types("Treal", part.alone());
            }
            builder.host(host).kernel(kernel);
        }
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    program::shaders()
}

/// The kernel of a row.
struct Transform {
    row: &'static Row,
}

impl Kernel for Transform {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let lengths = self.lengths(ctx, &x)?;
        let first = x.rank() - lengths.len();
        let mut dims = x.dims.clone();
        for (i, n) in lengths.iter().enumerate() {
            let innermost = i + 1 == lengths.len();
            dims[first + i] =
                if self.row.real == Real::Input && innermost && *n != 0 { n / 2 + 1 } else { *n };
        }
        let complex = x.dtype.complex();
        let output = if self.row.real == Real::Output { complex.part() } else { complex };
        let Some(y) = ctx.some_output(0, output, &dims)? else { return Ok(()) };
        if x.is_empty() {
            return ctx.device().fill(y.address, y.bytes(), 0);
        }
        self.axes(ctx, x, &y, first, &lengths)
    }
}

impl Transform {
    /// The lengths of the transforms along the last axes, with TensorFlow's errors.
    fn lengths(&self, ctx: &mut dyn OpContext, x: &Tensor) -> Result<Dims> {
        let rank = match self.row.axes {
            Axes::Last(rank) => rank,
            Axes::Given => given_axes(ctx, x)?,
        };
        require!(
            x.rank() >= rank,
            "Input must have rank of at least {rank} but got: {}",
            shape_text(&x.dims)
        );
        let first = x.rank() - rank;
        if self.row.axes != Axes::Given && self.row.real == Real::Neither {
            return Ok(x.dims[first..].into());
        }
        let given = ctx.host_input(1)?;
        if self.row.axes == Axes::Given {
            let got = given.dims.first().copied().unwrap_or(1);
            require!(
                given.dims[..] == [rank],
                "fft_length must have shape [{rank}], but got: {got}."
            );
        } else {
            require!(given.dims[..] == [rank], "fft_length must have shape [{rank}]");
        }
        let mut lengths = Dims::new();
        for (i, n) in given.to_i64()?.into_iter().enumerate() {
            require!(n >= 0, "fft_length[{i}] must >= 0, but got: {n}");
            let n = n as usize;
            let half = self.row.real == Real::Output && i + 1 == rank;
            let least = if half { n / 2 + 1 } else { n };
            let extent = x.dims[first + i];
            require!(
                self.row.real == Real::Neither || extent == 0 || extent >= least,
                "Input dimension {} must have length of at least {least} but got: {extent}",
                first + i
            );
            lengths.push(n);
        }
        Ok(lengths)
    }

    /// Transforms the axes from `first` on, one after the other.
    fn axes(
        &self,
        ctx: &mut dyn OpContext,
        x: Tensor,
        y: &Tensor,
        first: usize,
        lengths: &[usize],
    ) -> Result<()> {
        let count = lengths.len();
        // The real end is the last axis: it comes first in forward transforms, last in inverse
        // ones.
        let order: Vec<usize> = if self.row.real == Real::Output {
            (0..count).collect()
        } else {
            (0..count).rev().collect()
        };
        let mut source = x;
        for (done, &i) in order.iter().enumerate() {
            let (axis, innermost) = (first + i, i + 1 == count);
            let mut dims = source.dims.clone();
            dims[axis] = y.dims[axis];
            let target =
                if done + 1 == count { y.clone() } else { ctx.temp(y.dtype.complex(), &dims)? };
            Axis {
                x: &source,
                y: &target,
                outer: dims[..axis].iter().product(),
                inner: dims[axis + 1..].iter().product(),
                n: lengths[i],
                extent: source.dims[axis],
                kept: dims[axis],
                inverse: self.row.inverse,
                load: match self.row.real {
                    Real::Input if innermost => Load::Real,
                    Real::Output if innermost => Load::Half,
                    _ => Load::Complex,
                },
                keep: if innermost && self.row.real == Real::Output {
                    Keep::Real
                } else {
                    Keep::Complex
                },
            }
            .enqueue(ctx)?;
            source = target;
        }
        Ok(())
    }
}

/// The number of the last axes that the input `axes` (2) names.
fn given_axes(ctx: &mut dyn OpContext, x: &Tensor) -> Result<usize> {
    let axes = ctx.host_input(2)?;
    require!(
        axes.dims.len() == 1,
        "axes must be a vector, but got shape {}",
        shape_text(&axes.dims)
    );
    let rank = x.rank() as i64;
    let count = axes.dims[0];
    require!(
        x.rank() >= count,
        "Input must have rank of at least {count} but got: {}",
        shape_text(&x.dims)
    );
    require!(count > 0, "axes must not be empty.");
    let axes: Vec<i64> =
        axes.to_i64()?.into_iter().map(|a| if a < 0 { a + rank } else { a }).collect();
    require!(axes.windows(2).all(|w| w[0] + 1 == w[1]), "axes must be successive and ascending.");
    require!(axes[count - 1] == rank - 1, "The last axis to perform transform on must be -1.");
    Ok(count)
}
