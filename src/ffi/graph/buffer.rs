//! TF_Buffer: serialized messages in and out.

use std::ffi::c_void;

use prost::Message;

use crate::error::{Error, Result};
use crate::ffi::abi::graph::GraphApi;
use crate::ffi::abi::kernel::TF_Buffer;
use crate::ffi::handle;

/// The bytes of one of TensorFlow's buffers; empty if the buffer is null.
///
/// # Safety
/// `buffer` is null or valid for `'a`, and is not written meanwhile.
pub(super) unsafe fn contents<'a>(buffer: *const TF_Buffer) -> &'a [u8] {
    // SAFETY: the caller's contract; the data has `length` bytes.
    unsafe {
        match buffer.as_ref() {
            Some(b) if !b.data.is_null() => std::slice::from_raw_parts(b.data.cast(), b.length),
            _ => &[],
        }
    }
}

/// Gives `bytes` to an empty buffer, with a deallocator that frees them.
///
/// # Safety
/// `buffer` is null or a valid buffer without data.
pub(super) unsafe fn fill(buffer: *mut TF_Buffer, bytes: Vec<u8>) -> Result<()> {
    // SAFETY: the caller's contract.
    let buffer = unsafe { buffer.as_mut() }
        .ok_or_else(|| Error::InvalidArgument("no buffer to fill".into()))?;
    buffer.length = bytes.len();
    buffer.data = handle::give_bytes(bytes);
    buffer.data_deallocator = Some(free);
    Ok(())
}

/// # Safety
/// TensorFlow passes the data and the length of a buffer that [`fill`] filled, once.
unsafe extern "C" fn free(data: *mut c_void, length: usize) {
    // SAFETY: `fill` gave the data away, with this length.
    unsafe { handle::free_bytes(data, length) };
}

/// A buffer that TensorFlow fills.
pub(super) struct OwnedBuffer {
    api: &'static GraphApi,
    raw: *mut TF_Buffer,
}

impl OwnedBuffer {
    pub fn new(api: &'static GraphApi) -> Result<Self> {
        // SAFETY: TF_NewBuffer takes nothing and returns an owned, empty buffer.
        let raw = unsafe { (api.TF_NewBuffer)() };
        if raw.is_null() {
            return Err(Error::ResourceExhausted("TF_NewBuffer returned null".into()));
        }
        Ok(Self { api, raw })
    }

    pub const fn as_ptr(&self) -> *mut TF_Buffer {
        self.raw
    }

    /// The message in the buffer.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        // SAFETY: the buffer is ours and alive, and no thread writes to it now.
        let bytes = unsafe { contents(self.raw) };
        M::decode(bytes)
            .map_err(|e| Error::Internal(format!("TensorFlow's message cannot be read: {e}")))
    }
}

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is ours, and is deleted once.
        unsafe { (self.api.TF_DeleteBuffer)(self.raw) };
    }
}
