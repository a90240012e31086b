//! Contractions under tuning: which contractions are one question to the [`Tuner`], and how a
//! candidate is timed.
//!
//! A question consists of all that the shader's text depends on, except the tile, and of the sizes'
//! powers of two. Its candidates are the shipped table's choice, if it has one, and the choices
//! with the best estimates. Their results differ only by the order of sums.
//!
//! The times of each search are kept for reports ([`timings`]): `tools/tuning` merges them into the
//! table.

use std::sync::Arc;

use parking_lot::Mutex;

use super::apart::Apart;
use super::choice::{self, Choice, Demand};
use super::epilogue::Bound;
use super::programs::Programs;
use super::shipped::{self, Class, Operation};
use super::{Contraction, StoreKind, choices, run, tables};
use crate::device::tuning::{Name, Names, Tuner};
use crate::device::{Cooperative, Device, Family, Key, Profile};
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;

/// Enqueues `c` with the choice that was found to be the fastest. The first call of its question
/// waits until it is found.
pub(super) fn enqueue(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    tuner: &Tuner,
    demand: &Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let question = question(c, demand, cooperative, epilogue);
    let mut call = Call { c, demand, cooperative, epilogue, apart: None };
    let device = ctx.device();
    let candidates = || names(device, c, demand);
    let mut times: Vec<(Choice, u64)> = Vec::new();
    let answer = tuner.answer(&question, device, &candidates, &mut |apart, name| {
        let nanoseconds = call.time(apart, name, &candidates)?;
        let choice = Choice::named(name, demand).expect("a candidate that has run");
        match times.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, least)) => *least = nanoseconds.min(*least),
            None => times.push((choice, nanoseconds)),
        }
        Ok(nanoseconds)
    });
    // If the first candidate did not run, there is nothing to compare with.
    if let [(first, _), ..] = times[..]
        && candidates().first() == Some(&first.name())
    {
        keep(device, c, demand, times);
    }
    let choice = answer.and_then(|name| Choice::named(name, demand));
    if answer.is_some() && choice.is_none() {
        // The answer came from a file and names no tile of the adapter.
        tuner.forget(&question);
    }
    if let Some(choice) = choice {
        match run::enqueue(c, ctx, choice, cooperative, epilogue) {
            // There is no memory for the parts of this choice. The estimate's choice may need none.
            Err(Error::ResourceExhausted(_)) => {}
            done => return done,
        }
    }
    let choice = choices::of(ctx.device(), c, c.batch.len(), cooperative);
    run::enqueue(c, ctx, choice, cooperative, epilogue)
}

/// The times of a search.
#[derive(Debug, Clone)]
pub struct Timings {
    /// The number of the device that wanted an answer.
    pub device: u32,
    /// The class of the contraction.
    pub class: Class,
    /// The candidates with the least nanoseconds of each, the one first that would have run without
    /// tuning.
    pub times: Vec<(Choice, u64)>,
}

/// The largest number of searches whose times are kept.
const MOST_TIMINGS: usize = 4096;

static TIMINGS: Mutex<Vec<Timings>> = Mutex::new(Vec::new());

/// The times of the searches of this process, in their order.
pub fn timings() -> Vec<Timings> {
    TIMINGS.lock().clone()
}

/// Keeps the times of a search, if the adapter is of a family: other adapters have no rows.
fn keep(device: &Device, c: &Contraction, demand: &Demand, times: Vec<(Choice, u64)>) {
    let family = demand.profile.family.or_else(|| Family::of(device.info()));
    let known = Demand { profile: Profile { family, ..demand.profile }, ..*demand };
    let Some(class) = Class::of(Operation::of(c), c.a.dtype, &known) else { return };
    let mut all = TIMINGS.lock();
    if all.len() < MOST_TIMINGS {
        all.push(Timings { device: device.number(), class, times });
    }
}

/// A call of a contraction whose candidates may be timed.
struct Call<'c> {
    c: &'c Contraction,
    demand: &'c Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&'c Bound<'c>>,
    /// The device where candidates are timed, with operands.
    apart: Option<Apart>,
}

impl Call<'_> {
    fn programs(&self, device: &Device, name: Name) -> Result<Programs> {
        let choice = Choice::named(name, self.demand)
            .ok_or_else(|| Error::Internal(format!("{name:#x} is no candidate")))?;
        self.c.programs(choice, self.cooperative, self.epilogue, &device.profile())
    }

    /// Nanoseconds of a candidate.
    fn time(
        &mut self,
        device: &Arc<Device>,
        name: Name,
        candidates: &dyn Fn() -> Names,
    ) -> Result<u64> {
        if self.apart.is_none() {
            // The programs of all candidates are compiled at the same time. Errors are returned
            // when they are timed.
            for name in candidates() {
                let _ = self.programs(device, name).and_then(|programs| programs.is_ready(device));
            }
        }
        let programs = self.programs(device, name)?;
        self.apart.get_or_insert_with(|| Apart::on(device.clone())).time(programs)
    }
}

/// Names of the candidates. Among candidates that run the same programs only the first is named.
fn names(device: &Device, c: &Contraction, demand: &Demand) -> Names {
    let mut names = Names::new();
    let mut seen = Names::new();
    let known = shipped::choice(Operation::of(c), c.a.dtype, demand);
    for choice in known.into_iter().chain(choice::candidates(demand)) {
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

/// The question of a contraction: timings of one contraction hold for all with the same question.
fn question(
    c: &Contraction,
    demand: &Demand,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Key {
    // Any tile of the adapter will do.
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
        let timed = tuner.timings();
        assert!(timed >= 6, "at least two candidates, three times each");
        let compiled = || device.statistics().pipelines;
        // This tile is none of the candidates: its program is compiled because it is the answer.
        let (before, slowest) = (compiled(), &MANY_REGISTERS[9]);
        tuner.tell(&questions[0], u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(compiled(), before + 1);
        // The contracted index is cut into nine parts, whose sums are then added.
        tuner.tell(&questions[0], 9 << 32 | u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(compiled(), before + 2);
        for nonsense in [0, u64::from(u32::MAX), u64::MAX] {
            tuner.tell(&questions[0], nonsense);
            assert_eq!(product(&mut session), want);
            assert!(tuner.answers().is_empty(), "{nonsense:#x} is forgotten");
        }
        // The name asks for more parts than there are steps.
        tuner.tell(&questions[0], u64::from(u32::MAX >> 2) << 32 | u64::from(slowest.id()));
        assert_eq!(product(&mut session), want);
        assert_eq!(tuner.timings(), timed);
    }
}
