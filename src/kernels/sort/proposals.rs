//! GenerateBoundingBoxProposals: the anchors of the best scores become boxes, which suppress each
//! other image by image.

use super::keys::order;
use super::suppress::{BoxRows, Selected, scalar};
use crate::device::{Grid, declare_program};
use crate::dtype::DType::*;
use crate::error::{Error, Result};
use crate::kernels::movement::checked_product;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Tensor, shape_text};

/// Numbers that describe an image.
const IMAGE: usize = 5;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("GenerateBoundingBoxProposals")
        .host(&["nms_threshold", "min_size", "pre_nms_topn"])
        .kernel(|attrs: &dyn Attrs| {
            let total = attrs.int("post_nms_topn")?;
            require!(total > 0, "post_nms_topn can't be 0 or less");
            Ok(move |ctx: &mut dyn OpContext| propose(ctx, total as usize))
        });
}

/// Inputs: scores (0), bbox_deltas (1), image_info (2), anchors (3), then in host memory
/// nms_threshold (4), pre_nms_topn (5), min_size (6).
fn propose(ctx: &mut dyn OpContext, total: usize) -> Result<()> {
    let inputs: Vec<Tensor> = (0..4).map(|i| ctx.input(i)).collect::<Result<_>>()?;
    let [scores, deltas, images_info, anchors] = &inputs[..] else { unreachable!("four inputs") };
    require!(scores.rank() == 4, "scores must be 4-D{}", shape_text(&scores.dims));
    require!(anchors.rank() == 3, "anchors must be 3-D{}", shape_text(&anchors.dims));
    let [images, each] = [scores.dims[0], scores.dims[3]];
    let anchors_each = scores.dims[1..].iter().product::<usize>();
    if anchors.dims[2] != 4 * each {
        return Err(Error::OutOfRange("Box dimensions need to be 4".to_owned()));
    }
    require!(
        anchors.len() == 4 * anchors_each,
        "anchors {} do not fit scores {}",
        shape_text(&anchors.dims),
        shape_text(&scores.dims)
    );
    require!(
        deltas.len() == 4 * scores.len(),
        "bbox_deltas {} do not fit scores {}",
        shape_text(&deltas.dims),
        shape_text(&scores.dims)
    );
    require!(
        images_info.dims[..] == [images, IMAGE],
        "image_info must be [{images},{IMAGE}], got {}",
        shape_text(&images_info.dims)
    );
    let overlap = scalar(&ctx.host_input(4)?, "nms_threshold")?;
    require!(
        (0.0..=1.0).contains(&overlap),
        "nms_threshold should be between 0 and 1. Got {overlap}"
    );
    let first = scalar(&ctx.host_input(5)?, "pre_nms_topn")? as i64;
    require!(first > 0, "pre_nms_topn should be greater than 0, got {first}");
    let least = scalar(&ctx.host_input(6)?, "min_size")? as f32;
    checked_product(&[images, total, 4])?;
    let out_boxes = ctx.output(0, F32, &[images, total, 4])?;
    let out_scores = ctx.output(1, F32, &[images, total])?;
    if scores.is_empty() {
        ctx.device().fill(out_boxes.address, out_boxes.bytes(), 0)?;
        return ctx.device().fill(out_scores.address, out_scores.bytes(), 0);
    }
    let first = anchors_each.min(first as usize);
    let limit = first.min(total);
    let sorted = order(ctx, scores, anchors_each, true)?.values;
    let boxes = ctx.temp(F32, &[images, first, 4])?;
    let kept = ctx.temp(F32, &[images, first])?;
    let places = ctx.temp(U32, &[images, first])?;
    DecodeBoxes {
        deltas: deltas.into(),
        anchors: anchors.into(),
        images: images_info.into(),
        order: (&sorted).into(),
        boxes: (&boxes).into(),
        kept: (&kept).into(),
        places: (&places).into(),
        count: ctx.device().check_extent(kept.len())?,
        first,
        anchors_each,
        least,
    }
    .enqueue(ctx.device(), &DecodeBoxes::of(), Grid::linear(kept.len(), WORKGROUP))?;
    let Selected { places: selected, counts } = BoxRows {
        boxes: &boxes,
        scores: &kept,
        order: &places,
        images,
        classes: 1,
        box_classes: 1,
        limit,
        overlap: overlap as f32,
        lowest: 0.0,
    }
    .select(ctx)?;
    WriteProposals {
        scores: scores.into(),
        order: (&sorted).into(),
        boxes: (&boxes).into(),
        state: (&counts).into(),
        selected: (&selected).into(),
        out_boxes: (&out_boxes).into(),
        out_scores: (&out_scores).into(),
        count: ctx.device().check_extent(out_scores.len())?,
        total,
        first,
        limit,
        anchors_each,
    }
    .enqueue(ctx.device(), &WriteProposals::of(), Grid::linear(out_scores.len(), WORKGROUP))
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![DecodeBoxes::shader(), WriteProposals::shader()]
}

declare_program! {
    /// The boxes of the best anchors of each image, and their scores.
    struct DecodeBoxes = "sort proposals"();
    bindings {
        deltas: F32, anchors: F32, images: F32, order: U32, boxes: F32, kept: F32, places: U32,
    }
    params { count: u32, first: usize, anchors_each: usize, least: f32 }
    shader "bounding box proposals" => .body(include_str!("../../../shaders/sort/proposals.wgsl"))
}

declare_program! {
    /// Writes the selected boxes and their scores.
    struct WriteProposals = "sort proposals write"();
    bindings {
        scores: F32, order: U32, boxes: F32, state: U32, selected: U32, out_boxes: F32,
        out_scores: F32,
    }
    params { count: u32, total: usize, first: usize, limit: usize, anchors_each: usize }
    shader "bounding box proposals, selected" =>
        .body(include_str!("../../../shaders/sort/proposals_write.wgsl"))
}
