//! Errors that no call could return when they happened: errors that wgpu or deferred work reports,
//! and the loss of the GPU.
//!
//! Every op checks for them twice, so a check costs one load while there are none.

use super::sync::{AtomicBool, Mutex, Ordering};
use crate::error::{Error, Result};

/// Advice about a device that is lost.
const ADVICE: &str = "The device cannot be used any more and its tensors are lost: restart the \
                      process, from a checkpoint if there is one";

/// The errors of a device that wait for a call to return them.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Whether there is an error; set after the error is stored.
    any: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Why the GPU is gone.
    lost: Option<Error>,
    /// The first error since the last one was returned.
    pending: Option<Error>,
}

impl Failures {
    /// Keeps `error` for the next [`Failures::check`], unless another one waits already.
    pub fn raise(&self, error: Error) {
        let mut held = self.held.lock();
        held.pending.get_or_insert(error);
        self.any.store(true, Ordering::Release);
    }

    /// Records that the device cannot be used any more; the first reason stays. Every later call
    /// returns it, because the contents of memory are unknown. Returns whether the device was not
    /// lost before.
    pub fn lose(&self, error: Error) -> bool {
        let mut held = self.held.lock();
        let news = held.lost.is_none();
        held.lost.get_or_insert_with(|| match error {
            // A bug is reported as one.
            Error::Internal(reason) => Error::Internal(format!("{reason}. {ADVICE}")),
            other => Error::Unavailable(format!("{other}. {ADVICE}")),
        });
        self.any.store(true, Ordering::Release);
        news
    }

    /// The error that ended the device, if it is lost.
    pub fn lost(&self) -> Option<Error> {
        if self.any.load(Ordering::Acquire) { self.held.lock().lost.clone() } else { None }
    }

    /// Returns the error that waits: a lost device stays lost, other errors are returned once.
    pub fn check(&self) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut held = self.held.lock();
        if let Some(e) = &held.lost {
            return Err(e.clone());
        }
        self.any.store(false, Ordering::Release);
        held.pending.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        Error::Internal(text.into())
    }

    #[test]
    fn the_first_error_is_returned_once() {
        let failures = Failures::default();
        assert_eq!(failures.check(), Ok(()));
        failures.raise(error("first"));
        failures.raise(error("second"));
        assert_eq!(failures.check(), Err(error("first")));
        assert_eq!((failures.check(), failures.lost()), (Ok(()), None));
    }

    #[test]
    fn a_loss_stays_and_goes_first() {
        let failures = Failures::default();
        failures.raise(error("before"));
        assert!(failures.lose(error("gone")) && !failures.lose(error("gone again")));
        let told = |e: Option<Error>| {
            matches!(e,
            Some(Error::Internal(m)) if m.starts_with("gone. ") && m.contains("restart"))
        };
        for _ in 0..2 {
            assert!(told(failures.check().err()));
        }
        assert!(told(failures.lost()));
    }

    #[test]
    fn a_loss_is_unavailable_whatever_its_reason() {
        let failures = Failures::default();
        failures.lose(Error::ResourceExhausted("no memory".into()));
        assert!(
            matches!(failures.check(), Err(Error::Unavailable(m)) if m.starts_with("no memory. "))
        );
    }
}
