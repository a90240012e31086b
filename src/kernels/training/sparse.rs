//! ResourceSparseApply*: steps of the rows that an index vector names.
//!
//! A row that is named several times takes its steps one after the other, in the order of the
//! indices, as on TensorFlow's CPU; TensorFlow's GPU kernels have a race there. Indices out of
//! range are ignored, as in those GPU kernels.

use smallvec::SmallVec;

use super::text::{BINDING_NAMES, TypedRule};
use super::{check_scalar, check_variables, order, scalars};
use crate::device::{Binding, Grid, NamedBindings, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::aliases;
use crate::kernels::gather::index::{AnyIndices, IndexParams, Indices};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::scatter::chains::{self, Columns};
use crate::require;
use crate::shader::{List, Raw, Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

/// The variables, then the inputs that the rule names.
pub struct Sparse {
    /// The rule.
    pub step: TypedRule,
}

/// The operands of a launch.
struct Update<'a> {
    step: TypedRule,
    variables: &'a [Tensor],
    gradient: &'a Tensor,
    indices: Indices,
    scalars: Tensor,
    inner: usize,
    /// The first index of each row, the next index of each index, and the chains that these are
    /// made from.
    firsts: Tensor,
    next: Tensor,
    heads: Tensor,
    links: Tensor,
}

impl Kernel for Sparse {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let rule = self.step.rule;
        let count = rule.variables.len();
        let at = |name: &str| {
            count + rule.sparse.iter().position(|n| *n == name).expect("the rule's input")
        };
        let (gradient, indices) = (ctx.input(at("g"))?, ctx.input(at("indices"))?);
        let mut scalars: SmallVec<[Tensor; 6]> = SmallVec::new();
        for name in rule.scalars() {
            let scalar = ctx.input(at(name))?;
            check_scalar(name, &scalar)?;
            scalars.push(scalar);
        }
        let inputs: SmallVec<[usize; 4]> = (0..count).collect();
        ctx.update_variables(&inputs, &mut |ctx, variables| {
            check_variables(&self.step, variables)?;
            check(&variables[0], &gradient, &indices)?;
            aliases::update_in_order(ctx, variables, order(count), &mut |ctx, variables| {
                self.enqueue(ctx, variables, &gradient, &indices, &scalars)
            })
        })
    }
}

fn check(variable: &Tensor, gradient: &Tensor, indices: &Tensor) -> Result<()> {
    require!(variable.rank() > 0, "var must be at least 1 dimensional");
    require!(indices.rank() == 1, "indices must be one-dimensional");
    require!(
        gradient.rank() == variable.rank(),
        "grad must have the same number of dimensions as var"
    );
    for d in 1..variable.rank() {
        require!(variable.dims[d] == gradient.dims[d], "var and grad must match in dimension {d}");
    }
    require!(
        gradient.dims[0] == indices.len(),
        "grad must be the same size as indices in the first dimension."
    );
    Ok(())
}

impl Sparse {
    fn enqueue(
        &self,
        ctx: &mut dyn OpContext,
        variables: &[Tensor],
        gradient: &Tensor,
        indices: &Tensor,
        scalars: &[Tensor],
    ) -> Result<()> {
        let rows = variables[0].dims[0];
        let inner: usize = variables[0].dims[1..].iter().product();
        if rows == 0 || gradient.is_empty() {
            return Ok(());
        }
        ctx.device().check_extent(rows)?;
        let fitting =
            (window_limit(ctx.device()) / (inner * self.step.dtype.size()) as u64).max(1) as usize;
        let count = indices.len();
        let block = chains::BLOCK.min(fitting).min(count);
        let update = Update {
            step: self.step,
            variables,
            gradient,
            indices: Indices::new(indices, &[rows])?,
            scalars: scalars::pack(ctx, scalars)?,
            inner,
            firsts: ctx.temp(DType::U32, &[rows])?,
            next: ctx.temp(DType::U32, &[block])?,
            heads: ctx.temp(DType::U32, &[rows])?,
            links: ctx.temp(DType::U32, &[block])?,
        };
        // Windows are whole words of packed rows.
        let window = if rows <= fitting { rows } else { (fitting / 4 * 4).max(1) };
        for first in (0..count).step_by(block) {
            let count = block.min(count - first);
            update.order(ctx, first, count)?;
            for first_row in (0..rows).step_by(window) {
                update.dispatch(ctx, first, count, first_row, window.min(rows - first_row))?;
            }
        }
        Ok(())
    }
}

