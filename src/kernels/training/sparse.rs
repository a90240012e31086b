//! ResourceSparseApply*: steps of the rows that an index vector names.
//!
//! A row that is named several times takes its steps one after the other, in the order of the
//! indices, as on TensorFlow's CPU; TensorFlow's GPU kernels have a race there. Indices out of
//! range are ignored, as in those GPU kernels.

use smallvec::{SmallVec, smallvec};

use super::text::TypedRule;
use super::{check_scalar, check_variables, order, scalars};
use crate::device::{Binding, Grid, Key, Parameter, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::aliases;
use crate::kernels::gather::index::{AnyIndices, IndexParams, Indices};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::scatter::chains::{self, Columns};
use crate::require;
use crate::shader::{Element, Shader, WORKGROUP, vec4};
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
        device.enqueue(&Program {
            key: Key::new("optimizer order"),
            shader: &order_shader,
            bindings: smallvec![
                (&self.heads).into(),
                (&self.links).into(),
                (&self.firsts).into(),
                (&self.next).into(),
                self.indices.binding(first, count),
            ],
            params: self.indices.params().append_to(Params::new().u32(count)),
            grid: Grid::linear(count, WORKGROUP),
        })
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
        let mut bindings: SmallVec<[Binding; 8]> =
            self.variables.iter().map(|t| slice(t, first_row, rows)).collect();
        bindings.push(slice(self.gradient, first, count));
        bindings.extend([&self.scalars, &self.firsts, &self.next].map(Binding::from));
        let elements = rows * self.inner;
        let vec4s = self.inner.is_multiple_of(vec4::WIDTH as usize)
            && step.in_vec4s(&bindings[..bindings.len() - 3]);
        if vec4s {
            bindings[..self.variables.len() + 1]
                .iter_mut()
                .for_each(|b| b.unit = vec4::unit(step.dtype));
        }
        let columns = Columns::of(step.dtype, vec4s);
        let inner = columns.in_row(self.inner);
        let invocations = columns.invocations(step.dtype, count * inner, elements);
        ctx.device().check_extent(invocations.max(elements))?;
        let params = Params::new().u32(elements).u32(count).u32(inner).u32(first_row).u32(rows);
        let params = if columns == Columns::Word {
            params
        } else {
            bindings.push(self.indices.binding(first, count));
            self.indices.params().append_to(params)
        };
        let key =
            Key::new(step.rule.op).name("sparse").dtype(step.dtype).number(u32::from(step.flag));
        ctx.device().enqueue_counted(
            &Program {
                key: key.number(columns as u32),
                shader: &|| shader(step, columns),
                bindings,
                params,
                grid: Grid::linear(invocations, WORKGROUP),
            },
            step.dtype.flops(step.operations * count * self.inner),
        )
    }
}

/// Declares the binding `indices` with `row_of` and its parameters.
fn declare_indices(shader: Shader) -> Shader {
    IndexParams::declare((), AnyIndices.bind(shader, "indices"), "index")
}

/// The shader that puts chains in order.
pub fn order_shader() -> Shader {
    let shader = ["heads", "links", "firsts", "next"]
        .into_iter()
        .fold(Shader::new("optimizer order"), |shader, name| shader.bind_raw(name, "u32", 4))
        .u32s(&["count"]);
    declare_indices(shader).body(include_str!("../../../shaders/training/order.wgsl"))
}

/// The shader of the steps of the rows that are named.
pub fn shader(step: TypedRule, columns: Columns) -> Shader {
    let op = step.rule.sparse_op.unwrap_or_default();
    let shader = Shader::new(format!("{op} {}, {}, {columns:?}", step.dtype, step.flag));
    let shader = if columns == Columns::Vec4 { step.bind_vec4s(shader) } else { step.bind(shader) };
    let shader = step
        .bind_scalars(shader, true)
        .bind_raw("firsts", "u32", 4)
        .bind_raw("next", "u32", 4)
        .u32s(&["count", "indexed", "inner", "first_row", "rows"]);
    let shader = if columns == Columns::Word {
        shader.body("const NONE = 0xffffffffu;\n")
    } else {
        declare_indices(shader)
    };
    let shader = step.functions(shader, true);
    let shader = shader.define("HEAD", "firsts[p.off_firsts + row]").define("INDICES", "p.indexed");
    if columns == Columns::Vec4 {
        let vec4s = include_str!("../../../shaders/training/sparse_vec4s.wgsl");
        return step.vec4s(shader.library("quotient")).body(vec4s).body(chains::ROWS);
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
            "fn apply(at: u32, n: u32, k: u32) {{\n    let s = steps(at, n, k, scalars());\n{}}}\n",
            step.store("at")
        );
        shader.library("quotient").body(&apply).body(chains::ROWS)
    }
}

/// Every variant.
pub fn shaders(step: TypedRule) -> impl Iterator<Item = Shader> {
    Columns::all(step.dtype).map(move |columns| shader(step, columns))
}
