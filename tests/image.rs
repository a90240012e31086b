//! Images against direct f64 references.

mod numeric;

use numeric::bindings::under;
use numeric::{Random, assert_close};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn session() -> tensorflow_wgpu::local::Session {
    numeric::bindings::session()
}

fn run(node: &Node, inputs: &[Input]) -> HostTensor {
    session().run(node, inputs).unwrap_or_else(|e| panic!("{node:?}: {e}")).remove(0)
}

fn host(values: &[i32]) -> Input {
    HostTensor::i32(&[values.len()], values).into()
}

/// Image positions and their weights for one resized position.
type Taps = Vec<(usize, f64)>;

/// The input positions that each position of a resized axis reads.
fn taps(extent: usize, resized: usize, bilinear: bool, align: bool, half: bool) -> Vec<Taps> {
    let scale = if align && resized > 1 {
        (extent - 1) as f32 / (resized - 1) as f32
    } else {
        extent as f32 / resized as f32
    };
    let shift = if half { 0.5f32 } else { 0.0 };
    let tap = |x: usize| {
        let at = (x as f32 + shift) * scale;
        if !bilinear {
            let index = if align { at.round() } else { at.floor() };
            return vec![((index as usize).min(extent - 1), 1.0)];
        }
        let at = at - shift;
        let lerp = f64::from(at - at.floor());
        let clamp = |v: f32| (v.max(0.0) as usize).min(extent - 1);
        vec![(clamp(at.floor()), 1.0 - lerp), (clamp(at.ceil()), lerp)]
    };
    (0..resized).map(tap).collect()
}

const FLAGS: [(bool, bool); 3] = [(false, false), (true, false), (false, true)];

/// Resizes images of (height, width) to (rows, columns) and back by the gradient.
fn check_resizing(
    random: &mut Random,
    dtype: DType,
    bilinear: bool,
    (align, half): (bool, bool),
    (batch, channels): (usize, usize),
    [[h, w], [rows, columns]]: [[usize; 2]; 2],
) {
    if !session().runs(dtype) {
        return;
    }
    let (ty, tx) = (taps(h, rows, bilinear, align, half), taps(w, columns, bilinear, align, half));
    let what = format!(
        "{dtype} bilinear={bilinear} align={align} half={half} {h}x{w} to \
         {rows}x{columns}x{channels}"
    );
    let (x, xv) = random.tensor(dtype, &[batch, h, w, channels]);
    let dy_type = if bilinear { DType::F32 } else { dtype };
    let (dy, dv) = random.tensor(dy_type, &[batch, rows, columns, channels]);
    let (mut y, mut dx) = (vec![0.0; dv.len()], vec![0.0; xv.len()]);
    for (o, out) in y.iter_mut().enumerate() {
        let (c, pixel) = (o % channels, o / channels);
        let (column, line) = (pixel % columns, pixel / columns);
        for (a, wa) in &ty[line % rows] {
            for (b, wb) in &tx[column] {
                let at = ((line / rows * h + a) * w + b) * channels + c;
                *out += wa * wb * xv[at];
                dx[at] += wa * wb * dv[o];
            }
        }
    }
    let (op, grad) = if bilinear {
        ("ResizeBilinear", "ResizeBilinearGrad")
    } else {
        ("ResizeNearestNeighbor", "ResizeNearestNeighborGrad")
    };
    let node = |op: &str| {
        Node::new(op).attr("T", dtype).attr("align_corners", align).attr("half_pixel_centers", half)
    };
    let got = run(&node(op), &[x.clone().into(), host(&[rows as i32, columns as i32])]);
    assert_eq!(got.dims[..], [batch, rows, columns, channels], "{what}");
    assert_close(&got, &y, 1.0, &what);
    let original = if bilinear { x.into() } else { host(&[h as i32, w as i32]) };
    let got = run(&node(grad), &[dy.into(), original]);
    // Weights are float32 in every type.
    let got = if bilinear && dtype == DType::F64 {
        HostTensor::floats(DType::F32, &got.dims, &got.to_f64())
    } else {
        got
    };
    assert_close(&got, &dx, 40.0, &what);
}

#[test]
fn resizing_and_its_gradients() {
    resizing();
}

