//! Data movement: every op that only places elements. A strided copy ([`walk`]) and a coordinate
//! map ([`remap`]) serve all of them, for elements of any type by their size ([`unit`]); an op is a
//! planner that turns shapes and host inputs into one of these two ([`plan`]).

pub mod blocks;
pub mod diag;
pub mod dynamic;
pub mod join;
pub mod mirror_grad;
pub mod pad;
pub mod plan;
pub mod rearrange;
pub mod remap;
pub mod reverse_sequence;
pub mod slice;
pub mod slice_assign;
pub mod space;
pub mod together;
pub mod unit;
pub mod vec4s;
pub mod walk;

use super::op::{Attrs, OpContext};
use super::registry::{ON_HOST, Registry};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::{Error, Result};
use crate::layout::Iteration;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, HostTensor};
use join::{Concat, Pack, Split, SplitV, Unpack};
use plan::{MemoryType, Move, Unary};
use slice::Masks;
use unit::Unit;

/// Types whose tensors are on the device wherever TensorFlow keeps them on a device.
pub const MOVED: &[DType] = types::ELEMENTS_BUT_I32;
/// The same types and int32, for ops whose int32 tensors TensorFlow also keeps on a GPU.
pub const MOVED_I32: &[DType] = types::ELEMENTS;
/// The types that the ops Diag and DiagPart are defined for.
const DIAGONAL: &[DType] = union!(types::INDEX, types::INEXACT);
const I32_ONLY: &[DType] = &[I32];
const REAL_I32: &[DType] = union!(types::REALS, &[Bool]);
const SPLIT_INDEX: &[DType] = union!(types::INDEX, &[I8]);

/// A shape as TensorFlow writes it, such as `[2,3]`.
pub fn shape(dims: &[usize]) -> String {
    let list: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", list.join(","))
}

/// The product of extents, or an error if it exceeds TensorFlow's 63 bits. They are multiplied in
/// their order, as in TensorFlow: an overflow counts even if a later extent is 0.
pub fn checked_product(dims: &[usize]) -> Result<usize> {
    let fits = |n: &usize| i64::try_from(*n).is_ok();
    dims.iter()
        .try_fold(1usize, |n, d| n.checked_mul(*d).filter(fits).filter(|_| fits(d)))
        .ok_or_else(|| {
            Error::InvalidArgument(format!(
                "Shape {} would have more than 2**63 - 1 elements",
                shape(dims)
            ))
        })
}

/// The host input `i`, a vector of extents, as dims; `name` is its name in messages.
pub fn host_shape(ctx: &mut dyn OpContext, i: usize, name: &str) -> Result<Dims> {
    let t = ctx.host_input(i)?;
    require!(t.dims.len() == 1, "{name} must be 1-D, got shape {}", shape(&t.dims));
    let mut dims = Dims::new();
    for (d, n) in t.to_i64()?.into_iter().enumerate() {
        require!(n >= 0, "Dimension {d} of {name} must be >= 0, got {n}");
        dims.push(n as usize);
    }
    checked_product(&dims)?;
    Ok(dims)
}

/// The values of an index tensor: int32, int64 and, for a few ops, int8 and int16.
pub fn index_values(t: &HostTensor) -> Result<Vec<i64>> {
    match t.dtype {
        I8 => Ok(t.values::<i8>().into_iter().map(i64::from).collect()),
        I16 => Ok(t.values::<i16>().into_iter().map(i64::from).collect()),
        _ => t.to_i64(),
    }
}

type Constraints = &'static [(&'static str, &'static [DType])];

/// Registers an op that moves input `input` to output 0.
fn unary<P, F>(
    registry: &mut Registry,
    op: &'static str,
    constraints: Constraints,
    host: &'static [&'static str],
    (memory, input): (MemoryType, usize),
    make: F,
) where
    P: Fn(&mut dyn OpContext, &[usize], DType) -> Result<Move> + Send + Sync + 'static,
    F: Fn(&dyn Attrs) -> Result<P> + Send + Sync + 'static,
{
    let builder = constraints.iter().fold(registry.op(op), |b, (attr, types)| b.types(attr, types));
    let note = if matches!(memory, MemoryType::Host) { ON_HOST } else { "" };
    let kernel = move |attrs: &dyn Attrs| Ok(Unary { memory, input, plan: make(attrs)? });
    builder.host(host).note(note).kernel(kernel);
}

