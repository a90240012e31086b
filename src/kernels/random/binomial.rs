//! `StatefulRandomBinomial`, for `tf.random.Generator.binomial`. TensorFlow has only a CPU kernel,
//! which cannot reach a generator on the device. Counts and probabilities are in host memory, and
//! the samples take 64-bit floats, which many adapters lack: they are drawn on the host, number for
//! number as TensorFlow's CPU kernel does.

use super::distribution::advance;
use super::inputs;
use super::philox::Generator;
use super::variable::{STATE, check_state};
use crate::dtype::DType::{self, *};
use crate::dtype::types::FLOATS_BUT_BF16;
use crate::dtype::union;
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext, VariableUpdate};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::tensor::{HostTensor, Tensor};
use crate::{invalid, require};

const OUTPUTS: &[DType] = union!(FLOATS_BUT_BF16, &[I32, I64]);

/// Samples that TensorFlow reserves on the stream for each output that is drawn by inversion.
const SAMPLES_OF_INVERSION: u64 = 42;

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry
        .op("StatefulRandomBinomial")
        .types("dtype", OUTPUTS)
        .types("T", FLOATS_BUT_BF16)
        .host(&["resource", "algorithm", "shape", "counts", "probs"])
        .note("is drawn on the host, which waits for the generator's state")
        .kernel(|attrs: &dyn Attrs| {
            let dtype = attrs.dtype("dtype")?;
            Ok(move |ctx: &mut dyn OpContext| compute(ctx, dtype))
        });
}

/// Inputs: resource, algorithm, shape, counts, probs.
fn compute(ctx: &mut dyn OpContext, dtype: DType) -> Result<()> {
    let algorithm = ctx.host_input(1)?;
    let text = inputs::text;
    require!(
        algorithm.dims.is_empty(),
        "algorithm must be of shape [], not {}",
        text(&algorithm.dims)
    );
    let algorithm = algorithm.to_i64()?[0];
    let shape = ctx.host_input(2)?;
    require!(
        shape.dims.len() == 1,
        "Input shape should be a vector, got shape: {}",
        text(&shape.dims)
    );
    let dims = inputs::shape(ctx, 2)?;
    let (counts, probs) = (ctx.host_input(3)?, ctx.host_input(4)?);
    let Ok(batch) = broadcast_dims(&counts.dims, &probs.dims) else {
        invalid!(
            "counts and probs must have compatible batch dimensions: {} vs. {}",
            text(&counts.dims),
            text(&probs.dims)
        );
    };
    require!(dims.ends_with(&batch), "Shape passed in must end with broadcasted shape.");
    require!(algorithm == 1, "Unsupported algorithm id: {algorithm}");
    check_state(&ctx.read_variable(0)?)?;
    let output = ctx.output(0, dtype, &dims)?;
    let batches: usize = batch.iter().product();
    let each: usize = dims[..dims.len() - batch.len()].iter().product();
    // The outputs that TensorFlow takes off the stream.
    let taken = (batches as u64 * 2 * 100).wrapping_mul(each as u64 + 3) / 4;
    let mut generator = Generator { counter: [0; 4], key: [0; 2] };
    ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, state| {
        check_state(state)?;
        let mut bytes = [0; 8 * STATE];
        ctx.device().download(state.address, &mut bytes)?;
        let [a, b, c, d, k, l]: [u32; 6] = bytemuck::pod_read_unaligned(&bytes);
        generator = Generator { counter: [a, b, c, d], key: [k, l] };
        advance(ctx.device(), state, taken.wrapping_mul(super::SAMPLES_PER_OUTPUT))
    })?;
    if output.is_empty() {
        return Ok(());
    }
    let walk = Iteration::over(&batch).broadcast(&counts.dims).broadcast(&probs.dims);
    let (counts, probs) = (counts.to_f64(), probs.to_f64());
    let mut drawn = vec![0.0; output.len()];
    for b in 0..batches {
        let [count, prob] = [(0, &counts), (1, &probs)].map(|(k, v)| v[place(&walk, &batch, k, b)]);
        for s in 0..each {
            drawn[s * batches + b] = sample(count, prob, generator, (b * each + s) as u64);
        }
    }
    store(ctx, &output, &drawn)
}

/// Where element `b` of a batch lies in operand `k`.
fn place(walk: &Iteration, batch: &[usize], k: usize, b: usize) -> usize {
    let (mut rest, mut at) = (b, 0);
    for (extent, stride) in batch.iter().zip(walk.strides(k)).rev() {
        at += rest % extent * *stride as usize;
        rest /= extent;
    }
    at
}

/// Copies the samples to the output. A value that an integer type cannot hold becomes its lowest
/// value, and NaN becomes 0, as on x86.
fn store(ctx: &dyn OpContext, output: &Tensor, drawn: &[f64]) -> Result<()> {
    let dims = &output.dims;
    let fits = |v: f64, limit: f64| v >= -limit && v < limit;
    let host = match output.dtype {
        I32 => {
            let whole = |v: &f64| match *v {
                v if v.is_nan() => 0,
                v if fits(v, 2f64.powi(31)) => v as i32,
                _ => i32::MIN,
            };
            HostTensor::i32(dims, &drawn.iter().map(whole).collect::<Vec<_>>())
        }
        I64 => {
            let whole = |v: &f64| match *v {
                v if v.is_nan() => 0,
                v if fits(v, 2f64.powi(63)) => v as i64,
                _ => i64::MIN,
            };
            HostTensor::i64(dims, &drawn.iter().map(whole).collect::<Vec<_>>())
        }
        dtype => HostTensor::floats(dtype, dims, drawn),
    };
    let mut bytes = host.bytes;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    ctx.device().upload(output.address, &bytes)
}

