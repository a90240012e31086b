//! `AddN`: a sum of any number of tensors, six at a time.

use std::fmt::Write;

use smallvec::SmallVec;

use super::map::{MAX_INPUTS, Signature};
use super::row::Function;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

const TYPES: &[DType] = union!(types::INEXACT, &[I64, U32]);

/// The sum of `n` arguments.
fn function(dtype: DType, n: usize) -> Function {
    let value = dtype.value();
    let names: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
    let parameters: Vec<String> = names.iter().map(|x| format!("{x}: {value}")).collect();
    let name = format!("AddN{n}_{dtype}");
    let mut text = String::new();
    let _ = writeln!(
        text,
        "fn {name}({}) -> {value} {{\n    return {};\n}}",
        parameters.join(", "),
        names.join(" + ")
    );
    Function { name, text }
}

fn signature<R>(dtype: DType, n: usize, f: impl FnOnce(&Signature<'_>) -> R) -> R {
    f(&Signature {
        op: "AddN",
        inputs: &[dtype; MAX_INPUTS][..n],
        outputs: &[dtype],
        attrs: &[],
        function: &|| function(dtype, n),
        operations: n as u32 - 1,
    })
}

struct AddN {
    dtype: DType,
}

impl Kernel for AddN {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let mut inputs: Vec<Tensor> = Vec::new();
        for i in 0..ctx.num_inputs() {
            inputs.push(ctx.input(i)?);
        }
        require!(!inputs.is_empty(), "AddN needs at least one input");
        let dims = inputs[0].dims.clone();
        for (i, t) in inputs.iter().enumerate() {
            require!(
                t.dims == dims,
                "Inputs to operation AddN of type AddN must have the same size and shape.  Input \
                 0: {} != input {i}: {}",
                shape_text(&dims),
                shape_text(&t.dims)
            );
        }
        if inputs.len() == 1 {
            return ctx.forward_input(0, 0, &dims);
        }
        // Only an input of the first dispatch may be overwritten: later inputs are read after the
        // output was written.
        let first = inputs.len().min(MAX_INPUTS);
        let candidates: SmallVec<[usize; MAX_INPUTS]> = (0..first).collect();
        let z = ctx.forward_or_output(&candidates, 0, self.dtype, &dims)?;
        let device = ctx.device();
        signature(self.dtype, first, |s| {
            s.run(device, &inputs[..first], std::slice::from_ref(&z), &[])
        })?;
        for part in inputs[first..].chunks(MAX_INPUTS - 1) {
            let operands: SmallVec<[Tensor; MAX_INPUTS]> =
                std::iter::once(&z).chain(part).cloned().collect();
            signature(self.dtype, operands.len(), |s| {
                s.run(device, &operands, std::slice::from_ref(&z), &[])
            })?;
        }
        Ok(())
    }
}

/// Registers the op.
pub fn register(registry: &mut Registry) {
    registry
        .op("AddN")
        .types("T", TYPES)
        .kernel(|attrs: &dyn Attrs| Ok(AddN { dtype: attrs.dtype("T")? }));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let pairs = TYPES.iter().flat_map(|t| (2..=MAX_INPUTS).map(move |n| (*t, n)));
    pairs.flat_map(|(t, n)| signature(t, n, |s| s.linear_shaders())).collect()
}
