//! `_WgpuPark` and `_WgpuParked`: a tensor waits on the device while a ticket for it, a string in
//! host memory, goes where only host memory can go. TensorFlow's datasets are such a place: a
//! plug-in cannot register dataset kernels, so elements that were uploaded ahead of time travel
//! through `Dataset.prefetch` as tickets (`python/tensorflow_wgpu/_prefetch.py`).
//!
//! A tensor stays as long as its ticket's memory is referenced. A copy of a ticket does not count:
//! `_WgpuParked` then fails with `NotFound`. Tickets are strings, which TensorFlow keeps in host
//! memory everywhere: numbers would be copied to the device and back where a function begins, or
//! within an optional.

use super::definition::{OpDefinition, ShapeInputs};
use super::movement::MOVED_I32;
use super::op::{Attrs, OpContext};
use super::registry::Registry;
use crate::error::Result;
use crate::shader::Shader;

/// The signatures of both ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: "_WgpuPark",
        inputs: &["value: T"],
        outputs: &["ticket: string"],
        attrs: &["T: type"],
        // Otherwise TensorFlow would share the ticket of two equal calls, or compute it ahead of
        // time.
        stateful: true,
        shape: |_: &ShapeInputs<'_>| Ok(vec![Some(Vec::new())]),
    },
    OpDefinition {
        name: "_WgpuParked",
        inputs: &["ticket: string"],
        outputs: &["value: T"],
        attrs: &["T: type"],
        stateful: true,
        shape: |_: &ShapeInputs<'_>| Ok(Vec::new()),
    },
];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    registry
        .op("_WgpuPark")
        .types("T", MOVED_I32)
        .host(&["ticket"])
        .unsupported_too()
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| -> Result<()> { ctx.park() }));
    registry.op("_WgpuParked").types("T", MOVED_I32).host(&["ticket"]).unsupported_too().kernel(
        |attrs: &dyn Attrs| {
            let dtype = attrs.dtype("T")?;
            Ok(move |ctx: &mut dyn OpContext| ctx.unpark(dtype))
        },
    );
}

/// The family has no shaders: nothing is computed.
pub fn shaders() -> Vec<Shader> {
    Vec::new()
}
