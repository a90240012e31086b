//! Every callback of the StreamExecutor, graph and profiler C APIs, through the tables of the
//! built library, with threads.

#![cfg(unix)]

#[path = "../../src/ffi/abi/stream_executor.rs"]
mod abi;
mod copies;
mod events;
mod optimizer;
mod profiler;
mod support;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use abi::*;
use support::{Device, FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, plugin, registration};

/// Opaque here, as for the plug-in.
#[derive(Debug)]
#[repr(C)]
pub struct TF_Status {
    opaque: [u8; 0],
}

/// All tests share one device: tests that read its statistics or make it fail run alone.
static DEVICE: RwLock<()> = RwLock::new(());

fn shared() -> (Device, RwLockReadGuard<'static, ()>) {
    let guard = DEVICE.read().unwrap_or_else(PoisonError::into_inner);
    (Device::nth(0), guard)
}

fn alone() -> (Device, RwLockWriteGuard<'static, ()>) {
    let guard = DEVICE.write().unwrap_or_else(PoisonError::into_inner);
    (Device::nth(0), guard)
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 3) as u8).collect()
}

#[test]
fn the_platform_says_what_tensorflow_needs() {
    let p = plugin();
    // SAFETY: the strings are static.
    let (name, type_) =
        unsafe { (CStr::from_ptr(p.platform.name), CStr::from_ptr(p.platform.type_)) };
    assert_eq!((name, type_), (c"WGPU", c"WGPU"));
    assert_eq!(p.platform.struct_size, 35, "without padding, as TensorFlow counts");
    assert_eq!((p.platform_fns.struct_size, p.se.struct_size), (88, 288));
    assert_eq!((p.device_fns.struct_size, p.timer_fns.struct_size), (40, 24));
    let flags = (
        p.platform.supports_unified_memory,
        p.platform.use_bfc_allocator,
        p.platform.force_memory_growth,
    );
    assert_eq!(flags, (0, 1, 1));
}

#[test]
fn structs_that_are_too_small_are_refused_and_untouched() {
    let p = plugin();
    let (mut platform, mut fns) = (p.platform, p.platform_fns);
    platform.name = std::ptr::null();
    for (params_size, platform_size, fns_size) in
        [(63, 35, 88), (64, 34, 88), (64, 35, 87), (0, 35, 88)]
    {
        (platform.struct_size, fns.struct_size) = (platform_size, fns_size);
        let mut params = registration(&raw mut platform, &raw mut fns);
        params.struct_size = params_size;
        // SAFETY: the parameters are what TensorFlow passes, of another version.
        let (code, message) = p.status(|s| unsafe { (p.init)(&raw mut params, s) });
        assert_eq!(code, FAILED_PRECONDITION, "{message}");
        assert!(message.contains("too old"), "{message}");
        assert!(platform.name.is_null() && params.destroy_platform.is_none());
    }
    // SAFETY: null parameters are TensorFlow's mistake, but no crash.
    let (code, _) = p.status(|s| unsafe { (p.init)(null_mut(), s) });
    assert_eq!(code, INTERNAL);
    let (code, message) = p.create_device(0, SP_Device::STRUCT_SIZE - 1).unwrap_err();
    assert_eq!(code, FAILED_PRECONDITION, "{message}");
}

