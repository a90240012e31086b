//! Depthwise convolutions of common windows, four channels at once. An invocation goes down several
//! neighbouring columns, so that an element is loaded once for all outputs of those columns and
//! filters are loaded once for a whole run of rows.
//!
//! In each column, the number of rows under way is the number of windows that overlap. Texts are
//! unrolled over a window and [`Tile::width`] columns; extents, padding and the length of runs are
//! parameters. Other windows, strides and dilations are left to [`super::vec4s`].

mod text;

use smallvec::SmallVec;

use super::{Which, plane};
use crate::device::{
    Binding, Grid, Key, Parameter, Params, Plane, Profile, check_extent, declare_params,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::epilogue::{Bound, EpilogueVariant};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::programs::Dispatch;
use crate::kind::Kind;
use crate::shader::{Shader, vec4};
use crate::tensor::Tensor;

/// Invocations of a workgroup: few, since there are few invocations.
const WORKGROUP: u32 = 64;
/// Edges of windows whose filters fit the registers of a GPU. Each filter position takes four
/// registers: those of edge 5 take 100 of the 128 that Intel's SIMD8 has.
const KERNELS: [u32; 2] = [3, 5];
/// Strides.
const STRIDES: [u32; 2] = [1, 2];
/// The fewest rows of a run. The first outputs of each run take additional steps, one for each
/// window that overlaps.
const LEAST_RUN: usize = 4;

/// The extents that a text is unrolled over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    /// Edge of the square window.
    kernel: u32,
    stride: u32,
    /// Columns of an invocation, in strides.
    width: u32,
}

impl Tile {
    /// Rows or columns of windows, in strides, that an element belongs to.
    const fn overlap(self) -> u32 {
        self.kernel.div_ceil(self.stride)
    }

    /// The tile for a convolution, if there are texts for its windows.
    pub fn of(
        which: Which,
        profile: &Profile,
        g: &Geometry,
        operands: [&Tensor; 3],
    ) -> Option<Self> {
        let same = |list: &[usize; 3]| (list[1] == list[2]).then_some(list[1] as u32);
        let (kernel, stride) = (same(&g.kernel)?, same(&g.stride)?);
        let fits = super::vec4s::fits(which, g, operands)
            && g.dilation == [1; 3]
            // A slab that lies behind all elements that it sees has no padding in front.
            && g.pad.iter().all(|p| *p < 1 << 31)
            && STRIDES.contains(&stride)
            && operands.iter().all(|t| !t.is_empty());
        let tile = Self::new(kernel, stride, profile.kind())?;
        fits.then_some(tile)
    }

    /// The tile of a window, if there is one. Larger windows leave fewer registers for sums.
    ///
    /// On AMD (navi31, 256 registers) none of these spills; edge 5 takes 168 to 252 registers and
    /// has 6 or 8 waves for a SIMD, edge 3 mostly more waves. On Intel (dg2, SIMD8 with 128
    /// registers) edge 3 spills 15 to 90 registers in 4 columns, 10 in 3 (the filter's gradient),
    /// none in 2; edge 5 spills 96 to 259 in 2 columns.
    const fn new(kernel: u32, stride: u32, kind: Kind) -> Option<Self> {
        let few = matches!(kind, Kind::FewRegisters);
        let width = match kernel {
            3 if few => 2,
            3 => 4,
            5 if !few => 2,
            _ => return None,
        };
        Some(Self { kernel, stride, width })
    }

    /// Every tile, with the kinds of adapters that choose it.
    fn all() -> impl Iterator<Item = (Self, Vec<Kind>)> {
        let windows = KERNELS.into_iter().flat_map(|k| STRIDES.map(|s| (k, s)));
        windows.flat_map(|(kernel, stride)| {
            let of = |kind| Self::new(kernel, stride, kind);
            let few = of(Kind::FewRegisters).map(|tile| (tile, vec![Kind::FewRegisters]));
            let many = of(Kind::ManyRegisters)
                .map(|tile| (tile, vec![Kind::ManyRegisters, Kind::Software]));
            few.into_iter().chain(many)
        })
    }
}

