//! What a node computes. Every pass that fuses nodes asks [`Meaning::of`], so that all of them
//! accept the same functions under the same conditions.
//!
//! [`Meaning`] depends on a node alone: its op, its attributes and the number of its inputs.
//! [`Scalar::broadcasts`] and [`Scalar::suits`] add the rules of shapes and types. Passes add only
//! the rules of their own kernels: the shapes that a kernel can walk, and what the graph around a
//! node allows.

mod fold;
mod product;
mod shapes;

use super::attr::Attr;
use super::graph::{Graph, Node, NodeId, Output};
use super::refusal::Refusal;
use super::variables::ASSIGNS;
use crate::dtype::DType;
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::kernels::reduce::table::{REDUCTIONS, Reduction};
use crate::kernels::scalar as rows;
use crate::kernels::scalar::row::{Row, Shapes};

pub use fold::{Axes, Fold};
pub use product::fused_product;
pub use shapes::{KnownShapes, SameShapes};

/// What a node computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// A scalar function of its inputs' elements.
    Scalar(Scalar),
    /// The sum of its first input and a vector over the channels (`BiasAdd`).
    Bias(Scalar),
    /// A reduction of its first input; [`Fold::of`] knows its axes.
    Fold(&'static Reduction),
    /// Its first input, unchanged.
    Identity,
    /// The elements of its first input in the same order, with other extents.
    View,
    /// Its first input, repeated.
    Repeat,
    /// A constant.
    Constant,
    /// A matrix product or a convolution.
    Product,
    /// An assignment of its second input to a variable.
    Store,
    /// Something that no fused op computes.
    Opaque(Refusal),
}

/// A scalar function that a node computes for each element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalar {
    /// The call.
    pub call: Call,
    /// Whether the node calls it again for each further input (`AddN`).
    pub is_sum: bool,
    /// The value of the function's attribute, if it has one.
    pub attr: Option<f32>,
    /// The number of calls.
    pub calls: u32,
    /// The rule for the shapes of the inputs.
    pub shapes: Shapes,
}

/// The kinds of fused ops that hold scalar functions. They differ in their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Loops over elements: `_WgpuFusedElementwise`, `_WgpuFusedConcat`.
    Loop,
    /// The same for nodes whose int32 values are on the device.
    IndexLoop,
    /// Loops over rows: `_WgpuFusedRowwise`.
    Rows,
    /// Reductions, with the functions before and after them: `_WgpuFusedReduce`.
    Reduce,
    /// The epilogue of a product: `_WgpuFusedMatMul` and others.
    Epilogue,
    /// Updates of variables in place: `_WgpuFusedUpdate`.
    Update,
}

impl Engine {
    /// Whether its expressions have inputs and values of this type. int32 tensors are TensorFlow's
    /// shapes, in host memory.
    pub const fn holds(self, dtype: DType) -> bool {
        dtype.is_float()
            || matches!(dtype, DType::Bool)
            || match self {
                Self::Epilogue => false,
                Self::Reduce | Self::Update => matches!(dtype, DType::I64),
                // int8 is the type to which quantized layers convert their inputs.
                Self::Rows => matches!(dtype, DType::I8 | DType::I64),
                Self::Loop => dtype.is_integer() && !matches!(dtype, DType::I32),
                Self::IndexLoop => dtype.is_integer(),
            }
    }
}

impl Meaning {
    /// What `node` computes.
    pub fn of(node: &Node) -> Self {
        match node.op() {
            "BiasAdd" => sum(node).map_or_else(Self::Opaque, Self::Bias),
            "BiasAddGrad" => Self::Fold(Reduction::of("Sum")),
            "BroadcastTo" | "Tile" => Self::Repeat,
            "Const" => Self::Constant,
            "ExpandDims" | "Reshape" | "Squeeze" => Self::View,
            "Identity" => Self::Identity,
            op if ASSIGNS.contains(&op) => Self::Store,
            op if fused_product(op).is_some() => Self::Product,
            op => match REDUCTIONS.iter().find(|row| row.op == op) {
                Some(reduction) => Self::Fold(reduction),
                None => Scalar::of(node).map_or_else(Self::Opaque, Self::Scalar),
            },
        }
    }

    /// The scalar function, if it is one.
    pub const fn scalar(self) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }
}

/// Whether a node only changes the extents of its first input.
pub fn is_view(node: &Node) -> bool {
    matches!(Meaning::of(node), Meaning::View)
}

/// Whether an op computes each element from the inputs' elements at the same place, whatever its
/// attributes are.
pub fn is_elementwise(op: &str) -> bool {
    matches!(op, "AddN" | "Cast") || rows::find(op).is_some()
}

/// Whether the channels of a node with an attribute `data_format` are certainly last.
pub fn channels_last(node: &Node) -> bool {
    matches!(node.attr("data_format").and_then(Attr::string), None | Some("NHWC" | "NDHWC"))
}

/// The addition of values of the node's type.
fn sum(node: &Node) -> Result<Scalar, Refusal> {
    let dtype = node.dtype("T").ok_or(Refusal::NoType)?;
    let call = Call::row("AddV2", dtype).ok_or(Refusal::NoFunction)?;
    Ok(Scalar { call, is_sum: false, attr: None, calls: 1, shapes: Shapes::Broadcast })
}

