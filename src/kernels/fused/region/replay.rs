//! A recorded run, once more with other tensors.

use super::members::Members;
use super::record::{Record, Set, Slot, Step};
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::tensor::Tensor;

/// The tensors of a repeated run, by slot.
pub struct Replay<'r> {
    members: &'r Members,
    record: &'r Record,
    slots: Vec<Tensor>,
    /// Whether an input could not become an output, as it did in the recorded run.
    pub copied: bool,
}

impl<'r> Replay<'r> {
    /// A run that begins, with these inputs.
    pub fn new(members: &'r Members, record: &'r Record, inputs: &[Tensor]) -> Self {
        Self { members, record, slots: inputs.to_vec(), copied: false }
    }

    /// Takes all steps. Without `sets_outputs`, temporaries stand for the region's outputs.
    pub fn steps(&mut self, ctx: &mut dyn OpContext, sets_outputs: bool) -> Result<()> {
        let mut member = None;
        let record = self.record;
        let taken = record.steps.iter().try_for_each(|step| {
            if let Step::Member(at) = step {
                // Errors of the member before it.
                ctx.device().check()?;
                ctx.work_for(&self.members.all[*at].origin, None);
                member = Some(*at);
                return Ok(());
            }
            self.step(ctx, step, sets_outputs)
        });
        let taken = taken.and_then(|()| ctx.device().check());
        taken.inspect_err(|_| {
            if let Some(at) = member {
                let inputs = record.described[at].clone();
                ctx.work_for(&self.members.all[at].origin, Some(inputs));
            }
        })
    }

    fn step(&mut self, ctx: &mut dyn OpContext, step: &Step, sets_outputs: bool) -> Result<()> {
        let slots = &mut self.slots;
        match step {
            Step::Member(_) => {}
            Step::Temporary(dtype, dims) => slots.push(ctx.temp(*dtype, dims)?),
            Step::Output(o, dtype, dims, from) => {
                let output = match from {
                    _ if !sets_outputs => ctx.temp(*dtype, dims)?,
                    Some(input) => ctx.forward_or_output(&[*input], *o, *dtype, dims)?,
                    None => ctx.output(*o, *dtype, dims)?,
                };
                if let Some(input) = from.map(|input| &slots[input])
                    && input.address != output.address
                {
                    // Something else reads the input this time.
                    self.copied |= sets_outputs;
                    ctx.device().copy(output.address, input.address, output.bytes())?;
                }
                slots.push(output);
            }
            Step::Dispatch(captured, places) => {
                let address = |slot: Slot| slots.get(slot).map_or(0, |tensor| tensor.address);
                let addresses = places.iter().map(|place| address(place.slot) + place.offset);
                ctx.device().enqueue_captured(captured, addresses)?;
            }
            Step::Release(slot) => ctx.release(&slots[*slot]),
        }
        Ok(())
    }

    /// Sets the region's outputs.
    pub fn finish(&self, ctx: &mut dyn OpContext) -> Result<()> {
        for (o, (set, dtype, dims)) in self.record.outputs.iter().enumerate() {
            match set {
                Set::Input(i) => ctx.forward_input(*i, o, dims)?,
                Set::Empty => drop(ctx.output(o, *dtype, dims)?),
                Set::Temporary(_) => ctx.output_temp(o, &self.output(o))?,
                Set::Made(_) => {}
            }
        }
        Ok(())
    }

    /// The region's output of this number.
    fn output(&self, o: usize) -> Tensor {
        let (set, dtype, dims) = &self.record.outputs[o];
        let address = match set {
            Set::Input(slot) | Set::Temporary(slot) | Set::Made(slot) => self.slots[*slot].address,
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
        for (o, (at, _)) in self.members.outputs.iter().enumerate() {
            let read = |tensor: &Tensor| {
                let mut bytes = vec![0; tensor.bytes() as usize];
                ctx.device().download(tensor.address, &mut bytes)?;
                Ok::<_, Error>(bytes)
            };
            let (replayed, own) = (self.output(o), own(o)?);
            if replayed.dims != own.dims || read(&replayed)? != read(&own)? {
                let node = &self.members.all[*at].origin.node;
                return Err(Error::Internal(format!(
                    "TF_WGPU_CAPTURE=check: the replay of a region gives another result of node \
                     {node}, its output {o}"
                )));
            }
        }
        Ok(())
    }
}
