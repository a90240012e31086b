//! GFLOP/s of matrix products and convolutions on the first adapter: `cargo bench --bench contract`.
//!
//! Each figure is the median of several runs on tensors that are on the device; a run ends when the device is idle, so that one
//! submission is part of it. `benches/RESULTS.md` has recorded figures.

use std::sync::Mutex;
use std::time::Instant;

use tensorflow_wgpu::kernels::op::{Attrs, OpContext};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{DType, HostTensor, Result};

const RUNS: usize = 7;

fn zeros(dims: &[usize]) -> HostTensor {
    HostTensor::f32(dims, &vec![0.5; dims.iter().product()])
}

fn sizes(dims: &[usize]) -> HostTensor {
    HostTensor::i32(&[dims.len()], &dims.iter().map(|d| *d as i32).collect::<Vec<_>>())
}

/// Runs the node's kernel and prints its rate.
fn measure(name: &str, node: &Node, inputs: &[HostTensor], flops: f64) -> Result<()> {
    let mut session = Session::shared()?;
    let registration = session.registry().find(node.op(), |attr| node.dtype(attr).ok()).expect("a registered op");
    let kernel = (registration.create)(node)?;
    let times = Mutex::new(Vec::new());
    let timed = |ctx: &mut dyn OpContext| -> Result<()> {
        for _ in 0..=RUNS {
            let start = Instant::now();
            kernel.compute(ctx)?;
            ctx.device().synchronize()?;
            times.lock().expect("no panic").push(start.elapsed().as_secs_f64());
        }
        Ok(())
    };
    let inputs: Vec<_> = inputs.iter().cloned().map(Into::into).collect();
    session.run_kernel(&timed, &inputs)?;
    let mut times = times.into_inner().expect("no panic");
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    let median = times[RUNS / 2];
    println!("{name:44} {:8.2} GFLOP/s  {:8.2} ms  first {:8.1} ms", flops / median / 1e9, median * 1e3, first * 1e3);
    Ok(())
}

fn matmul(m: usize, k: usize, n: usize, transpose_b: bool) -> Result<()> {
    let node = Node::new("MatMul").attr("T", DType::F32).attr("transpose_a", false).attr("transpose_b", transpose_b);
    let b = if transpose_b { [n, k] } else { [k, n] };
    let name = format!("MatMul {m}x{k}x{n}{}", if transpose_b { " b transposed" } else { "" });
    measure(&name, &node, &[zeros(&[m, k]), zeros(&b)], 2.0 * (m * k * n) as f64)
}

fn conv([batch, size, channels, filters, kernel]: [usize; 5]) -> Result<()> {
    let node = |suffix: &str| {
        Node::new(&format!("Conv2D{suffix}"))
            .attr("T", DType::F32)
            .attr("strides", &[1i64; 4][..])
            .attr("dilations", &[1i64; 4][..])
            .attr("padding", "SAME")
            .attr("data_format", "NHWC")
    };
    let (x, w, y) = ([batch, size, size, channels], [kernel, kernel, channels, filters], [batch, size, size, filters]);
    let flops = 2.0 * (batch * size * size * channels * filters * kernel * kernel) as f64;
    let name = |what: &str| format!("Conv {kernel}x{kernel} {batch}x{size}x{size} {channels}->{filters} {what}");
    measure(&name("forward"), &node(""), &[zeros(&x), zeros(&w)], flops)?;
    measure(&name("input"), &node("BackpropInput"), &[sizes(&x), zeros(&w), zeros(&y)], flops)?;
    measure(&name("filter"), &node("BackpropFilter"), &[zeros(&x), sizes(&w), zeros(&y)], flops)
}

fn main() -> Result<()> {
    let session = Session::shared()?;
    let info = session.device.info();
    println!("{} ({:?}, {} {})", info.name, info.backend, info.driver, info.driver_info);
    matmul(1024, 1024, 1024, false)?;
    matmul(1024, 1024, 1024, true)?;
    matmul(1, 1024, 1024, false)?;
    conv([8, 56, 64, 64, 3])?;
    conv([8, 14, 256, 1024, 1])?;
    conv([32, 8, 1, 16, 3])
}
