//! LowerBound, UpperBound (tf.searchsorted) and Bucketize: binary search for many values, with an
//! invocation for each.

use crate::device::{Binding, Grid, declare_program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::Tensor;

const TYPES: &[DType] = types::REALS;
const BUCKETED: &[DType] = union!(types::F32_F64, types::INDEX);

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("Bucketize").types("T", BUCKETED).items(&[(0, 0)]).kernel(|attrs| {
        let boundaries = attrs.floats("boundaries")?;
        require!(boundaries.is_sorted(), "Expected sorted boundaries");
        Ok(move |ctx: &mut dyn OpContext| bucketize(ctx, &boundaries))
    });
    for (op, upper) in [("LowerBound", false), ("UpperBound", true)] {
        r.op(op).types("T", TYPES).types("out_type", INDEX).items(&[(0, 1), (1, 1)]).kernel(
            move |attrs| {
                let index = attrs.dtype("out_type")?;
                Ok(move |ctx: &mut dyn OpContext| bound(ctx, index, upper))
            },
        );
    }
}

/// Inputs: sorted rows (0) and the same number of rows of values (1).
fn bound(ctx: &mut dyn OpContext, index: DType, upper: bool) -> Result<()> {
    let (sorted, values) = (ctx.input(0)?, ctx.input(1)?);
    require!(
        sorted.rank() == 2,
        "Shape must be rank 2 but is rank {} for `sorted_inputs` argument",
        sorted.rank()
    );
    require!(
        values.rank() == 2,
        "Shape must be rank 2 but is rank {} for `values` argument",
        values.rank()
    );
    require!(sorted.dims[0] == values.dims[0], "Leading dim_size of both tensors must match.");
    let out = ctx.output(0, index, &values.dims)?;
    Search { upper }.enqueue(ctx, &sorted, &values, &out)
}

/// Input: any tensor. Values are compared with the boundaries in float32, doubles in float64, as
/// TensorFlow does.
fn bucketize(ctx: &mut dyn OpContext, boundaries: &[f32]) -> Result<()> {
    let x = ctx.input(0)?;
    let Some(out) = ctx.some_output(0, I32, &x.dims)? else { return Ok(()) };
    let sorted = ctx.temp(F32, &[1, boundaries.len()])?;
    if !boundaries.is_empty() {
        ctx.device().upload(sorted.address, bytemuck::cast_slice(boundaries))?;
    }
    Search { upper: true }.enqueue(ctx, &sorted, &x.reshaped(&[1, x.len()]), &out)
}

struct Search {
    upper: bool,
}

impl Search {
    fn enqueue(
        &self,
        ctx: &dyn OpContext,
        sorted: &Tensor,
        values: &Tensor,
        out: &Tensor,
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let count =
            ctx.device().check_extent(values.len().max(sorted.len()))?.min(values.len() as u32);
        let (list, value) = (sorted.dtype, values.dtype);
        SearchRows {
            sorted: sorted.into(),
            values: values.into(),
            out: Binding::raw(out, 4),
            count,
            n: sorted.dims[1],
            m: values.dims[1],
            words: out.dtype.size() / 4,
            upper: self.upper,
        }
        .enqueue(
            ctx.device(),
            &SearchRows::of(list, value),
            Grid::linear(values.len(), WORKGROUP),
        )
    }
}

/// The type in which a value of type `value` is compared with a list of type `list`.
fn compared(list: DType, value: DType) -> &'static str {
    if list == value || value == F64 { value.value() } else { list.value() }
}

/// Adds the function `search` over the binding `sorted` of type `list` for values of type `value`.
/// It needs the parameter `upper`.
pub fn declare(shader: Shader, list: DType, value: DType) -> Shader {
    shader
        .define("COMPARED", compared(list, value))
        .body(include_str!("../../../shaders/sort/search.wgsl"))
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all: Vec<_> = TYPES.iter().map(|t| SearchRows::shader(*t, *t)).collect();
    all.extend([F64, I32, I64].map(|t| SearchRows::shader(F32, t)));
    all
}

declare_program! {
    /// Places of values in sorted rows.
    struct SearchRows = "sort search"(list: DType, value: DType);
    bindings { sorted: list, values: value, out: Raw("u32", 4) }
    params { count: u32, n: usize, m: usize, words: usize, upper: bool }
}

impl SearchRows {
    fn shader(list: DType, value: DType) -> Shader {
        let shader = Self::declare(format!("sort search {list} {value}"), list, value);
        declare(shader, list, value).body(
            "{{ENTRY}} {\n    let i = \
         linear_id(workgroup_id, num_workgroups, local_index);\n    if i >= p.count {\n        \
         return;\n    }\n    let at = p.off_out + i * p.words;\n    out[at] = \
         search(Compared(load_values(i)), (i / p.m) * p.n, p.n);\n    if p.words == 2u {\n        \
         out[at + 1u] = 0u;\n    }\n}\n",
        )
    }
}
