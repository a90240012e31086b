//! Symbols of the TensorFlow that loaded this plugin, looked up at run time.
//!
//! The plug-in does not link against TensorFlow: one binary serves many versions, optional
//! functions are detected, and tests run without it. This module owns only the lookup. The modules
//! that need symbols declare tables of them with `symbol_table!`.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// The libraries of TensorFlow's wheels that hold the C API, most likely first.
#[cfg(target_os = "linux")]
const LIBRARIES: &[&str] = &["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"];
#[cfg(target_vendor = "apple")]
const LIBRARIES: &[&str] = &["libtensorflow_framework.2.dylib", "libtensorflow_cc.2.dylib"];
#[cfg(windows)]
const LIBRARIES: &[&str] = &[
    "_pywrap_tensorflow_common.dll",
    "_pywrap_tensorflow_internal.pyd",
    "tensorflow_framework.2.dll",
    "tensorflow.dll",
    // Python's functions are no global symbols on Windows.
    "python39.dll",
    "python310.dll",
    "python311.dll",
    "python312.dll",
    "python313.dll",
    "python314.dll",
];
#[cfg(not(any(target_os = "linux", target_vendor = "apple", windows)))]
const LIBRARIES: &[&str] = &["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"];

/// A function that every TensorFlow exports.
const VERSION: &CStr = c"TF_Version";

/// The address of an exported symbol of TensorFlow, or of anything the process exports globally.
///
/// A process may ask for the plug-in's report first and load TensorFlow later. So the list of
/// libraries is kept only if TensorFlow is among them.
pub(crate) fn find(name: &CStr) -> Option<*const c_void> {
    static LOADED: OnceLock<Vec<sys::Library>> = OnceLock::new();
    let search = |libraries: &[sys::Library], name| {
        libraries.iter().find_map(|library| sys::symbol(library, name))
    };
    if let Some(libraries) = LOADED.get() {
        return search(libraries, name);
    }
    let libraries: Vec<_> =
        LIBRARIES.iter().filter_map(|l| sys::loaded(l)).chain(sys::global()).collect();
    if search(&libraries, VERSION).is_some() {
        search(LOADED.get_or_init(|| libraries), name)
    } else {
        search(&libraries, name)
    }
}

/// The running TensorFlow's version, such as `2.21.0`. None without TensorFlow.
pub(crate) fn tensorflow_version() -> Option<&'static str> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(version) = KNOWN.get() {
        return Some(version);
    }
    let address = find(VERSION)?;
    // SAFETY: c_api.h declares `const char* TF_Version(void)`; the string is static and
    // NUL-terminated.
    let version = unsafe {
        let function: unsafe extern "C" fn() -> *const std::ffi::c_char =
            std::mem::transmute(address);
        CStr::from_ptr(function())
    };
    Some(KNOWN.get_or_init(|| version.to_string_lossy().into_owned()))
}

/// The error for a function that the running TensorFlow lacks.
pub(crate) fn missing(name: &str) -> crate::Error {
    let version = tensorflow_version().unwrap_or("of unknown version");
    crate::Error::Unimplemented(format!(
        "TensorFlow {version} does not export {name}, which this plugin needs"
    ))
}

