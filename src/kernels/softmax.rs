//! Softmax, LogSoftmax and both cross entropies, as row programs: one dispatch that goes over each
//! row three times, in float32 (for float64 in float64), stable for any logits.
//!
//! `_WgpuFusedCrossEntropy` is the sparse cross entropy of logits and a gradient in their own type,
//! as mixed precision has them: without it, the logits, the gradient and the scaled gradient exist
//! in float32, too. A language model's logits are its largest tensors.

pub mod linear;

use crate::device::Device;
use crate::dtype::DType::{self, *};
use crate::dtype::types;
use crate::error::{Error, Result};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::expression::{Call, Expression, Value};
use crate::kernels::fused::rowwise::RowKernel;
use crate::kernels::fused::rowwise::program::{Action, Output, RowProgram, Stage, reduction};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kernels::scalar::row::{Reference, Row, case, unary};
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};
use crate::{invalid, require};
use smallvec::{SmallVec, smallvec};

const TYPES: &[DType] = types::FLOATS;
/// TensorFlow's GPU list has no float64 here.
const SPARSE_TYPES: &[DType] = types::FLOATS_BUT_F64;

/// The name of the fused sparse cross entropy.
pub const CROSS_ENTROPY: &str = "_WgpuFusedCrossEntropy";

/// The fused op. Its loss is in float32. The gradient is multiplied by `scale`, if it is given: an
/// element for each row, of shape `[rows, 1]`, or a single one.
const FUSED: OpDefinition = OpDefinition {
    name: CROSS_ENTROPY,
    inputs: &["logits: T", "labels: Tlabels", "scale: Tscale"],
    outputs: &["loss: float", "backprop: Tbackprop"],
    attrs: &[
        "T: {float, half, bfloat16}",
        "Tlabels: {int32, int64}",
        "Tscale: list(type) >= 0",
        "Tbackprop: {float, half, bfloat16}",
    ],
    stateful: false,
    shape: shapes_of_fused,
};

/// The ops that the optimizer creates.
pub const DEFINITIONS: &[OpDefinition] = &[FUSED, linear::DEFINITION];

fn shapes_of_fused(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let logits = inputs.shapes.first().cloned().flatten();
    let rows = logits.as_ref().and_then(|dims| Some(vec![*dims.first()?]));
    Ok(vec![rows, logits])
}

/// The exponential of a difference from the largest logit. It is no op: a graph's own `Exp` has
/// the same bits in every kernel, and takes 123 operations of a vector unit for a vec4 in the two
/// walks of a softmax, where this one takes 22. WGSL's `exp` may be off by `3 + 2|x|` units in the
/// last place. Where |x| is large, the exponential is so much smaller than the largest one, which
/// is 1, that the error of a row's sum stays below 4 units in the last place.
static EXPONENTIAL: Row = unary(
    "ExpOfDifference",
    &[
        case(types::FLOATS_BUT_F64, "exp(x)", Reference::Float1(f64::exp)),
        case(&[F64], "exp_{T}(x)", Reference::Float1(f64::exp)),
    ],
);

