//! Ops on values of type variant: sums and zeros of lists and optionals, as gradients of loops and
//! conditionals make them, optionals themselves, lists of the element types that DEVICE_DEFAULT
//! leaves out, and ragged and sparse tensors within variants.
//!
//! A variant is an object of TensorFlow's in host memory, here a list or an optional whose tensors
//! live on the device. TensorFlow handles the object; kernels and copies of this device handle the
//! tensors. On a pluggable device, TensorFlow's list kernels move tensors of every element type by
//! the device's copies and fills, so bool and complex lists need no code of ours. Without
//! TensorFlow there are no variants: [`crate::local`] refuses these ops.

use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel, OpContext, OpContextExt};
use crate::kernels::registry::{Need, Registry, TENSORFLOWS};
use crate::require;
use crate::shader::Shader;

const VARIANT: &[DType] = &[Variant];
/// Element types of TensorFlow's GPU kernels that DEVICE_DEFAULT lacks.
const ELEMENTS: &[DType] = union!(types::COMPLEX, &[Bool]);
/// The same for TensorListPopBack, which takes lists apart whose elements are lists.
const POPPED: &[DType] = union!(types::COMPLEX, &[Bool, Variant]);

/// Each op, its types of `element_dtype`, and its arguments in host memory.
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

/// Each op, its input of indices that its list must hold, and its input of the list's length.
/// TensorFlow's kernels end the process at negative indices, and if there is no memory for the
/// list.
const LENGTHS: &[(&str, usize, Option<usize>)] = &[
    ("TensorListScatter", 1, None),
    ("TensorListScatterIntoExistingList", 2, None),
    ("TensorListScatterV2", 1, Some(3)),
    ("TensorListSetItem", 1, None),
];

/// Each op, and its arguments in host memory. Optionals hold the values that the branches of a
/// conditional keep for their gradients.
const OPTIONALS: &[(&str, &[&str])] = &[
    ("OptionalFromValue", &[]),
    ("OptionalGetValue", &[]),
    ("OptionalHasValue", &["has_value"]),
    ("OptionalNone", &[]),
];

/// Note of the ops of [`ON_HOST_ALONE`].
const IN_HOST_MEMORY: &str = "runs TensorFlow's own kernel, on the host as on its GPUs";

/// Each op, its type attribute and types, and its arguments in host memory. These are all
/// arguments, as for TensorFlow's GPU kernels, which are its CPU kernels. TensorFlow copies tensors
/// that are on the device. TensorFlow has RaggedTensorToVariant, which is also the gradient of
/// RaggedTensorFromVariant, only on the CPU; here it is registered with the other one. The gradient
/// of RaggedTensorToVariant reads beyond its memory if its shape argument is wrong, so it runs on
/// the CPU.
const ON_HOST_ALONE: &[(&str, &str, &[DType], &[&str])] = &[
    (
        "DeserializeSparse",
        "Tserialized",
        VARIANT,
        &["serialized_sparse", "sparse_indices", "sparse_values", "sparse_shape"],
    ),
    (
        "RaggedTensorFromVariant",
        "Tsplits",
        types::INDEX,
        &["encoded_ragged", "output_nested_splits", "output_dense_values"],
    ),
    (
        "RaggedTensorToVariant",
        "Tsplits",
        types::INDEX,
        &["rt_nested_splits", "rt_dense_values", "encoded_ragged"],
    ),
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
        let row = registry.op(op).host(host).need(Need::TensorFlowKernel).note(TENSORFLOWS);
        row.kernel(|attrs: &dyn Attrs| attrs.tensorflow_kernel());
    }
    for &(op, attr, types, host) in ON_HOST_ALONE {
        let row = registry.op(op).types(attr, types).host(host).need(Need::TensorFlowKernel);
        row.unsupported_too()
            .note(IN_HOST_MEMORY)
            .kernel(|attrs: &dyn Attrs| attrs.tensorflow_kernel());
    }
    for &(op, types, host) in LISTS {
        // Lists only move their elements: an adapter needs no arithmetic of their type.
        let row = registry.op(op).types("element_dtype", types).host(host).unsupported_too();
        let lengths = LENGTHS.iter().find(|(name, ..)| *name == op);
        let parts = (op == "TensorListSplit").then_some(2);
        row.need(Need::TensorFlowKernel).note(TENSORFLOWS).kernel(move |attrs: &dyn Attrs| {
            Ok(List { kernel: attrs.tensorflow_kernel()?, lengths, parts })
        });
    }
}

/// TensorFlow's kernel of a list op, behind a check of the list's length.
struct List {
    kernel: Box<dyn Kernel>,
    lengths: Option<&'static (&'static str, usize, Option<usize>)>,
    /// The input of TensorListSplit with the lengths of its parts; TensorFlow's kernel adds them up
    /// without a check.
    parts: Option<usize>,
}

impl Kernel for List {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        if let Some(&(op, indices, length)) = self.lengths {
            let mut longest = 0;
            for index in ctx.host_i64s(indices)? {
                require!(index >= 0, "Indices in {op} must all be non-negative, got {index}");
                longest = longest.max(index);
            }
            if let Some(length) = length {
                longest = ctx.host_i64s(length)?.into_iter().fold(longest, i64::max);
            }
            let mut room: Vec<[u64; TENSOR_WORDS]> = Vec::new();
            room.try_reserve_exact(longest as usize).map_err(|_| {
                Error::ResourceExhausted(format!("out of memory for a list of {longest} tensors"))
            })?;
        }
        if let Some(lengths) = self.parts {
            let lengths = ctx.host_i64s(lengths)?;
            for n in &lengths {
                require!(*n >= 0, "Invalid value in lengths: {n}");
            }
            let sum = lengths.iter().try_fold(0_i64, |sum, n| sum.checked_add(*n));
            require!(sum.is_some(), "the sum of lengths exceeds 2^63 - 1");
        }
        self.kernel.compute(ctx)
    }
}

/// The least words that a tensor in a list takes on the host: a shape and a pointer.
const TENSOR_WORDS: usize = 4;

/// Every shader variant: there are none.
pub fn shaders() -> Vec<Shader> {
    Vec::new()
}
