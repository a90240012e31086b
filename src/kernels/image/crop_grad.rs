//! The gradients of CropAndResize for the images and for the boxes.

use super::crop::{BOXES, CropSizes, TYPES, check_indices, count_boxes, method};
use super::{check_extents, check_image, sum_type};
use crate::device::{Device, Grid, declare_program};
use crate::dtype::DType::{self, *};
use crate::dtype::Operations;
use crate::error::Result;
use crate::kernels::contract::finish;
use crate::kernels::iterations::{LoopPart, STEPS, parts, steps};
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_TO_CHECK};
use crate::kernels::windows::{part, ranges};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("CropAndResizeGradImage")
        .types("T", TYPES)
        .host(&["image_size"])
        .note(WAITS_TO_CHECK)
        .kernel(|attrs| {
            let (dtype, bilinear) = (attrs.dtype("T")?, method(attrs)?);
            Ok(move |ctx: &mut dyn OpContext| grad_image(ctx, dtype, bilinear))
        });
    r.op("CropAndResizeGradBoxes").types("T", TYPES).note(WAITS_TO_CHECK).kernel(|attrs| {
        let method = attrs.string("method")?;
        require!(method == "bilinear", "method must be 'bilinear'{method}");
        Ok(grad_boxes as fn(&mut dyn OpContext) -> Result<()>)
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all: Vec<_> = TYPES.iter().map(|t| CropGradBoxes::shader(*t, 1)).collect();
    all.extend(STEPS[1..].iter().map(|steps| CropGradBoxes::shader(F32, *steps)));
    all.extend([F32, F64].map(CropGradImage::shader));
    all
}

fn check_grads(grads: &Tensor) -> Result<[usize; 4]> {
    let dims = check_image(grads, "grads image must be 4-D")?;
    require!(dims[1] > 0 && dims[2] > 0, "grads dimensions must be positive");
    Ok(dims)
}

/// Inputs: grads (float32), boxes, box_ind, image_size (host).
fn grad_image(ctx: &mut dyn OpContext, dtype: DType, bilinear: bool) -> Result<()> {
    let (grads, boxes, indices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let [grads_count, _, _, grads_depth] = check_grads(&grads)?;
    let count = count_boxes(&boxes, &indices)?;
    require!(grads_count == count, "boxes and grads have incompatible shape");
    let size = ctx.host_input(3)?;
    require!(size.dims.len() == 1, "image_size must be 1-D{}", shape_text(&size.dims));
    require!(size.dims[0] == 4, "image_size must have 4 elements{}", shape_text(&size.dims));
    let size = size.to_i64()?;
    require!(size[1] > 0 && size[2] > 0, "image dimensions must be positive");
    require!(grads_depth as i64 == size[3], "image_size and grads are incompatible");
    require!(size[0] >= 0, "Expected a non-negative size, got {}", size[0]);
    let dims = [size[0] as usize, size[1] as usize, size[2] as usize, grads_depth];
    let image = ctx.output(0, dtype, &dims)?;
    check_indices(ctx, &indices, dims[0])?;
    if image.is_empty() {
        return Ok(());
    }
    if grads.is_empty() {
        return ctx.device().fill(image.address, image.bytes(), 0);
    }
    let sums = if sum_type(dtype) == dtype { image.clone() } else { ctx.temp(F32, &dims)? };
    let device = ctx.device();
    check_extents(device, &[&grads, &sums])?;
    // Each pass goes over some of the boxes, over some rows of one box, or over some columns of one
    // row: this keeps loops short. Each pass adds to the sums.
    let extents = [count, grads.dims[1], grads.dims[2]];
    for part in parts(extents, device.profile().loop_limit) {
        image_pass(device, [&grads, &boxes, &indices, &sums], bilinear, part)?;
    }
    if sums == image { Ok(()) } else { finish::enqueue(device, &sums, &image) }
}

/// Operations for an element and a box.
const OPERATIONS: usize = 8;

fn image_pass(
    device: &Device,
    tensors: [&Tensor; 4],
    bilinear: bool,
    part: LoopPart,
) -> Result<()> {
    let [grads, boxes, indices, sums] = tensors;
    let dtype = sums.dtype;
    device.enqueue_counted(
        &CropGradImage {
            grads: grads.into(),
            boxes: boxes.into(),
            indices: indices.into(),
            sums: sums.into(),
            count: sums.len(),
            sizes: CropSizes {
                height: sums.dims[1],
                width: sums.dims[2],
                crop_height: grads.dims[1],
                crop_width: grads.dims[2],
            },
            depth: grads.dims[3],
            bilinear,
            part,
        }
        .program(&CropGradImage::of(dtype), Grid::map(sums.len(), dtype)),
        Operations::unreported(OPERATIONS * sums.len() * boxes.dims[0]),
    )
}

declare_program! {
    /// Adds the gradients of some positions of crops to the images that they come from.
    struct CropGradImage = "crop grad image"(dtype: DType);
    bindings { grads: F32, boxes: F32, indices: I32, sums: dtype }
    params { count: usize, sizes: CropSizes, depth: usize, bilinear: bool, part: LoopPart }
    shader format!("crop grad image {dtype}") =>
        .define("REAL", dtype.value())
        .body(BOXES)
        .body(include_str!("../../../shaders/image/crop_grad_image.wgsl"))
        .map("sums")
}

/// Inputs: grads (float32), image, boxes, box_ind.
fn grad_boxes(ctx: &mut dyn OpContext) -> Result<()> {
    let [grads, image, boxes, indices] =
        [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?];
    let [grads_count, rows, columns, grads_depth] = check_grads(&grads)?;
    let [batch, height, width, depth] = check_image(&image, "input image must be 4-D")?;
    require!(height > 0 && width > 0, "image dimensions must be positive");
    require!(depth == grads_depth, "image, grads depth differ");
    let count = count_boxes(&boxes, &indices)?;
    require!(grads_count == count, "boxes and grads have incompatible shape");
    let result = ctx.output(0, F32, &[count, 4])?;
    check_indices(ctx, &indices, batch)?;
    if result.is_empty() {
        return Ok(());
    }
    if depth == 0 {
        return ctx.device().fill(result.address, result.bytes(), 0);
    }
    // There is a value for each position of a crop. Values are summed by columns and then by rows,
    // for all boxes side by side.
    let per_row = ctx.temp(F32, &[rows, count, 4])?;
    let per_position = ctx.temp(F32, &[columns, rows, count, 4])?;
    let device = ctx.device();
    let steps = steps(&device.profile(), |steps| depth.div_ceil(steps))?;
    check_extents(device, &[&grads, &image, &per_position])?;
    let dtype = image.dtype;
    let positions = per_position.len() / 4;
    CropGradBoxes {
        grads: (&grads).into(),
        image: (&image).into(),
        boxes: (&boxes).into(),
        indices: (&indices).into(),
        sums: (&per_position).into(),
        count: positions,
        sizes: CropSizes { height, width, crop_height: rows, crop_width: columns },
        depth,
        box_count: count,
    }
    .enqueue(device, &CropGradBoxes::of(dtype, steps), Grid::map(positions, F32))?;
    sum(ctx, &per_position, &per_row)?;
    sum(ctx, &per_row, &result)
}

/// `y[i] = sum over s of partial[s][i]`, over at most as many s at a time as a loop may have
/// iterations.
fn sum(ctx: &mut dyn OpContext, partial: &Tensor, y: &Tensor) -> Result<()> {
    let (count, most) = (partial.len() / y.len(), ctx.device().profile().loop_limit);
    if count <= most {
        return finish::enqueue(ctx.device(), partial, y);
    }
    let sums = ctx.temp(F32, &[count.div_ceil(most), y.len()])?;
    for (k, (first, n)) in ranges(count, most).enumerate() {
        let of = |t: &Tensor, first: usize, n: usize| part(t, first * y.len(), n * y.len());
        finish::enqueue(ctx.device(), &of(partial, first, n), &of(&sums, k, 1))?;
    }
    sum(ctx, &sums, y)
}

declare_program! {
    /// The value of each position of a crop for the gradient of its box, with `steps`
    /// channels in an iteration.
    struct CropGradBoxes = "crop grad boxes"(dtype: DType, steps: u32);
    bindings { grads: F32, image: dtype, boxes: F32, indices: I32, sums: F32 }
    params { count: usize, sizes: CropSizes, depth: usize, box_count: usize }
    shader format!("crop grad boxes {dtype} by {steps}") =>
        .body(BOXES)
        .unrolled(steps, include_str!("../../../shaders/image/crop_grad_boxes.wgsl"))
}