/// Registers the family.
pub fn register(r: &mut Registry) {
    linear::register(r);
    for op in [SoftmaxOp::Softmax, SoftmaxOp::LogSoftmax] {
        r.op(op.name()).types("T", TYPES).kernel(move |attrs| {
            let kernel = softmax(op, attrs.dtype("T")?)?;
            Ok(move |ctx: &mut dyn OpContext| {
                let x = ctx.input(0)?;
                let dims = shape_text(&x.dims);
                require!(x.rank() >= 1, "logits must have >= 1 dimension, got {dims}");
                kernel.run(ctx, &[x])
            })
        });
    }
    r.op("SoftmaxCrossEntropyWithLogits").types("T", TYPES).kernel(move |attrs| {
        let kernel = dense_cross_entropy(attrs.dtype("T")?)?;
        Ok(move |ctx: &mut dyn OpContext| {
            let operands = [ctx.input(0)?, ctx.input(1)?];
            let [rows, columns] = check_dense(&operands)?;
            if columns == 0 {
                // A sum of no losses.
                let dtype = operands[0].dtype;
                let loss = ctx.output(0, dtype, &[rows])?;
                ctx.output(1, dtype, &[rows, 0])?;
                return ctx.device().fill(loss.address, loss.bytes(), 0);
            }
            kernel.run(ctx, &operands)
        })
    });
    r.op("SparseSoftmaxCrossEntropyWithLogits")
        .types("T", SPARSE_TYPES)
        .types("Tlabels", types::INDEX)
        .kernel(move |attrs| {
            let dtype = attrs.dtype("T")?;
            sparse_kernel(SparseTypes {
                logits: dtype,
                labels: attrs.dtype("Tlabels")?,
                loss: dtype,
                gradient: dtype,
                is_scaled: false,
            })
        });
    r.op(CROSS_ENTROPY)
        .types("T", SPARSE_TYPES)
        .types("Tlabels", types::INDEX)
        .types("Tbackprop", SPARSE_TYPES)
        .kernel(move |attrs| {
            let scales = attrs.dtypes("Tscale")?;
            require!(matches!(scales[..], [] | [F32]), "{CROSS_ENTROPY}: scales of {scales:?}");
            sparse_kernel(SparseTypes {
                logits: attrs.dtype("T")?,
                labels: attrs.dtype("Tlabels")?,
                loss: F32,
                gradient: attrs.dtype("Tbackprop")?,
                is_scaled: !scales.is_empty(),
            })
        });
}

/// The kernel of a sparse cross entropy: inputs logits, labels and, if its gradient is scaled, the
/// scale.
fn sparse_kernel(of: SparseTypes) -> Result<impl Fn(&mut dyn OpContext) -> Result<()>> {
    let kernel = sparse_cross_entropy(of)?;
    Ok(move |ctx: &mut dyn OpContext| {
        let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
        check_sparse(&logits, &labels)?;
        let column = [labels.dims[0], 1];
        let mut inputs: SmallVec<[Tensor; 3]> = smallvec![logits, labels.reshaped(&column)];
        if of.is_scaled {
            let scale = ctx.input(2)?;
            let fits = scale.len() == 1 || scale.dims[..] == column;
            let shape = shape_text(&scale.dims);
            require!(fits, "{CROSS_ENTROPY}: a scale of shape {shape} for {} rows", column[0]);
            let extents = [scale.len(), 1];
            inputs.push(scale.reshaped(&extents));
        }
        kernel.run(ctx, &inputs)
    })
}

/// The rows and columns to which logits and labels broadcast.
fn check_dense([logits, labels]: &[Tensor; 2]) -> Result<[usize; 2]> {
    let dims = crate::layout::broadcast_dims(&logits.dims, &labels.dims);
    require!(
        dims.is_ok(),
        "logits and labels must be broadcastable: logits_size={} labels_size={}",
        shape_text(&logits.dims),
        shape_text(&labels.dims)
    );
    match dims?[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => invalid!(
            "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
        ),
    }
}

fn check_sparse(logits: &Tensor, labels: &Tensor) -> Result<()> {
    require!(logits.rank() == 2, "logits must be 2-D, but got shape {}", shape_text(&logits.dims));
    require!(labels.rank() == 1, "labels must be 1-D, but got shape {}", shape_text(&labels.dims));
    require!(
        logits.dims[0] == labels.dims[0],
        "logits and labels must have the same first dimension, got logits shape {} and labels \
         shape {}",
        shape_text(&logits.dims),
        shape_text(&labels.dims)
    );
    require!(
        logits.dims[1] > 0,
        "Must have at least one class, but got logits shape {}",
        shape_text(&logits.dims)
    );
    Ok(())
}

/// Enqueues LogSoftmax of rows of float32 or float64. The tensor is not empty.
///
/// # Errors
/// Those of [`RowKernel::run`].
pub fn log_rows(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    let kernel = softmax(SoftmaxOp::LogSoftmax, x.dtype)?;
    kernel.enqueue(device, std::slice::from_ref(x), std::slice::from_ref(y))
}

