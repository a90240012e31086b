//! Reserved address ranges: addresses that stand for device memory and that no CPU access survives.

use crate::error::{Error, Result};

/// Bytes reserved for each device. Only address space, no memory: more than any GPU has.
const RESERVED: usize = 1 << 40;

/// An inaccessible range of virtual addresses, reserved for the life of the value.
#[derive(Debug)]
pub(crate) struct AddressRange {
    start: u64,
    len: u64,
}

impl AddressRange {
    /// Reserves a range; smaller ones are tried where the system limits address space (`ulimit -v`, containers).
    pub fn reserve() -> Result<Self> {
        let mut len = RESERVED;
        while len >= 1 << 32 {
            if let Some(start) = sys::reserve(len) {
                return Ok(Self { start, len: len as u64 });
            }
            len /= 4;
        }
        Err(Error::ResourceExhausted("cannot reserve address space for device memory; is `ulimit -v` set?".into()))
    }

    pub const fn start(&self) -> u64 {
        self.start
    }

    pub const fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        sys::release(self.start, self.len as usize);
    }
}

#[cfg(unix)]
mod sys {
    pub fn reserve(len: usize) -> Option<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        // SAFETY: an anonymous PROT_NONE mapping at an address of the kernel's choice touches no existing memory.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        (p != libc::MAP_FAILED).then_some(p as u64)
    }

    pub fn release(start: u64, len: usize) {
        // SAFETY: `start` and `len` are what `reserve` mapped, and nothing in it was ever dereferenced.
        unsafe { libc::munmap(start as *mut libc::c_void, len) };
    }
}

#[cfg(windows)]
mod sys {
    use windows_sys::Win32::System::Memory::{MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, VirtualAlloc, VirtualFree};

    pub fn reserve(len: usize) -> Option<u64> {
        // SAFETY: reserving at an address of the system's choice touches no existing memory.
        let p = unsafe { VirtualAlloc(std::ptr::null(), len, MEM_RESERVE, PAGE_NOACCESS) };
        (!p.is_null()).then_some(p as u64)
    }

    pub fn release(start: u64, _len: usize) {
        // SAFETY: `start` is what `reserve` returned; MEM_RELEASE takes the whole reservation with length 0.
        unsafe { VirtualFree(start as *mut core::ffi::c_void, 0, MEM_RELEASE) };
    }
}
