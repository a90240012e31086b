//! The gradient through memory, from the weights that the forward pass left: contractions, and one
//! program over the weights' rows.

use super::super::shape::rule::Rule;
use super::super::shape::{Geometry, Strides};
use super::super::staged::{LONG, slice};
use super::{Tensors, text};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::F32;
use crate::error::Result;
use crate::kernels::contract::Contraction;
use crate::kernels::op::OpContext;
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// The operands and how scores became weights.
pub struct Staged<'a> {
    /// Shapes and strides.
    pub geometry: &'a Geometry,
    /// How scores became weights.
    pub rule: &'a Rule,
    /// Operands and results.
    pub tensors: &'a Tensors,
}

/// A matrix for each batch and head: rows of `width` elements, one for each position.
struct Matrices {
    tensor: Tensor,
    strides: Strides,
    rows: usize,
    width: usize,
}

impl Staged<'_> {
    /// Enqueues the programs, `at_once` batches together.
    pub fn enqueue(&self, ctx: &mut dyn OpContext, at_once: usize) -> Result<()> {
        let g = self.geometry;
        let matrices = g.heads * g.queries * g.keys;
        let changes = ctx.temp(F32, &[at_once, matrices])?;
        for first in (0..g.batch).step_by(at_once) {
            let batch = at_once.min(g.batch - first);
            let weights = slice(&self.tensors.saved, first * matrices, batch * matrices);
            self.part(ctx, first, batch, &weights, &slice(&changes, 0, batch * matrices))?;
        }
        Ok(())
    }

    fn part(
        &self,
        ctx: &mut dyn OpContext,
        first: usize,
        batch: usize,
        weights: &Tensor,
        changes: &Tensor,
    ) -> Result<()> {
        let g = self.geometry;
        let t = self.tensors;
        let of = |tensor: &Tensor, rows: usize, width: usize| {
            let strides = self.rule.layout.strides(g.heads, rows, width);
            Matrices {
                tensor: slice(tensor, first * strides[0], batch * strides[0]),
                strides,
                rows,
                width,
            }
        };
        let square = |tensor: &Tensor| Matrices {
            tensor: tensor.clone(),
            strides: [g.heads * g.queries * g.keys, g.queries * g.keys, g.keys],
            rows: g.queries,
            width: g.keys,
        };
        let [query, query_gradient] =
            [&t.query, &t.gradients[0]].map(|x| of(x, g.queries, g.depth));
        let [key, key_gradient] = [&t.key, &t.gradients[1]].map(|x| of(x, g.keys, g.depth));
        let [value, value_gradient] = [&t.value, &t.gradients[2]].map(|x| of(x, g.keys, g.width));
        let gradient = of(&t.gradient, g.queries, g.width);
        let (weights, changes) = (square(weights), square(changes));
        self.product(ctx, batch, [(&weights, true), (&gradient, false)], &value_gradient)?;
        self.product(ctx, batch, [(&gradient, false), (&value, true)], &changes)?;
        self.of_weights(ctx.device(), &weights.tensor, &changes.tensor, first)?;
        self.product(ctx, batch, [(&changes, false), (&key, false)], &query_gradient)?;
        self.product(ctx, batch, [(&changes, true), (&query, false)], &key_gradient)
    }

    /// The product of two matrices, either transposed or not.
    fn product(
        &self,
        ctx: &mut dyn OpContext,
        batch: usize,
        [(a, a_transposed), (b, b_transposed)]: [(&Matrices, bool); 2],
        c: &Matrices,
    ) -> Result<()> {
        // Strides of whole matrices count rows, see the forward pass.
        let walk = [a, b, c].into_iter().fold(
            Iteration::over(&[batch, self.geometry.heads]),
            |walk, x| {
                let unit = x.width.max(1);
                walk.operand(&[(x.strides[0] / unit) as i64, (x.strides[1] / unit) as i64], 0)
            },
        );
        let depth = if a_transposed { a.rows } else { a.width };
        Contraction::product([c.rows, depth, c.width], [&a.tensor, &b.tensor, &c.tensor])
            .strided([a, b, c].map(|x| x.strides[2]), [a_transposed, b_transposed])
            .batched(walk.collapse(), [a, b, c].map(|x| x.width))
            .enqueue(ctx)
    }

    fn of_weights(
        &self,
        device: &Device,
        weights: &Tensor,
        changes: &Tensor,
        first: usize,
    ) -> Result<()> {
        let g = self.geometry;
        let lanes = if g.keys < LONG { 8 } else { 256 };
        let mask = self
            .tensors
            .extra
            .as_ref()
            .map(|t| slice(t, first * g.mask[0], t.len() - first * g.mask[0]));
        let dtype = mask.as_ref().map(|t| t.dtype);
        let key = Key::new("attention_grad_weights").number(lanes);
        let rows = weights.len() / g.keys;
        let params = [rows, g.heads, g.queries, g.keys]
            .iter()
            .chain(&g.mask)
            .fold(Params::new(), |p, n| p.u32(*n));
        device.enqueue(&Program {
            key: dtype.map_or(key.clone(), |t| key.dtype(t)),
            shader: &|| text::weights(dtype, lanes),
            bindings: [weights, changes]
                .into_iter()
                .map(Binding::from)
                .chain(mask.as_ref().map(Binding::from))
                .collect(),
            params: self.rule.params(params),
            grid: Grid::groups(rows),
        })
    }
}
