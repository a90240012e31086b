//! A recorded run, once more with other tensors.

use smallvec::SmallVec;

use super::members::{Members, Source};
use super::record::{Forward, Forwards, Record, Set, Slot, Step};
use super::rehearsal::{Seen, bytes, differs};
use super::update::{self, Inputs};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::tensor::Tensor;

/// The tensors of a repeated run, by slot.
pub struct Replay<'r> {
    members: &'r Members,
    record: &'r Record,
    slots: Vec<Tensor>,
    /// The inputs that became outputs. Each difference from the record costs a copy.
    pub forwards: Forwards,
    /// Copies of inputs that became outputs. The member that runs reads them. The last member's
    /// copies live until the kernel returns.
    copies: SmallVec<[Tensor; 2]>,
}

impl<'r> Replay<'r> {
    /// A run that begins, with these inputs.
    pub fn new(members: &'r Members, record: &'r Record, inputs: &[Tensor]) -> Self {
        let mut slots = Vec::with_capacity(record.slots);
        slots.extend_from_slice(inputs);
        Self { members, record, slots, forwards: Forwards::new(), copies: SmallVec::new() }
    }

    /// Takes all steps.
    pub fn steps(&mut self, ctx: &mut dyn OpContext) -> Result<()> {
        self.take(ctx, &mut None)
    }

    /// Takes all steps that leave nothing behind: temporaries stand for the region's outputs, and
    /// no variable is changed. Returns what the members that change variables would have got.
    pub fn rehearse(&mut self, ctx: &mut dyn OpContext) -> Result<Seen> {
        let mut seen = Some(Seen::default());
        self.take(ctx, &mut seen)?;
        Ok(seen.unwrap_or_default())
    }

    fn take(&mut self, ctx: &mut dyn OpContext, seen: &mut Option<Seen>) -> Result<()> {
        let mut member = None;
        let record = self.record;
        let taken = record.steps.iter().try_for_each(|step| {
            if let Step::Member(at) = step {
                self.copies.drain(..).for_each(|copy| ctx.release(&copy));
                // Errors of the member before it.
                ctx.device().check()?;
                ctx.work_for(&self.members.all[*at].origin, None);
                member = Some(*at);
                return Ok(());
            }
            self.step(ctx, step, seen)
        });
        let taken = taken.and_then(|()| ctx.device().check());
        taken.inspect_err(|_| {
            if let Some(at) = member {
                let inputs = record.described[at].clone();
                ctx.work_for(&self.members.all[at].origin, Some(inputs));
            }
        })
    }

    fn step(
        &mut self,
        ctx: &mut dyn OpContext,
        step: &Step,
        seen: &mut Option<Seen>,
    ) -> Result<()> {
        let sets_outputs = seen.is_none();
        let slots = &mut self.slots;
        match step {
            Step::Member(_) => {}
            Step::Temporary(dtype, dims) => slots.push(ctx.temp(*dtype, dims)?),
            Step::Forward(make) => {
                let output = self.forward(ctx, make, sets_outputs)?;
                self.slots.push(output);
            }
            Step::Dispatch(captured, places) => {
                let address = |slot: Slot| slots.get(slot).map_or(0, |tensor| tensor.address);
                let addresses = places.iter().map(|place| address(place.slot) + place.offset);
                ctx.device().enqueue_captured(captured, addresses)?;
            }
            Step::Update(at, places) => {
                let input = |place: &Option<(Slot, Tensor)>| {
                    let (slot, tensor) = place.as_ref()?;
                    // The address is the place within the slot. An empty tensor has none.
                    let slot = slots.get(*slot).filter(|_| !tensor.is_empty());
                    let address = slot.map_or(0, |t| t.address + tensor.address);
                    Some(Tensor::new(tensor.dtype, &tensor.dims, address))
                };
                let inputs: Inputs = places.iter().map(input).collect();
                match seen {
                    Some(seen) => seen.see(ctx, &inputs)?,
                    None => {
                        let member = &self.members.all[*at];
                        update::run(ctx, self.members, member, &inputs)?;
                    }
                }
            }
            // After a rehearsal the members themselves run with the variables' values.
            Step::Release(slot) if !sets_outputs && *slot < self.members.tensor_uses.len() => {}
            Step::Release(slot) => ctx.release(&slots[*slot]),
        }
        Ok(())
    }

    /// Makes an output that may take the place of an input.
    fn forward(
        &mut self,
        ctx: &mut dyn OpContext,
        make: &Forward,
        sets_outputs: bool,
    ) -> Result<Tensor> {
        let output = if sets_outputs {
            ctx.forward_or_output(&make.inputs, make.o, make.dtype, &make.dims)?
        } else {
            ctx.temp(make.dtype, &make.dims)?
        };
        let is_it = |input: &&usize| self.slots[**input].address == output.address;
        let taken = make.inputs.iter().find(is_it).copied().filter(|_| !output.is_empty());
        self.forwards.push(taken);
        if taken == make.from {
            return Ok(output);
        }
        if let Some(input) = taken {
            // The recorded dispatches read it beside the output.
            let copy = ctx.temp(make.dtype, &self.slots[input].dims)?;
            ctx.device().copy(copy.address, output.address, output.bytes())?;
            self.copies.push(copy.clone());
            self.slots[input] = copy;
        }
        if let Some(input) = make.from {
            let from = &self.slots[input];
            ctx.device().copy(output.address, from.address, output.bytes())?;
        }
        Ok(output)
    }

    /// Sets the region's outputs.
    pub fn finish(&self, ctx: &mut dyn OpContext) -> Result<()> {
        for (o, (set, dtype, dims)) in self.record.outputs.iter().enumerate() {
            match set {
                Set::Input(i) => ctx.forward_input(*i, o, dims)?,
                Set::Empty => drop(ctx.output(o, *dtype, dims)?),
                Set::Held(_) => ctx.output_temp(o, &self.output(o))?,
                Set::Made(_) => {}
            }
        }
        Ok(())
    }

    /// The region's output of this number.
    fn output(&self, o: usize) -> Tensor {
        let (set, dtype, dims) = &self.record.outputs[o];
        let address = match set {
            Set::Input(slot) | Set::Held(slot) | Set::Made(slot) => self.slots[*slot].address,
            Set::Empty => 0,
        };
        Tensor::new(*dtype, dims, address)
    }

    /// Fails if an output differs from that of the members' own run.
    pub fn compare(
        &self,
        ctx: &dyn OpContext,
        own: impl Fn(usize) -> Result<Tensor>,
    ) -> Result<()> {
        for (o, source) in self.members.outputs.iter().enumerate() {
            let (replayed, own) = (self.output(o), own(o)?);
            if replayed.dims != own.dims || bytes(ctx, &replayed)? != bytes(ctx, &own)? {
                let origin = match source {
                    Source::Value(at, _) => &self.members.all[*at].origin,
                    Source::Tensor(i) => &self.members.reads[i - self.members.tensors].origin,
                    Source::Host(_) | Source::Constant(_) | Source::Variable(_) => continue,
                };
                return Err(differs(&origin.node, &format!("its output {o}")));
            }
        }
        Ok(())
    }
}
