//! CTCLoss and CTCLossV2: the negative logarithm of the probability of a sequence of labels, given
//! the probabilities of classes at each step. The probability is summed over all ways to spread the
//! labels over the steps. The gradient is computed, too.
//!
//! Labels and lengths are in host memory, as in TensorFlow's GPU kernel: the host checks them, as
//! TensorFlow's CPU kernel does, and lists each sequence's labels ([`CtcPlan`]). The device
//! computes all numbers: the classes' logarithms (LogSoftmax), paths forward, paths backward, the
//! gradient. Only the paths of some sequences are kept at a time, so that they fit a binding; steps
//! are cut into windows if the logits exceed a binding, or if a workgroup would loop too long.

use std::collections::HashMap;

use crate::device::{Device, Grid, Profile, declare_program, enum_key_parts};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::iterations::STEPS;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::{iterations, softmax, windows};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Types of CTCLoss; CTCLossV2 has float32 alone.
const TYPES: &[DType] = types::F32_F64;
const HOST: &[&str] = &["labels_indices", "labels_values", "sequence_length"];
/// Invocations of a workgroup.
const UNITS: usize = 64;
/// Words of a sequence in the plan, before the labels.
const SEQUENCE_WORDS: usize = 4;
/// Marks the first label of its class in a sequence.
const FIRST: u32 = 1 << 31;
/// The most bytes that paths take at a time, unless a sequence takes more by itself.
const MOST_PATHS: u64 = 1 << 27;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    const NOTE: &str = "labels and lengths are in host memory; the host checks and lists them";
    r.op("CTCLoss").types("T", TYPES).host(HOST).note(NOTE).kernel(|a| Loss::new(a, true));
    r.op("CTCLossV2").host(HOST).note(NOTE).kernel(|a| Loss::new(a, false));
}

struct Loss {
    /// The blank is the last class, not the first.
    blank_is_last: bool,
    collapses: bool,
    merges: bool,
    ignores_longer: bool,
}

/// A sequence as the device sees it.
struct Sequence {
    /// The number of steps; 0 if the sequence has no loss.
    steps: usize,
    labels: Vec<u32>,
}

impl Sequence {
    /// The number of positions: a blank, and each label with a blank behind it.
    fn positions(&self) -> usize {
        2 * self.labels.len() + 1
    }

    /// The number of path values, one for each position at each step.
    fn numbers(&self) -> usize {
        self.steps * self.positions()
    }
}

/// The words that describe all sequences to the device, and the groups that are computed together.
struct CtcPlan {
    words: Vec<u32>,
    /// Each group's first sequence, the one behind its last, the number of its path values, and its
    /// most positions and steps.
    groups: Vec<Group>,
}

#[derive(Default, Clone, Copy)]
struct Group {
    first: usize,
    end: usize,
    numbers: usize,
    positions: usize,
    steps: usize,
}

impl CtcPlan {
    /// Groups whose paths have up to `most` numbers.
    fn new(sequences: &[Sequence], most: usize) -> Self {
        let mut words = vec![0; sequences.len() * SEQUENCE_WORDS];
        let mut groups = vec![Group::default()];
        for (i, sequence) in sequences.iter().enumerate() {
            let mut group = groups.last_mut().expect("there is one");
            // The rows of `beta` count, too.
            let beta = |g: &Group| 2 * (g.end + 1 - g.first) * sequence.positions();
            let full = group.numbers + sequence.numbers() > most || beta(group) > most;
            if full && group.end > group.first {
                groups.push(Group { first: i, end: i, ..Group::default() });
                group = groups.last_mut().expect("one was added");
            }
            let entry = [
                sequence.steps as u32,
                sequence.positions() as u32,
                group.numbers as u32,
                words.len() as u32,
            ];
            words[i * SEQUENCE_WORDS..][..SEQUENCE_WORDS].copy_from_slice(&entry);
            group.end = i + 1;
            group.numbers += sequence.numbers();
            group.positions = group.positions.max(sequence.positions());
            group.steps = group.steps.max(sequence.steps);
            let mut last = HashMap::new();
            for (n, label) in sequence.labels.iter().enumerate() {
                let here = words.len() + 1;
                let mark = match last.insert(*label, here) {
                    Some(before) => {
                        words[before] |= n as u32 + 1;
                        0
                    }
                    None => FIRST,
                };
                words.extend([*label, mark]);
            }
        }
        Self { words, groups }
    }
}

