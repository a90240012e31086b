//! The WGSL functions of expressions, and why a fused step gives the same bits as a plain one.
//!
//! A plain kernel stores its result, which rounds it, and the next one loads it. Within a fused
//! kernel nothing is stored, so two things could differ, and both are settled here, for every fused
//! kernel alike:
//!
//! - Values of 16-bit floats are computed in f32. A step's value is rounded by the functions that
//!   store and load it, unless no reader can tell ([`Rounding`]).
//! - Drivers may contract a product and a sum to one rounding, and may reorder operations that they
//!   recognize as float arithmetic. A value of f32 or f64 that may end in a product goes through
//!   `opaque_f32` or `opaque_f64`, an exclusive or with a number that is 0 but that no compiler
//!   knows, before another step computes with it.
//!
//! So a value depends on the arguments of its function, not on the kernel that computes it. An op
//! with a discontinuity, such as a comparison, sees the same value wherever it runs.

use std::fmt::Write;

use super::{Call, Expression, Value};
use crate::dtype::DType;
use crate::kernels::scalar::row::{Function, Rounding};
use crate::shader::codec;

/// The sources of an expression's inputs and the destination of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Number of leading inputs that are sums in the accumulator's type. The other inputs come from
    /// memory.
    pub sums: usize,
    /// Where the values go.
    pub sink: Sink,
}

/// Where an expression's values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// To memory, which rounds them.
    Memory,
    /// To a reduction of the kernel, which adds or compares them.
    Reduction,
    /// To another expression of the kernel.
    Expression,
}

impl Ends {
    /// From memory to memory.
    pub const MEMORY: Self = Self { sums: 0, sink: Sink::Memory };
}

impl Expression {
    /// The WGSL function `name(x0, x1, …, c0, c1, …)` of values from memory whose results are
    /// stored, with the functions that it calls. With one output it returns the value, with several
    /// the struct `NAME_values` with the members `y0`, `y1`, ….
    pub fn wgsl(&self, name: &str) -> Function {
        Self::wgsl_all(&[(name, self, Ends::MEMORY)])
    }

    /// The WGSL functions of several expressions by their names, as [`Expression::wgsl`] writes
    /// them; each function that they call is there once. The name is the last one's.
    pub fn wgsl_all(expressions: &[(&str, &Self, Ends)]) -> Function {
        let mut all = Function { name: String::new(), text: String::new() };
        let mut defined: Vec<String> = Vec::new();
        for (name, expression, ends) in expressions {
            for step in expression.steps() {
                let function = step.call.wgsl();
                if !defined.contains(&function.name) {
                    all.text.push_str(&function.text);
                    all.text.push('\n');
                    defined.push(function.name);
                }
            }
            expression.write_wgsl(name, *ends, &mut all);
            (*name).clone_into(&mut all.name);
        }
        all
    }

    fn write_wgsl(&self, name: &str, ends: Ends, function: &mut Function) {
        let read = self.read(ends.sink);
        let mut body = String::new();
        for (i, dtype) in self.inputs().iter().take(ends.sums).enumerate() {
            if read.inputs[i]
                && let Some(settled) = settled(*dtype, &format!("x{i}_sum"))
            {
                let _ = writeln!(body, "    let x{i} = {settled};");
            }
        }
        let parameters: Vec<String> = (self.inputs().iter().enumerate())
            .map(|(i, t)| {
                let is_settled = body.contains(&format!("let x{i} ="));
                format!("x{i}{}: {}", if is_settled { "_sum" } else { "" }, t.value())
            })
            .chain((0..self.constants()).map(|i| format!("c{i}: f32")))
            .collect();
        for (i, step) in self.steps().iter().enumerate() {
            let args: Vec<String> = step.args.iter().map(ToString::to_string).collect();
            let mut value = format!("{}({})", step.call.wgsl().name, args.join(", "));
            if read.steps[i] && needs_settling(step.call) {
                value = settled(step.call.output(), &value).unwrap_or(value);
            }
            let _ = writeln!(body, "    let s{i} = {value};");
        }
        let (text, types) = (&mut function.text, self.output_types());
        let (result, value) = if let ([value], [dtype]) = (self.outputs(), &types[..]) {
            (dtype.value().to_owned(), value.to_string())
        } else {
            let members: String = types
                .iter()
                .enumerate()
                .map(|(i, t)| format!("    y{i}: {},\n", t.value()))
                .collect();
            let _ = writeln!(text, "struct {name}_values {{\n{members}}}\n");
            let values: Vec<String> = self.outputs().iter().map(ToString::to_string).collect();
            (format!("{name}_values"), format!("{name}_values({})", values.join(", ")))
        };
        let _ = writeln!(
            text,
            "fn {name}({}) -> {result} {{\n{body}    return {value};\n}}",
            parameters.join(", ")
        );
    }

