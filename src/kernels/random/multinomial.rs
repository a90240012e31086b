//! Sampling of classes from logits. TensorFlow's CPU kernel gives other numbers for the same seed,
//! which also depend on its threads; the numbers here are those of its GPU kernel, except for ties
//! within rounding.

use super::inputs;
use super::philox::Generator;
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::{DType, Operations, types};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::ranges;
use crate::require;
use crate::shader::Shader;
use parking_lot::Mutex;

/// Types of the logits. TensorFlow's GPU kernel rounds float64 to float32, too.
const LOGITS: &[DType] = types::FLOATS_BUT_BF16;
/// Invocations of the two variants: the small one is for few classes.
const WORKGROUPS: [u32; 2] = [32, 256];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    let make = |attrs: &dyn Attrs, generator: Option<Generator>| -> Result<Multinomial> {
        Ok(Multinomial {
            logits: attrs.dtype("T")?,
            output: attrs.dtype("output_dtype")?,
            generator: generator.map(Mutex::new),
        })
    };
    registry
        .op("Multinomial")
        .types("T", LOGITS)
        .types("output_dtype", types::INDEX)
        .host(&["num_samples"])
        .kernel(move |attrs| {
            make(attrs, Some(Generator::seeded(attrs.int("seed")?, attrs.int("seed2")?)))
        });
    registry
        .op("StatelessMultinomial")
        .types("T", LOGITS)
        .types("output_dtype", types::INDEX)
        .host(&["num_samples", "seed"])
        .kernel(move |attrs| make(attrs, None));
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = Vec::new();
    for logits in LOGITS {
        for output in types::INDEX {
            let shader = |workgroup, is_cut| Sample::shader(*logits, *output, workgroup, is_cut);
            shaders.extend(WORKGROUPS.map(|workgroup| shader(workgroup, false)));
            shaders.push(shader(WORKGROUPS[1], true));
        }
    }
    shaders
}

declare_program! {
    /// Samples a class from a row of logits. If rows are cut, the best score so far and its class
    /// are kept from one dispatch to the next.
    struct Sample = "random multinomial"(
        logits_type: DType, output: DType, workgroup: u32, is_cut: bool
    );
    bindings { logits: logits_type, y: output }
    optional {
        best_scores: is_cut.then_some(DType::F32), best_classes: is_cut.then_some(DType::U32),
    }
    params {
        rows: usize, samples: usize, classes: usize, generator: Generator,
        first_class: Option<usize> = is_cut, end_class: Option<usize> = is_cut,
    }
}

impl Sample {
    fn shader(logits: DType, output: DType, workgroup: u32, is_cut: bool) -> Shader {
        let label = format!("random multinomial {logits} {output} cut={is_cut}");
        Self::declare(label, logits, output, workgroup, is_cut)
            .workgroup([workgroup, 1, 1])
            .define("CLASS", output.value())
            .body(if is_cut {
                include_str!("../../../shaders/random/multinomial_cut.wgsl")
            } else {
                include_str!("../../../shaders/random/multinomial_whole.wgsl")
            })
            .body(include_str!("../../../shaders/random/multinomial.wgsl"))
    }
}

/// Inputs: logits, num_samples[, seed].
struct Multinomial {
    logits: DType,
    output: DType,
    /// The stateful op's own generator.
    generator: Option<Mutex<Generator>>,
}

impl Kernel for Multinomial {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let seed = if self.generator.is_none() { Some(inputs::seed(ctx, 2)?) } else { None };
        let logits = ctx.input(0)?;
        require!(
            logits.rank() == 2,
            "logits should be a matrix, got shape {}",
            inputs::text(&logits.dims)
        );
        let count = ctx.host_input(1)?;
        require!(
            count.dims.is_empty(),
            "num_samples should be a scalar, got shape {}",
            inputs::text(&count.dims)
        );
        let count = count.to_i64()?[0];
        let Ok(samples) = usize::try_from(count) else {
            crate::invalid!("num_samples should be non-negative, got {count}")
        };
        let (batch, classes) = (logits.dims[0], logits.dims[1]);
        require!(classes > 0, "num_classes should be positive, got {classes}");
        let Some(output) = ctx.some_output(0, self.output, &[batch, samples])? else {
            return Ok(());
        };
        let generator = match (&self.generator, seed) {
            (Some(own), _) => {
                let mut next = own.lock();
                let generator = *next;
                next.skip((batch * samples.next_multiple_of(4)) as u64 * super::SAMPLES_PER_OUTPUT);
                generator
            }
            (None, seed) => Generator::scrambled(seed.unwrap_or_default()),
        };
        let at_once = classes_at_once(ctx.device().profile().loop_limit);
        let is_cut = classes > at_once;
        let mut temp = |dtype| -> Result<Option<Binding>> {
            let best = is_cut.then(|| ctx.temp(dtype, &[output.len()])).transpose()?;
            Ok(best.as_ref().map(Binding::from))
        };
        let (best_scores, best_classes) = (temp(DType::F32)?, temp(DType::U32)?);
        let device = ctx.device();
        // The shader's indices of random numbers run a little past the last class.
        device.check_extent((output.len() * classes).saturating_add(4 * WORKGROUPS[1] as usize))?;
        let workgroup = WORKGROUPS[usize::from(is_cut || classes > 128)];
        let of = Sample::of(self.logits, self.output, workgroup, is_cut);
        for (first, count) in ranges(classes, at_once) {
            let call = Sample {
                logits: (&logits).into(),
                y: (&output).into(),
                best_scores,
                best_classes,
                rows: output.len(),
                samples,
                classes,
                generator,
                first_class: is_cut.then_some(first),
                end_class: is_cut.then_some(first + count),
            };
            let operations = Operations::unreported(OPERATIONS * output.len() * count);
            device.enqueue_counted(&call.program(&of, Grid::groups(output.len())), operations)?;
        }
        Ok(())
    }
}

/// Operations for each class of a row: a quarter of the generator's ten rounds, and two logarithms.
const OPERATIONS: usize = 50;

/// The most classes of a row that a dispatch draws from, on an adapter whose invocations run at
/// most `loop_limit` iterations.
fn classes_at_once(loop_limit: usize) -> usize {
    // Each group of four classes takes ten iterations for the rounds of the generator, four for the
    // loop over the classes, and one of the outer loop. A row may begin within a group.
    let groups = (loop_limit.saturating_sub(64) / 15).max(2) - 1;
    4 * WORKGROUPS[1] as usize * groups
}
