//! Every callback of the StreamExecutor C API, through the tables of the built library, with threads.

#![cfg(unix)]

#[path = "../../src/ffi/sys/stream_executor.rs"]
mod abi;
mod support;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use abi::*;
use support::{Device, FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, plugin, registration};

/// Opaque here as it is for the plugin.
#[derive(Debug)]
#[repr(C)]
pub struct TF_Status {
    opaque: [u8; 0],
}

/// All tests share one device: those that look at its statistics or make it fail run alone.
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

/// Offsets and lengths around the 4-byte words that GPUs copy.
const RANGES: [(u64, u64, usize); 9] =
    [(0, 0, 1024), (1, 0, 1), (3, 1, 2), (5, 2, 4), (2, 7, 3), (0, 3, 61), (9, 4, 100), (4, 8, 12), (6, 6, 4093)];

#[test]
fn the_platform_says_what_tensorflow_needs() {
    let p = plugin();
    // SAFETY: the strings are static.
    let (name, type_) = unsafe { (CStr::from_ptr(p.platform.name), CStr::from_ptr(p.platform.type_)) };
    assert_eq!((name, type_), (c"WGPU", c"WGPU"));
    assert_eq!(p.platform.struct_size, 35, "without padding, as TensorFlow counts");
    assert_eq!((p.platform_fns.struct_size, p.se.struct_size), (88, 288));
    assert_eq!((p.device_fns.struct_size, p.timer_fns.struct_size), (40, 24));
    let flags = (p.platform.supports_unified_memory, p.platform.use_bfc_allocator, p.platform.force_memory_growth);
    assert_eq!(flags, (0, 1, 1));
}

