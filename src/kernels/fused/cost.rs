//! The cost of compiling a fused kernel: every pass of the optimizer bounds the content of an op by
//! this one estimate.
//!
//! Drivers inline all functions. So the time to compile a shader is proportional to the number of
//! operations in its text once every call is written out: the weights of the functions that an
//! expression calls, times the number of copies of the expression in the kernel's text. Weights are
//! counted in the text of the functions themselves, so that a new row of the tables needs no number
//! of its own. The numbers of copies are given here, so that callers need not know how the kernels
//! are written.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::wgsl::needs_settling;
use crate::kernels::expression::{Call, Expression};
use crate::kernels::scalar;
use crate::require;
use crate::shader::codec;
use crate::shader::library::{self, LIBRARIES};
use crate::shader::tokens::{Tokens, is_operator};

/// The most that the optimizer puts into one op. Software adapters compile it in one to two
/// seconds, GPUs' drivers sooner.
pub const BOUND: u32 = 12_000;

/// A kernel accepts this many times the cost that the optimizer puts into one op: the optimizer's
/// estimates see less than the program that they lead to.
const ROOM: u32 = 2;

/// Copies of the expression in the text of an elementwise kernel: one for each element of a vec4.
const ELEMENTWISE: u32 = 4;
/// Copies in the text of a reduction: four elements at once, then one at a time.
const REDUCE: u32 = 5;
/// Columns that a row program takes at a time.
const ROWS: u32 = 4;
/// The cost of combining the values of a row program's lanes, for each reduction.
pub const REDUCTION: u32 = 40;
/// Elements of the result that one invocation of a contraction stores, with the usual tiles.
const CONTRACTION: u32 = 32;
/// The cost of a branch, with its masks and blocks.
const BRANCH: u32 = 4;
/// The cost of a step beside its function: a call, and a value that is kept.
const STEP: u32 = 2;
/// The operations of rounding a value to 16 bits count for this share. They are a few integer
/// operations without a branch, and an epilogue of float16 is to hold as much as one of float32.
const ROUNDING: u32 = 8;
/// The most weight that may be computed again in place of reading a value.
pub const READ: u32 = 32;

/// The weight of one call within an expression: its operations, with everything that it calls
/// written out, and the rounding of its value to 16 bits.
pub fn weight(call: Call) -> u32 {
    let rounding = if needs_settling(call) { codec::rounding(call.output()) } else { None };
    // A Cast is nothing but its rounding.
    let share = if matches!(call, Call::Row(..)) { ROUNDING } else { 1 };
    function(call).weight + rounding.map_or(0, |name| LIBRARY[name] / share)
}

/// The weight of a call that is computed again in place of a read. The rounding of a row's value
/// does not count, so that the same calls are computed again in all float types.
pub fn again(call: Call) -> u32 {
    match call {
        Call::Row(..) => function(call).weight,
        Call::Cast(..) | Call::Bitcast(..) => weight(call),
    }
}

/// What is counted in the text of a call's function.
#[derive(Clone, Copy)]
struct Counted {
    weight: u32,
    loops_long: bool,
}

fn function(call: Call) -> Counted {
    // The optimizer asks for every elementwise node of a graph, many times.
    static ROWS: LazyLock<FxHashMap<(&str, DType), Counted>> = LazyLock::new(|| {
        let types = scalar::rows().flat_map(|row| row.types().map(move |dtype| (row, dtype)));
        types.map(|(row, dtype)| ((row.op, dtype), counted(Call::Row(row, dtype)))).collect()
    });
    match call {
        Call::Row(row, dtype) => {
            ROWS.get(&(row.op, dtype)).copied().unwrap_or_else(|| counted(call))
        }
        Call::Cast(..) | Call::Bitcast(..) => counted(call),
    }
}

/// Whether a call is computed again instead of reading its value from memory. No row weighs between
/// 20 and 39 in 32 bits: `Relu6` is cheap, `Tanh` is not.
pub fn is_cheap(call: Call) -> bool {
    again(call) <= READ
}

/// Libraries whose functions loop so long that several in one invocation come near
/// `Profile::loop_limit`.
const LONG_LOOPS: &[&str] = &["gamma", "incomplete_beta", "incomplete_gamma", "zeta"];

