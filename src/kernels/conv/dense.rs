//! Convolutions with groups of channels as contractions: implicit GEMM, without im2col in memory.
//! Images beyond one binding are cut here, filters beyond one binding are cut by the contraction.

use super::phases;
use crate::device::Profile;
use crate::error::Result;
use crate::kernels::contract::epilogue::Bound;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::images::{Side, Window};
use crate::kernels::contract::plan::ProductPlan;
use crate::kernels::contract::sums::Sums;
use crate::kernels::contract::{ALayout, BLayout, Contraction, Store};
use crate::kernels::windows::{limit, part, too_large};
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// One matrix product for each group of channels.
fn groups(g: &Geometry) -> Iteration {
    let all = [g.groups];
    Iteration::over(&all).broadcast(&all).broadcast(&all).broadcast(&all).collapse()
}

/// A kernel of one element that moves by one: the convolution is a plain matrix product of pixels
/// and channels.
fn is_pointwise(g: &Geometry) -> bool {
    g.taps() == 1 && g.stride == [1; 3] && g.pad == [0; 3] && g.input == g.output && g.channels_last
}

/// Where the positions and channels of an image tensor lie.
fn store(g: &Geometry, channels: usize, positions: usize) -> Store {
    if g.channels_last {
        Store::Rows(channels)
    } else {
        Store::Planes { plane: positions, image: channels * positions }
    }
}

/// Elements between channels of an image tensor.
const fn step(g: &Geometry, positions: usize) -> usize {
    if g.channels_last { 1 } else { positions }
}

/// Bytes that are bound for an element of a result, or for its partial sums, if these are more.
fn sum_bytes(limit: u64, filter: &Tensor, depth: usize, result: usize) -> usize {
    let slices =
        depth.div_ceil(Contraction::LONGEST_WHOLE).max(if filter.bytes() > limit { 2 } else { 1 });
    (slices * filter.dtype.accumulator().size()).max(result)
}

/// Windows of images whose elements of the input and of the output take `input` and `output` bytes;
/// None if everything fits at once. Images that are too large with channels first are left to the
/// contraction, one by one.
fn windows(
    limit: u64,
    g: &Geometry,
    side: Side,
    [input, output]: [usize; 2],
) -> Option<Vec<Window>> {
    let fits = |g: &Geometry| {
        (g.inputs() * input) as u64 <= limit && (g.outputs() * output) as u64 <= limit
    };
    if fits(g) || g.batch == 0 {
        return None;
    }
    let windows = g.windows(side, false, &fits);
    if windows.is_none() && g.batch > 1 { Some(g.image_windows(1)) } else { windows }
}

/// The convolution. With an epilogue `y` is its result.
pub fn forward<'e>(
    profile: &Profile,
    g: &Geometry,
    [x, filter, y]: [&Tensor; 3],
    epilogue: Option<Bound<'e>>,
) -> Result<ProductPlan<'e>> {
    let mut plan = ProductPlan::new();
    let limit = limit(&profile.capabilities);
    let result = epilogue.as_ref().map_or(y.dtype.size(), Bound::widest);
    let y_bytes = sum_bytes(limit, filter, g.taps() * (g.channels / g.groups), result);
    let Some(windows) = windows(limit, g, Side::Output, [x.dtype.size(), y_bytes]) else {
        forward_part(g, [x, filter, y]).add_to(&mut plan, profile, epilogue)?;
        return Ok(plan);
    };
    for Window { geometry: g, input, output, .. } in windows {
        let bound = epilogue.as_ref().map(|e| e.window(output, g.outputs()));
        let (x, y) = (part(x, input, g.inputs()), part(y, output, g.outputs()));
        plan.window(|plan| {
            plan.write(&y, |plan, y| forward_part(&g, [&x, filter, y]).add_to(plan, profile, bound))
        })?;
    }
    Ok(plan)
}

/// Rows are output positions, columns the filters of a group, the sum runs over kernel positions
/// and channels.
fn forward_part(g: &Geometry, [x, filter, y]: [&Tensor; 3]) -> Contraction {
    let (channels, filters) = (g.channels / g.groups, g.filters / g.groups);
    let (from, to) = (g.input_positions(), g.output_positions());
    let a_layout = if is_pointwise(g) {
        ALayout::Dense { stride: g.channels }
    } else {
        ALayout::Patch(g.clone())
    };
    Contraction::product([g.batch * to, channels, filters], [x, filter, y])
        .outer(g.taps(), BLayout::Dense)
        .left(a_layout, step(g, from))
        .right(g.filters, 1)
        .stored(store(g, g.filters, to))
        .batched(groups(g), [channels * step(g, from), filters, filters * step(g, to)])
}

/// The gradient of the input.
pub fn backprop_input(
    profile: &Profile,
    g: &Geometry,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<ProductPlan<'static>> {
    let mut plan = ProductPlan::new();
    let limit = limit(&profile.capabilities);
    let dx_bytes = sum_bytes(limit, filter, g.taps() * (g.filters / g.groups), dx.dtype.size());
    let Some(windows) = windows(limit, g, Side::Input, [dx_bytes, dy.dtype.size()]) else {
        backprop_input_part(&mut plan, profile, g, [filter, dy, dx])?;
        return Ok(plan);
    };
    for Window { geometry: g, input, output, .. } in windows {
        let (dy, dx) = (part(dy, output, g.outputs()), part(dx, input, g.inputs()));
        plan.window(|plan| {
            plan.write(&dx, |plan, dx| backprop_input_part(plan, profile, &g, [filter, &dy, dx]))
        })?;
    }
    Ok(plan)
}

