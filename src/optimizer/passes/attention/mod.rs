//! Attention as Keras and hand-written transformers write it: the product of query and key, a
//! scale, a soft cap, a mask, softmax, and the product with the value. There may be transposes
//! around and between these, and conversions of 16-bit floats to float32 and back.
//!
//! Axes carry labels: those of an `Einsum`'s equation, or new ones for a `BatchMatMulV2`. The
//! labels, followed through transposes, tell which operand is the query and which axis holds its
//! heads. Values between the ops must have no other use. The conversion of the weights to 16 bits
//! is dropped: it only rounds values between 0 and 1.
//!
//! In training the gradient reads the weights. If the gradient has the form that [`gradient`]
//! knows, and there are no other readers, it is replaced as well. Then query, key and value all
//! have gradients, the mask has none, nothing broadcasts, and there is no soft cap and no dropout.
//!
//! If heads of key and value are repeated for several heads of the query, the original heads are
//! read, see [`grouped`]. Queries may also have an axis for the heads that share a head of the
//! keys, as in `einsum("btkgh,bskh->bkgts")`. Reshapes then cut axes in two, see [`cuts`]. No mask
//! may tell heads apart, and there is no gradient.

mod cuts;
mod ends;
mod gradient;
mod grouped;
mod labels;
mod scores;
mod shapes;

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::attention::{OP, grad};
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::passes::reshape::squeeze;
use crate::optimizer::shape::{Dim, TensorInfo};
use cuts::HEADS;
use ends::{Stop, results, stops};
use gradient::{Forward, Gradient, gradient};
use labels::{DEPTH, Label, Labelled, Product, only, product};
use scores::{Scores, products_of, weights};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let branches = Branches::of(graph, &order);
    let ids: Vec<_> = graph.ids().collect();
    for id in ids {
        if graph.contains(id)
            && let Some(found) = Found::at(graph, id)
            && found.runs_alike(&branches)
        {
            if found.shapes.is_empty() {
                found.replace(graph);
                continue;
            }
            let wanted: FxHashSet<NodeId> = found.shapes.iter().map(|(id, _)| *id).collect();
            if shapes::can_detach(graph, &found.shapes, &found.products)
                && found.is_legal(graph, &wanted)
                && shapes::detach(graph, &found.shapes, &found.products).is_some()
                && let Some(found) = Found::at(graph, id)
            {
                found.replace(graph);
            }
        }
    }
    grouped::run(graph);
    Ok(())
}

/// An attention to be replaced.
struct Found {
    region: Vec<NodeId>,
    /// Nodes that may be unused afterwards.
    passed: Vec<NodeId>,
    result: Output,
    inputs: Vec<Output>,
    attrs: Vec<(&'static str, Attr)>,
    /// The axis of the mask that has no meaning for the op.
    spare_axis: Option<usize>,
    gradient: Option<FoundGradient>,
    /// Nodes that read only the shape of the scores, and the operands of the scores' product.
    shapes: Vec<(NodeId, Vec<Label>)>,
    products: [Labelled; 2],
}

/// The gradient of an attention to be replaced.
struct FoundGradient {
    region: Vec<NodeId>,
    /// The gradient of the result.
    given: Output,
    /// The gradients of query, key and value.
    results: [Output; 3],
}

/// The tensors of an attention in one of the layouts.
struct Arranged {
    layout: &'static str,
    /// Query, key and value and, with a gradient, the gradient of the result.
    stops: Vec<Stop>,
    /// The result and, with a gradient, the gradients of query, key and value.
    results: Vec<Output>,
}

impl Found {
    /// The attention in which the node `id` is the product with the value.
    fn at(graph: &Graph, id: NodeId) -> Option<Self> {
        let last = product(graph, id)?;
        (0..2).find_map(|i| Self::with_weights(graph, id, &last, i))
    }

