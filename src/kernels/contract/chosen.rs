//! Enqueues the programs of a contraction with a chosen tile.

use super::Contraction;
use super::choice::{self, Choice};
use super::epilogue::Bound;
use super::plan::Plan;
use crate::device::{Cooperative, Device, Profile};
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
        // A failure that is found before the program is enqueued is not an error of the op.
        plan.prepare(ctx.device()).inspect_err(|e| refuse(ctx.device(), &offered, e))?;
    }
    with_reserve(ctx, plan, |ctx| in_reserve(c, ctx, choice, epilogue))
}

/// Enqueues the programs of `plan`. If the driver refuses one of them, the programs that `reserve`
/// gives run instead; they compute the same.
pub(super) fn with_reserve<'p>(
    ctx: &mut dyn OpContext,
    plan: Plan<'_>,
    reserve: impl FnOnce(&mut dyn OpContext) -> Result<Option<Plan<'p>>>,
) -> Result<()> {
    let memory = plan.memory(ctx)?;
    let first = plan.gather(ctx.device(), &memory, false)?;
    // It is not known yet whether the driver takes programs that are not compiled.
    if ctx.device().are_compiled(&first) {
        return ctx.device().enqueue_gathered(first);
    }
    let Some(plan) = reserve(ctx)? else { return ctx.device().enqueue_gathered(first) };
    // An op must not fail for want of memory that it most likely does not need.
    let Ok(memory) = plan.memory(ctx) else { return ctx.device().enqueue_gathered(first) };
    let second = plan.gather(ctx.device(), &memory, true)?;
    ctx.device().enqueue_either(first, second)
}

/// A choice other than `choice`, with its profile, for a driver that refuses the programs of
/// `choice`: the choice of an adapter that has no more than WebGPU promises, or else the plainest
/// one.
pub(super) fn portable(c: &Contraction, own: Profile, choice: Choice) -> Option<(Choice, Profile)> {
    let profile = own.portable();
    let demand = c.demand(profile, None);
    let is_other = |other: &Choice| (other.tile, other.schedule) != (choice.tile, choice.schedule);
    let others = [Some(choice::choose(&demand)), choice::plainest(&demand)];
    others.into_iter().flatten().find(is_other).map(|other| (other, profile))
}

/// The programs of the [`portable`] choice.
fn in_reserve(
    c: &Contraction,
    ctx: &dyn OpContext,
    choice: Choice,
    epilogue: Option<&Bound<'_>>,
) -> Result<Option<Plan<'static>>> {
    portable(c, ctx.device().profile(), choice)
        .map(|(other, profile)| c.programs(other, None, epilogue, &profile))
        .transpose()
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
