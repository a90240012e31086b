//! Matrix products that also compute the results of nodes beside them: `_WgpuFusedMatMulWithSums`
//! computes the sums of its right operand's columns, as the gradient of a bias is beside that of
//! its weights; `_WgpuFusedJoinedMatMulWithSums` does the same for products of one left operand;
//! `_WgpuFusedAddedMatMul` computes the sum of several products, as in the gradient of a tensor
//! that several layers read; `_WgpuFusedMatMulWithArgument` computes an activation and its
//! argument, which the gradient reads.
//!
//! Epilogues are those of [`super::contraction`].

use std::ops::Range;

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::epilogue::Epilogue;
use crate::kernels::contract::plan::ProductPlan;
use crate::kernels::contract::{joined, summed, terms};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::expression::Expression;
use crate::kernels::fused::contraction::{Fused, channels, checked, matmul_shape};
use crate::kernels::fused::terms::with_term;
use crate::kernels::matmul::{Batches, MatMul};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::plan::groups;
use crate::kernels::reduce::program::reduce;
use crate::kernels::reduce::table::Reduction;
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// The product of two matrices and the sums of the right one's columns.
pub const WITH_SUMS: &str = "_WgpuFusedMatMulWithSums";

/// The products of one left operand with several right ones, and the sums of each one's columns.
pub const JOINED_WITH_SUMS: &str = "_WgpuFusedJoinedMatMulWithSums";

/// The sum of products, each of two operands of its own.
pub const ADDED: &str = "_WgpuFusedAddedMatMul";

/// A product with two results: the values of its epilogue, such as an activation and its argument.
pub const WITH_ARGUMENT: &str = "_WgpuFusedMatMulWithArgument";

/// Element types of operands and results.
const TYPES: &[DType] = types::FLOATS;

/// Element types of results that are stored in pairs.
const SINGLES: &[DType] = types::FLOATS_BUT_F64;

/// The most further operands of [`WITH_ARGUMENT`]: every adapter binds them together with both
/// results.
pub const MOST_BESIDE_ARGUMENT: usize = 3;

/// The ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: ADDED,
        inputs: &["x: N * T", "y: N * T", "extra: T_extra"],
        outputs: &["output: T_out"],
        attrs: &[
            "N: int >= 2",
            "T: {float, half, bfloat16, double}",
            "T_extra: list(type) >= 0",
            "T_out: {float, half, bfloat16, double}",
            "expression: string",
            "constants: list(float)",
            "adj_x: bool = false",
            "adj_y: bool = false",
        ],
        stateful: false,
        shape: added_shape,
    },
    OpDefinition {
        name: JOINED_WITH_SUMS,
        inputs: &["x: T", "y: N * T"],
        outputs: &["output: N * T_out", "sums: N * T"],
        attrs: &[
            "N: int >= 2",
            "T: {float, half, bfloat16, double}",
            "T_out: {float, half, bfloat16, double}",
            "expression: string",
            "constants: list(float)",
            "adj_x: bool = false",
        ],
        stateful: false,
        shape: joined_with_sums_shape,
    },
    OpDefinition {
        name: WITH_ARGUMENT,
        inputs: &["x: T", "y: T", "extra: T_extra"],
        outputs: &["output: T_out", "argument: T_out"],
        attrs: &[
            "T: {float, half, bfloat16}",
            "T_extra: list(type) >= 0",
            "T_out: {float, half, bfloat16}",
            "expression: string",
            "constants: list(float)",
            "adj_x: bool = false",
            "adj_y: bool = false",
        ],
        stateful: false,
        shape: with_argument_shape,
    },
    OpDefinition {
        name: WITH_SUMS,
        inputs: &["x: T", "y: T", "extra: T_extra"],
        outputs: &["output: T_out", "sums: T"],
        attrs: &[
            "T: {float, half, bfloat16, double}",
            "T_extra: list(type) >= 0",
            "T_out: {float, half, bfloat16, double}",
            "expression: string",
            "constants: list(float)",
            "adj_x: bool = false",
        ],
        stateful: false,
        shape: with_sums_shape,
    },
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op(ADDED).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let count = usize::try_from(attrs.int("N")?).unwrap_or(0);
        require!((2..=terms::MOST).contains(&count), "{ADDED}: {count} products");
        let base = || MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y");
        let whole = fused(attrs, ADDED, base()?)?;
        let more = with_term(whole.epilogue.expression())?;
        let constants = attrs.floats("constants")?;
        let last = Epilogue::new(more, constants)?;
        let dtype = attrs.dtype("T")?;
        let plain: Expression = format!("x: {dtype}; c: 0; return x0").parse()?;
        let next = Epilogue::new(with_term(&plain)?, Vec::new())?;
        let last = Fused { op: ADDED, base: Box::new(base()?), epilogue: last };
        Ok(Added { whole, last, next, count })
    });
    r.op(JOINED_WITH_SUMS).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let count = usize::try_from(attrs.int("N")?).unwrap_or(0);
        require!((2..=joined::MOST).contains(&count), "{JOINED_WITH_SUMS}: {count} products");
        let expression = attrs.string("expression")?.parse()?;
        let epilogue = checked(Epilogue::new(expression, attrs.floats("constants")?)?)?;
        let own = [attrs.dtype("T")?, attrs.dtype("T_out")?];
        let expression = epilogue.expression();
        require!(
            expression.inputs() == &own[..1] && epilogue.output() == own[1],
            "{JOINED_WITH_SUMS}: {expression} for products of {own:?}"
        );
        let base = Box::new(MatMul::matrices(attrs.bool("adj_x")?, false));
        let product = Fused { op: JOINED_WITH_SUMS, base, epilogue };
        Ok(JoinedWithSums { product, count })
    });
    r.op(WITH_ARGUMENT).types("T", SINGLES).types("T_out", SINGLES).kernel(|attrs| {
        let epilogue = checked(Epilogue::read_pair(attrs, attrs.dtype("T")?)?)?;
        let extras = epilogue.expression().inputs().len() - 1;
        require!(extras <= MOST_BESIDE_ARGUMENT, "{WITH_ARGUMENT}: {extras} further operands");
        let base = Box::new(MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y")?);
        Ok(WithArgument { product: Fused { op: WITH_ARGUMENT, base, epilogue } })
    });
    r.op(WITH_SUMS).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = MatMul::matrices(attrs.bool("adj_x")?, false);
        Ok(WithSums { product: fused(attrs, WITH_SUMS, base)? })
    });
}

