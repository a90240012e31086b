//! LSTMBlockCellGrad, BlockLSTMGrad and BlockLSTMGradV2.

use super::lstm::{Extents, Layout, check_cell, check_sequence, constants, length};
use super::pointwise::{LSTM_CELL_GRAD, LSTM_OUTPUT_GRAD, LSTM_PEEPHOLE_GRAD, Setting};
use super::values::{Output, clear, product, rows, wide};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::reduce;
use crate::require;
use crate::tensor::{Tensor, named, shape_text};

/// The properties that both ops are made from.
#[derive(Clone, Copy)]
struct Common {
    dtype: DType,
    setting: Setting,
}

impl Common {
    fn new(attrs: &dyn Attrs, layout: Layout) -> Result<Self> {
        let [c_at, f_at] = layout.order();
        let setting =
            Setting { c_at, f_at, peephole: attrs.bool("use_peephole")?, ..Setting::default() };
        Ok(Self { dtype: attrs.dtype("T")?, setting })
    }

    /// `y = ` the sum of the rows of `x`.
    fn sum_rows(&self, ctx: &mut dyn OpContext, x: &Tensor, y: &Tensor) -> Result<()> {
        reduce(ctx, "Sum", x, &[true, false], y)
    }

    /// The gradients of the three peepholes, computed from the gates' gradients and the states
    /// before and after `count / cells` rows.
    fn peepholes(
        &self,
        ctx: &mut dyn OpContext,
        setting: &Setting,
        [dgates, cs_prev, cs]: [&Tensor; 3],
        outputs: &[Output],
    ) -> Result<()> {
        if !setting.peephole || cs.is_empty() {
            return outputs.iter().try_for_each(|output| output.clear(ctx));
        }
        let cells = setting.cells;
        let products = ctx.temp(DType::F32, &[cs.len() / cells, 3 * cells])?;
        LSTM_PEEPHOLE_GRAD.enqueue(
            ctx,
            setting,
            cs.len(),
            &named![dgates, cs_prev, cs, products],
        )?;
        let sums = ctx.temp(DType::F32, &[3 * cells])?;
        self.sum_rows(ctx, &products, &sums)?;
        for (k, output) in outputs.iter().enumerate() {
            let sum = rows(&sums, k, 1, cells);
            ctx.device().copy(output.wide.address, sum.address, sum.bytes())?;
        }
        Ok(())
    }
}

/// The values of a forward pass and the gradients of its results, which follow the eight inputs.
const SAVED: [&str; 8] = ["i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"];

/// One step back. Stores the gradients of the gates in `dgates`. `carry` holds the gradients of
/// state and output, and receives that of the previous state. `saved` are i, cs_prev, f, o, ci, co,
/// cs_grad and h_grad of the step.
fn step_back(
    ctx: &dyn OpContext,
    setting: &Setting,
    saved: &[Tensor; 8],
    consts: &Tensor,
    carry: &Tensor,
    [dgates, dcs]: [&Tensor; 2],
) -> Result<()> {
    let [i, cs_prev, f, o, ci, co, cs_grad, h_grad] = saved;
    let count = dcs.len();
    LSTM_OUTPUT_GRAD.enqueue(
        ctx,
        setting,
        count,
        &named![o, co, h_grad, cs_grad, carry, consts, dgates, dcs],
    )?;
    LSTM_CELL_GRAD.enqueue(
        ctx,
        setting,
        count,
        &named![ig: i, f, ci, cs_prev, dcs, consts, dgates, carry],
    )
}

/// The gradient of one cell: of the previous state, the gates and the peepholes.
pub struct CellGrad(Common);

impl CellGrad {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, layout: Layout) -> Result<Self> {
        Ok(Self(Common::new(attrs, layout)?))
    }
}

impl Kernel for CellGrad {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs: Vec<Tensor> = (0..16).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        let Extents { batch, cells, .. } = check_cell(&inputs[..8])?;
        for (name, tensor) in SAVED.iter().zip(&inputs[8..]) {
            require!(
                tensor.rank() == 2,
                "{name}_tensor must be rank 2 but is rank {}.",
                tensor.rank()
            );
            let what = if name.ends_with("_grad") {
                format!("{name}_tensor.dims")
            } else {
                format!("{name}.dim_size")
            };
            super::check_extent(&what, tensor, 0, "batch_size", batch)?;
            super::check_extent(&what, tensor, 1, "cell_size", cells)?;
        }
        let setting = Setting { cells, ..self.0.setting };
        let dtype = self.0.dtype;
        let cs_prev_grad = Output::new(ctx, 0, dtype, &[batch, cells])?;
        let dgates = Output::new(ctx, 1, dtype, &[batch, 4 * cells])?;
        let peepholes: Vec<Output> = (0..3)
            .map(|k| Output::new(ctx, 2 + k, dtype, &inputs[4 + k].dims))
            .collect::<Result<_>>()?;
        let consts = constants(ctx, setting, None, [&inputs[4], &inputs[5], &inputs[6]])?;
        let mut saved = Vec::new();
        for k in [8, 1, 10, 11, 12, 13, 14, 15] {
            saved.push(wide(ctx, &inputs[k])?);
        }
        let saved: [Tensor; 8] = saved.try_into().expect("eight tensors");
        let carry = ctx.temp(DType::F32, &[2 * batch, cells])?;
        clear(ctx, &carry)?;
        let dcs = ctx.temp(DType::F32, &[batch, cells])?;
        step_back(ctx, &setting, &saved, &consts, &carry, [&dgates.wide, &dcs])?;
        ctx.device().copy(cs_prev_grad.wide.address, carry.address, dcs.bytes())?;
        let cs = wide(ctx, &inputs[9])?;
        self.0.peepholes(ctx, &setting, [&dgates.wide, &saved[1], &cs], &peepholes)?;
        for output in [&cs_prev_grad, &dgates].into_iter().chain(&peepholes) {
            output.finish(ctx)?;
        }
        Ok(())
    }
}

