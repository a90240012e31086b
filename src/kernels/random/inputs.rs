//! Inputs that the random ops share, checked in TensorFlow's words.

use super::distribution::Bounds;
use crate::error::{Error, Result};
use crate::kernels::movement::checked_product;
use crate::kernels::op::OpContext;
use crate::tensor::{Dims, Tensor};
use crate::{invalid, require};

/// `dims` as TensorFlow prints a shape.
pub fn text(dims: &[usize]) -> String {
    format!("{dims:?}").replace(' ', "")
}

/// The shape that host input `i` describes.
pub fn shape(ctx: &mut dyn OpContext, i: usize) -> Result<Dims> {
    let t = ctx.host_input(i)?;
    require!(
        t.dims.len() == 1,
        "shape must be a vector of {{int32,int64}}, got shape {}",
        text(&t.dims)
    );
    let extents = t.to_i64()?;
    let mut dims = Dims::new();
    for &extent in &extents {
        let Ok(dim) = usize::try_from(extent) else { invalid!("Dimension {extent} must be >= 0") };
        dims.push(dim);
    }
    checked_product(&dims)?;
    Ok(dims)
}

/// The two seeds in host input `i`.
pub fn seed(ctx: &mut dyn OpContext, i: usize) -> Result<[i64; 2]> {
    let t = ctx.host_input(i)?;
    require!(t.dims[..] == [2], "seed must have shape [2], not {}", text(&t.dims));
    let seeds = t.to_i64()?;
    Ok([seeds[0], seeds[1]])
}

/// The bounds in the host inputs `i` (minval) and `i + 1` (maxval).
pub fn bounds(ctx: &mut dyn OpContext, i: usize) -> Result<Bounds> {
    let mut scalar = |i: usize, name: &str| -> Result<i64> {
        let t = ctx.host_input(i)?;
        require!(t.dims.is_empty(), "{name} must be 0-D, got shape {}", text(&t.dims));
        Ok(t.to_i64()?[0])
    };
    let (low, high) = (scalar(i, "minval")?, scalar(i + 1, "maxval")?);
    require!(low < high, "Need minval < maxval, got {low} >= {high}");
    Ok(Bounds { low: low.cast_unsigned(), range: high.wrapping_sub(low).cast_unsigned() })
}

/// The key and the counter in the inputs 1 and 2, for the generator that host input 3 names.
pub fn keyed(ctx: &mut dyn OpContext) -> Result<[Tensor; 2]> {
    philox(ctx, 3, || Error::InvalidArgument("Unsupported algorithm id: 2".to_owned()))?;
    let (key, counter) = (ctx.input(1)?, ctx.input(2)?);
    key_and_counter(&key.dims, &counter.dims)?;
    Ok([key, counter])
}

/// Checks that host input `i` names the Philox generator. `threefry` gives the error for algorithm
/// 2, which TensorFlow has only for XLA.
pub fn philox(ctx: &mut dyn OpContext, i: usize, threefry: impl FnOnce() -> Error) -> Result<()> {
    const PHILOX: i64 = 1;
    const THREEFRY: i64 = 2;
    const AUTO_SELECT: i64 = 3;
    let t = ctx.host_input(i)?;
    require!(t.dims.is_empty(), "input {i} (0-based) must have shape [], not {}", text(&t.dims));
    match t.to_i64()?[0] {
        PHILOX | AUTO_SELECT => Ok(()),
        THREEFRY => Err(threefry()),
        other => invalid!("Unsupported algorithm id: {other}"),
    }
}

/// Checks the shapes of the key and the counter of a stateless op.
fn key_and_counter(key: &[usize], counter: &[usize]) -> Result<()> {
    require!(
        *key == [1],
        "key must have shape [1], not {}. (Note that batched keys are not supported yet.)",
        text(key)
    );
    // TensorFlow accepts a shorter counter and reads behind its end.
    require!(
        counter.len() == 1 && counter[0] >= 2,
        "counter must be a vector with length at least 2; got shape: {}. (Note that batched \
         counters are not supported yet.)",
        text(counter)
    );
    Ok(())
}