fn fused(attrs: &dyn Attrs, op: &'static str, base: MatMul) -> Result<Fused> {
    let epilogue = checked(Epilogue::read(attrs, attrs.dtype("T")?)?)?;
    Ok(Fused { op, base: Box::new(base), epilogue })
}

struct WithArgument {
    product: Fused,
}

impl Kernel for WithArgument {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let extras = (2..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let operands = [ctx.input(0)?, ctx.input(1)?];
        let dtype = self.product.epilogue.output();
        let outputs = |ctx: &mut dyn OpContext, dims: &[usize]| {
            Ok([ctx.output(0, dtype, dims)?, ctx.output(1, dtype, dims)?])
        };
        match self.product.start_in(ctx, &operands, &extras, outputs)? {
            Some(plan) => plan.enqueue(ctx),
            None => Ok(()),
        }
    }
}

struct WithSums {
    product: Fused,
}

impl Kernel for WithSums {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let extras = (2..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let operands = [ctx.input(0)?, ctx.input(1)?];
        let right = &operands[1];
        require!(right.rank() == 2, "{WITH_SUMS} takes matrices: {}", shape_text(&right.dims));
        let plan = self.product.start(ctx, &operands, &extras, 0)?;
        let sums = ctx.output(1, right.dtype, &right.dims[1..])?;
        with_sums(ctx, plan, right, &sums)
    }
}

/// Enqueues a product, if it is not enqueued yet, and the sums of its right operand's columns.
fn with_sums(
    ctx: &mut dyn OpContext,
    plan: Option<ProductPlan<'_>>,
    right: &Tensor,
    sums: &Tensor,
) -> Result<()> {
    let done = match plan {
        Some(plan) => summed::enqueue(ctx, plan, sums)?,
        None => false,
    };
    if done {
        return Ok(());
    }
    reduce(ctx, Reduction::of("Sum"), right, &groups(&right.dims, &[true, false]), sums)
}

struct JoinedWithSums {
    /// The product with its epilogue.
    product: Fused,
    /// The number of products.
    count: usize,
}

impl Kernel for JoinedWithSums {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let left = ctx.input(0)?;
        let (mut plans, mut rights, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for part in 0..self.count {
            let right = ctx.input(1 + part)?;
            let dims = shape_text(&right.dims);
            require!(right.rank() == 2, "{JOINED_WITH_SUMS} takes matrices: {dims}");
            plans.push(self.product.start(ctx, &[left.clone(), right.clone()], &[], part)?);
            sums.push(ctx.output(self.count + part, right.dtype, &right.dims[1..])?);
            rights.push(right);
        }
        if plans.iter().all(Option::is_some) {
            let whole = plans.into_iter().flatten().collect();
            match joined::enqueue_with_sums(ctx, whole, &sums)? {
                Some(apart) => plans = apart.into_iter().map(Some).collect(),
                None => return Ok(()),
            }
        }
        let each = plans.into_iter().zip(rights.iter().zip(&sums));
        each.into_iter().try_for_each(|(plan, (right, sums))| with_sums(ctx, plan, right, sums))
    }
}

/// A sum of products.
struct Added {
    /// A product with the epilogue of the sum.
    whole: Fused,
    /// The last product, to which the sum of the others is added first.
    last: Fused,
    /// The epilogue that adds a product to the sum of those before it.
    next: Epilogue,
    /// The number of products.
    count: usize,
}

