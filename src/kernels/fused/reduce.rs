//! `_WgpuFusedReduce`: several reductions over the same axes, of an expression's values for every
//! element, in one pass.
//!
//! An output is reduced over the shape to which the inputs of its own value broadcast, as it would
//! be without fusion. Where these shapes differ, which the optimizer cannot always exclude, each
//! shape takes a pass of its own. A node may read more tensors than every adapter binds: then its
//! reductions take as few passes as the adapter allows.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::definition::OpDefinition;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::cost;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::epilogue::{Epilogue, Extra};
pub use crate::kernels::reduce::epilogue::{MAX_CONSTANTS, MAX_EXTRAS, MAX_OUTPUTS};
use crate::kernels::reduce::program::MAX_BINDINGS;
pub use crate::kernels::reduce::program::{MAX_INPUTS, MAX_PLANES, MOST_INPUTS};
use crate::kernels::reduce::reduction::ReductionProgram;
pub use crate::kernels::reduce::states::{MOMENTS, States};
use crate::kernels::reduce::steps::Operands;
use crate::kernels::reduce::{kept_dims, reduced_axes};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

/// The op.
pub const OP: &str = "_WgpuFusedReduce";

/// Its definition. Result `k` is the reduction `k` of the expression's value `k`; `Moments` has
/// two, mean and variance. The outputs are the results, or the values of an `epilogue` of them and
/// of further operands `extra`, which have the results' shape or one element. `axes` count from the
/// front or, when negative, from the back of the shape that is reduced; `whole` reduces all axes to
/// a scalar.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in", "extra: T_extra"],
    outputs: &["y: T_out"],
    attrs: &[
        "T_in: list(type) >= 1",
        "T_extra: list(type) >= 0 = []",
        "T_out: list(type) >= 1",
        "expression: string",
        "constants: list(float) = []",
        "epilogue: string = ''",
        "epilogue_constants: list(float) = []",
        "reductions: string",
        "axes: list(int) = []",
        "whole: bool = false",
        "keep_dims: bool = false",
    ],
    stateful: false,
    // Shape functions see neither the axes nor which inputs are reduced.
    shape: |_| Ok(Vec::new()),
}];

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op(OP).kernel(move |attrs: &dyn Attrs| FusedReduce::new(attrs));
}

/// Samples of texts for `tests/shaders.rs`: every kind of reduction and type, over each kind of
/// access.
pub fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    let mut with = |expression: &str, names: &str, epilogue: &str| {
        let expression: Expression = expression.parse().expect("a sample");
        let states = States::new(names, &expression.output_types()).expect("a sample");
        let results = states.types().len();
        let types =
            epilogue.parse::<Expression>().map_or(Vec::new(), |e| e.inputs()[results..].to_vec());
        let constants = epilogue.matches("c0").take(1).map(|_| 0.0).collect();
        let epilogue = Epilogue::of(epilogue, &types, constants, &states).expect("a sample");
        let extras: Vec<Extra> = (types.iter().zip([true, false].into_iter().cycle()))
            .map(|(t, whole)| Extra { tensor: Tensor::new(*t, &[], 0), whole })
            .collect();
        let mut program = ReductionProgram::new(expression, states);
        program.epilogue = epilogue;
        for dims in [&[8][..], &[2, 3], &[2, 3, 4, 5, 6]] {
            let strided: Vec<i64> = dims.iter().map(|_| 3).collect();
            let walk = Iteration::over(dims);
            let walk =
                if dims.len() == 1 { walk.operand(&[1], 0) } else { walk.operand(&strided, 0) };
            let class = program.expression.inputs()[1..]
                .iter()
                .fold(walk, |w, _| w.operand(&vec![0; dims.len()], 0))
                .class();
            program.shaders(&extras, &class, &mut out);
        }
    };
    with(
        "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return x0, s0",
        "Sum,Moments",
        "x: float32, float32, float32, float32, float32; c: 1; s0 = AddV2<float32>(x2, c0); s1 = \
         Rsqrt<float32>(s0); s2 = Mul<float32>(s1, x3); s3 = Mul<float32>(x1, x4); s4 = \
         Cast<float32, float16>(s3); return x0, s1, s2, s4",
    );
    with(
        "x: float16; c: 0; return x0",
        "Mean",
        "x: float16; c: 0; s0 = Exp<float16>(x0); s1 = IsFinite<float16>(x0); s2 = Cast<float16, \
         float32>(x0); return s0, s1, s2",
    );
    let mut each = |expression: &str, names: &str| with(expression, names, "");
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64] {
        let square = format!("x: {dtype}, {dtype}; c: 0; s0 = Mul<{dtype}>(x0, x1); return s0, x0");
        each(&square, "Sum,Max");
        each(&square, "Min,Prod");
        if dtype.is_float() {
            each(&square, "Moments,Mean");
            each(&format!("x: {dtype}; c: 0; return x0"), "Moments");
            each(&format!("x: {dtype}; c: 0; s0 = Exp<{dtype}>(x0); return s0"), "L2Loss");
        }
    }
    // The gradients of two normalizations' weights.
    each(
        "x: float32, float32, float32, float32, float32, float32, float32, float32; c: 0; s0 = \
         Mul<float32>(x0, x1); s1 = Mul<float32>(x0, x2); s2 = AddV2<float32>(s0, s1); s3 = \
         Mul<float32>(s2, x3); s4 = Mul<float32>(x4, x5); s5 = Mul<float32>(x4, x6); s6 = \
         AddV2<float32>(s4, s5); s7 = Mul<float32>(s6, x7); return s3, x0, s7, x4",
        "Sum,Sum,Sum,Sum",
    );
    each("x: float16; c: 1; s0 = Maximum<float16>(x0, c0); return s0", "EuclideanNorm");
    each("x: float32; c: 0; s0 = IsFinite<float32>(x0); return s0, s0", "All,Any");
    each(
        "x: float16, float32; c: 0; s0 = Cast<float16, float32>(x0); s1 = Mul<float32>(s0, x1); \
         return x0, s1",
        "Sum,Sum",
    );
    out
}

