//! What Vulkan says of an adapter and wgpu does not.

use std::ffi::CStr;

use ash::vk;

/// An adapter of Vulkan 1.1 or newer.
pub(super) struct Queried<'a> {
    pub instance: &'a ash::Instance,
    pub device: vk::PhysicalDevice,
    /// Whether it has an extension, and one that wgpu trusts.
    pub supports: &'a dyn Fn(&CStr) -> bool,
}

/// The answer to a query of an adapter of Vulkan; None if it is another backend's, or older.
pub(super) fn query<T>(
    adapter: &wgpu::Adapter,
    ask: impl FnOnce(Queried<'_>) -> Option<T>,
) -> Option<T> {
    // SAFETY: the adapter is only queried, and outlives the call.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let shared = hal.shared_instance();
    let properties = hal.physical_device_capabilities();
    let oldest = shared.instance_api_version().min(properties.properties().api_version);
    if oldest < vk::API_VERSION_1_1 {
        return None;
    }
    let (instance, device) = (shared.raw_instance(), hal.raw_physical_device());
    ask(Queried { instance, device, supports: &|name| properties.supports_extension(name) })
}

/// Whether the driver keeps shaders from accessing memory beyond a binding. wgpu relies on it under
/// the same conditions, and clamps the indices of buffers otherwise.
pub(super) fn guards_buffers(adapter: &wgpu::Adapter) -> bool {
    let guards = query(adapter, |Queried { instance, device, supports }| {
        if !supports(ash::ext::robustness2::NAME) {
            return None;
        }
        let mut robustness = vk::PhysicalDeviceRobustness2FeaturesEXT::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut robustness);
        // SAFETY: instance and device are at least 1.1, where the function is core; the chain holds
        // only a struct that the device supports.
        unsafe { instance.get_physical_device_features2(device, &mut features) };
        Some(robustness.robust_buffer_access2 == vk::TRUE)
    });
    guards == Some(true)
}
