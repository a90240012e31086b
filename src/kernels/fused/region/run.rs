//! One execution of a region.

use std::fmt::Write;

use smallvec::{SmallVec, smallvec};

use super::members::{Member, Members, Source};
use super::record::{Candidates, Forward, Log, Set, Step};
use super::rehearsal::Seen;
use super::update::{self, Inputs};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::sys::guard::caught;
use crate::tensor::{Dims, HostTensor, Tensor, shape_text};

/// The alignment of the start of a buffer that a kernel may write in place.
const ALIGNMENT: u64 = 16;

/// The owner of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The region's input of this number.
    Input(usize),
    /// A variable.
    Variable,
    /// Temporary memory.
    Temporary,
    /// The region's output of this number. Others may share it.
    Output(usize),
}

/// Memory that values share.
struct Buffer {
    memory: Tensor,
    owner: Owner,
    /// The number of uses to come of the values in it.
    uses: u32,
}

/// A member's output: a tensor, and the number of its buffer.
#[derive(Clone)]
struct Value {
    tensor: Tensor,
    buffer: usize,
}

/// The values of a region while it runs.
pub struct Run<'r> {
    members: &'r Members,
    /// The region's tensors, once a member has read them.
    tensors: Vec<Option<Tensor>>,
    /// The outputs of the members that have run.
    values: Vec<SmallVec<[Option<Value>; 2]>>,
    /// The buffers. The region's own tensors come first.
    buffers: Vec<Buffer>,
    /// The record of this run, if it is to be repeated.
    log: Option<Log>,
    /// The inputs that the members that change variables must get.
    expected: Option<Seen>,
}

impl<'r> Run<'r> {
    /// A run that begins. Tensors that are known already are not asked for.
    pub fn new(members: &'r Members, tensors: Vec<Option<Tensor>>, log: Option<Log>) -> Self {
        let empty = Tensor::new(DType::U8, &[0], 0);
        let input = |(i, uses): (usize, &u32)| {
            let is_read = i >= members.tensors;
            let memory = tensors.get(i).and_then(Clone::clone).filter(|_| is_read);
            Buffer {
                memory: memory.unwrap_or_else(|| empty.clone()),
                owner: if is_read { Owner::Variable } else { Owner::Input(i) },
                uses: *uses,
            }
        };
        let buffers = members.tensor_uses.iter().enumerate().map(input).collect();
        Self {
            members,
            tensors,
            values: Vec::with_capacity(members.all.len()),
            buffers,
            log,
            expected: None,
        }
    }

    /// The same run. It fails if a member that changes variables gets other inputs than in the
    /// rehearsal that saw them.
    #[must_use]
    pub fn expecting(self, seen: Seen) -> Self {
        Self { expected: Some(seen), ..self }
    }

    /// Runs all members.
    pub fn all(&mut self, ctx: &mut dyn OpContext) -> Result<()> {
        (0..self.members.all.len()).try_for_each(|at| self.member(ctx, at))
    }

    /// Runs the member number `at`, the next one.
    fn member(&mut self, ctx: &mut dyn OpContext, at: usize) -> Result<()> {
        let member = &self.members.all[at];
        if self.log.is_some() {
            let inputs = self.describe(ctx, member);
            if let Some(log) = &mut self.log {
                log.member(at, inputs);
            }
        }
        ctx.work_for(&member.origin, None);
        let _span = ctx.device().op_span(&member.origin);
        if member.is_update {
            return self.update(ctx, at);
        }
        let mut inner = MemberContext {
            ctx,
            run: self,
            member,
            at,
            temporaries: SmallVec::new(),
            outputs: smallvec![],
        };
        let outcome = caught(&member.origin.op, || {
            member.kernel.compute(&mut inner)?;
            inner.ctx.device().check()
        });
        let MemberContext { temporaries, outputs, .. } = inner;
        if let Err(e) = outcome {
            let inputs = self.describe(ctx, member);
            ctx.work_for(&member.origin, Some(inputs));
            return Err(e);
        }
        if let Some(log) = &mut self.log {
            log.dispatched();
        }
        temporaries.iter().for_each(|temporary| self.release(ctx, temporary));
        let made: SmallVec<[usize; 2]> = outputs.iter().flatten().map(|v| v.buffer).collect();
        self.values.push(outputs);
        for input in &member.inputs {
            if let Some(buffer) = self.buffer(*input) {
                self.used(ctx, buffer);
            }
        }
        made.into_iter().for_each(|buffer| self.used(ctx, buffer));
        Ok(())
    }

    /// Runs the member number `at`, which changes variables.
    fn update(&mut self, ctx: &mut dyn OpContext, at: usize) -> Result<()> {
        let member = &self.members.all[at];
        let mut inputs = Inputs::new();
        for source in &member.inputs {
            inputs.push(match source {
                Source::Value(..) | Source::Tensor(_) => Some(self.tensor(ctx, *source)?.tensor),
                _ => None,
            });
        }
        if let Some(seen) = &mut self.expected {
            seen.compare(ctx, member, &inputs)?;
        }
        let outcome = match &mut self.log {
            Some(log) => {
                log.update(at, &inputs, || update::run(ctx, self.members, member, &inputs))
            }
            None => update::run(ctx, self.members, member, &inputs),
        };
        if let Err(e) = outcome {
            let inputs = self.describe(ctx, member);
            ctx.work_for(&member.origin, Some(inputs));
            return Err(e);
        }
        self.values.push(smallvec![]);
        for input in &member.inputs {
            if let Some(buffer) = self.buffer(*input) {
                self.used(ctx, buffer);
            }
        }
        Ok(())
    }

