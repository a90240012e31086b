//! Gathers: rows of a tensor by index tensors. Out-of-range indices give zeros, as on TensorFlow's
//! GPUs (its CPU kernels raise an error, which a device cannot do without waiting for the result).

pub mod index;
mod one_hot;
pub mod rows;
mod stitch;

use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::{MOVED, MOVED_I32};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use index::IndexVariant;

const ONE_HOT_INDEX: &[DType] = union!(types::INDEX, &[I8, U8]);

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    let pair = |r: &mut Registry, op, dtype, types, host, compute: Compute| {
        r.op(op)
            .types(dtype, types)
            .types("Tindices", INDEX)
            .host(host)
            .kernel(move |_| Ok(compute));
    };
    pair(registry, "Gather", "Tparams", MOVED_I32, &[], rows::gather);
    registry
        .op("GatherV2")
        .types("Tparams", MOVED_I32)
        .types("Tindices", INDEX)
        .host(&["axis"])
        .kernel(|attrs| {
            let batch_dims = attrs.int("batch_dims")?;
            Ok(move |ctx: &mut dyn OpContext| rows::gather_v2(ctx, batch_dims))
        });
    registry.op("GatherNd").types("Tparams", MOVED_I32).types("Tindices", INDEX).kernel(|attrs| {
        rows::check_policy(attrs)?;
        Ok(rows::gather_nd as Compute)
    });
    registry
        .op("ResourceGather")
        .types("dtype", MOVED)
        .types("Tindices", INDEX)
        .host(&["resource"])
        .kernel(|attrs| {
            let batch_dims = attrs.int("batch_dims")?;
            Ok(move |ctx: &mut dyn OpContext| rows::resource_gather(ctx, batch_dims))
        });
    pair(registry, "ResourceGatherNd", "dtype", MOVED, &["resource"], rows::resource_gather_nd);
    registry.op("OneHot").types("TI", ONE_HOT_INDEX).types("T", MOVED_I32).host(&["depth"]).kernel(
        |attrs| {
            let axis = attrs.int("axis")?;
            Ok(move |ctx: &mut dyn OpContext| one_hot::one_hot(ctx, axis))
        },
    );
    for op in ["DynamicStitch", "ParallelDynamicStitch"] {
        registry.op(op).types("T", MOVED_I32).host(&["indices"]).kernel(|attrs| {
            let n = attrs.int("N")? as usize;
            Ok(move |ctx: &mut dyn OpContext| stitch::stitch(ctx, n))
        });
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for unit in Unit::ALL {
        for variant in IndexVariant::all().map(Some).chain([None]) {
            all.extend(
                [false, true].map(|windowed| rows::GatherRows::shader(unit, variant, windowed)),
            );
        }
        all.extend(IndexVariant::scalars().flat_map(|variant| {
            [
                one_hot::OneHotElements::shader(unit, variant),
                one_hot::OneHotRuns::shader(unit, variant),
            ]
        }));
    }
    all.extend(
        IndexVariant::all().filter(|variant| variant.has_runs()).map(rows::GatherRuns::shader),
    );
    all
}
