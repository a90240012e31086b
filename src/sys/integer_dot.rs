//! Whether an adapter has an instruction for `dot4I8Packed`, which wgpu does not report.

/// Whether the driver says that dot products of four packed signed bytes are accelerated. None if
/// the backend cannot be asked.
#[cfg(any(target_os = "linux", windows))]
pub(crate) fn is_accelerated(adapter: &wgpu::Adapter) -> Option<bool> {
    use ash::vk;

    // SAFETY: the adapter is only queried, and outlives the call.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let (instance, capabilities) = (hal.shared_instance(), hal.physical_device_capabilities());
    let version = capabilities.properties().api_version.min(instance.instance_api_version());
    let is_known = version >= vk::API_VERSION_1_3
        || version >= vk::API_VERSION_1_1
            && capabilities.supports_extension(ash::khr::shader_integer_dot_product::NAME);
    if !is_known {
        return Some(false);
    }
    let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut dot);
    // SAFETY: instance and device are at least 1.1, where the function is core; the device knows
    // the struct of the chain.
    unsafe {
        instance
            .raw_instance()
            .get_physical_device_properties2(hal.raw_physical_device(), &mut properties);
    }
    Some(dot.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE)
}

/// None: Metal has no such instruction, and no other backend can be asked.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) fn is_accelerated(_: &wgpu::Adapter) -> Option<bool> {
    None
}
