//! `_WgpuFusedConcat`: elementwise values side by side along an axis, of parts of tensors and of
//! whole ones, such as the halves of a head that rotary embeddings turn.
//!
//! The parts of the result have the same extent, as do the parts of the tensors that are read. They
//! are blocks along the axis, or take turns element by element. An invocation computes the values
//! of all parts for its elements, and stores the values of its own part: the parts have much of
//! the computation in common, and reading costs more.

use smallvec::SmallVec;

use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::definition::OpDefinition;
use crate::kernels::expression::Expression;
use crate::kernels::fused::cost;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows::limit;
use crate::layout::{AccessClass, Iteration, Strides, broadcast_dims, dense_strides};
use crate::shader::{Field, Shader};
use crate::tensor::{Dims, Tensor, shape_text};
use crate::{invalid, require};

/// The op's name.
pub const OP: &str = "_WgpuFusedConcat";

/// Names of the inputs' bindings.
const INPUTS: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];

/// The most inputs: with the result, seven of eight bindings.
pub const MAX_INPUTS: usize = INPUTS.len();
/// The most parts. All are computed for each element.
pub const MAX_PARTS: usize = 4;

/// The op. Output `k` of the expression is part `k` of the result. Input `k` is read as `parts[k]`
/// says ([`Reading`]), along `axis`, which counts from the back and is negative.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in"],
    outputs: &["y: T"],
    attrs: &[
        "T_in: list(type) >= 1",
        "T: {float, half, bfloat16}",
        "expression: string",
        "constants: list(float)",
        "parts: list(int)",
        "axis: int",
        "interleaved: bool",
    ],
    stateful: false,
    // Shape functions see neither the axis nor the number of parts.
    shape: |_| Ok(Vec::new()),
}];

/// Registers the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).types("T", TYPES).kernel(Concat::new);
}

/// Types of the result.
const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// How an input is read for an element of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The input broadcasts to a part.
    Broadcast,
    /// The element of this part of the input.
    Part(usize),
    /// The element of the part that the result's element belongs to.
    Own,
    /// The element of the other part, of two.
    Other,
}

impl From<Reading> for i64 {
    fn from(reading: Reading) -> Self {
        match reading {
            Reading::Broadcast => -1,
            Reading::Own => -2,
            Reading::Other => -3,
            Reading::Part(part) => part as Self,
        }
    }
}

impl TryFrom<i64> for Reading {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self> {
        Ok(match number {
            -1 => Self::Broadcast,
            -2 => Self::Own,
            -3 => Self::Other,
            part => match usize::try_from(part) {
                Ok(part) => Self::Part(part),
                Err(_) => invalid!("{OP}: there is no part {part}"),
            },
        })
    }
}

struct Concat {
    expression: Expression,
    /// The expression's text, the main part of the pipeline's key.
    text: String,
    constants: Vec<f32>,
    /// For each input, how it is read.
    parts: Vec<Reading>,
    /// The axis from the back: 1 is the last one.
    axis: usize,
    is_interleaved: bool,
    dtype: DType,
}

/// Where an operand is read on a walk.
#[derive(Debug, Clone)]
struct Place {
    address: u64,
    /// A stride for each dimension of the walk.
    strides: Strides,
    /// The offset of the first element.
    offset: i64,
}

