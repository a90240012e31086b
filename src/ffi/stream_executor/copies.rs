//! Copies and fills of any offset and length.
//!
//! The bytes of a copy from the host are read before the call returns. The completion thread
//! writes the bytes of a copy to the host; TensorFlow keeps the destination alive until an event
//! behind the copy is done. Copies between two of our devices, which their addresses tell apart, go
//! through host memory.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::stream::{device_of, sender_of, upload_device_of};
use super::{address, opened};
use crate::device::{Device, process};
use crate::error::{Error, Result};
use crate::ffi::abi::stream_executor::{SP_Device, SP_DeviceMemoryBase, SP_Stream};
use crate::ffi::guard::guard_status;
use crate::ffi::plugin;
use crate::ffi::status::TF_Status;

/// A host destination that is passed to the completion thread.
struct HostDestination {
    start: *mut u8,
    len: usize,
}
// SAFETY: only the completion thread writes the destination, until the copy's event is done.
unsafe impl Send for HostDestination {}

impl HostDestination {
    fn new(start: *mut c_void, size: u64) -> Result<Self> {
        if start.is_null() && size > 0 {
            return Err(Error::InvalidArgument("the host destination of a copy is null".into()));
        }
        Ok(Self { start: start.cast(), len: length(size)? })
    }

    /// Writes the copied bytes to `at`. If they are missing, writes a pattern that is no plausible
    /// value: TensorFlow treats the copy as done in any case, and uninitialized memory may hold a
    /// plausible value.
    fn fill(&self, at: u64, len: u64, bytes: Option<&[u8]>) {
        let in_range = at.checked_add(len).is_some_and(|end| end <= self.len as u64);
        assert!(
            in_range && bytes.is_none_or(|b| b.len() as u64 == len),
            "a read-back has the length that was asked for"
        );
        if len == 0 {
            return;
        }
        // SAFETY: TensorFlow promised `self.len` writable bytes until the copy's event is done, and
        // the range lies within them; `bytes` is one of our mappings.
        unsafe {
            let start = self.start.add(at as usize);
            match bytes {
                Some(bytes) => std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, len as usize),
                None => std::ptr::write_bytes(start, MISSING, len as usize),
            }
        }
    }

    /// Writes the part at `at`, and passes its error on. After a missing part, the whole rest of
    /// the destination is filled with the pattern.
    fn receive(&self, at: u64, part: Result<&[u8]>) -> Result<()> {
        match part {
            Ok(bytes) => self.fill(at, bytes.len() as u64, Some(bytes)),
            Err(e) => {
                self.fill(at, self.len as u64 - at, None);
                return Err(e);
            }
        }
        Ok(())
    }
}

/// The pattern for bytes that could not be copied: NaN in every floating-point type, -1 as an
/// integer.
const MISSING: u8 = 0xff;

fn length(size: u64) -> Result<usize> {
    usize::try_from(size)
        .map_err(|_| Error::InvalidArgument(format!("a copy of {size} bytes exceeds host memory")))
}

/// The host source of a copy.
///
/// # Safety
/// `source` must point to `size` bytes that are readable during the borrow, or `size` must be 0.
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

/// The device that owns the memory at `address`. For an address without an owner it is `default`,
/// with which the copy fails with a message.
fn owner(address: u64, default: &Arc<Device>) -> &Arc<Device> {
    if default.owns(address) {
        return default;
    }
    plugin::get().devices().iter().map(|d| &d.device).find(|d| d.owns(address)).unwrap_or(default)
}

/// The destinations of copies from other devices that are not complete yet.
static ARRIVALS: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());

/// A copy from another device, until its upload is recorded.
struct Arrival(Range<u64>);

impl Arrival {
    fn at(range: Range<u64>) -> Self {
        ARRIVALS.lock().push(range.clone());
        Self(range)
    }

    /// Whether a copy to some of these addresses is under way.
    fn is_awaited(range: &Range<u64>) -> bool {
        ARRIVALS.lock().iter().any(|a| a.start < range.end && range.start < a.end)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut arrivals = ARRIVALS.lock();
        if let Some(i) = arrivals.iter().position(|a| *a == self.0) {
            arrivals.swap_remove(i);
        }
    }
}

/// Whether a copy on a stream of `device` is ordered behind all work of its receiver without a
/// wait. It is if it leaves the device, and if no copy from another device to its source is under
/// way.
fn is_ordered_by_receiver(device: &Arc<Device>, to: u64, from: u64, size: u64) -> bool {
    device.owns(from)
        && !Arc::ptr_eq(owner(to, device), device)
        && !Arrival::is_awaited(&(from..from.saturating_add(size)))
}

