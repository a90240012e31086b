//! Reserved address ranges: the addresses stand for device memory, and any CPU access to them
//! faults.

use crate::error::{Error, Result};

/// Bytes reserved for each device if the system sets no limit. This is only address space, not
/// memory: more than any GPU has.
const RESERVED: u64 = 1 << 40;
/// Under a limit, this many times the device's memory is enough for blocks that are allocated and
/// freed.
const TIMES_MEMORY: u64 = 4;
/// At most this part of the remaining address space is reserved, because the rest of the process
/// needs addresses too: stacks, drivers, the memory of software adapters.
const LARGEST_PART: u64 = 4;
/// The address space that drivers and their compilers use, and the address space that the stacks
/// and heaps of TensorFlow's and the drivers' threads use for each processor. Both are twice the
/// measured values. If drivers find no addresses, they end the process.
const DRIVERS: u64 = 2 << 30;
const THREADS: u64 = 128 << 20;

/// Ranges begin at multiples of this, so that offsets with a smaller alignment stay aligned as
/// addresses. Small reservations have no such alignment by themselves.
const ALIGNMENT: u64 = 1 << 21;

/// Fails if the system's limit (`ulimit -v`) leaves too few addresses for drivers and devices.
pub(crate) fn check_room() -> Result<()> {
    let needed =
        DRIVERS + THREADS * std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    match sys::left() {
        Some(left) if left < needed => Err(Error::ResourceExhausted(format!(
            "`ulimit -v` leaves {} MiB of address space, and devices with their drivers need {}; \
             raise it, or unset it",
            left >> 20,
            needed >> 20
        ))),
        _ => Ok(()),
    }
}

/// An inaccessible range of virtual addresses, reserved for the life of the value.
#[derive(Debug)]
pub(crate) struct AddressRange {
    start: u64,
    len: u64,
    /// The start of the reservation itself, which has `ALIGNMENT` more bytes.
    reserved: u64,
}

impl AddressRange {
    /// Reserves a range for a device with this much memory. It is smaller if the system limits
    /// address space (`ulimit -v`, containers).
    pub fn reserve(memory: u64) -> Result<Self> {
        check_room()?;
        let mut len = sys::left().map_or(RESERVED, |left| limited(memory, left));
        while len >= 1 << 28 {
            if let Some(reserved) = sys::reserve((len + ALIGNMENT) as usize) {
                return Ok(Self { start: reserved.next_multiple_of(ALIGNMENT), len, reserved });
            }
            len /= 4;
        }
        Err(Error::ResourceExhausted(
            "cannot reserve address space for device memory; is `ulimit -v` set?".into(),
        ))
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
        sys::release(self.reserved, (self.len + ALIGNMENT) as usize);
    }
}

/// The length of the range for a device with this much memory, if `left` bytes of addresses are
/// left.
fn limited(memory: u64, left: u64) -> u64 {
    memory.saturating_mul(TIMES_MEMORY).max(1 << 28).min(left / LARGEST_PART).min(RESERVED)
        & !0xffff
}

#[cfg(unix)]
mod sys {
    /// Bytes of address space that the process may still take; None without a limit.
    #[cfg(target_os = "linux")]
    pub fn left() -> Option<u64> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` has room for the result.
        if unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } != 0
            || limit.rlim_cur == libc::RLIM_INFINITY
        {
            return None;
        }
        // The first number is the size of the address space in pages.
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
        // SAFETY: it only asks for a number, which is positive.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
        Some(limit.rlim_cur.saturating_sub(pages * page))
    }

    /// Elsewhere the limit does not count reservations, or there is none.
    #[cfg(not(target_os = "linux"))]
    pub const fn left() -> Option<u64> {
        None
    }

    pub fn reserve(len: usize) -> Option<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        // SAFETY: an anonymous PROT_NONE mapping at an address of the kernel's choice touches no
        // existing memory.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        (p != libc::MAP_FAILED).then_some(p as u64)
    }

    pub fn release(start: u64, len: usize) {
        // SAFETY: `reserve` mapped `len` bytes at `start`, and nothing in them was ever
        // dereferenced.
        unsafe { libc::munmap(start as *mut libc::c_void, len) };
    }
}

#[cfg(windows)]
mod sys {
    /// Windows limits memory, not addresses.
    pub const fn left() -> Option<u64> {
        None
    }

    use windows_sys::Win32::System::Memory::{
        MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, VirtualAlloc, VirtualFree,
    };

    pub fn reserve(len: usize) -> Option<u64> {
        // SAFETY: reserving at an address of the system's choice touches no existing memory.
        let p = unsafe { VirtualAlloc(std::ptr::null(), len, MEM_RESERVE, PAGE_NOACCESS) };
        (!p.is_null()).then_some(p as u64)
    }

    pub fn release(start: u64, _len: usize) {
        // SAFETY: `reserve` returned `start`; MEM_RELEASE with length 0 releases the whole
        // reservation.
        unsafe { VirtualFree(start as *mut core::ffi::c_void, 0, MEM_RELEASE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_most_addresses_to_others() {
        assert_eq!(limited(8 << 30, 1 << 50), 32 << 30);
        assert_eq!(limited(8 << 30, 16 << 30), 4 << 30);
        assert_eq!(limited(u64::MAX, 1 << 50), RESERVED);
        assert_eq!(limited(0, 16 << 30), 1 << 28);
        assert_eq!(limited(8 << 30, 100_003) % 65_536, 0);
    }

    #[test]
    fn a_range_begins_at_a_multiple() {
        // One more page shifts the address of the system's next reservation.
        let _page = sys::reserve(4096).unwrap();
        for _ in 0..4 {
            assert_eq!(AddressRange::reserve(1 << 28).unwrap().start() % ALIGNMENT, 0);
        }
    }

    #[test]
    fn without_a_limit_a_range_is_larger_than_any_memory() {
        if sys::left().is_none() {
            assert_eq!(AddressRange::reserve(1 << 30).unwrap().len(), RESERVED);
        }
    }
}
