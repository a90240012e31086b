//! A contraction with a chosen tile: its programs are enqueued.

use super::Contraction;
use super::choice::Choice;
use super::epilogue::Bound;
use super::plan::{Plan, Temporaries};
use crate::device::{Cooperative, Device};
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
    enqueue_programs(plan, ctx, &memory)
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