/// Rows are input positions, columns the channels of a group, the sum runs over kernel positions
/// and filters.
fn backprop_input_part(
    plan: &mut ProductPlan<'static>,
    profile: &Profile,
    g: &Geometry,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<()> {
    let bound = filter.bytes() <= limit(&profile.capabilities);
    if bound && is_disjoint(g, dx) {
        return disjoint(g, [filter, dy, dx]).add_to(plan, profile, None);
    }
    if bound && phases::apply(g, dx) {
        return phases::backprop_input(plan, profile, g, &groups(g), [filter, dy, dx]);
    }
    let (channels, filters) = (g.channels / g.groups, g.filters / g.groups);
    let (to, from) = (g.input_positions(), g.output_positions());
    let a_layout = if is_pointwise(g) {
        ALayout::Dense { stride: g.filters }
    } else {
        ALayout::Spread(g.clone())
    };
    Contraction::product([g.batch * to, filters, channels], [dy, filter, dx])
        .outer(g.taps(), BLayout::Strided(channels * g.filters))
        .left(a_layout, step(g, from))
        .right(1, g.filters)
        .stored(store(g, g.channels, to))
        .batched(groups(g), [filters * step(g, from), filters, channels * step(g, to)])
        .add_to(plan, profile, None)
}

/// Whether windows lie next to each other and cover the input.
fn is_disjoint(g: &Geometry, dx: &Tensor) -> bool {
    let covered = |d: usize| g.input[d] == g.output[d] * g.stride[d];
    g.kernel == g.stride
        && g.taps() > 1
        && (0..3).all(covered)
        && g.pad == [0; 3]
        && g.dilation == [1; 3]
        && g.channels_last
        && g.groups == 1
        && g.spatial_class() == 2
        && g.filters <= Contraction::LONGEST_WHOLE
        && phases::stores_at_once(dx, g.kernel[2] * g.channels)
}

/// The gradient of the input if each of its positions is in exactly one window: a matrix product
/// for each row of the window. Its columns are a window's columns and channels, which follow each
/// other in the input as they do in the filter.
fn disjoint(g: &Geometry, [filter, dy, dx]: [&Tensor; 3]) -> Contraction {
    let (columns, line) = (g.kernel[2] * g.channels, g.input[2] * g.channels);
    let rows = [g.kernel[1]];
    let batch = Iteration::over(&rows).broadcast(&[1]).broadcast(&rows).broadcast(&rows).collapse();
    Contraction::product([g.batch * g.output_positions(), g.filters, columns], [dy, filter, dx])
        .right(1, g.filters)
        .stored(Store::Places {
            extents: [g.output[1], g.output[2]],
            strides: [g.input[1] * line, g.stride[1] * line, columns],
        })
        .batched(batch, [0, columns * g.filters, line])
}

/// The gradient of the filter.
pub fn backprop_filter(
    profile: &Profile,
    g: &Geometry,
    [x, dy, dw]: [&Tensor; 3],
) -> Result<ProductPlan<'static>> {
    let mut plan = ProductPlan::new();
    let (limit, size) = (limit(&profile.capabilities), x.dtype.size());
    let windows = match windows(limit, g, Side::Output, [size, size]) {
        Some(windows) if windows.len() > 1 => windows,
        _ => {
            backprop_filter_part(g, [x, dy, dw]).add_to(&mut plan, profile, None)?;
            return Ok(plan);
        }
    };
    if Sums::bytes(dw.dtype, dw.len()) > limit {
        return Err(too_large(
            &profile.capabilities,
            "a filter's gradient, summed over images that do not fit either,",
        ));
    }
    let mut sums = Sums::new(&mut plan, dw.dtype, dw.len());
    for Window { geometry: g, input, output, .. } in windows {
        let (x, dy) = (part(x, input, g.inputs()), part(dy, output, g.outputs()));
        let slice = sums.next(&mut plan);
        plan.window(|plan| {
            backprop_filter_part(&g, [&x, &dy, &slice]).add_to(plan, profile, None)
        })?;
    }
    sums.finish(&mut plan, dw, None, true);
    Ok(plan)
}

/// Rows are kernel positions and channels of a group, columns its filters, the sum runs over all
/// output positions.
fn backprop_filter_part(g: &Geometry, [x, dy, dw]: [&Tensor; 3]) -> Contraction {
    let (channels, filters) = (g.channels / g.groups, g.filters / g.groups);
    let (from, to) = (g.input_positions(), g.output_positions());
    let line = g.output[2];
    let lines = g.output[0] * g.output[1];
    let (a_layout, outer, inner, along) = if is_pointwise(g) {
        (ALayout::Dense { stride: 1 }, 1, g.batch * to, 1)
    } else {
        (ALayout::Window(g.clone()), g.batch * lines, line, g.stride[2])
    };
    let (b_layout, pixel, b_step, b_column) = if g.channels_last {
        (BLayout::Dense, g.channels, g.filters, 1)
    } else {
        (BLayout::Planar { count: lines, image: g.filters * to, stride: line }, 1, 1, to)
    };
    Contraction::product([g.taps() * channels, inner, filters], [x, dy, dw])
        .outer(outer, b_layout)
        .left(a_layout, along * pixel)
        .right(b_step, b_column)
        .stored(Store::Rows(g.filters))
        .batched(groups(g), [channels * step(g, from), filters * step(g, to), filters])
}
