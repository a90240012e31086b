//! Transforms against the sum that defines them, in f64, and against themselves if that sum takes
//! too long.

use std::f64::consts::TAU;

use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::fft::{ROWS, Real};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

type C = [f64; 2];

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn mul(a: C, b: C) -> C {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Numbers in [-1, 1).
fn values(n: usize, real: bool) -> Vec<C> {
    let mut state = n as u64 * 2 + 1;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(((state >> 40) as f64 / f64::from(1 << 23) - 1.0) as f32)
    };
    (0..n).map(|_| [next(), if real { 0.0 } else { next() }]).collect()
}

fn tensor(dtype: DType, dims: &[usize], v: &[C]) -> HostTensor {
    match dtype {
        C64 => HostTensor::of(
            C64,
            dims,
            &v.iter().map(|z| [z[0] as f32, z[1] as f32]).collect::<Vec<_>>(),
        ),
        C128 => HostTensor::of(C128, dims, v),
        _ => HostTensor::floats(dtype, dims, &v.iter().map(|z| z[0]).collect::<Vec<_>>()),
    }
}

fn elements(t: &HostTensor) -> Vec<C> {
    match t.dtype {
        C64 => t.values::<[f32; 2]>().into_iter().map(|z| z.map(f64::from)).collect(),
        C128 => t.values::<[f64; 2]>(),
        _ => t.to_f64().into_iter().map(|v| [v, 0.0]).collect(),
    }
}

/// The definition along one axis of [outer, extent, inner]: the first n elements, with zeros if
/// there are fewer.
fn along(v: &[C], [outer, extent, inner]: [usize; 3], n: usize, inverse: bool) -> Vec<C> {
    let sign = if inverse { 1.0 } else { -1.0 };
    let roots: Vec<C> =
        (0..n).map(|k| (TAU * k as f64 / n as f64).sin_cos()).map(|(s, c)| [c, sign * s]).collect();
    let scale = if inverse { n as f64 } else { 1.0 };
    let mut out = Vec::with_capacity(outer * n * inner);
    for o in 0..outer {
        for k in 0..n {
            for c in 0..inner {
                let mut sum = [0.0, 0.0];
                for j in 0..n.min(extent) {
                    let t = mul(v[(o * extent + j) * inner + c], roots[j * k % n]);
                    sum = [sum[0] + t[0], sum[1] + t[1]];
                }
                out.push(sum.map(|p| p / scale));
            }
        }
    }
    out
}

/// The first `kept` elements of an axis, or those and the conjugates of its first half.
fn resize(v: &[C], dims: &mut [usize], axis: usize, kept: usize, mirror: bool) -> Vec<C> {
    let (extent, inner): (usize, usize) = (dims[axis], dims[axis + 1..].iter().product());
    let outer: usize = dims[..axis].iter().product();
    dims[axis] = kept;
    let mut out = Vec::new();
    for o in 0..outer {
        for k in 0..kept {
            let folded = mirror && k > kept / 2;
            let at = if folded { kept - k } else { k };
            let line = &v[(o * extent + at) * inner..][..inner];
            out.extend(line.iter().map(|z| if folded { [z[0], -z[1]] } else { *z }));
        }
    }
    out
}

/// The result of an op: dims and elements.
fn reference(
    v: &[C],
    dims: &[usize],
    lengths: &[usize],
    real: Real,
    inverse: bool,
) -> (Vec<usize>, Vec<C>) {
    let first = dims.len() - lengths.len();
    let (mut dims, mut v) = (dims.to_vec(), v.to_vec());
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    if real != Real::Output {
        order.reverse();
    }
    for i in order {
        let (axis, innermost) = (first + i, i + 1 == lengths.len());
        if real == Real::Output && innermost {
            v = resize(&v, &mut dims, axis, lengths[i], true);
        }
        let shape = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
        v = along(&v, shape, lengths[i], inverse);
        dims[axis] = lengths[i];
        if real == Real::Input && innermost {
            v = resize(&v, &mut dims, axis, lengths[i] / 2 + 1, false);
        }
        if real == Real::Output && innermost {
            v.iter_mut().for_each(|z| z[1] = 0.0);
        }
    }
    (dims, v)
}

