//! Tensors that are joined from parts of one shape along an axis, and the nodes that take
//! the parts out of a tensor.

use crate::kernels::fused::concat::MAX_PARTS;
use crate::kernels::movement::slice::StridedSpec;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::is_view;
use crate::optimizer::shape::{Dim, TensorInfo};

/// In place of an extent that is unknown: no bound of a slice reaches it.
const UNKNOWN: usize = 1 << 40;

/// The ops that join parts: a concatenation, and a change of shape of a `Pack`.
pub const JOINS: &[&str] = &["ConcatV2", "Reshape"];

/// The ops that take parts of a tensor.
const PIECES: &[&str] = &["Slice", "Split", "SplitV", "StridedSlice", "Unpack"];

/// How a tensor consists of parts.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The tensor's shape.
    pub whole: TensorInfo,
    /// The shape of a part.
    pub part: TensorInfo,
    /// The axis along which the parts lie.
    pub axis: usize,
    /// The number of parts.
    pub count: usize,
    /// Whether the parts take turns along the axis, element by element, as `x[..., ::2]` and
    /// `x[..., 1::2]` do. Otherwise each part is a block.
    pub is_interleaved: bool,
}

/// A tensor that is joined from parts.
#[derive(Debug, Clone)]
pub struct Join {
    /// The node that makes it.
    pub id: NodeId,
    /// Its layout.
    pub layout: Layout,
    /// The parts.
    pub parts: Vec<Output>,
    /// The `Pack` that stacks the parts, if the tensor is a reshape of it.
    pub stack: Option<NodeId>,
}

impl Join {
    /// The tensor that `id` makes, if it joins parts: a `ConcatV2`, or a `Reshape` of a `Pack`.
    pub fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let first = node.inputs().first()?.node;
        let stack = match (node.op(), graph.node(first).op()) {
            ("ConcatV2", _) => None,
            ("Reshape", "Pack") => Some(first),
            _ => return None,
        };
        graph.ask("concat", [id, first], graph.may_move(id))?;
        let whole = graph.info(Output { node: id, port: 0 });
        let parts = match stack {
            None => node.inputs().split_last()?.1,
            Some(stack) => {
                let legal = graph.share_device(stack, id).and_then(|()| graph.may_move(stack));
                graph.ask("concat", [stack, id], legal)?;
                (graph.users(stack) == [id]).then(|| graph.node(stack).inputs())?
            }
        };
        let part = graph.info(*parts.first()?);
        let alike = parts.iter().all(|p| graph.info(*p).same_shape(part));
        if !alike || whole.is_empty() || !(2..=MAX_PARTS).contains(&parts.len()) {
            return None;
        }
        let layout = match stack {
            None => {
                let axis = axis(graph, *node.inputs().last()?, whole.rank()?)?;
                let (whole, part) = (whole.clone(), part.clone());
                Layout { whole, part, axis, count: parts.len(), is_interleaved: false }
            }
            Some(stack) => Layout::stacked(whole, part, parts.len(), graph.node(stack))?,
        };
        Some(Self { id, layout, parts: parts.to_vec(), stack })
    }
}

impl Layout {
    /// The layout of a tensor of the shape `whole` that has the elements of `count` parts stacked
    /// along the attribute `axis` of `node`.
    fn stacked(whole: &TensorInfo, part: &TensorInfo, count: usize, node: &Node) -> Option<Self> {
        let axis = node.attr("axis").and_then(Attr::int).unwrap_or(0);
        let stacked = resolve(axis, part.rank()? + 1)?;
        let layout = |axis: usize, is_interleaved| {
            let (whole, part) = (whole.clone(), part.clone());
            Self { whole, part, axis, count, is_interleaved }
        };
        // The stack's axis is merged with the one behind it, or with the one in front of it.
        let merged =
            [Some(layout(stacked, false)), stacked.checked_sub(1).map(|d| layout(d, true))];
        merged.into_iter().flatten().find(Self::fits)
    }

    /// Whether the whole certainly has the extents of its parts.
    pub fn fits(&self) -> bool {
        let (Some(whole), Some(part)) = (&self.whole.shape, &self.part.shape) else { return false };
        let of = |d: usize| {
            let joined = part[d].known().and_then(|n| n.checked_mul(self.count)).map(Dim::Known);
            if d == self.axis { joined == Some(whole[d]) } else { whole[d].same(part[d]) }
        };
        whole.len() == part.len() && self.axis < whole.len() && (0..whole.len()).all(of)
    }

    /// Whether a node takes parts of other tensors.
    pub fn is_piece(&self, graph: &Graph, id: NodeId) -> bool {
        self.piece(graph, Output { node: id, port: 0 }).is_some()
    }

