//! The number of a GPU's cores, which the native API reports and wgpu does not.

/// The fewest multiprocessors of NVIDIA's GPUs that run Vulkan 1.1 or newer. Mesa's driver reports
/// two where it compiles without a GPU.
#[cfg(any(target_os = "linux", windows))]
const FEWEST: u32 = 3;

/// The number of compute units (AMD) or multiprocessors (NVIDIA), if the driver reports it.
#[cfg(any(target_os = "linux", windows))]
pub(crate) fn cores(adapter: &wgpu::Adapter) -> Option<u32> {
    use ash::{amd, nv, vk};

    use super::vulkan_adapter::{Queried, query};

    query(adapter, |Queried { instance, device, supports }| {
        let mut sm = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut cu = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
        let mut active = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
        let mut properties = vk::PhysicalDeviceProperties2::default();
        if supports(nv::shader_sm_builtins::NAME) {
            properties = properties.push_next(&mut sm);
        }
        if supports(amd::shader_core_properties::NAME) {
            properties = properties.push_next(&mut cu);
        }
        if supports(amd::shader_core_properties2::NAME) {
            properties = properties.push_next(&mut active);
        }
        // SAFETY: instance and device are at least 1.1, where the function is core; the chain holds
        // only structs that the device supports.
        unsafe { instance.get_physical_device_properties2(device, &mut properties) };
        // Structs that the device does not know stay zero.
        let present = cu.shader_engine_count
            * cu.shader_arrays_per_engine_count
            * cu.compute_units_per_shader_array;
        if sm.shader_sm_count >= FEWEST {
            return Some(sm.shader_sm_count);
        }
        [active.active_compute_unit_count, present].into_iter().find(|count| *count > 0)
    })
}

/// The number of cores, which no driver reports here.
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) const fn cores(_: &wgpu::Adapter) -> Option<u32> {
    None
}
