//! Recurrent cells: LSTMBlockCell, BlockLSTM, GRUBlockCell and their gradients; whole networks
//! ([`cudnn`]); and the loss of their labels without alignment to steps ([`ctc`]).
//!
//! Products of matrices come from [`super::contract`], the rest from elementwise programs
//! ([`pointwise`]). Work that need not be done step by step (the input's products, the gradients of
//! input, weights and biases) is one product over all steps.

mod ctc;
mod cudnn;
mod gru;
mod lstm;
mod lstm_grad;
pub mod pointwise;
mod values;

use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::Attrs;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::Tensor;
use lstm::Layout;

pub use cudnn::layer::DEFINITIONS;

const LSTM_TYPES: &[DType] = types::F32_F16;

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op("BlockLSTM")
        .types("T", LSTM_TYPES)
        .host(&["seq_len_max"])
        .kernel(|a| lstm::Lstm::new(a, Layout::Icfo, true));
    r.op("BlockLSTMV2")
        .types("T", LSTM_TYPES)
        .host(&["seq_len_max"])
        .kernel(|a| lstm::Lstm::new(a, Layout::Ifco, true));
    for (op, layout) in [("BlockLSTMGrad", Layout::Icfo), ("BlockLSTMGradV2", Layout::Ifco)] {
        r.op(op)
            .types("T", LSTM_TYPES)
            .host(&["seq_len_max"])
            .kernel(move |a: &dyn Attrs| lstm_grad::SequenceGrad::new(a, layout));
    }
    r.op("GRUBlockCell").types("T", &[F32]).kernel(|_| Ok(gru::Gru));
    r.op("GRUBlockCellGrad").types("T", &[F32]).kernel(|_| Ok(gru::GruGrad));
    r.op("LSTMBlockCell")
        .types("T", LSTM_TYPES)
        .kernel(|a| lstm::Lstm::new(a, Layout::Icfo, false));
    r.op("LSTMBlockCellGrad")
        .types("T", LSTM_TYPES)
        .kernel(move |a: &dyn Attrs| lstm_grad::CellGrad::new(a, Layout::Icfo));
    ctc::register(r);
    cudnn::register(r);
}

/// Every shader of this family.
pub fn shaders() -> Vec<Shader> {
    let mut all = pointwise::shaders();
    all.extend(ctc::shaders());
    all.extend(cudnn::shaders());
    all
}

/// TensorFlow's check of an extent, in TensorFlow's words.
fn check_extent(what: &str, tensor: &Tensor, axis: usize, name: &str, want: usize) -> Result<()> {
    let got = tensor.dims[axis];
    require!(got == want, "{what}({axis}) != {name}: {got} vs. {want}");
    Ok(())
}
