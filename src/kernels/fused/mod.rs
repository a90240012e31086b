//! Kernels of the ops that the graph optimizer emits. Their scalar code is an
//! [`crate::kernels::expression::Expression`], an attribute of the node.

pub mod arg;
pub mod attention;
pub mod concat;
pub mod contraction;
pub mod cost;
pub mod elementwise;
pub mod eval;
pub mod masked_update;
pub mod predicate;
pub mod products;
pub mod quantized;
pub mod reduce;
pub mod region;
pub mod replaced;
pub mod rowwise;
mod sibling_products;
pub mod stack;
pub mod terms;
pub mod update;

use crate::kernels::definition::OpDefinition;
use crate::kernels::registry::Registry;
use crate::shader::Shader;

/// The ops, one list for each file.
#[rustfmt::skip]
pub const DEFINITIONS: &[&[OpDefinition]] = &[
    arg::DEFINITIONS,
    attention::DEFINITIONS,
    concat::DEFINITIONS,
    contraction::DEFINITIONS,
    elementwise::DEFINITIONS,
    masked_update::DEFINITIONS,
    predicate::DEFINITIONS,
    products::DEFINITIONS,
    quantized::DEFINITIONS,
    reduce::DEFINITIONS,
    region::DEFINITIONS,
    rowwise::DEFINITIONS,
    stack::DEFINITIONS,
    update::DEFINITIONS,
];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    arg::register(registry);
    attention::register(registry);
    concat::register(registry);
    contraction::register(registry);
    elementwise::register(registry);
    masked_update::register(registry);
    predicate::register(registry);
    products::register(registry);
    quantized::register(registry);
    reduce::register(registry);
    region::register(registry);
    rowwise::register(registry);
    stack::register(registry);
    update::register(registry);
}

/// Shader variants of sample expressions.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    all.extend(attention::shaders());
    all.extend(concat::shaders());
    all.extend(contraction::shaders());
    all.extend(elementwise::shaders());
    all.extend(masked_update::shaders());
    all.extend(reduce::shaders());
    all.extend(rowwise::shaders());
    all.extend(update::shaders());
    all
}
