//! The data that earlier processes left on disk: its directory, and the pipeline cache, which holds
//! a driver's compiled shaders.
//!
//! There is one file for each adapter and driver. It is read when the device is opened. A separate
//! thread replaces it once no pipeline has been compiled for a moment. Nothing here may fail:
//! without a cache, pipelines are compiled. Most desktop drivers keep a cache of their own; this
//! one serves the drivers that do not. Processes that compile at once overwrite each other's file;
//! the lost pipelines are compiled and stored again by the next process.

mod file;
mod store;

use std::path::{Path, PathBuf};

pub(crate) use store::{Lock, Saver, Store};

/// The directory of caches: `TF_WGPU_CACHE` as `lookup` gives it, or the platform's directory for
/// caches. None if the variable is `off` or empty, or if the user has no such directory.
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

/// The reason if nothing can be kept in the directory that `TF_WGPU_CACHE` names, as `lookup` gives
/// it. A directory that holds files may be read-only on purpose.
pub fn problem(lookup: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let value = lookup("TF_WGPU_CACHE")?;
    let directory = directory(lookup)?;
    if directory.read_dir().is_ok_and(|mut files| files.next().is_some()) {
        return None;
    }
    let why = file::try_out(&directory).err()?;
    Some(format!("TF_WGPU_CACHE={value}: nothing is kept there: {why}"))
}

/// A driver's cache and the thread that stores it.
pub(crate) struct DiskCache {
    raw: wgpu::PipelineCache,
    path: PathBuf,
    saver: Saver,
}

impl DiskCache {
    /// The feature that a device needs for it.
    pub const FEATURE: wgpu::Features = wgpu::Features::PIPELINE_CACHE;

    /// Reads the cache of an adapter. The device must have [`Self::FEATURE`].
    pub fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, directory: &Path) -> Self {
        let store = Self::store(info, directory);
        let raw = crate::sys::pipeline_cache::create(device, store.read().as_deref());
        let (path, kept) = (store.path().to_owned(), raw.clone());
        Self { raw, path, saver: store.keep(move || kept.get_data()) }
    }

    fn store(info: &wgpu::AdapterInfo, directory: &Path) -> Store {
        Store::of("pipeline cache", info, directory, "bin")
    }

    /// The handle for the descriptor of a pipeline.
    pub const fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// The path at which it is stored.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a pipeline was compiled.
    pub fn changed(&self) {
        self.saver.changed();
    }
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
            assert_eq!(
                with(&[home, ("XDG_CACHE_HOME", ignored)]),
                Some("/home/u/.cache/tensorflow-wgpu".into())
            );
        }
    }

    /// A device of the first adapter, if the device can keep pipelines.
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
        let directory = std::env::temp_dir()
            .join(format!("tensorflow-wgpu-cache-{}-driver", std::process::id()));
        let store = DiskCache::store(&info, &directory);
        let open = || DiskCache::open(&device, &info, &directory).raw().get_data().unwrap();
        let given = open();
        // wgpu's own check must reject the second data: it is whole, but not the driver's.
        for data in [&given[..], b"whole, but no driver's", &given[..given.len() / 2]] {
            store.write(data);
            assert_eq!(store.read().as_deref(), Some(data));
            assert_eq!(open(), given, "an empty cache either way");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
