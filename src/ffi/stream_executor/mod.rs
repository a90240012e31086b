//! TensorFlow's StreamExecutor C API: `SE_InitPlugin` and the callbacks behind it.
//!
//! Translates between C structs and [`crate::device`]; knows no kernels. Every callback goes
//! through a guard. All pointers come from TensorFlow and are valid during the call, as
//! stream_executor.h promises; the `SAFETY` comments of this module rely on that. The objects that
//! TensorFlow holds for longer (`device_handle`, `SP_Stream`, `SP_Event`, `SP_Timer`) are ours.
//! Devices live forever, the others until their destroy function is called, and all are behind
//! [`Handle`].

mod copies;
mod device;
mod memory;
mod platform;
mod stream;
mod timer;

pub(crate) use stream::device_of as stream_device;

use std::mem::offset_of;

use crate::device::process;
use crate::error::{Error, Result};
use crate::ffi::abi::stream_executor::{SP_Device, SP_DeviceMemoryBase, SP_StreamExecutor};
use crate::ffi::handle::Handle;
use crate::ffi::plugin::PluginDevice;

/// Every callback of a device's executor.
const EXECUTOR: SP_StreamExecutor = SP_StreamExecutor {
    struct_size: SP_StreamExecutor::STRUCT_SIZE,
    ext: std::ptr::null_mut(),
    allocate: Some(memory::allocate),
    deallocate: Some(memory::deallocate),
    host_memory_allocate: Some(memory::host_memory_allocate),
    host_memory_deallocate: Some(memory::host_memory_deallocate),
    unified_memory_allocate: Some(memory::unified_memory_allocate),
    unified_memory_deallocate: Some(memory::unified_memory_deallocate),
    get_allocator_stats: Some(memory::get_allocator_stats),
    device_memory_usage: Some(memory::device_memory_usage),
    create_stream: Some(stream::create_stream),
    destroy_stream: Some(stream::destroy_stream),
    create_stream_dependency: Some(stream::create_stream_dependency),
    get_stream_status: Some(stream::get_stream_status),
    create_event: Some(stream::create_event),
    destroy_event: Some(stream::destroy_event),
    get_event_status: Some(stream::get_event_status),
    record_event: Some(stream::record_event),
    wait_for_event: Some(stream::wait_for_event),
    create_timer: Some(timer::create_timer),
    destroy_timer: Some(timer::destroy_timer),
    start_timer: Some(timer::start_timer),
    stop_timer: Some(timer::stop_timer),
    memcpy_dtoh: Some(copies::memcpy_dtoh),
    memcpy_htod: Some(copies::memcpy_htod),
    memcpy_dtod: Some(copies::memcpy_dtod),
    sync_memcpy_dtoh: Some(copies::sync_memcpy_dtoh),
    sync_memcpy_htod: Some(copies::sync_memcpy_htod),
    sync_memcpy_dtod: Some(copies::sync_memcpy_dtod),
    block_host_for_event: Some(stream::block_host_for_event),
    block_host_until_done: Some(stream::block_host_until_done),
    synchronize_all_activity: Some(stream::synchronize_all_activity),
    mem_zero: Some(copies::mem_zero),
    memset: Some(copies::memset),
    memset32: Some(copies::memset32),
    host_callback: Some(stream::host_callback),
};

/// The device behind a C device, if this process may use it.
///
/// # Safety
/// `device` must be null or an SP_Device that [`platform`] filled.
unsafe fn opened(device: *const SP_Device) -> Result<&'static PluginDevice> {
    process::check_forked()?;
    // SAFETY: TensorFlow passes the SP_Device of create_device. Its handle points to a device that
    // lives forever.
    let handle = unsafe { device.as_ref() }.map_or(std::ptr::null_mut(), |d| d.device_handle);
    // SAFETY: as above; null is refused.
    unsafe { Handle::borrow(handle) }
}

/// The address in a C memory struct.
///
/// # Safety
/// `memory` must be null or point to an SP_DeviceMemoryBase.
unsafe fn address(memory: *const SP_DeviceMemoryBase) -> Result<u64> {
    // SAFETY: the caller's contract.
    unsafe { memory.as_ref() }
        .map(|m| m.opaque as u64)
        .ok_or_else(|| Error::Internal("TensorFlow passed null for a device memory struct".into()))
}

/// Checks that TensorFlow's struct is at least as large as ours, so that filling it stays within
/// bounds.
///
/// # Safety
/// `object` must be null or start with a `size_t struct_size`, as all structs of the API do.
unsafe fn check_size<T>(object: *const T, name: &str, ours: usize) -> Result<()> {
    if object.is_null() {
        return Err(Error::Internal(format!("TensorFlow passed null for {name}")));
    }
    // SAFETY: the caller's contract.
    let theirs = unsafe { object.cast::<usize>().read() };
    if theirs < ours {
        return Err(Error::FailedPrecondition(format!(
            "TensorFlow's {name} has {theirs} bytes, this plugin needs {ours}: this TensorFlow is \
             too old"
        )));
    }
    Ok(())
}

/// Every struct begins with `struct_size`, and [`check_size`] relies on that.
const _: () = assert!(
    offset_of!(SP_Device, struct_size) == 0 && offset_of!(SP_StreamExecutor, struct_size) == 0
);

/// Writes a table, after a check that there is room for it.
///
/// # Safety
/// `target` must be null or one of TensorFlow's structs with struct_size set.
unsafe fn fill<T>(target: *mut T, name: &str, size: usize, value: T) -> Result<()> {
    // SAFETY: the caller's contract, then the check.
    unsafe {
        check_size(target, name, size)?;
        target.write(value);
    }
    Ok(())
}
