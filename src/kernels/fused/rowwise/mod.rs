//! Row programs: reductions over the same axes with everything elementwise before, between and
//! behind them, in one dispatch that goes over each row a few times while it lies in the cache.
//! `_WgpuFusedRowwise` runs the programs that the optimizer writes: normalizations, softmax, cross
//! entropies and their gradients. Plain ops run programs of their own ([`RowKernel`]).
//!
//! [`program`] describes the computation, [`walk`] its shapes, and [`text`] is the shader. The
//! outputs have the shapes of the separate ops' outputs, whatever the inputs broadcast to.

pub mod program;
pub mod text;
pub mod walk;

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::device::{Binding, Device, Grid, Profile, Program};
use crate::dtype::DType::{self, *};
use crate::error::{Error, Result};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::fused::cost;
use crate::kernels::iterations::STEPS;
use crate::kernels::lanes::Lanes;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::reduce::program::{part, window_bytes};
use crate::kernels::registry::Registry;
use crate::kernels::scalar::cast;
use crate::layout::broadcast_dims;
use crate::require;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::{Dims, Tensor};

use program::{Output, RowProgram};
use text::{Access, MAX_TENSORS, RowVariant};
use walk::{RowWalk, Shapes};

/// The op's name.
pub const OP: &str = "_WgpuFusedRowwise";

/// The op.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in"],
    outputs: &["y: T_out"],
    attrs: &[
        "T_in: list(type) >= 1",
        "T_out: list(type) >= 1",
        "program: string",
        "constants: list(float) = []",
        "axes: list(int)",
    ],
    stateful: false,
    shape: unknown,
}];

/// The outputs' shapes depend on attributes, which shape functions are not shown.
fn unknown(_: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(Vec::new())
}

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).kernel(move |attrs| {
        let kernel = fused(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| {
            let inputs = (0..kernel.program.inputs().len()).map(|i| ctx.input(i));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            kernel.run(ctx, &inputs)
        })
    });
}

/// The most parameters of a program.
const MOST_CONSTANTS: usize = 1024;

/// The kernel of a node of the fused op.
fn fused(attrs: &dyn Attrs) -> Result<RowKernel> {
    let program: RowProgram = attrs.string("program")?.parse()?;
    cost::check(program.cost())?;
    require!(program.constants() <= MOST_CONSTANTS, "more than {MOST_CONSTANTS} parameters");
    let constants = attrs.floats("constants")?;
    let (inputs, outputs) = (attrs.dtypes("T_in")?, attrs.dtypes("T_out")?);
    require!(inputs == program.inputs(), "{OP}: inputs of {inputs:?} for {program}");
    require!(outputs == program.output_types(), "{OP}: outputs of {outputs:?} from {program}");
    require!(
        constants.len() == program.constants(),
        "{OP}: {} constants for {program}",
        constants.len()
    );
    require!(
        inputs.len() + outputs.len() <= MAX_TENSORS,
        "{OP}: more than {MAX_TENSORS} tensors in {program}"
    );
    Ok(RowKernel::new("rows", program, constants, attrs.ints("axes")?))
}

/// A row program with the axes that it reduces.
pub struct RowKernel {
    /// The name in profiles and keys.
    name: &'static str,
    program: RowProgram,
    /// The program as text, for keys.
    text: String,
    constants: Vec<f32>,
    /// The reduced axes, counted from the end.
    axes: Vec<i64>,
    /// The number of inputs that are tensors.
    tensors: usize,
    /// Whether rows are reduced as if all inputs had been broadcast to one shape.
    broadcast: bool,
    /// [`RowProgram::operations`].
    operations: usize,
    /// The walk of the last execution, for the next one with inputs of these shapes.
    last: Mutex<Option<Arc<Walked>>>,
}

/// A walk, with the shapes for which it was made.
struct Walked {
    inputs: SmallVec<[Dims; 7]>,
    shapes: Shapes,
    walk: RowWalk,
}

impl RowKernel {
    /// A kernel of `program` for tensors of which `axes`, counted from the end, are reduced.
    pub fn new(
        name: &'static str,
        program: RowProgram,
        constants: Vec<f32>,
        axes: Vec<i64>,
    ) -> Self {
        let (tensors, operations) = (program.inputs().len(), program.operations());
        Self {
            name,
            text: program.to_string(),
            program,
            constants,
            axes,
            tensors,
            broadcast: false,
            operations,
            last: Mutex::default(),
        }
    }

