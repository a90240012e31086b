//! What a driver refuses without an error of wgpu's, told to the thread that asked for it.

use std::cell::RefCell;

/// A pipeline that the driver refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The driver's answer.
    pub reason: String,
    /// Whether the pipeline exists nevertheless, without optimizations.
    pub is_unoptimized: bool,
}

thread_local! {
    /// The last refusal on this thread since a call of [`watched`] began.
    static REFUSED: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Runs `call`, and tells what the driver refused meanwhile. Unless that exists without
/// optimizations, what `call` made must not be used.
pub(crate) fn watched<T>(call: impl FnOnce() -> T) -> (T, Option<Refusal>) {
    REFUSED.take();
    (call(), REFUSED.take())
}

/// Has the call of [`watched`] on this thread tell of a refusal.
#[cfg_attr(
    not(any(test, target_os = "linux", windows)),
    expect(dead_code, reason = "wgpu itself tells of Metal's")
)]
pub(super) fn note(refusal: Refusal) {
    REFUSED.set(Some(refusal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_within_a_call_is_told_once() {
        let refusal = |reason: &str| Refusal { reason: reason.to_owned(), is_unoptimized: false };
        note(refusal("before"));
        let (made, refused) = watched(|| {
            note(refusal("within"));
            7
        });
        assert_eq!((made, refused), (7, Some(refusal("within"))));
        assert_eq!(watched(|| ()).1, None);
    }
}
