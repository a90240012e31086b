//! Complex Cholesky, MatrixInverse and MatrixSolve by the real kernels: a complex matrix is a real
//! one of twice the rows, with the block ((re, −im), (im, re)) for each element.
//!
//! Products and inverses of such matrices are such matrices. So is the Cholesky factor: each block
//! on the diagonal is a multiple of the identity all the way. The price is twice the arithmetic and
//! four times the memory of a kernel of its own.

use smallvec::smallvec;

use super::batch::{Batch, batch_dims};
use super::order::{literal, real};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::kernels::windows;
use crate::shader::Shader;
use crate::tensor::{Dims, HostTensor, Tensor};

/// The types of these kernels.
pub const COMPLEX: &[DType] = types::COMPLEX;

/// What a tensor's matrices become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Blocks.
    Matrix,
    /// Blocks, with a real diagonal.
    Hermitian,
    /// Columns of pairs.
    Columns,
}

/// Runs the real kernel `f` on inputs of these shapes. Its one output has the shape of the last
/// one.
pub fn embedded(
    ctx: &mut dyn OpContext,
    shapes: &[Shape],
    f: impl FnOnce(&mut dyn OpContext) -> Result<()>,
) -> Result<()> {
    let mut inputs = Vec::new();
    for (i, shape) in shapes.iter().enumerate() {
        let x = ctx.input(i)?;
        inputs.push(embed(ctx, &x, *shape)?);
    }
    let mut inner = Embedded { ctx, inputs, output: None };
    f(&mut inner)?;
    let output = inner.output.take().expect("the kernel has an output");
    let last = *shapes.last().expect("there is an input");
    unembed(ctx, &output, last)
}

const fn across(shape: Shape) -> usize {
    if matches!(shape, Shape::Columns) { 1 } else { 2 }
}

fn dims_of(t: &Tensor, rows: usize, cols: usize) -> Dims {
    let mut dims = Dims::from_slice(batch_dims(t));
    dims.extend([rows, cols]);
    dims
}

fn embed(ctx: &mut dyn OpContext, x: &Tensor, shape: Shape) -> Result<Tensor> {
    let Batch { rows, cols, .. } = Batch::of(x)?;
    let (part, across) = (x.dtype.part(), across(shape));
    let capabilities = *ctx.device().capabilities();
    if across as u64 * x.bytes() > windows::limit(&capabilities) {
        return Err(windows::too_large(&capabilities, "a batch of complex matrices as real ones"));
    }
    let y = ctx.temp(part, &dims_of(x, 2 * rows, across * cols))?;
    if y.is_empty() {
        return Ok(y);
    }
    let dtype = x.dtype;
    ctx.device().enqueue(&Program {
        key: Key::new("linalg embed").dtype(dtype),
        shader: &|| embed_shader(dtype),
        bindings: smallvec![Binding::from(x), Binding::from(&y)],
        params: Params::new()
            .u32(ctx.device().check_extent(y.len())?)
            .u32(2 * rows)
            .u32(across * cols)
            .u32(across)
            .u32(u32::from(shape == Shape::Hermitian)),
        grid: Grid::map(y.len(), part),
    })?;
    Ok(y)
}

fn unembed(ctx: &mut dyn OpContext, x: &Tensor, shape: Shape) -> Result<()> {
    let Batch { rows, cols, .. } = Batch::of(x)?;
    let (dtype, across) = (x.dtype.complex(), across(shape));
    let y = ctx.output(0, dtype, &dims_of(x, rows / 2, cols / across))?;
    if y.is_empty() {
        return Ok(());
    }
    ctx.device().enqueue(&Program {
        key: Key::new("linalg unembed").dtype(dtype),
        shader: &|| unembed_shader(dtype),
        bindings: smallvec![Binding::from(x), Binding::from(&y)],
        params: Params::new()
            .u32(y.len())
            .u32(rows / 2)
            .u32(cols / across)
            .u32(across)
            .u32(u32::from(shape == Shape::Hermitian)),
        grid: Grid::map(y.len(), dtype),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    COMPLEX.iter().flat_map(|t| [embed_shader(*t), unembed_shader(*t)]).collect()
}

fn embed_shader(dtype: DType) -> Shader {
    let part = dtype.part();
    Shader::new(format!("linalg embed {dtype}"))
        .bind("x", dtype)
        .bind("y", part)
        .u32s(&["count", "rows", "cols", "across", "hermitian"])
        .define("REAL", real(part))
        .define("ZERO", literal(part, 0.0))
        .body(include_str!("../../../shaders/linalg/embed.wgsl"))
        .map("y")
}

fn unembed_shader(dtype: DType) -> Shader {
    Shader::new(format!("linalg unembed {dtype}"))
        .bind("x", dtype.part())
        .bind("y", dtype)
        .u32s(&["count", "rows", "cols", "across", "hermitian"])
        .define("COMPLEX", dtype.value())
        .define("ZERO", literal(dtype.part(), 0.0))
        .body(include_str!("../../../shaders/linalg/unembed.wgsl"))
        .map("y")
}

/// The context of a real kernel on embedded matrices.
struct Embedded<'c> {
    ctx: &'c mut dyn OpContext,
    inputs: Vec<Tensor>,
    output: Option<Tensor>,
}

fn refused() -> Error {
    Error::Internal("a kernel of matrices has tensors alone".to_owned())
}

impl OpContext for Embedded<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        Ok(self.inputs[i].clone())
    }

    fn host_input(&mut self, _: usize) -> Result<HostTensor> {
        Err(refused())
    }

    fn output(&mut self, _: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let output = self.ctx.temp(dtype, dims)?;
        self.output = Some(output.clone());
        Ok(output)
    }

    fn forward_or_output(
        &mut self,
        _: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        self.output(i, dtype, dims)
    }

    fn forward_input(&mut self, _: usize, _: usize, _: &[usize]) -> Result<()> {
        Err(refused())
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        Err(refused())
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.ctx.temp(dtype, dims)
    }

    fn read_variable(&mut self, _: usize) -> Result<Tensor> {
        Err(refused())
    }

    fn update_variable(
        &mut self,
        _: usize,
        _: VariableUpdate,
        _: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        Err(refused())
    }

    fn update_variables(&mut self, _: &[usize], _: &mut UpdateAll<'_>) -> Result<()> {
        Err(refused())
    }
}
