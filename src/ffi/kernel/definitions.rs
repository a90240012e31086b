//! Our own ops, which are defined with TensorFlow before their kernels are registered.
//!
//! TensorFlow ends the process if an op is defined twice or its definition is malformed, and the C
//! API has no way to ask first. So an op that TensorFlow has already is left alone, and the
//! definitions are constants that the tests read.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use super::op_list::OpList;
use super::{c_string, shapes};
use crate::error::{Error, Result};
use crate::ffi::abi::ops::OpsApi;
use crate::ffi::status::Status;
use crate::kernels::definition::OpDefinition;
use crate::kernels::definitions;

/// Defines every op that is missing from `known`, and adds it there. Without a list no op is
/// defined, for an op of that name might exist; the kernels of such ops are then registered in
/// vain.
pub(super) fn register(known: Option<&mut OpList>) {
    let Some(known) = known else { return };
    let mut all = true;
    for (slot, op) in definitions().enumerate() {
        if known.contains(op.name) {
            log::warn!("{} is defined already, perhaps by another copy of this plugin", op.name);
            all = false;
            continue;
        }
        match define(slot, op) {
            Ok(()) => known.add(op),
            Err(e) => {
                log::warn!("{} is not defined: {e}", op.name);
                all = false;
            }
        }
    }
    COMPLETE.store(all, Ordering::Release);
}

/// Whether TensorFlow knows every op of ours as we define it. Only then may a graph hold them.
static COMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether graphs may hold our ops.
pub(crate) fn are_complete() -> bool {
    COMPLETE.load(Ordering::Acquire)
}

fn define(slot: usize, op: &OpDefinition) -> Result<()> {
    let api = OpsApi::get()?;
    let shape = shapes::function(slot).ok_or_else(|| {
        Error::Internal(format!("more than {} ops of our own; enlarge the pool", shapes::SLOTS))
    })?;
    let texts =
        |specs: &[&str]| specs.iter().map(|s| c_string(s)).collect::<Result<Vec<CString>>>();
    let (name, attrs) = (c_string(op.name)?, texts(op.attrs)?);
    let (inputs, outputs) = (texts(op.inputs)?, texts(op.outputs)?);
    let status = Status::new()?;
    // SAFETY: all texts are NUL-terminated and copied; the shape function follows the contract of
    // its type; the builder is TensorFlow's from its registration on.
    unsafe {
        let builder = (api.TF_NewOpDefinitionBuilder)(name.as_ptr());
        if builder.is_null() {
            return Err(Error::ResourceExhausted("TF_NewOpDefinitionBuilder returned null".into()));
        }
        attrs.iter().for_each(|spec| (api.TF_OpDefinitionBuilderAddAttr)(builder, spec.as_ptr()));
        inputs.iter().for_each(|spec| (api.TF_OpDefinitionBuilderAddInput)(builder, spec.as_ptr()));
        outputs
            .iter()
            .for_each(|spec| (api.TF_OpDefinitionBuilderAddOutput)(builder, spec.as_ptr()));
        if op.stateful {
            // The function makes the op stateful, whatever the argument.
            (api.TF_OpDefinitionBuilderSetIsStateful)(builder, true);
        }
        (api.TF_OpDefinitionBuilderSetShapeInferenceFunction)(builder, shape);
        (api.TF_RegisterOpDefinition)(builder, status.as_ptr());
    }
    status.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names before the colons.
    fn names(specs: &[&'static str]) -> Vec<&'static str> {
        specs
            .iter()
            .map(|s| s.split_once(':').unwrap_or_else(|| panic!("no colon in {s:?}")).0.trim())
            .collect()
    }

    #[test]
    fn definitions_are_well_formed() {
        let mut seen = Vec::new();
        for (slot, op) in definitions().enumerate() {
            assert!(op.name.starts_with("_Wgpu"), "{}", op.name);
            assert!(!seen.contains(&op.name), "{} is defined twice", op.name);
            seen.push(op.name);
            assert!(
                shapes::function(slot).is_some(),
                "{}: no shape function for number {slot}",
                op.name
            );
            let (arguments, attrs) =
                ([names(op.inputs), names(op.outputs)].concat(), names(op.attrs));
            for (i, name) in arguments.iter().enumerate() {
                assert!(
                    name.starts_with(|c: char| c.is_ascii_lowercase()),
                    "{}: argument {name}",
                    op.name
                );
                assert!(!arguments[..i].contains(name), "{}: two arguments {name}", op.name);
            }
            for (i, name) in attrs.iter().enumerate() {
                assert!(
                    name.starts_with(|c: char| c.is_ascii_alphabetic()),
                    "{}: attribute {name}",
                    op.name
                );
                assert!(!attrs[..i].contains(name), "{}: two attributes {name}", op.name);
                assert!(!arguments.contains(name), "{}: {name} has two meanings", op.name);
            }
            for spec in op.inputs.iter().chain(op.outputs) {
                let types = spec.split_once(':').expect("checked above").1;
                for name in types
                    .split('*')
                    .map(str::trim)
                    .filter(|t| t.starts_with(|c: char| c.is_ascii_uppercase()))
                {
                    assert!(attrs.contains(&name), "{}: {spec:?} names no attribute", op.name);
                }
            }
        }
    }
}
