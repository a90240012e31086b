//! Softmax, LogSoftmax and both cross entropies: one dispatch that goes over each row, in f32 (for
//! float64 in float64), stable for any logits. Four columns are read and written at once if rows
//! are whole vec4s; [`text`] has the shaders.

mod text;

use smallvec::smallvec;

use super::reduce::program::{convert, part, window_bytes};
use crate::device::{Binding, Device, Params, Program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::vec4;
use crate::tensor::{Tensor, shape_text};

use text::Rows;
pub use text::shaders;

const TYPES: &[DType] = types::FLOATS;
/// TensorFlow's GPU list has no float64 here.
const SPARSE_TYPES: &[DType] = types::FLOATS_BUT_F64;

/// The ops of one input, with the WGSL of a result from `x`, the row's `largest` and its `sum` of
/// exponentials.
const SOFTMAXES: &[(&str, &str)] =
    &[("LogSoftmax", "(x - largest) - {{LOG}}(sum)"), ("Softmax", "{{EXP}}(x - largest) / sum")];

/// Registers the family.
pub fn register(r: &mut Registry) {
    for &(op, result) in SOFTMAXES {
        r.op(op)
            .types("T", TYPES)
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| softmax(ctx, op, result)));
    }
    r.op("SoftmaxCrossEntropyWithLogits")
        .types("T", TYPES)
        .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| dense_cross_entropy(ctx)));
    r.op("SparseSoftmaxCrossEntropyWithLogits")
        .types("T", SPARSE_TYPES)
        .types("Tlabels", INDEX)
        .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| sparse_cross_entropy(ctx)));
}

/// Whether rows of `cols` elements of `dtype` are whole words, so that the row program can store
/// them.
fn whole_words(dtype: DType, cols: usize) -> bool {
    cols.is_multiple_of(dtype.lanes() as usize)
}

/// A binding whose offset counts elements, or vec4s of them.
fn in_units(binding: Binding, vec4s: bool) -> Binding {
    Binding { unit: if vec4s { binding.unit * vec4::WIDTH } else { binding.unit }, ..binding }
}

/// Rows that fit one binding. Their number is even, so that packed windows start at whole words.
fn rows_per_window(device: &Device, rows: usize, row_bytes: usize) -> usize {
    let fits = (window_bytes(device) / row_bytes.max(1) as u64) as usize;
    if fits >= rows { rows } else { (fits / 2 * 2).max(1) }
}

fn softmax(ctx: &mut dyn OpContext, op: &'static str, result: &'static str) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 1, "logits must have >= 1 dimension, got {}", shape_text(&x.dims));
    let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    if y.is_empty() {
        return Ok(());
    }
    let cols = x.dims[x.rank() - 1];
    let direct = whole_words(x.dtype, cols);
    let target = if direct { y.clone() } else { ctx.temp(F32, &x.dims)? };
    rows(ctx.device(), op, result, &x, &target)?;
    if direct { Ok(()) } else { convert(ctx, &target, &y) }
}

/// Enqueues LogSoftmax of rows of float32 or float64. The tensor is not empty.
pub fn log_rows(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    let (op, result) = SOFTMAXES[0];
    rows(device, op, result, x, y)
}

/// Operations for each element: the maximum, a difference, its exponential, the sum and the
/// quotient.
pub const SOFTMAX_OPERATIONS: usize = 5;

fn rows(
    device: &Device,
    op: &'static str,
    result: &'static str,
    x: &Tensor,
    target: &Tensor,
) -> Result<()> {
    let cols = x.dims[x.rank() - 1];
    let rows = x.len() / cols;
    let vec4s = cols.is_multiple_of(4) && vec4::aligned(&[x, target]);
    let split = Rows::of(device.profile(), rows, cols, vec4s)?;
    let per_window = rows_per_window(device, rows, cols * x.dtype.size().max(target.dtype.size()));
    for first in (0..rows).step_by(per_window) {
        let rows = per_window.min(rows - first);
        device.check_extent(rows * cols)?;
        device.enqueue_counted(
            &Program {
                key: split.key(op).dtype(x.dtype).dtype(target.dtype),
                shader: &|| split.softmax(op, result, x.dtype, target.dtype),
                bindings: smallvec![
                    in_units(part(x, first * cols, rows * cols), vec4s),
                    in_units(part(target, first * cols, rows * cols), vec4s)
                ],
                params: Params::new().u32(rows).u32(split.units(cols)).f32(f32::NEG_INFINITY),
                grid: split.grid(rows),
            },
            x.dtype.flops(SOFTMAX_OPERATIONS * rows * cols),
        )?;
    }
    Ok(())
}

