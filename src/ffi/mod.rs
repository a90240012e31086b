//! The C boundary and every other unsafe call: the only module with `unsafe` code.

pub(crate) mod address_range;
pub(crate) mod copy_function;
pub(crate) mod cxx;
pub(crate) mod determinism;
pub(crate) mod experimental;
mod graph;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod kernel;
#[cfg(target_os = "linux")]
mod loaded;
pub(crate) mod memory_budget;
pub(crate) mod pipeline_cache;
pub(crate) mod plugin;
pub(crate) mod process;
pub(crate) mod python;
mod report;
mod second_copy;
pub(crate) mod status;
mod stream_executor;
pub(crate) mod symbols;
pub(crate) mod sys;
pub(crate) mod trusted_shader;
pub(crate) mod variables;
pub(crate) mod variants;
pub(crate) mod vulkan_driver;