/// Whether a call loops so long that a kernel must not have it beside others, or more than once in
/// an invocation.
pub fn loops_long(call: Call) -> bool {
    function(call).loops_long
}

fn counted(call: Call) -> Counted {
    let function = call.wgsl();
    let own = functions(&function.text);
    let mut weights = Weights { functions: &own, others: &LIBRARY, known: FxHashMap::default() };
    let operations = weights.of(&function.name);
    // Values of 64 bits take two registers, and two instructions, for each of 32 bits.
    let wide = call.inputs().into_iter().chain([call.output()]).any(|t| t.size() > 4);
    let is_long = |name: &&str| LONG_LOOPS.contains(&name.trim_end_matches("_f64"));
    Counted {
        weight: STEP + operations * if wide { 2 } else { 1 },
        loops_long: library::called(&function.text).iter().any(is_long),
    }
}

/// Refuses an op of a cost that no pass makes. Its graph may come from anywhere, and a driver would
/// compile it for minutes.
///
/// # Errors
/// `InvalidArgument` beyond the bound.
pub fn check(cost: u32) -> Result<()> {
    // A node may have an op of its own whatever it costs: Lgamma of float64.
    static MOST: LazyLock<u32> = LazyLock::new(|| {
        let types = scalar::rows().flat_map(|row| row.types().map(move |t| Call::Row(row, t)));
        ROOM * BOUND + elementwise(types.map(weight).max().unwrap_or(0))
    });
    require!(cost <= *MOST, "the op's shader would have about {cost} operations, beyond {}", *MOST);
    Ok(())
}

/// The weight of an expression for one element.
pub fn expression(expression: &Expression) -> u32 {
    expression.steps().iter().map(|step| weight(step.call)).fold(0, u32::saturating_add)
}

/// The cost of an elementwise kernel whose steps have this weight for one element.
pub const fn elementwise(weight: u32) -> u32 {
    ELEMENTWISE.saturating_mul(weight)
}

/// The cost of a reduction whose values weigh `values` for one element, with an epilogue of the
/// results that weighs `epilogue`.
pub const fn reduce(values: u32, epilogue: u32) -> u32 {
    REDUCE.saturating_mul(values).saturating_add(epilogue)
}

/// The cost of a contraction whose epilogue has this weight.
pub const fn contraction(epilogue: u32) -> u32 {
    CONTRACTION.saturating_mul(epilogue)
}

/// The cost of steps of a row program that have this weight, in a stage that computes them for
/// elements (`full`) or once for a row.
pub const fn row_stage(weight: u32, full: bool) -> u32 {
    if full { ROWS.saturating_mul(weight) } else { weight }
}

/// A function's own operations, and the functions that it calls.
#[derive(Debug, Default)]
struct Body<'t> {
    operations: u32,
    calls: Vec<&'t str>,
}

type Bodies<'t> = FxHashMap<&'t str, Body<'t>>;

/// The weights of the functions of all libraries.
static LIBRARY: LazyLock<FxHashMap<&'static str, u32>> = LazyLock::new(|| {
    let functions: Bodies<'static> =
        LIBRARIES.iter().flat_map(|(_, text)| functions(text)).collect();
    let none = FxHashMap::default();
    let mut weights = Weights { functions: &functions, others: &none, known: FxHashMap::default() };
    functions.keys().map(|name| (*name, weights.of(name))).collect()
});

/// Weights of functions, each found once.
struct Weights<'b, 't> {
    functions: &'b Bodies<'t>,
    /// The weights of other functions that these call.
    others: &'b FxHashMap<&'static str, u32>,
    known: FxHashMap<&'b str, u32>,
}

impl<'b> Weights<'b, '_> {
    /// The weight of the function `name`; 1 for one of WGSL's own.
    fn of(&mut self, name: &'b str) -> u32 {
        if let Some(weight) = self.known.get(name) {
            return *weight;
        }
        let Some(body) = self.functions.get(name) else {
            return self.others.get(name).copied().unwrap_or(1);
        };
        // WGSL has no recursion; a text that has it counts once.
        self.known.insert(name, 1);
        let weight = body
            .calls
            .iter()
            .fold(body.operations, |sum, called| sum.saturating_add(self.of(called)));
        self.known.insert(name, weight);
        weight
    }
}

