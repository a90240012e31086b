//! How a contraction that fits the bindings is enqueued: a tile is chosen, and its programs run, or
//! others if the driver refuses them.

use super::choice::{self, Choice};
use super::epilogue::Bound;
use super::programs::Programs;
use super::{Contraction, choices, tuned, validation};
use crate::device::{Cooperative, Device, Profile};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;

/// Chooses the tile of a contraction that fits the bindings, and enqueues its programs.
pub(super) fn enqueue(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let profile = ctx.device().profile();
    let cooperative = usable(ctx.device(), c.a.dtype, c.b.dtype);
    let tuner = ctx.device().tuner().filter(|_| profile.tile == 0).cloned();
    let done = match tuner {
        Some(tuner) => {
            let demand = c.demand(profile, cooperative);
            tuned::enqueue(c, ctx, &tuner, &demand, cooperative, epilogue)
        }
        None => {
            let choice = choices::of(ctx.device(), c, c.batch.len(), cooperative);
            enqueue_choice(c, ctx, choice, cooperative, epilogue)
        }
    };
    match done {
        // Cooperative matrices turned out to be unusable: go on without them.
        Err(_) if cooperative.is_some() && usable(ctx.device(), c.a.dtype, c.b.dtype).is_none() => {
            enqueue(c, ctx, epilogue)
        }
        done => done,
    }
}

/// The cooperative matrices that may be used for operands of these types. The first call tries
/// them, on a device of their own.
pub(super) fn usable(device: &Device, a: DType, b: DType) -> Option<Cooperative> {
    let offered = device.capabilities().matrices.get(a).filter(|_| a == b)?;
    device.matrix_units().usable(offered, |policy| validation::try_out(device, offered, policy))
}

/// Enqueues the programs of a choice.
pub(super) fn enqueue_choice(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    choice: Choice,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let programs = c.programs(choice, cooperative, epilogue, &ctx.device().profile())?;
    if let Some(offered) = cooperative.filter(|_| choice.is_cooperative()) {
        // A failure that is found before the program is enqueued is not an error of the op.
        programs.prepare(ctx.device()).inspect_err(|e| refuse(ctx.device(), &offered, e))?;
    }
    with_reserve(ctx, programs, |ctx| in_reserve(c, ctx, choice, epilogue))
}

/// Enqueues `programs`. If the driver refuses one of them, the programs that `reserve` gives run
/// instead; they compute the same.
pub(super) fn with_reserve(
    ctx: &mut dyn OpContext,
    programs: Programs,
    reserve: impl FnOnce(&mut dyn OpContext) -> Result<Option<Programs>>,
) -> Result<()> {
    let memory = programs.temporaries.allocate(ctx)?;
    let first = programs.gather(ctx.device(), &memory, false)?;
    // It is not known yet whether the driver takes programs that are not compiled.
    if ctx.device().are_compiled(&first) {
        return ctx.device().enqueue_gathered(first);
    }
    let Some(programs) = reserve(ctx)? else { return ctx.device().enqueue_gathered(first) };
    // An op must not fail for want of memory that it most likely does not need.
    let Ok(memory) = programs.temporaries.allocate(ctx) else {
        return ctx.device().enqueue_gathered(first);
    };
    let second = programs.gather(ctx.device(), &memory, true)?;
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
) -> Result<Option<Programs>> {
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
