//! The text of the steps of a layer: the work of each invocation.

use super::model::Mode;
use crate::device::{Key, KeyPart, declare_program};
use crate::dtype::DType;
use crate::shader::{List, Raw, Shader, Storage};

/// Workgroup memory that every adapter has.
const WORKGROUP_BYTES: usize = 16 << 10;
/// The most sequences of a workgroup: their sums fill half of the registers.
const MOST_ROWS: u32 = 8;
/// The same in float64: with four Intel's compiler spills 80 registers.
const MOST_ROWS_F64: u32 = 2;

/// Loads of weights that an invocation has under way.
const AHEAD: u32 = 8;
/// The same in float64, where a load fills twice as many registers.
const AHEAD_F64: u32 = 2;

/// The properties that the text depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepsVariant {
    /// Whether the steps are those of the gradient.
    pub backward: bool,
    /// The layer's kind.
    pub mode: Mode,
    /// The position of a GRU's reset gate: 0 or 1.
    pub reset: u32,
    /// The type of the computation.
    pub real: DType,
    /// Whether sequences have lengths of their own.
    pub lengths: bool,
    /// Invocations of a workgroup, one for each unit.
    pub units: u32,
    /// Sequences of a workgroup; each invocation handles all of them.
    pub rows: u32,
}

impl StepsVariant {
    /// Whether the values that its invocations share fit into workgroup memory.
    pub fn is_valid(&self) -> bool {
        let shared = if self.backward { self.mode.lanes() } else { 1 };
        let bytes = (self.rows * self.units) as usize * shared * self.real.size();
        let most = if self.real == DType::F64 { MOST_ROWS_F64 } else { MOST_ROWS };
        self.rows <= most && bytes <= WORKGROUP_BYTES
    }

    /// Bytes of a unit's gates in a phase.
    pub const fn gates_size(&self) -> u32 {
        (self.mode.lanes() * self.real.size()) as u32
    }

    fn bindings(self) -> impl Iterator<Item = (&'static str, Storage)> {
        let names: &[&str] = match (self.backward, self.mode.slots()) {
            (false, _) => &["gates", "weights", "state", "y", "last"],
            (true, 1) => &["weights", "state", "y", "dy", "d_state", "grads"],
            (true, _) => &["weights", "state", "y", "dy", "d_state", "grads", "saved"],
        };
        let weights = Raw(gates_type(self.mode, self.real), self.gates_size());
        let of = move |name| if name == "weights" { weights } else { Storage::Typed(self.real) };
        let lengths = self.lengths.then_some(("lengths", Storage::Typed(DType::I32)));
        names.iter().map(move |name| (*name, of(*name))).chain(lengths)
    }
}

impl KeyPart for StepsVariant {
    fn add_to(&self, key: Key) -> Key {
        self.mode
            .add_to(key)
            .dtype(self.real)
            .number(u32::from(self.backward) + 2 * u32::from(self.lengths) + 4 * self.reset)
            .number(self.units)
            .number(self.rows)
    }
}

declare_program! {
    /// Some phases of some sequences.
    pub struct StepsProgram = "rnn steps"(variant: StepsVariant);
    lists { tensors: List(variant.bindings()) }
    bindings {}
    params {
        units: usize, total: usize, first: usize, phases: usize, first_sequence: usize,
        sequences_end: usize, first_row: usize, step_rows: usize, sequence_rows: usize,
        y_width: usize, state_at: usize, state_direction: usize, state_stride: usize,
        cell_part: usize, tiles: usize, slices: usize, first_direction: usize, directions: usize,
        direction_rows: usize, direction_weights: usize,
    }
}

impl StepsProgram {
    pub fn shader(variant: StepsVariant) -> Shader {
        let StepsVariant { backward, mode, reset, real, lengths, units, rows } = variant;
        let way = if backward { "backward" } else { "forward" };
        let order = if reset == 1 { ", update gate first" } else { "" };
        let label = format!("{} {real} {way}, {rows} rows of {units} units{order}", mode.name());
        let gates = gates_type(mode, real);
        let shader = Self::declare(label, variant);
        let shader = shader.workgroup([units, 1, 1]);
        let shader = shader
            .define("REAL", real.value())
            .define("GATES", gates)
            .define("SHARED", if backward { "Gates" } else { "real" })
            .define("ROWS", rows.to_string())
            .define("SAVED", mode.saved().to_string())
            .define("SLOTS", mode.slots().to_string())
            .define("PHASES", mode.phases().to_string())
            .define("RESET", reset.to_string())
            .define("LENGTH", if lengths { "u32(load_lengths(sequence))" } else { "p.total" })
            .body(include_str!("../../../../shaders/rnn/sequence.wgsl"));
        let shader = if backward { variant.retreat(shader) } else { variant.advance(shader) };
        shader.define("T", real.value())
    }
}

