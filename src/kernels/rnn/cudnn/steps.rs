//! The steps of a pseudo-layer, forward and backward: what they bind, how many one dispatch takes,
//! and which invocation does what.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::model::Mode;
use super::software;
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::windows::{limit, part, ranges, too_large};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The most units whose steps one dispatch takes: a workgroup has an invocation for each. Beyond,
/// the weights that each workgroup reads again in each step would cost more than a dispatch does.
const WHOLE: usize = WORKGROUP as usize;
/// Units of a workgroup where they are cut, and so the outputs before that it holds at a time.
const SLICE: u32 = 64;
/// Workgroup memory that every adapter has.
const WORKGROUP_BYTES: usize = 16 << 10;
/// The most sequences of a workgroup: their sums fill half of the registers.
const MOST_ROWS: u32 = 8;
/// The same in float64: with four Intel's compiler spills 80 registers.
const MOST_ROWS_F64: u32 = 2;
/// The most steps of a dispatch, so that none takes seconds.
const MOST_STEPS: usize = 512;

/// How a pseudo-layer lies in its tensors, whose rows are those of all steps and sequences. Extents
/// and strides are in elements.
#[derive(Debug, Clone)]
pub struct Walk<'a> {
    /// The layer's kind.
    pub mode: Mode,
    /// Steps of the longest sequence.
    pub steps: usize,
    /// Sequences.
    pub batch: usize,
    /// Units.
    pub units: usize,
    /// Whether sequences are walked from their last step to their first.
    pub reversed: bool,
    /// Rows between the steps of a sequence, and between sequences.
    pub rows: [usize; 2],
    /// Elements of a row of the outputs, and where those of this direction begin.
    pub y: [usize; 2],
    /// Where the first sequence's outputs before the first step are in the state, and how far apart
    /// those of sequences are.
    pub state: [usize; 2],
    /// How far behind them the cells are.
    pub cell_part: usize,
    /// Steps of each sequence, if they differ.
    pub lengths: Option<&'a Tensor>,
}

/// What the steps forward bind.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Of each row and gate, what the input adds; then what the gradient needs, and of an LSTM the
    /// cell behind it. [`Mode::saved`] numbers for each unit of a row.
    pub gates: &'a Tensor,
    /// The recurrent weights and the biases, packed.
    pub weights: &'a Tensor,
    /// States before the first step.
    pub state: &'a Tensor,
    /// Outputs of all steps.
    pub y: &'a Tensor,
    /// States after the last step.
    pub last: &'a Tensor,
}

/// What the steps backward bind.
#[derive(Debug)]
pub struct Backward<'a> {
    /// What the steps forward left in `gates`; of an LSTM or a GRU.
    pub saved: Option<&'a Tensor>,
    /// The recurrent weights, packed and turned.
    pub weights: &'a Tensor,
    /// States before the first step.
    pub state: &'a Tensor,
    /// Outputs of all steps.
    pub y: &'a Tensor,
    /// Their gradients.
    pub dy: &'a Tensor,
    /// Gradients of the states after the last step, then of those before the first.
    pub d_state: &'a Tensor,
    /// For the gradients of the gates of each row, and behind them the outputs before it:
    /// [`Mode::slots`] and one number for each unit of a row.
    pub grads: &'a Tensor,
}

/// What a dispatch binds: all of a tensor, or some rows, which have so many elements.
#[derive(Debug, Clone, Copy)]
enum Bound<'a> {
    Whole(Binding),
    Rows(&'a Tensor, usize),
}

/// All that the text depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    backward: bool,
    mode: Mode,
    real: DType,
    lengths: bool,
    /// Invocations of a workgroup, one for each unit.
    units: u32,
    /// Sequences of a workgroup, all of which each invocation has.
    rows: u32,
    /// Whether the text is that of [`software`].
    software: bool,
}

