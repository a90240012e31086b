//! Calls to wgpu whose failure belongs to the caller. An error that wgpu reports outside of such a
//! call has no owner, and costs the device.

use crate::error::{Error, Result};
use crate::sys::guard::panic_message;

/// Runs `call`. An error that wgpu reports on this thread meanwhile is returned. `label` describes
/// the call. wgpu panics if a driver returns something unexpected. Its state is unknown then, so a
/// panic becomes [`Error::Unavailable`].
pub(crate) fn checked<T>(
    device: &wgpu::Device,
    label: &str,
    call: impl FnOnce() -> T,
) -> Result<T> {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    let scopes = [Validation, OutOfMemory, Internal].map(|filter| device.push_error_scope(filter));
    let made = panic_message(call);
    // Scopes are popped in reverse, all of them.
    let found = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
    // A later call may be invalid because memory was exhausted. The exhausted memory is the reason
    // then.
    let found = found.max_by_key(|e| matches!(e, wgpu::Error::OutOfMemory { .. }));
    match (made, found) {
        (Err(panic), _) => {
            Err(Error::Unavailable(format!("{label}: the GPU's driver failed, or wgpu: {panic}")))
        }
        (Ok(_), Some(e)) => Err(explain(label, &e)),
        (Ok(made), None) => Ok(made),
    }
}

/// The error of a call, with advice for the user.
pub(crate) fn explain(label: &str, error: &wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::ResourceExhausted(format!(
            "{label}: the GPU's memory, or the host's for copies, is exhausted: use smaller \
             batches or free tensors ({error})"
        )),
        _ => Error::Internal(format!(
            "{label}: wgpu refused it, which is a bug in tensorflow-wgpu or in the GPU's driver; \
             please report it with this message: {error}"
        )),
    }
}
