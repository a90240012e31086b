//! InplaceUpdate, InplaceAdd, InplaceSub and ReverseSequence against plain Rust: every type, odd
//! rows, duplicates, indices beyond the end, lengths out of range, errors.

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// Small numbers of any type.
fn numbers(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    if dtype.is_float() {
        return HostTensor::floats(
            dtype,
            dims,
            &values.iter().map(|v| *v as f64).collect::<Vec<_>>(),
        );
    }
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()[..dtype.size()].to_vec()).collect();
    HostTensor { dtype, dims: dims.into(), bytes }
}

fn run(
    session: &mut Session,
    node: &Node,
    inputs: &[&HostTensor],
) -> Result<Vec<HostTensor>, Error> {
    session.run(node, &inputs.iter().map(|t| Input::from((*t).clone())).collect::<Vec<_>>())
}

#[test]
fn rows_are_updated_in_order() {
    let mut session = session();
    for dtype in [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I8,
        DType::I64,
        DType::U8,
        DType::U64,
    ] {
        if !session.runs(dtype) {
            continue;
        }
        for (rows, inner, index, misalign) in [
            (5, 3, &[4, 0, 2][..], 0),
            (4, 7, &[1, -1, 6, 1], 1),
            (3, 1, &[1, 1, 1], 0),
            (4, 2, &[], 0),
        ] {
            session.misalign = misalign;
            let x: Vec<i64> = (0..rows * inner).map(|i| 40 + i as i64 % 9).collect();
            let v: Vec<i64> = (0..index.len() * inner).map(|i| 1 + i as i64 % 5).collect();
            let indices = HostTensor::i32(&[index.len()], index);
            for (op, f) in [
                ("InplaceUpdate", (|_, v| v) as fn(i64, i64) -> i64),
                ("InplaceAdd", |x, v| x + v),
                ("InplaceSub", |x, v| x - v),
            ] {
                let node = Node::new(op).attr("T", dtype);
                let given = [
                    &numbers(dtype, &[rows, inner], &x),
                    &indices,
                    &numbers(dtype, &[index.len(), inner], &v),
                ];
                let y = run(&mut session, &node, &given).unwrap();
                let mut want = x.clone();
                for (n, row) in index.iter().enumerate() {
                    let row = row.rem_euclid(rows as i32) as usize;
                    for k in 0..inner {
                        want[row * inner + k] = f(want[row * inner + k], v[n * inner + k]);
                    }
                }
                assert_eq!(y[0], numbers(dtype, &[rows, inner], &want), "{op} {dtype} {index:?}");
            }
        }
    }
}

#[test]
fn sequences_are_reversed_as_far_as_they_go() {
    let mut session = session();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        if !session.runs(dtype) {
            continue;
        }
        for (dims, lengths, sequence, batch) in [
            ([3, 5, 1], vec![1, 0, 5], 1, 0),
            ([4, 3, 7], vec![2, 4, 9], 0, 1),
            ([2, 3, 3], vec![3, -1, 2], 0, 2),
        ] {
            for index in [DType::I32, DType::I64] {
                let n: usize = dims.iter().product();
                let x: Vec<i64> = (0..n as i64).collect();
                let node = Node::new("ReverseSequence")
                    .attr("T", dtype)
                    .attr("Tlen", index)
                    .attr("seq_dim", sequence as i64)
                    .attr("batch_dim", batch as i64);
                let given =
                    [&numbers(dtype, &dims, &x), &numbers(index, &[lengths.len()], &lengths)];
                let y = run(&mut session, &node, &given).unwrap();
                let strides = [dims[1] * dims[2], dims[2], 1];
                let coordinate = |i: usize, axis: usize| i / strides[axis] % dims[axis];
                let from = |i: usize| {
                    let length =
                        lengths[coordinate(i, batch)].clamp(0, dims[sequence] as i64) as usize;
                    let s = coordinate(i, sequence);
                    if s < length {
                        x[i - s * strides[sequence] + (length - 1 - s) * strides[sequence]]
                    } else {
                        x[i]
                    }
                };
                assert_eq!(
                    y[0],
                    numbers(dtype, &dims, &(0..n).map(from).collect::<Vec<_>>()),
                    "{dtype} {dims:?}"
                );
            }
        }
    }
}

#[test]
fn errors_use_tensorflows_words() {
    let mut session = session();
    let x = HostTensor::f32(&[3, 2], &[0.0; 6]);
    let mut message =
        |node: Node, inputs: &[&HostTensor]| match run(&mut session, &node, inputs).unwrap_err() {
            Error::InvalidArgument(m) => m,
            other => panic!("{other:?}"),
        };
    let update = || Node::new("InplaceUpdate").attr("T", DType::F32);
    let rows = HostTensor::f32(&[2, 2], &[0.0; 4]);
    let one = HostTensor::i32(&[1], &[0]);
    assert!(
        message(update(), &[&x, &one, &rows])
            .contains("i and x shape doesn't match at index 0: [1] vs. [2,2]")
    );
    assert!(
        message(update(), &[&x, &HostTensor::i32(&[], &[0]), &rows])
            .contains("i must be a vector. []")
    );
    let reverse = |sequence: i64, batch: i64| {
        let node = Node::new("ReverseSequence").attr("T", DType::F32).attr("Tlen", DType::I32);
        node.attr("seq_dim", sequence).attr("batch_dim", batch)
    };
    assert!(message(reverse(0, 0), &[&x, &one]).contains("batch_dim == seq_dim == 0"));
    assert!(
        message(reverse(2, 0), &[&x, &one]).contains("seq_dim must be < input rank ( 2 vs. 2)")
    );
    assert!(
        message(reverse(1, 0), &[&x, &one])
            .contains("Length of seq_lengths != input.dims(0), (1 vs. 3)")
    );
}
