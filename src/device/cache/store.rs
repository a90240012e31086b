//! Data kept for one adapter and driver from process to process: a checked file, read once and
//! replaced by a separate thread when its data has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::file::{self, Found};
use crate::device::process::{self, Save};

/// The file is written when nothing has changed for `QUIET`, or after `LATEST` in any case.
const QUIET: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(5);

/// See [`Store::lock`].
pub(crate) struct Lock(#[expect(dead_code, reason = "it unlocks at its end")] std::fs::File);

/// A file of an adapter and driver.
pub(crate) struct Store {
    /// A name for the log.
    what: &'static str,
    path: PathBuf,
    key: Vec<u8>,
}

impl Store {
    /// The file `what` of an adapter in a directory.
    pub fn of(
        what: &'static str,
        info: &wgpu::AdapterInfo,
        directory: &Path,
        extension: &str,
    ) -> Self {
        Self { what, path: directory.join(file_name(info, extension)), key: key(info) }
    }

    /// The file `name` in a directory, which holds the data stored for this key. `what` is its name
    /// in the log.
    #[cfg(any(has_examination, windows))]
    pub fn named(what: &'static str, name: &str, key: &[u8], directory: &Path) -> Self {
        Self { what, path: directory.join(name), key: key.to_vec() }
    }

    /// The path at which it is stored.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The data stored for this adapter, driver and version. A damaged file is removed.
    pub fn read(&self) -> Option<Vec<u8>> {
        let data = match file::read(&self.path, &self.key) {
            Found::Data(data) => Some(data),
            Found::Nothing | Found::Foreign => None,
            Found::Untrusted(why) => {
                log::warn!("the {} {} is not used: {why}", self.what, self.path.display());
                None
            }
            Found::Corrupt(why) => {
                self.discard(&why);
                None
            }
        };
        log::debug!(
            "{} {}: {} bytes",
            self.what,
            self.path.display(),
            data.as_ref().map_or(0, Vec::len)
        );
        data
    }

    /// Removes a file that cannot be used.
    pub fn discard(&self, why: &str) {
        log::info!("the {} {} is discarded: {why}", self.what, self.path.display());
        drop(std::fs::remove_file(&self.path));
    }

    /// Starts a thread that stores the result of `data`, if there is one, after changes.
    pub fn keep(self, mut data: impl FnMut() -> Option<Vec<u8>> + Send + 'static) -> Saver {
        let (changes, received) = crossbeam_channel::bounded(1);
        let (hurry, hurried) = crossbeam_channel::unbounded();
        let stored = data().map(|d| file::checksum(&[&d]));
        let run = move || run(&self, stored, &received, &hurried, data);
        let orders = Arc::new(Orders { changes, hurry });
        process::save_at_end(&orders);
        Saver {
            orders: Some(orders),
            thread: std::thread::Builder::new().name("wgpu-cache".into()).spawn(run).ok(),
        }
    }

    /// A lock among all processes, held until it is dropped. [`Store::change`] takes it by itself.
    /// None if files cannot be locked, as in a read-only directory, or if it takes too long.
    pub fn lock(&self) -> Option<Lock> {
        file::lock(&self.path).map(Lock)
    }

    /// Replaces the stored rows by the result of `change`, under a lock among all processes. If
    /// there is no lock, as in a read-only directory, the change is not atomic.
    pub fn change(&self, change: impl FnOnce(Option<Vec<u8>>) -> Vec<u8>) {
        let _lock = self.lock();
        self.write(&change(self.read()));
    }

    /// Stores `data` now.
    pub fn write(&self, data: &[u8]) {
        if let Err(e) = file::write(&self.path, &self.key, data) {
            log::info!("the {} {} cannot be stored: {e}", self.what, self.path.display());
        }
    }
}

/// The orders to the thread. It ends when all senders are gone.
struct Orders {
    changes: Sender<()>,
    /// Asks the thread to store the changes at once; it answers when they are stored.
    hurry: Sender<Sender<()>>,
}

impl Save for Orders {
    fn save(&self, deadline: Instant) {
        let (done, stored) = crossbeam_channel::bounded(1);
        // An error means that there is no thread, or that it takes too long.
        let _ = self.hurry.send(done);
        let _ = stored.recv_deadline(deadline);
    }
}

/// The thread that stores. Dropping the value ends it.
pub(crate) struct Saver {
    orders: Option<Arc<Orders>>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Notes that the data has changed.
    pub fn changed(&self) {
        if let Some(orders) = &self.orders {
            // If the channel is full, the thread has a notice already.
            let _ = orders.changes.try_send(());
        }
    }
}

impl Drop for Saver {
    /// Stores the rows that were not stored yet.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stores the data until no sender of changes is left. `stored` is the checksum of the file's data.
fn run(
    store: &Store,
    mut stored: Option<u64>,
    changes: &Receiver<()>,
    hurried: &Receiver<Sender<()>>,
    mut data: impl FnMut() -> Option<Vec<u8>>,
) {
    let mut save = || {
        let Some(data) = data() else { return };
        let sum = Some(file::checksum(&[&data]));
        if stored == sum {
            return;
        }
        stored = sum;
        let saved = if data.len() as u64 > file::MAX_BYTES {
            std::fs::remove_file(&store.path)
        } else {
            file::write(&store.path, &store.key, &data)
        };
        match saved {
            Ok(()) => {
                log::debug!("{} {}: {} bytes stored", store.what, store.path.display(), data.len())
            }
            Err(e) => {
                log::info!("the {} {} cannot be stored: {e}", store.what, store.path.display())
            }
        }
    };
    // When to store the changes, and the latest time for it.
    let mut due: Option<(Instant, Instant)> = None;
    loop {
        let until = due.map_or_else(crossbeam_channel::never, |(quiet, latest)| {
            crossbeam_channel::at(quiet.min(latest))
        });
        crossbeam_channel::select_biased! {
            recv(hurried) -> done => {
                // This also stores changes that were not reported yet.
                save();
                due = None;
                let Ok(done) = done else { return };
                let _ = done.send(());
            }
            recv(changes) -> change => {
                if change.is_err() {
                    return save();
                }
                let now = Instant::now();
                due = Some((now + QUIET, due.map_or(now + LATEST, |(_, latest)| latest)));
            }
            recv(until) -> _ => {
                save();
                due = None;
            }
        }
    }
}

/// The name of the file for an adapter and driver. A newer version of either replaces it.
fn file_name(info: &wgpu::AdapterInfo, extension: &str) -> String {
    let names = file::checksum(&[info.name.as_bytes(), &[0], info.driver.as_bytes()]);
    format!(
        "{}-{:04x}-{:04x}-{names:016x}.{extension}",
        info.backend.to_str(),
        info.vendor,
        info.device
    )
}

/// Everything that decides whether stored data is usable.
fn key(info: &wgpu::AdapterInfo) -> Vec<u8> {
    let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = info;
    let version = env!("CARGO_PKG_VERSION");
    let target = (std::env::consts::OS, std::env::consts::ARCH);
    format!(
        "{version} {target:?} {backend:?} {vendor:#x} {device:#x} {name:?} {driver:?} \
         {driver_info:?}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the child process of a test: the directory to store in.
    const CHILD: &str = "TF_WGPU_TEST_STORE";

    fn store(directory: &Path) -> Store {
        Store { what: "test", path: directory.join("kept.bin"), key: b"key".to_vec() }
    }

    /// A directory of one test, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(
                std::env::temp_dir()
                    .join(format!("tensorflow-wgpu-store-{}-{name}", std::process::id())),
            )
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    // On Windows only Python's exit is waited for.
    #[cfg(not(windows))]
    #[test]
    fn a_process_that_ends_at_once_keeps_what_changed() {
        let test = "device::cache::store::tests::a_process_that_ends_at_once_keeps_what_changed";
        if let Some(directory) = std::env::var_os(CHILD) {
            let kept = Arc::new(parking_lot::Mutex::new(b"before".to_vec()));
            let data = kept.clone();
            let saver = store(Path::new(&directory)).keep(move || Some(data.lock().clone()));
            crate::device::process::watch_exit();
            *kept.lock() = b"after".to_vec();
            saver.changed();
            // TensorFlow never drops a device.
            std::mem::forget(saver);
            std::process::exit(0);
        }
        let scratch = Scratch::new("exit");
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact"])
            .env(CHILD, &scratch.0)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(child.unwrap().success());
        assert_eq!(store(&scratch.0).read().as_deref(), Some(&b"after"[..]));
    }

    #[test]
    fn changes_are_stored_after_a_moment_and_when_the_value_ends() {
        let scratch = Scratch::new("changes");
        let kept = Arc::new(parking_lot::Mutex::new(b"before".to_vec()));
        let data = kept.clone();
        let saver = store(&scratch.0).keep(move || Some(data.lock().clone()));
        let change = |to: &[u8]| {
            *kept.lock() = to.to_vec();
            saver.changed();
        };
        change(b"first");
        let start = Instant::now();
        while store(&scratch.0).read().as_deref() != Some(b"first") {
            assert!(start.elapsed() < Duration::from_secs(60), "it is not stored");
            std::thread::sleep(Duration::from_millis(20));
        }
        change(b"second");
        drop(saver);
        assert_eq!(store(&scratch.0).read().as_deref(), Some(&b"second"[..]));
    }
}
