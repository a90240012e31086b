//! How a contraction is enqueued: its plan, and for each of its parts the choice of a tile.

use super::choice::{self, Demand};
use super::epilogue::Bound;
use super::plan::{Plan, Step};
use super::{Contraction, chosen, element, tuned, validation};
use crate::device::{Cooperative, Profile};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;

impl Contraction {
    /// Enqueues the contraction; every element of `c` is written. An empty contracted index gives
    /// zeros.
    pub fn enqueue(self, ctx: &mut dyn OpContext) -> Result<()> {
        self.plan(&ctx.device().profile(), None)?.enqueue(ctx)
    }

    /// The plan of the contraction, with an epilogue if there is one; that needs a contracted index
    /// that is not empty.
    pub fn plan<'e>(self, profile: &Profile, epilogue: Option<Bound<'e>>) -> Result<Plan<'e>> {
        let mut plan = Plan::new();
        self.add_to(&mut plan, profile, epilogue)?;
        Ok(plan)
    }

    /// Appends [`Contraction::plan`] to a plan.
    pub fn add_to<'e>(
        self,
        plan: &mut Plan<'e>,
        profile: &Profile,
        epilogue: Option<Bound<'e>>,
    ) -> Result<()> {
        if self.c.is_empty() {
            return Ok(());
        }
        // An empty operand has no element to clamp a load to.
        if self.depth() == 0 || self.a.is_empty() || self.b.is_empty() {
            debug_assert!(epilogue.is_none(), "no epilogue without products");
            plan.push(Step::Zero(self.c));
            return Ok(());
        }
        if !self.fits(limit(&profile.capabilities), epilogue.as_ref()) {
            return self.add_windows(plan, profile, epilogue.as_ref());
        }
        plan.contract(self, epilogue)
    }

    /// The demand that a tile is chosen for.
    pub(super) fn demand(&self, profile: Profile, cooperative: Option<Cooperative>) -> Demand {
        Demand {
            profile,
            words: element::registers(self.a.dtype, profile.kind()),
            m: self.m,
            n: self.n,
            depth: self.depth(),
            batch: self.batch.len(),
            by_depth: self.b_step == 1 && self.n > 1 && self.b_column != 1,
            cooperative,
        }
    }
}

impl Plan<'_> {
    /// Enqueues all steps.
    pub fn enqueue(self, ctx: &mut dyn OpContext) -> Result<()> {
        let memory = self.memory(ctx)?;
        self.enqueue_in(ctx, &memory, whole)
    }
}

/// Chooses the tile of a contraction that fits the bindings, and enqueues its programs.
fn whole(ctx: &mut dyn OpContext, c: &Contraction, epilogue: Option<&Bound<'_>>) -> Result<()> {
    let profile = ctx.device().profile();
    let cooperative = validation::usable(ctx.device(), c.a.dtype, c.b.dtype);
    let demand = c.demand(profile, cooperative);
    let tuner = ctx.device().tuner().filter(|_| profile.tile == 0).cloned();
    let done = match tuner {
        Some(tuner) => tuned::enqueue(c, ctx, &tuner, &demand, cooperative, epilogue),
        None => chosen::enqueue(c, ctx, choice::choose(&demand), cooperative, epilogue),
    };
    match done {
        // Cooperative matrices turned out to be unusable: go on without them.
        Err(_)
            if cooperative.is_some()
                && validation::usable(ctx.device(), c.a.dtype, c.b.dtype).is_none() =>
        {
            whole(ctx, c, epilogue)
        }
        done => done,
    }
}
