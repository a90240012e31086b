//! `_WgpuRegion`: many nodes of a graph as one op, so that TensorFlow's executor, its allocator and
//! its C API see one node.
//!
//! The op runs the kernels of its [`members`] in their order, each in a context of its own
//! ([`run`]). Members have no outputs in host memory, and no state but variables. Their tensors are
//! temporaries of the op, which are given back after their last reader, and in which a later member
//! may write its result. [`views`] has the members that only change a tensor's shape.
//!
//! Variables are read when the region begins, and their values are given back after their last
//! reader, so that a later member changes them in place. Members that change variables ([`update`])
//! have no outputs.
//!
//! A run is recorded ([`record`]): what it allocates, dispatches and gives back, in this order. A
//! later run with inputs of the same shapes repeats the record with its own tensors ([`replay`]),
//! without the kernels. [`records`] keeps the records of a region.

pub mod members;
mod record;
mod records;
mod rehearsal;
mod replay;
mod run;
mod update;
pub mod views;

use smallvec::SmallVec;

use members::{Members, Read};
use record::{Inputs, Log};
use records::Records;
use replay::Replay;
use run::Run;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::definition::{OpDefinition, ShapeInputs};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::tensor::Tensor;

/// The op's name.
pub const OP: &str = "_WgpuRegion";

/// Its signature. Each of `nodes` is a NodeDef ([`members`]); `outputs` holds a node's number and
/// one of its ports for each output. With `check` the first replay of each record is compared with
/// a run of the members.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["tensors: Ttensors", "host: Thost", "resources: NR * resource"],
    outputs: &["results: Tout"],
    attrs: &[
        "Ttensors: list(type) >= 0",
        "Thost: list(type) >= 0",
        "NR: int >= 0",
        "Tout: list(type) >= 0",
        "nodes: list(string) >= 1",
        "outputs: list(int) >= 0",
        "check: bool = false",
    ],
    stateful: true,
    shape: |_: &ShapeInputs<'_>| Ok(Vec::new()),
}];

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).host(&["host", "resources"]).kernel(|attrs: &dyn Attrs| Region::new(attrs));
}

/// The kernel.
struct Region {
    members: Members,
    records: Records,
    checks: bool,
}

impl Region {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let (members, records) = (Members::new(attrs)?, Records::default());
        Ok(Self { members, records, checks: attrs.bool("check").unwrap_or(false) })
    }

    /// The name of a node of the region, for logs.
    fn name(&self) -> &str {
        self.members.all.last().map_or("", |member| &member.origin.node)
    }
}

impl Kernel for Region {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let members = &self.members;
        let read = self.read(ctx)?;
        let (mut inputs, mut tensors) = (None, Vec::new());
        if self.records.are_open(ctx.device()) {
            // The member that reads an input reports its errors.
            let own: Option<Vec<_>> = (0..members.tensors).map(|i| ctx.input(i).ok()).collect();
            if let Some(own) = own {
                tensors = own;
                tensors.extend_from_slice(&read);
                inputs = Inputs::of(ctx, members, &tensors);
            }
        }
        let found = inputs.as_ref().and_then(|inputs| self.records.find(ctx.device(), inputs));
        let Some(kept) = found else {
            let log = inputs.map(|inputs| Log::begin(inputs, &tensors));
            let mut known: Vec<_> = tensors.into_iter().map(Some).collect();
            known.resize(members.tensors, None);
            known.truncate(members.tensors);
            known.extend(read.into_iter().map(Some));
            let mut run = Run::new(members, known, log);
            run.all(ctx)?;
            if let Some(log) = run.finish(ctx)? {
                self.records.keep(ctx.device(), self.name(), log);
            }
            return Ok(());
        };
        let mut replay = Replay::new(members, &kept.record, &tensors);
        if kept.is_first_use() && self.checks {
            let seen = replay.rehearse(ctx)?;
            let known = tensors.into_iter().map(Some).collect();
            let mut run = Run::new(members, known, None).expecting(seen);
            run.all(ctx)?;
            replay.compare(ctx, |o| run.output(o))?;
            return run.finish(ctx).map(drop);
        }
        replay.steps(ctx)?;
        self.records.replayed(&kept, &replay.forwards);
        replay.finish(ctx)
    }
}

impl Region {
    /// The values of the variables that are read. They do not change until they are given back.
    fn read(&self, ctx: &mut dyn OpContext) -> Result<SmallVec<[Tensor; 32]>> {
        let mut values = SmallVec::new();
        for Read { origin, handle, dtype } in &self.members.reads {
            let value = ctx.read_variable(*handle).and_then(|value| match dtype {
                Some(wanted) if *wanted != value.dtype => Err(Error::InvalidArgument(format!(
                    "Trying to read variable with wrong dtype. Expected {wanted} got {}",
                    value.dtype
                ))),
                _ => Ok(value),
            });
            values.push(
                value.inspect_err(|_| ctx.work_for(origin, Some(DType::Resource.to_string())))?,
            );
        }
        Ok(values)
    }
}
