//! burn on its wgpu backend. Speaks the protocol of `benches/peers/rows.py`: reads a row's key from
//! standard input and prints a line of JSON for it.
//!
//! Fusion runs operations when they are needed, and leaves out results that are never used. So each
//! result is kept alive until the device is told to run its queue.

use std::collections::HashMap;
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use burn::backend::Dispatch;
use burn::backend::ops::ModuleOps;
use burn::tensor::activation::{gelu_approximate, softmax};
use burn::tensor::module::{conv2d, conv2d_weight_backward, layer_norm, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Distribution, Tensor};
use cpu_time::ProcessTime;

const MILLION: usize = 1 << 20;
/// How many seconds a measurement should last.
const SECONDS: f64 = 0.2;

/// Does a row's work this number of times and waits for the last one.
type Run = Box<dyn Fn(usize)>;

fn random<const D: usize>(device: &Device, dims: [usize; D]) -> Tensor<D> {
    Tensor::random(dims, Distribution::Uniform(-1.0, 1.0), device)
}

/// Repeats `work`.
fn repeat<const D: usize>(device: &Device, work: impl Fn() -> Tensor<D> + 'static) -> Run {
    let device = device.clone();
    Box::new(move |times| {
        for _ in 0..times {
            let result = work();
            device.flush().expect("the device takes work");
            drop(result);
        }
        device.sync().expect("the device ends its work");
    })
}

/// 1000 sums, all of which are kept, so that all are computed; burn chooses how many go into a
/// dispatch.
fn small(device: &Device) -> Run {
    let (x, y, device) = (random(device, [64]), random(device, [64]), device.clone());
    Box::new(move |times| {
        for _ in 0..times {
            let sums: Vec<_> = (0..1000).map(|_| x.clone() + y.clone()).collect();
            device.flush().expect("the device takes work");
            drop(sums);
        }
        device.sync().expect("the device ends its work");
    })
}

fn floats<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec().expect("floats")
}

/// Compares some elements of a product or convolution with sums on the host.
fn check(what: &str, got: &[f32], expected: impl Fn(usize) -> f64) {
    for i in (0..16).map(|i| i * 7919 % got.len()) {
        let (got, expected) = (f64::from(got[i]), expected(i));
        assert!(
            (got - expected).abs() < 1e-3,
            "{what} is wrong: element {i} is {got}, not {expected}"
        );
    }
}

fn product(device: &Device) -> Run {
    const N: usize = 1024;
    let (a, b) = (random(device, [N, N]), random(device, [N, N]));
    let (left, right) = (floats(&a), floats(&b));
    check("a product", &floats(&a.clone().matmul(b.clone())), |i| {
        (0..N).map(|k| f64::from(left[i / N * N + k]) * f64::from(right[k * N + i % N])).sum()
    });
    repeat(device, move || a.clone().matmul(b.clone()))
}

/// The part of a convolution that a row computes.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Forward,
    Input,
    Filter,
}

/// A convolution with `size`² filters of stride 1, whose result is as large as its input.
fn convolution(device: &Device, side: Side, [n, h, c, filters, size]: [usize; 5]) -> Run {
    let options = move || ConvOptions::new([1, 1], [size / 2, size / 2], [1, 1], 1);
    let (x, w) = (random(device, [n, c, h, h]), random(device, [filters, c, size, size]));
    let y = random(device, [n, filters, h, h]);
    if side == Side::Forward {
        let (values, weights) = (floats(&x), floats(&w));
        check("a convolution", &floats(&conv2d(x.clone(), w.clone(), None, options())), |i| {
            let (image, filter, row, column) =
                (i / (filters * h * h), i / (h * h) % filters, i / h % h, i % h);
            let terms =
                (0..c * size * size).map(|k| (k / (size * size), k / size % size, k % size));
            let inside = terms.map(|(c, p, q)| (c, p, q, row + p, column + q));
            let pad = size / 2;
            let inside = inside
                .filter(|(.., p, q)| (pad..h + pad).contains(p) && (pad..h + pad).contains(q));
            inside
                .map(|(channel, p, q, from_p, from_q)| {
                    let at = ((image * c + channel) * h + from_p - pad) * h + from_q - pad;
                    f64::from(values[at])
                        * f64::from(weights[((filter * c + channel) * size + p) * size + q])
                })
                .sum()
        });
    }
    match side {
        Side::Forward => repeat(device, move || conv2d(x.clone(), w.clone(), None, options())),
        Side::Input => repeat(device, move || {
            let [x, w, y] = [&x, &w, &y].map(|t| t.clone().into_dispatch());
            Tensor::<4>::from_dispatch(<Dispatch as ModuleOps<Dispatch>>::conv2d_x_backward(
                x,
                w,
                y,
                options(),
            ))
        }),
        Side::Filter => repeat(device, move || {
            conv2d_weight_backward(x.clone(), w.clone(), y.clone(), options())
        }),
    }
}