    /// The values that some call computes with and for which rounding makes a difference.
    fn read(&self, sink: Sink) -> Read {
        let mut read = Read {
            inputs: vec![false; self.inputs().len()],
            steps: vec![false; self.steps().len()],
        };
        for value in self.outputs() {
            let is_narrow = self.dtype(*value).ok().flatten().is_some_and(DType::is_narrow_float);
            match sink {
                Sink::Memory => {}
                // Wider values are not stored: sums of them have roundings of their own.
                Sink::Reduction => read.mark(*value, is_narrow),
                Sink::Expression => read.mark(*value, true),
            }
        }
        for (i, step) in self.steps().iter().enumerate().rev() {
            for (k, arg) in step.args.iter().enumerate() {
                let moves = match step.call.rounding() {
                    Rounding::Moves(arguments) => arguments >> k & 1 != 0,
                    Rounding::Rounds | Rounding::Exact => false,
                };
                let is_read = !moves || read.steps[i];
                read.mark(*arg, is_read);
            }
        }
        read
    }
}

/// Values that readers compute with.
struct Read {
    inputs: Vec<bool>,
    steps: Vec<bool>,
}

impl Read {
    fn mark(&mut self, value: Value, is_read: bool) {
        match value {
            Value::Input(i) => self.inputs[i as usize] |= is_read,
            Value::Step(i) => self.steps[i as usize] |= is_read,
            Value::Constant(_) => {}
        }
    }
}

/// Whether a call's value may have more bits than its type, or be a product that a driver
/// contracts with a sum.
pub fn needs_settling(call: Call) -> bool {
    match call {
        _ if call.rounding() != Rounding::Rounds => false,
        _ if call.output().is_narrow_float() => true,
        Call::Row(row, _) => !matches!(row.op, "Add" | "AddV2" | "Sub"),
        // A conversion is not a product.
        Call::Cast(..) | Call::Bitcast(..) => false,
    }
}

