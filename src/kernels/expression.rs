//! The computation of a fused kernel for each element: a DAG of scalar rows, casts and bitcasts,
//! with parameters in place of constants.
//!
//! The graph optimizer builds an expression, an attribute of the fused op carries it as text, and
//! the kernel turns it into a WGSL function that calls the same functions as the plain kernels. As
//! text:
//!
//! ```text
//! x: float32, float16; c: 1; s0 = Cast<float16, float32>(x1); s1 = Mul<float32>(x0, c0);
//!     s2 = AddV2<float32>(s1, s0); return s2
//! ```
//!
//! `x` are the inputs' types, `c` the number of parameters, which are `f32` and stand for values of
//! float32, float16 or bfloat16; an attribute of a row is a parameter after the arguments. The
//! parameters' values are not part of the text, and so not part of a pipeline's key either. Values
//! between steps are those of the plain kernels, bit for bit: see [`wgsl`].

mod text;
pub mod wgsl;

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::scalar::row::{Function, Rounding, Row, scalar_wgsl};
use crate::kernels::scalar::{self, cast};
use crate::{invalid, require};
#[cfg(test)]
pub(crate) use text::MOST_STEPS;
pub(crate) use text::check_length;

/// Where an argument comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// An input.
    Input(u32),
    /// A parameter.
    Constant(u32),
    /// An earlier step.
    Step(u32),
}

/// A scalar function that an expression may call.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// A row of the tables for one value of its attribute `T`.
    Row(&'static Row, DType),
    /// `Cast` without truncation from one type to another.
    Cast(DType, DType),
    /// `Bitcast` between two types of [`cast::has_bits`] and one size.
    Bitcast(DType, DType),
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Row(a, t), Self::Row(b, u)) => a.op == b.op && t == u,
            (Self::Cast(a, b), Self::Cast(c, d)) | (Self::Bitcast(a, b), Self::Bitcast(c, d)) => {
                (a, b) == (c, d)
            }
            _ => false,
        }
    }
}

impl Call {
    /// The row of `op` for `dtype`; `None` when no table has it.
    pub fn row(op: &str, dtype: DType) -> Option<Self> {
        scalar::find(op).filter(|row| row.case(dtype).is_some()).map(|row| Self::Row(row, dtype))
    }

    /// The `Bitcast` between two types; `None` for sizes that differ, and for types that a shader
    /// holds in other bits than memory.
    pub fn bitcast(from: DType, to: DType) -> Option<Self> {
        let fits = from.size() == to.size() && [from, to].into_iter().all(cast::has_bits);
        fits.then_some(Self::Bitcast(from, to))
    }

    /// TensorFlow's op.
    pub const fn op(self) -> &'static str {
        match self {
            Self::Row(row, _) => row.op,
            Self::Cast(..) => "Cast",
            Self::Bitcast(..) => "Bitcast",
        }
    }

    /// The types of its arguments, without the attribute.
    pub fn inputs(self) -> Vec<DType> {
        match self {
            Self::Row(row, dtype) => row.input_types(dtype),
            Self::Cast(from, _) | Self::Bitcast(from, _) => vec![from],
        }
    }

    /// The type of its value.
    pub fn output(self) -> DType {
        match self {
            Self::Row(row, dtype) => row.output_type(dtype),
            Self::Cast(_, to) | Self::Bitcast(_, to) => to,
        }
    }

    /// Whether a parameter follows the arguments.
    pub const fn has_attr(self) -> bool {
        matches!(self, Self::Row(Row { attr: Some(_), .. }, _))
    }

    /// Its function.
    pub fn wgsl(self) -> Function {
        match self {
            Self::Row(row, dtype) => {
                scalar_wgsl(row, dtype).expect("a call exists only for a row's own types")
            }
            Self::Cast(from, to) => cast::function(from, to, false),
            Self::Bitcast(from, to) => cast::bits(from, to),
        }
    }

    /// How rounding applies to it.
    pub const fn rounding(self) -> Rounding {
        match self {
            Self::Row(row, _) => row.rounding,
            Self::Cast(from, to) if from as u8 == to as u8 => Rounding::Moves(1),
            Self::Cast(..) => Rounding::Rounds,
            Self::Bitcast(..) => Rounding::Exact,
        }
    }
}

/// One call of an expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The function that is called.
    pub call: Call,
    /// Its arguments, then the parameter of its attribute if it has one.
    pub args: SmallVec<[Value; 4]>,
}

/// A DAG of calls: inputs and parameters in, one or more values out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expression {
    inputs: Vec<DType>,
    constants: u32,
    steps: Vec<Step>,
    outputs: Vec<Value>,
}

impl Expression {
    /// An expression without inputs and steps, to be extended.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input of type `dtype`.
    pub fn input(&mut self, dtype: DType) -> Value {
        self.inputs.push(dtype);
        Value::Input(self.inputs.len() as u32 - 1)
    }

