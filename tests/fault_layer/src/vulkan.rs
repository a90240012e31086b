//! The few types of Vulkan and of its loader that a layer needs, with the names of `vulkan_core.h`
//! and `vk_layer.h`.

use std::ffi::{c_char, c_void};

/// `VkResult`.
pub type VkResult = i32;
pub const VK_SUCCESS: VkResult = 0;
pub const VK_INCOMPLETE: VkResult = 5;
pub const VK_ERROR_INITIALIZATION_FAILED: VkResult = -3;
pub const VK_ERROR_DEVICE_LOST: VkResult = -4;

/// A dispatchable handle: an instance, a device, a queue, a command buffer. It points to an object
/// that begins with the loader's table, which all objects of one instance or device share.
pub type Object = *const usize;

pub type Function = unsafe extern "system" fn();
pub type GetProcAddr = unsafe extern "system" fn(Object, *const c_char) -> Option<Function>;
pub type CreateInstance =
    unsafe extern "system" fn(*const c_void, *const c_void, *mut Object) -> VkResult;
pub type CreateDevice =
    unsafe extern "system" fn(Object, *const c_void, *const c_void, *mut Object) -> VkResult;
pub type Destroy = unsafe extern "system" fn(Object, *const c_void);

pub const LOADER_INSTANCE_CREATE_INFO: i32 = 47;
pub const LOADER_DEVICE_CREATE_INFO: i32 = 48;
pub const LAYER_LINK_INFO: i32 = 0;
pub const LAYER_NEGOTIATE_INTERFACE_STRUCT: i32 = 1;

/// `VkNegotiateLayerInterface`.
#[repr(C)]
pub struct Negotiation {
    pub s_type: i32,
    pub next: *mut c_void,
    pub version: u32,
    pub get_instance_proc_addr: Option<GetProcAddr>,
    pub get_device_proc_addr: Option<GetProcAddr>,
    pub get_physical_device_proc_addr: Option<GetProcAddr>,
}

/// The common part of `VkInstanceCreateInfo` and `VkDeviceCreateInfo`.
#[repr(C)]
pub struct CreateInfo {
    pub s_type: i32,
    pub next: *mut LayerCreateInfo,
}

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`, which the loader puts into the chain
/// of [`CreateInfo`].
#[repr(C)]
pub struct LayerCreateInfo {
    pub s_type: i32,
    pub next: *mut Self,
    pub function: i32,
    pub link: *mut Link,
}

/// `VkLayerInstanceLink` and `VkLayerDeviceLink`.
#[repr(C)]
pub struct Link {
    pub next: *mut Self,
    pub get_instance_proc_addr: GetProcAddr,
    /// In an instance's link, the function for physical devices.
    pub get_device_proc_addr: GetProcAddr,
}
