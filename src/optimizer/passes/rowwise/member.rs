//! The nodes that a row program can replace, for given rows.

use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::kernels::fused::rowwise::program::{REDUCED, reduction};
use crate::kernels::reduce::table::Reduction;
use crate::kernels::scalar::row::Shapes;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::scalars::{call_of, is_sum, must_broadcast};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The types of values in a row program. int32 tensors live in host memory. int8 is the type to
/// which quantized layers convert their inputs.
const TYPES: &[DType] = union!(types::FLOATS, &[Bool, I8, I64]);

/// The relation of a tensor's shape to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It has an element for each element of the rows.
    Full,
    /// It has an element for each row, with extents of 1 for the reduced axes.
    Row,
    /// It has an element for each row, without the reduced axes.
    Flat,
}

/// The function of a node in a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// It reduces rows.
    Reduce(&'static Reduction),
    /// It calls a function.
    Call(Call),
    /// It adds all its inputs by this function.
    Fold(Call),
    /// It passes its first input on.
    Copy,
}

/// Rows: a shape, and those of its axes that are reduced.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    device: String,
    /// The shape.
    pub full: TensorInfo,
    /// The reduced axes, counted from the end.
    pub axes: Vec<i64>,
    row: TensorInfo,
    flat: TensorInfo,
}

/// Whether the rows are so few and so long that many workgroups should share each, which a row
/// program does not do.
fn is_too_long(rows: Option<usize>, columns: usize) -> bool {
    columns > 1 << 18 || rows.is_some_and(|rows| rows < 8 && columns > 1 << 13)
}

impl Space {
    /// Whether the node is a reduction on our device that may start a region.
    pub fn may_seed(graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        node.on_wgpu() && reduction(node.op()).is_some() && !graph.is_preserved(id)
    }

    /// The rows that the node `seed` reduces.
    pub fn of(graph: &Graph, seed: NodeId) -> Option<Self> {
        let node = graph.node(seed);
        let full = graph.info(*node.inputs().first()?);
        let shape = full.shape.clone()?;
        let axes = axes(graph, seed, shape.len())?;
        // If the innermost axis is kept, the tensor is reduced across rows, not along them.
        if !axes.contains(&-1) || shape.contains(&Dim::Unknown) {
            return None;
        }
        let is_axis = |d: usize| axes.contains(&(d as i64 - shape.len() as i64));
        let extents =
            |wanted: bool| shape.iter().enumerate().filter(move |(d, _)| is_axis(*d) == wanted);
        let columns: usize =
            extents(true).map(|(_, d)| d.known()).collect::<Option<Vec<_>>>()?.iter().product();
        let rows = extents(false)
            .map(|(_, d)| d.known())
            .collect::<Option<Vec<_>>>()
            .map(|d| d.iter().product());
        if columns < 2 || is_too_long(rows, columns) {
            return None;
        }
        let info = |shape: Shape| TensorInfo { dtype: None, shape: Some(shape) };
        let kept = |(d, extent): (usize, &Dim)| if is_axis(d) { Dim::Known(1) } else { *extent };
        let row = info(shape.iter().enumerate().map(kept).collect());
        let flat = info(extents(false).map(|(_, d)| *d).collect());
        Some(Self { device: node.device().to_owned(), full: info(shape.clone()), row, flat, axes })
    }

    /// The relation of a tensor's shape to the rows; `None` for any other shape.
    pub fn extent(&self, info: &TensorInfo) -> Option<Extent> {
        match () {
            () if info.same_shape(&self.full) => Some(Extent::Full),
            () if info.same_shape(&self.row) => Some(Extent::Row),
            () if info.same_shape(&self.flat) => Some(Extent::Flat),
            () => None,
        }
    }

