//! TensorFlow's messages, compiled from `proto/`.

#![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/tensorflow.rs"));
