//! The pipeline cache on disk: a process finds the pipelines that an earlier one compiled, and
//! pipelines work whatever the file contains.
//!
//! Drivers that have a cache of their own give programs an empty one. So on Linux the caches are
//! those of `tests/fault_layer`, which keep pipelines under any driver.

#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "no call fails here")]
#[path = "faults/layer.rs"]
mod layer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use tensorflow_wgpu::device::{Device, Selection};

/// The number of compiled pipelines that came from stored data; None if it cannot be determined.
type Found = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

fn main() {
    let layer = Scratch::new("layer");
    let found = found(&layer.0);
    let test = |name: &str, run: fn(&Found)| {
        let found = found.clone();
        Trial::test(name, move || {
            run(&found);
            Ok(())
        })
    };
    let trials = vec![
        test("a_stored_cache_serves_the_next_device", a_stored_cache_serves_the_next_device),
        test("garbage_is_discarded", garbage_is_discarded),
        test("an_unwritable_directory_harms_nothing", an_unwritable_directory_harms_nothing),
    ];
    // One after the other: the layer counts the pipelines of all.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(layer);
    conclusion.exit();
}

#[cfg(target_os = "linux")]
fn found(directory: &Path) -> Found {
    std::fs::create_dir_all(directory).unwrap();
    for (name, value) in layer::environment(directory) {
        // SAFETY: the process has one thread so far.
        unsafe { std::env::set_var(name, value) };
    }
    let layer = layer::Layer::load();
    layer.keep_pipelines();
    Arc::new(move || Some(layer.found_pipelines()))
}

#[cfg(not(target_os = "linux"))]
fn found(_directory: &Path) -> Found {
    Arc::new(|| None)
}

/// A directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir()
            .join(format!("tensorflow-wgpu-pipelines-{}-{name}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A device that keeps its pipelines below `directory`, and has compiled one.
fn device(directory: &Path) -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter =
        selection.adapters.first().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    let device = Device::open_cached(adapter, Some(directory)).unwrap();
    let address = device.allocate(1024).unwrap();
    device.fill(address, 1024, 0x1234_5678).unwrap();
    let mut bytes = [0; 1024];
    device.download(address, &mut bytes).unwrap();
    assert_eq!(bytes, 0x1234_5678_u32.to_le_bytes().repeat(256)[..]);
    assert!(device.statistics().pipelines > 0, "a fill compiles a pipeline");
    device
}

fn a_stored_cache_serves_the_next_device(found: &Found) {
    let scratch = Scratch::new("again");
    let before = found();
    let first = device(&scratch.0);
    let compiled = first.statistics().pipelines;
    let Some(path) = first.pipeline_cache().map(Path::to_owned) else {
        // Only Vulkan has caches.
        assert!(!scratch.0.exists());
        return;
    };
    drop(first);
    assert!(path.starts_with(&scratch.0));
    assert_eq!(found(), before, "nothing was stored yet");
    let stored = std::fs::read(&path).unwrap();
    assert!(stored.starts_with(b"TFWGPUC"));
    drop(device(&scratch.0));
    assert_eq!(found(), before.map(|n| n + compiled), "the second device finds all pipelines");
    assert_eq!(std::fs::read(&path).unwrap(), stored, "the same pipelines are the same cache");
}

fn garbage_is_discarded(found: &Found) {
    let scratch = Scratch::new("garbage");
    let Some(path) = device(&scratch.0).pipeline_cache().map(Path::to_owned) else { return };
    let stored = std::fs::read(&path).unwrap();
    let before = found();
    let flipped = |at: usize| {
        let mut bytes = stored.clone();
        bytes[at] ^= 1;
        bytes
    };
    let garbage = [
        Vec::new(),
        b"TFWGPUC\x01".to_vec(),
        vec![0xff; 5000],
        stored[..stored.len() - 1].to_vec(),
        flipped(stored.len() - 1),
        flipped(stored.len() / 2),
    ];
    for garbage in garbage {
        std::fs::write(&path, &garbage).unwrap();
        drop(device(&scratch.0));
        assert_eq!(found(), before, "{} bytes of garbage serve a pipeline", garbage.len());
        assert_eq!(std::fs::read(&path).unwrap(), stored, "{} bytes stay", garbage.len());
    }
}

fn an_unwritable_directory_harms_nothing(_found: &Found) {
    let scratch = Scratch::new("unwritable");
    std::fs::write(&scratch.0, b"a file where the directory should be").unwrap();
    drop(device(&scratch.0));
    drop(device(&scratch.0.join("below")));
    std::fs::remove_file(&scratch.0).unwrap();
}
