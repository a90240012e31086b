//! `_WgpuFusedAttentionGrad`: the gradients of `_WgpuFusedAttention` with respect to query, key and
//! value.
//!
//! With scores S, weights P = softmax(S), result O = P V and its gradient dO:
//!
//! - dV = P^T dO
//! - dP = dO V^T
//! - dS = P * (dP - D), where D is for each row the sum of dO * O
//! - dQ = scale * dS K
//! - dK = scale * dS^T Q
//!
//! D needs no row of dP, and P follows from S with the maximum and the sum that the forward pass
//! kept: both are from FlashAttention (Dao et al., 2022, appendix B; Dao, 2023). Where a mask or
//! the causal rule replaces a score by a constant, dS is zero. A mask gets no gradient.
//!
//! On GPUs one program computes the gradient of the query, for tiles of its rows, and another one
//! those of key and value, for tiles of theirs. So no sum needs atomic operations, and the same
//! operands always give the same bits. The first program computes D on the way. Where the adapter
//! has too few bindings for that, or where rows are not whole groups of four, a separate program
//! runs before both. On software adapters weights go through memory: the forward pass leaves its
//! own for the gradient, see [`staged`]. To compute them anew would cost a seventh product. A
//! training step there takes as long as without the ops, give or take 8 % (llvmpipe, sequences of
//! 64 to 1024), with 17 to 28 % less memory traffic.
//!
//! Attributes are those of [`super::OP`], except that nothing broadcasts besides the mask.

mod staged;
mod text;

use smallvec::{SmallVec, smallvec};

use super::register_tile::{RegisterTile, Role};
use super::shape::rule::{Mask, Method, Rule};
use super::shape::{Geometry, Heads};
use super::text::Loads;
use super::{TYPES, is_whole, pad};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::F32;
use crate::error::Result;
use crate::kernels::contract::finish;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};
use staged::Staged;
use text::{GradientText, Rows, Side};

/// The op's name.
pub const OP: &str = "_WgpuFusedAttentionGrad";

/// The op.
pub const DEFINITION: OpDefinition = OpDefinition {
    name: OP,
    inputs: &[
        "query: T",
        "key: T",
        "value: T",
        "result: T",
        "gradient: T",
        "saved: float",
        "extra: Textra",
    ],
    outputs: &["query_gradient: T", "key_gradient: T", "value_gradient: T"],
    attrs: &[
        "T: {half, bfloat16, float}",
        "Textra: list({bool, half, bfloat16, float}) >= 0",
        "layout: {'BNTH', 'BTNH'}",
        "scale: float = 1.0",
        "mask: {'none', 'bias', 'choice', 'penalty'} = 'none'",
        "keep: bool = true",
        "fill: float = 0.0",
        "causal: bool = false",
        "zero_masked: bool = false",
    ],
    stateful: false,
    shape: infer,
};

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op(OP).types("T", TYPES).kernel(AttentionGrad::new);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut out: Vec<_> =
        TYPES.iter().flat_map(|t| [text::rows(*t), super::text::pad(F32, *t)]).collect();
    out.extend(text::variants(TYPES, super::MASKS));
    out
}

/// Gradients have the shapes of query, key and value.
fn infer(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(inputs.shapes.iter().take(3).cloned().collect())
}

struct AttentionGrad {
    rule: Rule,
}

/// The operands and results of an execution.
struct Tensors {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    gradient: Tensor,
    saved: Tensor,
    extra: Option<Tensor>,
    /// The gradients of query, key and value.
    gradients: [Tensor; 3],
}

