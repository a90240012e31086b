//! Fused reductions against references in f64: reductions, axes, types, broadcast inputs, and
//! shapes from empty to beyond one binding.

use tensorflow_wgpu::device::{Capabilities, Profile};
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::fused::reduce::MOMENTS;
use tensorflow_wgpu::kernels::reduce::table::Reduction;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// A tensor with its elements in f64.
#[derive(Clone)]
struct Array {
    tensor: HostTensor,
    values: Vec<f64>,
}

/// Numbers in [-1, 1), or small integers, that repeat with a long period.
fn array(dtype: DType, dims: &[usize], seed: u64) -> Array {
    let mut state = seed * 2 + 1;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let n = dims.iter().product();
    if dtype.is_integer() {
        let values: Vec<i64> = (0..n).map(|_| (next() * 19.0) as i64 - 9).collect();
        return Array {
            tensor: HostTensor::i64(dims, &values),
            values: values.into_iter().map(|v| v as f64).collect(),
        };
    }
    of(dtype, dims, (0..n).map(|_| next() * 2.0 - 1.0).collect())
}

fn of(dtype: DType, dims: &[usize], values: Vec<f64>) -> Array {
    let tensor = HostTensor::floats(dtype, dims, &values);
    let values = tensor.to_f64();
    Array { tensor, values }
}

/// The element at `index` of the space `dims`, to which the array broadcasts.
fn at(array: &Array, dims: &[usize], index: usize) -> f64 {
    let own = &array.tensor.dims;
    let (mut rest, mut at, mut scale) = (index, 0, 1);
    for d in (0..dims.len()).rev() {
        if let Some(o) = (d + own.len()).checked_sub(dims.len()) {
            at += if own[o] == 1 { 0 } else { rest % dims[d] * scale };
            scale *= own[o];
        }
        rest /= dims[d];
    }
    array.values[at]
}

/// Groups the elements of the space `dims` by their kept coordinates, in the output's order.
fn gather(dims: &[usize], axes: &[usize], element: impl Fn(usize) -> f64) -> Vec<Vec<f64>> {
    let outputs: usize =
        dims.iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, n)| n).product();
    let mut runs = vec![Vec::new(); outputs];
    for i in 0..dims.iter().product() {
        let (mut rest, mut at, mut scale) = (i, 0, 1);
        for d in (0..dims.len()).rev() {
            if !axes.contains(&d) {
                at += rest % dims[d] * scale;
                scale *= dims[d];
            }
            rest /= dims[d];
        }
        runs[at].push(element(i));
    }
    runs
}

/// Results of reductions `names` of one run of elements, with the magnitude that their error is
/// relative to.
fn reference(name: &str, run: &[f64]) -> Vec<(f64, f64)> {
    let mean = run.iter().sum::<f64>() / run.len() as f64;
    let share = |f: &dyn Fn(f64) -> f64| run.iter().map(|v| f(*v)).sum::<f64>() / run.len() as f64;
    if name == MOMENTS {
        let variance = share(&|v| (v - mean) * (v - mean));
        return vec![(mean, share(&f64::abs)), (variance, variance)];
    }
    let row = Reduction::of(name);
    let magnitudes: Vec<f64> = run.iter().map(|v| v.abs()).collect();
    let scale = (row.reference)(&magnitudes).abs();
    vec![((row.reference)(run), if scale.is_finite() { scale } else { 0.0 })]
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        F16 => 1.0 / 900.0,
        BF16 => 1.0 / 120.0,
        F32 => 4e-6,
        F64 => 1e-12,
        _ => 0.0,
    }
}

fn node(expression: &str, reductions: &str, axes: &[i64]) -> Node {
    let parsed: Expression = expression.parse().expect(expression);
    let names = reductions.split(',').zip(parsed.output_types());
    let outputs: Vec<DType> =
        names.flat_map(|(name, t)| vec![t; 1 + usize::from(name == MOMENTS)]).collect();
    Node::new("_WgpuFusedReduce")
        .attr("T_in", parsed.inputs())
        .attr("T_out", &outputs[..])
        .attr("expression", expression)
        .attr("constants", &[] as &[f32])
        .attr("T_extra", &[] as &[DType])
        .attr("epilogue", "")
        .attr("epilogue_constants", &[] as &[f32])
        .attr("reductions", reductions)
        .attr("axes", axes)
        .attr("whole", false)
        .attr("keep_dims", false)
}

/// A function of the inputs' elements, one value for each reduction.
type Values<'a> = &'a dyn Fn(&[f64]) -> Vec<f64>;

struct Case<'a> {
    expression: &'a str,
    reductions: &'a str,
    values: Values<'a>,
}

