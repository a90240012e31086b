//! Products with quantized weights. Keras's layers unpack codes of 4 bits, convert, subtract a zero
//! point, scale and transpose a whole kernel at each call. One node does all that where it loads
//! the codes ([`crate::kernels::fused::quantized`]).
//!
//! An embedding takes rows of packed codes in the same way: see [`lookups`].
//!
//! The walk goes from the product's right operand up to the codes. Whatever is not known to it ends
//! it, and the graph stays as it is. Nodes on the way that others read stay for them.
//!
//! Weights are computed in float32 and are not rounded in between, so conversions of a parameter to
//! a narrower type are left out.

mod codes;
mod einsum;
mod lookups;
mod parameters;
mod views;

use einsum::EinsumProduct;
use lookups::Lookup;
use rustc_hash::FxHashSet;
use views::Arrangement;

use super::product::MatrixProduct;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::weights::{
    CodePacking, Decoder, Extents, MOST_CODES_OF_HEADS, MOST_PARAMETERS,
};
use crate::kernels::fused::quantized::{EINSUM, QUANTIZED};
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Meaning, Scalar};
use crate::optimizer::passes::cleanup::is_dead;
use crate::optimizer::refusal::Refusal;

/// The pass's name.
const PASS: &str = "quantized";
/// The most nodes between a product and its codes: no layer has half as many.
const MOST_NODES: usize = 64;
/// The most nodes that one walk looks at. Both operands of a product may lead to more products, and
/// attempts that find nothing count, too.
const MOST_VISITS: usize = 4 * MOST_NODES;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut passed = FxHashSet::default();
    for id in order.iter().copied() {
        if let Some((product, found)) = found(graph, id) {
            replace(graph, id, &product, &found);
            passed.extend(found.passed);
        } else if let Some(lookup) = Lookup::of(graph, id) {
            lookup.replace(graph, id);
            passed.extend(lookup.passed);
            passed.insert(id);
        }
    }
    for id in order.iter().copied().rev() {
        if passed.contains(&id) && is_dead(graph, id) {
            graph.remove(id);
        }
    }
    Ok(())
}

/// Weights, on the way from a product to their codes.
struct Weights {
    codes: Output,
    packing: CodePacking,
    /// Rows and columns of the codes.
    extents: [usize; 2],
    /// Whether the tensor that the walk began with is the transpose of the codes.
    is_transposed: bool,
    /// The number of columns of one head, if the product takes the codes as a tensor of heads.
    head: Option<usize>,
    steps: Vec<(char, Extents)>,
    parameters: Vec<Output>,
    /// The index of the groups.
    index: Option<Output>,
}

/// The nodes that a walk has passed.
struct Walk<'g> {
    graph: &'g Graph,
    /// The node at which it began.
    reader: NodeId,
    device: &'g str,
    passed: Vec<NodeId>,
    visits: usize,
}

/// The product of a node, if its right operand is quantized weights, and the way to their codes.
fn found(graph: &Graph, id: NodeId) -> Option<(MatrixProduct, Found)> {
    let einsum = match EinsumProduct::of(graph, id) {
        Ok(einsum) => einsum,
        Err(refusal) => {
            let right = graph.node(id).inputs()[1];
            // Only weights that were quantized are looked for.
            if Walk::new(graph, id).decoded(right).is_some() {
                graph.refuse(PASS, [id, right.node], refusal);
            }
            return None;
        }
    };
    if let Some(einsum) = einsum {
        let mut walk = Walk::new(graph, id);
        let EinsumProduct { product, contracted, columns, order, matrix } = einsum;
        let source = walk.arranged(product.operands[1], &order, matrix)?;
        let (weights, einsum) = (walk.operand(source)?, Some((contracted, columns)));
        return Some((product, Found { weights, einsum, passed: walk.unused() }));
    }
    let product = MatrixProduct::of(graph, id)?;
    let (left, right) = (graph.info(product.operands[0]), product.operands[1]);
    let ranks = left.rank()? >= 2 && graph.info(right).rank() == Some(2);
    if !ranks || product.transposed[0] || product.dtype == DType::F64 {
        return None;
    }
    let dims = <[usize; 2]>::try_from(graph.info(right).dims()?).ok()?;
    let mut walk = Walk::new(graph, id);
    let source = walk.arranged(right, &[0, 1], dims)?;
    let weights = walk.operand(source)?;
    Some((product, Found { weights, einsum: None, passed: walk.unused() }))
}

/// Weights with the nodes that may be unused without them.
struct Found {
    weights: Weights,
    /// For an einsum, the number of contracted dimensions and the extents of the columns.
    einsum: Option<(usize, Vec<usize>)>,
    passed: Vec<NodeId>,
}

fn replace(graph: &mut Graph, id: NodeId, product: &MatrixProduct, found: &Found) {
    let Weights { codes, packing, extents, is_transposed, head, steps, parameters, index } =
        &found.weights;
    let parameters: Vec<Output> = parameters.iter().chain(index).copied().collect();
    let types = |tensors: &[Output]| -> Option<Vec<DType>> {
        tensors.iter().map(|tensor| graph.info(*tensor).dtype).collect()
    };
    let extras = graph.node(id).attr("T_extra").cloned();
    let (Some(own), Some(codes_of)) = (types(&parameters), graph.info(*codes).dtype) else {
        return;
    };
    let mut attrs = product.attrs();
    attrs.retain(|(name, _)| *name != "adj_x");
    attrs.extend([
        ("T_codes", codes_of.into()),
        ("T_extra", extras.unwrap_or_else(|| Attr::from(&[][..] as &[DType]))),
        ("T_parameters", own[..].into()),
        ("adj_y", (product.transposed[1] != *is_transposed).into()),
        ("decoder", Decoder::new(steps).text().into()),
        ("extent", (extents[usize::from(*packing != CodePacking::Rows)] as i64).into()),
        ("packing", packing.name().into()),
    ]);
    attrs.extend(head.map(|width| ("head", (width as i64).into())));
    if let Some((contracted, columns)) = &found.einsum {
        let columns: Vec<i64> = columns.iter().map(|extent| *extent as i64).collect();
        attrs
            .extend([("columns", columns[..].into()), ("contracted", (*contracted as i64).into())]);
    }
    let old: Vec<String> = graph.node(id).attrs().keys().cloned().collect();
    old.iter().for_each(|name| graph.remove_attr(id, name));
    attrs.into_iter().for_each(|(name, value)| graph.set_attr(id, name, value));
    graph.set_op(id, if found.einsum.is_some() { EINSUM } else { QUANTIZED });
    let inputs = [product.operands[0], *codes].into_iter().chain(parameters);
    graph.set_inputs(id, inputs.chain(product.extras.iter().copied()).collect());
}

