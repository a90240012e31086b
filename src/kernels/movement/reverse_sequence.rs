//! ReverseSequence: reverses the first elements of each sequence, up to its length.

use super::shape;
use super::walk::window_limit;
use crate::device::{Grid, declare_program};
use crate::dtype::{DType, types, union};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::windows::part;
use crate::require;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Element types.
pub const TYPES: &[DType] = union!(types::FLOATS, &[DType::Bool]);
/// Types of lengths.
pub const LENGTHS: &[DType] = types::INDEX;

/// Inputs: the tensor (0) and the length of each sequence (1).
pub struct ReverseSequence {
    sequence: i64,
    batch: i64,
}

impl ReverseSequence {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self { sequence: attrs.int("seq_dim")?, batch: attrs.int("batch_dim")? })
    }

    /// TensorFlow's checks. Returns the two axes. Lengths are not checked for being in range, as on
    /// TensorFlow's GPUs.
    fn check(&self, x: &Tensor, lengths: &Tensor) -> Result<[usize; 2]> {
        let Self { sequence, batch } = *self;
        let rank = x.rank() as i64;
        require!(batch != sequence, "batch_dim == seq_dim == {batch}");
        require!(sequence >= 0, "Invalid seq_dim {sequence}");
        require!(batch >= 0, "Invalid batch_dim {batch}");
        require!(sequence < rank, "seq_dim must be < input rank ( {sequence} vs. {rank})");
        require!(batch < rank, "batch_dim must be < input rank ( {batch} vs. {rank})");
        require!(lengths.rank() == 1, "seq_lengths must be 1-dim, not {}", shape(&lengths.dims));
        let axes = [sequence as usize, batch as usize];
        require!(
            lengths.dims[0] == x.dims[axes[1]],
            "Length of seq_lengths != input.dims({batch}), ({} vs. {})",
            lengths.dims[0],
            x.dims[axes[1]]
        );
        Ok(axes)
    }
}

impl Kernel for ReverseSequence {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (x, lengths) = (ctx.input(0)?, ctx.input(1)?);
        let [sequence, batch] = self.check(&x, &lengths)?;
        let Some(y) = ctx.some_output(0, x.dtype, &x.dims)? else { return Ok(()) };
        let device = ctx.device();
        device.check_extent(y.len())?;
        let stride = |axis: usize| x.dims[axis + 1..].iter().product::<usize>();
        let size = x.dtype.size();
        // Windows have whole rows of the first dimension, unless sequences run along it; they begin
        // at whole words.
        let row = stride(0);
        let fitting = window_limit(device) as usize / (row * size);
        let window = if sequence == 0 || fitting >= x.dims[0] {
            x.dims[0]
        } else {
            (fitting / 4 * 4).max(1)
        };
        let (of, lengths) = (Reverse::of(x.dtype, lengths.dtype), (&lengths).into());
        let (extent, batch, stride, batch_stride) =
            (x.dims[sequence], x.dims[batch], stride(sequence), stride(batch));
        for first in (0..x.dims[0]).step_by(window) {
            let (count, first) = (window.min(x.dims[0] - first) * row, first * row);
            let [x, y] = [&x, &y].map(|t| part(t, first, count));
            let (grid, x, y) = (Grid::map(count, x.dtype), (&x).into(), (&y).into());
            let call = Reverse { x, lengths, y, count, first, stride, extent, batch_stride, batch };
            call.enqueue(device, &of, grid)?;
        }
        Ok(())
    }
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|t| LENGTHS.iter().map(|l| Reverse::shader(*t, *l))).collect()
}

declare_program! {
    /// Reverses elements from `first` on.
    struct Reverse = "reverse sequence"(dtype: DType, index: DType);
    bindings { x: dtype, lengths: index, y: dtype }
    params {
        count: usize, first: usize, stride: usize, extent: usize, batch_stride: usize,
        batch: usize,
    }
    shader format!("reverse sequence {dtype} {index}") =>
        .define("VALUE", dtype.value())
        .body(include_str!("../../../shaders/movement/reverse_sequence.wgsl"))
        .map("y")
}