impl Walk<'_> {
    /// Enqueues all steps forward.
    pub fn forward(&self, device: &Device, tensors: &Forward<'_>) -> Result<()> {
        let variant = self.variant(&device.profile(), false, tensors.gates.dtype);
        let Forward { gates, weights, state, y, last } = *tensors;
        let bounds: [Bound<'_>; 5] = [
            Bound::Rows(gates, self.mode.saved() * self.units),
            Bound::Whole(Binding::raw(weights, variant.gates_size())),
            Bound::Whole(state.into()),
            Bound::Rows(y, self.y[0]),
            Bound::Whole(last.into()),
        ];
        self.enqueue(device, variant, &bounds)
    }

    /// Enqueues all steps backward.
    pub fn backward(&self, device: &Device, tensors: &Backward<'_>) -> Result<()> {
        let variant = self.variant(&device.profile(), true, tensors.grads.dtype);
        let Backward { saved, weights, state, y, dy, d_state, grads } = *tensors;
        let mut bounds: SmallVec<[Bound<'_>; 8]> = smallvec![
            Bound::Whole(Binding::raw(weights, variant.gates_size())),
            Bound::Whole(state.into()),
            Bound::Rows(y, self.y[0]),
            Bound::Rows(dy, self.y[0]),
            Bound::Whole(d_state.into()),
            Bound::Rows(grads, (self.mode.slots() + 1) * self.units),
        ];
        bounds.extend(saved.map(|saved| Bound::Rows(saved, self.mode.saved() * self.units)));
        self.enqueue(device, variant, &bounds)
    }

    /// All steps of all sequences, in as few dispatches as the variant and the adapter's bindings
    /// allow. Backward there is one more, which ends with the state's gradients.
    fn enqueue(&self, device: &Device, variant: Variant, bounds: &[Bound<'_>]) -> Result<()> {
        let slices = self.units.div_ceil(variant.units as usize);
        let (sequences, fitting) = self.windows(device, bounds)?;
        let most = match slices {
            1 => self.steps_of_a_dispatch(&device.profile(), variant).min(fitting),
            _ => 1,
        };
        let steps = self.steps + usize::from(variant.backward);
        for (first_sequence, count) in ranges(self.batch, sequences) {
            let whole = sequences == self.batch && fitting >= self.steps;
            for (done, steps_now) in ranges(steps, most) {
                // Steps are counted from the last one backward.
                let first = if variant.backward { steps - 1 - done } else { done };
                let rows = if whole {
                    0..self.steps * self.batch
                } else {
                    // The state before a step comes from the rows of the one before.
                    let seen = if variant.backward {
                        first.saturating_sub(steps_now + 1)..(first + 1).min(self.steps)
                    } else {
                        first.saturating_sub(1)..first + steps_now
                    };
                    self.rows_of(&seen, first_sequence, count)
                };
                let tiles = count.div_ceil(variant.rows as usize);
                // The state times the weights of the gates, beside which gates are few.
                let products = self.mode.gates() * self.units * self.units * steps_now * count;
                let bindings = bounds.iter().map(|bound| bound.binding(&rows));
                device.enqueue_counted(
                    &Program {
                        key: variant.key(),
                        shader: &|| variant.shader(),
                        bindings: bindings.chain(self.lengths.map(Binding::from)).collect(),
                        params: Params::new()
                            .u32(self.units)
                            .u32(self.steps)
                            .u32(first)
                            .u32(steps_now)
                            .u32(first_sequence)
                            .u32(first_sequence + count)
                            .u32(rows.start)
                            .u32(u32::from(self.reversed))
                            .u32(self.rows[0])
                            .u32(self.rows[1])
                            .u32(self.y[0])
                            .u32(self.y[1])
                            .u32(self.state[0])
                            .u32(self.state[1])
                            .u32(self.cell_part)
                            .u32(tiles)
                            .u32(slices),
                        grid: Grid::groups(tiles * slices),
                    },
                    variant.real.product_flops(products),
                )?;
            }
        }
        Ok(())
    }

    /// The rows of some steps of some sequences, and perhaps others between them.
    fn rows_of(&self, steps: &Range<usize>, first_sequence: usize, count: usize) -> Range<usize> {
        let times = if self.reversed {
            self.steps - steps.end..self.steps - steps.start
        } else {
            steps.clone()
        };
        let [step_rows, sequence_rows] = self.rows;
        let last = first_sequence + count - 1;
        times.start * step_rows + first_sequence * sequence_rows
            ..(times.end - 1) * step_rows + last * sequence_rows + 1
    }

    /// How many sequences, and how many steps of them, a dispatch may take for its rows to fit the
    /// adapter's bindings.
    fn windows(&self, device: &Device, bounds: &[Bound<'_>]) -> Result<(usize, usize)> {
        let capabilities = device.capabilities();
        let widest = bounds.iter().map(Bound::row_bytes).max().unwrap_or_default().max(1);
        let fitting = (limit(capabilities) / widest as u64) as usize;
        if fitting >= self.steps * self.batch {
            return Ok((self.batch, usize::MAX));
        }
        let [step_rows, sequence_rows] = self.rows;
        let sequences = if step_rows == 1 { fitting / sequence_rows } else { 0 };
        if sequences > 0 {
            return Ok((sequences, usize::MAX));
        }
        // Steps are next to each other then. A dispatch sees the ones before and behind its own.
        let (sequences, steps) =
            if step_rows == 1 { (1, fitting) } else { (self.batch, fitting / step_rows) };
        // Where a sequence has ended before, its state is in rows that are not near.
        match steps {
            3.. if self.lengths.is_none() => Ok((sequences, steps - 2)),
            _ => Err(too_large(capabilities, "a step of a recurrent layer")),
        }
    }

    /// Steps that stay within the adapter's limit of iterations.
    fn steps_of_a_dispatch(&self, profile: &Profile, variant: Variant) -> usize {
        // Those of the sums, one of the steps, and a few of the functions that bend them.
        let each = self.units + 8 * variant.rows as usize;
        let loaded = variant.rows as usize * variant.units as usize;
        ((profile.loop_limit.saturating_sub(loaded)) / each).clamp(1, MOST_STEPS)
    }

    /// As many sequences for a workgroup as leave enough workgroups: each weight that an invocation
    /// loads is used for all of them.
    fn variant(&self, profile: &Profile, backward: bool, real: DType) -> Variant {
        let units = match self.units {
            n if n <= WHOLE => (n.next_power_of_two() as u32).max(32),
            _ => SLICE,
        };
        let software = software::is_for(profile, real);
        let variant = |rows| Variant {
            backward,
            mode: self.mode,
            real,
            lengths: self.lengths.is_some(),
            units,
            rows,
            software,
        };
        // A workgroup loads all weights of its units in each step, which takes its processor longer
        // than the sums do. A second workgroup there would load them again. So one for each
        // processor is enough: a quarter of the workgroups that other kernels need.
        let busy = if software { software::busy(self.batch) } else { profile.workgroups / 4 };
        let slices = self.units.div_ceil(units as usize);
        let enough = |v: &Variant| self.batch.div_ceil(v.rows as usize) * slices >= busy;
        let mut all = [16, 8, 4, 2, 1].map(variant).into_iter().filter(Variant::is_valid);
        all.clone().find(enough).or(all.next_back()).expect("one row is always valid")
    }
}

impl Bound<'_> {
    /// Bytes of a row.
    const fn row_bytes(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::Rows(tensor, width) => *width * tensor.dtype.size(),
        }
    }

    fn binding(&self, rows: &Range<usize>) -> Binding {
        match self {
            Self::Whole(binding) => *binding,
            Self::Rows(tensor, width) => {
                Binding::from(&part(tensor, rows.start * width, rows.len() * width))
            }
        }
    }
}

