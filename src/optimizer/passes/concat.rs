//! Concatenations of elementwise values, as in rotary embeddings: the halves of a tensor are
//! rotated by sines and cosines and joined again. One node reads the halves in place, and writes
//! the result.
//!
//! A region is a concatenation and the elementwise nodes that lead only to it. Its inputs are parts
//! of a tensor that is split in the same way as the result is joined, and other tensors that
//! broadcast. A `Slice` may be a part too: the gradient of a concatenation has them. Extents of the
//! other axes may be unknown, such as a batch size, if they are certainly equal.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::Value;
use crate::kernels::fused::concat::{MAX_INPUTS, MAX_PARTS, OP};
use crate::kernels::fused::cost::{self, BOUND};
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::meaning::{Engine, SameShapes, Scalar, number, scalar};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::TensorInfo;

/// The largest number of elementwise nodes in a region.
const MAX_NODES: usize = 32;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if graph.has_control_flow() {
        return Ok(());
    }
    let scalars: FxHashMap<NodeId, Scalar> = {
        let shapes = SameShapes::new(graph, &order);
        let of = |id: &NodeId| Some((*id, scalar(graph, &shapes, *id, Engine::Loop).ok()?));
        order.iter().filter_map(of).collect()
    };
    for id in order.iter().copied() {
        if let Some(region) = Region::find(graph, &scalars, id) {
            region.replace(graph, id)?;
        }
    }
    Ok(())
}

/// The axis in a constant operand, for a tensor of this rank.
fn axis(graph: &Graph, operand: Output, rank: usize) -> Option<usize> {
    let values = graph.constant(operand)?.to_i64().ok()?;
    let [axis] = values[..] else { return None };
    usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|a| *a < rank)
}

/// A region while it is built.
struct Region<'g> {
    graph: &'g Graph,
    scalars: &'g FxHashMap<NodeId, Scalar>,
    dtype: DType,
    /// The result's shape, the axis, and the shape of a part.
    whole: TensorInfo,
    axis: usize,
    part: TensorInfo,
    /// Elementwise nodes, in topological order.
    members: Vec<NodeId>,
    draft: Draft,
    /// The inputs, each with the number of its part if it is a part.
    inputs: Vec<(Output, Option<usize>, Value)>,
    values: FxHashMap<Output, Value>,
}

/// The replacement of a region.
struct Replacement {
    members: Vec<NodeId>,
    /// The nodes that split the inputs.
    splits: Vec<NodeId>,
    new: NewNode,
}

impl Replacement {
    fn replace(self, graph: &mut Graph, id: NodeId) -> Result<()> {
        let Self { mut members, splits, new } = self;
        members.push(id);
        graph.replace_region(&members, new, &[(Output { node: id, port: 0 }, 0)]);
        for split in splits {
            let unused = graph.users(split).is_empty() && graph.node(split).controls().is_empty();
            if unused && !graph.is_preserved(split) {
                graph.remove(split);
            }
        }
        Ok(())
    }
}

impl<'g> Region<'g> {
    /// The replacement of the concatenation `id`, if it is worthwhile.
    fn find(
        graph: &'g Graph,
        scalars: &'g FxHashMap<NodeId, Scalar>,
        id: NodeId,
    ) -> Option<Replacement> {
        let node = graph.node(id);
        if node.op() != "ConcatV2" || !node.on_wgpu() || graph.is_preserved(id) {
            return None;
        }
        let dtype =
            node.dtype("T").filter(|t| matches!(t, DType::F32 | DType::F16 | DType::BF16))?;
        let (last, parts) = node.inputs().split_last()?;
        let whole = graph.info(Output { node: id, port: 0 }).clone();
        let axis = axis(graph, *last, whole.rank()?)?;
        let part = graph.info(*parts.first()?).clone();
        let alike = parts.iter().all(|p| graph.info(*p).same_shape(&part));
        let plain = node.controls().is_empty() && alike && !whole.is_empty();
        if !plain || !(2..=MAX_PARTS).contains(&parts.len()) {
            return None;
        }
        let mut region = Self {
            graph,
            scalars,
            dtype,
            whole,
            axis,
            part,
            members: Vec::new(),
            draft: Draft::default(),
            inputs: Vec::new(),
            values: FxHashMap::default(),
        };
        region.members = region.inside(id, parts);
        region.steps()?;
        for part in parts {
            let value = region.value(*part, dtype)?;
            region.draft.output(value);
        }
        region.replacement(id)
    }

    /// The elementwise nodes that lead only to the concatenation `id`, in topological order.
    fn inside(&self, id: NodeId, parts: &[Output]) -> Vec<NodeId> {
        let mut inside: FxHashSet<NodeId> = FxHashSet::default();
        let mut found: Vec<NodeId> = Vec::new();
        let mut open: Vec<NodeId> = parts.iter().map(|p| p.node).collect();
        while let Some(next) = open.pop() {
            let joins = !inside.contains(&next)
                && found.len() < MAX_NODES
                && self.scalars.contains_key(&next)
                && self.graph.node(next).device() == self.graph.node(id).device()
                && self.graph.node(next).controls().is_empty()
                && !self.graph.is_preserved(next)
                && self.graph.info(Output { node: next, port: 0 }).same_shape(&self.part)
                && self.graph.users(next).iter().all(|user| *user == id || inside.contains(user));
            if joins {
                inside.insert(next);
                found.push(next);
                open.extend(self.graph.node(next).inputs().iter().map(|i| i.node));
            }
        }
        // Each node was found after all its readers.
        found.reverse();
        found
    }