/// The root mean square of the error, as a share of that of the values.
fn error(got: &[C], wanted: &[C]) -> f64 {
    let power = |v: &mut dyn Iterator<Item = C>| v.map(|z| z[0] * z[0] + z[1] * z[1]).sum::<f64>();
    let difference = power(&mut got.iter().zip(wanted).map(|(g, w)| [g[0] - w[0], g[1] - w[1]]));
    (difference / power(&mut wanted.iter().copied()).max(f64::MIN_POSITIVE)).sqrt()
}

fn node(op: &str, part: DType) -> Node {
    Node::new(op).attr("Tcomplex", part.complex()).attr("Treal", part)
}

fn tolerance(part: DType) -> f64 {
    if part == F64 { 2e-15 } else { 1e-6 }
}

fn input_type(real: Real, part: DType) -> DType {
    if real == Real::Input { part } else { part.complex() }
}

fn parts(session: &Session) -> Vec<DType> {
    [F32, F64].into_iter().filter(|t| session.runs(*t)).collect()
}

fn vector(v: &[usize]) -> HostTensor {
    HostTensor::i32(&[v.len()], &v.iter().map(|n| *n as i32).collect::<Vec<_>>())
}

fn check(session: &mut Session, op: &str, part: DType, dims: &[usize], lengths: &[usize]) {
    let row = ROWS.iter().find(|r| r.op == op).expect("a row");
    let v = values(dims.iter().product(), row.real == Real::Input);
    let mut inputs = vec![tensor(input_type(row.real, part), dims, &v).into()];
    if row.real != Real::Neither || op.ends_with("ND") {
        inputs.push(vector(lengths).into());
    }
    if op.ends_with("ND") {
        inputs.push(vector(&(dims.len() - lengths.len()..dims.len()).collect::<Vec<_>>()).into());
    }
    let y = session
        .run(&node(op, part), &inputs)
        .unwrap_or_else(|e| panic!("{op} {part} {dims:?}: {e}"));
    let (wanted_dims, wanted) = reference(&v, dims, lengths, row.real, row.inverse);
    assert_eq!(y[0].dims[..], wanted_dims[..], "{op} {dims:?} {lengths:?}");
    let e = error(&elements(&y[0]), &wanted);
    assert!(e < tolerance(part), "{op} {part} {dims:?} {lengths:?}: error {e:e}");
}

#[test]
fn every_short_length() {
    let mut session = session();
    for part in parts(&session) {
        for n in
            (1..=34).chain([49, 64, 81, 97, 100, 121, 128, 210, 251, 256, 400, 509, 1000, 1024])
        {
            check(&mut session, "FFT", part, &[2, n], &[n]);
            if n % 3 == 0 || n > 90 {
                check(&mut session, "IFFT", part, &[3, n], &[n]);
                check(&mut session, "RFFT", part, &[2, n], &[n]);
                check(&mut session, "IRFFT", part, &[2, n / 2 + 1], &[n]);
            }
        }
    }
}

/// Software adapters take two numbers at a time, with larger radices; the programs of GPUs differ.
#[test]
fn the_programs_of_gpus() {
    let mut session = Session::under(Profile::NVIDIA).unwrap();
    for n in [2, 6, 32, 100, 1024] {
        check(&mut session, "FFT", F32, &[3, n], &[n]);
        check(&mut session, "IFFT", F32, &[2, n], &[n]);
        check(&mut session, "RFFT", F32, &[2, n], &[n]);
    }
    check(&mut session, "FFT2D", F32, &[2, 32, 10], &[32, 10]);
    check(&mut session, "RFFT2D", F32, &[2, 6, 12], &[6, 12]);
}

/// Pairs of butterflies in first and later passes, of lines, and numbers that cannot be paired.
#[test]
fn pairs_of_numbers() {
    let mut session = session();
    for n in [2, 4, 60, 64, 96, 480, 2048] {
        check(&mut session, "FFT", F32, &[3, n], &[n]);
        check(&mut session, "IFFT", F32, &[3, n], &[n]);
        check(&mut session, "RFFT", F32, &[3, n], &[n]);
    }
    for dims in [[1, 64, 6], [2, 34, 4], [2, 60, 3], [1, 1024, 2]] {
        check(&mut session, "FFT2D", F32, &dims, &dims[1..]);
        check(&mut session, "IFFT2D", F32, &dims, &dims[1..]);
    }
    session.misalign = 1;
    check(&mut session, "FFT", F32, &[3, 128], &[128]);
    check(&mut session, "RFFT", F32, &[3, 128], &[128]);
}

