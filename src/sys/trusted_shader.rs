//! Shader modules without naga's loop counters, and modules whose bindings are hidden from wgpu.

/// Creates a shader module that keeps naga's bounds checks but not its forced loop bounds, which
/// cost a counter in every inner loop. wgpu still validates text and modules.
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

/// Creates a shader module from SPIR-V that naga wrote, with the entry point `main`. wgpu does not
/// know which of its bindings it writes.
pub(crate) fn create_unseen(
    device: &wgpu::Device,
    label: &str,
    spirv: Vec<u32>,
    workgroup: [u32; 3],
) -> wgpu::ShaderModule {
    let [x, y, z] = workgroup;
    let entry =
        wgpu::PassthroughShaderEntryPoint { name: "main".into(), workgroup_size: (x, y, z) };
    let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
        label: Some(label),
        spirv: Some(spirv.into()),
        entry_points: vec![entry].into(),
        ..Default::default()
    };
    // SAFETY: the contract is that the code is valid, terminates, and keeps to its pipeline's
    // layout. naga's validator has accepted it, its accesses are checked and its loops end for the
    // reason given in `create`. It writes bindings that the layout declares read-only, which makes
    // no difference in Vulkan; the recorder puts the barriers that wgpu therefore leaves out.
    unsafe { device.create_shader_module_passthrough(descriptor) }
}
