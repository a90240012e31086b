//! Sparse cross entropies of logits in 16 bits. In mixed precision the loss is computed in float32.
//! So a graph converts the logits, computes their gradient, scales it, and rounds it: four tensors
//! of the logits' size, of which three are in float32. One node reads the logits as they are and
//! writes the rounded gradient ([`crate::kernels::softmax::CROSS_ENTROPY`]). If all is in float32,
//! that node scales the gradient.

use super::cleanup::is_dead;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::softmax::CROSS_ENTROPY;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::Meaning;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, TensorInfo};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_loss = |id: &NodeId| graph.node(*id).op() == "SparseSoftmaxCrossEntropyWithLogits";
    let losses: Vec<NodeId> = order.iter().copied().filter(is_loss).collect();
    if losses.is_empty() {
        return Ok(());
    }
    let branches = Branches::of(graph, &order);
    for id in losses {
        match CrossEntropy::of(graph, &branches, id) {
            Ok(Some(found)) => found.replace(graph),
            Ok(None) => {}
            Err((neighbour, reason)) => graph.refuse("cross_entropy", [id, neighbour], reason),
        }
    }
    Ok(())
}

/// A cross entropy with the nodes around it.
#[derive(Clone)]
struct CrossEntropy {
    /// The op, and the nodes behind its gradient.
    members: Vec<NodeId>,
    logits: Output,
    labels: Output,
    scale: Option<Output>,
    /// The gradient that other nodes read.
    gradient: Output,
}

impl CrossEntropy {
    /// The cross entropy of a node; `None` if there is nothing to fuse with it.
    ///
    /// # Errors
    /// The node that cannot be part of it, and why.
    fn of(
        graph: &Graph,
        branches: &Branches,
        id: NodeId,
    ) -> Result<Option<Self>, (NodeId, Refusal)> {
        let node = graph.node(id);
        let &[given, labels] = node.inputs() else { return Ok(None) };
        if node.dtype("T") != Some(DType::F32) {
            return Ok(None);
        }
        graph.may_go(id).map_err(|reason| (id, reason))?;
        let mut found = Self {
            members: vec![id],
            logits: widened(graph, given).unwrap_or(given),
            labels,
            scale: None,
            gradient: Output { node: id, port: 1 },
        };
        let behind: [fn(&mut Self, &Graph); 2] = [Self::add_scale, Self::add_rounding];
        for add in behind {
            let mut more = found.clone();
            add(&mut more, graph);
            match more.check(graph, branches) {
                Ok(()) => found = more,
                Err((member, reason)) => graph.refuse("cross_entropy", [id, member], reason),
            }
        }
        let is_more = found.members.len() > 1 || found.logits != given;
        Ok(is_more.then_some(found))
    }

    /// Checks that one node can take the place of the members.
    fn check(&self, graph: &Graph, branches: &Branches) -> Result<(), (NodeId, Refusal)> {
        let [id, .., last] = self.members[..] else { return Ok(()) };
        let together = branches.run_together(last, id);
        graph
            .may_join(last, id)
            .and(together)
            .and(graph.is_one_node(&self.members))
            .map_err(|reason| (last, reason))
    }

    /// The only node that reads the gradient.
    fn reader(&self, graph: &Graph) -> Option<NodeId> {
        let mut readers = graph.readers_in_any_order(self.gradient);
        let (reader, _) = readers.next()?;
        readers.next().is_none().then_some(reader)
    }

    /// Adds the product of the gradient and a value for each row.
    fn add_scale(&mut self, graph: &Graph) {
        let Some(reader) = self.reader(graph) else { return };
        let node = graph.node(reader);
        let ("Mul", &[a, b]) = (node.op(), node.inputs()) else { return };
        let scale = if a == self.gradient { b } else { a };
        let product = Output { node: reader, port: 0 };
        let (of_scale, rows) = (graph.info(scale), graph.info(self.gradient));
        let is_column = match (of_scale.shape.as_deref(), rows.shape.as_deref()) {
            (Some([rows, Dim::Known(1)]), Some([all, _])) => rows == all && *rows != Dim::Unknown,
            _ => false,
        };
        if (is_column || of_scale.is_single()) && graph.info(product).same_shape(rows) {
            self.members.push(reader);
            self.scale = Some(scale);
            self.gradient = product;
        }
    }

    /// Adds the rounding of the gradient to the logits' type.
    fn add_rounding(&mut self, graph: &Graph) {
        let Some(reader) = self.reader(graph) else { return };
        let node = graph.node(reader);
        if rounds(node) && node.dtype("DstT").is_some_and(is_narrow) {
            self.members.push(reader);
            self.gradient = Output { node: reader, port: 0 };
        }
    }

    fn replace(&self, graph: &mut Graph) {
        let id = self.members[0];
        let loss = Output { node: id, port: 0 };
        let types = |output: Output| graph.info(output).dtype;
        let (Some(logits), Some(labels), Some(gradient)) =
            (types(self.logits), types(self.labels), types(self.gradient))
        else {
            return;
        };
        let scales: &[DType] = if self.scale.is_some() { &[DType::F32] } else { &[] };
        let attrs = vec![
            ("T", logits.into()),
            ("Tlabels", labels.into()),
            ("Tscale", scales.into()),
            ("Tbackprop", gradient.into()),
        ];
        let infos: Vec<TensorInfo> =
            [loss, self.gradient].iter().map(|output| graph.info(*output).clone()).collect();
        let inputs = [self.logits, self.labels].into_iter().chain(self.scale).collect();
        let given = graph.node(id).inputs()[0].node;
        let new = fused(graph, id, "fused_cross_entropy", CROSS_ENTROPY, inputs, attrs, infos);
        graph.replace_region(&self.members, new, &[(loss, 0), (self.gradient, 1)]);
        if is_dead(graph, given) {
            graph.remove(given);
        }
    }
}

/// The tensor of 16 bits from which a conversion makes the logits.
fn widened(graph: &Graph, logits: Output) -> Option<Output> {
    let node = graph.node(logits.node);
    let narrow = *node.inputs().first()?;
    let may_go = rounds(node) && graph.may_move(logits.node).is_ok();
    (may_go && node.dtype("SrcT").is_some_and(is_narrow)).then_some(narrow)
}

/// Whether a node is a conversion that rounds and drops no bits.
fn rounds(node: &Node) -> bool {
    node.op() == "Cast" && Meaning::of(node).scalar().is_some()
}

/// Whether a type is one in which models compute, with 16 bits.
const fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}
