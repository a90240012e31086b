//! Vulkan pipelines that a driver refuses.
//!
//! wgpu ends a device when a driver refuses one of its pipelines. Drivers do refuse pipelines:
//! because of too much scratch memory, too many registers, or a fault of their own in one shader.
//! So this module stands between wgpu and the driver where wgpu creates pipelines. In place of a
//! refused pipeline wgpu gets one that does nothing, and [`refusals`] reports the refusal to the
//! thread that asked for it, so that the pipeline is never used and the device stays. That thread
//! may also ask for a pipeline without optimizations, which takes another way through most
//! compilers.
//!
//! wgpu loads Vulkan's functions through a function that it is given. [`hooked`] passes one that
//! handles `vkCreateComputePipelines` itself, lets `vulkan_devices` handle the list of devices, and
//! asks the loader for all others.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use ash::vk;
use parking_lot::RwLock;

use super::refusals::{self, Optimizations};
#[cfg(has_examination)]
use super::vulkan_devices;

/// A function of any type, until it is called.
type Function = unsafe extern "system" fn();

/// The driver's functions.
#[derive(Clone, Copy)]
struct Functions {
    create_pipelines: vk::PFN_vkCreateComputePipelines,
    create_module: vk::PFN_vkCreateShaderModule,
    destroy_module: vk::PFN_vkDestroyShaderModule,
}

/// The functions of each device. A new device may have the handle of an earlier one; its functions
/// replace the earlier one's.
static DEVICES: RwLock<Vec<(vk::Device, Functions)>> = RwLock::new(Vec::new());
/// The loader, which stays in the process: another loader would have its functions at other
/// addresses.
static LOADER: OnceLock<ash::Entry> = OnceLock::new();
static DEVICE_FUNCTION: OnceLock<vk::PFN_vkGetDeviceProcAddr> = OnceLock::new();

/// An entry like `entry`, except that the devices of its instances get their pipelines from this
/// module.
pub(super) fn hooked(entry: &ash::Entry) -> ash::Entry {
    LOADER.get_or_init(|| entry.clone());
    let functions = ash::StaticFn { get_instance_proc_addr: instance_function };
    // SAFETY: the function keeps Vulkan's contract by calling the loader's own function, which
    // stays.
    unsafe { ash::Entry::from_static_fn(functions) }
}

unsafe extern "system" fn instance_function(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let loader = LOADER.get()?.static_fn().get_instance_proc_addr;
    // SAFETY: the caller's arguments follow Vulkan's contract: a name that ends with a NUL.
    let (found, name) = unsafe { (loader(instance, name)?, CStr::from_ptr(name)) };
    #[cfg(has_examination)]
    if name == c"vkEnumeratePhysicalDevices" {
        // SAFETY: each name has its function's type, and function pointers have one size.
        return Some(unsafe {
            let properties = loader(instance, c"vkGetPhysicalDeviceProperties".as_ptr())?;
            vulkan_devices::hook(
                std::mem::transmute::<Function, vk::PFN_vkEnumeratePhysicalDevices>(found),
                std::mem::transmute::<Function, vk::PFN_vkGetPhysicalDeviceProperties>(properties),
            );
            std::mem::transmute::<vk::PFN_vkEnumeratePhysicalDevices, Function>(
                vulkan_devices::enumerate,
            )
        });
    }
    if name != c"vkGetDeviceProcAddr" {
        return Some(found);
    }
    // SAFETY: the function of this name has this type; function pointers have one size.
    unsafe {
        DEVICE_FUNCTION
            .get_or_init(|| std::mem::transmute::<Function, vk::PFN_vkGetDeviceProcAddr>(found));
        Some(std::mem::transmute::<vk::PFN_vkGetDeviceProcAddr, Function>(device_function))
    }
}

unsafe extern "system" fn device_function(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    let loader = *DEVICE_FUNCTION.get()?;
    // SAFETY: as above.
    let (found, name) = unsafe { (loader(device, name)?, CStr::from_ptr(name)) };
    if name != c"vkCreateComputePipelines" {
        return Some(found);
    }
    // If one of the functions is missing, pipelines are created by the driver's own function.
    // SAFETY: each name has its function's type.
    let functions = unsafe {
        let of = |name: &CStr| loader(device, name.as_ptr());
        let (Some(create_pipelines), Some(create_module), Some(destroy_module)) = (
            of(c"vkCreateComputePipelines"),
            of(c"vkCreateShaderModule"),
            of(c"vkDestroyShaderModule"),
        ) else {
            return Some(found);
        };
        Functions {
            create_pipelines: std::mem::transmute::<Function, vk::PFN_vkCreateComputePipelines>(
                create_pipelines,
            ),
            create_module: std::mem::transmute::<Function, vk::PFN_vkCreateShaderModule>(
                create_module,
            ),
            destroy_module: std::mem::transmute::<Function, vk::PFN_vkDestroyShaderModule>(
                destroy_module,
            ),
        }
    };
    let mut devices = DEVICES.write();
    devices.retain(|(other, _)| *other != device);
    devices.push((device, functions));
    // SAFETY: a function pointer may be kept as another type until it is called.
    Some(unsafe {
        std::mem::transmute::<vk::PFN_vkCreateComputePipelines, Function>(create_pipelines)
    })
}

