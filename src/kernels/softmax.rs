//! Softmax, LogSoftmax and both cross entropies: one dispatch that goes over each row, in f32 (float64 in itself), stable for any logits.

use smallvec::smallvec;

use super::reduce::plan::Style;
use super::reduce::program::{convert, part, window_bytes};
use super::reduce::style;
use super::reduce::table::accumulator;
use crate::device::{Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, MAX_ITERATIONS, Shader, WORKGROUP};
use crate::tensor::{Tensor, shape_text};

const TYPES: &[DType] = &[F32, F64, F16, BF16];
/// TensorFlow's GPU list has no float64 here.
const SPARSE_TYPES: &[DType] = &[F32, F16, BF16];

/// The ops of one input, with the WGSL of a result from `x`, the row's `largest` and its `sum` of exponentials.
const SOFTMAXES: &[(&str, &str)] =
    &[("LogSoftmax", "(x - largest) - {{LOG}}(sum)"), ("Softmax", "{{EXP}}(x - largest) / sum")];

/// Registers the family.
pub fn register(r: &mut Registry) {
    let capabilities = *r.capabilities();
    for &(op, result) in SOFTMAXES {
        r.op(op).types("T", TYPES).kernel(move |_| {
            Ok(move |ctx: &mut dyn OpContext| {
                let style = style(&capabilities, ctx.device());
                softmax(ctx, style, op, result)
            })
        });
    }
    r.op("SoftmaxCrossEntropyWithLogits").types("T", TYPES).kernel(move |_| {
        Ok(move |ctx: &mut dyn OpContext| {
            let style = style(&capabilities, ctx.device());
            dense_cross_entropy(ctx, style)
        })
    });
    r.op("SparseSoftmaxCrossEntropyWithLogits").types("T", SPARSE_TYPES).types("Tlabels", INDEX).kernel(move |_| {
        Ok(move |ctx: &mut dyn OpContext| {
            let style = style(&capabilities, ctx.device());
            sparse_cross_entropy(ctx, style)
        })
    });
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for lanes in [1, 8, 256] {
        let rows = Rows { lanes, workgroup: if lanes == 8 { 8 } else { WORKGROUP } };
        for &input in TYPES {
            for output in [input, accumulator(input)] {
                out.extend(SOFTMAXES.iter().map(|(op, result)| rows.softmax(op, result, input, output)));
                let labels: &[DType] = if SPARSE_TYPES.contains(&input) { &[input, I32, I64] } else { &[input] };
                out.extend(labels.iter().map(|labels| rows.cross_entropy(input, *labels, output)));
            }
        }
    }
    out
}

/// How rows are shared among invocations.
#[derive(Debug, Clone, Copy)]
struct Rows {
    lanes: u32,
    workgroup: u32,
}

impl Rows {
    /// Columns for each lane: up to four loops go over them.
    const MAX_RUN: usize = MAX_ITERATIONS / 4 - 300;

    fn of(device: &Device, style: Style, rows: usize, cols: usize) -> Result<Self> {
        let wide = |lanes| Self { lanes, workgroup: WORKGROUP };
        let wanted = match (style, cols) {
            (Style::Narrow, 64..) if rows < 1000 => Self { lanes: 8, workgroup: 8 },
            (Style::Narrow, _) | (Style::Wide, 0..=8) => wide(1),
            (Style::Wide, 9..=64) => wide(4),
            (Style::Wide, 65..=1024) => wide(32),
            (Style::Wide, _) => wide(256),
        };
        let fits = |split: &Self| !device.capabilities().cpu || cols <= split.lanes as usize * Self::MAX_RUN;
        let splits = [wanted, Self { lanes: 8, workgroup: 8 }, wide(256)];
        splits.into_iter().find(|s| s.lanes >= wanted.lanes && fits(s)).ok_or_else(|| {
            Error::Unimplemented(format!("a row of {cols} elements exceeds this kernel's limit on a software adapter"))
        })
    }

    fn key(self, family: &str) -> Key {
        Key::new(family).number(self.lanes).number(self.workgroup)
    }

    fn grid(self, rows: usize) -> Grid {
        Grid::linear(rows * self.lanes as usize, self.workgroup)
    }

    fn finish(self, shader: Shader, dtype: DType) -> Shader {
        let (shader, exp, log) = match dtype {
            F64 => (shader.library("exp_f64").library("log_f64"), "exp_f64", "log_f64"),
            _ => (shader, "exp", "log"),
        };
        shader
            .define("VALUE", dtype.value())
            .define("EXP", exp)
            .define("LOG", log)
            .workgroup([self.workgroup, 1, 1])
            .define("LANES", self.lanes.to_string())
            .body(include_str!("../../shaders/softmax_row.wgsl"))
    }