impl AttentionGrad {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let rule = Rule::new(attrs)?;
        require!(
            !rule.zeroes_what_counts(),
            "{OP}: weights of masked keys cannot be zero where masks are penalties"
        );
        Ok(Self { rule })
    }

    fn tensors(&self, ctx: &mut dyn OpContext) -> Result<(Tensors, Geometry)> {
        let [query, key, value] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let [result, gradient, saved] = [ctx.input(3)?, ctx.input(4)?, ctx.input(5)?];
        let extra = if self.rule.mask == Mask::None { None } else { Some(ctx.input(6)?) };
        self.rule.check_mask(extra.as_ref())?;
        let mask = extra.as_ref().map(|t| &t.dims[..]);
        let shapes = [&query.dims[..], &key.dims, &value.dims];
        let plain = Geometry::new(shapes, None, self.rule.layout, Heads::Equal)?;
        let g = Geometry::new(shapes, mask, self.rule.layout, Heads::Equal)?;
        require!(
            result.dims == g.dims
                && gradient.dims == g.dims
                && plain.dims == g.dims
                && plain.keys == g.keys,
            "the result {} and its gradient {} must have the shape {} that scores without their \
             mask give",
            shape_text(&result.dims),
            shape_text(&gradient.dims),
            shape_text(&plain.dims)
        );
        let mut gradient_of = |i: usize, t: &Tensor| ctx.output(i, t.dtype, &t.dims);
        let gradients = [gradient_of(0, &query)?, gradient_of(1, &key)?, gradient_of(2, &value)?];
        Ok((Tensors { query, key, value, result, gradient, saved, extra, gradients }, g))
    }

    fn params(&self, g: &Geometry, workgroups: usize) -> Params {
        let numbers = [workgroups, g.heads, g.queries, g.keys, g.depth, g.width];
        let strides = g.strides.iter().flatten().chain(&g.mask);
        self.rule
            .params(numbers.iter().chain(strides).fold(Params::new(), |params, n| params.u32(*n)))
    }

    fn tiled(
        &self,
        ctx: &mut dyn OpContext,
        t: Tensors,
        mut g: Geometry,
        vec4s: u32,
    ) -> Result<()> {
        let rows = ctx.temp(F32, &[g.batch * g.heads * g.queries, 3])?;
        let operands = [&t.query, &t.key, &t.value, &t.gradient, &t.result];
        // The operands, the saved numbers, the rows and the gradient of the query.
        let bindings = operands.len() + 3 + usize::from(t.extra.is_some());
        let fits = bindings <= ctx.device().capabilities().max_bindings as usize;
        let profile = ctx.device().profile();
        let matrices = g.batch * g.heads;
        let tile_of =
            |own: usize| RegisterTile::of(&profile, Role::Gradient, vec4s, [own, matrices]);
        let tile = tile_of(g.queries);
        // Rows of the other side that one dispatch covers. The results of several dispatches are
        // added up, in float32.
        let at_once = profile.loop_limit / tile.iterations(Role::Gradient) * tile.keys() as usize;
        let adds_up = g.queries.max(g.keys) > at_once && t.query.dtype != F32;
        let made = fits && !adds_up && is_whole(&g, operands);
        if !made {
            prepare(ctx.device(), &t, &rows)?;
        }
        let whole = !adds_up && is_whole(&g, operands[..4].iter().copied());
        let Tensors { query, key, value, gradient, result, saved, extra, gradients } = t;
        let mut operands = [query, key, value, gradient];
        let mut stored = gradients.clone();
        if !whole {
            let widths = [g.depth, g.depth, g.width, g.width].map(|n| n.max(1).next_multiple_of(4));
            for (operand, width) in operands.iter_mut().zip(widths) {
                *operand = pad(ctx, operand, width)?;
            }
            for (stored, operand) in stored.iter_mut().zip(&operands) {
                *stored = ctx.temp(F32, &operand.dims)?;
            }
            g.widen([widths[0], widths[1], widths[2]]);
        }
        for side in [Side::Queries, Side::Keys] {
            let dtype = operands[0].dtype;
            let mask = extra.as_ref().map(|t| t.dtype);
            let loads =
                if [g.depth, g.width] == [tile.width(); 2] { Loads::Exact } else { Loads::Padded };
            let made = made && side == Side::Queries;
            let of_rows = if made { Rows::Made } else { Rows::Stored };
            let (own, others, sums) = match side {
                Side::Queries => (g.queries, g.keys, &stored[..1]),
                Side::Keys => (g.keys, g.queries, &stored[1..]),
            };
            let cut = others > at_once;
            require!(at_once > 0 || !cut, "{OP}: no loops");
            let tile = tile_of(own);
            let text = GradientText { dtype, mask, loads, side, tile, rows: of_rows, cut };
            let parts: Vec<_> =
                if cut { windows::ranges(others, at_once).collect() } else { vec![(0, others)] };
            let partial = if cut {
                let of = |sum: &Tensor| ctx.temp(F32, &[parts.len(), sum.len()]);
                sums.iter().map(of).collect::<Result<SmallVec<[Tensor; 2]>>>()?
            } else {
                sums.iter().cloned().collect()
            };
            let vec4s = |t: &Tensor| Binding::raw(t, t.dtype.size() as u32 * 4);
            let mut bindings: SmallVec<[Binding; 8]> = operands.iter().map(vec4s).collect();
            if made {
                bindings.extend([vec4s(&result), (&saved).into()]);
            }
            bindings.push((&rows).into());
            // Each pair takes the products for its score again, those for the gradient of its
            // weight, and those for the operands' gradients.
            let widths = match side {
                Side::Queries => 2 * g.depth + g.width,
                Side::Keys => 2 * (g.depth + g.width),
            };
            let pairs = matrices * own;
            for (k, &(first, count)) in parts.iter().enumerate() {
                let mut bindings = bindings.clone();
                bindings.extend(partial.iter().zip(sums).map(|(partial, sum)| {
                    vec4s(&windows::part(partial, k * sum.len(), sum.len()))
                }));
                bindings.extend(extra.iter().map(Binding::from));
                let few = tile.with_fewer_rows(Role::Gradient);
                let few = few.map(|tile| GradientText { tile, ..text });
                let shaders = [text, few.unwrap_or(text)].map(|text| move || text.shader());
                let program = |text: GradientText, shader| {
                    let workgroups = text.tile.workgroups(own, matrices);
                    let params = self.params(&g, workgroups);
                    Program {
                        key: text.key(),
                        shader,
                        bindings: bindings.clone(),
                        params: if cut { params.u32(first).u32(first + count) } else { params },
                        grid: Grid::groups(workgroups),
                    }
                };
                let reserve = few.map(|few| program(few, &shaders[1]));
                let flops = 2 * (pairs * count * widths) as u64;
                let program = program(text, &shaders[0]);
                ctx.device().enqueue_or(&program, reserve.as_ref(), flops)?;
            }
            if cut {
                for (partial, sum) in partial.iter().zip(sums) {
                    finish::enqueue(ctx.device(), partial, sum)?;
                }
            }
        }
        if whole {
            Ok(())
        } else {
            gradients.iter().zip(&stored).try_for_each(|(y, x)| narrow(ctx.device(), x, y))
        }
    }
}

