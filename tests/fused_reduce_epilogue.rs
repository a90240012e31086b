//! Epilogues of fused reductions against references in f64 that do not use expressions: one step
//! and several steps on the results, with operands of the results' shape and of one element, in as
//! many dispatches as the outputs need.

#[path = "numeric/close.rs"]
mod close;

use close::assert_within;
use tensorflow_wgpu::device::adapters::Selection;
use tensorflow_wgpu::device::{Device, Profile};
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// Numbers in [-1, 1) that repeat with a long period, as `dtype` holds them.
fn array(dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    let mut state = seed * 2 + 1;
    let values: Vec<f64> = (0..dims.iter().product())
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        })
        .collect();
    HostTensor::floats(dtype, dims, &values)
}

/// A node that reduces over the first axis, or over all.
struct Case<'a> {
    expression: &'a str,
    reductions: &'a str,
    epilogue: &'a str,
    constants: &'a [f32],
    /// Number of results.
    results: usize,
    axes: &'a [i64],
    keep_dims: bool,
}

impl<'a> Case<'a> {
    /// A [`normalization`] over these axes.
    fn normalizing(expression: &'a str, epilogue: &'a str, axes: &'a [i64]) -> Self {
        let constants = &[0.25];
        let reductions = "Moments";
        Self { expression, reductions, epilogue, constants, results: 2, axes, keep_dims: true }
    }

    fn node(&self) -> Node {
        let expression: Expression = self.expression.parse().expect(self.expression);
        let epilogue: Expression = self.epilogue.parse().expect(self.epilogue);
        Node::new("_WgpuFusedReduce")
            .attr("T_in", expression.inputs())
            .attr("T_extra", &epilogue.inputs()[self.results..])
            .attr("T_out", &epilogue.output_types()[..])
            .attr("expression", self.expression)
            .attr("constants", &[] as &[f32])
            .attr("epilogue", self.epilogue)
            .attr("epilogue_constants", self.constants)
            .attr("reductions", self.reductions)
            .attr("axes", self.axes)
            .attr("whole", false)
            .attr("keep_dims", self.keep_dims)
    }
}

#[track_caller]
fn assert_close(got: &HostTensor, wanted: &[f64], tolerance: f64, what: &str) {
    assert_within(got, wanted, |w| tolerance * w.abs().max(1.0), what);
}

/// Twice as much as for a function alone: sums come before it.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-11 } else { 2.0 * close::tolerance(dtype) }
}

/// Batch normalization: mean, variance, scale and shift of each channel, of moments of 16-bit or
/// wider inputs.
fn normalization(dtype: DType) -> String {
    format!(
        "x: {dtype}, {dtype}, {dtype}, {dtype}; c: 1; s0 = AddV2<{dtype}>(x1, c0); s1 = \
         Rsqrt<{dtype}>(s0); s2 = Mul<{dtype}>(x2, s1); s3 = Mul<{dtype}>(x0, s2); s4 = \
         Sub<{dtype}>(x3, s3); return x0, x1, s1, s2, s4"
    )
}

/// The results of [`normalization`] for a channel's values, with 0.25 as its parameter.
fn normalized(values: &[f64], gamma: f64, beta: f64) -> [f64; 5] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    let inverse = 1.0 / (variance + 0.25).sqrt();
    let scale = gamma * inverse;
    [mean, variance, inverse, scale, beta - mean * scale]
}

fn supported(session: &Session, types: &[DType]) -> Vec<DType> {
    types.iter().copied().filter(|t| session.runs(*t)).collect()
}

#[test]
fn a_normalization_in_every_type_and_extent() {
    for mut session in sessions() {
        for dtype in supported(&session, &[F32, F16, BF16]) {
            let (expression, epilogue) =
                (format!("x: {dtype}; c: 0; return x0"), normalization(dtype));
            let case = Case::normalizing(&expression, &epilogue, &[0]);
            for (n, channels) in [
                (1, 1),
                (7, 5),
                (64, 3),
                (257, 9),
                (5000, 2),
                (31, 129),
                (70_001, 1),
                (9, 36),
                (300, 8),
            ] {
                let x = array(dtype, &[n, channels], 1);
                // The operands have other extents of 1 than the results.
                let (gamma, beta) =
                    (array(dtype, &[channels], 2), array(dtype, &[1, 1, channels], 3));
                let inputs: [Input; 3] =
                    [x.clone().into(), gamma.clone().into(), beta.clone().into()];
                let what = format!("{dtype} [{n}, {channels}]");
                session.misalign = usize::from(n == 257);
                let out = session.run(&case.node(), &inputs).expect(&what);
                session.misalign = 0;
                let (x, gamma, beta) = (x.to_f64(), gamma.to_f64(), beta.to_f64());
                let mut wanted = vec![Vec::new(); 5];
                for c in 0..channels {
                    let column: Vec<f64> = x.iter().skip(c).step_by(channels).copied().collect();
                    let results = normalized(&column, gamma[c], beta[c]);
                    wanted.iter_mut().zip(results).for_each(|(w, v)| w.push(v));
                }
                for (k, (y, w)) in out.iter().zip(&wanted).enumerate() {
                    assert_eq!((y.dtype, &y.dims[..]), (dtype, &[1, channels][..]), "{what}");
                    assert_close(y, w, tolerance(dtype), &format!("{what}, output {k}"));
                }
            }
        }
    }
}

