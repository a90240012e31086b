//! The libraries of this process.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Base and path of the library or program that holds an address.
pub(crate) fn object(address: *const c_void) -> Option<(usize, PathBuf)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; `info` has room, and zeros are valid in it.
    let info =
        unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) }?;
    let name = if info.dli_fname.is_null() {
        PathBuf::new()
    } else {
        // SAFETY: dladdr gives the NUL-terminated name of a loaded object, and an object that is
        // asked for stays loaded.
        OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()).into()
    };
    Some((info.dli_fbase as usize, name))
}

/// The paths of all libraries.
pub(crate) fn paths() -> Vec<PathBuf> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
        // SAFETY: `paths` passes its vector, and nobody else holds it meanwhile; the name is
        // NUL-terminated.
        let (paths, name) =
            unsafe { (&mut *paths.cast::<Vec<PathBuf>>(), CStr::from_ptr((*info).dlpi_name)) };
        paths.push(OsStr::from_bytes(name.to_bytes()).into());
        0
    }

    let mut paths = Vec::new();
    // SAFETY: the callback takes the vector for what it is, and only during this call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_loaded() {
        // Sanitizers have functions of their own for many others.
        let function = libc::getppid as unsafe extern "C" fn() -> _;
        let (base, path) = object((function as *const ()).cast()).unwrap();
        assert!(base != 0 && paths().contains(&path), "{}", path.display());
    }
}
