//! Convolutions and their gradients against direct f64 sums, with both tile tables.

mod case;
mod depthwise;
#[path = "../numeric/mod.rs"]
mod numeric;
mod schedules;

use case::Case;
use numeric::bindings::under;
use numeric::{Random, assert_close, session};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::Input;
use tensorflow_wgpu::{DType, Error, HostTensor};

fn sizes(dims: &[usize]) -> Input {
    HostTensor::i32(&[dims.len()], &dims.iter().map(|d| *d as i32).collect::<Vec<_>>()).into()
}

/// Runs the op and both gradients under all profiles; returns false when the case has no output.
fn check(case: &Case, dtype: DType, seed: u64, misalign: usize) -> bool {
    // Windows are the same for all profiles, and compiling takes most of the time.
    let all = &Profile::DISTINCT;
    let first = seed as usize % all.len();
    let profiles = if numeric::bindings::is_limited() { &all[first..=first] } else { &all[..] };
    check_under(profiles, case, dtype, seed, misalign)
}

/// Runs the op under these profiles.
fn check_under(
    profiles: &[Profile],
    case: &Case,
    dtype: DType,
    seed: u64,
    misalign: usize,
) -> bool {
    let Some((out, _)) = case.windows() else { return false };
    if !session().runs(dtype) {
        return true;
    }
    let mut random = Random::new(seed);
    let x_dims = case.shape(case.channels, case.input);
    let y_dims = case.shape(case.out_channels(), out);
    let (x, xv) = random.tensor(dtype, &x_dims);
    let (w, wv) = random.tensor(dtype, &case.filter_shape());
    let (dy, dv) = random.tensor(dtype, &y_dims);
    let (mut y, mut dx, mut dw) = (vec![0.0; dv.len()], vec![0.0; xv.len()], vec![0.0; wv.len()]);
    case.products(|i, k, o| {
        y[o] += xv[i] * wv[k];
        dx[i] += dv[o] * wv[k];
        dw[k] += xv[i] * dv[o];
    });
    let version = if case.op == "Conv3D" { "V2" } else { "" };
    let taps = case.kernel.iter().product::<usize>();
    // Suffix of the op's name, inputs, values, shape, number of products in an element.
    type Run<'a> = (String, Vec<Input>, &'a [f64], &'a [usize], usize);
    let runs: [Run<'_>; 3] = [
        (String::new(), vec![x.clone().into(), w.clone().into()], &y, &y_dims, taps * case.depth),
        (
            format!("BackpropInput{version}"),
            vec![sizes(&x_dims), w.clone().into(), dy.clone().into()],
            &dx,
            &x_dims,
            taps * case.filters,
        ),
        (
            format!("BackpropFilter{version}"),
            vec![x.into(), sizes(&case.filter_shape()), dy.into()],
            &dw,
            &case.filter_shape(),
            case.batch * out.iter().product::<usize>(),
        ),
    ];
    for &profile in profiles {
        for (suffix, inputs, want, dims, terms) in &runs {
            let mut session = under(profile, session);
            session.misalign = misalign;
            let what = format!("{suffix} {dtype} {profile} {case:?}");
            let got = session.run(&case.node(suffix, dtype), inputs);
            let Some(got) = numeric::bindings::ran(got, &what) else { continue };
            assert_eq!(got[0].dims[..], dims[..], "{what}");
            assert_close(&got[0], want, *terms as f64, &what);
        }
    }
    true
}

fn random_case(random: &mut Random, op: &'static str) -> Case {
    let spatial = if op == "Conv3D" { 3 } else { 2 };
    let mut extents = |low, high| {
        let mut list = [1; 3];
        for e in &mut list[3 - spatial..] {
            *e = random.between(low, high);
        }
        list
    };
    let (mut input, kernel) = (extents(1, if spatial == 3 { 5 } else { 9 }), extents(1, 4));
    let (mut stride, dilation) = (extents(1, 3), extents(1, 2));
    let groups = random.pick(&[1, 1, 2, 3]);
    let (depth, per_group) = (random.pick(&[1, 3, 4, 5, 8]), random.pick(&[1, 2, 4, 5, 8]));
    let depthwise = op.starts_with("Depthwise");
    if depthwise {
        stride[1] = stride[2];
    }
    let padding = if op == "Conv3D" {
        random.pick(&["SAME", "VALID"])
    } else {
        random.pick(&["SAME", "VALID", "EXPLICIT"])
    };
    let mut explicit = [[0; 2]; 3];
    if padding == "EXPLICIT" {
        for e in &mut explicit[3 - spatial..] {
            *e = [random.below(4), random.below(4)];
        }
    }
    // An input smaller than its window has no output, unless it is padded to SAME.
    for d in (0..3).filter(|_| padding != "SAME") {
        let padded: usize = explicit[d].iter().sum();
        input[d] = input[d].max(((kernel[d] - 1) * dilation[d] + 1).saturating_sub(padded));
    }
    Case {
        op,
        spatial,
        last: random.below(3) > 0,
        batch: random.between(1, 3),
        channels: if depthwise { depth } else { depth * groups },
        depth,
        filters: if depthwise { random.between(1, 3) } else { per_group * groups },
        input,
        kernel,
        stride,
        dilation,
        padding,
        explicit,
    }
}

