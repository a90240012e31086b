//! Whether the user asks for deterministic ops: `tf.config.experimental.enable_op_determinism`, or
//! the environment variable behind it.

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::ffi::{environment, symbols};

/// The mangled names of `bool tsl::OpDeterminismRequired()` in the Itanium ABI and in Microsoft's.
const NAMES: [&CStr; 2] =
    [c"_ZN3tsl21OpDeterminismRequiredEv", c"?OpDeterminismRequired@tsl@@YA_NXZ"];
/// The environment variable that decides until a program calls TensorFlow's function.
const VARIABLE: &str = "TF_DETERMINISTIC_OPS";

type Function = unsafe extern "C" fn() -> bool;

/// Whether ops must give the same result in every run. It may become true at any moment.
pub(crate) fn is_required() -> bool {
    static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
    // TensorFlow's function ends the process if it does not understand the variable's value.
    let function = FUNCTION.get_or_init(|| parse(value().as_deref()).and_then(|_| find()));
    match function {
        // SAFETY: the symbol is a function without arguments that returns a bool, which is C's
        // calling convention on all platforms.
        Some(function) => unsafe { function() },
        None => is_required_by_variable(),
    }
}

/// Like [`is_required`], without TensorFlow: the environment alone decides.
pub(crate) fn is_required_by_variable() -> bool {
    parse(value().as_deref()).unwrap_or(true)
}

fn value() -> Option<String> {
    environment::lookup(VARIABLE)
}

fn find() -> Option<Function> {
    let address = NAMES.iter().find_map(|name| symbols::find(name))?;
    // SAFETY: determinism.h declares `bool OpDeterminismRequired()`; an address and a function
    // pointer have the same representation.
    Some(unsafe { std::mem::transmute::<*const std::ffi::c_void, Function>(address) })
}

/// The variable's value. TensorFlow accepts these values only.
fn parse(value: Option<&str>) -> Option<bool> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("0" | "false") => Some(false),
        Some("1" | "true") => Some(true),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_tensorflow_reads_them() {
        assert_eq!(parse(None), Some(false));
        assert_eq!([parse(Some("0")), parse(Some("False"))], [Some(false); 2]);
        assert_eq!([parse(Some("1")), parse(Some("TRUE"))], [Some(true); 2]);
        for other in ["", "yes", " 1"] {
            assert_eq!(parse(Some(other)), None, "{other:?}");
        }
    }

    #[test]
    fn without_tensorflow_the_variable_counts() {
        assert_eq!(is_required(), parse(std::env::var(VARIABLE).ok().as_deref()).unwrap_or(true));
    }
}
