//! Sums and zeros of lists and optionals, by access to their memory. They follow TensorFlow's CPU
//! kernels: a tensor that is not set stays unset in zeros, and is left out of a sum.

use super::elements::{self, type_text};
use super::release::ListApi;
use super::tensors::Tensors;
use super::value::list::List;
use super::value::optional::Optional;
use super::value::{Value, scalar};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::context::Context;
use crate::ffi::tensor::OwnedTensor;
use crate::require;

/// TensorFlow's error for a variant for which a device has no function.
fn no_function(arity: &str, op: &str, type_name: &str) -> Error {
    Error::Internal(format!(
        "No unary variant {arity}_op function found for op {op} Variant type_name: {type_name} \
         for device type: WGPU"
    ))
}

pub(super) fn zeros_like(api: &'static ListApi, ctx: &mut Context) -> Result<()> {
    let input = ctx.get_input(0)?;
    let input = scalar(input, |_| {
        "ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.".to_owned()
    })?;
    let zeros = zeros_of(api, ctx, &input)?;
    ctx.set_output(0, &zeros)
}

fn zeros_of(api: &'static ListApi, ctx: &Context, variant: &OwnedTensor) -> Result<OwnedTensor> {
    let zeros;
    match Value::of(api, variant).map_err(|name| no_function("unary", "ZEROS_LIKE", &name))? {
        Value::List(list) => {
            zeros = list.new_like(ctx)?;
            zero_tensors(api, ctx, list.tensors(), List::made(api, &zeros)?.tensors())?;
        }
        Value::Optional(optional) => {
            zeros = optional.new_like(ctx)?;
            if let (Some(from), Some(to)) =
                (optional.tensors(), Optional::made(api, &zeros)?.tensors())
            {
                zero_tensors(api, ctx, from, to)?;
            }
        }
    }
    Ok(zeros)
}

/// Sets `to` to zeros like `from`.
fn zero_tensors(
    api: &'static ListApi,
    ctx: &Context,
    from: Tensors<'_>,
    to: Tensors<'_>,
) -> Result<()> {
    for i in 0..from.len() {
        let Some(tensor) = from.get(ctx, i)? else { continue };
        let zero = if is_variant(&tensor) {
            zeros_of(api, ctx, &nested(tensor)?)?
        } else {
            elements::zeros(ctx, &tensor)?
        };
        to.set(ctx, i, &zero)?;
    }
    Ok(())
}

fn is_variant(tensor: &OwnedTensor) -> bool {
    tensor.type_number() == DType::Variant as i32
}

/// The tensor of a variant within a variant. TensorFlow reads such tensors as scalars.
fn nested(tensor: OwnedTensor) -> Result<OwnedTensor> {
    scalar(tensor, |shape| {
        format!("a tensor of type variant within a variant must be a scalar, not of shape {shape}")
    })
}

pub(super) fn add(api: &'static ListApi, ctx: &mut Context) -> Result<()> {
    let mut inputs = Vec::new();
    for i in 0..ctx.num_inputs() {
        inputs.push(scalar(ctx.get_input(i)?, |shape| {
            format!(
                "AddN of non-scalar Tensor with dtype=DT_VARIANT is not supported; inputs[{i} has \
                 shape: {shape}."
            )
        })?);
    }
    let sum = sum_of(api, ctx, &inputs)?;
    ctx.set_output(0, &sum)
}

/// The sum of two or more variants.
fn sum_of(
    api: &'static ListApi,
    ctx: &mut Context,
    variants: &[OwnedTensor],
) -> Result<OwnedTensor> {
    let (mut lists, mut optionals) = (Vec::new(), Vec::new());
    for variant in variants {
        match Value::of(api, variant).map_err(|name| no_function("binary", "ADD", &name))? {
            Value::List(list) => lists.push(list),
            Value::Optional(optional) => optionals.push(optional),
        }
    }
    match (&lists[..], &optionals[..]) {
        (lists, []) => sum_of_lists(api, ctx, lists),
        ([], optionals) => sum_of_optionals(api, ctx, optionals),
        ([list, ..], [optional, ..]) => Err(Error::Internal(format!(
            "BinaryOpVariants: Variants a and b have different type ids.  Type names: '{}' vs. \
             '{}'",
            Value::List(*list).type_name(),
            Value::Optional(*optional).type_name()
        ))),
    }
}

fn sum_of_lists(
    api: &'static ListApi,
    ctx: &mut Context,
    lists: &[List<'_>],
) -> Result<OwnedTensor> {
    let first = lists[0];
    let len = first.tensors().len();
    let mut sum = first.new_like(ctx)?;
    for next in &lists[1..] {
        require!(
            first.element_type() == next.element_type(),
            "Trying to add two lists of tensors of different dtypes. One is {} and the other is {}",
            type_text(first.element_type()),
            type_text(next.element_type())
        );
        let so_far = List::made(api, &sum)?;
        require!(
            so_far.is_compatible(next),
            "Trying to add two lists of tensors with incompatible element shapes. One is {} and \
             the other is {}",
            so_far.shape_text(),
            next.shape_text()
        );
        require!(
            len == next.tensors().len(),
            "Trying to add two lists of tensors with different lengths. One is {len} and the \
             other is {}",
            next.tensors().len()
        );
        // A shape cannot be merged in place, so the result gets a new list.
        let merged = first.new_like(ctx)?;
        so_far.merge_shapes(ctx, next, &List::made(api, &merged)?)?;
        sum = merged;
    }
    let addends: Vec<_> = lists.iter().map(List::tensors).collect();
    add_tensors(api, ctx, &addends, List::made(api, &sum)?.tensors())?;
    Ok(sum)
}

fn sum_of_optionals(
    api: &'static ListApi,
    ctx: &mut Context,
    optionals: &[Optional<'_>],
) -> Result<OwnedTensor> {
    let sum = optionals[0].new_like(ctx)?;
    let addends: Vec<_> = optionals.iter().filter_map(Optional::tensors).collect();
    require!(
        addends.is_empty() || addends.len() == optionals.len(),
        "Cannot add optionals because one has a value and the other doesn't."
    );
    for next in &addends {
        require!(
            addends[0].len() == next.len(),
            "Cannot add optionals because they have different numbers of components ({} vs. {}).",
            addends[0].len(),
            next.len()
        );
    }
    if let Some(to) = Optional::made(api, &sum)?.tensors() {
        add_tensors(api, ctx, &addends, to)?;
    }
    Ok(sum)
}

/// Sets each tensor of `to` to the sum of the tensors that are set in `addends`. All have the same
/// number of tensors.
fn add_tensors(
    api: &'static ListApi,
    ctx: &mut Context,
    addends: &[Tensors<'_>],
    to: Tensors<'_>,
) -> Result<()> {
    for i in 0..to.len() {
        let mut tensors = Vec::new();
        for addend in addends {
            tensors.extend(addend.get(ctx, i)?);
        }
        match &tensors[..] {
            [] => {}
            [only] => to.set(ctx, i, only)?,
            several if several.iter().all(is_variant) => {
                let several = tensors.into_iter().map(nested).collect::<Result<Vec<_>>>()?;
                let inner = sum_of(api, ctx, &several)?;
                to.set(ctx, i, &inner)?;
            }
            several => {
                let total = elements::sum(ctx, several)?;
                to.set(ctx, i, &total)?;
            }
        }
    }
    Ok(())
}