    fn softmax(self, op: &str, result: &str, input: DType, output: DType) -> Shader {
        let shader = Shader::new(format!("{op} {input} to {output}, {} lanes", self.lanes))
            .bind("x", input)
            .bind("y", output)
            .u32s(&["rows", "cols"])
            .param("lowest", Field::F32)
            .define("RESULT", result)
            .define("UNIT", output.lanes().to_string())
            .define("STORE", store("y", output, "p.cols", "result"));
        self.finish(shader, input).body(include_str!("../../shaders/softmax.wgsl"))
    }

    fn cross_entropy(self, logits: DType, labels: DType, backprop: DType) -> Shader {
        let sparse = labels.is_integer();
        let index = labels.value();
        let (label, add) = if sparse {
            (
                format!(
                    "fn is_invalid(row: u32) -> bool {{\n    let class_of_row = load_labels(row);\n    \
                     return class_of_row < {index}(0) || class_of_row >= {index}(p.cols);\n}}\n\n\
                     fn label(row: u32, c: u32) -> Value {{\n    \
                     return select(select(0.0, 1.0, load_labels(row) == {index}(c)), p.nan, is_invalid(row));\n}}"
                ),
                // A class that is not the label adds nothing, even where its logit is infinite.
                format!(
                    "if load_labels(row) == {index}(c) {{\n            \
                     own = log_sum - (logit(row, c) - largest);\n        }}"
                ),
            )
        } else {
            (
                "fn is_invalid(row: u32) -> bool {\n    return false;\n}\n\n\
                 fn label(row: u32, c: u32) -> Value {\n    \
                 return load_labels(row * p.labels_row + c * p.labels_col);\n}"
                    .to_owned(),
                "own += label(row, c) * (log_sum - (logit(row, c) - largest));".to_owned(),
            )
        };
        let shader = Shader::new(format!("cross entropy {logits}, labels {labels}, {} lanes", self.lanes))
            .bind("logits", logits)
            .bind("labels", labels)
            .bind("loss", accumulator(logits))
            .bind("backprop", backprop)
            .u32s(&["rows", "cols", "logits_row", "logits_col", "labels_row", "labels_col"])
            .param("lowest", Field::F32)
            .param("nan", Field::F32)
            .define("LABEL", label)
            .define("ADD_LOSS", add)
            .define("UNIT", backprop.lanes().to_string())
            .define("STORE", store("backprop", backprop, "p.cols", "gradient"));
        self.finish(shader, logits).body(include_str!("../../shaders/cross_entropy.wgsl"))
    }
}

/// Statements that store one unit of the output from column `c` of `row` on.
fn store(name: &str, dtype: DType, cols: &str, value: &str) -> String {
    let lanes = dtype.lanes();
    let at = format!("row * {cols} + c");
    if lanes == 1 {
        return format!("store_{name}({at}, {value}(row, c, largest, sum));");
    }
    let packed: Vec<_> =
        (0..lanes).map(|l| format!("pack_{name}({l}u, {value}(row, c + {l}u, largest, sum))")).collect();
    format!("store_{name}_word(({at}) / {lanes}u, {});", packed.join(" | "))
}

/// Whether rows of `cols` elements of `dtype` are whole words, so that the row program can store them.
fn whole_words(dtype: DType, cols: usize) -> bool {
    cols.is_multiple_of(dtype.lanes() as usize)
}

/// Rows that fit one binding, an even number so that packed windows start at whole words.
fn rows_per_window(device: &Device, rows: usize, row_bytes: usize) -> usize {
    let fits = (window_bytes(device) / row_bytes.max(1) as u64) as usize;
    if fits >= rows { rows } else { (fits / 2 * 2).max(1) }
}