impl Kernel for Added {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (all, count) = (ctx.num_inputs(), self.count);
        let mut of = |range: Range<usize>| range.map(|i| ctx.input(i)).collect::<Result<Vec<_>>>();
        let (left, right) = (of(0..count)?, of(count..2 * count)?);
        let extras = of(2 * count..all)?;
        let base = &self.whole.base;
        let dims = base.shape(&left[0].dims, &right[0].dims)?;
        for (a, b) in left.iter().zip(&right) {
            let own = base.shape(&a.dims, &b.dims)?;
            let (own, dims) = (&own, &dims);
            require!(own == dims, "{ADDED}: {} and {}", shape_text(dims), shape_text(own));
        }
        let profile = ctx.device().profile();
        // The epilogue's operands broadcast the sum, or nothing is multiplied.
        let axis = base.channel(&dims);
        let bound = self.whole.epilogue.bind(&dims, axis, &channels(&extras, dims.len(), axis));
        let mut made = None;
        if let Some(bound) = bound.filter(|_| !left[0].is_empty() && !right[0].is_empty()) {
            let y = ctx.output(0, self.whole.epilogue.output(), &dims)?;
            let plans = left.iter().zip(&right).map(|(a, b)| base.plan(&profile, [a, b, &y], None));
            let plans = plans.collect::<Result<Vec<_>>>()?;
            if let Some(plan) = terms::plan(&plans, &profile, Some(bound)) {
                return plan.enqueue(ctx);
            }
            made = Some(y);
        }
        self.one_by_one(ctx, &left, &right, extras, made)
    }
}

impl Added {
    /// Enqueues one product after the other, each of which adds the sum of those before it. The
    /// output may be allocated already.
    fn one_by_one(
        &self,
        ctx: &mut dyn OpContext,
        left: &[Tensor],
        right: &[Tensor],
        mut extras: Vec<Tensor>,
        made: Option<Tensor>,
    ) -> Result<()> {
        let base = &self.whole.base;
        let dims = base.shape(&left[0].dims, &right[0].dims)?;
        let profile = ctx.device().profile();
        let last = self.count - 1;
        let mut before: Option<Tensor> = None;
        for (a, b) in left.iter().zip(right).take(last) {
            let sum = ctx.temp(a.dtype, &dims)?;
            let terms: Vec<Tensor> = before.into_iter().collect();
            let bound = self.next.bind(&dims, base.channel(&dims), &terms);
            let fits = !terms.is_empty() && !a.is_empty() && !b.is_empty();
            base.plan(&profile, [a, b, &sum], bound.filter(|_| fits))?.enqueue(ctx)?;
            before = Some(sum);
        }
        extras.extend(before);
        let operands = [left[last].clone(), right[last].clone()];
        let output = |ctx: &mut dyn OpContext, dims: &[usize]| match made {
            Some(y) => Ok([y]),
            None => Ok([ctx.output(0, self.last.epilogue.output(), dims)?]),
        };
        match self.last.start_in(ctx, &operands, &extras, output)? {
            Some(plan) => plan.enqueue(ctx),
            None => Ok(()),
        }
    }
}

/// Batch and rank are the first left operand's, unless another input has a higher rank. Shape
/// functions do not see which operands are transposed.
fn added_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let ranks = inputs.shapes.iter().map(|s| s.as_ref().map(Vec::len));
    let Some(ranks) = ranks.collect::<Option<Vec<_>>>() else { return Ok(vec![None]) };
    let shape = inputs.shapes.first().cloned().flatten();
    Ok(vec![shape.filter(|s| s.len() >= 2 && ranks.iter().all(|r| *r <= s.len())).map(|mut s| {
        let rank = s.len();
        s[rank - 2..].fill(None);
        // An extent of one may be broadcast.
        s.iter_mut().filter(|d| **d == Some(1)).for_each(|d| *d = None);
        s
    })])
}

/// The shape of each product, then the shapes of the sums, one for each right operand.
fn joined_with_sums_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let Some((left, rights)) = inputs.shapes.split_first() else { return Ok(Vec::new()) };
    let mut shapes = vec![left.clone(), None];
    let (mut products, mut sums) = (Vec::new(), Vec::new());
    for right in rights {
        shapes[1].clone_from(right);
        let of = with_sums_shape(&ShapeInputs { shapes: &shapes, dtype: inputs.dtype })?;
        products.push(of[0].clone());
        sums.push(of[1].clone());
    }
    Ok([products, sums].concat())
}

/// Both shapes are the product's.
fn with_argument_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let shape = matmul_shape(inputs)?.swap_remove(0);
    Ok(vec![shape.clone(), shape])
}

/// The product's shape, and a vector with an element for each column of the right operand.
fn with_sums_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let product = matmul_shape(inputs)?;
    let right = inputs.shapes.get(1).cloned().flatten();
    let columns = right.and_then(|dims| dims.last().copied()).flatten();
    Ok(vec![product[0].clone(), Some(vec![columns])])
}