/// A planner without attributes.
type Planner = fn(&mut dyn OpContext, &[usize]) -> Result<Move>;

/// Registers an op without attributes that moves input 0: one row of a table.
fn plain(
    registry: &mut Registry,
    op: &'static str,
    constraints: Constraints,
    host: &'static [&'static str],
    memory: MemoryType,
    plan: Planner,
) {
    unary(registry, op, constraints, host, (memory, 0), move |_| {
        Ok(move |ctx: &mut dyn OpContext, dims: &[usize], _: DType| plan(ctx, dims))
    });
}

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    const PLAIN: &[(&str, Constraints, &[&str], MemoryType, Planner)] = &[
        ("Transpose", &[("T", MOVED_I32)], &["perm"], MemoryType::Device, rearrange::transpose),
        (
            "ConjugateTranspose",
            &[("T", REAL_I32)],
            &["perm"],
            MemoryType::Device,
            rearrange::transpose,
        ),
        ("Slice", &[("T", MOVED)], &["begin", "size"], MemoryType::Device, slice::slice),
        ("BroadcastTo", &[("T", MOVED)], &["shape"], MemoryType::Device, rearrange::broadcast_to),
        (
            "BroadcastTo",
            &[("T", I32_ONLY)],
            &["input", "shape", "output"],
            MemoryType::Host,
            rearrange::broadcast_to,
        ),
        (
            "Tile",
            &[("T", MOVED_I32), ("Tmultiples", INDEX)],
            &["multiples"],
            MemoryType::Device,
            rearrange::tile,
        ),
        (
            "ReverseV2",
            &[("T", MOVED), ("Tidx", INDEX)],
            &["axis"],
            MemoryType::Device,
            rearrange::reverse_axes,
        ),
        (
            "ReverseV2",
            &[("T", I32_ONLY), ("Tidx", INDEX)],
            &["tensor", "axis", "output"],
            MemoryType::Host,
            rearrange::reverse_axes,
        ),
        ("Reverse", &[("T", MOVED)], &["dims"], MemoryType::Device, rearrange::reverse_flags),
        (
            "Reverse",
            &[("T", I32_ONLY)],
            &["tensor", "dims", "output"],
            MemoryType::Host,
            rearrange::reverse_flags,
        ),
        (
            "Roll",
            &[("T", MOVED_I32), ("Tshift", INDEX), ("Taxis", INDEX)],
            &["shift", "axis"],
            MemoryType::Device,
            rearrange::roll,
        ),
    ];
    for (op, constraints, host, memory, plan) in PLAIN {
        plain(registry, op, constraints, host, *memory, *plan);
    }
    register_slices(registry);
    register_slice_writes(registry);
    register_pads(registry);
    register_joins(registry);
    register_diagonals(registry);
    register_space(registry);
    dynamic::register(registry, MOVED_I32, INDEX);
    registry
        .op("Snapshot")
        .types("T", MOVED_I32)
        .kernel(|_| Ok(pass_through as fn(&mut dyn OpContext) -> Result<()>));
}

fn pass_through(ctx: &mut dyn OpContext) -> Result<()> {
    let dims = ctx.input(0)?.dims;
    ctx.forward_input(0, 0, &dims)
}

fn register_slices(registry: &mut Registry) {
    const READ: [(Constraints, &[&str], MemoryType); 2] = [
        (&[("T", MOVED)], &["begin", "end", "strides"], MemoryType::Device),
        (&[("T", I32_ONLY)], &["input", "begin", "end", "strides", "output"], MemoryType::Host),
    ];
    for (constraints, host, memory) in READ {
        unary(registry, "StridedSlice", constraints, host, (memory, 0), |attrs| {
            let masks = Masks::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext, dims: &[usize], _: DType| {
                slice::strided_slice(ctx, dims, &masks)
            })
        });
    }
    const GRADIENT: [(Constraints, &[&str], MemoryType); 2] = [
        (&[("T", MOVED)], &["shape", "begin", "end", "strides"], MemoryType::Device),
        (
            &[("T", I32_ONLY)],
            &["shape", "begin", "end", "strides", "dy", "output"],
            MemoryType::Host,
        ),
    ];
    for (constraints, host, memory) in GRADIENT {
        unary(registry, "StridedSliceGrad", constraints, host, (memory, 4), |attrs| {
            let masks = Masks::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext, dims: &[usize], _: DType| {
                slice::strided_slice_grad(ctx, dims, &masks)
            })
        });
    }
}