#[test]
fn resizing_where_loops_are_short() {
    let profile = Profile { loop_limit: 10, ..session().device.profile() };
    under(profile, resizing);
}

fn resizing() {
    let mut random = Random::new(11);
    for i in 0..60 {
        let dtype = random.pick(&[DType::F32, DType::F16, DType::BF16, DType::F64]);
        let images = (random.between(1, 2), random.pick(&[1, 2, 3, 4, 5, 8]));
        let mut extent = || random.between(1, 9);
        let extents = [[extent(), extent()], [extent(), 3 * extent()]];
        check_resizing(&mut random, dtype, i % 2 == 0, FLAGS[i / 2 % 3], images, extents);
    }
}

#[test]
fn long_axes_lose_no_reader() {
    let mut random = Random::new(12);
    for (i, extents) in
        [(641, 1999), (1999, 641), (97, 4000), (3, 1000), (4001, 4000)].into_iter().enumerate()
    {
        for flags in FLAGS {
            for bilinear in [false, true] {
                let extents = [[1, extents.0], [2, extents.1]];
                check_resizing(
                    &mut random,
                    DType::F32,
                    bilinear,
                    flags,
                    (1, [1, 4][i % 2]),
                    extents,
                );
            }
        }
    }
}

#[test]
fn resizing_one_pixel_to_many_sums_all_of_them() {
    // 90,000 positions read the one pixel: more than llvmpipe's iterations if they were summed at
    // once.
    let node = Node::new("ResizeBilinearGrad").attr("T", DType::F32).attr("align_corners", false);
    let node = node.attr("half_pixel_centers", true);
    let dy = HostTensor::f32(&[1, 300, 300, 1], &vec![1.0; 90_000]);
    let x = HostTensor::f32(&[1, 1, 1, 1], &[0.0]);
    assert_eq!(run(&node, &[dy.into(), x.into()]).values::<f32>(), [90_000.0]);
}

/// More than llvmpipe's iterations read one pixel of a line.
#[test]
fn one_pixel_read_by_a_long_line() {
    for (dtype, bilinear) in [(DType::F32, true), (DType::F16, true), (DType::F32, false)] {
        let op = if bilinear { "ResizeBilinearGrad" } else { "ResizeNearestNeighborGrad" };
        for n in [70_000, 600_000] {
            let node = Node::new(op).attr("T", dtype).attr("align_corners", false);
            let node = node.attr("half_pixel_centers", true);
            let dy: Vec<f32> = (0..n).map(|i| (i % 7) as f32 - 2.75).collect();
            let want = dy.iter().map(|v| f64::from(*v)).sum::<f64>();
            let dy = HostTensor::f32(&[1, 1, n, 1], &dy);
            let inputs = match bilinear {
                true => [dy.into(), HostTensor::floats(dtype, &[1; 4], &[0.0]).into()],
                false => [dy.into(), host(&[1, 1])],
            };
            let got = run(&node, &inputs).to_f64();
            let want = if dtype == DType::F16 && want > 65_504.0 { f64::INFINITY } else { want };
            assert!(got[0] == want || (got[0] / want - 1.0).abs() < 1e-3, "{op} {got:?} {want}");
        }
    }
}

fn crops(node: &str, size: [i32; 2]) -> (Node, Vec<Input>) {
    let mut random = Random::new(3);
    let (image, _) = random.tensor(DType::F32, &[2, 5, 4, 3]);
    let boxes = HostTensor::f32(&[2, 4], &[0.1, 0.03, 0.87, 0.96, 0.8, 0.7, 0.23, 0.3]);
    let node = Node::new(node)
        .attr("T", DType::F32)
        .attr("method", "bilinear")
        .attr("extrapolation_value", 9.0f32);
    (node, vec![image.into(), boxes.into(), host(&[1, 0]), host(&size)])
}

/// The crop is linear in the image, so one gradient is checked as its transpose; the other by
/// differences between the kinks.
#[test]
fn crop_gradients_belong_to_the_crop() {
    crop_gradients();
}

