//! `_WgpuFusedRowwise` against f64: programs evaluated by an interpreter over the scalar rows' own
//! references, and normalizations and softmax written by hand; in the styles of a software adapter
//! and of a GPU.

#[path = "numeric/close.rs"]
mod close;

use close::assert_within;
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::fused::rowwise::program::RowProgram;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

mod fused_rowwise_reference;
use fused_rowwise_reference::evaluate;

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

fn node(program: &str, constants: &[f32], axes: &[i64]) -> Node {
    let parsed: RowProgram = program.parse().unwrap();
    let mut node = Node::new("_WgpuFusedRowwise").attr("program", program).attr("axes", axes);
    node = node.attr("T_in", parsed.inputs()).attr("T_out", &parsed.output_types()[..]);
    node.attr("constants", constants)
}

/// Values in [-4, 4) as the type holds them; bools alternate irregularly.
fn values(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n: usize = dims.iter().product();
    let number = |i: usize| (i * 7919 + i / 13 + seed * 131) % 1601;
    if dtype == Bool {
        return HostTensor::bool(dims, &(0..n).map(|i| number(i) % 3 == 0).collect::<Vec<_>>());
    }
    HostTensor::floats(
        dtype,
        dims,
        &(0..n).map(|i| number(i) as f64 / 200.0 - 4.0).collect::<Vec<_>>(),
    )
}

/// Twice as much as for a function alone: a row program has several.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-11 } else { 2.0 * close::tolerance(dtype) }
}

#[track_caller]
fn assert_close(got: &HostTensor, wanted: &[f64], worst: f64, context: &str) {
    assert_within(got, wanted, |w| worst * (w.abs() + 1.0), context);
}

/// Runs the program in both styles, aligned and not, and compares with the interpreter.
#[track_caller]
fn check(program: &str, constants: &[f32], axes: &[i64], inputs: &[HostTensor]) {
    let parsed: RowProgram = program.parse().unwrap();
    let wanted = evaluate(&parsed, constants, axes, inputs);
    let narrowest =
        inputs.iter().map(|t| t.dtype).filter(|t| t.is_float()).map(tolerance).fold(0.0, f64::max);
    for mut session in sessions() {
        for misalign in [0, 1] {
            session.misalign = misalign;
            let given: Vec<Input> = inputs.iter().cloned().map(Into::into).collect();
            let out = session.run(&node(program, constants, axes), &given).unwrap();
            assert_eq!(out.len(), wanted.len());
            for (o, (got, (dims, values))) in out.iter().zip(&wanted).enumerate() {
                let shapes: Vec<_> = inputs.iter().map(|t| &t.dims[..]).collect();
                let context = format!("output {o} of {shapes:?} over {axes:?}");
                assert_eq!(&got.dims[..], &dims[..], "{context}");
                assert_close(got, values, narrowest.max(tolerance(got.dtype)), &context);
            }
        }
    }
}

/// Layer normalization as Keras writes it, with mean and inverse deviation as outputs.
fn layer_norm(t: &str) -> String {
    let x = |n: usize| vec![t; n].join(", ");
    // A parameter cannot hold a float64 value.
    let epsilon = if t == "float64" { "x4" } else { "c0" };
    format!(
        "Mean: x: {}; c: 1; return x0 | Mean: x: {}; c: 1; s0 = SquaredDifference<{t}>(x0, x3); \
         return s0 | row: x: {}; c: 1; s0 = AddV2<{t}>(x4, {epsilon}); s1 = Rsqrt<{t}>(s0); \
         return s1 | full: x: {}; c: 1; s0 = Mul<{t}>(x1, x5); s1 = Mul<{t}>(x0, s0); s2 = \
         Neg<{t}>(x3); s3 = Mul<{t}>(s2, s0); s4 = AddV2<{t}>(s1, s3); s5 = AddV2<{t}>(s4, x2); \
         return s5 | return y0, r0, r2 flat",
        x(3),
        x(4),
        x(5),
        x(6)
    )
}

