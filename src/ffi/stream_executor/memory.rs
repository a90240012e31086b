//! Device and host memory, statistics and budgets.

use std::alloc::Layout;
use std::ffi::c_void;

use super::opened;
use crate::error::{Error, Result};
use crate::ffi::abi::stream_executor::{
    SP_AllocatorStats, SP_Device, SP_DeviceMemoryBase, TF_Bool,
};
use crate::ffi::guard::guard_or;

/// The alignment of host memory. TensorFlow's CPU kernels need a cache line. TensorFlow's allocator
/// cuts blocks into chunks whose sizes are multiples of this, and since 2.22 it ends the process if
/// a block is aligned to less.
const HOST_ALIGNMENT: usize = 256;

/// A null `opaque` tells TensorFlow that memory is exhausted; its allocator then tries less or
/// raises ResourceExhaustedError.
pub(super) unsafe extern "C" fn allocate(
    device: *const SP_Device,
    size: u64,
    _memory_space: i64,
    memory: *mut SP_DeviceMemoryBase,
) {
    let address = guard_or(0, "allocate", || {
        // SAFETY: TensorFlow passes its SP_Device.
        let device = unsafe { opened(device) }?;
        match device.device.allocate(size) {
            Ok(address) => Ok(address),
            Err(e) => {
                // Usual while TensorFlow probes for the largest block. TensorFlow reports it when
                // it gives up.
                log::debug!("{e}");
                Ok(0)
            }
        }
    });
    let value = SP_DeviceMemoryBase {
        struct_size: SP_DeviceMemoryBase::STRUCT_SIZE,
        ext: std::ptr::null_mut(),
        opaque: address as *mut c_void,
        size: if address == 0 { 0 } else { size },
        payload: 0,
    };
    if !memory.is_null() {
        // SAFETY: TensorFlow's struct, large enough in every version of the API.
        unsafe { memory.write(value) };
    }
}

pub(super) unsafe extern "C" fn deallocate(
    device: *const SP_Device,
    memory: *mut SP_DeviceMemoryBase,
) {
    guard_or((), "deallocate", || {
        // SAFETY: TensorFlow passes its structs.
        let (device, memory) = unsafe { (opened(device)?, memory.as_mut()) };
        let Some(memory) = memory.filter(|m| !m.opaque.is_null()) else { return Ok(()) };
        device.device.deallocate(memory.opaque as u64)?;
        memory.opaque = std::ptr::null_mut();
        memory.size = 0;
        Ok(())
    });
}

/// Host memory is ordinary memory: copies go through the device's own staging buffers.
pub(super) unsafe extern "C" fn host_memory_allocate(
    _: *const SP_Device,
    size: u64,
) -> *mut c_void {
    guard_or(std::ptr::null_mut(), "host_memory_allocate", || {
        let layout = host_layout(size)?;
        // SAFETY: the layout includes a header, so its size is not 0. The header, one alignment in
        // front of the memory handed out, keeps the size for the deallocation.
        unsafe {
            let start = std::alloc::alloc(layout);
            if start.is_null() {
                return Err(Error::ResourceExhausted(format!(
                    "cannot allocate {size} bytes of host memory"
                )));
            }
            start.cast::<u64>().write(size);
            Ok(start.add(HOST_ALIGNMENT).cast())
        }
    })
}

pub(super) unsafe extern "C" fn host_memory_deallocate(_: *const SP_Device, memory: *mut c_void) {
    guard_or((), "host_memory_deallocate", || {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: host_memory_allocate returned `memory`, so its header is in front of it.
        unsafe {
            let start = memory.cast::<u8>().sub(HOST_ALIGNMENT);
            std::alloc::dealloc(start, host_layout(start.cast::<u64>().read())?);
        }
        Ok(())
    });
}

fn host_layout(size: u64) -> Result<Layout> {
    usize::try_from(size)
        .ok()
        .and_then(|size| size.checked_add(HOST_ALIGNMENT))
        .and_then(|size| Layout::from_size_align(size, HOST_ALIGNMENT).ok())
        .ok_or_else(|| Error::ResourceExhausted(format!("{size} bytes exceed the address space")))
}

/// Always null: the platform reports that it has no unified memory.
pub(super) unsafe extern "C" fn unified_memory_allocate(
    _: *const SP_Device,
    _bytes: u64,
) -> *mut c_void {
    std::ptr::null_mut()
}

/// Nothing to free: no unified memory was allocated.
pub(super) unsafe extern "C" fn unified_memory_deallocate(
    _: *const SP_Device,
    _location: *mut c_void,
) {
}

pub(super) unsafe extern "C" fn get_allocator_stats(
    device: *const SP_Device,
    stats: *mut SP_AllocatorStats,
) -> TF_Bool {
    guard_or(0, "get_allocator_stats", || {
        // SAFETY: TensorFlow passes its SP_Device.
        let device = &unsafe { opened(device) }?.device;
        let now = device.memory_stats();
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let value = SP_AllocatorStats {
            struct_size: SP_AllocatorStats::STRUCT_SIZE,
            num_allocs: signed(now.allocations),
            bytes_in_use: signed(now.in_use),
            peak_bytes_in_use: signed(now.peak),
            largest_alloc_size: signed(now.largest),
            has_bytes_limit: 1,
            bytes_limit: signed(device.memory_budget().total),
            // No memory is reserved beyond the memory in use.
            bytes_reserved: signed(now.in_use),
            peak_bytes_reserved: signed(now.peak),
            has_bytes_reservable_limit: 0,
            bytes_reservable_limit: 0,
            largest_free_block_bytes: 0,
        };
        if stats.is_null() {
            return Err(Error::Internal("TensorFlow passed null for SP_AllocatorStats".into()));
        }
        // SAFETY: TensorFlow's struct, large enough in every version of the API.
        unsafe { stats.write(value) };
        Ok(1)
    })
}

pub(super) unsafe extern "C" fn device_memory_usage(
    device: *const SP_Device,
    free: *mut i64,
    total: *mut i64,
) -> TF_Bool {
    guard_or(0, "device_memory_usage", || {
        // SAFETY: TensorFlow passes its SP_Device and two integers of its own.
        unsafe {
            let budget = opened(device)?.device.memory_budget();
            free.write(i64::try_from(budget.free).unwrap_or(i64::MAX));
            total.write(i64::try_from(budget.total).unwrap_or(i64::MAX));
        }
        Ok(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_aligned_as_tensorflows_allocator_asks() {
        for size in [0, 1, 255, 4096, 1 << 20] {
            // SAFETY: the functions look at no device, and the memory is given back once.
            unsafe {
                let memory = host_memory_allocate(std::ptr::null(), size);
                assert!(!memory.is_null() && (memory as usize).is_multiple_of(256), "{size}");
                host_memory_deallocate(std::ptr::null(), memory);
            }
        }
    }
}
