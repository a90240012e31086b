//! Dilation2D: the maximum, over a window, of the sums of an element and the filter's value there.

use crate::device::{Device, Grid, declare_params, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::conv::window::{Format, Padding};
use crate::kernels::iterations::{STEPS, steps};
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, codec};
use crate::tensor::{Tensor, shape_text};

pub(super) const TYPES: &[DType] = types::FLOATS;
const FORMAT: Format = Format { spatial: 2, channels_last: true };
const WINDOW: &str = include_str!("../../../shaders/patches/dilation_window.wgsl");

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Dilation2D").types("T", TYPES).items(&[(0, 3)]).kernel(|attrs| {
        let attributes = Attributes::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| dilation(ctx, &attributes))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let longer = STEPS[1..].iter().map(|steps| Search::shader(F32, false, *steps));
    TYPES.iter().map(|t| Search::shader(*t, false, 1)).chain(longer).collect()
}

/// The attributes of a node.
pub(super) struct Attributes {
    padding: Padding,
    strides: [i64; 2],
    rates: [i64; 2],
}

/// Where windows lie, in rows and columns.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub batch: usize,
    pub depth: usize,
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub rate: [usize; 2],
    pub pad: [usize; 2],
}

impl Attributes {
    pub(super) fn of(attrs: &dyn Attrs) -> Result<Self> {
        let list = |name: &str, what: &str, short: &str| -> Result<[i64; 2]> {
            let v = attrs.ints(name)?;
            require!(v.len() == 4, "{what} field must specify 4 dimensions");
            if v[0] != 1 || v[3] != 1 {
                return Err(Error::Unimplemented(format!(
                    "{short} is only supported across spatial dimensions."
                )));
            }
            Ok([v[1], v[2]])
        };
        Ok(Self {
            strides: list("strides", "Sliding window stride", "Stride")?,
            rates: list("rates", "Input stride (atrous rate)", "Rate")?,
            padding: Padding::read(attrs, FORMAT)?,
        })
    }

    pub(super) fn geometry(&self, x: &Tensor, filter: &Tensor) -> Result<Geometry> {
        require!(x.rank() == 4, "input must be 4-dimensional{}", shape_text(&x.dims));
        require!(filter.rank() == 3, "filter must be 3-dimensional: {}", shape_text(&filter.dims));
        let depth = x.dims[3];
        require!(
            depth == filter.dims[2],
            "input and filter must have the same depth: {depth} vs {}",
            filter.dims[2]
        );
        // TensorFlow accepts empty filters and rates of 0; no model uses them, and windows are not
        // defined for them here.
        require!(
            filter.dims[0] > 0 && filter.dims[1] > 0,
            "filter must not be empty: {}",
            shape_text(&filter.dims)
        );
        for stride in self.strides {
            require!(stride > 0, "Stride must be > 0, but got {stride}");
        }
        for rate in self.rates {
            require!(rate > 0, "Rate must be > 0, but got {rate}");
        }
        let [rows, columns] = [x.dims[1], x.dims[2]];
        let kernel = [filter.dims[0], filter.dims[1]];
        let [stride, rate] = [self.strides, self.rates].map(|v| v.map(|v| v as usize));
        let three = |[a, b]: [usize; 2]| [1, a, b];
        let (output, pad) =
            self.padding.windows([1, rows, columns], three(kernel), three(stride), three(rate))?;
        let input = [rows, columns];
        let (output, pad) = ([output[1], output[2]], [pad[1], pad[2]]);
        Ok(Geometry { batch: x.dims[0], depth, input, output, kernel, stride, rate, pad })
    }
}

declare_params! {
    /// The parameters of the windows' geometry.
    pub(super) struct WindowParams {
        depth: usize, rows: usize, columns: usize, out_rows: usize, out_columns: usize,
        kernel_rows: usize, kernel_columns: usize, stride_rows: usize, stride_columns: usize,
        rate_rows: usize, rate_columns: usize, pad_rows: usize, pad_columns: usize,
    }
}