/// The shaders of all types.
pub fn shaders() -> Vec<Shader> {
    let softmaxes = TYPES
        .iter()
        .flat_map(|t| [softmax(SoftmaxOp::Softmax, *t), softmax(SoftmaxOp::LogSoftmax, *t)]);
    let dense = TYPES.iter().map(|t| dense_cross_entropy(*t));
    let sparse = SPARSE_TYPES
        .iter()
        .flat_map(|t| types::INDEX.iter().map(|labels| SparseTypes::of(*t, *labels)));
    let fused = SPARSE_TYPES.iter().flat_map(|t| {
        [false, true].map(|is_scaled| SparseTypes {
            loss: F32,
            is_scaled,
            ..SparseTypes::of(*t, I64)
        })
    });
    let sparse = sparse.chain(fused).map(sparse_cross_entropy);
    let kernels = softmaxes.chain(dense).chain(sparse);
    let kernels = kernels.flat_map(|k| k.expect("the programs of this file are valid").shaders());
    kernels.chain(linear::shaders()).collect()
}

/// The ops of one input.
#[derive(Debug, Clone, Copy)]
enum SoftmaxOp {
    Softmax,
    LogSoftmax,
}

impl SoftmaxOp {
    const fn name(self) -> &'static str {
        match self {
            Self::Softmax => "Softmax",
            Self::LogSoftmax => "LogSoftmax",
        }
    }
}

/// `exp(x - largest) / sum`, or `x - largest - log(sum)`.
fn softmax(op: SoftmaxOp, dtype: DType) -> Result<RowKernel> {
    let mut rows = RowProgramBuilder::new(&[dtype], 0);
    let [largest] = rows.reduce(["Max"], |s| Ok([s.logit()?]))?;
    let [sum] = rows.reduce(["Sum"], |s| Ok([s.exponential(largest)?]))?;
    match op {
        SoftmaxOp::Softmax => rows.full(dtype, |s| {
            let exponential = s.exponential(largest)?;
            s.call("RealDiv", &[exponential, sum])
        })?,
        SoftmaxOp::LogSoftmax => {
            let log = rows.row(dtype.accumulator(), |s| s.call("Log", &[sum]))?;
            rows.full(dtype, |s| {
                let difference = s.difference(largest)?;
                s.call("Sub", &[difference, log])
            })?;
        }
    }
    rows.kernel(op.name(), vec![Output::Full(0)], Vec::new())
}

/// A loss for each row, the sum of `label * (log(sum) - (x - largest))`, and its gradient,
/// `exp(x - largest) / sum - label`. The loss is computed as `log(sum) * labels - weighted`, with
/// the sums of `label` and of `label * (x - largest)`, so that no further walk over the row is
/// necessary. For labels that are not negative both terms add to the loss.
fn dense_cross_entropy(dtype: DType) -> Result<RowKernel> {
    let mut rows = RowProgramBuilder::new(&[dtype, dtype], 0);
    let label = |s: &mut Values| s.cast(Value::Input(1), dtype.accumulator());
    let [largest] = rows.reduce(["Max"], |s| Ok([s.logit()?]))?;
    let [sum, labels, weighted] = rows.reduce(["Sum"; 3], |s| {
        let (difference, label) = (s.difference(largest)?, label(s)?);
        Ok([s.exponential(largest)?, label, s.call("Mul", &[label, difference])?])
    })?;
    let loss = rows.row(dtype, |s| {
        let log = s.call("Log", &[sum])?;
        let all = s.call("Mul", &[log, labels])?;
        s.call("Sub", &[all, weighted])
    })?;
    rows.full(dtype, |s| {
        let (exponential, label) = (s.exponential(largest)?, label(s)?);
        let share = s.call("RealDiv", &[exponential, sum])?;
        s.call("Sub", &[share, label])
    })?;
    let outputs = vec![rows.output(loss), Output::Full(0)];
    Ok(rows.kernel("SoftmaxCrossEntropyWithLogits", outputs, Vec::new())?.with_broadcast())
}

/// The types of a sparse cross entropy.
#[derive(Debug, Clone, Copy)]
struct SparseTypes {
    logits: DType,
    labels: DType,
    loss: DType,
    gradient: DType,
    /// Whether it multiplies the gradient by a scale of float32 for each row.
    is_scaled: bool,
}

