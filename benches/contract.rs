//! GFLOP/s of matrix products and convolutions on the first adapter: `cargo bench --bench contract [part of a name]`.
//!
//! Each figure is the median of several runs on tensors that are on the device; a run ends when the device is idle, so that one
//! submission is part of it. On Linux a second rate counts the processor time of all threads of this process instead, times the
//! processors: a software adapter computes in this process, and on a machine that does other work that rate is the one that
//! holds. `benches/RESULTS.md` has recorded figures.

use std::sync::Mutex;
use std::time::Instant;

use tensorflow_wgpu::kernels::op::{Attrs, OpContext};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{DType, HostTensor, Result};

const RUNS: usize = 5;

fn filled(dims: &[usize]) -> HostTensor {
    HostTensor::f32(dims, &vec![0.5; dims.iter().product()])
}

fn sizes(dims: &[usize]) -> HostTensor {
    HostTensor::i32(&[dims.len()], &dims.iter().map(|d| *d as i32).collect::<Vec<_>>())
}

/// Seconds of processor time that the threads of this process have taken, where the system tells.
fn processor_seconds() -> Option<f64> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(nanoseconds as f64 / 1e9)
}

/// One median of a list that it sorts.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs the node's kernel and prints its rate, if its name was asked for.
fn measure(name: &str, node: &Node, inputs: &[HostTensor], flops: f64) -> Result<()> {
    let mut parts = std::env::args().skip(1).filter(|part| !part.starts_with("--")).peekable();
    if parts.peek().is_some() && !parts.any(|part| name.contains(&part)) {
        return Ok(());
    }
    let mut session = Session::shared()?;
    let registration = session.registry().find(node.op(), |attr| node.dtype(attr).ok()).expect("a registered op");
    let kernel = (registration.create)(node)?;
    let runs = Mutex::new(Vec::new());
    let timed = |ctx: &mut dyn OpContext| -> Result<()> {
        for _ in 0..=RUNS {
            let (start, before) = (Instant::now(), processor_seconds());
            kernel.compute(ctx)?;
            ctx.device().synchronize()?;
            let processor = processor_seconds().zip(before).map(|(after, before)| after - before);
            runs.lock().expect("no panic").push((start.elapsed().as_secs_f64(), processor));
        }
        Ok(())
    };
    let inputs: Vec<_> = inputs.iter().cloned().map(Into::into).collect();
    session.run_kernel(&timed, &inputs)?;
    let mut runs = runs.into_inner().expect("no panic");
    let first = runs.remove(0).0;
    let wall = median(runs.iter().map(|r| r.0).collect());
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let processor: Option<Vec<f64>> = runs.iter().map(|r| r.1).collect();
    let rate = |seconds: f64| flops / seconds / 1e9;
    let busy = processor.map_or("–".to_owned(), |p| format!("{:.2}", rate(median(p)) * processors));
    println!(
        "{name:46} {:8.2} GFLOP/s, by processor time {busy:>6}; {:8.2} ms, first {:8.1} ms",
        rate(wall),
        wall * 1e3,
        first * 1e3
    );
    Ok(())
}

fn matmul([m, k, n]: [usize; 3], [transpose_a, transpose_b]: [bool; 2]) -> Result<()> {
    let node =
        Node::new("MatMul").attr("T", DType::F32).attr("transpose_a", transpose_a).attr("transpose_b", transpose_b);
    let a = if transpose_a { [k, m] } else { [m, k] };
    let b = if transpose_b { [n, k] } else { [k, n] };
    let turned = |x: &str, transposed| if transposed { format!(" {x} transposed") } else { String::new() };
    let name = format!("MatMul {m}x{k}x{n}{}{}", turned("a", transpose_a), turned("b", transpose_b));
    measure(&name, &node, &[filled(&a), filled(&b)], 2.0 * (m * k * n) as f64)
}

fn node(op: &str) -> Node {
    Node::new(op)
        .attr("T", DType::F32)
        .attr("strides", &[1i64; 4][..])
        .attr("dilations", &[1i64; 4][..])
        .attr("padding", "SAME")
        .attr("data_format", "NHWC")
}

fn conv([batch, size, channels, filters, kernel]: [usize; 5]) -> Result<()> {
    let (x, w, y) = ([batch, size, size, channels], [kernel, kernel, channels, filters], [batch, size, size, filters]);
    let flops = 2.0 * (batch * size * size * channels * filters * kernel * kernel) as f64;
    let name = |what: &str| format!("Conv {kernel}x{kernel} {batch}x{size}x{size} {channels}->{filters} {what}");
    measure(&name("forward"), &node("Conv2D"), &[filled(&x), filled(&w)], flops)?;
    measure(&name("input"), &node("Conv2DBackpropInput"), &[sizes(&x), filled(&w), filled(&y)], flops)?;
    measure(&name("filter"), &node("Conv2DBackpropFilter"), &[filled(&x), sizes(&w), filled(&y)], flops)
}

fn depthwise([batch, size, channels, kernel]: [usize; 4]) -> Result<()> {
    let (x, w) = ([batch, size, size, channels], [kernel, kernel, channels, 1]);
    let flops = 2.0 * (batch * size * size * channels * kernel * kernel) as f64;
    let name = |what: &str| format!("Depthwise {kernel}x{kernel} {batch}x{size}x{size} {channels} {what}");
    let op = |suffix: &str| node(&format!("DepthwiseConv2dNative{suffix}"));
    measure(&name("forward"), &op(""), &[filled(&x), filled(&w)], flops)?;
    measure(&name("input"), &op("BackpropInput"), &[sizes(&x), filled(&w), filled(&x)], flops)?;
    measure(&name("filter"), &op("BackpropFilter"), &[filled(&x), sizes(&w), filled(&x)], flops)
}

fn main() -> Result<()> {
    let session = Session::shared()?;
    let info = session.device.info();
    println!("{} ({:?}, {} {})", info.name, info.backend, info.driver, info.driver_info);
    for transposes in [[false, false], [false, true], [true, false], [true, true]] {
        matmul([1024, 1024, 1024], transposes)?;
    }
    matmul([1, 1024, 1024], [false, false])?;
    matmul([1, 1024, 1024], [false, true])?;
    matmul([1024, 1024, 1], [false, false])?;
    matmul([4096, 64, 4096], [false, false])?;
    matmul([64, 4096, 64], [true, false])?;
    matmul([16384, 128, 10], [false, false])?;
    conv([8, 56, 64, 64, 3])?;
    conv([8, 14, 256, 1024, 1])?;
    conv([8, 7, 512, 512, 3])?;
    conv([8, 112, 3, 64, 7])?;
    conv([32, 8, 1, 16, 3])?;
    depthwise([8, 56, 144, 3])
}