    /// Adds a parameter.
    pub fn constant(&mut self) -> Value {
        self.constants += 1;
        Value::Constant(self.constants - 1)
    }

    /// Adds a call. If an equal call was added before, its value is used again.
    ///
    /// # Errors
    /// `InvalidArgument` if the number or the types of the arguments are not those of the call.
    pub fn step(&mut self, call: Call, args: &[Value]) -> Result<Value> {
        let types = call.inputs();
        let expected = types.len() + usize::from(call.has_attr());
        require!(args.len() == expected, "{call} takes {expected} arguments, not {}", args.len());
        for (arg, dtype) in args.iter().zip(&types) {
            let given = self.dtype(*arg)?;
            let fits = given.map_or(dtype.is_single(), |t| t == *dtype);
            require!(
                fits,
                "{call} takes {dtype}, not {arg} of {}",
                given.map_or("a parameter", DType::name)
            );
        }
        if let Some(attr) = args.get(types.len()) {
            require!(
                matches!(attr, Value::Constant(_)),
                "the attribute of {call} must be a parameter, not {attr}"
            );
        }
        let step = Step { call, args: SmallVec::from_slice(args) };
        // An equal step comes behind all steps that it uses.
        let after = |arg: &Value| if let Value::Step(at) = arg { *at as usize + 1 } else { 0 };
        let first = step.args.iter().map(after).max().unwrap_or(0);
        let equal = self.steps[first..].iter().position(|s| *s == step);
        let at = equal.map_or(self.steps.len(), |at| first + at);
        if equal.is_none() {
            self.steps.push(step);
        }
        Ok(Value::Step(at as u32))
    }

    /// Adds a call of the row of `op` for `dtype`.
    ///
    /// # Errors
    /// `Internal` if no table has the row, and those of [`Expression::step`].
    pub fn call(&mut self, op: &str, dtype: DType, args: &[Value]) -> Result<Value> {
        let call = Call::row(op, dtype)
            .ok_or_else(|| Error::Internal(format!("there is no {op} of {dtype}")))?;
        self.step(call, args)
    }

    /// `value` as `to`: a cast, if it has another type.
    ///
    /// # Errors
    /// Those of [`Expression::step`].
    pub fn cast(&mut self, value: Value, to: DType) -> Result<Value> {
        match self.dtype(value)? {
            Some(from) if from != to => self.step(Call::Cast(from, to), &[value]),
            _ => Ok(value),
        }
    }

    /// Appends the steps of another expression, with parameters of their own. `inputs` take the
    /// place of its inputs. Returns the values of its outputs.
    ///
    /// # Errors
    /// Those of [`Expression::step`].
    pub fn append(&mut self, other: &Self, inputs: &[Value]) -> Result<Vec<Value>> {
        require!(inputs.len() == other.inputs.len(), "{} values for {other}", inputs.len());
        let first = self.constants;
        self.constants += other.constants;
        let mut steps: Vec<Value> = Vec::new();
        let of = |value: &Value, steps: &[Value]| match *value {
            Value::Input(at) => inputs[at as usize],
            Value::Constant(at) => Value::Constant(first + at),
            Value::Step(at) => steps[at as usize],
        };
        for Step { call, args } in &other.steps {
            let args: SmallVec<[Value; 4]> = args.iter().map(|arg| of(arg, &steps)).collect();
            steps.push(self.step(*call, &args)?);
        }
        Ok(other.outputs.iter().map(|value| of(value, &steps)).collect())
    }

    /// Makes `value` the next output.
    pub fn output(&mut self, value: Value) {
        self.outputs.push(value);
    }

    /// Types of the inputs.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// Number of parameters.
    pub const fn constants(&self) -> usize {
        self.constants as usize
    }

    /// The calls, each after those that it uses.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The number of steps without casts, which profiles count for each element.
    pub fn operations(&self) -> u32 {
        self.steps.iter().filter(|step| matches!(step.call, Call::Row(..))).count() as u32
    }

    /// The values of the outputs.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The expression of `values` alone, and the indices of the inputs that it has. All parameters
    /// stay.
    pub fn select(&self, values: &[Value]) -> (Self, Vec<usize>) {
        let mut inputs = BTreeSet::new();
        let mut steps = BTreeSet::new();
        let mut left = values.to_vec();
        while let Some(value) = left.pop() {
            match value {
                Value::Input(i) => drop(inputs.insert(i)),
                Value::Step(i) if steps.insert(i) => left.extend(&self.steps[i as usize].args),
                Value::Step(_) | Value::Constant(_) => {}
            }
        }
        let position = |set: &BTreeSet<u32>, i: u32| set.range(..i).count() as u32;
        let renamed = |value: &Value| match *value {
            Value::Input(i) => Value::Input(position(&inputs, i)),
            Value::Step(i) => Value::Step(position(&steps, i)),
            constant => constant,
        };
        let step = |i: &u32| {
            let Step { call, args } = &self.steps[*i as usize];
            Step { call: *call, args: args.iter().map(renamed).collect() }
        };
        let selected = Self {
            inputs: inputs.iter().map(|i| self.inputs[*i as usize]).collect(),
            constants: self.constants,
            steps: steps.iter().map(step).collect(),
            outputs: values.iter().map(renamed).collect(),
        };
        (selected, inputs.into_iter().map(|i| i as usize).collect())
    }

