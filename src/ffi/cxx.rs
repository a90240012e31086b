//! Values that cross into TensorFlow's C++ functions: returned statuses and strings, and references
//! to tensors.
//!
//! C++ returns a value through a hidden pointer if the value cannot be copied bytewise. Rust uses
//! that pointer for every aggregate that does not fit into registers. So the types here have
//! padding; C++ writes only the part in front of it.

use std::ffi::{CStr, c_void};

use crate::error::Result;
use crate::ffi::abi::kernel::TF_Tensor;
use crate::ffi::status::{Status, TF_Status};
use crate::ffi::symbols;

/// The representation of an OK `absl::Status`.
const OK_STATUS: usize = 1;

/// An `absl::Status` as C++ returns it.
#[repr(C)]
pub(crate) struct ReturnedStatus {
    word: usize,
    padding: [usize; 7],
}

impl ReturnedStatus {
    /// Takes the status over as a result; `scratch` must be OK, and is OK again afterwards.
    pub fn take(self, scratch: &Status) -> Result<()> {
        if self.word == OK_STATUS {
            return Ok(());
        }
        // SAFETY: a TF_Status is an absl::Status and nothing else; this one is OK, which owns
        // nothing, so overwriting its word moves the returned one in. The C API frees it with the
        // next assignment.
        unsafe { *scratch.as_ptr().cast::<usize>() = self.word };
        scratch.take()
    }
}

/// A `std::string` of libstdc++ as C++ returns it. A string of at most fifteen bytes holds its
/// bytes itself. Its pointer to them is stale, for the value has moved since.
#[repr(C)]
pub(crate) struct ReturnedString {
    data: *mut u8,
    len: usize,
    local: [u8; 16],
    padding: [usize; 4],
}

impl ReturnedString {
    /// Returns the text, and frees the memory that the string owns.
    ///
    /// # Safety
    /// The value must come from a function that returns a `std::string` of libstdc++ that was never
    /// longer than it is now.
    pub unsafe fn take(self) -> String {
        if self.len < self.local.len() {
            return String::from_utf8_lossy(&self.local[..self.len]).into_owned();
        }
        // SAFETY: a longer string owns its bytes, which `operator delete` frees; every C++ program
        // has that function.
        unsafe {
            let text = String::from_utf8_lossy(std::slice::from_raw_parts(self.data, self.len))
                .into_owned();
            if let Some(delete) = symbols::find(OPERATOR_DELETE) {
                let delete =
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut u8)>(delete);
                delete(self.data);
            }
            text
        }
    }
}

/// A `std::string` of libstdc++ of at most fifteen bytes. It points to itself, so it must not move
/// once it is in use.
#[repr(C)]
pub(crate) struct ShortString {
    data: *mut u8,
    len: usize,
    local: [u8; 16],
}

impl ShortString {
    /// The empty string, not in use yet.
    pub const fn empty() -> Self {
        Self { data: std::ptr::null_mut(), len: 0, local: [0; 16] }
    }

    /// Sets the text in place.
    pub fn set(&mut self, text: &[u8]) {
        self.local[..text.len()].copy_from_slice(text);
        self.len = text.len();
        self.data = self.local.as_mut_ptr();
    }
}

/// `operator delete(void*)`.
const OPERATOR_DELETE: &CStr = c"_ZdlPv";

/// Whether a version is a release or a release candidate of the series `major.minor.`. Nightly and
/// vendors' builds are not, and their classes may have another layout.
pub(crate) fn is_release(version: &str, series: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    version.strip_prefix(series).is_some_and(|patch| match patch.split_once("-rc") {
        Some((patch, candidate)) => number(patch) && number(candidate),
        None => number(patch),
    })
}

/// `TF_TensorFromTensor`: a new TF_Tensor for a `tensorflow::Tensor`.
pub(crate) type TensorToC = unsafe extern "C" fn(*const u8, *mut TF_Status) -> *mut TF_Tensor;
/// `TF_TensorToTensor`: assigns to a `tensorflow::Tensor`, which gives its old buffer back.
pub(crate) type TensorFromC = unsafe extern "C" fn(*const TF_Tensor, *mut u8) -> ReturnedStatus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_returned_takes_the_hidden_pointer() {
        assert!(size_of::<ReturnedStatus>() > 4 * size_of::<usize>());
        assert_eq!(std::mem::offset_of!(ReturnedStatus, word), 0);
        assert!(size_of::<ReturnedString>() > 4 * size_of::<usize>());
        assert_eq!(std::mem::offset_of!(ReturnedString, local), 2 * size_of::<usize>());
    }

    #[test]
    fn releases_are_told_from_other_builds() {
        for version in ["2.21.0", "2.21.10", "2.21.0-rc1"] {
            assert!(is_release(version, "2.21."), "{version}");
        }
        for version in [
            "2.21.0-dev20260101",
            "2.21.0+nv1",
            "2.21.",
            "2.21.0-rc",
            "2.2.1",
            "12.21.0",
            "2.21.0.post1",
            "",
        ] {
            assert!(!is_release(version, "2.21."), "{version}");
        }
    }

    #[test]
    fn a_short_string_is_read_from_itself() {
        let mut local = [0; 16];
        local[..5].copy_from_slice(b"[2,?]");
        let moved = ReturnedString { data: std::ptr::null_mut(), len: 5, local, padding: [0; 4] };
        // SAFETY: a short string, as libstdc++ lays it out.
        assert_eq!(unsafe { moved.take() }, "[2,?]");
    }
}
