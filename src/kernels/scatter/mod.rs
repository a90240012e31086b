//! Scatters and segment reductions: updates folded into the rows that index tensors name.
//!
//! Duplicate indices are first chained per row, and each element is folded by one invocation
//! ([`chains`]), so no type needs atomics of its own. Updates (last index wins), integers, minima
//! and maxima are deterministic; float sums and products of three and more duplicates may differ in
//! the last bits from run to run. Indices out of range are ignored. Both are as on TensorFlow's
//! GPUs.

pub mod chains;
mod inplace;
mod nd;
mod resource;
mod segment;

use crate::dtype::types::{
    ELEMENTS_BUT_I32, FLOATS, INDEX, INEXACT, NUMBERS, NUMBERS_BUT_I32, REALS, REALS_BUT_I32,
};
use crate::dtype::{
    DType::{self, *},
    union,
};
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use chains::Fold;

const INPLACE: &[DType] = &[F32, F16, BF16, F64, I8, I64, U8, U64];
const INPLACE_UPDATED: &[DType] = &[F32, F16, BF16, F64, Bool, I8, I64, U8, U64];
/// The types of ScatterMin and ScatterMax, which their definitions name.
const SIGNED: &[DType] = union!(FLOATS, &[I64]);
const SEGMENTS: &[DType] = union!(FLOATS, INDEX);
const SUMMED_SEGMENTS: &[DType] = union!(INDEX, INEXACT);

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    const RESOURCE: &[(&str, Fold, &[DType])] = &[
        ("ResourceScatterUpdate", Fold::Update, ELEMENTS_BUT_I32),
        ("ResourceScatterAdd", Fold::Add, REALS_BUT_I32),
        ("ResourceScatterSub", Fold::Sub, REALS_BUT_I32),
        ("ResourceScatterMul", Fold::Mul, REALS_BUT_I32),
        ("ResourceScatterDiv", Fold::Div, REALS_BUT_I32),
        ("ResourceScatterMin", Fold::Min, REALS_BUT_I32),
        ("ResourceScatterMax", Fold::Max, REALS_BUT_I32),
    ];
    for (op, fold, types) in RESOURCE.iter().copied() {
        let builder =
            registry.op(op).types("dtype", types).types("Tindices", INDEX).host(&["resource"]);
        builder.kernel(move |_| Ok(resource::Scatter { fold }));
        let on_references = registry.op(op.trim_start_matches("Resource")).reference();
        on_references
            .types("T", if matches!(fold, Fold::Min | Fold::Max) { SIGNED } else { types })
            .types("Tindices", INDEX)
            .kernel(move |_| Ok(resource::Scatter { fold }));
    }
    const RESOURCE_ND: &[(&str, Fold, &[DType])] = &[
        ("ResourceScatterNdUpdate", Fold::Update, ELEMENTS_BUT_I32),
        ("ResourceScatterNdAdd", Fold::Add, NUMBERS_BUT_I32),
        ("ResourceScatterNdSub", Fold::Sub, NUMBERS_BUT_I32),
        ("ResourceScatterNdMin", Fold::Min, REALS_BUT_I32),
        ("ResourceScatterNdMax", Fold::Max, REALS_BUT_I32),
    ];
    for (op, fold, types) in RESOURCE_ND.iter().copied() {
        let builder = registry.op(op).types("T", types).types("Tindices", INDEX).host(&["ref"]);
        builder.kernel(move |_| Ok(nd::ResourceScatterNd { fold }));
        let on_references = registry.op(op.trim_start_matches("Resource")).reference();
        on_references
            .types("T", types)
            .types("Tindices", INDEX)
            .kernel(move |_| Ok(nd::ResourceScatterNd { fold }));
    }
    for (op, fold, types) in [
        ("InplaceAdd", Fold::Add, INPLACE),
        ("InplaceSub", Fold::Sub, INPLACE),
        ("InplaceUpdate", Fold::Update, INPLACE_UPDATED),
    ] {
        registry.op(op).types("T", types).kernel(move |_| Ok(inplace::Inplace { fold }));
    }
    const TENSOR: &[(&str, Fold, &[DType])] = &[
        ("TensorScatterUpdate", Fold::Update, ELEMENTS_BUT_I32),
        ("TensorScatterAdd", Fold::Add, NUMBERS_BUT_I32),
        ("TensorScatterSub", Fold::Sub, NUMBERS_BUT_I32),
        ("TensorScatterMin", Fold::Min, REALS_BUT_I32),
        ("TensorScatterMax", Fold::Max, REALS_BUT_I32),
        ("ScatterNdNonAliasingAdd", Fold::Add, NUMBERS_BUT_I32),
    ];
    for (op, fold, types) in TENSOR.iter().copied() {
        let builder = registry.op(op).types("T", types).types("Tindices", INDEX);
        builder.kernel(move |_| Ok(nd::TensorScatter { fold }));
    }
    registry
        .op("ScatterNd")
        .types("T", NUMBERS_BUT_I32)
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
    let mut all = vec![chains::LinkChains::shader(), inplace::WrapRows::shader()];
    for fold in Fold::ALL {
        let types = match fold {
            Fold::Update => ELEMENTS_BUT_I32,
            Fold::Add | Fold::Sub => NUMBERS,
            _ => REALS,
        };
        all.extend(types.iter().flat_map(|t| chains::fold_shaders(fold, *t)));
    }
    all
}