/// The number of successes, for output `index` of the generator.
fn sample(count: f64, prob: f64, generator: Generator, index: u64) -> f64 {
    if count <= 0.0 || prob <= 0.0 {
        0.0
    } else if prob >= 1.0 {
        count
    } else if prob.is_nan() || count.is_nan() {
        f64::NAN
    } else if prob <= 0.5 {
        successes(count, prob, generator, index)
    } else {
        count - successes(count, 1.0 - prob, generator, index)
    }
}

fn successes(count: f64, prob: f64, mut generator: Generator, index: u64) -> f64 {
    let rejects = count * prob >= 10.0;
    let reserved = if rejects { super::SAMPLES_PER_OUTPUT } else { SAMPLES_OF_INVERSION };
    generator.skip(reserved.wrapping_mul(index));
    let mut uniforms = Uniforms { generator, left: 0, pair: [0.0; 2] };
    if rejects {
        by_rejection(count, prob, &mut uniforms)
    } else {
        by_inversion(count, prob, &mut uniforms)
    }
}

/// Uniform numbers of 52 bits: each sample of 128 bits gives two, the second one first.
struct Uniforms {
    generator: Generator,
    left: usize,
    pair: [f64; 2],
}

impl Uniforms {
    fn next(&mut self) -> f64 {
        if self.left == 0 {
            let [a, b, c, d] = self.generator.sample();
            self.generator.skip(1);
            self.pair = [(a, b), (c, d)].map(|(high, low)| {
                let mantissa = u64::from(high & 0xf_ffff) << 32 | u64::from(low);
                f64::from_bits(1023 << 52 | mantissa) - 1.0
            });
            self.left = 2;
        }
        self.left -= 1;
        self.pair[self.left]
    }
}

/// Adds up geometric numbers until they exceed the count.
fn by_inversion(count: f64, prob: f64, uniforms: &mut Uniforms) -> f64 {
    let (mut sum, mut successes) = (0.0, 0);
    loop {
        sum += (uniforms.next().ln() / (-prob).ln_1p()).ceil();
        if sum > count {
            return f64::from(successes);
        }
        successes += 1;
    }
}

/// The remainder of Stirling's approximation of the logarithm of k!.
fn stirling_tail(k: f64) -> f64 {
    const TAILS: [f64; 10] = [
        0.081_061_466_795_327_2,
        0.041_340_695_955_409_2,
        0.027_677_925_684_998_3,
        0.020_790_672_103_765_09,
        0.016_644_691_189_821_1,
        0.013_876_128_823_070_1,
        0.011_896_709_945_891_7,
        0.010_411_265_261_972,
        0.009_255_462_182_712_73,
        0.008_330_563_433_362_87,
    ];
    if k <= 9.0 {
        return TAILS[k as usize];
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

/// Hörmann's transformed rejection ("The generation of binomial random variates", 1993), for counts
/// whose mean is 10 or more.
fn by_rejection(count: f64, prob: f64, uniforms: &mut Uniforms) -> f64 {
    let stddev = (count * prob * (1.0 - prob)).sqrt();
    let b = 1.15 + 2.53 * stddev;
    let a = -0.0873 + 0.0248 * b + 0.01 * prob;
    let c = count * prob + 0.5;
    let v_r = 0.92 - 4.2 / b;
    let r = prob / (1.0 - prob);
    let alpha = (2.83 + 5.1 / b) * stddev;
    let m = ((count + 1.0) * prob).floor();
    loop {
        let u = uniforms.next() - 0.5;
        let v = uniforms.next();
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + c).floor();
        // This is the region in which the box is tight.
        if us >= 0.07 && v <= v_r {
            return k;
        }
        if k < 0.0 || k > count {
            continue;
        }
        let v = (v * alpha / (a / (us * us) + b)).ln();
        let bound = (m + 0.5) * ((m + 1.0) / (r * (count - m + 1.0))).ln()
            + (count + 1.0) * ((count - m + 1.0) / (count - k + 1.0)).ln()
            + (k + 0.5) * (r * (count - k + 1.0) / (k + 1.0)).ln()
            + stirling_tail(m)
            + stirling_tail(count - m)
            - stirling_tail(k)
            - stirling_tail(count - k);
        if v <= bound {
            return k;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_those_of_the_distribution() {
        for (count, prob) in [(7.0, 0.2), (40.0, 0.5), (1e5, 0.9), (3.0, 0.7)] {
            let n = 20_000u32;
            let generator = Generator::seeded(1, 2);
            let drawn: Vec<f64> =
                (0..n).map(|i| sample(count, prob, generator, i.into())).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(n);
            let variance = drawn.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n);
            let wanted = count * prob * (1.0 - prob);
            assert!((mean - count * prob).abs() < 5.0 * (wanted / f64::from(n)).sqrt());
            assert!((variance / wanted - 1.0).abs() < 0.05, "{variance} {wanted}");
        }
    }

    #[test]
    fn the_edges_are_certain() {
        let generator = Generator::seeded(1, 2);
        assert_eq!(sample(-1.0, 0.5, generator, 0), 0.0);
        assert_eq!(sample(5.0, -0.5, generator, 0), 0.0);
        assert_eq!(sample(5.0, 1.5, generator, 0), 5.0);
        assert!(sample(5.0, f64::NAN, generator, 0).is_nan());
        assert!(sample(f64::NAN, 0.5, generator, 0).is_nan());
    }
}
