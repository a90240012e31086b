//! The text of a step. It reads elements of the expression or states of an earlier step, and writes
//! states or outputs.

use super::epilogue::BoundPart;
use super::plan::Step;
use super::states::States;
use crate::device::{Binding, Device, Key};
use crate::kernels::expression::Expression;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::layout::AccessClass;
use crate::shader::{Field, Shader, vec4};
use crate::tensor::Tensor;

/// Names of the inputs' bindings.
const INPUTS: [&str; 8] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];
/// Their strides along the reduced group.
const STEPS: [&str; 8] =
    ["x0_step", "x1_step", "x2_step", "x3_step", "x4_step", "x5_step", "x6_step", "x7_step"];

/// The most inputs of a pass that every adapter can run: together with the states, seven of eight
/// bindings.
pub const MAX_INPUTS: usize = 6;
/// The most inputs of a node. Its reductions are spread over several passes where the adapter has
/// too few bindings.
pub const MOST_INPUTS: usize = INPUTS.len();
/// The most storage buffers of a program.
pub const MAX_BINDINGS: usize = 8;
/// The most numbers in a state: a workgroup's states must fit 16 KiB, in 64 bits each.
pub const MAX_PLANES: usize = 8;

/// The source of an invocation's values.
#[derive(Debug, Clone, Copy)]
pub enum Reads<'a> {
    /// The values of an expression, its text, and the accesses by which its inputs are read.
    Elements(&'a Expression, &'a str, &'a AccessClass),
    /// States.
    States,
}

/// The vec4s that a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vec4s {
    /// Single elements.
    None,
    /// The reduced group is innermost: the four elements of a vec4 become one. These inputs have
    /// vec4s, one bit for each; the others have one element for a whole run.
    Rows(u32),
    /// The four elements belong to four neighbouring segments, which one invocation computes, and
    /// which are written as a vec4. The inputs without a bit have one element for all four.
    Columns(u32),
}

impl Vec4s {
    /// Whether input `k` is read in vec4s.
    pub const fn has(self, k: usize) -> bool {
        match self {
            Self::None => false,
            Self::Rows(inputs) | Self::Columns(inputs) => inputs >> k & 1 != 0,
        }
    }

    /// Whether states and outputs are written in vec4s.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Columns(_))
    }

    /// The step's extents in vec4s.
    pub const fn step(self, step: &Step) -> Step {
        match self {
            Self::None => *step,
            Self::Rows(_) => Step { extent: step.extent / 4, ..*step },
            Self::Columns(_) => Step { inner: step.inner / 4, ..*step },
        }
    }
}

/// The properties that a step's text depends on.
#[derive(Debug, Clone, Copy)]
pub struct StepProgram<'a> {
    /// The reductions.
    pub states: &'a States,
    /// The source of its values.
    pub reads: Reads<'a>,
    /// The outputs that it writes; without them it writes states.
    pub finish: Option<BoundPart<'a>>,
    /// The vec4s that it reads.
    pub vec4s: Vec4s,
    /// Invocations for each segment.
    pub lanes: u32,
    /// Whether neighbouring elements belong to neighbouring segments.
    pub columns: bool,
    /// Invocations in a workgroup.
    pub workgroup: u32,
}