impl<'g> Walk<'g> {
    /// A walk that begins at an input of node `id`.
    fn new(graph: &'g Graph, id: NodeId) -> Self {
        let device = graph.node(id).device();
        Self { graph, reader: id, device, passed: Vec::new(), visits: 0 }
    }

    /// The answer to a question about weights at `tensor`; the reason of a refusal is written down.
    fn ask<T>(&self, tensor: Output, answer: Result<T, Refusal>) -> Option<T> {
        self.graph.ask(PASS, [self.reader, tensor.node], answer)
    }

    /// The nodes that may be unused if nothing reads what the walk has passed.
    fn unused(self) -> Vec<NodeId> {
        let inputs = |id: &NodeId| self.graph.node(*id).inputs().iter().map(|input| input.node);
        let nodes = self.passed.iter().flat_map(|id| std::iter::once(*id).chain(inputs(id)));
        nodes.collect()
    }

    /// The node of a tensor, which the walk passes, if only its inputs tie it to its place.
    fn pass(&mut self, tensor: Output) -> Option<&'g Node> {
        let node = self.graph.node(tensor.node);
        let is_free = node.controls().is_empty() && node.device() == self.device;
        self.passed.push(tensor.node);
        self.visits += 1;
        let is_near = self.passed.len() <= MOST_NODES && self.visits <= MOST_VISITS;
        (is_free && tensor.port == 0 && is_near).then_some(node)
    }

    /// What `f` finds. The walk goes back if that is nothing.
    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.passed.len();
        let found = f(self);
        if found.is_none() {
            self.passed.truncate(before);
        }
        found
    }

    /// The weights that a product's operand is.
    fn operand(&mut self, (source, arrangement): (Output, Arrangement)) -> Option<Weights> {
        let Arrangement { is_transposed, head } = arrangement;
        let weights = self.decoded(source)?;
        // Heads are parts of the codes as they lie in memory.
        let [rows, columns] = weights.extents;
        let is_read = !weights.is_transposed && rows * columns <= MOST_CODES_OF_HEADS;
        let is_transposed = is_transposed != weights.is_transposed;
        self.ask(source, check(head.is_none() || is_read, Refusal::Operand))?;
        Some(Weights { is_transposed, head, ..weights })
    }

    /// The weights that a matrix of floats is.
    fn weights(&mut self, tensor: Output) -> Option<Weights> {
        let (source, is_transposed) = self.matrix(tensor)?;
        let mut weights = self.decoded(source)?;
        weights.is_transposed ^= is_transposed;
        Some(weights)
    }

    fn decoded(&mut self, tensor: Output) -> Option<Weights> {
        let node = self.pass(tensor)?;
        let op = match Meaning::of(node) {
            Meaning::Scalar(Scalar { call, .. }) => call.op(),
            _ => return None,
        };
        match (op, node.inputs()) {
            ("Cast", [from]) => match node.dtype("SrcT")? {
                DType::I8 | DType::U8 => self.codes(*from),
                DType::F32 => self.weights(*from),
                // Codes are exact in every type of float.
                t if t.is_narrow_float() => self.weights(*from).filter(|w| w.steps.is_empty()),
                _ => None,
            },
            ("Mul", [a, b]) => {
                let forward = self.attempt(|walk| walk.step('*', *a, *b));
                forward.or_else(|| self.step('*', *b, *a))
            }
            ("RealDiv", [a, b]) => self.step('/', *a, *b),
            ("Sub", [a, b]) => self.step('-', *a, *b),
            _ => None,
        }
    }

    /// The weights of `inner` with one more step.
    fn step(&mut self, operator: char, inner: Output, parameter: Output) -> Option<Weights> {
        let mut weights = self.weights(inner)?;
        let dims = self.graph.info(inner).dims()?;
        let found = self.parameter(parameter, &dims).ok_or(Refusal::Operand);
        let found = self.ask(inner, found)?;
        let same = |index: &Output| found.index.is_none_or(|own| own == *index);
        self.ask(inner, check(weights.index.iter().all(same), Refusal::Operand))?;
        let groups = |extents: Extents| extents.grouped();
        let extents =
            if weights.is_transposed { found.extents.transposed() } else { found.extents };
        let known = weights.steps.iter().find_map(|(_, extents)| groups(*extents));
        let differ = groups(extents).is_some_and(|own| known.is_some_and(|known| known != own));
        self.ask(inner, check(!differ, Refusal::OtherShape))?;
        weights.index = weights.index.or(found.index);
        weights.steps.push((operator, extents));
        weights.parameters.push(found.tensor);
        let tensors = weights.parameters.len() + usize::from(weights.index.is_some());
        self.ask(inner, check(tensors <= MOST_PARAMETERS, Refusal::TooManyTensors))?;
        Some(weights)
    }
}
