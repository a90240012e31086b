//! The properties that a device reports to TensorFlow.

use std::ffi::{CStr, c_char};

use super::opened;
use crate::ffi::abi::stream_executor::{SP_Device, SP_DeviceFns};
use crate::ffi::guard::guard_or;
use crate::ffi::handle::Handle;
use crate::ffi::plugin::PluginDevice;

/// The property functions, the same for every device.
pub(super) const FNS: SP_DeviceFns = SP_DeviceFns {
    struct_size: SP_DeviceFns::STRUCT_SIZE,
    ext: std::ptr::null_mut(),
    get_numa_node: Some(get_numa_node),
    get_memory_bandwidth: Some(get_memory_bandwidth),
    get_gflops: Some(get_gflops),
};

/// The C struct of a device. Its strings live as long as the device: forever.
pub(super) fn describe(device: &'static Handle<PluginDevice>, ordinal: i32) -> SP_Device {
    SP_Device {
        struct_size: SP_Device::STRUCT_SIZE,
        ext: std::ptr::null_mut(),
        ordinal,
        device_handle: device.lend(),
        hardware_name: device.hardware_name.as_ptr(),
        device_vendor: device.vendor.as_ptr(),
        pci_bus_id: device.pci_bus_id.as_deref().map_or(std::ptr::null::<c_char>(), CStr::as_ptr),
    }
}

unsafe extern "C" fn get_numa_node(device: *const SP_Device) -> i32 {
    // SAFETY: TensorFlow passes its SP_Device.
    guard_or(-1, "get_numa_node", || Ok(unsafe { opened(device) }?.numa_node))
}

/// Returns a negative number for unknown: neither Vulkan nor Metal nor DX12 reports it.
unsafe extern "C" fn get_memory_bandwidth(_: *const SP_Device) -> i64 {
    -1
}

/// Returns a negative number for unknown: neither Vulkan nor Metal nor DX12 reports it.
unsafe extern "C" fn get_gflops(_: *const SP_Device) -> f64 {
    -1.0
}
