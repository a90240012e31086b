//! `_WgpuFusedLinearCrossEntropy`: the sparse cross entropy of a product's logits, with the
//! gradient of the product's left operand. The logits of a language model are its largest tensors:
//! a value for each token and each word. Here they exist for a part of the words at a time.
//!
//! The parts go over the columns of the logits, so that each product reads as much as it would for
//! all of them. The gradient needs each logit's share of the sum over its row, which is only known
//! behind the last part. As attention does, each part therefore computes its shares relative to the
//! largest logit so far, and what was added before is scaled down where a later part has a larger
//! one:
//!
//! ```text
//! for each part: logits = x · weights[part];  M' = max(M, logits);  p = exp(logits - M')
//!                S = S · exp(M - M') + sum(p);  G = G · exp(M - M') + p · weights[part]ᵀ
//! ```
//!
//! The label's own logit takes no part in M, S, p and G. Its share is one where the model is sure,
//! and its gradient is the share less one, the negative sum of all other shares: computed from
//! rounded shares, that difference would be lost. With `e` for the label's column of the weights:
//!
//! ```text
//! own = x · e;  top = max(M, own);  total = S · exp(M - top) + exp(own - top)
//! loss = log(total) + top - own;  gradient = scale · exp(M - top) / total · (G - S · e)
//! ```
//!
//! The method with the logits in parts is that of Wijmans and others, "Cut Your Losses in
//! Large-Vocabulary Language Models" (2024), which computes all logits twice.

mod classes;

use super::{RowProgramBuilder, Values, check_sparse};
use crate::dtype::DType::{self, *};
use crate::dtype::types;
use crate::error::Result;
use crate::kernels::contract::epilogue::Epilogue;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::expression::{Call, Expression, Value};
use crate::kernels::fused::cost;
use crate::kernels::fused::elementwise::ElementwiseProgram;
use crate::kernels::fused::rowwise::RowKernel;
use crate::kernels::fused::rowwise::program::Output;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::{Scratch, ranges};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor, shape_text};
use classes::{Classes, Layout};

/// The name of the op.
pub const LINEAR_CROSS_ENTROPY: &str = "_WgpuFusedLinearCrossEntropy";

/// The op. The last dimension of `x` is contracted, all others are rows. The weights have a row for
/// each class if `adj_y` is true, else a column. They may be quantized, with a row for each class
/// ([`crate::kernels::contract::weights`]): `decoder` and `packing` say how, and `extent` is the
/// number of codes in the packed dimension. `argument` is the column of each row's largest value of
/// `expression`, which has a logit as its only input, and `constants` for its parameters. `dims`
/// are the extents of `argument`; one may be -1, and follows from the number of rows.
pub const DEFINITION: OpDefinition = OpDefinition {
    name: LINEAR_CROSS_ENTROPY,
    inputs: &[
        "x: T",
        "weights: T_weights",
        "labels: Tlabels",
        "parameter: T_parameters",
        "scale: Tscale",
    ],
    outputs: &["loss: float", "backprop: T", "argument: T_argument"],
    attrs: &[
        "T: {float, half, bfloat16}",
        "T_weights: {float, half, bfloat16, int8, uint8}",
        "Tlabels: {int32, int64}",
        "T_parameters: list(type) >= 0",
        "Tscale: list(type) >= 0",
        "T_argument: list(type) >= 0",
        "dims: list(int) = []",
        "adj_y: bool = false",
        "expression: string",
        "constants: list(float)",
        "decoder: string = ''",
        "packing: {'bytes', 'rows', 'columns'} = 'bytes'",
        "extent: int = 0",
    ],
    stateful: false,
    shape,
};

/// Shape functions do not see the number of outputs; TensorFlow ignores surplus shapes.
fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let x = inputs.shapes.first().cloned().flatten();
    let labels = inputs.shapes.get(2).cloned().flatten();
    Ok(vec![labels, x, None])
}

/// The tensors to which a part's gradient is added: G, and M before and behind the part.
const MORE: usize = 3;

/// The most classes. Columns are counted in float32, which holds integers up to this number.
pub const MOST_CLASSES: usize = 1 << 24;

/// About the bytes of the logits that exist at a time, unless [`FEWEST`] columns have more. A
/// product of this size fills any GPU, and they fit into the caches of large ones. Beside them
/// there are two sums of the size of `x` in float32.
const PART: usize = 8 << 20;