    /// The role of the node in a program over these rows, if it can be part of one.
    pub fn role(&self, graph: &Graph, id: NodeId) -> Option<(Role, Extent)> {
        let node = graph.node(id);
        if node.device() != self.device || !node.on_wgpu() || graph.is_preserved(id) {
            return None;
        }
        let info = graph.info(Output { node: id, port: 0 });
        let extent = self.extent(info)?;
        if !TYPES.contains(&info.dtype?) {
            return None;
        }
        let given = |k: usize| node.inputs().get(k).and_then(|i| self.extent(graph.info(*i)));
        if let Some(reduction) = reduction(node.op()) {
            let fits = given(0) == Some(Extent::Full)
                && REDUCED.contains(&node.dtype("T")?)
                && axes(graph, id, self.full.rank()?)? == self.axes;
            return (fits && extent != Extent::Full).then_some((Role::Reduce(reduction), extent));
        }
        let role = match node.op() {
            "Tile" => (given(0)? == Extent::Row && extent == Extent::Full).then_some(Role::Copy)?,
            "BroadcastTo" => {
                (given(0)? != Extent::Flat && extent != Extent::Flat).then_some(Role::Copy)?
            }
            "Reshape" | "ExpandDims" | "Squeeze" => {
                (given(0)? != Extent::Full && extent != Extent::Full).then_some(Role::Copy)?
            }
            "Identity" => (given(0)? == extent).then_some(Role::Copy)?,
            _ => elementwise(graph, id)?,
        };
        let to = if extent == Extent::Flat { &self.flat } else { &self.full };
        let fits = |input: &Output| {
            let info = graph.info(*input);
            info.dtype.is_some_and(|t| TYPES.contains(&t))
                && (role == Role::Copy || info.is_single() || info.broadcasts_to(to))
                && (role == Role::Copy
                    || info.is_single()
                    || if extent == Extent::Flat {
                        info.same_shape(&self.flat)
                    } else {
                        !self.is_flat(graph, *input)
                    })
        };
        let inputs = if role == Role::Copy { &node.inputs()[..1] } else { node.inputs() };
        inputs.iter().all(fits).then_some((role, extent))
    }

    /// Whether the tensor may be a row value that lost its reduced axes. If extents happen to
    /// agree, such as a `[4]` from rows of `[4, 4]`, it broadcasts along other axes than those of
    /// its rows.
    fn is_flat(&self, graph: &Graph, tensor: Output) -> bool {
        let op = graph.node(tensor.node).op();
        let is_member = reduction(op).is_some()
            || matches!(op, "ExpandDims" | "Identity" | "Reshape" | "Squeeze")
            || elementwise(graph, tensor.node).is_some();
        is_member && self.extent(graph.info(tensor)) == Some(Extent::Flat)
    }

    /// Whether each stage may compute the node's value anew.
    pub fn is_cheap(graph: &Graph, id: NodeId) -> bool {
        match elementwise(graph, id) {
            Some(Role::Call(call) | Role::Fold(call)) => cost::is_cheap(call),
            _ => matches!(graph.node(id).op(), "BroadcastTo" | "Identity" | "Tile"),
        }
    }
}

/// The function that an elementwise node calls.
fn elementwise(graph: &Graph, id: NodeId) -> Option<Role> {
    let node = graph.node(id);
    let call = call_of(node)?;
    let fits = match call {
        _ if is_sum(node) => return Some(Role::Fold(call)),
        Call::Cast(from, to) => from != to,
        Call::Row(row, _) => match row.shapes {
            Shapes::Broadcast | Shapes::Same => true,
            Shapes::BroadcastOr(_) => must_broadcast(node),
            _ => false,
        },
    };
    fits.then_some(Role::Call(call))
}

/// The axes that a reduction of a tensor of this rank names, sorted and counted from the end.
fn axes(graph: &Graph, id: NodeId, rank: usize) -> Option<Vec<i64>> {
    let given = graph.constant(*graph.node(id).inputs().get(1)?)?.to_i64().ok()?;
    let rank = rank as i64;
    let mut axes: Vec<i64> = given.into_iter().map(|a| if a < 0 { a } else { a - rank }).collect();
    axes.sort_unstable();
    let is_sound =
        axes.iter().all(|a| (-rank..0).contains(a)) && axes.windows(2).all(|w| w[0] < w[1]);
    (is_sound && !axes.is_empty()).then_some(axes)
}

/// The value of an input that has one value everywhere and may be a parameter: a single element, or
/// a tensor of one value if another input has its shape as well.
pub fn parameter(graph: &Graph, reader: NodeId, input: Output) -> Option<f32> {
    let value = graph.constant(input)?;
    if !value.dtype.is_single() {
        return None;
    }
    let shape = graph.info(Output { node: reader, port: 0 });
    let node = graph.node(reader);
    let shown = |other: &Output| {
        graph.node(other.node).op() != "Const" && graph.info(*other).same_shape(shape)
    };
    if value.bytes.len() != value.dtype.size() && !node.inputs().iter().any(shown) {
        return None;
    }
    let values = value.to_f64();
    let first = *values.first()?;
    values.iter().all(|v| v.to_bits() == first.to_bits()).then_some(first as f32)
}
