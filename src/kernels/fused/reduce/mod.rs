//! `_WgpuFusedReduce`: several reductions over the same axes, of an expression's values for every
//! element, in one pass.
//!
//! An output is reduced over the shape to which the inputs of its own value broadcast, as it would
//! be without fusion. Where these shapes differ, which the optimizer cannot always exclude, each
//! shape takes a pass of its own. A node may read more tensors than every adapter binds: then its
//! reductions take as few passes as the adapter allows.

mod epilogue;
mod program;
mod run;
mod state;

use smallvec::SmallVec;

use crate::error::Result;
use crate::kernels::definition::OpDefinition;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::cost;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::{kept_dims, reduced_axes};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims, dense_strides};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

use epilogue::{Epilogue, Extra};
pub use epilogue::{MAX_CONSTANTS, MAX_EXTRAS, MAX_OUTPUTS};
use program::MAX_BINDINGS;
pub use program::{MAX_INPUTS, MAX_PLANES, MOST_INPUTS};
pub use state::{MOMENTS, States};

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

/// Shader variants of sample expressions.
pub fn shaders() -> Vec<Shader> {
    program::samples()
}

/// A pass over some of a node's values, with the inputs that these need.
struct Pass {
    expression: Expression,
    text: String,
    states: States,
    /// The node's inputs that it reads.
    inputs: SmallVec<[usize; 6]>,
    /// The node's outputs that it writes, where these are the results.
    outputs: SmallVec<[usize; 6]>,
    epilogue: Epilogue,
}

struct FusedReduce {
    /// All values in one pass.
    all: Pass,
    /// Each value on its own.
    single: Vec<Pass>,
    /// The values in passes that every adapter can run; empty if one pass is enough.
    narrow: Vec<Pass>,
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
        let epilogue = Epilogue::read(attrs, &states)?;
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
        let single: Vec<Pass> =
            (0..states.reductions()).map(|k| pass(&expression, &states, &[k])).collect();
        let which: Vec<usize> = (0..states.reductions()).collect();
        let all = Pass { epilogue, ..pass(&expression, &states, &which) };
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
        pass: &Pass,
        inputs: &[Tensor],
        dims: &[usize],
    ) -> Result<()> {
        let reduced = if self.whole {
            dims.iter().map(|_| true).collect()
        } else {
            reduced_axes(&self.axes, dims.len())?
        };
        let kept = kept_dims(dims, &reduced, self.keep_dims);
        let mut outputs: SmallVec<[Tensor; 6]> = SmallVec::new();
        for (o, dtype) in pass.epilogue.outputs().into_iter().enumerate() {
            outputs.push(ctx.output(pass.outputs.get(o).copied().unwrap_or(o), dtype, &kept)?);
        }
        let extras = inputs[self.all.inputs.len()..].iter().filter(|_| !pass.epilogue.is_none());
        let extras = extras.map(|x| Extra::new(x.clone(), &kept)).collect::<Result<Vec<_>>>()?;
        if outputs[0].is_empty() {
            return Ok(());
        }
        let total: usize = dims
            .iter()
            .zip(&reduced)
            .filter(|(_, reduced)| **reduced)
            .map(|(extent, _)| extent)
            .product();
        let total = ctx.device().check_extent(total)?;
        // The outputs' strides, 0 along reduced axes, keep reduced and kept axes apart.
        let marker: Dims = dims
            .iter()
            .zip(&reduced)
            .map(|(extent, reduced)| if *reduced { 1 } else { *extent })
            .collect();
        let marker: SmallVec<[i64; 6]> = dense_strides(&marker)
            .iter()
            .zip(&reduced)
            .map(|(stride, reduced)| if *reduced { 0 } else { *stride })
            .collect();
        let read = pass.inputs.iter().map(|i| &inputs[*i]);
        let walk = read
            .clone()
            .fold(Iteration::over(dims), |w, x| w.broadcast(&x.dims))
            .operand(&marker, 0);
        let profile = ctx.device().profile();
        let Pass { expression, text, states, epilogue, .. } = pass;
        let work = run::Work {
            expression,
            text,
            states,
            constants: &self.constants,
            epilogue,
            extras: &extras,
            outputs: &outputs,
            profile,
            total,
        };
        let bases = read.map(|x| x.address).collect();
        work.reduce(ctx, &walk.collapse(), &bases, run::Sink::Outputs(0))
    }
}

impl Kernel for FusedReduce {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs = (0..ctx.num_inputs())
            .map(|i| ctx.input(i))
            .collect::<Result<SmallVec<[Tensor; 6]>>>()?;
        let shape = |pass: &Pass| {
            let mut read = pass.inputs.iter().map(|i| &inputs[*i].dims);
            let first = read.next().cloned().unwrap_or_default();
            read.try_fold(first, |dims, x| broadcast_dims(&dims, x))
        };
        let shapes = self.single.iter().map(shape).collect::<Result<SmallVec<[Dims; 6]>>>()?;
        if shapes.iter().all(|dims| *dims == shapes[0]) {
            // A buffer of parameters may take a binding.
            let bindings = inputs.len() + self.all.epilogue.outputs().len() + 1;
            if !self.narrow.is_empty()
                && bindings > ctx.device().capabilities().max_bindings as usize
            {
                let dims = &shapes[0];
                return self.narrow.iter().try_for_each(|pass| self.run(ctx, pass, &inputs, dims));
            }
            return self.run(ctx, &self.all, &inputs, &shapes[0]);
        }
        require!(
            self.all.epilogue.is_none(),
            "{OP}: results of several shapes cannot meet in an epilogue"
        );
        self.single
            .iter()
            .zip(&shapes)
            .try_for_each(|(pass, dims)| self.run(ctx, pass, &inputs, dims))
    }
}

/// The values of a node in passes that every adapter can run, in order.
fn narrow(expression: &Expression, states: &States) -> Vec<Pass> {
    let mut passes: Vec<(Vec<usize>, Pass)> = Vec::new();
    for k in 0..states.reductions() {
        let with = passes.last().map(|(which, _)| {
            let which = [&which[..], &[k]].concat();
            let both = pass(expression, states, &which);
            (which, both)
        });
        let fits = |pass: &Pass| pass.inputs.len() + pass.outputs.len() < MAX_BINDINGS;
        match with.filter(|(_, both)| fits(both)) {
            Some(both) => *passes.last_mut().expect("there is a last one") = both,
            None => passes.push((vec![k], pass(expression, states, &[k]))),
        }
    }
    passes.into_iter().map(|(_, pass)| pass).collect()
}

/// The pass of the values `which` of a node.
fn pass(expression: &Expression, states: &States, which: &[usize]) -> Pass {
    let values: Vec<Value> = which.iter().map(|k| expression.outputs()[*k]).collect();
    let (selected, inputs) = expression.select(&values);
    let first = |k: usize| (0..k).map(|j| states.outputs_of(j)).sum::<usize>();
    let selected_states = states.select(which);
    Pass {
        text: selected.to_string(),
        expression: selected,
        epilogue: Epilogue::none(&selected_states),
        states: selected_states,
        inputs: inputs.into(),
        outputs: which.iter().flat_map(|k| first(*k)..first(*k) + states.outputs_of(*k)).collect(),
    }
}