/// The fewest columns of a part, unless there are fewer in all: the gradient of all rows is read
/// and written once for each part.
const FEWEST: usize = 2048;

/// Whether the logits are so large that the op takes more than one part.
pub const fn has_parts(rows: usize, classes: usize, dtype: DType) -> bool {
    classes > 0 && width(rows, classes, dtype) < classes
}

/// The number of columns of a part. There is at least one class.
const fn width(rows: usize, classes: usize, dtype: DType) -> usize {
    let row = if rows == 0 { 1 } else { rows };
    let fits = PART / row.saturating_mul(dtype.size());
    let most = if fits > FEWEST { fits } else { FEWEST };
    classes.div_ceil(classes.div_ceil(most)).next_multiple_of(64)
}

/// The factor of stored shares: shares of float16 below 6e-8 would be zero.
const fn stored_factor(dtype: DType) -> f32 {
    if matches!(dtype, F16) { 8192.0 } else { 1.0 }
}

/// Adds the op.
pub(super) fn register(r: &mut Registry) {
    r.op(LINEAR_CROSS_ENTROPY)
        .types("T", types::FLOATS_BUT_F64)
        .types("Tlabels", types::INDEX)
        .kernel(LinearCrossEntropy::read);
}

/// Shaders of the op's own programs.
pub(super) fn shaders() -> Vec<Shader> {
    let kernel = |dtype: DType, layout: Result<Layout>| {
        let values = format!("x: {dtype}; c: 0; return x0").parse()?;
        let argument = Argument::new(dtype, values, Vec::new(), I64, vec![-1])?;
        LinearCrossEntropy::new(dtype, I64, layout?, true, Some(argument))
    };
    let types = types::FLOATS_BUT_F64.iter();
    let kernels = types.flat_map(|dtype| {
        let layouts = [Ok(Layout::dense(*dtype, true)), Layout::sample(*dtype)];
        layouts.map(|layout| kernel(*dtype, layout))
    });
    let kernels = kernels.map(|kernel| kernel.expect("the programs of this file are valid"));
    kernels.flat_map(|kernel| kernel.shaders()).collect()
}

/// The kernel.
struct LinearCrossEntropy {
    dtype: DType,
    layout: Layout,
    is_scaled: bool,
    /// M, S, and the two values of the argument before the first part.
    start: ElementwiseProgram,
    /// The shares of a part, with M and S behind it.
    shares: RowKernel,
    /// The sum of the gradient so far and of a part's.
    added: Epilogue,
    /// The loss, and the factor of the gradient.
    loss: RowKernel,
    gradient: ElementwiseProgram,
    argument: Option<Argument>,
}

/// The column of the largest value of each row.
struct Argument {
    dtype: DType,
    dims: Vec<i64>,
    /// The largest value and its column behind a part.
    largest: RowKernel,
    /// The parameters of the values' expression.
    constants: Vec<f32>,
    /// The column as an integer.
    column: ElementwiseProgram,
}

impl LinearCrossEntropy {
    fn read(attrs: &dyn Attrs) -> Result<Self> {
        let (scales, arguments) = (attrs.dtypes("Tscale")?, attrs.dtypes("T_argument")?);
        let op = LINEAR_CROSS_ENTROPY;
        require!(matches!(scales[..], [] | [F32]), "{op}: scales of {scales:?}");
        require!(matches!(arguments[..], [] | [I32 | I64]), "{op}: arguments of {arguments:?}");
        let (dtype, labels) = (attrs.dtype("T")?, attrs.dtype("Tlabels")?);
        let argument = match arguments.first() {
            Some(to) => {
                let values = attrs.string("expression")?.parse()?;
                let constants = attrs.floats("constants")?;
                Some(Argument::new(dtype, values, constants, *to, attrs.ints("dims")?)?)
            }
            None => None,
        };
        Self::new(dtype, labels, Layout::read(attrs)?, !scales.is_empty(), argument)
    }