fn random_cases(op: &'static str, count: usize, seed: u64) {
    let mut random = Random::new(seed);
    for i in 0..count {
        let case = random_case(&mut random, op);
        let dtype = random.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64]);
        assert!(check(&case, dtype, i as u64, usize::from(i % 5 == 4)), "no output: {case:?}");
    }
}

#[test]
fn conv2d_of_random_shapes() {
    random_cases("Conv2D", 10, 1);
}

#[test]
fn conv3d_of_random_shapes() {
    random_cases("Conv3D", 6, 2);
}

fn plain(input: usize, kernel: usize, channels: usize, filters: usize) -> Case {
    Case {
        op: "Conv2D",
        spatial: 2,
        last: true,
        batch: 2,
        channels,
        depth: channels,
        filters,
        input: [1, input, input],
        kernel: [1, kernel, kernel],
        stride: [1; 3],
        dilation: [1; 3],
        padding: "SAME",
        explicit: [[0; 2]; 3],
    }
}

#[test]
fn the_shapes_of_small_networks() {
    assert!(check(&plain(8, 3, 1, 16), DType::F32, 1, 0));
    assert!(check(&plain(8, 3, 16, 32), DType::F32, 2, 0));
    assert!(check(&plain(7, 1, 64, 64), DType::F32, 3, 0));
    assert!(check(&plain(6, 1, 5, 7), DType::F16, 4, 0));
    assert!(check(&Case { stride: [1, 2, 2], ..plain(16, 7, 3, 64) }, DType::F32, 5, 0));
    assert!(check(&Case { stride: [1, 2, 2], ..plain(9, 1, 16, 32) }, DType::F32, 6, 0));
    // Rows of the filter are a page apart; the gradient of the input copies them first.
    assert!(check(&plain(12, 3, 4, 1024), DType::F32, 8, 0));
    // A kernel larger than the input.
    assert!(check(&plain(2, 7, 4, 4), DType::F32, 7, 0));
}

/// Gradients of the input by phases of the stride: all phases, some without a kernel position, with
/// and without a common divisor of stride and dilation. Groups and padding are among the random
/// shapes.
#[test]
fn strides_in_all_phases() {
    let strided = |stride: usize, case: Case| Case { stride: [1, stride, stride], ..case };
    assert!(check(&strided(2, plain(8, 2, 8, 16)), DType::F32, 21, 0));
    assert!(check(&strided(3, plain(7, 2, 4, 5)), DType::F16, 22, 0));
    let dilated =
        Case { dilation: [1, 2, 3], stride: [1, 2, 2], padding: "VALID", ..plain(13, 3, 4, 8) };
    assert!(check(&dilated, DType::F32, 24, 0));
}

/// Gradients of inputs whose positions are in one window each: a product for each row of the
/// window.
#[test]
fn windows_side_by_side() {
    let of = |rows: usize, columns: usize, case: Case| Case {
        input: [1, 3 * rows, 5 * columns],
        kernel: [1, rows, columns],
        stride: [1, rows, columns],
        ..case
    };
    for (i, padding) in ["SAME", "VALID"].into_iter().enumerate() {
        let case = |channels, filters| Case { padding, ..plain(1, 1, channels, filters) };
        assert!(check(&of(2, 2, case(8, 12)), DType::F32, 31, i));
        assert!(check(&of(2, 3, case(3, 5)), DType::F32, 32, i));
        assert!(check(&of(4, 2, case(6, 8)), DType::F16, 33, i));
        assert!(check(&of(1, 2, case(1, 4)), DType::BF16, 34, i));
        assert!(check(&of(3, 1, case(4, 4)), DType::F64, 35, i));
    }
}

