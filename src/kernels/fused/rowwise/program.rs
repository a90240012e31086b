//! The program of `_WgpuFusedRowwise`: stages over the rows of a tensor. A row is all elements that
//! differ only in the reduced axes.
//!
//! A stage of reductions evaluates its expression for each element and reduces the values of a row
//! to one; a stage `row` evaluates its expression once for each row; the stage `full`, the last,
//! gives values of whole tensors. As text, here softmax:
//!
//! ```text
//! Max: x: float32; c: 0; return x0 | Sum: x: float32, float32; c: 0; s0 = Sub<float32>(x0, x1);
//!     s1 = Exp<float32>(s0); return s1
//! | full: x: float32, float32, float32; …; return s2 | return y0
//! ```
//!
//! The inputs of every expression are those of the op, then the row values of the earlier stages,
//! in their order (`r0`, `r1`, …). The values of the last stage are `y0`, `y1`, …. The outputs are
//! a list of both, values of rows with the reduced axes kept as extents of 1, or without them where
//! `flat` follows.

use std::fmt;
use std::str::FromStr;

use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::expression::{Call, Expression, Step, Value, check_length};
use crate::kernels::fused::cost;
use crate::kernels::reduce::table::{REDUCTIONS, Reduction};
use crate::{invalid, require};

/// The types in which rows are reduced.
pub const REDUCED: &[DType] = types::FLOATS;

/// The reduction of TensorFlow's op, if it can reduce rows of all types in [`REDUCED`], and if it
/// only combines elements and divides by their number.
pub fn reduction(op: &str) -> Option<&'static Reduction> {
    let row = REDUCTIONS.iter().find(|row| row.op == op)?;
    (row.keeps_singles() && REDUCED.iter().all(|t| row.types.contains(t))).then_some(row)
}

/// What a stage does with the values of its expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reduces each over the row.
    Reduce(Vec<&'static Reduction>),
    /// Keeps the values for the row; the expression uses nothing that varies within a row.
    Row,
    /// Stores the values as elements of outputs.
    Full,
}

/// One stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// What the stage does with the values.
    pub action: Action,
    /// The values.
    pub expression: Expression,
}

/// An output of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A value for each row.
    Row {
        /// Its number.
        value: u32,
        /// Whether the reduced axes are dropped.
        flat: bool,
    },
    /// A value of the last stage.
    Full(u32),
}

/// Stages, and the outputs that are made of their values.
#[derive(Debug, Clone, PartialEq)]
pub struct RowProgram {
    stages: Vec<Stage>,
    outputs: Vec<Output>,
}

impl RowProgram {
    /// A program of `stages` with `outputs`.
    ///
    /// # Errors
    /// `InvalidArgument` if the stages do not go together.
    pub fn new(stages: Vec<Stage>, outputs: Vec<Output>) -> Result<Self> {
        let program = Self { stages, outputs };
        program.check()?;
        Ok(program)
    }

    fn check(&self) -> Result<()> {
        let (Some(first), false) = (self.stages.first(), self.outputs.is_empty()) else {
            invalid!("a row program needs a stage and an output");
        };
        let mut types = first.expression.inputs().to_vec();
        for (i, stage) in self.stages.iter().enumerate() {
            let e = &stage.expression;
            require!(e.inputs() == types, "stage {i} takes {:?}, there are {types:?}", e.inputs());
            require!(
                e.constants() == first.expression.constants(),
                "stage {i} has another number of parameters"
            );
            let outputs = e.output_types();
            if let Action::Reduce(reductions) = &stage.action {
                require!(
                    reductions.len() == outputs.len(),
                    "stage {i} has {} values",
                    outputs.len()
                );
                let fits = outputs.iter().all(|t| REDUCED.contains(t));
                require!(fits, "stage {i} reduces {outputs:?}");
            }
            if stage.action == Action::Full {
                require!(i + 1 == self.stages.len(), "stage {i} is not the last");
            } else {
                types.extend(outputs);
            }
        }
        for output in &self.outputs {
            let (number, count) = match output {
                Output::Row { value, .. } => (*value, self.row_types().len()),
                Output::Full(value) => (*value, self.full().map_or(0, |e| e.outputs().len())),
            };
            require!((number as usize) < count, "there is no value {output}");
        }
        Ok(())
    }