    fn with_weights(graph: &Graph, id: NodeId, last: &Product, i: usize) -> Option<Self> {
        let node = graph.node(id);
        let labels = &last.operands[i];
        let operand = (node.inputs()[i], labels.clone());
        let (weights, mut scores) = weights(graph, &operand, last.dtype)?;
        let (first_id, labels_first) =
            products_of(graph, weights.input, weights.labels.clone(), &mut scores, 0)?;
        let first = product(graph, first_id)?;
        let is_grouped = !scores.cuts.is_empty();
        if first.broadcasts != last.broadcasts || first.dtype != last.dtype {
            return None;
        }
        let has_gradient = !weights.is_single_use;
        if (has_gradient && (is_grouped || scores.soft_cap.is_some()))
            || (is_grouped && !scores.shapes.is_empty())
        {
            return None;
        }
        let value = (node.inputs()[1 - i], last.operands[1 - i].clone());
        let width = only(&value.1, |l| !labels.contains(l))?;
        let [a, b] = first.rename(&labels_first, DEPTH)?;
        let [x, y] = graph.node(first_id).inputs() else { return None };
        let key_is_second = b.contains(labels.last()?);
        let (query, key) = if key_is_second { ((*x, a), (*y, b)) } else { ((*y, b), (*x, a)) };
        let forward_tensors = [query, key, value];
        let forward = Forward {
            weights: &weights,
            scores: &scores,
            last: id,
            operand,
            tensors: forward_tensors.clone(),
            dtype: last.dtype,
            width,
        };
        let gradient = if has_gradient { Some(gradient(graph, &forward)?) } else { None };
        let results = results(graph, &scores.cuts, id, &last.result);
        let arranged = Arranged::new(graph, &forward, &results, gradient.as_ref())?;
        if gradient.is_some()
            && (last.broadcasts || scores.mask.is_some())
            && !arranged.is_even(graph, &forward)
        {
            return None;
        }
        let attrs = attributes(graph, &forward, last, &arranged)?;
        let mut region = scores.region.clone();
        region.extend([first_id, id]);
        let end = results.iter().position(|(at, _)| *at == arranged.results[0])?;
        region.extend(results[1..=end].iter().map(|(at, _)| at.node));
        let mut passed: Vec<NodeId> =
            arranged.stops.iter().flat_map(|s| s.passed.clone()).collect();
        let gradient = gradient.map(|found| {
            let of_read = found.read.iter().flat_map(|read| stops(graph, &[], read, false));
            passed.extend(of_read.flat_map(|s| s.passed));
            let mut region = found.region;
            let ends = found.results.iter().map(|(id, _)| *id).zip(&arranged.results[1..]);
            region.extend(
                ends.filter(|(id, end)| end.node != *id)
                    .map(|(_, end)| end.node)
                    .collect::<Vec<_>>(),
            );
            let results = [arranged.results[1], arranged.results[2], arranged.results[3]];
            FoundGradient { region, given: arranged.stops[3].at, results }
        });
        let inputs = arranged.stops[..3]
            .iter()
            .map(|s| s.at)
            .chain(scores.mask.iter().map(|m| m.operand))
            .collect();
        if !scores.shapes.is_empty() && last.broadcasts {
            return None;
        }
        let source = |operand: &Labelled| {
            let stop = stops(graph, &[], operand, true).pop();
            stop.map(|stop| (stop.at, stop.labels))
        };
        let (shapes, products) =
            (scores.shapes, [source(&forward_tensors[0])?, source(&forward_tensors[1])?]);
        let result = arranged.results[0];
        let mask = scores.mask.as_ref().filter(|_| is_grouped);
        let spare_axis = mask.and_then(|m| graph.info(m.operand).rank()?.checked_sub(4));
        let found =
            Self { region, passed, result, inputs, attrs, spare_axis, gradient, shapes, products };
        (!found.shapes.is_empty() || found.is_legal(graph, &FxHashSet::default())).then_some(found)
    }

    /// Whether the nodes may be replaced. No path may leave them and come back, except over nodes
    /// of `shapes`, which will read other tensors.
    fn is_legal(&self, graph: &Graph, shapes: &FxHashSet<NodeId>) -> bool {
        let ours = |region: &[NodeId]| {
            region.iter().all(|id| graph.may_join(*id, self.result.node).is_ok())
                && graph.is_convex_without(region, shapes)
        };
        let after = |gradient: &FoundGradient| {
            let forward: FxHashSet<NodeId> = self.region.iter().copied().collect();
            ours(&gradient.region) && !graph.reaches(&gradient.region, &forward, shapes)
        };
        ours(&self.region) && self.gradient.as_ref().is_none_or(after)
    }

