//! The text of a step: elements of the expression or states of an earlier step in, states or outputs out.

use crate::device::Key;
use crate::dtype::DType;
use crate::kernels::fused::expression::Expression;
use crate::layout::AccessClass;
use crate::shader::{Field, Shader};

use super::state::States;

/// Names of the inputs' bindings.
const INPUTS: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];
/// Their strides along the reduced group.
const STEPS: [&str; 6] = ["x0_step", "x1_step", "x2_step", "x3_step", "x4_step", "x5_step"];
/// Names of the outputs' bindings.
const OUTPUTS: [&str; 6] = ["y0", "y1", "y2", "y3", "y4", "y5"];

/// The most inputs, and the most outputs: with states on the other side and a parameter buffer, eight bindings.
pub const MAX_TENSORS: usize = 6;
/// The most inputs and outputs of one step that has both.
pub const MAX_TOGETHER: usize = 7;
/// The most numbers in a state: a workgroup's states must fit 16 KiB, in 64 bits each.
pub const MAX_PLANES: usize = 8;

/// What an invocation reads.
#[derive(Debug, Clone, Copy)]
pub enum Reads<'a> {
    /// The values of an expression, of which the second is the text; its inputs are read so.
    Elements(&'a Expression, &'a str, &'a AccessClass),
    /// States.
    States,
}

/// What a step's text depends on.
#[derive(Debug, Clone, Copy)]
pub struct Variant<'a> {
    /// The reductions.
    pub states: &'a States,
    /// What it reads.
    pub reads: Reads<'a>,
    /// Whether it writes outputs, not states.
    pub finish: bool,
    /// Invocations for each segment.
    pub lanes: u32,
    /// Invocations in a workgroup.
    pub workgroup: u32,
}

impl Variant<'_> {
    /// Its key.
    pub fn key(&self) -> Key {
        let key = Key::new("fused_reduce")
            .name(&self.states.text())
            .number(u32::from(self.finish))
            .number(self.lanes)
            .number(self.workgroup);
        match self.reads {
            Reads::Elements(_, text, class) => class.key(key.name(text)),
            Reads::States => key,
        }
    }

    /// States that one invocation computes: the outputs in a stored unit.
    pub fn unit(&self) -> u32 {
        if self.finish { self.states.finish().iter().map(|f| f.dtype.lanes()).max().unwrap_or(1) } else { 1 }
    }

    /// The text.
    pub fn shader(&self) -> Shader {
        let states = self.states;
        let mut shader = Shader::new(format!("reduce {}, {} lanes", states.text(), self.lanes))
            .workgroup([self.workgroup, 1, 1])
            .u32s(&["count", "extent", "inner", "segments", "total"]);
        for (name, _) in states.parameters() {
            shader = shader.param(name, Field::U32);
        }
        shader = match self.reads {
            Reads::Elements(expression, _, class) => elements(shader, states, expression, class),
            Reads::States => {
                let read = |j: u32| format!("load_state(at + {j}u * stride)");
                let advance = |n: u32| format!("at += {n}u * stride;");
                shader
                    .bind("before", states.accumulator())
                    .param("before_plane", Field::U32)
                    .define("SOURCE", states.load())
                    .define("CURSORS", "var at = (o * p.extent + e) * p.inner + k;\n    let stride = by * p.inner;")
                    .define("READ_0", read(0))
                    .define("READ_1", read(1))
                    .define("READ_2", read(2))
                    .define("READ_3", read(3))
                    .define("ADVANCE_1", advance(1))
                    .define("ADVANCE_4", advance(4))
            }
        };
        shader = if self.finish { self.outputs(shader) } else { self.kept(shader) };
        shader = shader
            .define("STATE", states.wgsl())
            .define("UNIT", self.unit().to_string())
            .body(include_str!("../../../../shaders/fused/reduce_run.wgsl"));
        if self.lanes == 1 {
            return shader.body(include_str!("../../../../shaders/fused/reduce_threads.wgsl"));
        }
        shader.define("LANES", self.lanes.to_string()).body(include_str!("../../../../shaders/fused/reduce_lanes.wgsl"))
    }

    fn kept(&self, shader: Shader) -> Shader {
        shader
            .bind("after", self.states.accumulator())
            .param("after_plane", Field::U32)
            .define("SINK", self.states.store())
            .define("WORDS", "")
            .define("EMIT", "store_state(i, all);")
            .define("EMIT_WORDS", "")
    }

    fn outputs(&self, mut shader: Shader) -> Shader {
        let (mut words, mut emit, mut emit_words) = (Vec::new(), Vec::new(), Vec::new());
        for (finish, y) in self.states.finish().into_iter().zip(OUTPUTS) {
            shader = shader.bind(y, finish.dtype);
            let value = finish.value;
            if finish.dtype.lanes() == 1 {
                emit.push(format!("store_{y}(i, {value});"));
            } else {
                words.push(format!("var {y}_bits = 0u;"));
                emit.push(format!("{y}_bits |= pack_{y}(u, {value});"));
                emit_words.push(format!("store_{y}_word(unit, {y}_bits);"));
            }
        }
        shader
            .define("SINK", "")
            .define("WORDS", words.join("\n    "))
            .define("EMIT", emit.join("\n            "))
            .define("EMIT_WORDS", emit_words.join("\n    "))
    }
}

