//! The pipeline cache on disk: what a driver made of shaders in earlier processes.
//!
//! One file for each adapter and driver, read when the device is opened and replaced by a thread of its own once no
//! pipeline was compiled for a moment. Nothing here may fail: without a cache pipelines are compiled. Most desktop drivers
//! keep a cache of their own; this one serves those that do not. Processes that compile at once overwrite each other's file;
//! what is lost is compiled and stored again by the next.

mod file;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use file::Found;

/// The file is written when no pipeline was compiled for this long, or after `LATEST` in any case.
const QUIET: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(5);

/// The directory of caches: `TF_WGPU_CACHE` as `lookup` gives it, or the platform's place for them. None if it is `off` or
/// empty, or where the user has no such place.
pub fn directory(lookup: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| lookup(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(value) = lookup("TF_WGPU_CACHE") {
        let off = value.trim().is_empty() || value.trim().eq_ignore_ascii_case("off");
        return if off { None } else { std::path::absolute(value).ok() };
    }
    let home = |below: &str| set("HOME").map(|home| home.join(below));
    let caches = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_vendor = "apple") {
        home("Library/Caches")
    } else {
        // The specification asks to ignore relative paths.
        set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).or_else(|| home(".cache"))
    };
    Some(caches?.join("tensorflow-wgpu")).filter(|p| p.is_absolute())
}

/// A driver's cache and the thread that stores it.
pub(crate) struct DiskCache {
    raw: wgpu::PipelineCache,
    path: PathBuf,
    changes: Option<Sender<()>>,
    saver: Option<JoinHandle<()>>,
}

impl DiskCache {
    /// The feature that a device needs for it.
    pub const FEATURE: wgpu::Features = wgpu::Features::PIPELINE_CACHE;

    /// Reads the cache of an adapter. The device must have [`Self::FEATURE`].
    pub fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, directory: &Path) -> Self {
        let path = directory.join(file_name(info));
        let key = key(info);
        let data = match file::read(&path, &key) {
            Found::Data(data) => Some(data),
            Found::Nothing | Found::Foreign => None,
            Found::Corrupt(why) => {
                log::info!("the pipeline cache {} is discarded: {why}", path.display());
                drop(std::fs::remove_file(&path));
                None
            }
        };
        log::debug!("pipeline cache {}: {} bytes", path.display(), data.as_ref().map_or(0, Vec::len));
        let raw = crate::ffi::pipeline_cache::create(device, data.as_deref());
        let stored = raw.get_data().map(|d| file::checksum(&[&d]));
        let (changes, received) = crossbeam_channel::bounded(1);
        let saver = Saver { raw: raw.clone(), path: path.clone(), key, stored };
        let saver = std::thread::Builder::new().name("wgpu-cache".into()).spawn(move || saver.run(&received)).ok();
        Self { raw, path, changes: Some(changes), saver }
    }

    /// For the descriptor of a pipeline.
    pub const fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// Where it is stored.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that a pipeline was compiled.
    pub fn changed(&self) {
        if let Some(changes) = &self.changes {
            // Full means that the thread knows already.
            let _ = changes.try_send(());
        }
    }
}

impl Drop for DiskCache {
    /// Stores what was not stored yet.
    fn drop(&mut self) {
        self.changes = None;
        if let Some(saver) = self.saver.take() {
            let _ = saver.join();
        }
    }
}

struct Saver {
    raw: wgpu::PipelineCache,
    path: PathBuf,
    key: Vec<u8>,
    /// Checksum of what the file holds.
    stored: Option<u64>,
}

impl Saver {
    fn run(mut self, changes: &Receiver<()>) {
        while changes.recv().is_ok() {
            let latest = Instant::now() + LATEST;
            while changes.recv_timeout(QUIET).is_ok() && Instant::now() < latest {}
            self.save();
        }
    }

