//! `_WgpuFusedElementwise`: an expression over inputs that broadcast, with one or more outputs of
//! the shape to which all inputs broadcast. It runs one program, that of the plain elementwise
//! kernels.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs, broadcast};
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::cost;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::scalar::map::{MAX_INPUTS, MAX_TENSORS, Signature};
use crate::layout::broadcast_dims;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

/// The op's name.
pub const OP: &str = "_WgpuFusedElementwise";

/// The op.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in"],
    outputs: &["y: T_out"],
    attrs: &[
        "T_in: list(type) >= 1",
        "T_out: list(type) >= 1",
        "expression: string",
        "constants: list(float)",
    ],
    stateful: false,
    shape,
}];

/// Shape functions do not see the number of a node's outputs; TensorFlow ignores surplus shapes.
fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![broadcast(inputs.shapes)?; MAX_TENSORS])
}

/// Whether one program can bind this many tensors.
pub const fn fits(inputs: usize, outputs: usize) -> bool {
    inputs >= 1
        && inputs <= MAX_INPUTS
        && outputs >= 1
        && outputs <= MAX_INPUTS
        && inputs + outputs <= MAX_TENSORS
}

struct Elementwise {
    expression: Expression,
    /// The expression's text, the main part of the pipeline's key.
    text: String,
    outputs: Vec<DType>,
    constants: Vec<f32>,
    /// Names of the parameters.
    names: Vec<String>,
}

impl Elementwise {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let expression: Expression = attrs.string("expression")?.parse()?;
        cost::check(cost::elementwise(cost::expression(&expression)))?;
        Self::of(
            expression,
            &attrs.dtypes("T_in")?,
            attrs.dtypes("T_out")?,
            attrs.floats("constants")?,
        )
    }

    fn of(
        expression: Expression,
        inputs: &[DType],
        outputs: Vec<DType>,
        constants: Vec<f32>,
    ) -> Result<Self> {
        require!(
            inputs == expression.inputs(),
            "T_in is {inputs:?}, but the expression is {expression}"
        );
        let expected = expression.output_types();
        // A parameter has no type of its own.
        let is_parameter = |k: usize, t: DType| {
            matches!(expression.outputs()[k], Value::Constant(_)) && t.value() == "f32"
        };
        require!(
            outputs.len() == expected.len()
                && outputs
                    .iter()
                    .zip(&expected)
                    .enumerate()
                    .all(|(k, (t, e))| t == e || is_parameter(k, *t)),
            "T_out is {outputs:?}, but the expression gives {expected:?}: {expression}"
        );
        require!(
            constants.len() == expression.constants(),
            "{} constants for the {} parameters of {expression}",
            constants.len(),
            expression.constants()
        );
        require!(
            fits(inputs.len(), outputs.len()),
            "{} inputs and {} outputs are more than one program binds",
            inputs.len(),
            outputs.len()
        );
        let names = (0..constants.len()).map(|i| format!("c{i}")).collect();
        Ok(Self { text: expression.to_string(), expression, outputs, constants, names })
    }

    fn signature<R>(&self, f: impl FnOnce(&Signature<'_>) -> R) -> R {
        let names: SmallVec<[&str; 8]> = self.names.iter().map(String::as_str).collect();
        f(&Signature {
            op: &self.text,
            inputs: self.expression.inputs(),
            outputs: &self.outputs,
            attrs: &names,
            function: &|| self.expression.wgsl("fused"),
            operations: self.expression.operations(),
        })
    }
}

impl Kernel for Elementwise {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let mut inputs: SmallVec<[Tensor; MAX_INPUTS]> = SmallVec::new();
        let mut dims = Dims::new();
        for i in 0..self.expression.inputs().len() {
            let t = ctx.input(i)?;
            dims = broadcast_dims(&dims, &t.dims)?;
            inputs.push(t);
        }
        let mut outputs: SmallVec<[Tensor; MAX_INPUTS]> = SmallVec::new();
        for (k, dtype) in self.outputs.iter().enumerate() {
            // An input becomes at most one output.
            let free = |t: &Tensor| outputs.iter().all(|o| o.address != t.address);
            let fits = |t: &Tensor| t.dims == dims && t.dtype == *dtype && free(t);
            let candidates: SmallVec<[usize; MAX_INPUTS]> =
                inputs.iter().enumerate().filter(|(_, t)| fits(t)).map(|(i, _)| i).collect();
            outputs.push(ctx.forward_or_output(&candidates, k, *dtype, &dims)?);
        }
        self.signature(|s| s.run(ctx.device(), &inputs, &outputs, &self.constants))
    }
}

/// Registers the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).kernel(Elementwise::new);
}

/// Expressions as they arise, one for each way to read and write.
const SAMPLES: &[&str] = &[
    "x: float32, float32; c: 2; s0 = Mul<float32>(x0, c0); s1 = Tanh<float32>(s0); s2 = \
     AddV2<float32>(s1, c1); s3 = Mul<float32>(s2, x1); return s3",
    "x: float16, float32; c: 0; s0 = Cast<float16, float32>(x0); s1 = Mul<float32>(s0, x1); s2 = \
     Cast<float32, float16>(s1); return s2, s1",
    "x: bfloat16, bool, float32; c: 1; s0 = Cast<float32, bfloat16>(x2); s1 = Mul<bfloat16>(x0, \
     s0); s2 = Greater<bfloat16>(s1, c0); s3 = LogicalAnd<bool>(s2, x1); s4 = \
     SelectV2<bfloat16>(s3, s1, c0); return s4, s3, s1",
    "x: int64, int64; c: 0; s0 = AddV2<int64>(x0, x1); s1 = Less<int64>(s0, x1); s2 = Cast<int64, \
     float32>(s0); return s2, s1",
    "x: float64; c: 0; s0 = Exp<float64>(x0); s1 = Cast<float64, float32>(s0); return s0, s1",
    "x: uint8; c: 1; s0 = Cast<uint8, float16>(x0); s1 = Mul<float16>(s0, c0); return s1",
    "x: float32; c: 2; s0 = LeakyRelu<float32>(x0, c0); return s0, c1, x0",
];

/// Shader variants of sample expressions.
pub fn shaders() -> Vec<Shader> {
    let sample = |text: &&str| {
        let expression: Expression = text.parse().expect("an expression of the tables' rows");
        let (inputs, outputs) = (expression.inputs().to_vec(), expression.output_types());
        let constants = vec![0.0; expression.constants()];
        Elementwise::of(expression, &inputs, outputs, constants).expect("a sample that fits")
    };
    SAMPLES.iter().map(sample).flat_map(|kernel| kernel.signature(|s| s.shaders())).collect()
}