impl StepProgram<'_> {
    /// Its key.
    pub fn key(&self) -> Key {
        let vec4s = match self.vec4s {
            Vec4s::None => 0,
            Vec4s::Rows(inputs) => inputs << 1,
            Vec4s::Columns(inputs) => inputs << 1 | 1,
        };
        let key = Key::new("reduce")
            .name(self.states.text())
            .number(u32::from(self.finish.is_some()))
            .number(vec4s)
            .number(self.lanes)
            .number(u32::from(self.columns))
            .number(self.workgroup);
        let key = self.finish.iter().fold(key, |key, part| part.key(key));
        match self.reads {
            Reads::Elements(_, text, class) => class.key(key.name(text)),
            Reads::States => key,
        }
    }

    /// States that one invocation computes: the outputs in a stored unit. A vec4 counts as one.
    pub fn unit(&self) -> u32 {
        if self.vec4s.writes() { 1 } else { self.finish.map_or(1, |finish| finish.part.unit()) }
    }

    /// The text.
    pub fn shader(&self) -> Shader {
        let (states, writes) = (self.states, self.vec4s.writes());
        let label = format!("reduce {}, {} lanes, {:?}", states.text(), self.lanes, self.vec4s);
        let mut shader = Shader::new(label)
            .workgroup([self.workgroup, 1, 1])
            .u32s(&["count", "extent", "inner", "segments", "total"]);
        for (name, _) in states.parameters() {
            shader = shader.param(name, Field::U32);
        }
        let values = match self.reads {
            Reads::Elements(expression, ..) => {
                Some(("fused", expression, Ends { sums: 0, sink: Sink::Reduction }))
            }
            Reads::States => None,
        };
        let functions: Vec<(&str, &Expression, Ends)> =
            self.finish.iter().map(|part| part.named()).chain(values).collect();
        let function = Expression::wgsl_all(&functions);
        shader = match self.reads {
            Reads::Elements(expression, _, class) => {
                self.elements(shader, &function.text, expression, class)
            }
            Reads::States => self.earlier(shader, &function.text),
        };
        shader = match self.finish {
            Some(part) => part.declare(shader, states, writes),
            None => self.kept(shader),
        };
        let [value, start, merge, four] = match writes {
            true => ["Four", "identity_four()", "merge_four", "Four(a, b, c, d)"],
            false => ["State", "identity()", "merge", "merge(merge(a, b), merge(c, d))"],
        };
        let is_run = self.vec4s == Vec4s::None;
        shader = shader
            .define("STATE", states.wgsl(!is_run))
            .define("UNIT", self.unit().to_string())
            .define("PARTIAL", value)
            .define("START", start)
            .define("MERGE", merge)
            .define("FOUR", four)
            .body(match is_run {
                true => include_str!("../../../shaders/reduce_run.wgsl"),
                false => include_str!("../../../shaders/reduce_vec4s.wgsl"),
            });
        if self.lanes == 1 {
            return shader.body(include_str!("../../../shaders/reduce_threads.wgsl"));
        }
        let stride = if self.columns { self.workgroup / self.lanes } else { 1 };
        shader
            .define("LANES", self.lanes.to_string())
            .define("LANE_STRIDE", stride.to_string())
            .body(include_str!("../../../shaders/reduce_lanes.wgsl"))
    }

    /// Adds the sink of states.
    fn kept(&self, shader: Shader) -> Shader {
        let (writes, accumulator) = (self.vec4s.writes(), self.states.accumulator());
        let shader = match writes {
            true => vec4::bind_write(shader, "after", accumulator),
            false => shader.bind("after", accumulator),
        };
        shader
            .param("after_plane", Field::U32)
            .define("SINK", self.states.store(writes))
            .define("WORDS", "")
            .define("EMIT", "store_state(i, all);")
            .define("EMIT_WORDS", "")
    }

    /// Adds the states of an earlier step; `functions` are those of the epilogue.
    fn earlier(&self, shader: Shader, functions: &str) -> Shader {
        let of_vec4s = self.vec4s != Vec4s::None;
        let accumulator = self.states.accumulator();
        let shader = match of_vec4s {
            true => vec4::bind_read(shader, "before", accumulator),
            false => shader.bind("before", accumulator),
        };
        let read = |j: usize| match of_vec4s {
            true => format!("four.{}", ["a", "b", "c", "d"][j]),
            false => format!("load_state(at + {j}u * stride)"),
        };
        let cursors = "var at = (o * p.extent + e) * p.inner + k;\n    let stride = by * p.inner;";
        shader
            .param("before_plane", Field::U32)
            .define("SOURCE", format!("{functions}\n{}", self.states.load(of_vec4s)))
            .define("CURSORS", cursors)
            .define("VEC4S", "let four = load_four(at);")
            .define("READ_0", read(0))
            .define("READ_1", read(1))
            .define("READ_2", read(2))
            .define("READ_3", read(3))
            .define("ADVANCE_1", "at += stride;")
            .define("ADVANCE_4", "at += 4u * stride;")
    }

    /// Adds the inputs and their accesses; `functions` are those of the epilogue and `fused`.
    fn elements(
        &self,
        mut shader: Shader,
        functions: &str,
        expression: &Expression,
        class: &AccessClass,
    ) -> Shader {
        let inputs = expression.inputs();
        for (k, (name, dtype)) in INPUTS.into_iter().zip(inputs).enumerate() {
            shader = match self.vec4s.has(k) {
                true => vec4::bind_read(shader, name, *dtype),
                false => shader.bind(name, *dtype),
            };
        }
        for step in &STEPS[..inputs.len()] {
            shader = shader.param(*step, Field::U32);
        }
        for c in 0..expression.constants() {
            shader = shader.param(format!("c{c}"), Field::F32);
        }
        let names = &INPUTS[..inputs.len()];
        let each = |f: &dyn Fn(usize, &str) -> Option<String>| {
            names.iter().enumerate().filter_map(|(k, x)| f(k, x)).collect::<Vec<_>>()
        };
        let of_vec4s = self.vec4s != Vec4s::None;
        // The inputs without vec4s have one element for a run of rows.
        let moves = |k: usize| self.vec4s.has(k) || !matches!(self.vec4s, Vec4s::Rows(_));
        let cursors = each(&|k, x| {
            let unit = if self.vec4s.has(k) { " / 4u" } else { "" };
            Some(match moves(k) {
                true => format!(
                    "var {x}_at = index_{x}(start){unit};\n    let {x}_by = by * p.{x}_step;"
                ),
                false => format!("let {x}_value = load_{x}(index_{x}(start));"),
            })
        });
        let loads = each(&|k, x| match (self.vec4s.has(k), moves(k)) {
            (true, _) => Some(format!("let {x}_four = read_{x}({x}_at);")),
            (false, true) => Some(format!("let {x}_value = load_{x}({x}_at);")),
            (false, false) => None,
        });
        let read = |j: usize| {
            let values = each(&|k, x| {
                Some(match (of_vec4s, self.vec4s.has(k)) {
                    (false, _) => format!("load_{x}({x}_at + {j}u * {x}_by)"),
                    (true, true) => format!("{x}_four.{}", ["x", "y", "z", "w"][j]),
                    (true, false) => format!("{x}_value"),
                })
            });
            let constants = (0..expression.constants()).map(|c| format!("p.c{c}"));
            let arguments = values.into_iter().chain(constants).collect::<Vec<_>>().join(", ");
            format!("lift(fused({arguments}))")
        };
        let advance = |n: u32| {
            let moved = each(&|k, x| moves(k).then(|| format!("{x}_at += {n}u * {x}_by;")));
            moved.join("\n            ")
        };
        let start = match of_vec4s {
            true => "let start = ((o * p.extent + e) * p.inner + k) * 4u;",
            false => "let start = (o * p.extent + e) * p.inner + k;",
        };
        class
            .declare(shader, names)
            .define("SOURCE", format!("{functions}\n{}", self.states.lift("fused")))
            .define("CURSORS", format!("{start}\n    {}", cursors.join("\n    ")))
            .define("VEC4S", loads.join("\n            "))
            .define("READ_0", read(0))
            .define("READ_1", read(1))
            .define("READ_2", read(2))
            .define("READ_3", read(3))
            .define("ADVANCE_1", advance(1))
            .define("ADVANCE_4", advance(4))
    }
}

/// Input bytes that one dispatch may bind; the remaining bytes are for offsets that are rounded
/// down.
pub fn window_bytes(device: &Device) -> u64 {
    (device.capabilities().max_binding - 256).min(1 << 31)
}

/// `count` elements of `t` from element `first` on.
pub fn part(t: &Tensor, first: usize, count: usize) -> Binding {
    let size = t.dtype.size() as u64;
    Binding {
        address: t.address + first as u64 * size,
        bytes: count as u64 * size,
        unit: size as u32,
    }
}
