//! Sampling of classes from logits. TensorFlow's CPU kernel gives other numbers for the same seed,
//! which also depend on its threads; the numbers here are those of its GPU kernel, except for ties
//! within rounding.

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use super::inputs;
use super::philox::Generator;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::{DType, Operations, types};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::ranges;
use crate::require;
use crate::shader::Shader;

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
            shaders.extend(WORKGROUPS.map(|workgroup| shader(*logits, *output, workgroup, false)));
            shaders.push(shader(*logits, *output, WORKGROUPS[1], true));
        }
    }
    shaders
}

fn shader(logits: DType, output: DType, workgroup: u32, is_cut: bool) -> Shader {
    let mut shader = Shader::new(format!("random multinomial {logits} {output} cut={is_cut}"))
        .bind("logits", logits)
        .bind("y", output);
    if is_cut {
        shader = shader.bind("best_scores", DType::F32).bind("best_classes", DType::U32);
    }
    shader = shader
        .u32s(&["rows", "samples", "classes"])
        .u32s(&["counter_0", "counter_1", "counter_2", "counter_3", "key_0", "key_1"])
        .library("box_muller")
        .workgroup([workgroup, 1, 1])
        .define("CLASS", output.value());
    shader = if is_cut {
        shader
            .u32s(&["first_class", "end_class"])
            .body(include_str!("../../../shaders/random/multinomial_cut.wgsl"))
    } else {
        shader.body(include_str!("../../../shaders/random/multinomial_whole.wgsl"))
    };
    shader.body(include_str!("../../../shaders/random/multinomial.wgsl"))
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
        let output = ctx.output(0, self.output, &[batch, samples])?;
        if output.is_empty() {
            return Ok(());
        }
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
        let (logits_type, output_type, is_cut) = (self.logits, self.output, classes > at_once);
        let mut bindings: SmallVec<[Binding; 8]> =
            smallvec![Binding::from(&logits), Binding::from(&output)];
        if is_cut {
            for dtype in [DType::F32, DType::U32] {
                bindings.push((&ctx.temp(dtype, &[output.len()])?).into());
            }
        }
        let device = ctx.device();
        // The shader's indices of random numbers run a little past the last class.
        device.check_extent((output.len() * classes).saturating_add(4 * WORKGROUPS[1] as usize))?;
        let workgroup = WORKGROUPS[usize::from(is_cut || classes > 128)];
        let mut params = Params::new().u32(output.len()).u32(samples).u32(classes);
        for word in generator.counter.into_iter().chain(generator.key) {
            params = params.u32(word);
        }
        for (first, count) in ranges(classes, at_once) {
            let params = params.clone();
            let program = Program {
                key: Key::new("random")
                    .name("multinomial")
                    .dtype(logits_type)
                    .dtype(output_type)
                    .number(workgroup)
                    .number(u32::from(is_cut)),
                shader: &|| shader(logits_type, output_type, workgroup, is_cut),
                bindings: bindings.clone(),
                params: if is_cut { params.u32(first).u32(first + count) } else { params },
                grid: Grid::groups(output.len()),
            };
            let operations = Operations::unreported(OPERATIONS * output.len() * count);
            device.enqueue_counted(&program, operations)?;
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
