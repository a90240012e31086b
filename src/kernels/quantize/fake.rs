//! FakeQuantWithMinMaxArgs, …Vars, …VarsPerChannel and their gradients.
//!
//! The range is widened a little on the host, where its bounds are, so that zero is one of its
//! steps. Channels are the last dimension.

use super::window;
use crate::device::{Grid, declare_program, enum_key_parts};
use crate::dtype::DType::F32;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::program::part;
use crate::kernels::reduce::reduce;
use crate::require;
use crate::shader::{List, Shader, WORKGROUP};
use crate::tensor::{Tensor, named, shape_text};

/// The source of the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundsFrom {
    /// Attributes.
    Attributes,
    /// Scalar inputs.
    Inputs,
    /// Vector inputs.
    Channels,
}

/// Every op, the source of its bounds, and whether it is a gradient.
pub const OPS: &[(&str, BoundsFrom, bool)] = &[
    ("FakeQuantWithMinMaxArgs", BoundsFrom::Attributes, false),
    ("FakeQuantWithMinMaxArgsGradient", BoundsFrom::Attributes, true),
    ("FakeQuantWithMinMaxVars", BoundsFrom::Inputs, false),
    ("FakeQuantWithMinMaxVarsGradient", BoundsFrom::Inputs, true),
    ("FakeQuantWithMinMaxVarsPerChannel", BoundsFrom::Channels, false),
    ("FakeQuantWithMinMaxVarsPerChannelGradient", BoundsFrom::Channels, true),
];

/// Numbers of a range, in the layout that the shaders read.
const FIELDS: usize = 6;

/// Least and largest value, step, its inverse, the number of steps from the least value to zero,
/// and whether both bounds are zero.
fn range(min: f32, max: f32, steps: [f32; 2]) -> [f32; FIELDS] {
    if min == 0.0 && max == 0.0 {
        return [0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    }
    let [first, last] = steps;
    let scale = (max - min) / (last - first);
    let inverse = (last - first) / (max - min);
    let zero = first - min / scale;
    let zero = if zero < first {
        first
    } else if zero > last {
        last
    } else {
        zero.round()
    };
    let (low, high) = ((first - zero) * scale, (last - zero) * scale);
    [low, high, scale, inverse, (-low * inverse + 0.5).floor(), 0.0]
}

/// One of the ops.
pub struct Fake {
    op: &'static str,
    bounds_from: BoundsFrom,
    gradient: bool,
    /// First and last step.
    steps: [f32; 2],
    /// Attributes of [`BoundsFrom::Attributes`].
    bounds: [f32; 2],
}

impl Fake {
    /// Reads the attributes.
    pub fn new(
        attrs: &dyn Attrs,
        op: &'static str,
        bounds_from: BoundsFrom,
        gradient: bool,
    ) -> Result<Self> {
        let mut bounds = [0.0; 2];
        if bounds_from == BoundsFrom::Attributes {
            bounds = [attrs.float("min")?, attrs.float("max")?];
            let ordered = bounds[0] < bounds[1];
            require!(
                ordered,
                "min has to be smaller than max, was: {} >= {}",
                bounds[0],
                bounds[1]
            );
        }
        let bits = attrs.int("num_bits")?;
        require!((2..=16).contains(&bits), "num_bits must be between 2 and 16, inclusive");
        let first = if attrs.bool("narrow_range")? { 1.0 } else { 0.0 };
        Ok(Self { op, bounds_from, gradient, steps: [first, ((1 << bits) - 1) as f32], bounds })
    }

    /// The ranges, one for each channel.
    fn ranges(
        &self,
        ctx: &mut dyn OpContext,
        first: usize,
        x: &Tensor,
    ) -> Result<Vec<[f32; FIELDS]>> {
        if self.bounds_from == BoundsFrom::Attributes {
            return Ok(vec![range(self.bounds[0], self.bounds[1], self.steps)]);
        }
        let rank = usize::from(self.bounds_from == BoundsFrom::Channels);
        let mut bounds = Vec::new();
        for (k, name) in ["min", "max"].iter().enumerate() {
            let bound = ctx.host_input(first + k)?;
            require!(
                bound.dims.len() == rank,
                "`{name}` must be rank {rank} but is rank {}",
                bound.dims.len()
            );
            if let Some(depth) = x.dims.last().filter(|_| rank == 1) {
                require!(
                    bound.dims[0] == *depth,
                    "{name} has incorrect size, expected {depth} was {}",
                    bound.dims[0]
                );
            }
            bounds.push(bound.values::<f32>());
        }
        Ok(bounds[0]
            .iter()
            .zip(&bounds[1])
            .map(|(min, max)| range(*min, *max, self.steps))
            .collect())
    }
}

impl Kernel for Fake {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let first = usize::from(self.gradient);
        let x = ctx.input(first)?;
        require!(
            self.bounds_from != BoundsFrom::Channels || x.rank() > 0,
            "inputs must have at least one dimension"
        );
        let gradient = if self.gradient { Some(ctx.input(0)?) } else { None };
        if let Some(gradient) = gradient.as_ref().filter(|g| g.dims != x.dims) {
            require!(
                self.bounds_from != BoundsFrom::Attributes,
                "{}",
                sizes_differ(self.op, gradient, &x)
            );
            crate::invalid!("gradient and input must be the same size");
        }
        let ranges = self.ranges(ctx, first + 1, &x)?;
        let y = ctx.output(0, F32, &x.dims)?;
        let bounds = match (self.gradient, self.bounds_from) {
            (false, _) | (_, BoundsFrom::Attributes) => None,
            (_, BoundsFrom::Inputs) => Some((ctx.output(1, F32, &[])?, ctx.output(2, F32, &[])?)),
            (_, BoundsFrom::Channels) => {
                Some((ctx.output(1, F32, &[ranges.len()])?, ctx.output(2, F32, &[ranges.len()])?))
            }
        };
        let channels = ranges.len();
        let table = ctx.temp(F32, &[channels, FIELDS])?;
        ctx.device().upload(table.address, bytemuck::cast_slice(&ranges.concat()))?;
        let Some(gradient) = gradient else {
            return dispatch(ctx, FakePass::Forward, channels, &named![x, y], &table);
        };
        let Some((min, max)) = bounds else {
            return dispatch(ctx, FakePass::Gradient, channels, &named![x, g: gradient, y], &table);
        };
        let (below, above) = (ctx.temp(F32, &x.dims)?, ctx.temp(F32, &x.dims)?);
        let tensors = named![x, g: gradient, y, below, above];
        dispatch(ctx, FakePass::Bounds, channels, &tensors, &table)?;
        for (parts, sum) in [(below, min), (above, max)] {
            let last = parts.rank().saturating_sub(1);
            let reduced: Vec<bool> = (0..parts.rank())
                .map(|d| self.bounds_from == BoundsFrom::Inputs || d != last)
                .collect();
            reduce(ctx, "Sum", &parts, &reduced, &sum)?;
        }
        Ok(())
    }
}

