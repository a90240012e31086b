//! ResourceApply*: a step of every element of whole variables.

use smallvec::SmallVec;

use super::text::{BINDING_NAMES, TypedRule};
use super::{check_scalar, check_variables, scalars};
use crate::device::{Binding, Grid, NamedBindings, declare_program};
use crate::error::Result;
use crate::kernels::aliases;
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Kernel, OpContext};
use crate::require;
use crate::shader::{List, Shader, WORKGROUP, vec4};
use crate::tensor::{Tensor, shape_text};

/// The variables, then the inputs that the rule names.
pub struct Dense {
    /// The rule.
    pub step: TypedRule,
}

/// The most bindings of a program.
const BINDINGS: usize = 8;

impl Kernel for Dense {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let rule = self.step.rule;
        let count = rule.variables.len();
        let mut gradient = None;
        let mut scalars: SmallVec<[Tensor; 6]> = SmallVec::new();
        for (k, name) in rule.dense.iter().enumerate() {
            let input = ctx.input(count + k)?;
            if *name == "g" {
                gradient = Some(input);
            } else {
                check_scalar(name, &input)?;
                scalars.push(input);
            }
        }
        let gradient = gradient.expect("every rule has a gradient");
        let inputs: SmallVec<[usize; 4]> = (0..count).collect();
        ctx.update_variables(&inputs, &mut |ctx, variables| {
            check_variables(&self.step, variables)?;
            require!(
                gradient.dims == variables[0].dims,
                "var and {} do not have the same shape{} {}",
                if rule.op == "ResourceApplyGradientDescent" { "delta" } else { "grad" },
                shape_text(&variables[0].dims),
                shape_text(&gradient.dims)
            );
            aliases::update_and_keep_last(ctx, variables, &mut |ctx, variables| {
                self.enqueue(ctx, variables, &gradient, &scalars)
            })
        })
    }
}

impl Dense {
    /// Enqueues one dispatch, or one for each window that fits a binding.
    fn enqueue(
        &self,
        ctx: &mut dyn OpContext,
        variables: &[Tensor],
        g: &Tensor,
        scalars: &[Tensor],
    ) -> Result<()> {
        if g.is_empty() {
            return Ok(());
        }
        let step = self.step;
        let packed = if is_packed(&step) { Some(scalars::pack(ctx, scalars)?) } else { None };
        let size = step.dtype.size();
        let window = (window_limit(ctx.device()) as usize / size).min(1 << 30) & !63;
        // Whole vec4s come first, then the elements behind them.
        let in_vec4s = step.in_vec4s(variables.iter().chain([g]).map(|t| t.address));
        let whole = if in_vec4s { g.len() & !(vec4::WIDTH as usize - 1) } else { 0 };
        for (range, vec4s) in [(0..whole, true), (whole..g.len(), false)] {
            for first in range.clone().step_by(window) {
                let count = window.min(range.end - first);
                let unit = if vec4s { vec4::unit(step.dtype) } else { size as u32 };
                let part = |t: &Tensor| Binding {
                    address: t.address + (first * size) as u64,
                    bytes: (count * size) as u64,
                    unit,
                };
                let mut tensors: NamedBindings =
                    BINDING_NAMES.into_iter().zip(variables.iter().map(part)).collect();
                tensors.push(("g", part(g)));
                match &packed {
                    Some(packed) => tensors.push(("packed", packed.into())),
                    None => {
                        tensors.extend(step.rule.scalars().zip(scalars.iter().map(Binding::from)))
                    }
                }
                let elements = count;
                let (count, grid) = if vec4s {
                    let count = count / vec4::WIDTH as usize;
                    (count, Grid::linear(count, WORKGROUP))
                } else {
                    (count, Grid::map(count, step.dtype))
                };
                let of = DenseStep::of(step, vec4s);
                ctx.device().enqueue_counted(
                    &DenseStep { tensors, count }.program(&of, grid),
                    step.dtype.flops(step.operations * elements),
                )?;
            }
        }
        Ok(())
    }
}

fn is_packed(step: &TypedRule) -> bool {
    step.rule.variables.len() + step.rule.dense.len() > BINDINGS
}

declare_program! {
    /// A step of single elements, or of whole vec4s.
    struct DenseStep = "dense step"(step: TypedRule, vec4s: bool);
    lists { tensors: List(step.operands(vec4s, is_packed(&step))) }
    bindings {}
    params { count: usize }
}

impl DenseStep {
    fn shader(step: TypedRule, vec4s: bool) -> Shader {
        let in_vec4s = if vec4s { ", in vec4s" } else { "" };
        let label = format!("{} {}, {}{in_vec4s}", step.rule.op, step.dtype, step.flag);
        let shader = step.functions(Self::declare(label, step, vec4s), is_packed(&step));
        if vec4s {
            let text = include_str!("../../../shaders/training/dense_vec4s.wgsl");
            return step.vec4s(shader).body(text);
        }
        shader
            .body(&step.load_state())
            .define("LANES", step.dtype.lanes().to_string())
            .define("STEPS", step.store_unit("step(load_state(i), load_g(i), c)"))
            .body(include_str!("../../../shaders/training/dense.wgsl"))
    }
}

/// Every variant.
pub fn shaders(step: TypedRule) -> impl Iterator<Item = Shader> {
    let vec4s = vec4::supports(step.dtype).then_some(true);
    vec4s.into_iter().chain([false]).map(move |vec4s| DenseStep::shader(step, vec4s))
}
