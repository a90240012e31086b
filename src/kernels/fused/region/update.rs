//! Members that change variables. Their kernels run in replays, too: what they bind depends on
//! where the variables and the tensors lie.

use smallvec::SmallVec;

use super::members::{Member, Members, Source};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::sys::guard::caught;
use crate::tensor::{HostTensor, Tensor};

/// The inputs of a member. `None` stands for a handle or a value in host memory.
pub type Inputs = SmallVec<[Option<Tensor>; 8]>;

/// Runs a member.
pub fn run(
    ctx: &mut dyn OpContext,
    members: &Members,
    member: &Member,
    inputs: &Inputs,
) -> Result<()> {
    let mut temporaries = SmallVec::new();
    let mut inner = UpdateContext { ctx, members, member, inputs, temporaries: &mut temporaries };
    let outcome = caught(&member.origin.op, || {
        member.kernel.compute(&mut inner)?;
        inner.ctx.device().check()
    });
    temporaries.iter().for_each(|temporary| ctx.release(temporary));
    outcome
}

/// The context of a member that changes variables.
struct UpdateContext<'c> {
    ctx: &'c mut dyn OpContext,
    members: &'c Members,
    member: &'c Member,
    inputs: &'c Inputs,
    temporaries: &'c mut SmallVec<[Tensor; 4]>,
}

impl UpdateContext<'_> {
    fn source(&self, i: usize) -> Result<Source> {
        let source = self.member.inputs.get(i).copied();
        source.ok_or_else(|| Error::Internal(format!("there is no input {i}")))
    }

    /// The input of the region that is the handle at input `i`.
    fn handle(&self, i: usize) -> Result<usize> {
        match self.source(i)? {
            Source::Variable(handle) => Ok(handle),
            _ => Err(Error::Internal(format!("input {i} is no variable"))),
        }
    }
}

/// The answer for kernels that set outputs.
fn no_output<T>() -> Result<T> {
    Err(Error::Internal("a member of a region that changes variables has no outputs".to_owned()))
}

impl OpContext for UpdateContext<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.member.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        let input = self.inputs.get(i).and_then(Clone::clone);
        input.ok_or_else(|| Error::Internal(format!("input {i} is no tensor on the device")))
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        match self.source(i)? {
            Source::Host(host) => self.ctx.host_input(host),
            Source::Constant(constant) => Ok(self.members.constants[constant].clone()),
            _ => Err(Error::Internal(format!("input {i} is not in host memory"))),
        }
    }

    fn output(&mut self, _: usize, _: DType, _: &[usize]) -> Result<Tensor> {
        no_output()
    }

    fn forward_or_output(
        &mut self,
        _: &[usize],
        _: usize,
        _: DType,
        _: &[usize],
    ) -> Result<Tensor> {
        no_output()
    }

    fn forward_input(&mut self, _: usize, _: usize, _: &[usize]) -> Result<()> {
        no_output()
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        no_output()
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.ctx.temp(dtype, dims)?;
        if !tensor.is_empty() {
            self.temporaries.push(tensor.clone());
        }
        Ok(tensor)
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        let handle = self.handle(i)?;
        let value = self.ctx.read_variable(handle)?;
        if !value.is_empty() {
            self.temporaries.push(value.clone());
        }
        Ok(value)
    }

    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let handle = self.handle(i)?;
        let Self { ctx, members, member, inputs, temporaries } = self;
        ctx.update_variable(handle, mode, &mut |ctx, old, new| {
            let temporaries = &mut **temporaries;
            update(&mut UpdateContext { ctx, members, member, inputs, temporaries }, old, new)
        })
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        let handles = inputs.iter().map(|i| self.handle(*i)).collect::<Result<Vec<_>>>()?;
        let Self { ctx, members, member, inputs, temporaries } = self;
        ctx.update_variables(&handles, &mut |ctx, values| {
            let temporaries = &mut **temporaries;
            update(&mut UpdateContext { ctx, members, member, inputs, temporaries }, values)
        })
    }
}
