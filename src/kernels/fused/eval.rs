//! Expressions on host values, by the references of their rows: the oracle of tests and of the
//! random-graph generator.
//!
//! Values are f64 or i128, and are rounded where the shader rounds its own: to their type after
//! every call, and from a 16-bit type to float32 before; integers wrap.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::{Call, Expression, Value};
use crate::kernels::scalar::row::Value as Scalar;
use crate::layout::{Iteration, broadcast_dims};
use crate::require;
use crate::tensor::{Dims, HostTensor};

impl Expression {
    /// The outputs for one element of each input, each as its type's memory would hold it.
    pub fn evaluate(&self, inputs: &[Scalar], constants: &[f32]) -> Vec<Scalar> {
        let mut steps: Vec<Scalar> = Vec::with_capacity(self.steps().len());
        let get = |steps: &[Scalar], value: Value| match value {
            Value::Input(i) => stored(self.inputs()[i as usize], inputs[i as usize]),
            Value::Constant(i) => Scalar::Float(f64::from(constants[i as usize])),
            Value::Step(i) => steps[i as usize],
        };
        for step in self.steps() {
            let args: Vec<Scalar> = step.args.iter().map(|v| get(&steps, *v)).collect();
            steps.push(match step.call {
                Call::Row(row, dtype) => {
                    let case = row.case(dtype).expect("a call exists only for a row's own types");
                    computed(row.output_type(dtype), case.reference.evaluate(dtype, &args))
                }
                Call::Cast(_, to) => cast(args[0], to),
                Call::Bitcast(from, to) => bitcast(args[0], from, to),
            });
        }
        self.outputs()
            .iter()
            .zip(self.output_types())
            .map(|(v, t)| stored(t, get(&steps, *v)))
            .collect()
    }

    /// The outputs for tensors that broadcast; all have the shape to which the inputs broadcast.
    ///
    /// # Errors
    /// `InvalidArgument` if number, types or shapes of the inputs do not fit.
    pub fn evaluate_tensors(
        &self,
        inputs: &[HostTensor],
        constants: &[f32],
    ) -> Result<Vec<HostTensor>> {
        let given: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
        require!(given == self.inputs(), "inputs of {given:?} for {self}");
        require!(constants.len() == self.constants(), "{} parameters for {self}", constants.len());
        let mut dims = Dims::new();
        for t in inputs {
            dims = broadcast_dims(&dims, &t.dims)?;
        }
        let walk = inputs.iter().fold(Iteration::over(&dims), |walk, t| walk.broadcast(&t.dims));
        let columns: Vec<Vec<Scalar>> = inputs.iter().map(elements).collect();
        let mut outputs = vec![Vec::new(); self.outputs().len()];
        for i in 0..walk.len() {
            let args: Vec<Scalar> =
                columns.iter().enumerate().map(|(k, c)| c[index(&walk, k, i)]).collect();
            for (column, value) in outputs.iter_mut().zip(self.evaluate(&args, constants)) {
                column.push(value);
            }
        }
        Ok(self
            .output_types()
            .into_iter()
            .zip(outputs)
            .map(|(t, values)| tensor(t, &dims, &values))
            .collect())
    }
}

/// The value that a row gives, before the next call sees it.
fn computed(dtype: DType, value: Scalar) -> Scalar {
    match value {
        Scalar::Float(v) if dtype == DType::F64 => Scalar::Float(v),
        Scalar::Float(v) if dtype.is_float() => stored(dtype, Scalar::Float(f64::from(v as f32))),
        Scalar::Int(v) if dtype.is_integer() => Scalar::Int(wrap(dtype, v)),
        _ => value,
    }
}

/// `value` as memory holds it.
fn stored(dtype: DType, value: Scalar) -> Scalar {
    match value {
        Scalar::Float(v) if dtype.is_float() => {
            Scalar::Float(HostTensor::floats(dtype, &[], &[v]).to_f64()[0])
        }
        Scalar::Float(_) => value,
        Scalar::Int(v) => Scalar::Int(wrap(dtype, v)),
    }
}

