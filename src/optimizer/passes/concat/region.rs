//! A region: the nodes that one `_WgpuFusedConcat` replaces.

use rustc_hash::FxHashMap;

use super::pieces::{Join, Layout};
use crate::dtype::DType;
use crate::kernels::expression::Value;
use crate::kernels::fused::concat::{MAX_INPUTS, OP, Reading};
use crate::kernels::fused::cost;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::meaning::{Scalar, is_view, number};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::Dim;

/// The largest number of nodes in a region.
const MAX_NODES: usize = 32;

/// The shape of the tensors that a node reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The result's shape: the node computes element by element.
    Whole,
    /// The shape of a part of the result.
    Part,
    /// The shape of a tensor whose parts become parts of the result.
    Source,
}

/// An element of a tensor, for an element of part `of` of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Element {
    of: usize,
    /// The part of the tensor; `None` if the tensor is no larger than a part.
    part: Option<usize>,
}

/// A region while it is built.
struct Region<'g> {
    graph: &'g Graph,
    scalars: &'g FxHashMap<NodeId, Scalar>,
    join: &'g Join,
    /// The node that gives the result.
    root: NodeId,
    /// The nodes of the region, with the shape of the tensors that they read.
    members: FxHashMap<NodeId, Extent>,
    draft: Draft,
    /// The inputs, and how they are read.
    inputs: Vec<(Output, Reading, Value)>,
    /// The constants that became parameters.
    constants: Vec<NodeId>,
    values: FxHashMap<(Output, Element), Value>,
}

/// The replacement of a region.
pub struct Replacement {
    root: NodeId,
    members: Vec<NodeId>,
    new: NewNode,
}

impl Replacement {
    /// Puts it into the graph.
    pub fn replace(self, graph: &mut Graph) {
        let Self { root, members, new } = self;
        graph.replace_region(&members, new, &[(Output { node: root, port: 0 }, 0)]);
    }
}

