//! Reductions over any axes: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm, L2Loss, and ArgMax
//! and ArgMin.
//!
//! A reduction is a row of [`table::REDUCTIONS`]. One engine runs plain and fused reductions:
//! [`plan`] cuts them into steps, [`program`] has the steps' texts, and [`steps`] enqueues them.
//! The program of a plain reduction is constant: its expression is the element itself. Results do
//! not depend on timing: no atomics, and every order of combination is fixed by the shapes.

pub mod arg;
pub mod epilogue;
pub mod integers;
pub mod plan;
pub mod program;
pub mod reduction;
mod run;
pub mod states;
pub mod steps;
pub mod table;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::dtype::DType::{self, I32, I64, U64};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::expression::Expression;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::layout::Iteration;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};
use crate::{invalid, require};

use integers::{INTEGER_REDUCTIONS, every_row};
use reduction::ReductionProgram;
use states::States;
use steps::Operands;
use table::Reduction;

/// Registers the family.
pub fn register(r: &mut Registry) {
    for row in every_row() {
        match row.op {
            "L2Loss" => r.op(row.op).types("T", row.types).kernel(move |_| Ok(whole(row))),
            "All" | "Any" => r
                .op(row.op)
                .types("Tidx", INDEX)
                .host(&["reduction_indices"])
                .kernel(move |attrs| Ok(axes_kernel(row, attrs.bool("keep_dims")?))),
            _ => r
                .op(row.op)
                .types("T", row.types)
                // TensorFlow's GPU list has uint64 for this op alone.
                .types(
                    "Tidx",
                    if row.op == "Prod" && !INTEGER_REDUCTIONS.contains(row) {
                        &[I32, I64, U64]
                    } else {
                        INDEX
                    },
                )
                .host(&["reduction_indices"])
                .kernel(move |attrs| Ok(axes_kernel(row, attrs.bool("keep_dims")?))),
        }
    }
    arg::register(r);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = arg::shaders();
    all.extend(arg::vec4s::shaders());
    let class = Iteration::over(&[8]).operand(&[1], 0).class();
    PROGRAMS.values().for_each(|program| program.shaders(&[], &class, &mut all));
    all
}

/// The programs of the plain reductions, by op and type.
static PROGRAMS: LazyLock<FxHashMap<(&str, DType), ReductionProgram>> = LazyLock::new(|| {
    let types = |row: &'static Reduction| row.types.iter().map(|dtype| (row.op, *dtype));
    let program = |(op, dtype)| {
        let mut expression = Expression::new();
        let element = expression.input(dtype);
        expression.output(element);
        let states = States::new(op, &[dtype]).expect("a row of the tables");
        ((op, dtype), ReductionProgram::new(expression, states))
    };
    every_row().flat_map(types).map(program).collect()
});

/// Reduces the axes `d` of `x` with `reduced[d]` by the plain reduction `op` to `y`.
pub fn reduce(
    ctx: &mut dyn OpContext,
    op: &'static str,
    x: &Tensor,
    reduced: &[bool],
    y: &Tensor,
) -> Result<()> {
    let program = &PROGRAMS[&(op, x.dtype)];
    let outputs = std::slice::from_ref(y);
    let operands = Operands { constants: &[], extras: &[], outputs };
    program.run(ctx, std::iter::once(x), operands, &x.dims, reduced)
}

type Compute<'a> = Box<dyn Fn(&mut dyn OpContext) -> Result<()> + Send + Sync + 'a>;

/// The kernel of a reduction whose axes are the host input 1.
fn axes_kernel(row: &'static Reduction, keep_dims: bool) -> Compute<'static> {
    Box::new(move |ctx| {
        let x = ctx.input(0)?;
        let axes = ctx.host_input(1)?;
        let reduced = reduced_axes(&axes.to_i64()?, x.rank())?;
        let dims = kept_dims(&x.dims, &reduced, keep_dims);
        // A reduction over single elements by a row that leaves them as they are.
        if row.keeps_singles()
            && x.dims.iter().zip(&reduced).all(|(extent, reduced)| !reduced || *extent == 1)
        {
            return ctx.forward_input(0, 0, &dims);
        }
        let y = ctx.output(0, x.dtype, &dims)?;
        reduce(ctx, row.op, &x, &reduced, &y)
    })
}

/// The kernel of a reduction of all elements to a scalar.
fn whole(row: &'static Reduction) -> Compute<'static> {
    Box::new(move |ctx| {
        let x = ctx.input(0)?;
        let y = ctx.output(0, x.dtype, &[])?;
        reduce(ctx, row.op, &x, &SmallVec::<[bool; 6]>::from_elem(true, x.rank()), &y)
    })
}

/// The axes, of `rank` axes, that the reduction indices name, with TensorFlow's errors.
pub fn reduced_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 6]>> {
    let mut reduced: SmallVec<[bool; 6]> = (0..rank).map(|_| false).collect();
    for &index in axes {
        let at = if index < 0 { index + rank as i64 } else { index };
        match usize::try_from(at).ok().filter(|at| *at < rank) {
            None => {
                invalid!("Invalid reduction dimension ({index} for input with {rank} dimension(s)")
            }
            Some(at) => {
                require!(
                    !reduced[at],
                    "Invalid reduction arguments: Axes contains duplicate dimension: {at}"
                );
                reduced[at] = true;
            }
        }
    }
    Ok(reduced)
}

/// The output's extents.
pub fn kept_dims(dims: &[usize], reduced: &[bool], keep_dims: bool) -> Dims {
    let kept = |(&extent, &reduced): (&usize, &bool)| match (reduced, keep_dims) {
        (true, true) => Some(1),
        (true, false) => None,
        (false, _) => Some(extent),
    };
    dims.iter().zip(reduced).filter_map(kept).collect()
}
