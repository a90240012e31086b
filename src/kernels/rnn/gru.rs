//! GRUBlockCell and its gradient.

use super::check_extent;
use super::pointwise::{
    GRU_GATES, GRU_OUTPUT, GRU_OUTPUT_GRAD, GRU_RESET_GRAD, GRU_STATE_GRAD, Setting,
};
use super::values::{combine, product, rows};
use crate::dtype::DType::F32;
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext};
use crate::require;
use crate::tensor::{Tensor, named};

/// The cell: inputs x, h_prev, w_ru, w_c, b_ru, b_c; outputs r, u, c, h.
pub struct Gru;

/// The gradient: inputs are those of the cell, then r, u, c and the gradient of h; outputs are the
/// gradients of x and of h_prev, and of the arguments of the candidate and of the gates.
pub struct GruGrad;

const NAMES: [&str; 6] = ["x", "h_prev", "w_ru_", "w_c", "b_ru", "b_c"];

/// TensorFlow's checks. Returns the batch size, the input size and the cell size.
fn check(inputs: &[Tensor]) -> Result<[usize; 3]> {
    for (name, (tensor, rank)) in NAMES.iter().zip(inputs.iter().zip([2, 2, 2, 2, 1, 1])) {
        require!(tensor.rank() == rank, "Rank of {name} must be {rank}, got {}", tensor.rank());
    }
    let ([batch, width], cells) = ([inputs[0].dims[0], inputs[0].dims[1]], inputs[1].dims[1]);
    check_extent("h_prev.dims", &inputs[1], 0, "batch_size", batch)?;
    check_extent("w_ru.dim_size", &inputs[2], 0, "input_size + cell_size", width + cells)?;
    check_extent("w_ru.dim_size", &inputs[2], 1, "cell_size * 2", 2 * cells)?;
    check_extent("w_c.dim_size", &inputs[3], 0, "input_size + cell_size", width + cells)?;
    check_extent("w_c.dim_size", &inputs[3], 1, "cell_size", cells)?;
    check_extent("b_ru.dim_size", &inputs[4], 0, "cell_size * 2", 2 * cells)?;
    check_extent("b_c.dim_size", &inputs[5], 0, "cell_size", cells)?;
    Ok([batch, width, cells])
}

impl Kernel for Gru {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs: Vec<Tensor> = (0..6).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        let [batch, width, cells] = check(&inputs)?;
        let [x, h_prev, w_ru, w_c, b_ru, b_c] = &inputs[..] else { unreachable!("six inputs") };
        let state = [batch, cells];
        let (r, u, c) =
            (ctx.output(0, F32, &state)?, ctx.output(1, F32, &state)?, ctx.output(2, F32, &state)?);
        let Some(h) = ctx.some_output(3, F32, &state)? else { return Ok(()) };
        let setting = Setting { cells, ..Setting::default() };
        let (gx, gh) = (ctx.temp(F32, &[batch, 2 * cells])?, ctx.temp(F32, &[batch, 2 * cells])?);
        let (cx, ch, hr) = (ctx.temp(F32, &state)?, ctx.temp(F32, &state)?, ctx.temp(F32, &state)?);
        product(ctx, x, false, &rows(w_ru, 0, width, 2 * cells), false, &gx)?;
        product(ctx, h_prev, false, &rows(w_ru, width, cells, 2 * cells), false, &gh)?;
        GRU_GATES.enqueue(ctx, &setting, h.len(), &named![gx, gh, bias: b_ru, h_prev, r, u, hr])?;
        product(ctx, x, false, &rows(w_c, 0, width, cells), false, &cx)?;
        product(ctx, &hr, false, &rows(w_c, width, cells, cells), false, &ch)?;
        GRU_OUTPUT.enqueue(
            ctx,
            &setting,
            h.len(),
            &named![gx: cx, gh: ch, bias: b_c, u, h_prev, c, h],
        )
    }
}

impl Kernel for GruGrad {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs: Vec<Tensor> = (0..10).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        let [batch, width, cells] = check(&inputs[..6])?;
        for (name, tensor) in ["r", "u", "c", "d_h"].iter().zip(&inputs[6..]) {
            require!(tensor.rank() == 2, "Rank of {name} must be 2, got {}", tensor.rank());
            check_extent(&format!("{name}.dims"), tensor, 0, "batch_size", batch)?;
            check_extent(&format!("{name}.dims"), tensor, 1, "cell_size", cells)?;
        }
        let [_, h_prev, w_ru, w_c, _, _, r, u, c, d_h] = &inputs[..] else {
            unreachable!("ten inputs")
        };
        let (input, state) = ([batch, width], [batch, cells]);
        let (d_x, d_h_prev) = (ctx.output(0, F32, &input)?, ctx.output(1, F32, &state)?);
        let (d_c, d_ru) = (ctx.output(2, F32, &state)?, ctx.output(3, F32, &[batch, 2 * cells])?);
        let setting = Setting { cells, ..Setting::default() };
        let count = d_h.len();
        let (by_c, by_gates) = (ctx.temp(F32, &input)?, ctx.temp(F32, &input)?);
        let (d_hr, part) = (ctx.temp(F32, &state)?, ctx.temp(F32, &state)?);
        GRU_OUTPUT_GRAD.enqueue(ctx, &setting, count, &named![u, c, d_h, h_prev, d_c, d_ru])?;
        product(ctx, &d_c, false, &rows(w_c, 0, width, cells), true, &by_c)?;
        product(ctx, &d_c, false, &rows(w_c, width, cells, cells), true, &d_hr)?;
        GRU_RESET_GRAD.enqueue(ctx, &setting, count, &named![d_hr, h_prev, r, d_ru])?;
        product(ctx, &d_ru, false, &rows(w_ru, 0, width, 2 * cells), true, &by_gates)?;
        product(ctx, &d_ru, false, &rows(w_ru, width, cells, 2 * cells), true, &part)?;
        combine(ctx, "AddV2", &by_c, &by_gates, &d_x)?;
        GRU_STATE_GRAD.enqueue(ctx, &setting, count, &named![part, d_hr, r, d_h, u, sum: d_h_prev])
    }
}
