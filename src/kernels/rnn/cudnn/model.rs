//! The attributes of a recurrent network, and the layout of its parameters in memory.

use crate::device::enum_key_parts;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::Attrs;
use crate::{invalid, require};

enum_key_parts!(Mode, Storage);

/// The kind of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One gate with a rectified linear unit.
    Relu,
    /// One gate with the hyperbolic tangent.
    Tanh,
    /// One gate, whose value is the output without an activation.
    Linear,
    /// One gate with the logistic function.
    Sigmoid,
    /// Gates input, forget, candidate, output, in this order.
    Lstm,
    /// Gates reset, update, candidate, or update, reset, candidate: see [`Model::reset`]. The
    /// reset gate is applied to the product of the recurrent weights.
    Gru,
    /// The same, but the reset gate is applied to the previous outputs, ahead of the product: a
    /// step has two phases, the second of which computes the candidate.
    GruResetBefore,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 7] = [
        Self::Relu,
        Self::Tanh,
        Self::Linear,
        Self::Sigmoid,
        Self::Lstm,
        Self::Gru,
        Self::GruResetBefore,
    ];

    /// The name of the mode: TensorFlow's, or that in our own op for the modes that TensorFlow
    /// lacks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "rnn_relu",
            Self::Tanh => "rnn_tanh",
            Self::Linear => "rnn_linear",
            Self::Sigmoid => "rnn_sigmoid",
            Self::Lstm => "lstm",
            Self::Gru => "gru",
            Self::GruResetBefore => "gru_reset_before",
        }
    }

    /// Whether a unit has one gate, whose value is its output.
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Relu | Self::Tanh | Self::Linear | Self::Sigmoid)
    }

    /// Gates of a unit.
    pub const fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru | Self::GruResetBefore => 3,
            _ => 1,
        }
    }

    /// Phases of a step: each needs the values of all units in the phase before.
    pub const fn phases(self) -> usize {
        match self {
            Self::GruResetBefore => 2,
            _ => 1,
        }
    }

    /// Numbers that the recurrent weights of a unit have side by side, for each phase.
    pub const fn lanes(self) -> usize {
        self.slots() / self.phases()
    }

    /// Numbers that stand for the gates of a unit in a step. A GRU's candidate has two: the part
    /// from the input and the part from the previous outputs. If the reset comes before the
    /// product, they are the candidate and the previous output as it was reset.
    pub const fn slots(self) -> usize {
        if self.is_plain() { 1 } else { 4 }
    }

    /// Numbers of a unit in a step that the gradient needs: those of the gates, and the cell.
    pub const fn saved(self) -> usize {
        self.slots() + self.has_cells() as usize
    }

    /// Whether a unit has a cell beside its output.
    pub const fn has_cells(self) -> bool {
        matches!(self, Self::Lstm)
    }
}

/// A network without its extents.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The tensors' type.
    pub dtype: DType,
    /// The kind of all layers.
    pub mode: Mode,
    /// Directions of a layer: 1 or 2.
    pub directions: usize,
    /// Share of the values between layers that training drops.
    pub dropout: f32,
    /// Elements of an output that is projected (`num_proj`); 0 if outputs are not projected.
    pub projection: usize,
    /// The tensors that hold the parameters.
    pub storage: Storage,
    skip: Skip,
}

/// The tensors that hold the parameters of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One vector, as cuDNN has it: see [`Layout`].
    Vector,
    /// Tensors of each direction, as Keras has them: see [`super::layer`]. A GRU's update gate
    /// comes first.
    Tensors,
}

/// Whether the first layer's input has no weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    Never,
    Always,
    IfItFits,
}