const SHAPES: &[&[usize]] = &[
    &[1],
    &[8],
    &[3, 1],
    &[4, 10],
    &[2, 3, 33],
    &[5, 64],
    &[3, 65],
    &[4, 6, 8],
    &[2, 1024],
    &[2, 4100],
    &[3, 5001],
    &[1200, 20],
    &[1201, 7],
    &[0, 4],
    &[3, 0],
];

#[test]
fn layer_normalization_by_hand() {
    for mut session in sessions() {
        for dims in SHAPES.iter().filter(|d| !d.contains(&0)) {
            let columns = dims[dims.len() - 1];
            let (x, gamma, beta) =
                (values(F32, dims, 1), values(F32, &[columns], 2), values(F32, &[columns], 3));
            let given = [x.clone(), gamma.clone(), beta.clone()].map(Input::from);
            let out = session.run(&node(&layer_norm("float32"), &[1e-3], &[-1]), &given).unwrap();
            let (gamma, beta) = (gamma.to_f64(), beta.to_f64());
            let mut wanted = Vec::new();
            for row in x.to_f64().chunks(columns) {
                let mean = row.iter().sum::<f64>() / columns as f64;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / columns as f64;
                let scale = 1.0 / (variance + 1e-3).sqrt();
                wanted.extend((0..columns).map(|c| (row[c] - mean) * scale * gamma[c] + beta[c]));
            }
            assert_eq!(out[0].dims, x.dims);
            assert_eq!(&out[2].dims[..], &dims[..dims.len() - 1]);
            // A variance of 0 and its epsilon magnify the mean's rounding thirty times.
            assert_close(&out[0], &wanted, 1e-4, &format!("{dims:?}"));
        }
    }
}

#[test]
fn layer_normalization_of_every_type_and_shape() {
    for t in sessions()[0].supported([F32, F64, F16, BF16]) {
        for dims in SHAPES {
            let columns = dims[dims.len() - 1];
            let inputs = [values(t, dims, 1), values(t, &[columns], 2), values(t, &[columns], 3)];
            if columns > 1 {
                check(&layer_norm(t.name()), &[1e-2], &[-1], &inputs);
            }
        }
    }
}

/// Every reduction at once, tests of elements and of rows, a cast, and an input of 64 bits.
const MIXED: &str = "Sum, Mean, Prod, Max, Min: x: float32, float16, float64, bool; c: 2; \
     s0 = Cast<float16, float32>(x1); s1 = Mul<float32>(x0, s0); s2 = Sigmoid<float32>(x0); \
     s3 = AddV2<float32>(s2, \
     c0); return s1, x2, s3, x0, x1 | row: x: float32, float16, float64, bool, float32, float64, \
     float32, float32, float16; c: 2; s0 = Greater<float32>(x4, x7); s1 = Mul<float32>(x6, c1); \
     return s0, s1 | full: x: float32, float16, float64, bool, float32, float64, float32, \
     float32, float16, bool, float32; c: 2; s0 = Sub<float32>(x0, x7); s1 = SelectV2<float32>(x3, \
     s0, x4); s2 = Equal<float32>(x0, x7); return s1, s2 | return y0, r5, y1";

#[test]
fn every_reduction_and_tests_of_rows() {
    let wide = if sessions()[0].runs(F64) { F64 } else { F32 };
    let mixed = MIXED.replace("float64", wide.name());
    for dims in SHAPES.iter().filter(|d| !d.contains(&0)) {
        let inputs = [
            values(F32, dims, 1),
            values(F16, dims, 2),
            values(wide, dims, 3),
            values(Bool, dims, 4),
        ];
        check(&mixed, &[0.4, 0.25], &[-1], &inputs);
        let rows = mixed.replace("return y0, r5, y1", "return r0, r1 flat, r4");
        check(&rows, &[0.4, 0.25], &[-1], &inputs);
    }
}

/// Rows that are scaled by values other than rows, in all the ways in which shapes broadcast.
const BLEND: &str = "Sum, Max: x: float32, float32, float32; c: 0; s0 = Mul<float32>(x0, x1); \
                     return s0, x0 | full: x: float32, float32, float32, float32, float32; c: 0; \
                     s0 = AddV2<float32>(x0, x2); s1 = Mul<float32>(s0, x4); s2 = \
                     Sub<float32>(s1, x3); s3 = Mul<float32>(s2, x1); return s3, x0 | return y0, \
                     y1, r1, r0 flat";

