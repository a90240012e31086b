//! CudnnRNNBackprop, V2 and V3, and the gradient of a single layer.

use super::Version;
use super::extents::{Extents, INPUT, INPUT_C, INPUT_H, PARAMS};
use super::model::{Layout, Mode, Model};
use super::parameters::Parameters;
use super::pieces::{gather, pack};
use super::product::{Matrix, multiply, multiply_apart};
use super::projection::{Back, Projection, Slopes};
use super::reserve::Reserve;
use super::states::States;
use super::steps;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::reduce;
use crate::kernels::rnn::values::{Output, combine, wide};
use crate::kernels::windows::part;
use crate::tensor::{Dims, Tensor};

/// Inputs behind those that [`super::extents`] names, counted from the first one behind them.
const OUTPUT: usize = 0;
const OUTPUT_H: usize = 1;
const OUTPUT_C: usize = 2;
const DY: usize = 3;
const DH: usize = 4;
const DC: usize = 5;
const RESERVE: usize = 6;

/// The inputs are those of the forward op; its outputs output, output_h, output_c; their gradients;
/// and reserve_space. The outputs are the gradients of input, input_h, input_c and the parameters.
pub struct Backward {
    model: Model,
    version: Version,
    time_major: bool,
}

/// The tensors of a layer's gradient.
struct Layer<'a> {
    layer: usize,
    params: &'a Parameters,
    d_params: &'a Parameters,
    saved: Option<&'a Tensor>,
    x: &'a Tensor,
    dx: &'a Tensor,
    state: &'a States,
    d_state: &'a States,
    /// Receives the gradients of the outputs before the first step, if outputs are projected.
    d_before: &'a Tensor,
    /// The values of the units: these are the outputs, unless outputs are projected.
    m: &'a Tensor,
    dy: &'a Tensor,
    lengths: Option<&'a Tensor>,
}

impl Backward {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, version: Version) -> Result<Self> {
        let (model, time_major) = (version.model(attrs)?, version.time_major(attrs)?);
        Ok(Self { model, version, time_major })
    }

    /// TensorFlow's checks of the inputs that the forward op does not have.
    fn check(
        &self,
        ctx: &mut dyn OpContext,
        extents: &Extents,
        reserve: &Reserve,
    ) -> Result<usize> {
        let first = PARAMS + self.model.tensors() + usize::from(self.version.has_lengths());
        let (outputs, states, cells) = (extents.outputs(), extents.states(), extents.cells());
        let mut all = vec![
            ("output", OUTPUT, &outputs),
            ("output_h", OUTPUT_H, &states),
            ("output_backprop", DY, &outputs),
            ("output_h_backprop", DH, &states),
        ];
        if self.model.mode.has_cells() {
            all.extend([("output_c", OUTPUT_C, &cells), ("output_c_backprop", DC, &cells)]);
        }
        for (name, i, dims) in all {
            let tensor = ctx.input(first + i)?;
            extents.check(name, &tensor, dims)?;
        }
        let kept = ctx.input(first + RESERVE)?;
        extents.check("reserve_space", &kept, &[reserve.len_in(self.model.dtype)])?;
        Ok(first)
    }
}

