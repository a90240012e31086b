//! A Vulkan layer that fails a chosen call of a chosen function with a chosen result, and counts
//! calls. It can also give a driver without a pipeline cache one that keeps pipelines.
//!
//! It sits between the Vulkan loader and the driver, below wgpu, so that a test sees how a program
//! handles an exhausted, lost or broken GPU. The loader finds it by `VK_LAYER_PATH`, a directory
//! with [`manifest`]'s text in a file that ends in `.json`, and `VK_INSTANCE_LAYERS`, which is
//! [`NAME`]. A process that loads the same file itself controls it by four functions:
//! `fault_layer_arm`, `fault_layer_disarm`, `fault_layer_calls` and `fault_layer_injected` (see
//! [`control`]). Two more make pipeline caches keep pipelines (`caches`), three make the driver
//! refuse shaders (`refusals`), and three simulate a slow GPU (`slow`). A variable makes shaders
//! compute wrong numbers (`miscompiles`), another one compiles them with fast mathematics
//! (`fast_math`), a third one checks their indices (`indices`), and a fourth one prints what the
//! driver's compiler says of each pipeline (`listings`).
//!
//! [`functions`] is the table of functions that can fail; [`faults`] decides which call does;
//! [`chain`] is the protocol of layers. The crate has no dependencies, so that it builds in a
//! second.

mod caches;
mod chain;
pub mod control;
mod counters;
pub mod fast_math;
mod faults;
mod functions;
pub mod indices;
mod listings;
mod miscompiles;
mod refusals;
mod slow;
pub mod spirv;
mod vulkan;

pub use functions::{FUNCTIONS, Row};

/// The layer's name.
pub const NAME: &str = "VK_LAYER_TENSORFLOW_WGPU_faults";

/// The manifest by which the Vulkan loader finds the layer in `library`.
pub fn manifest(library: &str) -> String {
    format!(
        r#"{{
  "file_format_version": "1.2.0",
  "layer": {{
    "name": "{NAME}",
    "type": "GLOBAL",
    "library_path": "{library}",
    "api_version": "1.3.0",
    "implementation_version": "1",
    "description": "fails chosen calls"
  }}
}}
"#
    )
}
