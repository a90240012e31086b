//! Depthwise convolutions.

use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::{DType, HostTensor};

use super::case::Case;
use super::numeric::bindings::under;
use super::numeric::{Random, session};
use super::{check, plain, random_case, random_cases, sizes};

#[test]
fn random_shapes() {
    random_cases("DepthwiseConv2dNative", 12, 3);
}

/// Common windows have programs that go down columns: in one run and in several, with few columns
/// and with more, with all of them outside or none.
#[test]
fn common_windows() {
    let mut random = Random::new(7);
    let mut ran = 0;
    for (i, (kernel, stride)) in
        [3, 5, 7].into_iter().flat_map(|k| [(k, 1), (k, 2), (k, 1), (k, 2)]).enumerate()
    {
        let channels = random.pick(&[4, 12]);
        let padding = random.pick(&["SAME", "VALID", "EXPLICIT"]);
        let mut pads =
            || [0, 1, 2].map(|d| if d > 0 { [random.below(9), random.below(9)] } else { [0; 2] });
        let case = Case {
            op: "DepthwiseConv2dNative",
            spatial: 2,
            last: true,
            batch: 1 + i % 3,
            channels,
            depth: channels,
            filters: 1,
            explicit: if padding == "EXPLICIT" { pads() } else { [[0; 2]; 3] },
            input: [1, random.between(1, 24), random.between(1, 19)],
            kernel: [1, kernel, kernel],
            stride: [1, stride, stride],
            dilation: [1; 3],
            padding,
        };
        let dtype = random.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
        ran += usize::from(check(&case, dtype, 70 + i as u64, 0));
    }
    assert!(ran > 8, "only {ran} have an output");
}

/// A NaN or an infinity at the edges affects only the outputs whose taps read it.
#[test]
fn filters_of_what_is_no_number() {
    for (kernel, stride) in [(3, 1), (3, 2), (5, 1), (7, 1)] {
        let case = Case {
            op: "DepthwiseConv2dNative",
            filters: 1,
            batch: 1,
            stride: [1, stride, stride],
            ..plain(10, kernel, 8, 1)
        };
        let (out, _) = case.windows().expect("an output");
        let (x_dims, y_dims) = (case.shape(8, case.input), case.shape(8, out));
        let mut random = Random::new(kernel as u64);
        let mut values = |dims: &[usize]| random.tensor(DType::F32, dims).1;
        let (mut x, mut dy) = (values(&x_dims), values(&y_dims));
        // In separate channels: corners and edges of the input, then of the output.
        let last = [(case.input[1] - 1), (out[1] - 1)];
        let places = |last: usize| [(0, 0), (last, last), (last / 2, last), (last, 0)];
        for (c, (i, j)) in places(last[0]).into_iter().enumerate() {
            x[(i * case.input[2] + j) * 8 + c] = if c % 2 == 0 { f64::NAN } else { f64::INFINITY };
        }
        for (c, (i, j)) in places(last[1]).into_iter().enumerate() {
            dy[(i * out[2] + j) * 8 + 4 + c] = if c % 2 == 0 { f64::INFINITY } else { f64::NAN };
        }
        let mut dw = vec![0.0; kernel * kernel * 8];
        case.products(|i, k, o| dw[k] += x[i] * dy[o]);
        let inputs = [
            HostTensor::floats(DType::F32, &x_dims, &x).into(),
            sizes(&case.filter_shape()),
            HostTensor::floats(DType::F32, &y_dims, &dy).into(),
        ];
        for profile in Profile::DISTINCT {
            let node = case.node("BackpropFilter", DType::F32);
            let got = under(profile, || session().run(&node, &inputs))
                .expect("a gradient")
                .remove(0)
                .to_f64();
            for (i, (got, want)) in got.iter().zip(&dw).enumerate() {
                let same =
                    got == want || got.is_nan() && want.is_nan() || (got - want).abs() < 1e-3;
                assert!(
                    same,
                    "{profile} {kernel} {stride}: tap {}, channel {}: {got}, not {want}",
                    i / 8,
                    i % 8
                );
            }
        }
    }
}

/// Channels that lie together in vec4s have their own programs.
#[test]
fn four_channels_at_once() {
    let mut random = Random::new(4);
    let mut ran = 0;
    for i in 0..16 {
        let channels = random.pick(&[4, 8, 12]);
        let dtype = random.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
        let case = random_case(&mut random, "DepthwiseConv2dNative");
        let case = Case { last: true, channels, depth: channels, filters: 1, ..case };
        ran += usize::from(check(&case, dtype, i, usize::from(i % 5 == 4)));
    }
    assert_eq!(ran, 16, "cases with an output");
    let wide =
        Case { op: "DepthwiseConv2dNative", filters: 1, stride: [1, 2, 2], ..plain(11, 5, 8, 1) };
    assert!(check(&wide, DType::F32, 16, 0));
    assert!(check(&Case { stride: [1, 3, 3], ..wide }, DType::BF16, 17, 0));
}

/// Windows, and lines of the output, of more iterations than an adapter's loops may have.
#[test]
fn more_iterations_than_loops_may_have() {
    let wide = |kernel: usize| Case {
        op: "DepthwiseConv2dNative",
        filters: 2,
        batch: 2,
        depth: 3,
        ..plain(9, kernel, 3, 1)
    };
    let profile = session().device.profile();
    under(Profile { loop_limit: 40, ..profile }, || {
        for (seed, dtype) in [DType::F32, DType::F16, DType::F64].into_iter().enumerate() {
            for (last, dilation) in [(true, [1; 3]), (false, [1; 3]), (true, [1, 2, 1])] {
                let case = Case { last, dilation, ..wide(7) };
                assert!(check(&case, dtype, seed as u64, 0));
            }
        }
    });
    // llvmpipe leaves loops of more than 65,535 iterations early. The window's gradients take too
    // long for a test.
    let whole = Case {
        op: "DepthwiseConv2dNative",
        filters: 1,
        batch: 1,
        padding: "VALID",
        ..plain(300, 300, 2, 1)
    };
    let n = 300 * 300 * 2;
    let x: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
    let filter: Vec<f32> = (0..n).map(|i| (i % 5) as f32 - 2.0).collect();
    let sum = |c: usize| (c..n).step_by(2).map(|i| x[i] * filter[i]).sum::<f32>();
    let inputs = [
        HostTensor::f32(&[1, 300, 300, 2], &x).into(),
        HostTensor::f32(&[300, 300, 2, 1], &filter).into(),
    ];
    let y = session().run(&whole.node("", DType::F32), &inputs).expect("an output");
    assert_eq!(y[0].values::<f32>(), [sum(0), sum(1)]);
    let line = Case {
        op: "DepthwiseConv2dNative",
        filters: 1,
        batch: 1,
        input: [1, 1, 70_000],
        kernel: [1, 1, 3],
        ..plain(1, 1, 1, 1)
    };
    assert!(check(&line, DType::F32, 5, 0));
}