    /// The same kernel, with the number of the column in place of the program's last input, a
    /// `uint32`. Only the last axis may be reduced.
    #[must_use]
    pub fn with_columns(self) -> Self {
        debug_assert!(self.axes == [-1] && self.program.inputs().last() == Some(&U32));
        Self { tensors: self.tensors - 1, ..self }
    }

    /// The same kernel, for inputs that stand for their broadcast to one shape. The optimizer's
    /// programs stand for ops of which each reduces the elements that are there.
    #[must_use]
    pub fn with_broadcast(self) -> Self {
        Self { broadcast: true, ..self }
    }

    /// Shapes of the values, and the walk over the inputs and outputs.
    fn walk(&self, inputs: &[Tensor]) -> Result<Arc<Walked>> {
        let is_same = |last: &Arc<Walked>| last.inputs.iter().eq(inputs.iter().map(|t| &t.dims));
        if let Some(last) = self.last.lock().clone().filter(is_same) {
            return Ok(last);
        }
        let walked = Arc::new(self.new_walk(inputs)?);
        *self.last.lock() = Some(walked.clone());
        Ok(walked)
    }

    fn new_walk(&self, inputs: &[Tensor]) -> Result<Walked> {
        let mut dims: Vec<Dims> = inputs.iter().map(|t| t.dims.clone()).collect();
        debug_assert_eq!(inputs.len(), self.tensors);
        if self.program.inputs().len() > self.tensors {
            let columns = dims.iter().filter_map(|dims| dims.last().copied()).max();
            dims.push(Dims::from_slice(&[columns.unwrap_or(1)]));
        }
        let mut given = dims.clone();
        if self.broadcast {
            let all = |all: Result<Dims>, dims: &Dims| broadcast_dims(&all?, dims);
            given.fill(dims.iter().fold(Ok(Dims::new()), all)?);
        }
        let shapes = Shapes::infer(&self.program, &given, &self.axes)?;
        dims.truncate(inputs.len());
        dims.extend(shapes.walked.iter().cloned());
        let walk = RowWalk::new(&shapes, &dims);
        Ok(Walked { inputs: inputs.iter().map(|t| t.dims.clone()).collect(), shapes, walk })
    }

    /// Computes the op's outputs from `inputs`, whose first ones are the op's own inputs in their
    /// order.
    ///
    /// # Errors
    /// `InvalidArgument` for shapes that do not fit the program; `ResourceExhausted` for rows
    /// beyond the adapter's largest binding; the errors of allocations.
    pub fn run(&self, ctx: &mut dyn OpContext, inputs: &[Tensor]) -> Result<()> {
        let walked = self.walk(inputs)?;
        let shapes = &walked.shapes;
        let types = self.program.output_types();
        let mut outputs: Vec<Tensor> = Vec::with_capacity(types.len());
        for ((o, output), dtype) in self.program.outputs().iter().enumerate().zip(types) {
            let dims = &shapes.outputs[o];
            // Only an element that its own invocation reads last may be overwritten.
            let is_whole = matches!(output, Output::Full(_)) && shapes.walked[o] == shapes.full;
            let fits = |t: &Tensor| is_whole && t.dims == shapes.full && t.dtype == dtype;
            let is_free = |t: &Tensor| outputs.iter().all(|taken| taken.address != t.address);
            let candidates: SmallVec<[usize; 7]> =
                (0..inputs.len()).filter(|i| fits(&inputs[*i]) && is_free(&inputs[*i])).collect();
            outputs.push(ctx.forward_or_output(&candidates, o, dtype, dims)?);
        }
        self.enqueue_in(ctx, inputs, &outputs, &self.constants)
    }

    /// Enqueues the program with `constants` as its parameters. An output may be one of the inputs
    /// if it has that input's shape: then each invocation overwrites only what it has read.
    ///
    /// # Errors
    /// Those of [`RowKernel::run`].
    pub fn enqueue_in(
        &self,
        ctx: &mut dyn OpContext,
        inputs: &[Tensor],
        outputs: &[Tensor],
        constants: &[f32],
    ) -> Result<()> {
        if outputs.iter().all(Tensor::is_empty) {
            return Ok(());
        }
        let walked = self.walk(inputs)?;
        let launch = self.launch(&walked, inputs, constants, ctx.device());
        let variant = launch.variant(outputs)?;
        let mut targets = Vec::new();
        for (output, (_, dtype)) in outputs.iter().zip(&variant.outputs) {
            let direct = *dtype == output.dtype;
            targets.push(if direct { output.clone() } else { ctx.temp(*dtype, &output.dims)? });
        }
        launch.enqueue(ctx.device(), &variant, &targets)?;
        for (target, output) in targets.iter().zip(outputs).filter(|(t, o)| t.dtype != o.dtype) {
            cast::signature(target.dtype, output.dtype, false, |s| {
                s.run(ctx.device(), std::slice::from_ref(target), std::slice::from_ref(output), &[])
            })?;
        }
        Ok(())
    }

