//! Attention in three programs: scores, their softmax with scale and mask, and the products with
//! the values. For software adapters, where tiles in workgroup memory are slow and contractions in
//! registers are fast, and for rows too wide for a tile.
//!
//! The layout of the operands is a matter of strides, so nothing is transposed. Batches go together
//! as long as their scores fit a binding.

use std::ops::Range;

use super::shape::Geometry;
use super::shape::rule::{Rule, prefers_staged};
use super::text;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::F32;
use crate::error::{Error, Result};
use crate::kernels::contract::Contraction;
use crate::kernels::op::OpContext;
use crate::layout::Iteration;
use crate::shader::vec4;
use crate::tensor::Tensor;

/// From this many keys on, a workgroup of 256 invocations shares a row, so that no invocation runs
/// more iterations of its four loops than any adapter's [`crate::device::Profile::loop_limit`].
pub const LONG: usize = 65_535 / 4 * 8;

/// Operations for each score: the maximum, a difference, its exponential, the sum and the quotient.
const SOFTMAX_OPERATIONS: usize = 5;

/// From this many rows on, an invocation takes a row of its own.
const MANY: usize = 1000;
/// The fewest rows of a block.
const BLOCK: usize = 128;
/// With results of this many elements, every software adapter's tile has enough workgroups that no
/// contraction is cut.
const UNCUT: usize = 1 << 14;

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
    /// The weights, kept for the gradient.
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
            let scores = slice(
                &scores,
                if self.saved.is_some() { first * matrices } else { 0 },
                batch * matrices,
            );
            self.part(ctx, first, batch, &scores)?;
        }
        Ok(())
    }

    fn part(
        &self,
        ctx: &mut dyn OpContext,
        first: usize,
        batch: usize,
        scores: &Tensor,
    ) -> Result<()> {
        let g = self.geometry;
        let result_strides = self.rule.layout.strides(g.heads, g.queries, g.width);
        let strides = [g.strides[0], g.strides[1], g.strides[2], result_strides];
        let [query, key, value, result] = [0, 1, 2, 3].map(|i| match strides[i][0] {
            0 => self.tensors[i].clone(),
            step => slice(self.tensors[i], first * step, batch * step),
        });
        // Strides of whole matrices count rows. So they are known to be multiples of four where
        // rows are.
        let walk = |operands: [([usize; 3], usize); 3]| {
            let start = Iteration::over(&[batch, g.heads / g.group, g.group]);
            operands
                .into_iter()
                .fold(start, |walk, (strides, row)| {
                    walk.operand(&strides.map(|n| (n / row.max(1)) as i64), 0)
                })
                .collapse()
        };
        let by_head = |[b, h]: [usize; 2], row: usize| ([b, g.group * h, h], row);
        let of = |i: usize, row: usize| by_head([strides[i][0], strides[i][1]], row);
        // The heads of key and value, each for a group of the query's heads.
        let shared = |i: usize, row: usize| ([strides[i][0], strides[i][1], 0], row);
        let matrix = g.queries * g.keys;
        let of_scores = by_head([g.heads * matrix, matrix], matrix);
        let block = self.block(ctx.device(), batch);
        let blocks = (0..g.queries).step_by(block).map(|first| first..g.queries.min(first + block));
        let product = walk([of(0, g.depth), shared(1, g.depth), of_scores]);
        for rows in blocks.clone() {
            let operands = [
                &tail(&query, rows.start * strides[0][2]),
                &key,
                &tail(scores, rows.start * g.keys),
            ];
            Contraction::product([rows.len(), g.depth, self.keys(&rows)], operands)
                .strided([strides[0][2], strides[1][2], g.keys], [false, true])
                .batched(product.clone(), [g.depth, g.depth, matrix])
                .enqueue(ctx)?;
        }
        self.weights(ctx.device(), scores, first, block)?;
        let product = walk([of_scores, shared(2, g.width), of(3, g.width)]);
        for rows in blocks {
            let operands = [
                &tail(scores, rows.start * g.keys),
                &value,
                &tail(&result, rows.start * strides[3][2]),
            ];
            Contraction::product([rows.len(), self.keys(&rows), g.width], operands)
                .strided([g.keys, strides[2][2], strides[3][2]], [false; 2])
                .batched(product.clone(), [matrix, g.width, g.width])
                .enqueue(ctx)?;
        }
        Ok(())
    }

    /// The number of rows of a contraction: all of them, or, where later keys are hidden, so few
    /// that leaving out the keys that none of these rows sees is worth further contractions. A
    /// contraction that is cut along its depth would also write the elements between its rows, so
    /// there must be enough work without such a cut.
    fn block(&self, device: &Device, batch: usize) -> usize {
        let g = self.geometry;
        let count = (g.queries / BLOCK).max(1);
        let block = g.queries.div_ceil(count).next_multiple_of(4);
        let least = match g.queries % block {
            0 => block,
            rest => rest,
        };
        let whole = g.keys.max(g.depth) <= Contraction::LONGEST_WHOLE;
        let uncut = least * g.width.min(g.keys.min(block)) * batch * g.heads >= UNCUT;
        let pays = self.rule.hides() && whole && uncut && prefers_staged(device);
        if pays { block } else { g.queries }
    }

    /// The number of keys that a block of rows sees.
    fn keys(&self, rows: &Range<usize>) -> usize {
        if rows.len() < self.geometry.queries {
            self.geometry.keys.min(rows.end)
        } else {
            self.geometry.keys
        }
    }

    fn weights(&self, device: &Device, scores: &Tensor, first: usize, block: usize) -> Result<()> {
        let g = self.geometry;
        if g.keys >= LONG * 32 {
            return Err(Error::Unimplemented(format!(
                "{} keys exceed this kernel's limit",
                g.keys
            )));
        }
        let mask = self.extra.map(|t| match g.mask[0] {
            0 => t.clone(),
            step => slice(t, first * step, t.len() - first * step),
        });
        let in_vec4s = |t: &Tensor| {
            g.mask[3] == 1 && g.mask[..3].iter().all(|n| n.is_multiple_of(4)) && vec4::aligned(&[t])
        };
        let vec4s = g.keys.is_multiple_of(4)
            && vec4::aligned(&[scores])
            && mask.as_ref().is_none_or(in_vec4s);
        let unit = if vec4s { 4 } else { 1 };
        let rows = scores.len() / g.keys;
        let lanes = match g.keys {
            LONG.. => 256,
            // Many rows need no barriers.
            n if n < LONG / 8 && rows >= MANY => 1,
            _ => 8,
        };
        let scoring = self.rule.scoring(mask.as_ref().map(|t| t.dtype));
        let key = Key::new("attention_weights").number(lanes).number(u32::from(vec4s));
        // Only the gradient, which reads all weights, needs the elements that the products leave
        // out.
        let block = if block < g.queries && self.saved.is_none() {
            block
        } else {
            g.keys.next_multiple_of(4)
        };
        let params = [rows, g.heads, g.queries, g.keys / unit, block]
            .into_iter()
            .chain(g.mask.map(|n| n / unit));
        let binding = |t: &Tensor| Binding::raw(t, (t.dtype.size() * unit) as u32);
        device.enqueue_counted(
            &Program {
                key: scoring.add_to(key),
                shader: &|| text::weights(scoring, lanes, vec4s),
                bindings: std::iter::once(binding(scores))
                    .chain(mask.as_ref().map(binding))
                    .collect(),
                params: self.rule.params(params.fold(Params::new(), |p, n| p.u32(n))),
                grid: Grid::linear(rows * lanes as usize, text::weights_workgroup(lanes)),
            },
            F32.flops(SOFTMAX_OPERATIONS * scores.len()),
        )
    }
}

/// A dense tensor from element `first` on.
fn tail(t: &Tensor, first: usize) -> Tensor {
    slice(t, first, t.len() - first)
}

/// `count` elements of a dense tensor, from `first` on.
pub fn slice(t: &Tensor, first: usize, count: usize) -> Tensor {
    Tensor::new(t.dtype, &[count], t.address + (first * t.dtype.size()) as u64)
}
