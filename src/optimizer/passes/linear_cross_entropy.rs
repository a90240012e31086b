//! Cross entropies of a product's logits, with the product that makes the gradient of its left
//! operand, as in the last layer of a language model whose embeddings do not learn. One node
//! computes the logits in parts, so that they are never in memory as a whole
//! ([`crate::kernels::softmax::linear`]). The accuracy, which is an ArgMax of the logits, is part
//! of it.
//!
//! The pass runs after `cross_entropy`, `contraction`, `quantized` and `args`, each of which makes
//! one node of several. It leaves small logits alone, which take one part. Logits of an unknown
//! number of rows count as large if they have many classes; a few rows then cost some small
//! dispatches.

use super::products::product::MatrixProduct;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::weights::Decoder;
use crate::kernels::fused::quantized::QUANTIZED;
use crate::kernels::fused::{arg, elementwise};
use crate::kernels::softmax::CROSS_ENTROPY;
use crate::kernels::softmax::linear::{LINEAR_CROSS_ENTROPY, MOST_CLASSES, has_parts};
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, TensorInfo};

/// The fewest classes for which logits of unknown size are worth parts: with 128 rows, logits in
/// 16 bits then take 8 MiB.
const FEWEST_CLASSES: usize = 1 << 15;

/// The most readers of logits that are looked at. More than two are too many anyway.
const MAX_READERS: usize = 8;

/// Ops that do not round, so that a value that is computed twice is the same for any driver.
const EXACT: &[&str] =
    &["Abs", "Bitcast", "BitwiseAnd", "Cast", "Equal", "Less", "LogicalAnd", "Neg", "SelectV2"];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_loss = |id: &NodeId| {
        matches!(graph.node(*id).op(), CROSS_ENTROPY | "SparseSoftmaxCrossEntropyWithLogits")
    };
    let losses: Vec<NodeId> = order.iter().copied().filter(is_loss).collect();
    if losses.is_empty() {
        return Ok(());
    }
    let branches = Branches::of(graph, &order);
    for id in losses {
        match Fusion::of(graph, &branches, id) {
            Ok(Some(fusion)) => fusion.replace(graph),
            Ok(None) => {}
            Err((neighbour, reason)) => {
                graph.refuse("linear_cross_entropy", [id, neighbour], reason);
            }
        }
    }
    Ok(())
}

/// A tensor, perhaps behind reshapes, with the nodes that read it.
struct Reshaped {
    /// The tensor and its reshapes.
    views: Vec<Output>,
    readers: Vec<NodeId>,
}

impl Reshaped {
    fn of(graph: &Graph, tensor: Output) -> Self {
        let mut found = Self { views: vec![tensor], readers: Vec::new() };
        let mut at = 0;
        while let Some(view) = found.views.get(at).copied() {
            for (reader, index) in graph.readers(view) {
                if graph.node(reader).op() == "Reshape" && index == 0 {
                    found.views.push(Output { node: reader, port: 0 });
                } else if found.readers.len() <= MAX_READERS && !found.readers.contains(&reader) {
                    found.readers.push(reader);
                }
            }
            at += 1;
        }
        found
    }

    /// The nodes of the reshapes.
    fn reshapes(&self) -> impl Iterator<Item = NodeId> {
        self.views[1..].iter().map(|view| view.node)
    }
}

/// The tensor behind reshapes.
fn source(graph: &Graph, mut tensor: Output) -> Output {
    while let ("Reshape", &[from, _]) =
        (graph.node(tensor.node).op(), graph.node(tensor.node).inputs())
    {
        tensor = from;
    }
    tensor
}

/// A product with weights, which may be quantized.
struct Product {
    /// The product of the operand and the weights, or their codes.
    matrix: MatrixProduct,
    /// The tensors that decode the codes.
    parameters: Vec<Output>,
    /// The attributes that say how.
    decoder: Vec<(&'static str, Attr)>,
}

impl Product {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        if node.op() != QUANTIZED {
            let matrix = MatrixProduct::of(graph, id)?;
            return Some(Self { matrix, parameters: Vec::new(), decoder: Vec::new() });
        }
        graph.may_move(id).ok()?;
        let text: Decoder = node.attr("decoder")?.string()?.parse().ok()?;
        let [x, codes, others @ ..] = node.inputs() else { return None };
        let (parameters, extras) = others.split_at_checked(text.parameters())?;
        let attr = |name: &'static str| Some((name, node.attr(name)?.clone()));
        let decoder = ["decoder", "packing", "extent"].map(attr);
        let matrix = MatrixProduct {
            dtype: node.dtype("T")?,
            transposed: [false, node.attr("adj_y")?.bool()?],
            operands: [*x, *codes],
            expression: node.attr("expression")?.string()?.to_owned(),
            constants: node.attr("constants")?.floats()?.to_vec(),
            extras: extras.to_vec(),
            output: node.dtype("T_out")?,
        };
        let parameters = parameters.to_vec();
        // The kernel gathers rows of codes.
        let has_rows = text.has_rows(node.attr("packing")?.string()?.parse().ok()?);
        let fits = has_rows && node.attr("head").and_then(Attr::int).unwrap_or(0) == 0;
        let decoder = decoder.into_iter().collect::<Option<_>>()?;
        fits.then_some(Self { matrix, parameters, decoder })
    }

