//! The values that training keeps for the gradient, in the output `reserve_space`.
//!
//! Each layer has, in this order:
//!
//! - for each direction, the gates of all rows (as [`super::steps`] leaves them), for an LSTM with
//!   the cells;
//! - if outputs are projected, the values of the units;
//! - except in the last layer, the outputs of all rows and, with dropout, the factors that they
//!   were multiplied by.
//!
//! A layer of one gate keeps its outputs alone. All values are in the type of the computation.

use super::extents::Extents;
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Where the values are, in elements of the computation's type.
#[derive(Debug, Clone, Copy)]
pub struct Reserve {
    saved: usize,
    unprojected: usize,
    outputs: usize,
    drops: bool,
    layers: usize,
    directions: usize,
}

impl Reserve {
    /// The reserve of a network.
    pub fn new(extents: &Extents) -> Self {
        let (model, units, rows) = (extents.layout.model, extents.layout.units, extents.rows());
        let saved = match model.mode.slots() {
            1 => 0,
            _ => rows * units * model.mode.saved(),
        };
        Self {
            saved,
            unprojected: if extents.layout.projects() { rows * extents.unit_width() } else { 0 },
            outputs: rows * extents.width(),
            drops: model.dropout > 0.0,
            layers: extents.layout.layers,
            directions: model.directions,
        }
    }

    const fn of_layer(&self) -> usize {
        self.directions * self.saved + self.unprojected + self.outputs * (1 + self.drops as usize)
    }

    /// Where the outputs of a layer are.
    const fn outputs_at(&self, layer: usize) -> usize {
        layer * self.of_layer() + self.directions * self.saved + self.unprojected
    }

    /// The total number of elements.
    pub const fn len(&self) -> usize {
        // The last layer's outputs are outputs of the op.
        self.layers * self.of_layer() - self.outputs * (1 + self.drops as usize)
    }

    /// Elements of `dtype` that hold the reserve.
    pub fn len_in(&self, dtype: DType) -> usize {
        self.len() * dtype.accumulator().size() / dtype.size()
    }

    /// The values that steps save for a layer, direction by direction.
    pub fn saved(&self, tensor: &Tensor, layer: usize) -> Tensor {
        self.part(tensor, layer * self.of_layer(), self.directions * self.saved)
    }

    /// The values of a layer's units, if outputs are projected.
    pub fn unprojected(&self, tensor: &Tensor, layer: usize) -> Tensor {
        let at = layer * self.of_layer() + self.directions * self.saved;
        self.part(tensor, at, self.unprojected)
    }

    /// The outputs of a layer that is not the last.
    pub fn outputs(&self, tensor: &Tensor, layer: usize) -> Tensor {
        self.part(tensor, self.outputs_at(layer), self.outputs)
    }

    /// The factors of these outputs, if there is dropout.
    pub fn factors(&self, tensor: &Tensor, layer: usize) -> Option<Tensor> {
        let at = self.outputs_at(layer) + self.outputs;
        self.drops.then(|| self.part(tensor, at, self.outputs))
    }

    /// `len` elements of a tensor of the op's type, in the computation's type.
    fn part(&self, tensor: &Tensor, at: usize, len: usize) -> Tensor {
        let real = tensor.dtype.accumulator();
        Tensor::new(real, &[len], tensor.address + (at * real.size()) as u64)
    }
}
