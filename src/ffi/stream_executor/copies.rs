//! Copies and fills, of any offset and length.
//!
//! A copy from the host is staged before the call returns. A copy to the host is written by the completion thread; TensorFlow
//! keeps the destination alive until an event behind the copy is done. Copies between two of our devices, told by their
//! addresses, go through host memory.

use std::ffi::c_void;
use std::sync::Arc;

use super::stream::{device_of, upload_device_of};
use super::{address, opened};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::guard::guard_status;
use crate::ffi::plugin;
use crate::ffi::status::TF_Status;
use crate::ffi::sys::stream_executor::{SP_Device, SP_DeviceMemoryBase, SP_Stream};

/// A host destination on its way to the completion thread.
struct HostDestination {
    start: *mut u8,
    len: usize,
}
// SAFETY: the destination is written by the completion thread alone, until the copy's event is done.
unsafe impl Send for HostDestination {}

impl HostDestination {
    fn new(start: *mut c_void, size: u64) -> Result<Self> {
        if start.is_null() && size > 0 {
            return Err(Error::InvalidArgument("the host destination of a copy is null".into()));
        }
        Ok(Self { start: start.cast(), len: length(size)? })
    }

    /// Writes the copied bytes.
    fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len, "a read-back has the length that was asked for");
        if self.len > 0 {
            // SAFETY: TensorFlow promised `len` writable bytes until the copy's event is done; `bytes` is a mapping of ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, self.len) };
        }
    }
}

fn length(size: u64) -> Result<usize> {
    usize::try_from(size).map_err(|_| Error::InvalidArgument(format!("a copy of {size} bytes exceeds host memory")))
}

/// The host source of a copy.
///
/// # Safety
/// `source` must point to `size` readable bytes for the borrow, or `size` be 0.
unsafe fn host_source<'a>(source: *const c_void, size: u64) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    if source.is_null() {
        return Err(Error::InvalidArgument("the host source of a copy is null".into()));
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(source.cast(), length(size)?) })
}

/// The device whose memory `address` is; `default` for the addresses of nobody, whose copy fails with a message.
fn owner(address: u64, default: &Arc<Device>) -> &Arc<Device> {
    if default.owns(address) {
        return default;
    }
    plugin::get().devices().iter().map(|d| &d.device).find(|d| d.owns(address)).unwrap_or(default)
}

/// Copies between the memory of any devices. The work ends up behind `device`'s queue and in front of later work of the
/// destination's device that waits for `device`.
fn copy(device: &Arc<Device>, to: u64, from: u64, size: u64) -> Result<()> {
    if size == 0 {
        return Ok(());
    }
    let (source, destination) = (owner(from, device), owner(to, device));
    if Arc::ptr_eq(source, destination) {
        source.copy(to, from, size)?;
        return if Arc::ptr_eq(source, device) { Ok(()) } else { source.synchronize() };
    }
    if Arc::ptr_eq(source, device) {
        let destination = destination.clone();
        return source.download_with(from, size, move |bytes| {
            // The upload is recorded before the source's serial counts as done, so whoever waits for that comes behind it.
            if let Err(e) = bytes.and_then(|bytes| destination.upload(to, bytes)) {
                destination.raise(e.context("copy between devices"));
            }
        });
    }
    // The source's queue is not the caller's: nothing orders later work behind it, so the copy happens now.
    let mut bytes = vec![0; length(size)?];
    source.download(from, &mut bytes)?;
    destination.upload(to, &bytes)
}

pub(super) unsafe extern "C" fn memcpy_dtoh(
    _: *const SP_Device,
    stream: SP_Stream,
    host: *mut c_void,
    source: *const SP_DeviceMemoryBase,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "memcpy_dtoh", || {
        // SAFETY: the stream is alive, the struct is TensorFlow's.
        let (device, from) = unsafe { (device_of(stream)?, address(source)?) };
        if size == 0 {
            return Ok(());
        }
        let host = HostDestination::new(host, size)?;
        device.download_with(from, size, move |bytes| match bytes {
            Ok(bytes) => host.fill(bytes),
            Err(e) => device.raise(e.context("copy to the host")),
        })
    });
}

