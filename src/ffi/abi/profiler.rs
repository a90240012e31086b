//! Structs of c/experimental/pluggable_profiler/pluggable_profiler.h.

#![expect(non_camel_case_types, reason = "TensorFlow's names")]

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

use super::TF_Status;

/// The major version of the API that these structs follow.
pub const TP_MAJOR: i32 = 0;

/// The profiler's device type.
#[derive(Debug)]
#[repr(C)]
pub struct TP_Profiler {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub device_type: *const c_char,
}

impl TP_Profiler {
    pub const STRUCT_SIZE: usize = offset_of!(Self, device_type) + size_of::<*const c_char>();
}

/// Starts or stops a session.
pub type TP_Session = unsafe extern "C" fn(*const TP_Profiler, *mut TF_Status);
/// Reports the size of the collected data, or copies the data.
pub type TP_Collect = unsafe extern "C" fn(*const TP_Profiler, *mut u8, *mut usize, *mut TF_Status);

/// The profiler's functions.
#[derive(Debug)]
#[repr(C)]
pub struct TP_ProfilerFns {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub start: Option<TP_Session>,
    pub stop: Option<TP_Session>,
    pub collect_data_xspace: Option<TP_Collect>,
}

impl TP_ProfilerFns {
    pub const STRUCT_SIZE: usize =
        offset_of!(Self, collect_data_xspace) + size_of::<Option<TP_Collect>>();
}

/// The struct that `TF_InitProfiler` fills.
#[derive(Debug)]
#[repr(C)]
pub struct TF_ProfilerRegistrationParams {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub major_version: i32,
    pub minor_version: i32,
    pub patch_version: i32,
    pub profiler: *mut TP_Profiler,
    pub profiler_fns: *mut TP_ProfilerFns,
    pub destroy_profiler: Option<unsafe extern "C" fn(*mut TP_Profiler)>,
    pub destroy_profiler_fns: Option<unsafe extern "C" fn(*mut TP_ProfilerFns)>,
}

impl TF_ProfilerRegistrationParams {
    pub const STRUCT_SIZE: usize = offset_of!(Self, destroy_profiler_fns)
        + size_of::<Option<unsafe extern "C" fn(*mut TP_ProfilerFns)>>();
}
