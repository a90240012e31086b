//! A contraction with a chosen tile: its programs are enqueued.

use super::Contraction;
use super::choice::{self, Choice};
use super::epilogue::Bound;
use super::plan::{Plan, Temporaries};
use crate::device::{Cooperative, Device, Dispatches};
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;

/// Enqueues the programs of a choice.
pub(super) fn enqueue(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    choice: Choice,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let plan = c.programs(choice, cooperative, epilogue, &ctx.device().profile())?;
    if let Some(offered) = cooperative.filter(|_| choice.is_cooperative()) {
        // Found out before it is enqueued, its failure is nobody's error.
        plan.prepare(ctx.device()).inspect_err(|e| refuse(ctx.device(), &offered, e))?;
    }
    let memory = plan.memory(ctx)?;
    let first = plan.gather(ctx.device(), &memory, false)?;
    if ctx.device().are_compiled(&first) {
        return ctx.device().enqueue_gathered(first);
    }
    // Until it is known whether the driver takes the choice's programs.
    match in_reserve(c, ctx, choice, epilogue)? {
        Some(second) => ctx.device().enqueue_either(first, second),
        None => ctx.device().enqueue_gathered(first),
    }
}

/// The programs of the tile that an adapter would take which has no more than WebGPU promises, for
/// a driver that refuses the programs of `choice`. None if that is the same tile.
fn in_reserve(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    choice: Choice,
    epilogue: Option<&Bound<'_>>,
) -> Result<Option<Dispatches>> {
    let profile = ctx.device().profile().portable();
    let other = choice::choose(&c.demand(profile, None));
    if other.tile == choice.tile && other.schedule == choice.schedule {
        return Ok(None);
    }
    let plan = c.programs(other, None, epilogue, &profile)?;
    // An op must not fail for want of memory for what it most likely does not need.
    let Ok(memory) = plan.memory(ctx) else { return Ok(None) };
    plan.gather(ctx.device(), &memory, true).map(Some)
}

/// Enqueues a plan of programs with `memory` for its temporaries.
pub(super) fn enqueue_programs(
    plan: Plan<'_>,
    ctx: &mut dyn OpContext,
    memory: &Temporaries,
) -> Result<()> {
    plan.enqueue_in(ctx, memory, |_, c, _| unreachable!("a choice has programs: {c:?}"))
}

/// Ends the use of cooperative matrices on `device`.
pub(super) fn refuse(device: &Device, offered: &Cooperative, reason: &Error) {
    if device.matrix_units().refuse(offered) {
        let Cooperative { element, size, .. } = offered;
        log::warn!(
            "{}: cooperative matrices {size} of {element} are not used, since {reason}",
            device.info().name
        );
    }
}
