//! CropAndResize: boxes of a batch of images, resized to one size.
//!
//! Like TensorFlow's kernels it refuses box indices outside the batch, and so waits for the
//! indices. Boxes that are not finite give the extrapolation value, as on TensorFlow's GPU.

use super::{check_extents, check_image};
use crate::device::{Grid, declare_params, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::{Registry, WAITS_TO_CHECK};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{HostTensor, Tensor, shape_text};

pub(super) const TYPES: &[DType] = types::FLOATS_BUT_BF16;
pub(super) const BOXES: &str = include_str!("../../../shaders/image/crop_boxes.wgsl");

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("CropAndResize")
        .types("T", TYPES)
        .host(&["crop_size"])
        .items(&[(1, 1), (2, 0)])
        .note(WAITS_TO_CHECK)
        .kernel(|attrs| {
            let bilinear = method(attrs)?;
            let outside = attrs.float("extrapolation_value")?;
            Ok(move |ctx: &mut dyn OpContext| crop_and_resize(ctx, bilinear, outside))
        });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().map(|t| CropAndResize::shader(*t)).collect()
}

/// Whether the attribute `method` is bilinear.
pub(super) fn method(attrs: &dyn Attrs) -> Result<bool> {
    let method = attrs.string("method")?;
    require!(
        matches!(method.as_str(), "bilinear" | "nearest"),
        "method must be 'bilinear' or 'nearest'{method}"
    );
    Ok(method == "bilinear")
}

/// The number of boxes in `boxes` and `indices`.
pub(super) fn count_boxes(boxes: &Tensor, indices: &Tensor) -> Result<usize> {
    if boxes.is_empty() && indices.is_empty() {
        return Ok(0);
    }
    require!(boxes.rank() == 2, "boxes must be 2-D{}", shape_text(&boxes.dims));
    require!(boxes.dims[1] == 4, "boxes must have 4 columns");
    require!(indices.rank() == 1, "box_index must be 1-D{}", shape_text(&indices.dims));
    require!(indices.dims[0] == boxes.dims[0], "box_index has incompatible shape");
    Ok(boxes.dims[0])
}

/// Waits for the indices and refuses those outside the batch.
pub(super) fn check_indices(ctx: &dyn OpContext, indices: &Tensor, batch: usize) -> Result<()> {
    let mut host = HostTensor {
        dtype: I32,
        dims: indices.dims.clone(),
        bytes: vec![0; indices.bytes() as usize],
    };
    if !indices.is_empty() {
        ctx.device().download(indices.address, &mut host.bytes)?;
    }
    match host.values::<i32>().iter().all(|i| usize::try_from(*i).is_ok_and(|i| i < batch)) {
        true => Ok(()),
        false => Err(Error::OutOfRange("box_index has values outside [0, batch_size)".to_owned())),
    }
}

/// Inputs: image, boxes, box_ind, crop_size (host).
fn crop_and_resize(ctx: &mut dyn OpContext, bilinear: bool, outside: f32) -> Result<()> {
    let (image, boxes, indices) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let [batch, height, width, depth] = check_image(&image, "input image must be 4-D")?;
    require!(height > 0 && width > 0, "image dimensions must be positive");
    require!(boxes.rank() == 2, "boxes must be 2-D, got: {}", shape_text(&boxes.dims));
    require!(
        indices.rank() == 1,
        "box_indices must be rank 1 but is shape {}",
        shape_text(&indices.dims)
    );
    let count = count_boxes(&boxes, &indices)?;
    let size = ctx.host_input(3)?;
    require!(size.dims.len() == 1, "crop_size must be 1-D{}", shape_text(&size.dims));
    require!(size.dims[0] == 2, "crop_size must have two elements{}", shape_text(&size.dims));
    let size = size.to_i64()?;
    require!(size.iter().all(|n| *n > 0), "crop dimensions must be positive");
    let crops = ctx.output(0, F32, &[count, size[0] as usize, size[1] as usize, depth])?;
    check_indices(ctx, &indices, batch)?;
    let device = ctx.device();
    check_extents(device, &[&image, &crops])?;
    if crops.is_empty() {
        return Ok(());
    }
    let dtype = image.dtype;
    CropAndResize {
        image: (&image).into(),
        boxes: (&boxes).into(),
        indices: (&indices).into(),
        crops: (&crops).into(),
        count: crops.len(),
        sizes: CropSizes { height, width, crop_height: crops.dims[1], crop_width: crops.dims[2] },
        depth,
        bilinear,
        outside,
    }
    .enqueue(device, &CropAndResize::of(dtype), Grid::map(crops.len(), F32))
}

declare_params! {
    /// The parameters that [`BOXES`] reads: the extents of the images and of the crops.
    pub(super) struct CropSizes {
        height: usize, width: usize, crop_height: usize, crop_width: usize,
    }
}

declare_program! {
    /// The crops of boxes, each resized.
    struct CropAndResize = "crop and resize"(dtype: DType);
    bindings { image: dtype, boxes: F32, indices: I32, crops: F32 }
    params { count: usize, sizes: CropSizes, depth: usize, bilinear: bool, outside: f32 }
    shader format!("crop and resize {dtype}") =>
        .body(BOXES)
        .body(include_str!("../../../shaders/image/crop.wgsl"))
        .map("crops")
}
