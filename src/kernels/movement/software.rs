//! How moves differ on software adapters.

use crate::device::Device;

/// Whether transposes go through workgroup memory: a processor's caches do the same at no cost.
pub fn tiles(device: &Device) -> bool {
    !device.profile().is_software()
}

/// The largest tensor, in bytes, that is moved to or from several others at once: a processor
/// executes every part's branch for every element.
pub fn together(device: &Device) -> u64 {
    if device.profile().is_software() { 1 << 18 } else { u64::MAX }
}
