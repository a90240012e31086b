//! CombinedNonMaxSuppression: the best boxes of each image, over classes that do not suppress each
//! other.
//!
//! All classes of all images are sorted together. A workgroup selects from each class
//! ([`super::suppress`]), and the selected boxes are sorted for each image.

use super::keys::order;
use super::suppress::{BoxRows, Selected, scalar};
use crate::device::{Grid, declare_program};
use crate::dtype::DType::*;
use crate::error::Result;
use crate::kernels::movement::checked_product;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::Iteration;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Tensor, shape_text};

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("CombinedNonMaxSuppression")
        .host(&["max_output_size_per_class", "max_total_size", "iou_threshold", "score_threshold"])
        .kernel(|attrs: &dyn Attrs| {
            Ok(Combined {
                pads_per_class: attrs.bool("pad_per_class")?,
                clips: attrs.bool("clip_boxes")?,
            })
        });
}

/// Inputs: boxes (0), scores (1), then in host memory max_output_size_per_class, max_total_size,
/// iou_threshold, score_threshold.
struct Combined {
    pads_per_class: bool,
    clips: bool,
}

impl Kernel for Combined {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (boxes, scores) = (ctx.input(0)?, ctx.input(1)?);
        require!(boxes.rank() == 4, "boxes must be 4-D{}", shape_text(&boxes.dims));
        require!(scores.rank() == 3, "scores must be 3-D{}", shape_text(&scores.dims));
        let per_class = scalar(&ctx.host_input(2)?, "max_size_per_class")? as i64;
        require!(per_class > 0, "max_size_per_class must be positive");
        let total = scalar(&ctx.host_input(3)?, "max_total_size")? as i64;
        require!(total > 0, "max_total_size must be > 0");
        let overlap = scalar(&ctx.host_input(4)?, "iou_threshold")?;
        let lowest = scalar(&ctx.host_input(5)?, "score_threshold")?;
        require!((0.0..=1.0).contains(&overlap), "iou_threshold must be in [0, 1]");
        let (images, places, classes) = (scores.dims[0], scores.dims[1], scores.dims[2]);
        require!(boxes.dims[3] == 4, "boxes must have 4 columns");
        require!(
            boxes.dims[0] == images && boxes.dims[1] == places,
            "scores has incompatible shape"
        );
        let box_classes = boxes.dims[2];
        require!(
            box_classes == 1 || box_classes == classes,
            "third dimension of boxes must be either 1 or num classes"
        );
        let total = match self.pads_per_class {
            true => total.min(per_class.saturating_mul(classes as i64)),
            false => total,
        } as usize;
        checked_product(&[images, total, 4])?;
        let out_boxes = ctx.output(0, F32, &[images, total, 4])?;
        let out_scores = ctx.output(1, F32, &[images, total])?;
        let out_classes = ctx.output(2, F32, &[images, total])?;
        let valid = ctx.output(3, I32, &[images])?;
        if scores.is_empty() {
            for out in [&out_boxes, &out_scores, &out_classes, &valid] {
                ctx.device().fill(out.address, out.bytes(), 0)?;
            }
            return Ok(());
        }
        let limit = places.min(per_class as usize);
        let rows = ctx.temp(F32, &[images, classes, places])?;
        let strides = [(places * classes) as i64, 1, classes as i64];
        let walk = Iteration::over(&rows.dims).operand(&strides, 0).broadcast(&rows.dims);
        copy_strided(ctx.device(), &walk, &scores, &rows)?;
        let sorted = order(ctx, &rows, places, true)?.values;
        let Selected { places: selected, counts } = BoxRows {
            boxes: &boxes,
            scores: &rows,
            order: &sorted,
            images,
            classes,
            box_classes,
            limit,
            overlap: overlap as f32,
            lowest: lowest as f32,
        }
        .select(ctx)?;
        let keys = ctx.temp(F32, &[images, classes * limit])?;
        SelectedScores {
            scores: (&rows).into(),
            state: (&counts).into(),
            selected: (&selected).into(),
            keys: (&keys).into(),
            count: keys.len(),
            limit,
            places,
            nothing: f32::NEG_INFINITY,
        }
        .enqueue(ctx.device(), &SelectedScores::of(), Grid::map(keys.len(), F32))?;
        let best = order(ctx, &keys, classes * limit, true)?.values;
        let count = ctx.device().check_extent(images * total)?;
        CollectBest {
            boxes: (&boxes).into(),
            keys: (&keys).into(),
            order: (&best).into(),
            state: (&counts).into(),
            selected: (&selected).into(),
            out_boxes: (&out_boxes).into(),
            out_scores: (&out_scores).into(),
            out_classes: (&out_classes).into(),
            count,
            total,
            classes,
            limit,
            places,
            box_classes,
            clips: self.clips,
        }
        .enqueue(
            ctx.device(),
            &CollectBest::of(),
            Grid::linear(count as usize, WORKGROUP),
        )?;
        count_valid(ctx, &counts, classes, total, &valid)
    }
}

fn count_valid(
    ctx: &dyn OpContext,
    counts: &Tensor,
    classes: usize,
    total: usize,
    valid: &Tensor,
) -> Result<()> {
    CountBoxes { state: counts.into(), valid: valid.into(), count: valid.len(), classes, total }
        .enqueue(ctx.device(), &CountBoxes::of(), Grid::map(valid.len(), I32))
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![SelectedScores::shader(), CollectBest::shader(), CountBoxes::shader()]
}

declare_program! {
    /// The scores of the selected boxes of each class. Places without a box sort last.
    struct SelectedScores = "sort suppress keys"();
    bindings { scores: F32, state: U32, selected: U32, keys: F32 }
    params { count: usize, limit: usize, places: usize, nothing: f32 }
    shader "non-maximum suppression, scores of what is left" =>
        .body(include_str!("../../../shaders/sort/suppress_keys.wgsl"))
        .map("keys")
}

declare_program! {
    /// The best boxes of each image, over all classes.
    struct CollectBest = "sort suppress collect"();
    bindings {
        boxes: F32, keys: F32, order: U32, state: U32, selected: U32, out_boxes: F32,
        out_scores: F32, out_classes: F32,
    }
    params {
        count: u32, total: usize, classes: usize, limit: usize, places: usize,
        box_classes: usize, clips: bool,
    }
    shader "non-maximum suppression, best of all classes" =>
        .body(include_str!("../../../shaders/sort/suppress_collect.wgsl"))
}

declare_program! {
    /// The number of boxes of each image.
    struct CountBoxes = "sort suppress count"();
    bindings { state: U32, valid: I32 }
    params { count: usize, classes: usize, total: usize }
    shader "non-maximum suppression, number of boxes" =>
        .body(include_str!("../../../shaders/sort/suppress_count.wgsl"))
        .map("valid")
}
