//! The libraries of this process.

pub(crate) use system::{object, paths};

#[cfg(unix)]
mod system {
    #[cfg(not(target_vendor = "apple"))]
    use std::ffi::c_int;
    use std::ffi::{CStr, OsStr, c_char, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    /// Base and path of the library or program that holds an address.
    pub(crate) fn object(address: *const c_void) -> Option<(usize, PathBuf)> {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be passed; `info` has room, and zeros are valid in it.
        let info =
            unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) }?;
        // SAFETY: dladdr returns the NUL-terminated name of a loaded object, and the objects that
        // are looked up stay loaded.
        Some((info.dli_fbase as usize, unsafe { path(info.dli_fname) }))
    }

    /// The path for a name; empty for null.
    ///
    /// # Safety
    /// `name` must be null or NUL-terminated.
    unsafe fn path(name: *const c_char) -> PathBuf {
        if name.is_null() {
            return PathBuf::new();
        }
        // SAFETY: the caller's contract.
        OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()).into()
    }

    /// The paths of all libraries.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn paths() -> Vec<PathBuf> {
        unsafe extern "C" fn add(
            info: *mut libc::dl_phdr_info,
            _: usize,
            paths: *mut c_void,
        ) -> c_int {
            // SAFETY: `paths` passes its vector, to which there is no other reference meanwhile;
            // the name is NUL-terminated.
            let (paths, name) =
                unsafe { (&mut *paths.cast::<Vec<PathBuf>>(), path((*info).dlpi_name)) };
            paths.push(name);
            0
        }

        let mut paths = Vec::new();
        // SAFETY: the callback receives a pointer of the right type, and only during this call.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
        paths
    }

    /// The paths of all libraries.
    #[cfg(target_vendor = "apple")]
    #[expect(deprecated, reason = "two functions of <mach-o/dyld.h> need no other crate")]
    pub(crate) fn paths() -> Vec<PathBuf> {
        // SAFETY: dyld returns null for an index without a library, else a NUL-terminated name that
        // lives as long as the library. Libraries that Python has imported are not unloaded.
        unsafe {
            (0..libc::_dyld_image_count()).map(|i| path(libc::_dyld_get_image_name(i))).collect()
        }
    }
}

#[cfg(windows)]
mod system {
    use std::ffi::{OsString, c_void};
    use std::os::windows::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::ptr::null_mut;

    use windows_sys::Win32::Foundation::HMODULE;
    use windows_sys::Win32::System::LibraryLoader::{
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
        GetModuleFileNameW, GetModuleHandleExW,
    };
    use windows_sys::Win32::System::ProcessStatus::K32EnumProcessModules;
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    /// Base and path of the library or program that holds an address.
    pub(crate) fn object(address: *const c_void) -> Option<(usize, PathBuf)> {
        let mut module: HMODULE = null_mut();
        let by_address =
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
        // SAFETY: with this flag the name is an address, and any address may be passed; the handle
        // is written and needs no release.
        let found = unsafe { GetModuleHandleExW(by_address, address.cast(), &raw mut module) } != 0;
        found.then(|| (module as usize, path(module)))
    }

    /// The paths of all libraries.
    pub(crate) fn paths() -> Vec<PathBuf> {
        let mut modules: Vec<HMODULE> = vec![null_mut(); 1024];
        loop {
            let (bytes, mut needed) = (size_of_val(&*modules) as u32, 0);
            // SAFETY: the handles have room for `bytes` bytes, and the needed size is written.
            let listed = unsafe {
                K32EnumProcessModules(
                    GetCurrentProcess(),
                    modules.as_mut_ptr(),
                    bytes,
                    &raw mut needed,
                )
            };
            if listed == 0 {
                return Vec::new();
            }
            let fits = needed <= bytes;
            modules.resize(needed as usize / size_of::<HMODULE>(), null_mut());
            if fits {
                return modules.into_iter().map(path).collect();
            }
        }
    }

    /// The file of a library. The part beyond Windows's longest path is cut off.
    fn path(module: HMODULE) -> PathBuf {
        let mut name = vec![0; 1 << 15];
        // SAFETY: the name has room for `name.len()` units; an invalid handle gives no name.
        let len = unsafe { GetModuleFileNameW(module, name.as_mut_ptr(), name.len() as u32) };
        OsString::from_wide(&name[..len as usize]).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_loaded() {
        let function = this_program_is_loaded as fn();
        let (base, path) = object((function as *const ()).cast()).unwrap();
        assert!(base != 0 && path.file_stem() == std::env::current_exe().unwrap().file_stem());
    }

    #[cfg(unix)]
    #[test]
    fn the_c_library_is_loaded() {
        // Sanitizers replace many other functions with their own.
        let function = libc::getppid as unsafe extern "C" fn() -> _;
        let (base, path) = object((function as *const ()).cast()).unwrap();
        assert!(base != 0 && paths().contains(&path), "{}", path.display());
    }

    #[cfg(windows)]
    #[test]
    fn the_system_is_loaded() {
        let names: Vec<String> = paths()
            .iter()
            .filter_map(|p| Some(p.file_name()?.to_string_lossy().to_ascii_lowercase()))
            .collect();
        assert!(names.iter().any(|name| name == "kernel32.dll"), "{names:?}");
    }
}