/// A pass over some of a node's values, with the inputs that these need.
struct ValuePass {
    program: ReductionProgram,
    /// The node's inputs that it reads.
    inputs: SmallVec<[usize; 6]>,
    /// The node's outputs that it writes, where these are the results.
    outputs: SmallVec<[usize; 6]>,
}

struct FusedReduce {
    /// All values in one pass.
    all: ValuePass,
    /// Each value on its own.
    single: Vec<ValuePass>,
    /// The values in passes that every adapter can run; empty if one pass is enough.
    narrow: Vec<ValuePass>,
    constants: Vec<f32>,
    axes: Vec<i64>,
    whole: bool,
    keep_dims: bool,
}

impl FusedReduce {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let expression: Expression = attrs.string("expression")?.parse()?;
        cost::check(cost::reduce(cost::expression(&expression), 0))?;
        let constants = attrs.floats("constants")?;
        let states = States::new(&attrs.string("reductions")?, &expression.output_types())?;
        let epilogue = Epilogue::of(
            &attrs.string("epilogue")?,
            &attrs.dtypes("T_extra")?,
            attrs.floats("epilogue_constants")?,
            &states,
        )?;
        cost::check(cost::expression(epilogue.expression()))?;
        let (given, returned) = (attrs.dtypes("T_in")?, attrs.dtypes("T_out")?);
        let wanted = epilogue.outputs();
        require!(
            given == expression.inputs(),
            "{OP}: inputs of {given:?}, the expression takes {:?}",
            expression.inputs()
        );
        require!(
            returned == wanted,
            "{OP}: outputs of {returned:?}, the reductions give {wanted:?}"
        );
        require!(
            constants.len() == expression.constants(),
            "{OP}: {} constants for {} parameters",
            constants.len(),
            expression.constants()
        );
        require!(
            given.len() <= MOST_INPUTS
                && wanted.len() <= MAX_OUTPUTS
                && states.planes() <= MAX_PLANES,
            "{OP}: {} inputs and {} outputs of {} numbers are too many",
            given.len(),
            wanted.len(),
            states.planes()
        );
        require!(
            given.len() <= MAX_INPUTS || epilogue.is_none(),
            "{OP}: {} inputs are too many for a node with an epilogue",
            given.len()
        );
        let single: Vec<ValuePass> =
            (0..states.reductions()).map(|k| pass(&expression, &states, &[k])).collect();
        let which: Vec<usize> = (0..states.reductions()).collect();
        let mut all = pass(&expression, &states, &which);
        all.program.epilogue = epilogue;
        require!(
            all.inputs.len() == given.len(),
            "{OP}: an input that no value of {expression} depends on"
        );
        let narrow = match given.len() > MAX_INPUTS {
            true => narrow(&expression, &states),
            false => Vec::new(),
        };
        Ok(Self {
            all,
            single,
            narrow,
            constants,
            axes: attrs.ints("axes")?,
            whole: attrs.bool("whole")?,
            keep_dims: attrs.bool("keep_dims")?,
        })
    }

    fn run(
        &self,
        ctx: &mut dyn OpContext,
        pass: &ValuePass,
        inputs: &[Tensor],
        dims: &[usize],
    ) -> Result<()> {
        let reduced = if self.whole {
            dims.iter().map(|_| true).collect()
        } else {
            reduced_axes(&self.axes, dims.len())?
        };
        let kept = kept_dims(dims, &reduced, self.keep_dims);
        let epilogue = &pass.program.epilogue;
        let mut outputs: SmallVec<[Tensor; 6]> = SmallVec::new();
        for (o, dtype) in epilogue.outputs().into_iter().enumerate() {
            outputs.push(ctx.output(pass.outputs.get(o).copied().unwrap_or(o), dtype, &kept)?);
        }
        let extras = inputs[self.all.inputs.len()..].iter().filter(|_| !epilogue.is_none());
        let extras = extras.map(|x| Extra::new(x.clone(), &kept)).collect::<Result<Vec<_>>>()?;
        let operands = Operands { constants: &self.constants, extras: &extras, outputs: &outputs };
        let read = pass.inputs.iter().map(|i| &inputs[*i]);
        pass.program.run(ctx, read, operands, dims, &reduced)
    }
}

