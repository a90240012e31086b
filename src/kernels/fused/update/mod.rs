//! `_WgpuFusedUpdate`: one step of many variables, in place, in as few dispatches as memory allows.
//!
//! The op has N members that share an expression. Each member has `NR / N` variables and a number
//! of tensors that is the same for all; scalars serve all members. The expression's inputs are a
//! member's old values, its tensors, and the scalars; its outputs are the new values of all of the
//! member's variables. A tensor has the variables' shape, or one element. Members differ in shape.
//! Inputs come member by member.
//!
//! TensorFlow cuts all tensors out of a few large blocks, so a dispatch binds windows of blocks
//! instead of tensors, and a table tells each workgroup which elements of which member it updates.

pub mod plan;
pub mod shader;

use smallvec::SmallVec;

use plan::{Piece, Place, UpdateDispatch};
use shader::{Access, WindowType};

use crate::device::{Binding, Device, Grid, Params, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::aliases;
use crate::kernels::definition::{OpDefinition, ShapeInputs};
use crate::kernels::expression::Expression;
use crate::kernels::fused::cost;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// The op's name.
pub const OP: &str = "_WgpuFusedUpdate";

/// The most variables and tensors of a member: each may lie in a block of its own, and the scalars
/// need one window more.
pub const MAX_VALUES: usize = shader::MAX_WINDOWS - 1;

/// Its signature.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["resources: NR * resource", "tensors: Ttensors", "scalars: Tscalars"],
    outputs: &[],
    attrs: &[
        "N: int >= 1",
        "NR: int >= 1",
        "Ttensors: list(type) >= 0",
        "Tscalars: list(type) >= 0",
        "expression: string",
        "constants: list(float)",
    ],
    stateful: true,
    shape: |_: &ShapeInputs<'_>| Ok(Vec::new()),
}];

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).host(&["resources"]).kernel(FusedUpdate::new);
}

/// Whether a member may have these variables and tensors beside these scalars.
pub fn fits(variables: &[DType], tensors: &[DType], scalars: &[DType]) -> bool {
    let mut window_types: Vec<_> = scalars.iter().map(|t| WindowType::of(*t)).collect();
    window_types.sort();
    window_types.dedup();
    variables.len() + tensors.len() + window_types.len() <= shader::MAX_WINDOWS
        && variables.len() + tensors.len() <= MAX_VALUES
        && variables.iter().all(|t| *t != DType::Bool && WindowType::of(*t).is_some())
        && tensors.iter().chain(scalars).all(|t| WindowType::of(*t).is_some())
}

struct FusedUpdate {
    expression: Expression,
    /// The expression as text, for keys.
    text: String,
    constants: Vec<f32>,
    members: usize,
    /// Variables of a member.
    variables: usize,
    /// Tensors of a member.
    tensors: usize,
}

impl FusedUpdate {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let expression: Expression = attrs.string("expression")?.parse()?;
        cost::check(cost::elementwise(cost::expression(&expression)))?;
        let constants = attrs.floats("constants")?;
        let length = |name: &str| Ok(usize::try_from(attrs.int(name)?).unwrap_or(0));
        let (members, variables): (usize, usize) = (length("N")?, length("NR")?);
        let (tensors, scalars) = (attrs.dtypes("Ttensors")?, attrs.dtypes("Tscalars")?);
        require!(
            members > 0
                && variables > 0
                && variables % members == 0
                && tensors.len() % members == 0,
            "{variables} variables and {} tensors are not those of {members} members",
            tensors.len()
        );
        let kernel = Self {
            variables: variables / members,
            tensors: tensors.len() / members,
            text: expression.to_string(),
            expression,
            constants,
            members,
        };
        let inputs = kernel.expression.inputs();
        let (old, others) = inputs.split_at(kernel.variables.min(inputs.len()));
        let (own, shared) = others.split_at(kernel.tensors.min(others.len()));
        let fit = kernel.expression.constants() == kernel.constants.len()
            && kernel.expression.output_types() == old
            && shared == scalars
            && (kernel.tensors == 0 || tensors.chunks(kernel.tensors).all(|member| member == own));
        require!(
            fit,
            "the expression {} does not fit {} variables, tensors {tensors:?} and scalars \
             {scalars:?} of {members} members",
            kernel.expression,
            kernel.variables
        );
        require!(
            fits(old, own, shared),
            "the expression {} has too many inputs",
            kernel.expression
        );
        Ok(kernel)
    }
}

