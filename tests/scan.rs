//! Scans against plain Rust.

#[path = "numeric/bindings.rs"]
mod bindings;

use tensorflow_wgpu::DType::{self, *};
use tensorflow_wgpu::kernels::scan::{ROWS, Row};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

fn reference(
    row: &Row,
    x: &[f64],
    dims: &[usize],
    axis: usize,
    exclusive: bool,
    reverse: bool,
) -> Vec<f64> {
    let (n, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let neutral = match row.op {
        "Cumsum" => 0.0,
        "Cumprod" => 1.0,
        _ => f64::NEG_INFINITY,
    };
    let mut y = vec![0.0; x.len()];
    for line in 0..x.len() / n.max(1) {
        let at = |k: usize| {
            (line / inner * n + if reverse { n - 1 - k } else { k }) * inner + line % inner
        };
        let mut state = neutral;
        for k in 0..n {
            let next = (row.reference)(state, x[at(k)]);
            y[at(k)] = if exclusive { state } else { next };
            state = next;
        }
    }
    y
}

fn node(row: &Row, dtype: DType, exclusive: bool, reverse: bool) -> Node {
    let node = Node::new(row.op).attr("T", dtype).attr("Tidx", I32);
    node.attr("exclusive", exclusive).attr("reverse", reverse)
}

fn values(row: &Row, n: usize) -> Vec<f64> {
    match row.op {
        // Powers of two with few factors other than one: exact in every type, integers do not
        // overflow.
        "Cumprod" => {
            (0..n).map(|i| if i % 40 == 3 { 2.0 } else { [1.0, -1.0][i % 3 % 2] }).collect()
        }
        _ => (0..n).map(|i| ((i * 37) % 11) as f64 - 5.0).collect(),
    }
}

#[test]
fn every_row_type_axis_and_flag() {
    let shapes: &[&[usize]] =
        &[&[7], &[1], &[3, 5], &[2, 0, 3], &[200, 3], &[3, 130, 2], &[2, 2, 2, 9]];
    for row in ROWS {
        check(&mut Session::shared().unwrap(), row, row.types, shapes);
    }
}

#[test]
fn vec4s_of_lines_and_of_elements() {
    let mut session = Session::shared().unwrap();
    // Few lines, whole and in chunks.
    let shapes: &[&[usize]] = &[&[2, 400], &[80, 12], &[3, 130, 4]];
    for row in ROWS {
        let types: Vec<DType> =
            [F32, F16, BF16, I32].into_iter().filter(|t| row.types.contains(t)).collect();
        check(&mut session, row, &types, shapes);
    }
}

/// Every type and shape, along each axis, in both directions, with and without the elements
/// themselves.
fn check(session: &mut Session, row: &Row, types: &[DType], shapes: &[&[usize]]) {
    for dtype in session.supported(types.iter().copied()) {
        for &dims in shapes {
            for axis in 0..dims.len() {
                for (exclusive, reverse) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    let x = values(row, dims.iter().product());
                    let input = match dtype {
                        I32 => {
                            HostTensor::i32(dims, &x.iter().map(|v| *v as i32).collect::<Vec<_>>())
                        }
                        I64 => {
                            HostTensor::i64(dims, &x.iter().map(|v| *v as i64).collect::<Vec<_>>())
                        }
                        _ => HostTensor::floats(dtype, dims, &x),
                    };
                    let got = session
                        .run(
                            &node(row, dtype, exclusive, reverse),
                            &[
                                input.into(),
                                HostTensor::i32(&[], &[axis as i32 - dims.len() as i32]).into(),
                            ],
                        )
                        .unwrap()
                        .remove(0)
                        .to_f64();
                    let want = reference(row, &x, dims, axis, exclusive, reverse);
                    let tolerance = match dtype {
                        F16 => 2e-3,
                        BF16 => 1e-2,
                        F32 => 1e-5,
                        F64 => 1e-13,
                        _ => 0.0,
                    };
                    for (g, w) in got.iter().zip(&want) {
                        assert!(
                            g == w || (g - w).abs() <= tolerance * w.abs().max(1.0),
                            "{} {dtype} {dims:?} axis {axis} {exclusive} {reverse}: {g} for {w}",
                            row.op
                        );
                    }
                }
            }
        }
    }
}

/// Whole lines in windows, lines cut into windows of chunks, and chunks of few rows of many lines.
#[test]
fn tensors_beyond_one_binding() {
    let mut session = bindings::session_of(1024);
    let shapes: &[&[usize]] =
        &[&[601], &[90, 33], &[2, 140, 4], &[5, 130, 3], &[9, 100], &[40, 2, 8]];
    for row in ROWS {
        check(&mut session, row, row.types, shapes);
    }
}

#[test]
fn long_lines_and_many_lines() {
    let mut session = Session::shared().unwrap();
    let row = ROWS.iter().find(|r| r.op == "Cumsum").unwrap();
    for dims in [&[1_000_003][..], &[70_000, 3, 2], &[2, 70, 8192]] {
        let x: Vec<i64> =
            (0..dims.iter().product::<usize>() as i64).map(|i| i % 1000 - 499).collect();
        let got = session
            .run(
                &node(row, I64, false, true),
                &[HostTensor::i64(dims, &x).into(), HostTensor::i32(&[], &[0]).into()],
            )
            .unwrap();
        let xs: Vec<f64> = x.iter().map(|v| *v as f64).collect();
        let want: Vec<i64> =
            reference(row, &xs, dims, 0, false, true).iter().map(|v| *v as i64).collect();
        assert!(got[0].values::<i64>() == want, "{dims:?}");
    }
}

#[test]
fn a_bad_axis_is_an_invalid_argument() {
    let mut session = Session::shared().unwrap();
    let x = HostTensor::f32(&[2, 2], &[1.0; 4]);
    let error = session
        .run(&node(&ROWS[0], F32, false, false), &[x.into(), HostTensor::i32(&[], &[2]).into()])
        .unwrap_err();
    assert!(
        matches!(&error, Error::InvalidArgument(m) if m.contains("[-2, 2)") && m.contains("got 2")),
        "{error}"
    );
}