/// The row with this key, if it is known. There is no transposition: it only swaps strides, which
/// later operations may keep.
fn make(device: &Device, key: &str) -> Option<Run> {
    let (three, one) = ([8, 56, 64, 64, 3], [8, 14, 256, 1024, 1]);
    let rows = || random(device, [4096, 1024]);
    let large = || random(device, [16 * MILLION]);
    Some(match key {
        "matmul" => product(device),
        "conv3" => convolution(device, Side::Forward, three),
        "conv3_x" => convolution(device, Side::Input, three),
        "conv3_w" => convolution(device, Side::Filter, three),
        "conv1" => convolution(device, Side::Forward, one),
        "conv1_x" => convolution(device, Side::Input, one),
        "conv1_w" => convolution(device, Side::Filter, one),
        "add" => {
            let (x, y) = (large(), large());
            repeat(device, move || x.clone() + y.clone())
        }
        "gelu" => {
            let x = large();
            repeat(device, move || gelu_approximate(x.clone()))
        }
        "softmax" => {
            let x = rows();
            repeat(device, move || softmax(x.clone(), 1))
        }
        "layer_norm" => {
            let (x, gamma, beta) = (rows(), random(device, [1024]), random(device, [1024]));
            repeat(device, move || layer_norm(x.clone(), gamma.clone(), Some(beta.clone()), 1e-3))
        }
        "sum_last" | "sum_first" => {
            let (x, axis) = (random(device, [4096, 4096]), usize::from(key == "sum_last"));
            repeat(device, move || x.clone().sum_dim(axis))
        }
        "max_pool" => {
            let x = random(device, [8, 64, 112, 112]);
            let options = || MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
            repeat(device, move || max_pool2d(x.clone(), options()))
        }
        "small" => small(device),
        _ => return None,
    })
}

/// Seconds of a unit of work, by the wall clock and of all processors.
fn measure(run: &Run) -> [f64; 2] {
    let start = Instant::now();
    run(1);
    let count = ((SECONDS / start.elapsed().as_secs_f64()).round() as usize).clamp(1, 1000);
    let (start, cpu) = (Instant::now(), ProcessTime::now());
    run(count);
    [start.elapsed(), cpu.elapsed()].map(|time| time.as_secs_f64() / count as f64)
}

fn main() {
    let device = Device::wgpu(Default::default());
    let tuned = if std::path::Path::new("cubecl.toml").exists() {
        "as cubecl.toml says"
    } else {
        "as by default"
    };
    println!("{{\"about\": \"burn 0.22 on wgpu by WGSL, with fusion, tuned {tuned}\"}}");
    let mut made: HashMap<String, Run> = HashMap::new();
    for key in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = catch_unwind(AssertUnwindSafe(|| {
            if !made.contains_key(&key) {
                let run = make(&device, &key)?;
                run(1);
                made.insert(key.clone(), run);
            }
            Some(measure(&made[&key]))
        }));
        match answer {
            Ok(Some([seconds, cpu])) => {
                println!("{{\"row\": \"{key}\", \"seconds\": {seconds:e}, \"cpu\": {cpu:e}}}");
            }
            Ok(None) => println!("{{\"row\": \"{key}\", \"absent\": true}}"),
            // The panic's text is on standard error.
            Err(_) => println!("{{\"row\": \"{key}\", \"error\": \"it panicked\"}}"),
        }
    }
}
