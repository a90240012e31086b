//! Expressions as text: written by `Display`, read and checked by `FromStr`.

use std::fmt;
use std::str::FromStr;

use super::{Call, Expression, Value};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::require;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(i) => write!(f, "x{i}"),
            Self::Constant(i) => write!(f, "c{i}"),
            Self::Step(i) => write!(f, "s{i}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row, dtype) => write!(f, "{}<{dtype}>", row.op),
            Self::Cast(from, to) | Self::Bitcast(from, to) => {
                write!(f, "{}<{from}, {to}>", self.op())
            }
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[Value]| {
            values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let inputs: Vec<&str> = self.inputs.iter().map(|t| t.name()).collect();
        write!(f, "x: {}; c: {}; ", inputs.join(", "), self.constants)?;
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "s{i} = {}({}); ", step.call, list(&step.args))?;
        }
        write!(f, "return {}", list(&self.outputs))
    }
}

fn malformed(text: &str) -> Error {
    const SHOWN: usize = 1000;
    let shown: String = text.chars().take(SHOWN).collect();
    Error::InvalidArgument(format!("not an expression: {shown:?}"))
}

/// The items of a list; an empty text has none.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty())
}

/// A type whose elements a shader can hold; handles have none.
fn dtype(text: &str) -> Result<DType> {
    let found = DType::ALL.into_iter().find(|t| t.name() == text && t.size() > 0);
    found.ok_or_else(|| malformed(text))
}

impl FromStr for Value {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |rest: &str| rest.parse().map_err(|_| malformed(text));
        match text.split_at_checked(1) {
            Some(("x", rest)) => Ok(Self::Input(number(rest)?)),
            Some(("c", rest)) => Ok(Self::Constant(number(rest)?)),
            Some(("s", rest)) => Ok(Self::Step(number(rest)?)),
            _ => Err(malformed(text)),
        }
    }
}

impl FromStr for Call {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (op, types) = text
            .strip_suffix('>')
            .and_then(|t| t.split_once('<'))
            .ok_or_else(|| malformed(text))?;
        let types = items(types).map(dtype).collect::<Result<Vec<_>>>()?;
        match (op, &types[..]) {
            ("Cast", [from, to]) => Ok(Self::Cast(*from, *to)),
            ("Bitcast", [from, to]) => Self::bitcast(*from, *to).ok_or_else(|| malformed(text)),
            (_, [t]) => Self::row(op, *t)
                .ok_or_else(|| Error::InvalidArgument(format!("no row {op} for {t}"))),
            _ => Err(malformed(text)),
        }
    }
}

/// The longest text of an expression, or of a program of several.
const LONGEST: usize = 1 << 20;
/// The most inputs, and the most outputs.
const MOST_INPUTS: usize = 256;
/// The most parameters.
const MOST_CONSTANTS: u32 = 1024;
/// The most steps: more than the optimizer's bound of an op leaves room for.
pub(crate) const MOST_STEPS: usize = 8192;

/// Refuses a text that takes long to read, since an attribute may hold anything.
pub(crate) fn check_length(text: &str) -> Result<()> {
    require!(text.len() <= LONGEST, "a text of {} bytes is no expression's", text.len());
    Ok(())
}

impl Expression {
    /// Appends the step that `part` describes.
    fn read_step(&mut self, part: &str) -> Result<()> {
        let (name, call) = part.split_once(" = ").ok_or_else(|| malformed(part))?;
        let (call, args) = call
            .strip_suffix(')')
            .and_then(|c| c.split_once('('))
            .ok_or_else(|| malformed(part))?;
        let args = items(args).map(str::parse).collect::<Result<Vec<_>>>()?;
        let value = self.step(call.parse()?, &args)?;
        require!(value.to_string() == name, "{part:?} is step {value}");
        Ok(())
    }
}

impl FromStr for Expression {
    type Err = Error;