impl Update<'_> {
    /// Chains the indices from `first` on by row, and puts each chain in order.
    fn order(&self, ctx: &dyn OpContext, first: usize, count: usize) -> Result<()> {
        let device = ctx.device();
        device.fill(self.heads.address, self.heads.bytes(), u32::MAX)?;
        device.fill(self.firsts.address, self.firsts.bytes(), u32::MAX)?;
        chains::link(ctx, &self.indices, &self.heads, &self.links, first, count)?;
        let call = Order {
            heads: (&self.heads).into(),
            links: (&self.links).into(),
            firsts: (&self.firsts).into(),
            next: (&self.next).into(),
            indices: self.indices.binding(first, count),
            count,
            index: self.indices.params(),
        };
        call.enqueue(device, &Order::of(), Grid::linear(count, WORKGROUP))
    }

    /// Enqueues the steps of the indices from `first` on, in some of the rows.
    fn dispatch(
        &self,
        ctx: &dyn OpContext,
        first: usize,
        count: usize,
        first_row: usize,
        rows: usize,
    ) -> Result<()> {
        let step = self.step;
        let size = step.dtype.size();
        let slice = |t: &Tensor, first: usize, rows: usize| Binding {
            address: t.address + (first * self.inner * size) as u64,
            bytes: (rows * self.inner * size) as u64,
            unit: size as u32,
        };
        let variables = self.variables.iter().map(|t| slice(t, first_row, rows));
        let mut tensors: NamedBindings = BINDING_NAMES.into_iter().zip(variables).collect();
        tensors.push(("g", slice(self.gradient, first, count)));
        let elements = rows * self.inner;
        let vec4s = self.inner.is_multiple_of(vec4::WIDTH as usize)
            && step.in_vec4s(tensors.iter().map(|(_, b)| b.address));
        if vec4s {
            tensors.iter_mut().for_each(|(_, b)| b.unit = vec4::unit(step.dtype));
        }
        tensors.push(("packed", (&self.scalars).into()));
        let columns = Columns::of(step.dtype, vec4s);
        let inner = columns.in_row(self.inner);
        let invocations = columns.invocations(step.dtype, count * inner, elements);
        ctx.device().check_extent(invocations.max(elements))?;
        let has_indices = columns != Columns::Word;
        let call = SparseSteps {
            tensors,
            firsts: (&self.firsts).into(),
            next: (&self.next).into(),
            indices: has_indices.then(|| self.indices.binding(first, count)),
            count: elements,
            indexed: count,
            inner,
            first_row,
            rows,
            index: has_indices.then(|| self.indices.params()),
        };
        let (of, grid) = (SparseSteps::of(step, columns), Grid::linear(invocations, WORKGROUP));
        let operations = step.dtype.flops(step.operations * count * self.inner);
        ctx.device().enqueue_counted(&call.program(&of, grid), operations)
    }
}

declare_program! {
    /// Puts chains in order.
    pub struct Order = "optimizer order"();
    bindings {
        heads: Raw("u32", 4), links: Raw("u32", 4), firsts: Raw("u32", 4), next: Raw("u32", 4),
        indices: AnyIndices,
    }
    params { count: usize, index: IndexParams }
    shader "optimizer order" => .body(include_str!("../../../shaders/training/order.wgsl"))
}

declare_program! {
    /// The steps of the rows that are named.
    struct SparseSteps = "sparse steps"(step: TypedRule, columns: Columns);
    lists { tensors: List(step.operands(columns == Columns::Vec4, true)) }
    bindings { firsts: Raw("u32", 4), next: Raw("u32", 4) }
    optional { indices: (columns != Columns::Word).then_some(AnyIndices) }
    params {
        count: usize, indexed: usize, inner: usize, first_row: usize, rows: usize,
        index: Option<IndexParams> = columns != Columns::Word,
    }
}

impl SparseSteps {
    fn shader(step: TypedRule, columns: Columns) -> Shader {
        let op = step.rule.sparse_op.unwrap_or_default();
        let label = format!("{op} {}, {}, {columns:?}", step.dtype, step.flag);
        let shader = Self::declare(label, step, columns);
        let shader = if columns == Columns::Word {
            shader.body("const NONE = 0xffffffffu;\n")
        } else {
            shader
        };
        let shader = step.functions(shader, true);
        let shader =
            shader.define("HEAD", "firsts[p.off_firsts + row]").define("INDICES", "p.indexed");
        if columns == Columns::Vec4 {
            let vec4s = include_str!("../../../shaders/training/sparse_vec4s.wgsl");
            return step.vec4s(shader).body(vec4s).body(chains::ROWS);
        }
        let shader = shader
            .body(&step.load_state())
            .body(include_str!("../../../shaders/training/sparse_steps.wgsl"));
        if columns == Columns::Word {
            shader
                .body(include_str!("../../../shaders/training/sparse_packed.wgsl"))
                .define("LANES", step.dtype.lanes().to_string())
                .define("STEPS", step.store_unit("element(i, c)"))
                .body(include_str!("../../../shaders/training/dense.wgsl"))
        } else {
            let apply = format!(
                "fn apply(at: u32, n: u32, k: u32) {{\n    let s = steps(at, n, k, \
                 scalars());\n{}}}\n",
                step.store("at")
            );
            shader.body(&apply).body(chains::ROWS)
        }
    }
}

/// Every variant.
pub fn shaders(step: TypedRule) -> impl Iterator<Item = Shader> {
    Columns::all(step.dtype).map(move |columns| SparseSteps::shader(step, columns))
}