#[test]
fn several_axes() {
    let mut session = session();
    for part in parts(&session) {
        check(&mut session, "FFT2D", part, &[2, 6, 10], &[6, 10]);
        check(&mut session, "IFFT2D", part, &[17, 8], &[17, 8]);
        check(&mut session, "FFT3D", part, &[2, 3, 4, 5], &[3, 4, 5]);
        check(&mut session, "IFFT3D", part, &[7, 19, 2], &[7, 19, 2]);
        check(&mut session, "RFFT2D", part, &[2, 9, 12], &[9, 12]);
        check(&mut session, "RFFT3D", part, &[4, 5, 7], &[4, 5, 7]);
        check(&mut session, "IRFFT2D", part, &[2, 6, 5], &[6, 8]);
        check(&mut session, "IRFFT3D", part, &[3, 4, 5], &[3, 4, 9]);
        check(&mut session, "FFTND", part, &[2, 3, 2, 5], &[3, 2, 5]);
        check(&mut session, "IFFTND", part, &[3, 4], &[3, 4]);
        check(&mut session, "RFFTND", part, &[3, 4, 5], &[4, 5]);
        check(&mut session, "IRFFTND", part, &[2, 4, 5], &[4, 8]);
    }
}

/// Longer input is cut. For complex input of several axes, shorter input is extended with zeros.
#[test]
fn lengths_other_than_the_input() {
    let mut session = session();
    check(&mut session, "RFFT", F32, &[3, 20], &[8]);
    check(&mut session, "RFFT", F32, &[3, 40], &[23]);
    check(&mut session, "RFFT2D", F32, &[7, 9], &[5, 6]);
    check(&mut session, "IRFFT", F32, &[3, 20], &[7]);
    check(&mut session, "IRFFT", F32, &[3, 40], &[46]);
    check(&mut session, "IRFFT2D", F32, &[6, 9], &[4, 10]);
    check(&mut session, "FFTND", F32, &[2, 5, 9], &[8, 4]);
    check(&mut session, "IFFTND", F32, &[2, 5], &[19]);
}

/// A single oscillation gives a single line, and going back gives the input.
#[test]
fn long_lines() {
    let mut session = session();
    for n in [1usize << 20, 65_537, 300_000] {
        let v = values(n, false);
        let x = tensor(C64, &[n], &v);
        let y = session.run(&node("FFT", F32), &[x.into()]).unwrap();
        let back = session.run(&node("IFFT", F32), &[y[0].clone().into()]).unwrap();
        let e = error(&elements(&back[0]), &v);
        assert!(e < 2e-6, "{n}: there and back {e:e}");
        // Some elements of the spectrum, by the definition.
        let y = elements(&y[0]);
        let picked: Vec<usize> = (0..5).map(|i| (i * 7_368_787 + 1) % n).collect();
        let exact: Vec<C> = picked
            .iter()
            .map(|k| {
                v.iter().enumerate().fold([0.0, 0.0], |sum, (j, z)| {
                    let (s, c) = (TAU * ((j * k) % n) as f64 / n as f64).sin_cos();
                    let t = mul(*z, [c, -s]);
                    [sum[0] + t[0], sum[1] + t[1]]
                })
            })
            .collect();
        // The share of the root mean square of all lines: some are weak.
        let scale = (2.0 * n as f64 / 3.0).sqrt();
        for (k, wanted) in picked.iter().zip(&exact) {
            let d = (y[*k][0] - wanted[0]).hypot(y[*k][1] - wanted[1]) / scale;
            assert!(d < 3e-6, "{n}: line {k} is off by {d:e}");
        }
    }
}

#[test]
fn many_lines() {
    let mut session = session();
    let (rows, n) = (70_000, 12);
    let v = values(rows * n, true);
    let y = session
        .run(&node("RFFT", F32), &[tensor(F32, &[rows, n], &v).into(), vector(&[n]).into()])
        .unwrap();
    let (_, wanted) = reference(&v, &[rows, n], &[n], Real::Input, false);
    assert!(error(&elements(&y[0]), &wanted) < 6e-7);
}

