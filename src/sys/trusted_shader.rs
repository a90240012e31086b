//! Shader modules without naga's loop counters.

/// Creates a shader module that keeps naga's bounds checks but not its forced loop bounds, which
/// cost a counter in every inner loop. wgpu still validates it.
pub(crate) fn create(
    device: &wgpu::Device,
    label: &str,
    source: wgpu::ShaderSource<'_>,
) -> wgpu::ShaderModule {
    let mut checks = wgpu::ShaderRuntimeChecks::checked();
    checks.force_loop_bounding = false;
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(label), source };
    // SAFETY: the contract is that loops end. Every loop in our shaders runs to a bound taken from
    // parameters or constants (CONTRIBUTING.md, "Shaders"); memory accesses stay checked.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}