fn sizes_differ(op: &str, a: &Tensor, b: &Tensor) -> String {
    format!(
        "Inputs to operation {op} of type {op} must have the same size and shape.  Input 0: {} != \
         input 1: {}",
        shape_text(&a.dims),
        shape_text(&b.dims)
    )
}

/// The computation of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FakePass {
    Forward,
    Gradient,
    /// The gradient, and the part of each element in the gradients of the bounds.
    Bounds,
}

impl FakePass {
    const fn bindings(self) -> &'static [&'static str] {
        match self {
            Self::Forward => &["x", "y"],
            Self::Gradient => &["x", "g", "y"],
            Self::Bounds => &["x", "g", "y", "below", "above"],
        }
    }

    const fn body(self) -> &'static str {
        match self {
            Self::Forward => {
                "let shifted = clamp(x, low, high) - low;
    let y = floor(shifted * load_ranges(r + 3u) - load_ranges(r + 4u) + 0.5) * load_ranges(r + 2u);
    store_y(t, select(y, 0.0, load_ranges(r + 5u) != 0.0));"
            }
            Self::Gradient => "store_y(t, load_g(t) * select(0.0, 1.0, inside));",
            Self::Bounds => {
                "store_y(t, load_g(t) * select(0.0, 1.0, inside));
    store_below(t, load_g(t) * select(0.0, 1.0, x < low && !inside));
    store_above(t, load_g(t) * select(0.0, 1.0, x > high && !inside));"
            }
        }
    }
}

fn dispatch(
    ctx: &dyn OpContext,
    pass: FakePass,
    channels: usize,
    tensors: &[(&'static str, &Tensor)],
    ranges: &Tensor,
) -> Result<()> {
    let len = tensors[0].1.len();
    let device = ctx.device();
    device.check_extent(len)?;
    let of = FakeQuantization::of(pass);
    // Windows have whole rows of channels, so that each begins with the first channel.
    let window = (window(device, 4) / channels.max(1)).max(1) * channels.max(1);
    for first in (0..len).step_by(window) {
        let count = window.min(len - first);
        let call = FakeQuantization {
            tensors: tensors.iter().map(|(name, t)| (*name, part(t, first, count))).collect(),
            ranges: ranges.into(),
            count,
            channels,
        };
        let grid = Grid::linear(count, WORKGROUP);
        device.enqueue_counted(&call.program(&of, grid), F32.flops(5 * count))?;
    }
    Ok(())
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    [FakePass::Forward, FakePass::Gradient, FakePass::Bounds].map(FakeQuantization::shader).to_vec()
}

enum_key_parts!(FakePass);

declare_program! {
    /// Simulates the quantization of elements, or computes gradients of it.
    struct FakeQuantization = "fake quant"(pass: FakePass);
    lists { tensors: List(pass.bindings().iter().map(|name| (*name, F32))) }
    bindings { ranges: F32 }
    params { count: usize, channels: usize }
    shader format!("fake quant {pass:?}") =>
        .define("BODY", pass.body())
        .body(include_str!("../../../shaders/quantize/fake.wgsl"))
}