fn cast(value: Scalar, to: DType) -> Scalar {
    match (value, to) {
        (Scalar::Float(v), DType::Bool) => Scalar::Int(i128::from(v != 0.0)),
        (Scalar::Int(v), DType::Bool) => Scalar::Int(i128::from(v != 0)),
        (Scalar::Float(v), DType::I32 | DType::I16 | DType::I8) => {
            Scalar::Int(wrap(to, i128::from(v as i32)))
        }
        (Scalar::Float(v), DType::U32 | DType::U16 | DType::U8) => {
            Scalar::Int(wrap(to, i128::from(v as u32)))
        }
        (Scalar::Float(v), DType::I64) => Scalar::Int(i128::from(v as i64)),
        (Scalar::Float(v), DType::U64) => Scalar::Int(i128::from(v as u64)),
        (Scalar::Float(v), t) if t.is_narrow_float() => {
            stored(to, Scalar::Float(f64::from(v as f32)))
        }
        (Scalar::Float(_), _) => stored(to, value),
        (Scalar::Int(v), DType::F64) => Scalar::Float(v as f64),
        (Scalar::Int(v), _) if to.is_float() => stored(to, Scalar::Float(f64::from(v as f32))),
        (Scalar::Int(v), _) => Scalar::Int(wrap(to, v)),
    }
}

/// The bits of a value of type `from` as a value of type `to`, which has the same size.
fn bitcast(value: Scalar, from: DType, to: DType) -> Scalar {
    elements(&HostTensor { dtype: to, ..tensor(from, &[], &[value]) })[0]
}

/// `v` modulo the width of an integer type.
fn wrap(dtype: DType, v: i128) -> i128 {
    let unused = 128 - 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => v,
        t if t.is_signed_integer() => v << unused >> unused,
        _ => (v.cast_unsigned() << unused >> unused).cast_signed(),
    }
}

/// The elements of a tensor of floats, integers or bools.
pub fn elements(t: &HostTensor) -> Vec<Scalar> {
    if t.dtype.is_float() {
        return t.to_f64().into_iter().map(Scalar::Float).collect();
    }
    let raw = |bytes: &[u8]| bytes.iter().rev().fold(0i128, |v, b| v << 8 | i128::from(*b));
    t.bytes
        .chunks_exact(t.dtype.size())
        .map(|bytes| Scalar::Int(wrap(t.dtype, raw(bytes))))
        .collect()
}

/// The tensor of these elements.
pub fn tensor(dtype: DType, dims: &[usize], values: &[Scalar]) -> HostTensor {
    if dtype.is_float() {
        let floats: Vec<f64> =
            values.iter().map(|v| if let Scalar::Float(f) = v { *f } else { f64::NAN }).collect();
        return HostTensor::floats(dtype, dims, &floats);
    }
    let bytes = |v: &Scalar| {
        if let Scalar::Int(i) = v { i.to_le_bytes()[..dtype.size()].to_vec() } else { Vec::new() }
    };
    HostTensor {
        dtype,
        dims: Dims::from_slice(dims),
        bytes: values.iter().flat_map(bytes).collect(),
    }
}

/// Element of operand `k` for element `i` of the walk.
pub(super) fn index(walk: &Iteration, k: usize, i: usize) -> usize {
    let (mut rest, mut at) = (i, walk.offset(k));
    for (extent, stride) in walk.dims().iter().zip(walk.strides(k)).rev() {
        at += (rest % extent) as i64 * stride;
        rest /= extent;
    }
    at as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, inputs: &[HostTensor], constants: &[f32]) -> Vec<HostTensor> {
        text.parse::<Expression>().unwrap().evaluate_tensors(inputs, constants).unwrap()
    }

    #[test]
    fn inputs_broadcast() {
        let got = run(
            "x: float32, float32; c: 1; s0 = Mul<float32>(x0, x1); s1 = AddV2<float32>(s0, c0); \
             return s1, x1",
            &[HostTensor::f32(&[2, 1], &[1.0, 2.0]), HostTensor::f32(&[3], &[1.0, 10.0, 100.0])],
            &[0.5],
        );
        assert_eq!(got[0], HostTensor::f32(&[2, 3], &[1.5, 10.5, 100.5, 2.5, 20.5, 200.5]));
        assert_eq!(got[1], HostTensor::f32(&[2, 3], &[1.0, 10.0, 100.0, 1.0, 10.0, 100.0]));
    }

    #[test]
    fn integers_wrap_and_casts_round() {
        let got = run(
            "x: uint8; c: 0; s0 = AddV2<uint8>(x0, x0); s1 = Cast<uint8, float32>(s0); return s1",
            &[HostTensor::of(DType::U8, &[2], &[200u8, 3])],
            &[],
        );
        assert_eq!(got[0], HostTensor::f32(&[2], &[144.0, 6.0]));
        let got = run(
            "x: float32; c: 0; s0 = Cast<float32, float16>(x0); s1 = Cast<float16, float32>(s0); \
             return s1",
            &[HostTensor::f32(&[1], &[1.0001])],
            &[],
        );
        assert_eq!(got[0], HostTensor::f32(&[1], &[1.0]));
    }
}
