//! The values that an arg-reduction compares. An expression computes them from tensors of one
//! shape. A plain op compares the elements of its tensor: its expression has no step.

use smallvec::SmallVec;

use crate::device::{Key, KeyPart, Parameter, Params};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::Expression;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::require;
use crate::shader::{Access, Field, Shader};

/// Names of the inputs' bindings.
pub const NAMES: [&str; MAX_INPUTS] = ["x0", "x1", "x2", "x3"];
/// The most inputs. With a buffer of parameters and two results, seven of eight bindings.
pub const MAX_INPUTS: usize = 4;
/// The most parameters.
const MAX_CONSTANTS: usize = 16;

/// Whether a reduction can compute an expression of this many inputs and parameters.
pub const fn fits(inputs: usize, constants: usize) -> bool {
    inputs >= 1 && inputs <= MAX_INPUTS && constants <= MAX_CONSTANTS
}

/// An expression with one output.
#[derive(Debug)]
pub struct Values {
    expression: Expression,
    /// Its text, a part of the pipeline's key.
    text: String,
}

impl Values {
    /// The values of an expression.
    ///
    /// # Errors
    /// `InvalidArgument` if it has several outputs, or more inputs or parameters than a program.
    pub fn new(expression: Expression) -> Result<Self> {
        let [inputs, constants] = [expression.inputs().len(), expression.constants()];
        require!(
            expression.outputs().len() == 1 && fits(inputs, constants),
            "no reduction to an index has {inputs} inputs, {constants} parameters and {} values",
            expression.outputs().len()
        );
        let output = expression.output_type(0);
        require!(super::TYPES.contains(&output), "values of {output} are not compared");
        Ok(Self { text: expression.to_string(), expression })
    }

    /// The elements of a tensor.
    pub fn of_tensor(dtype: DType) -> Self {
        let mut expression = Expression::new();
        let x = expression.input(dtype);
        expression.output(x);
        Self { text: expression.to_string(), expression }
    }

    /// The type of the values.
    pub fn dtype(&self) -> DType {
        self.expression.output_type(0)
    }

    /// The types of the tensors.
    pub fn inputs(&self) -> &[DType] {
        self.expression.inputs()
    }

    /// The number of parameters.
    pub fn constants(&self) -> usize {
        self.expression.constants()
    }

    /// The operations for `count` values: the expression's, and a comparison.
    pub fn flops(&self, count: usize) -> u64 {
        self.dtype().flops(count * (1 + self.expression.operations() as usize))
    }

    /// The bindings of the tensors.
    pub fn bindings(&self, in_vec4s: bool) -> impl Iterator<Item = (&'static str, Access)> {
        let types = self.expression.inputs().iter();
        NAMES.into_iter().zip(types.map(move |dtype| Access::read(*dtype, in_vec4s)))
    }

    /// The value of the elements at an index.
    pub fn load(&self, at: &str) -> String {
        self.call(|name| format!("load_{name}({at})"))
    }

    /// The body of a function of `at` that gives the values of the vec4s at this index.
    pub fn read(&self) -> String {
        let names = &NAMES[..self.inputs().len()];
        let reads: String =
            names.iter().map(|name| format!("    let {name}_four = read_{name}(at);\n")).collect();
        let lanes = ["x", "y", "z", "w"];
        let each = lanes.map(|lane| self.call(|name| format!("{name}_four.{lane}")));
        format!("{reads}    return vec4({});", each.join(", "))
    }

    fn call(&self, input: impl Fn(&str) -> String) -> String {
        let inputs = NAMES[..self.inputs().len()].iter().map(|name| input(name));
        let constants = (0..self.constants()).map(|k| format!("p.c{k}"));
        format!("value({})", inputs.chain(constants).collect::<Vec<_>>().join(", "))
    }

    /// Adds the function `value`.
    pub fn define(&self, shader: Shader) -> Shader {
        // What is compared must have the bits that memory would have.
        let ends = Ends { sums: 0, sink: Sink::Expression };
        let function = Expression::wgsl_all(&[("value", &self.expression, ends)]);
        shader.body(&function.text)
    }
}

impl KeyPart for &Values {
    fn add_to(&self, key: Key) -> Key {
        key.name(&self.text)
    }
}

/// The values of an expression's parameters.
#[derive(Debug, Clone, Default)]
pub struct Constants(SmallVec<[f32; 4]>);

impl From<Vec<f32>> for Constants {
    fn from(values: Vec<f32>) -> Self {
        Self(values.into())
    }
}

/// `c0`, `c1`, … in WGSL, for the given number of parameters.
impl Parameter<usize> for Constants {
    fn declare(count: usize, shader: Shader, _: &'static str) -> Shader {
        (0..count).fold(shader, |shader, k| shader.param(format!("c{k}"), Field::F32))
    }

    fn append_to(self, params: Params) -> Params {
        self.0.into_iter().fold(params, Params::f32)
    }
}

/// Expressions as they arise.
pub fn samples() -> Vec<Values> {
    const TEXTS: [&str; 3] = [
        "x: bfloat16; c: 1; s0 = Cast<float32, int32>(c0); s1 = Cast<bfloat16, float32>(x0); s2 = \
         Bitcast<float32, int32>(s1); s3 = Less<int32>(s2, s0); s4 = SelectV2<float32>(s3, c0, \
         s1); return s4",
        "x: float32, float32; c: 1; s0 = Mul<float32>(x0, c0); s1 = AddV2<float32>(s0, x1); \
         return s1",
        "x: int64, bool; c: 0; s0 = Cast<bool, int64>(x1); s1 = AddV2<int64>(x0, s0); return s1",
    ];
    let values = |text: &str| Values::new(text.parse().expect("a sample")).expect("a sample");
    TEXTS.map(values).into()
}
