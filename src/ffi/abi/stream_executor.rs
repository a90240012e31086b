//! tensorflow/c/experimental/stream_executor/stream_executor.h, version 0.0.1, translated by hand.
//!
//! The structs are the same in TensorFlow 2.12 to 2.22; tests/tensorflow_headers.rs compares them
//! with the header of an installed TensorFlow. `SP_` structs are filled by the plugin, `SE_`
//! structs by TensorFlow.

#![expect(non_camel_case_types, reason = "TensorFlow's names")]

use std::ffi::{c_char, c_int, c_void};

use super::TF_Status;

/// Version of the header.
pub const SE_MAJOR: i32 = 0;
/// Version of the header.
pub const SE_MINOR: i32 = 0;
/// Version of the header.
pub const SE_PATCH: i32 = 1;

/// C's `unsigned char`, 0 or 1.
pub type TF_Bool = u8;

macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident as $pointer:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            opaque: [u8; 0],
        }
        /// Pointer to the plugin's own object.
        pub type $pointer = *mut $name;
    )*};
}

opaque! {
    /// A stream of the plugin.
    SP_Stream_st as SP_Stream;
    /// An event of the plugin.
    SP_Event_st as SP_Event;
    /// A timer of the plugin.
    SP_Timer_st as SP_Timer;
}

/// `SE_EventStatus`. Anything but pending and complete ends the process.
pub type SE_EventStatus = c_int;
/// The event's work is not done yet.
pub const SE_EVENT_PENDING: SE_EventStatus = 2;
/// The event's work is done.
pub const SE_EVENT_COMPLETE: SE_EventStatus = 3;

/// A host callback with its argument.
pub type SE_StatusCallbackFn = Option<unsafe extern "C" fn(*mut c_void, *mut TF_Status)>;

/// Declares a C struct and `STRUCT_SIZE`, TensorFlow's `TF_OFFSET_OF_END` of the last field: the
/// size without the padding at the end.
macro_rules! c_struct {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty,)* } ends with $last:ident:
        $last_type:ty) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        pub struct $name {
            $(pub $field: $type,)*
            pub $last: $last_type,
        }

        impl $name {
            /// The value of `struct_size`.
            pub const STRUCT_SIZE: usize = std::mem::offset_of!($name,
                $last) + size_of::<$last_type>();
        }
    };
}

c_struct! {
    /// Functions of a timer.
    SP_TimerFns {
        struct_size: usize,
        ext: *mut c_void,
    } ends with nanoseconds: Option<unsafe extern "C" fn(SP_Timer) -> u64>
}

c_struct! {
    /// Statistics of a device's memory.
    SP_AllocatorStats {
        struct_size: usize,
        num_allocs: i64,
        bytes_in_use: i64,
        peak_bytes_in_use: i64,
        largest_alloc_size: i64,
        has_bytes_limit: i8,
        bytes_limit: i64,
        bytes_reserved: i64,
        peak_bytes_reserved: i64,
        has_bytes_reservable_limit: i8,
        bytes_reservable_limit: i64,
    } ends with largest_free_block_bytes: i64
}

c_struct! {
    /// A range of device memory.
    SP_DeviceMemoryBase {
        struct_size: usize,
        ext: *mut c_void,
        opaque: *mut c_void,
        size: u64,
    } ends with payload: u64
}

c_struct! {
    /// A device.
    SP_Device {
        struct_size: usize,
        ext: *mut c_void,
        ordinal: i32,
        device_handle: *mut c_void,
        hardware_name: *const c_char,
        device_vendor: *const c_char,
    } ends with pci_bus_id: *const c_char
}

c_struct! {
    /// The argument of `create_device`.
    SE_CreateDeviceParams {
        struct_size: usize,
        ext: *mut c_void,
        ordinal: i32,
    } ends with device: *mut SP_Device
}

c_struct! {
    /// Properties of a device.
    SP_DeviceFns {
        struct_size: usize,
        ext: *mut c_void,
        get_numa_node: Option<unsafe extern "C" fn(*const SP_Device) -> i32>,
        get_memory_bandwidth: Option<unsafe extern "C" fn(*const SP_Device) -> i64>,
    } ends with get_gflops: Option<unsafe extern "C" fn(*const SP_Device) -> f64>
}

c_struct! {
    /// The argument of `create_device_fns`.
    SE_CreateDeviceFnsParams {
        struct_size: usize,
        ext: *mut c_void,
    } ends with device_fns: *mut SP_DeviceFns
}

type Device = *const SP_Device;
type Status = *mut TF_Status;
type Memory = *mut SP_DeviceMemoryBase;
type ConstMemory = *const SP_DeviceMemoryBase;