/// More lines than one binding holds: they are transformed in turn.
#[test]
fn windows() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let (n, rows) = (20, limit / (20 * 8) + 77);
    let line = values(n, false);
    let v: Vec<C> = (0..rows)
        .flat_map(|r| line.iter().map(move |z| z.map(|p| p * (1 + r % 3) as f64)))
        .collect();
    let y = session.run(&node("FFT", F32), &[tensor(C64, &[rows, n], &v).into()]).unwrap();
    let (_, wanted) = reference(&line, &[n], &[n], Real::Neither, false);
    let y = elements(&y[0]);
    for r in (0..rows).step_by(997).chain([rows - 1]) {
        let scaled: Vec<C> = wanted.iter().map(|z| z.map(|p| p * (1 + r % 3) as f64)).collect();
        assert!(error(&y[r * n..][..n], &scaled) < 1e-6, "line {r}");
    }
}

#[test]
fn misaligned_and_batch_names() {
    let mut session = session();
    session.misalign = 1;
    let v = values(60, false);
    for op in ["FFT", "BatchFFT"] {
        let y = session.run(&node(op, F32), &[tensor(C64, &[4, 15], &v).into()]).unwrap();
        let (_, wanted) = reference(&v, &[4, 15], &[15], Real::Neither, false);
        assert!(error(&elements(&y[0]), &wanted) < 6e-7);
    }
    let y = session.run(&node("BatchIFFT2D", F32), &[tensor(C64, &[4, 15], &v).into()]).unwrap();
    let (_, wanted) = reference(&v, &[4, 15], &[4, 15], Real::Neither, true);
    assert!(error(&elements(&y[0]), &wanted) < 6e-7);
}

#[test]
fn empty_tensors() {
    let mut session = session();
    let y = session.run(&node("FFT", F32), &[tensor(C64, &[0, 4], &[]).into()]).unwrap();
    assert_eq!(y[0].dims[..], [0, 4]);
    let y = session.run(
        &node("RFFT", F32),
        &[tensor(F32, &[2, 3], &values(6, true)).into(), vector(&[0]).into()],
    );
    assert_eq!(y.unwrap()[0].dims[..], [2, 0]);
    let y = session
        .run(&node("RFFT", F32), &[tensor(F32, &[2, 0], &[]).into(), vector(&[4]).into()])
        .unwrap();
    assert_eq!((&y[0].dims[..], elements(&y[0])), (&[2, 3][..], vec![[0.0, 0.0]; 6]));
}

#[test]
fn errors() {
    let mut session = session();
    let mut message = |op: &str, dims: &[usize], more: &[HostTensor]| {
        let row = ROWS.iter().find(|r| r.op == op).expect("a row");
        let x = tensor(input_type(row.real, F32), dims, &values(dims.iter().product(), true));
        let inputs: Vec<_> = [x].iter().chain(more).cloned().map(Into::into).collect();
        match session.run(&node(op, F32), &inputs) {
            Err(Error::InvalidArgument(m)) => m,
            other => format!("{other:?}"),
        }
    };
    let v = |list: &[i32]| HostTensor::i32(&[list.len()], list);
    for (got, expected) in [
        (message("FFT2D", &[3], &[]), "Input must have rank of at least 2 but got: [3]"),
        (
            message("RFFT", &[2, 3], &[v(&[4])]),
            "Input dimension 1 must have length of at least 4 but got: 3",
        ),
        (
            message("IRFFT", &[2, 3], &[v(&[6])]),
            "Input dimension 1 must have length of at least 4 but got: 3",
        ),
        (message("RFFT", &[2, 3], &[v(&[-1])]), "fft_length[0] must >= 0, but got: -1"),
        (message("RFFT2D", &[2, 3], &[v(&[2])]), "fft_length must have shape [2]"),
        (
            message("FFTND", &[2, 3], &[v(&[2, 3]), v(&[1, 0])]),
            "axes must be successive and ascending.",
        ),
        (
            message("FFTND", &[2, 3], &[v(&[2]), v(&[0])]),
            "The last axis to perform transform on must be -1.",
        ),
        (
            message("FFTND", &[2, 3], &[v(&[2, 3]), v(&[1])]),
            "fft_length must have shape [1], but got: 2.",
        ),
    ] {
        assert!(got.contains(expected), "expected {expected:?}, got {got:?}");
    }
}