    /// Whether both have the same weights.
    fn shares_weights(&self, other: &Self) -> bool {
        self.matrix.operands[1] == other.matrix.operands[1]
            && self.parameters == other.parameters
            && self.decoder == other.decoder
    }
}

/// The nodes that one node can replace.
struct Fusion {
    loss: NodeId,
    /// The products that make the logits and the gradient.
    products: [NodeId; 2],
    logits: Product,
    gradient: Product,
    /// The epilogue of the second product, if it has one.
    epilogue: Option<Draft>,
    argument: Option<Argument>,
    /// Reshapes of the logits and of their gradient.
    reshapes: Vec<NodeId>,
}

/// An ArgMax of the logits.
struct Argument {
    node: NodeId,
    values: Draft,
    dtype: DType,
    /// The extents of its result, with -1 for an unknown one.
    dims: Vec<i64>,
}

type Refused = (NodeId, Refusal);

impl Fusion {
    /// The nodes around a cross entropy; `None` if no product makes large logits and no other takes
    /// their gradient.
    ///
    /// # Errors
    /// The node that cannot be part of it, and why.
    fn of(graph: &Graph, branches: &Branches, id: NodeId) -> Result<Option<Self>, Refused> {
        let node = graph.node(id);
        let [given, ..] = node.inputs() else { return Ok(None) };
        let made = source(graph, *given);
        let Some(logits) = Product::of(graph, made.node) else { return Ok(None) };
        let dlogits = Reshaped::of(graph, Output { node: id, port: 1 });
        let &[reader] = &dlogits.readers[..] else { return Ok(None) };
        let Some(gradient) = Product::of(graph, reader) else { return Ok(None) };
        let [first, second] = [&logits.matrix, &gradient.matrix];
        let takes = dlogits.views.contains(&second.operands[0]);
        if !takes || !logits.shares_weights(&gradient) || !is_large(graph, &logits) {
            return Ok(None);
        }
        let types = [node.dtype("T"), node.dtype("Tbackprop").or(node.dtype("T"))];
        let is_single = node.op() == CROSS_ENTROPY || node.dtype("T") == Some(DType::F32);
        let fits = is_single
            && !first.transposed[0]
            && !second.transposed[0]
            && first.transposed[1] != second.transposed[1]
            && (first.transposed[1] || logits.decoder.is_empty());
        let given = [&first.operands[..], &logits.parameters, &node.inputs()[1..]].concat();
        let are_typed = given.iter().all(|input| graph.info(*input).dtype.is_some());
        let result = graph.info(Output { node: reader, port: 0 });
        check(first.is_plain(), Refusal::NoFunction)
            .and(check(are_typed, Refusal::NoType))
            .and(check(is_alike(graph.info(first.operands[0]), result), Refusal::OtherShape))
            .and(check(types == [Some(first.dtype); 2], Refusal::Type(first.dtype)))
            .and(check(fits, Refusal::Operand))
            .map_err(|reason| (made.node, reason))?;
        let epilogue = match second.is_plain() {
            true => None,
            false => Some(Draft::of(graph.node(reader)).ok_or((reader, Refusal::Operand))?),
        };
        let all = Reshaped::of(graph, made);
        // A reshape keeps the rows if it keeps their length.
        let last = |view: &Output| graph.info(*view).shape.as_ref()?.last()?.known();
        let classes = last(&made);
        for view in all.views.iter().chain(&dlogits.views) {
            let keeps_rows = classes.is_some() && last(view) == classes;
            check(keeps_rows, Refusal::ShapesMayDiffer).map_err(|reason| (view.node, reason))?;
        }
        let mut argument = None;
        for other in all.readers.iter().copied().filter(|other| *other != id) {
            let found = Argument::of(graph, other, &all.views).map_err(|reason| (other, reason))?;
            check(argument.is_none(), Refusal::ReadElsewhere).map_err(|reason| (other, reason))?;
            argument = Some(found);
        }
        let reshapes = all.reshapes().chain(dlogits.reshapes()).collect();
        let products = [made.node, reader];
        let fusion = Self { loss: id, products, logits, gradient, epilogue, argument, reshapes };
        fusion.check(graph, branches).map(|()| Some(fusion))
    }

