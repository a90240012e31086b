//! The one guard around every `extern "C"` body: an error or a panic becomes a TF_Status or a named
//! default, and nothing unwinds into TensorFlow.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};
use crate::ffi::status::{self, TF_Status};

/// Runs `body`; its error or panic goes into `status`, which stays untouched on success. `label`
/// names the entry.
pub(crate) fn guard_status(status: *mut TF_Status, label: &str, body: impl FnOnce() -> Result<()>) {
    if let Err(error) = caught(label, body) {
        status::set(status, &error);
    }
}

/// Runs `body` for an entry without a status; its error or panic is logged and `default` returned.
pub(crate) fn guard_or<T>(default: T, label: &str, body: impl FnOnce() -> Result<T>) -> T {
    caught(label, body).unwrap_or_else(|error| {
        log::error!("{label}: {error}");
        default
    })
}

/// Runs `body` with a panic turned into an error.
pub(crate) fn caught<T>(label: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_as(body, |message| {
        Error::Internal(format!("bug in tensorflow-wgpu, {label} panicked: {message}"))
    })
}

/// The same for work of wgpu and drivers, which panic where `error` is the better word for it.
pub(crate) fn caught_as<T>(
    body: impl FnOnce() -> Result<T>,
    error: impl FnOnce(&str) -> Error,
) -> Result<T> {
    panic_message(body).unwrap_or_else(|message| Err(error(&message)))
}

/// Runs `body`; the error is the message of its panic.
pub(crate) fn panic_message<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // A panic leaves no lock poisoned (parking_lot), and what it interrupted reports its own
    // inconsistency.
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let payload = match payload.downcast::<&str>() {
            Ok(message) => return (*message).to_owned(),
            Err(payload) => payload,
        };
        payload.downcast::<String>().map_or_else(
            |payload| {
                // Dropping a value of an unknown type may panic in turn; leaking it may not.
                std::mem::forget(payload);
                "a panic without a message".to_owned()
            },
            |message| *message,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_become_the_default() {
        assert_eq!(guard_or(7, "entry", || Ok(1)), 1);
        assert_eq!(guard_or(7, "entry", || Err(Error::Internal("no".into()))), 7);
        assert_eq!(guard_or(7, "entry", || panic!("boom {}", 1)), 7);
    }

    #[test]
    fn a_panic_keeps_its_message_and_names_the_entry() {
        let error = caught::<()>("SE_InitPlugin", || panic!("boom")).unwrap_err();
        assert!(
            matches!(&error, Error::Internal(m) if m.contains("SE_InitPlugin panicked: boom")),
            "{error}"
        );
    }
}