#[track_caller]
fn check(session: &mut Session, case: &Case<'_>, inputs: &[Array], dims: &[usize], axes: &[usize]) {
    let Case { expression, reductions, values } = case;
    let indices: Vec<i64> =
        axes.iter().map(|a| *a as i64 - if a % 2 == 1 { dims.len() as i64 } else { 0 }).collect();
    let tensors: Vec<Input> = inputs.iter().map(|x| x.tensor.clone().into()).collect();
    let context = format!(
        "{reductions} of {expression} over {axes:?} of {dims:?}, misaligned by {}",
        session.misalign
    );
    let out = session.run(&node(expression, reductions, &indices), &tensors).expect(&context);
    let types: Vec<DType> = expression.parse::<Expression>().unwrap().output_types();
    let kept: Vec<usize> = (0..dims.len()).filter(|d| !axes.contains(d)).map(|d| dims[d]).collect();
    let mut outputs = out.iter();
    for (k, name) in reductions.split(',').enumerate() {
        // The value as memory would hold it.
        let element = |i: usize| {
            let value = values(&inputs.iter().map(|x| at(x, dims, i)).collect::<Vec<_>>())[k];
            match types[k] {
                F16 | BF16 => HostTensor::floats(types[k], &[], &[value]).to_f64()[0],
                _ => value,
            }
        };
        let wanted: Vec<_> =
            gather(dims, axes, element).iter().map(|run| reference(name, run)).collect();
        for part in 0..1 + usize::from(*name == *MOMENTS) {
            let y = outputs.next().expect("an output");
            assert_eq!((y.dtype, &y.dims[..]), (types[k], &kept[..]), "{context}");
            for (i, (got, wanted)) in y.to_f64().iter().zip(&wanted).enumerate() {
                let (w, scale) = wanted[part];
                let allowed = tolerance(types[k]) * scale.max(w.abs()) + 1e-7;
                let both_nan = got.is_nan() && w.is_nan();
                assert!(
                    both_nan || *got == w || (got - w).abs() <= allowed,
                    "{context}: {i}: {got}, not {w} ± {allowed}"
                );
            }
        }
    }
    assert!(outputs.next().is_none(), "{context}");
}

fn supported(session: &Session, types: &[DType]) -> Vec<DType> {
    types.iter().copied().filter(|t| session.runs(*t)).collect()
}

const ALL_AXES: [&[usize]; 8] = [&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2], &[]];

#[test]
fn every_type_over_all_axes() {
    for mut session in sessions() {
        for dtype in supported(&session, &[F32, F16, BF16, F64, I64]) {
            let product =
                format!("x: {dtype}, {dtype}; c: 0; s0 = Mul<{dtype}>(x0, x1); return s0, x0");
            let values: Values<'_> = &|x| vec![x[0] * x[1], x[0]];
            let pairs = if dtype == I64 {
                &["Sum,Max"][..]
            } else {
                &["Sum,Max", "Mean,Moments", "Moments,Min", "L2Loss,EuclideanNorm"]
            };
            for reductions in pairs {
                let case = Case { expression: &product, reductions, values };
                let x = [array(dtype, &[5, 7, 3], 1), array(dtype, &[5, 7, 3], 2)];
                for axes in ALL_AXES {
                    check(&mut session, &case, &x, &[5, 7, 3], axes);
                }
                session.misalign = 1;
                for (dims, axes) in [([9, 131], [1]), ([131, 9], [0])] {
                    check(
                        &mut session,
                        &case,
                        &[array(dtype, &dims, 3), array(dtype, &dims, 4)],
                        &dims,
                        &axes,
                    );
                }
                session.misalign = 0;
            }
        }
    }
}

#[test]
fn inputs_broadcast_along_any_axes() {
    let case = Case {
        expression: "x: float32, float32, float32; c: 0; s0 = Sub<float32>(x0, x1); s1 = \
                     Mul<float32>(s0, x2); return x0, s1",
        reductions: "Sum,Sum",
        values: &|x| vec![x[0], (x[0] - x[1]) * x[2]],
    };
    let dims = [4, 5, 6, 7];
    for mut session in sessions() {
        for shape in [&[7][..], &[6, 1], &[4, 1, 1, 7], &[4, 1, 1, 1], &[], &[1, 5, 1, 7]] {
            let x = [array(F32, &dims, 1), array(F32, shape, 2), array(F32, &[5, 6, 1], 3)];
            for mask in 0..16u32 {
                let axes: Vec<usize> = (0..4).filter(|d| mask >> d & 1 == 1).collect();
                check(&mut session, &case, &x, &dims, &axes);
            }
        }
    }
}