    fn new(
        dtype: DType,
        labels: DType,
        layout: Layout,
        is_scaled: bool,
        argument: Option<Argument>,
    ) -> Result<Self> {
        let added = "x: float32, float32, float32, float32; c: 0; s0 = Sub<float32>(x2, x3); s1 = \
                     Exp<float32>(s0); s2 = Mul<float32>(x1, s1); s3 = AddV2<float32>(x0, s2); \
                     return s3";
        Ok(Self {
            dtype,
            is_scaled,
            start: start(labels)?,
            shares: shares(dtype, labels)?,
            added: Epilogue::new(added.parse()?, Vec::new())?,
            loss: loss(dtype, layout.own(), is_scaled)?,
            gradient: gradient(dtype, layout.own())?,
            layout,
            argument,
        })
    }

    fn shaders(&self) -> Vec<Shader> {
        let mut all = self.start.shaders();
        all.extend(self.gradient.shaders());
        all.extend(self.layout.shaders());
        all.extend([&self.shares, &self.loss].into_iter().flat_map(RowKernel::shaders));
        if let Some(argument) = &self.argument {
            all.extend(argument.largest.shaders());
            all.extend(argument.column.shaders());
        }
        all
    }

    /// The number of rows.
    fn check(x: &Tensor, [classes, depth]: [usize; 2], labels: &Tensor) -> Result<usize> {
        let fits = depth > 0 && x.rank() > 1 && x.dims.last() == Some(&depth);
        let shape = shape_text(&x.dims);
        require!(fits, "{LINEAR_CROSS_ENTROPY}: {shape} by {classes} classes of {depth} weights");
        let rows = x.dims[..x.rank() - 1].iter().product();
        check_sparse(&Tensor::new(x.dtype, &[rows, classes], 0), labels)?;
        require!(classes <= MOST_CLASSES, "{LINEAR_CROSS_ENTROPY}: {classes} classes");
        Ok(rows)
    }
}

impl Kernel for LinearCrossEntropy {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (x, weights, labels) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let behind = 3 + self.layout.parameters();
        let parameters = (3..behind).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let scale = if self.is_scaled { Some(ctx.input(behind)?) } else { None };
        let weights = self.layout.classes(weights, &parameters)?;
        let [_, depth] = weights.extents;
        let rows = Self::check(&x, weights.extents, &labels)?;
        if let Some(scale) = &scale {
            let fits = scale.len() == 1 || scale.dims[..] == [rows, 1];
            let shape = shape_text(&scale.dims);
            require!(fits, "{LINEAR_CROSS_ENTROPY}: a scale of shape {shape} for {rows} rows");
        }
        let loss = ctx.output(0, F32, &[rows])?;
        let gradient = ctx.output(1, self.dtype, &x.dims)?.reshaped(&[rows, depth]);
        let column = match &self.argument {
            Some(argument) => Some(ctx.output(2, argument.dtype, &argument.dims(rows)?)?),
            None => None,
        };
        if rows == 0 {
            return Ok(());
        }
        let x = x.reshaped(&[rows, depth]);
        let label = labels.reshaped(&[rows, 1]);
        // Labels that are classes, in the place of others.
        let safe = ctx.temp(labels.dtype, &[rows, 1])?;
        let Parts { largest, sum, sums, at } = self.parts(ctx, &weights, &x, [&label, &safe])?;
        let own = weights.own(ctx, &safe)?;
        let factor = ctx.temp(F32, &[rows, 1])?;
        let mut inputs = vec![x, own.clone(), largest, sum.clone()];
        inputs.extend(scale.map(|scale| scale.reshaped(&[scale.len(), 1])));
        self.loss.enqueue_in(ctx, &inputs, &[loss, factor.clone()], &[])?;
        let unit = 1.0 / stored_factor(self.dtype);
        self.gradient.run(ctx.device(), &[sums, own, sum, factor], &[gradient], &[unit])?;
        match (&self.argument, column) {
            (Some(argument), Some(column)) => {
                let (at, column) = (at.reshaped(&[rows]), column.reshaped(&[rows]));
                argument.column.run(ctx.device(), &[at], &[column], &[])
            }
            _ => Ok(()),
        }
    }
}

/// What all parts of the classes leave for each row.
struct Parts {
    /// M and S, of shape `[rows, 1]`.
    largest: Tensor,
    sum: Tensor,
    /// G, of the shape of the rows.
    sums: Tensor,
    /// The column of the argument, of shape `[rows, 1]`.
    at: Tensor,
}

