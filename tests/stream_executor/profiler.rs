//! The profiler C API: registration, and sessions from their start to the data that they return.

use std::ffi::{CStr, c_char};

use super::*;

/// c/experimental/pluggable_profiler/pluggable_profiler.h, the part that the tests read.
#[repr(C)]
struct Params {
    struct_size: usize,
    ext: *mut c_void,
    version: [i32; 3],
    profiler: *mut Profiler,
    functions: *mut Functions,
    destroy_profiler: Option<unsafe extern "C" fn(*mut Profiler)>,
    destroy_functions: Option<unsafe extern "C" fn(*mut Functions)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Profiler {
    struct_size: usize,
    ext: *mut c_void,
    device_type: *const c_char,
}

type Session = unsafe extern "C" fn(*const Profiler, *mut TF_Status);
type Collect = unsafe extern "C" fn(*const Profiler, *mut u8, *mut usize, *mut TF_Status);

#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    struct_size: usize,
    ext: *mut c_void,
    start: Option<Session>,
    stop: Option<Session>,
    collect: Option<Collect>,
}

const PARAMS: usize = size_of::<Params>();
const PROFILER: usize = size_of::<Profiler>();
const FUNCTIONS: usize = size_of::<Functions>();

/// Calls TF_InitProfiler with structs that claim these sizes.
fn register(
    params_size: usize,
    profiler_size: usize,
    functions_size: usize,
) -> (Profiler, Functions) {
    let p = plugin();
    // SAFETY: the function's type is the header's.
    let init = unsafe {
        p.library
            .get::<unsafe extern "C" fn(*mut Params, *mut TF_Status)>(b"TF_InitProfiler\0")
            .expect("TF_InitProfiler")
    };
    let mut profiler =
        Profiler { struct_size: profiler_size, ext: null_mut(), device_type: std::ptr::null() };
    let mut functions = Functions {
        struct_size: functions_size,
        ext: null_mut(),
        start: None,
        stop: None,
        collect: None,
    };
    let mut params = Params {
        struct_size: params_size,
        ext: null_mut(),
        version: [0, 0, 1],
        profiler: &raw mut profiler,
        functions: &raw mut functions,
        destroy_profiler: None,
        destroy_functions: None,
    };
    // SAFETY: the parameters are what TensorFlow passes.
    p.ok(|s| unsafe { init(&raw mut params, s) });
    if let (Some(profilers), Some(tables)) = (params.destroy_profiler, params.destroy_functions) {
        // SAFETY: as TensorFlow calls them, at its end.
        unsafe {
            profilers(&raw mut profiler);
            tables(&raw mut functions);
        }
    }
    (profiler, functions)
}

#[test]
fn registration_needs_structs_that_are_large_enough() {
    let (profiler, functions) = register(PARAMS, PROFILER, FUNCTIONS);
    // SAFETY: a static text.
    assert_eq!(unsafe { CStr::from_ptr(profiler.device_type) }, c"WGPU");
    assert!(functions.start.is_some() && functions.stop.is_some() && functions.collect.is_some());
    for (params, profiler, functions) in [
        (PARAMS - 8, PROFILER, FUNCTIONS),
        (PARAMS, PROFILER - 8, FUNCTIONS),
        (PARAMS, PROFILER, FUNCTIONS - 8),
        (0, 0, 0),
    ] {
        let (profiler, functions) = register(params, profiler, functions);
        assert!(profiler.device_type.is_null() && functions.start.is_none(), "{params}");
    }
}

#[test]
fn a_session_hands_out_what_the_device_did_once() {
    let (device, _guard) = alone();
    let p = plugin();
    let (profiler, functions) = register(PARAMS, PROFILER, FUNCTIONS);
    let (start, stop, collect) =
        (functions.start.unwrap(), functions.stop.unwrap(), functions.collect.unwrap());
    // SAFETY: as TensorFlow calls them.
    p.ok(|s| unsafe { start(&raw const profiler, s) });
    // SAFETY: as above; the second session is refused.
    let refused = p.status(|s| unsafe { start(&raw const profiler, s) });
    assert_eq!(refused.0, FAILED_PRECONDITION);
    assert!(refused.1.contains("one profiler at a time"), "{}", refused.1);
    let bytes = pattern(4096);
    let memory = device.allocate(4096).expect("memory");
    device.write(memory.address, &bytes);
    assert_eq!(device.read(memory.address, 4096), bytes);
    // SAFETY: as above.
    p.ok(|s| unsafe { stop(&raw const profiler, s) });
    let size = || {
        let mut size = 0;
        // SAFETY: null asks for the size.
        p.ok(|s| unsafe { collect(&raw const profiler, null_mut(), &raw mut size, s) });
        size
    };
    let wanted = size();
    assert!(wanted > 100, "{wanted} bytes");
    let mut small = vec![0; wanted - 1];
    let mut room = small.len();
    // SAFETY: the buffer has `room` bytes.
    let refused = p.status(|s| unsafe {
        collect(&raw const profiler, small.as_mut_ptr(), &raw mut room, s);
    });
    assert_eq!((refused.0, room), (INVALID_ARGUMENT, wanted));
    let mut space = vec![0; wanted];
    // SAFETY: as above.
    p.ok(|s| unsafe { collect(&raw const profiler, space.as_mut_ptr(), &raw mut room, s) });
    let holds = |text: &[u8]| space.windows(text.len()).any(|w| w == text);
    for text in [&b"/device:GPU:0 (WGPU: "[..], b"MemcpyH2D", b"MemcpyD2H", b"WGPU read back"] {
        assert!(holds(text), "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(size(), 0, "it is handed out once");
}
