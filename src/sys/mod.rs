//! The leaf below everything: unsafe calls of the system, of wgpu and of drivers, behind safe
//! functions. It knows nothing of TensorFlow, devices or kernels.

pub(crate) mod address_range;
pub(crate) mod cores;
#[cfg(windows)]
pub(crate) mod display_drivers;
#[cfg(any(has_examination, windows))]
pub(crate) mod examination;
pub(crate) mod experimental;
pub(crate) mod guard;
pub(crate) mod host_visible;
pub(crate) mod instance;
pub(crate) mod integer_dot;
pub(crate) mod loaded;
pub(crate) mod memory_budget;
pub(crate) mod pipeline_cache;
pub(crate) mod process;
pub(crate) mod refusals;
pub(crate) mod threads;
pub(crate) mod trusted_shader;
#[cfg(any(target_os = "linux", windows))]
mod vulkan_adapter;
#[cfg(has_examination)]
pub(crate) mod vulkan_devices;
pub(crate) mod vulkan_driver;
#[cfg(any(target_os = "linux", windows))]
mod vulkan_pipelines;