impl LinearCrossEntropy {
    /// Enqueues the parts, for rows of `x` with their labels. Writes the labels that are classes,
    /// or class 0, to `safe`.
    fn parts(
        &self,
        ctx: &mut dyn OpContext,
        weights: &Classes<'_>,
        x: &Tensor,
        [label, safe]: [&Tensor; 2],
    ) -> Result<Parts> {
        let ([classes, depth], rows) = (weights.extents, x.dims[0]);
        // Of each pair, a part reads the first tensor and writes the second.
        let mut values = |n: usize| -> Result<[Tensor; 2]> {
            Ok([ctx.temp(F32, &[rows, n])?, ctx.temp(F32, &[rows, n])?])
        };
        let mut states = [values(1)?, values(1)?, values(1)?, values(1)?];
        let mut sums = values(depth)?;
        let width = width(rows, classes, self.dtype);
        let logits = ctx.temp(self.dtype, &[rows, width.min(classes)])?;
        let before = states.iter().map(|state| &state[0]).chain([safe]);
        let before: Vec<Tensor> = before.cloned().collect();
        let constants = start_constants(classes);
        self.start.run(ctx.device(), std::slice::from_ref(label), &before, &constants)?;
        let profile = ctx.device().profile();
        // With many tensors that decode the weights, a product cannot bind what it is added to.
        let more = MORE + self.layout.parameters();
        let apart = match Epilogue::fits(more, profile.capabilities.max_bindings) {
            true => None,
            false => Some(ctx.temp(F32, &[rows, depth])?),
        };
        let mut scratch = Scratch::new(ctx);
        for (first, count) in ranges(classes, width) {
            let part = [first, count];
            let logits = Tensor::new(self.dtype, &[rows, count], logits.address);
            weights.logits(part, x, &logits).enqueue(scratch.window())?;
            let [largest, sum, value, column] = &states;
            if let Some(argument) = &self.argument {
                let inputs = [&logits, &value[0], &column[0]].map(Tensor::clone);
                let outputs = [&value[1], &column[1]].map(Tensor::clone);
                argument.enqueue(scratch.window(), &inputs, &outputs, first)?;
            }
            let inputs = [&logits, label, &largest[0], &sum[0]].map(Tensor::clone);
            let outputs = [&logits, &largest[1], &sum[1]].map(Tensor::clone);
            let constants = [first as f32, stored_factor(self.dtype), 0.0, f32::MIN];
            self.shares.enqueue_in(scratch.window(), &inputs, &outputs, &constants)?;
            let more = [&sums[0], &largest[0], &largest[1]].map(Tensor::clone);
            let added = self.added.bind(&[rows, depth], 1, &more).filter(|_| first > 0);
            match (&apart, added) {
                (Some(apart), Some(_)) => {
                    weights.sums(part, &logits, apart).enqueue(scratch.window())?;
                    let outputs = std::slice::from_ref(&sums[1]);
                    self.added.after(scratch.device(), apart, &more, outputs)?;
                }
                (_, added) => {
                    let product = weights.sums(part, &logits, &sums[1]);
                    product.plan(&profile, added)?.enqueue(scratch.window())?;
                }
            }
            states.iter_mut().for_each(|state| state.swap(0, 1));
            sums.swap(0, 1);
        }
        let ([[largest, _], [sum, _], _, [at, _]], [sums, _]) = (states, sums);
        Ok(Parts { largest, sum, sums, at })
    }
}

/// M, S and the argument's value and column before the first part, and labels that are classes,
/// from the labels and, as the parameter, the number of classes. A label that is no class gives NaN
/// for S, which stays, and class 0.
fn start(labels: DType) -> Result<ElementwiseProgram> {
    let mut e = Expression::new();
    let (label, classes) = (e.input(labels), e.constant());
    let [zero, nan, lowest, infinite] = [(); 4].map(|()| e.constant());
    let mut integer = |parameter| e.step(Call::Cast(F32, labels), &[parameter]);
    let (least, end) = (integer(zero)?, integer(classes)?);
    let (from, until) =
        (e.call("GreaterEqual", labels, &[label, least])?, e.call("Less", labels, &[label, end])?);
    let is_class = e.call("LogicalAnd", Bool, &[from, until])?;
    for [valid, other] in [[lowest, lowest], [zero, nan], [infinite, infinite], [zero, zero]] {
        let value = e.call("SelectV2", F32, &[is_class, valid, other])?;
        e.output(value);
    }
    let safe = e.call("SelectV2", labels, &[is_class, label, least])?;
    e.output(safe);
    ElementwiseProgram::new(e)
}