impl Kernel for FusedUpdate {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let variables: Vec<usize> = (0..self.variables * self.members).collect();
        let mut others = Vec::with_capacity(ctx.num_inputs() - variables.len());
        for i in variables.len()..ctx.num_inputs() {
            others.push(ctx.input(i)?);
        }
        let (tensors, scalars) = others.split_at(self.tensors * self.members);
        for (k, scalar) in scalars.iter().enumerate() {
            require!(scalar.len() == 1, "scalar {k} has the shape {}", shape_text(&scalar.dims));
        }
        ctx.update_variables(&variables, &mut |ctx, values| {
            let own = |member: usize| {
                let variables = &values[member * self.variables..][..self.variables];
                (variables, &tensors[member * self.tensors..][..self.tensors])
            };
            for member in 0..self.members {
                let (variables, tensors) = own(member);
                self.check(member, variables, tensors)?;
            }
            if aliases::are_there(values) {
                return (0..self.members).try_for_each(|member| {
                    let (variables, tensors) = own(member);
                    self.run_in_order(ctx, variables, tensors, scalars)
                });
            }
            let mut pieces = Vec::with_capacity(self.members);
            for member in 0..self.members {
                let (variables, tensors) = own(member);
                self.cut(ctx, variables, tensors, scalars, &mut pieces);
            }
            self.run(ctx, pieces)
        })
    }
}

impl FusedUpdate {
    /// Refuses a member whose variables or tensors differ in shape or are not of the expression's
    /// types.
    fn check(&self, member: usize, variables: &[Tensor], tensors: &[Tensor]) -> Result<()> {
        let dims = &variables[0].dims;
        for (k, t) in variables.iter().enumerate() {
            require!(
                t.dtype == self.expression.inputs()[k],
                "variable {k} of member {member} is of {}, not {}",
                t.dtype,
                self.expression.inputs()[k]
            );
            require!(
                t.dims == *dims,
                "variables 0 and {k} of member {member} do not have the same shape: {} and {}",
                shape_text(dims),
                shape_text(&t.dims)
            );
        }
        for t in tensors {
            require!(
                t.dims == *dims || t.len() == 1 && t.rank() <= dims.len(),
                "Cannot update variable with shape {} using a Tensor with shape {}, shapes must \
                 be equal.",
                shape_text(dims),
                shape_text(&t.dims)
            );
        }
        Ok(())
    }

    /// Enqueues one member, some of whose variables may be the same.
    fn run_in_order(
        &self,
        ctx: &mut dyn OpContext,
        variables: &[Tensor],
        tensors: &[Tensor],
        scalars: &[Tensor],
    ) -> Result<()> {
        aliases::update_in_order(ctx, variables, 0..variables.len(), &mut |ctx, variables| {
            let mut pieces = Vec::new();
            self.cut(ctx, variables, tensors, scalars, &mut pieces);
            self.run(ctx, pieces)
        })
    }

    /// Appends the runs of a member's elements.
    fn cut(
        &self,
        ctx: &dyn OpContext,
        variables: &[Tensor],
        tensors: &[Tensor],
        scalars: &[Tensor],
        into: &mut Vec<Piece>,
    ) {
        let count = variables[0].len();
        let widest = self.expression.inputs().iter().map(|t| t.size()).max().unwrap_or(1);
        let run =
            (plan::longest_run(ctx.device().capabilities().max_binding) as usize / widest) & !63;
        let own = variables.len() + tensors.len();
        for first in (0..count).step_by(run) {
            let places =
                variables.iter().chain(tensors).chain(scalars).enumerate().map(|(k, t)| {
                    // A variable never is, since it is written where it lies.
                    let splat = k >= own || k >= variables.len() && t.len() == 1 && count > 1;
                    let first = if splat { 0 } else { first };
                    Place {
                        address: t.address + (first * t.dtype.size()) as u64,
                        dtype: t.dtype,
                        splat,
                    }
                });
            into.push(Piece { count: run.min(count - first) as u32, places: places.collect() });
        }
    }

