//! The primitives that the runtime's threads share: locks, counters, channels, threads. They are in
//! one place, so that a model of the runtime can put another scheduler below it
//! (`tests/concurrency`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::thread_local;

pub(crate) use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

/// Starts a thread that is never joined.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}
