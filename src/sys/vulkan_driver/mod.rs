//! Loads Vulkan drivers before the Vulkan loader does, shielded from TensorFlow's symbols.
//!
//! `libtensorflow_framework` exports thousands of `llvm::` symbols with global visibility, and
//! zlib's and zstd's. A Mesa driver that uses LLVM (lavapipe, radv's LLVM path) would bind to those
//! and crash while it compiles a shader. Loaded with RTLD_DEEPBIND, a driver prefers its own
//! dependencies; the Vulkan loader then gets the copy that is loaded already. So the manifests that
//! the loader will read are read here first, in its order, and drivers that need one of these
//! libraries are loaded here; the others are left to the loader.
//!
//! Deep binding takes the driver's `malloc` from libc even if the process has another one (jemalloc
//! or tcmalloc in LD_PRELOAD). libc itself would still use that other one, for instance in
//! `strdup`, and the driver would free that memory with libc. Such a driver is loaded as the
//! dependency of a small library made in memory, which comes first in its search order and holds
//! the process's own allocator.
//!
//! In a process with more rights than its user's the environment names no driver: the Vulkan loader
//! does not read it then either.

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod elf;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod manifests;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod shield;

use crate::error::Result;

/// Loads the drivers, once in the process. Does nothing on systems where no driver can clash. Fails
/// if a driver can neither be shielded nor be used without a shield.
pub(crate) fn preload() -> Result<()> {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    {
        static ONCE: std::sync::OnceLock<Result<()>> = std::sync::OnceLock::new();
        let trusted = !crate::sys::process::has_raised_rights();
        let lookup = |name: &str| std::env::var_os(name).filter(|_| trusted);
        ONCE.get_or_init(|| shield::preload(&lookup)).clone()
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
    Ok(())
}

/// The manifests of the drivers that the Vulkan loader takes, and a text that changes with them,
/// with the libraries that they name, with layers, and with the variables that matter to the
/// loader. None without a driver.
#[cfg(has_examination)]
pub(crate) fn drivers() -> Option<(Vec<std::path::PathBuf>, String)> {
    manifests::fingerprint(&|name| std::env::var_os(name))
}
