//! `_WgpuFusedAttention`: `softmax(scale * query * key^T + mask) * value` as one op, without
//! transposes and, on GPUs, without the matrix of scores in memory. On software adapters scores go
//! through memory, see [`staged`].
//!
//! On GPUs each row keeps the maximum and the sum of exponentials of the keys that it has seen, and
//! scales its sums down when the maximum grows: the online softmax of Milakov and Gimelshein
//! (2018), whose use for attention is FlashAttention (Dao et al., 2022). Tiles in registers hold
//! the sums of both products, see [`register_tile`]; where cooperative matrices pay, they multiply,
//! see [`matrices`]. Long or few rows are cut along the keys; a second program puts the pieces
//! together, as in Flash-Decoding (Dao et al., 2023).
//!
//! Attributes:
//! - `layout`: `BNTH` (heads before positions) or `BTNH`; of query, key, value and result. Masks
//!   have the layout of scores.
//! - `scale`: the factor of the products.
//! - `mask`: `none`; `bias`: the operand is added to the scores; `choice`: the operand is boolean,
//!   and where it is not `keep` the score is `fill` instead; `penalty`: `fill` is added there.
//! - `soft_cap`: if it is not 0, a score x is `soft_cap * tanh(x)` instead, before the mask, as in
//!   Gemma 2 (2024). There is no gradient then.
//! - `causal`: row t sees the keys up to t, others count as masked.
//! - `zero_masked`: weights of masked keys are zero after the softmax.
//! - `broadcast`: whether batches and heads broadcast.
//! - `grouped`: key and value have fewer heads than the query, and each of theirs serves the same
//!   number of neighbouring heads of the query (grouped-query attention, Ainslie et al., 2023). A
//!   workgroup then takes rows of all heads that share keys, so that each key is loaded once for
//!   them.
//! - `Tsaved`: one float32 output for [`grad`], or none. Only the two kernels know its contents,
//!   see [`Geometry::saved`].
//!
//! Everything is computed in f32: roundings to 16 bits between the ops that this one replaces are
//! dropped, except that matrices of f16 round the weights.

pub mod grad;
mod lines;
mod matrices;
mod register_tile;
mod shape;
mod staged;
mod text;

use smallvec::{SmallVec, smallvec};

use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::{
    DType::{self, F32},
    types, union,
};
use crate::error::Result;
use crate::kernels::contract;
use crate::kernels::definition::OpDefinition;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::Tensor;
use matrices::{MatrixTile, TextOfMatrices};
use register_tile::{RegisterTile, Role};
use shape::rule::{Mask, Method, Rule};
use shape::{Geometry, Heads};
use staged::Staged;
use text::{Loads, Operands, Scoring, Store, TiledText};

/// The op's name.
pub const OP: &str = "_WgpuFusedAttention";

/// The op.
pub const DEFINITION: OpDefinition = OpDefinition {
    name: OP,
    inputs: &["query: T", "key: T", "value: T", "extra: Textra"],
    outputs: &["result: T", "saved: Tsaved"],
    attrs: &[
        "T: {half, bfloat16, float}",
        "Textra: list({bool, half, bfloat16, float}) >= 0",
        "Tsaved: list({float}) >= 0 = []",
        "layout: {'BNTH', 'BTNH'}",
        "scale: float = 1.0",
        "mask: {'none', 'bias', 'choice', 'penalty'} = 'none'",
        "keep: bool = true",
        "fill: float = 0.0",
        "causal: bool = false",
        "zero_masked: bool = false",
        "broadcast: bool = false",
        "grouped: bool = false",
        "soft_cap: float = 0.0",
    ],
    stateful: false,
    shape: shape::infer,
};

/// Both ops.
pub const DEFINITIONS: &[OpDefinition] = &[DEFINITION, grad::DEFINITION];

const TYPES: &[DType] = types::FLOATS_BUT_F64;
const MASKS: &[DType] = union!(types::FLOATS_BUT_F64, &[DType::Bool]);

/// The most keys of a split: the limit bounds the rounding error of the sums, and the iterations of
/// an invocation.
const MAX_CHUNK: usize = 16_384;
/// The fewest keys that are worth a split.
const MIN_CHUNK: usize = 256;

/// Registers both.
pub fn register(r: &mut Registry) {
    r.op(OP).types("T", TYPES).kernel(Attention::new);
    grad::register(r);
}