impl StepsVariant {
    /// The text of the steps forward.
    fn advance(self, shader: Shader) -> Shader {
        let finish = match self.mode {
            Mode::Lstm => include_str!("../../../../shaders/rnn/forward_lstm.wgsl"),
            Mode::Gru => include_str!("../../../../shaders/rnn/forward_gru.wgsl"),
            Mode::GruResetBefore => {
                include_str!("../../../../shaders/rnn/forward_gru_reset_before.wgsl")
            }
            _ => include_str!("../../../../shaders/rnn/forward_plain.wgsl"),
        };
        let (load, first_phase) = match self.mode.phases() {
            1 => ("output_before(sequence, step, other)", ""),
            _ => (
                "summed(sequence, step, phase, other)",
                "if phase == 0u {\n        return reset(sequence, step, unit, row, sums, \
                 before);\n    }",
            ),
        };
        let last_cell = match self.mode.has_cells() {
            true => {
                "store_last(state_of(sequence, unit) + p.cell_part, cell_before(sequence, step + \
                 1u, unit));"
            }
            false => "",
        };
        let finish_row = "finish(first_sequence + {i}u, step, phase, unit, sums{i})";
        let declare = self.each_row("var sums{i} = Gates();");
        let end = self.each_sequence(&format!("{SHARED} = {finish_row};"));
        shader
            .define("FINISH", finish)
            .define(
                "ACTIVATION",
                match self.mode {
                    Mode::Relu => "max(x, real(0.0))",
                    Mode::Linear => "x",
                    Mode::Sigmoid => "sigmoid_{{T}}(x)",
                    _ => "tanh_{{T}}(x)",
                },
            )
            .define("LAST_CELL", last_cell)
            .define("FIRST_PHASE", first_phase)
            .define("BEGIN", "")
            .define("STEP", "(p.first + done) / PHASES")
            .define("PHASE", "(p.first + done) % PHASES")
            .define("LOAD", load)
            .define("NOTHING", "real(0.0)")
            .define("KEEP", "")
            .define("DECLARE", declare)
            .define("SUM", self.sums("sums{i} += {value} * {w};"))
            .define("FINISH_ROWS", end)
            .body(include_str!("../../../../shaders/rnn/forward.wgsl"))
            .body(include_str!("../../../../shaders/rnn/steps.wgsl"))
    }

    /// The text of the steps backward.
    fn retreat(self, shader: Shader) -> Shader {
        let retreat = match self.mode {
            Mode::Lstm => include_str!("../../../../shaders/rnn/backward_lstm.wgsl"),
            Mode::Gru => include_str!("../../../../shaders/rnn/backward_gru.wgsl"),
            Mode::GruResetBefore => {
                include_str!("../../../../shaders/rnn/backward_gru_reset_before.wgsl")
            }
            _ => include_str!("../../../../shaders/rnn/backward_plain.wgsl"),
        };
        let (load, second_phase) = match self.mode.phases() {
            1 => ("gates_grad(sequence, step, other)", ""),
            _ => (
                "summed(sequence, step, phase, other)",
                "if phase == 1u {\n        return reset_grad(sequence, step, unit, row, sum, \
                 carry);\n    }",
            ),
        };
        let (load_grads, store_grads, product) = match self.mode.lanes() {
            1 => ("load_grads(at)", "store_grads(at, value);", "a * b"),
            // The text of the first phase; see the text of the second one.
            2 => (
                "Gates(load_grads(at), load_grads(at + p.units))",
                "store_grads(at + 2u * p.units, value.x);\n    store_grads(at + UPDATE * p.units, \
                 value.y);",
                "a.x * b.x + a.y * b.y",
            ),
            _ => (
                "Gates(load_grads(at), load_grads(at + p.units), load_grads(at + 2u * p.units), \
                 load_grads(at + 3u * p.units))",
                "store_grads(at, value.x);\n    store_grads(at + p.units, value.y);\n    \
                 store_grads(at + 2u * p.units, value.z);\n    store_grads(at + 3u * p.units, \
                 value.w);",
                "a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w",
            ),
        };
        let (load_carry, store_carry) = match self.mode.has_cells() {
            true => (
                "vec2<real>(load_d_state(at), load_d_state(at + p.cell_part))",
                "store_d_state(at + p.cell_part, carry.y);",
            ),
            false => ("vec2<real>(load_d_state(at), real(0.0))", ""),
        };
        let carry = self.each_row("var carry{i} = load_carry(first_sequence + {i}u, unit);");
        let declare = self.each_row("var sum{i} = real(0.0);");
        let finish_row = "finish(first_sequence + {i}u, step, phase, unit, sum{i}, &carry{i})";
        let end = self.each_sequence(&format!("{SHARED} = {finish_row};"));
        let keep = self.each_sequence("store_carry(first_sequence + {i}u, unit, carry{i});");
        shader
            .define("RETREAT", retreat)
            .define(
                "SLOPE",
                match self.mode {
                    Mode::Relu => "select(real(0.0), dy, y > real(0.0))",
                    Mode::Linear => "dy",
                    Mode::Sigmoid => "dy * y * (real(1.0) - y)",
                    _ => "dy * (real(1.0) - y * y)",
                },
            )
            .define("LOAD_GRADS", load_grads)
            .define("STORE_GRADS", store_grads)
            .define("PRODUCT", product)
            .define("LOAD_CARRY", load_carry)
            .define("STORE_CARRY", store_carry)
            .define("BEGIN", carry)
            .define("SECOND_PHASE", second_phase)
            .define("STEP", "(p.first - done + PHASES - 1u) / PHASES")
            .define("PHASE", "(p.first - done) % PHASES")
            .define("LOAD", load)
            .define("NOTHING", "Gates()")
            .define("DECLARE", declare)
            .define("SUM", self.sums("sum{i} += product({value}, {w});"))
            .define("FINISH_ROWS", end)
            .define("KEEP", keep)
            .body(include_str!("../../../../shaders/rnn/backward.wgsl"))
            .body(include_str!("../../../../shaders/rnn/steps.wgsl"))
    }

