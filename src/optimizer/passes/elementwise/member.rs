//! The roles of a node in a group: a call, a repetition, a constant, a value that every reader
//! computes again, or another view of its input.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{
    Engine, KnownShapes, Meaning, SameShapes, Scalar, channels_last, scalar,
};
use crate::optimizer::refusal::Refusal;

/// The largest number of readers that compute a value again.
const MAX_READERS: usize = 4;

/// The element that a node of a group computes.
#[derive(Debug, Clone, Copy)]
pub enum Member {
    /// A scalar function of its inputs' elements.
    Call(Scalar),
    /// The element of its first input, of this type. The node repeats it along axes of extent 1.
    Repeat(DType),
    /// The element of its first input, of this type. The node adds outer extents of 1 to the
    /// input's shape. A view is not a member by itself.
    View(DType),
}

impl Member {
    /// The role of `id` in a group. `integers` compute with int32 values of the device.
    ///
    /// # Errors
    /// The reason why it cannot be in one.
    pub fn of(
        graph: &Graph,
        shapes: &SameShapes<'_>,
        uniforms: &Uniforms,
        integers: &FxHashSet<NodeId>,
        id: NodeId,
    ) -> Result<Self, Refusal> {
        let node = graph.node(id);
        let is_view = match Meaning::of(node) {
            Meaning::Repeat => false,
            Meaning::View => true,
            Meaning::Bias(sum) => return bias(graph, id, sum).map(Self::Call),
            _ => {
                let engine = if integers.contains(&id) { Engine::IndexLoop } else { Engine::Loop };
                return scalar(graph, shapes, id, engine).map(Self::Call);
            }
        };
        let output = Output { node: id, port: 0 };
        if !node.on_wgpu() {
            return Err(Refusal::OtherDevice);
        }
        let dtype = node.dtype("T").ok_or(Refusal::NoType)?;
        if !Engine::Loop.holds(dtype) {
            return Err(Refusal::Type(dtype));
        }
        let source = *node.inputs().first().ok_or(Refusal::NoFunction)?;
        let repeats = graph.info(source).broadcasts_to(graph.info(output));
        if !repeats || uniforms.value(output).is_some() {
            return Err(Refusal::OtherShape);
        }
        match is_view {
            true if !graph.is_alone(id) => Err(Refusal::OtherConditions),
            true => Ok(Self::View(dtype)),
            false => Ok(Self::Repeat(dtype)),
        }
    }

    /// Whether it is a `Bitcast`, which costs nothing as a node of its own.
    pub const fn is_bitcast(self) -> bool {
        matches!(self, Self::Call(Scalar { call: Call::Bitcast(..), .. }))
    }

    /// The inputs that the node computes with.
    pub fn arguments(self, inputs: &[Output]) -> &[Output] {
        match self {
            Self::Call(_) => inputs,
            Self::Repeat(_) | Self::View(_) => &inputs[..1],
        }
    }

    /// Whether it costs next to nothing to compute the node again for each element of a larger
    /// tensor.
    pub fn is_cheap(self) -> bool {
        match self {
            Self::Call(scalar) => scalar.is_cheap(),
            Self::Repeat(_) | Self::View(_) => true,
        }
    }

    /// The node's weight.
    pub fn weight(self) -> u32 {
        match self {
            Self::Call(scalar) => scalar.weight(),
            Self::Repeat(_) | Self::View(_) => 0,
        }
    }

    /// The weight of the node if it is computed again instead of read.
    fn again(self) -> u32 {
        match self {
            Self::Call(scalar) => scalar.again(),
            Self::Repeat(_) | Self::View(_) => 0,
        }
    }

    /// The type of input number `index`.
    pub fn input_type(self, index: usize) -> DType {
        match self {
            Self::Call(scalar) => scalar.input_type(index),
            Self::Repeat(dtype) | Self::View(dtype) => dtype,
        }
    }
}

/// The addition of a bias, if the channels are certainly last and equal in number to its elements.
fn bias(graph: &Graph, id: NodeId, sum: Scalar) -> Result<Scalar, Refusal> {
    let node = graph.node(id);
    if !node.on_wgpu() {
        return Err(Refusal::OtherDevice);
    }
    sum.suits(Engine::Loop)?;
    let last = |tensor: &Output| graph.info(*tensor).shape.as_ref()?.last().copied();
    let &[value, bias] = node.inputs() else { return Err(Refusal::NoFunction) };
    let fits = channels_last(node)
        && graph.info(bias).rank() == Some(1)
        && last(&value).zip(last(&bias)).is_some_and(|(a, b)| a.same(b));
    if fits { Ok(sum) } else { Err(Refusal::ShapesMayDiffer) }
}

