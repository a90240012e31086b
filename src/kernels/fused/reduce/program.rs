//! The text of a step. It reads elements of the expression or states of an earlier step, and writes
//! states or outputs.

use crate::device::Key;
use crate::dtype::DType;
use crate::kernels::expression::Expression;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::kernels::reduce::program::lanes;
use crate::layout::AccessClass;
use crate::shader::{Field, Shader, vec4};
use crate::tensor::Tensor;

use super::epilogue::{Epilogue, Extra, Part};
use super::state::States;

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

/// The properties that a step's text depends on.
#[derive(Debug, Clone, Copy)]
pub struct Variant<'a> {
    /// The reductions.
    pub states: &'a States,
    /// The source of its values.
    pub reads: Reads<'a>,
    /// The outputs that it writes; without them it writes states.
    pub finish: Option<&'a Part>,
    /// The inputs that are read four elements at once, one bit for each; the others then have one
    /// element for a whole run. 0 where elements are read one by one.
    pub vec4s: u32,
    /// Invocations for each segment.
    pub lanes: u32,
    /// Whether neighbouring elements belong to neighbouring segments.
    pub columns: bool,
    /// Invocations in a workgroup.
    pub workgroup: u32,
}

impl Variant<'_> {
    /// Its key.
    pub fn key(&self) -> Key {
        let key = Key::new("fused_reduce")
            .name(&self.states.text())
            .number(u32::from(self.finish.is_some()))
            .number(self.vec4s)
            .number(self.lanes)
            .number(u32::from(self.columns))
            .number(self.workgroup);
        let key = self.finish.iter().fold(key, |key, part| part.key(key));
        match self.reads {
            Reads::Elements(_, text, class) => class.key(key.name(text)),
            Reads::States => key,
        }
    }

    /// States that one invocation computes: the outputs in a stored unit.
    pub fn unit(&self) -> u32 {
        self.finish.map_or(1, Part::unit)
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
            Reads::Elements(expression, _, class) => self.elements(shader, expression, class),
            Reads::States => {
                let read = |j: u32| format!("load_state(at + {j}u * stride)");
                let advance = |n: u32| format!("at += {n}u * stride;");
                let function = Expression::wgsl_all(
                    &self.finish.iter().map(|part| part.named()).collect::<Vec<_>>(),
                );
                for library in &function.libraries {
                    shader = shader.library(library);
                }
                shader
                    .bind("before", states.accumulator())
                    .param("before_plane", Field::U32)
                    .define("SOURCE", format!("{}\n{}", function.text, states.load()))
                    .define(
                        "CURSORS",
                        "var at = (o * p.extent + e) * p.inner + k;\n    let stride = by * \
                         p.inner;",
                    )
                    .define("READ_0", read(0))
                    .define("READ_1", read(1))
                    .define("READ_2", read(2))
                    .define("READ_3", read(3))
                    .define("ADVANCE_1", advance(1))
                    .define("ADVANCE_4", advance(4))
            }
        };
        shader = match self.finish {
            Some(part) => part.declare(shader, states),
            None => self.kept(shader),
        };
        shader = shader
            .define("STATE", states.wgsl())
            .define("UNIT", self.unit().to_string())
            .body(match self.vec4s {
                0 => include_str!("../../../../shaders/fused/reduce_run.wgsl"),
                _ => include_str!("../../../../shaders/fused/reduce_run_vec4s.wgsl"),
            });
        if self.lanes == 1 {
            return shader.body(include_str!("../../../../shaders/fused/reduce_threads.wgsl"));
        }
        lanes(shader, self.lanes, self.columns, self.workgroup)
            .define("PARTIAL", "State")
            .define("MERGE", "merge")
            .define("START", "identity()")
            .define("RUN", "reduce_run(o, first, k, LANES, n)")
            .body(include_str!("../../../../shaders/reduce_lanes.wgsl"))
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

    /// Adds the inputs and their accesses.
    fn elements(&self, mut shader: Shader, expression: &Expression, class: &AccessClass) -> Shader {
        let values = ("fused", expression, Ends { sums: 0, sink: Sink::Reduction });
        let functions: Vec<(&str, &Expression, Ends)> =
            self.finish.iter().map(|part| part.named()).chain([values]).collect();
        let function = Expression::wgsl_all(&functions);
        let inputs = expression.inputs();
        for library in &function.libraries {
            shader = shader.library(library);
        }
        let is_four = |k: usize| self.vec4s >> k & 1 != 0;
        for (k, (name, dtype)) in INPUTS.into_iter().zip(inputs).enumerate() {
            shader = if is_four(k) {
                vec4::bind_read(shader, name, *dtype)
            } else {
                shader.bind(name, *dtype)
            };
        }
        for step in &STEPS[..inputs.len()] {
            shader = shader.param(*step, Field::U32);
        }
        for c in 0..expression.constants() {
            shader = shader.param(format!("c{c}"), Field::F32);
        }
        let names = &INPUTS[..inputs.len()];
        let each = |f: &dyn Fn(usize, &str) -> String| {
            names.iter().enumerate().map(|(k, x)| f(k, x)).collect::<Vec<_>>()
        };
        if self.vec4s != 0 {
            let cursors = each(&|k, x| match is_four(k) {
                true => format!("var {x}_at = index_{x}(start) / 4u;"),
                false => format!("let {x}_value = load_{x}(index_{x}(start));"),
            });
            let of_vec4s = |f: &dyn Fn(&str) -> String| {
                let chosen = names.iter().enumerate().filter(|(k, _)| is_four(*k));
                chosen.map(|(_, x)| f(x)).collect::<Vec<_>>().join("\n            ")
            };
            let read = |lane: &str| {
                let constants = (0..expression.constants()).map(|c| format!("p.c{c}"));
                let values = each(&|k, x| {
                    if is_four(k) { format!("{x}_four.{lane}") } else { format!("{x}_value") }
                });
                format!(
                    "lift(fused({}))",
                    values.into_iter().chain(constants).collect::<Vec<_>>().join(", ")
                )
            };
            return class
                .declare(shader, names)
                .define("SOURCE", format!("{}\n{}", function.text, self.states.lift("fused")))
                .define(
                    "CURSORS",
                    format!("let start = (o * p.extent + e) * 4u;\n    {}", cursors.join("\n    ")),
                )
                .define("VEC4S", of_vec4s(&|x| format!("let {x}_four = read_{x}({x}_at);")))
                .define("READ_0", read("x"))
                .define("READ_1", read("y"))
                .define("READ_2", read("z"))
                .define("READ_3", read("w"))
                .define("ADVANCE_1", of_vec4s(&|x| format!("{x}_at += by;")));
        }
        let cursors = each(&|_, x| {
            format!("var {x}_at = index_{x}(start);\n    let {x}_by = by * p.{x}_step;")
        });
        let read = |j: u32| {
            let constants = (0..expression.constants()).map(|c| format!("p.c{c}"));
            let loads = each(&|_, x| format!("load_{x}({x}_at + {j}u * {x}_by)"));
            format!(
                "lift(fused({}))",
                loads.into_iter().chain(constants).collect::<Vec<_>>().join(", ")
            )
        };
        let advance =
            |n: u32, indent: &str| each(&|_, x| format!("{x}_at += {n}u * {x}_by;")).join(indent);
        class
            .declare(shader, names)
            .define("SOURCE", format!("{}\n{}", function.text, self.states.lift("fused")))
            .define(
                "CURSORS",
                format!(
                    "let start = (o * p.extent + e) * p.inner + k;\n    {}",
                    cursors.join("\n    ")
                ),
            )
            .define("READ_0", read(0))
            .define("READ_1", read(1))
            .define("READ_2", read(2))
            .define("READ_3", read(3))
            .define("ADVANCE_1", advance(1, "\n            "))
            .define("ADVANCE_4", advance(4, "\n            "))
    }
}