pub(super) unsafe extern "C" fn memcpy_htod(
    _: *const SP_Device,
    stream: SP_Stream,
    destination: *mut SP_DeviceMemoryBase,
    host: *const c_void,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "memcpy_htod", || {
        // SAFETY: the stream is alive, the struct is TensorFlow's, the source holds `size` bytes.
        unsafe {
            let (device, to) = (upload_device_of(stream)?, address(destination)?);
            device.upload(to, host_source(host, size)?)
        }
    });
}

pub(super) unsafe extern "C" fn memcpy_dtod(
    _: *const SP_Device,
    stream: SP_Stream,
    destination: *mut SP_DeviceMemoryBase,
    source: *const SP_DeviceMemoryBase,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "memcpy_dtod", || {
        // SAFETY: the stream is alive, the structs are TensorFlow's.
        unsafe { copy(device_of(stream)?, address(destination)?, address(source)?, size) }
    });
}

pub(super) unsafe extern "C" fn sync_memcpy_dtoh(
    device: *const SP_Device,
    host: *mut c_void,
    source: *const SP_DeviceMemoryBase,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "sync_memcpy_dtoh", || {
        // SAFETY: TensorFlow passes its structs.
        let (device, from) = unsafe { (&opened(device)?.device, address(source)?) };
        if size == 0 {
            return Ok(());
        }
        let host = HostDestination::new(host, size)?;
        let (sender, receiver) = crossbeam_channel::bounded(1);
        device.download_with(from, size, move |bytes| {
            let _ = sender.send(bytes.map(|bytes| host.fill(bytes)));
        })?;
        receiver.recv().map_err(|e| Error::Internal(format!("the completion thread is gone: {e}")))??;
        device.check()
    });
}

pub(super) unsafe extern "C" fn sync_memcpy_htod(
    device: *const SP_Device,
    destination: *mut SP_DeviceMemoryBase,
    host: *const c_void,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "sync_memcpy_htod", || {
        // SAFETY: TensorFlow passes its structs and `size` readable bytes.
        unsafe {
            let (device, to) = (&opened(device)?.device, address(destination)?);
            device.upload(to, host_source(host, size)?)?;
            device.synchronize()
        }
    });
}

pub(super) unsafe extern "C" fn sync_memcpy_dtod(
    device: *const SP_Device,
    destination: *mut SP_DeviceMemoryBase,
    source: *const SP_DeviceMemoryBase,
    size: u64,
    status: *mut TF_Status,
) {
    guard_status(status, "sync_memcpy_dtod", || {
        // SAFETY: TensorFlow passes its structs.
        let (device, to, from) = unsafe { (&opened(device)?.device, address(destination)?, address(source)?) };
        copy(device, to, from, size)?;
        device.synchronize()?;
        owner(to, device).synchronize()
    });
}

pub(super) unsafe extern "C" fn mem_zero(
    _: *const SP_Device,
    stream: SP_Stream,
    location: *mut SP_DeviceMemoryBase,
    size: u64,
    status: *mut TF_Status,
) {
    // SAFETY: the stream is alive, the struct is TensorFlow's.
    guard_status(status, "mem_zero", || unsafe { fill(stream, location, 0, size) });
}

pub(super) unsafe extern "C" fn memset(
    _: *const SP_Device,
    stream: SP_Stream,
    location: *mut SP_DeviceMemoryBase,
    pattern: u8,
    size: u64,
    status: *mut TF_Status,
) {
    // SAFETY: the stream is alive, the struct is TensorFlow's.
    guard_status(status, "memset", || unsafe { fill(stream, location, u32::from_ne_bytes([pattern; 4]), size) });
}

pub(super) unsafe extern "C" fn memset32(
    _: *const SP_Device,
    stream: SP_Stream,
    location: *mut SP_DeviceMemoryBase,
    pattern: u32,
    size: u64,
    status: *mut TF_Status,
) {
    // SAFETY: the stream is alive, the struct is TensorFlow's.
    guard_status(status, "memset32", || unsafe { fill(stream, location, pattern, size) });
}

/// Fills memory of the stream's device.
///
/// # Safety
/// `stream` must be alive, `location` a struct of TensorFlow's.
unsafe fn fill(stream: SP_Stream, location: *mut SP_DeviceMemoryBase, pattern: u32, size: u64) -> Result<()> {
    // SAFETY: the caller's contract.
    let (device, at) = unsafe { (device_of(stream)?, address(location)?) };
    device.fill(at, size, pattern)
}