fn softmax(ctx: &mut dyn OpContext, style: Style, op: &'static str, result: &'static str) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 1, "logits must have >= 1 dimension, got {}", shape_text(&x.dims));
    let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    if y.is_empty() {
        return Ok(());
    }
    let cols = x.dims[x.rank() - 1];
    let rows = x.len() / cols;
    let direct = whole_words(x.dtype, cols);
    let target = if direct { y.clone() } else { ctx.temp(F32, &x.dims)? };
    let device = ctx.device();
    let split = Rows::of(device, style, rows, cols)?;
    let per_window = rows_per_window(device, rows, cols * x.dtype.size().max(target.dtype.size()));
    for first in (0..rows).step_by(per_window) {
        let rows = per_window.min(rows - first);
        device.check_extent(rows * cols)?;
        device.enqueue(&Program {
            key: split.key(op).dtype(x.dtype).dtype(target.dtype),
            shader: &|| split.softmax(op, result, x.dtype, target.dtype),
            bindings: smallvec![part(&x, first * cols, rows * cols), part(&target, first * cols, rows * cols)],
            params: Params::new().u32(rows).u32(cols).f32(f32::NEG_INFINITY),
            grid: split.grid(rows),
        })?;
    }
    if direct { Ok(()) } else { convert(ctx, &target, &y) }
}

fn dense_cross_entropy(ctx: &mut dyn OpContext, style: Style) -> Result<()> {
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
    require!(dims.len() == 2, "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional");
    let strides = |t: &Tensor| {
        let walk = crate::layout::Iteration::over(&dims).broadcast(&t.dims);
        [walk.strides(0)[0] as usize, walk.strides(0)[1] as usize]
    };
    let (logits_strides, labels_strides) = (strides(&logits), strides(&labels));
    let operands =
        [Operand { tensor: logits, strides: logits_strides }, Operand { tensor: labels, strides: labels_strides }];
    cross_entropy(ctx, style, &operands, dims[0], dims[1])
}

fn sparse_cross_entropy(ctx: &mut dyn OpContext, style: Style) -> Result<()> {
    let (logits, labels) = (ctx.input(0)?, ctx.input(1)?);
    require!(logits.rank() == 2, "logits must be 2-D, but got shape {}", shape_text(&logits.dims));
    require!(labels.rank() == 1, "labels must be 1-D, but got shape {}", shape_text(&labels.dims));
    require!(
        logits.dims[0] == labels.dims[0],
        "logits and labels must have the same first dimension, got logits shape {} and labels shape {}",
        shape_text(&logits.dims),
        shape_text(&labels.dims)
    );
    let (rows, cols) = (logits.dims[0], logits.dims[1]);
    require!(cols > 0, "Must have at least one class, but got logits shape {}", shape_text(&logits.dims));
    let operands = [Operand { tensor: logits, strides: [cols, 1] }, Operand { tensor: labels, strides: [1, 0] }];
    cross_entropy(ctx, style, &operands, rows, cols)
}

/// An operand with its strides along rows and columns.
struct Operand {
    tensor: Tensor,
    strides: [usize; 2],
}

impl Operand {
    /// What rows `first` to `first + rows` bind, and its bytes in a row.
    fn rows(&self, first: usize, rows: usize) -> crate::device::Binding {
        if self.strides[0] == 0 {
            return (&self.tensor).into();
        }
        part(&self.tensor, first * self.strides[0], rows * self.strides[0])
    }
}

fn cross_entropy(
    ctx: &mut dyn OpContext,
    style: Style,
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
    let backprop_target = if whole_backprop { backprop.clone() } else { ctx.temp(F32, &[rows, cols])? };
    let device = ctx.device();
    let split = Rows::of(device, style, rows, cols)?;
    let per_window = rows_per_window(device, rows, cols * dtype.size().max(backprop_target.dtype.size()));
    for first in (0..rows).step_by(per_window) {
        let rows = per_window.min(rows - first);
        device.check_extent(rows * cols)?;
        device.enqueue(&Program {
            key: split.key("cross_entropy").dtype(dtype).dtype(labels.tensor.dtype).dtype(backprop_target.dtype),
            shader: &|| split.cross_entropy(dtype, labels.tensor.dtype, backprop_target.dtype),
            bindings: smallvec![
                logits.rows(first, rows),
                labels.rows(first, rows),
                part(&loss_target, first, rows),
                part(&backprop_target, first * cols, rows * cols),
            ],
            params: Params::new()
                .u32(rows)
                .u32(cols)
                .u32(logits.strides[0])
                .u32(logits.strides[1])
                .u32(labels.strides[0])
                .u32(labels.strides[1])
                .f32(f32::NEG_INFINITY)
                .f32(f32::NAN),
            grid: split.grid(rows),
        })?;
    }
    if !whole_loss {
        convert(ctx, &loss_target, &loss)?;
    }
    if whole_backprop { Ok(()) } else { convert(ctx, &backprop_target, &backprop) }
}