fn dense_cross_entropy(ctx: &mut dyn OpContext) -> Result<()> {
    let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
    let sizes = || {
        format!(
            "logits and labels must be broadcastable: logits_size={} labels_size={}",
            shape_text(&logits.dims),
            shape_text(&labels.dims)
        )
    };
    let dims = crate::layout::broadcast_dims(&logits.dims, &labels.dims);
    require!(dims.is_ok(), "{}", sizes());
    let dims = dims?;
    require!(
        dims.len() == 2,
        "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
    );
    let strides = |t: &Tensor| {
        let walk = crate::layout::Iteration::over(&dims).broadcast(&t.dims);
        [walk.strides(0)[0] as usize, walk.strides(0)[1] as usize]
    };
    let (logits_strides, labels_strides) = (strides(&logits), strides(&labels));
    let operands = [
        Operand { tensor: logits, strides: logits_strides },
        Operand { tensor: labels, strides: labels_strides },
    ];
    cross_entropy(ctx, &operands, dims[0], dims[1])
}

fn sparse_cross_entropy(ctx: &mut dyn OpContext) -> Result<()> {
    let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
    require!(logits.rank() == 2, "logits must be 2-D, but got shape {}", shape_text(&logits.dims));
    require!(labels.rank() == 1, "labels must be 1-D, but got shape {}", shape_text(&labels.dims));
    require!(
        logits.dims[0] == labels.dims[0],
        "logits and labels must have the same first dimension, got logits shape {} and labels \
         shape {}",
        shape_text(&logits.dims),
        shape_text(&labels.dims)
    );
    let (rows, cols) = (logits.dims[0], logits.dims[1]);
    require!(
        cols > 0,
        "Must have at least one class, but got logits shape {}",
        shape_text(&logits.dims)
    );
    let operands = [
        Operand { tensor: logits, strides: [cols, 1] },
        Operand { tensor: labels, strides: [1, 0] },
    ];
    cross_entropy(ctx, &operands, rows, cols)
}

/// An operand with its strides along rows and columns.
struct Operand {
    tensor: Tensor,
    strides: [usize; 2],
}

impl Operand {
    /// The binding of rows `first` to `first + rows`.
    fn rows(&self, first: usize, rows: usize) -> Binding {
        if self.strides[0] == 0 {
            return (&self.tensor).into();
        }
        part(&self.tensor, first * self.strides[0], rows * self.strides[0])
    }

    /// Whether four columns can be read at once, starting at every fourth one.
    fn is_in_vec4s(&self) -> bool {
        self.strides[1] == 1 && self.strides[0].is_multiple_of(4) && vec4::aligned(&[&self.tensor])
    }
}

fn cross_entropy(
    ctx: &mut dyn OpContext,
    operands: &[Operand; 2],
    rows: usize,
    cols: usize,
) -> Result<()> {
    let [logits, labels] = operands;
    let dtype = logits.tensor.dtype;
    let loss = ctx.output(0, dtype, &[rows])?;
    let backprop = ctx.output(1, dtype, &[rows, cols])?;
    if rows == 0 {
        return Ok(());
    }
    let whole_loss = dtype.lanes() == 1;
    let whole_backprop = whole_words(dtype, cols);
    let loss_target = if whole_loss { loss.clone() } else { ctx.temp(F32, &[rows])? };
    let backprop_target =
        if whole_backprop { backprop.clone() } else { ctx.temp(F32, &[rows, cols])? };
    let device = ctx.device();
    // Sparse labels have no columns.
    let sparse = labels.tensor.dtype.is_integer();
    let vec4s = cols.is_multiple_of(4)
        && logits.is_in_vec4s()
        && (sparse || labels.is_in_vec4s())
        && vec4::aligned(&[&backprop_target]);
    let split = Rows::of(device.profile(), rows, cols, vec4s)?;
    let [logits_strides, labels_strides] =
        [logits, labels].map(|o| if vec4s { [o.strides[0] / 4, 1] } else { o.strides });
    let per_window =
        rows_per_window(device, rows, cols * dtype.size().max(backprop_target.dtype.size()));
    for first in (0..rows).step_by(per_window) {
        let rows = per_window.min(rows - first);
        device.check_extent(rows * cols)?;
        device.enqueue_counted(
            &Program {
                key: split
                    .key("cross_entropy")
                    .dtype(dtype)
                    .dtype(labels.tensor.dtype)
                    .dtype(backprop_target.dtype),
                shader: &|| split.cross_entropy(dtype, labels.tensor.dtype, backprop_target.dtype),
                bindings: smallvec![
                    in_units(logits.rows(first, rows), vec4s),
                    in_units(labels.rows(first, rows), vec4s && !sparse),
                    part(&loss_target, first, rows),
                    in_units(part(&backprop_target, first * cols, rows * cols), vec4s),
                ],
                params: Params::new()
                    .u32(rows)
                    .u32(split.units(cols))
                    .u32(logits_strides[0])
                    .u32(logits_strides[1])
                    .u32(labels_strides[0])
                    .u32(labels_strides[1])
                    .f32(f32::NEG_INFINITY)
                    .f32(f32::NAN),
                grid: split.grid(rows),
            },
            dtype.flops((SOFTMAX_OPERATIONS + 3) * rows * cols),
        )?;
    }
    if !whole_loss {
        convert(ctx, &loss_target, &loss)?;
    }
    if whole_backprop { Ok(()) } else { convert(ctx, &backprop_target, &backprop) }
}
