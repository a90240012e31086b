//! Sibling products: several pairs of operands, several results, an epilogue for each. All ops of
//! matrix products with an epilogue are of one kind, see [`Products`]: a left operand, one or more
//! right ones, and for each product the values of its epilogue, and perhaps the sums of its right
//! operand's columns.
//!
//! `_WgpuFusedJoinedMatMul` has several right operands, as query, key and value have.
//! `_WgpuFusedMatMulWithSums` and `_WgpuFusedJoinedMatMulWithSums` also compute sums of columns, as
//! the gradient of a bias is beside that of its weights. `_WgpuFusedMatMulWithArgument` has an
//! epilogue of two values, an activation and its argument, which the gradient reads.
//!
//! `_WgpuFusedAddedMatMul` has several left operands too, and one result, the sum of the products,
//! as in the gradient of a tensor that several layers read.
//!
//! Each name is an op of its own because a shape function sees no attribute but types, and results
//! of each name have other shapes.

use std::ops::Range;

use smallvec::smallvec;

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::epilogue::Epilogue;
use crate::kernels::contract::siblings::{self, MOST_RESULTS, MOST_TERMS};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::expression::Expression;
use crate::kernels::fused::contraction::matmul_shape;
use crate::kernels::fused::sibling_products::{Fused, Products, channels};
use crate::kernels::fused::terms::with_term;
use crate::kernels::matmul::{Batches, MatMul};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// Products of one left operand with several right ones. Each has the same epilogue with operands
/// of its own, in the order of the products.
pub const JOINED: &str = "_WgpuFusedJoinedMatMul";

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

/// A definition with the attributes of all of these ops.
macro_rules! products {
    ($name:expr, $inputs:expr, $outputs:expr, $shape:expr, $types:literal; $($own:literal),*) => {
        OpDefinition {
            name: $name,
            inputs: $inputs,
            outputs: $outputs,
            attrs: &[
                concat!("T: ", $types),
                concat!("T_out: ", $types),
                "expression: string",
                "constants: list(float)",
                "adj_x: bool = false",
                $($own),*
            ],
            stateful: false,
            shape: $shape,
        }
    };
    ($name:expr, $inputs:expr, $outputs:expr, $shape:expr; $($own:literal),*) => {
        products!(
            $name, $inputs, $outputs, $shape, "{float, half, bfloat16, double}"; $($own),*
        )
    };
}

