//! Nodes that compute with int32 values between the device and the device.
//!
//! TensorFlow's kernels compute with int32 in host memory, where shapes and counters are. Indices
//! are int32, too: a `Cast` or an `ArgMax` makes them on the device, and a gather reads them there.
//! Keras compares and adds in between, so each step would wait for the device, compute on the host
//! and copy the result back. A fused op computes such values where they are.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::kernels::fused::arg;
use crate::kernels::fused::elementwise::OP;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::meaning::Meaning;
use crate::optimizer::passes::predicates::DECISIONS;

/// Ops that make int32 on the device, by the attribute of the result's type.
const MAKERS: &[(&str, &str)] = &[
    ("ArgMax", "output_type"),
    ("ArgMin", "output_type"),
    ("Bitcast", "type"),
    ("Cast", "DstT"),
    ("GatherV2", "Tparams"),
    ("Multinomial", "output_dtype"),
    ("StatelessMultinomial", "output_dtype"),
    ("XlaDynamicSlice", "T"),
    ("XlaDynamicUpdateSlice", "T"),
    (arg::OP, "output_type"),
];

/// Ops that compute with int32.
const COMPUTED: &[&str] = &[
    "Abs",
    "AddV2",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Equal",
    "FloorMod",
    "Greater",
    "GreaterEqual",
    "Invert",
    "LeftShift",
    "Less",
    "LessEqual",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "NotEqual",
    "RightShift",
    "SelectV2",
    "Sign",
    "Square",
    "SquaredDifference",
    "Sub",
];

/// Ops that read indices on the device, and the input that holds them.
const READERS: &[(&str, usize)] = &[
    ("Bitcast", 0),
    ("Cast", 0),
    ("DenseBincount", 0),
    ("Gather", 1),
    ("GatherNd", 1),
    ("GatherV2", 1),
    ("InTopKV2", 1),
    ("OneHot", 0),
    ("ResourceGather", 1),
    ("ResourceGatherNd", 1),
    ("ResourceScatterAdd", 1),
    ("ResourceScatterDiv", 1),
    ("ResourceScatterMax", 1),
    ("ResourceScatterMin", 1),
    ("ResourceScatterMul", 1),
    ("ResourceScatterNdAdd", 1),
    ("ResourceScatterNdMax", 1),
    ("ResourceScatterNdMin", 1),
    ("ResourceScatterNdSub", 1),
    ("ResourceScatterNdUpdate", 1),
    ("ResourceScatterSub", 1),
    ("ResourceScatterUpdate", 1),
    ("ScatterNd", 0),
    ("ScatterNdNonAliasingAdd", 1),
    ("SegmentMax", 1),
    ("SegmentMean", 1),
    ("SegmentMin", 1),
    ("SegmentProd", 1),
    ("SegmentSum", 1),
    ("SparseSoftmaxCrossEntropyWithLogits", 1),
    ("TensorScatterAdd", 1),
    ("TensorScatterMax", 1),
    ("TensorScatterMin", 1),
    ("TensorScatterSub", 1),
    ("TensorScatterUpdate", 1),
    ("UnsortedSegmentMax", 1),
    ("UnsortedSegmentMin", 1),
    ("UnsortedSegmentProd", 1),
    ("UnsortedSegmentSum", 1),
    ("XlaDynamicUpdateSlice", 1),
];

/// The int32 values that nodes make on the device.
pub fn made_on_device(graph: &Graph, order: &[NodeId]) -> FxHashSet<Output> {
    made(graph, order).0
}

/// The int32 values that nodes make on the device, and the nodes that compute with them.
fn made(graph: &Graph, order: &[NodeId]) -> (FxHashSet<Output>, Vec<NodeId>) {
    let mut there: FxHashSet<Output> = FxHashSet::default();
    let mut candidates: Vec<NodeId> = Vec::new();
    for id in order.iter().copied() {
        let node = graph.node(id);
        if !node.on_wgpu() {
            continue;
        }
        let output = Output { node: id, port: 0 };
        let computes = reads_integers(node) && {
            let integers = || node.inputs().iter().filter(|input| is_int32(graph, **input));
            integers().any(|input| there.contains(input))
                && integers().all(|input| there.contains(input) || is_constant(graph, *input))
        };
        if computes || matches!(node.op(), "Bitcast" | "Cast") && makes(node) {
            candidates.push(id);
        }
        if node.op() == OP {
            let ports = (0..).zip(node.infos()).filter(|(_, info)| info.dtype == Some(DType::I32));
            there.extend(ports.map(|(port, _)| Output { node: id, port }));
        } else if makes(node) || computes && is_int32(graph, output) {
            there.insert(output);
        }
    }
    (there, candidates)
}

/// The nodes that compute with int32 values of the device, and whose results are needed there.
pub fn on_device(graph: &Graph, order: &[NodeId]) -> FxHashSet<NodeId> {
    let candidates = made(graph, order).1;
    let mut wanted: FxHashSet<NodeId> = FxHashSet::default();
    for id in candidates.into_iter().rev().filter(|id| !graph.is_preserved(*id)) {
        let output = Output { node: id, port: 0 };
        let is_index = is_int32(graph, output);
        let mut computes = !is_index || reads_integers(graph.node(id));
        let fits = graph.is_read(id)
            && graph.readers_in_any_order(output).all(|(reader, index)| {
                let (node, place) = (graph.node(reader), (graph.node(reader).op(), index));
                computes |= wanted.contains(&reader);
                node.on_wgpu()
                    && if is_index {
                        wanted.contains(&reader) || READERS.contains(&place)
                    } else {
                        !DECISIONS.contains(&place)
                    }
            });
        // A cast or bitcast that no such node reads is an op of its own.
        if fits && computes {
            wanted.insert(id);
        }
    }
    wanted
}

fn is_int32(graph: &Graph, tensor: Output) -> bool {
    graph.info(tensor).dtype == Some(DType::I32)
}

fn is_constant(graph: &Graph, tensor: Output) -> bool {
    matches!(Meaning::of(graph.node(tensor.node)), Meaning::Constant)
}

/// Whether a node computes elements from elements of int32.
fn reads_integers(node: &Node) -> bool {
    node.dtype("T") == Some(DType::I32) && COMPUTED.contains(&node.op())
}

/// Whether a node makes int32 on the device from other types.
fn makes(node: &Node) -> bool {
    let is_int32 = |attr| node.dtype(attr) == Some(DType::I32);
    MAKERS.iter().any(|(op, attr)| *op == node.op() && is_int32(attr)) && !is_int32("SrcT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Profile;
    use crate::kernels::expression::Call;
    use crate::kernels::registry::{Registration, Registry};

    #[test]
    fn every_reader_has_a_kernel_for_int32() {
        let registry = Registry::new(Profile::NVIDIA.capabilities);
        for (op, _) in READERS {
            let reads = |row: &Registration| {
                row.op == *op && row.types.iter().any(|(_, dtype)| *dtype == DType::I32)
            };
            assert!(registry.rows().iter().any(reads), "{op}");
        }
    }

    #[test]
    fn every_op_has_a_function_of_int32() {
        for op in COMPUTED {
            assert!(Call::row(op, DType::I32).is_some(), "{op}");
        }
    }
}