    fn launch<'a>(
        &'a self,
        walked: &'a Walked,
        inputs: &'a [Tensor],
        constants: &'a [f32],
        device: &Device,
    ) -> Launch<'a> {
        Launch { kernel: self, walk: &walked.walk, inputs, constants, profile: device.profile() }
    }

    /// Enqueues the program for outputs of 32 or 64 bits, which are not empty.
    ///
    /// # Errors
    /// Those of [`RowKernel::run`].
    pub fn enqueue(&self, device: &Device, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        let walked = self.walk(inputs)?;
        let launch = self.launch(&walked, inputs, &self.constants, device);
        launch.enqueue(device, &launch.variant(outputs)?, outputs)
    }

    /// Shaders of the program for inputs of one dimension of columns, or of several.
    pub fn shaders(&self) -> Vec<Shader> {
        let (program, types) = (&self.program, self.program.output_types());
        let mut all = Vec::new();
        for (unit, rank, one_row) in
            [(1, 1, false), (1, 2, false), (4, 1, false), (4, 5, false), (4, 1, true)]
        {
            for (lanes, workgroup) in [(1, WORKGROUP), (8, 8), (32, WORKGROUP)] {
                let is_four = |t: DType| unit == 4 && rank == 1 && vec4::supports(t);
                let full = |t: DType| {
                    if is_four(t) { (Access::Four, t) } else { (Access::Each, t.accumulator()) }
                };
                let inputs = program.inputs()[..self.tensors].iter().enumerate();
                let inputs = inputs
                    .map(|(i, t)| match i {
                        0 if is_four(*t) => Access::Four,
                        0 => Access::Each,
                        _ => Access::Row,
                    })
                    .collect();
                let outputs = (program.outputs().iter().zip(&types))
                    .map(|(o, t)| match o {
                        Output::Full(_) => full(*t),
                        Output::Row { .. } if one_row => (Access::Row, *t),
                        Output::Row { .. } => (Access::Row, t.accumulator()),
                    })
                    .collect();
                let variant = RowVariant {
                    name: self.name,
                    program,
                    text: &self.text,
                    inputs,
                    outputs,
                    row_rank: rank,
                    column_rank: rank,
                    unit,
                    lanes,
                    workgroup,
                    steps: 1,
                };
                all.push(variant.shader());
                if rank == 1 && lanes == 32 && types.contains(&F32) {
                    all.push(RowVariant { steps: STEPS[1], ..variant }.shader());
                }
            }
        }
        all
    }
}

/// One execution.
struct Launch<'a> {
    kernel: &'a RowKernel,
    walk: &'a RowWalk,
    inputs: &'a [Tensor],
    constants: &'a [f32],
    profile: Profile,
}

