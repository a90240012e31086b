//! The fault layer: how the Vulkan loader finds it, and its control from inside the process.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// The layer in this process, loaded before the Vulkan loader loads the same file.
pub struct Layer {
    arm: unsafe extern "C" fn(*const std::ffi::c_char, u64, u64, i32) -> i32,
    disarm: extern "C" fn(),
    calls: unsafe extern "C" fn(*const std::ffi::c_char) -> i64,
    injected: extern "C" fn() -> u64,
    keep_pipelines: extern "C" fn(),
    found_pipelines: extern "C" fn() -> u64,
    refuse: extern "C" fn(u64, u64, i32, i32),
    shaders: extern "C" fn() -> u64,
    refused: extern "C" fn() -> u64,
    slow: extern "C" fn(u32),
    slow_total: extern "C" fn() -> u64,
}

/// The library that cargo built with this test.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    deps.join(format!(
        "{}fault_layer{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ))
}

/// Variables for a process whose Vulkan calls go through the layer. The layer is found by a
/// manifest that is written to `directory`. Mesa's layer that orders devices is left out: if one of
/// its own calls fails, it reads uninitialized memory.
pub fn environment(directory: &Path) -> [(&'static str, String); 3] {
    let library = library();
    std::fs::write(directory.join("faults.json"), fault_layer::manifest(library.to_str().unwrap()))
        .unwrap();
    [
        ("VK_LAYER_PATH", directory.to_str().unwrap().to_owned()),
        ("VK_INSTANCE_LAYERS", fault_layer::NAME.to_owned()),
        ("NODEVICE_SELECT", "1".to_owned()),
    ]
}

impl Layer {
    pub fn load() -> Self {
        // SAFETY: the library is ours, stays loaded, and exports these functions with these types.
        unsafe {
            let library =
                Library::new(library()).expect("cargo builds the layer, a dev-dependency");
            let layer = Self {
                arm: *library.get(b"fault_layer_arm\0").unwrap(),
                disarm: *library.get(b"fault_layer_disarm\0").unwrap(),
                calls: *library.get(b"fault_layer_calls\0").unwrap(),
                injected: *library.get(b"fault_layer_injected\0").unwrap(),
                keep_pipelines: *library.get(b"fault_layer_keep_pipelines\0").unwrap(),
                found_pipelines: *library.get(b"fault_layer_found_pipelines\0").unwrap(),
                refuse: *library.get(b"fault_layer_refuse\0").unwrap(),
                shaders: *library.get(b"fault_layer_shaders\0").unwrap(),
                refused: *library.get(b"fault_layer_refused\0").unwrap(),
                slow: *library.get(b"fault_layer_slow\0").unwrap(),
                slow_total: *library.get(b"fault_layer_total\0").unwrap(),
            };
            std::mem::forget(library);
            layer
        }
    }

    /// Makes calls `first` to `last` of `function` return `result`; none if `first` is 0. Counts
    /// begin again.
    pub fn arm(&self, function: &CStr, first: u64, last: u64, result: i32) {
        // SAFETY: the name is a string.
        assert_eq!(
            unsafe { (self.arm)(function.as_ptr(), first, last, result) },
            0,
            "{function:?}"
        );
    }

    pub fn disarm(&self) {
        (self.disarm)();
    }

    /// The number of calls of `function` since it was armed.
    pub fn calls(&self, function: &CStr) -> u64 {
        // SAFETY: the name is a string.
        unsafe { (self.calls)(function.as_ptr()) }.try_into().expect("a function of the table")
    }

    /// Makes pipeline caches keep the compiled pipelines from now on.
    pub fn keep_pipelines(&self) {
        (self.keep_pipelines)();
    }

    /// The number of compiled pipelines that the data of their cache held already.
    pub fn found_pipelines(&self) -> u64 {
        (self.found_pipelines)()
    }

    /// Makes the driver refuse the shaders of numbers `first` to `last` with `result`; none if
    /// `first` is 0. Counts begin again.
    pub fn refuse(&self, first: u64, last: u64, result: i32) {
        let count = if first == 0 { 0 } else { (last - first).saturating_add(1) };
        (self.refuse)(first, count, result, 0);
    }

    /// The number of shaders since [`Layer::refuse`], and of refused ones.
    pub fn shaders(&self) -> (u64, u64) {
        ((self.shaders)(), (self.refused)())
    }

    /// Simulates a GPU that is `factor` times slower than the driver, with a watchdog of 2 s, so
    /// that fences and semaphores come late; no slow GPU if `factor` is 0.
    pub fn slow(&self, factor: u64) {
        (self.slow)(factor.try_into().unwrap_or(u32::MAX));
    }

    /// The milliseconds for which the slow GPU was busy in this process.
    pub fn slow_total(&self) -> u64 {
        (self.slow_total)()
    }

    /// The number of calls that failed since it was armed.
    pub fn injected(&self) -> u64 {
        (self.injected)()
    }
}
