//! ExtractImagePatches and ExtractVolumePatches: every window becomes one vector, with zeros beyond
//! the image. Elements move as bytes. Tensors beyond one binding are cut into images or slabs.

use crate::device::{Axes, Grid, declare_program};
use crate::dtype::{DType::*, types, union};
use crate::error::{Error, Result};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::images::{Side, Window};
use crate::kernels::conv::window::{Format, Padding};
use crate::kernels::movement::unit::Unit;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::{Scratch, limit, part, too_large, write};
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor, shape_text};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("ExtractImagePatches").types("T", union!(types::INEXACT, &[Bool])).kernel(|attrs| {
        let windows = Windows::of(attrs, 2)?;
        Ok(move |ctx: &mut dyn OpContext| windows.extract(ctx))
    });
    r.op("ExtractVolumePatches").types("T", types::FLOATS).kernel(|attrs| {
        let windows = Windows::of(attrs, 3)?;
        Ok(move |ctx: &mut dyn OpContext| windows.extract(ctx))
    });
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    Unit::ALL.map(ExtractPatches::shader).into()
}

/// The attributes of a node, for three spatial dimensions.
struct Windows {
    format: Format,
    padding: Padding,
    kernel: [usize; 3],
    stride: [usize; 3],
    rate: [usize; 3],
}

/// A list attribute that may differ from 1 in space only.
fn spatial(attrs: &dyn Attrs, name: &str, format: Format) -> Result<[usize; 3]> {
    let list = attrs.ints(name)?;
    require!(list.len() == format.rank(), "{name} must specify {} dimensions", format.rank());
    if list[0] != 1 || list[format.channel()] != 1 {
        return Err(Error::Unimplemented(format!("Only support {name} across space.")));
    }
    if !list.iter().all(|v| (1..1 << 31).contains(v)) {
        return Err(Error::OutOfRange(format!("{name} is out of range.")));
    }
    Ok(format.spatial(&list, 1).map(|v| v as usize))
}

impl Windows {
    fn of(attrs: &dyn Attrs, spatial_dims: usize) -> Result<Self> {
        let format = Format { spatial: spatial_dims, channels_last: true };
        Ok(Self {
            format,
            padding: Padding::read(attrs, format)?,
            kernel: spatial(attrs, "ksizes", format)?,
            stride: spatial(attrs, "strides", format)?,
            rate: if spatial_dims == 2 { spatial(attrs, "rates", format)? } else { [1; 3] },
        })
    }

    /// Inputs: images.
    fn extract(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let rank = self.format.rank();
        require!(x.rank() == rank, "input must be {rank}-dimensional{}", shape_text(&x.dims));
        let input = self.format.spatial(&x.dims, 1);
        let (output, pad) = self.padding.windows(input, self.kernel, self.stride, self.rate)?;
        let depth = self.kernel.iter().product::<usize>() * x.dims[rank - 1];
        let dims: Dims = self.format.shape(x.dims[0], depth, output);
        let Some(y) = ctx.some_output(0, x.dtype, &dims)? else { return Ok(()) };
        let g = Geometry {
            batch: x.dims[0],
            channels: x.dims[rank - 1],
            filters: depth,
            groups: 1,
            input,
            output,
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.rate,
            pad,
            channels_last: true,
        };
        let limit = limit(ctx.device().capabilities());
        let size = x.dtype.size();
        let fits = |g: &Geometry| (g.inputs().max(g.outputs()) * size) as u64 <= limit;
        if fits(&g) {
            return enqueue(ctx, &g, &x, &y);
        }
        let Some(windows) = g.windows(Side::Output, false, &fits) else {
            return Err(too_large(
                ctx.device().capabilities(),
                "the patches of one row of an image",
            ));
        };
        let mut scratch = Scratch::new(ctx);
        for Window { geometry: g, input, output, .. } in windows {
            let (x, y) = (part(&x, input, g.inputs()), part(&y, output, g.outputs()));
            write(scratch.window(), &y, |ctx, y| enqueue(ctx, &g, &x, y))?;
        }
        Ok(())
    }
}

fn enqueue(ctx: &dyn OpContext, g: &Geometry, x: &Tensor, y: &Tensor) -> Result<()> {
    let device = ctx.device();
    let (mut unit, mut channels) = (Unit::of(x.dtype), g.channels);
    let all = channels;
    while let Some(wide) = unit.doubled() {
        if !channels.is_multiple_of(2)
            || [x, y].iter().any(|t| !t.address.is_multiple_of(wide.bytes()))
        {
            break;
        }
        unit = wide;
        channels /= 2;
    }
    let units = |t: &Tensor| t.len() / all * channels;
    device.check_extent(units(x))?;
    let count = device.check_extent(units(y))? as usize;
    ExtractPatches {
        src: unit.binding(x.address, units(x) as u64),
        dst: unit.binding(y.address, count as u64),
        count,
        channels,
        input: Axes(g.input),
        output: Axes(g.output),
        kernel: Axes(g.kernel),
        stride: Axes(g.stride),
        rate: Axes(g.dilation),
        pad: Axes(g.pad),
    }
    .enqueue(
        device,
        &ExtractPatches::of(unit),
        Grid::linear(unit.invocations(count), WORKGROUP),
    )
}

declare_program! {
    /// The elements of windows. Grid: one invocation for each stored unit.
    struct ExtractPatches = "extract patches"(unit: Unit);
    bindings { src: unit, dst: unit }
    params {
        count: usize, channels: usize, input: Axes<3>, output: Axes<3>, kernel: Axes<3>,
        stride: Axes<3>, rate: Axes<3>, pad: Axes<3>,
    }
}

impl ExtractPatches {
    fn shader(unit: Unit) -> Shader {
        unit.map(
            Self::declare(format!("extract patches {}", unit.bytes()), unit)
                .define("ELEMENT", unit.wgsl())
                .body(include_str!("../../../shaders/patches/extract.wgsl")),
        )
    }
}
