//! Our hand-written C structs against the headers of an installed TensorFlow: sizes, offsets and
//! constants, as the C compiler sees them.
//!
//! The headers are those in `TENSORFLOW_INCLUDE_DIR`, otherwise those of the TensorFlow that
//! `PYTHON` (or `python3`) would import. `make test` sets the variable, so there the test cannot be
//! skipped.

#![cfg(unix)]

#[path = "../src/ffi/abi/stream_executor.rs"]
mod abi;
#[path = "../src/ffi/abi/profiler.rs"]
mod profiler_abi;

use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::*;
use profiler_abi::*;

/// Opaque here, as for the plug-in.
#[derive(Debug)]
#[repr(C)]
pub struct TF_Status {
    opaque: [u8; 0],
}

const HEADER: &str = "tensorflow/c/experimental/stream_executor/stream_executor.h";
const PROFILER: &str = "tensorflow/c/experimental/pluggable_profiler/pluggable_profiler.h";

/// Declares for each struct the figures to compare: ours as lines, and the C expressions that print
/// the same lines. A field that is forgotten here does not compile.
macro_rules! layouts {
    ($($name:ident / $size:ident { $($field:ident $(as $c:ident)?),* $(,)? })*) => {
        fn ours() -> String {
            let mut lines = String::new();
            $({
                let _complete = |$name { $($field: _),* }: $name| ();
                writeln!(lines, "{} {} {}", stringify!($name), size_of::<$name>(),
                    $name::STRUCT_SIZE).unwrap();
                $(writeln!(lines, "{}.{} {}", stringify!($name), stringify!($field),
                    offset_of!($name, $field)).unwrap();)*
            })*
            let version = format!("{SE_MAJOR}.{SE_MINOR}.{SE_PATCH}");
            let events = format!("{SE_EVENT_PENDING} {SE_EVENT_COMPLETE}");
            writeln!(lines, "version {version}, {TP_MAJOR}, events {events}").unwrap();
            lines
        }

        fn program() -> String {
            let mut c = "#include <stdio.h>\n#include <stddef.h>\n".to_owned();
            writeln!(c, "#include \"{HEADER}\"\n#include \"{PROFILER}\"\nint main(void) {{")
                .unwrap();
            $(
                let (name, size) = (stringify!($name), stringify!($size));
                let sizes = format!("sizeof({name}), (size_t){size}");
                writeln!(c, "printf(\"{name} %zu %zu\\n\", {sizes});").unwrap();
                $(
                    let (ours, _theirs) = (stringify!($field), stringify!($field));
                    $(let _theirs = stringify!($c);)?
                    let offset = format!("offsetof({name}, {_theirs})");
                    writeln!(c, "printf(\"{name}.{ours} %zu\\n\", {offset});").unwrap();
                )*
            )*
            c.push_str("printf(\"version %d.%d.%d, %d, events %d %d\\n\", SE_MAJOR, SE_MINOR, ");
            c.push_str("SE_PATCH, TP_MAJOR, ");
            c.push_str("SE_EVENT_PENDING, SE_EVENT_COMPLETE);\n");
            c.push_str("return 0;\n}\n");
            c
        }
    };
}

