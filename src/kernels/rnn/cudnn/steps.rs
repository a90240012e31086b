//! The steps of a layer, forward and backward, in all directions at once: the tensors that they
//! bind, and the number of steps of one dispatch. Their text is in [`super::text`].

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::model::Mode;
use super::text::{StepsProgram, StepsVariant};
use crate::device::{Binding, Device, Grid, Profile};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::windows::{limit, part, ranges, too_large};
use crate::shader::WORKGROUP;
use crate::tensor::Tensor;

/// The most units whose steps one dispatch takes: a workgroup has an invocation for each unit. With
/// more units, each workgroup would read the weights again in each step, which costs more than a
/// dispatch.
const WHOLE: usize = WORKGROUP as usize;
/// Units of a workgroup if units are cut, and so the number of previous outputs that it holds at a
/// time.
const SLICE: u32 = 64;
/// The most phases of steps in a dispatch: the limit keeps a dispatch from taking seconds.
const MOST_PHASES: usize = 512;

/// The layout of a layer in its tensors, which have a row for each step and sequence. Extents and
/// strides are in elements.
#[derive(Debug, Clone)]
pub struct LayerSteps<'a> {
    /// The layer's kind.
    pub mode: Mode,
    /// The position of a GRU's reset gate: see [`super::model::Model::reset`].
    pub reset: u32,
    /// Steps of the longest sequence.
    pub steps: usize,
    /// Sequences.
    pub batch: usize,
    /// Units.
    pub units: usize,
    /// The first direction. Direction 1 walks over sequences from their last step to their first.
    pub direction: usize,
    /// The number of directions from there on.
    pub directions: usize,
    /// Rows between the steps of a sequence, and between sequences.
    pub rows: [usize; 2],
    /// Elements of a row of the outputs, of all directions of the layer.
    pub y: usize,
    /// Where the layer's outputs before the first step are in the state, and the distances between
    /// directions and between sequences there.
    pub state: [usize; 3],
    /// The distance from these outputs to the cells.
    pub cell_part: usize,
    /// Steps of each sequence, if the sequences differ.
    pub lengths: Option<&'a Tensor>,
}

/// The tensors that the forward steps bind.
#[derive(Debug)]
pub struct Forward<'a> {
    /// For each row and gate, the part from the input; afterwards the values that the gradient
    /// needs, and for an LSTM the cell behind them. There are [`Mode::saved`] numbers for each unit
    /// of a row, direction by direction.
    pub gates: &'a Tensor,
    /// The recurrent weights and the biases, packed, direction by direction.
    pub weights: &'a Tensor,
    /// States before the first step.
    pub state: &'a Tensor,
    /// Outputs of all steps.
    pub y: &'a Tensor,
    /// States after the last step.
    pub last: &'a Tensor,
}

/// The tensors that the backward steps bind.
#[derive(Debug)]
pub struct Backward<'a> {
    /// The values that the forward steps left in `gates`; for an LSTM or a GRU.
    pub saved: Option<&'a Tensor>,
    /// The recurrent weights, packed and transposed, direction by direction.
    pub weights: &'a Tensor,
    /// States before the first step.
    pub state: &'a Tensor,
    /// Outputs of all steps.
    pub y: &'a Tensor,
    /// Their gradients.
    pub dy: &'a Tensor,
    /// Gradients of the states after the last step, then of those before the first.
    pub d_state: &'a Tensor,
    /// Receives the gradients of the gates of each row, and behind them the outputs before it:
    /// [`Mode::slots`] and one number for each unit of a row, direction by direction.
    pub grads: &'a Tensor,
}

/// A tensor that a dispatch binds: all of it, or some of its rows, each of the given number of
/// elements.
#[derive(Debug, Clone, Copy)]
enum Bound<'a> {
    Whole(Binding),
    Rows(&'a Tensor, usize),
}

/// The binding's name in the shader, and the tensor.
type NamedBound<'a> = (&'static str, Bound<'a>);