/// Samples of texts for `tests/shaders.rs`: every kind of reduction and type, over each kind of
/// access.
pub fn samples() -> Vec<Shader> {
    use crate::layout::Iteration;
    let mut out = Vec::new();
    let mut with = |expression: &str, names: &str, epilogue: &str| {
        let expression: Expression = expression.parse().expect("a sample");
        let states = States::new(names, &expression.output_types()).expect("a sample");
        let text = expression.to_string();
        let results = states.finish().len();
        let types =
            epilogue.parse::<Expression>().map_or(Vec::new(), |e| e.inputs()[results..].to_vec());
        let constants = epilogue.matches("c0").take(1).map(|_| 0.0).collect();
        let epilogue = Epilogue::of(epilogue, &types, constants, &states).expect("a sample");
        let extras: Vec<Extra> = (types.iter().zip([true, false].into_iter().cycle()))
            .map(|(t, whole)| Extra { tensor: Tensor::new(*t, &[], 0), whole })
            .collect();
        for dims in [&[8][..], &[2, 3], &[2, 3, 4, 5, 6]] {
            let strided: Vec<i64> = dims.iter().map(|_| 3).collect();
            let walk = Iteration::over(dims);
            let walk =
                if dims.len() == 1 { walk.operand(&[1], 0) } else { walk.operand(&strided, 0) };
            let class = expression.inputs()[1..]
                .iter()
                .fold(walk, |w, _| w.operand(&vec![0; dims.len()], 0))
                .class();
            for reads in [Reads::Elements(&expression, &text, &class), Reads::States] {
                let wide = expression.inputs().len() > MAX_INPUTS;
                let styles = [(false, 1, 256), (true, 1, 256), (true, 8, 8), (false, 64, 256)];
                for (finish, lanes, workgroup) in styles {
                    let columns = lanes > 1 && dims.len() == 2;
                    // Every second input is read in vec4s, over rows.
                    let can = matches!(reads, Reads::Elements(..))
                        && dims.len() == 1
                        && expression.inputs().iter().all(|t| vec4::supports(*t));
                    let vec4s = if can && !finish {
                        0b10101 & ((1 << expression.inputs().len()) - 1)
                    } else {
                        0
                    };
                    let variant = Variant {
                        states: &states,
                        reads,
                        finish: None,
                        vec4s,
                        lanes,
                        columns,
                        workgroup,
                    };
                    if !finish {
                        out.push(variant.shader());
                        continue;
                    }
                    let own =
                        if matches!(reads, Reads::States) { 1 } else { expression.inputs().len() };
                    // Parameters may take a buffer, as in `run.rs`.
                    let most = if wide { 2 * MAX_BINDINGS } else { MAX_BINDINGS - 1 };
                    for part in epilogue.parts(&extras, most - own) {
                        if own + part.tensors() <= most {
                            out.push(Variant { finish: Some(&part), ..variant }.shader());
                        }
                    }
                }
            }
        }
    };
    with(
        "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return x0, s0",
        "Sum,Moments",
        "x: float32, float32, float32, float32, float32; c: 1; s0 = AddV2<float32>(x2, c0); s1 = \
         Rsqrt<float32>(s0); s2 = Mul<float32>(s1, x3); s3 = Mul<float32>(x1, x4); s4 = \
         Cast<float32, float16>(s3); return x0, s1, s2, s4",
    );
    with(
        "x: float16; c: 0; return x0",
        "Mean",
        "x: float16; c: 0; s0 = Exp<float16>(x0); s1 = IsFinite<float16>(x0); s2 = Cast<float16, \
         float32>(x0); return s0, s1, s2",
    );
    let mut each = |expression: &str, names: &str| with(expression, names, "");
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
    // The gradients of two normalizations' weights.
    each(
        "x: float32, float32, float32, float32, float32, float32, float32, float32; c: 0; s0 = \
         Mul<float32>(x0, x1); s1 = Mul<float32>(x0, x2); s2 = AddV2<float32>(s0, s1); s3 = \
         Mul<float32>(s2, x3); s4 = Mul<float32>(x4, x5); s5 = Mul<float32>(x4, x6); s6 = \
         AddV2<float32>(s4, s5); s7 = Mul<float32>(s6, x7); return s3, x0, s7, x4",
        "Sum,Sum,Sum,Sum",
    );
    each("x: float16; c: 1; s0 = Maximum<float16>(x0, c0); return s0", "EuclideanNorm");
    each("x: float32; c: 0; s0 = IsFinite<float32>(x0); return s0, s0", "All,Any");
    each(
        "x: float16, float32; c: 0; s0 = Cast<float16, float32>(x0); s1 = Mul<float32>(s0, x1); \
         return x0, s1",
        "Sum,Sum",
    );
    out
}
