//! The definition of a scalar function: one row of a table that the plain kernel, the fused kernel,
//! registration, the docs and the test oracle all read.

use crate::dtype::DType;

/// A function from the elements of the inputs to the element of the output.
#[derive(Debug)]
pub struct Row {
    /// The op's name, as in `"Exp"`.
    pub op: &'static str,
    /// Inputs in TensorFlow's order. Their names are the parameters of the WGSL function.
    pub inputs: &'static [Input],
    /// Type of the output.
    pub output: Output,
    /// The rule for the inputs' shapes.
    pub shapes: Shapes,
    /// A float attribute that the function receives after the inputs; never part of a pipeline's
    /// key.
    pub attr: Option<&'static str>,
    /// How rounding to a 16-bit float applies to arguments and result.
    pub rounding: Rounding,
    /// The definitions; each holds for some types of the attribute `T`.
    pub cases: &'static [Case],
}

/// An input of a [`Row`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Name of the WGSL parameter.
    pub name: &'static str,
    /// The type if it is not that of the attribute `T`.
    pub dtype: Option<DType>,
}

/// Type of a row's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The type of the attribute `T`.
    Same,
    /// Always this type.
    Always(DType),
    /// The real type of a part of `T`, which is complex; also the attribute `Tout`.
    Part,
    /// The complex type whose parts are of type `T`; also the attribute `Tout`.
    Complex,
}

/// How rounding to a 16-bit float applies to a function that is computed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The arguments have to be rounded, and so does the result.
    Rounds,
    /// The arguments have to be rounded; the result then is a value of their type.
    Exact,
    /// The result is a constant of the type or one of the arguments in this mask, possibly with
    /// another sign. It is the same whether these arguments are rounded before or the result is
    /// rounded afterwards. The other arguments have to be rounded.
    Moves(u8),
}

/// A complex number, as the references see it.
pub type Complex = [f64; 2];

/// The rule for the shapes of a row's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shapes {
    /// numpy broadcasting.
    Broadcast,
    /// numpy broadcasting; with the attribute `incompatible_shape_error` false, shapes that do not
    /// broadcast give this scalar.
    BroadcastOr(bool),
    /// All shapes are the same.
    Same,
    /// `Select`: the condition has the other inputs' shape, or is a scalar, or a vector that
    /// selects along their first dimension.
    Select,
    /// `Betainc`: all inputs that are not scalars have the same shape.
    SameOrScalar,
    /// `ClipByValue`: each bound has the first input's shape or is a scalar.
    Bounds,
}

/// A row's definition for some types.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Values of the attribute `T`.
    pub types: &'static [DType],
    /// A WGSL expression of the inputs' names; `{T}` stands for the type in which `T` is computed,
    /// `{R}` for the type of a part of a complex `T`, `{BITS}` for the width of `T` in bits. Types
    /// narrower than 32 bits are computed in 32 bits, integers modulo their width.
    pub wgsl: &'static str,
    /// The same function in Rust.
    pub reference: Reference,
    /// Tolerance in units in the last place of float32, on adapters that are as precise as WGSL
    /// demands.
    pub ulps: u32,
    /// The same in float64, where the reference itself is rounded.
    pub ulps64: u32,
    /// Absolute tolerance, for results that cancel.
    pub near_zero: f64,
    /// The range where random arguments of tests are dense.
    pub domain: (f64, f64),
    /// Intermediate products overflow or underflow for extreme arguments, in this and in
    /// TensorFlow's kernels: tests stay within float32's square root.
    pub narrow: bool,
}

/// A function in Rust: the oracle of the tests. Floats are computed in f64 and rounded once,
/// integers in i128 and wrapped once.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "argument class, result class and arity")]
pub enum Reference {
    Float1(fn(f64) -> f64),
    Float2(fn(f64, f64) -> f64),
    Float3(fn(f64, f64, f64) -> f64),
    FloatTest1(fn(f64) -> bool),
    FloatTest2(fn(f64, f64) -> bool),
    FloatTest3(fn(f64, f64, f64) -> bool),
    Int1(fn(i128) -> i128),
    Int2(fn(i128, i128) -> i128),
    Int3(fn(i128, i128, i128) -> i128),
    IntTest2(fn(i128, i128) -> bool),
    /// An integer function that depends on the type.
    Typed2(fn(DType, i128, i128) -> i128),
    /// The same, of one argument.
    Typed1(fn(DType, i128) -> i128),
    /// A function of complex numbers. Real arguments and results have an imaginary part of 0, bools
    /// are 0 and 1.
    Complex(fn(&[Complex]) -> Complex),
}