#[test]
fn operands_broadcast_over_rows_and_columns() {
    let cases: &[[&[usize]; 3]] = &[
        [&[4, 6, 8], &[4, 6, 8], &[]],
        [&[4, 6, 8], &[8], &[6, 1]],
        [&[4, 6, 8], &[4, 1, 8], &[1, 6, 1]],
        [&[4, 6, 8], &[6, 8], &[4, 1, 1]],
        [&[4, 6, 8], &[1], &[1, 1, 8]],
        [&[1, 6, 8], &[4, 6, 8], &[6, 8]],
        [&[6, 8], &[4, 1, 8], &[1]],
        [&[2, 3, 4, 5], &[3, 1, 5], &[2, 1, 4, 1]],
        [&[2, 3, 2, 3, 4, 6], &[3, 1, 3, 1, 6], &[2, 1, 2, 1, 4, 1]],
    ];
    for [x, y, z] in cases {
        check(BLEND, &[], &[-1], &[values(F32, x, 1), values(F32, y, 2), values(F32, z, 3)]);
    }
}

#[test]
fn any_axes_are_reduced() {
    let y: &[&[usize]] = &[&[2, 3, 4, 8], &[3, 4, 8], &[4, 8]];
    for dims in y {
        for axes in [&[-1][..], &[-2], &[-2, -1], &[-1, -2, -3, -4], &[-4, -1], &[-3, -1], &[-4]] {
            if axes.iter().all(|a| dims.len() as i64 + a >= 0) {
                let inputs =
                    [values(F32, &[2, 3, 4, 8], 1), values(F32, dims, 2), values(F32, &[1], 3)];
                check(BLEND, &[], axes, &inputs);
            }
        }
    }
}

#[test]
fn long_and_many_rows() {
    for dims in [[1, 1_000_001], [70_000, 3], [1000, 2_001]] {
        let x = values(F32, &dims, 1);
        let program = "Mean: x: float32; c: 0; return x0 | full: x: float32, float32; c: 0; s0 = \
                       Sub<float32>(x0, x1); return s0 | return y0";
        for mut session in sessions() {
            let out = session.run(&node(program, &[], &[-1]), &[x.clone().into()]).unwrap();
            let mut wanted = Vec::new();
            for row in x.to_f64().chunks(dims[1]) {
                let mean = row.iter().sum::<f64>() / dims[1] as f64;
                wanted.extend(row.iter().map(|v| v - mean));
            }
            assert_close(&out[0], &wanted, 1e-5, &format!("{dims:?}"));
        }
    }
}

/// Rows of more columns than the lanes of a workgroup take in one step of an iteration each.
#[test]
fn rows_of_more_iterations_than_loops_may_have() {
    let profile = sessions()[0].device.profile();
    let program = "Mean: x: float32; c: 0; return x0 | full: x: float32, float32; c: 0; s0 = \
                   Sub<float32>(x0, x1); return s0 | return y0";
    for (loop_limit, cols) in
        [(3000, 240_001), (3000, 1_200_004), (1200, 600_001), (65_535, 8_400_001)]
    {
        let mut session = Session::under(Profile { loop_limit, ..profile }).unwrap();
        let x = values(F32, &[1, cols], 1);
        let out = session.run(&node(program, &[], &[-1]), &[x.clone().into()]).unwrap();
        let row = x.to_f64();
        let mean = row.iter().sum::<f64>() / cols as f64;
        let wanted: Vec<f64> = row.iter().map(|v| v - mean).collect();
        assert_close(&out[0], &wanted, 1e-5, &format!("{cols}"));
    }
}

