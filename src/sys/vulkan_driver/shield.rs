//! Opens the drivers that clash with TensorFlow's symbols, each bound to its own dependencies and
//! to the process's allocator.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::elf;
use super::manifests::{self, Lookup};
use crate::error::{Error, Result};
use crate::sys::loaded::{object, paths};

/// The variable that switches the shield.
pub(super) const SWITCH: &str = "TF_WGPU_DRIVER_SHIELD";

/// Libraries of which TensorFlow exports versions of its own.
const CLASHING: [&str; 3] = ["libLLVM", "libz.so", "libzstd.so"];

/// Functions of an allocator. A replacement allocator defines some of them.
const ALLOCATOR: [&CStr; 32] = [
    c"malloc",
    c"free",
    c"calloc",
    c"realloc",
    c"reallocarray",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
    c"cfree",
    // C++'s new and delete: plain, for arrays, sized, non-throwing, aligned.
    c"_Znwm",
    c"_Znam",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

pub(super) fn preload(lookup: Lookup<'_>) -> Result<()> {
    if lookup(SWITCH).is_some_and(|v| v.eq_ignore_ascii_case("off")) {
        log::info!("Vulkan drivers are loaded without a shield, as {SWITCH} asks");
        return Ok(());
    }
    let directories = directories(lookup);
    for driver in manifests::drivers(lookup) {
        if !clashes(&driver, &directories) {
            continue;
        }
        match Allocator::of_process() {
            None => open(driver.as_os_str().as_bytes(), &driver),
            Some(allocator) => allocator.open_with(&driver)?,
        }
    }
    Ok(())
}

/// Whether a driver needs libraries that TensorFlow exports too. A driver that is not found may.
fn clashes(driver: &Path, directories: &[PathBuf]) -> bool {
    let found = if driver.components().count() > 1 {
        Some(driver.to_owned())
    } else {
        directories.iter().map(|directory| directory.join(driver)).find(|path| path.is_file())
    };
    let Some(path) = found else { return true };
    let Ok(file) = File::open(&path) else { return false };
    let needed = elf::needed(&|at, len| {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while let Ok(n @ 1..) = file.read_at(&mut bytes[filled..], at.saturating_add(filled as u64))
        {
            filled += n;
        }
        bytes.truncate(filled);
        bytes
    });
    needed.is_some_and(|names| {
        names.iter().any(|name| CLASHING.iter().any(|start| name.starts_with(start)))
    })
}

/// The directories where the system looks for a library without a directory, as far as they are
/// known: drivers lie beside libc.
fn directories(lookup: Lookup<'_>) -> Vec<PathBuf> {
    let own = lookup("LD_LIBRARY_PATH").unwrap_or_default();
    let libc = object(symbol(c"gnu_get_libc_version"))
        .and_then(|(_, path)| Some(path.parent()?.to_owned()));
    let usual = ["/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    std::env::split_paths(&own).chain(libc).chain(usual).collect()
}

/// An allocator that replaces libc's in this process.
struct Allocator {
    functions: Vec<(&'static str, u64)>,
    path: PathBuf,
}

impl Allocator {
    /// The allocator of this process. None if `malloc` and `free` are libc's.
    fn of_process() -> Option<Self> {
        let (libc, _) = object(symbol(c"gnu_get_libc_version"))?;
        let others: Vec<_> = [c"malloc", c"free"]
            .into_iter()
            .filter_map(|name| object(symbol(name)))
            .filter(|o| o.0 != libc)
            .collect();
        let path = others.first()?.1.clone();
        let functions = ALLOCATOR
            .into_iter()
            .map(|name| (name, symbol(name)))
            .filter(|(_, address)| {
                object(*address).is_some_and(|o| others.iter().any(|other| other.0 == o.0))
            })
            .map(|(name, address)| (name.to_str().expect("it is ASCII"), address as u64))
            .collect();
        Some(Self { functions, path })
    }

    /// Opens a driver behind a library that holds these functions.
    fn open_with(&self, driver: &Path) -> Result<()> {
        let trouble = |why: String| {
            Error::Unavailable(format!(
                "the Vulkan driver {} would bind to TensorFlow's LLVM, and cannot be shielded \
                 beside the malloc of {}: {why}; take that from LD_PRELOAD, or leave the driver \
                 out with VK_LOADER_DRIVERS_DISABLE",
                driver.display(),
                self.path.display()
            ))
        };
        if !absolute_symbols_work() {
            return Err(trouble("the C library is older than 2.28".into()));
        }
        let file = memory_file(&elf::leader(driver.as_os_str().as_bytes(), &self.functions))
            .map_err(|e| trouble(e.to_string()))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if !Path::new(&path).exists() {
            return Err(trouble("/proc is missing".into()));
        }
        open(path.as_bytes(), driver);
        // Never closed: the dynamic linker knows the library by this descriptor's path, which
        // another file could get.
        std::mem::forget(file);
        Ok(())
    }
}

/// Whether the dynamic linker leaves absolute symbols where they are.
fn absolute_symbols_work() -> bool {
    // SAFETY: it returns a static NUL-terminated string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(2), Some(28))
}

fn memory_file(contents: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"tensorflow-wgpu".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(contents)?;
    Ok(file)
}

/// Opens the library `name` so that it and its dependencies prefer each other's symbols. Never
/// closed: the loader, and threads of the driver, may live as long as the process. A library that
/// does not open is left to the loader.
fn open(name: &[u8], driver: &Path) {
    // No path contains a NUL.
    let Ok(name) = CString::new(name) else { return };
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let mut function: Open = libc::dlopen;
    // SAFETY: libc is loaded and stays. Its own dlopen has this type. Sanitizers put their own
    // dlopen in front, which refuses deep binding since that bypasses their allocator; here it does
    // not.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let own = if libc.is_null() { libc } else { libc::dlsym(libc, c"dlopen".as_ptr()) };
        if !own.is_null() {
            function = std::mem::transmute::<*mut c_void, Open>(own);
        }
    }
    // SAFETY: this runs the initializers of a driver that the Vulkan loader is about to load
    // anyway. dlerror returns null or a NUL-terminated string that is valid until this thread's
    // next call.
    unsafe {
        if function(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND)
            .is_null()
        {
            let error = libc::dlerror();
            let why = if error.is_null() {
                "no reason given".into()
            } else {
                CStr::from_ptr(error).to_string_lossy()
            };
            log::debug!("Vulkan driver {} is not loaded: {why}", driver.display());
        }
    }
}

/// The address of the function to which this process's libraries bind a name, or null.
///
/// In a program that is not position-independent, such as Debian's Python, all libraries get the
/// address of the program's own jump to the function. The function is then that of the first
/// library that defines one.
fn symbol(name: &CStr) -> *const c_void {
    // SAFETY: the name is NUL-terminated; the result is only compared.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !is_a_jump(address) {
        return address;
    }
    paths().into_iter().find_map(|path| defined(&path, name)).unwrap_or(address)
}

/// Whether an object has this address for a symbol that another object defines.
fn is_a_jump(address: *const c_void) -> bool {
    /// Makes `dladdr1` return the symbol's entry.
    const SYMENT: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            entry: *mut *const libc::Elf64_Sym,
            what: c_int,
        ) -> c_int;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut entry = std::ptr::null();
    // SAFETY: any address may be passed; both results have room. An entry lies in an object that
    // stays loaded.
    unsafe {
        dladdr1(address, info.as_mut_ptr(), &raw mut entry, SYMENT) != 0
            && !entry.is_null()
            && (*entry).st_shndx == 0
    }
}

