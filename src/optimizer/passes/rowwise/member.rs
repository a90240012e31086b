//! The nodes that a row program can replace, for given rows.

use crate::kernels::fused::rowwise::program::{REDUCED, reduction};
use crate::kernels::reduce::table::Reduction;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Axes, Engine, Fold, Meaning, Scalar, scalar};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The relation of a tensor's shape to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It has an element for each element of the rows.
    Full,
    /// It has an element for each row, with extents of 1 for the reduced axes.
    Row,
    /// It has an element for each row, without the reduced axes.
    Flat,
    /// It has an element for each column, which all rows share, like a scale of Keras.
    Column,
}

impl Extent {
    /// Whether a program computes the value for each element of the rows, not once for each row.
    pub const fn is_per_element(self) -> bool {
        matches!(self, Self::Full | Self::Column)
    }
}

/// The part of a node in a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// It reduces rows.
    Reduce(&'static Reduction),
    /// It calls a scalar function.
    Call(Scalar),
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
        reduction(graph.node(id).op()).is_some() && graph.may_go(id).is_ok()
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
            () if self.is_column(info) => Some(Extent::Column),
            () => None,
        }
    }

    /// Whether a tensor has the extents of the reduced axes, and none but ones before them.
    fn is_column(&self, info: &TensorInfo) -> bool {
        let (Some(full), Some(own)) = (self.full.shape.as_deref(), info.shape.as_deref()) else {
            return false;
        };
        let Some(lead) = full.len().checked_sub(own.len()) else { return false };
        let is_reduced = |d: usize| self.axes.contains(&(d as i64 - full.len() as i64));
        let kept = |d: usize| if is_reduced(d) { full[d] } else { Dim::Known(1) };
        (0..lead).all(|d| !is_reduced(d)) && (lead..full.len()).all(|d| own[d - lead] == kept(d))
    }

    /// The role of the node in a program over these rows.
    ///
    /// # Errors
    /// The reason why it cannot be part of one.
    pub fn role(&self, graph: &Graph, id: NodeId) -> Result<(Role, Extent), Refusal> {
        let node = graph.node(id);
        check(node.device() == self.device, Refusal::OtherDevice)?;
        graph.may_go(id)?;
        let info = graph.info(Output { node: id, port: 0 });
        let extent = self.extent(info).ok_or(Refusal::OtherShape)?;
        let dtype = info.dtype.ok_or(Refusal::NoType)?;
        check(Engine::Rows.holds(dtype), Refusal::Type(dtype))?;
        let first = node.inputs().first().and_then(|i| self.extent(graph.info(*i)));
        if let Some(reduction) = reduction(node.op()) {
            let of = node.dtype("T").ok_or(Refusal::NoType)?;
            check(REDUCED.contains(&of), Refusal::Type(of))?;
            let axes = self.full.rank().and_then(|rank| axes(graph, id, rank));
            let fits = first == Some(Extent::Full)
                && axes.ok_or(Refusal::UnknownAxes)? == self.axes
                && !extent.is_per_element();
            return check(fits, Refusal::OtherShape).map(|()| (Role::Reduce(reduction), extent));
        }
        let first = || first.ok_or(Refusal::OtherShape);
        let copies = match Meaning::of(node) {
            Meaning::Repeat if node.op() == "Tile" => {
                first()? == Extent::Row && extent == Extent::Full
            }
            Meaning::Repeat => first()? != Extent::Flat && extent != Extent::Flat,
            Meaning::View => !first()?.is_per_element() && !extent.is_per_element(),
            Meaning::Identity => first()? == extent,
            _ => false,
        };
        let role = match copies {
            true => Role::Copy,
            false => Role::Call(scalar(graph, graph, id, Engine::Rows)?),
        };
        let to = if extent == Extent::Flat { &self.flat } else { &self.full };
        let fits = |input: &Output| {
            let info = graph.info(*input);
            info.dtype.is_some_and(|t| Engine::Rows.holds(t))
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
        check(inputs.iter().all(fits), Refusal::Operand).map(|()| (role, extent))
    }

    /// Whether the tensor may be a row value that lost its reduced axes. If extents happen to
    /// agree, such as a `[4]` from rows of `[4, 4]`, it broadcasts along other axes than those of
    /// its rows.
    fn is_flat(&self, graph: &Graph, tensor: Output) -> bool {
        let may_be_member = match Meaning::of(graph.node(tensor.node)) {
            Meaning::Fold(row) => reduction(row.op).is_some(),
            Meaning::Identity | Meaning::Scalar(_) | Meaning::View => true,
            _ => false,
        };
        may_be_member && self.extent(graph.info(tensor)) == Some(Extent::Flat)
    }

    /// Whether each stage may compute the node's value anew.
    pub fn is_cheap(graph: &Graph, id: NodeId) -> bool {
        match Meaning::of(graph.node(id)) {
            Meaning::Scalar(scalar) => scalar.is_cheap(),
            Meaning::Identity | Meaning::Repeat => true,
            _ => false,
        }
    }
}

/// The axes that a reduction of a tensor of this rank names, counted from the end.
fn axes(graph: &Graph, id: NodeId, rank: usize) -> Option<Vec<i64>> {
    match Fold::of(graph, id).ok()?.axes {
        Axes::Given(axes) => Some(axes.into_iter().map(|a| a - rank as i64).collect()),
        Axes::All | Axes::AllButChannels(_) => None,
    }
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