    fn members(&self) -> Vec<NodeId> {
        let own = self.products.into_iter().chain(self.argument.as_ref().map(|a| a.node));
        own.chain(self.reshapes.iter().copied()).chain([self.loss]).collect()
    }

    /// Checks that one node can take the place of the members.
    fn check(&self, graph: &Graph, branches: &Branches) -> Result<(), Refused> {
        let members = self.members();
        for member in &members {
            graph
                .may_join(*member, self.loss)
                .and(check(graph.is_alone(*member), Refusal::OtherConditions))
                .and(branches.run_together(*member, self.loss))
                .map_err(|reason| (*member, reason))?;
        }
        let loss = graph.node(self.loss);
        let given = loss.inputs()[1..].iter().chain(&self.gradient.matrix.extras);
        let mut given = given.chain(&self.logits.matrix.operands).chain(&self.logits.parameters);
        check(given.all(|input| !members.contains(&input.node)), Refusal::Cycle)
            .and(graph.is_one_node(&members))
            .map_err(|reason| (self.products[1], reason))
    }

    fn replace(self, graph: &mut Graph) {
        let node = graph.node(self.loss);
        let Some(labels) = node.dtype("Tlabels") else { return };
        let scales = node.attr("Tscale").and_then(Attr::dtypes).unwrap_or_default();
        let Product { matrix, parameters, decoder } = &self.logits;
        let Some(weights) = graph.info(matrix.operands[1]).dtype else { return };
        let types: Vec<DType> = parameters.iter().filter_map(|p| graph.info(*p).dtype).collect();
        let own = [matrix.operands[0], matrix.operands[1], node.inputs()[1]].into_iter();
        let more = parameters.iter().chain(node.inputs().get(2)).copied();
        let inputs = own.chain(more).collect();
        let dims = self.argument.as_ref().map_or(&[][..], |argument| &argument.dims);
        let arguments: Vec<DType> = self.argument.iter().map(|argument| argument.dtype).collect();
        let mut attrs = vec![
            ("T", matrix.dtype.into()),
            ("T_weights", weights.into()),
            ("Tlabels", labels.into()),
            ("T_parameters", types[..].into()),
            ("Tscale", scales[..].into()),
            ("T_argument", arguments[..].into()),
            ("dims", dims[..].into()),
            ("adj_y", matrix.transposed[1].into()),
        ];
        attrs.extend(decoder.iter().cloned());
        let values = self.argument.as_ref().map(|argument| argument.values.attrs());
        attrs.extend(values.unwrap_or_else(|| {
            [("constants", Attr::from(&[0.0_f32; 0][..])), ("expression", String::new().into())]
        }));
        let loss = Output { node: self.loss, port: 0 };
        let x = matrix.operands[0];
        let at = self.argument.as_ref().map(|argument| Output { node: argument.node, port: 0 });
        let infos = [loss, x].into_iter().chain(at).map(|output| graph.info(output).clone());
        let infos = infos.collect();
        let name = "linear_cross_entropy";
        let new = fused(graph, self.loss, name, LINEAR_CROSS_ENTROPY, inputs, attrs, infos);
        let new = graph.add(new);
        graph.stand_for(new, &self.members());
        let made = |port| Output { node: new, port };
        let gradient = Output { node: self.products[1], port: 0 };
        graph.replace_readers(loss, made(0));
        let behind = self.epilogue(graph, made(1));
        graph.replace_readers(gradient, behind);
        at.into_iter().for_each(|at| graph.replace_readers(at, made(2)));
        graph.remove_all(&self.members());
    }

