//! A second copy of the plug-in in one process, for instance one from a wheel and one from
//! `TF_PLUGGABLE_DEVICE_LIBRARY_PATH`.
//!
//! TensorFlow ends the process if a platform is registered twice, and if a plug-in reports an
//! error. So the second copy registers a platform of another name that has no device.

use std::ffi::CStr;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::ffi::device_type;
use crate::sys::loaded;

/// The name of this copy's platform and of its device type.
pub(super) fn device_type() -> &'static CStr {
    static FIRST: OnceLock<bool> = OnceLock::new();
    if *FIRST.get_or_init(|| check().is_ok()) {
        device_type::get().c_name()
    } else {
        c"WGPU_SECOND_COPY"
    }
}

/// An error if this process has loaded another file with this library's name.
pub(super) fn check() -> Result<()> {
    if let Some((_, this)) = loaded::object((check as fn() -> Result<()> as *const ()).cast())
        && let Some(other) = loaded::paths()
            .iter()
            .find(|path| path.file_name() == this.file_name() && **path != this)
    {
        return Err(Error::FailedPrecondition(format!(
            "tensorflow-wgpu is loaded twice: {} is in use, {} is ignored; unset \
             TF_PLUGGABLE_DEVICE_LIBRARY_PATH, or uninstall the package tensorflow-wgpu",
            other.display(),
            this.display()
        )));
    }
    Ok(())
}
