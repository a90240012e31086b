//! NonMaxSuppressionV2, V3 and V4: boxes picked greedily by score. A box that overlaps a
//! better one is left out.
//!
//! Candidates are sorted by score and taken in blocks: each candidate is compared with the boxes
//! that earlier blocks selected, then the block is resolved in workgroup memory. The work grows
//! with boxes times selections, and no matrix of all pairs is stored. Rows that do not suppress
//! each other (classes, images) have a workgroup each ([`BoxRows`]).

use super::keys::order;
use super::scan::word;
use crate::device::{Grid, declare_program};
use crate::dtype::DType::*;
use crate::dtype::Operations;
use crate::error::Result;
use crate::kernels::movement::shape;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    const V2: &[&str] = &["iou_threshold", "max_output_size"];
    const V3: &[&str] = &["iou_threshold", "max_output_size", "score_threshold"];
    for (op, host) in [("NonMaxSuppressionV2", V2), ("NonMaxSuppressionV3", V3)] {
        r.op(op).types("T", &[F32]).host(host).note(WAITS_FOR_SIZE).kernel(move |_| {
            Ok(move |ctx: &mut dyn OpContext| {
                let boxes = Boxes::of(ctx, host.len() == V3.len())?;
                let (selected, count) = boxes.select(ctx)?;
                boxes.output_selected(ctx, selected.as_ref(), &count)
            })
        });
    }
    r.op("NonMaxSuppressionV4")
        .types("T", &[F32])
        .host(V3)
        .note("waits for the device to learn its output's size, unless `pad_to_max_output_size`")
        .kernel(|attrs| {
            let pad = attrs.bool("pad_to_max_output_size")?;
            Ok(move |ctx: &mut dyn OpContext| {
                let boxes = Boxes::of(ctx, true)?;
                let (selected, count) = boxes.select(ctx)?;
                if pad {
                    let out = ctx.output(0, I32, &[boxes.limit])?;
                    ctx.device().fill(out.address, out.bytes(), 0)?;
                    if let Some(selected) = &selected {
                        ctx.device().copy(out.address, selected.address, selected.bytes())?;
                    }
                } else {
                    boxes.output_selected(ctx, selected.as_ref(), &count)?;
                }
                let valid = ctx.output(1, I32, &[])?;
                ctx.device().copy(valid.address, count.address, 4)
            })
        });
}

/// The inputs: boxes (0), scores (1), max_output_size (2, host), iou_threshold (3, host),
/// score_threshold (4, host).
struct Boxes {
    boxes: Tensor,
    scores: Tensor,
    limit: usize,
    overlap: f32,
    lowest: f32,
}

pub(super) fn scalar(t: &HostTensor, name: &str) -> Result<f64> {
    require!(t.dims.is_empty(), "{name} must be 0-D, got shape {}", shape(&t.dims));
    Ok(t.to_f64()[0])
}

impl Boxes {
    fn of(ctx: &mut dyn OpContext, thresholded: bool) -> Result<Self> {
        let limit = scalar(&ctx.host_input(2)?, "max_output_size")? as i64;
        let overlap = scalar(&ctx.host_input(3)?, "iou_threshold")?;
        let lowest = if thresholded {
            scalar(&ctx.host_input(4)?, "score_threshold")?
        } else {
            f64::from(f32::MIN)
        };
        require!((0.0..=1.0).contains(&overlap), "iou_threshold must be in [0, 1]");
        require!(limit >= 0, "output size must be non-negative");
        let (boxes, scores) = (ctx.input(0)?, ctx.input(1)?);
        require!(boxes.rank() == 2, "boxes must be 2-D{}", shape(&boxes.dims));
        require!(boxes.dims[1] == 4, "boxes must have 4 columns");
        require!(scores.rank() == 1, "scores must be 1-D{}", shape(&scores.dims));
        require!(scores.len() == boxes.dims[0], "scores has incompatible shape");
        Ok(Self {
            boxes,
            scores,
            limit: limit as usize,
            overlap: overlap as f32,
            lowest: lowest as f32,
        })
    }

    /// Enqueues the selection. Returns the indices, with room for the most that there can be, and
    /// their number, on the device.
    fn select(&self, ctx: &mut dyn OpContext) -> Result<(Option<Tensor>, Tensor)> {
        let n = self.scores.len();
        let limit = self.limit.min(n);
        if limit == 0 {
            let state = ctx.temp(I32, &[1])?;
            ctx.device().fill(state.address, 4, 0)?;
            return Ok((None, state));
        }
        let sorted = order(ctx, &self.scores, n, true)?.values;
        let rows = BoxRows {
            boxes: &self.boxes,
            scores: &self.scores,
            order: &sorted,
            images: 1,
            classes: 1,
            box_classes: 1,
            limit,
            overlap: self.overlap,
            lowest: self.lowest,
        };
        let Selected { places, counts } = rows.select(ctx)?;
        Ok((Some(places), counts))
    }