/// The functions that a text defines.
fn functions(text: &str) -> Bodies<'_> {
    let mut bodies = Bodies::default();
    let mut tokens = Tokens(text);
    while let Some(token) = tokens.next() {
        if token == "fn"
            && let Some(name) = tokens.next()
        {
            bodies.insert(name, body(&mut tokens));
        }
    }
    bodies
}

/// Reads a function from its parameters to its end.
fn body<'t>(tokens: &mut Tokens<'t>) -> Body<'t> {
    let mut body = Body::default();
    let (mut depth, mut last, mut begun) = (0, "", false);
    for token in tokens.by_ref() {
        match token {
            "{" => {
                depth += 1;
                begun = true;
            }
            "}" => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            _ if !begun => {}
            "if" | "case" | "for" | "while" | "loop" => body.operations += BRANCH,
            "(" if is_name(last)
                && !matches!(last, "if" | "switch" | "while" | "for" | "return") =>
            {
                body.calls.push(last);
            }
            "[" => body.operations += 1,
            _ if !matches!(token, "=" | "->") && token.starts_with(is_operator) => {
                body.operations += 1
            }
            _ => {}
        }
        last = token;
    }
    body
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::*;
    use crate::kernels::expression::MOST_STEPS;

    #[test]
    fn calls_are_written_out() {
        let text = "// a comment with f(x) + 1\nfn f(x: f32) -> f32 {\n    return x * x + \
                    1.0;\n}\nfn g(x: vec4<f32>) -> f32 {\n    if x.y > 0.0 {\n        return \
                    f(x.x) - f(x.y);\n    }\n    return bitcast<f32>(1u) << 2u;\n}\nfn h(x: f32) \
                    -> vec2<f32> {\n    return vec2<f32>(x + x);\n}\nfn i() -> f32 {\n    return \
                    h(1.0).x;\n}\n";
        let own = functions(text);
        let mut weights =
            Weights { functions: &own, others: &LIBRARY, known: FxHashMap::default() };
        assert_eq!(weights.of("f"), 2);
        assert_eq!(weights.of("g"), BRANCH + 1 + 2 + 1 + 2 + 1 + 1);
        // A type in front of a body is not part of it.
        assert_eq!((weights.of("h"), weights.of("i")), (2, 2));
        assert_eq!(weights.of("exp_f32"), LIBRARY["exp_f32"]);
        assert_eq!(weights.of("sqrt"), 1);
    }

    #[test]
    fn dear_functions_weigh_more_than_cheap_ones() {
        let of = |op: &str, t| weight(Call::row(op, t).unwrap());
        assert!(of("AddV2", F32) < 2 * STEP);
        let [exp, sin] = ["Exp", "Sin"].map(|op| of(op, F32));
        assert!(10 * of("Mul", F32) < exp && 2 * exp < sin, "{exp}, {sin}");
        assert!(of("Exp", F64) > of("Exp", F32));
        assert!(weight(Call::Cast(F32, BF16)) > weight(Call::Cast(F32, F64)));
    }

    #[test]
    fn every_row_has_a_weight() {
        for row in crate::kernels::scalar::rows() {
            for dtype in row.types() {
                let weight = weight(Call::Row(row, dtype));
                assert!((STEP..100_000).contains(&weight), "{} of {dtype}: {weight}", row.op);
            }
        }
    }

    #[test]
    fn a_row_alone_fits_and_the_bound_leaves_no_more_steps_than_a_text_has() {
        let calls = || {
            let types = scalar::rows().flat_map(|row| row.types().map(move |t| Call::Row(row, t)));
            types.map(|call| (call, weight(call)))
        };
        for (call, weight) in calls() {
            let cost = elementwise(weight);
            assert!(check(cost).is_ok(), "{call} of weight {weight} costs {cost}");
        }
        let least = calls().map(|(_, weight)| weight).min().unwrap_or(1);
        assert!(BOUND / least <= MOST_STEPS as u32, "a step of weight {least}");
        assert!(check(10 * BOUND).is_err());
    }
}
