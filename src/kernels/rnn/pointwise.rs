//! The elementwise parts of recurrent cells: one row for each program, all in f32.
//!
//! A body handles one cell `j` of one batch entry: element `t` of the tensors of [batch, cells],
//! `row4 + k * p.cells` of those of [batch, 4 cells], `row2 + …` of those of [batch, 2 cells].

use crate::device::{Grid, Key, KeyPart, declare_params, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{List, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// One program.
#[derive(Debug)]
pub struct Pointwise {
    name: &'static str,
    bindings: &'static [&'static str],
    /// Operations for an element, without peepholes.
    operations: usize,
    body: &'static str,
}

declare_params! {
    /// The settings that the programs of an LSTM need beside the tensors: the cells of a batch
    /// entry, the positions of the cell input and of the forget gate among the gates, whether gates
    /// see the cell's state, the bias that is added to the forget gate, and the bound of the cell's
    /// state (there is none unless it is positive). `consts` holds the bias of the four gates and
    /// the three peepholes.
    #[derive(Debug, Default)]
    pub struct Setting {
        cells: usize, c_at: u32, f_at: u32, peephole: bool, forget_bias: f32, cell_clip: f32,
    }
}

/// Input gate, forget gate, cell input and the cell's state.
pub const LSTM_CELL: Pointwise = Pointwise {
    name: "lstm cell",
    bindings: &["gx", "gh", "consts", "cs_prev", "ig", "f", "ci", "cs"],
    operations: 14,
    body: "let before = load_cs_prev(t);
    var input_gate = gate(row4, j, 0u);
    var forget_gate = gate(row4, j, p.f_at) + p.forget_bias;
    if p.peephole != 0u {
        input_gate += before * peephole(j, 0u);
        forget_gate += before * peephole(j, 1u);
    }
    let i = sigmoid_f32(input_gate);
    let f = sigmoid_f32(forget_gate);
    let ci = tanh_f32(gate(row4, j, p.c_at));
    var cs = i * ci + f * before;
    if p.cell_clip > 0.0 {
        cs = clamp(cs, -p.cell_clip, p.cell_clip);
    }
    store_ig(t, i);
    store_f(t, f);
    store_ci(t, ci);
    store_cs(t, cs);",
};

/// Output gate and output.
pub const LSTM_OUTPUT: Pointwise = Pointwise {
    name: "lstm output",
    bindings: &["gx", "gh", "consts", "cs", "o", "co", "h"],
    operations: 5,
    body: "let cs = load_cs(t);
    var output_gate = gate(row4, j, 3u);
    if p.peephole != 0u {
        output_gate += cs * peephole(j, 2u);
    }
    let o = sigmoid_f32(output_gate);
    let co = tanh_f32(cs);
    store_o(t, o);
    store_co(t, co);
    store_h(t, o * co);",
};

/// Gradients of the output gate and of the cell's state. `carry` holds the gradients of the state
/// and the output from later steps.
pub const LSTM_OUTPUT_GRAD: Pointwise = Pointwise {
    name: "lstm output gradient",
    bindings: &["o", "co", "h_grad", "cs_grad", "carry", "consts", "dgates", "dcs"],
    operations: 11,
    body: "let o = load_o(t);
    let co = load_co(t);
    let dh = load_h_grad(t) + load_carry(p.count + t);
    let dout = o * (1.0 - o) * dh * co;
    var dcs = (1.0 - co * co) * dh * o + load_cs_grad(t) + load_carry(t);
    if p.peephole != 0u {
        dcs += dout * peephole(j, 2u);
    }
    store_dgates(row4 + 3u * p.cells, dout);
    store_dcs(t, dcs);",
};

/// Gradients of the other gates and of the previous state.
pub const LSTM_CELL_GRAD: Pointwise = Pointwise {
    name: "lstm cell gradient",
    bindings: &["ig", "f", "ci", "cs_prev", "dcs", "consts", "dgates", "carry"],
    operations: 13,
    body: "let i = load_ig(t);
    let f = load_f(t);
    let ci = load_ci(t);
    let dcs = load_dcs(t);
    let di = i * (1.0 - i) * dcs * ci;
    let df = f * (1.0 - f) * dcs * load_cs_prev(t);
    var before = dcs * f;
    if p.peephole != 0u {
        before += di * peephole(j, 0u) + df * peephole(j, 1u);
    }
    store_dgates(row4, di);
    store_dgates(row4 + p.c_at * p.cells, (1.0 - ci * ci) * dcs * i);
    store_dgates(row4 + p.f_at * p.cells, df);
    store_carry(t, before);",
};

/// The part that each entry and step adds to the gradients of the three peepholes.
pub const LSTM_PEEPHOLE_GRAD: Pointwise = Pointwise {
    name: "lstm peephole gradient",
    bindings: &["dgates", "cs_prev", "cs", "products"],
    operations: 3,
    body: "let before = load_cs_prev(t);
    let row3 = t / p.cells * 3u * p.cells + j;
    store_products(row3, load_dgates(row4) * before);
    store_products(row3 + p.cells, load_dgates(row4 + p.f_at * p.cells) * before);
    store_products(row3 + 2u * p.cells, load_dgates(row4 + 3u * p.cells) * load_cs(t));",
};

/// Reset and update gate, and the part of the previous output that passes the reset gate.
pub const GRU_GATES: Pointwise = Pointwise {
    name: "gru gates",
    bindings: &["gx", "gh", "bias", "h_prev", "r", "u", "hr"],
    operations: 7,
    body: "let r = sigmoid_f32(load_gx(row2) + load_gh(row2) + load_bias(j));
    let u = sigmoid_f32(load_gx(row2 + p.cells) + load_gh(row2 + p.cells) + load_bias(p.cells + \
           j));
    store_hr(t, load_h_prev(t) * r);
    store_r(t, r);
    store_u(t, u);",
};

/// Candidate and output. The output may be the same tensor as the previous output.
pub const GRU_OUTPUT: Pointwise = Pointwise {
    name: "gru output",
    bindings: &["gx", "gh", "bias", "u", "h_prev", "c", "h"],
    operations: 6,
    body: "let c = tanh_f32(load_gx(t) + load_gh(t) + load_bias(j));
    store_c(t, c);
    store_h(t, load_u(t) * (load_h_prev(t) - c) + c);",
};

/// Gradients of the candidate and of the update gate.
pub const GRU_OUTPUT_GRAD: Pointwise = Pointwise {
    name: "gru output gradient",
    bindings: &["u", "c", "d_h", "h_prev", "d_c", "d_ru"],
    operations: 8,
    body: "let u = load_u(t);
    let c = load_c(t);
    let dh = load_d_h(t);
    store_d_c(t, dh * (1.0 - u) * (1.0 - c * c));
    store_d_ru(row2 + p.cells, dh * (load_h_prev(t) - c) * u * (1.0 - u));",
};

/// Gradient of the reset gate.
pub const GRU_RESET_GRAD: Pointwise = Pointwise {
    name: "gru reset gradient",
    bindings: &["d_hr", "h_prev", "r", "d_ru"],
    operations: 4,
    body: "let r = load_r(t);
    store_d_ru(row2, load_d_hr(t) * load_h_prev(t) * r * (1.0 - r));",
};

/// Gradient of the previous output.
pub const GRU_STATE_GRAD: Pointwise = Pointwise {
    name: "gru state gradient",
    bindings: &["part", "d_hr", "r", "d_h", "u", "sum"],
    operations: 4,
    body: "store_sum(t, load_part(t) + load_d_hr(t) * load_r(t) + load_d_h(t) * load_u(t));",
};

const ALL: [&Pointwise; 10] = [
    &LSTM_CELL,
    &LSTM_OUTPUT,
    &LSTM_OUTPUT_GRAD,
    &LSTM_CELL_GRAD,
    &LSTM_PEEPHOLE_GRAD,
    &GRU_GATES,
    &GRU_OUTPUT,
    &GRU_OUTPUT_GRAD,
    &GRU_RESET_GRAD,
    &GRU_STATE_GRAD,
];

/// Every shader.
pub fn shaders() -> Vec<Shader> {
    ALL.iter().map(|p| PointwiseProgram::shader(p)).collect()
}

impl Pointwise {
    /// Runs the program over `count` elements of [batch, cells].
    pub fn enqueue(
        &'static self,
        ctx: &dyn OpContext,
        setting: &Setting,
        count: usize,
        tensors: &[(&'static str, &Tensor)],
    ) -> Result<()> {
        debug_assert!(tensors.iter().all(|(_, t)| t.dtype == DType::F32));
        if count == 0 {
            return Ok(());
        }
        for (_, tensor) in tensors {
            ctx.device().check_extent(tensor.len())?;
        }
        let tensors = tensors.iter().map(|(name, t)| (*name, (*t).into())).collect();
        let call = PointwiseProgram { tensors, count, setting: *setting };
        let (of, grid) = (PointwiseProgram::of(self), Grid::linear(count, WORKGROUP));
        let operations = DType::F32.flops(self.operations * count);
        ctx.device().enqueue_counted(&call.program(&of, grid), operations)
    }
}

impl KeyPart for &Pointwise {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.name)
    }
}

declare_program! {
    /// The program of a row.
    struct PointwiseProgram = "rnn"(row: &'static Pointwise);
    lists { tensors: List(row.bindings.iter().map(|name| (*name, DType::F32))) }
    bindings {}
    params { count: usize, setting: Setting }
}

impl PointwiseProgram {
    fn shader(row: &'static Pointwise) -> Shader {
        let mut shader = Self::declare(row.name, row);
        if row.bindings.contains(&"consts") {
            if row.bindings.contains(&"gx") {
                shader = shader.body(include_str!("../../../shaders/rnn/gate.wgsl"));
            }
            shader = shader.body(include_str!("../../../shaders/rnn/peephole.wgsl"));
        }
        shader.define("BODY", row.body).body(include_str!("../../../shaders/rnn/pointwise.wgsl"))
    }
}
