//! TF_Status: TensorFlow's error object, and its translation to and from [`Error`].

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::ffi::symbols::symbol_table;

/// TensorFlow's opaque status.
#[repr(C)]
pub struct TF_Status {
    opaque: [u8; 0],
}

/// The codes of `TF_Code` that are no error or have a variant of [`Error`].
pub(crate) const TF_OK: c_int = 0;
const TF_INVALID_ARGUMENT: c_int = 3;
const TF_NOT_FOUND: c_int = 5;
const TF_RESOURCE_EXHAUSTED: c_int = 8;
const TF_FAILED_PRECONDITION: c_int = 9;
const TF_OUT_OF_RANGE: c_int = 11;
const TF_UNIMPLEMENTED: c_int = 12;
const TF_INTERNAL: c_int = 13;
const TF_UNAVAILABLE: c_int = 14;

symbol_table! {
    /// Functions of tf_status.h.
    pub(crate) struct StatusApi {
        required {
            TF_NewStatus: unsafe extern "C" fn() -> *mut TF_Status,
            TF_DeleteStatus: unsafe extern "C" fn(*mut TF_Status),
            TF_SetStatus: unsafe extern "C" fn(*mut TF_Status, c_int, *const c_char),
            TF_GetCode: unsafe extern "C" fn(*const TF_Status) -> c_int,
            TF_Message: unsafe extern "C" fn(*const TF_Status) -> *const c_char,
        }
        optional {}
    }
}

/// The `TF_Code` of an error.
pub(crate) const fn code(error: &Error) -> c_int {
    match error {
        Error::InvalidArgument(_) => TF_INVALID_ARGUMENT,
        Error::ResourceExhausted(_) => TF_RESOURCE_EXHAUSTED,
        Error::Unimplemented(_) => TF_UNIMPLEMENTED,
        Error::FailedPrecondition(_) => TF_FAILED_PRECONDITION,
        Error::OutOfRange(_) => TF_OUT_OF_RANGE,
        Error::NotFound(_) => TF_NOT_FOUND,
        Error::Unavailable(_) => TF_UNAVAILABLE,
        Error::Internal(_) => TF_INTERNAL,
    }
}

/// The error of a `TF_Code` other than `TF_OK`. The message of a code without a variant keeps the
/// code's number.
pub(crate) fn error(code: c_int, message: String) -> Error {
    match code {
        TF_INVALID_ARGUMENT => Error::InvalidArgument(message),
        TF_RESOURCE_EXHAUSTED => Error::ResourceExhausted(message),
        TF_UNIMPLEMENTED => Error::Unimplemented(message),
        TF_FAILED_PRECONDITION => Error::FailedPrecondition(message),
        TF_OUT_OF_RANGE => Error::OutOfRange(message),
        TF_NOT_FOUND => Error::NotFound(message),
        TF_UNAVAILABLE => Error::Unavailable(message),
        TF_INTERNAL => Error::Internal(message),
        other => Error::Internal(format!("{message} (TF_Code {other})")),
    }
}

/// Sets `status` to an error. If the status is null, or TensorFlow lacks TF_SetStatus, the error is
/// logged.
pub(crate) fn set(status: *mut TF_Status, error: &Error) {
    let message = CString::new(error.to_string().replace('\0', " ")).expect("NULs are replaced");
    match StatusApi::get() {
        // SAFETY: a non-null status that TensorFlow passed to a callback is valid for the call; the
        // message is copied.
        Ok(api) if !status.is_null() => unsafe {
            (api.TF_SetStatus)(status, code(error), message.as_ptr())
        },
        Ok(_) => log::error!("{error}"),
        Err(missing) => log::error!("{error} ({missing})"),
    }
}

/// The error in `status`, if any.
///
/// # Safety
/// `status` must be a valid TF_Status.
pub(crate) unsafe fn check(status: *const TF_Status) -> Result<()> {
    let api = StatusApi::get()?;
    // SAFETY: the caller vouches for `status`. TF_Message's string lives as long as the status, and
    // is copied here.
    unsafe {
        match (api.TF_GetCode)(status) {
            TF_OK => Ok(()),
            code => Err(error(
                code,
                CStr::from_ptr((api.TF_Message)(status)).to_string_lossy().into_owned(),
            )),
        }
    }
}

/// A status of our own, for calls of TensorFlow's functions.
#[derive(Debug)]
pub(crate) struct Status(NonNull<TF_Status>);

impl std::fmt::Debug for TF_Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TF_Status")
    }
}

impl Status {
    /// A new status, OK.
    pub fn new() -> Result<Self> {
        let api = StatusApi::get()?;
        // SAFETY: TF_NewStatus takes nothing and returns an owned status.
        let status = unsafe { (api.TF_NewStatus)() };
        NonNull::new(status)
            .map(Self)
            .ok_or_else(|| Error::ResourceExhausted("TF_NewStatus returned null".into()))
    }

    /// The pointer for C; valid while `self` lives.
    pub const fn as_ptr(&self) -> *mut TF_Status {
        self.0.as_ptr()
    }

    /// The error that the last call put into the status, if any.
    pub fn result(&self) -> Result<()> {
        // SAFETY: the status is ours and alive.
        unsafe { check(self.as_ptr()) }
    }

    /// Like [`Status::result`], and resets the status to OK, which some functions require.
    pub fn take(&self) -> Result<()> {
        let result = self.result();
        if result.is_err() {
            let api = StatusApi::get()?;
            // SAFETY: the status is ours and alive.
            unsafe { (api.TF_SetStatus)(self.as_ptr(), TF_OK, c"".as_ptr()) };
        }
        result
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if let Ok(api) = StatusApi::get() {
            // SAFETY: TF_NewStatus returned the status, and it is deleted once.
            unsafe { (api.TF_DeleteStatus)(self.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_errors_are_inverse() {
        for number in [3, 5, 8, 9, 11, 12, 13, 14] {
            assert_eq!(code(&error(number, "m".into())), number);
            assert_eq!(error(number, "m".into()).to_string(), "m");
        }
        assert_eq!(error(1, "stopped".into()), Error::Internal("stopped (TF_Code 1)".into()));
    }
}
