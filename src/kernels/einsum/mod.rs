//! Einsum with one or two operands. Keras computes attention with it.
//!
//! [`equation`] turns the equation and the operands' shapes into axes with strides: diagonals,
//! transposes and broadcasts are strides, and no data is moved. [`lower`] contracts strided
//! operands with [`super::contract`], and copies one only if its axes do not form a matrix. An
//! output with repeated labels is computed without repeats and spread over the diagonal at the end.

mod equation;
mod lower;
mod program;

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use crate::tensor::Dims;
use equation::Equation;
use lower::View;

/// Element types, as on TensorFlow's GPU list.
const TYPES: &[DType] = types::INEXACT;

/// Adds the op.
pub fn register(r: &mut Registry) {
    r.op("Einsum").types("T", TYPES).kernel(|attrs: &dyn Attrs| {
        Ok(Einsum { equation: Equation::parse(&attrs.string("equation")?)? })
    });
}

/// Every shader variant of this family; those of contractions are listed by `matmul`.
pub fn shaders() -> Vec<Shader> {
    program::shaders()
}

struct Einsum {
    equation: Equation,
}

impl Kernel for Einsum {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs = (0..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| &t.dims[..]).collect();
        let axes = self.equation.bind(&shapes)?;
        let extents_of = |order: &[usize]| order.iter().map(|a| axes.extents[*a]).collect::<Dims>();
        let Some(y) = ctx.some_output(0, inputs[0].dtype, &extents_of(&axes.output))? else {
            return Ok(());
        };
        if inputs.iter().any(|t| t.is_empty()) {
            return ctx.device().fill(y.address, y.bytes(), 0);
        }
        let mut distinct = axes.output.clone();
        let mut seen = Vec::new();
        distinct.retain(|a| {
            !seen.contains(a) && {
                seen.push(*a);
                true
            }
        });
        let repeats = distinct.len() < axes.output.len();
        let result = if repeats { ctx.temp(y.dtype, &extents_of(&distinct))? } else { y.clone() };
        let views: Vec<_> = inputs
            .into_iter()
            .zip(&axes.strides)
            .map(|(t, strides)| View { tensor: t, strides: strides.to_vec() })
            .collect();
        lower::evaluate(ctx, &axes.extents, &views, &distinct, &result)?;
        if repeats {
            let places: Vec<_> =
                axes.output.iter().filter_map(|a| distinct.iter().position(|d| d == a)).collect();
            program::diagonal(ctx.device(), &result, &places, &y)?;
        }
        Ok(())
    }
}