impl Kernel for FusedReduce {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs = (0..ctx.num_inputs())
            .map(|i| ctx.input(i))
            .collect::<Result<SmallVec<[Tensor; 6]>>>()?;
        let shape = |pass: &ValuePass| {
            let mut read = pass.inputs.iter().map(|i| &inputs[*i].dims);
            let first = read.next().cloned().unwrap_or_default();
            read.try_fold(first, |dims, x| broadcast_dims(&dims, x))
        };
        let shapes = self.single.iter().map(shape).collect::<Result<SmallVec<[Dims; 6]>>>()?;
        if shapes.iter().all(|dims| *dims == shapes[0]) {
            // A buffer of parameters may take a binding.
            let bindings = inputs.len() + self.all.program.epilogue.outputs().len() + 1;
            if !self.narrow.is_empty()
                && bindings > ctx.device().capabilities().max_bindings as usize
            {
                let dims = &shapes[0];
                return self.narrow.iter().try_for_each(|pass| self.run(ctx, pass, &inputs, dims));
            }
            return self.run(ctx, &self.all, &inputs, &shapes[0]);
        }
        require!(
            self.all.program.epilogue.is_none(),
            "{OP}: results of several shapes cannot meet in an epilogue"
        );
        self.single
            .iter()
            .zip(&shapes)
            .try_for_each(|(pass, dims)| self.run(ctx, pass, &inputs, dims))
    }
}

/// The values of a node in passes that every adapter can run, in order.
fn narrow(expression: &Expression, states: &States) -> Vec<ValuePass> {
    let mut passes: Vec<(Vec<usize>, ValuePass)> = Vec::new();
    for k in 0..states.reductions() {
        let with = passes.last().map(|(which, _)| {
            let which = [&which[..], &[k]].concat();
            let both = pass(expression, states, &which);
            (which, both)
        });
        let fits = |pass: &ValuePass| pass.inputs.len() + pass.outputs.len() < MAX_BINDINGS;
        match with.filter(|(_, both)| fits(both)) {
            Some(both) => *passes.last_mut().expect("there is a last one") = both,
            None => passes.push((vec![k], pass(expression, states, &[k]))),
        }
    }
    passes.into_iter().map(|(_, pass)| pass).collect()
}

/// The pass of the values `which` of a node.
fn pass(expression: &Expression, states: &States, which: &[usize]) -> ValuePass {
    let values: Vec<Value> = which.iter().map(|k| expression.outputs()[*k]).collect();
    let (selected, inputs) = expression.select(&values);
    let first = |k: usize| (0..k).map(|j| states.outputs_of(j)).sum::<usize>();
    ValuePass {
        program: ReductionProgram::new(selected, states.select(which)),
        inputs: inputs.into(),
        outputs: which.iter().flat_map(|k| first(*k)..first(*k) + states.outputs_of(*k)).collect(),
    }
}
