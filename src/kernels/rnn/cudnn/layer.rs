//! `_WgpuRecurrentLayer` and its gradient: a layer of a kind that CudnnRNN cannot express.
//!
//! TensorFlow checks `rnn_mode` by the definition of CudnnRNN, and cuDNN has no GRU whose reset
//! gate comes before the product, nor other activations. So the Python package replaces the loops
//! of such layers by an op of ours. Its arguments are those of CudnnRNNV3, without those that a
//! single layer does not need; sequences come before steps, so that the shapes tell the shape
//! function all that it must know.

use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};

/// The op.
pub const NAME: &str = "_WgpuRecurrentLayer";
/// The op of its gradient.
pub const GRAD: &str = "_WgpuRecurrentLayerGrad";

const TYPE: &str = "T: {float, half, bfloat16, double}";
const MODE: &str = "rnn_mode: {'gru_reset_before', 'rnn_linear', 'rnn_sigmoid'}";
const DIRECTION: &str = "direction: {'unidirectional', 'bidirectional'} = 'unidirectional'";

/// The signatures of both ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: NAME,
        inputs: &["input: T", "input_h: T", "input_c: T", "params: T", "sequence_lengths: int32"],
        outputs: &["output: T", "output_h: T", "output_c: T", "reserve_space: T"],
        attrs: &[TYPE, MODE, DIRECTION, "is_training: bool = true"],
        stateful: false,
        shape: forward,
    },
    OpDefinition {
        name: GRAD,
        inputs: &[
            "input: T",
            "input_h: T",
            "input_c: T",
            "params: T",
            "sequence_lengths: int32",
            "output: T",
            "output_h: T",
            "output_c: T",
            "output_backprop: T",
            "output_h_backprop: T",
            "output_c_backprop: T",
            "reserve_space: T",
        ],
        outputs: &[
            "input_backprop: T",
            "input_h_backprop: T",
            "input_c_backprop: T",
            "params_backprop: T",
        ],
        attrs: &[TYPE, MODE, DIRECTION],
        stateful: false,
        shape: backward,
    },
];

/// The shapes [sequences, steps, elements] and [sequences, directions, units].
fn forward(node: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [input, state, ..] = node.shapes else { return Ok(Vec::new()) };
    let extent = |shape: &PartialShape, i: usize| shape.as_ref().and_then(|s| *s.get(i)?);
    let width = extent(state, 1).zip(extent(state, 2)).map(|(directions, n)| directions * n);
    let output = Some(vec![extent(input, 0), extent(input, 1), width]);
    Ok(vec![output, state.clone(), Some(Vec::new())])
}

/// The gradients have the shapes of the first four inputs.
fn backward(node: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(node.shapes.iter().take(4).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_as_wide_as_the_units_of_all_directions() {
        let shapes = |shapes: &[PartialShape]| {
            forward(&ShapeInputs { shapes, dtype: &|_| None }).unwrap()[0].clone()
        };
        let input = Some(vec![None, Some(7), Some(5)]);
        let states = Some(vec![None, Some(2), Some(4)]);
        assert_eq!(shapes(&[input.clone(), states]), Some(vec![None, Some(7), Some(8)]));
        assert_eq!(shapes(&[input, None]), Some(vec![None, Some(7), None]));
        assert_eq!(shapes(&[None, None]), Some(vec![None; 3]));
    }
}
