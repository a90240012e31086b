//! CudnnRNNParamsSize, and the ops that convert parameters to matrices and vectors and back:
//! CudnnRNNParamsToCanonical, CudnnRNNCanonicalToParams and V2 of both.

use super::model::{Layout, Model};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::tensor::{HostTensor, Tensor, shape_text};
use crate::{invalid, require};

const HOST: &[&str] = &["num_layers", "num_units", "input_size"];
const HOST_AND_SIZE: &[&str] = &["num_layers", "num_units", "input_size", "params_size"];
/// Inputs in host memory, which come first.
const SIZES: usize = HOST.len();

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op("CudnnRNNParamsSize")
        .types("T", types::FLOATS)
        .types("S", &[DType::I32])
        .host(HOST_AND_SIZE)
        .kernel(|a| Ok(ParamsSize(Model::new(a)?)));
    for (op, counts) in [
        ("CudnnRNNParamsToCanonical", ["num_params"; 2]),
        ("CudnnRNNParamsToCanonicalV2", ["num_params_weights", "num_params_biases"]),
    ] {
        r.op(op)
            .types("T", types::FLOATS)
            .host(HOST)
            .kernel(move |a| Ok(ToCanonical(Counted::new(a, counts)?)));
    }
    for (op, counts) in [
        ("CudnnRNNCanonicalToParams", ["num_params"; 2]),
        ("CudnnRNNCanonicalToParamsV2", ["num_params_weights", "num_params_biases"]),
    ] {
        r.op(op)
            .types("T", types::FLOATS)
            .host(HOST)
            .kernel(move |a| Ok(ToParams(Counted::new(a, counts)?)));
    }
}

/// The layout that num_layers, num_units and input_size ask for.
fn layout(ctx: &mut dyn OpContext, model: &Model) -> Result<Layout> {
    let mut sizes = [0; SIZES];
    for (i, name) in HOST.iter().enumerate() {
        let size = ctx.host_i64(i, name)?;
        let Some(size_of) = usize::try_from(size).ok().filter(|n| *n > 0) else {
            invalid!("{name} must be positive, got {size}")
        };
        sizes[i] = size_of;
    }
    let [layers, units, inputs] = sizes;
    model.layout(layers, units, inputs)
}

/// Computes params_size from num_layers, num_units and input_size.
struct ParamsSize(Model);

impl Kernel for ParamsSize {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let len = layout(ctx, &self.0)?.len();
        let Ok(len) = i32::try_from(len) else {
            invalid!("the network has {len} parameters, which params_size cannot hold")
        };
        ctx.host_output(0, &HostTensor::i32(&[1], &[len]))
    }
}

/// A network, and the numbers of matrices and vectors that a node names.
struct Counted {
    model: Model,
    weights: usize,
    biases: usize,
}

impl Counted {
    fn new(attrs: &dyn Attrs, counts: [&str; 2]) -> Result<Self> {
        let [weights, biases] = [attrs.int(counts[0])?, attrs.int(counts[1])?];
        let model = Model::new(attrs)?;
        Ok(Self { model, weights: weights as usize, biases: biases as usize })
    }

    /// The parts of `params`: weights, then biases.
    fn parts(&self, ctx: &mut dyn OpContext) -> Result<(Layout, Vec<CanonicalPart>)> {
        let layout = layout(ctx, &self.model)?;
        let (matrices, biases) = (layout.matrices(), layout.biases());
        for (given, found) in [(self.weights, matrices.len()), (self.biases, biases.len())] {
            require!(given == found, "Number of params mismatch. Expected {given}, got {found}");
        }
        let matrices = matrices.into_iter().map(|[at, m, n]| (at, vec![m, n]));
        let biases = biases.into_iter().map(|at| (at, vec![layout.units]));
        Ok((layout, matrices.chain(biases).collect()))
    }
}

/// Where a part of `params` begins, and its shape.
type CanonicalPart = (usize, Vec<usize>);

/// The part of `params` from element `at` on that has the shape of `like`.
fn part(params: &Tensor, at: usize, like: &Tensor) -> u64 {
    params.address + (at * like.dtype.size()) as u64
}

/// Computes weights and biases from num_layers, num_units, input_size and params.
struct ToCanonical(Counted);

impl Kernel for ToCanonical {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (layout, parts) = self.0.parts(ctx)?;
        let params = ctx.input(SIZES)?;
        check(&params, "params", &[layout.len()])?;
        for (i, (at, dims)) in parts.into_iter().enumerate() {
            let output = ctx.output(i, params.dtype, &dims)?;
            if !output.is_empty() {
                let from = part(&params, at, &output);
                ctx.device().copy(output.address, from, output.bytes())?;
            }
        }
        Ok(())
    }
}

/// Computes params from num_layers, num_units, input_size, weights and biases.
struct ToParams(Counted);

impl Kernel for ToParams {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (layout, parts) = self.0.parts(ctx)?;
        let params = ctx.output(0, self.0.model.dtype, &[layout.len()])?;
        for (i, (at, dims)) in parts.into_iter().enumerate() {
            let input = ctx.input(SIZES + i)?;
            check(&input, "weights or biases", &dims)?;
            if !input.is_empty() {
                let to = part(&params, at, &input);
                ctx.device().copy(to, input.address, input.bytes())?;
            }
        }
        Ok(())
    }
}

/// Fails unless `tensor` has the elements of the shape `dims`.
fn check(tensor: &Tensor, name: &str, dims: &[usize]) -> Result<()> {
    require!(
        tensor.len() == dims.iter().product::<usize>(),
        "Invalid {name} shape: {} {}",
        shape_text(&tensor.dims),
        shape_text(dims)
    );
    Ok(())
}
