//! Timing: batches of calls that end when the device is idle, and the median of the batches.

use std::time::{Duration, Instant};

use cpu_time::{ProcessTime, ThreadTime};
use tensorflow_wgpu::Result;
use tensorflow_wgpu::device::{Device, Statistics};
use tensorflow_wgpu::kernels::op::{Attrs, Kernel};
use tensorflow_wgpu::kernels::registry::Registry;

use crate::case::Case;
use crate::context::Context;

/// The time limits of a row.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// How long all batches together should last.
    pub total: Duration,
    /// The fewest batches of a row that is fast enough to be repeated.
    pub batches: usize,
}

impl Budget {
    /// Enough for reliable figures.
    pub const FULL: Self = Self { total: Duration::from_millis(200), batches: 5 };
    /// Enough to see that everything works.
    pub const QUICK: Self = Self { total: Duration::from_millis(10), batches: 1 };
}

/// The most calls of a batch: bounds the work that is recorded ahead of the device.
const MOST_CALLS: usize = 20_000;

/// The times of a unit of work.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Seconds of the first unit, including the compilation of its shaders.
    pub first: f64,
    /// Seconds of the other units; the median of the batches.
    pub seconds: f64,
    /// CPU time of the thread that enqueues.
    pub host: f64,
    /// CPU time of the whole process, which on a software adapter includes the device's.
    pub cpu: f64,
    /// Seconds of a unit in the fastest batch.
    pub best: f64,
    /// The least CPU time of a unit.
    pub best_cpu: f64,
    /// The number of units that were timed.
    pub units: usize,
    /// The device's counts for one unit.
    pub counted: Statistics,
}

/// Runs `unit` in batches.
pub fn repeat(
    device: &Device,
    budget: &Budget,
    unit: &mut dyn FnMut() -> Result<()>,
) -> Result<Timed> {
    let start = Instant::now();
    unit()?;
    device.synchronize()?;
    let first = start.elapsed().as_secs_f64();
    let before = device.statistics();
    let mut row = batch(device, 1, unit)?;
    let counted = since(&before, &device.statistics());
    let (total, share) =
        (budget.total.as_secs_f64(), budget.total.as_secs_f64() / budget.batches as f64);
    // A batch of one call includes the wait for the device, which the calls of a longer batch
    // share. So the number of calls that fill the time is found step by step.
    let mut calls = 1;
    while calls < MOST_CALLS && row[0] * (calls as f64) < share {
        calls = (calls * 4).min((share / row[0]).ceil() as usize).clamp(calls + 1, MOST_CALLS);
        row = batch(device, calls, unit)?;
    }
    let mut rows = vec![row];
    while row[0] * (calls * rows.len()) as f64 <= total && rows.len() < budget.batches {
        rows.push(batch(device, calls, unit)?);
    }
    let column = |k: usize| rows.iter().map(move |row| row[k]);
    let [seconds, host, cpu] = [0, 1, 2].map(|k| median(column(k).collect()));
    let [best, best_cpu] = [0, 2].map(|k| column(k).fold(f64::INFINITY, f64::min));
    Ok(Timed { first, seconds, host, cpu, best, best_cpu, units: calls * rows.len(), counted })
}

/// Seconds of a call: wall clock, CPU time of this thread before it waits for the device, CPU time
/// of the process.
fn batch(device: &Device, calls: usize, unit: &mut dyn FnMut() -> Result<()>) -> Result<[f64; 3]> {
    let (process, start, thread) = (ProcessTime::now(), Instant::now(), ThreadTime::now());
    for _ in 0..calls {
        unit()?;
    }
    let host = thread.elapsed().as_secs_f64();
    device.synchronize()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok([seconds, host, process.elapsed().as_secs_f64()].map(|s| s / calls as f64))
}

/// The device's work between two counts.
fn since(before: &Statistics, after: &Statistics) -> Statistics {
    Statistics {
        dispatches: after.dispatches - before.dispatches,
        barriers: after.barriers - before.barriers,
        barriers_needed: after.barriers_needed - before.barriers_needed,
        bytes: after.bytes - before.bytes,
        uploads: after.uploads - before.uploads,
        downloads: after.downloads - before.downloads,
        copies: after.copies - before.copies,
        ..Statistics::default()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The outcome of a row.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The times of a unit of work.
    pub timed: Timed,
    /// Bytes that a unit has to move.
    pub necessary: f64,
}

/// Runs a case. None if the adapter does not offer the op in these types.
pub fn run(
    device: &Device,
    registry: &Registry,
    case: &Case,
    budget: &Budget,
) -> Result<Option<Outcome>> {
    let node = &case.node;
    let Some(registration) = registry.find(node.op(), |attr| node.dtype(attr).ok()) else {
        return Ok(None);
    };
    let kernel = (registration.create)(node)?;
    let mut context = Context::new(device, &case.inputs);
    let outcome = unit_of(device, &*kernel, case, budget, &mut context);
    // A failed row must leave nothing that disturbs the next one.
    device.synchronize()?;
    context.end()?;
    outcome.map(Some)
}

fn unit_of(
    device: &Device,
    kernel: &dyn Kernel,
    case: &Case,
    budget: &Budget,
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut unit = || {
        for _ in 0..case.calls {
            context.begin();
            kernel.compute(context)?;
        }
        Ok(())
    };
    let timed = repeat(device, budget, &mut unit)?;
    let necessary = case.bytes.unwrap_or(context.necessary as f64) * case.calls as f64;
    Ok(Outcome { timed, necessary })
}
