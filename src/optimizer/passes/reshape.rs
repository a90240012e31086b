//! Reshapes that passes add to a graph.

use crate::dtype::DType;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};
use crate::tensor::HostTensor;

/// A `Reshape` of `tensor` with the name `name`, on the same device. At most one extent may be
/// unknown, and then no other may be 0. `None` for extents beyond int32, and for unknown types.
pub fn reshape(
    graph: &mut Graph,
    name: &str,
    tensor: Output,
    dims: &[Option<usize>],
) -> Option<Output> {
    let node = graph.node(tensor.node);
    let (device, info) = (node.device().to_owned(), graph.info(tensor));
    let dtype = info.dtype?;
    let extents = dims
        .iter()
        .map(|d| d.map_or(Some(-1), |extent| i32::try_from(extent).ok()))
        .collect::<Option<Vec<i32>>>()?;
    let shape = HostTensor::i32(&[extents.len()], &extents);
    let shape = graph.add_constant(format!("{name}/shape"), &device, &shape, tensor);
    let dims: Shape = dims.iter().map(|d| d.map_or(Dim::Unknown, Dim::Known)).collect();
    let node = graph.add(NewNode {
        name: name.to_owned(),
        op: "Reshape".to_owned(),
        device,
        inputs: vec![tensor, shape],
        controls: Vec::new(),
        attrs: vec![("T", dtype.into()), ("Tshape", DType::I32.into())],
        infos: vec![TensorInfo { dtype: Some(dtype), shape: Some(dims) }],
    });
    Some(Output { node, port: 0 })
}

/// A `Squeeze` of the axis `axis` of `tensor`, with the name `name`, on the same device. The tensor
/// must have a known type and rank.
pub fn squeeze(graph: &mut Graph, name: &str, tensor: Output, axis: usize) -> Output {
    let info = graph.info(tensor).clone();
    let shape = info.shape.map(|mut shape| {
        shape.remove(axis);
        shape
    });
    let new = NewNode {
        name: name.to_owned(),
        op: "Squeeze".to_owned(),
        device: graph.node(tensor.node).device().to_owned(),
        inputs: vec![tensor],
        controls: Vec::new(),
        attrs: info
            .dtype
            .map(|dtype| ("T", dtype.into()))
            .into_iter()
            .chain([("squeeze_dims", [axis as i64][..].into())])
            .collect(),
        infos: vec![TensorInfo { dtype: info.dtype, shape }],
    };
    Output { node: graph.add(new), port: 0 }
}

/// Reshapes the sums of columns, which are a vector, to the extents that their readers expect.
pub fn give_extents(graph: &mut Graph, tensor: Output, dims: &[usize]) {
    let readers: Vec<_> = graph.readers(tensor).collect();
    if readers.is_empty() || graph.info(tensor).rank() == Some(dims.len()) {
        return;
    }
    let name = format!("{}/sums", graph.node(tensor.node).name());
    let dims: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
    let Some(shaped) = reshape(graph, &name, tensor, &dims) else { return };
    for (reader, index) in readers {
        graph.set_input(reader, index, shaped);
    }
}

/// The attributes of reshapes, besides the type.
const ATTRIBUTES: [&str; 3] = ["Tdim", "Tshape", "squeeze_dims"];

/// A copy of the reshape `view` with the name `name`, for a tensor like its input. `info` describes
/// the result.
pub fn again(graph: &Graph, name: &str, view: NodeId, tensor: Output, info: TensorInfo) -> NewNode {
    let node = graph.node(view);
    let own = ATTRIBUTES.into_iter().filter_map(|name| Some((name, node.attr(name)?.clone())));
    let dtype = info.dtype.map(|dtype| ("T", dtype.into()));
    NewNode {
        name: name.to_owned(),
        op: node.op().to_owned(),
        device: node.device().to_owned(),
        inputs: std::iter::once(tensor).chain(node.inputs()[1..].iter().copied()).collect(),
        controls: Vec::new(),
        attrs: own.chain(dtype).collect(),
        infos: vec![info],
    }
}