impl Model {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        let skip = match &*attrs.string("input_mode")? {
            "linear_input" => Skip::Never,
            "skip_input" => Skip::Always,
            "auto_select" => Skip::IfItFits,
            other => invalid!("Invalid RNN input mode: {other}"),
        };
        // Older ops lack the attribute.
        let num_proj = attrs.int("num_proj").unwrap_or(0);
        let Ok(projection) = usize::try_from(num_proj) else {
            invalid!("num_proj must not be negative, got {num_proj}")
        };
        let dropout = attrs.float("dropout")?;
        require!((0.0..=1.0).contains(&dropout), "dropout must be in [0, 1], got {dropout}");
        let directions = match &*attrs.string("direction")? {
            "unidirectional" => 1,
            "bidirectional" => 2,
            other => invalid!("Invalid RNN direction mode: {other}"),
        };
        let storage = Storage::Vector;
        Ok(Self { dropout, projection, skip, ..Self::plain(attrs, directions, storage)? })
    }

    /// The network as TensorFlow runs it: TensorFlow uses `num_proj` only for networks with cells.
    #[must_use]
    pub fn as_run(self) -> Self {
        Self { projection: if self.mode.has_cells() { self.projection } else { 0 }, ..self }
    }

    /// Reads the attributes of a single layer.
    pub fn of_layer(attrs: &dyn Attrs) -> Result<Self> {
        let directions = attrs.int("directions")?;
        require!(matches!(directions, 1 | 2), "directions must be 1 or 2, got {directions}");
        Self::plain(attrs, directions as usize, Storage::Tensors)
    }

    /// A network without dropout, projection and skipped weights.
    fn plain(attrs: &dyn Attrs, directions: usize, storage: Storage) -> Result<Self> {
        let name = attrs.string("rnn_mode")?;
        let Some(mode) = Mode::ALL.into_iter().find(|m| m.name() == name) else {
            invalid!("Invalid RNN mode: {name}")
        };
        Ok(Self::of_mode(attrs.dtype("T")?, mode, directions, storage))
    }

    /// The same, of these attributes.
    pub const fn of_mode(dtype: DType, mode: Mode, directions: usize, storage: Storage) -> Self {
        let skip = Skip::Never;
        Self { dtype, mode, directions, dropout: 0.0, projection: 0, storage, skip }
    }

    /// The number of tensors that hold the parameters.
    pub const fn tensors(&self) -> usize {
        match self.storage {
            Storage::Vector => 1,
            Storage::Tensors => 3 * self.directions,
        }
    }

    /// The position of a GRU's reset gate among its gates; its update gate is at the other one of
    /// the positions 0 and 1.
    pub const fn reset(&self) -> u32 {
        match (self.mode, self.storage) {
            (Mode::Gru | Mode::GruResetBefore, Storage::Tensors) => 1,
            _ => 0,
        }
    }

    /// The number of biases of a gate: cuDNN adds one to the product of the input and one to that
    /// of the previous outputs, as a GRU of Keras does whose reset gate comes between them.
    pub const fn biases(&self) -> usize {
        match (self.storage, self.mode) {
            (Storage::Vector, _) | (_, Mode::Gru) => 2,
            _ => 1,
        }
    }

    /// The type of all computation and of work tensors.
    pub fn real(&self) -> DType {
        self.dtype.accumulator()
    }

    /// The layout of the parameters of `layers` layers of `units` units. The error says why there
    /// is none.
    pub fn layout(&self, layers: usize, units: usize, inputs: usize) -> Result<Layout> {
        let skips = match self.skip {
            Skip::Never => false,
            Skip::Always => true,
            Skip::IfItFits => inputs == units,
        };
        require!(
            !skips || inputs == units,
            "input_mode skip_input needs inputs of num_units = {units} elements, got {inputs}"
        );
        let projection = self.projection;
        require!(
            projection == 0 || self.mode.has_cells(),
            "num_proj is for rnn_mode lstm, not for {}",
            self.mode.name()
        );
        require!(
            projection <= units,
            "num_proj must not exceed num_units = {units}, got {projection}"
        );
        let outputs = if projection == 0 { units } else { projection };
        let layout = Layout { model: *self, layers, units, outputs, inputs, skips };
        require!(layout.checked_len().is_some(), "the network's parameters exceed the memory");
        Ok(layout)
    }
}