/// Gradients of inputs with few channels: windows of all phases, some without a kernel position,
/// with different numbers of rows and columns.
#[test]
fn inputs_of_few_channels() {
    let mut random = Random::new(8);
    for i in 0..14 {
        let (kernel, stride) = (random.between(1, 7), random.between(1, 4));
        let padding = random.pick(&["SAME", "VALID", "EXPLICIT"]);
        let pads =
            [0, 1, 2].map(|d| if d > 0 { [random.below(9), random.below(9)] } else { [0; 2] });
        let case = Case {
            batch: 1 + i % 3,
            input: [1, random.between(7, 24), random.between(7, 50)],
            kernel: [1, random.between(1, 7), kernel],
            stride: [1, random.between(1, 4), stride],
            padding,
            explicit: if padding == "EXPLICIT" { pads } else { [[0; 2]; 3] },
            ..plain(1, 1, random.between(1, 4), random.pick(&[4, 8, 12]))
        };
        assert!(check(&case, DType::F32, 80 + i as u64, usize::from(i % 7 == 6)), "{case:?}");
    }
}

/// Lanes along filters, with whole and partial runs of columns and groups of filters.
#[test]
fn outputs_of_few_channels() {
    let mut random = Random::new(9);
    for i in 0..10 {
        let (kernel, stride, columns) =
            (random.between(1, 7), random.between(1, 4), random.pick(&[14, 16, 30, 48]));
        let pads = [[0; 2], [random.below(4), random.below(4)], [random.below(4), 0]];
        let width = (columns - 1) * stride + kernel;
        let padding = random.pick(&["VALID", "EXPLICIT"]);
        let case = Case {
            batch: 1 + i % 2,
            input: [
                1,
                random.between(7, 12),
                width - if padding == "EXPLICIT" { pads[2][0].min(width - 1) } else { 0 },
            ],
            kernel: [1, random.between(1, 7), kernel],
            stride: [1, random.between(1, 4), stride],
            padding,
            explicit: if padding == "EXPLICIT" { pads } else { [[0; 2]; 3] },
            ..plain(1, 1, random.between(1, 3), random.pick(&[28, 32, 60]))
        };
        assert!(check(&case, DType::F32, 100 + i as u64, usize::from(i % 5 == 4)), "{case:?}");
    }
}

/// Gradients of filters whose output lines are too short to be processed one by one.
#[test]
fn short_lines() {
    let wide = plain(7, 3, 16, 128);
    assert!(check(&wide, DType::F32, 41, 0));
    assert!(check(
        &Case { stride: [1, 2, 2], padding: "VALID", input: [1, 9, 11], ..wide.clone() },
        DType::F16,
        42,
        0
    ));
    let volume =
        Case { op: "Conv3D", spatial: 3, input: [3, 4, 5], kernel: [2, 3, 3], batch: 1, ..wide };
    assert!(check(&volume, DType::F32, 43, 0));
}

#[test]
fn long_lines_and_many_positions() {
    // More steps than llvmpipe runs in one invocation: 70,000 positions on a line, and 300 lines of
    // 300.
    let line = Case { batch: 1, input: [1, 1, 70_000], kernel: [1, 1, 3], ..plain(1, 1, 4, 4) };
    assert!(check(&line, DType::F32, 11, 0));
    let depthwise = Case { op: "DepthwiseConv2dNative", filters: 1, ..line };
    assert!(check(
        &Case { batch: 2, input: [1, 1, 60_000], ..depthwise.clone() },
        DType::F32,
        12,
        0
    ));
    let square = Case { batch: 1, channels: 1, depth: 1, input: [1, 300, 300], ..depthwise };
    assert!(check(&square, DType::F32, 13, 0));
}