impl Kernel for Backward {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let model = &self.model;
        let extents = Extents::new(ctx, model, self.version, self.time_major)?;
        let reserve = Reserve::new(&extents);
        let first = self.check(ctx, &extents, &reserve)?;
        let (layout, real, dtype) = (extents.layout, model.real(), model.dtype);
        let input = ctx.input(INPUT)?;
        let d_input = Output::new(ctx, 0, dtype, &input.dims)?;
        let d_h = Output::new(ctx, 1, dtype, &extents.states())?;
        let cells = model.mode.has_cells();
        let cell_dims = if cells { extents.cells() } else { Dims::new() };
        let d_c = Output::new(ctx, 2, dtype, &cell_dims)?;
        let mut d_params = Vec::new();
        for (i, (_, dims)) in layout.shapes().iter().enumerate() {
            d_params.push(Output::new(ctx, PARAMS + i, dtype, dims)?);
        }
        if !cells {
            d_c.clear(ctx)?;
            d_c.finish(ctx)?;
        }
        let d_cells = cells.then_some(&d_c);
        if extents.rows() == 0 {
            for output in &d_params {
                output.clear(ctx)?;
                output.finish(ctx)?;
            }
            if extents.batch > 0 {
                let d_state = States::of(ctx, &extents, [first + DH, first + DC])?;
                if let Some(d_after) = &d_state.projected {
                    ctx.device().copy(d_h.wide.address, d_after.address, d_after.bytes())?;
                }
                d_state.give(ctx, &d_h, d_cells)?;
            }
            return Ok(());
        }
        let state = States::of(ctx, &extents, [INPUT_H, INPUT_C])?;
        let d_state = States::of(ctx, &extents, [first + DH, first + DC])?;
        let lengths = extents.upload_lengths(ctx)?;
        let params = Parameters::read(ctx, layout)?;
        let wide_d_params = d_params.iter().map(|output| output.wide.clone()).collect();
        let wide_d_params = Parameters::of(layout, wide_d_params);
        let input = wide(ctx, &input)?;
        let kept = ctx.input(first + RESERVE)?;
        let (y, dy) = (ctx.input(first + OUTPUT)?, ctx.input(first + DY)?);
        let (mut y, mut dy) = (wide(ctx, &y)?, wide(ctx, &dy)?);
        for layer in (0..layout.layers).rev() {
            // The input of the layer: the network's input, or the outputs of the layer below.
            let below = layer
                .checked_sub(1)
                .map(|below| (reserve.outputs(&kept, below), reserve.factors(&kept, below)));
            let x = match &below {
                None => input.clone(),
                Some((outputs, None)) => outputs.clone(),
                Some((outputs, Some(factors))) => {
                    let x = ctx.temp(real, &outputs.dims)?;
                    combine(ctx, "Mul", outputs, factors, &x)?;
                    x
                }
            };
            let dx = match &below {
                None => d_input.wide.clone(),
                Some((outputs, _)) => ctx.temp(real, &outputs.dims)?,
            };
            let saved = reserve.saved(&kept, layer);
            let m = match layout.projects() {
                true => reserve.unprojected(&kept, layer),
                false => y.clone(),
            };
            let tensors = Layer {
                layer,
                params: &params,
                d_params: &wide_d_params,
                saved: Some(&saved).filter(|saved| !saved.is_empty()),
                x: &x,
                dx: &dx,
                state: &state,
                d_state: &d_state,
                d_before: &d_h.wide,
                m: &m,
                dy: &dy,
                lengths: lengths.as_ref(),
            };
            self.layer(ctx, &extents, &tensors)?;
            if let Some((outputs, factors)) = below {
                if let Some(factors) = factors {
                    combine(ctx, "Mul", &dx, &factors, &dx)?;
                }
                (y, dy) = (outputs, dx);
            }
        }
        d_input.finish(ctx)?;
        d_params.iter().try_for_each(|output| output.finish(ctx))?;
        d_state.give(ctx, &d_h, d_cells)
    }
}

impl Backward {
    /// The gradients of one layer.
    fn layer(&self, ctx: &mut dyn OpContext, extents: &Extents, layer: &Layer<'_>) -> Result<()> {
        let (layout, mode) = (extents.layout, self.model.mode);
        let Layer { params, dx, m, lengths, .. } = *layer;
        let (len, directions) =
            (extents.rows() * layout.units * (mode.slots() + 1), self.model.directions);
        let all = ctx.temp(self.model.real(), &[directions * len])?;
        ctx.device().check_extent(len)?;
        ctx.device().check_extent(m.len())?;
        let projection = Projection::of(ctx, extents, layer.layer, params, lengths)?;
        let slopes = match projection.as_ref().zip(layer.d_state.projected.as_ref()) {
            Some((projection, d_after)) => Some(projection.slopes(ctx, layer.dy, d_after)?),
            None => None,
        };
        let recurrent = projection.as_ref().map(|p| &p.recurrent);
        let weights = pack(ctx, &layout, params, recurrent, layer.layer, true)?;
        let tensors = steps::Backward {
            saved: layer.saved,
            weights: &weights,
            state: &layer.state.units,
            y: m,
            dy: slopes.as_ref().map_or(layer.dy, |slopes| &slopes.dm),
            d_state: &layer.d_state.units,
            grads: &all,
        };
        extents.steps_of(layer.layer, lengths).backward(ctx.device(), &tensors)?;
        let projected = projection.as_ref().zip(slopes.as_ref());
        for direction in 0..directions {
            let grads = part(&all, direction * len, len);
            let own = if direction == 0 { dx.clone() } else { ctx.temp(dx.dtype, &dx.dims)? };
            let pseudo_layer = layer.layer * directions + direction;
            self.products(ctx, extents, pseudo_layer, layer, &grads, &own)?;
            self.recurrent(ctx, extents, pseudo_layer, layer, &grads, projected)?;
            if direction > 0 {
                combine(ctx, "AddV2", dx, &own, dx)?;
            }
        }
        Ok(())
    }