impl Loss {
    fn new(attrs: &dyn Attrs, blank_is_last: bool) -> Result<Self> {
        Ok(Self {
            blank_is_last,
            collapses: attrs.bool("preprocess_collapse_repeated")?,
            merges: attrs.bool("ctc_merge_repeated")?,
            ignores_longer: attrs.bool("ignore_longer_outputs_than_inputs")?,
        })
    }

    /// The sequences, if TensorFlow's kernels take their labels and lengths.
    fn sequences(
        &self,
        ctx: &mut dyn OpContext,
        [time, batch, classes]: [usize; 3],
    ) -> Result<Vec<Sequence>> {
        let (indices, values) = (ctx.host_input(1)?, ctx.host_input(2)?);
        let lengths = ctx.host_input(3)?;
        require!(lengths.dims.len() == 1, "sequence_length is not a vector");
        require!(indices.dims.len() == 2, "labels_indices is not a matrix");
        require!(
            indices.dims[1] == 2,
            "labels_indices second dimension must be 2. Received {}",
            indices.dims[1]
        );
        require!(values.dims.len() == 1, "labels_values is not a vector");
        require!(time != 0, "Max time or first dimension of input cannot be 0.");
        require!(
            batch == lengths.dims[0],
            "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {batch}",
            lengths.dims[0]
        );
        require!(
            indices.dims[0] == values.dims[0],
            "labels_indices and labels_values must contain the same number of rows, but saw \
             shapes: {} vs. {}",
            shape_text(&indices.dims),
            shape_text(&values.dims)
        );
        require!(batch != 0, "batch_size must not be 0");
        require!(classes != 0, "num_classes must not be 0");
        let labels = by_sequence(&indices.to_i64()?, &values.values::<i32>(), batch)?;
        let mut sequences = Vec::with_capacity(batch);
        for (b, (labels, length)) in labels.iter().zip(lengths.values::<i32>()).enumerate() {
            require!(length <= 0 || length as usize <= time, "sequence_length({b}) <= {time}");
            require!(length >= 0, "seq_len({b}) < 0");
            sequences.push(self.sequence(b, labels, length as usize, classes)?);
        }
        Ok(sequences)
    }

    /// Sequence `b` of `steps` steps. Labels that are blanks may only follow the others.
    fn sequence(&self, b: usize, labels: &[i32], steps: usize, classes: usize) -> Result<Sequence> {
        require!(!labels.is_empty() || !self.blank_is_last, "Labels length is zero in batch {b}");
        let mut own = Vec::with_capacity(labels.len());
        let mut finished = false;
        for (i, label) in labels.iter().enumerate() {
            if self.collapses && i > 0 && labels[i - 1] == *label {
                continue;
            }
            let is_blank = match self.blank_is_last {
                true => i64::from(*label) >= classes as i64 - 1,
                false => *label == 0,
            };
            if is_blank {
                finished = true;
                continue;
            }
            require!(
                !finished,
                "Saw a non-null label following a null label, batch: {b} num_classes: {classes} \
                 labels: {labels:?}"
            );
            require!(
                *label >= 0,
                "All labels must be nonnegative integers, batch: {b} labels: {labels:?}"
            );
            require!(
                (*label as usize) < classes,
                "No label may be greater than num_classes. num_classes: {classes}, batch: {b} \
                 labels: {labels:?}"
            );
            own.push(*label as u32);
        }
        let longer = labels.len() > steps;
        require!(
            !longer || self.ignores_longer,
            "Not enough time for target transition sequence (required: {}, available: {steps}){b}\
             You can turn this error into a warning by using the flag \
             ignore_longer_outputs_than_inputs",
            labels.len()
        );
        // A sequence that is left out is not looked at further.
        Ok(if longer {
            Sequence { steps: 0, labels: Vec::new() }
        } else {
            Sequence { steps, labels: own }
        })
    }
}