#[test]
fn operands_of_one_element_and_scalar_results() {
    // Root mean square, times a scalar; results of several steps.
    let case = Case {
        expression: "x: float32; c: 0; s0 = Square<float32>(x0); return s0",
        reductions: "Mean",
        epilogue: "x: float32, float32; c: 1; s0 = Sqrt<float32>(x0); s1 = Mul<float32>(s0, x1); \
                   s2 = AddV2<float32>(s1, c0); return s2",
        constants: &[0.5],
        results: 1,
        axes: &[0, 1],
        keep_dims: false,
    };
    for mut session in sessions() {
        for dims in [[1, 1], [3, 5], [100, 77], [1, 300_001], [513, 700]] {
            for single in [&[][..], &[1], &[1, 1, 1]] {
                let x = array(F32, &dims, 4);
                let factor = HostTensor::f32(single, &[3.0]);
                let out = session.run(&case.node(), &[x.clone().into(), factor.into()]).unwrap();
                let x = x.to_f64();
                let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
                assert!(out[0].dims.is_empty());
                assert_close(&out[0], &[mean.sqrt() * 3.0 + 0.5], 2e-5, &format!("{dims:?}"));
            }
        }
    }
}

#[test]
fn more_outputs_than_one_dispatch_binds() {
    // Five operands and six outputs, two of them packed differently.
    let epilogue = "x: float32, float32, float32, float32, float32, float32, float32; c: 0; s0 = \
                    Mul<float32>(x0, x2); s1 = Mul<float32>(x1, x3); s2 = Mul<float32>(x0, x4); \
                    s3 = AddV2<float32>(x1, x5); s4 = Sub<float32>(s3, x6); s5 = Cast<float32, \
                    float16>(s4); s6 = Greater<float32>(s0, s1); return s0, s1, s2, s3, s5, s6";
    let case = Case {
        expression: "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return x0, s0",
        reductions: "Sum,Sum",
        epilogue,
        constants: &[],
        results: 2,
        axes: &[0],
        keep_dims: false,
    };
    for mut session in sessions() {
        for (n, m) in [(3, 7), (40, 6), (3000, 5), (1, 6), (1, 1), (5, 1)] {
            let x = [array(F32, &[n, m], 1), array(F32, &[n, m], 2)];
            let e: Vec<HostTensor> = (3..8).map(|seed| array(F32, &[m], seed)).collect();
            let inputs: Vec<Input> = x.iter().chain(&e).map(|t| t.clone().into()).collect();
            let out = session.run(&case.node(), &inputs).unwrap();
            let (x0, x1) = (x[0].to_f64(), x[1].to_f64());
            let e: Vec<Vec<f64>> = e.iter().map(HostTensor::to_f64).collect();
            let mut wanted = vec![Vec::new(); 6];
            let rows = (0..m).map(|c| {
                let a: f64 = x0.iter().skip(c).step_by(m).sum();
                let b: f64 = x0.iter().zip(&x1).skip(c).step_by(m).map(|(p, q)| p * q).sum();
                let [e0, e1, e2, e3, e4] = [0, 1, 2, 3, 4].map(|k: usize| e[k][c]);
                [a * e0, b * e1, a * e2, b + e3, b + e3 - e4, f64::from(a * e0 > b * e1)]
            });
            for row in rows {
                wanted.iter_mut().zip(row).for_each(|(w, v)| w.push(v));
            }
            let types: Vec<DType> = out.iter().map(|y| y.dtype).collect();
            assert_eq!(types, [F32, F32, F32, F32, F16, Bool]);
            for (k, (y, w)) in out.iter().zip(&wanted).enumerate() {
                assert_close(
                    y,
                    w,
                    if k == 4 { 2e-3 } else { 1e-4 },
                    &format!("[{n}, {m}], output {k}"),
                );
            }
        }
    }
}

