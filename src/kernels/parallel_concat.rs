//! `_ParallelConcatStart` and `_ParallelConcatUpdate`, by which TensorFlow replaces every
//! ParallelConcat (`tf.parallel_stack`) before it places a graph.
//!
//! Start allocates the result. Each update writes one row of it in place, and the result is read
//! after all updates are done: control edges order them. So all of these ops must run on one
//! device. TensorFlow would run an op that a device lacks elsewhere, on a copy that is never read,
//! and the result would stay unchanged.

use super::movement::{MOVED, shape};
use super::op::{Attrs, OpContext};
use super::registry::{ON_HOST, Registry};
use crate::dtype::DType::I32;
use crate::error::{Error, Result};
use crate::require;
use crate::shader::Shader;
use crate::tensor::HostTensor;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    registry.op("_ParallelConcatStart").types("dtype", MOVED).kernel(|attrs| {
        let (dtype, dims) = (attrs.dtype("dtype")?, result_dims(attrs)?);
        Ok(move |ctx: &mut dyn OpContext| ctx.output(0, dtype, &dims).map(drop))
    });
    registry
        .op("_ParallelConcatStart")
        .types("dtype", &[I32])
        .host(&["output"])
        .note(ON_HOST)
        .kernel(|attrs| {
            let dims = result_dims(attrs)?;
            Ok(move |ctx: &mut dyn OpContext| {
                ctx.host_output(0, &HostTensor::i32(&dims, &vec![0; dims.iter().product()]))
            })
        });
    registry.op("_ParallelConcatUpdate").types("T", MOVED).kernel(|attrs| {
        let loc = attrs.int("loc")?;
        Ok(move |ctx: &mut dyn OpContext| {
            let (value, update) = (ctx.input(0)?, ctx.input(1)?);
            let row = row(&value.dims, &update.dims, loc)?;
            ctx.device().copy(
                value.address + row as u64 * update.bytes(),
                update.address,
                update.bytes(),
            )?;
            ctx.forward_input(0, 0, &value.dims)
        })
    });
    let builder = registry
        .op("_ParallelConcatUpdate")
        .types("T", &[I32])
        .host(&["value", "update", "output"]);
    builder.note(ON_HOST).kernel(|attrs| {
        let loc = attrs.int("loc")?;
        Ok(move |ctx: &mut dyn OpContext| {
            let (dims, update) = (ctx.host_input(0)?.dims, ctx.host_input(1)?);
            let row = row(&dims, &update.dims, loc)?;
            ctx.overwrite_host_input(0, row * update.bytes.len(), &update.bytes)?;
            ctx.forward_input(0, 0, &dims)
        })
    });
}

/// The family has no shaders: rows are copied.
pub fn shaders() -> Vec<Shader> {
    Vec::new()
}

fn result_dims(attrs: &dyn Attrs) -> Result<Vec<usize>> {
    let dims = attrs.shape("shape")?;
    let known = dims.iter().map(|d| usize::try_from(*d)).collect::<Result<_, _>>();
    known.map_err(|_| Error::InvalidArgument(format!("shape must be fully defined, is {dims:?}")))
}

/// The row of `value` that the update writes, counted from the end if `loc` is negative.
fn row(value: &[usize], update: &[usize], loc: i64) -> Result<usize> {
    require!(!value.is_empty(), "value should be at least rank 1.");
    let rows = value[0] as i64;
    require!(rows > loc, "0th dimension of value = {rows} must be greater than loc_ = {loc}");
    let fits = value.len() == update.len() && value[1..] == update[1..] && update[0] == 1;
    require!(fits, "value and update shape doesn't match: {} vs. {}", shape(value), shape(update));
    Ok(loc.rem_euclid(rows) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_shape_of_one() {
        assert_eq!(row(&[3, 2], &[1, 2], 2), Ok(2));
        assert_eq!(row(&[3, 2], &[1, 2], -1), Ok(2));
        for (value, update, loc) in [
            (&[][..], &[][..], 0),
            (&[3, 2], &[1, 2], 3),
            (&[3, 2], &[1, 3], 0),
            (&[3, 2], &[2, 2], 0),
            (&[3, 2], &[2], 0),
            (&[0, 2], &[1, 2], 0),
        ] {
            assert!(
                matches!(row(value, update, loc), Err(Error::InvalidArgument(_))),
                "{value:?} {update:?} {loc}"
            );
        }
    }
}
