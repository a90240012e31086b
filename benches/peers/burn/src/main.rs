//! burn on its wgpu backend. Prints what `benches/peers/rows.py` describes: a line of JSON for each row.

use std::time::Instant;

use burn::tensor::activation::{gelu_approximate, softmax};
use burn::tensor::module::{conv2d, layer_norm};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Distribution, Tensor};

const MILLION: usize = 1 << 20;

fn random<const D: usize>(device: &Device, dims: [usize; D]) -> Tensor<D> {
    Tensor::random(dims, Distribution::Uniform(-1.0, 1.0), device)
}

/// Runs `work` so many times and reads one element of the last result, which waits for all of them.
fn run<const D: usize>(work: &dyn Fn() -> Tensor<D>, times: usize) -> f64 {
    let start = Instant::now();
    let mut last = work();
    for _ in 1..times {
        last = work();
    }
    let first: [std::ops::Range<usize>; D] = std::array::from_fn(|_| 0..1);
    let _ = last.slice(first).into_data();
    start.elapsed().as_secs_f64()
}

/// Prints the seconds of a row: the time of several less that of one, which contains the wait.
fn measure<const D: usize>(row: &str, repeat: usize, work: &dyn Fn() -> Tensor<D>) {
    run(work, 1);
    let one = run(work, 1);
    let count = ((0.1 / one) as usize + 1).clamp(2, 200) * repeat;
    let mut times: Vec<f64> = (0..3).map(|_| -run(work, 1) + run(work, count + 1)).collect();
    times.sort_by(f64::total_cmp);
    let seconds = (times[1] / count as f64 * repeat as f64).max(1e-9);
    println!("{{\"row\": \"{row}\", \"seconds\": {seconds:e}}}");
}

fn main() {
    let device = Device::wgpu(Default::default());
    println!("{{\"about\": \"burn 0.22, wgpu\"}}");
    let (a, b) = (random(&device, [1024, 1024]), random(&device, [1024, 1024]));
    measure("matmul", 1, &|| a.clone().matmul(b.clone()));
    let (x, w) = (random(&device, [8, 64, 56, 56]), random(&device, [64, 64, 3, 3]));
    measure("conv3", 1, &|| conv2d(x.clone(), w.clone(), None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1)));
    let (x, w) = (random(&device, [8, 256, 14, 14]), random(&device, [1024, 256, 1, 1]));
    measure("conv1", 1, &|| conv2d(x.clone(), w.clone(), None, ConvOptions::new([1, 1], [0, 0], [1, 1], 1)));
    let (x, y) = (random(&device, [16 * MILLION]), random(&device, [16 * MILLION]));
    measure("add", 1, &|| x.clone() + y.clone());
    measure("gelu", 1, &|| gelu_approximate(x.clone()));
    let x = random(&device, [4096, 1024]);
    measure("softmax", 1, &|| softmax(x.clone(), 1));
    let (gamma, beta) = (random(&device, [1024]), random(&device, [1024]));
    measure("layer_norm", 1, &|| layer_norm(x.clone(), gamma.clone(), Some(beta.clone()), 1e-3));
    let x = random(&device, [4096, 4096]);
    measure("sum_last", 1, &|| x.clone().sum_dim(1));
    measure("sum_first", 1, &|| x.clone().sum_dim(0));
    let (x, y) = (random(&device, [64]), random(&device, [64]));
    measure("small", 1000, &|| x.clone() + y.clone());
}
