//! Attention in three programs: scores, their softmax with scale and mask, and the products with the values. For software adapters,
//! where tiles in workgroup memory are slow and contractions in registers are fast, and for rows too wide for a tile.
//!
//! The layout of the operands is a matter of strides, so nothing is transposed. As many batches go at once as their scores fit a binding.

use super::rule::Rule;
use super::shape::Geometry;
use super::text;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::F32;
use crate::error::{Error, Result};
use crate::kernels::contract::{Contraction, Lines, Rows, Store};
use crate::kernels::op::OpContext;
use crate::layout::Iteration;
use crate::shader::MAX_ITERATIONS;
use crate::tensor::Tensor;

/// Keys from which on a workgroup of 256 invocations shares a row, so that none runs too many iterations.
pub const LONG: usize = MAX_ITERATIONS / 4 * 8;

/// The operands and how the softmax sees scores.
pub struct Staged<'a> {
    /// Shapes and strides.
    pub geometry: &'a Geometry,
    /// How scores become weights.
    pub rule: &'a Rule,
    /// Query, key, value and result.
    pub tensors: [&'a Tensor; 4],
    /// The mask.
    pub extra: Option<&'a Tensor>,
    /// Where the weights stay for the gradient.
    pub saved: Option<&'a Tensor>,
}

impl Staged<'_> {
    /// Enqueues the programs, `at_once` batches together.
    pub fn enqueue(&self, ctx: &mut dyn OpContext, at_once: usize) -> Result<()> {
        let g = self.geometry;
        let matrices = g.heads * g.queries * g.keys;
        let scores = match self.saved {
            Some(saved) => saved.clone(),
            None => ctx.temp(F32, &[at_once, matrices])?,
        };
        for first in (0..g.batch).step_by(at_once) {
            let batch = at_once.min(g.batch - first);
            let scores = slice(&scores, if self.saved.is_some() { first * matrices } else { 0 }, batch * matrices);
            self.part(ctx, first, batch, &scores)?;
        }
        Ok(())
    }

    fn part(&self, ctx: &mut dyn OpContext, first: usize, batch: usize, scores: &Tensor) -> Result<()> {
        let g = self.geometry;
        let result_strides = self.rule.layout.strides(g.heads, g.queries, g.width);
        let strides = [g.strides[0], g.strides[1], g.strides[2], result_strides];
        let [query, key, value, result] = [0, 1, 2, 3].map(|i| match strides[i][0] {
            0 => self.tensors[i].clone(),
            step => slice(self.tensors[i], first * step, batch * step),
        });
        // Strides of whole matrices count rows, which keeps them known as multiples of four where rows are.
        let walk = |operands: [(usize, usize, usize); 3]| {
            let start = Iteration::over(&[batch, g.heads]);
            operands
                .into_iter()
                .fold(start, |walk, (b, h, row)| walk.operand(&[(b / row.max(1)) as i64, (h / row.max(1)) as i64], 0))
                .collapse()
        };
        let of = |i: usize, row: usize| (strides[i][0], strides[i][1], row);
        let matrix = g.queries * g.keys;
        let of_scores = (g.heads * matrix, matrix, matrix);
        Contraction {
            m: g.queries,
            n: g.keys,
            outer: 1,
            inner: g.depth,
            batch: walk([of(0, g.depth), of(1, g.depth), of_scores]),
            a: &query,
            rows: Rows::Dense { stride: strides[0][2] },
            a_step: 1,
            a_matrix: g.depth,
            b: &key,
            lines: Lines::Dense,
            b_step: 1,
            b_column: strides[1][2],
            b_matrix: g.depth,
            c: scores,
            store: Store::Rows(g.keys),
            c_matrix: matrix,
            conjugated: [false; 2],
        }
        .enqueue(ctx)?;
        self.weights(ctx.device(), scores, first)?;
        Contraction {
            m: g.queries,
            n: g.width,
            outer: 1,
            inner: g.keys,
            batch: walk([of_scores, of(2, g.width), of(3, g.width)]),
            a: scores,
            rows: Rows::Dense { stride: g.keys },
            a_step: 1,
            a_matrix: matrix,
            b: &value,
            lines: Lines::Dense,
            b_step: strides[2][2],
            b_column: 1,
            b_matrix: g.width,
            c: &result,
            store: Store::Rows(strides[3][2]),
            c_matrix: g.width,
            conjugated: [false; 2],
        }
        .enqueue(ctx)
    }

    fn weights(&self, device: &Device, scores: &Tensor, first: usize) -> Result<()> {
        let g = self.geometry;
        let lanes = if g.keys < LONG { 8 } else { 256 };
        if g.keys >= LONG * 32 {
            return Err(Error::Unimplemented(format!("{} keys exceed this kernel's limit", g.keys)));
        }
        let mask = self.extra.map(|t| match g.mask[0] {
            0 => t.clone(),
            step => slice(t, first * step, t.len() - first * step),
        });
        let dtype = mask.as_ref().map(|t| t.dtype);
        let key = Key::new("attention_weights").number(lanes);
        let rows = scores.len() / g.keys;
        let params = [rows, g.heads, g.queries, g.keys].iter().chain(&g.mask).fold(Params::new(), |p, n| p.u32(*n));
        device.enqueue(&Program {
            key: dtype.map_or(key.clone(), |t| key.dtype(t)),
            shader: &|| text::weights(dtype, lanes),
            bindings: std::iter::once(Binding::from(scores)).chain(mask.as_ref().map(Binding::from)).collect(),
            params: self.rule.params(params),
            grid: Grid::groups(rows),
        })
    }
}

/// `count` elements of a dense tensor, from `first` on.
pub fn slice(t: &Tensor, first: usize, count: usize) -> Tensor {
    Tensor::new(t.dtype, &[count], t.address + (first * t.dtype.size()) as u64)
}
