//! Networks whose outputs are projected: h = P m, where m holds the values of an LSTM's units.
//!
//! Steps see outputs only through the recurrent weights R, and R h = (R P) m. So the steps are
//! those of a network without a projection, whose recurrent weights are the product R P and whose
//! outputs are m; all outputs are then one product. No m stands for the outputs before the first
//! step, so they are added to the inputs' part of the first step's gates: m is zero before it.
//!
//! Gradients take the same way back. The gradient of R P is that of recurrent weights. The
//! gradients of R and of P follow from it; the first steps and the outputs add their parts to them.

use super::ends::{Columns, End, Ends, States};
use super::extents::Extents;
use super::model::Layout;
use super::parameters::Parameters;
use super::product::{Matrix, multiply, multiply_apart};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::rnn::values::{clear, combine};
use crate::kernels::windows::part;
use crate::tensor::Tensor;

/// The projection of a layer.
#[derive(Debug)]
pub struct Projection<'a> {
    extents: &'a Extents,
    layer: usize,
    params: &'a Parameters,
    lengths: Option<&'a Tensor>,
    /// R P of each direction, in the layout of recurrent weights: [gate, unit, unit].
    pub recurrent: Tensor,
}

/// The gradient of the outputs of a layer whose outputs are projected.
#[derive(Debug)]
pub struct Slopes {
    /// The gradients of the outputs of all steps, and of the last outputs as states.
    dy: Tensor,
    /// The gradients of the units' values.
    pub dm: Tensor,
}

/// The tensors that the gradients of a direction's projection are computed from.
#[derive(Debug, Clone, Copy)]
pub struct Back<'a> {
    /// The gradients of the outputs.
    pub slopes: &'a Slopes,
    /// The values of the units.
    pub m: &'a Tensor,
    /// Gradients of the gates of all rows.
    pub grads: &'a Tensor,
    /// Numbers that `grads` has for each unit and row.
    pub numbers: usize,
    /// The gradient of R P.
    pub d_recurrent: &'a Tensor,
    /// Outputs before the first step.
    pub before: &'a Tensor,
    /// Gradients of the outputs after the last step.
    pub d_after: &'a Tensor,
    /// Receives the gradients of the outputs before the first step.
    pub d_before: &'a Tensor,
    /// Receives the gradients of the parameters.
    pub d_params: &'a Parameters,
}

impl<'a> Projection<'a> {
    /// The projection of a layer; None if its outputs are not projected.
    pub fn of(
        ctx: &mut dyn OpContext,
        extents: &'a Extents,
        layer: usize,
        params: &'a Parameters,
        lengths: Option<&'a Tensor>,
    ) -> Result<Option<Self>> {
        let Layout { model, units, .. } = extents.layout;
        if !extents.layout.projects() {
            return Ok(None);
        }
        let rows = model.mode.gates() * units;
        let recurrent = ctx.temp(model.real(), &[model.directions, rows * units])?;
        let this = Self { extents, layer, params, lengths, recurrent };
        for direction in 0..model.directions {
            let own = Matrix::new(&this.recurrent, direction * rows * units, rows, units, units);
            let (r, p) = (this.weights(params, direction), this.matrix(params, direction));
            multiply(ctx, &r, &p, &own)?;
        }
        Ok(Some(this))
    }

    /// Adds the part of the outputs before the first step to its gates.
    pub fn begin(&self, ctx: &mut dyn OpContext, before: &Tensor, gates: &Tensor) -> Result<()> {
        let Layout { model, units, .. } = self.extents.layout;
        let columns = model.mode.gates() * units;
        let width = model.mode.saved() * units;
        let len = self.extents.rows() * width;
        let sums = ctx.temp(gates.dtype, &[self.extents.batch, columns])?;
        for direction in 0..model.directions {
            let r = self.weights(self.params, direction).turned();
            multiply(ctx, &self.state_rows(before, direction), &r, &Matrix::whole(&sums, columns))?;
            let own = part(gates, direction * len, len);
            let to = Columns { tensor: &own, at: 0, count: columns, width };
            let from = States { tensor: &sums, at: 0, stride: columns };
            self.ends(direction).add(ctx.device(), End::First, to, from)?;
        }
        Ok(())
    }

    /// Computes the outputs `y` of all steps and those after the last one from the units' values.
    pub fn finish(
        &self,
        ctx: &mut dyn OpContext,
        m: &Tensor,
        y: &Tensor,
        [before, after]: [&Tensor; 2],
    ) -> Result<()> {
        let outputs = self.extents.layout.outputs;
        for direction in 0..self.extents.layout.model.directions {
            let p = self.matrix(self.params, direction).turned();
            multiply_apart(ctx, &self.unit_rows(m, direction), &p, &self.rows(y, direction))?;
            let ends = self.ends(direction);
            let from = self.columns(y, direction);
            ends.take(ctx.device(), End::Last, from, self.states(after, direction))?;
            ends.keep_idle(ctx.device(), outputs, self.states(before, direction), after)?;
        }
        Ok(())
    }

