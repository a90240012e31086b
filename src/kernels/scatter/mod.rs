//! Scatters and segment reductions: updates folded into the rows that index tensors name.
//!
//! Duplicate indices are chained per row first and each element is folded by one invocation
//! ([`chains`]), so no type needs atomics of its own. Updates (last index wins), integers, minima
//! and maxima are deterministic; float sums and products of three and more duplicates may differ in
//! the last bits from run to run, as on TensorFlow's GPUs. Indices out of range are ignored, as
//! there.

pub mod chains;
mod inplace;
mod nd;
mod resource;
mod segment;

use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use chains::Fold;

/// Types with arithmetic. int32 variables live in host memory, so the ops on variables leave it
/// out.
const NUMBERS: &[DType] = &[F32, F16, BF16, F64, I8, I16, I64, U8, U16, U32, U64];
const NUMBERS_I32: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64];
const ADDED: &[DType] = &[F32, F16, BF16, F64, C64, C128, I8, I16, I64, U8, U16, U32, U64];
const ADDED_I32: &[DType] = &[F32, F16, BF16, F64, C64, C128, I8, I16, I32, I64, U8, U16, U32, U64];
const UPDATED: &[DType] = &[F32, F16, BF16, F64, C64, C128, Bool, I8, I16, I64, U8, U16, U32, U64];
const INPLACE: &[DType] = &[F32, F16, BF16, F64, I8, I64, U8, U64];
const INPLACE_UPDATED: &[DType] = &[F32, F16, BF16, F64, Bool, I8, I64, U8, U64];
const SEGMENTS: &[DType] = &[F32, F16, BF16, F64, I32, I64];
const SUMMED_SEGMENTS: &[DType] = &[F32, F16, BF16, F64, I32, I64, C64, C128];

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    const RESOURCE: &[(&str, Fold, &[DType])] = &[
        ("ResourceScatterUpdate", Fold::Update, UPDATED),
        ("ResourceScatterAdd", Fold::Add, NUMBERS),
        ("ResourceScatterSub", Fold::Sub, NUMBERS),
        ("ResourceScatterMul", Fold::Mul, NUMBERS),
        ("ResourceScatterDiv", Fold::Div, NUMBERS),
        ("ResourceScatterMin", Fold::Min, NUMBERS),
        ("ResourceScatterMax", Fold::Max, NUMBERS),
    ];
    for (op, fold, types) in RESOURCE.iter().copied() {
        let builder =
            registry.op(op).types("dtype", types).types("Tindices", INDEX).host(&["resource"]);
        builder.kernel(move |_| Ok(resource::Scatter { fold }));
    }
    const RESOURCE_ND: &[(&str, Fold, &[DType])] = &[
        ("ResourceScatterNdUpdate", Fold::Update, UPDATED),
        ("ResourceScatterNdAdd", Fold::Add, ADDED),
        ("ResourceScatterNdSub", Fold::Sub, ADDED),
        ("ResourceScatterNdMin", Fold::Min, NUMBERS),
        ("ResourceScatterNdMax", Fold::Max, NUMBERS),
    ];
    for (op, fold, types) in RESOURCE_ND.iter().copied() {
        let builder = registry.op(op).types("T", types).types("Tindices", INDEX).host(&["ref"]);
        builder.kernel(move |_| Ok(nd::ResourceScatterNd { fold }));
    }
    for (op, fold, types) in [
        ("InplaceAdd", Fold::Add, INPLACE),
        ("InplaceSub", Fold::Sub, INPLACE),
        ("InplaceUpdate", Fold::Update, INPLACE_UPDATED),
    ] {
        registry.op(op).types("T", types).kernel(move |_| Ok(inplace::Inplace { fold }));
    }
    const TENSOR: &[(&str, Fold, &[DType])] = &[
        ("TensorScatterUpdate", Fold::Update, UPDATED),
        ("TensorScatterAdd", Fold::Add, ADDED),
        ("TensorScatterSub", Fold::Sub, ADDED),
        ("TensorScatterMin", Fold::Min, NUMBERS),
        ("TensorScatterMax", Fold::Max, NUMBERS),
        ("ScatterNdNonAliasingAdd", Fold::Add, ADDED),
    ];
    for (op, fold, types) in TENSOR.iter().copied() {
        let builder = registry.op(op).types("T", types).types("Tindices", INDEX);
        builder.kernel(move |_| Ok(nd::TensorScatter { fold }));
    }
    registry
        .op("ScatterNd")
        .types("T", ADDED)
        .types("Tindices", INDEX)
        .host(&["shape"])
        .kernel(|_| Ok(nd::ScatterNd));
    for (op, reduction) in segment::UNSORTED {
        let types = if *reduction == segment::Reduction::Sum { SUMMED_SEGMENTS } else { SEGMENTS };
        let builder =
            registry.op(op).types("T", types).types("Tindices", INDEX).host(&["num_segments"]);
        builder.kernel(move |_| Ok(segment::Unsorted { reduction: *reduction }));
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![chains::link_shader(), inplace::wrap_shader()];
    for fold in Fold::ALL {
        let types = match fold {
            Fold::Update => UPDATED,
            Fold::Add | Fold::Sub => ADDED_I32,
            _ => NUMBERS_I32,
        };
        all.extend(types.iter().flat_map(|t| chains::fold_shaders(fold, *t)));
    }
    all
}
