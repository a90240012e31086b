//! The kernel of products and convolutions with epilogues, one or several of one left operand.

use smallvec::SmallVec;

use super::cost;
use crate::error::{Error, Result};
use crate::kernels::contract::epilogue::{Bound, Epilogue};
use crate::kernels::contract::plan::{Product, ProductPlan};
use crate::kernels::contract::siblings;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::reduce;
use crate::layout::broadcast_dims;
use crate::require;
use crate::tensor::{Dims, Tensor, shape_text};

/// Products of one left operand, with results of their own: the left operand, the right ones and
/// the further operands of each product come in, the values of each and then the sums go out.
pub(super) struct Products {
    /// A product with its epilogue.
    pub product: Fused,
    /// The number of products.
    pub count: usize,
    /// Whether the sums of each right operand's columns are computed.
    pub sums: bool,
}

impl From<Fused> for Products {
    /// A single product.
    fn from(product: Fused) -> Self {
        Self { product, count: 1, sums: false }
    }
}

impl Kernel for Products {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let Self { product, count, .. } = self;
        let expression = product.epilogue.expression();
        let (extras, values) = (expression.inputs().len() - 1, expression.outputs().len());
        let left = ctx.input(0)?;
        let mut plans = Vec::with_capacity(*count);
        let (mut rights, mut sums) = (Tensors::new(), Tensors::new());
        for at in 0..*count {
            let right = ctx.input(1 + at)?;
            let dims = &right.dims;
            require!(
                !self.sums || dims.len() == 2,
                "{} takes matrices: {}",
                product.op,
                shape_text(dims)
            );
            let own = (0..extras).map(|i| ctx.input(1 + count + at * extras + i));
            let own = own.collect::<Result<Tensors>>()?;
            plans.push(product.start(ctx, [&left, &right], &own, at * values)?);
            if self.sums {
                sums.push(ctx.output(count * values + at, right.dtype, &right.dims[1..])?);
            }
            rights.push(right);
        }
        let summed = siblings::enqueue(ctx, plans, &sums)?;
        let mut missing = rights.iter().zip(&sums).zip(summed).filter(|(_, summed)| !summed);
        missing.try_for_each(|((right, sums), _)| reduce(ctx, "Sum", right, &[true, false], sums))
    }
}

/// A few tensors, usually three at most.
pub(super) type Tensors = SmallVec<[Tensor; 3]>;

/// A product or convolution with an epilogue.
pub(super) struct Fused {
    /// The op, for errors.
    pub op: &'static str,
    /// The base op.
    pub base: Box<dyn Product>,
    /// The epilogue of its result.
    pub epilogue: Epilogue,
}

impl Fused {
    /// A base op with the node's epilogue of `values` values. An op without further operands lists
    /// no types of them.
    pub fn read(
        attrs: &dyn Attrs,
        op: &'static str,
        base: Box<dyn Product>,
        values: usize,
    ) -> Result<Self> {
        let epilogue = checked(Epilogue::read(attrs, base.result(attrs.dtype("T")?), values)?)?;
        Ok(Self { op, base, epilogue })
    }

    /// Enqueues the product of two operands with its epilogue, whose values are the outputs from
    /// `port` on, except for the plan that is returned.
    pub fn start(
        &self,
        ctx: &mut dyn OpContext,
        operands: [&Tensor; 2],
        extras: &[Tensor],
        port: usize,
    ) -> Result<Option<ProductPlan<'_>>> {
        let values = self.epilogue.expression().outputs().len();
        self.start_in(ctx, operands, extras, |ctx, dims| {
            let output = |value| ctx.output(port + value, self.epilogue.output(), dims);
            (0..values).map(output).collect()
        })
    }

    /// The same, into the tensors that `outputs` makes for these dims: one for each value of the
    /// epilogue.
    pub fn start_in(
        &self,
        ctx: &mut dyn OpContext,
        [a, b]: [&Tensor; 2],
        extras: &[Tensor],
        outputs: impl FnOnce(&mut dyn OpContext, &[usize]) -> Result<SmallVec<[Tensor; 2]>>,
    ) -> Result<Option<ProductPlan<'_>>> {
        let result = self.base.shape(&a.dims, &b.dims)?;
        let axis = self.base.channel(&result);
        let extras = channels(extras, result.len(), axis);
        let dims = extras.iter().try_fold(result.clone(), |dims, extra| {
            broadcast_dims(&dims, &extra.dims).map_err(|_| {
                let (dims, extra) = (shape_text(&dims), shape_text(&extra.dims));
                Error::InvalidArgument(format!(
                    "{}: Incompatible shapes: {dims} vs. {extra}",
                    self.op
                ))
            })
        })?;
        let outputs = outputs(ctx, &dims)?;
        let (output, second) = (&outputs[0], outputs.get(1));
        if output.is_empty() {
            return Ok(None);
        }
        let profile = ctx.device().profile();
        let more = extras.len() + usize::from(second.is_some()) + self.base.parameters();
        let fits = Epilogue::fits(more, profile.capabilities.max_bindings);
        let products = fits && !a.is_empty() && !b.is_empty() && dims == result;
        let bound = if products { self.epilogue.bind(&dims, axis, &extras) } else { None };
        if let Some(bound) = bound {
            let bound = second.cloned().into_iter().fold(bound, Bound::with_second);
            let plan = self.base.plan(&profile, [a, b, output], Some(bound))?;
            if second.is_none_or(|second| plan.stores_pairs(second)) {
                return Ok(Some(plan));
            }
        }
        let between = ctx.temp(self.base.result(a.dtype), &result)?;
        self.base.plan(&profile, [a, b, &between], None)?.enqueue(ctx)?;
        self.epilogue.after(ctx.device(), &between, &extras, &outputs)?;
        Ok(None)
    }
}

/// Accepts an epilogue if some pass may make it.
pub(super) fn checked(epilogue: Epilogue) -> Result<Epilogue> {
    cost::check(cost::contraction(cost::expression(epilogue.expression())))?;
    Ok(epilogue)
}

/// Turns vectors into the channels of a result of `rank`; every other operand stays as it is.
pub(super) fn channels(extras: &[Tensor], rank: usize, axis: usize) -> Tensors {
    let of = |extra: &Tensor| {
        if extra.rank() != 1 {
            return extra.clone();
        }
        let mut dims: Dims = std::iter::repeat_n(1, rank - axis).collect();
        dims[0] = extra.dims[0];
        extra.reshaped(&dims)
    };
    extras.iter().map(of).collect()
}