fn crop_gradients() {
    let (node, inputs) = crops("CropAndResize", [3, 6]);
    let y = run(&node, &inputs);
    let mut random = Random::new(8);
    let (dy, dv) = random.tensor(DType::F32, &y.dims);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut grad_inputs = vec![dy.clone().into()];
    grad_inputs.extend([inputs[1].clone(), inputs[2].clone(), host(&[2, 5, 4, 3])]);
    let dx = run(
        &Node::new("CropAndResizeGradImage").attr("T", DType::F32).attr("method", "bilinear"),
        &grad_inputs,
    );
    let Input::Value(image) = &inputs[0] else { unreachable!() };
    let (left, right) = (dot(&y.to_f64(), &dv), dot(&image.to_f64(), &dx.to_f64()));
    assert!((left - right).abs() < 1e-3, "{left} and {right}");

    let grad = Node::new("CropAndResizeGradBoxes").attr("T", DType::F32).attr("method", "bilinear");
    let db =
        run(&grad, &[dy.into(), inputs[0].clone(), inputs[1].clone(), inputs[2].clone()]).to_f64();
    let Input::Value(boxes) = &inputs[1] else { unreachable!() };
    for (i, want) in db.iter().enumerate() {
        let moved = |by: f32| {
            let mut values = boxes.values::<f32>();
            values[i] += by;
            let mut inputs = inputs.clone();
            inputs[1] = HostTensor::f32(&[2, 4], &values).into();
            dot(&run(&node, &inputs).to_f64(), &dv)
        };
        let difference = (moved(1e-3) - moved(-1e-3)) / 2e-3;
        assert!(
            (difference - want).abs() < 0.02 * (1.0 + want.abs()),
            "number {i}: {want}, by differences {difference}"
        );
    }
}

#[test]
fn many_boxes_take_several_passes() {
    // 150 x 400 positions of each of 5 boxes: some 60,000 steps a box.
    let boxes: Vec<f32> = [0.0, 0.0, 1.0, 1.0].repeat(5);
    let dy = HostTensor::f32(&[5, 150, 400, 1], &vec![1.0; 300_000]);
    let inputs =
        [dy.into(), HostTensor::f32(&[5, 4], &boxes).into(), host(&[0; 5]), host(&[1, 2, 2, 1])];
    let dx = run(
        &Node::new("CropAndResizeGradImage").attr("T", DType::F32).attr("method", "bilinear"),
        &inputs,
    );
    for got in dx.to_f64() {
        assert!((got / 75_000.0 - 1.0).abs() < 1e-4, "{got}");
    }
}

/// Boxes, rows and columns of crops in several passes, whose columns alone are more than
/// llvmpipe's iterations, or those of a lower limit.
#[test]
fn wide_crops_take_several_passes() {
    let n = 70_000;
    let dv: Vec<f32> = (0..n).map(|i| (i % 5) as f32 - 1.5).collect();
    let boxes = Input::from(HostTensor::f32(&[1, 4], &[0.0, 0.0, 1.0, 1.0]));
    let dy = Input::from(HostTensor::f32(&[1, 1, n, 1], &dv));
    let method = |op: &str| Node::new(op).attr("T", DType::F32).attr("method", "bilinear");
    let inputs = [dy.clone(), boxes.clone(), host(&[0]), host(&[1, 1, 2, 1])];
    let dx = run(&method("CropAndResizeGradImage"), &inputs).to_f64();
    // A position between both pixels.
    let at = |i: usize| i as f64 / (n - 1) as f64;
    let right: f64 = dv.iter().enumerate().map(|(i, g)| at(i) * f64::from(*g)).sum();
    let left: f64 = dv.iter().enumerate().map(|(i, g)| (1.0 - at(i)) * f64::from(*g)).sum();
    assert!((dx[0] / left - 1.0).abs() < 1e-3 && (dx[1] / right - 1.0).abs() < 1e-3, "{dx:?}");
    // The right edge moves each position by its share of the box.
    let image = HostTensor::f32(&[1, 1, 2, 1], &[1.0, 4.0]);
    let inputs = [dy, image.into(), boxes.clone(), host(&[0])];
    let db = run(&method("CropAndResizeGradBoxes"), &inputs).to_f64();
    for (got, want) in [(db[1], 3.0 * left), (db[3], 3.0 * right)] {
        assert!((got / want - 1.0).abs() < 1e-3, "{db:?}: {want}");
    }
    // As many channels.
    let image: Vec<f32> = (0..2 * n).map(|i| if i < n { 1.0 } else { 4.0 }).collect();
    let inputs = [
        HostTensor::f32(&[1, 1, 1, n], &dv).into(),
        HostTensor::f32(&[1, 1, 2, n], &image).into(),
        boxes,
        host(&[0]),
    ];
    let db = run(&method("CropAndResizeGradBoxes"), &inputs).to_f64();
    let want = 1.5 * dv.iter().map(|g| f64::from(*g)).sum::<f64>();
    assert!((db[1] / want - 1.0).abs() < 1e-4 && (db[3] / want - 1.0).abs() < 1e-4, "{db:?}");
    let profile = session().device.profile();
    for loop_limit in [3, 9, 12] {
        under(Profile { loop_limit, ..profile }, crop_gradients);
    }
}

