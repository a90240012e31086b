//! Runs a row on the device and compares with its reference.

use libtest_mimic::Failed;
use tensorflow_wgpu::kernels::scalar::row::{Row, Shapes, Value};
use tensorflow_wgpu::layout::{Iteration, broadcast_dims};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{DType, Dims, HostTensor};

use crate::values::{range, round};

/// The attribute of rows that have one.
const ATTR: f32 = 0.3;

/// Runs `row` on the columns in the given shapes and compares every element.
pub fn compare(
    session: &mut Session,
    row: &Row,
    dtype: DType,
    shapes: &[Vec<usize>],
    columns: &[Vec<Value>],
) -> Result<(), Failed> {
    let mut node = Node::new(row.op);
    if row.is_typed() {
        node = node.attr("T", dtype);
    }
    if let Some(name) = row.attr {
        node = node.attr(name, ATTR);
    }
    if matches!(row.shapes, Shapes::BroadcastOr(_)) {
        node = node.attr("incompatible_shape_error", true);
    }
    let types = row.input_types(dtype);
    let inputs: Vec<_> = columns
        .iter()
        .zip(shapes)
        .zip(&types)
        .map(|((c, dims), t)| tensor(*t, dims, c).into())
        .collect();
    let outputs = session.run(&node, &inputs).map_err(|e| format!("shapes {shapes:?}: {e}"))?;
    let z = &outputs[0];

    let mut shapes = shapes.to_vec();
    if row.shapes == Shapes::Select && shapes[0].len() == 1 {
        let rank = shapes[1].len();
        shapes[0].resize(rank, 1);
    }
    let mut dims = Dims::new();
    for s in &shapes {
        dims = broadcast_dims(&dims, s)?;
    }
    let output = row.output_type(dtype);
    if z.dims != dims || z.dtype != output {
        return Err(format!("shapes {shapes:?}: the output is {:?} {}", z.dims, z.dtype).into());
    }
    let case = row.case(dtype).ok_or("no case")?;
    let walk = shapes.iter().fold(Iteration::over(&dims), |walk, s| walk.broadcast(s));
    let mut wrong = Vec::new();
    let mut worst = 0.0;
    for (i, got) in elements(z).into_iter().enumerate() {
        let mut arguments: Vec<Value> =
            columns.iter().enumerate().map(|(k, c)| c[index(&walk, k, i)]).collect();
        let shown = arguments.clone();
        arguments.extend(row.attr.map(|_| Value::Float(f64::from(ATTR))));
        let expected = case.reference.evaluate(dtype, &arguments);
        let mut error = error_in_ulps(output, got, expected, case.near_zero);
        if differ_in_sign(got, expected) && !EITHER_ZERO.contains(&row.op) {
            error = f64::INFINITY;
        }
        // Half types round the float32 result once more.
        let tolerance = match output {
            DType::F32 => f64::from(case.ulps),
            DType::F64 => f64::from(case.ulps64),
            _ => 1.0,
        };
        if error > tolerance || (error > 0.0 && !output.is_float()) {
            wrong.push(format!("{shown:?}: expected {expected:?}, got {got:?} ({error} ulp)"));
        }
        if error > worst {
            worst = error;
        }
    }
    if std::env::var_os("SCALAR_ULPS").is_some() {
        println!("{} {dtype}: at most {worst} ulp", row.op);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let count = wrong.len();
    wrong.truncate(12);
    Err(format!(
        "shapes {shapes:?}, misaligned by {}: {count} elements\n{}",
        session.misalign,
        wrong.join("\n")
    )
    .into())
}

/// Element of operand `k` for element `i` of the walk.
fn index(walk: &Iteration, k: usize, i: usize) -> usize {
    let mut rest = i;
    let mut at = walk.offset(k);
    for (extent, stride) in walk.dims().iter().zip(walk.strides(k)).rev() {
        at += (rest % extent) as i64 * stride;
        rest /= extent;
    }
    at as usize
}

/// A tensor of these values, which are representable.
pub fn tensor(dtype: DType, dims: &[usize], values: &[Value]) -> HostTensor {
    if dtype.is_float() {
        let floats: Vec<f64> =
            values.iter().map(|v| if let Value::Float(f) = v { *f } else { 0.0 }).collect();
        return HostTensor::floats(dtype, dims, &floats);
    }
    let bytes = values
        .iter()
        .flat_map(|v| {
            if let Value::Int(i) = v {
                i.to_le_bytes()[..dtype.size()].to_vec()
            } else {
                Vec::new()
            }
        })
        .collect();
    HostTensor { dtype, dims: Dims::from_slice(dims), bytes }
}

fn elements(t: &HostTensor) -> Vec<Value> {
    if t.dtype.is_float() {
        return t.to_f64().into_iter().map(Value::Float).collect();
    }
    let size = t.dtype.size();
    let decode = |bytes: &[u8]| {
        let raw = bytes.iter().rev().fold(0i128, |v, b| v << 8 | i128::from(*b));
        Value::Int(wrap(t.dtype, raw))
    };
    t.bytes.chunks_exact(size).map(decode).collect()
}

fn wrap(dtype: DType, v: i128) -> i128 {
    if dtype == DType::Bool {
        return v;
    }
    let (low, high) = range(dtype);
    (v - low).rem_euclid(high - low + 1) + low
}

/// Rows for which either zero is right, or whose reference has no sign of zero.
const EITHER_ZERO: &[&str] =
    &["BesselI1", "BesselI1e", "Dawsn", "IgammaGradA", "Maximum", "Minimum"];

/// Whether both are zero, of different signs.
fn differ_in_sign(got: Value, exact: Value) -> bool {
    match (got, exact) {
        (Value::Float(g), Value::Float(e)) => {
            g == 0.0 && e == 0.0 && g.is_sign_negative() != e.is_sign_negative()
        }
        _ => false,
    }
}

/// Distance of two results in units in the last place of the type; 0 when they agree.
fn error_in_ulps(dtype: DType, got: Value, exact: Value, near_zero: f64) -> f64 {
    let (got, exact) = match (got, exact) {
        (Value::Int(g), Value::Int(e)) => {
            return if g == wrap(dtype, e) { 0.0 } else { f64::INFINITY };
        }
        (Value::Float(g), Value::Float(e)) => (g, e),
        _ => return f64::INFINITY,
    };
    let expected = round(dtype, exact);
    if got == expected || (got.is_nan() && expected.is_nan()) || (got - exact).abs() <= near_zero {
        return 0.0;
    }
    if got.is_nan() || expected.is_nan() {
        return f64::INFINITY;
    }
    let (bits, least, largest): (i32, i32, f64) = match dtype {
        DType::F16 => (10, -14, 65504.0),
        DType::BF16 => (7, -126, 3.3895313892515355e38),
        DType::F32 => (23, -126, f64::from(f32::MAX)),
        _ => (52, -1022, f64::MAX),
    };
    // Subnormal results may be flushed to zero, as TensorFlow does on its CPU threads.
    if exact.abs() < f64::powi(2.0, least) && got == 0.0 {
        return 0.0;
    }
    // Infinity counts as one step behind the largest value.
    let finite = |v: f64| {
        if v.is_infinite() { v.signum() * largest * (1.0 + f64::powi(2.0, -bits)) } else { v }
    };
    let magnitude = exact.abs().min(largest);
    let exponent = (magnitude.log2().floor() as i32).max(least);
    let difference =
        (finite(got) - finite(if exact.abs() > largest { expected } else { exact })).abs();
    difference / f64::powi(2.0, exponent) * f64::powi(2.0, bits)
}

/// Compares the result of a `Cast` with Rust's conversions.
pub fn cast(
    from: DType,
    to: DType,
    truncate: bool,
    column: &[Value],
    y: &HostTensor,
) -> Result<(), Failed> {
    let mut wrong = Vec::new();
    for (x, got) in column.iter().zip(elements(y)) {
        let expected = match (*x, to) {
            (Value::Float(v), DType::Bool) => Value::Int(i128::from(v != 0.0)),
            (Value::Int(v), DType::Bool) => Value::Int(i128::from(v != 0)),
            (Value::Float(v), DType::I8 | DType::I16) => Value::Int(wrap(to, i128::from(v as i32))),
            (Value::Float(v), DType::U8 | DType::U16) => Value::Int(wrap(to, i128::from(v as u32))),
            (Value::Float(v), DType::I32) => Value::Int(i128::from(v as i32)),
            (Value::Float(v), DType::U32) => Value::Int(i128::from(v as u32)),
            (Value::Float(v), DType::I64) => Value::Int(i128::from(v as i64)),
            (Value::Float(v), DType::U64) => Value::Int(i128::from(v as u64)),
            (Value::Float(v), _) if truncate => Value::Float(round(to, drop_bits(from, to, v))),
            (Value::Float(v), t) if t.is_narrow_float() => {
                Value::Float(round(to, f64::from(v as f32)))
            }
            (Value::Float(v), _) => Value::Float(round(to, v)),
            (Value::Int(v), DType::F64) => Value::Float(v as f64),
            // Narrow floats are rounded from float32, as TensorFlow does.
            (Value::Int(v), t) if t.is_float() => Value::Float(round(to, f64::from(v as f32))),
            (Value::Int(v), _) => Value::Int(wrap(to, v)),
        };
        let same = match (got, expected) {
            (Value::Float(g), Value::Float(e)) => g == e || (g.is_nan() && e.is_nan()),
            _ => got == expected,
        };
        if !same {
            wrong.push(format!("{x:?}: expected {expected:?}, got {got:?}"));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let count = wrong.len();
    wrong.truncate(12);
    Err(format!("{count} elements\n{}", wrong.join("\n")).into())
}

/// `v` without the bits of its significand that `to` lacks.
fn drop_bits(from: DType, to: DType, v: f64) -> f64 {
    let kept = |t: DType| match t {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F64 => 52,
        _ => 23,
    };
    if v.is_nan() || v.is_infinite() || v == 0.0 || kept(from) <= kept(to) {
        return v;
    }
    let least = match from {
        DType::F16 => -14,
        DType::F64 => -1022,
        _ => -126,
    };
    let exponent = (v.abs().log2().floor() as i32).max(least);
    let unit = f64::powi(2.0, exponent - kept(to));
    (v / unit).trunc() * unit
}
