//! The walk over injected faults: every call of every Vulkan function that can fail fails once, and
//! then fails from that call on, in a training through the crate's own API. There is one test for
//! each function: `cargo test --test faults vkQueueSubmit`.
//!
//! The faults come from a Vulkan layer (`tests/fault_layer`) in separate processes (`serve.rs`), so
//! that a crash or a hang belongs to one fault. `TF_WGPU_FAULTS=all` tries every call, otherwise a
//! sample is tried; `make faults` does the former.

#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "pipeline_cache.rs uses the rest")]
mod layer;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod step;
#[cfg(target_os = "linux")]
mod walk;

fn main() {
    #[cfg(target_os = "linux")]
    walk::main();
}