#[test]
fn contrast_of_old_graphs() {
    let node = Node::new("AdjustContrast").attr("T", DType::U8);
    let x = HostTensor::of(DType::U8, &[1, 1, 4, 1], &[10u8, 20, 30, 40]);
    let scalar = |v: f32| Input::from(HostTensor::f32(&[], &[v]));
    let y = run(&node, &[x.into(), scalar(2.0), scalar(0.0), scalar(50.0)]);
    assert_eq!(y.values::<f32>(), [0.0, 15.0, 35.0, 50.0]);
}

#[test]
fn projective_transforms_of_every_type() {
    // Half a pixel to the right and one down, then the fill value.
    let transform = HostTensor::f32(&[1, 8], &[1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let values = [10, 20, 30, 40, 51, 60];
    let types = [DType::F32, DType::F16, DType::F64, DType::U8, DType::I32, DType::I64];
    for dtype in session().supported(types) {
        let node = Node::new("ImageProjectiveTransformV3")
            .attr("dtype", dtype)
            .attr("fill_mode", "CONSTANT");
        let x = match dtype {
            DType::U8 => HostTensor::of(dtype, &[1, 2, 3, 1], &values.map(|v| v as u8)),
            DType::I32 => HostTensor::i32(&[1, 2, 3, 1], &values),
            DType::I64 => HostTensor::i64(&[1, 2, 3, 1], &values.map(i64::from)),
            _ => HostTensor::floats(dtype, &[1, 2, 3, 1], &values.map(f64::from)),
        };
        let fill = Input::from(HostTensor::f32(&[], &[7.0]));
        let inputs = [x.into(), transform.clone().into(), host(&[2, 3]), fill];
        let bilinear = run(&node.clone().attr("interpolation", "BILINEAR"), &inputs).to_f64();
        let (a, b) = if dtype.is_float() { (45.5, 55.5) } else { (45.0, 55.0) };
        assert_eq!(
            bilinear,
            [a, b, if dtype.is_float() { 33.5 } else { 33.0 }, 7.0, 7.0, 7.0],
            "{dtype}"
        );
        let nearest = run(&node.attr("interpolation", "NEAREST"), &inputs).to_f64();
        assert_eq!(nearest, [51.0, 60.0, 7.0, 7.0, 7.0, 7.0], "{dtype}");
    }
}

#[test]
fn errors_are_tensorflows() {
    let zeros =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![0.0; dims.iter().product()]));
    let fails = |node: &Node, inputs: &[Input]| match session().run(node, inputs) {
        Err(e) => e,
        got => panic!("{got:?}"),
    };
    let resize = |align: bool, half: bool| {
        let node = Node::new("ResizeBilinear").attr("T", DType::F32);
        node.attr("align_corners", align).attr("half_pixel_centers", half)
    };
    let invalid = |m: &str| Error::InvalidArgument(m.to_owned());
    for (node, x, size, want) in [
        (
            resize(true, true),
            zeros(&[1, 2, 2, 1]),
            host(&[2, 2]),
            "If half_pixel_centers is True, align_corners must be False.",
        ),
        (
            resize(false, false),
            zeros(&[2, 2, 1]),
            host(&[2, 2]),
            "input must be 4-dimensional[2,2,1]",
        ),
        (
            resize(false, false),
            zeros(&[1, 2, 2, 0]),
            host(&[2, 2]),
            "image must have at least one channel",
        ),
        (
            resize(false, false),
            zeros(&[1, 0, 2, 1]),
            host(&[2, 2]),
            "input image must be of non-zero size",
        ),
        (
            resize(false, false),
            zeros(&[1, 2, 2, 1]),
            host(&[2]),
            "shape_t must have two elements[1]",
        ),
        (
            resize(false, false),
            zeros(&[1, 2, 2, 1]),
            host(&[2, -2]),
            "output dimensions must be positive",
        ),
    ] {
        assert_eq!(fails(&node, &[x, size]), invalid(&format!("ResizeBilinear: {want}")));
    }
    let (node, mut inputs) = crops("CropAndResize", [2, 2]);
    inputs[2] = host(&[0, 2]);
    assert_eq!(
        fails(&node, &inputs),
        Error::OutOfRange("CropAndResize: box_index has values outside [0, batch_size)".to_owned())
    );
    let cross = Node::new("Cross").attr("T", DType::F32);
    assert!(matches!(fails(&cross, &[zeros(&[2]), zeros(&[2])]), Error::FailedPrecondition(_)));
    let hue = Node::new("AdjustHue").attr("T", DType::F32);
    assert_eq!(
        fails(&hue, &[zeros(&[2, 2, 4]), zeros(&[])]),
        invalid("AdjustHue: input must have 3 channels but instead has 4 channels.")
    );
}