/// The parameters of [`start`].
const fn start_constants(classes: usize) -> [f32; 5] {
    [classes as f32, 0.0, f32::NAN, f32::MIN, f32::NEG_INFINITY]
}

/// The shares of a part: inputs logits, labels, M and S; outputs shares, M and S. Its parameters
/// are the number of columns before the part, and the factor of the shares.
fn shares(dtype: DType, labels: DType) -> Result<RowKernel> {
    let mut rows = RowProgramBuilder::new(&[dtype, labels, F32, F32, U32], 4);
    let [label, largest_before, sum_before, column] = [1, 2, 3, 4].map(Value::Input);
    let [first, factor, zero, lowest] = [0, 1, 2, 3].map(Value::Constant);
    let own = rows.row_of(I32, |s| {
        let first = s.expression.step(Call::Cast(F32, I32), &[first])?;
        let label = s.cast(label, I32)?;
        s.call_of("Sub", I32, &[label, first])
    })?;
    let unless_own = |s: &mut Values, value: Value, other: Value| {
        let column = s.cast(column, I32)?;
        let is_own = s.call_of("Equal", I32, &[column, own])?;
        s.call("SelectV2", &[is_own, other, value])
    };
    let [of_part] = rows.reduce(["Max"], |s| {
        let logit = s.logit()?;
        Ok([unless_own(s, logit, lowest)?])
    })?;
    let largest = rows.row(F32, |s| s.call("Maximum", &[largest_before, of_part]))?;
    let share = |s: &mut Values| {
        let exponential = s.exponential(largest)?;
        unless_own(s, exponential, zero)
    };
    let [of_part] = rows.reduce(["Sum"], |s| Ok([share(s)?]))?;
    let sum = rows.row(F32, |s| {
        let difference = s.call("Sub", &[largest_before, largest])?;
        let scale = s.exponential_of(difference)?;
        let before = s.call("Mul", &[sum_before, scale])?;
        s.call("AddV2", &[before, of_part])
    })?;
    rows.full(dtype, |s| {
        let share = share(s)?;
        s.call("Mul", &[share, factor])
    })?;
    let outputs = [rows.output(largest), rows.output(sum)];
    let outputs = std::iter::once(Output::Full(0)).chain(outputs).collect();
    let constants = vec![0.0; 4];
    Ok(rows.kernel(LINEAR_CROSS_ENTROPY, outputs, constants)?.with_columns())
}

/// The loss of each row and the factor of its gradient, from its operand, its label's column of the
/// weights, M and S.
fn loss(dtype: DType, weights: DType, is_scaled: bool) -> Result<RowKernel> {
    let mut inputs = vec![dtype, weights, F32, F32];
    inputs.extend(is_scaled.then_some(F32));
    let mut rows = RowProgramBuilder::new(&inputs, 0);
    let [weights, largest, sum, scale] = [1, 2, 3, 4].map(Value::Input);
    let [own] = rows.reduce(["Sum"], |s| {
        let (x, weight) = (s.logit()?, s.cast(weights, F32)?);
        Ok([s.call("Mul", &[x, weight])?])
    })?;
    // As a product rounds it.
    let own = rows.row(dtype, |_| Ok(own))?;
    let [top, own] = [
        rows.row(F32, |s| {
            let own = s.cast(own, F32)?;
            s.call("Maximum", &[largest, own])
        })?,
        rows.row(F32, |_| Ok(own))?,
    ];
    let exponential = |s: &mut Values, of: Value| {
        let difference = s.call("Sub", &[of, top])?;
        s.exponential_of(difference)
    };
    let others = rows.row(F32, |s| exponential(s, largest))?;
    let total = rows.row(F32, |s| {
        let own = exponential(s, own)?;
        let others = s.call("Mul", &[sum, others])?;
        s.call("AddV2", &[others, own])
    })?;
    let loss = rows.row(F32, |s| {
        let (log, own) = (s.call("Log", &[total])?, s.call("Sub", &[top, own])?);
        s.call("AddV2", &[log, own])
    })?;
    let factor = rows.row(F32, |s| {
        let factor = s.call("RealDiv", &[others, total])?;
        if is_scaled { s.call("Mul", &[factor, scale]) } else { Ok(factor) }
    })?;
    let outputs = vec![rows.output(loss), rows.output(factor)];
    rows.kernel(LINEAR_CROSS_ENTROPY, outputs, Vec::new())
}