impl Variant {
    /// Whether what it shares fits into the workgroup's memory.
    fn is_valid(&self) -> bool {
        let shared = if self.backward { self.mode.slots() } else { 1 };
        let bytes = (self.rows * self.units) as usize * shared * self.real.size();
        let most = match (self.software, self.real) {
            (true, _) => software::MOST_ROWS,
            (false, DType::F64) => MOST_ROWS_F64,
            (false, _) => MOST_ROWS,
        };
        self.rows <= most && bytes <= WORKGROUP_BYTES
    }

    /// Bytes of a unit's gates.
    const fn gates_size(&self) -> u32 {
        (self.mode.slots() * self.real.size()) as u32
    }

    fn key(&self) -> Key {
        Key::new("rnn steps")
            .name(self.mode.name())
            .dtype(self.real)
            .number(u32::from(self.backward) + 2 * u32::from(self.lengths))
            .number(self.units)
            .number(self.rows)
            .number(u32::from(self.software))
    }

    fn shader(self) -> Shader {
        let Self { backward, mode, real, lengths, units, rows, software } = self;
        let way = if backward { "backward" } else { "forward" };
        let label = format!("{} {real} {way}, {rows} rows of {units} units", mode.name());
        let gates = gates_type(mode, real);
        let shader = Shader::new(label);
        let raw = |shader: Shader| shader.bind_raw("weights", gates, self.gates_size());
        let shader = if backward {
            let names = ["state", "y", "dy", "d_state", "grads"];
            let shader = names.iter().fold(raw(shader), |s, name| s.bind(name, real));
            if mode.slots() == 1 { shader } else { shader.bind("saved", real) }
        } else {
            let names = ["state", "y", "last"];
            names.iter().fold(raw(shader.bind("gates", real)), |s, n| s.bind(n, real))
        };
        let shader = if lengths { shader.bind("lengths", DType::I32) } else { shader };
        let shader = shader
            .u32s(&["units", "total", "first", "steps", "first_sequence", "sequences_end"])
            .u32s(&["first_row", "reversed", "step_rows", "sequence_rows", "y_width", "y_at"])
            .u32s(&["state_at", "state_stride", "cell_part", "tiles", "slices"]);
        let shader = shader.workgroup([units, 1, 1]);
        let shader = if software { software::marked(shader) } else { shader };
        let shader = shader
            .library(if real == DType::F64 { "exp_f64" } else { "exp" })
            .library(if real == DType::F64 { "hyperbolic_f64" } else { "hyperbolic" })
            .define("REAL", real.value())
            .define("GATES", gates)
            .define("SHARED", if backward { "Gates" } else { "real" })
            .define("ROWS", rows.to_string())
            .define("SAVED", mode.saved().to_string())
            .define("SLOTS", mode.slots().to_string())
            .define("LENGTH", if lengths { "u32(load_lengths(sequence))" } else { "p.total" })
            .body(include_str!("../../../../shaders/rnn/sequence.wgsl"));
        let shader = if backward { self.retreat(shader) } else { self.advance(shader) };
        shader.define("T", real.value())
    }