/// The labels of each sequence. Their indices must be sorted and in range, as in a SparseTensor.
fn by_sequence(indices: &[i64], values: &[i32], batch: usize) -> Result<Vec<Vec<i32>>> {
    let mut labels = vec![Vec::new(); batch];
    let mut before = None;
    for (i, (place, value)) in indices.chunks_exact(2).zip(values).enumerate() {
        let bad = |what: &str| {
            Err(Error::InvalidArgument(format!(
                "label SparseTensor is not valid: indices[{i}] = [{},{}] is {what}",
                place[0], place[1]
            )))
        };
        let fits = place[1] >= 0
            && place[1].checked_add(1).is_some_and(|n| n.checked_mul(batch as i64).is_some());
        if place[0] < 0 || place[0] >= batch as i64 || !fits {
            return bad(&format!("out of bounds: need 0 <= index[0] < {batch}, 0 <= index[1]"));
        }
        match before {
            Some(b) if b == place => return bad("repeated"),
            Some(b) if b > place => return bad("out of order"),
            _ => before = Some(place),
        }
        labels[place[0] as usize].push(*value);
    }
    Ok(labels)
}

impl Kernel for Loss {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs = ctx.input(0)?;
        require!(inputs.rank() == 3, "inputs is not a 3-Tensor");
        let extents = [inputs.dims[0], inputs.dims[1], inputs.dims[2]];
        let sequences = self.sequences(ctx, extents)?;
        let [time, batch, classes] = extents;
        let dtype = inputs.dtype;
        let (loss, y) = (ctx.output(0, dtype, &[batch])?, ctx.output(1, dtype, &inputs.dims)?);
        let capabilities = *ctx.device().capabilities();
        let limit = windows::limit(&capabilities) / dtype.size() as u64;
        let largest = sequences.iter().map(Sequence::numbers).max().unwrap_or(0);
        let labels: usize = sequences.iter().map(|s| s.labels.len()).sum();
        if largest as u64 > limit {
            return Err(windows::too_large(&capabilities, "what one sequence's paths take"));
        }
        if (labels * 2 + batch * SEQUENCE_WORDS) as u64 > windows::limit(&capabilities) / 4 {
            return Err(windows::too_large(&capabilities, "the list of all labels"));
        }
        let most = limit.min(MOST_PATHS / dtype.size() as u64).max(largest as u64) as usize;
        let plan = CtcPlan::new(&sequences, most);
        let words = ctx.temp(U32, &[plan.words.len()])?;
        ctx.device().upload(words.address, bytemuck::cast_slice(&plan.words))?;
        let size = |f: fn(&Group) -> usize| plan.groups.iter().map(f).max().unwrap_or(0).max(1);
        let alpha = ctx.temp(dtype, &[size(|g| g.numbers)])?;
        let beta = ctx.temp(dtype, &[size(|g| 2 * (g.end - g.first) * g.positions)])?;
        softmax::log_rows(ctx.device(), &inputs, &y)?;
        let run = Run {
            device: ctx.device(),
            plan: &words,
            y: &y,
            alpha: &alpha,
            beta: &beta,
            loss: &loss,
            blank: if self.blank_is_last { classes - 1 } else { 0 },
            merges: self.merges,
        };
        for group in &plan.groups {
            let step = batch * classes;
            let per_step = group.positions.div_ceil(UNITS) + 1;
            let count = windows::largest(time, |n| {
                (n * step) as u64 <= limit && n * per_step <= run.device.profile().loop_limit
            });
            if count == 0 {
                return Err(windows::too_large(&capabilities, "one step of the logits"));
            }
            let all = || windows::ranges(time, count);
            for (first, steps) in all().filter(|(first, _)| *first < group.steps) {
                run.enqueue(CtcPass::Forward, group, first, steps)?;
            }
            let backward: Vec<_> = all().filter(|(first, _)| *first < group.steps).collect();
            for (first, steps) in backward.into_iter().rev() {
                run.enqueue(CtcPass::Backward, group, first, steps)?;
            }
            for (first, steps) in all() {
                run.enqueue(CtcPass::Gradient, group, first, steps)?;
            }
        }
        Ok(())
    }
}

/// The tensors that all programs of one execution read.
struct Run<'r> {
    device: &'r Device,
    plan: &'r Tensor,
    y: &'r Tensor,
    alpha: &'r Tensor,
    beta: &'r Tensor,
    loss: &'r Tensor,
    blank: usize,
    merges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CtcPass {
    Forward,
    Backward,
    Gradient,
}