impl Launch<'_> {
    fn variant(&self, outputs: &[Tensor]) -> Result<RowVariant<'_>> {
        let (walk, program) = (self.walk, &self.kernel.program);
        let in_vec4s = walk.has_vec4s();
        let fits = |k: usize, t: &Tensor| {
            in_vec4s
                && walk.is_in_vec4s(k)
                && vec4::supports(t.dtype)
                && t.address.is_multiple_of(u64::from(vec4::unit(t.dtype)))
        };
        let inputs: Vec<Access> = (self.inputs.iter().enumerate())
            .map(|(k, t)| match () {
                () if walk.is_constant_in_rows(k) => Access::Row,
                () if fits(k, t) => Access::Four,
                () => Access::Each,
            })
            .collect();
        let outputs = (program.outputs().iter().zip(outputs).enumerate())
            .map(|(o, (output, t))| match output {
                // The value of a single row has a word of its own.
                Output::Row { .. } if walk.rows.len() == 1 => (Access::Row, t.dtype),
                Output::Row { .. } => (Access::Row, t.dtype.accumulator()),
                Output::Full(_) if fits(inputs.len() + o, t) => (Access::Four, t.dtype),
                Output::Full(_) => (Access::Each, t.dtype.accumulator()),
            })
            .collect();
        let unit = if in_vec4s { 4 } else { 1 };
        let (Lanes { count: lanes, workgroup }, steps) = self.lanes(unit)?;
        Ok(RowVariant {
            name: self.kernel.name,
            program,
            text: &self.kernel.text,
            inputs,
            outputs,
            row_rank: walk.rows.dims().len().max(1),
            column_rank: walk.columns.dims().len().max(1),
            unit,
            lanes,
            workgroup,
            steps,
        })
    }

    /// The number of invocations that share a row, and the number of steps of an iteration.
    fn lanes(&self, unit: u32) -> Result<(Lanes, u32)> {
        let units = self.walk.columns.len().div_ceil(unit as usize);
        // Each stage has a loop, and one more for every block.
        let stage = self.profile.loop_limit / self.kernel.program.stages().len();
        Lanes::within(self.profile, self.walk.rows.len(), units, |steps| {
            (stage / (256usize.div_ceil(steps) + 1) * 256).saturating_sub(300)
        })
    }

    /// Enqueues the rows, in as many windows as the adapter's bindings require.
    fn enqueue(&self, device: &Device, variant: &RowVariant<'_>, targets: &[Tensor]) -> Result<()> {
        let walk = &self.walk;
        let (rows, columns) = (walk.rows.len(), walk.columns.len());
        let tensors: Vec<(&Tensor, Access)> = self
            .inputs
            .iter()
            .zip(variant.inputs.iter().copied())
            .chain(targets.iter().zip(variant.outputs.iter().map(|o| o.0)))
            .collect();
        let stride = |k: usize| walk.rows.strides(k).first().copied().unwrap_or(0) as usize;
        let limit = window_bytes(device);
        let mut per_window = rows;
        for (k, (t, _)) in tensors.iter().enumerate() {
            if t.bytes() > limit {
                let is_cut = walk.rows.dims().len() == 1 && stride(k) > 0;
                let fits =
                    if is_cut { (limit / (stride(k) * t.dtype.size()) as u64) as usize } else { 0 };
                if fits == 0 {
                    let message = format!(
                        "a row of {columns} elements of {} exceeds this adapter's largest storage \
                         binding",
                        t.dtype
                    );
                    return Err(Error::ResourceExhausted(message));
                }
                per_window = per_window.min(fits);
            }
        }
        if per_window < rows {
            // Windows of packed types start at whole words.
            per_window = (per_window / 16 * 16).max(1);
        }
        for first in (0..rows).step_by(per_window.max(1)) {
            let count = per_window.min(rows - first);
            device.check_extent(count * columns)?;
            let bind = |(k, (t, access)): (usize, &(&Tensor, Access))| {
                let unit = if *access == Access::Four {
                    vec4::unit(t.dtype)
                } else {
                    t.dtype.size() as u32
                };
                let all = Binding::raw(t, unit);
                if count == rows || stride(k) == 0 {
                    return all;
                }
                Binding { unit, ..part(t, first * stride(k), count * stride(k)) }
            };
            device.enqueue_counted(
                &Program {
                    key: variant.key(),
                    shader: &|| variant.shader(),
                    bindings: tensors.iter().enumerate().map(bind).collect(),
                    params: variant.params(walk, count, columns, self.constants),
                    grid: Grid::linear(count * variant.lanes as usize, variant.workgroup),
                },
                DType::F32.flops(self.kernel.operations * count * columns),
            )?;
        }
        Ok(())
    }
}

/// Shaders of sample programs.
pub fn shaders() -> Vec<Shader> {
    let norm = |t: &str| {
        format!(
            "Mean: x: {t}, float32; c: 1; return x0 | Mean, Max: x: {t}, float32, {t}; c: 1; s0 = \
             SquaredDifference<{t}>(x0, x2); return s0, x0 | row: x: {t}, float32, {t}, {t}, {t}; \
             c: 1; s0 = Rsqrt<{t}>(x3); return s0 | full: x: {t}, float32, {t}, {t}, {t}, {t}; c: \
             1; s0 = Mul<{t}>(x0, x5); s1 = Greater<{t}>(s0, x4); s2 = Mul<float32>(x1, c0); \
             return s0, s1, s2 | return y0, r0, r1 flat, y1, y2"
        )
    };
    let program = |t: DType| norm(t.name()).parse().expect("a program of this file");
    let types = [F32, F16, BF16, F64].into_iter();
    types.flat_map(|t| RowKernel::new("rows", program(t), vec![0.0], vec![-1]).shaders()).collect()
}
