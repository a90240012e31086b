//! The tail of a contraction: the nodes that follow it and that one epilogue computes, and their
//! expression.

mod members;
pub(super) mod norm;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Root;
use crate::dtype::DType;
use crate::kernels::bias::ChannelAxis;
use crate::kernels::contract::epilogue::{MAX_CONSTANTS, MAX_EXTRAS};
use crate::kernels::expression::{Call, Value};
use crate::kernels::fused::cost;
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::Draft;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::{Engine, Meaning, Scalar, is_view, number};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, Shape, TensorInfo};
use members::{MAX_USES, followers, reads, row, sides};

/// The nodes that one epilogue computes, and their expression.
pub(super) struct Tail {
    /// The contraction and the nodes of the tail.
    pub nodes: Vec<NodeId>,
    /// The node whose value is used elsewhere.
    pub exit: NodeId,
    /// The node among them that changes the shape.
    pub reshape: Option<NodeId>,
    pub draft: Draft,
    /// The further operands.
    pub extras: Vec<Extra>,
}

/// A further operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extra {
    pub tensor: Output,
    /// The extents with which the contraction reads the tensor, if they are not its own: the
    /// extents before the reshape. One of them may be unknown.
    pub dims: Option<Vec<Option<usize>>>,
}

impl Tail {
    /// The largest tail of `root`.
    pub fn find(graph: &Graph, root: &Root) -> Option<Self> {
        if graph.users(root.id).len() > MAX_USES {
            return None;
        }
        let followers = followers(graph, root);
        (0..followers.len()).rev().find_map(|at| {
            let tail = Self::until(graph, root, &followers[..=at]);
            graph.ask("contraction", [followers[at], root.id], tail)
        })
    }

    /// The tail that ends with the last of some followers.
    fn until(graph: &Graph, root: &Root, followers: &[NodeId]) -> Result<Self, Refusal> {
        let (exit, others) = followers.split_last().ok_or(Refusal::Alone)?;
        if is_view(graph.node(*exit)) {
            return Err(Refusal::OtherShape);
        }
        let mut inside: FxHashSet<NodeId> = FxHashSet::from_iter([*exit]);
        let mut nodes = vec![*exit];
        for id in others.iter().rev() {
            if graph.users(*id).iter().any(|u| inside.contains(u) && reads(graph, *u, *id)) {
                inside.insert(*id);
                nodes.push(*id);
            }
        }
        nodes.reverse();
        let closed = std::iter::once(&root.id).chain(&nodes).all(|id| {
            let used_by = graph.users(*id).iter().filter(|user| reads(graph, **user, *id));
            id == exit || used_by.into_iter().all(|user| inside.contains(user))
        });
        if !closed {
            return Err(Refusal::ReadElsewhere);
        }
        let sides = sides(graph, root, &inside);
        let build = |sides: FxHashSet<NodeId>| {
            let mut members = vec![root.id];
            members.extend(nodes.iter().chain(&sides));
            let builder = Builder::new(graph, root, sides).ok_or(Refusal::Operand)?;
            let tail = builder.build(&nodes)?;
            graph.is_one_node(&members).map(|()| Self { nodes: members, ..tail })
        };
        let alone = || build(FxHashSet::default());
        if sides.is_empty() { alone() } else { build(sides).or_else(|_| alone()) }
    }
}

/// The shortest list of last dimensions of a tensor with the product `channels`.
fn channel_dims(info: &TensorInfo, channels: usize) -> Option<&[Dim]> {
    let shape = info.shape.as_deref()?;
    let mut product = 1usize;
    for at in (0..shape.len()).rev() {
        product = product.checked_mul(shape[at].known()?)?;
        if product >= channels {
            return (product == channels).then(|| &shape[at..]);
        }
    }
    None
}

/// An expression under construction.
pub(super) struct Builder<'g> {
    pub graph: &'g Graph,
    root: &'g Root,
    pub draft: Draft,
    extras: Vec<(Extra, Value)>,
    /// The value of each node of the tail, and whether it comes after the reshape.
    values: FxHashMap<NodeId, (Value, bool)>,
    reshape: Option<NodeId>,
    /// The nodes beside the tail that the epilogue computes.
    sides: FxHashSet<NodeId>,
}