/// Adds the inputs and their accesses.
fn elements(mut shader: Shader, states: &States, expression: &Expression, class: &AccessClass) -> Shader {
    let function = expression.wgsl("fused");
    let inputs = expression.inputs();
    for library in &function.libraries {
        shader = shader.library(library);
    }
    for (name, dtype) in INPUTS.into_iter().zip(inputs) {
        shader = shader.bind(name, *dtype);
    }
    for step in &STEPS[..inputs.len()] {
        shader = shader.param(*step, Field::U32);
    }
    for c in 0..expression.constants() {
        shader = shader.param(format!("c{c}"), Field::F32);
    }
    let names = &INPUTS[..inputs.len()];
    let each = |f: &dyn Fn(usize, &str) -> String| names.iter().enumerate().map(|(k, x)| f(k, x)).collect::<Vec<_>>();
    let cursors = each(&|_, x| format!("var {x}_at = index_{x}(start);\n    let {x}_by = by * p.{x}_step;"));
    let read = |j: u32| {
        let constants = (0..expression.constants()).map(|c| format!("p.c{c}"));
        let loads = each(&|_, x| format!("load_{x}({x}_at + {j}u * {x}_by)"));
        format!("lift(fused({}))", loads.into_iter().chain(constants).collect::<Vec<_>>().join(", "))
    };
    let advance = |n: u32, indent: &str| each(&|_, x| format!("{x}_at += {n}u * {x}_by;")).join(indent);
    class
        .declare(shader, names)
        .define("SOURCE", format!("{}\n{}", function.text, states.lift("fused")))
        .define("CURSORS", format!("let start = (o * p.extent + e) * p.inner + k;\n    {}", cursors.join("\n    ")))
        .define("READ_0", read(0))
        .define("READ_1", read(1))
        .define("READ_2", read(2))
        .define("READ_3", read(3))
        .define("ADVANCE_1", advance(1, "\n            "))
        .define("ADVANCE_4", advance(4, "\n            "))
}

/// Samples of texts for `tests/shaders.rs`: every kind of reduction and type, over each kind of access.
pub fn samples() -> Vec<Shader> {
    use crate::layout::Iteration;
    let mut out = Vec::new();
    let mut each = |expression: &str, names: &str| {
        let expression: Expression = expression.parse().expect("a sample");
        let states = States::new(names, &expression.output_types()).expect("a sample");
        let text = expression.to_string();
        for dims in [&[8][..], &[2, 3], &[2, 3, 4, 5, 6]] {
            let strided: Vec<i64> = dims.iter().map(|_| 3).collect();
            let walk = Iteration::over(dims);
            let walk = if dims.len() == 1 { walk.operand(&[1], 0) } else { walk.operand(&strided, 0) };
            let class = expression.inputs()[1..].iter().fold(walk, |w, _| w.operand(&vec![0; dims.len()], 0)).class();
            for reads in [Reads::Elements(&expression, &text, &class), Reads::States] {
                for (finish, lanes, workgroup) in [(false, 1, 256), (true, 1, 256), (true, 8, 8), (false, 64, 256)] {
                    let fits = states.finish().len() + expression.inputs().len() <= MAX_TOGETHER;
                    if fits || !finish || matches!(reads, Reads::States) {
                        out.push(Variant { states: &states, reads, finish, lanes, workgroup }.shader());
                    }
                }
            }
        }
    };
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64] {
        let square = format!("x: {dtype}, {dtype}; c: 0; s0 = Mul<{dtype}>(x0, x1); return s0, x0");
        each(&square, "Sum,Max");
        each(&square, "Min,Prod");
        if dtype.is_float() {
            each(&square, "Moments,Mean");
            each(&format!("x: {dtype}; c: 0; return x0"), "Moments");
            each(&format!("x: {dtype}; c: 0; s0 = Exp<{dtype}>(x0); return s0"), "L2Loss");
        }
    }
    each("x: float16; c: 1; s0 = Maximum<float16>(x0, c0); return s0", "EuclideanNorm");
    each("x: float32; c: 0; s0 = IsFinite<float32>(x0); return s0, s0", "All,Any");
    each(
        "x: float16, float32; c: 0; s0 = Cast<float16, float32>(x0); s1 = Mul<float32>(s0, x1); return x0, s1",
        "Sum,Sum",
    );
    out
}
