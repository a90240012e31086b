//! Reductions with their axes.

use super::Meaning;
use crate::dtype::DType;
use crate::kernels::reduce::table::Reduction;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId};
use crate::optimizer::refusal::Refusal;

/// The axes of a reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axes {
    /// All axes, whatever the rank (`L2Loss`).
    All,
    /// All axes but the channels' (`BiasAddGrad`).
    AllButChannels(Vec<i64>),
    /// The axes that a constant names, sorted; counted from the front where the rank is known.
    Given(Vec<i64>),
}

/// A reduction of a node's first input.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The reduction.
    pub reduction: &'static Reduction,
    /// The type of the reduced tensor.
    pub dtype: DType,
    /// The axes.
    pub axes: Axes,
    /// Whether reduced axes stay, with extent 1.
    pub keep_dims: bool,
}

impl Fold {
    /// The reduction of a node on one of our devices.
    ///
    /// # Errors
    /// The reason why a node is none, or none whose axes are known.
    pub fn of(graph: &Graph, id: NodeId) -> Result<Self, Refusal> {
        let node = graph.node(id);
        let reduction = match Meaning::of(node) {
            Meaning::Fold(reduction) => reduction,
            Meaning::Opaque(refusal) => return Err(refusal),
            _ => return Err(Refusal::NoFunction),
        };
        if !node.on_wgpu() {
            return Err(Refusal::OtherDevice);
        }
        let of_bool = reduction.types == [DType::Bool];
        let dtype = if of_bool { Some(DType::Bool) } else { node.dtype("T") };
        let dtype = dtype.ok_or(Refusal::NoType)?;
        if dtype == DType::I32 || !reduction.types.contains(&dtype) {
            return Err(Refusal::Type(dtype));
        }
        let axes = match node.op() {
            "L2Loss" => Axes::All,
            "BiasAddGrad" => {
                Axes::AllButChannels(all_but_channels(graph, id).ok_or(Refusal::UnknownAxes)?)
            }
            _ => Axes::Given(given(graph, id).ok_or(Refusal::UnknownAxes)?),
        };
        let flag = || node.attr("keep_dims").and_then(Attr::bool).unwrap_or(false);
        let keep_dims = matches!(axes, Axes::Given(_)) && flag();
        Ok(Self { reduction, dtype, axes, keep_dims })
    }
}

/// The axes that the second input names, each once.
fn given(graph: &Graph, id: NodeId) -> Option<Vec<i64>> {
    let node = graph.node(id);
    let mut axes = graph.constant(*node.inputs().get(1)?)?.to_i64().ok()?;
    if let Some(rank) = graph.info(node.inputs()[0]).rank() {
        let rank = rank as i64;
        axes.iter_mut().filter(|a| **a < 0).for_each(|a| *a += rank);
        if axes.iter().any(|a| !(0..rank).contains(a)) {
            return None;
        }
    }
    axes.sort_unstable();
    (!axes.is_empty() && axes.windows(2).all(|w| w[0] < w[1])).then_some(axes)
}

/// The axes over which the gradient of a bias is summed.
fn all_but_channels(graph: &Graph, id: NodeId) -> Option<Vec<i64>> {
    let node = graph.node(id);
    let rank = graph.info(node.inputs()[0]).rank().filter(|rank| *rank >= 2)? as i64;
    let channels = if super::channels_last(node) { rank - 1 } else { 1 };
    Some((0..rank).filter(|axis| *axis != channels).collect())
}