#[test]
fn nothing_to_reduce_and_no_results() {
    let case = Case {
        expression: "x: float32; c: 0; return x0",
        reductions: "Sum",
        epilogue: "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0, x0",
        constants: &[],
        results: 1,
        axes: &[0],
        keep_dims: false,
    };
    for mut session in sessions() {
        let extra = HostTensor::f32(&[3], &[1.0, 2.0, 3.0]);
        let out = session
            .run(&case.node(), &[HostTensor::f32(&[0, 3], &[]).into(), extra.into()])
            .unwrap();
        assert_eq!((out[0].to_f64(), out[1].to_f64()), (vec![1.0, 2.0, 3.0], vec![0.0; 3]));
        let none = || HostTensor::f32(&[0], &[]);
        let out = session
            .run(&case.node(), &[HostTensor::f32(&[4, 0], &[]).into(), none().into()])
            .unwrap();
        assert_eq!((&out[0].dims[..], out[0].bytes.len()), (&[0][..], 0));
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let case = Case {
        expression: "x: float32; c: 0; return x0",
        reductions: "Sum",
        epilogue: "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0",
        constants: &[],
        results: 1,
        axes: &[0],
        keep_dims: false,
    };
    let [mut session, _] = sessions();
    let inputs: [Input; 2] = [array(F32, &[2, 3], 1).into(), array(F32, &[2], 2).into()];
    match session.run(&case.node(), &inputs) {
        Err(Error::InvalidArgument(m)) => {
            assert!(m.contains("Incompatible shapes: [3] vs. [2]"), "{m}")
        }
        other => panic!("{other:?}"),
    }
    let inputs: [Input; 2] = [array(F32, &[2, 3], 1).into(), array(F32, &[3], 2).into()];
    for (name, value) in [
        ("epilogue", "x: float32; c: 0; s0 = Neg<float32>(x0); return s0"),
        ("epilogue", "x: float32, float32; c: 1; s0 = AddV2<float32>(x0, c0); return s0"),
        ("epilogue", "x: float32, float32; c: 0; s0 = Greater<float32>(x0, x1); return s0"),
    ] {
        let run = session.run(&case.node().attr(name, value), &inputs);
        assert!(matches!(run, Err(Error::InvalidArgument(_))), "{value}: {run:?}");
    }
}

#[test]
fn a_reduction_and_its_epilogue_are_one_dispatch() {
    let case = Case {
        expression: "x: float32; c: 0; return x0",
        reductions: "Moments",
        epilogue: &normalization(F32),
        constants: &[0.25],
        results: 2,
        axes: &[0, 1, 2],
        keep_dims: true,
    };
    // A separate device, so that other tests' dispatches are not counted.
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let own = Device::open(&selection.adapters[0]).expect("a Vulkan driver");
    if own.capabilities().immediates == 0 {
        // Parameters take a binding, so that the epilogue's operands find fewer.
        return;
    }
    for wide in [false, true] {
        let preset = if wide { Profile::NVIDIA } else { Profile::LLVMPIPE };
        let profile = preset.on(own.profile());
        let device = Device::open_with(&selection.adapters[0], profile, None).expect("a device");
        let mut session = Session::new(device);
        for (dims, wanted) in
            [([4, 8, 8, 128], 1), ([4, 16, 16, 64], 1), ([8, 2, 2, 512], 1), ([16, 56, 56, 8], 2)]
        {
            let channels = dims[3];
            let inputs: [Input; 3] = [
                array(F32, &dims, 1).into(),
                array(F32, &[channels], 2).into(),
                array(F32, &[channels], 3).into(),
            ];
            let before = session.device.statistics().dispatches;
            session.run(&case.node(), &inputs).unwrap();
            assert_eq!(
                session.device.statistics().dispatches - before,
                wanted,
                "{dims:?}, wide: {wide}"
            );
        }
    }
}

#[test]
fn rows_beyond_one_binding_whose_results_begin_within_a_word() {
    let mut session = Session::binding(1 << 16).unwrap();
    for dtype in supported(&session, &[F32, F16, BF16]) {
        let (expression, epilogue) = (format!("x: {dtype}; c: 0; return x0"), normalization(dtype));
        let case = Case::normalizing(&expression, &epilogue, &[1]);
        let (rows, n) = (5, 70_001);
        let [x, gamma, beta] =
            [(n, 1), (1, 2), (1, 3)].map(|(n, seed)| array(dtype, &[rows, n], seed));
        let inputs: [Input; 3] = [x.clone().into(), gamma.clone().into(), beta.clone().into()];
        let out = session.run(&case.node(), &inputs).unwrap();
        let (x, gamma, beta) = (x.to_f64(), gamma.to_f64(), beta.to_f64());
        let mut wanted = vec![Vec::new(); 5];
        for (r, row) in x.chunks(n).enumerate() {
            let results = normalized(row, gamma[r], beta[r]);
            wanted.iter_mut().zip(results).for_each(|(w, v)| w.push(v));
        }
        for (k, (got, wanted)) in out.iter().zip(&wanted).enumerate() {
            assert_close(got, wanted, tolerance(dtype), &format!("{dtype}, output {k}"));
        }
    }
}
