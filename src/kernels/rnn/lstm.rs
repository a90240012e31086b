//! LSTMBlockCell, BlockLSTM and BlockLSTMV2.

use super::check_extent;
use super::pointwise::{LSTM_CELL, LSTM_OUTPUT, Setting};
use super::values::{Output, clear, product, rows, wide};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext, OpContextExt};
use crate::require;
use crate::tensor::{Tensor, named};

/// The order of the gates: input, cell input, forget, output, or with the middle two exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Cell input before the forget gate.
    Icfo,
    /// Forget gate before the cell input.
    Ifco,
}

impl Layout {
    /// Positions of the cell input and of the forget gate.
    pub const fn order(self) -> [u32; 2] {
        match self {
            Self::Icfo => [1, 2],
            Self::Ifco => [2, 1],
        }
    }
}

/// A cell, or a sequence of them.
pub struct Lstm {
    dtype: DType,
    setting: Setting,
    sequence: bool,
}

/// Extents of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Extents {
    /// Steps.
    pub steps: usize,
    /// Entries of a batch.
    pub batch: usize,
    /// Elements of an input.
    pub inputs: usize,
    /// Cells.
    pub cells: usize,
}

impl Lstm {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, layout: Layout, sequence: bool) -> Result<Self> {
        let [c_at, f_at] = layout.order();
        let setting = Setting {
            cells: 0,
            c_at,
            f_at,
            peephole: attrs.bool("use_peephole")?,
            // BlockLSTMV2 has no such attribute.
            forget_bias: attrs.float("forget_bias").unwrap_or(0.0),
            cell_clip: attrs.float("cell_clip")?,
        };
        Ok(Self { dtype: attrs.dtype("T")?, setting, sequence })
    }
}

impl Kernel for Lstm {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let first = usize::from(self.sequence);
        let inputs: Vec<Tensor> =
            (first..first + 8).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        let [x, cs_prev, h_prev, w, wci, wcf, wco, b] = &inputs[..] else {
            unreachable!("eight inputs")
        };
        let extents = if self.sequence { check_sequence(&inputs)? } else { check_cell(&inputs)? };
        let Extents { steps, batch, inputs: width, cells } = extents;
        let length = if self.sequence { length(ctx, steps)? } else { 1 };
        let setting = Setting { cells, ..self.setting };
        let all = [steps, batch, cells];
        let dims = if self.sequence { &all[..] } else { &all[1..] };
        let outputs: Vec<Output> =
            (0..7).map(|i| Output::new(ctx, i, self.dtype, dims)).collect::<Result<_>>()?;
        let count = batch * cells;
        if count == 0 {
            return Ok(());
        }
        let (x, cs_prev, h_prev, w) =
            (wide(ctx, x)?, wide(ctx, cs_prev)?, wide(ctx, h_prev)?, wide(ctx, w)?);
        let consts = constants(ctx, setting, Some(b), [wci, wcf, wco])?;
        let gx = ctx.temp(DType::F32, &[length * batch, 4 * cells])?;
        product(
            ctx,
            &rows(&x, 0, length * batch, width),
            false,
            &rows(&w, 0, width, 4 * cells),
            false,
            &gx,
        )?;
        let gh = ctx.temp(DType::F32, &[batch, 4 * cells])?;
        let recurrent = rows(&w, width, cells, 4 * cells);
        for step in 0..length {
            let [i, cs, f, o, ci, co, h] =
                [0, 1, 2, 3, 4, 5, 6].map(|k| rows(&outputs[k].wide, step * batch, batch, cells));
            let gx = rows(&gx, step * batch, batch, 4 * cells);
            let before = |initial: &Tensor, k: usize| match step {
                0 => rows(initial, 0, batch, cells),
                _ => rows(&outputs[k].wide, (step - 1) * batch, batch, cells),
            };
            let (cs_before, h_before) = (before(&cs_prev, 1), before(&h_prev, 6));
            product(ctx, &h_before, false, &recurrent, false, &gh)?;
            LSTM_CELL.enqueue(
                ctx,
                &setting,
                count,
                &named![gx, gh, consts, cs_prev: cs_before, ig: i, f, ci, cs],
            )?;
            LSTM_OUTPUT.enqueue(ctx, &setting, count, &named![gx, gh, consts, cs, o, co, h])?;
        }
        for output in &outputs {
            // TensorFlow clears the remaining rows of cs and h, and leaves the other outputs as
            // they are.
            clear(ctx, &rows(&output.wide, length * batch, (steps - length) * batch, cells))?;
            output.finish(ctx)?;
        }
        Ok(())
    }
}