    fn save(&mut self) {
        let Some(data) = self.raw.get_data() else { return };
        let sum = Some(file::checksum(&[&data]));
        if self.stored == sum {
            return;
        }
        self.stored = sum;
        let saved = if data.len() as u64 > file::MAX_BYTES {
            std::fs::remove_file(&self.path)
        } else {
            file::write(&self.path, &self.key, &data)
        };
        match saved {
            Ok(()) => log::debug!("pipeline cache {}: {} bytes stored", self.path.display(), data.len()),
            Err(e) => log::info!("the pipeline cache {} cannot be stored: {e}", self.path.display()),
        }
    }
}

/// One file for each adapter and driver; a newer version of either replaces it.
fn file_name(info: &wgpu::AdapterInfo) -> String {
    let names = file::checksum(&[info.name.as_bytes(), &[0], info.driver.as_bytes()]);
    format!("{}-{:04x}-{:04x}-{names:016x}.bin", info.backend.to_str(), info.vendor, info.device)
}

/// Everything that decides whether the driver can use what was stored.
fn key(info: &wgpu::AdapterInfo) -> Vec<u8> {
    let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = info;
    let version = env!("CARGO_PKG_VERSION");
    let target = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{version} {target:?} {backend:?} {vendor:#x} {device:#x} {name:?} {driver:?} {driver_info:?}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        directory(&|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_variable_moves_it_or_switches_it_off() {
        let home = if cfg!(windows) { ("LOCALAPPDATA", "C:\\home") } else { ("HOME", "/home") };
        assert!(with(&[home]).unwrap().ends_with("tensorflow-wgpu"));
        for off in ["off", "OFF", "", " "] {
            assert_eq!(with(&[home, ("TF_WGPU_CACHE", off)]), None);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(with(&[home, ("TF_WGPU_CACHE", "a/b")]), Some(here.join("a/b")));
        assert_eq!(with(&[]), None, "nowhere to put it");
    }

    #[cfg(all(unix, not(target_vendor = "apple")))]
    #[test]
    fn relative_xdg_paths_are_ignored() {
        let home = ("HOME", "/home/u");
        assert_eq!(with(&[home]), Some("/home/u/.cache/tensorflow-wgpu".into()));
        assert_eq!(with(&[home, ("XDG_CACHE_HOME", "/c")]), Some("/c/tensorflow-wgpu".into()));
        for ignored in ["", "c"] {
            assert_eq!(with(&[home, ("XDG_CACHE_HOME", ignored)]), Some("/home/u/.cache/tensorflow-wgpu".into()));
        }
    }

    /// A device of the first adapter, if that can keep pipelines.
    fn device() -> Option<(wgpu::Device, wgpu::AdapterInfo)> {
        let selection = crate::device::Selection::enumerate(&|name| std::env::var(name).ok());
        let adapter = selection.adapters.into_iter().next().expect("a Vulkan driver");
        let required_features = adapter.features() & DiskCache::FEATURE;
        let descriptor = wgpu::DeviceDescriptor { required_features, ..Default::default() };
        let (device, _) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
        (!required_features.is_empty()).then(|| (device, adapter.get_info()))
    }

    #[test]
    fn a_driver_takes_back_what_it_gave_and_refuses_what_it_did_not() {
        let Some((device, info)) = device() else { return };
        let directory = std::env::temp_dir().join(format!("tensorflow-wgpu-cache-{}-driver", std::process::id()));
        let path = directory.join(file_name(&info));
        let open = || DiskCache::open(&device, &info, &directory).raw().get_data().unwrap();
        let given = open();
        // The second is what wgpu's own check must find: it is whole, and not the driver's.
        for data in [&given[..], b"whole, but no driver's", &given[..given.len() / 2]] {
            file::write(&path, &key(&info), data).unwrap();
            assert_eq!(file::read(&path, &key(&info)), Found::Data(data.to_vec()));
            assert_eq!(open(), given, "an empty cache either way");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
