//! ResizeBilinear, ResizeNearestNeighbor and their gradients.
//!
//! Both are separable, so a gradient is two passes over one axis each, with sums in f32 (f64 for
//! float64); the gradient of nearest neighbors takes one pass if few positions read the same
//! position. Programs compute four channels at once where these lie together.

use super::{check_extents, check_image, host_pair, sum_type};
use crate::device::{Binding, Device, Grid, declare_params, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::items::Held;
use crate::kernels::iterations::{STEPS, steps};
use crate::kernels::movement::unit::Unit;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Access, Shader, WORKGROUP, vec4};
use crate::tensor::{Tensor, shape_text};

/// Operations for each element of a bilinear result: three interpolations of two values.
const BILINEAR_OPERATIONS: usize = 9;
const TYPES: &[DType] = types::FLOATS;
const SOURCE: &str = include_str!("../../../shaders/image/resize_source.wgsl");
const READERS: &str = include_str!("../../../shaders/image/resize_readers.wgsl");
/// The most positions of a resized image that one invocation sums in both directions.
const MAX_READERS: usize = 64;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    type Run = fn(&Resize, &mut dyn OpContext) -> Result<()>;
    const OPS: [(&str, bool, &[&str], Run); 4] = [
        ("ResizeBilinear", true, &["size"], Resize::forward),
        ("ResizeBilinearGrad", true, &[], Resize::bilinear_grad),
        ("ResizeNearestNeighbor", false, &["size"], Resize::forward),
        ("ResizeNearestNeighborGrad", false, &["size"], Resize::nearest_grad),
    ];
    for (op, bilinear, host, run) in OPS {
        let held: Held = if op == "ResizeBilinearGrad" { &[(0, 3), (1, 3)] } else { &[(0, 3)] };
        r.op(op).types("T", TYPES).host(host).items(held).kernel(move |attrs| {
            let resize = Resize::of(attrs, bilinear)?;
            Ok(move |ctx: &mut dyn OpContext| run(&resize, ctx))
        });
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all: Vec<_> = Unit::ALL.map(ResizeNearest::shader).into();
    for wide in [false, true] {
        for &t in TYPES.iter().filter(|t| !wide || vec4::supports(**t)) {
            let sum = sum_type(t);
            all.extend([ResizeBilinear::shader(t, wide), ResizeNearestGrad::shader(t, wide)]);
            all.extend(
                [(false, t, sum), (false, sum, t), (true, F32, sum), (true, sum, t)]
                    .map(|(b, s, d)| ResizeGrad::shader(b, s, d, wide, 1)),
            );
            if t == F32 {
                let both = [false, true].into_iter();
                all.extend(both.flat_map(|bilinear| {
                    STEPS[1..].iter().map(move |n| ResizeGrad::shader(bilinear, F32, F32, wide, *n))
                }));
            }
        }
    }
    all
}

/// The attributes of a node.
struct Resize {
    bilinear: bool,
    align_corners: bool,
    half_pixel_centers: bool,
}

/// One axis: the image's extent, the resized extent, and the step in the image for a step in the
/// resized image.
#[derive(Debug, Clone, Copy)]
struct Axis {
    extent: usize,
    resized: usize,
    scale: f32,
}

impl Resize {
    fn of(attrs: &dyn Attrs, bilinear: bool) -> Result<Self> {
        Ok(Self {
            bilinear,
            align_corners: attrs.bool("align_corners")?,
            half_pixel_centers: attrs.bool("half_pixel_centers")?,
        })
    }

    fn axis(&self, extent: usize, resized: usize) -> Axis {
        let scale = if self.align_corners && resized > 1 {
            (extent - 1) as f32 / (resized - 1) as f32
        } else {
            extent as f32 / resized as f32
        };
        Axis { extent, resized, scale }
    }

    fn rounding(&self) -> Rounding {
        Rounding {
            round: self.align_corners,
            half: if self.half_pixel_centers { 0.5 } else { 0.0 },
        }
    }

    fn check_flags(&self) -> Result<()> {
        require!(
            !(self.half_pixel_centers && self.align_corners),
            "If half_pixel_centers is True, align_corners must be False."
        );
        Ok(())
    }

