//! Tensors made from nothing or from one value: Fill, ZerosLike, OnesLike, Range, Empty.

use super::movement::remap::fill_element;
use super::movement::unit::Unit;
use super::movement::walk::{copy_strided, window_limit};
use super::movement::{MOVED, MOVED_I32, host_shape, shape};
use super::op::OpContext;
use super::registry::{ON_HOST, Registry};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::layout::Iteration;
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor};

const RANGE: &[DType] = union!(types::FLOATS, &[I64]);

type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    registry
        .op("Fill")
        .types("T", MOVED)
        .types("index_type", INDEX)
        .host(&["dims"])
        .kernel(|_| Ok(fill as Compute));
    registry.op("ZerosLike").types("T", MOVED).kernel(|_| Ok(zeros_like as Compute));
    registry.op("OnesLike").types("T", MOVED).kernel(|_| Ok(ones_like as Compute));
    // TensorFlow's own kernels, for every device, keep x on the device and y on the host. Its eager
    // mode assumes that all int32 arguments of an op are in one kind of memory, and crashes. Only
    // the shape of x counts: here both are on the host.
    for (op, value) in [("ZerosLike", 0), ("OnesLike", 1)] {
        registry.op(op).types("T", &[I32]).host(&["x", "y"]).note(ON_HOST).kernel(move |_| {
            Ok(move |ctx: &mut dyn OpContext| {
                let dims = ctx.host_input(0)?.dims;
                ctx.host_output(0, &HostTensor::i32(&dims, &vec![value; dims.iter().product()]))
            })
        });
    }
    registry
        .op("Range")
        .types("Tidx", RANGE)
        .host(&["start", "limit", "delta"])
        .kernel(|_| Ok(range as Compute));
    registry.op("Empty").types("dtype", MOVED_I32).host(&["shape"]).kernel(|attrs| {
        let (dtype, init) = (attrs.dtype("dtype")?, attrs.bool("init")?);
        Ok(move |ctx: &mut dyn OpContext| {
            let dims = host_shape(ctx, 0, "shape")?;
            let out = ctx.output(0, dtype, &dims)?;
            if init { ctx.device().fill(out.address, out.bytes(), 0) } else { Ok(()) }
        })
    });
    registry.op("DeepCopy").types("T", MOVED).kernel(|_| Ok(deep_copy as Compute));
}

/// Fill: inputs dims (0, host) and value (1, a scalar on the device).
fn fill(ctx: &mut dyn OpContext) -> Result<()> {
    let dims = host_shape(ctx, 0, "dims")?;
    let value = ctx.input(1)?;
    require!(
        value.dims.is_empty() || value.len() == 1,
        "value must be a scalar, got shape {}",
        shape(&value.dims)
    );
    let out = ctx.output(0, value.dtype, &dims)?;
    splat(ctx, &value, &out)
}

/// Writes the only element of `value` to every element of `out`.
pub fn splat(ctx: &mut dyn OpContext, value: &Tensor, out: &Tensor) -> Result<()> {
    let unit = Unit::of(out.dtype);
    let whole = out.address.is_multiple_of(16) && out.bytes().is_multiple_of(16) && !out.is_empty();
    if whole && out.bytes() <= window_limit(ctx.device()) {
        let vectors = (out.bytes() / 16) as usize;
        return Splat {
            value: unit.binding(value.address, 1),
            dst: Binding { address: out.address, bytes: out.bytes(), unit: 16 },
            count: vectors,
        }
        .enqueue(ctx.device(), &Splat::of(unit), Grid::linear(vectors, WORKGROUP));
    }
    let walk = Iteration::over(&[out.len()]).operand(&[0], 0).operand(&[1], 0);
    copy_strided(ctx.device(), &walk, value, out)
}

fn zeros_like(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let out = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    ctx.device().fill(out.address, out.bytes(), 0)
}

fn ones_like(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let out = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    if out.is_empty() {
        return Ok(());
    }
    let one: &[u8] = match x.dtype {
        F32 => &1f32.to_ne_bytes(),
        F64 => &1f64.to_ne_bytes(),
        F16 => &half::f16::ONE.to_ne_bytes(),
        BF16 => &half::bf16::ONE.to_ne_bytes(),
        C64 => bytemuck::bytes_of(&[1f32, 0.0]),
        C128 => bytemuck::bytes_of(&[1f64, 0.0]),
        I16 | U16 => &1u16.to_ne_bytes(),
        I32 | U32 => &1u32.to_ne_bytes(),
        I64 | U64 => &1u64.to_ne_bytes(),
        _ => &[1],
    };
    let mut bytes = [0; 16];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = one[i % one.len()];
    }
    fill_element(ctx.device(), &out, &bytes)
}

