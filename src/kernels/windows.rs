//! Tensors beyond one binding. A kernel cuts them into windows that fit, outermost extents first,
//! so that a window is one range of each tensor; sums are added up from window to window. A tensor
//! that fits costs only one comparison.
//!
//! This module owns what families share: the limit, ranges of tensors, the search for the largest
//! window, memory that the windows use one after the other, and sums over windows. It depends on no
//! op.

//!
//! Ops that still refuse a tensor beyond one binding, and why:
//!
//! - Sort, Unique, Where, DynamicPartition, Bincount, NonMaxSuppression: the order of all elements
//!   decides, and passes over digits scatter into the whole result.
//! - Segment and sparse reductions, sparse products, CropAndResize's gradients: any row may go to
//!   any place of the result.
//! - Attention of the graph optimizer: the values that the forward pass keeps for the gradient
//!   depend on how both passes are cut.
//! - Recurrent cells (not networks), random shuffles, Multinomial, gamma numbers,
//!   Dilation2DBackpropFilter, Einsum onto a diagonal, XlaDynamicSlice and its update: they are not
//!   cut yet, since states and samples of this size are rare.
//! - One item by itself (a matrix, a row of a table, a row of an image; with channels first, an
//!   image of a depthwise convolution or of a gradient of a filter): it would have to be copied
//!   apart.

use crate::device::{Capabilities, Device};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Execution, OpContext, UpdateAll, VariableUpdate};
use crate::tensor::{HostTensor, Tensor};

/// The most bytes of a tensor that a program can bind, wherever it starts.
pub fn limit(capabilities: &Capabilities) -> u64 {
    // A binding starts at an aligned address and ends at a multiple of 16 bytes; indices have 32
    // bits.
    (capabilities.max_binding - u64::from(capabilities.storage_alignment) - 16).min(1 << 32)
}

/// Elements `first` to `first + len` of a tensor.
pub fn part(t: &Tensor, first: usize, len: usize) -> Tensor {
    Tensor::new(t.dtype, &[len], t.address + (first * t.dtype.size()) as u64)
}

/// The largest count up to `extent` for which `fits` holds; 0 if there is none. If `fits` holds for
/// a count, it must hold for all smaller ones. Counts below the extent are rounded to multiples
/// that keep loads of several elements aligned.
pub fn largest(extent: usize, fits: impl Fn(usize) -> bool) -> usize {
    if fits(extent) {
        return extent;
    }
    let (mut low, mut high) = (0, extent);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    match low {
        64.. => low & !63,
        4.. => low & !3,
        _ => low,
    }
}

/// First element and length of each part of `extent` elements, `count` at a time.
pub fn ranges(extent: usize, count: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    (0..extent).step_by(count.max(1)).map(move |first| (first, count.min(extent - first)))
}

/// The error of a kernel whose smallest window does not fit; `what` names that window.
pub fn too_large(capabilities: &Capabilities, what: &str) -> Error {
    let max = capabilities.max_binding;
    Error::ResourceExhausted(format!(
        "{what} exceeds this adapter's largest storage binding of {max} bytes"
    ))
}

/// Lets `f` write to `y`, a range of an output. Programs store whole words: a range of packed
/// elements that begins within a word is written to temporary memory first. A program may store
/// beyond the end of its range. The next window overwrites those elements, so windows go upwards.
pub fn write(
    ctx: &mut dyn OpContext,
    y: &Tensor,
    f: impl FnOnce(&mut dyn OpContext, &Tensor) -> Result<()>,
) -> Result<()> {
    if y.address.is_multiple_of(4) {
        return f(ctx, y);
    }
    let whole = ctx.temp(y.dtype, &y.dims)?;
    f(ctx, &whole)?;
    ctx.device().copy(y.address, whole.address, y.bytes())
}

/// A context that gives the same temporary memory to one window after the other: programs run in
/// the order in which they are enqueued.
pub struct Scratch<'c> {
    ctx: &'c mut dyn OpContext,
    temps: Vec<(u64, u64)>,
    next: usize,
}

impl<'c> Scratch<'c> {
    /// A context that takes the memory that it lacks from `ctx`.
    pub fn new(ctx: &'c mut dyn OpContext) -> Self {
        Self { ctx, temps: Vec::new(), next: 0 }
    }

    /// The context of the next window.
    pub fn window(&mut self) -> &mut dyn OpContext {
        self.next = 0;
        self
    }
}

impl OpContext for Scratch<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.ctx.num_inputs()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        self.ctx.input(i)
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        self.ctx.host_input(i)
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.ctx.output(i, dtype, dims)
    }

    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        self.ctx.forward_or_output(candidates, i, dtype, dims)
    }

    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()> {
        self.ctx.forward_input(i, o, dims)
    }

    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<()> {
        self.ctx.host_output(i, value)
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let mut tensor = Tensor::new(dtype, dims, 0);
        let bytes = tensor.bytes();
        let found = self.temps[self.next..]
            .iter()
            .position(|(_, room)| *room >= bytes)
            .map(|k| self.next + k);
        let at = match found {
            Some(at) => at,
            None => {
                self.temps.push((self.ctx.temp(dtype, dims)?.address, bytes));
                self.temps.len() - 1
            }
        };
        tensor.address = self.temps[at].0;
        self.temps.swap(self.next, at);
        self.next += 1;
        Ok(tensor)
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        self.ctx.read_variable(i)
    }

    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        self.ctx.update_variable(i, mode, update)
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        self.ctx.update_variables(inputs, update)
    }

    fn execution(&self) -> Option<Execution> {
        self.ctx.execution()
    }
}