    /// Sets output 0 to the selected indices alone. Waits for the device, since their number is the
    /// output's extent.
    fn output_selected(
        &self,
        ctx: &mut dyn OpContext,
        selected: Option<&Tensor>,
        count: &Tensor,
    ) -> Result<()> {
        let n = if selected.is_some() { word(ctx, count, 0)? as usize } else { 0 };
        let out = ctx.output(0, I32, &[n])?;
        match selected {
            Some(selected) if n > 0 => {
                ctx.device().copy(out.address, selected.address, out.bytes())
            }
            _ => Ok(()),
        }
    }
}

/// Boxes of several images and classes; each class is selected by itself.
pub struct BoxRows<'r> {
    /// Boxes of each image, place and class.
    pub boxes: &'r Tensor,
    /// Scores of each image, class and place.
    pub scores: &'r Tensor,
    /// The scores' order, row by row.
    pub order: &'r Tensor,
    /// Images.
    pub images: usize,
    /// Classes, each a row of scores.
    pub classes: usize,
    /// Boxes of a place: one for each class, or one for all classes.
    pub box_classes: usize,
    /// The most boxes that are selected from a row.
    pub limit: usize,
    /// Boxes that overlap by more than this exclude each other.
    pub overlap: f32,
    /// Scores must be greater than this.
    pub lowest: f32,
}

/// Operations for two boxes.
const OPERATIONS: usize = 16;

/// The boxes that were selected from each row.
pub struct Selected {
    /// The selected places, with room for the most that there can be.
    pub places: Tensor,
    /// The number of selected places.
    pub counts: Tensor,
}

impl BoxRows<'_> {
    /// Enqueues the selection. There is at least one place, and at least one may be selected.
    pub fn select(&self, ctx: &mut dyn OpContext) -> Result<Selected> {
        let rows = self.images * self.classes;
        let n = self.scores.len() / rows;
        let group = WORKGROUP as usize;
        let state = ctx.temp(I32, &[rows])?;
        let selected = ctx.temp(I32, &[rows, self.limit])?;
        let corners = ctx.temp(F32, &[rows, self.limit, 4])?;
        let alive = ctx.temp(U32, &[rows, group])?;
        let device = ctx.device();
        device.fill(state.address, state.bytes(), 0)?;
        device.fill(selected.address, selected.bytes(), 0)?;
        // A candidate visits each selected box, so a dispatch takes a limited number of them.
        let most = (device.profile().loop_limit / 2).clamp(1, self.limit);
        for first in (0..n).step_by(group) {
            // The number of selected boxes is at most that of the candidates before.
            let before = self.limit.min(first).max(1);
            for from in (0..before).step_by(most) {
                device.enqueue_counted(
                    &Suppress {
                        boxes: self.boxes.into(),
                        scores: self.scores.into(),
                        order: self.order.into(),
                        state: (&state).into(),
                        selected: (&selected).into(),
                        corners: (&corners).into(),
                        alive: (&alive).into(),
                        count: n,
                        first,
                        limit: self.limit,
                        rows,
                        classes: self.classes,
                        box_classes: self.box_classes,
                        visited: from,
                        most,
                        resolves: from + most >= before,
                        overlap: self.overlap,
                        lowest: self.lowest,
                    }
                    .program(&Suppress::of(), Grid::groups(rows)),
                    Operations::unreported(OPERATIONS * rows * group * most.min(before - from)),
                )?;
            }
        }
        Ok(Selected { places: selected, counts: state })
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![Suppress::shader()]
}

declare_program! {
    /// Selects boxes of each row that overlap no selected box too much.
    struct Suppress = "sort suppress"();
    bindings {
        boxes: F32, scores: F32, order: U32, state: U32, selected: U32, corners: F32, alive: U32,
    }
    params {
        count: usize, first: usize, limit: usize, rows: usize, classes: usize, box_classes: usize,
        visited: usize, most: usize, resolves: bool, overlap: f32, lowest: f32,
    }
    shader "non-maximum suppression" => .body(include_str!("../../../shaders/sort/suppress.wgsl"))
}