#[test]
fn values_of_other_shapes_are_reduced_over_their_own() {
    let case = "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return x0, s0";
    for mut session in sessions() {
        let inputs = [
            HostTensor::f32(&[1, 2], &[1.0, 2.0]).into(),
            HostTensor::f32(&[3, 2], &[1.0; 6]).into(),
        ];
        let out = session.run(&node(case, "Sum,Sum", &[0]), &inputs).unwrap();
        assert_eq!((out[0].to_f64(), out[1].to_f64()), (vec![1.0, 2.0], vec![3.0, 6.0]));
    }
}

#[test]
fn rows_and_columns_of_every_length() {
    let case = Case {
        expression: "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return x0, s0",
        reductions: "Moments,Sum",
        values: &|x| vec![x[0], x[0] * x[1]],
    };
    for mut session in sessions() {
        for n in [1, 2, 15, 16, 17, 63, 65, 255, 257, 1023, 1025, 5000, 70_001] {
            for (dims, axes, shape) in [([3, n], [1], [3, 1]), ([n, 3], [0], [1, 3])] {
                check(
                    &mut session,
                    &case,
                    &[array(F32, &dims, 5), array(F32, &shape, 6)],
                    &dims,
                    &axes,
                );
            }
        }
    }
}

#[test]
fn vec4s_of_rows_and_columns() {
    let values: Values<'_> = &|x| vec![x[0] * x[1], x[0] + x[2]];
    for mut session in sessions() {
        // Two, four and six numbers in a state; there are vec4s of columns for four at most.
        let cases = [(F32, "Sum,Max"), (F16, "Moments,Min"), (F32, "Moments,Moments")];
        for (dtype, reductions) in cases {
            let expression = format!(
                "x: {dtype}, {dtype}, {dtype}; c: 0; s0 = Mul<{dtype}>(x0, x1); s1 = \
                 AddV2<{dtype}>(x0, x2); return s0, s1"
            );
            let case = Case { expression: &expression, reductions, values };
            for (n, columns) in [(5, 36), (70, 100), (6000, 36)] {
                let parts = [vec![n, columns], vec![columns], vec![n, 1]];
                for misalign in 0..2 {
                    session.misalign = misalign;
                    let x: Vec<Array> =
                        (1..).zip(&parts).map(|(k, d)| array(dtype, d, k)).collect();
                    check(&mut session, &case, &x, &parts[0], &[0]);
                    check(&mut session, &case, &x, &parts[0], &[1]);
                }
                session.misalign = 0;
            }
            // Columns of two kept axes, and of an axis that a second step reduces.
            for axes in [&[1][..], &[1, 3], &[0, 2]] {
                let dims = [3, 40, 5, 8];
                let x = [&dims[..], &[5, 8], &[40, 1, 1]];
                let x: Vec<Array> = (4..).zip(x).map(|(k, d)| array(dtype, d, k)).collect();
                check(&mut session, &case, &x, &dims, axes);
            }
        }
    }
}

/// The weights of two normalizations: more tensors than every adapter can bind.
const WIDE: Case<'_> = Case {
    expression: "x: float32, float32, float32, float32, float32, float32, float32, float32; c: 0; \
                 s0 = AddV2<float32>(x1, x2); s1 = Mul<float32>(s0, x3); s2 = Mul<float32>(x0, \
                 s1); s3 = AddV2<float32>(x5, x6); s4 = Mul<float32>(s3, x7); s5 = \
                 Mul<float32>(x4, s4); return s2, x0, s5, x4",
    reductions: "Sum,Sum,Sum,Sum",
    values: &|x| vec![x[0] * ((x[1] + x[2]) * x[3]), x[0], x[4] * ((x[5] + x[6]) * x[7]), x[4]],
};

fn wide(dims: &[usize]) -> Vec<Array> {
    let rows: Vec<usize> = dims[..dims.len() - 1].iter().copied().chain([1]).collect();
    let shape = |k: u64| if k % 4 == 1 || k % 4 == 3 { &rows[..] } else { dims };
    (0..8).map(|k| array(F32, shape(k), k)).collect()
}

