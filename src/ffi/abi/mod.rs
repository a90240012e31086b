//! Declarations of TensorFlow's C headers: opaque types, structs and the tables of functions that
//! are looked up.

use crate::ffi::status::TF_Status;

pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod ops;
pub(crate) mod profiler;
pub(crate) mod stream_executor;