    /// Sets the region's outputs. Returns the record of the run.
    pub fn finish(mut self, ctx: &mut dyn OpContext) -> Result<Option<Log>> {
        for (o, source) in self.members.outputs.iter().enumerate() {
            let Value { tensor, buffer } = self.tensor(ctx, *source)?;
            let owner = self.buffers[buffer].owner;
            let set = |slot| match owner {
                Owner::Input(i) => Set::Input(i),
                Owner::Output(made) if made == o => Set::Made(slot),
                // All empty tensors may have one address.
                _ if tensor.is_empty() => Set::Empty,
                _ => Set::Held(slot),
            };
            if let Some(log) = &mut self.log {
                log.set(&tensor, set);
            }
            match owner {
                Owner::Input(i) => ctx.forward_input(i, o, &tensor.dims)?,
                Owner::Output(made) if made == o => {}
                _ if tensor.is_empty() => drop(ctx.output(o, tensor.dtype, &tensor.dims)?),
                _ => ctx.output_temp(o, &tensor)?,
            }
        }
        Ok(self.log)
    }

    /// The region's output of this number.
    pub fn output(&self, o: usize) -> Result<Tensor> {
        let source = self.members.outputs[o];
        let tensor = match source {
            Source::Value(at, port) => Some(self.value(at, port)?.tensor),
            Source::Tensor(i) => self.tensors.get(i).and_then(Clone::clone),
            Source::Host(_) | Source::Constant(_) | Source::Variable(_) => None,
        };
        tensor.ok_or_else(|| Error::Internal(format!("output {o} is {source:?}")))
    }

    /// Temporary memory.
    fn temp(&mut self, ctx: &mut dyn OpContext, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = ctx.temp(dtype, dims)?;
        if let Some(log) = &mut self.log {
            log.allocated(&tensor, Step::Temporary(dtype, tensor.dims.clone()));
        }
        Ok(tensor)
    }

    /// Gives temporary memory back.
    fn release(&mut self, ctx: &mut dyn OpContext, temporary: &Tensor) {
        ctx.release(temporary);
        if let Some(log) = &mut self.log {
            log.released(temporary);
        }
    }

    /// Ends a use of a buffer.
    fn used(&mut self, ctx: &mut dyn OpContext, buffer: usize) {
        let buffer = &mut self.buffers[buffer];
        buffer.uses -= 1;
        let is_held = matches!(buffer.owner, Owner::Temporary | Owner::Variable);
        if buffer.uses == 0 && is_held && !buffer.memory.is_empty() {
            let memory = buffer.memory.clone();
            self.release(ctx, &memory);
        }
    }

    fn value(&self, at: usize, port: usize) -> Result<Value> {
        let value = self.values.get(at).and_then(|outputs| outputs.get(port)?.clone());
        value.ok_or_else(|| {
            let node = &self.members.all[at].origin.node;
            Error::Internal(format!("output {port} of {node} was not set"))
        })
    }

    /// The buffer of an input, unless it is in host memory.
    fn buffer(&self, source: Source) -> Option<usize> {
        match source {
            Source::Value(at, port) => Some(self.values[at].get(port)?.as_ref()?.buffer),
            Source::Tensor(i) => Some(i),
            Source::Host(_) | Source::Constant(_) | Source::Variable(_) => None,
        }
    }

    /// An input on the device.
    fn tensor(&mut self, ctx: &mut dyn OpContext, source: Source) -> Result<Value> {
        match source {
            Source::Value(at, port) => self.value(at, port),
            Source::Tensor(i) => {
                let tensor = match &self.tensors[i] {
                    Some(tensor) => tensor.clone(),
                    None => self.tensors[i].insert(ctx.input(i)?).clone(),
                };
                Ok(Value { tensor, buffer: i })
            }
            Source::Host(_) | Source::Constant(_) | Source::Variable(_) => Err(Error::Internal(
                "an input is in host memory, the kernel reads it on the device".into(),
            )),
        }
    }

    /// An input in host memory.
    fn host(&self, ctx: &mut dyn OpContext, source: Source) -> Result<HostTensor> {
        match source {
            Source::Host(i) => ctx.host_input(i),
            Source::Constant(k) => Ok(self.members.constants[k].clone()),
            Source::Value(..) | Source::Tensor(_) | Source::Variable(_) => Err(Error::Internal(
                "an input is on the device, the kernel reads it on the host".into(),
            )),
        }
    }

