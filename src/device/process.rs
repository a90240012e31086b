//! The life cycle of the process, as far as it concerns devices: forked, or ending.
//!
//! A child of fork has this process's memory and none of its threads, so every wait for a device
//! would last for ever. And at the end of a process, destructors of drivers and of the LLVM inside
//! them run while other threads may still compile or submit. So a thread that is about to stay in a
//! driver for long enters here first. The end of the process waits for these threads, for a while,
//! and lets no thread enter any more.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};

/// How long the end of the process waits for threads to leave the drivers.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it also waits for files to be written.
const SAVING: Duration = Duration::from_secs(2);

const RUNNING: u8 = 0;
const FORKED: u8 = 1;
const ENDING: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RUNNING);
/// The number of threads inside drivers, and of submissions that drivers work on.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The objects to be saved at the end.
static SAVERS: Mutex<Vec<Weak<dyn Save>>> = Mutex::new(Vec::new());

/// Held for reading by threads that compile, and for writing by a thread that opens a device.
static COMPILERS: RwLock<()> = RwLock::new(());

/// Whether devices and pipelines take turns. Vulkan loaders on Windows crash if both are made at
/// the same time (gfx-rs/wgpu#10234). Elsewhere only the tests of this crate need it.
const TAKES_TURNS: bool = cfg!(any(windows, test));

/// Waits until no device is being opened, and keeps devices from being opened while the value
/// lives, where they take turns.
pub(super) fn compiling() -> Option<RwLockReadGuard<'static, ()>> {
    TAKES_TURNS.then(|| COMPILERS.read())
}

/// The counterpart of [`compiling`].
pub(super) fn opening() -> Option<RwLockWriteGuard<'static, ()>> {
    TAKES_TURNS.then(|| COMPILERS.write())
}

/// Something to be saved before the process ends.
pub(crate) trait Save: Send + Sync {
    /// Saves the changes. Returns by `deadline`.
    fn save(&self, deadline: Instant);
}

/// Watches for forks from now on.
pub(super) fn watch_forks() {
    crate::sys::process::watch_forks(forked);
}

/// Makes the use of drivers end when the process exits, see [`crate::sys::process::watch_exit`].
pub(super) fn watch_exit() {
    crate::sys::process::watch_exit(end);
}

/// Fails with the reason if no device can be used.
pub(crate) fn check() -> Result<()> {
    match STATE.load(Ordering::Relaxed) {
        RUNNING => Ok(()),
        FORKED => Err(Error::Unavailable(
            "forked process: this process was forked from one that uses WGPU devices, and cannot \
             use them; start processes with multiprocessing's \"spawn\" or \"forkserver\" method, \
             or fork before TensorFlow is imported"
                .into(),
        )),
        _ => Err(Error::Unavailable("the process is ending".into())),
    }
}

/// Whether this is a forked child of a process that uses devices.
pub(crate) fn is_forked() -> bool {
    STATE.load(Ordering::Relaxed) == FORKED
}

/// Fails with the reason in a forked child, where no device can be used. In any other process, work
/// on its way may still finish.
pub(crate) fn check_forked() -> Result<()> {
    if is_forked() { check() } else { Ok(()) }
}

/// Marks this process as a forked child. Safe to call between fork and the child's first step.
pub(crate) fn forked() {
    STATE.store(FORKED, Ordering::SeqCst);
}

/// A thread, or work of the GPU, that is inside a driver as long as the value lives.
pub(crate) struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Enters a driver for a time that may be long, unless the process is forked or ending.
pub(crate) fn enter() -> Result<Inside> {
    // Counted before the state is read: so either this thread sees the end, or the end sees this
    // thread.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let inside = Inside(());
    match STATE.load(Ordering::SeqCst) {
        RUNNING => Ok(inside),
        _ => check().map(|()| inside),
    }
}

/// Has `saver` save at the end of the process, if it still lives.
pub(crate) fn save_at_end(saver: &Arc<impl Save + 'static>) {
    let mut savers = SAVERS.lock();
    savers.retain(|saver| saver.strong_count() > 0);
    let saver: Weak<dyn Save> = Arc::<_>::downgrade(saver) as Weak<dyn Save>;
    savers.push(saver);
}

/// Ends the use of drivers: no thread enters any more, threads inside are waited for, and the
/// savers save. Returns whether all threads have left. Does nothing in a forked child, and when
/// called again.
pub(crate) fn end() -> bool {
    if STATE.compare_exchange(RUNNING, ENDING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return is_forked() || INSIDE.load(Ordering::SeqCst) == 0;
    }
    let left = wait_until_left(Instant::now() + PATIENCE);
    let savers: Vec<_> = SAVERS.lock().iter().filter_map(Weak::upgrade).collect();
    let deadline = Instant::now() + SAVING;
    savers.iter().for_each(|saver| saver.save(deadline));
    left
}

fn wait_until_left(deadline: Instant) -> bool {
    while INSIDE.load(Ordering::SeqCst) > 0 {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::device::{Binding, Device, Grid, Key, Params, Program, Selection};
    use crate::shader::Shader;

    /// Asserts that `work` waits until `held` is dropped, and then ends.
    fn waits_for<T>(held: T, work: impl FnOnce() + Send + 'static) {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            work();
            sender.send(()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_secs(2)).is_err(), "it does not wait");
        drop(held);
        receiver.recv_timeout(Duration::from_secs(120)).expect("it ends");
    }

    #[test]
    fn no_device_opens_while_pipelines_compile() {
        let selection = Selection::enumerate(&|name| std::env::var(name).ok());
        let adapter = selection.adapters.into_iter().next().expect("an adapter");
        let device = Device::open(&adapter).unwrap();
        waits_for(compiling(), move || drop(Device::open(&adapter).unwrap()));
        waits_for(opening(), move || {
            let address = device.allocate(256).unwrap();
            let text = "@compute @workgroup_size(1)\nfn main() {\n    dst[p.off_dst] = 1u;\n}\n";
            let program = Program {
                key: Key::new("test turns"),
                shader: &|| Shader::new("turns").bind_raw("dst", "u32", 4).body(text),
                bindings: smallvec![Binding { address, bytes: 4, unit: 4 }],
                params: Params::new(),
                grid: Grid([1, 1, 1]),
            };
            device.prepare(&program).unwrap();
        });
    }
}
