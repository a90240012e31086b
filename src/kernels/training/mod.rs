//! Optimizer updates: ResourceApply* and ResourceSparseApply*, one row of [`table`] for each rule.
//!
//! An update is one dispatch that reads the gradient and writes each variable in place. The rates
//! are scalars in device memory; if the scalars and the variables are more than a program can bind,
//! a first dispatch of one invocation copies the scalars into one buffer.
//!
//! All variables are locked in the order of their addresses while the work is enqueued, whatever
//! `use_locking` says, as in TensorFlow's kernels for resource variables. Two updates never
//! interleave, since the device's queue is in order. A variable that is given twice keeps the value
//! that a dense op stores last; a sparse op changes it once for each of its places
//! ([`super::aliases`]).

mod dense;
mod scalars;
mod sparse;
pub mod table;
mod text;

use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::op::Attrs;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};
use table::{RULES, Rule};
use text::TypedRule;

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for rule in RULES {
        registry
            .op(rule.op)
            .types("T", rule.types)
            .host(rule.variables)
            .kernel(move |attrs| Ok(dense::Dense { step: step(rule, attrs)? }));
        let has_references = !RESOURCES_ONLY.contains(&rule.op);
        if has_references {
            registry
                .op(on_references(rule.op))
                .types("T", rule.types)
                .reference()
                .kernel(move |attrs| Ok(dense::Dense { step: step(rule, attrs)? }));
        }
        if let Some(op) = rule.sparse_op {
            if has_references {
                registry
                    .op(on_references(op))
                    .types("T", rule.sparse_types)
                    .types("Tindices", INDEX)
                    .reference()
                    .kernel(move |attrs| Ok(sparse::Sparse { step: step(rule, attrs)? }));
            }
            registry
                .op(op)
                .types("T", rule.sparse_types)
                .types("Tindices", INDEX)
                .kernel(move |attrs| Ok(sparse::Sparse { step: step(rule, attrs)? }));
        }
    }
}

/// Ops that TensorFlow has only on resource variables.
const RESOURCES_ONLY: [&str; 2] = ["ResourceApplyAdamWithAmsgrad", "ResourceApplyKerasMomentum"];

/// The name on reference variables of an op on resource variables.
fn on_references(op: &'static str) -> &'static str {
    op.trim_start_matches("Resource")
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![sparse::Order::shader()];
    for rule in RULES {
        let flags: &[bool] = if rule.flag.is_some() { &[false, true] } else { &[false] };
        for &flag in flags {
            all.extend(
                rule.types.iter().flat_map(|t| dense::shaders(TypedRule::new(rule, *t, flag))),
            );
            all.extend(
                rule.sparse_types
                    .iter()
                    .flat_map(|t| sparse::shaders(TypedRule::new(rule, *t, flag))),
            );
        }
    }
    all.extend(scalars::shaders());
    all
}

fn step(rule: &'static Rule, attrs: &dyn Attrs) -> Result<TypedRule> {
    let flag = rule.flag.map_or(Ok(false), |name| attrs.bool(name))?;
    Ok(TypedRule::new(rule, attrs.dtype("T")?, flag))
}

/// Checks that the variables have one shape and the op's type.
fn check_variables(step: &TypedRule, variables: &[Tensor]) -> Result<()> {
    for (name, variable) in step.rule.variables.iter().zip(variables) {
        require!(
            variable.dims == variables[0].dims,
            "var and {name} do not have the same shape{} {}",
            shape_text(&variables[0].dims),
            shape_text(&variable.dims)
        );
        require!(
            variable.dtype == step.dtype,
            "{name} is a variable of {}, not {}",
            variable.dtype,
            step.dtype
        );
    }
    Ok(())
}

/// The order in which the places of one update change: first the accumulators, then the variable.
fn order(count: usize) -> impl Iterator<Item = usize> {
    (1..count).chain([0])
}

fn check_scalar(name: &str, scalar: &Tensor) -> Result<()> {
    require!(scalar.dims.is_empty(), "{name} is not a scalar: {}", shape_text(&scalar.dims));
    Ok(())
}
