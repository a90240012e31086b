//! The instance that lists adapters, without window systems.
//!
//! wgpu asks Vulkan for the surfaces of X11 and Wayland wherever the loader has them. Mesa's layer
//! that orders devices then connects to both, and prints two errors where there is no session:
//! `XDG_RUNTIME_DIR is invalid or not set in the environment`. Nothing here draws, so these
//! surfaces are left out. No variable has to be set for that, which no process with threads can
//! do safely.

/// An instance of the descriptor's backends. One that the system lacks lists no adapters.
pub(crate) fn create(descriptor: wgpu::InstanceDescriptor) -> wgpu::Instance {
    #[cfg(all(unix, not(target_vendor = "apple")))]
    if descriptor.backends.contains(wgpu::Backends::VULKAN) {
        return vulkan(descriptor);
    }
    wgpu::Instance::new(descriptor)
}

/// Vulkan is the only backend here.
#[cfg(all(unix, not(target_vendor = "apple")))]
fn vulkan(descriptor: wgpu::InstanceDescriptor) -> wgpu::Instance {
    use std::ffi::CStr;

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
    // SAFETY: the contract of `init` is to have a Vulkan loader that works, as wgpu's own call of
    // it. That of the callback is to add nothing that the instance lacks, and to remove nothing on
    // which wgpu-hal relies. These three are removed, no other extension needs them, and wgpu-hal
    // itself goes without where a loader lacks them: it looks into the list before it calls one of
    // their functions. The instance is nobody else's.
    let created = unsafe {
        wgpu::hal::vulkan::Instance::init_with_callback(
            &wanted,
            Some(Box::new(|arguments| {
                arguments.extensions.retain(|extension| !SURFACES.contains(extension));
            })),
        )
        .map(|instance| wgpu::Instance::from_hal::<wgpu::hal::api::Vulkan>(instance))
    };
    created.unwrap_or_else(|why| {
        log::debug!("there is no Vulkan: {why}");
        wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::empty(),
            ..descriptor
        })
    })
}
