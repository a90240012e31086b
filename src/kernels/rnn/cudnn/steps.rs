//! The steps of a pseudo-layer, forward and backward: what they bind, how many one dispatch takes,
//! and which invocation does what.

use smallvec::{SmallVec, smallvec};

use super::model::Mode;
use super::software;
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType;
use crate::error::Result;
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
    /// Of each row and gate, what the input adds; then what the gradient needs.
    pub gates: &'a Tensor,
    /// The recurrent weights and the biases, packed.
    pub weights: &'a Tensor,
    /// States before the first step.
    pub state: &'a Tensor,
    /// Outputs of all steps.
    pub y: &'a Tensor,
    /// States after the last step.
    pub last: &'a Tensor,
    /// The cells of an LSTM: of all rows, or one for each sequence.
    pub cells: Option<&'a Tensor>,
    /// Whether cells of all rows are kept.
    pub keeps: bool,
}

/// What the steps backward bind.
#[derive(Debug)]
pub struct Backward<'a> {
    /// What the steps forward left in `gates`, and behind it the cells of all rows; of an LSTM or
    /// a GRU.
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
    /// For the gradients of the gates of all rows, and behind them the outputs before each.
    pub grads: &'a Tensor,
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
        let Forward { gates, weights, state, y, last, cells, keeps } = tensors;
        let mut bindings: SmallVec<[Binding; 8]> = smallvec![
            Binding::from(*gates),
            Binding::raw(weights, variant.gates_size()),
            Binding::from(*state),
            Binding::from(*y),
            Binding::from(*last),
        ];
        bindings.extend(cells.map(Binding::from));
        bindings.extend(self.lengths.map(Binding::from));
        let own = Params::new().u32(u32::from(*keeps));
        self.enqueue(device, variant, &bindings, &own, self.steps)
    }

    /// Enqueues all steps backward.
    pub fn backward(&self, device: &Device, tensors: &Backward<'_>) -> Result<()> {
        let variant = self.variant(&device.profile(), true, tensors.grads.dtype);
        let Backward { saved, weights, state, y, dy, d_state, grads } = tensors;
        let mut bindings: SmallVec<[Binding; 8]> = smallvec![
            Binding::raw(weights, variant.gates_size()),
            Binding::from(*state),
            Binding::from(*y),
            Binding::from(*dy),
            Binding::from(*d_state),
            Binding::from(*grads),
        ];
        bindings.extend(saved.map(Binding::from));
        bindings.extend(self.lengths.map(Binding::from));
        let numbers = self.steps * self.batch * self.units * self.mode.slots();
        let own = Params::new().u32(numbers).u32(numbers);
        self.enqueue(device, variant, &bindings, &own, self.steps + 1)
    }

    /// `steps` steps, in as few dispatches as the variant allows.
    fn enqueue(
        &self,
        device: &Device,
        variant: Variant,
        bindings: &SmallVec<[Binding; 8]>,
        own: &Params,
        steps: usize,
    ) -> Result<()> {
        let tiles = self.batch.div_ceil(variant.rows as usize);
        let slices = self.units.div_ceil(variant.units as usize);
        let most = match slices {
            1 => self.steps_of_a_dispatch(&device.profile(), variant),
            _ => 1,
        };
        for first in (0..steps).step_by(most) {
            let count = most.min(steps - first);
            let mut params = Params::new()
                .u32(self.units)
                .u32(self.batch)
                .u32(self.steps)
                .u32(if variant.backward { steps - 1 - first } else { first })
                .u32(count)
                .u32(u32::from(self.reversed))
                .u32(self.rows[0])
                .u32(self.rows[1])
                .u32(self.y[0])
                .u32(self.y[1])
                .u32(self.state[0])
                .u32(self.state[1])
                .u32(self.cell_part)
                .u32(tiles)
                .u32(slices);
            params.scalars.extend_from_slice(&own.scalars);
            device.enqueue(&Program {
                key: variant.key(),
                shader: &|| variant.shader(),
                bindings: bindings.clone(),
                params,
                grid: Grid::groups(tiles * slices),
            })?;
        }
        Ok(())
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
        // Every workgroup loads all weights of its units in every step, which takes its processor
        // longer than the sums do. So one for each processor is enough, a quarter of what others
        // need, who hide their loads behind each other.
        let busy = if software { software::busy(self.batch) } else { profile.workgroups / 4 };
        let slices = self.units.div_ceil(units as usize);
        let enough = |v: &Variant| self.batch.div_ceil(v.rows as usize) * slices >= busy;
        let all = [16, 8, 4, 2, 1].map(variant).into_iter().filter(Variant::is_valid);
        all.clone().find(enough).or(all.last()).expect("one row is always valid")
    }
}