    /// The program's [`cost`]: each stage computes again what it uses.
    pub fn cost(&self) -> u32 {
        let of_stage = |stage: &Stage| {
            let is_row = stage.action == Action::Row;
            let values = cost::row_stage(cost::expression(&stage.expression), !is_row);
            match &stage.action {
                Action::Reduce(reductions) => {
                    values.saturating_add(cost::REDUCTION * reductions.len() as u32)
                }
                Action::Row | Action::Full => values,
            }
        };
        self.stages.iter().map(of_stage).fold(0, u32::saturating_add)
    }

    /// The stages.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The expression of the last stage if that is `full`.
    pub fn full(&self) -> Option<&Expression> {
        self.stages.last().filter(|s| s.action == Action::Full).map(|s| &s.expression)
    }

    /// Types of the op's inputs.
    pub fn inputs(&self) -> &[DType] {
        self.stages[0].expression.inputs()
    }

    /// Number of parameters.
    pub fn constants(&self) -> usize {
        self.stages[0].expression.constants()
    }

    /// Types of the values of rows.
    pub fn row_types(&self) -> Vec<DType> {
        let rows = self.stages.iter().filter(|s| s.action != Action::Full);
        rows.flat_map(|s| s.expression.output_types()).collect()
    }

    /// Floating-point operations for each element: those of the expressions, without casts, and one
    /// for each value that is reduced. An operation that several stages repeat counts once, and
    /// operations that a row takes only once do not count.
    pub fn operations(&self) -> usize {
        let mut known: Vec<Step> = Vec::new();
        let mut reduced = 0;
        for stage in &self.stages {
            match &stage.action {
                Action::Reduce(reductions) => reduced += reductions.len(),
                Action::Full => {}
                Action::Row => continue,
            }
            // The number in `known` of each step.
            let mut numbers: Vec<usize> = Vec::new();
            for step in stage.expression.steps() {
                let renamed = |arg: &Value| match *arg {
                    Value::Step(at) => Value::Step(numbers[at as usize] as u32),
                    other => other,
                };
                let step = Step { call: step.call, args: step.args.iter().map(renamed).collect() };
                let at = known.iter().position(|other| *other == step);
                numbers.push(at.unwrap_or(known.len()));
                if at.is_none() {
                    known.push(step);
                }
            }
        }
        reduced + known.iter().filter(|step| matches!(step.call, Call::Row(..))).count()
    }

    /// Types of the op's outputs.
    pub fn output_types(&self) -> Vec<DType> {
        let (rows, full) =
            (self.row_types(), self.full().map_or_else(Vec::new, Expression::output_types));
        let dtype = |output: &Output| match output {
            Output::Row { value, .. } => rows[*value as usize],
            Output::Full(value) => full[*value as usize],
        };
        self.outputs.iter().map(dtype).collect()
    }

    /// Whether the expression of `stage` uses its input `input`.
    pub fn uses(stage: &Stage, input: usize) -> bool {
        let wanted = Value::Input(input as u32);
        let e = &stage.expression;
        e.outputs().contains(&wanted) || e.steps().iter().any(|s| s.args.contains(&wanted))
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { value, flat } => write!(f, "r{value}{}", if *flat { " flat" } else { "" }),
            Self::Full(value) => write!(f, "y{value}"),
        }
    }
}

impl fmt::Display for RowProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            let action = match &stage.action {
                Action::Reduce(reductions) => {
                    reductions.iter().map(|r| r.op).collect::<Vec<_>>().join(", ")
                }
                Action::Row => "row".to_owned(),
                Action::Full => "full".to_owned(),
            };
            write!(f, "{action}: {} | ", stage.expression)?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(ToString::to_string).collect();
        write!(f, "return {}", outputs.join(", "))
    }
}

fn malformed(text: &str) -> Error {
    Error::InvalidArgument(format!("not a row program: {text:?}"))
}

impl FromStr for Output {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, flat) = text.strip_suffix(" flat").map_or((text, false), |name| (name, true));
        let number = |rest: &str| rest.parse().map_err(|_| malformed(text));
        match (name.split_at_checked(1), flat) {
            (Some(("r", rest)), flat) => Ok(Self::Row { value: number(rest)?, flat }),
            (Some(("y", rest)), false) => Ok(Self::Full(number(rest)?)),
            _ => Err(malformed(text)),
        }
    }
}