impl LayerSteps<'_> {
    /// Enqueues all steps forward.
    pub fn forward(&self, device: &Device, tensors: &Forward<'_>) -> Result<()> {
        let Forward { gates, weights, state, y, last } = *tensors;
        if self.is_apart(device, [gates, weights]) {
            return (0..self.directions).try_for_each(|i| {
                let [gates, weights] = [gates, weights].map(|t| self.of_direction(t, i));
                let tensors = Forward { gates: &gates, weights: &weights, ..*tensors };
                self.only(i).forward(device, &tensors)
            });
        }
        let variant = self.variant(&device.profile(), false, gates.dtype);
        let bounds = [
            ("gates", self.own_rows(gates, self.mode.saved())),
            ("weights", Bound::Whole(Binding::raw(weights, variant.gates_size()))),
            ("state", Bound::Whole(state.into())),
            ("y", Bound::Rows(y, self.y)),
            ("last", Bound::Whole(last.into())),
        ];
        self.enqueue(device, variant, &bounds)
    }

    /// Enqueues all steps backward.
    pub fn backward(&self, device: &Device, tensors: &Backward<'_>) -> Result<()> {
        let Backward { saved, weights, state, y, dy, d_state, grads } = *tensors;
        if self.is_apart(device, [grads, weights]) {
            return (0..self.directions).try_for_each(|i| {
                let [grads, weights] = [grads, weights].map(|t| self.of_direction(t, i));
                let saved = saved.map(|t| self.of_direction(t, i));
                let (saved, grads) = (saved.as_ref(), &grads);
                let tensors = Backward { saved, weights: &weights, grads, ..*tensors };
                self.only(i).backward(device, &tensors)
            });
        }
        let variant = self.variant(&device.profile(), true, grads.dtype);
        let mut bounds: SmallVec<[NamedBound<'_>; 8]> = smallvec![
            ("weights", Bound::Whole(Binding::raw(weights, variant.gates_size()))),
            ("state", Bound::Whole(state.into())),
            ("y", Bound::Rows(y, self.y)),
            ("dy", Bound::Rows(dy, self.y)),
            ("d_state", Bound::Whole(d_state.into())),
            ("grads", self.own_rows(grads, self.mode.slots() + 1)),
        ];
        bounds.extend(saved.map(|saved| ("saved", self.own_rows(saved, self.mode.saved()))));
        self.enqueue(device, variant, &bounds)
    }

    /// Whether directions run one after the other, because their largest tensors do not fit a
    /// binding.
    fn is_apart(&self, device: &Device, largest: [&Tensor; 2]) -> bool {
        let most = limit(device.capabilities());
        self.directions > 1 && largest.iter().any(|tensor| tensor.bytes() > most)
    }

    /// The steps in direction `i` alone, of the directions of these steps.
    fn only(&self, i: usize) -> Self {
        Self { direction: self.direction + i, directions: 1, ..self.clone() }
    }

    /// The part of a tensor that is direction `i`'s.
    fn of_direction(&self, tensor: &Tensor, i: usize) -> Tensor {
        let len = tensor.len() / self.directions;
        part(tensor, i * len, len)
    }

    /// The rows that each direction has for itself, of `numbers` numbers for each unit. The rows of
    /// several directions fit a binding ([`Self::is_apart`]).
    fn own_rows<'t>(&self, tensor: &'t Tensor, numbers: usize) -> Bound<'t> {
        match self.directions {
            1 => Bound::Rows(tensor, numbers * self.units),
            _ => Bound::Whole(tensor.into()),
        }
    }

    /// Enqueues all steps of all sequences, in as few dispatches as the variant and the adapter's
    /// bindings allow. Backward there is one more phase, which ends with the state's gradients.
    fn enqueue(
        &self,
        device: &Device,
        variant: StepsVariant,
        bounds: &[NamedBound<'_>],
    ) -> Result<()> {
        let slices = self.units.div_ceil(variant.units as usize);
        let (sequences, fitting) = self.windows(device, bounds)?;
        let phases = self.mode.phases();
        // Backward weights come without the biases.
        let weights_rows = self.units + usize::from(!variant.backward);
        let direction_weights = phases * weights_rows * self.units;
        let groups =
            sequences.min(self.batch).div_ceil(variant.rows as usize) * slices * self.directions;
        // A step reads all weights, and multiplies them by the states of all sequences.
        let of_a_step =
            |count| self.directions * self.mode.gates() * self.units * self.units * count;
        let short = {
            let weights = of_a_step(1) * variant.real.size();
            let flops = variant.real.product_flops(of_a_step(sequences.min(self.batch)));
            // Backward there is one more phase.
            let wanted = self.steps + usize::from(variant.backward);
            device.repetitions(groups, weights as u64, flops, wanted).saturating_mul(phases)
        };
        let most = match slices {
            1 => {
                let fitting = fitting.saturating_mul(phases);
                self.phases_of_a_dispatch(&device.profile(), variant).min(fitting).min(short)
            }
            _ => 1,
        };
        let all = self.steps * phases + usize::from(variant.backward);
        let of = StepsProgram::of(variant);
        for (first_sequence, count) in ranges(self.batch, sequences) {
            let whole = sequences == self.batch && fitting >= self.steps;
            for (done, phases_now) in ranges(all, most) {
                // Phases are counted from the last one backward.
                let first = if variant.backward { all - 1 - done } else { done };
                let rows = if whole {
                    0..self.steps * self.batch
                } else {
                    // The state before a step comes from the rows of the step before.
                    let seen = if variant.backward {
                        let last = (first + 1 - phases_now).div_ceil(phases);
                        last.saturating_sub(2)..(first.div_ceil(phases) + 1).min(self.steps)
                    } else {
                        (first / phases).saturating_sub(1)..(first + phases_now).div_ceil(phases)
                    };
                    self.rows_of(&seen, first_sequence, count)
                };
                let tiles = count.div_ceil(variant.rows as usize);
                // The operations of the gates themselves are few beside the products.
                let products = of_a_step(count) * phases_now / phases;
                let bindings = bounds.iter().map(|(name, bound)| (*name, bound.binding(&rows)));
                let lengths = self.lengths.map(|lengths| ("lengths", lengths.into()));
                let call = StepsProgram {
                    tensors: bindings.chain(lengths).collect(),
                    units: self.units,
                    total: self.steps,
                    first,
                    phases: phases_now,
                    first_sequence,
                    sequences_end: first_sequence + count,
                    first_row: rows.start,
                    step_rows: self.rows[0],
                    sequence_rows: self.rows[1],
                    y_width: self.y,
                    state_at: self.state[0],
                    state_direction: self.state[1],
                    state_stride: self.state[2],
                    cell_part: self.cell_part,
                    tiles,
                    slices,
                    first_direction: self.direction,
                    directions: self.directions,
                    direction_rows: self.steps * self.batch,
                    direction_weights,
                };
                let grid = Grid::groups(tiles * slices * self.directions);
                let operations = variant.real.product_flops(products);
                device.enqueue_counted(&call.program(&of, grid), operations)?;
            }
        }
        Ok(())
    }

    /// The rows of some steps of some sequences. The range may include other rows between them.
    fn rows_of(&self, steps: &Range<usize>, first_sequence: usize, count: usize) -> Range<usize> {
        let times = if self.direction == 1 {
            self.steps - steps.end..self.steps - steps.start
        } else {
            steps.clone()
        };
        let [step_rows, sequence_rows] = self.rows;
        let last = first_sequence + count - 1;
        times.start * step_rows + first_sequence * sequence_rows
            ..(times.end - 1) * step_rows + last * sequence_rows + 1
    }

    /// The number of sequences, and the number of their steps, that a dispatch may take for its
    /// rows to fit the adapter's bindings.
    fn windows(&self, device: &Device, bounds: &[NamedBound<'_>]) -> Result<(usize, usize)> {
        let capabilities = device.capabilities();
        let widest =
            bounds.iter().map(|(_, bound)| bound.row_bytes()).max().unwrap_or_default().max(1);
        let fitting = (limit(capabilities) / widest as u64) as usize;
        if fitting >= self.steps * self.batch {
            return Ok((self.batch, usize::MAX));
        }
        let [step_rows, sequence_rows] = self.rows;
        let sequences = if step_rows == 1 { fitting / sequence_rows } else { 0 };
        if sequences > 0 {
            return Ok((sequences, usize::MAX));
        }
        // Steps are next to each other then. A dispatch also sees the steps before and behind its
        // own.
        let (sequences, steps) =
            if step_rows == 1 { (1, fitting) } else { (self.batch, fitting / step_rows) };
        // If a sequence has ended before, its state is in rows that are not near.
        match steps {
            3.. if self.lengths.is_none() => Ok((sequences, steps - 2)),
            _ => Err(too_large(capabilities, "a step of a recurrent layer")),
        }
    }

    /// The number of phases, in whole steps, that stay within the adapter's limit of iterations.
    fn phases_of_a_dispatch(&self, profile: &Profile, variant: StepsVariant) -> usize {
        // The iterations of the sums, one of the phase, and a few of the activation functions.
        let each = self.units + 8 * variant.rows as usize;
        let loaded = variant.rows as usize * variant.units as usize;
        let phases = self.mode.phases();
        let fitting = (profile.loop_limit.saturating_sub(loaded)) / each;
        (fitting / phases * phases).clamp(phases, MOST_PHASES)
    }

    /// The variant with the most sequences for a workgroup that still leaves enough workgroups:
    /// each weight that an invocation loads is used for all of them.
    fn variant(&self, profile: &Profile, backward: bool, real: DType) -> StepsVariant {
        let units = match self.units {
            n if n <= WHOLE => (n.next_power_of_two() as u32).max(32),
            _ => SLICE,
        };
        let variant = |rows| StepsVariant {
            backward,
            mode: self.mode,
            reset: self.reset,
            real,
            lengths: self.lengths.is_some(),
            units,
            rows,
        };
        // A workgroup loads all weights of its units in each step, which takes longer than the
        // sums. A second workgroup on the same processor would load them again. So one workgroup
        // for each processor is enough: a quarter of the workgroups that other kernels need.
        let busy = profile.workgroups / 4;
        let slices = self.units.div_ceil(units as usize);
        let groups = slices * self.directions;
        let enough = |v: &StepsVariant| self.batch.div_ceil(v.rows as usize) * groups >= busy;
        let mut all = [8, 4, 2, 1].map(variant).into_iter().filter(StepsVariant::is_valid);
        all.clone().find(enough).or(all.next_back()).expect("one row is always valid")
    }
}

impl Bound<'_> {
    /// Bytes of a row.
    const fn row_bytes(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::Rows(tensor, width) => *width * tensor.dtype.size(),
        }
    }

    fn binding(&self, rows: &Range<usize>) -> Binding {
        match self {
            Self::Whole(binding) => *binding,
            Self::Rows(tensor, width) => {
                Binding::from(&part(tensor, rows.start * width, rows.len() * width))
            }
        }
    }
}