/// An element, as the references see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Of a float type.
    Float(f64),
    /// Of an integer type or bool.
    Int(i128),
}

impl Value {
    fn float(self) -> f64 {
        match self {
            Self::Float(v) => v,
            Self::Int(v) => v as f64,
        }
    }

    fn int(self) -> i128 {
        match self {
            Self::Int(v) => v,
            Self::Float(v) => v as i128,
        }
    }
}

impl Reference {
    /// The function's exact value, not yet rounded or wrapped to the output's type. `dtype` is the
    /// attribute `T`. Panics when the number of arguments is wrong.
    pub fn evaluate(&self, dtype: DType, arguments: &[Value]) -> Value {
        let f = |k: usize| arguments[k].float();
        let i = |k: usize| arguments[k].int();
        let truth = |b: bool| Value::Int(i128::from(b));
        match (self, arguments.len()) {
            (Self::Float1(g), 1) => Value::Float(g(f(0))),
            (Self::Float2(g), 2) => Value::Float(g(f(0), f(1))),
            (Self::Float3(g), 3) => Value::Float(g(f(0), f(1), f(2))),
            (Self::FloatTest1(g), 1) => truth(g(f(0))),
            (Self::FloatTest2(g), 2) => truth(g(f(0), f(1))),
            (Self::FloatTest3(g), 3) => truth(g(f(0), f(1), f(2))),
            (Self::Int1(g), 1) => Value::Int(g(i(0))),
            (Self::Int2(g), 2) => Value::Int(g(i(0), i(1))),
            (Self::Int3(g), 3) => Value::Int(g(i(0), i(1), i(2))),
            (Self::IntTest2(g), 2) => truth(g(i(0), i(1))),
            (Self::Typed1(g), 1) => Value::Int(g(dtype, i(0))),
            (Self::Typed2(g), 2) => Value::Int(g(dtype, i(0), i(1))),
            _ => panic!("{self:?} called with {} arguments", arguments.len()),
        }
    }
}

impl Case {
    /// Tolerance in units in the last place.
    #[must_use]
    pub const fn ulps(mut self, ulps: u32) -> Self {
        self.ulps = ulps;
        self.ulps64 = ulps;
        self
    }

    /// Tolerance in float64, if it differs.
    #[must_use]
    pub const fn ulps64(mut self, ulps: u32) -> Self {
        self.ulps64 = ulps;
        self
    }

    /// Absolute tolerance, for results that cancel.
    #[must_use]
    pub const fn near_zero(mut self, tolerance: f64) -> Self {
        self.near_zero = tolerance;
        self
    }

    /// Extreme arguments overflow in intermediate products.
    #[must_use]
    pub const fn narrow(mut self) -> Self {
        self.narrow = true;
        self
    }

    /// The range where random arguments of tests are dense.
    #[must_use]
    pub const fn domain(mut self, low: f64, high: f64) -> Self {
        self.domain = (low, high);
        self
    }
}

/// A definition that is exact unless another tolerance is set.
pub const fn case(types: &'static [DType], wgsl: &'static str, reference: Reference) -> Case {
    Case {
        types,
        wgsl,
        reference,
        ulps: 0,
        ulps64: 0,
        near_zero: 0.0,
        domain: (-10.0, 10.0),
        narrow: false,
    }
}

/// An input of the type `T`.
pub const fn input(name: &'static str) -> Input {
    Input { name, dtype: None }
}

const X: &[Input] = &[input("x")];
const XY: &[Input] = &[input("x"), input("y")];

/// A function `op(x)`.
pub const fn unary(op: &'static str, cases: &'static [Case]) -> Row {
    of(op, X, Shapes::Same, cases)
}

/// A function `op(x, y)` with broadcasting.
pub const fn binary(op: &'static str, cases: &'static [Case]) -> Row {
    of(op, XY, Shapes::Broadcast, cases)
}

const fn of(
    op: &'static str,
    inputs: &'static [Input],
    shapes: Shapes,
    cases: &'static [Case],
) -> Row {
    let (output, rounding) = (Output::Same, Rounding::Rounds);
    Row { op, inputs, output, shapes, attr: None, rounding, cases }
}

impl Row {
    /// The same row with a bool output.
    #[must_use]
    pub const fn test(mut self) -> Self {
        self.output = Output::Always(DType::Bool);
        self
    }

