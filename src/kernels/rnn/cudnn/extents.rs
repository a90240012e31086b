//! The extents of a network's tensors, and TensorFlow's checks of them.

use super::Version;
use super::model::{Layout, Model, Storage};
use super::steps::LayerSteps;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::require;
use crate::tensor::{Dims, Tensor, shape_text};

/// Inputs that both the forward op and its gradient have.
pub const INPUT: usize = 0;
pub const INPUT_H: usize = 1;
pub const INPUT_C: usize = 2;
pub const PARAMS: usize = 3;

/// A network with its extents.
#[derive(Debug, Clone)]
pub struct Extents {
    /// Where the parameters lie.
    pub layout: Layout,
    /// Steps.
    pub steps: usize,
    /// Sequences.
    pub batch: usize,
    /// Whether steps come before sequences in the tensors.
    pub time_major: bool,
    /// Whether pseudo-layers come before sequences in the states.
    pub layers_first: bool,
    /// Steps of each sequence, if the sequences differ.
    pub lengths: Option<Vec<i32>>,
}

impl Extents {
    /// Reads and checks the inputs.
    pub fn new(
        ctx: &mut dyn OpContext,
        model: &Model,
        version: Version,
        time_major: bool,
    ) -> Result<Self> {
        let (input, h) = (ctx.input(INPUT)?, ctx.input(INPUT_H)?);
        require!(input.rank() == 3, "RNN input must be a 3-D vector.");
        require!(h.rank() == 3, "RNN input must be a 3-D vector.");
        let [steps, batch] = if time_major { [0, 1] } else { [1, 0] }.map(|i| input.dims[i]);
        let layers_first = time_major && model.storage == Storage::Vector;
        let states = h.dims[usize::from(!layers_first)];
        let layers = states / model.directions;
        let units = if model.projection == 0 { h.dims[2] } else { projected(ctx, model, &h)? };
        let layout = model.layout(layers, units, input.dims[2])?;
        let extents = Self { layout, steps, batch, time_major, layers_first, lengths: None };
        extents.check("input_h", &h, &extents.states())?;
        require!(layers > 0 && h.dims[2] > 0, "RNN without units: input_h {}", shape_text(&h.dims));
        if model.mode.has_cells() {
            let c = ctx.input(INPUT_C)?;
            extents.check("input_c", &c, &extents.cells())?;
        }
        for (i, (name, dims)) in layout.shapes().iter().enumerate() {
            let params = ctx.input(PARAMS + i)?;
            extents.check(name, &params, dims)?;
        }
        require!(version != Version::Layer || layers == 1, "one layer, got {layers}");
        let lengths = if version.has_lengths() { extents.check_lengths(ctx)? } else { None };
        Ok(Self { lengths, ..extents })
    }

    /// The lengths of the sequences, if they differ from the number of steps.
    fn check_lengths(&self, ctx: &mut dyn OpContext) -> Result<Option<Vec<i32>>> {
        let host = ctx.host_input(PARAMS + self.layout.model.tensors())?;
        require!(host.dims.len() == 1, "sequence_lengths must be a 1-D vector.");
        require!(
            host.dims[0] == self.batch,
            "Invalid sequence_lengths shape: {} {}",
            shape_text(&host.dims),
            shape_text(&[self.batch])
        );
        let lengths = host.to_i64()?;
        for (i, length) in lengths.iter().enumerate() {
            require!(
                (0..=self.steps as i64).contains(length),
                "sequence_lengths[{i}] must be between 0 and {}, got {length}",
                self.steps
            );
        }
        let differ = lengths.iter().any(|length| *length != self.steps as i64);
        Ok(differ.then(|| lengths.iter().map(|length| *length as i32).collect()))
    }

    /// The lengths on the device, if they differ.
    pub fn upload_lengths(&self, ctx: &mut dyn OpContext) -> Result<Option<Tensor>> {
        let Some(lengths) = &self.lengths else { return Ok(None) };
        let tensor = ctx.temp(DType::I32, &[lengths.len()])?;
        ctx.device().upload(tensor.address, bytemuck::cast_slice(lengths))?;
        Ok(Some(tensor))
    }

    /// Fails unless `tensor` has the shape `dims`.
    pub fn check(&self, name: &str, tensor: &Tensor, dims: &[usize]) -> Result<()> {
        require!(
            tensor.dims[..] == *dims,
            "Invalid {name} shape: {} {}",
            shape_text(&tensor.dims),
            shape_text(dims)
        );
        Ok(())
    }

    /// The shape of the outputs as states, one for each pseudo-layer and sequence.
    pub fn states(&self) -> Dims {
        self.of_pseudo_layers(self.layout.outputs)
    }

    /// The shape of the cells as states.
    pub fn cells(&self) -> Dims {
        self.of_pseudo_layers(self.layout.units)
    }

    fn of_pseudo_layers(&self, width: usize) -> Dims {
        ordered(self.layers_first, self.layout.pseudo_layers(), self.batch, width)
    }

    /// The shape of the outputs.
    pub fn outputs(&self) -> Dims {
        ordered(self.time_major, self.steps, self.batch, self.width())
    }

    /// Elements of a step's output.
    pub fn width(&self) -> usize {
        self.layout.model.directions * self.layout.outputs
    }

    /// Elements of the values of a step's units, before projection.
    pub fn unit_width(&self) -> usize {
        self.layout.model.directions * self.layout.units
    }

    /// Rows of tensors over all steps and sequences.
    pub fn rows(&self) -> usize {
        self.steps * self.batch
    }

    /// Rows between the steps of a sequence, and between sequences, in tensors over all steps and
    /// sequences.
    pub fn row_strides(&self) -> [usize; 2] {
        if self.time_major { [self.batch, 1] } else { [1, self.steps] }
    }

    /// Distances between pseudo-layers, and between sequences, in states of `width` elements.
    pub fn state_strides(&self, width: usize) -> [usize; 2] {
        match self.layers_first {
            true => [self.batch * width, width],
            false => [width, self.layout.pseudo_layers() * width],
        }
    }

    /// The steps of a layer in all directions.
    pub fn steps_of<'a>(&self, layer: usize, lengths: Option<&'a Tensor>) -> LayerSteps<'a> {
        let Layout { model, units, .. } = self.layout;
        let pseudo_layers = self.layout.pseudo_layers();
        let rows = self.row_strides();
        let [direction, sequence] = self.state_strides(units);
        LayerSteps {
            mode: model.mode,
            reset: model.reset(),
            steps: self.steps,
            batch: self.batch,
            units,
            direction: 0,
            directions: model.directions,
            rows,
            y: self.unit_width(),
            state: [layer * model.directions * direction, direction, sequence],
            cell_part: pseudo_layers * self.batch * units,
            lengths,
        }
    }
}

fn ordered(is_outer_first: bool, outer: usize, inner: usize, last: usize) -> Dims {
    Dims::from_slice(&if is_outer_first { [outer, inner, last] } else { [inner, outer, last] })
}

/// The number of units of a network whose outputs are projected: that of its cells. Makes
/// TensorFlow's check of both states.
fn projected(ctx: &mut dyn OpContext, model: &Model, h: &Tensor) -> Result<usize> {
    let c = ctx.input(INPUT_C)?;
    let fits = c.rank() == 3
        && h.dims[..2] == c.dims[..2]
        && h.dims[2] == model.projection
        && h.dims[2] <= c.dims[2];
    require!(
        fits,
        "Invalid input_h and input_c w/ projection size: {} {} {}",
        model.projection,
        shape_text(&h.dims),
        shape_text(&c.dims)
    );
    Ok(c.dims[2])
}
