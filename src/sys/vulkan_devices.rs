//! Vulkan's physical devices, and the devices that are hidden from wgpu.
//!
//! wgpu queries the features of every device while it lists them. A driver that crashes then would
//! end the process, so a device that is known to crash is hidden: [`enumerate`] replaces Vulkan's
//! own function and leaves it out.

use std::ffi::CStr;
use std::fmt;
use std::sync::OnceLock;

use ash::vk;
use parking_lot::RwLock;

/// The identity of a device and its driver. Two GPUs of one model are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The numbers of the vendor and the device, and the driver's version in the driver's own
    /// encoding.
    pub numbers: [u32; 3],
    /// The device's name.
    pub name: String,
}

/// Prints it as a line, which [`Identity::of_line`] reads.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vendor, device, driver] = self.numbers;
        write!(f, "{vendor} {device} {driver} {}", self.name.replace('\n', " "))
    }
}

impl Identity {
    /// Parses the identity of a device from a line.
    pub fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let mut number = || parts.next()?.parse().ok();
        let numbers = [number()?, number()?, number()?];
        Some(Self { numbers, name: parts.next()?.to_owned() })
    }
}

static HIDDEN: RwLock<Vec<Identity>> = RwLock::new(Vec::new());
static ENUMERATE: OnceLock<vk::PFN_vkEnumeratePhysicalDevices> = OnceLock::new();
static PROPERTIES: OnceLock<vk::PFN_vkGetPhysicalDeviceProperties> = OnceLock::new();

/// Hides exactly these devices from now on.
pub(crate) fn hide(devices: Vec<Identity>) {
    *HIDDEN.write() = devices;
}

/// The devices of the loader in its order, by Vulkan 1.0 functions only. Empty if there is no
/// loader, or no device.
pub(super) fn list() -> Vec<Identity> {
    // SAFETY: the contract of `load` is a working loader, which wgpu's own call requires, too. The
    // instance is used and destroyed only here.
    unsafe {
        let Ok(entry) = ash::Entry::load() else { return Vec::new() };
        let Ok(instance) = entry.create_instance(&vk::InstanceCreateInfo::default(), None) else {
            return Vec::new();
        };
        let properties = instance.fp_v1_0().get_physical_device_properties;
        let devices = instance.enumerate_physical_devices().unwrap_or_default();
        let found = devices.into_iter().map(|device| identity(properties, device)).collect();
        instance.destroy_instance(None);
        found
    }
}

/// # Safety
/// `device` must be a device of an instance that is alive, and `properties` that instance's
/// function.
unsafe fn identity(
    properties: vk::PFN_vkGetPhysicalDeviceProperties,
    device: vk::PhysicalDevice,
) -> Identity {
    let mut found = vk::PhysicalDeviceProperties::default();
    // SAFETY: the caller's contract.
    unsafe { properties(device, &raw mut found) };
    let name = found.device_name_as_c_str().map(CStr::to_string_lossy).unwrap_or_default();
    Identity {
        numbers: [found.vendor_id, found.device_id, found.driver_version],
        name: name.into_owned(),
    }
}

/// Sets the loader's functions that [`enumerate`] calls. They serve all instances.
pub(super) fn hook(
    enumerate: vk::PFN_vkEnumeratePhysicalDevices,
    properties: vk::PFN_vkGetPhysicalDeviceProperties,
) {
    ENUMERATE.get_or_init(|| enumerate);
    PROPERTIES.get_or_init(|| properties);
}

/// `vkEnumeratePhysicalDevices` without the hidden devices.
pub(super) unsafe extern "system" fn enumerate(
    instance: vk::Instance,
    count: *mut u32,
    devices: *mut vk::PhysicalDevice,
) -> vk::Result {
    let (Some(ask), Some(properties)) = (ENUMERATE.get(), PROPERTIES.get()) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let hidden = HIDDEN.read();
    // SAFETY: the caller's arguments follow Vulkan's contract: a count, and room for `count`
    // devices unless the pointer is null.
    unsafe {
        if hidden.is_empty() {
            return ask(instance, count, devices);
        }
        let mut all = 0;
        let result = ask(instance, &raw mut all, std::ptr::null_mut());
        if result != vk::Result::SUCCESS {
            return result;
        }
        let mut found = vec![vk::PhysicalDevice::null(); all as usize];
        let result = ask(instance, &raw mut all, found.as_mut_ptr());
        if result.as_raw() < 0 {
            return result;
        }
        found.truncate(all as usize);
        found.retain(|device| !hidden.contains(&identity(*properties, *device)));
        if devices.is_null() {
            *count = found.len() as u32;
            return vk::Result::SUCCESS;
        }
        let room = found.len().min(*count as usize);
        std::ptr::copy_nonoverlapping(found.as_ptr(), devices, room);
        *count = room as u32;
        if room < found.len() { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_line() {
        for name in ["NVIDIA GeForce RTX 5090", "", "llvmpipe (LLVM 15.0.6, 256 bits)"] {
            let device = Identity { numbers: [4318, 0, u32::MAX], name: name.to_owned() };
            assert_eq!(Identity::of_line(&device.to_string()), Some(device));
        }
        for none in ["", "1 2", "1 2 x name", "-1 2 3 name"] {
            assert_eq!(Identity::of_line(none), None, "{none}");
        }
    }
}