#[test]
fn devices_describe_themselves() {
    let p = plugin();
    for (i, device) in p.devices.iter().enumerate() {
        assert_eq!((device.struct_size, device.ordinal), (56, i as i32));
        assert!(!device.device_handle.is_null());
        // SAFETY: the strings live as long as the process.
        let (name, vendor) =
            unsafe { (CStr::from_ptr(device.hardware_name), CStr::from_ptr(device.device_vendor)) };
        assert!(!name.is_empty() && !vendor.is_empty());
        if !device.pci_bus_id.is_null() {
            // SAFETY: as above.
            assert!(!unsafe { CStr::from_ptr(device.pci_bus_id) }.is_empty(), "null when unknown");
        }
        let raw = &raw const *device;
        // SAFETY: the device is what create_device filled.
        unsafe {
            assert!(p.device_fns.get_numa_node.unwrap()(raw) >= -1);
            assert_eq!(p.device_fns.get_memory_bandwidth.unwrap()(raw), -1);
            assert_eq!(p.device_fns.get_gflops.unwrap()(raw), -1.0);
        }
    }
    for ordinal in [-1, p.devices.len() as i32, i32::MAX] {
        let (code, message) = p.create_device(ordinal, SP_Device::STRUCT_SIZE).unwrap_err();
        assert_eq!(code, INVALID_ARGUMENT, "{message}");
    }
    // Destroying and creating again, which is allowed.
    let mut device = p.create_device(0, SP_Device::STRUCT_SIZE).unwrap();
    let handle = device.device_handle;
    // SAFETY: the device is what create_device filled.
    unsafe { p.platform_fns.destroy_device.unwrap()(&raw const p.platform, &raw mut device) };
    assert!(device.device_handle.is_null());
    assert_eq!(p.create_device(0, SP_Device::STRUCT_SIZE).unwrap().device_handle, handle);
}

#[test]
fn null_and_wrong_handles_are_errors() {
    let (d, _guard) = shared();
    let (se, p) = (d.se(), d.plugin);
    let memory = d.allocate(16).unwrap();
    let mut range = support::range(memory.address, 16);
    let r = &raw mut range;
    // SAFETY: null in place of a handle is TensorFlow's mistake, but no crash.
    unsafe {
        for (code, message) in [
            p.status(|s| se.get_stream_status.unwrap()(d.raw, null_mut(), s)),
            p.status(|s| se.record_event.unwrap()(d.raw, null_mut(), null_mut(), s)),
            p.status(|s| se.block_host_for_event.unwrap()(d.raw, null_mut(), s)),
            p.status(|s| se.start_timer.unwrap()(d.raw, null_mut(), null_mut(), s)),
            p.status(|s| se.mem_zero.unwrap()(d.raw, null_mut(), r, 16, s)),
            p.status(|s| se.synchronize_all_activity.unwrap()(std::ptr::null(), s)),
            p.status(|s| se.sync_memcpy_dtod.unwrap()(d.raw, r, std::ptr::null(), 16, s)),
        ] {
            assert_eq!(code, INTERNAL, "{message}");
            assert!(message.contains("TensorFlow passed"), "{message}");
        }
        // A handle of another kind, which would be read as the wrong struct.
        let (stream, event) = (d.stream(), d.event());
        for (code, message) in [
            p.status(|s| se.get_stream_status.unwrap()(d.raw, event.raw.cast(), s)),
            p.status(|s| se.record_event.unwrap()(d.raw, stream.raw, stream.raw.cast(), s)),
            p.status(|s| se.start_timer.unwrap()(d.raw, stream.raw, event.raw.cast(), s)),
        ] {
            assert_eq!(code, INTERNAL, "{message}");
            assert!(message.contains("TensorFlow passed something else as the"), "{message}");
        }
        se.destroy_event.unwrap()(d.raw, stream.raw.cast());
        p.ok(|s| se.record_event.unwrap()(d.raw, stream.raw, event.raw, s));
        let (code, _) =
            p.status(|s| se.sync_memcpy_htod.unwrap()(d.raw, r, std::ptr::null(), 16, s));
        assert_eq!(code, INVALID_ARGUMENT);
        let (code, _) = p.status(|s| se.sync_memcpy_dtoh.unwrap()(d.raw, null_mut(), r, 16, s));
        assert_eq!(code, INVALID_ARGUMENT);
        assert_eq!(
            se.get_event_status.unwrap()(d.raw, null_mut()),
            SE_EVENT_COMPLETE,
            "never an error there"
        );
        se.destroy_stream.unwrap()(d.raw, null_mut());
        se.destroy_event.unwrap()(d.raw, null_mut());
        se.destroy_timer.unwrap()(d.raw, null_mut());
        se.host_memory_deallocate.unwrap()(d.raw, null_mut());
        let mut nothing = support::range(0, 0);
        se.deallocate.unwrap()(d.raw, &raw mut nothing);
        se.deallocate.unwrap()(d.raw, null_mut());
    }
}