/// Every shader variant: masks and stores do not depend on tiles.
pub fn shaders() -> Vec<Shader> {
    let mut out = grad::shaders();
    out.push(text::merge_stats());
    out.extend(TYPES.iter().flat_map(|t| [text::merge(*t), text::pad(*t, F32)]));
    let uncapped = || std::iter::once(None).chain(MASKS.iter().copied().map(Some));
    let scorings = || {
        let capped = [None, Some(DType::Bool)].map(|mask| Scoring { mask, is_capped: true });
        uncapped().map(Scoring::uncapped).chain(capped)
    };
    for scoring in scorings() {
        for lanes in [1, 8, 256] {
            out.extend([true, false].map(|vec4s| text::weights(scoring, lanes, vec4s)));
        }
    }
    let stores = [Store::Result, Store::Saved, Store::Partial];
    for (tile, kinds) in register_tile::all(Role::Forward) {
        for loads in [Loads::Exact, Loads::Padded] {
            for (dtype, store) in TYPES.iter().flat_map(|t| stores.map(|s| (*t, s))) {
                // The other masks, and caps, do not depend on tiles.
                let scorings = scorings().take(if tile.vec4s == 4 { usize::MAX } else { 1 });
                let operands = |scoring| Operands { dtype, scoring, loads, store };
                let shaders = scorings.map(|s| TiledText { operands: operands(s), tile }.shader());
                out.extend(shaders.map(|shader| shader.only(kinds.iter().copied())));
            }
        }
    }
    out.extend(of_matrices(&scorings().collect::<Vec<_>>(), &stores));
    out
}

/// The variants with cooperative matrices: each size and element with each width; on one of them
/// each way to load and store, and each mask.
fn of_matrices(scorings: &[Scoring], stores: &[Store]) -> Vec<Shader> {
    let mut out = Vec::new();
    for (cooperative, dtype) in contract::listed_matrices() {
        for width in [16, 64, 96, 128] {
            for (at, tile) in MatrixTile::all(cooperative, width).enumerate() {
                let all = width == 16 && at == 0;
                for (i, scoring) in
                    scorings.iter().enumerate().take(if all { usize::MAX } else { 1 })
                {
                    let loads = [Loads::Exact, Loads::Padded][(at + i) % 2];
                    for store in stores.iter().take(if all { usize::MAX } else { 1 }) {
                        let operands = Operands { dtype, scoring: *scoring, loads, store: *store };
                        out.push(TextOfMatrices { operands, tile }.shader());
                    }
                }
            }
        }
    }
    out
}

struct Attention {
    rule: Rule,
    heads: Heads,
    /// Whether the op of the gradient follows.
    saves: bool,
}

impl Attention {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let saves = !attrs.dtypes("Tsaved")?.is_empty();
        // A node that no pass grouped may lack the attribute, where nothing fills in the
        // definition's default.
        let grouped = attrs.bool("grouped").unwrap_or(false);
        let rule = Rule::new(attrs)?;
        let is_plain = !grouped && !rule.scoring(None).is_capped;
        require!(is_plain || !saves, "{OP}: the gradient knows no grouped heads and no soft cap");
        let heads = match (grouped, attrs.bool("broadcast")?) {
            (true, broadcasts) => Heads::Grouped { broadcasts },
            (false, true) => Heads::Broadcast,
            (false, false) => Heads::Equal,
        };
        Ok(Self { rule, heads, saves })
    }

    fn params(&self, g: &Geometry, workgroups: usize, chunk: usize) -> Params {
        let numbers = [workgroups, chunk, g.heads, g.group, g.queries, g.keys, g.depth, g.width];
        let strides = g.strides.iter().flatten().chain(&g.mask);
        self.rule
            .params(numbers.iter().chain(strides).fold(Params::new(), |params, n| params.u32(*n)))
    }
}