    /// The sums over `others` other units; `add` adds {value} times {w} to the sum of sequence {i}.
    fn sums(self, add: &str) -> String {
        let load = "shared_values[{i}u * UNITS + {k}]";
        let ahead = if self.real == DType::F64 { AHEAD_F64 } else { AHEAD };
        let (weights, sums): (Vec<String>, Vec<String>) = (0..ahead)
            .map(|j| {
                let k = format!("k + {j}u");
                let add = add.replace("{value}", &load.replace("{k}", &k));
                let add = self.each_row(&add.replace("{w}", &format!("w{j}")));
                (format!("let w{j} = weights[weights_at + ({k}) * p.units + unit];"), add)
            })
            .unzip();
        let add = add.replace("{value}", &load.replace("{k}", "k")).replace("{w}", "w");
        SUMS.replace("{ahead}", &ahead.to_string())
            .replace("{weights}", &weights.join("\n            "))
            .replace("{sums}", &sums.join("\n            "))
            .replace("{add}", &self.each_row(&add))
    }

    /// A statement for each existing sequence of an invocation.
    fn each_sequence(self, statement: &str) -> String {
        self.each_row(&format!(
            "if first_sequence + {{i}}u < p.sequences_end {{\n    {statement}\n}}"
        ))
    }

    /// A line for each sequence of an invocation.
    fn each_row(self, line: &str) -> String {
        let rows: Vec<String> =
            (0..self.rows).map(|i| line.replace("{i}", &i.to_string())).collect();
        rows.join("\n        ")
    }
}

/// Where an invocation leaves the value of its unit and sequence {i} for other invocations.
const SHARED: &str = "shared_values[{i}u * UNITS + local_index]";
/// The sums over other units. Loads of several weights are under way at once: with one at a time,
/// an invocation would wait for memory before the products of each.
const SUMS: &str = "if unit < p.units {
        let whole = others / {ahead}u * {ahead}u;
        for (var k = 0u; k < whole; k += {ahead}u) {
            {weights}
            {sums}
        }
        for (var k = whole; k < others; k += 1u) {
            let w = weights[weights_at + k * p.units + unit];
            {add}
        }
    }";

/// The type of a unit's gates in a phase.
pub const fn gates_type(mode: Mode, real: DType) -> &'static str {
    match (mode.lanes(), real) {
        (1, DType::F64) => "f64",
        (1, _) => "f32",
        (2, DType::F64) => "vec2<f64>",
        (2, _) => "vec2<f32>",
        (_, DType::F64) => "vec4<f64>",
        _ => "vec4<f32>",
    }
}

/// Every variant, except for forms that differ from others in more than one way.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    let resets = |mode| match mode {
        Mode::Gru => 0..2,
        Mode::GruResetBefore => 1..2,
        _ => 0..1,
    };
    for (mode, reset) in Mode::ALL.into_iter().flat_map(|m| resets(m).map(move |r| (m, r))) {
        for (backward, real) in
            [false, true].into_iter().flat_map(|b| [DType::F32, DType::F64].map(|t| (b, t)))
        {
            let of = |units, rows, lengths| StepsVariant {
                backward,
                mode,
                reset,
                real,
                lengths,
                units,
                rows,
            };
            for units in [32, 64, 128, 256] {
                all.extend([1, 2, 4, 8].map(|rows| of(units, rows, false)));
            }
            all.push(of(64, 2, true));
        }
    }
    all.into_iter().filter(StepsVariant::is_valid).map(StepsProgram::shader).collect()
}
