//! Replaces `src/device/sync.rs`: the same names, on threads that shuttle schedules.

use std::ops::{Deref, DerefMut};

pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use shuttle::sync::mpsc::{Receiver, SyncSender as Sender};
pub use shuttle::sync::{Arc, Weak};
pub use shuttle::thread_local;

#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Empty only while a condition is waited for.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is locked")
    }
}

impl Condvar {
    pub fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.0.take().expect("it is locked");
        guard.0 = Some(self.0.wait(locked).unwrap());
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    // No model sends this many.
    bounded(1000)
}

pub fn bounded<T>(len: usize) -> (Sender<T>, Receiver<T>) {
    shuttle::sync::mpsc::sync_channel(len)
}

pub fn spawn(_: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    drop(shuttle::thread::spawn(work));
    Ok(())
}