impl Kernel for Attention {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let [query, key, value] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let extra = if self.rule.mask == Mask::None { None } else { Some(ctx.input(3)?) };
        self.rule.check_mask(extra.as_ref())?;
        let mask = extra.as_ref().map(|t| &t.dims[..]);
        let mut g = Geometry::new(
            [&query.dims, &key.dims, &value.dims],
            mask,
            self.rule.layout,
            self.heads,
        )?;
        let result = ctx.output(0, query.dtype, &g.dims)?;
        if result.is_empty() || g.keys == 0 {
            if self.saves {
                ctx.output(1, F32, &[0])?;
            }
            return if result.is_empty() {
                Ok(())
            } else {
                ctx.device().fill(result.address, result.bytes(), 0)
            };
        }
        for t in [&query, &key, &value, &result].into_iter().chain(&extra) {
            ctx.device().check_extent(t.len())?;
        }
        let method = Method::new(ctx.device(), &g, &g.packed(self.saves), query.dtype.lanes());
        let saved = if self.saves { Some(ctx.output(1, F32, &g.saved(method))?) } else { None };
        let vec4s = match method {
            Method::Tiled(vec4s) => vec4s,
            Method::Staged(at_once) => {
                let tensors = [&query, &key, &value, &result];
                let (extra, saved) = (extra.as_ref(), saved.as_ref());
                return Staged { geometry: &g, rule: &self.rule, tensors, extra, saved }
                    .enqueue(ctx, at_once);
            }
        };
        g.share_keys();
        let profile = ctx.device().profile();
        let (rows, matrices) = (g.queries * g.group, g.batch * g.heads / g.group);
        let mut operands = [query, key, value];
        let padded = !is_whole(&g, &operands);
        let dtype = operands[0].dtype;
        let by_matrices = (!padded)
            .then(|| contract::usable(ctx.device(), dtype, dtype))
            .flatten()
            .and_then(|c| MatrixTile::of(&profile, c, &g, [rows, matrices]));
        let tile = RegisterTile::of(&profile, Role::Forward, vec4s, [rows, matrices]);
        let (keys, workgroups) = match by_matrices {
            Some(tile) => (matrices::KEYS, tile.workgroups(rows, matrices)),
            None => (tile.keys(), tile.workgroups(rows, matrices)),
        };
        let split = KeySplit::new(profile.workgroups, keys as usize, g.keys, workgroups);
        if padded {
            let widths = [g.depth, g.depth, g.width].map(|n| n.max(1).next_multiple_of(4));
            for (operand, width) in operands.iter_mut().zip(widths) {
                *operand = pad(ctx, operand, width)?;
            }
            g.widen(widths);
        }
        let direct = split.splits == 1 && !padded;
        let is_exact = [g.depth, g.width] == [tile.width(); 2];
        let read = Operands {
            dtype: operands[0].dtype,
            scoring: self.rule.scoring(extra.as_ref().map(|t| t.dtype)),
            loads: if is_exact { Loads::Exact } else { Loads::Padded },
            store: match (direct, self.saves) {
                (false, _) => Store::Partial,
                (true, false) => Store::Result,
                (true, true) => Store::Saved,
            },
        };
        let vec4s = |t: &Tensor| Binding::raw(t, t.dtype.size() as u32 * 4);
        let mut bindings: SmallVec<[Binding; 8]> = operands.iter().map(vec4s).collect();
        let all_rows = matrices * rows;
        let partial = if direct {
            bindings.push(vec4s(&result));
            bindings.extend(saved.iter().map(Binding::from));
            None
        } else {
            let partial = ctx.temp(F32, &[split.splits, all_rows, g.width])?;
            let stats = ctx.temp(F32, &[split.splits, all_rows, 2])?;
            ctx.device().check_extent(partial.len())?;
            bindings.push(vec4s(&partial));
            bindings.push((&stats).into());
            Some((partial, stats))
        };
        bindings.extend(extra.iter().map(Binding::from));
        let program = |text: &OnlineText, shader| {
            let workgroups = split.splits * text.workgroups(rows, matrices);
            Program {
                key: text.key(),
                shader,
                bindings: bindings.clone(),
                params: self.params(&g, workgroups, split.chunk),
                grid: Grid::groups(workgroups),
            }
        };
        let in_registers = |tile| OnlineText::Registers(TiledText { operands: read, tile });
        let first = match by_matrices {
            Some(tile) => {
                let operands = Operands { loads: TextOfMatrices::loads(&tile, &g), ..read };
                OnlineText::Matrices(TextOfMatrices { operands, tile })
            }
            None => in_registers(tile),
        };
        let other = match by_matrices {
            Some(_) => Some(tile),
            None => tile.with_fewer_rows(Role::Forward),
        };
        let other = other.map(in_registers);
        let shaders = [first, other.unwrap_or(first)].map(|text| move || text.shader());
        let reserve = other.map(|other| program(&other, &shaders[1]));
        // The products for scores and for weighted values. Where a mask lets few pairs through,
        // there are fewer.
        let flops = 2 * (all_rows * g.keys * (g.depth + g.width)) as u64;
        ctx.device().enqueue_or(&program(&first, &shaders[0]), reserve.as_ref(), flops)?;
        let Some((partial, stats)) = partial else { return Ok(()) };
        merge(ctx.device(), &result, &partial, &stats)?;
        saved.map_or(Ok(()), |saved| merge_stats(ctx.device(), &saved, &stats))
    }
}