#[test]
fn statistics_follow_allocations() {
    let (d, _guard) = alone();
    let stats = || {
        // SAFETY: all-zero is a valid SP_AllocatorStats; the callback fills it.
        unsafe {
            let mut stats: SP_AllocatorStats = std::mem::zeroed();
            assert_eq!(d.se().get_allocator_stats.unwrap()(d.raw, &raw mut stats), 1);
            assert_eq!(stats.struct_size, SP_AllocatorStats::STRUCT_SIZE);
            stats
        }
    };
    let before = stats();
    let (a, b) = (d.allocate(1 << 20).unwrap(), d.allocate(3 << 20).unwrap());
    let during = stats();
    assert_eq!(during.num_allocs, before.num_allocs + 2);
    assert_eq!(during.bytes_in_use, before.bytes_in_use + (4 << 20));
    assert!(
        during.peak_bytes_in_use >= during.bytes_in_use && during.largest_alloc_size >= 3 << 20
    );
    assert!(during.has_bytes_limit == 1 && during.bytes_limit > during.bytes_in_use);
    assert!(
        during.bytes_reserved >= during.bytes_in_use
            && during.peak_bytes_reserved >= during.bytes_reserved
    );
    assert_eq!(during.has_bytes_reservable_limit, 0);
    drop((a, b));
    assert_eq!(stats().bytes_in_use, before.bytes_in_use);
    let (mut free, mut total) = (-1, -1);
    // SAFETY: two integers of ours.
    assert_eq!(
        unsafe { d.se().device_memory_usage.unwrap()(d.raw, &raw mut free, &raw mut total) },
        1
    );
    assert!(free > 0 && free <= total && total > 64 << 20, "{free} of {total}");
}

#[test]
fn impossible_allocations_are_null_and_earlier_memory_lives() {
    let (d, _guard) = shared();
    let a = d.allocate(1024).unwrap();
    d.write(a.address, &pattern(1024));
    for size in [1 << 40, 1 << 60, u64::MAX] {
        assert!(d.allocate(size).is_none(), "{size} bytes");
    }
    assert_eq!(d.read(a.address, 1024), pattern(1024));
    assert!(d.allocate(1024).is_some());
    // SAFETY: a size of ours; null is the answer.
    unsafe {
        assert!(d.se().host_memory_allocate.unwrap()(d.raw, u64::MAX).is_null());
        assert!(d.se().host_memory_allocate.unwrap()(d.raw, 1 << 62).is_null());
    }
}

#[test]
fn host_memory_is_aligned_and_writable() {
    let (d, _guard) = shared();
    for size in [0usize, 1, 63, 64, 4097, 1 << 20] {
        // SAFETY: the memory is as large as it was asked for, and freed once.
        unsafe {
            let p = d.se().host_memory_allocate.unwrap()(d.raw, size as u64);
            assert!(!p.is_null() && (p as usize).is_multiple_of(64), "{p:?} for {size} bytes");
            std::ptr::write_bytes(p.cast::<u8>(), 0xa5, size);
            d.se().host_memory_deallocate.unwrap()(d.raw, p);
        }
    }
    // SAFETY: unsupported, as the platform says.
    unsafe {
        assert!(d.se().unified_memory_allocate.unwrap()(d.raw, 64).is_null());
        d.se().unified_memory_deallocate.unwrap()(d.raw, null_mut());
    }
}

extern "C" fn note(argument: *mut c_void, _: *mut TF_Status) {
    // SAFETY: the test passes its counter and waits for the callback.
    unsafe { &*argument.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn refuse(_: *mut c_void, status: *mut TF_Status) {
    // SAFETY: the plugin passes a valid status.
    unsafe { plugin().set(status, FAILED_PRECONDITION, c"the callback refuses") };
}
