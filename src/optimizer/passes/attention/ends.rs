//! Where an attention begins and ends: the tensors behind the transposes, scales and reshapes of
//! its operands, and the tensors that transposes and reshapes make of its result.

use super::cuts::{Cut, recut};
use super::labels::{Label, Labelled, constant_operand, permutation, through};
use crate::optimizer::graph::{Graph, NodeId, Output};

/// A tensor from which an operand may be read, and the factor between the two.
pub struct Stop {
    /// The tensor.
    pub at: Output,
    /// Its axes.
    pub labels: Vec<Label>,
    /// The factor by which the tensor is multiplied to give the operand.
    pub scale: f64,
    /// The nodes between the tensor and the operand.
    pub passed: Vec<NodeId>,
}

/// The tensors from which an operand may be read: the operand itself, or the tensors from which it
/// was transposed, scaled, and reshaped by `cuts`.
pub fn stops(graph: &Graph, cuts: &[Cut], (at, labels): &Labelled, may_scale: bool) -> Vec<Stop> {
    let mut out = vec![Stop { at: *at, labels: labels.clone(), scale: 1.0, passed: Vec::new() }];
    while let Some(stop) = out.last() {
        let node = graph.node(stop.at.node);
        if stop.at.port != 0 || !node.on_wgpu() || !node.controls().is_empty() {
            break;
        }
        let next = match node.op() {
            "Transpose" => through(graph, node.inputs()[1], &stop.labels)
                .map(|labels| (node.inputs()[0], labels, 1.0)),
            "Reshape" => recut(graph, cuts, (stop.at, &stop.labels), node.inputs()[0])
                .map(|labels| (node.inputs()[0], labels, 1.0)),
            "Mul" if may_scale => constant_operand(graph, node.inputs(), true)
                .map(|(x, by)| (x, stop.labels.clone(), by)),
            _ => None,
        };
        let Some((at, labels, by)) = next else { break };
        let passed = stop.passed.iter().copied().chain([stop.at.node]).collect();
        let scale = stop.scale * by;
        out.push(Stop { at, labels, scale, passed });
    }
    out
}

/// The tensors that may be the attention's result: the result of its last product, and the
/// tensors that transposes and, by `cuts`, reshapes make of it, each from the tensor before.
pub fn results(graph: &Graph, cuts: &[Cut], id: NodeId, labels: &[Label]) -> Vec<Labelled> {
    let mut out = vec![(Output { node: id, port: 0 }, labels.to_vec())];
    while let Some((at, labels)) = out.last() {
        let mut readers = graph.readers_in_any_order(*at);
        let (Some((reader, 0)), None) = (readers.next(), readers.next()) else { break };
        let node = graph.node(reader);
        if graph.may_go(reader).is_err() {
            break;
        }
        let after = Output { node: reader, port: 0 };
        let next = match node.op() {
            "Transpose" => permutation(graph, node.inputs()[1], labels.len())
                .map(|perm| perm.iter().map(|p| labels[*p]).collect()),
            "Reshape" => recut(graph, cuts, (*at, labels), after),
            _ => None,
        };
        let Some(next) = next else { break };
        out.push((after, next));
    }
    out
}
