//! FusedBatchNorm and FusedBatchNormGrad, versions 1 to 3, for 4 and 5 dimensions and channels last
//! or second. The older op is in `global`.
//!
//! The reserve spaces have the same contents as in TensorFlow's CPU kernels: 1 is the mean and 2
//! the variance of the batch (in inference, of the given statistics), and 3 and the gradient's own
//! are empty. So gradients work across devices.

mod global;
mod program;

use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::bias::ChannelAxis;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

use program::{Channels, Gradient};

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [program::shaders(), global::shaders()].concat()
}

const TYPES: &[DType] = types::FLOATS_BUT_F64;

/// Registers the family. Version 1 is float32 only and has no attribute U.
pub fn register(r: &mut Registry) {
    global::register(r);
    for (op, version) in [("FusedBatchNorm", 1), ("FusedBatchNormV2", 2), ("FusedBatchNormV3", 3)] {
        let create = move |attrs: &dyn Attrs| {
            let norm = BatchNorm::of(attrs, version)?;
            let factor = attrs.float("exponential_avg_factor")?;
            Ok(move |ctx: &mut dyn OpContext| norm.forward(ctx, factor))
        };
        match version {
            1 => r.op(op).types("T", &[F32]).kernel(create),
            _ => r.op(op).types("T", TYPES).types("U", &[F32]).kernel(create),
        }
    }
    for (op, version) in
        [("FusedBatchNormGrad", 1), ("FusedBatchNormGradV2", 2), ("FusedBatchNormGradV3", 3)]
    {
        let create = move |attrs: &dyn Attrs| {
            let norm = BatchNorm::of(attrs, version)?;
            Ok(move |ctx: &mut dyn OpContext| norm.backward(ctx))
        };
        match version {
            1 => r.op(op).types("T", &[F32]).kernel(create),
            _ => r.op(op).types("T", TYPES).types("U", &[F32]).kernel(create),
        }
    }
}

/// The attributes that both directions have.
struct BatchNorm {
    version: u32,
    channel: ChannelAxis,
    epsilon: f32,
    is_training: bool,
}

/// Inputs of one value for each channel must be vectors.
fn check_vector(t: &Tensor, name: &str) -> Result<()> {
    require!(t.rank() == 1, "{name} must be 1-dimensional{}", shape_text(&t.dims));
    Ok(())
}

/// Inputs of one value for each channel must have one for each channel of `x`. `when` starts the
/// message.
fn check_channels(t: &Tensor, when: &str, name: &str, channels: usize) -> Result<()> {
    let elements = t.len();
    require!(
        elements == channels,
        "{when}{name} must have the same number of elements as the channels of x, got {elements} \
         and {channels}"
    );
    Ok(())
}

impl BatchNorm {
    fn of(attrs: &dyn Attrs, version: u32) -> Result<Self> {
        Ok(Self {
            version,
            channel: ChannelAxis::of(attrs)?,
            epsilon: attrs.float("epsilon")?,
            is_training: attrs.bool("is_training")?,
        })
    }

    /// How `x` is cut into channels.
    fn channels(&self, ctx: &dyn OpContext, x: &Tensor) -> Result<Channels> {
        require!(
            matches!(x.rank(), 4 | 5),
            "input must be 4 or 5-dimensional{}",
            shape_text(&x.dims)
        );
        let axis = self.channel.axis(x.rank());
        Ok(Channels {
            images: x.dims[..axis].iter().product(),
            channels: x.dims[axis],
            inner: x.dims[axis + 1..].iter().product(),
            profile: ctx.device().profile(),
        })
    }