impl Kernel for AttentionGrad {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (t, g) = self.tensors(ctx)?;
        if t.result.is_empty() || g.keys == 0 {
            let device = ctx.device();
            return t
                .gradients
                .iter()
                .filter(|y| !y.is_empty())
                .try_for_each(|y| device.fill(y.address, y.bytes(), 0));
        }
        for x in [&t.query, &t.key, &t.value, &t.result].into_iter().chain(&t.extra) {
            ctx.device().check_extent(x.len())?;
        }
        let method = Method::new(ctx.device(), &g, &g.packed(true), t.query.dtype.lanes());
        let saved = g.saved(method);
        require!(
            t.saved.len() == saved.iter().product::<usize>(),
            "the saved tensor {} must have as many elements as {}",
            shape_text(&t.saved.dims),
            shape_text(&saved)
        );
        match method {
            Method::Tiled(vec4s) => self.tiled(ctx, t, g, vec4s),
            Method::Staged(at_once) => {
                Staged { geometry: &g, rule: &self.rule, tensors: &t }.enqueue(ctx, at_once)
            }
        }
    }
}

/// Stores for each row the number that is subtracted from its scores, the factor of their
/// exponentials, and D.
fn prepare(device: &Device, t: &Tensors, rows: &Tensor) -> Result<()> {
    let width = t.result.dims[t.result.rank() - 1];
    let dtype = t.result.dtype;
    device.enqueue_counted(
        &Program {
            key: Key::new("attention_grad_rows").dtype(dtype),
            shader: &|| text::rows(dtype),
            bindings: smallvec![
                (&t.result).into(),
                (&t.gradient).into(),
                (&t.saved).into(),
                rows.into()
            ],
            params: Params::new().u32(rows.dims[0]).u32(width),
            grid: Grid::linear(rows.dims[0], 64),
        },
        F32.product_flops(t.result.len()),
    )
}

/// Copies the rows of `x` to the narrower `y`, without their last elements.
fn narrow(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let last = |t: &Tensor| t.dims[t.rank() - 1];
    device.enqueue(&Program {
        key: Key::new("attention_narrow").dtype(y.dtype),
        shader: &|| super::text::pad(F32, y.dtype),
        bindings: smallvec![x.into(), y.into()],
        params: Params::new().u32(y.len()).u32(last(x)).u32(last(y)),
        grid: Grid::map(y.len(), y.dtype),
    })
}