fn register_slice_writes(registry: &mut Registry) {
    let tensor = |memory| {
        move |attrs: &dyn Attrs| {
            let masks = Masks::of(attrs)?;
            Ok(move |ctx: &mut dyn OpContext| {
                slice_assign::tensor_strided_slice_update(ctx, &masks, memory)
            })
        }
    };
    let op = "TensorStridedSliceUpdate";
    registry
        .op(op)
        .types("T", MOVED)
        .host(&["begin", "end", "strides"])
        .kernel(tensor(MemoryType::Device));
    let host = &["input", "begin", "end", "strides", "value", "output"];
    registry.op(op).types("T", I32_ONLY).host(host).note(ON_HOST).kernel(tensor(MemoryType::Host));
    let host = &["ref", "begin", "end", "strides"];
    registry
        .op("ReverseSequence")
        .types("T", reverse_sequence::TYPES)
        .types("Tlen", reverse_sequence::LENGTHS)
        .kernel(|attrs| reverse_sequence::ReverseSequence::new(attrs));
    let assign = |attrs: &dyn Attrs| {
        let masks = Masks::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| slice_assign::variable_strided_slice_assign(ctx, &masks))
    };
    registry.op("ResourceStridedSliceAssign").types("T", MOVED).host(host).kernel(assign);
    let bounds = &["begin", "end", "strides"];
    registry.op("StridedSliceAssign").types("T", MOVED).host(bounds).reference().kernel(assign);
}

fn register_pads(registry: &mut Registry) {
    const DEVICE_TYPES: Constraints = &[("T", MOVED), ("Tpaddings", INDEX)];
    const HOST_TYPES: Constraints = &[("T", I32_ONLY), ("Tpaddings", INDEX)];
    let plan = |constant: bool| {
        move |_: &dyn Attrs| {
            Ok(move |ctx: &mut dyn OpContext, dims: &[usize], dtype: DType| {
                pad::pad(ctx, dims, dtype, constant)
            })
        }
    };
    unary(registry, "Pad", DEVICE_TYPES, &["paddings"], (MemoryType::Device, 0), plan(false));
    unary(
        registry,
        "Pad",
        HOST_TYPES,
        &["input", "paddings", "output"],
        (MemoryType::Host, 0),
        plan(false),
    );
    unary(
        registry,
        "PadV2",
        DEVICE_TYPES,
        &["paddings", "constant_values"],
        (MemoryType::Device, 0),
        plan(true),
    );
    let all = &["input", "paddings", "constant_values", "output"];
    unary(registry, "PadV2", HOST_TYPES, all, (MemoryType::Host, 0), plan(true));
    unary(registry, "MirrorPad", DEVICE_TYPES, &["paddings"], (MemoryType::Device, 0), |attrs| {
        let rule = pad::mirror_rule(&attrs.string("mode")?)?;
        Ok(move |ctx: &mut dyn OpContext, dims: &[usize], _: DType| {
            pad::mirror_pad(ctx, dims, rule)
        })
    });
    let gradient =
        registry.op("MirrorPadGrad").types("T", mirror_grad::TYPES).types("Tpaddings", INDEX);
    gradient.host(&["paddings"]).kernel(|attrs| {
        let rule = pad::mirror_rule(&attrs.string("mode")?)?;
        Ok(move |ctx: &mut dyn OpContext| mirror_grad::mirror_pad_grad(ctx, rule))
    });
}