impl Scalar {
    /// The scalar function of an elementwise node.
    fn of(node: &Node) -> Result<Self, Refusal> {
        let found = match node.op() {
            "Cast" => {
                if node.attr("Truncate").and_then(Attr::bool) == Some(true) {
                    return Err(Refusal::Truncates);
                }
                let types = node.dtype("SrcT").zip(node.dtype("DstT"));
                let call = types.map(|(from, to)| Call::Cast(from, to)).ok_or(Refusal::NoType)?;
                Self { call, is_sum: false, attr: None, calls: 1, shapes: Shapes::Same }
            }
            "Bitcast" => {
                let types = node.dtype("T").zip(node.dtype("type")).ok_or(Refusal::NoType)?;
                let call = Call::bitcast(types.0, types.1).ok_or(Refusal::NoFunction)?;
                Self { call, is_sum: false, attr: None, calls: 1, shapes: Shapes::Same }
            }
            "AddN" => {
                let calls = node.inputs().len().saturating_sub(1) as u32;
                if calls == 0 {
                    return Err(Refusal::NoFunction);
                }
                Self { calls, is_sum: true, shapes: Shapes::Same, ..sum(node)? }
            }
            op => Self::of_row(node, rows::find(op).ok_or(Refusal::NoFunction)?)?,
        };
        if cost::loops_long(found.call) { Err(Refusal::LongLoops) } else { Ok(found) }
    }

    fn of_row(node: &Node, row: &'static Row) -> Result<Self, Refusal> {
        let dtype = if row.is_typed() { node.dtype("T") } else { Some(DType::Bool) };
        let dtype = dtype.ok_or(Refusal::NoType)?;
        if node.inputs().len() != row.inputs.len() || row.case(dtype).is_none() {
            return Err(Refusal::NoFunction);
        }
        let shapes = match row.shapes {
            // Without the error the result has another shape, unless the inputs certainly agree.
            Shapes::BroadcastOr(_)
                if node.attr("incompatible_shape_error").and_then(Attr::bool) == Some(false) =>
            {
                Shapes::SameOrScalar
            }
            Shapes::BroadcastOr(_) => Shapes::Broadcast,
            rule => rule,
        };
        let value = |name| node.attr(name).and_then(Attr::float).ok_or(Refusal::NoAttribute(name));
        let attr = row.attr.map(value).transpose()?;
        Ok(Self { call: Call::Row(row, dtype), is_sum: false, attr, calls: 1, shapes })
    }

    /// Checks that an engine has all its types.
    ///
    /// # Errors
    /// The type that it lacks.
    pub fn suits(&self, engine: Engine) -> Result<(), Refusal> {
        let mut types = self.call.inputs().into_iter().chain([self.call.output()]);
        types.find(|t| !engine.holds(*t)).map_or(Ok(()), |t| Err(Refusal::Type(t)))
    }

    /// Checks that the rule for the shapes amounts to broadcasting for these inputs.
    ///
    /// # Errors
    /// `ShapesMayDiffer` if it might not.
    pub fn broadcasts(&self, inputs: &[Output], known: &impl KnownShapes) -> Result<(), Refusal> {
        let is_scalar = |o: &Output| known.rank(*o) == Some(0);
        let same = |a: &Output, b: &Output| known.same(*a, *b);
        let fits = match self.shapes {
            Shapes::Broadcast => true,
            Shapes::Same => inputs.windows(2).all(|w| same(&w[0], &w[1])),
            Shapes::Select => {
                same(&inputs[1], &inputs[2])
                    && (is_scalar(&inputs[0]) || same(&inputs[0], &inputs[1]))
            }
            Shapes::Bounds => {
                inputs[1..].iter().all(|bound| is_scalar(bound) || same(bound, &inputs[0]))
            }
            Shapes::SameOrScalar | Shapes::BroadcastOr(_) => {
                let tensors: Vec<&Output> = inputs.iter().filter(|o| !is_scalar(o)).collect();
                tensors.windows(2).all(|w| same(w[0], w[1]))
            }
        };
        if fits { Ok(()) } else { Err(Refusal::ShapesMayDiffer) }
    }

    /// The type of input number `index`.
    pub fn input_type(&self, index: usize) -> DType {
        let types = self.call.inputs();
        types[index.min(types.len() - 1)]
    }

    /// The weight of all its calls ([`cost::weight`]).
    pub fn weight(&self) -> u32 {
        cost::weight(self.call).saturating_mul(self.calls)
    }

    /// The weight of all its calls if they are made again in place of a read ([`cost::again`]).
    pub fn again(&self) -> u32 {
        cost::again(self.call).saturating_mul(self.calls)
    }

    /// Whether it costs next to nothing to call it again for each element of a larger tensor.
    pub fn is_cheap(&self) -> bool {
        cost::is_cheap(self.call)
    }
}

/// The scalar function that a fused op of some kind can compute in place of a node on one of our
/// devices.
///
/// # Errors
/// The reason why it cannot.
pub fn scalar(
    graph: &Graph,
    known: &impl KnownShapes,
    id: NodeId,
    engine: Engine,
) -> Result<Scalar, Refusal> {
    let node = graph.node(id);
    let scalar = match Meaning::of(node) {
        Meaning::Scalar(scalar) => scalar,
        Meaning::Opaque(refusal) => return Err(refusal),
        _ => return Err(Refusal::NoFunction),
    };
    if !node.on_wgpu() {
        return Err(Refusal::OtherDevice);
    }
    scalar.suits(engine)?;
    scalar.broadcasts(node.inputs(), known)?;
    Ok(scalar)
}

/// A constant with a single element that an expression can take as a parameter.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// The element.
    pub value: f32,
    /// The constant's rank.
    pub rank: usize,
}

/// The number that a tensor is, if it is one.
pub fn number(graph: &Graph, tensor: Output) -> Option<Number> {
    let constant = graph.constant(tensor).filter(|c| c.dtype.is_single())?;
    let single = constant.bytes.len() == constant.dtype.size();
    single.then(|| Number { value: constant.to_f64()[0] as f32, rank: constant.dims.len() })
}
