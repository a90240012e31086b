//! Updates of whole variables: AssignAddVariableOp and AssignSubVariableOp, and on reference
//! variables Assign, AssignAdd and AssignSub.
//!
//! TensorFlow's kernels for DEVICE_DEFAULT serve all other ops of variables (handles, reads,
//! assignments to resource variables).

use crate::device::{Grid, declare_program};
use crate::dtype::types::{ELEMENTS_BUT_I32, NUMBERS_BUT_I32};
use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::op::{Kernel, OpContext, VariableUpdate};
use crate::kernels::registry::{Need, Registry};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Each op, its name on reference variables, and the operator that combines variable and value.
const OPS: &[(&str, &str, char)] =
    &[("AssignAddVariableOp", "AssignAdd", '+'), ("AssignSubVariableOp", "AssignSub", '-')];

/// Every type for which TensorFlow has a kernel under DEVICE_DEFAULT. That kernel runs CPU code on
/// device addresses, and crashes, so no type may be left to it, not even a type that the adapter
/// lacks.
const TYPES: &[DType] = types::NUMBERS;

/// Registers the family.
pub fn register(registry: &mut Registry) {
    for &(op, on_references, operator) in OPS {
        registry
            .op(on_references)
            .types("T", NUMBERS_BUT_I32)
            .reference()
            .kernel(move |attrs| Ok(AssignUpdate { op, operator, dtype: attrs.dtype("T")? }));
        registry.op(op).types("dtype", TYPES).unsupported_too().host(&["resource"]).kernel(
            move |attrs| {
                let dtype = attrs.dtype("dtype")?;
                Ok(AssignUpdate { op, operator, dtype })
            },
        );
    }
    registry.op("Assign").types("T", ELEMENTS_BUT_I32).need(Need::References).kernel(|attrs| {
        let same_shape = attrs.bool("validate_shape")?;
        Ok(move |ctx: &mut dyn OpContext| ctx.assign_reference(same_shape))
    });
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    OPS.iter()
        .flat_map(|(op, _, operator)| {
            TYPES.iter().map(|t| UpdateInPlace::shader(op, *operator, *t))
        })
        .collect()
}

struct AssignUpdate {
    op: &'static str,
    operator: char,
    dtype: DType,
}

impl Kernel for AssignUpdate {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        if !ctx.device().capabilities().supports(self.dtype) {
            return Err(Error::Unimplemented(format!(
                "this adapter has no {} arithmetic; keep the variable on the CPU",
                self.dtype
            )));
        }
        let value = ctx.input(1)?;
        ctx.update_variable(0, VariableUpdate::Dense, &mut |ctx, old, new| {
            require!(
                old.dtype == value.dtype,
                "DType of variable handle and value does not match."
            );
            require!(
                old.dims == value.dims,
                "Cannot update variable with shape {} using a Tensor with shape {}, shapes must \
                 be equal.",
                shape_text(&old.dims),
                shape_text(&value.dims)
            );
            self.enqueue(ctx, old, &value, new)
        })
    }
}

impl AssignUpdate {
    /// `new = old ± value`, in windows that fit a binding. `new` may be `old`: an element depends
    /// only on itself.
    fn enqueue(
        &self,
        ctx: &dyn OpContext,
        old: &Tensor,
        value: &Tensor,
        new: &Tensor,
    ) -> Result<()> {
        let device = ctx.device();
        let size = self.dtype.size();
        // Half of the largest binding leaves room for offsets rounded down; windows are whole words
        // of packed types.
        let window = ((device.capabilities().max_binding / 2).min(1 << 30) as usize / size) & !63;
        let part = |t: &Tensor, at: usize, count: usize| {
            Tensor::new(t.dtype, &[count], t.address + (at * size) as u64)
        };
        for at in (0..old.len()).step_by(window) {
            let count = window.min(old.len() - at);
            UpdateInPlace {
                old: (&part(old, at, count)).into(),
                delta: (&part(value, at, count)).into(),
                y: (&part(new, at, count)).into(),
                count,
            }
            .enqueue(
                device,
                &UpdateInPlace::of(self.op, self.operator, self.dtype),
                Grid::map(count, self.dtype),
            )?;
        }
        Ok(())
    }
}

declare_program! {
    /// Updates a variable in place.
    struct UpdateInPlace = "assign_update"(op: &str, operator: char, dtype: DType);
    bindings { old: dtype, delta: dtype, y: dtype }
    params { count: usize }
    shader format!("{op} {dtype}") =>
        .define("OPERATOR", operator)
        .define("VALUE", dtype.value())
        .body(include_str!("../../shaders/assign_update.wgsl"))
        .map("y")
}