    /// Enqueues the dispatches for all pieces.
    fn run(&self, ctx: &mut dyn OpContext, pieces: Vec<Piece>) -> Result<()> {
        let max_binding = ctx.device().capabilities().max_binding;
        let (mut parts, scattered) =
            plan::plan(pieces, max_binding, &|address| ctx.device().block(address))?;
        if !scattered.is_empty() {
            let gathered =
                scattered.into_iter().map(|p| gather(ctx, p)).collect::<Result<Vec<_>>>()?;
            let (more, left) =
                plan::plan(gathered, max_binding, &|address| ctx.device().block(address))?;
            if let Some(piece) = left.first() {
                return Err(Error::Internal(format!(
                    "{OP}: {} tensors need too many bindings",
                    piece.places.len()
                )));
            }
            parts.extend(more);
        }
        for part in &parts {
            for (homes, pieces) in part.by_homes() {
                self.enqueue(ctx.device(), part, &homes, &pieces)?;
            }
        }
        Ok(())
    }

    /// One dispatch for pieces whose inputs lie in the same windows.
    fn enqueue(
        &self,
        device: &Device,
        part: &UpdateDispatch,
        homes: &[usize],
        pieces: &[&Piece],
    ) -> Result<()> {
        let expression = &self.expression;
        let (used, homes) = plan::bindings(homes, self.variables + self.tensors, &part.windows);
        let windows: SmallVec<[&plan::Window; 6]> =
            used.iter().map(|w| &part.windows[*w]).collect();
        let access = access(expression, part, pieces);
        let group = access.elements_of_group(expression);
        let mut table: Vec<u32> = Vec::with_capacity(pieces.len() * shader::row_words(expression));
        let (mut groups, mut bytes) = (0, 0);
        for piece in pieces {
            bytes += piece.bytes();
            table.extend([groups, piece.count]);
            for place in &piece.places {
                let (_, offset) = part.locate(piece, place);
                table.extend([offset, u32::from(!place.splat)]);
            }
            groups += piece.count.div_ceil(group);
        }
        let constants = table.len();
        table.extend(self.constants.iter().map(|c| c.to_bits()));
        let window_types: SmallVec<[WindowType; 6]> =
            windows.iter().map(|w| w.window_type).collect();
        let window = |w: &&plan::Window| Binding {
            address: w.range.start,
            bytes: w.range.end - w.range.start,
            unit: access.unit(w.window_type),
        };
        let bindings = windows.iter().map(window).collect();
        let rows = pieces.len() as u32;
        let program = Program {
            key: shader::key(&self.text, &window_types, &homes, &access),
            shader: &|| shader::shader(expression, &window_types, &homes, &access),
            bindings,
            params: Params::new().u32(rows).u32(1 << rows.ilog2()).u32(constants),
            grid: Grid::groups(groups as usize),
        };
        let elements: usize = pieces.iter().map(|piece| piece.count as usize).sum();
        let flops = expression.output_type(0).flops(expression.operations() as usize * elements);
        device.enqueue_table(&program, table, bytes, flops)
    }
}