impl SparseTypes {
    /// The types of TensorFlow's op, whose loss and gradient have the type of the logits.
    const fn of(dtype: DType, labels: DType) -> Self {
        Self { logits: dtype, labels, loss: dtype, gradient: dtype, is_scaled: false }
    }
}

/// The same for labels that are the columns of ones, with zeros everywhere else. A label outside
/// the row's columns gives NaN in the loss and in the row's gradient, as in TensorFlow's GPU
/// kernel. Only the label's own logit counts for the loss, even where others are infinite.
fn sparse_cross_entropy(of: SparseTypes) -> Result<RowKernel> {
    let SparseTypes { logits, labels, loss: of_loss, gradient: of_gradient, is_scaled } = of;
    let mut inputs = vec![logits, labels];
    inputs.extend(is_scaled.then_some(F32));
    let column = Value::Input(inputs.len() as u32);
    inputs.push(U32);
    let (label, scale) = (Value::Input(1), Value::Input(2));
    let (zero, one, nan) = (Value::Constant(0), Value::Constant(1), Value::Constant(2));
    let mut rows = RowProgramBuilder::new(&inputs, 3);
    // Columns are compared in 32 bits. A label with other bits set is none of them.
    let short = rows.row_of(U32, |s| s.cast(label, U32))?;
    let is_hit = |s: &mut Values| s.call_of("Equal", U32, &[column, short]);
    let [largest] = rows.reduce(["Max"], |s| Ok([s.logit()?]))?;
    let [sum, hits, own] = rows.reduce(["Sum"; 3], |s| {
        let (difference, hit) = (s.difference(largest)?, is_hit(s)?);
        Ok([
            s.exponential(largest)?,
            s.call("SelectV2", &[hit, one, zero])?,
            s.call("SelectV2", &[hit, difference, zero])?,
        ])
    })?;
    let is_valid = rows.row_of(Bool, |s| {
        let is_there = s.call("Greater", &[hits, zero])?;
        if labels == I32 {
            return Ok(is_there);
        }
        let long = s.cast(short, labels)?;
        let is_short = s.call_of("Equal", labels, &[long, label])?;
        s.call_of("LogicalAnd", Bool, &[is_short, is_there])
    })?;
    let loss = rows.row(of_loss, |s| {
        let log = s.call("Log", &[sum])?;
        let loss = s.call("Sub", &[log, own])?;
        s.call("SelectV2", &[is_valid, loss, nan])
    })?;
    rows.full(of_gradient, |s| {
        let (exponential, hit) = (s.exponential(largest)?, is_hit(s)?);
        let share = s.call("RealDiv", &[exponential, sum])?;
        let label = s.call("SelectV2", &[hit, one, zero])?;
        let gradient = s.call("Sub", &[share, label])?;
        let gradient = s.call("SelectV2", &[is_valid, gradient, nan])?;
        if is_scaled { s.call("Mul", &[gradient, scale]) } else { Ok(gradient) }
    })?;
    let outputs = vec![rows.output(loss), Output::Full(0)];
    let constants = vec![0.0, 1.0, f32::NAN];
    let name = if is_scaled || of_loss != logits || of_gradient != logits {
        CROSS_ENTROPY
    } else {
        "SparseSoftmaxCrossEntropyWithLogits"
    };
    Ok(rows.kernel(name, outputs, constants)?.with_columns())
}

/// A row program under construction. Input 0 has the logits.
struct RowProgramBuilder {
    /// Types of the op's inputs.
    inputs: Vec<DType>,
    /// Types of the values of rows, which later stages take as further inputs.
    rows: Vec<DType>,
    constants: usize,
    stages: Vec<Stage>,
}

impl RowProgramBuilder {
    fn new(inputs: &[DType], constants: usize) -> Self {
        Self { inputs: inputs.to_vec(), rows: Vec::new(), constants, stages: Vec::new() }
    }

