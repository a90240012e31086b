//! TensorFlow's C boundary. Only this module and [`crate::sys`] have unsafe code.

pub(crate) mod abi;
pub(crate) mod context;
pub(crate) mod copy_function;
pub(crate) mod cxx;
pub(crate) mod determinism;
mod device_type;
mod environment;
mod graph;
pub(crate) mod guard;
pub(crate) mod handle;
mod hidden;
pub(crate) mod kernel;
pub(crate) mod ops;
pub(crate) mod parked;
mod plugin;
pub(crate) mod process;
mod profiler;
pub(crate) mod python;
mod report;
mod second_copy;
pub(crate) mod status;
mod stream_executor;
pub(crate) mod symbols;
pub(crate) mod tensor;
pub(crate) mod variables;
pub(crate) mod variants;
