//! Contractions with the nodes that follow them: bias, batch normalization at inference,
//! activations, residuals and conversions become the epilogue of a matrix product or convolution,
//! see [`crate::kernels::fused::contraction`].
//!
//! A tail is a set of elementwise nodes that follow the contraction, with a single value that is
//! used outside. A value that is needed elsewhere, for instance by gradients, ends the tail.
//! Further operands may have any shape, for the fused kernel broadcasts as the ops did. An operand
//! that the contraction's own program cannot read is left to other passes. So is an operand with
//! one element for each row after a product of floats: programs that scale floats by rows mostly
//! reduce them, too.
//!
//! A product of int8 is int32, and its tail begins with a conversion to float.

mod tail;

use super::reshape::{again, reshape};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::bias::ChannelAxis;
use crate::kernels::fused::contraction::{DEFINITIONS, INT8};
use crate::kernels::fused::cost;
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::{Meaning, fused_product};
use crate::optimizer::plan::by_saving;
use crate::optimizer::plan::cost::{Nanos, compilation, unwritten};
use crate::optimizer::shape::TensorInfo;
use tail::{Extra, Tail};

/// The attributes that an epilogue adds.
const EPILOGUE: [&str; 4] = ["T_extra", "T_out", "constants", "expression"];

/// A contraction that may get an epilogue, or a larger one than it has.
struct Root {
    id: NodeId,
    fused: &'static str,
    /// The type of the result, int32 for products of int8.
    dtype: DType,
    channels: ChannelAxis,
    /// The rank of the result; the least possible one if it is not known.
    rank: usize,
}

impl Root {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let fused = fused_product(node.op()).filter(|_| graph.may_go(id).is_ok())?;
        let dtype = if fused == INT8 {
            let is_int8 = |names: &[&str]| names.iter().all(|n| node.dtype(n) == Some(DType::I8));
            let found =
                is_int8(&["T"]) || is_int8(&["Ta", "Tb"]) && node.dtype("Tout") == Some(DType::I32);
            found.then_some(DType::I32)?
        } else {
            node.dtype("T").filter(|t| t.is_float())?
        };
        let (channels, least) = match node.attr("data_format").and_then(Attr::string) {
            None => (ChannelAxis::Last, if fused.contains("Conv3D") { 5 } else { 2 }),
            Some("NHWC") => (ChannelAxis::Last, 4),
            Some("NCHW") => (ChannelAxis::Second, 4),
            Some("NDHWC") => (ChannelAxis::Last, 5),
            Some("NCDHW") => (ChannelAxis::Second, 5),
            Some(_) => return None,
        };
        let rank = graph.info(Output { node: id, port: 0 }).rank().unwrap_or(least);
        Some(Self { id, fused, dtype, channels, rank })
    }

    const fn output(&self) -> Output {
        Output { node: self.id, port: 0 }
    }
}

/// Runs the pass. The products that save most come first.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_product = |id: &NodeId| fused_product(graph.node(*id).op()).is_some();
    let products: Vec<NodeId> = order.iter().copied().filter(is_product).collect();
    for id in by_saving(products, |id| saving(graph, id)) {
        if graph.contains(id)
            && let Some(root) = Root::of(graph, id)
            && let Some(tail) = Tail::find(graph, &root)
        {
            replace(graph, &root, &tail);
        }
    }
    Ok(())
}

/// The time that a fused product saves. Its result is not stored, but the node behind it is
/// compiled once for each element that an invocation stores.
fn saving(graph: &Graph, product: NodeId) -> Nanos {
    let scalar = |id: &NodeId| Meaning::of(graph.node(*id)).scalar();
    let next = graph.users(product).first().and_then(scalar);
    let text = next.map_or(0, |scalar| cost::contraction(scalar.weight()));
    unwritten(graph.info(Output { node: product, port: 0 })).saturating_sub(compilation(text))
}

/// The attributes of a fused node: the base op's own, and the epilogue's.
pub(super) fn attributes(
    node: &Node,
    fused: &'static str,
    epilogue: impl IntoIterator<Item = (&'static str, Attr)>,
) -> Vec<(&'static str, Attr)> {
    let definition =
        DEFINITIONS.iter().find(|d| d.name == fused).expect("every fused op has a definition");
    let names = definition.attrs.iter().filter_map(|a| a.split(':').next());
    let mut attrs: Vec<(&'static str, Attr)> = names
        .filter(|name| !EPILOGUE.contains(name))
        .filter_map(|name| {
            let missing = || match name {
                "explicit_paddings" => Some(Attr::from(&[][..] as &[i64])),
                // The base op names the types of both operands, the fused op only one.
                "T" if fused == INT8 => Some(DType::I8.into()),
                _ => None,
            };
            Some((name, node.attr(name).cloned().or_else(missing)?))
        })
        .collect();
    attrs.extend(epilogue);
    attrs
}

/// The tensor that the contraction reads as a further operand, reshaped if necessary.
fn operand(graph: &mut Graph, extra: &Extra) -> Option<Output> {
    let Some(dims) = &extra.dims else { return Some(extra.tensor) };
    let name = format!("{}/before", graph.node(extra.tensor.node).name());
    reshape(graph, &name, extra.tensor, dims)
}

fn replace(graph: &mut Graph, root: &Root, tail: &Tail) {
    let types: Vec<DType> = tail.draft.expression.inputs()[1..].to_vec();
    let output = tail.draft.expression.output_types()[0];
    let epilogue = [("T_extra", Attr::from(&types[..])), ("T_out", output.into())];
    let exit = Output { node: tail.exit, port: 0 };
    let Some(extras) = tail.extras.iter().map(|e| operand(graph, e)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let node = graph.node(root.id);
    let shape = tail.reshape.map_or(exit, |reshape| graph.node(reshape).inputs()[0]);
    let inputs = node.inputs()[..2].iter().chain(&extras).copied().collect();
    let attrs = attributes(node, root.fused, epilogue.into_iter().chain(tail.draft.attrs()));
    let infos = vec![TensorInfo { dtype: Some(output), ..graph.info(shape).clone() }];
    let new = fused(graph, tail.exit, "fused", root.fused, inputs, attrs, infos);
    let Some(reshape) = tail.reshape else {
        graph.replace_region(&tail.nodes, new, &[(exit, 0)]);
        return;
    };
    // The reshape comes after the fused node instead of in the middle.
    let id = graph.add(new);
    graph.stand_for(id, &tail.nodes);
    for member in &tail.nodes {
        for control in graph.node(*member).controls().to_vec() {
            if !tail.nodes.contains(&control) {
                graph.add_control(id, control);
            }
        }
    }
    let name = format!("{}/behind", graph.node(reshape).name());
    let info = TensorInfo { dtype: Some(output), ..graph.info(exit).clone() };
    let new = again(graph, &name, reshape, Output { node: id, port: 0 }, info);
    graph.replace_region(&tail.nodes, new, &[(exit, 0)]);
}
