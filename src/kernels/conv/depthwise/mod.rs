//! Convolutions in which each input channel has filters of its own. They do little arithmetic per
//! byte. There is one invocation for each element, or for four channels of a position if these lie
//! together ([`vec4s`]), or for a run of positions in common windows ([`rolling`]). Where a window
//! takes more iterations than an adapter's loops may have, the convolution is computed as one with
//! groups of one channel ([`dense`]), which cuts sums.

mod rolling;
mod vec4s;

use smallvec::SmallVec;

use crate::device::{
    Binding, Grid, Key, Parameter, Params, Plane, Profile, check_extent, declare_params,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::epilogue::{Bound, EpilogueVariant, channel_of};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::images::{Side, Window};
use crate::kernels::contract::plan::{ProductPlan, Step};
use crate::kernels::contract::programs::Dispatch;
use crate::kernels::contract::sums::Sums;
use crate::kernels::contract::{finish, samples};
use crate::kernels::conv::dense;
use crate::kernels::windows::{limit, part, too_large};
use crate::shader::Shader;
use crate::tensor::Tensor;
use rolling::{Parts, Tile};

const COMMON: &str = include_str!("../../../../shaders/conv/depthwise.wgsl");
const FORWARD: &str = include_str!("../../../../shaders/conv/depthwise_forward.wgsl");
const INPUT: &str = include_str!("../../../../shaders/conv/depthwise_input.wgsl");
const FILTER: &str = include_str!("../../../../shaders/conv/depthwise_filter.wgsl");

/// One of the three programs.
#[derive(Debug, Clone, Copy)]
enum Which {
    Forward,
    Input,
    Filter,
}

impl Which {
    /// Names of the operands.
    const fn operands(self) -> [&'static str; 2] {
        match self {
            Self::Forward => ["x", "weight"],
            Self::Input => ["weight", "dy"],
            Self::Filter => ["x", "dy"],
        }
    }
}

fn shader(
    which: Which,
    dtype: DType,
    channels_last: bool,
    epilogue: Option<&EpilogueVariant>,
    vec4s: bool,
) -> Shader {
    let (label, text) = match which {
        Which::Forward => ("forward", FORWARD),
        Which::Input => ("input", INPUT),
        Which::Filter => ("filter", FILTER),
    };
    let names = which.operands();
    let result = match (which, epilogue) {
        (Which::Filter, _) => dtype.accumulator(),
        (_, Some(variant)) => variant.output(),
        _ => dtype,
    };
    let mut shader = Shader::new(format!(
        "depthwise {label} {dtype} channels_last={channels_last} {epilogue:?} vec4s={vec4s}"
    ));
    shader = if vec4s {
        vec4s::bind(shader, names, dtype, result)
    } else {
        shader.bind(names[0], dtype).bind(names[1], dtype).bind("result", result)
    };
    shader = WindowParams::declare((), shader, "windows");
    if matches!(which, Which::Filter) {
        shader = LineParams::declare((), shader, "lines");
    }
    shader = shader.define("T", dtype.value()).define("RESULT_T", result.value());
    shader = match epilogue {
        Some(variant) => {
            let (reads, call) = (
                variant.reads("i", &channel_of("i")),
                variant.call("sum", "i", &channel_of("i"), ""),
            );
            variant
                .declare(shader, |shader, _, _| shader)
                .define("READS", reads)
                .define("RESULT", call)
        }
        None => shader.define("READS", "").define("RESULT", "sum"),
    };
    shader = shader.body(COMMON).body(if channels_last { CHANNELS_LAST } else { CHANNELS_FIRST });
    if vec4s { shader.body(vec4s::text(which)) } else { shader.body(text).map("result") }
}

const CHANNELS_LAST: &str = include_str!("../../../../shaders/conv/channels_last.wgsl");
const CHANNELS_FIRST: &str = include_str!("../../../../shaders/conv/channels_first.wgsl");

declare_params! {
    /// The elements of the result, and the extents of images and windows.
    struct WindowParams {
        count: usize, channels: usize, multiplier: usize, filters: usize, input: Plane,
        output: Plane, kernel: Plane, stride: Plane, dilation: Plane, pad: Plane,
    }
}

declare_params! {
    /// The number of lines of the output, and of lines that a part of the filter's gradient adds.
    struct LineParams { lines: usize, chunk: usize }
}

/// The extents along the axes of an image.
const fn plane([_, y, x]: [usize; 3]) -> Plane {
    Plane([y, x])
}

fn params(g: &Geometry, count: usize) -> Params {
    let windows = WindowParams {
        count,
        channels: g.channels,
        multiplier: g.filters / g.channels,
        filters: g.filters,
        input: plane(g.input),
        output: plane(g.output),
        kernel: plane(g.kernel),
        stride: plane(g.stride),
        dilation: plane(g.dilation),
        pad: plane(g.pad),
    };
    windows.append_to(Params::new())
}

/// Floating-point operations of any of the three programs: a product and a sum for each tap of each
/// output.
fn flops(g: &Geometry) -> u64 {
    2 * (g.batch * g.output_positions() * g.filters * g.taps()) as u64
}

/// The program for operands and a result.
fn dispatch(
    which: Which,
    g: &Geometry,
    [a, b, result]: [&Tensor; 3],
    mut params: Params,
    epilogue: Option<&Bound<'_>>,
) -> Result<Dispatch> {
    for t in [a, b, result] {
        check_extent(t.len())?;
    }
    let (dtype, last) = (a.dtype, g.channels_last);
    let vec4s = vec4s::fits(which, g, [a, b, result]);
    let mut key = Key::new("depthwise")
        .number(which as u32)
        .dtype(dtype)
        .number(u32::from(last))
        .number(u32::from(vec4s));
    let unit = |t: &Tensor| if vec4s { vec4s::unit(t.dtype) } else { t.dtype.size() as u32 };
    let mut bindings: SmallVec<[Binding; 8]> =
        [a, b, result].map(|t| Binding::raw(t, unit(t))).into_iter().collect();
    let variant = epilogue.map(|e| e.variant(false));
    if let (Some(epilogue), Some(variant)) = (epilogue, &variant) {
        key = variant.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(variant));
    }
    Ok(Dispatch {
        key,
        shader: Box::new(move || shader(which, dtype, last, variant.as_ref(), vec4s)),
        bindings,
        params,
        operations: flops(g).into(),
        grid: if vec4s { vec4s::grid(result.len()) } else { Grid::map(result.len(), result.dtype) },
    })
}