    /// The value of an input, or of a member that came before.
    fn value(&mut self, tensor: Output, dtype: DType) -> Option<Value> {
        if let Some(value) = self.values.get(&tensor) {
            return Some(*value);
        }
        if self.members.contains(&tensor.node) {
            return None;
        }
        let value = self.read(tensor, dtype)?;
        self.values.insert(tensor, value);
        Some(value)
    }

    fn read(&mut self, tensor: Output, dtype: DType) -> Option<Value> {
        let single = self.graph.info(tensor).rank() == Some(0);
        if single
            && dtype.is_single()
            && let Some(number) = number(self.graph, tensor)
        {
            return Some(self.draft.constant(number.value));
        }
        let (source, part) = self.source(tensor);
        let known = self.inputs.iter().find(|(t, p, _)| (*t, *p) == (source, part));
        if let Some((_, _, value)) = known {
            return Some(*value);
        }
        if part.is_none() && !self.graph.info(source).broadcasts_to(&self.part) {
            return None;
        }
        let value = self.draft.input(dtype);
        self.inputs.push((source, part, value));
        (self.inputs.len() <= MAX_INPUTS).then_some(value)
    }

    /// The tensor that contains `tensor` as a part, with the number of the part, or `tensor`
    /// itself.
    fn source(&self, tensor: Output) -> (Output, Option<usize>) {
        let node = self.graph.node(tensor.node);
        let of_split = || {
            let &[operand, source] = node.inputs() else { return None };
            let plain = node.op() == "Split" && node.on_wgpu() && node.controls().is_empty();
            let count = node.attr("num_split").and_then(Attr::int)? as usize;
            let along = |info: &TensorInfo| info.shape.as_ref()?.get(self.axis)?.known();
            let fits = plain
                && self.graph.info(source).same_shape(&self.whole)
                && axis(self.graph, operand, self.whole.rank()?) == Some(self.axis)
                && along(&self.whole)? == count * along(&self.part)?;
            fits.then_some((source, Some(tensor.port as usize)))
        };
        of_split().or_else(|| self.slice(tensor)).unwrap_or((tensor, None))
    }

    /// Like [`Self::source`], for a `Slice` as in the gradient of a concatenation.
    fn slice(&self, tensor: Output) -> Option<(Output, Option<usize>)> {
        let node = self.graph.node(tensor.node);
        let &[source, begin, size] = node.inputs() else { return None };
        let plain = node.op() == "Slice" && node.on_wgpu() && node.controls().is_empty();
        if !plain || !self.graph.info(source).same_shape(&self.whole) {
            return None;
        }
        let [begin, size] =
            [begin, size].map(|operand| self.graph.constant(operand).and_then(|t| t.to_i64().ok()));
        let (begin, size) = (begin?, size?);
        let part = self.part.shape.as_ref()?;
        let extent = part.get(self.axis)?.known()? as i64;
        let is_whole = |d: usize| {
            begin[d] == 0 && (size[d] < 0 || part[d].known().is_some_and(|n| n as i64 == size[d]))
        };
        let fits = begin.len() == part.len()
            && size.len() == part.len()
            && (0..part.len()).all(|d| d == self.axis || is_whole(d))
            && size[self.axis] == extent
            && extent > 0
            && begin[self.axis] % extent == 0;
        fits.then_some((source, Some(usize::try_from(begin[self.axis] / extent).ok()?)))
    }

    /// The members' calls.
    fn steps(&mut self) -> Option<()> {
        for id in self.members.clone() {
            let scalar = self.scalars[&id];
            let mut args = Vec::new();
            for (at, input) in self.graph.node(id).inputs().iter().enumerate() {
                args.push(self.value(*input, scalar.input_type(at))?);
            }
            let value = self.draft.scalar(&scalar, &args)?;
            self.values.insert(Output { node: id, port: 0 }, value);
        }
        Some(())
    }

    fn replacement(self, id: NodeId) -> Option<Replacement> {
        let node = self.graph.node(id);
        let types = self.draft.expression.output_types();
        let cheap = cost::elementwise(cost::expression(&self.draft.expression)) <= BOUND;
        if !cheap {
            let members = self.members.iter();
            members.for_each(|m| self.graph.refuse("concat", *m, id, Refusal::TooLarge));
        }
        // The result's extents are those of the whole: some input must determine them.
        let has_part = self.inputs.iter().any(|(tensor, part, _)| {
            part.is_some() || self.graph.info(*tensor).same_shape(&self.part)
        });
        let worth = !self.members.is_empty() && has_part && cheap && !self.draft.gives_parameters();
        if !worth || types.iter().any(|t| *t != self.dtype) {
            return None;
        }
        let splits = self.members.iter().flat_map(|m| self.graph.node(*m).inputs());
        let mut splits: Vec<NodeId> =
            splits.chain(node.inputs()).map(|i| i.node).filter(|n| self.splits(*n)).collect();
        splits.sort_unstable();
        splits.dedup();
        let parts: Vec<i64> =
            self.inputs.iter().map(|(_, part, _)| part.map_or(-1, |p| p as i64)).collect();
        let mut attrs = vec![
            ("T_in", self.draft.expression.inputs().into()),
            ("T", self.dtype.into()),
            ("parts", parts[..].into()),
            ("axis", (self.axis as i64 - self.whole.rank()? as i64).into()),
        ];
        attrs.extend(self.draft.attrs());
        let inputs = self.inputs.iter().map(|(tensor, ..)| *tensor).collect();
        let infos = vec![self.graph.info(Output { node: id, port: 0 }).clone()];
        let new = fused(self.graph, id, "fused", OP, inputs, attrs, infos);
        Some(Replacement { members: self.members, splits, new })
    }

    fn splits(&self, id: NodeId) -> bool {
        matches!(self.graph.node(id).op(), "Slice" | "Split")
    }
}