impl<'g> Builder<'g> {
    /// Starts with the contraction's result, or with the result of its epilogue.
    fn new(graph: &'g Graph, root: &'g Root, sides: FxHashSet<NodeId>) -> Option<Self> {
        let node = graph.node(root.id);
        let (mut draft, mut extras) = (Draft::default(), Vec::new());
        let value = if node.attr("expression").is_some() {
            let old = Draft::of(node)?;
            let inputs: Vec<Value> =
                old.expression.inputs().iter().map(|t| draft.input(*t)).collect();
            let whole = node.inputs()[2..].iter().map(|i| Extra { tensor: *i, dims: None });
            extras.extend(whole.zip(inputs.iter().skip(1).copied()));
            *draft.append(&old, &inputs)?.first()?
        } else {
            draft.input(root.dtype)
        };
        let values = FxHashMap::from_iter([(root.id, (value, false))]);
        Some(Self { graph, root, draft, extras, values, reshape: None, sides })
    }

    fn build(mut self, nodes: &[NodeId]) -> Result<Tail, Refusal> {
        for id in nodes {
            let value = self.member(*id)?;
            self.values.insert(*id, value);
            if self.is_full() {
                return Err(Refusal::TooManyTensors);
            }
        }
        let exit = *nodes.last().ok_or(Refusal::Alone)?;
        let (value, behind) = self.values[&exit];
        self.draft.output(value);
        let output = self.draft.expression.output_types()[0];
        if self.is_full() {
            return Err(Refusal::TooManyTensors);
        }
        Refusal::check_size(cost::contraction(cost::expression(&self.draft.expression)))?;
        if !output.is_float() || self.draft.gives_parameters() {
            return Err(Refusal::Type(output));
        }
        Ok(Tail {
            nodes: Vec::new(),
            exit,
            reshape: self.reshape.filter(|_| behind),
            draft: self.draft,
            extras: self.extras.into_iter().map(|(extra, _)| extra).collect(),
        })
    }

    /// Whether the epilogue has more operands or parameters than the kernel.
    fn is_full(&self) -> bool {
        self.extras.len() > MAX_EXTRAS || self.draft.constants.len() > MAX_CONSTANTS
    }

    /// The value of the next node of the tail, and whether it comes after the reshape.
    fn member(&mut self, id: NodeId) -> Result<(Value, bool), Refusal> {
        let inputs = self.graph.node(id).inputs();
        let (_, behind) =
            *inputs.iter().find_map(|i| self.values.get(&i.node)).ok_or(Refusal::Alone)?;
        self.beside(id, behind)?;
        self.node(id)
    }

    /// Adds the nodes beside the tail that `id` reads.
    fn beside(&mut self, id: NodeId, behind: bool) -> Result<(), Refusal> {
        for input in self.graph.node(id).inputs() {
            if self.sides.contains(&input.node) && !self.values.contains_key(&input.node) {
                self.beside(input.node, behind)?;
                let value = self.scalar(input.node, behind)?;
                self.values.insert(input.node, (value, behind));
            }
        }
        Ok(())
    }

    /// The value of an elementwise node that broadcasts, once its inputs in the tail have values.
    fn scalar(&mut self, id: NodeId, behind: bool) -> Result<Value, Refusal> {
        let scalar = row(self.graph, id).ok_or(Refusal::NoFunction)?;
        let mut args = Vec::new();
        for (at, input) in self.graph.node(id).inputs().iter().enumerate() {
            args.push(self.argument(*input, scalar.input_type(at), behind)?);
        }
        self.draft.scalar(&scalar, &args).ok_or(Refusal::Operand)
    }

