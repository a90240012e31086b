//! Whether an adapter has an instruction for `dot4I8Packed`, which wgpu does not report.

/// Whether the driver says that dot products of four packed signed bytes are accelerated. None if
/// the backend cannot be asked.
#[cfg(any(target_os = "linux", windows))]
pub(crate) fn is_accelerated(adapter: &wgpu::Adapter) -> Option<bool> {
    use ash::vk;

    use super::vulkan_adapter::{Queried, query};

    query(adapter, |Queried { instance, device, supports }| {
        if !supports(ash::khr::shader_integer_dot_product::NAME) {
            return Some(false);
        }
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut dot);
        // SAFETY: instance and device are at least 1.1, where the function is core; the device
        // knows the struct of the chain.
        unsafe { instance.get_physical_device_properties2(device, &mut properties) };
        Some(dot.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE)
    })
}

/// None: Metal has no such instruction, and no other backend can be asked.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) fn is_accelerated(_: &wgpu::Adapter) -> Option<bool> {
    None
}