layouts! {
    TP_Profiler / TP_PROFILER_STRUCT_SIZE { struct_size, ext, device_type }
    TP_ProfilerFns / TP_PROFILER_FNS_STRUCT_SIZE {
        struct_size, ext, start, stop, collect_data_xspace,
    }
    TF_ProfilerRegistrationParams / TF_PROFILER_REGISTRATION_PARAMS_STRUCT_SIZE {
        struct_size, ext, major_version, minor_version, patch_version, profiler, profiler_fns,
            destroy_profiler, destroy_profiler_fns,
    }
    SP_TimerFns / SP_TIMER_FNS_STRUCT_SIZE { struct_size, ext, nanoseconds }
    SP_AllocatorStats / SP_ALLOCATORSTATS_STRUCT_SIZE {
        struct_size, num_allocs, bytes_in_use, peak_bytes_in_use, largest_alloc_size,
            has_bytes_limit, bytes_limit,
        bytes_reserved, peak_bytes_reserved, has_bytes_reservable_limit, bytes_reservable_limit,
            largest_free_block_bytes,
    }
    SP_DeviceMemoryBase / SP_DEVICE_MEMORY_BASE_STRUCT_SIZE { struct_size, ext, opaque, size,
        payload }
    SP_Device / SP_DEVICE_STRUCT_SIZE {
        struct_size, ext, ordinal, device_handle, hardware_name, device_vendor, pci_bus_id,
    }
    SE_CreateDeviceParams / SE_CREATE_DEVICE_PARAMS_STRUCT_SIZE { struct_size, ext, ordinal,
        device }
    SP_DeviceFns / SP_DEVICE_FNS_STRUCT_SIZE { struct_size, ext, get_numa_node,
        get_memory_bandwidth, get_gflops }
    SE_CreateDeviceFnsParams / SE_CREATE_DEVICE_FNS_PARAMS_STRUCT_SIZE { struct_size, ext,
        device_fns }
    SP_StreamExecutor / SP_STREAMEXECUTOR_STRUCT_SIZE {
        struct_size, ext, allocate, deallocate, host_memory_allocate, host_memory_deallocate,
            unified_memory_allocate,
        unified_memory_deallocate, get_allocator_stats, device_memory_usage, create_stream,
            destroy_stream,
        create_stream_dependency, get_stream_status, create_event, destroy_event, get_event_status,
            record_event,
        wait_for_event, create_timer, destroy_timer, start_timer, stop_timer, memcpy_dtoh,
            memcpy_htod, memcpy_dtod,
        sync_memcpy_dtoh, sync_memcpy_htod, sync_memcpy_dtod, block_host_for_event,
            block_host_until_done,
        synchronize_all_activity, mem_zero, memset, memset32, host_callback,
    }
    SE_CreateStreamExecutorParams / SE_CREATE_STREAM_EXECUTOR_PARAMS_STRUCT_SIZE { struct_size, ext,
        stream_executor }
    SP_Platform / SP_PLATFORM_STRUCT_SIZE {
        struct_size, ext, name, type_ as type, supports_unified_memory, use_bfc_allocator,
            force_memory_growth,
    }
    SP_PlatformFns / SP_PLATFORM_FNS_STRUCT_SIZE {
        struct_size, ext, get_device_count, create_device, destroy_device, create_device_fns,
            destroy_device_fns,
        create_stream_executor, destroy_stream_executor, create_timer_fns, destroy_timer_fns,
    }
    SE_PlatformRegistrationParams / SE_PLATFORM_REGISTRATION_PARAMS_STRUCT_SIZE {
        struct_size, ext, major_version, minor_version, patch_version, platform, platform_fns,
            destroy_platform,
        destroy_platform_fns,
    }
}

/// The include directory of TensorFlow, if there is one.
fn include_dir() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os("TENSORFLOW_INCLUDE_DIR") {
        let directory = PathBuf::from(directory);
        assert!(
            directory.join(HEADER).is_file(),
            "TENSORFLOW_INCLUDE_DIR={} lacks {HEADER}",
            directory.display()
        );
        return Some(directory);
    }
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    // Finds the package without importing it, which takes seconds.
    let find = "import importlib.util as u; \
                print(u.find_spec('tensorflow').submodule_search_locations[0])";
    let output = Command::new(python).args(["-c", find]).output().ok()?;
    let directory = Path::new(String::from_utf8(output.stdout).ok()?.trim()).join("include");
    directory.join(HEADER).is_file().then_some(directory)
}

#[test]
fn structs_agree_with_the_installed_tensorflow() {
    let Some(include) = include_dir() else {
        eprintln!(
            "skipped: no TensorFlow found; set TENSORFLOW_INCLUDE_DIR to tensorflow/include of an \
             installation"
        );
        return;
    };
    let scratch =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("headers-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let (source, binary) = (scratch.join("layout.c"), scratch.join("layout"));
    std::fs::write(&source, program()).unwrap();
    let built = Command::new("cc")
        .arg("-I")
        .arg(&include)
        .arg("-o")
        .args([&binary, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    assert_eq!(ours(), String::from_utf8(output.stdout).unwrap(), "ours is on the left");
}
