//! Turns panics into errors: nothing unwinds into C, and a panic of wgpu or of a driver does not
//! end the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// Runs `body` with a panic turned into an error.
pub(crate) fn caught<T>(label: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_as(body, |message| {
        Error::Internal(format!("bug in tensorflow-wgpu, {label} panicked: {message}"))
    })
}

/// Like [`caught`], for work of wgpu and drivers. They panic in cases for which `error` is the
/// better description.
pub(crate) fn caught_as<T>(
    body: impl FnOnce() -> Result<T>,
    error: impl FnOnce(&str) -> Error,
) -> Result<T> {
    panic_message(body).unwrap_or_else(|message| Err(error(&message)))
}

/// Runs `body`; the error is the message of its panic.
pub(crate) fn panic_message<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // A panic leaves no lock poisoned (parking_lot), and the interrupted code reports its own
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
    fn a_panic_keeps_its_message_and_names_the_entry() {
        let error = caught::<()>("SE_InitPlugin", || panic!("boom")).unwrap_err();
        let message = "bug in tensorflow-wgpu, SE_InitPlugin panicked: boom";
        assert_eq!(error, Error::Internal(message.into()));
    }

    #[test]
    fn payloads_of_any_type_are_caught() {
        assert_eq!(panic_message(|| panic!("boom {}", 1)), Err::<(), _>("boom 1".to_owned()));
        let other = panic_message(|| std::panic::panic_any(()));
        assert_eq!(other, Err::<(), _>("a panic without a message".to_owned()));
    }
}