/// The gradient, from G, the labels' columns of the weights, S and the rows' factors. Its parameter
/// is what the shares are to be multiplied by.
fn gradient(dtype: DType, weights: DType) -> Result<ElementwiseProgram> {
    let mut e = Expression::new();
    let [others, weights, sum, factor] = [F32, weights, F32, F32].map(|dtype| e.input(dtype));
    let unit = e.constant();
    let others = e.call("Mul", F32, &[others, unit])?;
    let weights = e.cast(weights, F32)?;
    let own = e.call("Mul", F32, &[sum, weights])?;
    let difference = e.call("Sub", F32, &[others, own])?;
    let gradient = e.call("Mul", F32, &[difference, factor])?;
    let gradient = e.cast(gradient, dtype)?;
    e.output(gradient);
    ElementwiseProgram::new(e)
}

impl Argument {
    /// The argument of the largest value of `values`, an expression of a logit of type `dtype`.
    fn new(
        dtype: DType,
        values: Expression,
        constants: Vec<f32>,
        to: DType,
        dims: Vec<i64>,
    ) -> Result<Self> {
        let op = LINEAR_CROSS_ENTROPY;
        require!(
            values.inputs() == [dtype]
                && values.outputs().len() == 1
                && values.constants() == constants.len(),
            "{op}: {} parameters for the argument of {values}",
            constants.len()
        );
        cost::check(cost::elementwise(cost::expression(&values)))?;
        let mut rows = RowProgramBuilder::new(&[dtype, F32, F32, U32], 2);
        let [value_before, column_before, column] = [1, 2, 3].map(Value::Input);
        let [first, beyond] = [0, 1].map(Value::Constant);
        let value = |s: &mut Values| {
            let value = s.expression.append(&values, &[Value::Input(0)])?[0];
            s.cast(value, F32)
        };
        let parameters = |s: &mut Values| {
            constants.iter().for_each(|_| {
                s.expression.constant();
            })
        };
        let [largest] = rows.reduce(["Max"], |s| Ok([value(s)?]))?;
        let [at] = rows.reduce(["Min"], |s| {
            let value = value(s)?;
            let is_largest = s.call("Equal", &[value, largest])?;
            let column = s.cast(column, F32)?;
            let column = s.call("AddV2", &[column, first])?;
            Ok([s.call("SelectV2", &[is_largest, column, beyond])?])
        })?;
        let [value, column] = [[largest, value_before], [at, column_before]].map(|[new, old]| {
            rows.row(F32, |s| {
                parameters(s);
                let is_larger = s.call("Greater", &[largest, value_before])?;
                s.call("SelectV2", &[is_larger, new, old])
            })
        });
        let outputs = vec![rows.output(value?), rows.output(column?)];
        let all = vec![0.0; 2 + constants.len()];
        let largest = rows.kernel(op, outputs, all)?.with_columns();
        let mut column = Expression::new();
        let at = column.input(F32);
        let integer = column.cast(at, to)?;
        column.output(integer);
        Ok(Self { dtype: to, dims, largest, constants, column: ElementwiseProgram::new(column)? })
    }

    /// The extents of the result.
    fn dims(&self, rows: usize) -> Result<Dims> {
        let known = |extent: &i64| usize::try_from(*extent).ok();
        let product = |dims: &[usize]| dims.iter().try_fold(1, |n: usize, d| n.checked_mul(*d));
        let all: Dims = self.dims.iter().filter_map(known).collect();
        let left = rows / product(&all).unwrap_or(1).max(1);
        let dims: Dims = self.dims.iter().map(|extent| known(extent).unwrap_or(left)).collect();
        let fits = product(&dims) == Some(rows);
        require!(fits, "{LINEAR_CROSS_ENTROPY}: {rows} rows in {:?}", self.dims);
        Ok(dims)
    }

    /// Enqueues the largest values and their columns behind a part that begins at column `first`.
    fn enqueue(
        &self,
        ctx: &mut dyn OpContext,
        inputs: &[Tensor],
        outputs: &[Tensor],
        first: usize,
    ) -> Result<()> {
        let own = [first as f32, f32::MAX];
        let constants: Vec<f32> = own.iter().chain(&self.constants).copied().collect();
        self.largest.enqueue_in(ctx, inputs, outputs, &constants)
    }
}
