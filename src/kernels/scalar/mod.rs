//! Elementwise ops: a table of scalar functions and one program for all of them.
//!
//! [`row`] says what a scalar function is, the tables (`arithmetic`, …) list them, [`map`] runs one over any broadcast walk.
//! To add an op, add a row.

mod add_n;
mod arithmetic;
pub mod cast;
mod clip_shapes;
mod kernel;
pub mod map;
mod math;
mod probability;
pub mod row;
mod special;
mod special_reference;

use crate::kernels::registry::Registry;
use crate::shader::Shader;
use row::Row;

/// The tables, in the order of registration.
pub const TABLES: &[&[Row]] =
    &[arithmetic::ROWS, arithmetic::CHOICES, math::FUNCTIONS, math::ACTIVATIONS, probability::ROWS, special::ROWS];

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().copied().flatten()
}

/// The row of an op.
pub fn find(op: &str) -> Option<&'static Row> {
    rows().find(|r| r.op == op)
}

/// Adds the rows' ops.
pub fn register(registry: &mut Registry) {
    for row in rows() {
        if row.is_typed() {
            for case in row.cases {
                registry.op(row.op).types("T", case.types).kernel(|attrs| kernel::RowKernel::new(row, attrs));
            }
        } else {
            registry.op(row.op).kernel(|attrs| kernel::RowKernel::new(row, attrs));
        }
    }
    add_n::register(registry);
    cast::register(registry);
    clip_shapes::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = Vec::new();
    for row in rows() {
        let attrs: Vec<_> = row.attr.into_iter().collect();
        for dtype in row.types() {
            let inputs = row.input_types(dtype);
            shaders.extend(kernel::signature(row, dtype, &inputs, &attrs, |s| s.shaders()));
        }
    }
    shaders.extend(add_n::shaders());
    shaders.extend(cast::shaders());
    shaders
}
