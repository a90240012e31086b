//! `SE_InitPlugin`, the platform and its devices.

use std::ffi::c_int;

use super::{EXECUTOR, check_size, device, fill, timer};
use crate::device::paging;
use crate::error::Error;
use crate::ffi::abi::stream_executor::{
    SE_CreateDeviceFnsParams, SE_CreateDeviceParams, SE_CreateStreamExecutorParams, SE_MAJOR,
    SE_MINOR, SE_PATCH, SE_PlatformRegistrationParams, SP_Device, SP_DeviceFns, SP_Platform,
    SP_PlatformFns, SP_StreamExecutor,
};
use crate::ffi::guard::{guard_or, guard_status};
use crate::ffi::status::TF_Status;
use crate::ffi::{copy_function, device_type, hidden, plugin, python, second_copy};

/// Entry point of the StreamExecutor C API. A problem with drivers, adapters or the environment is
/// not reported as an error, which would abort `import tensorflow`. It leads to 0 devices and a
/// line in the log.
///
/// # Safety
/// TensorFlow calls this function with valid parameters and a valid status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SE_InitPlugin(
    params: *mut SE_PlatformRegistrationParams,
    status: *mut TF_Status,
) {
    guard_status(status, "SE_InitPlugin", || {
        plugin::init_logging();
        // SAFETY: TensorFlow owns `params`, and struct_size gives its size.
        let params = unsafe {
            check_size(
                params,
                "SE_PlatformRegistrationParams",
                SE_PlatformRegistrationParams::STRUCT_SIZE,
            )?;
            &mut *params
        };
        // SAFETY: both are TensorFlow's, with struct_size set.
        unsafe {
            check_size(params.platform, "SP_Platform", SP_Platform::STRUCT_SIZE)?;
            check_size(params.platform_fns, "SP_PlatformFns", SP_PlatformFns::STRUCT_SIZE)?;
        }
        (params.major_version, params.minor_version, params.patch_version) =
            (SE_MAJOR, SE_MINOR, SE_PATCH);
        let paging = paging::wanted(&|name| std::env::var(name).ok());
        let platform = SP_Platform {
            struct_size: SP_Platform::STRUCT_SIZE,
            ext: std::ptr::null_mut(),
            name: second_copy::device_type().as_ptr(),
            type_: second_copy::device_type().as_ptr(),
            supports_unified_memory: 0,
            // Uses TensorFlow's own sub-allocator, for statistics, a memory limit, and few and
            // large buffers. A device that pages must know where each tensor begins and ends.
            use_bfc_allocator: paging.is_none().into(),
            // The desktop shares the GPU, so memory is taken only as it is needed.
            force_memory_growth: 1,
        };
        // SAFETY: `platform` and `platform_fns` were checked to be as large as ours.
        unsafe {
            params.platform.write(platform);
            params.platform_fns.write(PLATFORM_FNS);
        }
        params.destroy_platform = Some(destroy_platform);
        params.destroy_platform_fns = Some(destroy_platform_fns);
        if plugin::common_capabilities().is_some() {
            python::install_hooks();
            copy_function::register();
        }
        Ok(())
    });
}

const PLATFORM_FNS: SP_PlatformFns = SP_PlatformFns {
    struct_size: SP_PlatformFns::STRUCT_SIZE,
    ext: std::ptr::null_mut(),
    get_device_count: Some(get_device_count),
    create_device: Some(create_device),
    destroy_device: Some(destroy_device),
    create_device_fns: Some(create_device_fns),
    destroy_device_fns: Some(destroy_device_fns),
    create_stream_executor: Some(create_stream_executor),
    destroy_stream_executor: Some(destroy_stream_executor),
    create_timer_fns: Some(timer::create_timer_fns),
    destroy_timer_fns: Some(timer::destroy_timer_fns),
};

// The tables hold constants and devices live forever, so there is nothing to destroy.
unsafe extern "C" fn destroy_platform(_: *mut SP_Platform) {}
unsafe extern "C" fn destroy_platform_fns(_: *mut SP_PlatformFns) {}
unsafe extern "C" fn destroy_device_fns(_: *const SP_Platform, _: *mut SP_DeviceFns) {}
unsafe extern "C" fn destroy_stream_executor(_: *const SP_Platform, _: *mut SP_StreamExecutor) {}

unsafe extern "C" fn get_device_count(
    _: *const SP_Platform,
    count: *mut c_int,
    status: *mut TF_Status,
) {
    guard_status(status, "get_device_count", || {
        let devices = guard_or(0, "get_device_count", || {
            let is_hidden = hidden::from_this_thread();
            Ok(if is_hidden { 0 } else { plugin::get().devices().len() as c_int })
        });
        // SAFETY: TensorFlow passes a valid pointer to its count.
        unsafe { count.write(devices) };
        Ok(())
    });
}

unsafe extern "C" fn create_device(
    _: *const SP_Platform,
    params: *mut SE_CreateDeviceParams,
    status: *mut TF_Status,
) {
    guard_status(status, "create_device", || {
        // SAFETY: `params` and its device are TensorFlow's, with struct_size set.
        let params = unsafe {
            check_size(params, "SE_CreateDeviceParams", SE_CreateDeviceParams::STRUCT_SIZE)?;
            check_size((*params).device, "SP_Device", SP_Device::STRUCT_SIZE)?;
            &*params
        };
        let devices = plugin::get().devices();
        let opened =
            usize::try_from(params.ordinal).ok().and_then(|i| devices.get(i)).ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "there is no {}, only {} devices",
                    device_type::get().device(params.ordinal),
                    devices.len()
                ))
            })?;
        plugin::get().mention_software(opened);
        // SAFETY: the device was checked to be as large as ours.
        unsafe { params.device.write(device::describe(opened, params.ordinal)) };
        Ok(())
    });
}

unsafe extern "C" fn destroy_device(_: *const SP_Platform, device: *mut SP_Device) {
    guard_or((), "destroy_device", || {
        // SAFETY: the struct is TensorFlow's own, and create_device filled it. The device itself
        // lives on for a later create_device.
        if let Some(device) = unsafe { device.as_mut() } {
            device.device_handle = std::ptr::null_mut();
        }
        Ok(())
    });
}

unsafe extern "C" fn create_device_fns(
    _: *const SP_Platform,
    params: *mut SE_CreateDeviceFnsParams,
    status: *mut TF_Status,
) {
    guard_status(status, "create_device_fns", || {
        // SAFETY: `params` and its table are TensorFlow's, with struct_size set.
        unsafe {
            check_size(params, "SE_CreateDeviceFnsParams", SE_CreateDeviceFnsParams::STRUCT_SIZE)?;
            fill((*params).device_fns, "SP_DeviceFns", SP_DeviceFns::STRUCT_SIZE, device::FNS)
        }
    });
}

unsafe extern "C" fn create_stream_executor(
    _: *const SP_Platform,
    params: *mut SE_CreateStreamExecutorParams,
    status: *mut TF_Status,
) {
    guard_status(status, "create_stream_executor", || {
        // SAFETY: `params` and its table are TensorFlow's, with struct_size set.
        unsafe {
            check_size(
                params,
                "SE_CreateStreamExecutorParams",
                SE_CreateStreamExecutorParams::STRUCT_SIZE,
            )?;
            fill(
                (*params).stream_executor,
                "SP_StreamExecutor",
                SP_StreamExecutor::STRUCT_SIZE,
                EXECUTOR,
            )
        }
    });
}
