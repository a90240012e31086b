//! QuantizeAndDequantize, V2, V3, V4 and V4Grad.
//!
//! The range comes from the inputs, or from the values themselves. The device computes the scale
//! from the range; TensorFlow waits for the range and computes the scale on the host.

use super::window;
use crate::device::{Device, Grid, declare_params, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::program::part;
use crate::kernels::reduce::reduce;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor, shape_text};

/// The sources of the range and the number of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Attributes give all of them.
    Attributes,
    /// The range from inputs 1 and 2.
    Inputs,
    /// The range from inputs 1 and 2, the number of bits from input 3.
    BitsInput,
}

/// One of the forward ops.
pub struct Quantize {
    version: Version,
    dtype: DType,
    signed: bool,
    narrow: bool,
    half_up: bool,
    range_given: bool,
    axis: i64,
    /// The number of bits; 0 for [`Version::BitsInput`].
    bits: i64,
    /// The range, for [`Version::Attributes`].
    bounds: [f32; 2],
}

impl Quantize {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, version: Version) -> Result<Self> {
        let signed = attrs.bool("signed_input")?;
        let range_given = attrs.bool("range_given")?;
        let bits = if version == Version::BitsInput { 0 } else { attrs.int("num_bits")? };
        if version != Version::BitsInput {
            require!(
                bits > 0 && bits < if signed { 62 } else { 63 },
                "num_bits is out of range: {bits} with signed_input_ {}",
                i32::from(signed)
            );
        }
        let first = version == Version::Attributes;
        let bounds =
            if first { [attrs.float("input_min")?, attrs.float("input_max")?] } else { [0.0; 2] };
        if first && range_given {
            check_range(f64::from(bounds[0]), f64::from(bounds[1]))?;
        }
        Ok(Self {
            version,
            dtype: attrs.dtype("T")?,
            signed,
            narrow: !first && attrs.bool("narrow_range")?,
            half_up: version == Version::Inputs && attrs.string("round_mode")? == "HALF_UP",
            range_given,
            axis: if first { -1 } else { attrs.int("axis")? },
            bits,
            bounds,
        })
    }

    /// The number of bits, read from an input if necessary.
    fn bits(&self, ctx: &mut dyn OpContext) -> Result<i64> {
        if self.version != Version::BitsInput {
            return Ok(self.bits);
        }
        let bits = ctx.host_input(3)?;
        require!(
            bits.dims.is_empty(),
            "Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: {}",
            bits.dims.len()
        );
        let bits = bits.to_i64()?[0];
        require!(
            bits > 0 && bits < if self.signed { 62 } else { 63 },
            "num_bits is out of range: {bits} with `signed_input_` {}",
            i32::from(self.signed)
        );
        Ok(bits)
    }

    /// Smallest and largest values, one for each channel, on the device.
    fn bounds(&self, ctx: &mut dyn OpContext, x: &Tensor, channels: usize) -> Result<[Tensor; 2]> {
        let bounds = [ctx.temp(self.dtype, &[channels])?, ctx.temp(self.dtype, &[channels])?];
        if !self.range_given {
            let reduced: Vec<bool> = (0..x.rank()).map(|d| d as i64 != self.axis).collect();
            for (op, bound) in ["Min", "Max"].into_iter().zip(&bounds) {
                reduce(ctx, op, x, &reduced, bound)?;
            }
            return Ok(bounds);
        }
        let given = if self.version == Version::Attributes {
            self.bounds.map(|b| HostTensor::floats(self.dtype, &[], &[f64::from(b)]))
        } else {
            let given = [ctx.host_input(1)?, ctx.host_input(2)?];
            self.check_bounds(&given, channels)?;
            given
        };
        for (bound, value) in bounds.iter().zip(&given) {
            ctx.device().upload(bound.address, &value.bytes)?;
        }
        Ok(bounds)
    }

    fn check_bounds(&self, given: &[HostTensor; 2], channels: usize) -> Result<()> {
        for (name, bound) in ["input_min", "input_max"].iter().zip(given) {
            if self.axis == -1 {
                require!(bound.dims.is_empty(), "{name} must be a scalar.");
                continue;
            }
            require!(
                bound.dims.len() == 1,
                "Shape must be rank 1 for {name}_tensor when the axis is specified"
            );
            require!(
                bound.dims[0] == channels,
                "{name}_tensor has incorrect size, was {} expected {channels} to match dim {} of \
                 the input {}",
                bound.dims[0],
                self.axis,
                shape_text(&bound.dims)
            );
        }
        if self.axis == -1 {
            check_range(given[0].to_f64()[0], given[1].to_f64()[0])?;
        }
        Ok(())
    }
}

