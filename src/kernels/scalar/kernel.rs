//! The kernel of a row: attributes, shape rules, in-place outputs.

use smallvec::SmallVec;

use super::map::Signature;
use super::row::{Row, Shapes, scalar_wgsl};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::layout::broadcast_dims;
use crate::tensor::{Dims, Tensor, shape_text};
use crate::{invalid, require};

/// A row for one type.
pub struct RowKernel {
    row: &'static Row,
    dtype: DType,
    input_types: Vec<DType>,
    attr: Option<f32>,
    /// `Equal` and `NotEqual` may ask for a scalar instead of an error.
    scalar_if_incompatible: bool,
}

impl RowKernel {
    /// The kernel of a node.
    pub fn new(row: &'static Row, attrs: &dyn Attrs) -> Result<Self> {
        let dtype = if row.is_typed() { attrs.dtype("T")? } else { DType::Bool };
        let attr = row.attr.map(|a| attrs.float(a)).transpose()?;
        let scalar_if_incompatible = matches!(row.shapes, Shapes::BroadcastOr(_))
            && !attrs.bool("incompatible_shape_error")?;
        let input_types = row.input_types(dtype);
        Ok(Self { row, dtype, input_types, attr, scalar_if_incompatible })
    }
}

impl Kernel for RowKernel {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let row = self.row;
        let mut inputs: SmallVec<[Tensor; 3]> = SmallVec::new();
        for i in 0..row.inputs.len() {
            inputs.push(ctx.input(i)?);
        }
        let output_type = row.output_type(self.dtype);
        let dims = match (output_dims(row, &inputs), row.shapes) {
            (Err(_), Shapes::BroadcastOr(value)) if self.scalar_if_incompatible => {
                let z = ctx.output(0, output_type, &[])?;
                return ctx.device().fill(z.address, z.bytes(), u32::from(value));
            }
            (dims, _) => dims?,
        };
        if row.shapes == Shapes::Select {
            // A vector of conditions selects along the first dimension.
            let condition = &mut inputs[0];
            let trailing = dims.len().saturating_sub(condition.rank());
            if condition.rank() == 1 && trailing > 0 {
                let mut column = Dims::from_elem(1, dims.len());
                column[0] = condition.dims[0];
                *condition = condition.reshaped(&column);
            }
        }
        let candidates: SmallVec<[usize; 3]> = inputs
            .iter()
            .enumerate()
            .filter(|(_, t)| t.dims == dims && t.dtype == output_type)
            .map(|(i, _)| i)
            .collect();
        let z = ctx.forward_or_output(&candidates, 0, output_type, &dims)?;
        let attrs: SmallVec<[&'static str; 1]> = row.attr.into_iter().collect();
        let values: SmallVec<[f32; 1]> = self.attr.into_iter().collect();
        signature(row, self.dtype, &self.input_types, &attrs, |s| {
            s.run(ctx.device(), &inputs, &[z], &values)
        })
    }
}

/// Calls `f` with the program of `row` for `dtype`.
pub fn signature<R>(
    row: &Row,
    dtype: DType,
    inputs: &[DType],
    attrs: &[&'static str],
    f: impl FnOnce(&Signature<'_>) -> R,
) -> R {
    let function = || scalar_wgsl(row, dtype).expect("only a row's own types are registered");
    f(&Signature {
        op: row.op,
        inputs,
        outputs: &[row.output_type(dtype)],
        attrs,
        function: &function,
        operations: 1,
    })
}

/// The output's extents, or TensorFlow's error.
pub(super) fn output_dims(row: &Row, inputs: &[Tensor]) -> Result<Dims> {
    let op = row.op;
    match (row.shapes, inputs) {
        (Shapes::Broadcast | Shapes::BroadcastOr(_), [condition, t, e]) => {
            let both =
                broadcast_dims(&t.dims, &e.dims).and_then(|d| broadcast_dims(&condition.dims, &d));
            match both {
                Ok(dims) => Ok(dims),
                Err(_) => invalid!(
                    "condition {}, then {}, and else {} must be broadcastable",
                    shape_text(&condition.dims),
                    shape_text(&t.dims),
                    shape_text(&e.dims)
                ),
            }
        }
        (Shapes::Broadcast | Shapes::BroadcastOr(_), _) => {
            let mut dims = inputs[0].dims.clone();
            for t in &inputs[1..] {
                dims = broadcast_dims(&dims, &t.dims)?;
            }
            Ok(dims)
        }
        (Shapes::Same, _) => {
            for t in &inputs[1..] {
                require!(
                    t.dims == inputs[0].dims,
                    "Inputs to operation {op} of type {op} must have the same size and shape.  \
                     Input 0: {} != input 1: {}",
                    shape_text(&inputs[0].dims),
                    shape_text(&t.dims)
                );
            }
            Ok(inputs[0].dims.clone())
        }
        (Shapes::SameOrScalar, _) => {
            for (i, s) in inputs.iter().enumerate() {
                for (k, t) in inputs.iter().enumerate().skip(i + 1) {
                    require!(
                        s.rank() == 0 || t.rank() == 0 || s.dims == t.dims,
                        "Shapes of {} and {} are inconsistent: {} vs. {}",
                        row.inputs[i].name,
                        row.inputs[k].name,
                        shape_text(&s.dims),
                        shape_text(&t.dims)
                    );
                }
            }
            Ok(inputs.iter().map(|t| &t.dims).find(|d| !d.is_empty()).cloned().unwrap_or_default())
        }
        (Shapes::Select, [condition, t, e]) => {
            let texts = (shape_text(&condition.dims), shape_text(&t.dims), shape_text(&e.dims));
            require!(
                t.dims == e.dims,
                "Inputs to operation {op} of type {op} must have the same size and shape.  Input \
                 0: {} != input 1: {}",
                texts.1,
                texts.2
            );
            if condition.rank() == 1 && t.rank() > 1 {
                require!(
                    condition.dims[0] == t.dims[0],
                    "Number of batches of 'then' must match size of 'cond', but saw: {} vs. {}",
                    t.dims[0],
                    condition.dims[0]
                );
            } else {
                require!(
                    condition.rank() == 0 || condition.dims == t.dims,
                    "Inputs to operation {op} of type {op} must have the same size and shape.  \
                     Input 0: {} != input 1: {}",
                    texts.0,
                    texts.1
                );
            }
            Ok(t.dims.clone())
        }
        (Shapes::Bounds, [t, bounds @ ..]) => {
            for bound in bounds {
                require!(
                    bound.rank() == 0 || bound.dims == t.dims,
                    "clip_value_min and clip_value_max must be either of the same shape as input, \
                     or a scalar. input shape: {} clip_value_min shape: {} clip_value_max shape: \
                     {}",
                    shape_text(&t.dims),
                    shape_text(&bounds[0].dims),
                    shape_text(&bounds[1].dims)
                );
            }
            Ok(t.dims.clone())
        }
        (Shapes::Select | Shapes::Bounds, _) => unreachable!("{op} has three inputs"),
    }
}