    fn forward(&self, ctx: &mut dyn OpContext, factor: f32) -> Result<()> {
        let x = ctx.input(0)?;
        let [scale, offset, mean, variance] =
            [ctx.input(1)?, ctx.input(2)?, ctx.input(3)?, ctx.input(4)?];
        let channels = self.channels(ctx, &x)?;
        let inputs = [
            (&scale, "scale"),
            (&offset, "offset"),
            (&mean, "estimated_mean"),
            (&variance, "estimated_variance"),
        ];
        for (t, name) in inputs {
            check_vector(t, name)?;
        }
        check_channels(&scale, "", "scale", channels.channels)?;
        check_channels(&offset, "", "offset", channels.channels)?;
        let when = match (self.is_training, factor == 1.0) {
            (false, _) => Some("When is_training=false, "),
            (true, false) => Some("When exponential_avg_factor != 1, "),
            (true, true) => None,
        };
        if let Some(when) = when {
            check_channels(&mean, when, "mean", channels.channels)?;
            check_channels(&variance, when, "variance", channels.channels)?;
        }
        let per_channel = [channels.channels];
        let running_mean = ctx.output(1, F32, &per_channel)?;
        let running_variance = ctx.output(2, F32, &per_channel)?;
        let saved_mean = ctx.output(3, F32, &per_channel)?;
        let saved_variance = ctx.output(4, F32, &per_channel)?;
        if self.version == 3 {
            ctx.output(5, F32, &[0])?;
        }
        let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
        let device = ctx.device();
        if x.is_empty() {
            for t in [&running_mean, &running_variance] {
                device.fill(t.address, t.bytes(), f32::NAN.to_bits())?;
            }
            for t in [&saved_mean, &saved_variance] {
                device.fill(t.address, t.bytes(), 0)?;
            }
            return Ok(());
        }
        if self.is_training {
            channels.moments(ctx, &x, &saved_mean, &saved_variance)?;
            // The variance of the population, by Bessel's correction.
            let total = channels.total() as f64;
            let correction = (total / (total - 1.0).max(1.0)) as f32;
            let device = ctx.device();
            program::blend(device, 1.0 - factor, &mean, factor, &saved_mean, &running_mean)?;
            program::blend(
                device,
                1.0 - factor,
                &variance,
                factor * correction,
                &saved_variance,
                &running_variance,
            )?;
            return channels.normalize(
                device,
                &x,
                &saved_mean,
                &saved_variance,
                &scale,
                &offset,
                self.epsilon,
                &y,
            );
        }
        for (from, to) in [
            (&mean, &running_mean),
            (&variance, &running_variance),
            (&mean, &saved_mean),
            (&variance, &saved_variance),
        ] {
            device.copy(to.address, from.address, from.bytes())?;
        }
        channels.normalize(device, &x, &mean, &variance, &scale, &offset, self.epsilon, &y)
    }

    fn backward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (dy, x) = (ctx.input(0)?, ctx.input(1)?);
        let [scale, mean, variance] = [ctx.input(2)?, ctx.input(3)?, ctx.input(4)?];
        let channels = self.channels(ctx, &x)?;
        require!(
            x.dims == dy.dims,
            "x and y_backprop must have same shape, but x has shape {} and y_backprop has shape {}",
            shape_text(&x.dims),
            shape_text(&dy.dims)
        );
        for (t, name) in
            [(&scale, "scale"), (&mean, "reserve_space_1"), (&variance, "reserve_space_2")]
        {
            check_vector(t, name)?;
            check_channels(t, "", name, channels.channels)?;
        }
        let scale_backprop = ctx.output(1, F32, &[channels.channels])?;
        let offset_backprop = ctx.output(2, F32, &[channels.channels])?;
        ctx.output(3, F32, &[0])?;
        ctx.output(4, F32, &[0])?;
        let dx = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
        if x.is_empty() {
            for t in [&scale_backprop, &offset_backprop] {
                ctx.device().fill(t.address, t.bytes(), 0)?;
            }
            return Ok(());
        }
        let coefficients = ctx.temp(F32, &[4, channels.channels])?;
        let gradient = Gradient {
            dy: &dy,
            x: &x,
            scale: &scale,
            mean: &mean,
            variance: &variance,
            scale_backprop: &scale_backprop,
            offset_backprop: &offset_backprop,
            coefficients: &coefficients,
            epsilon: self.epsilon,
            is_training: self.is_training,
        };
        channels.backward(ctx, &gradient, &dx)
    }
}