fn register_joins(registry: &mut Registry) {
    registry.op("ConcatV2").types("T", MOVED).host(&["axis"]).kernel(|_| Ok(Concat { axis: None }));
    registry
        .op("Concat")
        .types("T", MOVED)
        .host(&["concat_dim"])
        .kernel(|_| Ok(Concat { axis: Some(0) }));
    let pack = |memory| move |attrs: &dyn Attrs| Ok(Pack { axis: attrs.int("axis")?, memory });
    registry.op("Pack").types("T", MOVED).kernel(pack(MemoryType::Device));
    registry
        .op("Pack")
        .types("T", I32_ONLY)
        .host(&["values", "output"])
        .note(ON_HOST)
        .kernel(pack(MemoryType::Host));
    let split =
        |memory| move |attrs: &dyn Attrs| Ok(Split { num_split: attrs.int("num_split")?, memory });
    registry.op("Split").types("T", MOVED).host(&["split_dim"]).kernel(split(MemoryType::Device));
    registry
        .op("Split")
        .types("T", I32_ONLY)
        .host(&["split_dim", "value", "output"])
        .note(ON_HOST)
        .kernel(split(MemoryType::Host));
    let split_v = |memory| move |_: &dyn Attrs| Ok(SplitV { memory });
    registry
        .op("SplitV")
        .types("T", MOVED)
        .types("Tlen", SPLIT_INDEX)
        .host(&["size_splits", "split_dim"])
        .kernel(split_v(MemoryType::Device));
    registry
        .op("SplitV")
        .types("T", I32_ONLY)
        .types("Tlen", SPLIT_INDEX)
        .host(&["size_splits", "split_dim", "value", "output"])
        .note(ON_HOST)
        .kernel(split_v(MemoryType::Host));
    registry
        .op("Unpack")
        .types("T", MOVED)
        .kernel(|attrs| Ok(Unpack { axis: attrs.int("axis")?, num: attrs.int("num")? }));
}

fn register_diagonals(registry: &mut Registry) {
    type Compute = fn(&mut dyn OpContext, u32, u32) -> Result<()>;
    const MATRIX: &[(&str, u32, &[&str], Compute)] = &[
        ("MatrixDiag", 1, &[], diag::matrix_diag),
        ("BatchMatrixDiag", 1, &[], diag::matrix_diag),
        ("MatrixDiagV2", 2, &["k", "num_rows", "num_cols", "padding_value"], diag::matrix_diag),
        ("MatrixDiagV3", 3, &["k", "num_rows", "num_cols", "padding_value"], diag::matrix_diag),
        ("MatrixDiagPart", 1, &[], diag::matrix_diag_part),
        ("BatchMatrixDiagPart", 1, &[], diag::matrix_diag_part),
        ("MatrixDiagPartV2", 2, &["k", "padding_value"], diag::matrix_diag_part),
        ("MatrixDiagPartV3", 3, &["k", "padding_value"], diag::matrix_diag_part),
        ("MatrixSetDiag", 1, &[], diag::matrix_set_diag),
        ("BatchMatrixSetDiag", 1, &[], diag::matrix_set_diag),
        ("MatrixSetDiagV2", 2, &["k"], diag::matrix_set_diag),
        ("MatrixSetDiagV3", 3, &["k"], diag::matrix_set_diag),
    ];
    for (op, version, host, compute) in MATRIX.iter().copied() {
        registry.op(op).types("T", MOVED).host(host).kernel(move |attrs| {
            let align = diag::alignment(attrs, version)?;
            Ok(move |ctx: &mut dyn OpContext| compute(ctx, version, align))
        });
    }
    type Plain = fn(&mut dyn OpContext) -> Result<()>;
    const PLAIN: &[(&str, &[DType], &[&str], Plain)] = &[
        ("MatrixBandPart", MOVED, &["num_lower", "num_upper"], diag::matrix_band_part),
        ("BatchMatrixBandPart", MOVED, &["num_lower", "num_upper"], diag::matrix_band_part),
        ("Diag", DIAGONAL, &[], diag::diag),
        ("DiagPart", DIAGONAL, &[], diag::diag_part),
    ];
    for (op, types, host, compute) in PLAIN.iter().copied() {
        registry.op(op).types("T", types).host(host).kernel(move |_| Ok(compute));
    }
}

