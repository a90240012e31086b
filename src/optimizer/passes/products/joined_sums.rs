//! The gradients of the biases of query, key and value are the sums of the rows of operands in the
//! products that make the gradients of their weights. If one node makes the products and another
//! the sums, one node can make both, as in [`super::biased`] for a single layer.

use rustc_hash::FxHashMap;

use super::are_independent;
use super::biased::{columns, elements};
use crate::error::Result;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::contraction::JOINED;
use crate::kernels::fused::products::JOINED_WITH_SUMS;
use crate::kernels::fused::reduce::OP as REDUCE;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::passes::reshape::give_extents;
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The sums of the rows of all inputs of one node.
struct Sums {
    node: NodeId,
    /// For each output, the tensor whose rows it sums.
    of: Vec<Output>,
    /// The number of columns of each tensor.
    columns: usize,
}

/// Joins such nodes.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut known: FxHashMap<(Vec<Output>, usize), Sums> = FxHashMap::default();
    for id in order.iter().copied() {
        if let Some(sums) = sums(graph, id) {
            known.entry((sorted(&sums.of), sums.columns)).or_insert(sums);
        }
    }
    for product in order.iter().copied() {
        if known.is_empty() {
            break;
        }
        if graph.contains(product)
            && let Some((rights, columns)) = rights(graph, product)
            && let Some(sums) = known.remove(&(sorted(&rights), columns))
            && graph.node(sums.node).device() == graph.node(product).device()
            && are_independent(graph, product, sums.node)
        {
            replace(graph, product, &rights, &sums);
        }
    }
    Ok(())
}

fn sorted(tensors: &[Output]) -> Vec<Output> {
    let mut sorted = tensors.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Whether a node may be fused into another one.
fn is_free(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.on_wgpu() && !graph.is_preserved(id) && node.controls().is_empty()
}

/// The sums of a fused reduction, if it computes nothing else, and sums over all axes but the last
/// ones.
fn sums(graph: &Graph, id: NodeId) -> Option<Sums> {
    let node = graph.node(id);
    if node.op() != REDUCE || !is_free(graph, id) {
        return None;
    }
    let text = |name: &str| node.attr(name).and_then(Attr::string);
    let expression: Expression = text("expression")?.parse().ok()?;
    let plain = expression.steps().is_empty()
        && text("epilogue").is_none_or(str::is_empty)
        && text("reductions")?.split(',').all(|name| name == "Sum")
        && node.attr("whole").and_then(Attr::bool) != Some(true);
    let axes = node.attr("axes").and_then(Attr::ints)?;
    let count = axes.len();
    let mut all: Vec<Output> = Vec::new();
    let mut columns = None;
    for value in expression.outputs() {
        let Value::Input(input) = value else { return None };
        let input = *node.inputs().get(*input as usize)?;
        let shape = graph.info(input).shape.as_ref()?;
        let rank = shape.len() as i64;
        let mut axes: Vec<i64> = axes.iter().map(|a| if *a < 0 { a + rank } else { *a }).collect();
        axes.sort_unstable();
        let kept = shape.get(count..)?.iter().map(|d| d.known());
        let kept = kept.product::<Option<usize>>().filter(|n| *n > 0)?;
        let of = elements(graph, input);
        let fits = count > 0
            && axes.into_iter().eq(0..count as i64)
            && *columns.get_or_insert(kept) == kept
            && !all.contains(&of);
        all.push(fits.then_some(of)?);
    }
    let whole = plain && all.len() == node.inputs().len();
    Some(Sums { node: id, of: all, columns: columns.filter(|_| whole)? })
}

/// The tensors that are the right operands of joined matrix products, and their number of columns.
fn rights(graph: &Graph, id: NodeId) -> Option<(Vec<Output>, usize)> {
    let node = graph.node(id);
    if node.op() != JOINED || !is_free(graph, id) {
        return None;
    }
    let matrices = node.inputs().iter().all(|i| graph.info(*i).rank() == Some(2));
    let turned = node.attr("adj_y").and_then(Attr::bool).unwrap_or(false);
    let plain = node.attr("T_extra").and_then(Attr::dtypes).is_some_and(|types| types.is_empty());
    if !matrices || turned || !plain {
        return None;
    }
    let (_, rights) = node.inputs().split_first()?;
    let of = columns(graph, *rights.first()?)?;
    let alike = rights.iter().all(|right| columns(graph, *right) == Some(of));
    alike.then(|| (rights.iter().map(|right| elements(graph, *right)).collect(), of))
}

fn replace(graph: &mut Graph, product: NodeId, rights: &[Output], sums: &Sums) {
    let node = graph.node(product);
    let (Some(dtype), count) = (node.dtype("T"), rights.len()) else { return };
    if graph.node(sums.node).inputs().iter().any(|i| graph.info(*i).dtype != Some(dtype)) {
        return;
    }
    let place = |of: &Output| rights.iter().position(|right| right == of);
    let Some(places) = sums.of.iter().map(place).collect::<Option<Vec<usize>>>() else { return };
    // The extents of the sums that their readers expect.
    let dims = |port: usize| -> Option<Vec<usize>> {
        let shape = graph.info(Output { node: sums.node, port: port as u32 }).shape.as_ref()?;
        shape.iter().map(|d| d.known()).collect()
    };
    let Some(wanted) = (0..count).map(dims).collect::<Option<Vec<_>>>() else { return };
    if wanted.iter().any(|dims| dims.iter().product::<usize>() != sums.columns) {
        return;
    }
    let vector: Shape = [Dim::Known(sums.columns)].into_iter().collect();
    let vector = TensorInfo { dtype: Some(dtype), shape: Some(vector) };
    let of = |node: NodeId, port: usize| Output { node, port: port as u32 };
    let products = (0..count).map(|port| graph.info(of(product, port)).clone());
    let infos = products.chain(std::iter::repeat_n(vector, count)).collect();
    let own = ["N", "T", "T_out", "adj_x", "constants", "expression"];
    let attrs = own.into_iter().filter_map(|name| Some((name, node.attr(name)?.clone())));
    let new = NewNode {
        name: format!("{}/with_sums", node.name()),
        op: JOINED_WITH_SUMS.to_owned(),
        device: node.device().to_owned(),
        inputs: node.inputs().to_vec(),
        controls: Vec::new(),
        attrs: attrs.collect(),
        infos,
    };
    let products = (0..count).map(|port| (of(product, port), port as u32));
    let of_sums = places.iter().enumerate();
    let of_sums = of_sums.map(|(port, at)| (of(sums.node, port), (count + at) as u32));
    let ports: Vec<(Output, u32)> = products.chain(of_sums).collect();
    let new = graph.replace_region(&[product, sums.node], new, &ports);
    for (dims, at) in wanted.iter().zip(places) {
        give_extents(graph, of(new, count + at), dims);
    }
}
