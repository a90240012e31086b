//! Ops whose items do not see each other, such as the matrices of a batch or the rows of a table:
//! where tensors exceed a binding, the kernel runs for some items at a time, without being aware of
//! it.
//!
//! A kernel that is registered with [`super::registry::OpBuilder::items`] sees all items first. If
//! that fails because a tensor is too large to bind, runs for half of the items, a quarter, and so
//! on, overwrite the results of what was enqueued. A kernel whose tensors fit takes one run, at no
//! cost.

use smallvec::SmallVec;

use super::op::{Execution, Kernel, OpContext, UpdateAll, VariableUpdate};
use super::windows::{Scratch, limit, part};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{Dims, HostTensor, Tensor};

/// The inputs that hold items, and the number of dimensions of an item in each of them. All outputs
/// on the device hold items.
pub type Held = &'static [(usize, usize)];

/// A kernel that may run for some items at a time.
pub struct Items<K> {
    /// The kernel.
    pub kernel: K,
    /// Where the items are.
    pub held: Held,
}

impl<K: Kernel> Kernel for Items<K> {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let limit = limit(ctx.device().capabilities());
        let mut part = ItemsContext::new(ctx, self.held);
        let error = match self.kernel.compute(&mut part) {
            Err(e @ Error::ResourceExhausted(_)) if part.widest > limit => e,
            done => return done,
        };
        let Some(all) = part.lead() else { return Err(error) };
        let total: usize = all.iter().product();
        let (mut first, mut count, mut error, mut failed) = (0, total, error, true);
        while first < total {
            if failed {
                // Runs have whole words of every type, as long as there are several.
                count = if count < 8 { count / 2 } else { (count / 2) & !3 };
            }
            if count == 0 {
                return Err(error);
            }
            let n = count.min(total - first);
            part.begin(&all, first, n);
            match self.kernel.compute(&mut part).and_then(|()| part.end()) {
                Ok(()) => (first, failed) = (first + n, false),
                Err(e @ Error::ResourceExhausted(_)) if part.widest > limit => {
                    (error, failed) = (e, true)
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The context of a run.
struct ItemsContext<'c> {
    scratch: Scratch<'c>,
    held: Held,
    /// The extents of all items, with the first item and the number of items of this run; None if
    /// the run has all items.
    of: Option<(Dims, usize, usize)>,
    /// Whole outputs.
    outputs: SmallVec<[Option<Tensor>; 4]>,
    /// Parts of outputs that begin within a word, and the tensors that stand in for them.
    aside: SmallVec<[(Tensor, Tensor); 2]>,
    /// Bytes of the largest tensor of this run.
    widest: u64,
}

impl<'c> ItemsContext<'c> {
    fn new(ctx: &'c mut dyn OpContext, held: Held) -> Self {
        Self {
            scratch: Scratch::new(ctx),
            held,
            of: None,
            outputs: SmallVec::new(),
            aside: SmallVec::new(),
            widest: 0,
        }
    }

    fn begin(&mut self, all: &[usize], first: usize, count: usize) {
        self.scratch.window();
        self.of = Some((Dims::from_slice(all), first, count));
        self.aside.clear();
        self.widest = 0;
    }

    fn end(&mut self) -> Result<()> {
        for (to, from) in &self.aside {
            self.scratch.device().copy(to.address, from.address, to.bytes())?;
        }
        Ok(())
    }

    /// The extents that all inputs have in front of their items.
    fn lead(&mut self) -> Option<Dims> {
        let mut all: Option<Dims> = None;
        for (i, rank) in self.held {
            let t = self.scratch.input(*i).ok()?;
            let lead = Dims::from_slice(&t.dims[..t.rank().checked_sub(*rank)?]);
            // One item may serve all others.
            if lead.iter().product::<usize>() != 1
                && *all.get_or_insert_with(|| lead.clone()) != lead
            {
                return None;
            }
        }
        all
    }

    fn seen(&mut self, t: Tensor) -> Tensor {
        self.widest = self.widest.max(t.bytes());
        t
    }
}

impl OpContext for ItemsContext<'_> {
    fn device(&self) -> &Device {
        self.scratch.device()
    }

    fn num_inputs(&self) -> usize {
        self.scratch.num_inputs()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        let t = self.scratch.input(i)?;
        let rank = self.held.iter().find(|(k, _)| *k == i).map(|(_, rank)| *rank);
        let t = match (&self.of, rank) {
            (Some((all, first, count)), Some(rank)) if t.dims[..t.rank() - rank] == all[..] => {
                let item = &t.dims[t.rank() - rank..];
                let len: usize = item.iter().product();
                let dims: Dims = std::iter::once(*count).chain(item.iter().copied()).collect();
                part(&t, first * len, count * len).reshaped(&dims)
            }
            _ => t,
        };
        Ok(self.seen(t))
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        self.scratch.host_input(i)
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        if self.outputs.len() <= i {
            self.outputs.resize(i + 1, None);
        }
        let Some((all, first, count)) = &self.of else {
            let whole = self.scratch.output(i, dtype, dims)?;
            self.outputs[i] = Some(whole.clone());
            return Ok(self.seen(whole));
        };
        let (first, count) = (*first, *count);
        if dims.first() != Some(&count) {
            // The output is empty or a scalar, which says that the node does not ask for it.
            debug_assert!(
                dims.iter().product::<usize>() <= 1,
                "an output of other items: {dims:?}"
            );
            let whole = self.outputs[i].clone().filter(|t| t.dims[..] == *dims);
            let whole = whole.map_or_else(|| self.scratch.output(i, dtype, dims), Ok)?;
            self.outputs[i] = Some(whole.clone());
            return Ok(self.seen(whole));
        }
        let whole = match &self.outputs[i] {
            Some(whole) => whole.clone(),
            None => self.scratch.output(i, dtype, &[all, &dims[1..]].concat())?,
        };
        self.outputs[i] = Some(whole.clone());
        let len: usize = dims[1..].iter().product();
        let slice = part(&whole, first * len, count * len).reshaped(dims);
        if slice.address.is_multiple_of(4) || slice.is_empty() {
            return Ok(self.seen(slice));
        }
        let instead = self.scratch.temp(dtype, dims)?;
        self.aside.push((slice, instead.clone()));
        Ok(self.seen(instead))
    }

    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        // A later run needs the operand again.
        if self.of.is_some() || self.widest > limit(self.device().capabilities()) {
            return self.output(i, dtype, dims);
        }
        self.scratch.forward_or_output(candidates, i, dtype, dims)
    }

    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()> {
        self.scratch.forward_input(i, o, dims)
    }

    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<()> {
        self.scratch.host_output(i, value)
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let t = self.scratch.temp(dtype, dims)?;
        Ok(self.seen(t))
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        self.scratch.read_variable(i)
    }

    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        self.scratch.update_variable(i, mode, update)
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        self.scratch.update_variables(inputs, update)
    }

    fn execution(&self) -> Option<Execution> {
        self.scratch.execution()
    }
}