impl Concat {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let expression: Expression = attrs.string("expression")?.parse()?;
        cost::check(cost::elementwise(cost::expression(&expression)))?;
        let (given, dtype) = (attrs.dtypes("T_in")?, attrs.dtype("T")?);
        let (constants, axis) = (attrs.floats("constants")?, attrs.int("axis")?);
        let parts: Vec<Reading> =
            attrs.ints("parts")?.into_iter().map(Reading::try_from).collect::<Result<_>>()?;
        let outputs = expression.output_types();
        require!(
            given == expression.inputs() && outputs.iter().all(|t| *t == dtype),
            "{OP}: {expression} for inputs of {given:?} and parts of {dtype}"
        );
        require!(
            given.len() <= MAX_INPUTS && (2..=MAX_PARTS).contains(&outputs.len()),
            "{OP}: {} inputs and {} parts",
            given.len(),
            outputs.len()
        );
        require!(
            parts.len() == given.len() && constants.len() == expression.constants() && axis < 0,
            "{OP}: {} parts, {} constants and axis {axis} for {expression}",
            parts.len(),
            constants.len()
        );
        require!(
            outputs.len() == 2 || !parts.contains(&Reading::Other),
            "{OP}: {} parts have no other one",
            outputs.len()
        );
        Ok(Self {
            text: expression.to_string(),
            expression,
            constants,
            parts,
            axis: axis.unsigned_abs() as usize,
            is_interleaved: attrs.bool("interleaved")?,
            dtype,
        })
    }

    /// The dims of a part: the shape to which all its inputs broadcast.
    fn part(&self, inputs: &[Tensor]) -> Result<Dims> {
        let of = |input: &Tensor, reading: &Reading| -> Result<Dims> {
            let mut dims = input.dims.clone();
            if *reading != Reading::Broadcast {
                let axis = dims.len().checked_sub(self.axis);
                let Some(axis) = axis.filter(|axis| dims[*axis].is_multiple_of(self.count()))
                else {
                    let dims = shape_text(&input.dims);
                    return Err(Error::InvalidArgument(format!(
                        "{OP}: {dims} has no {} parts along axis -{}",
                        self.count(),
                        self.axis
                    )));
                };
                dims[axis] /= self.count();
            }
            Ok(dims)
        };
        let dims =
            inputs.iter().zip(&self.parts).try_fold(Dims::new(), |all, (input, reading)| {
                broadcast_dims(&all, &of(input, reading)?)
            })?;
        require!(
            dims.len() >= self.axis,
            "{OP}: parts of {} have no axis -{}",
            shape_text(&dims),
            self.axis
        );
        Ok(dims)
    }

    /// The number of parts.
    fn count(&self) -> usize {
        self.expression.outputs().len()
    }

    /// The dimension of the walk that counts parts, for parts of this rank.
    const fn counting(&self, rank: usize) -> usize {
        rank - self.axis + self.is_interleaved as usize
    }

    /// Where `input` is read on a walk over a result of parts of `dims`. The walk has one more
    /// dimension, for the parts.
    fn place(&self, input: &Tensor, reading: Reading, dims: &[usize]) -> Result<Place> {
        let at = dims.len() - self.axis;
        let (own, lead) = (&input.dims, dims.len() - input.dims.len());
        let dense = dense_strides(own);
        let mut strides: Strides = (0..dims.len())
            .map(|d| if d < lead || own[d - lead] == 1 { 0 } else { dense[d - lead] })
            .collect();
        let mut place = Place { address: input.address, strides: Strides::new(), offset: 0 };
        // From a part to the next one.
        let mut stride = 0;
        if reading != Reading::Broadcast {
            let extent = own[at - lead] / self.count();
            let (along, step) = match self.is_interleaved {
                true => (self.count() as i64 * dense[at - lead], dense[at - lead]),
                false => (dense[at - lead], extent as i64 * dense[at - lead]),
            };
            // A part of one element broadcasts.
            strides[at] = if extent == 1 { 0 } else { along };
            match reading {
                Reading::Part(part) => {
                    require!(part < self.count(), "{OP}: part {part} of {}", self.count());
                    place.address += part as u64 * step as u64 * input.dtype.size() as u64;
                }
                _ => {
                    require!(
                        extent == dims[at],
                        "{OP}: parts of {extent} elements, not {}, along axis -{}",
                        dims[at],
                        self.axis
                    );
                    let is_other = reading == Reading::Other;
                    // The other one is before or after the own one.
                    (stride, place.offset) = if is_other { (-step, step) } else { (step, 0) };
                }
            }
        }
        strides.insert(self.counting(dims.len()), stride);
        place.strides = strides;
        Ok(place)
    }

    /// Enqueues the walk over `dims`, or its halves if a tensor exceeds a binding.
    fn enqueue(
        &self,
        device: &Device,
        dims: &[usize],
        inputs: &[Place],
        output: u64,
        run: usize,
    ) -> Result<()> {
        let types = self.expression.inputs();
        let walk = inputs
            .iter()
            .fold(Iteration::over(dims), |walk, place| walk.operand(&place.strides, place.offset));
        let span = |k: usize| -> u64 {
            let strides = walk.strides(k).iter().map(|s| s.unsigned_abs());
            1 + dims.iter().zip(strides).map(|(d, s)| (*d as u64 - 1) * s).sum::<u64>()
        };
        let most = limit(device.capabilities());
        let bytes = |k: usize| span(k) * types[k].size() as u64;
        let fits = (0..types.len()).all(|k| bytes(k) <= most)
            && (walk.len() * self.dtype.size()) as u64 <= most
            && walk.len() < u32::MAX as usize;
        if !fits {
            // The walk is cut in front of the axis, where rows are whole runs of parts.
            let outer = dims.len() - 1 - self.axis;
            let axis = dims[..outer].iter().position(|extent| *extent > 1);
            // Programs store whole words.
            let row = |axis: usize| dims[axis + 1..].iter().product::<usize>() * self.dtype.size();
            let whole = |axis: &usize| (dims[*axis] / 2 * row(*axis)).is_multiple_of(4);
            let Some(axis) = axis.filter(whole) else {
                return Err(Error::ResourceExhausted(format!(
                    "{OP}: {dims:?} elements exceed this adapter's largest storage binding"
                )));
            };
            let half = dims[axis] / 2;
            let row = row(axis);
            for (start, extent) in [(0, half), (half, dims[axis] - half)] {
                let mut dims = Dims::from_slice(dims);
                dims[axis] = extent;
                let moved: Vec<Place> = (inputs.iter().zip(types))
                    .map(|(place, dtype)| {
                        let step = start as u64 * place.strides[axis] as u64;
                        let address = place.address + step * dtype.size() as u64;
                        Place { address, ..place.clone() }
                    })
                    .collect();
                self.enqueue(device, &dims, &moved, output + (start * row) as u64, run)?;
            }
            return Ok(());
        }
        let count = walk.len();
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        for (k, place) in inputs.iter().enumerate() {
            let unit = types[k].size() as u32;
            bindings.push(Binding { address: place.address, bytes: bytes(k), unit });
        }
        bindings.push((&Tensor::new(self.dtype, &[count], output)).into());
        let walk = walk.collapse();
        let params = Params::new().u32(count).u32(run);
        let params = self.constants.iter().fold(params, |params, c| params.f32(*c));
        let class = walk.class();
        let program = Program {
            key: class.key(Key::new("fused_concat").name(&self.text).dtype(self.dtype)),
            shader: &|| shader(&self.expression, self.dtype, &class),
            bindings,
            params: walk.params(params),
            grid: Grid::map(count, self.dtype),
        };
        // The values of all parts are computed for each element.
        let operations = self.expression.operations() as usize;
        device.enqueue_counted(&program, self.dtype.flops(operations * count))
    }
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs =
            (0..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<Tensor>>>()?;
        let part = self.part(&inputs)?;
        let at = part.len() - self.axis;
        let mut dims = part.clone();
        dims[at] *= self.count();
        let output = ctx.output(0, self.dtype, &dims)?;
        let places = inputs.iter().zip(&self.parts).map(|(x, k)| self.place(x, *k, &part));
        let places = places.collect::<Result<Vec<_>>>()?;
        if output.is_empty() {
            return Ok(());
        }
        let counting = self.counting(part.len());
        let run = ctx.device().check_extent(part[counting..].iter().product())? as usize;
        let mut walk = part;
        walk.insert(counting, self.count());
        self.enqueue(ctx.device(), &walk, &places, output.address, run)
    }
}