    /// Whether the three gradients exist under the same conditions: one node computes them.
    fn runs_alike(&self, branches: &Branches) -> bool {
        let gradient = self.gradient.as_ref();
        gradient.is_none_or(|found| {
            let [first, others @ ..] = &found.results;
            others.iter().all(|other| branches.agree(first.node, other.node))
        })
    }

    fn replace(self, graph: &mut Graph) {
        let last = graph.node(self.result.node);
        let (name, device) = (format!("{}/attention", last.name()), last.device().to_owned());
        let mut infos = vec![graph.info(self.result).clone()];
        let mut attrs = self.attrs.clone();
        let saved: &[DType] = if self.gradient.is_some() { &[DType::F32] } else { &[] };
        attrs.push(("Tsaved", saved.into()));
        infos.extend(saved.iter().map(|t| TensorInfo { dtype: Some(*t), shape: None }));
        let grad_id = self.gradient.map(|found| {
            // The result stands for the tensor that the op saves, until the op exists.
            let [tensors, extra] = [&self.inputs[..3], &self.inputs[3..]];
            let inputs = [tensors, &[self.result, found.given, self.result], extra].concat();
            let new = NewNode {
                name: format!("{}/attention_gradient", graph.node(found.results[0].node).name()),
                op: grad::OP.to_owned(),
                device: device.clone(),
                inputs,
                controls: Vec::new(),
                attrs: self
                    .attrs
                    .iter()
                    .filter(|(name, _)| *name != "broadcast")
                    .cloned()
                    .collect(),
                infos: found.results.iter().map(|r| graph.info(*r).clone()).collect(),
            };
            let ports = [0, 1, 2].map(|i| (found.results[i as usize], i));
            graph.replace_region(&found.region, new, &ports)
        });
        let mut inputs = self.inputs;
        if let (Some(axis), Some(mask)) = (self.spare_axis, inputs.get_mut(3)) {
            *mask = squeeze(graph, &format!("{name}/mask"), *mask, axis);
        }
        let new =
            NewNode { name, op: OP.to_owned(), device, inputs, controls: Vec::new(), attrs, infos };
        let id = graph.replace_region(&self.region, new, &[(self.result, 0)]);
        if let Some(grad_id) = grad_id {
            graph.set_input(grad_id, 5, Output { node: id, port: 1 });
        }
        for id in self.passed {
            graph.remove_unused(id);
        }
    }
}

impl Arranged {
    /// All tensors, in the layout in which all of them can be read.
    fn new(
        graph: &Graph,
        f: &Forward<'_>,
        of_result: &[Labelled],
        gradient: Option<&Gradient>,
    ) -> Option<Self> {
        let labels = &f.weights.labels;
        let cuts = &f.scores.cuts[..];
        let rank = labels.len();
        let (lead, t, s) = (&labels[..rank - 2], labels[rank - 2], labels[rank - 1]);
        // Batch and heads of the query and of the keys.
        let [of_query, of_keys] = match lead {
            [batch, heads, _] => [vec![*batch, HEADS], vec![*batch, *heads]],
            _ => [lead.to_vec(), lead.to_vec()],
        };
        let heads_last = |lead: &[Label], position, last| match lead {
            [batch, heads] => vec![*batch, position, *heads, last],
            _ => Vec::new(),
        };
        let heads_first = |lead: &[Label], position, last| [lead, &[position, last]].concat();
        type Arrange<'a> = &'a dyn Fn(&[Label], Label, Label) -> Vec<Label>;
        let arranged = |layout: &'static str, arrange: Arrange<'_>| {
            // The forward op may include a scale before the product, but no gradient may.
            let may_scale = gradient.is_none();
            let find = |operand: &Labelled, wanted: &[Label], may_scale: bool| {
                stops(graph, cuts, operand, may_scale)
                    .into_iter()
                    .rev()
                    .find(|stop| stop.labels == wanted)
            };
            let [query, key, value] = &f.tensors;
            let wanted = [
                arrange(&of_query, t, DEPTH),
                arrange(&of_keys, s, DEPTH),
                arrange(&of_keys, s, f.width),
            ];
            let wanted_result = arrange(&of_query, t, f.width);
            let mut all = vec![
                find(query, &wanted[0], may_scale)?,
                find(key, &wanted[1], may_scale)?,
                find(value, &wanted[2], false)?,
            ];
            let end = |found: &[Labelled], wanted: &[Label]| {
                found.iter().rev().find(|(_, labels)| *labels == wanted).map(|(at, _)| *at)
            };
            let mut ends = vec![end(of_result, &wanted_result)?];
            if let Some(gradient) = gradient {
                all.push(find(&gradient.given, &wanted_result, false)?);
                for ((id, labels), wanted) in gradient.results.iter().zip(&wanted) {
                    ends.push(end(&results(graph, cuts, *id, labels), wanted)?);
                }
            }
            Some(Self { layout, stops: all, results: ends })
        };
        arranged("BTNH", &heads_last).or_else(|| arranged("BNTH", &heads_first))
    }

