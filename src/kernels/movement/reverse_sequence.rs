//! ReverseSequence: reverses the first elements of each sequence, up to its length.

use smallvec::smallvec;

use super::shape;
use super::walk::window_limit;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::{DType, types, union};
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
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
        let y = ctx.output(0, x.dtype, &x.dims)?;
        if y.is_empty() {
            return Ok(());
        }
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
        let (dtype, index) = (x.dtype, lengths.dtype);
        for first in (0..x.dims[0]).step_by(window) {
            let count = window.min(x.dims[0] - first) * row;
            let part = |t: &Tensor| Binding {
                address: t.address + (first * row * size) as u64,
                bytes: (count * size) as u64,
                unit: size as u32,
            };
            device.enqueue(&Program {
                key: Key::new("reverse sequence").dtype(dtype).dtype(index),
                shader: &|| shader(dtype, index),
                bindings: smallvec![part(&x), (&lengths).into(), part(&y)],
                params: Params::new()
                    .u32(count)
                    .u32(first * row)
                    .u32(stride(sequence))
                    .u32(x.dims[sequence])
                    .u32(stride(batch))
                    .u32(x.dims[batch]),
                grid: Grid::map(count, dtype),
            })?;
        }
        Ok(())
    }
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|t| LENGTHS.iter().map(|l| shader(*t, *l))).collect()
}

fn shader(dtype: DType, index: DType) -> Shader {
    Shader::new(format!("reverse sequence {dtype} {index}"))
        .bind("x", dtype)
        .bind("lengths", index)
        .bind("y", dtype)
        .u32s(&["count", "first", "stride", "extent", "batch_stride", "batch"])
        .define("VALUE", dtype.value())
        .body(include_str!("../../../shaders/movement/reverse_sequence.wgsl"))
        .map("y")
}