/// `value` of type `dtype` as it would be after a store and a load, also for compilers; `None` if
/// there is nothing to do.
fn settled(dtype: DType, value: &str) -> Option<String> {
    let name = match dtype {
        DType::F32 => "opaque_f32",
        DType::F64 => "opaque_f64",
        _ => codec::rounding(dtype)?,
    };
    Some(format!("{name}({value})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar;
    use crate::kernels::scalar::row::Value as Scalar;
    use crate::tensor::HostTensor;

    fn body(text: &str, ends: Ends) -> String {
        let e: Expression = text.parse().unwrap();
        let text = Expression::wgsl_all(&[("f", &e, ends)]).text;
        text[text.find("fn f(").unwrap()..].to_owned()
    }

    #[test]
    fn expressions_of_one_shader_share_functions() {
        let e: Expression = "x: float32, float16; c: 1; s0 = Cast<float16, float32>(x1); s1 = \
                             Mul<float32>(x0, c0); s2 = AddV2<float32>(s1, s0); return s2"
            .parse()
            .unwrap();
        let ends = Ends::MEMORY;
        let function = Expression::wgsl_all(&[("first", &e, ends), ("second", &e, ends)]);
        assert_eq!(function.name, "second");
        for text in ["fn Mul_float32(", "fn first(", "fn second("] {
            assert_eq!(function.text.matches(text).count(), 1, "{text} in {}", function.text);
        }
    }

    #[test]
    fn several_outputs_are_a_struct() {
        let e: Expression = "x: float32; c: 0; s0 = Exp<float32>(x0); s1 = Greater<float32>(s0, \
                             x0); return s0, s1"
            .parse()
            .unwrap();
        let function = e.wgsl("fused");
        assert!(
            function.text.contains("struct fused_values {\n    y0: f32,\n    y1: bool,\n}"),
            "{}",
            function.text
        );
        assert!(function.text.contains("fn fused(x0: f32) -> fused_values {"), "{}", function.text);
    }

    #[test]
    fn what_another_step_reads_is_rounded() {
        let text = "x: float16, float16; c: 0; s0 = Mul<float16>(x0, x1); s1 = \
                    AddV2<float16>(s0, x1); s2 = Relu<float16>(s1); return s2";
        let body = body(text, Ends::MEMORY);
        for line in [
            "let s0 = round_f16(Mul_float16(x0, x1));",
            // Memory rounds the value of the last one, and an activation lets the bits through.
            "let s1 = AddV2_float16(s0, x1);",
            "let s2 = Relu_float16(s1);",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }

    #[test]
    fn what_a_jump_reads_through_an_activation_is_rounded() {
        let text = "x: bfloat16; c: 1; s0 = Mul<bfloat16>(x0, c0); s1 = Neg<bfloat16>(s0); s2 = \
                    Floor<bfloat16>(s1); s3 = Equal<bfloat16>(s2, x0); return s3";
        let body = body(text, Ends::MEMORY);
        for line in [
            "let s0 = round_bf16(Mul_bfloat16(x0, c0));",
            "let s1 = Neg_bfloat16(s0);",
            "let s2 = Floor_bfloat16(s1);",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }

    #[test]
    fn sums_and_values_of_reductions_are_rounded() {
        let text = "x: float16, float16; c: 0; s0 = Sub<float16>(x0, x1); return s0";
        let ends = Ends { sums: 1, sink: Sink::Reduction };
        let body = body(text, ends);
        assert!(body.contains("fn f(x0_sum: f32, x1: f32)"), "{body}");
        assert!(body.contains("let x0 = round_f16(x0_sum);"), "{body}");
        assert!(body.contains("let s0 = round_f16(Sub_float16(x0, x1));"), "{body}");
    }

    /// The rounding that rows declare, tried on values that round up, down, to zero and to
    /// infinity.
    #[test]
    fn rows_round_as_they_say() {
        const VALUES: [f64; 13] = [
            0.0,
            1.0001,
            -2.0031,
            65519.0,
            -65521.0,
            1e-8,
            -4e-8,
            0.3,
            5.9999,
            6.0001,
            f64::INFINITY,
            f64::NAN,
            -0.51,
        ];
        let mut tried = 0;
        for row in scalar::rows().filter(|row| row.rounding != Rounding::Rounds) {
            let moved = if let Rounding::Moves(mask) = row.rounding { mask } else { 0 };
            for dtype in [DType::F16, DType::BF16] {
                let Some(case) = row.case(dtype) else { continue };
                let types = row.input_types(dtype);
                let round = |v: f64| HostTensor::floats(dtype, &[], &[v]).to_f64()[0];
                for number in 0..VALUES.len().pow(types.len() as u32) {
                    let given = types.iter().enumerate().map(|(k, t)| {
                        let v = VALUES[number / VALUES.len().pow(k as u32) % VALUES.len()];
                        let rounded = if moved >> k & 1 != 0 { v } else { round(v) };
                        match t {
                            DType::Bool => [Scalar::Int(i128::from(v > 0.0)); 2],
                            _ => [Scalar::Float(rounded), Scalar::Float(round(v))],
                        }
                    });
                    let (late, early): (Vec<_>, Vec<_>) = given.map(|[l, e]| (l, e)).unzip();
                    let value = |args: &[Scalar]| match case.reference.evaluate(dtype, args) {
                        Scalar::Float(v) => v,
                        Scalar::Int(v) => v as f64,
                    };
                    let (late, early) = (round(value(&late)), value(&early));
                    let equal = late == early || late.is_nan() && early.is_nan();
                    assert!(equal, "{} of {dtype}: {late} and {early}, number {number}", row.op);
                    tried += 1;
                }
            }
        }
        assert!(tried > 1000);
    }

    #[test]
    fn products_are_not_contracted() {
        let text = "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); s1 = Neg<float32>(s0); \
                    s2 = AddV2<float32>(s1, x1); s3 = Mul<float32>(s2, x0); return s3";
        let body = body(text, Ends::MEMORY);
        for line in [
            "let s0 = opaque_f32(Mul_float32(x0, x1));",
            "let s1 = Neg_float32(s0);",
            "let s2 = AddV2_float32(s1, x1);",
            "let s3 = Mul_float32(s2, x0);",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }
}