/// Where the invocations of a program start, and how far they go.
struct Runs {
    /// Columns, in tiles: of the result, or for the filter's gradient of the output.
    blocks: usize,
    /// Rows in runs.
    segments: usize,
    /// Rows of a run, in strides.
    run: usize,
}

impl Runs {
    /// Runs of `rows` rows and `columns` columns of each image. There are about `wanted` runs, none
    /// shorter than `least` or longer than the adapter's loops may be.
    fn new(
        [rows, columns]: [usize; 2],
        tile: Tile,
        wanted: usize,
        least: usize,
        profile: &Profile,
    ) -> Self {
        let blocks = columns.div_ceil(tile.width as usize);
        let run =
            rows.div_ceil((wanted / blocks).clamp(1, rows)).max(least).min(profile.loop_limit / 2);
        Self { blocks, segments: rows.div_ceil(run), run }
    }

    /// Their number in an image.
    const fn of_image(&self) -> usize {
        self.blocks * self.segments
    }
}

/// The strides that `extent` elements behind `pad` elements touch: the first one, which contains
/// the first element, and the end.
const fn strides(extent: usize, pad: usize, stride: usize) -> [usize; 2] {
    [pad / stride, (pad + extent - 1) / stride + 1]
}

fn shader(which: Which, dtype: DType, tile: Tile, epilogue: Option<&EpilogueVariant>) -> Shader {
    let result = match (which, epilogue) {
        (Which::Filter, _) => DType::F32,
        (_, Some(variant)) => variant.output(),
        _ => dtype,
    };
    let mut shader =
        Shader::new(format!("depthwise rolling {which:?} {dtype} {tile:?} {epilogue:?}"));
    shader =
        super::vec4s::bind(shader.workgroup([WORKGROUP, 1, 1]), which.operands(), dtype, result);
    shader = RunParams::declare((), shader, "runs");
    shader = match which {
        Which::Forward => shader,
        Which::Input => StrideParams::declare((), shader, "strides"),
        Which::Filter => PartParams::declare((), shader, "parts"),
    };
    text::body(shader, which, tile, epilogue)
}

declare_params! {
    /// The invocations, the vec4s of channels, the runs, and the extents of images and windows.
    struct RunParams {
        count: usize, units: usize, blocks: usize, segments: usize, run: usize, kernel: usize,
        input: Plane, output: Plane, pad: Plane,
    }
}

declare_params! {
    /// The strides that the input touches, in each axis: the first one, and in the first axis the
    /// end.
    struct StrideParams { low: Plane, high1: usize }
}

declare_params! {
    /// The number of all runs, and of runs that a part of the filter's gradient adds.
    struct PartParams { runs: usize, chunk: usize }
}

fn params(g: &Geometry, count: usize, runs: &Runs) -> Params {
    let Runs { blocks, segments, run } = *runs;
    let (input, output, pad) = (plane(g.input), plane(g.output), plane(g.pad));
    let (units, kernel) = (g.channels / 4, g.kernel[1]);
    RunParams { count, units, blocks, segments, run, kernel, input, output, pad }
        .append_to(Params::new())
}

fn dispatch(
    which: Which,
    g: &Geometry,
    tile: Tile,
    operands: [&Tensor; 3],
    (count, mut params): (usize, Params),
    epilogue: Option<&Bound<'_>>,
) -> Result<Dispatch> {
    for t in operands {
        check_extent(t.len())?;
    }
    let dtype = operands[0].dtype;
    let mut key = Key::new("depthwise rolling").number(which as u32).dtype(dtype);
    key = key.number(tile.kernel).number(tile.stride).number(tile.width);
    let mut bindings: SmallVec<[Binding; 8]> =
        operands.map(|t| Binding::raw(t, vec4::unit(t.dtype))).into_iter().collect();
    let variant = epilogue.map(|e| e.variant(true));
    if let (Some(epilogue), Some(variant)) = (epilogue, &variant) {
        key = variant.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(variant));
    }
    Ok(Dispatch {
        key,
        shader: Box::new(move || shader(which, dtype, tile, variant.as_ref())),
        bindings,
        params,
        grid: Grid::linear(count, WORKGROUP),
        operations: super::flops(g).into(),
    })
}

