//! Updates of several variables, some of which are the same variable.
//!
//! A graph knows handles, not variables: two arguments of a function may be handles of one
//! variable. A program that changes several variables reads all of them before it writes any, so
//! one of two changes of the same variable would be lost. So such an update is carried out place by
//! place, like the assignments that it stands for. TensorFlow's dense training ops keep one of the
//! changes, and so do ours.

use smallvec::SmallVec;

use super::op::{OpContext, UpdateAll};
use crate::error::Result;
use crate::tensor::Tensor;

/// Whether a variable has two places among `values`, which are those of
/// [`OpContext::update_variables`].
pub fn are_there(values: &[Tensor]) -> bool {
    let mut addresses: SmallVec<[u64; 16]> =
        values.iter().filter(|t| !t.is_empty()).map(|t| t.address).collect();
    addresses.sort_unstable();
    addresses.windows(2).any(|pair| pair[0] == pair[1])
}

/// Runs `update`, which writes the new value of each place over its old one. If a variable has
/// several places, they are changed in the order of `places`: each sees the value that the one
/// before it has left.
pub fn update_in_order(
    ctx: &mut dyn OpContext,
    values: &[Tensor],
    places: impl IntoIterator<Item = usize>,
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    if !are_there(values) {
        return update(ctx, values);
    }
    let copies = |ctx: &mut dyn OpContext| {
        values.iter().map(|t| ctx.temp(t.dtype, &t.dims)).collect::<Result<Vec<Tensor>>>()
    };
    // The value that each place starts from, once its turn is over.
    let starts = copies(ctx)?;
    let scratch = copies(ctx)?;
    let mut is_over: SmallVec<[bool; 8]> = SmallVec::from_elem(false, values.len());
    for place in places {
        for (k, to) in scratch.iter().enumerate() {
            copy(ctx, to, if is_over[k] { &starts[k] } else { &values[k] })?;
        }
        update(ctx, &scratch)?;
        copy(ctx, &starts[place], &values[place])?;
        copy(ctx, &values[place], &scratch[place])?;
        is_over[place] = true;
    }
    Ok(())
}

/// Runs `update` once, on the values that all places had before. A variable that has several places
/// keeps the last one's value: that is what TensorFlow does, whose dense updates give each place a
/// buffer of its own when the variable is in use by another one.
pub fn update_and_keep_last(
    ctx: &mut dyn OpContext,
    values: &[Tensor],
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    if !are_there(values) {
        return update(ctx, values);
    }
    let copies =
        values.iter().map(|t| ctx.temp(t.dtype, &t.dims)).collect::<Result<Vec<Tensor>>>()?;
    for (to, from) in copies.iter().zip(values) {
        copy(ctx, to, from)?;
    }
    update(ctx, &copies)?;
    values.iter().zip(&copies).try_for_each(|(to, from)| copy(ctx, to, from))
}

fn copy(ctx: &dyn OpContext, to: &Tensor, from: &Tensor) -> Result<()> {
    ctx.device().copy(to.address, from.address, from.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn equal_addresses_are_aliases_but_for_empty_tensors() {
        let at = |address, n: usize| Tensor::new(DType::F32, &[n], address);
        assert!(are_there(&[at(256, 2), at(512, 3), at(256, 2)]));
        assert!(!are_there(&[at(256, 2), at(512, 3)]));
        assert!(!are_there(&[at(0, 0), at(0, 0), at(256, 1)]));
        assert!(!are_there(&[]));
    }
}