/// A program that sees each key once.
#[derive(Debug, Clone, Copy)]
enum OnlineText {
    Registers(TiledText),
    Matrices(TextOfMatrices),
}

impl OnlineText {
    fn key(&self) -> Key {
        match self {
            Self::Registers(text) => text.key(),
            Self::Matrices(text) => text.key(),
        }
    }

    fn shader(&self) -> Shader {
        match self {
            Self::Registers(text) => text.shader(),
            Self::Matrices(text) => text.shader(),
        }
    }

    /// Workgroups for `matrices` of `rows` rows.
    const fn workgroups(&self, rows: usize, matrices: usize) -> usize {
        match self {
            Self::Registers(text) => text.tile.workgroups(rows, matrices),
            Self::Matrices(text) => text.tile.workgroups(rows, matrices),
        }
    }
}

/// How the keys are shared among workgroups.
struct KeySplit {
    splits: usize,
    chunk: usize,
}

impl KeySplit {
    /// The splits of `keys` that keep an adapter with `busy` workgroups busy, if there are
    /// `workgroups` without a split. A workgroup takes `at_once` keys at a time.
    fn new(busy: usize, at_once: usize, keys: usize, workgroups: usize) -> Self {
        let for_work = (busy / workgroups).min(keys / MIN_CHUNK).max(1);
        let splits = for_work.max(keys.div_ceil(MAX_CHUNK));
        let chunk = keys.div_ceil(splits).next_multiple_of(at_once);
        Self { splits: keys.div_ceil(chunk), chunk }
    }
}

/// Whether the rows of all operands and of the result are whole groups of four elements.
fn is_whole<'t>(g: &Geometry, operands: impl IntoIterator<Item = &'t Tensor>) -> bool {
    let aligned = |t: &Tensor| t.address.is_multiple_of(4 * t.dtype.size() as u64);
    [g.depth, g.width].iter().all(|n| *n > 0 && n.is_multiple_of(4))
        && operands.into_iter().all(aligned)
}

/// A copy of an operand in f32 whose rows have `width` elements, with zeros at the end.
fn pad(ctx: &mut dyn OpContext, operand: &Tensor, width: usize) -> Result<Tensor> {
    let mut dims = operand.dims.clone();
    let depth = dims.pop().unwrap_or(1);
    dims.push(width);
    let out = ctx.temp(F32, &dims)?;
    ctx.device().check_extent(out.len())?;
    ctx.device().enqueue(&Program {
        key: Key::new("attention_pad").dtype(operand.dtype),
        shader: &|| text::pad(operand.dtype, F32),
        bindings: smallvec![operand.into(), (&out).into()],
        params: Params::new().u32(out.len()).u32(depth).u32(width),
        grid: Grid::map(out.len(), F32),
    })?;
    Ok(out)
}

fn merge(device: &Device, result: &Tensor, partial: &Tensor, stats: &Tensor) -> Result<()> {
    let width = result.dims[result.rank() - 1];
    device.enqueue(&Program {
        key: Key::new("attention_merge").dtype(result.dtype),
        shader: &|| text::merge(result.dtype),
        bindings: smallvec![result.into(), partial.into(), stats.into()],
        params: Params::new()
            .u32(result.len())
            .u32(partial.dims[0])
            .u32(width)
            .u32(partial.dims[2])
            .f32(f32::NEG_INFINITY)
            .f32(f32::NAN),
        grid: Grid::map(result.len(), result.dtype),
    })
}

/// The maximum and sum of exponentials of whole rows, for the gradient.
fn merge_stats(device: &Device, saved: &Tensor, stats: &Tensor) -> Result<()> {
    device.enqueue(&Program {
        key: Key::new("attention_stats"),
        shader: &text::merge_stats,
        bindings: smallvec![saved.into(), stats.into()],
        params: Params::new().u32(saved.len()).u32(stats.dims[0]).f32(f32::NEG_INFINITY),
        grid: Grid::map(saved.len(), F32),
    })
}