/// Windows of images whose elements of the input and of the output take `input` and `output` bytes;
/// None if everything fits at once.
fn windows(
    profile: &Profile,
    g: &Geometry,
    side: Side,
    [input, output]: [usize; 2],
) -> Result<Option<Vec<Window>>> {
    let limit = limit(&profile.capabilities);
    let fits = |g: &Geometry| {
        (g.inputs() * input) as u64 <= limit && (g.outputs() * output) as u64 <= limit
    };
    if fits(g) {
        return Ok(None);
    }
    let what = "an image, with its channels first, or a row of one";
    g.windows(side, false, &fits).map(Some).ok_or_else(|| too_large(&profile.capabilities, what))
}

/// The output; with an epilogue, its result. An epilogue needs a filter that is not empty.
pub fn forward<'e>(
    profile: &Profile,
    g: &Geometry,
    [x, filter, y]: [&Tensor; 3],
    epilogue: Option<Bound<'e>>,
) -> Result<ProductPlan<'e>> {
    let mut plan = ProductPlan::new();
    if filter.is_empty() {
        debug_assert!(epilogue.is_none(), "no epilogue without products");
        plan.push(Step::Zero(y.clone()));
        return Ok(plan);
    }
    if g.taps() + g.kernel[1] > profile.loop_limit {
        return dense::forward(profile, g, [x, filter, y], epilogue);
    }
    let widest = epilogue.as_ref().map_or(y.dtype.size(), Bound::widest);
    let Some(windows) = windows(profile, g, Side::Output, [x.dtype.size(), widest])? else {
        plan.dispatch(forward_part(profile, g, [x, filter, y], epilogue.as_ref())?);
        return Ok(plan);
    };
    for Window { geometry: g, input, output, .. } in windows {
        let bound = epilogue.as_ref().map(|e| e.window(output, g.outputs()));
        let (x, y) = (part(x, input, g.inputs()), part(y, output, g.outputs()));
        plan.window(|plan| {
            plan.write(&y, |plan, y| {
                plan.dispatch(forward_part(profile, &g, [&x, filter, y], bound.as_ref())?);
                Ok(())
            })
        })?;
    }
    Ok(plan)
}

fn forward_part(
    profile: &Profile,
    g: &Geometry,
    [x, filter, y]: [&Tensor; 3],
    epilogue: Option<&Bound<'_>>,
) -> Result<Dispatch> {
    if let Some(tile) = Tile::of(Which::Forward, profile, g, [x, filter, y]) {
        return rolling::forward(profile, g, tile, [x, filter, y], epilogue);
    }
    dispatch(Which::Forward, g, [x, filter, y], params(g, y.len()), epilogue)
}

/// The gradient of the input: each element gathers from the windows that contain it.
pub fn backprop_input(
    profile: &Profile,
    g: &Geometry,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<ProductPlan<'static>> {
    if g.taps() * (1 + g.filters / g.channels) + g.kernel[1] > profile.loop_limit {
        return dense::backprop_input(profile, g, [filter, dy, dx]);
    }
    let mut plan = ProductPlan::new();
    let size = dx.dtype.size();
    let Some(windows) = windows(profile, g, Side::Input, [size, size])? else {
        plan.dispatch(backprop_input_part(profile, g, [filter, dy, dx])?);
        return Ok(plan);
    };
    for Window { geometry: g, input, output, .. } in windows {
        let (dy, dx) = (part(dy, output, g.outputs()), part(dx, input, g.inputs()));
        plan.window(|plan| {
            plan.write(&dx, |plan, dx| {
                plan.dispatch(backprop_input_part(profile, &g, [filter, &dy, dx])?);
                Ok(())
            })
        })?;
    }
    Ok(plan)
}