    /// The inputs of a member as `float32[2,3], int32[2]`, for error messages.
    fn describe(&mut self, ctx: &mut dyn OpContext, member: &Member) -> String {
        let mut text = String::new();
        for source in &member.inputs {
            let separator = if text.is_empty() { "" } else { ", " };
            let seen = match source {
                Source::Variable(_) => Ok((DType::Resource, Dims::new())),
                Source::Value(..) | Source::Tensor(_) => {
                    self.tensor(ctx, *source).map(|v| (v.tensor.dtype, v.tensor.dims))
                }
                _ => self.host(ctx, *source).map(|t| (t.dtype, t.dims)),
            };
            let _ = match seen {
                Ok((dtype @ DType::Resource, _)) => write!(text, "{separator}{dtype}"),
                Ok((dtype, dims)) => write!(text, "{separator}{dtype}{}", shape_text(&dims)),
                Err(_) => write!(text, "{separator}unknown"),
            };
        }
        text
    }
}

/// The context of a member.
struct MemberContext<'c, 'r> {
    ctx: &'c mut dyn OpContext,
    run: &'c mut Run<'r>,
    member: &'r Member,
    /// Its number.
    at: usize,
    temporaries: SmallVec<[Tensor; 4]>,
    outputs: SmallVec<[Option<Value>; 2]>,
}

impl MemberContext<'_, '_> {
    fn source(&self, i: usize) -> Result<Source> {
        let source = self.member.inputs.get(i).copied();
        source.ok_or_else(|| Error::Internal(format!("there is no input {i}")))
    }

    fn value(&mut self, i: usize) -> Result<Value> {
        let source = self.source(i)?;
        self.run.tensor(self.ctx, source)
    }

    /// The uses to come of output `o`.
    fn uses(&self, o: usize) -> u32 {
        self.run.members.uses[self.at].get(o).copied().unwrap_or(0)
    }

    /// Sets output `o`. This run of the kernel counts as one use, which ends with it.
    fn set(&mut self, o: usize, tensor: Tensor, buffer: usize) -> Result<()> {
        self.outputs.resize(self.outputs.len().max(o + 1), None);
        if self.outputs[o].is_some() {
            return Err(Error::Internal(format!("output {o} is allocated twice")));
        }
        self.run.buffers[buffer].uses += self.uses(o) + 1;
        self.outputs[o] = Some(Value { tensor, buffer });
        Ok(())
    }

    /// Sets output `o` to new memory.
    fn make(&mut self, o: usize, tensor: Tensor, owner: Owner) -> Result<Tensor> {
        self.run.buffers.push(Buffer { memory: tensor.clone(), owner, uses: 0 });
        self.set(o, tensor.clone(), self.run.buffers.len() - 1)?;
        Ok(tensor)
    }

    /// The output of the region that output `o` is. No member overwrites it.
    fn region_output(&self, o: usize) -> Option<usize> {
        let is_it = |output: &Source| *output == Source::Value(self.at, o);
        self.run.members.outputs.iter().position(is_it)
    }
}

impl OpContext for MemberContext<'_, '_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.member.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        Ok(self.value(i)?.tensor)
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        let source = self.source(i)?;
        self.run.host(self.ctx, source)
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.run.temp(self.ctx, dtype, dims)?;
        self.make(i, tensor, Owner::Temporary)
    }

    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        let mut inputs = Candidates::new();
        for candidate in candidates {
            let Value { tensor, buffer } = self.value(*candidate)?;
            let fits = tensor.dtype == dtype
                && tensor.len() == dims.iter().product::<usize>()
                && tensor.address.is_multiple_of(ALIGNMENT)
                && self.run.buffers[buffer].uses == 1;
            match self.run.buffers[buffer].owner {
                Owner::Temporary if fits => {
                    let tensor = tensor.reshaped(dims);
                    self.set(i, tensor.clone(), buffer)?;
                    return Ok(tensor);
                }
                Owner::Input(input) if fits => inputs.push(input),
                _ => {}
            }
        }
        if !inputs.is_empty()
            && let Some(o) = self.region_output(i)
        {
            let tensor = self.ctx.forward_or_output(&inputs, o, dtype, dims)?;
            if let Some(log) = &mut self.run.log {
                let known = &self.run.tensors;
                let is_it =
                    |i: &&usize| known[**i].as_ref().map(|t| t.address) == Some(tensor.address);
                let from = inputs.iter().find(is_it).copied().filter(|_| !tensor.is_empty());
                log.forwarded(from);
                let make = Forward { o, dtype, dims: tensor.dims.clone(), inputs, from };
                log.allocated(&tensor, Step::Forward(make));
            }
            return self.make(i, tensor, Owner::Output(o));
        }
        self.output(i, dtype, dims)
    }

    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()> {
        let Value { tensor, buffer } = self.value(i)?;
        let dtype = self.member.types.get(o).copied().unwrap_or(tensor.dtype);
        self.set(o, Tensor::new(dtype, dims, tensor.address), buffer)
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        Err(Error::Internal("a member of a region has no output in host memory".to_owned()))
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.run.temp(self.ctx, dtype, dims)?;
        if !tensor.is_empty() {
            self.temporaries.push(tensor.clone());
        }
        Ok(tensor)
    }
}