    /// The same row with this output type.
    #[must_use]
    pub const fn gives(mut self, dtype: DType) -> Self {
        self.output = Output::Always(dtype);
        self
    }

    /// The same row with an output of the parts' real type.
    #[must_use]
    pub const fn gives_part(mut self) -> Self {
        self.output = Output::Part;
        self
    }

    /// The same row with an output of the complex type whose parts are `T`.
    #[must_use]
    pub const fn gives_complex(mut self) -> Self {
        self.output = Output::Complex;
        self
    }

    /// The same row with these inputs.
    #[must_use]
    pub const fn of(mut self, inputs: &'static [Input]) -> Self {
        self.inputs = inputs;
        self
    }

    /// The same row with another rule for shapes.
    #[must_use]
    pub const fn shapes(mut self, shapes: Shapes) -> Self {
        self.shapes = shapes;
        self
    }

    /// The same row with a float attribute as last argument.
    #[must_use]
    pub const fn attr(mut self, name: &'static str) -> Self {
        self.attr = Some(name);
        self
    }

    /// The same row with results that need no rounding where the arguments are rounded.
    #[must_use]
    pub const fn exact(mut self) -> Self {
        self.rounding = Rounding::Exact;
        self
    }

    /// The same row with a result that is one of the arguments in this mask; see
    /// [`Rounding::Moves`].
    #[must_use]
    pub const fn moves(mut self, arguments: u8) -> Self {
        self.rounding = Rounding::Moves(arguments);
        self
    }

    /// Whether the op has the type attribute `T`; the logical ops have none.
    pub fn is_typed(&self) -> bool {
        !self.op.starts_with("Logical")
    }

    /// Every value of the attribute `T`.
    pub fn types(&self) -> impl Iterator<Item = DType> + '_ {
        self.cases.iter().flat_map(|c| c.types).copied()
    }

    /// The definition for `dtype`. Plain ops of int32 compute in host memory, so that most rows do
    /// not list it; fused ops compute with it as with int64.
    pub fn case(&self, dtype: DType) -> Option<&Case> {
        let of = |dtype| self.cases.iter().find(|c| c.types.contains(&dtype));
        of(dtype).or_else(|| of(DType::I64).filter(|_| dtype == DType::I32))
    }

    /// Types of the inputs when the attribute `T` is `dtype`.
    pub fn input_types(&self, dtype: DType) -> Vec<DType> {
        self.inputs.iter().map(|i| i.dtype.unwrap_or(dtype)).collect()
    }

    /// Type of the output when the attribute `T` is `dtype`.
    pub fn output_type(&self, dtype: DType) -> DType {
        match self.output {
            Output::Same => dtype,
            Output::Always(t) => t,
            Output::Part => dtype.part(),
            Output::Complex => dtype.complex(),
        }
    }
}

/// A scalar function in WGSL, ready for any shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name: the op and the type, as in `Exp_float32`.
    pub name: String,
    /// The function's text. Parameters are the inputs in their order, then the attribute as `f32`.
    pub text: String,
}

/// The WGSL function of `row` when the attribute `T` is `dtype`; `None` when the row has no such
/// type. A fused shader calls several of them by name.
pub fn scalar_wgsl(row: &Row, dtype: DType) -> Option<Function> {
    let case = row.case(dtype)?;
    let output = row.output_type(dtype);
    let wide = dtype == DType::F64;
    let narrow = dtype.is_integer() && dtype.size() < 4;
    let name = format!("{}_{dtype}", row.op);
    let mut parameters: Vec<String> = row
        .inputs
        .iter()
        .map(|i| format!("{}: {}", i.name, i.dtype.unwrap_or(dtype).value()))
        .collect();
    parameters.extend(row.attr.map(|a| format!("{a}{}: f32", if wide { "_f32" } else { "" })));
    let mut value = case
        .wgsl
        .replace("{T}", dtype.value())
        .replace("{R}", dtype.part().value())
        .replace("{BITS}", &(8 * dtype.size()).to_string());
    if narrow && output == dtype {
        // The value wraps as in the narrow type, so that the next function of a fused chain sees
        // the value that memory would hold.
        value = format!("extractBits({value}, 0u, {}u)", 8 * dtype.size());
    }
    let widened: String = row
        .attr
        .filter(|_| wide)
        .iter()
        .map(|a| format!("    let {a} = f64({a}_f32);\n"))
        .collect();
    let text = format!(
        "fn {name}({}) -> {} {{\n{widened}    return {value};\n}}\n",
        parameters.join(", "),
        output.value()
    );
    Some(Function { name, text })
}