fn functions(device: vk::Device) -> Option<Functions> {
    DEVICES.read().iter().find(|(other, _)| *other == device).map(|(_, functions)| *functions)
}

/// Whether an answer concerns the shader. A lost device and exhausted memory are handled by wgpu.
fn is_refusal(result: vk::Result) -> bool {
    let others = [
        vk::Result::ERROR_DEVICE_LOST,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
    ];
    result.as_raw() < 0 && !others.contains(&result)
}

unsafe extern "system" fn create_pipelines(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    pipelines: *mut vk::Pipeline,
) -> vk::Result {
    let Some(driver) = functions(device) else { return vk::Result::ERROR_UNKNOWN };
    let wanted = refusals::wanted().filter(|_| count == 1);
    // SAFETY: the caller's arguments follow Vulkan's contract: `count` infos, and room for `count`
    // pipelines. All values made here are valid by themselves.
    unsafe {
        // wgpu makes one at a time, on the thread that asks for it. Its own pipelines are made
        // outside of `watched`, so a refusal of them cannot be reported.
        let Some(optimizations) = wanted else {
            let of = |infos| {
                (driver.create_pipelines)(device, cache, count, infos, allocator, pipelines)
            };
            let result = of(infos);
            if count != 1 || !is_refusal(result) {
                return result;
            }
            return of(&unoptimized(*infos));
        };
        let (mut info, none) = (*infos, vk::PipelineCache::null());
        let cache = match optimizations {
            Optimizations::On => cache,
            Optimizations::Off => {
                info = unoptimized(info);
                none
            }
        };
        let result = (driver.create_pipelines)(device, cache, 1, &info, allocator, pipelines);
        if !is_refusal(result) {
            return result;
        }
        let mut module = vk::ShaderModule::null();
        let made = (driver.create_module)(device, &idle(), allocator, &raw mut module);
        if made != vk::Result::SUCCESS {
            return result;
        }
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main");
        let idle = vk::ComputePipelineCreateInfo::default().stage(stage).layout(info.layout);
        let made = (driver.create_pipelines)(device, none, 1, &idle, allocator, pipelines);
        (driver.destroy_module)(device, module, allocator);
        if made == vk::Result::SUCCESS {
            // The answer's name tells a user more than its sentence alone.
            refusals::note(format!("{result:?}"));
            return made;
        }
        result
    }
}

fn unoptimized(mut info: vk::ComputePipelineCreateInfo<'_>) -> vk::ComputePipelineCreateInfo<'_> {
    info.flags |= vk::PipelineCreateFlags::DISABLE_OPTIMIZATION;
    info
}

/// A module with an entry point `main` that returns at once.
fn idle() -> vk::ShaderModuleCreateInfo<'static> {
    vk::ShaderModuleCreateInfo::default().code(IDLE)
}

#[rustfmt::skip]
const IDLE: &[u32] = &[
    0x0723_0203, 0x0001_0000, 0, 5, 0, // SPIR-V 1.0, ids below 5
    0x0002_0011, 1, // OpCapability Shader
    0x0003_000e, 0, 1, // OpMemoryModel Logical GLSL450
    0x0005_000f, 5, 1, 0x6e69_616d, 0, // OpEntryPoint GLCompute %1 "main"
    0x0006_0010, 1, 17, 1, 1, 1, // OpExecutionMode %1 LocalSize 1 1 1
    0x0002_0013, 2, // %2 = OpTypeVoid
    0x0003_0021, 3, 2, // %3 = OpTypeFunction %2
    0x0005_0036, 2, 1, 0, 3, // %1 = OpFunction %2 None %3
    0x0002_00f8, 4, // %4 = OpLabel
    0x0001_00fd, // OpReturn
    0x0001_0038, // OpFunctionEnd
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_module_is_what_its_comments_say() {
        use rspirv::binary::Disassemble;
        let text = rspirv::dr::load_words(IDLE).unwrap().disassemble();
        for line in [
            "OpEntryPoint GLCompute %1 \"main\"",
            "OpExecutionMode %1 LocalSize 1 1 1",
            "%2 = OpTypeVoid",
            "%3 = OpTypeFunction %2",
            "%1 = OpFunction  %2  None %3",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.ends_with("OpReturn\nOpFunctionEnd"), "{text}");
    }

    #[test]
    fn a_lost_device_and_exhausted_memory_are_no_refusals() {
        let answers = [vk::Result::ERROR_UNKNOWN, vk::Result::ERROR_INVALID_SHADER_NV];
        assert!(answers.into_iter().all(is_refusal));
        assert!(!is_refusal(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        let others = [vk::Result::SUCCESS, vk::Result::PIPELINE_COMPILE_REQUIRED_EXT];
        assert!(!others.into_iter().any(is_refusal));
        assert!(!is_refusal(vk::Result::ERROR_DEVICE_LOST));
    }
}
