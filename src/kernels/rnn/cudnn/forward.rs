//! CudnnRNN, V2 and V3, and a single layer.

use parking_lot::Mutex;

use super::Version;
use super::extents::{Extents, INPUT, INPUT_C, INPUT_H};
use super::model::{Layout, Model};
use super::parameters::Parameters;
use super::pieces::{dropout, pack, spread};
use super::product::{Matrix, multiply};
use super::projection::Projection;
use super::reserve::Reserve;
use super::states::States;
use super::steps;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::random::{
    Bounds, Distribution, Generator, SAMPLES_PER_OUTPUT, StateSource, fill,
};
use crate::kernels::rnn::values::{Output, clear, wide};
use crate::kernels::windows::part;
use crate::tensor::{Dims, HostTensor, Tensor};

/// Outputs.
const OUTPUT: usize = 0;
const OUTPUT_H: usize = 1;
const OUTPUT_C: usize = 2;
const RESERVE: usize = 3;
const HOST_RESERVED: usize = 4;

/// input, input_h, input_c, parameters[, sequence_lengths].
pub struct Forward {
    model: Model,
    version: Version,
    training: bool,
    time_major: bool,
    generator: Mutex<Generator>,
}

/// The tensors of a layer.
struct Layer<'a> {
    layer: usize,
    params: &'a Parameters,
    x: &'a Tensor,
    /// Receives the values that the gradient needs, if it is wanted.
    saved: Option<Tensor>,
    state: &'a States,
    /// Receives the values of the units.
    m: &'a Tensor,
    /// Receives the outputs. It is the same tensor, unless outputs are projected.
    y: &'a Tensor,
    last: &'a States,
    lengths: Option<&'a Tensor>,
}

impl Forward {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs, version: Version) -> Result<Self> {
        // A single layer has no dropout.
        let seed = |name| if version == Version::Layer { Ok(0) } else { attrs.int(name) };
        let generator = Generator::seeded(seed("seed")?, seed("seed2")?);
        Ok(Self {
            model: version.model(attrs)?,
            version,
            training: attrs.bool("is_training")?,
            time_major: version.time_major(attrs)?,
            generator: Mutex::new(generator),
        })
    }

    /// Multiplies the outputs `y` of a layer by factors, which are 0 for a random part of them.
    fn drop(&self, ctx: &mut dyn OpContext, y: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let uniform = ctx.temp(DType::F32, &y.dims)?;
        let generator = {
            let mut next = self.generator.lock();
            let generator = *next;
            next.skip((uniform.len() as u64).wrapping_mul(SAMPLES_PER_OUTPUT));
            generator
        };
        let source = StateSource::Host(generator);
        fill(ctx.device(), &uniform, Distribution::Uniform, Bounds::default(), source)?;
        let dropped = ctx.temp(y.dtype, &y.dims)?;
        let share = self.model.dropout;
        let scale = if share < 1.0 { 1.0 / (1.0 - share) } else { 0.0 };
        let (inputs, outputs) = ([uniform, y.clone()], [factors.clone(), dropped.clone()]);
        dropout(y.dtype, |program| {
            program.run(ctx.device(), &inputs, &outputs, &[share, 0.0, scale])
        })?;
        Ok(dropped)
    }
}

