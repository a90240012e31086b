//! `DrawBoundingBoxes`: the outlines of boxes over images. Where boxes meet, the last one is
//! visible. An invocation looks at the boxes from the last one on. If there are more boxes than a
//! loop may have iterations, several dispatches draw them, the first boxes first.

use super::{check_extents, check_image};
use crate::device::{Grid, declare_program};
use crate::dtype::{DType, Operations, types};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kernels::windows::ranges;
use crate::require;
use crate::shader::Shader;
use crate::tensor::shape_text;

const TYPES: &[DType] = types::F32_F16;
/// Operations for an element and a box.
const OPERATIONS: usize = 20;

/// Registers both versions.
pub fn register(r: &mut Registry) {
    r.op("DrawBoundingBoxes")
        .types("T", TYPES)
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| draw(ctx, false)));
    r.op("DrawBoundingBoxesV2")
        .types("T", TYPES)
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| draw(ctx, true)));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|t| [false, true].map(|own| DrawBoxes::shader(*t, own))).collect()
}

/// Inputs: images, boxes and, in the second version, colors.
fn draw(ctx: &mut dyn OpContext, colored: bool) -> Result<()> {
    let (x, boxes) = (ctx.input(0)?, ctx.input(1)?);
    require!(x.rank() == 4, "The rank of the images should be 4");
    let [batch, height, width, depth] = check_image(&x, "")?;
    require!(boxes.rank() == 3, "The rank of the boxes tensor should be 3");
    require!(batch == boxes.dims[0], "The batch sizes should be the same");
    require!(
        matches!(depth, 1 | 3 | 4),
        "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"
    );
    require!(
        boxes.dims[2] == 4,
        "The size of the third dimension of the box must be 4. Received: {}",
        boxes.dims[2]
    );
    let mut colors = None;
    if colored {
        let table = ctx.input(2)?;
        let shown = shape_text(&table.dims);
        require!(table.rank() == 2, "colors must be a 2-D matrix{shown}");
        require!(
            table.dims[1] >= depth,
            "colors must have equal or more channels than the image provided: {shown}"
        );
        colors = Some(table).filter(|table| !table.is_empty());
    }
    if x.is_empty() || boxes.is_empty() {
        return ctx.forward_input(0, 0, &x.dims);
    }
    let y = ctx.output(0, x.dtype, &x.dims)?;
    let (device, dtype) = (ctx.device(), x.dtype);
    check_extents(device, &[&x, &boxes, &y])?;
    let [rows, channels] = colors.as_ref().map_or([10, 4], |table| [table.dims[0], table.dims[1]]);
    let own = colors.is_some();
    // An invocation computes all lanes of a word.
    let lanes = dtype.lanes() as usize;
    let most = (device.profile().loop_limit.saturating_sub(lanes) / lanes).max(1);
    let mut under = &x;
    for (first, count) in ranges(boxes.dims[1], most) {
        device.enqueue_counted(
            &DrawBoxes {
                x: under.into(),
                boxes: (&boxes).into(),
                y: (&y).into(),
                colors: colors.as_ref().map(Into::into),
                count: y.len(),
                height,
                width,
                depth,
                box_count: boxes.dims[1],
                first,
                end: first + count,
                rows,
                channels,
            }
            .program(&DrawBoxes::of(dtype, own), Grid::map(y.len(), dtype)),
            Operations::unreported(OPERATIONS * y.len() * count),
        )?;
        under = &y;
    }
    Ok(())
}

declare_program! {
    /// Draws the outlines of some boxes over an image. The colors are the `own` table of the
    /// call, or TensorFlow's.
    struct DrawBoxes = "draw boxes"(dtype: DType, own: bool);
    bindings { x: dtype, boxes: DType::F32, y: dtype }
    optional { colors: own.then_some(DType::F32) }
    params {
        count: usize, height: usize, width: usize, depth: usize, box_count: usize, first: usize,
        end: usize, rows: usize, channels: usize,
    }
    shader format!("draw boxes {dtype} own={own}") =>
        .body(if own { TABLE } else { DEFAULT })
        .body(include_str!("../../../shaders/image/draw_boxes.wgsl"))
        .map("y")
}

const TABLE: &str = "fn color(i: u32, channel: u32) -> f32 {
    return load_colors(i * p.channels + channel);
}
";

/// Yellow, blue, red, lime, purple, olive, maroon, navy blue, aqua and fuchsia: a bit for each half
/// of red, green and blue. Gray images get 1.
const DEFAULT: &str = "fn color(i: u32, channel: u32) -> f32 {
    var table = array<u32, 10>(0x22u, 0x200u, 0x2u, 0x20u, 0x101u, 0x11u, 0x1u, 0x100u, 0x220u,
        0x202u);
    let halves = (table[i] >> (4u * channel)) & 3u;
    return select(f32(halves) * 0.5, 1.0, p.depth == 1u || channel == 3u);
}
";