c_struct! {
    /// Memory, streams, events, timers and copies of a device.
    SP_StreamExecutor {
        struct_size: usize,
        ext: *mut c_void,
        allocate: Option<unsafe extern "C" fn(Device, u64, i64, Memory)>,
        deallocate: Option<unsafe extern "C" fn(Device, Memory)>,
        host_memory_allocate: Option<unsafe extern "C" fn(Device, u64) -> *mut c_void>,
        host_memory_deallocate: Option<unsafe extern "C" fn(Device, *mut c_void)>,
        unified_memory_allocate: Option<unsafe extern "C" fn(Device, u64) -> *mut c_void>,
        unified_memory_deallocate: Option<unsafe extern "C" fn(Device, *mut c_void)>,
        get_allocator_stats: Option<unsafe extern "C" fn(Device,
            *mut SP_AllocatorStats) -> TF_Bool>,
        device_memory_usage: Option<unsafe extern "C" fn(Device, *mut i64, *mut i64) -> TF_Bool>,
        create_stream: Option<unsafe extern "C" fn(Device, *mut SP_Stream, Status)>,
        destroy_stream: Option<unsafe extern "C" fn(Device, SP_Stream)>,
        create_stream_dependency: Option<unsafe extern "C" fn(Device, SP_Stream, SP_Stream,
            Status)>,
        get_stream_status: Option<unsafe extern "C" fn(Device, SP_Stream, Status)>,
        create_event: Option<unsafe extern "C" fn(Device, *mut SP_Event, Status)>,
        destroy_event: Option<unsafe extern "C" fn(Device, SP_Event)>,
        get_event_status: Option<unsafe extern "C" fn(Device, SP_Event) -> SE_EventStatus>,
        record_event: Option<unsafe extern "C" fn(Device, SP_Stream, SP_Event, Status)>,
        wait_for_event: Option<unsafe extern "C" fn(Device, SP_Stream, SP_Event, Status)>,
        create_timer: Option<unsafe extern "C" fn(Device, *mut SP_Timer, Status)>,
        destroy_timer: Option<unsafe extern "C" fn(Device, SP_Timer)>,
        start_timer: Option<unsafe extern "C" fn(Device, SP_Stream, SP_Timer, Status)>,
        stop_timer: Option<unsafe extern "C" fn(Device, SP_Stream, SP_Timer, Status)>,
        memcpy_dtoh: Option<unsafe extern "C" fn(Device, SP_Stream, *mut c_void, ConstMemory, u64,
            Status)>,
        memcpy_htod: Option<unsafe extern "C" fn(Device, SP_Stream, Memory, *const c_void, u64,
            Status)>,
        memcpy_dtod: Option<unsafe extern "C" fn(Device, SP_Stream, Memory, ConstMemory, u64,
            Status)>,
        sync_memcpy_dtoh: Option<unsafe extern "C" fn(Device, *mut c_void, ConstMemory, u64,
            Status)>,
        sync_memcpy_htod: Option<unsafe extern "C" fn(Device, Memory, *const c_void, u64, Status)>,
        sync_memcpy_dtod: Option<unsafe extern "C" fn(Device, Memory, ConstMemory, u64, Status)>,
        block_host_for_event: Option<unsafe extern "C" fn(Device, SP_Event, Status)>,
        block_host_until_done: Option<unsafe extern "C" fn(Device, SP_Stream, Status)>,
        synchronize_all_activity: Option<unsafe extern "C" fn(Device, Status)>,
        mem_zero: Option<unsafe extern "C" fn(Device, SP_Stream, Memory, u64, Status)>,
        memset: Option<unsafe extern "C" fn(Device, SP_Stream, Memory, u8, u64, Status)>,
        memset32: Option<unsafe extern "C" fn(Device, SP_Stream, Memory, u32, u64, Status)>,
    } ends with host_callback:
        Option<unsafe extern "C" fn(Device, SP_Stream, SE_StatusCallbackFn, *mut c_void) -> TF_Bool>
}

c_struct! {
    /// The argument of `create_stream_executor`.
    SE_CreateStreamExecutorParams {
        struct_size: usize,
        ext: *mut c_void,
    } ends with stream_executor: *mut SP_StreamExecutor
}

c_struct! {
    /// The platform: one device type.
    SP_Platform {
        struct_size: usize,
        ext: *mut c_void,
        name: *const c_char,
        type_: *const c_char,
        supports_unified_memory: TF_Bool,
        use_bfc_allocator: TF_Bool,
    } ends with force_memory_growth: TF_Bool
}

type Platform = *const SP_Platform;

c_struct! {
    /// Functions of the platform.
    SP_PlatformFns {
        struct_size: usize,
        ext: *mut c_void,
        get_device_count: Option<unsafe extern "C" fn(Platform, *mut c_int, Status)>,
        create_device: Option<unsafe extern "C" fn(Platform, *mut SE_CreateDeviceParams, Status)>,
        destroy_device: Option<unsafe extern "C" fn(Platform, *mut SP_Device)>,
        create_device_fns: Option<unsafe extern "C" fn(Platform, *mut SE_CreateDeviceFnsParams,
            Status)>,
        destroy_device_fns: Option<unsafe extern "C" fn(Platform, *mut SP_DeviceFns)>,
        create_stream_executor: Option<unsafe extern "C" fn(Platform,
            *mut SE_CreateStreamExecutorParams, Status)>,
        destroy_stream_executor: Option<unsafe extern "C" fn(Platform, *mut SP_StreamExecutor)>,
        create_timer_fns: Option<unsafe extern "C" fn(Platform, *mut SP_TimerFns, Status)>,
    } ends with destroy_timer_fns: Option<unsafe extern "C" fn(Platform, *mut SP_TimerFns)>
}

c_struct! {
    /// The argument of `SE_InitPlugin`.
    SE_PlatformRegistrationParams {
        struct_size: usize,
        ext: *mut c_void,
        major_version: i32,
        minor_version: i32,
        patch_version: i32,
        platform: *mut SP_Platform,
        platform_fns: *mut SP_PlatformFns,
        destroy_platform: Option<unsafe extern "C" fn(*mut SP_Platform)>,
    } ends with destroy_platform_fns: Option<unsafe extern "C" fn(*mut SP_PlatformFns)>
}