    /// Appends a stage.
    fn stage<const N: usize>(
        &mut self,
        action: Action,
        values: impl FnOnce(&mut Values) -> Result<[Value; N]>,
    ) -> Result<()> {
        let mut expression = Expression::new();
        for dtype in self.inputs.iter().chain(&self.rows) {
            expression.input(*dtype);
        }
        for _ in 0..self.constants {
            expression.constant();
        }
        let mut all = Values { dtype: self.inputs[0], expression };
        for value in values(&mut all)? {
            all.expression.output(value);
        }
        self.stages.push(Stage { action, expression: all.expression });
        Ok(())
    }

    /// Reduces values over the row.
    fn reduce<const N: usize>(
        &mut self,
        ops: [&str; N],
        values: impl FnOnce(&mut Values) -> Result<[Value; N]>,
    ) -> Result<[Value; N]> {
        let reductions = ops.into_iter().map(|op| {
            reduction(op).ok_or_else(|| Error::Internal(format!("{op} does not reduce rows")))
        });
        self.stage(Action::Reduce(reductions.collect::<Result<_>>()?), values)?;
        let real = self.inputs[0].accumulator();
        Ok([(); N].map(|()| self.row_value(real)))
    }

    /// A value of the type `dtype` for the row.
    fn row_of(
        &mut self,
        dtype: DType,
        value: impl FnOnce(&mut Values) -> Result<Value>,
    ) -> Result<Value> {
        self.stage(Action::Row, |s| Ok([value(s)?]))?;
        Ok(self.row_value(dtype))
    }

    /// A value for the row, rounded to a type.
    fn row(
        &mut self,
        dtype: DType,
        value: impl FnOnce(&mut Values) -> Result<Value>,
    ) -> Result<Value> {
        self.row_of(dtype, |s| {
            let value = value(s)?;
            s.cast(value, dtype)
        })
    }

    /// The elements of the last output, rounded to a type.
    fn full(
        &mut self,
        dtype: DType,
        value: impl FnOnce(&mut Values) -> Result<Value>,
    ) -> Result<()> {
        self.stage(Action::Full, |s| {
            let value = value(s)?;
            Ok([s.cast(value, dtype)?])
        })
    }

    fn row_value(&mut self, dtype: DType) -> Value {
        self.rows.push(dtype);
        Value::Input((self.inputs.len() + self.rows.len()) as u32 - 1)
    }

    /// The output that has a row's value.
    fn output(&self, value: Value) -> Output {
        let Value::Input(at) = value else { unreachable!("rows' values are inputs") };
        Output::Row { value: at - self.inputs.len() as u32, flat: true }
    }

    fn kernel(
        self,
        op: &'static str,
        outputs: Vec<Output>,
        constants: Vec<f32>,
    ) -> Result<RowKernel> {
        Ok(RowKernel::new(op, RowProgram::new(self.stages, outputs)?, constants, vec![-1]))
    }
}

/// The values of a stage.
struct Values {
    /// The logits' type.
    dtype: DType,
    expression: Expression,
}

impl Values {
    /// The logit of the column, in the type in which rows are computed.
    fn logit(&mut self) -> Result<Value> {
        self.cast(Value::Input(0), self.dtype.accumulator())
    }

    fn difference(&mut self, largest: Value) -> Result<Value> {
        let logit = self.logit()?;
        self.call("Sub", &[logit, largest])
    }

    fn exponential(&mut self, largest: Value) -> Result<Value> {
        let difference = self.difference(largest)?;
        self.exponential_of(difference)
    }

    /// The exponential of a difference, which is not positive.
    fn exponential_of(&mut self, difference: Value) -> Result<Value> {
        let dtype = self.dtype.accumulator();
        self.expression.step(Call::Row(&EXPONENTIAL, dtype), &[difference])
    }

    fn call(&mut self, op: &str, args: &[Value]) -> Result<Value> {
        self.call_of(op, self.dtype.accumulator(), args)
    }

    fn call_of(&mut self, op: &str, dtype: DType, args: &[Value]) -> Result<Value> {
        self.expression.call(op, dtype, args)
    }

    fn cast(&mut self, value: Value, to: DType) -> Result<Value> {
        self.expression.cast(value, to)
    }
}