    /// Whether key and value certainly have the heads that grouped weights have.
    fn shares_heads(&self, graph: &Graph, scores: &Scores) -> bool {
        let Some(cut) = scores.cuts.last() else { return true };
        self.stops[1..].iter().all(|stop| {
            let shape = graph.info(stop.at).shape.iter().flatten();
            let extents = stop.labels.iter().zip(shape);
            extents.into_iter().any(|axis| cut.starts_with(axis))
        })
    }

    /// Whether query, key, value and the result's gradient certainly have the extents of the
    /// weights, so that nothing broadcasts.
    fn is_even(&self, graph: &Graph, f: &Forward<'_>) -> bool {
        let Some(weights) = &graph.info(f.weights.softmax).shape else { return false };
        self.stops.iter().all(|stop| {
            let Some(shape) = &graph.info(stop.at).shape else { return false };
            let extents = stop.labels.iter().zip(shape);
            shape.len() == stop.labels.len()
                && extents.into_iter().all(|(label, extent)| {
                    match f.operand.1.iter().position(|l| l == label) {
                        Some(at) => weights.get(at).is_some_and(|w| w.same(*extent)),
                        None => true,
                    }
                })
        })
    }
}

/// The attributes of the op.
fn attributes(
    graph: &Graph,
    f: &Forward<'_>,
    last: &Product,
    arranged: &Arranged,
) -> Option<Vec<(&'static str, Attr)>> {
    let scores = f.scores;
    let is_grouped = !scores.cuts.is_empty();
    let scale = (scores.scale * arranged.stops[0].scale * arranged.stops[1].scale) as f32;
    let mask = scores.mask.as_ref();
    let zero_masked = match (scores.zeroed_by, mask) {
        (None, _) => false,
        (Some(by), Some(mask)) if mask.kind != "bias" && mask.keep && mask.operand == by => true,
        _ => return None,
    };
    let extra: Vec<DType> = match mask {
        None => Vec::new(),
        Some(mask) => {
            let info = graph.info(mask.operand);
            let shape = info.shape.as_ref().filter(|s| s.len() <= f.weights.labels.len())?;
            // The axes of heads, which precede the axes of rows and keys.
            let heads = shape.iter().rev().skip(2).take(2);
            let fits = !is_grouped || heads.into_iter().all(|extent| *extent == Dim::Known(1));
            fits.then_some(vec![info.dtype?])?
        }
    };
    let types_fit = extra.iter().all(|t| match mask.map(|m| m.kind) {
        Some("bias") => t.is_single(),
        _ => *t == DType::Bool,
    });
    let fits = types_fit && scale.is_finite() && arranged.shares_heads(graph, scores);
    let own = [
        ("T", last.dtype.into()),
        ("Textra", extra[..].into()),
        ("layout", arranged.layout.into()),
        ("scale", scale.into()),
        ("mask", mask.map_or("none", |m| m.kind).into()),
        ("keep", mask.is_none_or(|m| m.keep).into()),
        ("fill", (mask.map_or(0.0, |m| m.fill) as f32).into()),
        ("causal", false.into()),
        ("zero_masked", zero_masked.into()),
        ("broadcast", last.broadcasts.into()),
    ];
    let grouped = is_grouped.then_some(("grouped", true.into()));
    let soft_cap = scores.soft_cap.map(|cap| cap as f32);
    let fits = fits && soft_cap.is_none_or(|cap| cap.is_normal());
    let soft_cap = soft_cap.map(|cap| ("soft_cap", cap.into()));
    fits.then(|| own.into_iter().chain(grouped).chain(soft_cap).collect())
}