fn register_space(registry: &mut Registry) {
    type Blocks = fn(&mut dyn OpContext, Option<i64>) -> Result<()>;
    type Depth = fn(&mut dyn OpContext, space::Format, i64) -> Result<()>;
    const DEPTH: [(&str, Depth); 2] =
        [("DepthToSpace", space::depth_to_space), ("SpaceToDepth", space::space_to_depth)];
    for (op, compute) in DEPTH {
        registry.op(op).types("T", MOVED).kernel(move |attrs| {
            let (format, block) = (space::Format::of(attrs)?, attrs.int("block_size")?);
            Ok(move |ctx: &mut dyn OpContext| compute(ctx, format, block))
        });
    }
    const BATCH: [(&str, &[&str], Blocks); 4] = [
        ("SpaceToBatchND", &["block_shape", "paddings"], space::space_to_batch),
        ("SpaceToBatch", &["paddings"], space::space_to_batch),
        ("BatchToSpaceND", &["block_shape", "crops"], space::batch_to_space),
        ("BatchToSpace", &["crops"], space::batch_to_space),
    ];
    for (op, host, compute) in BATCH {
        registry.op(op).types("T", MOVED).host(host).kernel(move |attrs| {
            let block = if op.ends_with("ND") { None } else { Some(attrs.int("block_size")?) };
            Ok(move |ctx: &mut dyn OpContext| compute(ctx, block))
        });
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    use remap::Rule;
    let mut all: Vec<Shader> =
        mirror_grad::TYPES.iter().map(|t| mirror_grad::FoldAxis::shader(*t)).collect();
    all.extend(reverse_sequence::shaders());
    all.extend(dynamic::shaders());
    for unit in Unit::ALL {
        all.extend(diag::DiagonalKind::ALL.map(|kind| diag::DiagonalsProgram::shader(kind, unit)));
        for rank in [1usize, 5] {
            let dims: Dims = (2..2 + rank).collect();
            let strided: Vec<i64> = (0..rank as i64).map(|d| 3 + d).collect();
            let dense = crate::layout::dense_strides(&dims);
            let splat = vec![0; rank];
            let walk = |src: &[i64], dst: &[i64]| {
                Iteration::over(&dims).operand(src, 0).operand(dst, 0).class()
            };
            all.push(walk::Strided::shader(unit, &walk(&strided, &dense)));
            all.push(walk::Strided::shader(unit, &walk(&splat, &dense)));
            if blocks::Blocks::side(unit) > 1 {
                all.push(match rank {
                    1 => blocks::TransposeBlocks::shader(unit),
                    _ => blocks::MoveBlocks::shader(unit, &walk(&strided, &strided)),
                });
            }
            if unit.bytes() == 4 {
                let kinds = [vec4s::Four::Repeated, vec4s::Four::Turned, vec4s::Four::Apart(2)];
                all.extend(
                    kinds.map(|four| vec4s::StridedVec4s::shader(four, &walk(&strided, &dense))),
                );
                all.push(vec4s::StridedVec4s::shader(kinds[0], &walk(&splat, &dense)));
            }
            if !unit.is_packed() && rank == 1 {
                let directions = [together::Direction::Split, together::Direction::Join];
                all.extend(
                    [2, 5, together::MOST]
                        .iter()
                        .flat_map(|n| directions.map(|d| together::Together::shader(unit, *n, d))),
                );
            }
            if !unit.is_packed() {
                all.push(walk::Strided::shader(unit, &walk(&dense, &strided)));
                all.push(walk::Strided::shader(unit, &walk(&strided, &strided)));
                all.push(walk::Strided::shader(unit, &walk(&splat, &strided)));
                all.push(walk::Transpose::shader(unit));
            }
            for rule in [Rule::Place, Rule::Roll, Rule::Symmetric, Rule::Reflect] {
                all.push(remap::RemapProgram::shader(unit, rule, rank, false, false));
            }
            all.push(remap::RemapProgram::shader(unit, Rule::Place, rank, false, true));
            all.extend(
                [false, true]
                    .map(|steps| remap::RemapProgram::shader(unit, Rule::Place, rank, true, steps)),
            );
        }
    }
    all
}