/// The extents of the parameters, and where they lie in the vector `params`.
///
/// A pseudo-layer is a layer in one direction; they follow each other layer by layer. First come
/// the weights of all pseudo-layers. Each has those of its input, [gate, unit, element of the
/// input], then the recurrent ones, [gate, unit, output], then, if outputs are projected, the
/// projection, [output, unit]. Then come the biases of all pseudo-layers. Each has those of the
/// input, [gate, unit], then the recurrent ones. The gates' order is [`Mode`]'s. cuDNN uses this
/// layout, so the parameters that Keras builds from its layers fit.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The network.
    pub model: Model,
    /// The number of layers.
    pub layers: usize,
    /// Units of a layer and direction.
    pub units: usize,
    /// Elements of an output of a layer and direction: the number of units, or fewer if the output
    /// is projected.
    pub outputs: usize,
    /// Elements of an input of the first layer.
    pub inputs: usize,
    /// Whether the first layer's input has no weights.
    pub skips: bool,
}

impl Layout {
    /// Pseudo-layers.
    pub const fn pseudo_layers(&self) -> usize {
        self.layers * self.model.directions
    }

    /// Elements of an input of a layer.
    pub const fn width(&self, layer: usize) -> usize {
        if layer == 0 { self.inputs } else { self.model.directions * self.outputs }
    }

    /// Whether outputs are projected. A projection to the number of units is none, as in cuDNN.
    pub const fn projects(&self) -> bool {
        self.outputs < self.units
    }

    /// The number of weights of the input of a pseudo-layer.
    const fn input_weights(&self, layer: usize) -> usize {
        if layer == 0 && self.skips {
            return 0;
        }
        self.model.mode.gates() * self.units * self.width(layer)
    }

    /// The number of recurrent weights of a pseudo-layer.
    pub const fn recurrent_weights(&self) -> usize {
        self.model.mode.gates() * self.units * self.outputs
    }

    /// The number of weights of the projection of a pseudo-layer.
    const fn projection_weights(&self) -> usize {
        if self.projects() { self.outputs * self.units } else { 0 }
    }

    /// Where the weights of the input of a pseudo-layer begin.
    pub fn weights_at(&self, pseudo_layer: usize) -> usize {
        let first = pseudo_layer.min(self.model.directions);
        first * self.input_weights(0)
            + (pseudo_layer - first) * self.input_weights(1)
            + pseudo_layer * (self.recurrent_weights() + self.projection_weights())
    }

    /// Where the recurrent weights of a pseudo-layer begin.
    pub fn recurrent_at(&self, pseudo_layer: usize) -> usize {
        self.weights_at(pseudo_layer) + self.input_weights(pseudo_layer / self.model.directions)
    }

    /// Where the weights of the projection of a pseudo-layer begin.
    pub fn projection_at(&self, pseudo_layer: usize) -> usize {
        self.recurrent_at(pseudo_layer) + self.recurrent_weights()
    }

    /// Where the biases of a pseudo-layer begin.
    pub fn bias_at(&self, pseudo_layer: usize) -> usize {
        self.weights_at(self.pseudo_layers())
            + pseudo_layer * 2 * self.model.mode.gates() * self.units
    }

    /// The names and the shapes of the tensors that hold the parameters.
    pub fn shapes(&self) -> Vec<(&'static str, Vec<usize>)> {
        if self.model.storage == Storage::Vector {
            return vec![("params", vec![self.len()])];
        }
        let (directions, gates) = (self.model.directions, self.model.mode.gates() * self.units);
        let bias = match self.model.biases() {
            2 => vec![2, gates],
            _ => vec![gates],
        };
        let mut all = vec![("kernels", vec![self.inputs, gates]); directions];
        all.resize(2 * directions, ("recurrent_kernels", vec![self.units, gates]));
        all.resize(3 * directions, ("biases", bias));
        all
    }

    /// Elements of `params`.
    pub fn len(&self) -> usize {
        self.bias_at(self.pseudo_layers())
    }

