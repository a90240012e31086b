//! Rows of a matrix of codes, as an embedding takes them. Keras unpacks the codes of all rows
//! first; here the bytes of the rows are taken, and their codes are unpacked afterwards.

use super::{PASS, Walk};
use crate::dtype::DType;
use crate::kernels::contract::weights::CodePacking;
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::passes::reshape::reshape;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, Shape, TensorInfo};
use crate::tensor::HostTensor;

/// A lookup in codes of which a byte holds two neighbouring columns.
pub struct Lookup {
    /// The bytes, and the nodes between them and the lookup.
    codes: Output,
    pub passed: Vec<NodeId>,
    /// The extents of the lookup's result, and the type of the codes.
    shape: Shape,
    dtype: DType,
}

impl Lookup {
    /// The lookup that a node is.
    pub fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let ([params, _, axis], true) = (node.inputs(), graph.may_move(id).is_ok()) else {
            return None;
        };
        let of_rows = node.op() == "GatherV2"
            && node.attr("batch_dims").and_then(Attr::int).unwrap_or(0) == 0
            && graph.constant(*axis)?.to_i64().ok()? == [0];
        let mut walk = Walk::new(graph, id);
        let codes = of_rows.then(|| walk.codes(*params)).flatten()?;
        // Bytes that hold one code each are taken as they are.
        (codes.packing != CodePacking::Bytes).then_some(())?;
        let dtype = graph.info(codes.codes).dtype?;
        let shape = graph.info(Output { node: id, port: 0 }).shape.clone()?;
        let unknown = shape.iter().filter(|extent| extent.known().is_none()).count();
        let is_packed = codes.packing == CodePacking::Columns && !codes.is_transposed;
        let is_packed = is_packed && codes.extents[1].is_multiple_of(2);
        let legal = check(is_packed, Refusal::Operand)
            .and_then(|()| check(unknown <= 1, Refusal::OtherShape));
        graph.ask(PASS, [id, params.node], legal)?;
        Some(Self { codes: codes.codes, passed: walk.unused(), shape, dtype })
    }

    /// Takes rows of bytes. Shifts to both sides leave the codes, with their sign if they have one.
    pub fn replace(&self, graph: &mut Graph, id: NodeId) {
        let Self { codes, shape, dtype, .. } = self;
        let (node, dtype) = (graph.node(id), *dtype);
        let (device, name) = (node.device().to_owned(), node.name().to_owned());
        let own = |name| Some((name, node.attr(name)?.clone()));
        let attrs = ["Taxis", "Tindices", "Tparams", "batch_dims"].into_iter().filter_map(own);
        let (attrs, inputs) = (attrs.collect(), [&[*codes], &node.inputs()[1..]].concat());
        let (last, lead) = shape.split_last().expect("a lookup in a matrix has columns");
        let half = last.known().map_or(Dim::Unknown, |columns| Dim::Known(columns / 2));
        let info = |ends: &[Dim]| {
            let shape = lead.iter().chain(ends).copied().collect();
            vec![TensorInfo { dtype: Some(dtype), shape: Some(shape) }]
        };
        let add = |graph: &mut Graph, suffix, op, inputs, attrs, ends: &[Dim]| {
            let new = fused(graph, id, suffix, op, inputs, attrs, info(ends));
            Output { node: graph.add(new), port: 0 }
        };
        let bytes = add(graph, "codes", "GatherV2", inputs, attrs, &[half]);
        let constant = |graph: &mut Graph, suffix, value: &HostTensor| {
            graph.add_constant(format!("{name}/{suffix}"), &device, value, bytes)
        };
        let axis = constant(graph, "axis", &HostTensor::i32(&[], &[-1]));
        let shifts = constant(graph, "shifts", &HostTensor::of(dtype, &[2], &[4u8, 0]));
        let four = constant(graph, "four", &HostTensor::of(dtype, &[], &[4u8]));
        let (one, two) = (Dim::Known(1), Dim::Known(2));
        let of_axis = vec![("T", dtype.into()), ("Tdim", DType::I32.into())];
        let pairs = add(graph, "pairs", "ExpandDims", vec![bytes, axis], of_axis, &[half, one]);
        let of = || vec![("T", dtype.into())];
        let high = add(graph, "high", "LeftShift", vec![pairs, shifts], of(), &[half, two]);
        let low = add(graph, "low", "RightShift", vec![high, four], of(), &[half, two]);
        let dims: Vec<Option<usize>> = shape.iter().map(|extent| extent.known()).collect();
        let Some(rows) = reshape(graph, &format!("{name}/rows"), low, &dims) else { return };
        graph.set_infos(rows.node, graph.node(id).infos().to_vec());
        graph.replace_readers(Output { node: id, port: 0 }, rows);
        graph.replace_waiters(id, rows.node);
    }
}