    /// The text of the steps forward.
    fn advance(self, shader: Shader) -> Shader {
        let finish = match self.mode {
            Mode::Lstm => include_str!("../../../../shaders/rnn/forward_lstm.wgsl"),
            Mode::Gru => include_str!("../../../../shaders/rnn/forward_gru.wgsl"),
            Mode::Relu | Mode::Tanh => include_str!("../../../../shaders/rnn/forward_plain.wgsl"),
        };
        let last_cell = match self.mode.has_cells() {
            true => {
                "store_last(state_of(sequence, unit) + p.cell_part, cell_before(sequence, step + \
                 1u, unit));"
            }
            false => "",
        };
        let finish_row = "finish(first_sequence + {i}u, step, unit, sums{i})";
        let declare = self.each_row("var sums{i} = Gates();");
        let end = self.each_sequence(&format!("{SHARED} = {finish_row};"));
        shader
            .define("FINISH", finish)
            .define(
                "ACTIVATION",
                match self.mode {
                    Mode::Relu => "max(x, real(0.0))",
                    _ => "tanh_{{T}}(x)",
                },
            )
            .define("LAST_CELL", last_cell)
            .define("BEGIN", "")
            .define("STEP", "p.first + done")
            .define("LOAD", "output_before")
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
            Mode::Relu | Mode::Tanh => include_str!("../../../../shaders/rnn/backward_plain.wgsl"),
        };
        let (load, store, product) = match self.mode.slots() {
            1 => ("load_grads(at)", "store_grads(at, value);", "a * b"),
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
        let finish_row = "finish(first_sequence + {i}u, step, unit, sum{i}, &carry{i})";
        let end = self.each_sequence(&format!("{SHARED} = {finish_row};"));
        let keep = self.each_sequence("store_carry(first_sequence + {i}u, unit, carry{i});");
        shader
            .define("RETREAT", retreat)
            .define(
                "SLOPE",
                match self.mode {
                    Mode::Relu => "select(real(0.0), dy, y > real(0.0))",
                    _ => "dy * (real(1.0) - y * y)",
                },
            )
            .define("LOAD_GRADS", load)
            .define("STORE_GRADS", store)
            .define("PRODUCT", product)
            .define("LOAD_CARRY", load_carry)
            .define("STORE_CARRY", store_carry)
            .define("BEGIN", carry)
            .define("STEP", "p.first - done")
            .define("LOAD", "gates_grad")
            .define("NOTHING", "Gates()")
            .define("DECLARE", declare)
            .define("SUM", self.sums("sum{i} += product({value}, {w});"))
            .define("FINISH_ROWS", end)
            .define("KEEP", keep)
            .body(include_str!("../../../../shaders/rnn/backward.wgsl"))
            .body(include_str!("../../../../shaders/rnn/steps.wgsl"))
    }

