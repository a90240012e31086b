//! `_WgpuRecurrentLayer` and its gradient: a layer with the weights as Keras has them.
//!
//! A kernel is [element of the input, gate, unit], a recurrent kernel [output, gate, unit], a bias
//! [gate, unit]; a GRU whose reset gate comes behind the product has two biases in one tensor. Each
//! direction has tensors of its own. The Python package replaces the loops of such layers by this
//! op. It also has the kinds of layers that CudnnRNN cannot express: TensorFlow checks `rnn_mode`
//! by the definition of CudnnRNN, and cuDNN has no GRU whose reset gate comes before the product,
//! nor other activations. States are [sequence, direction, unit], so that the shapes tell the shape
//! function all that it must know.

use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};

/// The op.
pub const NAME: &str = "_WgpuRecurrentLayer";
/// The op of its gradient.
pub const GRAD: &str = "_WgpuRecurrentLayerGrad";

const TYPE: &str = "T: {float, half, bfloat16, double}";
const MODE: &str = "rnn_mode: {'gru', 'gru_reset_before', 'lstm', 'rnn_linear', 'rnn_relu', \
                    'rnn_sigmoid', 'rnn_tanh'}";
const DIRECTIONS: &str = "directions: int >= 1";
const TIME_MAJOR: &str = "time_major: bool = false";

/// The signatures of both ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: NAME,
        inputs: &[
            "input: T",
            "input_h: T",
            "input_c: T",
            "kernels: directions * T",
            "recurrent_kernels: directions * T",
            "biases: directions * T",
            "sequence_lengths: int32",
        ],
        outputs: &["output: T", "output_h: T", "output_c: T", "reserve_space: T"],
        attrs: &[TYPE, MODE, DIRECTIONS, TIME_MAJOR, "is_training: bool = true"],
        stateful: false,
        shape: forward,
    },
    OpDefinition {
        name: GRAD,
        inputs: &[
            "input: T",
            "input_h: T",
            "input_c: T",
            "kernels: directions * T",
            "recurrent_kernels: directions * T",
            "biases: directions * T",
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
            "kernels_backprop: directions * T",
            "recurrent_kernels_backprop: directions * T",
            "biases_backprop: directions * T",
        ],
        attrs: &[TYPE, MODE, DIRECTIONS, TIME_MAJOR],
        stateful: false,
        shape: backward,
    },
];

/// The outputs are as wide as the units of all directions.
fn forward(node: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [input, state, cells, ..] = node.shapes else { return Ok(Vec::new()) };
    let extent = |shape: &PartialShape, i: usize| shape.as_ref().and_then(|s| *s.get(i)?);
    let width = extent(state, 1).zip(extent(state, 2)).map(|(directions, n)| directions * n);
    let output = Some(vec![extent(input, 0), extent(input, 1), width]);
    Ok(vec![output, state.clone(), cells.clone()])
}

/// The gradients have the shapes of the inputs before the lengths, which are eight from the end.
fn backward(node: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(node.shapes.iter().take(node.shapes.len().saturating_sub(8)).cloned().collect())
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
        assert_eq!(shapes(&[input.clone(), states, None]), Some(vec![None, Some(7), Some(8)]));
        assert_eq!(shapes(&[input, None, None]), Some(vec![None, Some(7), None]));
        assert_eq!(shapes(&[None, None, None]), Some(vec![None; 3]));
    }

    #[test]
    fn gradients_have_the_shapes_of_inputs_and_parameters() {
        let all: Vec<PartialShape> = (0..15).map(|i| Some(vec![Some(i)])).collect();
        let found = backward(&ShapeInputs { shapes: &all, dtype: &|_| None }).unwrap();
        assert_eq!(found, all[..7]);
    }
}