/// The text: it computes an element of each part and stores one of them.
fn shader(expression: &Expression, dtype: DType, class: &AccessClass) -> Shader {
    let function = expression.wgsl("fused");
    let names = &INPUTS[..expression.inputs().len()];
    let mut shader =
        Shader::new(format!("concat {dtype} {class:?} of {expression}")).u32s(&["count", "run"]);
    for c in 0..expression.constants() {
        shader = shader.param(format!("c{c}"), Field::F32);
    }
    for (name, dtype) in names.iter().zip(expression.inputs()) {
        shader = shader.bind(name, *dtype);
    }
    let loads = names.iter().map(|x| format!("load_{x}(index_{x}(i))"));
    let constants = (0..expression.constants()).map(|c| format!("p.c{c}"));
    let arguments: Vec<String> = loads.chain(constants).collect();
    let count = expression.outputs().len();
    let chosen: String = (1..count)
        .map(|k| format!("    if part == {k}u {{\n        return v.y{k};\n    }}\n"))
        .collect();
    let value = format!(
        "\nfn value(i: u32) -> {} {{\n    let v = fused({});\n    let part = i / p.run % \
         {count}u;\n{chosen}    return v.y0;\n}}\n",
        dtype.value(),
        arguments.join(", ")
    );
    class.declare(shader.bind("y", dtype), names).body(&function.text).body(&value).map("y")
}

/// Sample expressions: rotary embeddings of both kinds, and three parts.
const SAMPLES: &[&str] = &[
    "x: T, T, T, T; c: 0; s0 = Mul<T>(x0, x1); s1 = Mul<T>(x2, x3); s2 = Sub<T>(s0, s1); s3 = \
     Mul<T>(x0, x3); s4 = Mul<T>(x2, x1); s5 = AddV2<T>(s3, s4); return s2, s5",
    "x: T, T; c: 0; s0 = Neg<T>(x0); return s0, x1",
    "x: T; c: 1; s0 = Mul<T>(x0, c0); s1 = Exp<T>(s0); return x0, s0, s1",
];

/// Shader variants of sample expressions.
pub fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for dtype in TYPES {
        for text in SAMPLES {
            let expression: Expression = text.replace("T", dtype.name()).parse().expect("a sample");
            for rank in [2usize, 5] {
                let dims = vec![3; rank];
                let strided = vec![4; rank];
                let walk = (0..expression.inputs().len())
                    .fold(Iteration::over(&dims), |walk, _| walk.operand(&strided, 0));
                out.push(shader(&expression, *dtype, &walk.class()));
            }
        }
    }
    out
}