    /// Reads the text that [`Expression`]'s `Display` wrote, and checks it: inputs, parameters,
    /// steps, outputs, in this order.
    fn from_str(text: &str) -> Result<Self> {
        check_length(text)?;
        // Inputs, parameters and outputs are three parts.
        let steps = text.matches(';').count().saturating_sub(2);
        require!(steps <= MOST_STEPS, "{steps} steps are more than {MOST_STEPS}");
        let mut expression = Self::new();
        let mut parts = text.split(';').map(str::trim);
        let mut part = |start: &str| {
            parts.next().and_then(|p| p.strip_prefix(start)).ok_or_else(|| malformed(text))
        };
        expression.inputs = items(part("x:")?).map(dtype).collect::<Result<_>>()?;
        expression.constants = part("c:")?.trim().parse().map_err(|_| malformed(text))?;
        require!(
            expression.inputs.len() <= MOST_INPUTS && expression.constants <= MOST_CONSTANTS,
            "{} inputs and {} parameters are more than an expression has",
            expression.inputs.len(),
            expression.constants
        );
        let mut last = parts.next().ok_or_else(|| malformed(text))?;
        for next in parts {
            expression.read_step(last)?;
            last = next;
        }
        for value in items(last.strip_prefix("return ").ok_or_else(|| malformed(text))?) {
            let value = value.parse()?;
            expression.dtype(value)?;
            expression.output(value);
        }
        require!(!expression.outputs.is_empty(), "the expression returns nothing");
        require!(
            expression.outputs.len() <= MOST_INPUTS,
            "{} values are more than an expression returns",
            expression.outputs.len()
        );
        Ok(expression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        for text in [
            "",
            "x: float32; c: 0; return x1",
            "x: float32; c: 0; s0 = Mul<float32>(x0); return s0",
            "x: float32, float16; c: 0; s0 = Mul<float32>(x0, x1); return s0",
            "x: int64; c: 1; s0 = Mul<int64>(x0, c0); return s0",
            "x: float32; c: 0; s0 = NoSuchOp<float32>(x0); return s0",
            "x: float32; c: 0; s1 = Exp<float32>(x0); return s1",
            // Parts are out of order, or occur again.
            "c: 0; x: float32; return x0",
            "x: float32; return x0",
            "x: float32; c: 0; x: float32, float32; return x1",
            "x: float32; c: 0; s0 = Exp<float32>(x0); x: float16; return s0",
            "x: float32; c: 1; s0 = Mul<float32>(x0, c0); c: 0; return s0",
            "x: float32; c: 0; return x0; s0 = Exp<float32>(x0)",
            "x: float32; c: 0; return x0; return x0",
            // Handles are not elements.
            "x: float32; c: 0; s0 = Cast<float32, resource>(x0); return s0",
            "x: resource; c: 0; return x0",
            "x: variant; c: 0; s0 = Cast<variant, float32>(x0); return s0",
            "x: float32; c: 0; s0 = LeakyRelu<float32>(x0, x0); return s0",
            // A shader holds float16 in other bits than memory, and the sizes differ.
            "x: float16; c: 0; s0 = Bitcast<float16, int16>(x0); return s0",
            "x: float64; c: 0; s0 = Bitcast<float64, int32>(x0); return s0",
        ] {
            assert!(text.parse::<Expression>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_would_take_long_to_read_is_refused() {
        let chain = |n: usize| {
            let steps: String =
                (1..n).map(|k| format!("s{k} = Lgamma<float32>(s{}); ", k - 1)).collect();
            format!("x: float32; c: 0; s0 = Lgamma<float32>(x0); {steps}return s{}", n - 1)
        };
        assert!(chain(MOST_STEPS).parse::<Expression>().is_ok());
        let types = |n: usize| vec!["float32"; n].join(", ");
        for text in [
            chain(MOST_STEPS + 1),
            chain(1_000_000),
            "x: float32; c: 1025; return x0".to_owned(),
            "x: float32; c: 4000000000; return x0".to_owned(),
            format!("x: {}; c: 0; return x0", types(MOST_INPUTS + 1)),
            format!("x: float32; c: 0; return {}", vec!["x0"; MOST_INPUTS + 1].join(", ")),
        ] {
            let start = std::time::Instant::now();
            let error = text.parse::<Expression>().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
            assert!(
                start.elapsed().as_secs() < 10,
                "{:?} for {} bytes",
                start.elapsed(),
                text.len()
            );
        }
    }
}
