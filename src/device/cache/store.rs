//! What is kept for one adapter and driver from process to process: a checked file, read once and replaced by a thread of its own
//! when what it holds has changed.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::file::{self, Found};

/// The file is written when nothing has changed for this long, or after `LATEST` in any case.
const QUIET: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(5);

/// A file of an adapter and driver.
pub(crate) struct Store {
    /// For the log.
    what: &'static str,
    path: PathBuf,
    key: Vec<u8>,
}

impl Store {
    /// The file `what` of an adapter in a directory.
    pub fn of(what: &'static str, info: &wgpu::AdapterInfo, directory: &Path, extension: &str) -> Self {
        Self { what, path: directory.join(file_name(info, extension)), key: key(info) }
    }

    /// Where it is stored.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was stored for this adapter, driver and version. A damaged file is removed.
    pub fn read(&self) -> Option<Vec<u8>> {
        let data = match file::read(&self.path, &self.key) {
            Found::Data(data) => Some(data),
            Found::Nothing | Found::Foreign => None,
            Found::Corrupt(why) => {
                self.discard(&why);
                None
            }
        };
        log::debug!("{} {}: {} bytes", self.what, self.path.display(), data.as_ref().map_or(0, Vec::len));
        data
    }

    /// Removes a file that cannot be used.
    pub fn discard(&self, why: &str) {
        log::info!("the {} {} is discarded: {why}", self.what, self.path.display());
        drop(std::fs::remove_file(&self.path));
    }

    /// Starts a thread that stores what `data` gives, if anything, after changes.
    pub fn keep(self, mut data: impl FnMut() -> Option<Vec<u8>> + Send + 'static) -> Saver {
        let (changes, received) = crossbeam_channel::bounded(1);
        let stored = data().map(|d| file::checksum(&[&d]));
        let run = move || run(&self, stored, &received, data);
        Saver { changes: Some(changes), thread: std::thread::Builder::new().name("wgpu-cache".into()).spawn(run).ok() }
    }

    #[cfg(test)]
    pub fn write(&self, data: &[u8]) {
        file::write(&self.path, &self.key, data).unwrap();
    }
}

/// The thread that stores, which the value ends.
pub(crate) struct Saver {
    changes: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Says that there is something new to store.
    pub fn changed(&self) {
        if let Some(changes) = &self.changes {
            // Full means that the thread knows already.
            let _ = changes.try_send(());
        }
    }
}

impl Drop for Saver {
    /// Stores what was not stored yet.
    fn drop(&mut self) {
        self.changes = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stores until nobody can report changes any more. `stored` is the checksum of what the file holds.
fn run(store: &Store, mut stored: Option<u64>, changes: &Receiver<()>, mut data: impl FnMut() -> Option<Vec<u8>>) {
    while changes.recv().is_ok() {
        let latest = Instant::now() + LATEST;
        while changes.recv_timeout(QUIET).is_ok() && Instant::now() < latest {}
        let Some(data) = data() else { continue };
        let sum = Some(file::checksum(&[&data]));
        if stored == sum {
            continue;
        }
        stored = sum;
        let saved = if data.len() as u64 > file::MAX_BYTES {
            std::fs::remove_file(&store.path)
        } else {
            file::write(&store.path, &store.key, &data)
        };
        match saved {
            Ok(()) => log::debug!("{} {}: {} bytes stored", store.what, store.path.display(), data.len()),
            Err(e) => log::info!("the {} {} cannot be stored: {e}", store.what, store.path.display()),
        }
    }
}

/// One file for each adapter and driver; a newer version of either replaces it.
fn file_name(info: &wgpu::AdapterInfo, extension: &str) -> String {
    let names = file::checksum(&[info.name.as_bytes(), &[0], info.driver.as_bytes()]);
    format!("{}-{:04x}-{:04x}-{names:016x}.{extension}", info.backend.to_str(), info.vendor, info.device)
}

/// Everything that decides whether what was stored is of use.
fn key(info: &wgpu::AdapterInfo) -> Vec<u8> {
    let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = info;
    let version = env!("CARGO_PKG_VERSION");
    let target = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{version} {target:?} {backend:?} {vendor:#x} {device:#x} {name:?} {driver:?} {driver_info:?}").into_bytes()
}