    /// A value of the tail, or an operand from outside.
    fn argument(&mut self, input: Output, dtype: DType, behind: bool) -> Result<Value, Refusal> {
        let value = match self.values.get(&input.node) {
            Some((value, place)) => (input.port == 0 && *place == behind).then_some(*value),
            None => self.operand(input, dtype, behind),
        };
        value.ok_or(Refusal::Operand)
    }

    /// The value of a node, once its inputs in the tail have values, and whether it comes after the
    /// reshape.
    fn node(&mut self, id: NodeId) -> Result<(Value, bool), Refusal> {
        let node = self.graph.node(id);
        let inner: Vec<(Value, bool)> = node
            .inputs()
            .iter()
            .filter(|i| i.port == 0)
            .filter_map(|i| self.values.get(&i.node))
            .copied()
            .collect();
        let &(first, behind) = inner.first().ok_or(Refusal::Alone)?;
        // Values with different extents cannot be combined.
        if inner.iter().any(|(_, other)| *other != behind) {
            return Err(Refusal::OtherShape);
        }
        let value = match Meaning::of(node) {
            Meaning::View => {
                let is_first = self.reshape.is_none()
                    && inner.len() == 1
                    && self.values.contains_key(&node.inputs()[0].node);
                self.reshape = Some(id);
                let keeps = is_first && self.keeps_channels(id);
                return keeps.then_some((first, true)).ok_or(Refusal::OtherShape);
            }
            Meaning::Scalar(Scalar { call: Call::Cast(from, to), .. }) => {
                let of_int8 = self.root.dtype == DType::I32 && from == DType::I32;
                if let Some(dtype) = [from, to]
                    .into_iter()
                    .find(|t| !(Engine::Epilogue.holds(*t) || of_int8 && *t == from))
                {
                    return Err(Refusal::Type(dtype));
                }
                self.draft.call(Call::Cast(from, to), &[first]).ok_or(Refusal::Operand)?
            }
            Meaning::Bias(sum) => self.bias(node, &sum, first, behind).ok_or(Refusal::Operand)?,
            Meaning::Scalar(sum) if sum.is_sum => self.sum(id, &sum, behind)?,
            Meaning::Scalar(_) => self.scalar(id, behind)?,
            _ if norm::is_inference(node) => {
                let reads = self.values.contains_key(&node.inputs()[0].node);
                let value = reads.then(|| norm::value(self, node, first, behind)).flatten();
                value.ok_or(Refusal::Operand)?
            }
            _ => return Err(Refusal::NoFunction),
        };
        Ok((value, behind))
    }

    /// The sum of the value `first` and a bias.
    fn bias(&mut self, node: &Node, sum: &Scalar, first: Value, behind: bool) -> Option<Value> {
        self.values.get(&node.inputs()[0].node)?;
        self.check_format(node, "NHWC")?;
        let bias = self.channel_vector(node.inputs()[1], behind)?;
        self.draft.scalar(sum, &[first, bias])
    }

    /// A sum of tensors of one shape; TensorFlow makes such sums from additions.
    fn sum(&mut self, id: NodeId, sum: &Scalar, behind: bool) -> Result<Value, Refusal> {
        let dtype = sum.call.output();
        let inputs = self.graph.node(id).inputs();
        if !dtype.is_float() {
            return Err(Refusal::Type(dtype));
        }
        sum.broadcasts(inputs, self.graph)?;
        let mut terms = Vec::new();
        for input in inputs {
            terms.push(self.argument(*input, dtype, behind)?);
            if self.extras.len() > MAX_EXTRAS {
                return Err(Refusal::TooManyTensors);
            }
        }
        self.draft.scalar(sum, &terms).ok_or(Refusal::Operand)
    }

    /// A tensor from outside the tail, as an operand that broadcasts.
    fn operand(&mut self, from: Output, dtype: DType, behind: bool) -> Option<Value> {
        if dtype.is_single()
            && let Some(number) = number(self.graph, from)
            && (number.rank == 0 || number.rank <= self.root.rank && !behind)
        {
            return Some(self.draft.constant(number.value));
        }
        let info = self.graph.info(from);
        let fits = if behind {
            let single_or_vector = self.is_vector(info) && (!self.splits() || info.is_single());
            single_or_vector && info.rank().is_some_and(|r| r <= self.behind_rank().unwrap_or(0))
                || info.rank() == Some(0)
        } else {
            self.may_be_read(info)
        };
        let dims = match fits {
            true => None,
            false if behind => Some(self.before(info)?),
            false => return None,
        };
        Some(self.extra(Extra { tensor: from, dims }, dtype))
    }