#[test]
fn softmax_of_large_and_infinite_logits() {
    let program = "Max: x: float32; c: 0; return x0 | Sum: x: float32, float32; c: 0; s0 = \
                   Sub<float32>(x0, x1); s1 = Exp<float32>(s0); return s1 | full: x: float32, \
                   float32, float32; c: 0; s0 = Sub<float32>(x0, x1); s1 = Exp<float32>(s0); s2 = \
                   RealDiv<float32>(s1, x2); return s2 | return y0";
    let logits =
        [1e30, -1e30, 0.0, 5000.0, 5001.0, 5002.0, f32::NEG_INFINITY, 0.0, 0.0, f32::NAN, 0.0, 1.0];
    for mut session in sessions() {
        let out = session
            .run(&node(program, &[], &[-1]), &[HostTensor::f32(&[4, 3], &logits).into()])
            .unwrap();
        let mut wanted = Vec::new();
        for row in logits.chunks(3) {
            let largest = row.iter().fold(f64::NEG_INFINITY, |a, b| f64::from(*b).max(a));
            let sum: f64 = row.iter().map(|v| (f64::from(*v) - largest).exp()).sum();
            wanted.extend(row.iter().map(|v| (f64::from(*v) - largest).exp() / sum));
        }
        assert_close(&out[0], &wanted, 1e-6, "logits");
    }
}

#[test]
fn rows_beyond_one_binding_are_processed_in_windows() {
    let limit = 1 << 20;
    let session = &mut Session::binding(limit as u64).unwrap();
    let rows = limit / 16 + 1001;
    let x: Vec<f32> = (0..rows * 4).map(|i| (i % 7) as f32).collect();
    let program = "Sum: x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return s0 | full: \
                   x: float32, float32, float32; c: 0; s0 = Sub<float32>(x0, x2); return s0 | \
                   return y0, r0 flat";
    let given = [HostTensor::f32(&[rows, 4], &x), HostTensor::f32(&[4], &[1.0, 2.0, 3.0, 4.0])]
        .map(Input::from);
    let out = session.run(&node(program, &[], &[-1]), &given).unwrap();
    let (got, sums) = (out[0].values::<f32>(), out[1].values::<f32>());
    for row in (0..rows).step_by(997).chain([rows - 1]) {
        let own = &x[row * 4..row * 4 + 4];
        let sum = own[0] + 2.0 * own[1] + 3.0 * own[2] + 4.0 * own[3];
        assert_eq!(sums[row], sum, "row {row}");
        assert_eq!(got[row * 4 + 3], own[3] - sum, "row {row}");
    }
}

#[test]
fn arguments_are_checked() {
    let session = &mut sessions()[0];
    let ones =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![1.0; dims.iter().product()]));
    let mut message = |node: Node, inputs: &[Input]| match session.run(&node, inputs) {
        Err(Error::InvalidArgument(m)) => m,
        other => panic!("{other:?}"),
    };
    let blend = || node(BLEND, &[], &[-1]);
    let shapes = message(blend(), &[ones(&[2, 3]), ones(&[2, 4]), ones(&[])]);
    assert!(shapes.contains("_WgpuFusedRowwise: Incompatible shapes: [2,3] vs. [2,4]"), "{shapes}");
    assert!(
        message(node(BLEND, &[], &[-3]), &[ones(&[2, 3]), ones(&[3]), ones(&[])])
            .contains("axes [-3]")
    );
    assert!(
        message(blend(), &[ones(&[2, 1]), ones(&[2, 1]), ones(&[2, 3])])
            .contains("cannot be reduced")
    );
    assert!(
        message(node(BLEND, &[1.0], &[-1]), &[ones(&[2]), ones(&[2]), ones(&[2])])
            .contains("1 constants")
    );
    let types = blend().attr("T_out", &[F32][..]);
    assert!(message(types, &[ones(&[2]), ones(&[2]), ones(&[2])]).contains("outputs of [F32]"));
    let row = "Sum: x: float32, float32; c: 0; return x0 | row: x: float32, float32, float32; c: \
               0; s0 = Mul<float32>(x1, x2); return s0 | return r1";
    assert!(
        message(node(row, &[], &[-1]), &[ones(&[2, 3]), ones(&[2, 3])])
            .contains("not constant in rows")
    );
}