/// The replacement of the region of a concatenation, if it is worthwhile.
pub fn find(
    graph: &Graph,
    scalars: &FxHashMap<NodeId, Scalar>,
    join: &Join,
) -> Option<Replacement> {
    let mut refusal = None;
    let roots = behind(graph, scalars, join);
    for root in roots.into_iter().rev().chain([join.id]) {
        let mut region = Region {
            graph,
            scalars,
            join,
            root,
            members: FxHashMap::default(),
            draft: Draft::default(),
            inputs: Vec::new(),
            constants: Vec::new(),
            values: FxHashMap::default(),
        };
        match region.build() {
            Ok(replacement) => return Some(replacement),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    let inner = join.parts.iter().filter(|part| scalars.contains_key(&part.node));
    let refusal = refusal.unwrap_or(Refusal::Alone);
    inner.for_each(|part| graph.refuse("concat", [part.node, join.id], refusal));
    None
}

/// The elementwise nodes behind the exchange of two halves that could be the root of its region, in
/// topological order. Each is the only reader of the one before.
fn behind(graph: &Graph, scalars: &FxHashMap<NodeId, Scalar>, join: &Join) -> Vec<NodeId> {
    let mut roots: Vec<NodeId> = Vec::new();
    let mut last = join.id;
    let moves = |id: NodeId| graph.share_device(id, join.id).and_then(|()| graph.may_move(id));
    while join.layout.count == 2 && join.layout.fits() && roots.len() < MAX_NODES {
        let Some((next, others)) = graph.users(last).split_first() else { break };
        let goes_on = others.iter().all(|other| other == next)
            && graph.waiters(last).next().is_none()
            // These are computed for both halves.
            && scalars.get(next).is_some_and(Scalar::is_cheap)
            && graph.ask("concat", [*next, last], moves(*next)).is_some()
            && graph.info(Output { node: *next, port: 0 }).same_shape(&join.layout.whole);
        if !goes_on {
            break;
        }
        roots.push(*next);
        last = *next;
    }
    roots
}

/// Whether the op stores values of this type.
const fn is_stored(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

impl<'g> Region<'g> {
    fn layout(&self) -> &'g Layout {
        &self.join.layout
    }

    /// The type of the result.
    fn dtype(&self) -> Option<DType> {
        match self.scalars.get(&self.root) {
            Some(scalar) => Some(scalar.call.output()),
            None => self.graph.info(self.join.parts[0]).dtype,
        }
        .filter(|dtype| is_stored(*dtype))
    }

    /// # Errors
    /// The reason why no node replaces the region.
    fn build(&mut self) -> Result<Replacement, Refusal> {
        let dtype = self.dtype().ok_or(Refusal::Operand)?;
        self.gather();
        // Too many nodes may lead to the root.
        let mut joins = [Some(self.join.id), self.join.stack].into_iter().flatten();
        if !joins.all(|id| self.members.contains_key(&id)) {
            return Err(Refusal::TooLarge(None));
        }
        for of in 0..self.layout().count {
            let root = Output { node: self.root, port: 0 };
            let value = self.value(root, dtype, Element { of, part: Some(of) })?;
            self.draft.output(value);
        }
        self.replacement(dtype)
    }

    /// Finds the nodes that lead only to the result.
    fn gather(&mut self) {
        let mut open = vec![(self.root, Extent::Whole)];
        while let Some((id, extent)) = open.pop() {
            if self.members.len() >= MAX_NODES || self.members.contains_key(&id) {
                continue;
            }
            let Some(reads) = self.reads(id, extent) else { continue };
            self.members.insert(id, reads);
            for input in self.graph.node(id).inputs() {
                // All readers must agree on the shape.
                let mut given = self.graph.users(input.node).iter().map(|u| self.members.get(u));
                if given.all(|extent| extent == Some(&reads)) {
                    open.push((input.node, reads));
                }
            }
        }
    }

    /// The shape of the tensors that the node reads, if it can be a member that makes tensors of
    /// `extent`.
    fn reads(&self, id: NodeId, extent: Extent) -> Option<Extent> {
        let (graph, layout) = (self.graph, self.layout());
        let node = graph.node(id);
        if id == self.join.id || Some(id) == self.join.stack {
            return Some(Extent::Part);
        }
        let legal = graph.share_device(id, self.join.id).and_then(|()| graph.may_move(id));
        graph.ask("concat", [id, self.join.id], legal)?;
        let info = graph.info(Output { node: id, port: 0 });
        if let Some(scalar) = self.scalars.get(&id) {
            let fits = match extent {
                Extent::Part => info.same_shape(&layout.part),
                // Each element would be computed for more than two parts.
                Extent::Whole | Extent::Source if layout.count != 2 => false,
                Extent::Whole => {
                    info.same_shape(&layout.whole)
                        || scalar.is_cheap() && info.broadcasts_to(&layout.whole)
                }
                Extent::Source => scalar.is_cheap() && info.broadcasts_to(&layout.whole),
            };
            return fits.then_some(extent);
        }
        let divides = match extent {
            Extent::Part => layout.is_piece(graph, id),
            Extent::Source => {
                is_view(node) && graph.users(id).iter().all(|u| graph.node(*u).op() == "Unpack")
            }
            Extent::Whole => false,
        };
        divides.then_some(Extent::Source)
    }

    /// The value of an element, which is of type `dtype`.
    fn value(&mut self, tensor: Output, dtype: DType, element: Element) -> Result<Value, Refusal> {
        if let Some(value) = self.values.get(&(tensor, element)) {
            return Ok(*value);
        }
        let join = self.join;
        let value = if !self.members.contains_key(&tensor.node) {
            self.read(tensor, dtype, element)
        } else if let Some(scalar) = self.scalars.get(&tensor.node).copied() {
            let mut args = Vec::new();
            for (at, input) in self.graph.node(tensor.node).inputs().iter().enumerate() {
                args.push(self.value(*input, scalar.input_type(at), element)?);
            }
            self.draft.scalar(&scalar, &args).ok_or(Refusal::Operand)
        } else if tensor.node == join.id {
            let part = element.part.ok_or(Refusal::Operand)?;
            self.value(join.parts[part], dtype, Element { part: None, ..element })
        } else {
            let piece = self.layout().piece(self.graph, tensor);
            let (source, part) = piece.ok_or(Refusal::Operand)?;
            self.value(source, dtype, Element { part: Some(part), ..element })
        }?;
        self.values.insert((tensor, element), value);
        Ok(value)
    }

    /// The element of a tensor from outside.
    fn read(
        &mut self,
        tensor: Output,
        dtype: DType,
        Element { of, part }: Element,
    ) -> Result<Value, Refusal> {
        let (graph, layout) = (self.graph, self.layout());
        let single = graph.info(tensor).rank() == Some(0);
        if single
            && dtype.is_single()
            && let Some(number) = number(graph, tensor)
        {
            self.constants.push(tensor.node);
            return Ok(self.draft.constant(number.value));
        }
        let (source, part) = match part {
            None => match layout.piece(graph, tensor) {
                Some((source, part)) => (source, Some(part)),
                None => (tensor, None),
            },
            Some(part) => (tensor, Some(part).filter(|_| self.is_divided(tensor))),
        };
        let reading = match part {
            None => Reading::Broadcast,
            Some(part) if layout.count != 2 => Reading::Part(part),
            Some(part) if part == of => Reading::Own,
            Some(_) => Reading::Other,
        };
        let known = self.inputs.iter().find(|(t, r, _)| (*t, *r) == (source, reading));
        if let Some((_, _, value)) = known {
            return Ok(*value);
        }
        let whole = if part.is_some() { &layout.whole } else { &layout.part };
        if !graph.info(source).broadcasts_to(whole) {
            return Err(Refusal::OtherShape);
        }
        if self.inputs.len() == MAX_INPUTS {
            return Err(Refusal::TooManyTensors);
        }
        let value = self.draft.input(dtype);
        self.inputs.push((source, reading, value));
        Ok(value)
    }

    /// Whether a tensor that broadcasts to the whole differs from part to part.
    fn is_divided(&self, tensor: Output) -> bool {
        let layout = self.layout();
        let behind = layout.whole.rank().map_or(0, |rank| rank - layout.axis);
        let shape = self.graph.info(tensor).shape.as_ref();
        let along = shape.and_then(|shape| Some(shape[shape.len().checked_sub(behind)?]));
        along.is_some_and(|extent| extent != Dim::Known(1))
    }

    /// The region's node.
    fn replacement(&self, dtype: DType) -> Result<Replacement, Refusal> {
        let (graph, layout) = (self.graph, self.layout());
        if !self.members.keys().any(|id| self.scalars.contains_key(id)) {
            return Err(Refusal::Alone);
        }
        Refusal::check_size(cost::elementwise(cost::expression(&self.draft.expression)))?;
        // Some input must determine the result's extents, which are the whole's. Nodes behind
        // the concatenation are computed for all parts, which must not be tensors of their own.
        let is_part = |(tensor, reading, _): &(Output, Reading, Value)| {
            *reading == Reading::Broadcast && graph.info(*tensor).same_shape(&layout.part)
        };
        let is_whole = |(tensor, reading, _): &(Output, Reading, Value)| {
            *reading != Reading::Broadcast && graph.info(*tensor).same_shape(&layout.whole)
        };
        let has_part = self.inputs.iter().any(is_part);
        let fits = if self.root == self.join.id {
            has_part || self.inputs.iter().any(is_whole)
        } else {
            !has_part && self.inputs.iter().any(is_whole)
        };
        let mut types = self.draft.expression.each_output_type();
        if !fits || types.any(|t| t != dtype) || self.draft.gives_parameters() {
            return Err(Refusal::Operand);
        }
        let rank = layout.whole.rank().ok_or(Refusal::OtherShape)? as i64;
        let parts: Vec<i64> = self.inputs.iter().map(|(_, reading, _)| (*reading).into()).collect();
        let mut attrs = vec![
            ("T_in", self.draft.expression.inputs().into()),
            ("T", dtype.into()),
            ("parts", parts[..].into()),
            ("axis", (layout.axis as i64 - rank).into()),
            ("interleaved", layout.is_interleaved.into()),
        ];
        attrs.extend(self.draft.attrs());
        let inputs = self.inputs.iter().map(|(tensor, ..)| *tensor).collect();
        let infos = vec![graph.info(Output { node: self.root, port: 0 }).clone()];
        let mut new = fused(graph, self.root, "fused", OP, inputs, attrs, infos);
        new.controls =
            self.constants.iter().flat_map(|id| graph.node(*id).controls().to_vec()).collect();
        let mut members: Vec<NodeId> = self.members.keys().copied().collect();
        members.sort_unstable();
        Ok(Replacement { root: self.root, members, new })
    }
}