    /// Inputs: images, size (host).
    fn forward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        self.check_flags()?;
        let [batch, height, width, channels] = check_image(&x, "input must be 4-dimensional")?;
        require!(channels > 0, "image must have at least one channel");
        require!(height > 0 && width > 0, "input image must be of non-zero size");
        let [out_height, out_width] = host_pair(ctx, 1, "shape_t")?;
        require!(out_height > 0 && out_width > 0, "output dimensions must be positive");
        let (out_height, out_width) = (out_height as usize, out_width as usize);
        let (rows, columns) = (self.axis(height, out_height), self.axis(width, out_width));
        if !self.bilinear {
            require!(
                height < 1 << 24 && width < 1 << 24,
                "nearest neighbor requires max height & width of 2^24"
            );
        }
        let dtype = if self.bilinear { F32 } else { x.dtype };
        let y = ctx.output(0, dtype, &[batch, out_height, out_width, channels])?;
        let device = ctx.device();
        check_extents(device, &[&x, &y])?;
        if y.is_empty() {
            return Ok(());
        }
        if self.bilinear {
            self.bilinear(device, &x, &y, rows, columns)
        } else {
            self.nearest(device, &x, &y, rows, columns)
        }
    }

    fn bilinear(
        &self,
        device: &Device,
        x: &Tensor,
        y: &Tensor,
        rows: Axis,
        columns: Axis,
    ) -> Result<()> {
        let launch = Launch::of(x, y, x.dims[3]);
        device.enqueue_counted(
            &ResizeBilinear {
                src: launch.binding(x),
                dst: launch.binding(y),
                planes: self.planes(launch.count, launch.inner, rows, columns),
            }
            .program(&ResizeBilinear::of(x.dtype, launch.wide), launch.grid(y)),
            F32.flops(BILINEAR_OPERATIONS * y.len()),
        )
    }

    fn nearest(
        &self,
        device: &Device,
        x: &Tensor,
        y: &Tensor,
        rows: Axis,
        columns: Axis,
    ) -> Result<()> {
        let (mut unit, mut channels) = (Unit::of(x.dtype), x.dims[3]);
        while let Some(wide) = unit.doubled() {
            if !channels.is_multiple_of(2)
                || [x, y].iter().any(|t| !t.address.is_multiple_of(wide.bytes()))
            {
                break;
            }
            unit = wide;
            channels /= 2;
        }
        let pixels = |t: &Tensor| t.dims[..3].iter().product::<usize>() * channels;
        let count = pixels(y);
        ResizeNearest {
            src: unit.binding(x.address, pixels(x) as u64),
            dst: unit.binding(y.address, count as u64),
            planes: self.planes(count, channels, rows, columns),
        }
        .enqueue(
            device,
            &ResizeNearest::of(unit),
            Grid::linear(unit.invocations(count), WORKGROUP),
        )
    }

    fn planes(&self, count: usize, channels: usize, rows: Axis, columns: Axis) -> Planes {
        Planes {
            count,
            channels,
            height: rows.extent,
            width: columns.extent,
            out_height: rows.resized,
            out_width: columns.resized,
            rounding: self.rounding(),
            scale_y: rows.scale,
            scale_x: columns.scale,
        }
    }

    /// Inputs: grads (float32), original_image, of which only the shape counts.
    fn bilinear_grad(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (dy, x) = (ctx.input(0)?, ctx.input(1)?);
        self.check_flags()?;
        let [_, height, width, _] = check_image(&dy, "input_grad must be 4-dimensional")?;
        require!(height > 0 && width > 0, "resized dimensions must be positive");
        let [_, rows, columns, _] = check_image(&x, "original_image must be 4-dimensional")?;
        require!(rows > 0 && columns > 0, "original dimensions must be positive");
        self.gradient(ctx, &dy, x.dtype, [rows, columns])
    }

    /// Inputs: grads, size (host) of the original image.
    fn nearest_grad(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dy = ctx.input(0)?;
        require!(dy.rank() == 4, "input must be 4-dimensional{}", shape_text(&dy.dims));
        let [rows, columns] = host_pair(ctx, 1, "shape_t")?;
        require!(rows > 0 && columns > 0, "shape_t's elements must be positive");
        self.gradient(ctx, &dy, dy.dtype, [rows as usize, columns as usize])
    }

    /// Takes the columns of each line first, then the rows.
    fn gradient(
        &self,
        ctx: &mut dyn OpContext,
        dy: &Tensor,
        dtype: DType,
        [rows, columns]: [usize; 2],
    ) -> Result<()> {
        let (batch, channels) = (dy.dims[0], dy.dims[3]);
        let (height, width) = (dy.dims[1], dy.dims[2]);
        let Some(dx) = ctx.some_output(0, dtype, &[batch, rows, columns, channels])? else {
            return Ok(());
        };
        if dy.is_empty() {
            return ctx.device().fill(dx.address, dx.bytes(), 0);
        }
        let (along_rows, along_columns) = (self.axis(rows, height), self.axis(columns, width));
        if !self.bilinear
            && along_rows.most_readers(false) * along_columns.most_readers(false) <= MAX_READERS
        {
            check_extents(ctx.device(), &[dy, &dx])?;
            return self.nearest_gather(ctx.device(), dy, &dx, along_rows, along_columns);
        }
        let partial = ctx.temp(sum_type(dtype), &[batch, height, columns, channels])?;
        let device = ctx.device();
        check_extents(device, &[dy, &partial, &dx])?;
        self.gather(device, dy, &partial, along_columns, channels)?;
        self.gather(device, &partial, &dx, along_rows, columns * channels)
    }

    fn nearest_gather(
        &self,
        device: &Device,
        dy: &Tensor,
        dx: &Tensor,
        rows: Axis,
        columns: Axis,
    ) -> Result<()> {
        let launch = Launch::of(dy, dx, dx.dims[3]);
        ResizeNearestGrad {
            src: launch.binding(dy),
            dst: launch.binding(dx),
            planes: self.planes(launch.count, launch.inner, rows, columns),
        }
        .enqueue(device, &ResizeNearestGrad::of(dx.dtype, launch.wide), launch.grid(dx))
    }

    fn gather(
        &self,
        device: &Device,
        src: &Tensor,
        dst: &Tensor,
        axis: Axis,
        inner: usize,
    ) -> Result<()> {
        let (s, d, bilinear) = (src.dtype, dst.dtype, self.bilinear);
        // An invocation computes all lanes of a word.
        let (readers, lanes) = (axis.most_readers(bilinear), d.lanes() as usize);
        let steps = steps(&device.profile(), |steps| lanes * (1 + readers.div_ceil(steps)))?;
        let launch = Launch::of(src, dst, inner);
        device.enqueue_counted(
            &ResizeGrad {
                src: launch.binding(src),
                dst: launch.binding(dst),
                count: launch.count,
                inner: launch.inner,
                extent: axis.extent,
                resized: axis.resized,
                rounding: self.rounding(),
                scale: axis.scale,
            }
            .program(&ResizeGrad::of(bilinear, s, d, launch.wide, steps), launch.grid(dst)),
            d.flops(src.len() * if bilinear { 4 } else { 2 }),
        )
    }
}