    /// The tensor of this layout of which `tensor` is a part, and the part's number.
    pub fn piece(&self, graph: &Graph, tensor: Output) -> Option<(Output, usize)> {
        let node = graph.node(tensor.node);
        if !PIECES.contains(&node.op()) || !is_plain(node) || !self.fits() {
            return None;
        }
        let (source, number) = match (node.op(), node.inputs()) {
            ("Split", &[operand, source]) => {
                let count = node.attr("num_split").and_then(Attr::int)?;
                let fits = self.is_split(graph, operand) && count == self.count as i64;
                (source, fits.then_some(tensor.port as usize)?)
            }
            ("SplitV", &[source, sizes, operand]) => {
                let sizes = numbers(graph, sizes)?;
                let extent = self.extent(&self.part)? as i64;
                let fits = sizes.len() == self.count && sizes.iter().all(|size| *size == extent);
                let fits = fits && self.is_split(graph, operand);
                (source, fits.then_some(tensor.port as usize)?)
            }
            ("Slice", &[source, begin, size]) => {
                (source, self.slice(&numbers(graph, begin)?, &numbers(graph, size)?)?)
            }
            ("StridedSlice", &[source, begin, end, strides]) => {
                let [begin, end, strides] = [begin, end, strides].map(|o| numbers(graph, o));
                let (begin, end, strides) = (begin?, end?, strides?);
                if begin.len() != strides.len() || end.len() != strides.len() {
                    return None;
                }
                let whole = self.whole.shape.as_ref()?.iter();
                let dims: Vec<usize> = whole.map(|d| d.known().unwrap_or(UNKNOWN)).collect();
                let masks = node.slice_masks();
                let spec = StridedSpec::resolve(&begin, &end, &strides, &masks, &dims).ok()?;
                (source, self.strided(&spec, &dims)?)
            }
            ("Unpack", &[stack]) => {
                let view = graph.node(stack.node);
                let source = *view.inputs().first().filter(|_| is_view(view) && is_plain(view))?;
                let count = node.attr("num").and_then(Attr::int)? as usize;
                let other = Self::stacked(graph.info(source), graph.info(tensor), count, node)?;
                let alike = (other.axis, other.count, other.is_interleaved)
                    == (self.axis, self.count, self.is_interleaved);
                (source, alike.then_some(tensor.port as usize)?)
            }
            _ => return None,
        };
        let is_part = graph.info(source).same_shape(&self.whole) && number < self.count;
        is_part.then_some((source, number))
    }

    /// Whether a split along the axis in `operand` divides into blocks.
    fn is_split(&self, graph: &Graph, operand: Output) -> bool {
        let along = self.whole.rank().and_then(|rank| axis(graph, operand, rank));
        !self.is_interleaved && along == Some(self.axis)
    }

    fn extent(&self, info: &TensorInfo) -> Option<usize> {
        info.shape.as_ref()?.get(self.axis)?.known()
    }

    /// The number of the part that a `Slice` takes.
    fn slice(&self, begin: &[i64], size: &[i64]) -> Option<usize> {
        let part = self.part.shape.as_ref()?;
        let extent = self.extent(&self.part)? as i64;
        let is_whole = |d: usize| {
            begin[d] == 0 && (size[d] < 0 || part[d].known().is_some_and(|n| n as i64 == size[d]))
        };
        let fits = !self.is_interleaved
            && begin.len() == part.len()
            && size.len() == part.len()
            && (0..part.len()).all(|d| d == self.axis || is_whole(d))
            && size[self.axis] == extent
            && extent > 0
            && begin[self.axis] % extent == 0;
        if fits { usize::try_from(begin[self.axis] / extent).ok() } else { None }
    }

    /// The number of the part that a `StridedSlice` takes of a tensor of `dims`.
    fn strided(&self, spec: &StridedSpec, dims: &[usize]) -> Option<usize> {
        let is_whole = |d: usize| (spec.begin[d], spec.stride[d], spec.count[d]) == (0, 1, dims[d]);
        let extent = self.extent(&self.part)?;
        let (step, stride) = if self.is_interleaved { (1, self.count) } else { (extent, 1) };
        let begin = usize::try_from(spec.begin[self.axis]).ok()?;
        let fits = spec.shape == spec.count
            && (0..dims.len()).all(|d| d == self.axis || is_whole(d))
            && spec.count[self.axis] == extent
            // The stride of a single element does not matter.
            && (extent == 1 || spec.stride[self.axis] == stride as i64)
            && begin.is_multiple_of(step);
        fits.then(|| begin / step)
    }
}

/// Whether a node is on one of our devices and waits only for its data.
fn is_plain(node: &Node) -> bool {
    node.on_wgpu() && node.controls().is_empty()
}

fn numbers(graph: &Graph, operand: Output) -> Option<Vec<i64>> {
    graph.constant(operand)?.to_i64().ok()
}

/// The axis in a constant operand, for a tensor of this rank.
fn axis(graph: &Graph, operand: Output, rank: usize) -> Option<usize> {
    let [axis] = numbers(graph, operand)?[..] else { return None };
    resolve(axis, rank)
}

fn resolve(axis: i64, rank: usize) -> Option<usize> {
    usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|a| *a < rank)
}