    /// Computes the gradients of the units' values from those of the outputs.
    pub fn slopes(&self, ctx: &mut dyn OpContext, dy: &Tensor, d_after: &Tensor) -> Result<Slopes> {
        let all = ctx.temp(dy.dtype, &dy.dims)?;
        ctx.device().copy(all.address, dy.address, dy.bytes())?;
        let extents = self.extents;
        let dm = ctx.temp(dy.dtype, &[extents.rows(), extents.unit_width()])?;
        for direction in 0..extents.layout.model.directions {
            let (to, from) = (self.columns(&all, direction), self.states(d_after, direction));
            self.ends(direction).add(ctx.device(), End::Last, to, from)?;
            let p = self.matrix(self.params, direction);
            multiply_apart(ctx, &self.rows(&all, direction), &p, &self.unit_rows(&dm, direction))?;
        }
        Ok(Slopes { dy: all, dm })
    }

    /// The gradients of a direction's recurrent weights, of its projection and of its outputs
    /// before the first step.
    pub fn back(&self, ctx: &mut dyn OpContext, direction: usize, of: &Back<'_>) -> Result<()> {
        let Layout { model, units, outputs, .. } = self.extents.layout;
        let (gates, batch) = (model.mode.gates() * units, self.extents.batch);
        let first = ctx.temp(of.grads.dtype, &[batch, gates])?;
        clear(ctx, &first)?;
        let ends = self.ends(direction);
        let width = of.numbers * units;
        let from = Columns { tensor: of.grads, at: 0, count: gates, width };
        let to = States { tensor: &first, at: 0, stride: gates };
        ends.take(ctx.device(), End::First, from, to)?;
        let first = Matrix::whole(&first, gates);
        let d_product = Matrix::whole(of.d_recurrent, units);
        let (r, p) = (self.weights(self.params, direction), self.matrix(self.params, direction));

        let d_r = self.weights(of.d_params, direction);
        multiply(ctx, &d_product, &p.turned(), &d_r)?;
        let before = self.state_rows(of.before, direction);
        self.add_product(ctx, &first.clone().turned(), &before, &d_r)?;

        let d_p = self.matrix(of.d_params, direction);
        let dy = self.rows(&of.slopes.dy, direction);
        multiply(ctx, &dy.turned(), &self.unit_rows(of.m, direction), &d_p)?;
        self.add_product(ctx, &r.clone().turned(), &d_product, &d_p)?;

        multiply_apart(ctx, &first, &r, &self.state_rows(of.d_before, direction))?;
        let idle = self.states(of.d_after, direction);
        ends.keep_idle(ctx.device(), outputs, idle, of.d_before)
    }

    /// `c += a b`, where the rows of `c` follow each other.
    fn add_product(
        &self,
        ctx: &mut dyn OpContext,
        a: &Matrix,
        b: &Matrix,
        c: &Matrix,
    ) -> Result<()> {
        let [rows, columns] = c.extents();
        let more = ctx.temp(c.tensor().dtype, &[rows * columns])?;
        multiply(ctx, a, b, &Matrix::whole(&more, columns))?;
        combine(ctx, "AddV2", &more, c.tensor(), c.tensor())
    }

    fn ends(&self, direction: usize) -> Ends<'a> {
        Ends { extents: self.extents, lengths: self.lengths, direction }
    }

    fn pseudo_layer(&self, direction: usize) -> usize {
        self.layer * self.extents.layout.model.directions + direction
    }

    /// R: [gate and unit, output].
    fn weights(&self, params: &Parameters, direction: usize) -> Matrix {
        let layout = self.extents.layout;
        let all = params.recurrent(self.pseudo_layer(direction));
        layout.recurrent(&all, 0, layout.model.mode.gates()).turned()
    }

    /// P: [output, unit].
    fn matrix(&self, params: &Parameters, direction: usize) -> Matrix {
        params.projection(self.pseudo_layer(direction))
    }

    /// A direction's columns of the outputs.
    fn columns<'t>(&self, y: &'t Tensor, direction: usize) -> Columns<'t> {
        let count = self.extents.layout.outputs;
        Columns { tensor: y, at: direction * count, count, width: self.extents.width() }
    }

    fn rows(&self, y: &Tensor, direction: usize) -> Matrix {
        let Columns { at, count, width, .. } = self.columns(y, direction);
        Matrix::new(y, at, self.extents.rows(), count, width)
    }

    /// A direction's rows of the units' values.
    fn unit_rows(&self, m: &Tensor, direction: usize) -> Matrix {
        let units = self.extents.layout.units;
        Matrix::new(m, direction * units, self.extents.rows(), units, self.extents.unit_width())
    }

    /// A direction's outputs as states.
    fn states<'t>(&self, tensor: &'t Tensor, direction: usize) -> States<'t> {
        let [apart, stride] = self.extents.state_strides(self.extents.layout.outputs);
        States { tensor, at: self.pseudo_layer(direction) * apart, stride }
    }

    fn state_rows(&self, tensor: &Tensor, direction: usize) -> Matrix {
        let States { at, stride, .. } = self.states(tensor, direction);
        Matrix::new(tensor, at, self.extents.batch, self.extents.layout.outputs, stride)
    }
}