    /// `values` and the values that they are computed from, each after its arguments. Nothing that
    /// only a value is computed from for which `is_known` holds.
    pub fn sources(&self, values: &[Value], is_known: impl Fn(Value) -> bool) -> Vec<Value> {
        let mut found = BTreeSet::new();
        let mut left = values.to_vec();
        while let Some(value) = left.pop() {
            if let (true, Value::Step(at), false) = (found.insert(value), value, is_known(value)) {
                left.extend(&self.steps[at as usize].args);
            }
        }
        // Steps come behind inputs and parameters, in their order.
        found.into_iter().collect()
    }

    /// Types of the outputs; a parameter counts as float32.
    pub fn output_types(&self) -> Vec<DType> {
        self.each_output_type().collect()
    }

    /// The same one by one, without memory for all.
    pub fn each_output_type(&self) -> impl Iterator<Item = DType> {
        self.outputs.iter().map(|v| self.dtype(*v).ok().flatten().unwrap_or(DType::F32))
    }

    /// The type of output `k`, which must be there.
    pub fn output_type(&self, k: usize) -> DType {
        self.each_output_type().nth(k).expect("an output of the expression")
    }

    /// The type of a value; `None` for a parameter, which has none of its own.
    pub fn dtype(&self, value: Value) -> Result<Option<DType>> {
        match value {
            Value::Input(i) if (i as usize) < self.inputs.len() => {
                Ok(Some(self.inputs[i as usize]))
            }
            Value::Constant(i) if i < self.constants => Ok(None),
            Value::Step(i) if (i as usize) < self.steps.len() => {
                Ok(Some(self.steps[i as usize].call.output()))
            }
            _ => invalid!("there is no value {value} in {self}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::*;

    fn chain() -> Expression {
        let mut e = Expression::new();
        let (x, y) = (e.input(F32), e.input(F16));
        let c = e.constant();
        let y = e.step(Call::Cast(F16, F32), &[y]).unwrap();
        let x = e.step(Call::row("Mul", F32).unwrap(), &[x, c]).unwrap();
        let z = e.step(Call::row("AddV2", F32).unwrap(), &[x, y]).unwrap();
        e.output(z);
        e
    }

    #[test]
    fn text_and_expression_are_inverse() {
        let text = "x: float32, float16; c: 1; s0 = Cast<float16, float32>(x1); s1 = \
                    Mul<float32>(x0, c0); s2 = AddV2<float32>(s1, s0); return s2";
        assert_eq!(chain().to_string(), text);
        assert_eq!(text.parse::<Expression>().unwrap(), chain());
    }

    #[test]
    fn an_equal_call_is_used_again() {
        let mut e = Expression::new();
        let x = e.input(F32);
        let square = Call::row("Square", F32).unwrap();
        assert_eq!(e.step(square, &[x]).unwrap(), e.step(square, &[x]).unwrap());
        assert_eq!(e.steps().len(), 1);
    }

    #[test]
    fn an_appended_expression_has_its_own_parameters() {
        let mut e = chain();
        let value = e.outputs()[0];
        let other = "x: float32, float32; c: 1; s0 = Mul<float32>(x1, c0); s1 = \
                     AddV2<float32>(s0, x0); return s1, x0";
        let appended = e.append(&other.parse().unwrap(), &[Value::Input(0), value]).unwrap();
        let text = "x: float32, float16; c: 2; s0 = Cast<float16, float32>(x1); s1 = \
                    Mul<float32>(x0, c0); s2 = AddV2<float32>(s1, s0); s3 = Mul<float32>(s2, c1); \
                    s4 = AddV2<float32>(s3, x0); return s2";
        assert_eq!(e.to_string(), text);
        assert_eq!(appended, [Value::Step(4), Value::Input(0)]);
        assert!(e.append(&other.parse().unwrap(), &[value]).is_err());
    }

    #[test]
    fn selected_values_keep_what_they_need() {
        let e: Expression = "x: float32, float16, float32; c: 1; s0 = Exp<float32>(x0); s1 = \
                             Mul<float32>(x2, c0); return s0, s1"
            .parse()
            .unwrap();
        let (second, inputs) = e.select(&[Value::Step(1)]);
        assert_eq!(second.to_string(), "x: float32; c: 1; s0 = Mul<float32>(x0, c0); return s0");
        assert_eq!(inputs, [2]);
    }
}