fn check_range(min: f64, max: f64) -> Result<()> {
    let ordered = min <= max;
    require!(ordered, "Invalid range: input_min {min} > input_max {max}");
    Ok(())
}

/// The number of channels along `axis`, and the number of neighbouring elements that share a
/// channel.
fn channels(x: &Tensor, axis: i64) -> (usize, usize) {
    match usize::try_from(axis) {
        Ok(axis) => (x.dims[axis], x.dims[axis + 1..].iter().product()),
        Err(_) => (1, x.len()),
    }
}

impl Kernel for Quantize {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        if self.version == Version::BitsInput {
            require!(
                -(x.rank() as i64) <= self.axis && self.axis < x.rank() as i64,
                "Axis requested is larger than input dimensions. Axis: {} Input Dimensions: {}",
                self.axis,
                x.rank()
            );
        }
        require!(self.axis >= -1, "Axis must be at least -1. Found {}", self.axis);
        require!(
            self.axis < x.rank() as i64,
            "Shape must be at least rank {} but is rank {}",
            self.axis + 1,
            x.rank()
        );
        let bits = self.bits(ctx)?;
        let (channels, inner) = channels(&x, self.axis);
        let y = ctx.output(0, self.dtype, &x.dims)?;
        if x.is_empty() {
            return Ok(());
        }
        let [low, high] = self.bounds(ctx, &x, channels)?;
        let ranges = ctx.temp(self.dtype, &[channels, 4])?;
        let power = 2.0_f32.powi((bits - i64::from(self.signed)) as i32);
        let (dtype, device) = (self.dtype, ctx.device());
        let call = QuantizeRanges {
            low: (&low).into(),
            high: (&high).into(),
            ranges: (&ranges).into(),
            count: channels,
            is_signed: self.signed,
            narrow: self.narrow,
            power,
        };
        let grid = Grid::linear(channels, WORKGROUP);
        call.enqueue(device, &QuantizeRanges::of(dtype), grid)?;
        let of = QuantizeValues::of(dtype, self.range_given, self.half_up);
        windows(device, &x, channels, inner, |params, grid| {
            let [x, y] = [&x, &y].map(|t| part(t, params.first, params.count));
            let call = QuantizeValues { x, y, ranges: (&ranges).into(), params };
            call.enqueue(device, &of, grid)
        })
    }
}

declare_params! {
    /// A window of elements. The channel of element `t` is `t / inner % channels`.
    struct ChannelParams { count: usize, first: usize, channels: usize, inner: usize }
}

/// Calls `enqueue` for each window of the elements of `x`.
fn windows(
    device: &Device,
    x: &Tensor,
    channels: usize,
    inner: usize,
    enqueue: impl Fn(ChannelParams, Grid) -> Result<()>,
) -> Result<()> {
    device.check_extent(x.len())?;
    let window = window(device, x.dtype.size());
    for first in (0..x.len()).step_by(window) {
        let count = window.min(x.len() - first);
        let params = ChannelParams { count, first, channels, inner };
        enqueue(params, Grid::linear(count, WORKGROUP))?;
    }
    Ok(())
}

/// The gradients of the input, which pass where it is within the range, and of the bounds, which
/// are zero.
pub struct QuantizeGrad {
    dtype: DType,
    axis: i64,
}

impl QuantizeGrad {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self { dtype: attrs.dtype("T")?, axis: attrs.int("axis")? })
    }
}