fn backprop_input_part(
    profile: &Profile,
    g: &Geometry,
    [filter, dy, dx]: [&Tensor; 3],
) -> Result<Dispatch> {
    if let Some(tile) = Tile::of(Which::Input, profile, g, [filter, dy, dx]) {
        return rolling::backprop_input(profile, g, tile, [filter, dy, dx]);
    }
    dispatch(Which::Input, g, [filter, dy, dx], params(g, dx.len()), None)
}

/// The gradient of the filter: parts of the output's lines are summed in parallel, then the parts
/// are added in order.
pub fn backprop_filter(
    profile: &Profile,
    g: &Geometry,
    [x, dy, dw]: [&Tensor; 3],
) -> Result<ProductPlan<'static>> {
    if g.output[2] + 1 > profile.loop_limit {
        return dense::backprop_filter(profile, g, [x, dy, dw]);
    }
    let mut plan = ProductPlan::new();
    let size = x.dtype.size();
    let Some(windows) = windows(profile, g, Side::Output, [size, size])? else {
        backprop_filter_part(&mut plan, profile, g, [x, dy, dw])?;
        return Ok(plan);
    };
    let mut sums = Sums::new(&mut plan, dw.dtype, dw.len());
    for Window { geometry: g, input, output, .. } in windows {
        let (x, dy) = (part(x, input, g.inputs()), part(dy, output, g.outputs()));
        let slice = sums.next(&mut plan);
        plan.window(|plan| backprop_filter_part(plan, profile, &g, [&x, &dy, &slice]))?;
    }
    sums.finish(&mut plan, dw, None, true);
    Ok(plan)
}

fn backprop_filter_part(
    plan: &mut ProductPlan<'_>,
    profile: &Profile,
    g: &Geometry,
    [x, dy, dw]: [&Tensor; 3],
) -> Result<()> {
    // The most sums that are bound at once.
    let most = limit(&profile.capabilities) as usize / dw.dtype.accumulator().size();
    if let Some(tile) = Tile::of(Which::Filter, profile, g, [x, dy, dw]) {
        let parts = Parts::of(profile, g, tile, most);
        let partial = plan.temporary(dw.dtype.accumulator(), &[parts.parts, dw.len()]);
        plan.dispatch(rolling::backprop_filter(g, tile, &parts, [x, dy, &partial])?);
        plan.dispatch(finish::dispatch(&partial, dw, None, true));
        return Ok(());
    }
    let wanted = most.min(profile.invocations);
    let lines = g.batch * g.output[1];
    let line = g.output[2] + 1;
    // If each invocation has four elements, four times the parts give the same number of
    // invocations.
    let invocations = dw.len() / if vec4s::fits(Which::Filter, g, [x, dy, dw]) { 4 } else { 1 };
    let chunk = lines
        .div_ceil((wanted / invocations).min(most / dw.len()).clamp(1, lines))
        .min(profile.loop_limit / line)
        .max(1);
    let partial = plan.temporary(dw.dtype.accumulator(), &[lines.div_ceil(chunk), dw.len()]);
    let params = LineParams { lines, chunk }.append_to(params(g, partial.len()));
    plan.dispatch(dispatch(Which::Filter, g, [x, dy, &partial], params, None)?);
    plan.dispatch(finish::dispatch(&partial, dw, None, true));
    Ok(())
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = rolling::shaders();
    for which in [Which::Forward, Which::Input, Which::Filter] {
        for dtype in super::TYPES {
            out.extend([true, false].map(|last| shader(which, *dtype, last, None, false)));
            if vec4s::supports(*dtype) {
                out.push(shader(which, *dtype, true, None, true));
            }
        }
    }
    out
}

/// Variants with sample epilogues.
pub fn fused_shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for dtype in super::TYPES {
        for (epilogue, classes) in samples(*dtype) {
            let variant = EpilogueVariant::sample(&epilogue, &classes, false);
            out.extend(
                [true, false]
                    .map(|last| shader(Which::Forward, *dtype, last, Some(&variant), false)),
            );
            if vec4s::supports(*dtype) && vec4s::supports(variant.output()) {
                out.push(shader(Which::Forward, *dtype, true, Some(&variant), true));
                out.extend(rolling::fused(
                    *dtype,
                    &EpilogueVariant::sample(&epilogue, &classes, true),
                ));
            }
        }
    }
    out
}
