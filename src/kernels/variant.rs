//! Ops on values of type variant: sums and zeros of lists and optionals, as gradients of loops and conditionals make them,
//! optionals themselves, and lists of the element types that DEVICE_DEFAULT leaves out.
//!
//! A variant is an object of TensorFlow's in host memory, here a list or an optional whose tensors live on the device. What happens
//! to the object is TensorFlow's; what happens to the tensors are kernels and copies of this device. TensorFlow's list kernels
//! move tensors by the device's copies and fills when they run on a pluggable device, for whichever element type, so bool and
//! complex lists need no code of ours. Without TensorFlow there are no variants: [`crate::local`] refuses these ops.

use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::{Need, Registry};
use crate::shader::Shader;

const VARIANT: &[DType] = &[Variant];
/// Element types of TensorFlow's GPU kernels that DEVICE_DEFAULT lacks.
const ELEMENTS: &[DType] = &[Bool, C64, C128];
/// The same for TensorListPopBack, which takes lists apart whose elements are lists.
const POPPED: &[DType] = &[Bool, C64, C128, Variant];

/// Op, types of `element_dtype`, arguments in host memory.
const LISTS: &[(&str, &[DType], &[&str])] = &[
    ("TensorListConcat", ELEMENTS, &["lengths"]),
    ("TensorListConcatV2", ELEMENTS, &["leading_dims", "element_shape", "lengths"]),
    ("TensorListFromTensor", ELEMENTS, &["element_shape"]),
    ("TensorListGather", ELEMENTS, &["indices", "element_shape"]),
    ("TensorListGetItem", ELEMENTS, &["index", "element_shape"]),
    ("TensorListPopBack", POPPED, &["element_shape"]),
    ("TensorListPushBackBatch", ELEMENTS, &[]),
    ("TensorListScatter", ELEMENTS, &["element_shape", "indices"]),
    ("TensorListScatterIntoExistingList", ELEMENTS, &["indices"]),
    ("TensorListScatterV2", ELEMENTS, &["element_shape", "num_elements", "indices"]),
    ("TensorListSetItem", ELEMENTS, &["index"]),
    ("TensorListSplit", ELEMENTS, &["element_shape", "lengths"]),
    ("TensorListStack", ELEMENTS, &["element_shape"]),
];

/// Op, arguments in host memory. Optionals hold what the branches of a conditional keep for their gradients.
const OPTIONALS: &[(&str, &[&str])] = &[
    ("OptionalFromValue", &[]),
    ("OptionalGetValue", &[]),
    ("OptionalHasValue", &["has_value"]),
    ("OptionalNone", &[]),
];

/// Registers the family.
pub fn register(registry: &mut Registry) {
    registry
        .op("AddN")
        .types("T", VARIANT)
        .need(Need::Variants)
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| -> Result<()> { ctx.add_variants() }));
    registry
        .op("ZerosLike")
        .types("T", VARIANT)
        .need(Need::Variants)
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| -> Result<()> { ctx.zero_variant() }));
    for &(op, host) in OPTIONALS {
        let row = registry.op(op).host(host).need(Need::TensorFlowKernel);
        row.kernel(|attrs: &dyn Attrs| attrs.tensorflow_kernel());
    }
    for &(op, types, host) in LISTS {
        // Lists only move their elements: an adapter needs no arithmetic of their type.
        let row = registry.op(op).types("element_dtype", types).host(host).unsupported_too();
        row.need(Need::TensorFlowKernel).kernel(|attrs: &dyn Attrs| attrs.tensorflow_kernel());
    }
}

/// Every variant of a shader: none.
pub fn shaders() -> Vec<Shader> {
    Vec::new()
}