/// The output.
pub(super) fn forward(
    profile: &Profile,
    g: &Geometry,
    tile: Tile,
    operands: [&Tensor; 3],
    epilogue: Option<&Bound<'_>>,
) -> Result<Dispatch> {
    let columns = g.batch * g.channels / 4;
    let sizes = [g.output[1], g.output[2]];
    let runs = Runs::new(sizes, tile, profile.invocations / columns, LEAST_RUN, profile);
    let count = columns * runs.of_image();
    dispatch(Which::Forward, g, tile, operands, (count, params(g, count, &runs)), epilogue)
}

/// The gradient of the input.
pub(super) fn backprop_input(
    profile: &Profile,
    g: &Geometry,
    tile: Tile,
    operands: [&Tensor; 3],
) -> Result<Dispatch> {
    let columns = g.batch * g.channels / 4;
    let [low1, high1] = strides(g.input[1], g.pad[1], tile.stride as usize);
    let [low2, high2] = strides(g.input[2], g.pad[2], tile.stride as usize);
    let sizes = [high1 - low1, high2 - low2];
    let runs = Runs::new(sizes, tile, profile.invocations / columns, LEAST_RUN, profile);
    let count = columns * runs.of_image();
    let strides = StrideParams { low: Plane([low1, low2]), high1 };
    let params = strides.append_to(params(g, count, &runs));
    dispatch(Which::Input, g, tile, operands, (count, params), None)
}

/// How the gradient of the filter is cut: runs, the number of all runs, the runs of a part, and
/// parts.
pub(super) struct Parts {
    runs: Runs,
    all: usize,
    chunk: usize,
    /// Sums that remain to be added.
    pub parts: usize,
}

impl Parts {
    /// The cut for an adapter that binds at most `most` sums at once.
    pub fn of(profile: &Profile, g: &Geometry, tile: Tile, most: usize) -> Self {
        let wanted =
            (profile.invocations / (g.channels / 4)).min(most / (g.taps() * g.channels)).max(1);
        let sizes = [g.output[1], g.output[2]];
        let runs = Runs::new(sizes, tile, wanted.div_ceil(g.batch), 2 * LEAST_RUN, profile);
        let all = g.batch * runs.of_image();
        let steps = runs.run + tile.overlap() as usize;
        let chunk = all.div_ceil(wanted).min(profile.loop_limit / steps).max(1);
        Self { runs, all, chunk, parts: all.div_ceil(chunk) }
    }
}

/// Parts of the gradient of the filter.
pub(super) fn backprop_filter(
    g: &Geometry,
    tile: Tile,
    cut: &Parts,
    operands: [&Tensor; 3],
) -> Result<Dispatch> {
    let count = cut.parts * (g.channels / 4);
    let part = PartParams { runs: cut.all, chunk: cut.chunk };
    let params = part.append_to(params(g, count, &cut.runs));
    dispatch(Which::Filter, g, tile, operands, (count, params), None)
}

/// Every variant.
pub(super) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for which in [Which::Forward, Which::Input, Which::Filter] {
        for dtype in super::super::TYPES.iter().filter(|t| super::vec4s::supports(**t)) {
            out.extend(
                Tile::all().map(|(tile, kinds)| shader(which, *dtype, tile, None).only(kinds)),
            );
        }
    }
    out
}

/// Tiles of one window with an epilogue.
pub(super) fn fused(dtype: DType, variant: &EpilogueVariant) -> impl Iterator<Item = Shader> {
    Tile::all()
        .filter(|(tile, _)| tile.kernel == KERNELS[0] && tile.stride == STRIDES[0])
        .map(move |(tile, kinds)| shader(Which::Forward, dtype, tile, Some(variant)).only(kinds))
}