/// Declares a table of C functions, loaded once:
///
/// ```ignore
/// symbol_table! {
///     /// Functions of tf_status.h.
///     pub(crate) struct StatusApi {
///         required { TF_NewStatus: unsafe extern "C" fn() -> *mut TF_Status }
///         optional {
///             TF_SetPayload: unsafe extern "C" fn(*mut TF_Status, *const c_char, *const c_char)
///         }
///     }
/// }
/// let api = StatusApi::get()?; // Err names the first missing required function
/// ```
///
/// A required function is a plain field, an optional one an `Option`. Types must be function
/// pointers.
macro_rules! symbol_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $table:ident {
            required { $($(#[$rmeta:meta])* $required:ident: $rtype:ty),* $(,)? }
            optional { $($(#[$ometa:meta])* $optional:ident: $otype:ty),* $(,)? }
        }
    ) => {
        $(#[$meta])*
        #[expect(non_snake_case, reason = "fields carry the names of the C functions")]
        #[derive(Debug, Clone, Copy)]
        $vis struct $table {
            $($(#[$rmeta])* $vis $required: $rtype,)*
            $($(#[$ometa])* $vis $optional: Option<$otype>,)*
        }

        impl $table {
            /// The table, or an error with the missing function's name. The first call looks the
            /// functions up.
            $vis fn get() -> $crate::Result<&'static Self> {
                static TABLE: std::sync::OnceLock<$crate::Result<$table>> =
                    std::sync::OnceLock::new();
                let load = || {
                    Ok($table {
                        $($required: {
                            const NAME: &str = concat!(stringify!($required), "\0");
                            match $crate::ffi::symbols::find_nul_terminated(NAME) {
                                // SAFETY: the symbol is TensorFlow's C function of this name, whose
                                // header gives this type; an address and a function pointer have
                                // the same size and representation.
                                Some(address) => unsafe {
                                    std::mem::transmute::<*const std::ffi::c_void, $rtype>(address)
                                },
                                None => return Err($crate::ffi::symbols::missing(stringify!(
                                    $required))),
                            }
                        },)*
                        $($optional: {
                            const NAME: &str = concat!(stringify!($optional), "\0");
                            // SAFETY: as for required functions.
                            $crate::ffi::symbols::find_nul_terminated(NAME).map(|address| unsafe {
                                std::mem::transmute::<*const std::ffi::c_void, $otype>(address)
                            })
                        },)*
                    })
                };
                TABLE.get_or_init(load).as_ref().map_err(Clone::clone)
            }
        }
    };
}
pub(crate) use symbol_table;

/// [`find`] for names from the macro, which end in NUL by construction.
pub(crate) fn find_nul_terminated(name: &'static str) -> Option<*const c_void> {
    find(CStr::from_bytes_with_nul(name.as_bytes()).expect("the macro appends the only NUL"))
}

#[cfg(unix)]
mod sys {
    use std::ffi::{CStr, c_void};

    pub type Library = libloading::os::unix::Library;

    /// A library that the process has loaded already, by its file name.
    ///
    /// dyld finds a library by its whole path. It finds one by `@rpath/` only in the directories
    /// that the asking library searches.
    #[cfg(target_vendor = "apple")]
    pub fn loaded(name: &str) -> Option<Library> {
        let paths = crate::sys::loaded::paths();
        let path = paths.iter().find(|path| path.file_name().is_some_and(|file| file == name))?;
        // SAFETY: as below.
        unsafe { Library::open(Some(path), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
    }

    /// A library that the process has loaded already, by its file name.
    #[cfg(not(target_vendor = "apple"))]
    pub fn loaded(name: &str) -> Option<Library> {
        // SAFETY: RTLD_NOLOAD loads nothing and runs no initializer; it only finds a library that
        // is loaded already.
        unsafe { Library::open(Some(name), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()
    }

    /// All symbols with global visibility.
    pub fn global() -> Option<Library> {
        Some(Library::this())
    }

    pub fn symbol(library: &Library, name: &CStr) -> Option<*const c_void> {
        // SAFETY: only the address is taken, and its user states its type. The library stays loaded
        // when this handle is closed, for the code that loaded the library holds it too.
        let symbol =
            unsafe { library.get_singlethreaded::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        let address = symbol.into_raw();
        (!address.is_null()).then_some(address.cast_const())
    }
}

#[cfg(windows)]
mod sys {
    use std::ffi::{CStr, c_void};

    pub type Library = libloading::os::windows::Library;

    /// A library that the process has loaded already.
    pub fn loaded(name: &str) -> Option<Library> {
        Library::open_already_loaded(name).ok()
    }

    /// The executable: Windows has no global symbol namespace.
    pub fn global() -> Option<Library> {
        Library::this().ok()
    }

    pub fn symbol(library: &Library, name: &CStr) -> Option<*const c_void> {
        // SAFETY: only the address is taken, and its user states its type. The library stays loaded
        // when this handle is closed, for the code that loaded the library holds it too.
        let symbol =
            unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) }.ok()?;
        symbol.into_raw().map(|f| f as *const c_void)
    }
}

#[cfg(test)]
mod tests {
    symbol_table! {
        struct Present {
            required { strlen: unsafe extern "C" fn(*const std::ffi::c_char) -> usize }
            optional { TF_NoSuchFunction: unsafe extern "C" fn() }
        }
    }

    symbol_table! {
        struct Absent {
            required { TF_NoSuchFunction: unsafe extern "C" fn() }
            optional {}
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_table_holds_what_the_process_exports() {
        let table = Present::get().unwrap();
        // SAFETY: C's strlen on a NUL-terminated string.
        assert_eq!(unsafe { (table.strlen)(c"four".as_ptr()) }, 4);
        assert!(table.TF_NoSuchFunction.is_none());
    }

    #[test]
    fn a_missing_function_is_named() {
        let error = Absent::get().map(|table| table.TF_NoSuchFunction).unwrap_err();
        assert!(error.to_string().contains("TF_NoSuchFunction"), "{error}");
    }
}
