//! tensorflow-wgpu: a TensorFlow pluggable device on wgpu.
//!
//! `ffi` implements TensorFlow's C APIs, `device` runs the GPU, and `kernels` describe ops as GPU
//! programs. See ARCHITECTURE.md.

#![deny(unsafe_code)]

pub mod attr;
pub mod checkup;
pub mod device;
pub mod device_type;
pub mod dtype;
pub mod dump;
pub mod error;
#[expect(unsafe_code, reason = "the C boundary; every block names its contract")]
mod ffi;
pub mod kernels;
pub mod kind;
pub mod layout;
pub mod local;
pub mod optimizer;
pub mod profiler;
pub mod proto;
pub mod report;
pub mod settings;
pub mod shader;
#[expect(unsafe_code, reason = "calls of the system, of wgpu and of drivers")]
mod sys;
pub mod tensor;

pub use dtype::DType;
pub use error::{Error, Result};
pub use tensor::{Dims, HostTensor, Tensor};