    /// The extents before the reshape of a tensor that is read after it: a vector over the channels
    /// that the reshape splits, a column with one element for each row, or a tensor of the whole
    /// shape.
    fn before(&self, info: &TensorInfo) -> Option<Vec<Option<usize>>> {
        if self.is_split(info) {
            return Some(vec![Some(info.len()?)]);
        }
        let is_column = self.takes_columns() && self.is_column(info);
        let whole = self.graph.info(Output { node: self.reshape?, port: 0 });
        if !is_column && !info.same_shape(whole) {
            return None;
        }
        let result = self.graph.info(self.root.output()).shape.as_ref()?;
        let mut dims: Vec<Option<usize>> = result.iter().map(|d| d.known()).collect();
        if is_column {
            *dims.last_mut()? = Some(1);
        }
        let unknown = dims.iter().filter(|d| d.is_none()).count();
        (unknown == 0 || unknown == 1 && !dims.contains(&Some(0))).then_some(dims)
    }

    fn extra(&mut self, extra: Extra, dtype: DType) -> Value {
        if let Some((_, value)) = self.extras.iter().find(|(known, _)| *known == extra) {
            return *value;
        }
        let value = self.draft.input(dtype);
        self.extras.push((extra, value));
        value
    }

    /// A vector that must have one element for each channel, or the op would fail. An operand that
    /// broadcasts would hide that error.
    pub(super) fn channel_vector(&mut self, from: Output, behind: bool) -> Option<Value> {
        let info = self.graph.info(from);
        if self.values.contains_key(&from.node) {
            return None;
        }
        let [extent] = info.shape.as_deref()? else { return None };
        let channels = self.channels();
        let sure =
            extent.known().is_some_and(|n| n != 1) || channels.is_some_and(|c| c.same(*extent));
        if !sure || (behind && (!self.is_vector(info) || self.splits())) {
            return None;
        }
        Some(self.extra(Extra { tensor: from, dims: None }, info.dtype?))
    }

    /// The number of channels, if it is known.
    fn channels(&self) -> Option<Dim> {
        let shape = self.graph.info(self.root.output()).shape.as_ref()?;
        (shape.len() >= 2).then(|| shape[self.root.channels.axis(shape.len())])
    }

    /// Whether the `data_format` of a node of the tail places the channels as the contraction does.
    pub(super) fn check_format(&self, node: &Node, default: &str) -> Option<()> {
        let format = node.attr("data_format").and_then(Attr::string).unwrap_or(default);
        let second = matches!(format, "NCHW" | "NCDHW");
        (second == (self.root.channels == ChannelAxis::Second)).then_some(())
    }

    /// Whether a node of the tail that changes the shape keeps the channels last, or splits them
    /// into several last dimensions.
    fn keeps_channels(&self, id: NodeId) -> bool {
        let before = self.graph.info(self.graph.node(id).inputs()[0]);
        let channels = before.shape.as_ref().and_then(|s| s.last()).and_then(|d| d.known());
        let behind = self.graph.info(Output { node: id, port: 0 });
        self.root.channels == ChannelAxis::Last
            && channels.is_some_and(|n| n > 1 && channel_dims(behind, n).is_some())
    }

    /// The dimensions into which the reshape turns the channels.
    fn split(&self) -> Option<&[Dim]> {
        let reshape = self.reshape?;
        let before = self.graph.info(self.graph.node(reshape).inputs()[0]);
        let channels = before.shape.as_ref()?.last()?.known()?;
        channel_dims(self.graph.info(Output { node: reshape, port: 0 }), channels)
    }