/// The bias of the gates (uninitialized if no program reads it) and the peepholes, side by side.
pub fn constants(
    ctx: &mut dyn OpContext,
    setting: Setting,
    bias: Option<&Tensor>,
    peepholes: [&Tensor; 3],
) -> Result<Tensor> {
    let cells = setting.cells;
    let consts = ctx.temp(DType::F32, &[7, cells])?;
    if let Some(bias) = bias {
        let bias = wide(ctx, bias)?;
        ctx.device().copy(consts.address, bias.address, bias.bytes())?;
    }
    if setting.peephole {
        for (k, peephole) in peepholes.into_iter().enumerate() {
            let peephole = wide(ctx, peephole)?;
            ctx.device().copy(
                rows(&consts, 4 + k, 1, cells).address,
                peephole.address,
                peephole.bytes(),
            )?;
        }
    }
    Ok(consts)
}

/// The number of steps to take, input 0.
pub fn length(ctx: &mut dyn OpContext, steps: usize) -> Result<usize> {
    let rank = ctx.host_input(0)?.dims.len();
    require!(rank == 0, "`seq_len_max_tensor` must be rank 0 but is rank {rank}");
    let length = ctx.host_i64(0, "seq_len_max")?;
    let valid = usize::try_from(length).ok().filter(|n| *n <= steps);
    valid.ok_or_else(|| {
        crate::Error::InvalidArgument(format!(
            "seq_len_max must be between 0 and {steps} but is {length}"
        ))
    })
}

const NAMES: [&str; 8] = ["x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"];

/// TensorFlow's checks of one cell.
pub fn check_cell(inputs: &[Tensor]) -> Result<Extents> {
    for (name, (tensor, rank)) in NAMES.iter().zip(inputs.iter().zip([2, 2, 2, 2, 1, 1, 1, 1])) {
        require!(
            tensor.rank() == rank,
            "{name}_tensor must be rank {rank} but is rank {}.",
            tensor.rank()
        );
    }
    let extents = Extents {
        steps: 1,
        batch: inputs[0].dims[0],
        inputs: inputs[0].dims[1],
        cells: inputs[1].dims[1],
    };
    check_state(inputs, extents)?;
    let state = &inputs[1].dims;
    require!(
        state[0] > 0 && state[1] > 0,
        "cs_prev_tensor is empty, has shape: ({},{}).",
        state[0],
        state[1]
    );
    Ok(extents)
}

/// TensorFlow's checks of a sequence.
pub fn check_sequence(inputs: &[Tensor]) -> Result<Extents> {
    for (name, (tensor, rank)) in NAMES.iter().zip(inputs.iter().zip([3, 2, 2, 2, 1, 1, 1, 1])) {
        require!(tensor.rank() == rank, "{name} must be {rank}D");
    }
    let [steps, batch, width] = inputs[0].dims[..] else { unreachable!("checked above") };
    let extents = Extents { steps, batch, inputs: width, cells: inputs[1].dims[1] };
    check_state(inputs, extents)?;
    for k in 4..7 {
        check_extent(&format!("{}.dim_size", NAMES[k]), &inputs[k], 0, "cell_size", extents.cells)?;
    }
    Ok(extents)
}

/// The checks that a cell and a sequence share.
fn check_state(inputs: &[Tensor], extents: Extents) -> Result<()> {
    let Extents { batch, inputs: width, cells, .. } = extents;
    check_extent("cs_prev.dims", &inputs[1], 0, "batch_size", batch)?;
    check_extent("h_prev.dims", &inputs[2], 0, "batch_size", batch)?;
    check_extent("h_prev.dims", &inputs[2], 1, "cell_size", cells)?;
    check_extent("w.dim_size", &inputs[3], 0, "input_size + cell_size", width + cells)?;
    check_extent("w.dim_size", &inputs[3], 1, "cell_size * 4", 4 * cells)?;
    check_extent("b.dim_size", &inputs[7], 0, "cell_size * 4", 4 * cells)
}