/// The ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    products!(
        ADDED, &["x: N * T", "y: N * T", "extra: T_extra"], &["output: T_out"], added_shape;
        "N: int >= 2", "T_extra: list(type) >= 0", "adj_y: bool = false"
    ),
    products!(
        JOINED, &["x: T", "y: N * T", "extra: T_extras"], &["output: N * T_out"], joined_shape;
        "N: int >= 2", "T_extra: list(type) >= 0", "T_extras: list(type) >= 0",
        "adj_y: bool = false"
    ),
    products!(
        JOINED_WITH_SUMS, &["x: T", "y: N * T"], &["output: N * T_out", "sums: N * T"],
        joined_with_sums_shape;
        "N: int >= 2"
    ),
    products!(
        WITH_ARGUMENT, &["x: T", "y: T", "extra: T_extra"], &["output: T_out", "argument: T_out"],
        with_argument_shape, "{float, half, bfloat16}";
        "T_extra: list(type) >= 0", "adj_y: bool = false"
    ),
    products!(
        WITH_SUMS, &["x: T", "y: T", "extra: T_extra"], &["output: T_out", "sums: T"],
        with_sums_shape;
        "T_extra: list(type) >= 0"
    ),
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op(ADDED).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let count = count(attrs, ADDED, MOST_TERMS)?;
        let base = || MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y");
        let whole = Fused::read(attrs, ADDED, Box::new(base()?), 1)?;
        let more = with_term(whole.epilogue.expression())?;
        let last = Epilogue::new(more, attrs.floats("constants")?)?;
        let dtype = attrs.dtype("T")?;
        let plain: Expression = format!("x: {dtype}; c: 0; return x0").parse()?;
        let next = Epilogue::new(with_term(&plain)?, Vec::new())?;
        let last = Fused { op: ADDED, base: Box::new(base()?), epilogue: last };
        Ok(Added { whole, last, next, count })
    });
    r.op(JOINED).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y")?;
        let products = Products {
            count: count(attrs, JOINED, MOST_RESULTS)?,
            ..Fused::read(attrs, JOINED, Box::new(base), 1)?.into()
        };
        let (own, all) = (attrs.dtypes("T_extra")?, attrs.dtypes("T_extras")?);
        let fit = all == own.repeat(products.count);
        require!(fit, "{JOINED}: {} products do not take operands of {all:?}", products.count);
        Ok(products)
    });
    r.op(JOINED_WITH_SUMS).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = MatMul::matrices(attrs.bool("adj_x")?, false);
        let count = count(attrs, JOINED_WITH_SUMS, MOST_RESULTS)?;
        let product = Fused::read(attrs, JOINED_WITH_SUMS, Box::new(base), 1)?;
        let expression = product.epilogue.expression();
        require!(
            expression.inputs().len() == 1,
            "{JOINED_WITH_SUMS}: {expression} for products of {}",
            expression.inputs()[0]
        );
        Ok(Products { product, count, sums: true })
    });
    r.op(WITH_ARGUMENT).types("T", SINGLES).types("T_out", SINGLES).kernel(|attrs| {
        let base = MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y")?;
        let product = Fused::read(attrs, WITH_ARGUMENT, Box::new(base), 2)?;
        let extras = product.epilogue.expression().inputs().len() - 1;
        require!(extras <= MOST_BESIDE_ARGUMENT, "{WITH_ARGUMENT}: {extras} further operands");
        Ok(Products::from(product))
    });
    r.op(WITH_SUMS).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = MatMul::matrices(attrs.bool("adj_x")?, false);
        let product = Fused::read(attrs, WITH_SUMS, Box::new(base), 1)?;
        Ok(Products { sums: true, ..product.into() })
    });
}

/// The number of products of a node.
fn count(attrs: &dyn Attrs, op: &str, most: usize) -> Result<usize> {
    let count = usize::try_from(attrs.int("N")?).unwrap_or(0);
    require!((2..=most).contains(&count), "{op}: {count} products");
    Ok(count)
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
            if let Some(plan) = siblings::sum(&plans, &profile, Some(bound)) {
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
        let operands = [&left[last], &right[last]];
        let output = |ctx: &mut dyn OpContext, dims: &[usize]| match made {
            Some(y) => Ok(smallvec![y]),
            None => Ok(smallvec![ctx.output(0, self.last.epilogue.output(), dims)?]),
        };
        match self.last.start_in(ctx, operands, &extras, output)? {
            Some(plan) => plan.enqueue(ctx),
            None => Ok(()),
        }
    }
}

/// All results have the same shape. Shape functions do not see the number of results, but there are
/// at most as many as right operands. A vector at the end has an element for each column.
fn joined_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [a, b, others @ ..] = inputs.shapes else { return Ok(Vec::new()) };
    let mut shapes = vec![a.clone(), b.clone()];
    shapes.extend(others.last().filter(|s| s.as_ref().is_some_and(|s| s.len() == 1)).cloned());
    let result = matmul_shape(&ShapeInputs { shapes: &shapes, dtype: inputs.dtype })?;
    Ok(vec![result[0].clone(); inputs.shapes.len() - 1])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_results_have_the_shape_of_a_product() {
        let of = |dims: &[i64]| Some(dims.iter().map(|d| usize::try_from(*d).ok()).collect());
        let shapes = |shapes: &[PartialShape]| {
            joined_shape(&ShapeInputs { shapes, dtype: &|_| None }).unwrap().remove(0)
        };
        let (a, b, bias) = (of(&[2, 3]), of(&[3, 4]), of(&[4]));
        assert_eq!(shapes(&[a.clone(), b.clone(), b.clone()]), of(&[-1, -1]));
        assert_eq!(shapes(&[a, b.clone(), b, bias.clone(), bias]), of(&[-1, 4]));
    }
}
