//! Reports a driver's refusals that are no errors of wgpu to the thread that asked for the
//! pipeline.

use std::cell::RefCell;

/// Whether a driver should optimize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optimizations {
    On,
    /// If the backend can pass this on to the driver.
    Off,
}

/// A call of [`watched`].
struct Watch {
    #[cfg_attr(
        not(any(test, target_os = "linux", windows)),
        allow(dead_code, reason = "Metal has no such choice")
    )]
    optimizations: Optimizations,
    /// The driver's answer to the last pipeline that it refused.
    refused: Option<String>,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Runs `call`, and returns the driver's answer to a pipeline that it refused meanwhile. If there
/// is an answer, the result of `call` must not be used.
pub(crate) fn watched<T>(
    optimizations: Optimizations,
    call: impl FnOnce() -> T,
) -> (T, Option<String>) {
    WATCH.set(Some(Watch { optimizations, refused: None }));
    let made = call();
    (made, WATCH.take().and_then(|watch| watch.refused))
}

/// The optimizations that the call of [`watched`] on this thread asks for. None if there is no such
/// call: then a refusal cannot be reported.
#[cfg_attr(
    not(any(test, target_os = "linux", windows)),
    expect(dead_code, reason = "wgpu itself tells of Metal's")
)]
pub(super) fn wanted() -> Option<Optimizations> {
    WATCH.with_borrow(|watch| watch.as_ref().map(|watch| watch.optimizations))
}

/// Passes the driver's answer about a pipeline to the call of [`watched`] on this thread.
#[cfg_attr(
    not(any(test, target_os = "linux", windows)),
    expect(dead_code, reason = "wgpu itself tells of Metal's")
)]
pub(super) fn note(answer: String) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.refused = Some(answer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_within_a_call_is_told_once() {
        note("before".to_owned());
        assert_eq!(wanted(), None);
        let (made, refused) = watched(Optimizations::Off, || {
            note("within".to_owned());
            wanted()
        });
        assert_eq!((made, refused.as_deref()), (Some(Optimizations::Off), Some("within")));
        assert_eq!(watched(Optimizations::On, || ()).1, None);
        assert_eq!(wanted(), None);
    }
}