/// The gradient of a sequence: of the input, the previous state and output, the weights, the
/// peepholes and the bias.
pub struct SequenceGrad(Common);

impl SequenceGrad {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, layout: Layout) -> Result<Self> {
        Ok(Self(Common::new(attrs, layout)?))
    }
}

impl Kernel for SequenceGrad {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs: Vec<Tensor> = (1..18).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        let extents = check_sequence(&inputs[..8])?;
        let Extents { steps, batch, inputs: width, cells } = extents;
        // i, cs, f, o, ci, co and h of all steps, then the gradients of cs and h.
        for (name, tensor) in
            ["i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"].iter().zip(&inputs[8..])
        {
            require!(tensor.rank() == 3, "{name} must be rank 3. Received: {}", tensor.rank());
            require!(
                tensor.dims[..] == [steps, batch, cells],
                "{name} has shape {}, not {}",
                shape_text(&tensor.dims),
                shape_text(&[steps, batch, cells])
            );
        }
        let length = length(ctx, steps)?;
        let mut outputs = Vec::new();
        for (i, input) in inputs[..8].iter().enumerate() {
            outputs.push(Output::new(ctx, i, self.0.dtype, &input.dims)?);
        }
        let values: Vec<Tensor> = inputs.iter().map(|t| wide(ctx, t)).collect::<Result<_>>()?;
        if length * batch * cells == 0 {
            outputs.iter().try_for_each(|o| o.clear(ctx))?;
        } else {
            self.gradients(ctx, Extents { steps: length, ..extents }, &values, &outputs)?;
            clear(ctx, &rows(&outputs[0].wide, length * batch, (steps - length) * batch, width))?;
        }
        outputs.iter().try_for_each(|o| o.finish(ctx))
    }
}

impl SequenceGrad {
    /// The gradients over `extents.steps` steps. There is at least one step, and no extent of the
    /// state is empty.
    fn gradients(
        &self,
        ctx: &mut dyn OpContext,
        extents: Extents,
        values: &[Tensor],
        outputs: &[Output],
    ) -> Result<()> {
        let Extents { steps, batch, inputs: width, cells } = extents;
        let [x, cs_prev, h_prev, w, wci, wcf, wco, _, i, cs, f, o, ci, co, h, cs_grad, h_grad] =
            values
        else {
            unreachable!("seventeen inputs")
        };
        let setting = Setting { cells, ..self.0.setting };
        let total = steps * batch;
        let consts = constants(ctx, setting, None, [wci, wcf, wco])?;
        // The states and outputs before each step, one after the other.
        let shifted =
            |ctx: &mut dyn OpContext, initial: &Tensor, later: &Tensor| -> Result<Tensor> {
                let all = ctx.temp(DType::F32, &[total, cells])?;
                ctx.device().copy(all.address, initial.address, initial.bytes())?;
                let (after, later) =
                    (rows(&all, batch, total - batch, cells), rows(later, 0, total - batch, cells));
                if !later.is_empty() {
                    ctx.device().copy(after.address, later.address, later.bytes())?;
                }
                Ok(all)
            };
        let (states, before) = (shifted(ctx, cs_prev, cs)?, shifted(ctx, h_prev, h)?);
        let carry = ctx.temp(DType::F32, &[2 * batch, cells])?;
        clear(ctx, &carry)?;
        let dcs = ctx.temp(DType::F32, &[batch, cells])?;
        let dgates = ctx.temp(DType::F32, &[total, 4 * cells])?;
        let (input_weights, recurrent) =
            (rows(w, 0, width, 4 * cells), rows(w, width, cells, 4 * cells));
        for step in (0..steps).rev() {
            let saved = [i, &states, f, o, ci, co, cs_grad, h_grad]
                .map(|t| rows(t, step * batch, batch, cells));
            let dgates = rows(&dgates, step * batch, batch, 4 * cells);
            step_back(ctx, &setting, &saved, &consts, &carry, [&dgates, &dcs])?;
            product(ctx, &dgates, false, &recurrent, true, &rows(&carry, batch, batch, cells))?;
        }
        let [x_grad, cs_prev_grad, h_prev_grad, w_grad, _, _, _, b_grad] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|k| &outputs[k].wide);
        ctx.device().copy(cs_prev_grad.address, carry.address, cs_prev_grad.bytes())?;
        ctx.device().copy(
            h_prev_grad.address,
            rows(&carry, batch, batch, cells).address,
            h_prev_grad.bytes(),
        )?;
        product(ctx, &dgates, false, &input_weights, true, &rows(x_grad, 0, total, width))?;
        product(
            ctx,
            &rows(x, 0, total, width),
            true,
            &dgates,
            false,
            &rows(w_grad, 0, width, 4 * cells),
        )?;
        product(ctx, &before, true, &dgates, false, &rows(w_grad, width, cells, 4 * cells))?;
        self.0.sum_rows(ctx, &dgates, b_grad)?;
        let cs = rows(cs, 0, total, cells);
        self.0.peepholes(ctx, &setting, [&dgates, &states, &cs], &outputs[4..7])
    }
}
