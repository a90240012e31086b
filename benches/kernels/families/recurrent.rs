//! Recurrent layers: whole sequences, forward and backward.

use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::{DType, HostTensor};

use crate::case::{Case, Sizes, Source, f32s};

/// Steps of a sequence.
const STEPS: usize = 64;

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let mut cases = vec![block_lstm(32, 32, 256)];
    let batch = if sizes.large { 256 } else { 32 };
    for (mode, gates) in [("lstm", 4), ("gru", 3)] {
        for (batch, units) in [(4, 128), (batch, 128), (batch, 512)] {
            cases.extend([false, true].map(|back| layer(mode, gates, batch, units, back)));
        }
    }
    cases
}

/// A layer of `units` units, as wide as its input.
fn layer(mode: &str, gates: usize, batch: usize, units: usize, back: bool) -> Case {
    let rows = STEPS * batch;
    let (sequences, states) = ([STEPS, batch, units], [1, batch, units]);
    let cells = if mode == "lstm" { f32s(&states) } else { f32s(&[]) };
    let mut inputs = vec![
        f32s(&sequences),
        f32s(&states),
        cells.clone(),
        f32s(&[gates * units * (2 * units + 2)]),
    ];
    let saved = if mode == "lstm" { 5 } else { 4 };
    if back {
        inputs.extend([f32s(&sequences), f32s(&states), cells.clone()]);
        inputs.extend([f32s(&sequences), f32s(&states), cells, f32s(&[saved * rows * units])]);
    }
    let node = Node::new(if back { "CudnnRNNBackprop" } else { "CudnnRNN" })
        .attr("T", DType::F32)
        .attr("rnn_mode", mode)
        .attr("input_mode", "linear_input")
        .attr("direction", "unidirectional")
        .attr("dropout", 0.0_f32)
        .attr("seed", 1)
        .attr("seed2", 2);
    let node = if back { node } else { node.attr("is_training", true) };
    let products = if back { 8.0 } else { 4.0 };
    let way = if back { ", gradients" } else { "" };
    let name = format!("{mode} {STEPS} steps, batch {batch}, width {units}{way}");
    Case::new("rnn", name, node, inputs).flops(products * (rows * units * gates * units) as f64)
}

fn block_lstm(steps: usize, batch: usize, width: usize) -> Case {
    let node = Node::new("BlockLSTMV2")
        .attr("T", DType::F32)
        .attr("use_peephole", false)
        .attr("cell_clip", 0.0_f32);
    let state = || f32s(&[batch, width]);
    let peephole = || f32s(&[width]);
    let inputs = [
        Source::Value(HostTensor::i64(&[], &[steps as i64])),
        f32s(&[steps, batch, width]),
        state(),
        state(),
        f32s(&[2 * width, 4 * width]),
        peephole(),
        peephole(),
        peephole(),
        f32s(&[4 * width]),
    ];
    let flops = 2.0 * (steps * batch * 2 * width * 4 * width) as f64;
    let name = format!("BlockLSTMV2 {steps} steps, batch {batch}, width {width}");
    Case::new("rnn", name, node, inputs).flops(flops)
}