#[test]
fn as_many_inputs_as_the_adapter_binds() {
    let profile = Profile { workgroups: 73, ..Profile::NVIDIA };
    let few = Capabilities { max_bindings: 8, ..profile.capabilities };
    let binds = sessions()[0].device.capabilities().max_bindings >= 13;
    let narrow = Profile { capabilities: few, ..profile };
    for (profile, wanted) in [(profile, if binds { 1 } else { 2 }), (narrow, 2)] {
        let mut session = Session::under(profile).unwrap();
        for (dims, axes) in [(&[64, 32][..], &[0][..]), (&[4, 16, 12], &[0, 1]), (&[0, 5], &[0])] {
            let before = session.device.statistics().dispatches;
            check(&mut session, &WIDE, &wide(dims), dims, axes);
            assert_eq!(session.device.statistics().dispatches - before, wanted, "{dims:?}");
        }
        for (dims, axes) in [([70_001, 3], [0]), ([9, 400], [1])] {
            check(&mut session, &WIDE, &wide(&dims), &dims, &axes);
        }
    }
}

#[test]
fn empty_inputs() {
    let case = Case {
        expression: "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return s0, s0, s0",
        reductions: "Sum,Max,Moments",
        values: &|x| vec![x[0] * x[1]; 3],
    };
    for mut session in sessions() {
        for (dims, axes) in [([3, 0], [0]), ([3, 0], [1]), ([0, 5], [0]), ([0, 5], [1])] {
            check(
                &mut session,
                &case,
                &[array(F32, &dims, 1), array(F32, &[1, 1], 2)],
                &dims,
                &axes,
            );
        }
    }
}

#[test]
fn bools() {
    let expression = "x: float32; c: 0; s0 = IsFinite<float32>(x0); return s0, s0";
    for mut session in sessions() {
        for n in [1, 9, 300] {
            let mut x = vec![1.0; 5 * n];
            x[2 * n] = f32::INFINITY;
            x[3 * n..4 * n].fill(f32::NAN);
            let out = session
                .run(&node(expression, "All,Any", &[1]), &[HostTensor::f32(&[5, n], &x).into()])
                .unwrap();
            assert_eq!(out[0].to_f64(), [1.0, 1.0, 0.0, 0.0, 1.0]);
            assert_eq!(out[1].to_f64(), [1.0, 1.0, f64::from(u8::from(n > 1)), 0.0, 1.0]);
        }
    }
}

#[test]
fn moments_far_from_zero() {
    let case = Case {
        expression: "x: float32; c: 0; return x0",
        reductions: MOMENTS,
        values: &|x| vec![x[0]],
    };
    for mut session in sessions() {
        // The sum of squares would lose the variance; so would a pivot that is an outlier.
        let dims = [40_000, 3];
        let mut x: Vec<f64> = array(F32, &dims, 8).values.iter().map(|v| 1000.0 + v).collect();
        let expression = case.expression.parse::<Expression>().unwrap().to_string();
        for outlier in [false, true] {
            if outlier {
                x[..3].fill(-3.0e6);
            }
            let a = of(F32, &dims, x.clone());
            let out =
                session.run(&node(&expression, MOMENTS, &[0]), &[a.tensor.clone().into()]).unwrap();
            for (channel, run) in gather(&dims, &[0], |i| a.values[i]).iter().enumerate() {
                let wanted = reference(MOMENTS, run);
                for (y, (w, _)) in out.iter().zip(wanted) {
                    let got = y.to_f64()[channel];
                    assert!(
                        (got - w).abs() <= 2e-5 * w.abs(),
                        "{got}, not {w}, outlier: {outlier}"
                    );
                }
            }
        }
        // Constants have no variance, and infinities make the mean infinite, as in a plain mean.
        for (value, mean, variance) in [(1e20, 1e20, 0.0), (f32::INFINITY, f64::INFINITY, f64::NAN)]
        {
            let out = session
                .run(
                    &node(&expression, MOMENTS, &[0]),
                    &[HostTensor::f32(&[70], &[value; 70]).into()],
                )
                .unwrap();
            let got: Vec<f64> = out.iter().map(|y| y.to_f64()[0]).collect();
            assert!(got[0] == mean || (got[0] - mean).abs() < 1e14, "{got:?}");
            assert!(got[1] == variance || got[1].is_nan() == variance.is_nan(), "{got:?}");
        }
    }
}

#[test]
fn constants_whole_and_kept_axes() {
    for mut session in sessions() {
        let expression =
            "x: float32; c: 2; s0 = Mul<float32>(x0, c1); s1 = AddV2<float32>(s0, c0); return s1";
        let x = HostTensor::f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let base = |axes: &[i64]| node(expression, "Sum", axes).attr("constants", &[1.0, 2.0][..]);
        let whole = session.run(&base(&[]).attr("whole", true), &[x.clone().into()]).unwrap();
        assert_eq!((whole[0].dims.len(), whole[0].to_f64()), (0, vec![36.0]));
        let kept = session.run(&base(&[-1]).attr("keep_dims", true), &[x.clone().into()]).unwrap();
        assert_eq!((&kept[0].dims[..], kept[0].to_f64()), (&[2, 1][..], vec![9.0, 27.0]));
    }
}