    /// The gradients of the input of a pseudo-layer, of its weights and of the biases, computed
    /// from the gradients of its gates.
    fn products(
        &self,
        ctx: &mut dyn OpContext,
        extents: &Extents,
        p: usize,
        layer: &Layer<'_>,
        grads: &Tensor,
        dx: &Tensor,
    ) -> Result<()> {
        let (layout, mode, rows) = (extents.layout, self.model.mode, extents.rows());
        let (units, slots, gates) = (layout.units, mode.slots(), mode.gates());
        let Layer { params, d_params, x, .. } = *layer;
        let of_gates = Matrix::new(grads, 0, rows, gates * units, (slots + 1) * units);
        let width = layout.width(p / self.model.directions);
        if layout.skips && p < self.model.directions {
            gather(ctx.device(), mode, grads, &dx.reshaped(&[rows, units]))?;
        } else if width > 0 {
            multiply(ctx, &of_gates, &params.input(p).turned(), &Matrix::whole(dx, width))?;
            multiply(ctx, &Matrix::whole(x, width).turned(), &of_gates, &d_params.input(p))?;
        }
        self.biases(ctx, &layout, grads, &d_params.biases(p))
    }

    /// The gradients of a pseudo-layer's recurrent weights, and of its projection.
    fn recurrent(
        &self,
        ctx: &mut dyn OpContext,
        extents: &Extents,
        p: usize,
        layer: &Layer<'_>,
        grads: &Tensor,
        projected: Option<(&Projection<'_>, &Slopes)>,
    ) -> Result<()> {
        let (layout, mode, rows) = (extents.layout, self.model.mode, extents.rows());
        let (units, slots) = (layout.units, mode.slots());
        // The gates' gradients, first to last: of the part that the input adds, then of the part
        // that the previous outputs add, if that differs, as in a GRU's candidate. A candidate
        // whose reset comes before the product has the previous outputs there, as they were reset.
        let columns = |first: usize, count: usize| {
            Matrix::new(grads, first * units, rows, count * units, (slots + 1) * units)
        };
        // Before it is projected, an output is the value of a unit.
        let unprojected = Layout { outputs: units, ..layout };
        let d_recurrent = match projected {
            Some(_) => ctx.temp(grads.dtype, &[unprojected.recurrent_weights()])?,
            None => layer.d_params.recurrent(p),
        };
        for RecurrentPart { first, count, slot, before } in recurrent_parts(mode) {
            let d_weights = unprojected.recurrent(&d_recurrent, first, count);
            multiply_apart(ctx, &columns(before, 1).turned(), &columns(slot, count), &d_weights)?;
        }
        let (Some((projection, slopes)), Some(before), Some(d_after)) =
            (projected, &layer.state.projected, &layer.d_state.projected)
        else {
            return Ok(());
        };
        let of = Back {
            slopes,
            m: layer.m,
            grads,
            numbers: slots + 1,
            d_recurrent: &d_recurrent,
            before,
            d_after,
            d_before: layer.d_before,
            d_params: layer.d_params,
        };
        projection.back(ctx, p % self.model.directions, &of)
    }

    /// The gradients of a pseudo-layer's biases: sums over all rows.
    fn biases(
        &self,
        ctx: &mut dyn OpContext,
        layout: &Layout,
        grads: &Tensor,
        d_biases: &Tensor,
    ) -> Result<()> {
        let (units, mode) = (layout.units, self.model.mode);
        let (slots, gates) = (mode.slots(), mode.gates());
        let real = grads.dtype;
        let width = (slots + 1) * units;
        let all = grads.reshaped(&[grads.len() / width, width]);
        let sums = ctx.temp(real, &[width])?;
        reduce(ctx, "Sum", &all, &[true, false], &sums)?;
        let bytes = |elements: usize| (elements * units * real.size()) as u64;
        let at = d_biases.address;
        ctx.device().copy(at, sums.address, bytes(gates))?;
        if self.model.biases() == 1 {
            return Ok(());
        }
        for RecurrentPart { first, count, slot, .. } in recurrent_parts(mode) {
            let to = at + bytes(gates + first);
            ctx.device().copy(to, sums.address + bytes(slot), bytes(count))?;
        }
        Ok(())
    }
}

/// A run of gates with recurrent weights.
struct RecurrentPart {
    /// The first gate.
    first: usize,
    /// The number of gates.
    count: usize,
    /// The slot of the first gate's gradient.
    slot: usize,
    /// The slot of the values that the weights are multiplied by.
    before: usize,
}

/// All gates, as runs.
fn recurrent_parts(mode: Mode) -> Vec<RecurrentPart> {
    let before = mode.slots();
    let part = |first, count, slot, before| RecurrentPart { first, count, slot, before };
    match mode {
        Mode::Gru => vec![part(0, 2, 0, before), part(2, 1, 3, before)],
        Mode::GruResetBefore => vec![part(0, 2, 0, before), part(2, 1, 2, 3)],
        _ => vec![part(0, mode.gates(), 0, before)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_has_recurrent_weights() {
        for mode in Mode::ALL {
            let parts = recurrent_parts(mode);
            assert_eq!(parts.iter().map(|p| p.count).sum::<usize>(), mode.gates());
            assert!(parts.iter().all(|p| p.slot + p.count <= mode.slots()));
            assert!(parts.iter().all(|p| p.before <= mode.slots()));
        }
    }
}