/// Conv2D and the gradient of its input have int32 kernels as well; sums wrap.
#[test]
fn whole_numbers() {
    for case in
        [plain(5, 3, 4, 8), Case { last: false, stride: [1, 2, 1], depth: 2, ..plain(5, 3, 4, 6) }]
    {
        let (out, _) = case.windows().expect("an output");
        let mut random = Random::new(7);
        let mut values = |dims: &[usize]| -> Vec<i32> {
            (0..dims.iter().product()).map(|_| random.below(200_001) as i32 - 100_000).collect()
        };
        let (x_dims, y_dims) =
            (case.shape(case.channels, case.input), case.shape(case.filters, out));
        let (x, w, dy) = (values(&x_dims), values(&case.filter_shape()), values(&y_dims));
        let (mut y, mut dx) = (vec![0i32; dy.len()], vec![0i32; x.len()]);
        case.products(|i, k, o| {
            y[o] = y[o].wrapping_add(x[i].wrapping_mul(w[k]));
            dx[i] = dx[i].wrapping_add(dy[o].wrapping_mul(w[k]));
        });
        let (w, dy) = (HostTensor::i32(&case.filter_shape(), &w), HostTensor::i32(&y_dims, &dy));
        for profile in Profile::DISTINCT {
            let run = |suffix: &str, inputs: &[Input]| {
                under(profile, || session().run(&case.node(suffix, DType::I32), inputs))
                    .expect("int32")
                    .remove(0)
            };
            let got = run("", &[HostTensor::i32(&x_dims, &x).into(), w.clone().into()]);
            assert_eq!(got.values::<i32>(), y, "{profile} {case:?}");
            let got = run("BackpropInput", &[sizes(&x_dims), w.clone().into(), dy.clone().into()]);
            assert_eq!(got.values::<i32>(), dx, "{profile} {case:?}");
        }
    }
}

/// Conv takes its spatial dimensions from the rank and any number of batch dimensions; the old
/// gradients take tensors for shapes.
#[test]
fn other_forms() {
    let mut random = Random::new(5);
    for (spatial, batch_dims, last) in [(2, 1, true), (2, 3, true), (3, 0, true), (2, 2, false)] {
        let mut case = Case { last, stride: [1, 2, 1], ..plain(5, 3, 3, 4) };
        if spatial == 3 {
            case = Case {
                op: "Conv3D",
                spatial,
                input: [4, 5, 3],
                kernel: [2, 3, 1],
                batch: 1,
                ..case
            };
        }
        let batch: &[usize] = [&[][..], &[2], &[1, 2], &[2, 1, 1]][batch_dims];
        let (out, _) = case.windows().expect("an output");
        let (x, xv) = random.tensor(DType::F32, &case.shape(3, case.input));
        let (w, wv) = random.tensor(DType::F32, &case.filter_shape());
        let (dy, dv) = random.tensor(DType::F32, &case.shape(4, out));
        let (mut y, mut dx, mut dw) =
            (vec![0.0; dv.len()], vec![0.0; xv.len()], vec![0.0; wv.len()]);
        case.products(|i, k, o| {
            y[o] += xv[i] * wv[k];
            dx[i] += dv[o] * wv[k];
            dw[k] += xv[i] * dv[o];
        });
        let reshaped = HostTensor { dims: [batch, &x.dims[1..]].concat().into(), ..x.clone() };
        let node = Case { op: "Conv", ..case.clone() }
            .node("", DType::F32)
            .attr("batch_dims", batch_dims as i64)
            .attr("groups", 1i64);
        let node = node.attr("data_format", if last { "CHANNELS_LAST" } else { "CHANNELS_FIRST" });
        let got =
            session().run(&node, &[reshaped.into(), w.clone().into()]).expect("Conv").remove(0);
        assert_eq!(got.dims[..], [batch, &case.shape(4, out)[1..]].concat()[..]);
        assert_close(&got, &y, 27.0, &format!("{case:?}"));
        if spatial == 3 {
            let inputs = [x.into(), w.into(), dy.into()];
            let got = session()
                .run(&case.node("BackpropInput", DType::F32), &inputs)
                .expect("input")
                .remove(0);
            assert_close(&got, &dx, 27.0, "Conv3DBackpropInput");
            let got = session()
                .run(&case.node("BackpropFilter", DType::F32), &inputs)
                .expect("filter")
                .remove(0);
            assert_close(&got, &dw, 60.0, "Conv3DBackpropFilter");
        }
    }
}

