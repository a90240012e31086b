//! Comparisons of a replay with a run of the members.

use std::collections::VecDeque;

use super::members::Member;
use super::update::Inputs;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::tensor::Tensor;

/// The inputs of members that change variables, in the order in which these run.
#[derive(Debug, Default)]
pub struct Seen(VecDeque<Vec<Vec<u8>>>);

impl Seen {
    /// Notes a member's inputs.
    pub fn see(&mut self, ctx: &dyn OpContext, inputs: &Inputs) -> Result<()> {
        let all = inputs.iter().flatten().map(|tensor| bytes(ctx, tensor));
        self.0.push_back(all.collect::<Result<_>>()?);
        Ok(())
    }

    /// Fails if the inputs of the next member differ from the noted ones.
    pub fn compare(&mut self, ctx: &dyn OpContext, member: &Member, inputs: &Inputs) -> Result<()> {
        let noted = self.0.pop_front().unwrap_or_default();
        let own = inputs.iter().flatten().map(|tensor| bytes(ctx, tensor));
        if noted != own.collect::<Result<Vec<_>>>()? {
            return Err(differs(&member.origin.node, "its inputs"));
        }
        Ok(())
    }
}

/// A tensor's bytes.
pub fn bytes(ctx: &dyn OpContext, tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = vec![0; tensor.bytes() as usize];
    ctx.device().download(tensor.address, &mut bytes)?;
    Ok(bytes)
}

/// The error for a replay that gives `what` of a node other bits than the node's own run.
pub fn differs(node: &str, what: &str) -> Error {
    Error::Internal(format!(
        "TF_WGPU_CAPTURE=check: the replay of a region gives another result of node {node}, {what}"
    ))
}