    /// The sums over `others` other units, of which `add` adds {value} times {w} to that of
    /// sequence {i}.
    fn sums(self, add: &str) -> String {
        let load = "shared_values[{i}u * UNITS + {k}]";
        if self.software {
            return software::sums(self.rows, load, add);
        }
        let add = add.replace("{value}", &load.replace("{k}", "k")).replace("{w}", "w");
        SUMS.replace("{add}", &self.each_row(&add))
    }

    /// A statement for each sequence of an invocation that there is.
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

/// Where an invocation leaves what others need of its unit and sequence {i}.
const SHARED: &str = "shared_values[{i}u * UNITS + local_index]";
/// The sums over other units.
const SUMS: &str = "if unit < p.units {
        for (var k = 0u; k < others; k += 1u) {
            let w = weights[p.off_weights + (chunk + k) * p.units + unit];
            {add}
        }
    }";

/// The type of a unit's gates.
pub const fn gates_type(mode: Mode, real: DType) -> &'static str {
    match (mode.slots(), real) {
        (1, DType::F64) => "f64",
        (1, _) => "f32",
        (_, DType::F64) => "vec4<f64>",
        _ => "vec4<f32>",
    }
}

/// Every variant, but for forms that differ from others in more ways than one.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for mode in Mode::ALL {
        for (backward, real) in
            [false, true].into_iter().flat_map(|b| [DType::F32, DType::F64].map(|t| (b, t)))
        {
            let of = |units, rows, lengths, software| Variant {
                backward,
                mode,
                real,
                lengths,
                units,
                rows,
                software,
            };
            for units in [32, 64, 128, 256] {
                all.extend([1, 2, 4, 8].map(|rows| of(units, rows, false, false)));
            }
            all.push(of(64, 2, true, false));
            if real == DType::F32 {
                all.extend([1, 2, 4, 8, 16].map(|rows| of(128, rows, false, true)));
                all.push(of(64, 2, true, true));
            }
        }
    }
    all.into_iter().filter(Variant::is_valid).map(Variant::shader).collect()
}