fn deep_copy(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let out = ctx.output(0, x.dtype, &x.dims)?;
    ctx.device().copy(out.address, x.address, x.bytes())
}

/// Range: host inputs start, limit and delta. Element i is `start + i * delta`, as on TensorFlow's
/// CPU.
fn range(ctx: &mut dyn OpContext) -> Result<()> {
    let mut scalars = Vec::new();
    for (i, name) in ["start", "limit", "delta"].iter().enumerate() {
        let t = ctx.host_input(i)?;
        require!(
            t.bytes.len() == t.dtype.size(),
            "{name} must be a scalar, not shape {}",
            shape(&t.dims)
        );
        scalars.push(t);
    }
    let dtype = scalars[0].dtype;
    let n = range_len(&scalars)?;
    let out = ctx.output(0, dtype, &[n])?;
    if n == 0 {
        return Ok(());
    }
    let bounds = ctx.temp(dtype, &[2])?;
    ctx.device()
        .upload(bounds.address, &[&scalars[0].bytes[..], &scalars[2].bytes[..]].concat())?;
    let count = ctx.device().check_extent(n)?;
    Range { bounds: (&bounds).into(), y: (&out).into(), count }.enqueue(
        ctx.device(),
        &Range::of(dtype),
        Grid::map(n, dtype),
    )
}

fn range_len(scalars: &[HostTensor]) -> Result<usize> {
    if scalars[0].dtype == I64 {
        let [start, limit, delta] =
            [0, 1, 2].map(|i: usize| i128::from(scalars[i].values::<i64>()[0]));
        require!(delta != 0, "Requires delta != 0: {delta}");
        if delta > 0 {
            require!(start <= limit, "Requires start <= limit when delta > 0: {start}/{limit}");
        } else {
            require!(start >= limit, "Requires start >= limit when delta < 0: {start}/{limit}");
        }
        let n = (limit - start).unsigned_abs().div_ceil(delta.unsigned_abs());
        return usize::try_from(n).map_err(|_| {
            crate::Error::InvalidArgument(format!(
                "Requires ((limit - start) / delta) <= 2^63 - 1, got {n}"
            ))
        });
    }
    let dtype = scalars[0].dtype;
    let [start, limit, delta] = [0, 1, 2].map(|i: usize| scalars[i].to_f64()[0]);
    require!(delta != 0.0, "Requires delta != 0: {delta}");
    let (sign, relation, ordered) =
        if delta > 0.0 { ('>', "<=", start <= limit) } else { ('<', ">=", start >= limit) };
    require!(ordered, "Requires start {relation} limit when delta {sign} 0: {start}/{limit}");
    // Each step is rounded to the operands' type, as in TensorFlow: (1.1 - 0.1) / 0.1 is 10 in
    // float32, and 11 when it is rounded up from a finer result.
    let n = rounded(rounded(limit - start, dtype) / delta, dtype).abs().ceil();
    require!(
        n.is_finite() && n < i64::MAX as f64,
        "Requires ((limit - start) / delta) <= 2^63 - 1, got {n}"
    );
    Ok(n as usize)
}

/// The nearest number of a type.
fn rounded(value: f64, dtype: DType) -> f64 {
    match dtype {
        F32 => f64::from(value as f32),
        F16 => half::f16::from_f64(value).to_f64(),
        BF16 => half::bf16::from_f64(value).to_f64(),
        _ => value,
    }
}

declare_program! {
    /// The elements of Range.
    struct Range = "range"(dtype: DType);
    bindings { bounds: dtype, y: dtype }
    params { count: u32 }
}

impl Range {
    fn shader(dtype: DType) -> Shader {
        let value = dtype.value();
        Self::declare(format!("range {dtype}"), dtype)
            .body(&format!(
                "fn value(i: u32) -> {value} {{\n    return load_bounds(0u) + {value}(i) * \
             load_bounds(1u);\n}}\n"
            ))
            .map("y")
    }
}

declare_program! {
    /// Fills `dst` with one element, 16 bytes at a time.
    struct Splat = "splat"(unit: Unit);
    bindings { value: unit, dst: Raw("vec4<u32>", 16) }
    params { count: usize }
    shader format!("splat {}", unit.bytes()) =>
        .define("VALUE", unit.repeated("load_value(0u)"))
        .body(include_str!("../../shaders/splat.wgsl"))
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    RANGE.iter().map(|t| Range::shader(*t)).chain(Unit::ALL.map(Splat::shader)).collect()
}