/// Whole images in windows, slabs of one image, and convolutions whose images are independent. With
/// channels first, an image that does not fit by itself is refused by its filter's gradient and by
/// filters of single channels.
#[test]
fn images_beyond_one_binding() {
    let refused = numeric::bindings::within(8192, || {
        let many = Case { batch: 9, ..plain(7, 3, 8, 12) };
        let large = Case { batch: 2, input: [1, 23, 17], ..plain(1, 3, 8, 12) };
        let strided = |case: &Case| Case {
            stride: [1, 2, 3],
            dilation: [1, 2, 1],
            padding: "VALID",
            ..case.clone()
        };
        let groups = Case { depth: 4, ..large.clone() };
        let same_stride = Case { stride: [1, 2, 2], ..large.clone() };
        let side_by_side =
            Case { kernel: [1, 2, 2], stride: [1, 2, 2], input: [1, 24, 16], ..large.clone() };
        let pointwise = Case { kernel: [1; 3], ..large.clone() };
        let few = Case { input: [1, 40, 32], ..plain(1, 3, 3, 32) };
        let first = Case { last: false, batch: 5, ..plain(9, 3, 8, 12) };
        let volume = Case {
            op: "Conv3D",
            spatial: 3,
            input: [9, 8, 7],
            kernel: [3, 2, 3],
            ..plain(1, 1, 4, 6)
        };
        let cases = [
            many,
            strided(&large),
            large,
            groups,
            same_stride,
            side_by_side,
            pointwise,
            few,
            first,
            volume,
        ];
        for (i, case) in cases.iter().enumerate() {
            let dtype = [DType::F32, DType::F16, DType::BF16][i % 3];
            assert!(check(case, dtype, i as u64, 0), "{case:?}");
        }
        let depthwise = |case: Case| Case {
            op: "DepthwiseConv2dNative",
            filters: 1,
            depth: case.channels,
            ..case
        };
        let large = Case { batch: 2, input: [1, 29, 17], ..plain(1, 3, 8, 1) };
        let padded =
            Case { padding: "EXPLICIT", explicit: [[0; 2], [9, 9], [1, 2]], ..large.clone() };
        let wide = Case { batch: 7, ..plain(9, 5, 4, 1) };
        for (i, case) in [large.clone(), padded, wide, Case { stride: [1, 2, 2], ..large }]
            .into_iter()
            .enumerate()
        {
            let case = depthwise(case);
            assert!(check(&case, [DType::F32, DType::F16][i % 2], i as u64, 0), "{case:?}");
            assert!(check(&Case { filters: 2, ..case }, DType::F32, i as u64, 0));
        }
    });
    assert_eq!(refused, 0);
}

/// Filters beyond one binding, split along their kernel and their channels; the columns of their
/// gradients.
#[test]
fn filters_beyond_one_binding() {
    let refused = numeric::bindings::within(8192, || {
        for (i, case) in
            [plain(4, 3, 16, 24), plain(5, 2, 40, 12), plain(3, 3, 5, 70)].into_iter().enumerate()
        {
            let case = Case { batch: 1, ..case };
            assert!(check(&case, [DType::F32, DType::F16][i % 2], i as u64, 0), "{case:?}");
            assert!(check(&Case { stride: [1, 2, 1], ..case }, DType::F32, i as u64, 0));
        }
    });
    assert_eq!(refused, 0);
}

#[test]
fn random_convolutions_in_windows() {
    let refused = numeric::bindings::within(4096, || {
        random_cases("Conv2D", 10, 31);
        random_cases("Conv3D", 5, 32);
        random_cases("DepthwiseConv2dNative", 8, 33);
    });
    assert!(refused < 30, "{refused} runs were refused");
}

#[test]
fn empty_tensors() {
    let case = plain(4, 3, 3, 5);
    let empty = |dims: &[usize]| HostTensor::floats(DType::F32, dims, &[]);
    let ones =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![1.0; dims.iter().product()]);
    let w = ones(&[3, 3, 3, 5]);
    let run = |suffix: &str, inputs: &[Input]| {
        session().run(&case.node(suffix, DType::F32), inputs).unwrap().remove(0)
    };
    let y = run("", &[empty(&[0, 4, 4, 3]).into(), w.clone().into()]);
    assert_eq!(y.dims[..], [0, 4, 4, 5]);
    let dx = run("BackpropInput", &[sizes(&[0, 4, 4, 3]), w.into(), empty(&[0, 4, 4, 5]).into()]);
    assert_eq!(dx.dims[..], [0, 4, 4, 3]);
    let inputs = [empty(&[0, 4, 4, 3]).into(), sizes(&[3, 3, 3, 5]), empty(&[0, 4, 4, 5]).into()];
    assert_eq!(run("BackpropFilter", &inputs).to_f64(), vec![0.0; 135]);
    let y = run("", &[ones(&[1, 4, 4, 3]).into(), empty(&[3, 3, 3, 0]).into()]);
    assert_eq!(y.dims[..], [1, 4, 4, 0]);
}

