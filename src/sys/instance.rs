//! The instances that list adapters, without window systems.
//!
//! wgpu asks Vulkan for the surfaces of X11 and Wayland if the loader has them. Mesa's layer that
//! orders devices then connects to both, and prints two errors if there is no session:
//! `XDG_RUNTIME_DIR is invalid or not set in the environment`. Nothing here draws, so these
//! surfaces are left out. This way no variable has to be set, which is unsafe in a process with
//! threads.
//!
//! Vulkan's devices create pipelines through [`super::vulkan_pipelines`]. DX12 compiles shaders
//! with Microsoft's current compiler, `dxcompiler.dll`, or is not offered: the older compiler in
//! every Windows lacks 16-bit floats, 64-bit integers and subgroups, and takes minutes.

/// All adapters of the descriptor's backends. A backend that the system lacks has no adapters.
#[cfg_attr(not(any(target_os = "linux", windows)), expect(unused_mut, reason = "no Vulkan"))]
pub(crate) fn adapters(mut descriptor: wgpu::InstanceDescriptor) -> Vec<wgpu::Adapter> {
    let list = |instance: &wgpu::Instance, backends| {
        pollster::block_on(instance.enumerate_adapters(backends))
    };
    let mut found = Vec::new();
    #[cfg(any(target_os = "linux", windows))]
    if descriptor.backends.contains(wgpu::Backends::VULKAN) {
        match vulkan(&descriptor) {
            Ok(instance) => found.extend(list(&instance, wgpu::Backends::VULKAN)),
            Err(why) => log::debug!("there is no Vulkan: {why}"),
        }
        descriptor.backends -= wgpu::Backends::VULKAN;
    }
    #[cfg(windows)]
    if std::env::var_os("WGPU_DX12_COMPILER").is_none() {
        // wgpu has no DX12 if this file does not load.
        let compiler = wgpu::Dx12Compiler::DynamicDxc { dxc_path: dxc() };
        descriptor.backend_options.dx12.shader_compiler = compiler;
    }
    let others = descriptor.backends;
    found.extend(list(&wgpu::Instance::new(descriptor), others));
    found
}

/// The wheel's `dxcompiler.dll`, or the name by which the system finds another one.
#[cfg(windows)]
fn dxc() -> String {
    const NAME: &str = "dxcompiler.dll";
    let own = super::loaded::object(adapters as *const std::ffi::c_void);
    let packages = own.as_ref().and_then(|(_, library)| library.parent()?.parent());
    let shipped = packages.map(|packages| packages.join("tensorflow_wgpu").join(NAME));
    let shipped = shipped.filter(|path| path.is_file());
    shipped.map_or_else(|| NAME.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Vulkan's instance.
#[cfg(any(target_os = "linux", windows))]
fn vulkan(
    descriptor: &wgpu::InstanceDescriptor,
) -> Result<wgpu::Instance, wgpu::hal::InstanceError> {
    use std::ffi::CStr;

    use super::vulkan_pipelines;

    const SURFACES: [&CStr; 3] =
        [c"VK_KHR_xlib_surface", c"VK_KHR_xcb_surface", c"VK_KHR_wayland_surface"];

    let wanted = wgpu::hal::InstanceDescriptor {
        name: "wgpu",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options.clone(),
        telemetry: None,
        display: None,
    };
    // SAFETY: the contract of `init` is a working Vulkan loader, which wgpu's own call requires,
    // too. The callback must add no extension that the instance lacks, and remove none on which
    // wgpu-hal relies. It removes these three. No other extension needs them, and wgpu-hal itself
    // works on loaders that lack them: it checks the list before it calls one of their functions.
    let own = unsafe {
        wgpu::hal::vulkan::Instance::init_with_callback(
            &wanted,
            Some(Box::new(|arguments| {
                arguments.extensions.retain(|extension| !SURFACES.contains(extension));
            })),
        )
    };
    // SAFETY: the new instance keeps the one above alive, and so the library and the objects of
    // both. It has the same version, extensions and flags. wgpu uses the check for nvidia's layer,
    // which is passed as absent, only to present images.
    let created = own.and_then(|own| unsafe {
        let shared = own.shared_instance();
        let entry = vulkan_pipelines::hooked(shared.entry());
        wgpu::hal::vulkan::Instance::from_raw(
            entry.clone(),
            ash::Instance::load(entry.static_fn(), shared.raw_instance().handle()),
            shared.instance_api_version(),
            0,
            None,
            shared.extensions().to_vec(),
            descriptor.flags,
            descriptor.memory_budget_thresholds,
            false,
            Some(Box::new(move || drop(own))),
        )
    });
    // SAFETY: the instance has no other owner.
    created.map(|instance| unsafe { wgpu::Instance::from_hal::<wgpu::hal::api::Vulkan>(instance) })
}