    /// The same; None if it is beyond what an address holds.
    fn checked_len(&self) -> Option<usize> {
        let gates = self.model.mode.gates().checked_mul(self.units)?;
        let sides = self.inputs.checked_add(self.units.checked_mul(5)?)?.checked_add(2)?;
        let bound = gates.checked_mul(sides)?.checked_mul(self.layers.checked_mul(2)?)?;
        (bound < 1 << 48).then(|| self.len())
    }

    /// The weight matrices in the order in which TensorFlow names them: for each pseudo-layer those
    /// of the input and then the recurrent ones, gate by gate, then the projection. Each has its
    /// start, its rows and its columns. A network that skips the input's weights has no matrices
    /// there.
    pub fn matrices(&self) -> Vec<[usize; 3]> {
        let mut all = Vec::new();
        for p in 0..self.pseudo_layers() {
            let (layer, gates) = (p / self.model.directions, self.model.mode.gates());
            let width = if layer == 0 && self.skips { 0 } else { self.width(layer) };
            let parts = [(self.weights_at(p), width), (self.recurrent_at(p), self.outputs)];
            for (at, columns) in parts {
                all.extend(
                    (0..gates).map(|g| [at + g * self.units * columns, self.units, columns]),
                );
            }
            if self.projects() {
                all.push([self.projection_at(p), self.outputs, self.units]);
            }
        }
        all
    }

    /// The start of each bias vector, in the same order.
    pub fn biases(&self) -> Vec<usize> {
        let parts = self.pseudo_layers() * 2 * self.model.mode.gates();
        (0..parts).map(|i| self.bias_at(0) + i * self.units).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(mode: Mode, directions: usize, skip: Skip) -> Model {
        Model { skip, ..Model::of_mode(DType::F32, mode, directions, Storage::Vector) }
    }

    #[test]
    fn parts_follow_each_other_without_gaps() {
        for (mode, directions, skip, projection) in [
            (Mode::Lstm, 2, Skip::Never, 0),
            (Mode::Lstm, 2, Skip::Never, 2),
            (Mode::Lstm, 1, Skip::Always, 1),
            (Mode::Gru, 1, Skip::IfItFits, 0),
            (Mode::Tanh, 2, Skip::Always, 0),
        ] {
            let inputs = if skip == Skip::Always { 3 } else { 5 };
            let model = Model { projection, ..model(mode, directions, skip) };
            let layout = model.layout(2, 3, inputs).unwrap();
            let mut parts: Vec<(usize, usize)> =
                layout.matrices().iter().map(|[at, m, n]| (*at, m * n)).collect();
            parts.extend(layout.biases().iter().map(|at| (*at, 3)));
            let mut end = 0;
            for (at, len) in parts {
                assert_eq!(at, end, "{mode:?}");
                end += len;
            }
            assert_eq!(end, layout.len());
        }
    }

    #[test]
    fn projections_are_of_networks_with_cells() {
        let of =
            |mode, projection| Model { projection, ..model(mode, 1, Skip::Never) }.layout(1, 3, 4);
        assert!(of(Mode::Lstm, 2).unwrap().projects());
        assert!(!of(Mode::Lstm, 3).unwrap().projects());
        assert!(of(Mode::Lstm, 4).is_err());
        assert!(of(Mode::Gru, 2).is_err());
        let run = Model { projection: 2, ..model(Mode::Gru, 1, Skip::Never) }.as_run();
        assert!(!run.layout(1, 3, 4).unwrap().projects());
    }

    #[test]
    fn skipping_needs_inputs_of_the_units_size() {
        assert!(model(Mode::Gru, 1, Skip::Always).layout(1, 3, 4).is_err());
        assert!(model(Mode::Gru, 1, Skip::IfItFits).layout(1, 3, 3).unwrap().skips);
        assert!(!model(Mode::Gru, 1, Skip::IfItFits).layout(1, 3, 4).unwrap().skips);
        assert!(model(Mode::Gru, 1, Skip::Never).layout(1 << 20, 1 << 30, 4).is_err());
    }
}