impl Kernel for Forward {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let model = &self.model;
        let extents = Extents::new(ctx, model, self.version, self.time_major)?;
        let (layout, real, dtype) = (extents.layout, model.real(), model.dtype);
        let output = Output::new(ctx, OUTPUT, dtype, &extents.outputs())?;
        let output_h = Output::new(ctx, OUTPUT_H, dtype, &extents.states())?;
        let cells = model.mode.has_cells();
        let cell_dims = if cells { extents.cells() } else { Dims::new() };
        let output_c = Output::new(ctx, OUTPUT_C, dtype, &cell_dims)?;
        let reserve = Reserve::new(&extents);
        let kept = if self.training { &[reserve.len_in(dtype)][..] } else { &[] };
        let kept = ctx.output(RESERVE, dtype, kept)?;
        if self.version.has_host_output() {
            ctx.host_output(HOST_RESERVED, &HostTensor::of::<i8>(DType::I8, &[0], &[]))?;
        }
        if !cells {
            output_c.clear(ctx)?;
            output_c.finish(ctx)?;
        }
        if extents.batch == 0 {
            return Ok(());
        }
        let state = States::of(ctx, &extents, [INPUT_H, INPUT_C])?;
        let last = States {
            units: ctx.temp(real, &state.units.dims)?,
            projected: state.projected.is_some().then(|| output_h.wide.clone()),
        };
        if extents.steps == 0 {
            state.copy_to(ctx.device(), &last)?;
        } else {
            let lengths = extents.upload_lengths(ctx)?;
            let params = Parameters::read(ctx, layout)?;
            let input = ctx.input(INPUT)?;
            let mut x = wide(ctx, &input)?;
            for layer in 0..layout.layers {
                let inner = layer + 1 < layout.layers;
                let y = match (inner, self.training) {
                    (true, true) => reserve.outputs(&kept, layer),
                    (true, false) => ctx.temp(real, &[extents.rows() * extents.width()])?,
                    (false, _) => output.wide.clone(),
                };
                let saved = self.training.then(|| reserve.saved(&kept, layer));
                let saved = saved.filter(|saved| !saved.is_empty());
                // The values of the units, which are the output unless that is projected.
                let m = match (&state.projected, self.training) {
                    (None, _) => y.clone(),
                    (Some(_), true) => reserve.unprojected(&kept, layer),
                    (Some(_), false) => ctx.temp(real, &[extents.rows() * extents.unit_width()])?,
                };
                let tensors = Layer {
                    layer,
                    params: &params,
                    x: &x,
                    saved,
                    state: &state,
                    m: &m,
                    y: &y,
                    last: &last,
                    lengths: lengths.as_ref(),
                };
                self.layer(ctx, &extents, tensors)?;
                x = match reserve.factors(&kept, layer) {
                    Some(factors) if inner && self.training => self.drop(ctx, &y, &factors)?,
                    _ => y,
                };
            }
        }
        output.finish(ctx)?;
        last.give(ctx, &output_h, cells.then_some(&output_c))
    }
}

impl Forward {
    /// One layer.
    fn layer(&self, ctx: &mut dyn OpContext, extents: &Extents, tensors: Layer<'_>) -> Result<()> {
        let Layer { layer, params, x, saved, state, m, y, last, lengths } = tensors;
        let (layout, mode, rows) = (extents.layout, self.model.mode, extents.rows());
        let (units, real) = (layout.units, self.model.real());
        let directions = self.model.directions;
        let len = rows * units * mode.saved();
        let gates = match saved {
            Some(saved) => saved,
            None => ctx.temp(real, &[directions * len])?,
        };
        ctx.device().check_extent(len)?;
        ctx.device().check_extent(m.len())?;
        for direction in 0..directions {
            let gates = part(&gates, direction * len, len);
            if layout.skips && layer == 0 {
                let x = x.reshaped(&[rows, units]);
                spread(ctx.device(), mode, &x, &gates)?;
            } else {
                let pseudo_layer = layer * directions + direction;
                input_product(ctx, &layout, pseudo_layer, params, x, &gates)?;
            }
        }
        let projection = Projection::of(ctx, extents, layer, params, lengths)?;
        let projected = projection.as_ref().zip(state.projected.as_ref());
        if let Some((projection, before)) = projected {
            projection.begin(ctx, before, &gates)?;
        }
        let recurrent = projection.as_ref().map(|p| &p.recurrent);
        let weights = pack(ctx, &layout, params, recurrent, layer, false)?;
        let [first, end] = [&state.units, &last.units];
        let tensors =
            steps::Forward { gates: &gates, weights: &weights, state: first, y: m, last: end };
        extents.steps_of(layer, lengths).forward(ctx.device(), &tensors)?;
        match projected.zip(last.projected.as_ref()) {
            Some(((projection, before), after)) => projection.finish(ctx, m, y, [before, after]),
            None => Ok(()),
        }
    }
}

/// The part of the gates that comes from the inputs of all steps.
fn input_product(
    ctx: &mut dyn OpContext,
    layout: &Layout,
    pseudo_layer: usize,
    params: &Parameters,
    x: &Tensor,
    gates: &Tensor,
) -> Result<()> {
    let (mode, units) = (layout.model.mode, layout.units);
    let width = layout.width(pseudo_layer / layout.model.directions);
    if width == 0 {
        return clear(ctx, gates);
    }
    let (rows, columns) = (x.len() / width, mode.gates() * units);
    let sums = Matrix::new(gates, 0, rows, columns, mode.saved() * units);
    multiply(ctx, &Matrix::whole(x, width), &params.input(pseudo_layer), &sums)
}