impl Geometry {
    /// The elements of a window in one channel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The output's shape.
    pub(super) const fn dims(&self) -> [usize; 4] {
        [self.batch, self.output[0], self.output[1], self.depth]
    }

    pub(super) const fn params(&self) -> WindowParams {
        WindowParams {
            depth: self.depth,
            rows: self.input[0],
            columns: self.input[1],
            out_rows: self.output[0],
            out_columns: self.output[1],
            kernel_rows: self.kernel[0],
            kernel_columns: self.kernel[1],
            stride_rows: self.stride[0],
            stride_columns: self.stride[1],
            rate_rows: self.rate[0],
            rate_columns: self.rate[1],
            pad_rows: self.pad[0],
            pad_columns: self.pad[1],
        }
    }

    /// The number of a window's columns that an iteration takes. An invocation goes over the
    /// windows of all lanes of a word.
    pub(super) fn steps(&self, device: &Device, dtype: DType) -> Result<u32> {
        let [rows, columns] = self.kernel;
        let lanes = dtype.lanes() as usize;
        steps(&device.profile(), |steps| lanes * (1 + rows * (1 + columns.div_ceil(steps))))
    }

    /// Enqueues the search of each window. The result is the window's largest sum or, if `result`
    /// is uint32, the filter position of the first largest sum.
    pub(super) fn search(
        &self,
        device: &Device,
        x: &Tensor,
        filter: &Tensor,
        result: &Tensor,
    ) -> Result<()> {
        for t in [x, filter, result] {
            device.check_extent(t.len())?;
        }
        let steps = self.steps(device, result.dtype)?;
        let (dtype, position) = (x.dtype, result.dtype == U32);
        device.enqueue_counted(
            &Search {
                x: x.into(),
                weight: filter.into(),
                result: result.into(),
                count: result.len(),
                geometry: self.params(),
            }
            .program(&Search::of(dtype, position, steps), Grid::map(result.len(), result.dtype)),
            dtype.operations(2 * self.taps() * result.len()),
        )
    }
}

/// Inputs: input, filter.
fn dilation(ctx: &mut dyn OpContext, attributes: &Attributes) -> Result<()> {
    let (x, filter) = (ctx.input(0)?, ctx.input(1)?);
    let g = attributes.geometry(&x, &filter)?;
    let y = ctx.output(0, x.dtype, &g.dims())?;
    if y.is_empty() { Ok(()) } else { g.search(ctx.device(), &x, &filter, &y) }
}

declare_program! {
    /// Searches each window: its largest sum, or the `position` of the first largest one, with
    /// `steps` columns in an iteration.
    pub(super) struct Search = "dilation"(dtype: DType, position: bool, steps: u32);
    bindings { x: dtype, weight: dtype, result: if position { U32 } else { dtype } }
    params { count: usize, geometry: WindowParams }
}

impl Search {
    pub(super) fn shader(dtype: DType, position: bool, steps: u32) -> Shader {
        // Sums are rounded to the type before they are compared, as in TensorFlow: this decides
        // which of two sums is the first largest.
        let round = codec::rounded(dtype).unwrap_or("v");
        let lowest = match dtype {
            F16 => "-65504.0",
            BF16 => "bitcast<f32>(0xff7f0000u)",
            F64 => "f64(-1.7976931348623157e308lf)",
            _ => "-0x1.fffffep+127f",
        };
        let (output, result) = if position { (U32, "best") } else { (dtype, "largest") };
        let label = format!("dilation {dtype} position={position} by {steps}");
        Self::declare(label, dtype, position, steps)
            .define("REAL", dtype.value())
            .define("ROUND", round)
            .define("LOWEST", lowest)
            .define("OUTPUT", output.value())
            .define("RESULT", result)
            .unrolled(steps, WINDOW)
            .map("result")
    }
}