fn pair(values: [f32; 2]) -> Input {
    HostTensor::f32(&[2], &values).into()
}

/// A line of more positions than llvmpipe's iterations is reduced to one, and the other way around.
#[test]
fn scaling_a_long_line_to_one_pixel() {
    let n = 140_000;
    let node = |op| {
        let node = Node::new(op).attr("T", DType::F32).attr("antialias", true);
        node.attr("kernel_type", "triangle")
    };
    let xv: Vec<f32> = (0..n).map(|i| 1.0 + (i % 3) as f32).collect();
    let x = HostTensor::f32(&[1, 1, n, 1], &xv);
    let maps = [pair([1.0, 1.0 / n as f32]), pair([0.0, 0.0])];
    let inputs = [x.clone().into(), host(&[1, 1]), maps[0].clone(), maps[1].clone()];
    let y = run(&node("ScaleAndTranslate"), &inputs).to_f64();
    assert!((y[0] - 2.0).abs() < 1e-3, "{y:?}");
    // One pixel is read by all.
    let maps = [pair([1.0, n as f32]), pair([0.0, 0.0])];
    let one = HostTensor::f32(&[1; 4], &[0.0]);
    let inputs = [x.into(), one.into(), maps[0].clone(), maps[1].clone()];
    let dx = run(&node("ScaleAndTranslateGrad"), &inputs).to_f64();
    let want: f64 = xv.iter().map(|v| f64::from(*v)).sum();
    assert!((dx[0] / want - 1.0).abs() < 1e-3, "{dx:?} {want}");
}

/// The gradient is the transpose: (S x) · g is x · (S^T g).
#[test]
fn scale_and_translate_and_its_gradient() {
    scaling();
}

#[test]
fn scaling_where_loops_are_short() {
    under(Profile { loop_limit: 2, ..session().device.profile() }, scaling);
}

fn scaling() {
    let mut random = Random::new(3);
    let kernels = ["lanczos1", "lanczos3", "lanczos5", "gaussian"];
    for kernel in kernels.into_iter().chain(["box", "triangle", "keyscubic", "mitchellcubic"]) {
        for (old, new, scale, translation, channels) in [
            ([5, 7], [9, 4], [1.8, 0.6], [0.0, 0.0], 3),
            ([9, 8], [3, 2], [0.3, 0.25], [0.1, 0.0], 4),
            ([6, 5], [6, 5], [1.0, 1.0], [0.5, -1.25], 1),
        ] {
            let node = |op| {
                let node = Node::new(op).attr("T", DType::F32).attr("antialias", true);
                node.attr("kernel_type", kernel)
            };
            let (x, xv) = random.tensor(DType::F32, &[2, old[0], old[1], channels]);
            let (g, gv) = random.tensor(DType::F32, &[2, new[0], new[1], channels]);
            let size = host(&new.map(|n| n as i32));
            let maps = [pair(scale), pair(translation)];
            let inputs = [x.clone().into(), size, maps[0].clone(), maps[1].clone()];
            let y = run(&node("ScaleAndTranslate"), &inputs).to_f64();
            let [scale, translation] = maps;
            let inputs = [g.into(), x.into(), scale, translation];
            let dx = run(&node("ScaleAndTranslateGrad"), &inputs).to_f64();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let (forward, back) = (dot(&y, &gv), dot(&xv, &dx));
            assert!((forward - back).abs() < 1e-4 * (1.0 + forward.abs()), "{kernel} {old:?}");
        }
    }
}

