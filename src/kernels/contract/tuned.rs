//! Contractions under tuning: what is one question to the [`Tuner`], and how a choice is timed in
//! its place.
//!
//! A question is all that the shader's text depends on but the tile, and the sizes' powers of two.
//! Its candidates are the choices that the estimate likes best, whose results differ by the order
//! of sums alone. So a timed call is a right call; it may take longer, and never waits for a
//! compiler: until its programs are there, the estimate's choice runs.

use std::sync::Arc;

use super::choice::{self, Choice, Demand};
use super::epilogue::Bound;
use super::plan::Plan;
use super::{Contraction, StoreKind, chosen, tables};
use crate::device::tuning::{Name, Names, Pick, Shape, Timing, Tuner};
use crate::device::{Cooperative, Device, Key};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;

/// Enqueues `c` with what was found to be the fastest, or times a candidate.
pub(super) fn enqueue(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    tuner: &Arc<Tuner>,
    demand: &Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let question = question(c, demand, cooperative, epilogue);
    let call = Call { c, tuner, question: &question, demand, cooperative, epilogue };
    let pick = tuner.pick(&question, shape(c, demand), &|| names(ctx.device(), c, demand));
    let candidate = match pick {
        Pick::Estimate => None,
        Pick::Answer(name) => match Choice::named(name, demand) {
            Some(choice) => Some((None, call.plan(ctx.device(), choice)?)),
            // From a file, and of no tile: it is asked again.
            None => {
                tuner.forget(&question);
                None
            }
        },
        Pick::Time(names) => {
            call.ready(ctx.device(), &names).map(|(name, plan)| (Some(name), plan))
        }
    };
    if let Some((name, plan)) = candidate {
        // What has no memory for its parts must not fail where the estimate's choice does not.
        if let Ok(memory) = plan.memory(ctx) {
            match name {
                None => return chosen::enqueue_programs(plan, ctx, &memory),
                Some(name) => {
                    if let Some((_marking, timing)) = tuner.begin(&question, shape(c, demand), name)
                    {
                        return call.timed(ctx, timing, |ctx| {
                            chosen::enqueue_programs(plan, ctx, &memory)
                        });
                    }
                }
            }
        }
    }
    chosen::enqueue(c, ctx, choice::choose(demand), cooperative, epilogue)
}

/// A call that may be timed.
struct Call<'c> {
    c: &'c Contraction,
    tuner: &'c Arc<Tuner>,
    question: &'c Key,
    demand: &'c Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&'c Bound<'c>>,
}

impl Call<'_> {
    fn plan(&self, device: &Device, choice: Choice) -> Result<Plan<'static>> {
        self.c.programs(choice, self.cooperative, self.epilogue, &device.profile())
    }

    /// The plan of the first of `names` whose programs are compiled. The others' begin to be,
    /// beside the recording.
    fn ready(&self, device: &Device, names: &[Name]) -> Option<(Name, Plan<'static>)> {
        // Compilers have more urgent things to do, and marks would wait for them.
        if !device.is_recorded() {
            return None;
        }
        let mut first = None;
        for name in names {
            let choice = Choice::named(*name, self.demand);
            let plan = choice.and_then(|choice| self.plan(device, choice).ok());
            match plan.map(|plan| (plan.is_ready(device), plan)) {
                Some((Ok(true), plan)) => {
                    first.get_or_insert((*name, plan));
                }
                Some((Ok(false), _)) => {}
                refused => {
                    self.tuner.exclude(self.question, *name);
                    let matrices = choice.filter(Choice::is_cooperative).and(self.cooperative);
                    if let (Some((Err(e), _)), Some(offered)) = (refused, matrices) {
                        chosen::refuse(device, &offered, &e);
                    }
                }
            }
        }
        first
    }

    /// Has `enqueue` carry a candidate out between two marks.
    fn timed(
        &self,
        ctx: &mut dyn OpContext,
        timing: Timing,
        enqueue: impl FnOnce(&mut dyn OpContext) -> Result<()>,
    ) -> Result<()> {
        let timer = ctx.device().timer();
        timer.start(ctx.device());
        enqueue(ctx)?;
        let (demand, types) = (*self.demand, [self.c.a.dtype, self.c.c.dtype]);
        timer.stop_with(ctx.device(), move |nanoseconds| {
            if let Some((name, percent)) = timing.end(nanoseconds) {
                let choice = Choice::named(name, &demand);
                log::debug!(
                    "{percent} % of the estimated choice's time: {choice:?} for {types:?}, \
                     {demand:?}"
                );
            }
        });
        Ok(())
    }
}