/// The nodes that cost no more to compute than to read, and that several groups may need: each
/// group computes them again, and they are not stored. In a chain of such nodes, the costs of all
/// nodes that lead to one of them count.
pub fn recomputed(
    graph: &Graph,
    order: &[NodeId],
    uniforms: &Uniforms,
    members: &FxHashMap<NodeId, Member>,
) -> FxHashSet<NodeId> {
    let is_recomputed = |id: NodeId, member: Member| -> Option<bool> {
        let Member::Call(scalar) = member else { return None };
        let node = graph.node(id);
        let [input] = *node.inputs() else { return None };
        let mut users: Vec<NodeId> = Vec::new();
        for user in graph.users(id) {
            if !users.contains(user) {
                users.push(*user);
            }
            if users.len() > MAX_READERS {
                return None;
            }
        }
        let fits = |user: &NodeId| {
            matches!(members.get(user), Some(Member::Call(_)))
                && graph.node(*user).device() == node.device()
                && !graph.node(*user).controls().contains(&id)
        };
        let narrow = scalar.call.inputs()[0].size() <= scalar.call.output().size();
        let shared = (2..=MAX_READERS).contains(&users.len());
        let alone = node.controls().is_empty() && uniforms.value(input).is_none();
        Some(scalar.is_cheap() && narrow && shared && alone && users.iter().all(fits))
    };
    let mut weights: FxHashMap<NodeId, u32> = FxHashMap::default();
    for id in order {
        let Some(member) = members.get(id) else { continue };
        let inputs = graph.node(*id).inputs();
        let above = inputs.first().and_then(|input| weights.get(&input.node)).copied().unwrap_or(0);
        let weight = member.again().saturating_add(above);
        let is_view = matches!(member, Member::View(_)) && above > 0;
        if is_view || (weight <= cost::READ && is_recomputed(*id, *member) == Some(true)) {
            weights.insert(*id, weight);
        }
    }
    weights.into_keys().filter(|id| !matches!(members[id], Member::View(_))).collect()
}

/// The nodes that may read the input of a [`Member::View`] instead of the view, because another
/// input gives their value its shape. A recomputed node may do so if all nodes that compute it
/// again may.
pub fn looking_through(
    graph: &Graph,
    shapes: &SameShapes<'_>,
    uniforms: &Uniforms,
    members: &FxHashMap<NodeId, Member>,
    order: &[NodeId],
    recomputed: &FxHashSet<NodeId>,
) -> FxHashSet<NodeId> {
    let is_view = |id: NodeId| matches!(members.get(&id), Some(Member::View(_)));
    let looks = |id: NodeId, member: Member| {
        let value = Output { node: id, port: 0 };
        let gives = |input: &Output| {
            let stored = !is_view(input.node) && !recomputed.contains(&input.node);
            stored && shapes.same(*input, value) && uniforms.value(*input).is_none()
        };
        match member {
            Member::Call(_) => graph.node(id).inputs().iter().any(gives),
            // A later test makes sure that other inputs give the region its shape.
            Member::Repeat(_) => true,
            Member::View(_) => false,
        }
    };
    let computed = members.iter().filter(|(id, _)| !recomputed.contains(id));
    let mut through: FxHashSet<NodeId> =
        computed.filter(|(id, member)| looks(**id, **member)).map(|(id, _)| *id).collect();
    for id in order.iter().rev().filter(|id| recomputed.contains(id)) {
        if graph.users(*id).iter().all(|user| through.contains(user)) {
            through.insert(*id);
        }
    }
    through
}

/// The tensors with one value for all elements that a parameter can have. Their shape need not be
/// constant.
pub struct Uniforms(Vec<Option<f32>>);

impl Uniforms {
    /// Finds them in a graph's nodes, given in topological order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut uniforms = Self(vec![None; graph.capacity()]);
        for id in order {
            uniforms.0[id.index()] = uniforms.find(graph, *id);
        }
        uniforms
    }

    /// The value of all elements of a tensor, if it is known.
    pub fn value(&self, tensor: Output) -> Option<f32> {
        self.0[tensor.node.index()]
    }

    /// The value of all elements of a node's output, if it follows from the node's inputs.
    fn find(&self, graph: &Graph, id: NodeId) -> Option<f32> {
        let is_float = DType::is_single;
        let node = graph.node(id);
        let value = match node.op() {
            "ZerosLike" => 0.0,
            "OnesLike" => 1.0,
            "Fill" => self.value(*node.inputs().get(1)?)?,
            "BroadcastTo" => self.value(*node.inputs().first()?)?,
            "Const" => {
                let value = graph
                    .constant(Output { node: id, port: 0 })
                    .filter(|v| is_float(v.dtype) || v.dtype == DType::I32)?;
                let first = value.bytes.get(..value.dtype.size())?;
                let same =
                    value.bytes.chunks_exact(value.dtype.size()).all(|element| element == first);
                let number = same.then(|| value.to_f64()[0])?;
                let fits = is_float(value.dtype) || f64::from(number as f32) == number;
                return fits.then_some(number as f32);
            }
            _ => return None,
        };
        node.dtype("T").filter(|t| is_float(*t)).map(|_| value)
    }
}