impl CtcPass {
    const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Gradient];

    /// The number of steps of its loops that an iteration takes for `classes` and a group of
    /// sequences.
    fn steps(self, profile: &Profile, classes: usize, group: &Group) -> Result<u32> {
        if self != Self::Gradient {
            return Ok(1);
        }
        // The iterations of a unit: its classes, its blanks, all labels if their chains lie in it,
        // and the sum of the blanks.
        let (classes, positions) = (classes.div_ceil(UNITS), group.positions);
        iterations::steps(profile, |steps| {
            (classes + 2 * positions).div_ceil(steps) + 2 * positions.div_ceil(UNITS) + UNITS
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Gradient => "gradient",
        }
    }
}

enum_key_parts!(CtcPass);

declare_program! {
    /// A pass over some steps of the sequences of a group.
    struct CtcProgram = "ctc"(pass: CtcPass, dtype: DType, by: u32);
    bindings { plan: U32, y: dtype, alpha: dtype }
    optional {
        beta: (pass == CtcPass::Backward).then_some(dtype),
        loss: (pass == CtcPass::Gradient).then_some(dtype),
    }
    params {
        first_sequence: usize, end_sequence: usize, first_step: usize, steps: usize, batch: usize,
        classes: usize, blank: usize, merge: bool, most_positions: usize,
    }
}

impl CtcProgram {
    fn shader(pass: CtcPass, dtype: DType, by: u32) -> Shader {
        let double = dtype == F64;
        let of = |name| if double { format!("{name}_f64") } else { format!("{name}_f32") };
        let literal = |text: &str| format!("{text}{}", if double { "lf" } else { "f" });
        let body = match pass {
            CtcPass::Forward => include_str!("../../../shaders/rnn/ctc_forward.wgsl"),
            CtcPass::Backward => include_str!("../../../shaders/rnn/ctc_backward.wgsl"),
            CtcPass::Gradient => include_str!("../../../shaders/rnn/ctc_gradient.wgsl"),
        };
        let label = format!("ctc {} {dtype} by {by}", pass.name());
        Self::declare(label, pass, dtype, by)
            .define("REAL", dtype.value())
            .define("ZERO", literal("0.0"))
            .define("LOG_NOTHING", literal("-1.0e30"))
            // Below this value exp is zero in the type.
            .define("FAR", literal(if double { "-745.0" } else { "-103.0" }))
            .define("INFINITY", format!("{}({})", of("infinity_like"), literal("1.0")))
            .define("EXP", of("exp"))
            .define("LOG_SUM_EXP", of("log_sum_exp"))
            .workgroup([UNITS as u32, 1, 1])
            .body(include_str!("../../../shaders/rnn/ctc.wgsl"))
            .unrolled(by, body)
    }
}

impl Run<'_> {
    /// Enqueues one pass over the steps `first` to `first + steps` of a group's sequences.
    fn enqueue(&self, pass: CtcPass, group: &Group, first: usize, steps: usize) -> Result<()> {
        let dtype = self.y.dtype;
        let (batch, classes) = (self.y.dims[1], self.y.dims[2]);
        let sequences = group.end - group.first;
        let of_loops = pass.steps(&self.device.profile(), classes, group)?;
        let window = windows::part(self.y, first * batch * classes, steps * batch * classes);
        // Each position takes a sum of up to three exponentials, and its logarithm; the gradient
        // takes one exponential for each position, and a difference for each class.
        let operations = match pass {
            CtcPass::Gradient => 4 * group.positions + 2 * classes,
            CtcPass::Forward | CtcPass::Backward => 12 * group.positions,
        };
        let groups = if pass == CtcPass::Gradient { steps * sequences } else { sequences };
        let call = CtcProgram {
            plan: self.plan.into(),
            y: (&window).into(),
            alpha: self.alpha.into(),
            beta: (pass == CtcPass::Backward).then(|| self.beta.into()),
            loss: (pass == CtcPass::Gradient).then(|| self.loss.into()),
            first_sequence: group.first,
            end_sequence: group.end,
            first_step: first,
            steps,
            batch,
            classes,
            blank: self.blank,
            merge: self.merges,
            most_positions: group.positions,
        };
        let operations = dtype.flops(operations * sequences * steps);
        let of = CtcProgram::of(pass, dtype, of_loops);
        self.device.enqueue_counted(&call.program(&of, Grid::groups(groups)), operations)
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all: Vec<_> = TYPES
        .iter()
        .flat_map(|t| CtcPass::ALL.map(|pass| CtcProgram::shader(pass, *t, 1)))
        .collect();
    all.extend(STEPS[1..].iter().map(|steps| CtcProgram::shader(CtcPass::Gradient, F32, *steps)));
    all
}