    /// The gradient behind the epilogue of the second product, a node of its own.
    fn epilogue(&self, graph: &mut Graph, gradient: Output) -> Output {
        let product = self.products[1];
        let Some(draft) = &self.epilogue else { return gradient };
        let info = graph.info(Output { node: product, port: 0 }).clone();
        let extras = self.gradient.matrix.extras.iter().copied();
        let inputs = std::iter::once(gradient).chain(extras).collect();
        let mut attrs = vec![
            ("T_in", Attr::from(draft.expression.inputs())),
            ("T_out", Attr::from(&[self.gradient.matrix.output][..])),
        ];
        attrs.extend(draft.attrs());
        let new = fused(graph, product, "epilogue", elementwise::OP, inputs, attrs, vec![info]);
        let node = graph.add(new);
        graph.stand_for(node, &[product]);
        Output { node, port: 0 }
    }
}

/// Whether two tensors of the same number of rows of any length have their rows in the same places.
fn is_alike(x: &TensorInfo, result: &TensorInfo) -> bool {
    let (Some(x), Some(result)) = (&x.shape, &result.shape) else { return false };
    let (Some((_, x)), Some((_, result))) = (x.split_last(), result.split_last()) else {
        return false;
    };
    let differ = |(a, b): &(&Dim, &Dim)| !a.same(**b);
    let pairs = || x.iter().zip(result);
    // One extent that is unknown follows from the others.
    let others = || pairs().filter(|pair| !differ(pair));
    let is_open = pairs().filter(differ).all(|(a, b)| a.known().is_none() || b.known().is_none());
    let known = others().all(|(a, _)| a.known().is_some_and(|extent| extent > 0));
    let count = pairs().filter(differ).count();
    x.len() == result.len() && (count == 0 || count == 1 && is_open && known)
}

/// Whether the logits take more than one part, as far as their extents are known.
fn is_large(graph: &Graph, product: &Product) -> bool {
    let logits = &product.matrix;
    let extents = |output: Output| graph.info(output).shape.clone().unwrap_or_default();
    let (x, weights) = (extents(logits.operands[0]), extents(logits.operands[1]));
    let (Some((Dim::Known(depth), rows)), &[a, b]) = (x.split_last(), &weights[..]) else {
        return false;
    };
    let (Some(a), Some(b)) = (a.known(), b.known()) else { return false };
    let [classes, k] = if logits.transposed[1] { [a, b] } else { [b, a] };
    let rows = rows.iter().try_fold(1_usize, |rows, extent| rows.checked_mul(extent.known()?));
    let is_large = match rows {
        Some(rows) => has_parts(rows, classes, logits.dtype),
        None => classes >= FEWEST_CLASSES,
    };
    // Codes may share bytes.
    let fits = k == *depth || !product.decoder.is_empty();
    is_large && classes > 0 && classes <= MOST_CLASSES && fits && k > 0
}

impl Argument {
    /// The ArgMax of the last dimension of one of the `views`.
    fn of(graph: &Graph, id: NodeId, views: &[Output]) -> Result<Self, Refusal> {
        let node = graph.node(id);
        let &[x, dimension] = node.inputs() else { return Err(Refusal::ReadElsewhere) };
        let values = match node.op() {
            "ArgMax" => {
                let mut values = Draft::default();
                let dtype = node.dtype("T").ok_or(Refusal::NoType)?;
                let value = values.input(dtype);
                values.output(value);
                values
            }
            arg::OP if node.attr("reduction").and_then(Attr::string) == Some("ArgMax") => {
                Draft::of(node).ok_or(Refusal::Operand)?
            }
            _ => return Err(Refusal::ReadElsewhere),
        };
        let value = values.expression.output_type(0);
        let steps = values.expression.steps().iter();
        let is_exact = steps.clone().all(|step| EXACT.contains(&step.call.op()));
        let is_short = matches!(value, DType::F32 | DType::F16 | DType::BF16);
        check(is_exact && is_short, Refusal::NoFunction)?;
        let shape = graph.info(x).shape.clone().ok_or(Refusal::UnknownAxes)?;
        let axis = graph.constant(dimension).and_then(|axis| axis.to_i64().ok());
        let last = shape.len() as i64 - 1;
        check(views.contains(&x), Refusal::ReadElsewhere)?;
        check(axis.is_some_and(|axis| axis == [-1] || axis == [last]), Refusal::UnknownAxes)?;
        let dtype = node.dtype("output_type").ok_or(Refusal::NoType)?;
        let dims = shape[..last as usize].iter();
        let dims: Vec<i64> =
            dims.map(|extent| extent.known().map_or(-1, |extent| extent as i64)).collect();
        let unknown = dims.iter().filter(|extent| **extent < 0).count();
        check(unknown < 2 && !dims.contains(&0), Refusal::ShapesMayDiffer)?;
        Ok(Self { node: id, values, dtype, dims })
    }
}
