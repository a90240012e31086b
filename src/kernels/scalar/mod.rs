//! Elementwise ops: a table of scalar functions and one program for all of them.
//!
//! [`row`] defines a scalar function, the tables (`arithmetic`, …) list them, and [`map`] runs one
//! over any broadcast walk. To add an op, add a row.

pub mod add_n;
mod arithmetic;
pub mod cast;
mod clip_shapes;
mod gamma_reference;
pub mod kernel;
pub mod map;
mod math;
mod probability;
pub mod row;
mod special;
mod special_reference;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::kernels::registry::Registry;
use crate::shader::Shader;
use row::{Output, Row};

/// The tables, in the order of registration.
pub const TABLES: &[&[Row]] = &[
    arithmetic::ROWS,
    arithmetic::CHOICES,
    math::FUNCTIONS,
    math::ACTIVATIONS,
    probability::ROWS,
    special::ROWS,
];

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().copied().flatten()
}

/// The row of an op.
pub fn find(op: &str) -> Option<&'static Row> {
    // The graph optimizer asks for the row of every node of a graph, several times.
    static BY_OP: LazyLock<FxHashMap<&str, &Row>> =
        LazyLock::new(|| rows().map(|row| (row.op, row)).collect());
    BY_OP.get(op).copied()
}

/// Adds the rows' ops.
pub fn register(registry: &mut Registry) {
    rows().for_each(|row| register_row(registry, row));
    add_n::register(registry);
    cast::register(registry);
    clip_shapes::register(registry);
}

/// Adds the op of one row, of this family or another.
pub fn register_row(registry: &mut Registry, row: &'static Row) {
    if !row.is_typed() {
        return registry.op(row.op).kernel(move |attrs| kernel::RowKernel::new(row, attrs));
    }
    for case in row.cases {
        if !matches!(row.output, Output::Part | Output::Complex) {
            registry
                .op(row.op)
                .types("T", case.types)
                .kernel(move |attrs| kernel::RowKernel::new(row, attrs));
            continue;
        }
        for dtype in case.types {
            let builder = registry
                .op(row.op)
                .types("T", dtype.alone())
                .types("Tout", row.output_type(*dtype).alone());
            builder.kernel(move |attrs| kernel::RowKernel::new(row, attrs));
        }
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut shaders: Vec<Shader> = rows().flat_map(row_shaders).collect();
    shaders.extend(add_n::shaders());
    shaders.extend(cast::shaders());
    shaders
}

/// Every shader variant of one row.
pub fn row_shaders(row: &Row) -> Vec<Shader> {
    let attrs: Vec<_> = row.attr.into_iter().collect();
    row.types()
        .flat_map(|dtype| {
            kernel::signature(row, dtype, &row.input_types(dtype), &attrs, |s| s.shaders())
        })
        .collect()
}