/// A function that a loaded library itself defines.
fn defined(path: &Path, name: &CStr) -> Option<*const c_void> {
    // The program has no path here, and is the object with the jump.
    if path.as_os_str().is_empty() {
        return None;
    }
    let library = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: nothing is loaded, and the result is only compared; the reference is given back.
    let address = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let address = libc::dlsym(handle, name.as_ptr());
        libc::dlclose(handle);
        address.cast_const()
    };
    object(address).is_some_and(|(_, of)| of == path).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_do_not_load_are_ignored() {
        let directory =
            std::env::temp_dir().join(format!("tensorflow-wgpu-unloadable-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let manifest = directory.join("bad.json");
        for library in ["./not-there.so", "not-there.so", "./bad.json", "nul\\u0000.so"] {
            std::fs::write(&manifest, format!(r#"{{"ICD": {{"library_path": "{library}"}}}}"#))
                .unwrap();
            assert_eq!(
                preload(&|name| (name == "VK_DRIVER_FILES").then(|| manifest.clone().into())),
                Ok(())
            );
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// A library behind a leader takes the leader's functions in place of libc's.
    #[test]
    fn a_leader_s_functions_win() {
        extern "C" fn marked(_: usize) -> *mut c_void {
            std::ptr::without_provenance_mut(0x5eed)
        }
        let functions =
            vec![("malloc", marked as extern "C" fn(usize) -> *mut c_void as usize as u64)];
        let allocator = Allocator { functions, path: "test".into() };
        let image = elf::leader(b"libm.so.6", &allocator.functions);
        let file = memory_file(&image).unwrap();
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        // SAFETY: the library holds only data, and a pointer to `marked`, which has the type of
        // malloc.
        let taken = unsafe {
            let library = libc::dlopen(
                path.as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND,
            );
            assert!(!library.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
            libc::dlsym(library, c"malloc".as_ptr())
        };
        assert_eq!(taken as usize, marked as extern "C" fn(usize) -> *mut c_void as usize);
        assert!(Allocator::of_process().is_none(), "the tests run with libc's malloc");
    }
}
