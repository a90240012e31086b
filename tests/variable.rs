//! AssignAddVariableOp and AssignSubVariableOp against plain Rust: every type, odd lengths,
//! interior addresses, windows, errors.

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
const INTEGERS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn assign(
    session: &mut Session,
    op: &str,
    variable: usize,
    value: &HostTensor,
) -> Result<(), Error> {
    let node = Node::new(op).attr("dtype", value.dtype);
    let outputs = session.run(&node, &[Input::Variable(variable), value.clone().into()])?;
    assert!(outputs.is_empty(), "the op has no output");
    Ok(())
}

/// Integers of `dtype` from the low bytes of 64-bit values.
fn integers(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()[..dtype.size()].to_vec()).collect();
    HostTensor { dtype, dims: dims.into(), bytes }
}

#[test]
fn floats_round_once() {
    let mut session = session();
    for dtype in FLOATS {
        if !session.runs(dtype) {
            continue;
        }
        for (dims, misalign) in [(&[][..], 0), (&[0], 0), (&[7], 1), (&[3, 5], 0), (&[1025], 3)] {
            session.misalign = misalign;
            let n: usize = dims.iter().product();
            let old = HostTensor::floats(
                dtype,
                dims,
                &(0..n).map(|i| i as f64 * 0.37 - 1.0).collect::<Vec<_>>(),
            );
            let delta = HostTensor::floats(
                dtype,
                dims,
                &(0..n).map(|i| 2.5 - i as f64 * 0.11).collect::<Vec<_>>(),
            );
            for (op, sign) in [("AssignAddVariableOp", 1.0), ("AssignSubVariableOp", -1.0)] {
                let variable = session.variable(&old).unwrap();
                assign(&mut session, op, variable, &delta).unwrap();
                // Exact in f64 for the narrow types, and f32 sums are exact in f64 before the one
                // rounding.
                let sums: Vec<f64> =
                    old.to_f64().iter().zip(delta.to_f64()).map(|(a, b)| a + sign * b).collect();
                let expected = if matches!(dtype, DType::F32 | DType::F64) {
                    HostTensor::floats(dtype, dims, &sums)
                } else {
                    let sums: Vec<f64> = sums.iter().map(|s| f64::from(*s as f32)).collect();
                    HostTensor::floats(dtype, dims, &sums)
                };
                assert_eq!(
                    session.variable_value(variable).unwrap(),
                    expected,
                    "{op} {dtype} {dims:?} +{misalign}"
                );
            }
        }
    }
}

#[test]
fn integers_wrap_around() {
    let mut session = session();
    for dtype in INTEGERS {
        if !session.runs(dtype) {
            continue;
        }
        for misalign in [0, 1] {
            session.misalign = misalign;
            let old: Vec<i64> = (0..77_i64)
                .map(|i| (i64::MIN / 3).wrapping_mul(i % 5).wrapping_add(i * 1_000_003))
                .collect();
            let delta: Vec<i64> = (0..77_i64)
                .map(|i| (i64::MAX / 2).wrapping_mul(i % 3).wrapping_sub(i * 77_777))
                .collect();
            for (op, sign) in [("AssignAddVariableOp", 1), ("AssignSubVariableOp", -1)] {
                let variable = session.variable(&integers(dtype, &[7, 11], &old)).unwrap();
                assign(&mut session, op, variable, &integers(dtype, &[7, 11], &delta)).unwrap();
                let sums: Vec<i64> = old
                    .iter()
                    .zip(&delta)
                    .map(|(a, b)| a.wrapping_add(b.wrapping_mul(sign)))
                    .collect();
                let expected = integers(dtype, &[7, 11], &sums);
                assert_eq!(
                    session.variable_value(variable).unwrap(),
                    expected,
                    "{op} {dtype} +{misalign}"
                );
            }
        }
    }
}

#[test]
fn complex_numbers_add_by_parts() {
    let mut session = session();
    let parts = |scale: f32| (0..10).map(|i| i as f32 * scale - 3.0).collect::<Vec<_>>();
    let tensor = |values: &[f32]| HostTensor {
        dtype: DType::C64,
        dims: [5].as_slice().into(),
        bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let variable = session.variable(&tensor(&parts(0.5))).unwrap();
    assign(&mut session, "AssignSubVariableOp", variable, &tensor(&parts(0.25))).unwrap();
    let expected: Vec<f32> = parts(0.5).iter().zip(parts(0.25)).map(|(a, b)| a - b).collect();
    assert_eq!(session.variable_value(variable).unwrap(), tensor(&expected));
}

#[test]
fn a_variable_larger_than_a_binding_is_updated_in_windows() {
    let max = 1 << 20;
    let mut session = Session::binding(max as u64).unwrap();
    let n = max as usize / 4 + 1001;
    let variable = session.variable(&HostTensor::f32(&[n], &vec![1.5; n])).unwrap();
    let delta: Vec<f32> = (0..n).map(|i| (i % 1024) as f32).collect();
    assign(&mut session, "AssignAddVariableOp", variable, &HostTensor::f32(&[n], &delta)).unwrap();
    let got = session.variable_value(variable).unwrap().values::<f32>();
    assert!(got.iter().zip(&delta).all(|(g, d)| *g == d + 1.5));
}

#[test]
fn errors_use_tensorflows_words_and_keep_the_value() {
    let mut session = session();
    let old = HostTensor::f32(&[2], &[1.0, 2.0]);
    let variable = session.variable(&old).unwrap();
    let shape =
        assign(&mut session, "AssignAddVariableOp", variable, &HostTensor::f32(&[3], &[0.0; 3]))
            .unwrap_err();
    let expected = "Cannot update variable with shape [2] using a Tensor with shape [3], shapes \
                    must be equal.";
    assert!(matches!(&shape, Error::InvalidArgument(m) if m.contains(expected)), "{shape}");
    let dtype =
        assign(&mut session, "AssignAddVariableOp", variable, &HostTensor::i32(&[2], &[1, 1]))
            .unwrap_err();
    assert!(
        matches!(&dtype, Error::InvalidArgument(m) if m.contains("DType of variable handle")),
        "{dtype}"
    );
    assert_eq!(session.variable_value(variable).unwrap(), old);
}
