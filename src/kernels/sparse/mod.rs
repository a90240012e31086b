//! Sparse tensors: a matrix of coordinates (int64), a vector of values, and the dense shape.
//!
//! The device computes with coordinates in 64 bits, so that the dense shape may be as large as
//! TensorFlow's.

mod coordinates;
mod fill;
mod product;
pub(crate) mod ragged;
mod ragged_dense;
mod slice;

use super::movement::{checked_product, shape};
use super::op::OpContext;
use super::registry::Registry;
use crate::dtype::DType::I64;
use crate::error::Result;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, HostTensor, Tensor};

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    product::register(registry);
    ragged::register(registry);
    ragged_dense::register(registry);
    coordinates::register(registry);
    fill::register(registry);
    slice::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let all: [fn() -> Vec<Shader>; 6] = [
        coordinates::shaders,
        fill::shaders,
        product::shaders,
        ragged::shaders,
        ragged_dense::shaders,
        slice::shaders,
    ];
    all.into_iter().flat_map(|shaders| shaders()).collect()
}

/// Checks that `indices` and `values` belong to a sparse tensor of `rank` extents.
fn check(indices: &Tensor, values: &Tensor, rank: usize) -> Result<()> {
    require!(indices.rank() == 2, "Sparse indices must be rank 2 but is rank {}", indices.rank());
    require!(values.rank() == 1, "Sparse values must be rank 1 but is rank {}", values.rank());
    let (n, columns) = (indices.dims[0], indices.dims[1]);
    require!(
        n == values.len(),
        "Number of elements in indices ({n}) and values ({}) do not match",
        values.len()
    );
    require!(columns == rank, "Index rank ({columns}) and shape rank ({rank}) do not match");
    Ok(())
}

/// The dense shape, in host input `i`.
fn dense_shape(ctx: &mut dyn OpContext, i: usize) -> Result<Dims> {
    let given = ctx.host_input(i)?;
    require!(
        given.dims.len() == 1,
        "Input shape should be a vector but received shape {}",
        shape(&given.dims)
    );
    let mut dims = Dims::new();
    for n in given.to_i64()? {
        require!(n >= 0, "Expected shape dimensions to be non-negative, got {n}");
        dims.push(n as usize);
    }
    checked_product(&dims)?;
    Ok(dims)
}

/// Host numbers as an int64 tensor that shaders index, so that ranks have no limit.
fn upload(ctx: &mut dyn OpContext, numbers: &[i64]) -> Result<Tensor> {
    let table = ctx.temp(I64, &[numbers.len()])?;
    if !numbers.is_empty() {
        ctx.device().upload(table.address, bytemuck::cast_slice(numbers))?;
    }
    Ok(table)
}

/// Sets the host output `i` to extents.
fn shape_output(ctx: &mut dyn OpContext, i: usize, dims: &Dims) -> Result<()> {
    let dims: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
    ctx.host_output(i, &HostTensor::i64(&[dims.len()], &dims))
}
