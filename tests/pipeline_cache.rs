//! The pipeline cache on disk under a real driver: whatever lies there, pipelines work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensorflow_wgpu::device::{Device, Selection};

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

#[test]
fn what_is_stored_serves_the_next_device() {
    let scratch = Scratch::new("again");
    let path = device(&scratch.0).pipeline_cache().map(Path::to_owned);
    let Some(path) = path else {
        // Only Vulkan has caches.
        assert!(!scratch.0.exists());
        return;
    };
    assert!(path.starts_with(&scratch.0));
    // A driver that keeps nothing has nothing to store.
    let stored = std::fs::read(&path).ok();
    println!("{}: {:?} bytes", path.display(), stored.as_ref().map(Vec::len));
    assert!(stored.as_ref().is_none_or(|bytes| bytes.starts_with(b"TFWGPUC")));
    drop(device(&scratch.0));
    assert_eq!(std::fs::read(&path).ok(), stored, "the same pipelines are the same cache");
}

#[test]
fn garbage_is_discarded() {
    let scratch = Scratch::new("garbage");
    let Some(path) = device(&scratch.0).pipeline_cache().map(Path::to_owned) else { return };
    std::fs::create_dir_all(&scratch.0).unwrap();
    for garbage in [&b""[..], b"TFWGPUC\x01", &[0xff; 5000]] {
        std::fs::write(&path, garbage).unwrap();
        drop(device(&scratch.0));
        assert!(
            std::fs::read(&path).map_or(true, |now| now != garbage),
            "{} bytes of garbage stay",
            garbage.len()
        );
    }
}

#[test]
fn an_unwritable_directory_harms_nothing() {
    let scratch = Scratch::new("unwritable");
    std::fs::write(&scratch.0, b"a file where the directory should be").unwrap();
    drop(device(&scratch.0));
    drop(device(&scratch.0.join("below")));
    std::fs::remove_file(&scratch.0).unwrap();
}