impl Variant {
    /// Whether what it shares fits into the workgroup's memory.
    fn is_valid(&self) -> bool {
        let shared = if self.backward { self.mode.slots() } else { 1 };
        let bytes = (self.rows * self.units) as usize * shared * self.real.size();
        let most = if self.software { software::MOST_ROWS } else { MOST_ROWS };
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
            let shader = names.iter().fold(raw(shader.bind("gates", real)), |s, n| s.bind(n, real));
            if mode.has_cells() { shader.bind("cells", real) } else { shader }
        };
        let shader = if lengths { shader.bind("lengths", DType::I32) } else { shader };
        let shader = shader
            .u32s(&["units", "batch", "total", "first", "steps", "reversed", "step_rows"])
            .u32s(&["sequence_rows", "y_width", "y_at", "state_at", "state_stride", "cell_part"])
            .u32s(&["tiles", "slices"]);
        let shader = if backward {
            shader.u32s(&["cells_at", "before_at"])
        } else {
            shader.u32s(&["keeps"])
        };
        let shader = shader.workgroup([units, 1, 1]);
        let shader = if software { software::marked(shader) } else { shader };
        let shader = shader
            .library(if real == DType::F64 { "exp_f64" } else { "exp" })
            .library(if real == DType::F64 { "hyperbolic_f64" } else { "hyperbolic" })
            .define("REAL", real.value())
            .define("GATES", gates)
            .define("SHARED", if backward { "Gates" } else { "real" })
            .define("ROWS", rows.to_string())
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
        let [declare, end] = [
            "var sums{i} = Gates();",
            "if first_sequence + {i}u < p.batch {\n                shared_values[{i}u * UNITS + \
             local_index] =\n                    finish(first_sequence + {i}u, step, unit, \
             sums{i});\n            }",
        ]
        .map(|line| self.each_row(line));
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
            .define("DECLARE", declare)
            .define("SUM", self.sums("sums{i} += {value} * {w};"))
            .define("END", end)
            .body(include_str!("../../../../shaders/rnn/forward.wgsl"))
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
        let [carry, declare, end, keep] = [
            "var carry{i} = load_carry(first_sequence + {i}u, unit);",
            "var sum{i} = real(0.0);",
            "if first_sequence + {i}u < p.batch {\n                shared_values[{i}u * UNITS + \
             local_index] =\n                    finish(first_sequence + {i}u, at, unit, sum{i}, \
             &carry{i});\n            }",
            "if first_sequence + {i}u < p.batch {\n            store_carry(first_sequence + \
             {i}u, unit, carry{i});\n        }",
        ]
        .map(|line| self.each_row(line));
        shader
            .define("RETREAT", retreat)
            .define(
                "SLOPE",
                match self.mode {
                    Mode::Relu => "select(real(0.0), dy, y > real(0.0))",
                    _ => "dy * (real(1.0) - y * y)",
                },
            )
            .define("SLOTS", self.mode.slots().to_string())
            .define("LOAD_GRADS", load)
            .define("STORE_GRADS", store)
            .define("PRODUCT", product)
            .define("LOAD_CARRY", load_carry)
            .define("STORE_CARRY", store_carry)
            .define("CARRY", carry)
            .define("DECLARE", declare)
            .define("SUM", self.sums("sum{i} += product({value}, {w});"))
            .define("END", end)
            .define("KEEP", keep)
            .body(include_str!("../../../../shaders/rnn/backward.wgsl"))
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

    /// A line for each sequence of an invocation.
    fn each_row(self, line: &str) -> String {
        let rows: Vec<String> =
            (0..self.rows).map(|i| line.replace("{i}", &i.to_string())).collect();
        rows.join("\n        ")
    }
}

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
