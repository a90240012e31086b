//! `_WgpuFusedElementwise`: an expression over inputs that broadcast, with one or more outputs of
//! the shape to which all inputs broadcast. It runs one program, that of the plain elementwise
//! kernels.

use smallvec::SmallVec;

use crate::device::Device;
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

/// An expression as an elementwise program. Plain ops have constant ones.
pub struct ElementwiseProgram {
    expression: Expression,
    /// The expression's text, the main part of the pipeline's key.
    text: String,
    outputs: Vec<DType>,
    /// Names of the parameters.
    names: Vec<String>,
}

impl ElementwiseProgram {
    /// The program of an expression.
    ///
    /// # Errors
    /// `InvalidArgument` if one program does not bind its inputs and outputs.
    pub fn new(expression: Expression) -> Result<Self> {
        let outputs = expression.output_types();
        Self::with_outputs(expression, outputs)
    }

    /// The program of an expression whose outputs have the types `outputs`. Outputs that are
    /// parameters have no type of their own.
    fn with_outputs(expression: Expression, outputs: Vec<DType>) -> Result<Self> {
        let (inputs, count) = (expression.inputs().len(), outputs.len());
        require!(
            fits(inputs, count),
            "{inputs} inputs and {count} outputs are more than one program binds"
        );
        let names = (0..expression.constants()).map(|i| format!("c{i}")).collect();
        Ok(Self { text: expression.to_string(), expression, outputs, names })
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

    /// Enqueues the program for the parameters' values `constants`, as [`Signature::run`] does.
    ///
    /// # Errors
    /// Those of [`Signature::run`].
    pub fn run(
        &self,
        device: &Device,
        inputs: &[Tensor],
        outputs: &[Tensor],
        constants: &[f32],
    ) -> Result<()> {
        debug_assert_eq!(constants.len(), self.names.len());
        self.signature(|s| s.run(device, inputs, outputs, constants))
    }

    /// Every shader variant.
    pub fn shaders(&self) -> Vec<Shader> {
        self.signature(|s| s.shaders())
    }
}

struct Elementwise {
    program: ElementwiseProgram,
    constants: Vec<f32>,
}

impl Elementwise {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let expression: Expression = attrs.string("expression")?.parse()?;
        cost::check(cost::elementwise(cost::expression(&expression)))?;
        let (inputs, outputs) = (attrs.dtypes("T_in")?, attrs.dtypes("T_out")?);
        let constants = attrs.floats("constants")?;
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
        Ok(Self { program: ElementwiseProgram::with_outputs(expression, outputs)?, constants })
    }
}

impl Kernel for Elementwise {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let program = &self.program;
        let mut inputs: SmallVec<[Tensor; MAX_INPUTS]> = SmallVec::new();
        let mut dims = Dims::new();
        for i in 0..program.expression.inputs().len() {
            let t = ctx.input(i)?;
            dims = broadcast_dims(&dims, &t.dims)?;
            inputs.push(t);
        }
        let mut outputs: SmallVec<[Tensor; MAX_INPUTS]> = SmallVec::new();
        for (k, dtype) in program.outputs.iter().enumerate() {
            // An input becomes at most one output.
            let free = |t: &Tensor| outputs.iter().all(|o| o.address != t.address);
            let fits = |t: &Tensor| t.dims == dims && t.dtype == *dtype && free(t);
            let candidates: SmallVec<[usize; MAX_INPUTS]> =
                inputs.iter().enumerate().filter(|(_, t)| fits(t)).map(|(i, _)| i).collect();
            outputs.push(ctx.forward_or_output(&candidates, k, *dtype, &dims)?);
        }
        program.run(ctx.device(), &inputs, &outputs, &self.constants)
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
        ElementwiseProgram::new(expression).expect("a sample that fits")
    };
    SAMPLES.iter().map(sample).flat_map(|program| program.shaders()).collect()
}