/// Vec4s if the elements of all pieces can be taken four at a time, and if the elements that
/// complete the last four are in the window too.
fn access(expression: &Expression, part: &UpdateDispatch, pieces: &[&Piece]) -> Access {
    let inputs = expression.inputs();
    let splats: SmallVec<[bool; 8]> =
        (0..inputs.len()).map(|k| pieces[0].places[k].splat).collect();
    let fits = |piece: &&Piece| {
        piece.places.iter().zip(&splats).all(|(place, splat)| {
            let window = &part.windows[part.locate(piece, place).0 as usize].range;
            let end = (place.address + 4 * u64::from(piece.count)).next_multiple_of(16);
            place.splat == *splat
                && (place.splat
                    || place.dtype.size() == 4
                        && place.address.is_multiple_of(16)
                        && end <= window.end)
        })
    };
    let is_word = |t: &DType| t.size() == 4;
    if expression.each_output_type().all(|t| is_word(&t)) && pieces.iter().all(fits) {
        Access::Vec4s { splats }
    } else {
        Access::Single
    }
}

/// Moves inputs of which one element serves all into one temporary.
fn gather(ctx: &mut dyn OpContext, mut piece: Piece) -> Result<Piece> {
    const SLOT: u64 = 16;
    let splats = piece.places.iter().filter(|p| p.splat).count();
    let buffer = ctx.temp(DType::U32, &[splats * SLOT as usize / 4])?;
    for (place, slot) in piece.places.iter_mut().filter(|p| p.splat).zip(0..) {
        let to = buffer.address + slot * SLOT;
        ctx.device().copy(to, place.address, place.dtype.size() as u64)?;
        place.address = to;
    }
    Ok(piece)
}

/// Shader variants of sample expressions: types, lanes, numbers of windows.
pub fn shaders() -> Vec<Shader> {
    const WORD: WindowType = WindowType::Word;
    let samples: [(&str, &[WindowType]); 6] = [
        (
            "x: float32, float32; c: 1; s0 = Mul<float32>(x1, c0); s1 = AddV2<float32>(x0, s0); \
             return s1",
            &[WORD],
        ),
        (
            "x: float32, float32, float32; c: 1; s0 = Mul<float32>(x2, c0); s1 = \
             AddV2<float32>(x0, s0); s2 = Sub<float32>(x1, s1); return s1, s2",
            &[WORD; 6],
        ),
        (
            "x: float16, float32; c: 0; s0 = Cast<float32, float16>(x1); s1 = Sub<float16>(x0, \
             s0); return s1",
            &[WORD; 2],
        ),
        (
            "x: bfloat16, float32, bool; c: 0; s0 = SelectV2<float32>(x2, x1, x1); return x0, s0",
            &[WORD; 4],
        ),
        (
            "x: float64, float64; c: 0; s0 = Sub<float64>(x0, x1); return s0",
            &[WindowType::Double(DType::F64)],
        ),
        (
            "x: int64, float32, int64; c: 0; s0 = AddV2<int64>(x0, x2); s1 = Square<float32>(x1); \
             return s0, s1",
            &[WORD, WORD, WindowType::Double(DType::I64)],
        ),
    ];
    let expression = |text: &str| text.parse::<Expression>().expect("a sample");
    let shader = |(text, windows): &(&str, &[WindowType])| {
        let expression = expression(text);
        // Each input lies in the last window of its type, unless there are several.
        let home = |(k, dtype): (usize, &DType)| {
            let window_type = WindowType::of(*dtype);
            let of_type =
                || windows.iter().enumerate().filter(move |(_, w)| Some(**w) == window_type);
            of_type()
                .nth(k)
                .or_else(|| of_type().next_back())
                .expect("a window of the window_type")
                .0
        };
        let homes: Vec<usize> = expression.inputs().iter().enumerate().map(home).collect();
        let single = shader::shader(&expression, windows, &homes, &Access::Single);
        let outputs = expression.output_types();
        let splats: SmallVec<[bool; 8]> = (0..homes.len()).map(|k| k >= outputs.len()).collect();
        let is_word = outputs.iter().all(|t| t.size() == 4);
        let vec4s = is_word
            .then(|| shader::shader(&expression, windows, &homes, &Access::Vec4s { splats }));
        std::iter::once(single).chain(vec4s)
    };
    samples.iter().flat_map(shader).collect()
}
