//! The one guard around every `extern "C"` body: an error or a panic becomes a TF_Status or a named
//! default, and nothing unwinds into TensorFlow.

use crate::error::Result;
use crate::ffi::status::{self, TF_Status};
use crate::sys::guard::caught;

/// Runs `body`. An error or a panic of it goes into `status`, which stays untouched on success.
/// `label` names the entry point.
pub(crate) fn guard_status(status: *mut TF_Status, label: &str, body: impl FnOnce() -> Result<()>) {
    if let Err(error) = caught(label, body) {
        status::set(status, &error);
    }
}

/// Runs `body` for an entry point without a status. An error or a panic is logged, and `default` is
/// returned.
pub(crate) fn guard_or<T>(default: T, label: &str, body: impl FnOnce() -> Result<T>) -> T {
    caught(label, body).unwrap_or_else(|error| {
        log::error!("{label}: {error}");
        default
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn errors_and_panics_become_the_default() {
        assert_eq!(guard_or(7, "entry", || Ok(1)), 1);
        assert_eq!(guard_or(7, "entry", || Err(Error::Internal("no".into()))), 7);
        assert_eq!(guard_or(7, "entry", || panic!("boom {}", 1)), 7);
    }
}