impl Kernel for QuantizeGrad {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (g, x) = (ctx.input(0)?, ctx.input(1)?);
        let (axis, rank) = (self.axis, x.rank());
        require!(axis >= -1, "Axis must be at least -1. Found {axis}");
        require!(
            axis < rank as i64,
            "Axis should be -1 or 0 or a positive value less than {rank}but given axis value was \
             {axis}"
        );
        require!(g.dims == x.dims, "gradient and input must be the same size");
        let (channels, inner) = channels(&x, axis);
        let given = [ctx.host_input(2)?, ctx.host_input(3)?];
        for (name, bound) in ["min", "max"].iter().zip(&given) {
            let rank = bound.dims.len();
            require!(rank <= 1, "Input {name} tensor must have dimension 0 or 1. Received {rank}.");
            if axis == -1 {
                require!(rank == 0, "input_{name} must be a scalar if axis is unspecified");
            } else {
                require!(
                    rank == 1,
                    "Shape must be rank 1 for input_{name}_tensor when the axis is specified"
                );
                require!(
                    bound.dims[0] == channels,
                    "{name} has incorrect size, expected {channels} was {}",
                    bound.dims[0]
                );
            }
        }
        let y = ctx.output(0, self.dtype, &x.dims)?;
        for k in 1..3 {
            let bound = ctx.output(k, self.dtype, &given[0].dims)?;
            if !bound.is_empty() {
                ctx.device().fill(bound.address, bound.bytes(), 0)?;
            }
        }
        if x.is_empty() {
            return Ok(());
        }
        let dtype = self.dtype;
        let ranges = ctx.temp(dtype, &[2, channels])?;
        let device = ctx.device();
        device.upload(ranges.address, &[&given[0].bytes[..], &given[1].bytes[..]].concat())?;
        windows(device, &x, channels, inner, |params, grid| {
            let [x, g, y] = [&x, &g, &y].map(|t| part(t, params.first, params.count));
            let call = QuantizeGradient { x, g, y, ranges: (&ranges).into(), params };
            call.enqueue(device, &QuantizeGradient::of(dtype), grid)
        })
    }
}

/// Every variant.
pub fn shaders(types: &[DType]) -> Vec<Shader> {
    let mut all = Vec::new();
    for &dtype in types {
        all.extend([QuantizeRanges::shader(dtype), QuantizeGradient::shader(dtype)]);
        for clamped in [false, true] {
            let half_ups = [false, true];
            all.extend(half_ups.map(|half_up| QuantizeValues::shader(dtype, clamped, half_up)));
        }
    }
    all
}

declare_program! {
    /// Computes the scale of each channel from its range.
    struct QuantizeRanges = "quantize range"(dtype: DType);
    bindings { low: dtype, high: dtype, ranges: dtype }
    params { count: usize, is_signed: bool, narrow: bool, power: f32 }
}

impl QuantizeRanges {
    fn shader(dtype: DType) -> Shader {
        let largest =
            if dtype == DType::F64 { "1.7976931348623157e308lf" } else { "3.40282346e38f" };
        Self::declare(format!("quantize range {dtype}"), dtype)
            .define("T", dtype.value())
            .define("LARGEST", largest)
            .body(include_str!("../../../shaders/quantize/range.wgsl"))
    }
}

declare_program! {
    /// Rounds elements to the steps of their channels.
    struct QuantizeValues = "quantize"(dtype: DType, clamped: bool, half_up: bool);
    bindings { x: dtype, y: dtype, ranges: dtype }
    params { params: ChannelParams }
}

impl QuantizeValues {
    fn shader(dtype: DType, clamped: bool, half_up: bool) -> Shader {
        let x = if clamped { "max(min(x, load_ranges(r + 1u)), load_ranges(r))" } else { "x" };
        let scaled = format!("{x} * load_ranges(r + 2u)");
        let rounded = match dtype {
            _ if half_up => format!("floor({scaled} + {}(0.5))", dtype.value()),
            DType::F64 => format!("round_f64({scaled})"),
            _ => format!("round({scaled})"),
        };
        let label = format!("quantize {dtype}, clamped {clamped}, half up {half_up}");
        Self::declare(label, dtype, clamped, half_up)
            .define(
                "STATEMENTS",
                format!("let r = channel * 4u;\n    store_y(t, {rounded} * load_ranges(r + 3u));"),
            )
            .body(include_str!("../../../shaders/quantize/channels.wgsl"))
    }
}

declare_program! {
    /// Passes gradients where the input is within the range of its channel.
    struct QuantizeGradient = "quantize gradient"(dtype: DType);
    bindings { x: dtype, g: dtype, y: dtype, ranges: dtype }
    params { params: ChannelParams }
}

impl QuantizeGradient {
    fn shader(dtype: DType) -> Shader {
        let value = dtype.value();
        Self::declare(format!("quantize gradient {dtype}"), dtype)
            .define(
                "STATEMENTS",
                format!(
                    "let inside = x >= load_ranges(channel) && x <= load_ranges(p.channels + \
                     channel);\n    store_y(t, load_g(t) * select({value}(0.0), {value}(1.0), \
                     inside));"
                ),
            )
            .body(include_str!("../../../shaders/quantize/channels.wgsl"))
    }
}