#[test]
fn structs_that_are_too_small_are_refused_and_untouched() {
    let p = plugin();
    let (mut platform, mut fns) = (p.platform, p.platform_fns);
    platform.name = std::ptr::null();
    for (params_size, platform_size, fns_size) in [(63, 35, 88), (64, 34, 88), (64, 35, 87), (0, 35, 88)] {
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
        let (name, vendor) = unsafe { (CStr::from_ptr(device.hardware_name), CStr::from_ptr(device.device_vendor)) };
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
    // Destroying and creating again, as nobody forbids.
    let mut device = p.create_device(0, SP_Device::STRUCT_SIZE).unwrap();
    let handle = device.device_handle;
    // SAFETY: the device is what create_device filled.
    unsafe { p.platform_fns.destroy_device.unwrap()(&raw const p.platform, &raw mut device) };
    assert!(device.device_handle.is_null());
    assert_eq!(p.create_device(0, SP_Device::STRUCT_SIZE).unwrap().device_handle, handle);
}

#[test]
fn null_handles_are_errors() {
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
        let (code, _) = p.status(|s| se.sync_memcpy_htod.unwrap()(d.raw, r, std::ptr::null(), 16, s));
        assert_eq!(code, INVALID_ARGUMENT);
        let (code, _) = p.status(|s| se.sync_memcpy_dtoh.unwrap()(d.raw, null_mut(), r, 16, s));
        assert_eq!(code, INVALID_ARGUMENT);
        assert_eq!(se.get_event_status.unwrap()(d.raw, null_mut()), SE_EVENT_COMPLETE, "never an error there");
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
    assert!(during.peak_bytes_in_use >= during.bytes_in_use && during.largest_alloc_size >= 3 << 20);
    assert!(during.has_bytes_limit == 1 && during.bytes_limit > during.bytes_in_use);
    assert!(during.bytes_reserved >= during.bytes_in_use && during.peak_bytes_reserved >= during.bytes_reserved);
    assert_eq!(during.has_bytes_reservable_limit, 0);
    drop((a, b));
    assert_eq!(stats().bytes_in_use, before.bytes_in_use);
    let (mut free, mut total) = (-1, -1);
    // SAFETY: two integers of ours.
    assert_eq!(unsafe { d.se().device_memory_usage.unwrap()(d.raw, &raw mut free, &raw mut total) }, 1);
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

#[test]
fn synchronous_copies_of_any_offset_and_length() {
    let (d, _guard) = shared();
    let (a, b) = (d.allocate(8192).unwrap(), d.allocate(8192).unwrap());
    for (to, from, n) in RANGES {
        d.write(a.address, &[0xaa; 8192]);
        d.write(b.address + from, &pattern(n));
        d.copy(a.address + to, b.address + from, n as u64);
        let got = d.read(a.address, 8192);
        let at = to as usize;
        assert_eq!(got[at..at + n], pattern(n), "to {to} from {from} length {n}");
        assert!(got[..at].iter().chain(&got[at + n..]).all(|&x| x == 0xaa), "bytes around stay");
        assert_eq!(d.read(a.address + to, n), pattern(n), "read from offset {to}");
    }
    d.write(a.address, &[]);
    d.copy(a.address, b.address, 0);
    assert!(d.read(a.address, 0).is_empty());
}

#[test]
fn asynchronous_copies_keep_their_order_across_streams() {
    let (d, _guard) = shared();
    let streams = [d.stream(), d.stream(), d.stream()];
    let (a, b) = (d.allocate(8192).unwrap(), d.allocate(8192).unwrap());
    let mut results = Vec::new();
    for (to, from, n) in RANGES {
        let [up, across, down] = &streams;
        let mut source = pattern(n);
        up.write(b.address + from, &source);
        // The source may change at once: it was staged.
        source.fill(0);
        across.depend_on(up);
        across.copy(a.address + to, b.address + from, n as u64);
        down.depend_on(across);
        let mut got = vec![0; n];
        down.read_into(&mut got, a.address + to);
        results.push((got, n));
    }
    streams[2].block();
    for (got, n) in results {
        assert_eq!(got, pattern(n));
    }
}

#[test]
fn large_copies_arrive() {
    let (d, _guard) = shared();
    let n = (48 << 20) + 5;
    let (a, b) = (d.allocate(n as u64).unwrap(), d.allocate(n as u64 + 8).unwrap());
    let data = pattern(n);
    d.write(a.address, &data);
    d.copy(b.address + 3, a.address, n as u64);
    assert!(d.read(b.address + 3, n) == data);
}

#[test]
fn fills_of_any_offset_and_length() {
    let (d, _guard) = shared();
    let stream = d.stream();
    let a = d.allocate(8192).unwrap();
    for (to, _, n) in RANGES {
        let at = to as usize;
        let check = |name: &str, expected: &dyn Fn(usize) -> u8| {
            let got = d.read(a.address, 8192);
            for (i, &x) in got.iter().enumerate() {
                let want = if (at..at + n).contains(&i) { expected(i - at) } else { 0x77 };
                assert_eq!(x, want, "{name} to {to} length {n}: byte {i}");
            }
        };
        stream.memset(a.address, 0x77, 8192);
        stream.mem_zero(a.address + to, n as u64);
        check("mem_zero", &|_| 0);
        stream.memset(a.address, 0x77, 8192);
        stream.memset(a.address + to, 0xfe, n as u64);
        check("memset", &|_| 0xfe);
        stream.memset(a.address, 0x77, 8192);
        stream.memset32(a.address + to, u32::from_le_bytes([1, 2, 3, 4]), n as u64);
        check("memset32", &|i| [1, 2, 3, 4][i % 4]);
    }
    stream.mem_zero(a.address, 0);
}

#[test]
fn addresses_of_nobody_are_errors() {
    let (d, _guard) = shared();
    let a = d.allocate(256).unwrap();
    let (se, p) = (d.se(), d.plugin);
    for (address, n) in [(4096, 4), (a.address + 250, 100), (a.address + (1 << 35), 4), (u64::MAX - 2, 8)] {
        let mut wild = support::range(address, n);
        let mut bytes = [0u8; 128];
        let (host, w) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut wild);
        // SAFETY: the host memory is large enough; the address is never touched by the CPU.
        unsafe {
            assert_eq!(p.status(|s| se.sync_memcpy_dtoh.unwrap()(d.raw, host, w, n, s)).0, INTERNAL, "{address:#x}");
            assert_eq!(p.status(|s| se.sync_memcpy_htod.unwrap()(d.raw, w, host, n, s)).0, INTERNAL, "{address:#x}");
            let mut to = support::range(a.address, n);
            assert_eq!(p.status(|s| se.sync_memcpy_dtod.unwrap()(d.raw, &raw mut to, w, n, s)).0, INTERNAL);
        }
    }
    d.write(a.address, &[1, 2, 3]);
    assert_eq!(d.read(a.address, 3), [1, 2, 3]);
}

#[test]
fn events_complete_while_others_record() {
    let (d, _guard) = shared();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, memory) = (d.stream(), d.allocate(1 << 16).unwrap());
            let mut byte = 0u8;
            while !stop.load(Ordering::Relaxed) {
                stream.memset(memory.address, byte, 1 << 16);
                byte = byte.wrapping_add(1);
                if byte.is_multiple_of(64) {
                    stream.block();
                }
            }
        });
        let (stream, memory) = (d.stream(), d.allocate(4096).unwrap());
        let event = d.event();
        assert!(event.is_complete(), "an event that was never recorded");
        for round in 0..30u8 {
            stream.memset(memory.address, round, 4096);
            let mut got = vec![0; 4096];
            stream.read_into(&mut got, memory.address);
            stream.record(&event);
            let polls = std::thread::scope(|inner| {
                let poller = inner.spawn(|| {
                    let mut polls = 0u64;
                    while !event.is_complete() {
                        polls += 1;
                        std::thread::yield_now();
                    }
                    polls
                });
                poller.join().unwrap()
            });
            assert!(got.iter().all(|&x| x == round), "round {round} after {polls} polls");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_event_behind_uploads_alone_needs_no_polling() {
    let (d, _guard) = shared();
    let (up, other, memory) = (d.stream(), d.stream(), d.allocate(4096).unwrap());
    let event = d.event();
    up.write(memory.address, &pattern(4096));
    up.record(&event);
    assert!(event.is_complete(), "the source is free again");
    event.block();
    other.wait_for(&event);
    let mut got = vec![0; 4096];
    other.read_into(&mut got, memory.address);
    other.block();
    assert_eq!(got, pattern(4096));
    // With anything else in front of it, an event says when that is done.
    let mut got = vec![0; 4096];
    up.read_into(&mut got, memory.address);
    up.write(memory.address, &[0; 4]);
    up.record(&event);
    while !event.is_complete() {
        std::thread::yield_now();
    }
    assert_eq!(got, pattern(4096));
}

extern "C" fn note(argument: *mut c_void, _: *mut TF_Status) {
    // SAFETY: the test passes its counter and waits for the callback.
    unsafe { &*argument.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn refuse(_: *mut c_void, status: *mut TF_Status) {
    // SAFETY: the plugin passes a valid status.
    unsafe { plugin().set(status, FAILED_PRECONDITION, c"the callback refuses") };
}

#[test]
fn host_callbacks_run_in_order_and_report_their_status() {
    let (d, _guard) = alone();
    let (stream, memory) = (d.stream(), d.allocate(1 << 20).unwrap());
    let count = AtomicU64::new(0);
    let argument = (&raw const count).cast_mut().cast::<c_void>();
    for round in 1..=20 {
        stream.memset(memory.address, round as u8, 1 << 20);
        // SAFETY: the counter lives until `block` returns.
        assert_eq!(unsafe { d.se().host_callback.unwrap()(d.raw, stream.raw, Some(note), argument) }, 1);
        let event = d.event();
        stream.record(&event);
        event.block();
        assert_eq!(count.load(Ordering::SeqCst), round, "the callback ran in front of the event");
    }
    // SAFETY: no argument is needed; a missing callback is refused.
    unsafe {
        assert_eq!(d.se().host_callback.unwrap()(d.raw, stream.raw, None, null_mut()), 0);
        assert_eq!(d.se().host_callback.unwrap()(d.raw, stream.raw, Some(refuse), null_mut()), 1);
    }
    // SAFETY: the stream is alive.
    let status = || d.plugin.status(|s| unsafe { d.se().block_host_until_done.unwrap()(d.raw, stream.raw, s) });
    let (code, message) = status();
    assert_eq!(code, FAILED_PRECONDITION);
    assert!(message.contains("the callback refuses"), "{message}");
    assert_eq!(status(), (0, String::new()), "reported once");
    // SAFETY: the stream is alive.
    d.plugin.ok(|s| unsafe { d.se().get_stream_status.unwrap()(d.raw, stream.raw, s) });
}

#[test]
fn timers_measure_work() {
    let (d, _guard) = shared();
    let (stream, memory) = (d.stream(), d.allocate(16 << 20).unwrap());
    stream.memset(memory.address, 1, 16 << 20);
    let mut timer = null_mut();
    let p = d.plugin;
    // SAFETY: timer and stream are alive until the end.
    unsafe {
        p.ok(|s| d.se().create_timer.unwrap()(d.raw, &raw mut timer, s));
        for _ in 0..2 {
            p.ok(|s| d.se().start_timer.unwrap()(d.raw, stream.raw, timer, s));
            for i in 0..4 {
                stream.memset(memory.address, i, 16 << 20);
            }
            p.ok(|s| d.se().stop_timer.unwrap()(d.raw, stream.raw, timer, s));
            let t = p.timer_fns.nanoseconds.unwrap()(timer);
            assert!(t > 1_000 && t < 60_000_000_000, "{t} ns for 64 MiB");
        }
        d.se().destroy_timer.unwrap()(d.raw, timer);
        p.platform_fns.destroy_timer_fns.unwrap()(&raw const p.platform, (&raw const p.timer_fns).cast_mut());
    }
}

#[test]
fn threads_with_streams_of_their_own() {
    let (d, _guard) = shared();
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            scope.spawn(move || {
                let (stream, event) = (d.stream(), d.event());
                for round in 0..15u32 {
                    let memory = d.allocate(4096 + u64::from(round) * 512).unwrap();
                    let value = t * 1000 + round;
                    stream.memset32(memory.address, value, 4096);
                    stream.copy(memory.address + 2048, memory.address, 1024);
                    let mut got = vec![0; 4];
                    stream.read_into(&mut got, memory.address + 2048);
                    stream.record(&event);
                    if round % 2 == 0 {
                        event.block();
                    } else {
                        while !event.is_complete() {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(got, value.to_le_bytes(), "thread {t} round {round}");
                }
            });
        }
    });
    d.synchronize();
}

/// Names of lavapipe's manifest on Debian, Fedora and Arch.
#[cfg(target_os = "linux")]
const LAVAPIPE: [&str; 3] = ["lvp_icd.x86_64.json", "lvp_icd.aarch64.json", "lvp_icd.json"];

/// With two manifests, and two copies of it, one driver is two devices. The copies run in a process of their own.
#[cfg(target_os = "linux")]
#[test]
fn copies_between_devices() {
    const CHILD: &str = "TENSORFLOW_WGPU_TEST_TWO_DEVICES";
    if std::env::var_os(CHILD).is_some() {
        return between_devices();
    }
    let directory = std::path::Path::new("/usr/share/vulkan/icd.d");
    let Some(manifest) = LAVAPIPE.iter().map(|f| directory.join(f)).find(|f| f.exists()) else {
        eprintln!("skipped: lavapipe, which can be loaded twice, is not installed in {}", directory.display());
        return;
    };
    let text = std::fs::read_to_string(&manifest).unwrap();
    let library = text.split('"').find(|s| s.contains("libvulkan_lvp")).expect("lavapipe's library").to_owned();
    let library = [library.clone(), format!("/usr/lib/x86_64-linux-gnu/{library}"), format!("/usr/lib64/{library}")]
        .into_iter()
        .find(|l| std::path::Path::new(l).exists())
        .expect("lavapipe's library");
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("two-devices-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let copy = scratch.join("libvulkan_lvp_copy.so");
    std::fs::copy(&library, &copy).unwrap();
    let second = scratch.join("copy.json");
    std::fs::write(
        &second,
        text.replace(text.split('"').find(|s| s.contains("libvulkan_lvp")).unwrap(), copy.to_str().unwrap()),
    )
    .unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "copies_between_devices", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("VK_DRIVER_FILES", std::env::join_paths([&manifest, &second]).unwrap())
        .env_remove("TF_WGPU_VISIBLE_DEVICES")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("two devices exchanged data"), "{output}");
}

#[cfg(target_os = "linux")]
fn between_devices() {
    assert_eq!(plugin().devices.len(), 2, "two manifests, two devices");
    let (a, b) = (Device::nth(0), Device::nth(1));
    let n = 100_003;
    let (on_a, on_b) = (a.allocate(n).unwrap(), b.allocate(n + 8).unwrap());
    let (stream_a, stream_b) = (a.stream(), b.stream());
    let data = pattern(n as usize);
    for round in 0..5 {
        let shift = round % 4;
        stream_b.memset(on_b.address, 0, n + 8);
        stream_a.write(on_a.address, &data);
        // As TensorFlow does it: one copy on the sender's stream, then the receiver's stream waits for it.
        stream_a.copy(on_b.address + shift, on_a.address, n);
        let event = a.event();
        stream_a.record(&event);
        if round % 2 == 0 {
            stream_b.wait_for(&event);
        } else {
            stream_b.depend_on(&stream_a);
        }
        let mut got = vec![0; n as usize];
        stream_b.read_into(&mut got, on_b.address + shift);
        stream_b.block();
        assert!(got == data, "round {round}");
    }
    // Synchronously, in both directions, asked of either device.
    for d in [&a, &b] {
        b.write(on_b.address, &[5; 64]);
        d.copy(on_a.address + 1, on_b.address, 64);
        assert_eq!(a.read(on_a.address, 66)[1..65], [5; 64]);
        a.write(on_a.address, &[6; 64]);
        d.copy(on_b.address, on_a.address, 64);
        assert_eq!(b.read(on_b.address, 64), [6; 64]);
    }
    // Handles of the wrong device are errors.
    // SAFETY: both are alive.
    let (code, _) = a.plugin.status(|s| unsafe { a.se().record_event.unwrap()(a.raw, stream_a.raw, b.event().raw, s) });
    assert_eq!(code, INVALID_ARGUMENT as c_int);
    println!("two devices exchanged data");
}