impl Axis {
    /// The most resized positions that read one position, or that the shader considers as readers.
    fn most_readers(self, bilinear: bool) -> usize {
        if self.scale > 0.0 {
            let reach = if bilinear { 2.0 } else { 1.0 };
            let room = 4e-6 * self.resized as f32;
            self.resized.min((reach / self.scale + room) as usize + 3)
        } else {
            self.resized
        }
    }
}

/// How a program from one tensor to another is launched: by single elements, or by four at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) wide: bool,
    /// Elements of the destination.
    pub(super) count: usize,
    /// Elements of its innermost extent.
    pub(super) inner: usize,
}

impl Launch {
    pub(super) fn of(src: &Tensor, dst: &Tensor, inner: usize) -> Self {
        if inner.is_multiple_of(4) && vec4::aligned(&[src, dst]) {
            return Self { wide: true, count: dst.len() / 4, inner: inner / 4 };
        }
        Self { wide: false, count: dst.len(), inner }
    }

    pub(super) fn binding(self, t: &Tensor) -> Binding {
        if self.wide { Binding::raw(t, vec4::unit(t.dtype)) } else { t.into() }
    }

    pub(super) fn grid(self, dst: &Tensor) -> Grid {
        if self.wide {
            Grid::linear(self.count, WORKGROUP)
        } else {
            Grid::map(self.count, dst.dtype)
        }
    }

    /// Defines the names by which bodies call the computed type and the loads of it.
    pub(super) fn define(shader: Shader, dst: DType, wide: bool) -> Shader {
        let value = if wide { format!("vec4<{}>", dst.value()) } else { dst.value().to_owned() };
        shader
            .define("VALUE", value)
            .define("REAL", dst.value())
            .define("LOAD", if wide { "read" } else { "load" })
    }