#[test]
fn a_triangle_without_antialiasing_interpolates() {
    let node = Node::new("ScaleAndTranslate").attr("T", DType::U8).attr("antialias", false);
    let x = HostTensor::of(DType::U8, &[1, 1, 3, 1], &[10u8, 20, 250]);
    let inputs = [x.into(), host(&[1, 6]), pair([1.0, 2.0]), pair([0.0, 0.0])];
    let y = run(&node.attr("kernel_type", "triangle"), &inputs);
    assert_eq!(y.dtype, DType::F32);
    // Weights outside of the image are left out, and the rest adds up to 1.
    assert_eq!(y.to_f64(), [10.0, 12.5, 17.5, 77.5, 192.5, 250.0]);
}

/// More boxes than llvmpipe's iterations; the first half of them are elsewhere.
#[test]
fn boxes_beyond_the_iterations_of_a_loop() {
    let n = 140_001;
    let of = |i: usize| match i {
        3 => [0.0, 0.0, 1.0, 1.0],
        70_000 => [0.0, 0.0, 0.0, 1.0],
        140_000 => [1.0, 0.0, 1.0, 0.0],
        _ => [2.0; 4],
    };
    let boxes: Vec<f32> = (0..n).flat_map(of).collect();
    for dtype in [DType::F32, DType::F16] {
        let node = Node::new("DrawBoundingBoxesV2").attr("T", dtype);
        let x = HostTensor::floats(dtype, &[1, 3, 3, 1], &[9.0; 9]);
        let colors = HostTensor::f32(&[7, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let boxes = HostTensor::f32(&[1, n, 4], &boxes);
        let y = run(&node, &[x.into(), boxes.into(), colors.into()]);
        let [first, second, third] = [3, 70_000, 140_000].map(|i| f64::from(i % 7) + 1.0);
        #[rustfmt::skip]
        let want = [
            second, second, second,
            first, 9.0, first,
            third, first, first,
        ];
        assert_eq!(y.to_f64(), want, "{dtype}");
    }
    under(Profile { loop_limit: 4, ..session().device.profile() }, last_box);
}

#[test]
fn the_last_box_is_seen() {
    last_box();
}

fn last_box() {
    let node = Node::new("DrawBoundingBoxesV2").attr("T", DType::F32);
    let x = HostTensor::f32(&[1, 4, 4, 1], &[9.0; 16]);
    let boxes = [0.0f32, 0.0, 1.0, 1.0, -0.5, 0.4, 0.4, 2.0, 0.9, 0.0, 0.1, 1.0];
    let boxes = HostTensor::f32(&[1, 3, 4], &boxes);
    let colors = HostTensor::f32(&[2, 1], &[1.0, 2.0]);
    let y = run(&node, &[x.clone().into(), boxes.clone().into(), colors.into()]);
    #[rustfmt::skip]
    let want = [
        1.0, 2.0, 1.0, 1.0,
        1.0, 2.0, 2.0, 2.0,
        1.0, 9.0, 9.0, 1.0,
        1.0, 1.0, 1.0, 1.0,
    ];
    assert_eq!(y.to_f64(), want);
    let few = HostTensor::f32(&[0, 0], &[]);
    let error = session().run(&node, &[x.into(), boxes.into(), few.into()]).unwrap_err();
    let message = "colors must have equal or more channels than the image provided: [0,0]";
    assert_eq!(error, Error::InvalidArgument(format!("DrawBoundingBoxesV2: {message}")));
}
