//! Shader modules without the checks that our shaders do not need, and modules whose bindings are
//! hidden from wgpu.
//!
//! naga clamps each index of an array that it cannot compute, also where the array is in workgroup
//! memory or in registers. These clamps take a fifth to a third of the inner loops. Our shaders
//! keep to the lengths of those arrays, which the target `indices` of `make drivers-suites` checks
//! in every suite. Indices of buffers depend on tensors' values, so that they stay checked: by the
//! hardware if it does that, else by naga.

/// Whether the adapter or its driver keeps shaders from accessing memory beyond a binding, so that
/// the indices of buffers need no clamps. wgpu has one switch for the clamps of all arrays, so that
/// the others can be left out only here.
///
/// Vulkan does so with `robustBufferAccess2`, which wgpu enables where it exists; without it, an
/// access may reach the other tensors of a buffer's memory. Direct3D 12 does so for raw buffers in
/// descriptor tables, which are all that wgpu binds; naga never clamps their indices. Metal has no
/// such guard. On OpenGL wgpu never clamps.
pub(crate) fn are_buffers_guarded(adapter: &wgpu::Adapter) -> bool {
    match adapter.get_info().backend {
        wgpu::Backend::Dx12 => true,
        #[cfg(any(target_os = "linux", windows))]
        wgpu::Backend::Vulkan => super::vulkan_adapter::guards_buffers(adapter),
        _ => false,
    }
}

/// Creates a shader module without naga's forced loop bounds, which cost a counter in every inner
/// loop, and, if `are_buffers_guarded`, without naga's clamps. wgpu still validates text and
/// modules.
pub(crate) fn create(
    device: &wgpu::Device,
    label: &str,
    source: wgpu::ShaderSource<'_>,
    are_buffers_guarded: bool,
) -> wgpu::ShaderModule {
    let mut checks = wgpu::ShaderRuntimeChecks::checked();
    checks.force_loop_bounding = false;
    checks.bounds_checks = !are_buffers_guarded;
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(label), source };
    // SAFETY: the contract is that loops end, and that unchecked indices are less than the lengths
    // of their arrays. Every loop in our shaders runs to a bound taken from parameters or
    // constants, and so do the indices of workgroup memory and of local arrays (CONTRIBUTING.md,
    // "Shaders"). Accesses of buffers stay checked, by naga or below it.
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
    // layout. naga's validator has accepted it; its accesses are checked and its loops end as those
    // of `create`. It writes bindings that the layout declares read-only, which makes
    // no difference in Vulkan; the recorder puts the barriers that wgpu therefore leaves out.
    unsafe { device.create_shader_module_passthrough(descriptor) }
}