    pub(super) fn map(shader: Shader, wide: bool) -> Shader {
        if wide { vec4::map(shader, "dst") } else { shader.map("dst") }
    }
}

declare_params! {
    /// How [`SOURCE`] rounds positions.
    struct Rounding { round: bool, half: f32 }
}

declare_params! {
    /// The extents of images and of resized images, and the step in the image for a step in the
    /// resized one.
    struct Planes {
        count: usize, channels: usize, height: usize, width: usize, out_height: usize,
        out_width: usize, rounding: Rounding, scale_y: f32, scale_x: f32,
    }
}

declare_program! {
    /// Interpolates between the four nearest positions.
    struct ResizeBilinear = "resize bilinear"(dtype: DType, wide: bool);
    bindings { src: Access::read(dtype, wide), dst: Access::write(F32, wide) }
    params { planes: Planes }
}

impl ResizeBilinear {
    fn shader(dtype: DType, wide: bool) -> Shader {
        let shader = Self::declare(format!("resize bilinear {dtype} wide={wide}"), dtype, wide);
        let text = include_str!("../../../shaders/image/resize_bilinear.wgsl");
        Launch::map(Launch::define(shader, F32, wide).body(SOURCE).body(text), wide)
    }
}

declare_program! {
    /// Takes the nearest positions.
    struct ResizeNearest = "resize nearest"(unit: Unit);
    bindings { src: unit, dst: unit }
    params { planes: Planes }
}

impl ResizeNearest {
    fn shader(unit: Unit) -> Shader {
        unit.map(
            Self::declare(format!("resize nearest {}", unit.bytes()), unit)
                .body(SOURCE)
                .define("ELEMENT", unit.wgsl())
                .body(include_str!("../../../shaders/image/resize_nearest.wgsl")),
        )
    }
}

declare_program! {
    /// Sums the gradients of all positions that read a position.
    struct ResizeNearestGrad = "resize nearest grad"(dtype: DType, wide: bool);
    bindings { src: Access::read(dtype, wide), dst: Access::write(dtype, wide) }
    params { planes: Planes }
}

impl ResizeNearestGrad {
    fn shader(dtype: DType, wide: bool) -> Shader {
        let shader = Self::declare(format!("resize nearest grad {dtype} wide={wide}"), dtype, wide);
        let shader = declare_readers(Launch::define(shader, dtype, wide).body(SOURCE), false);
        let text = include_str!("../../../shaders/image/resize_nearest_grad.wgsl");
        Launch::map(shader.body(text), wide)
    }
}

declare_program! {
    /// Sums the gradients of all positions that read a position along one axis, with `steps`
    /// positions in an iteration.
    struct ResizeGrad = "resize grad"(
        bilinear: bool, source: DType, destination: DType, wide: bool, steps: u32
    );
    bindings {
        src: Access::read(source, wide),
        dst: Access::write(destination, wide),
    }
    params {
        count: usize, inner: usize, extent: usize, resized: usize, rounding: Rounding, scale: f32,
    }
}

impl ResizeGrad {
    fn shader(bilinear: bool, src: DType, dst: DType, wide: bool, steps: u32) -> Shader {
        let label =
            format!("resize grad bilinear={bilinear} {src} to {dst} wide={wide} by {steps}");
        let shader = Self::declare(label, bilinear, src, dst, wide, steps);
        let shader = declare_readers(Launch::define(shader, dst, wide).body(SOURCE), bilinear);
        let text = include_str!("../../../shaders/image/resize_grad.wgsl");
        Launch::map(shader.unrolled(steps, text), wide)
    }
}

/// Declares which resized positions read a position, and with which weight.
fn declare_readers(shader: Shader, bilinear: bool) -> Shader {
    let (weight, shift, before) = if bilinear {
        (
            "let t = linear_tap(x, scale, extent);\n    return select(0.0, 1.0 - t.lerp, t.low == \
             i) + select(0.0, t.lerp, t.high == i);",
            "p.half",
            "1.0",
        )
    } else {
        (
            "return select(0.0, 1.0, nearest_tap(x, scale, extent) == i);",
            "-0.5 * f32(p.round)",
            "0.0",
        )
    };
    shader.define("WEIGHT", weight).define("SHIFT", shift).define("BEFORE", before).body(READERS)
}