#[test]
fn input_sizes_may_be_spatial_alone() {
    let case = plain(4, 3, 3, 5);
    let ones =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![1.0; dims.iter().product()]);
    let inputs = [sizes(&[4, 4]), ones(&[3, 3, 3, 5]).into(), ones(&[2, 4, 4, 5]).into()];
    let dx = session().run(&case.node("BackpropInput", DType::F32), &inputs).unwrap().remove(0);
    assert_eq!((&dx.dims[..], dx.to_f64()[0]), (&[2, 4, 4, 3][..], 20.0));
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    // 800 x 800 positions of one channel, 8 rows and 8 lanes to a workgroup on software adapters.
    let case = Case { batch: 1, ..plain(800, 1, 1, 1) };
    let case = Case { input: [1, 800, 6600], ..case };
    let n = 800 * 6600;
    let (x, xv) = Random::new(9).tensor(DType::F32, &[1, 800, 6600, 1]);
    let w = HostTensor::f32(&[1, 1, 1, 1], &[0.5]);
    let got = session().run(&case.node("", DType::F32), &[x.into(), w.into()]).unwrap().remove(0);
    let values = got.values::<f32>();
    assert_eq!(values.len(), n);
    assert!(values.iter().zip(&xv).all(|(g, x)| (f64::from(*g) - x * 0.5).abs() < 1e-6));
}

#[test]
fn errors_are_tensorflows() {
    let zeros = |dims: &[usize]| {
        Input::from(HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]))
    };
    let run = |case: &Case, suffix: &str, inputs: &[Input]| match session()
        .run(&case.node(suffix, DType::F32), inputs)
    {
        Err(Error::InvalidArgument(m) | Error::Unimplemented(m)) => m,
        other => panic!("{case:?} gave {other:?}"),
    };
    let conv = plain(4, 3, 3, 4);
    let forward = |case: &Case, x: &[usize], w: &[usize]| run(case, "", &[zeros(x), zeros(w)]);
    let x: &[usize] = &[1, 4, 4, 3];
    for (message, want) in [
        (
            forward(&conv, &[4, 4, 3], &[3, 3, 3, 4]),
            "convolution input must be 4-dimensional: [4,4,3]",
        ),
        (forward(&conv, x, &[3, 3, 3]), "convolution filter must be 4-dimensional: [3,3,3]"),
        (
            forward(&conv, x, &[3, 3, 2, 4]),
            "input depth must be evenly divisible by filter depth: 3 vs 2",
        ),
        (
            forward(&conv, &[1, 4, 4, 4], &[3, 3, 2, 3]),
            "output depth must be evenly divisible by number of groups: 3 vs 2",
        ),
        (forward(&conv, x, &[0, 3, 3, 4]), "filter must not have zero elements"),
        (
            forward(&Case { padding: "VALID", ..conv.clone() }, &[1, 2, 2, 3], &[4, 4, 3, 4]),
            "Computed output size would be negative: -1 [input_size: 2, effective_filter_size: 4, \
             stride: 1]",
        ),
        (
            forward(&Case { stride: [1, 0, 1], ..conv.clone() }, x, &[3, 3, 3, 4]),
            "Row and column strides should be larger than 0.",
        ),
        (
            forward(&Case { dilation: [1, 0, 1], ..conv.clone() }, x, &[3, 3, 3, 4]),
            "Dilated rates should be larger than 0.",
        ),
        (
            run(
                &conv,
                "BackpropInput",
                &[sizes(&[2, 4, 4, 3]), zeros(&[3, 3, 3, 4]), zeros(&[1, 4, 4, 4])],
            ),
            "input and out_backprop must have the same batch size. Input batch: 2, outbackprop \
             batch: 1, batch_dim: 0",
        ),
        (
            run(&conv, "BackpropFilter", &[zeros(x), sizes(&[3, 3, 3, 4]), zeros(&[1, 4, 5, 4])]),
            "Size of out_backprop doesn't match computed: actual = 5, computed = 4 spatial_dim: 2",
        ),
        (
            run(&conv, "BackpropFilter", &[zeros(x), sizes(&[3, 3, 3, 5]), zeros(&[1, 4, 4, 4])]),
            "filter and out_backprop must have the same out_depth",
        ),
    ] {
        assert!(message.contains(want), "{message}\nwant: {want}");
    }
    let node = conv.node("", DType::F32).attr("strides", &[1i64, 1, 1, 2][..]);
    let error = session().run(&node, &[zeros(x), zeros(&[3, 3, 3, 4])]);
    assert!(matches!(error, Err(Error::Unimplemented(m))
            if m.contains("strides in the batch and depth dimensions")));
}