#[test]
fn errors_are_those_of_the_plain_ops() {
    let expression = "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return s0";
    let ones =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![1.0; dims.iter().product()]));
    let [mut session, _] = sessions();
    for (shapes, axes, wanted) in [
        ([&[2, 3][..], &[4][..]], &[0][..], "Incompatible shapes: [2,3] vs. [4]"),
        ([&[2, 3], &[3]], &[2], "Invalid reduction dimension (2 for input with 2 dimension(s)"),
        ([&[2, 3], &[3]], &[1, -1], "Axes contains duplicate dimension: 1"),
    ] {
        let inputs = shapes.map(ones);
        match session.run(&node(expression, "Sum", axes), &inputs) {
            Err(Error::InvalidArgument(m)) => {
                assert!(m.contains(wanted) && m.contains("_WgpuFusedReduce"), "{m}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tensors_beyond_one_binding_are_reduced_in_windows() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let expression = "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return s0, x0";
    let rows = (limit / 4 + 12_345) / 5;
    let x: Vec<f32> = (0..rows * 5).map(|i| (i % 16) as f32).collect();
    let input = HostTensor::f32(&[rows, 5], &x);
    let column: Vec<f32> = (0..rows).map(|i| (i % 7) as f32).collect();
    let row = [1.0f32, 2.0, 3.0, 4.0, 5.0];
    let mut run = |axes: &[i64], second: HostTensor| {
        let out = session
            .run(&node(expression, "Sum,Moments", axes), &[input.clone().into(), second.into()])
            .unwrap();
        out.iter().map(HostTensor::to_f64).collect::<Vec<_>>()
    };
    let close = |got: f64, wanted: f64, what: &str| {
        assert!((got - wanted).abs() <= 2e-6 * wanted.abs(), "{what}: {got}, not {wanted}");
    };
    let of_columns = run(&[0], HostTensor::f32(&[rows, 1], &column));
    let all = run(&[0, 1], HostTensor::f32(&[5], &row));
    let of_rows = run(&[1], HostTensor::f32(&[5], &row));
    let product = |i: usize| f64::from(x[i] * column[i / 5]);
    for (k, got) in (0..5).map(|k| (k, [0, 1, 2].map(|y| of_columns[y][k]))) {
        let run: Vec<f64> = (k..rows * 5).step_by(5).map(|i| f64::from(x[i])).collect();
        let wanted = reference(MOMENTS, &run);
        close(got[0], (k..rows * 5).step_by(5).map(product).sum(), "sum of a column");
        close(got[1], wanted[0].0, "mean of a column");
        close(got[2], wanted[1].0, "variance of a column");
    }
    close(all[0][0], (0..rows * 5).map(|i| f64::from(x[i] * row[i % 5])).sum(), "sum");
    close(all[1][0], x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64, "mean");
    for (i, run) in x.chunks(5).enumerate() {
        let wanted: f32 = run.iter().zip(row).map(|(a, b)| a * b).sum();
        assert_eq!(of_rows[0][i], f64::from(wanted), "sum of row {i}");
        assert!(
            (of_rows[1][i] - f64::from(run.iter().sum::<f32>() / 5.0)).abs() < 1e-5,
            "mean of row {i}"
        );
    }
}

#[test]
fn states_beyond_one_binding_are_cut_along_kept_axes() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let columns = limit / 16 + 100_003;
    let x: Vec<f32> = (0..4 * columns).map(|i| (i % 13) as f32).collect();
    let expression = "x: float32, float32; c: 0; s0 = Mul<float32>(x0, x1); return s0, x0";
    let weights = HostTensor::f32(&[4, 1], &[1.0, 2.0, 3.0, 4.0]);
    let inputs = [HostTensor::f32(&[4, columns], &x).into(), weights.into()];
    let out = session.run(&node(expression, "Sum,Moments", &[0]), &inputs).unwrap();
    let out: Vec<Vec<f64>> = out.iter().map(HostTensor::to_f64).collect();
    for k in 0..columns {
        let run: [f64; 4] = std::array::from_fn(|r| f64::from(x[r * columns + k]));
        let mean = run.iter().sum::<f64>() / 4.0;
        let variance = run.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 4.0;
        assert_eq!(
            out[0][k],
            run.iter().zip(1..).map(|(v, w)| v * f64::from(w)).sum::<f64>(),
            "sum of column {k}"
        );
        assert_eq!(out[1][k], mean, "mean of column {k}");
        assert!((out[2][k] - variance).abs() < 1e-5 * variance.max(1.0), "variance of column {k}");
    }
}