    /// Whether the reshape splits the channels.
    fn splits(&self) -> bool {
        self.split().is_some_and(|dims| dims.len() > 1)
    }

    /// Whether a tensor has one element for each of the channels that the reshape splits, in their
    /// order.
    fn is_split(&self, info: &TensorInfo) -> bool {
        let (Some(dims), Some(shape), Some(rank)) =
            (self.split(), info.shape.as_deref(), self.behind_full_rank())
        else {
            return false;
        };
        let Some(lead) = shape.len().checked_sub(dims.len()) else { return false };
        let (ones, own) = shape.split_at(lead);
        dims.len() > 1
            && shape.len() <= rank
            && own == dims
            && ones.iter().all(|d| *d == Dim::Known(1))
    }

    /// Whether the contraction may read tensors with one element for each of its rows. Other passes
    /// take such tensors if they scale floats.
    fn takes_columns(&self) -> bool {
        self.root.dtype == DType::I32 && self.root.channels == ChannelAxis::Last
    }

    /// Whether a tensor that is read after the reshape has one element for each row of channels.
    fn is_column(&self, info: &TensorInfo) -> bool {
        let whole = self.reshape.map(|node| self.graph.info(Output { node, port: 0 }));
        let (Some(channels), Some(shape), Some(whole)) =
            (self.split(), info.shape.as_deref(), whole.and_then(|info| info.shape.as_deref()))
        else {
            return false;
        };
        let Some(rows) = whole.len().checked_sub(channels.len()) else { return false };
        shape.len() == whole.len()
            && shape[..rows].iter().zip(whole).all(|(a, b)| a.same(*b))
            && shape[rows..].iter().all(|d| *d == Dim::Known(1))
    }

    /// The rank after the reshape.
    fn behind_full_rank(&self) -> Option<usize> {
        self.graph.info(Output { node: self.reshape?, port: 0 }).rank()
    }

    /// The smaller of the ranks before and after the reshape.
    fn behind_rank(&self) -> Option<usize> {
        let reshape = self.reshape?;
        let before = self.graph.info(self.graph.node(reshape).inputs()[0]).rank()?;
        Some(before.min(self.behind_full_rank()?))
    }

    /// Whether a tensor certainly has one element, or one for each channel if the channels are
    /// last.
    fn is_vector(&self, info: &TensorInfo) -> bool {
        let Some((last, lead)) = info.shape.as_deref().and_then(|s| s.split_last()) else {
            return false;
        };
        let channels = self.channels().and_then(Dim::known);
        let one = Dim::Known(1);
        lead.iter().all(|d| *d == one)
            && (*last == one || (last.known().is_some() && last.known() == channels))
    }

    /// Whether the contraction may read a tensor of this shape without a reshape.
    fn may_be_read(&self, info: &TensorInfo) -> bool {
        let second = self.root.channels == ChannelAxis::Second;
        let Some(extra) = &info.shape else { return !second };
        if info.is_single() {
            return extra.len() <= self.root.rank;
        }
        // A vector would be read as one element for each channel.
        if second && extra.len() == 1 {
            return false;
        }
        let Some(result) = &self.graph.info(self.root.output()).shape else { return true };
        let Some(lead) = result.len().checked_sub(extra.len()) else { return false };
        let axis = self.root.channels.axis(result.len());
        let may_be = |a: Dim, b: Dim| a.known().is_none() || b.known().is_none() || a == b;
        let all = |f: &dyn Fn(usize, Dim) -> bool| {
            extra.iter().enumerate().all(|(d, extent)| f(lead + d, *extent))
        };
        let full = |shape: &Shape| shape[..lead].iter().all(|d| may_be(*d, Dim::Known(1)));
        let column = |d: usize| if d == axis { Dim::Known(1) } else { result[d] };
        all(&|d, extent| may_be(extent, if d == axis { result[d] } else { Dim::Known(1) }))
            || (full(result) && all(&|d, extent| may_be(extent, result[d])))
            || (self.takes_columns() && full(result) && all(&|d, e| may_be(e, column(d))))
    }
}
