//! DebugNumericSummaryV2 in every mode against plain Rust.

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn summary(
    session: &mut Session,
    x: &HostTensor,
    output: DType,
    mode: i64,
    id: i64,
) -> Result<Vec<f64>, Error> {
    let node = Node::new("DebugNumericSummaryV2")
        .attr("T", x.dtype)
        .attr("output_dtype", output)
        .attr("tensor_debug_mode", mode)
        .attr("tensor_id", id);
    Ok(session.run(&node, &[Input::from(x.clone())])?[0].to_f64())
}

#[test]
fn every_mode_counts_as_tensorflow_does() {
    let mut session =
        Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let values = [1.0, -2.0, 0.0, nan, inf, -inf, -0.0, 5.0, inf, 3.0, -4.0, nan];
    for dtype in [DType::F32, DType::F16, DType::F64] {
        for output in [DType::F32, DType::F64] {
            if ![dtype, output].iter().all(|t| session.runs(*t)) {
                continue;
            }
            session.misalign = 1;
            let number = f64::from(dtype as i32);
            let x = HostTensor::floats(dtype, &[3, 4], &values);
            let mut run = |mode| summary(&mut session, &x, output, mode, 17).unwrap();
            assert_eq!(run(2), [17.0, 1.0]);
            assert_eq!(run(3), [17.0, 12.0, 1.0, 2.0, 2.0]);
            assert_eq!(run(4), [17.0, -1.0, number, 2.0, 12.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0]);
            assert_eq!(run(5), [17.0, number, 2.0, 12.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
            let examples = run(8);
            assert!(examples[..2] == [-inf, inf] && examples[2].is_nan(), "{examples:?}");
            let empty = HostTensor::floats(dtype, &[0, 3], &[]);
            assert_eq!(
                summary(&mut session, &empty, output, 3, 17).unwrap(),
                [17.0, 0.0, 0.0, 0.0, 0.0]
            );
            let healthy = HostTensor::floats(dtype, &[1000], &[0.5; 1000]);
            assert_eq!(summary(&mut session, &healthy, output, 2, 17).unwrap(), [17.0, 0.0]);
            assert_eq!(summary(&mut session, &healthy, output, 8, 17).unwrap(), [0.0; 3]);
        }
    }
    let x = HostTensor::i32(&[700], &(-100..600).collect::<Vec<_>>());
    let full = summary(&mut session, &x, DType::F32, 4, 0).unwrap();
    assert_eq!(full, [0.0, -1.0, 3.0, 1.0, 700.0, 0.0, 0.0, 0.0, 100.0, 1.0, 599.0]);
    if session.runs(DType::F64) {
        let id = (1 << 53) - 1;
        assert_eq!(summary(&mut session, &x, DType::F64, 2, id).unwrap(), [id as f64, 0.0]);
    }
    let error = summary(&mut session, &x, DType::F32, 2, (1 << 24) + 1).unwrap_err();
    assert!(
        matches!(&error, Error::InvalidArgument(m)
            if m.contains("(2^24). Given tensor_id:16777217")),
        "{error}"
    );
    let error = summary(&mut session, &x, DType::F32, 7, 0).unwrap_err();
    assert!(
        matches!(&error, Error::Unimplemented(m)
            if m.contains("Unimplemented tensor debug mode: 7")),
        "{error}"
    );
}