/// Names of the candidates. Of candidates that run the same programs only the first is named.
fn names(device: &Device, c: &Contraction, demand: &Demand) -> Names {
    let mut names = Names::new();
    let mut seen = Names::new();
    for choice in choice::candidates(demand) {
        let what =
            Choice { split_k: c.chunk(limit(device.capabilities()), choice.split_k), ..choice }
                .name();
        if !seen.contains(&what) {
            seen.push(what);
            names.push(choice.name());
        }
    }
    names
}

const fn shape(c: &Contraction, demand: &Demand) -> Shape {
    [demand.m, demand.n, c.outer, c.inner, demand.batch]
}

/// What timings of one contraction tell about another.
fn question(
    c: &Contraction,
    demand: &Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Key {
    // A tile of the adapter's, whichever is chosen.
    let mut variant = c.variant(&tables::table(&demand.profile)[0]);
    variant.epilogue = epilogue.map(|e| e.variant(variant.c.1 == StoreKind::Vec4s));
    variant.cooperative = cooperative;
    let sizes = [demand.m, demand.n, demand.depth, demand.batch]
        .map(|size| size.next_power_of_two().ilog2());
    sizes
        .iter()
        .fold(variant.key().name("sizes").number(u32::from(demand.by_depth)), |key, size| {
            key.number(*size)
        })
}

#[cfg(test)]
mod tests {
    use super::super::tables::MANY_REGISTERS;
    use crate::HostTensor;
    use crate::device::{Device, Profile, Selection};
    use crate::dtype::DType;
    use crate::local::{Node, Session};

    const N: usize = 64;

    /// A square product whose elements are whole numbers.
    fn product(session: &mut Session) -> Vec<f64> {
        let node = Node::new("MatMul")
            .attr("T", DType::F32)
            .attr("transpose_a", false)
            .attr("transpose_b", false);
        let values: Vec<f64> = (0..N * N).map(|i| (i % 7) as f64 - 3.0).collect();
        let operand = HostTensor::floats(DType::F32, &[N, N], &values);
        let got = session.run(&node, &[operand.clone().into(), operand.into()]);
        got.unwrap()[0].to_f64()
    }

    #[test]
    fn an_answer_is_carried_out_and_one_of_no_tile_is_forgotten() {
        let selection = Selection::enumerate(&|name| std::env::var(name).ok());
        let adapter = selection.adapters.first().expect("a Vulkan driver");
        let profile = Profile::NVIDIA.on(Profile::of(adapter));
        let device = Device::open_tuning(adapter, profile, None, || false).unwrap();
        let tuner = device.tuner().unwrap().clone();
        let mut session = Session::new(device.clone());
        let want = product(&mut session);
        let questions = tuner.questions();
        assert_eq!(questions.len(), 1);
        let compiled = || device.statistics().pipelines;
        // None of the candidates: its program is compiled because it is the answer.
        let (before, slowest) = (compiled(), &MANY_REGISTERS[9]);
        tuner.answer(&questions[0], u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(compiled(), before + 1);
        // In nine parts, which are to be added.
        tuner.answer(&questions[0], 9 << 32 | u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(compiled(), before + 2);
        for nonsense in [0, u64::from(u32::MAX), u64::MAX] {
            tuner.answer(&questions[0], nonsense);
            assert_eq!(product(&mut session), want);
            assert!(tuner.answers().is_empty(), "{nonsense:#x} is forgotten");
        }
        // More parts than there are steps.
        tuner.answer(&questions[0], u64::from(u32::MAX >> 2) << 32 | u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(tuner.timings(), 0);
    }
}
