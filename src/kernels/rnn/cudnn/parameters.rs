//! The parameters of a network, or their gradients, in the computation's type. Matrices have the
//! same shapes for every [`Storage`].

use super::extents::PARAMS;
use super::model::{Layout, Storage};
use super::product::Matrix;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::rnn::values::wide;
use crate::kernels::windows::part;
use crate::tensor::Tensor;

/// The parameters. Pseudo-layers are counted as [`Layout`] does.
#[derive(Debug)]
pub struct Parameters {
    layout: Layout,
    tensors: Vec<Tensor>,
}

impl Parameters {
    /// Reads the inputs.
    pub fn read(ctx: &mut dyn OpContext, layout: Layout) -> Result<Self> {
        let mut tensors = Vec::new();
        for i in 0..layout.model.tensors() {
            let tensor = ctx.input(PARAMS + i)?;
            tensors.push(wide(ctx, &tensor)?);
        }
        Ok(Self::of(layout, tensors))
    }

    /// The parameters in tensors of the shapes [`Layout::shapes`].
    pub const fn of(layout: Layout, tensors: Vec<Tensor>) -> Self {
        Self { layout, tensors }
    }

    /// The weights of the input of a pseudo-layer: [element of the input, gate and unit].
    pub fn input(&self, p: usize) -> Matrix {
        let Layout { model, units, .. } = self.layout;
        let (gates, width) = (model.mode.gates() * units, self.layout.width(p / model.directions));
        let tensor = self.tensor(p, self.layout.weights_at(p), width * gates);
        match model.storage {
            Storage::Vector => Matrix::whole(&tensor, width).turned(),
            Storage::Tensors => Matrix::whole(&tensor, gates),
        }
    }

    /// The recurrent weights of a pseudo-layer, in the order of their storage.
    pub fn recurrent(&self, p: usize) -> Tensor {
        let len = self.layout.recurrent_weights();
        self.tensor(self.layout.model.directions + p, self.layout.recurrent_at(p), len)
    }

    /// The projection of a pseudo-layer: [output, unit].
    pub fn projection(&self, p: usize) -> Matrix {
        let Layout { units, outputs, .. } = self.layout;
        Matrix::new(&self.tensors[0], self.layout.projection_at(p), outputs, units, units)
    }

    /// The biases of a pseudo-layer: [`super::model::Model::biases`] for each gate and unit.
    pub fn biases(&self, p: usize) -> Tensor {
        let Layout { model, units, .. } = self.layout;
        let len = model.biases() * model.mode.gates() * units;
        self.tensor(2 * model.directions + p, self.layout.bias_at(p), len)
    }

    /// Tensor `i`, or the part of the vector that begins at element `at`.
    fn tensor(&self, i: usize, at: usize, len: usize) -> Tensor {
        match self.layout.model.storage {
            Storage::Vector => part(&self.tensors[0], at, len),
            Storage::Tensors => part(&self.tensors[i], 0, len),
        }
    }
}

impl Layout {
    /// The recurrent weights of `count` gates from gate `first` on, of all the recurrent weights of
    /// a pseudo-layer in `tensor`: [output, gate and unit].
    pub fn recurrent(&self, tensor: &Tensor, first: usize, count: usize) -> Matrix {
        let Self { model, units, outputs, .. } = *self;
        match model.storage {
            Storage::Vector => {
                let at = first * units * outputs;
                Matrix::new(tensor, at, count * units, outputs, outputs).turned()
            }
            Storage::Tensors => {
                let stride = model.mode.gates() * units;
                Matrix::new(tensor, first * units, outputs, count * units, stride)
            }
        }
    }
}