/// Like [`copy`], but marks the destination as invalid after a failure, so that it is not read:
/// TensorFlow treats the copy as done.
fn copy_or_spoil(device: &Arc<Device>, to: u64, from: u64, size: u64) -> Result<()> {
    let spoil =
        |e: &Error| owner(to, device).spoil(to, size, &e.clone().context("copy within devices"));
    copy(device, to, from, size).inspect_err(spoil)
}

/// Copies between the memory of any devices. The copy is ordered behind the work in `device`'s
/// queue, and before later work of the destination's device that waits for `device`.
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
        let receiver = destination.clone();
        let arrival = Arrival::at(to..to + size);
        let sink = move |at, part: Result<&[u8]>| {
            let _ = &arrival;
            // The upload is recorded before the source's serial counts as done. So work that waits
            // for the serial comes after the upload.
            if let Err(e) = part.and_then(|part| receiver.upload(to + at, part)) {
                receiver.spoil(to + at, size - at, &e.context("copy between devices"));
            }
        };
        return source.download_staged(from, size, sink);
    }
    // The source's queue is not the caller's, and no later work is ordered behind it, so the copy
    // happens now.
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
        let (receiver, unused) =
            (HostDestination::new(host, size)?, HostDestination::new(host, size)?);
        let sink = move |at, part: Result<&[u8]>| {
            if let Err(e) = receiver.receive(at, part) {
                device.raise(e.context("copy to the host"));
            }
        };
        device.download_with(from, size, sink).inspect_err(|e| {
            // The sink is gone. TensorFlow ignores the status, so the next call must fail too.
            unused.fill(0, size, None);
            device.raise(e.clone().context("copy to the host"));
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
    // TensorFlow does not check the status. It waits for an event with a thread that a forked child
    // does not have.
    if process::is_forked() {
        crate::ffi::process::end_child();
    }
    guard_status(status, "memcpy_htod", || {
        // SAFETY: the stream is alive, the struct is TensorFlow's, the source holds `size` bytes.
        unsafe {
            let (device, to) = (upload_device_of(stream)?, address(destination)?);
            // TensorFlow ignores the status.
            let spoil =
                |e: &Error| device.spoil(to, size, &e.clone().context("copy from the host"));
            host_source(host, size).and_then(|bytes| device.upload(to, bytes)).inspect_err(spoil)
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
        unsafe {
            let (to, from) = (address(destination)?, address(source)?);
            let mut device = sender_of(stream)?;
            if !is_ordered_by_receiver(device, to, from, size) {
                device = device_of(stream)?;
            }
            copy_or_spoil(device, to, from, size)
        }
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
        device.check()?;
        device.may_wait()?;
        let host = HostDestination::new(host, size)?;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let sink = move |at, part: Result<&[u8]>| {
            let _ = sender.send(host.receive(at, part));
        };
        device.download_with(from, size, sink)?;
        // The sink is dropped after the last part; until then the destination is written to.
        let parts: Vec<Result<()>> = receiver.iter().collect();
        parts.into_iter().collect::<Result<()>>()?;
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
        let (device, to, from) =
            unsafe { (&opened(device)?.device, address(destination)?, address(source)?) };
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
    guard_status(status, "memset", || unsafe {
        fill(stream, location, u32::from_ne_bytes([pattern; 4]), size)
    });
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
/// `stream` must be alive, and `location` must be one of TensorFlow's structs.
unsafe fn fill(
    stream: SP_Stream,
    location: *mut SP_DeviceMemoryBase,
    pattern: u32,
    size: u64,
) -> Result<()> {
    // SAFETY: the caller's contract.
    let (device, at) = unsafe { (device_of(stream)?, address(location)?) };
    // TensorFlow ignores the status.
    device
        .fill(at, size, pattern)
        .inspect_err(|e| device.spoil(at, size, &e.clone().context("fill")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_copied_is_no_value_and_an_error() {
        let mut host = [7_u8; 12];
        let destination = HostDestination::new(host.as_mut_ptr().cast(), 12).unwrap();
        assert_eq!(destination.receive(0, Ok(&[1, 2, 3, 4])), Ok(()));
        let lost = Error::Unavailable("the GPU was lost".into());
        assert_eq!(destination.receive(4, Err(lost.clone())), Err(lost));
        assert_eq!(host, [1, 2, 3, 4, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert!(f32::from_le_bytes([MISSING; 4]).is_nan());
        assert!(HostDestination::new(std::ptr::null_mut(), 4).is_err());
    }
}