impl FromStr for Action {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "row" => Ok(Self::Row),
            "full" => Ok(Self::Full),
            _ => text
                .split(',')
                .map(|op| reduction(op.trim()).ok_or_else(|| malformed(op)))
                .collect::<Result<_>>()
                .map(Self::Reduce),
        }
    }
}

/// The most stages: more than the optimizer's estimate can tell apart.
const MOST_STAGES: usize = 256;

impl FromStr for RowProgram {
    type Err = Error;

    /// Reads a program that `Display` wrote, and checks it.
    fn from_str(text: &str) -> Result<Self> {
        check_length(text)?;
        require!(text.matches('|').count() <= MOST_STAGES, "more than {MOST_STAGES} stages");
        let (stages, outputs) = text.rsplit_once('|').ok_or_else(|| malformed(text))?;
        let outputs = outputs.trim().strip_prefix("return ").ok_or_else(|| malformed(text))?;
        let stage = |part: &str| {
            let (action, expression) = part.split_once(':').ok_or_else(|| malformed(part))?;
            Ok(Stage { action: action.trim().parse()?, expression: expression.trim().parse()? })
        };
        Self::new(
            stages.split('|').map(stage).collect::<Result<_>>()?,
            outputs.split(',').map(|o| o.trim().parse()).collect::<Result<_>>()?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::expression::Call;

    const NORM: &str = "Mean: x: float32; c: 1; return x0 | Mean, Max: x: float32, float32; c: 1; \
                        s0 = SquaredDifference<float32>(x0, x1); return s0, x0 | row: x: float32, \
                        float32, float32, float32; c: 1; s0 = AddV2<float32>(x2, c0); s1 = \
                        Rsqrt<float32>(s0); return s1 | full: x: float32, float32, float32, \
                        float32, float32; c: 1; s0 = Mul<float32>(x0, x4); return s0 | return y0, \
                        r1, r0 flat";

    #[test]
    fn text_and_program_are_inverse() {
        let program: RowProgram = NORM.parse().unwrap();
        assert_eq!(program.to_string(), NORM);
        assert_eq!(program.row_types().len(), 4);
        assert_eq!(program.output_types(), [DType::F32; 3]);
        assert_eq!((program.inputs().len(), program.constants()), (1, 1));
    }

    #[test]
    fn each_stage_counts() {
        let program: RowProgram =
            "Max: x: float32; c: 0; s0 = Neg<float32>(x0); return s0 | row: x: float32, float32; \
             c: 0; s0 = Neg<float32>(x1); return s0 | full: x: float32, float32, float32; c: 0; \
             s0 = Neg<float32>(x0); s1 = Neg<float32>(x2); return s0, s1 | return y0, y1"
                .parse()
                .unwrap();
        let neg = cost::weight(Call::row("Neg", DType::F32).unwrap());
        let stages = [(neg, true), (neg, false), (2 * neg, true)];
        let stages: u32 = stages.iter().map(|(cost, full)| cost::row_stage(*cost, *full)).sum();
        assert_eq!(program.cost(), cost::REDUCTION + stages);
    }

    #[test]
    fn stages_that_do_not_go_together_are_refused() {
        for text in [
            "return y0",
            "Sum: x: float32; c: 0; return x0 | return y0",
            "Sum: x: float32; c: 0; return x0 | return r1",
            "Sum: x: float32; c: 0; return x0 |",
            "Median: x: float32; c: 0; return x0 | return r0",
            "Sum, Max: x: float32; c: 0; return x0 | return r0",
            "Sum: x: int64; c: 0; return x0 | return r0",
            "Sum: x: float32; c: 0; return x0 | full: x: float32; c: 0; return x0 | return y0",
            "Sum: x: float32; c: 0; return x0 | full: x: float32, float32; c: 1; return x0 | \
             return y0",
            "full: x: float32; c: 0; return x0 | Sum: x: float32; c: 0; return x0 | return y0",
            "full: x: float32; c: 0; return x0 | return y0 flat",
        ] {
            assert!(text.parse::<RowProgram>().is_err(), "{text}");
        }
    }
}
