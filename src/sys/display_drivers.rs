//! Detects on Windows whether GPU drivers or Vulkan layers have changed.

use std::hash::BuildHasher;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use windows_sys::Win32::Foundation::ERROR_SUCCESS;
use windows_sys::Win32::System::Registry::{
    HKEY, HKEY_CURRENT_USER, HKEY_LOCAL_MACHINE, KEY_READ, RegCloseKey, RegEnumValueW,
    RegOpenKeyExW,
};

/// The keys where Vulkan's drivers and layers are registered: the names of the values are files.
const KEYS: [&str; 3] = [
    r"SOFTWARE\Khronos\Vulkan\Drivers",
    r"SOFTWARE\Khronos\Vulkan\ImplicitLayers",
    r"SOFTWARE\Khronos\Vulkan\ExplicitLayers",
];
/// The length of the longest value name in UTF-16 units, including its terminator.
const LONGEST: usize = 16_384;

/// A text that changes with the system's drivers, with Vulkan's layers and with the variables that
/// matter to the Vulkan loader.
pub(crate) fn fingerprint() -> String {
    let root = PathBuf::from(std::env::var_os("SystemRoot").unwrap_or_default());
    let store = root.join(r"System32\DriverStore\FileRepository");
    // A driver's folder has a hash of its contents in its name.
    let folders = std::fs::read_dir(store).into_iter().flatten().flatten();
    let mut all: Vec<String> =
        folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    for hive in [HKEY_LOCAL_MACHINE, HKEY_CURRENT_USER] {
        all.extend(KEYS.iter().flat_map(|key| values(hive, key)));
    }
    let variables = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| name.starts_with("VK_") || name == "WGPU_DX12_COMPILER")
    });
    all.extend(variables.map(|variable| format!("{variable:?}")));
    all.sort();
    format!("{} {:x}", all.len(), rustc_hash::FxBuildHasher.hash_one(&all))
}

/// The names of the values of a registry key; none if there is no such key.
fn values(hive: HKEY, key: &str) -> Vec<String> {
    let path: Vec<u16> = key.encode_utf16().chain([0]).collect();
    let mut opened: HKEY = null_mut();
    // SAFETY: the path ends with a zero, and the handle is written.
    let result = unsafe { RegOpenKeyExW(hive, path.as_ptr(), 0, KEY_READ, &raw mut opened) };
    if result != ERROR_SUCCESS {
        return Vec::new();
    }
    let (mut names, mut name) = (Vec::new(), vec![0u16; LONGEST]);
    for place in 0.. {
        let mut length = LONGEST as u32;
        // SAFETY: the key is open; the name has room for `length` units, which is written; the
        // other results are not requested.
        let result = unsafe {
            RegEnumValueW(
                opened,
                place,
                name.as_mut_ptr(),
                &raw mut length,
                null(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        if result != ERROR_SUCCESS {
            break;
        }
        names.push(String::from_utf16_lossy(&name[..length as usize]));
    }
    // SAFETY: the key was opened above and is not used again.
    unsafe { RegCloseKey(opened) };
    names
}
