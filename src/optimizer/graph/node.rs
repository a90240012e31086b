//! A node of a [`super::Graph`].

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::device_type::DeviceType;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::movement::slice::Masks;
use crate::optimizer::attr::Attr;
use crate::optimizer::shape::TensorInfo;
use crate::optimizer::wire;

/// A node's number in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(in crate::optimizer) u32);

impl NodeId {
    /// The index for tables by node, below [`Graph::capacity`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tensor: an output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Output {
    /// The node that produces the tensor.
    pub node: NodeId,
    /// The index of the output, with lists flattened.
    pub port: u32,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) name: Arc<str>,
    pub(super) op: Arc<str>,
    pub(super) device: Arc<str>,
    /// Whether the device is one of ours.
    pub(super) on_wgpu: bool,
    pub(super) inputs: Vec<Output>,
    pub(super) controls: Vec<NodeId>,
    /// The index of each of these edges in the users of its other end.
    pub(super) input_places: Vec<u32>,
    pub(super) control_places: Vec<u32>,
    /// Decoded from `original` on first access: most nodes' attributes are never needed.
    pub(super) attrs: OnceCell<BTreeMap<String, Attr>>,
    /// The known types and shapes of the outputs.
    pub(in crate::optimizer) infos: Vec<TensorInfo>,
    /// The encoded node, until it changes.
    pub(super) original: Option<Bytes>,
    /// Fields beyond name, op, inputs, device and attributes.
    pub(super) rest: Vec<Bytes>,
}

impl Node {
    /// The node's unique name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's op.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// The known types and shapes of the node's outputs.
    pub fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    /// The device on which the node is placed, as in
    /// `/job:localhost/replica:0/task:0/device:WGPU:0`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The op and the device, shared instead of copied.
    pub(in crate::optimizer) fn shared_texts(&self) -> (Arc<str>, Arc<str>) {
        (self.op.clone(), self.device.clone())
    }

    /// The data inputs, with lists flattened.
    pub fn inputs(&self) -> &[Output] {
        &self.inputs
    }

    /// The control inputs: nodes that run before this one without giving it data.
    pub fn controls(&self) -> &[NodeId] {
        &self.controls
    }

    /// The masks of a `StridedSlice`.
    pub fn slice_masks(&self) -> Masks {
        let mask = |name: &str| self.attr(name).and_then(Attr::int).unwrap_or(0);
        Masks {
            begin: mask("begin_mask"),
            end: mask("end_mask"),
            ellipsis: mask("ellipsis_mask"),
            new_axis: mask("new_axis_mask"),
            shrink_axis: mask("shrink_axis_mask"),
        }
    }

    /// An attribute.
    pub fn attr(&self, name: &str) -> Option<&Attr> {
        self.attrs().get(name)
    }

    /// All attributes by name.
    pub fn attrs(&self) -> &BTreeMap<String, Attr> {
        self.attrs.get_or_init(|| {
            self.original.as_ref().map(|bytes| parse_attrs(bytes, &self.op)).unwrap_or_default()
        })
    }

    /// All attributes by name, for changes.
    pub(super) fn attrs_mut(&mut self) -> &mut BTreeMap<String, Attr> {
        self.attrs();
        self.attrs.get_mut().expect("just read")
    }

    /// The node's encoding, if the node has not changed since it was read.
    pub const fn original(&self) -> Option<&Bytes> {
        self.original.as_ref()
    }

    /// The attribute `name`, if it is one of our types.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.attr(name)?.dtype()
    }

    /// Whether the node is placed on one of our devices.
    pub const fn on_wgpu(&self) -> bool {
        self.on_wgpu
    }

    /// Whether the node's op is one that the optimizer makes.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.op)
    }

    /// The node as a NodeDef.
    pub(super) fn encode(&self, nodes: &[Option<Self>]) -> Vec<u8> {
        let name = |id: NodeId| nodes[id.index()].as_ref().map_or("", |n| n.name());
        let mut out = Vec::new();
        wire::put(&mut out, 1, self.name.as_bytes());
        wire::put(&mut out, 2, self.op.as_bytes());
        for input in &self.inputs {
            let text = match input.port {
                0 => name(input.node).to_owned(),
                port => format!("{}:{port}", name(input.node)),
            };
            wire::put(&mut out, 3, text.as_bytes());
        }
        for control in &self.controls {
            wire::put(&mut out, 3, format!("^{}", name(*control)).as_bytes());
        }
        if !self.device.is_empty() {
            wire::put(&mut out, 4, self.device.as_bytes());
        }
        let annotations = self.annotations();
        let annotations = annotations.iter().flatten().map(|(key, value)| (*key, value));
        for (key, value) in
            self.attrs().iter().map(|(key, value)| (key.as_str(), value)).chain(annotations)
        {
            let mut entry = Vec::new();
            wire::put(&mut entry, 1, key.as_bytes());
            wire::put(&mut entry, 2, value.raw());
            wire::put(&mut out, 5, &entry);
        }
        self.rest.iter().for_each(|r| out.extend_from_slice(r));
        out
    }
}

impl Node {
    /// The attributes that give TensorFlow the shapes of the outputs, if all are known.
    fn annotations(&self) -> Option<[(&'static str, Attr); 2]> {
        let shapes = self.infos.iter().map(TensorInfo::dims).collect::<Option<Vec<_>>>()?;
        let told = is_ours(&self.op) && !shapes.is_empty();
        told.then(|| {
            [(ANNOTATIONS[0], Attr::from(&shapes[..])), (ANNOTATIONS[1], Attr::from(true))]
        })
    }
}

/// Attributes from which TensorFlow's shape inference takes shapes that an op's shape function
/// cannot find: ours see neither lists of numbers nor the values of other nodes. They are written
/// anew with each node, so they are kept out of [`Node::attrs`].
const ANNOTATIONS: [&str; 2] = ["_output_shape_vector", "_same_output_for_iterations"];

/// Whether the op is one that the optimizer makes.
fn is_ours(op: &str) -> bool {
    op.starts_with("_Wgpu")
}

/// The device type in a device's name: `WGPU` in `/job:localhost/replica:0/task:0/device:WGPU:0`.
pub fn device_type(device: &str) -> Option<&str> {
    let last = device.rsplit('/').next()?;
    let (kind, _) = last.strip_prefix("device:")?.split_once(':')?;
    Some(kind)
}

/// Whether a device's name is that of one of our devices, which have the type `ours`.
pub(super) fn is_wgpu(device: &str, ours: DeviceType) -> bool {
    device_type(device) == Some(ours.name())
}

/// A node for [`Graph::add`].
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    /// The wished name; a suffix makes it unique.
    pub name: String,
    /// The node's op.
    pub op: String,
    /// The node's device.
    pub device: String,
    /// The node's data inputs.
    pub inputs: Vec<Output>,
    /// The node's control inputs.
    pub controls: Vec<NodeId>,
    /// The node's attributes.
    pub attrs: Vec<(&'static str, Attr)>,
    /// The types and shapes of the node's outputs.
    pub infos: Vec<TensorInfo>,
}

/// Texts that many nodes of a graph share: ops and devices.
#[derive(Default)]
pub(super) struct Texts<'g>(FxHashMap<&'g str, Arc<str>>);

impl<'g> Texts<'g> {
    fn get(&mut self, text: &'g str) -> Arc<str> {
        self.0.entry(text).or_insert_with(|| text.into()).clone()
    }
}

/// Reads a node, without edges, from a part of `graph`. Passes the texts of its inputs to `input`.
pub(super) fn parse_node<'g>(
    graph: &'g Bytes,
    part: &'g [u8],
    ours: DeviceType,
    texts: &mut Texts<'g>,
    mut input: impl FnMut(&'g str),
) -> Result<Node> {
    let (mut name, mut op, mut device) = ("", "", "");
    let mut rest = Vec::new();
    for part in wire::records(part) {
        let part = part?;
        match part.field {
            1 => name = wire::text(&part)?,
            2 => op = wire::text(&part)?,
            3 => input(wire::text(&part)?),
            4 => device = wire::text(&part)?,
            // Only checked, so that decoding it later cannot fail.
            5 => {
                wire::entry(&part)?;
            }
            _ => rest.push(graph.slice_ref(part.bytes)),
        }
    }
    Ok(Node {
        name: name.into(),
        op: texts.get(op),
        device: texts.get(device),
        on_wgpu: is_wgpu(device, ours),
        inputs: Vec::new(),
        controls: Vec::new(),
        input_places: Vec::new(),
        control_places: Vec::new(),
        attrs: OnceCell::new(),
        infos: Vec::new(),
        rest,
        original: Some(graph.slice_ref(part)),
    })
}

/// The attributes of a NodeDef that [`parse_node`] has checked.
fn parse_attrs(bytes: &Bytes, op: &str) -> BTreeMap<String, Attr> {
    let parts = wire::records(bytes).filter_map(Result::ok).filter(|part| part.field == 5);
    let entries = parts.filter_map(|part| wire::entry(&part).ok());
    entries
        .filter(|(name, _)| !is_ours(op) || !ANNOTATIONS.contains(name))
        .map(|(name, value)| (name.to_owned(), Attr::encoded(bytes.slice_ref(value))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::graph::Graph;

    /// The names of a node's attributes as they are written for TensorFlow.
    fn written(graph: &Graph, name: &str) -> Vec<String> {
        let bytes = graph.to_bytes();
        let mut found = None;
        for record in wire::records(&bytes).map(Result::unwrap).filter(|r| r.field == 1) {
            let parts: Vec<_> = wire::records(record.value).map(Result::unwrap).collect();
            if parts.iter().any(|p| p.field == 1 && wire::text(p).unwrap() == name) {
                let entries = parts
                    .iter()
                    .filter(|p| p.field == 5)
                    .map(|p| wire::entry(p).unwrap().0.to_owned());
                found = Some(entries.collect());
            }
        }
        found.expect("the node is there")
    }

    #[test]
    fn a_node_of_ours_tells_its_shapes_as_long_as_they_are_known() {
        let text = "x = Placeholder -> float32[4]\na = _WgpuFusedReduce(x) -> float32[1], \
                    float32[1]\nb = _WgpuFusedReduce(x) -> float32[1], float32[?]\nc = Sum(x) -> \
                    float32[]";
        let mut graph = Graph::from_text(text).unwrap();
        let ids = ["a", "b", "c"].map(|name| graph.find(name).unwrap());
        ids.iter().for_each(|id| graph.set_attr(*id, "whole", true));
        assert_eq!(written(&graph, "a"), ["whole", ANNOTATIONS[0], ANNOTATIONS[1]]);
        assert_eq!(written(&graph, "b"), ["whole"]);
        assert_eq!(written(&graph, "c"), ["whole"]);
        // In a graph that is read again, only TensorFlow sees the annotations. A change of the node
        // drops them, for the shapes are not known there.
        let mut again = Graph::parse(&graph.to_bytes().into()).unwrap();
        assert_eq!(again.to_bytes(), graph.to_bytes());
        let a = again.find("a").unwrap();
        assert_eq!(again.node(a).attrs().keys().collect::<Vec<_>>(), ["whole"]);
        again.set_attr(a, "whole", false);
        assert_eq!(written(&again, "a"), ["whole"]);
    }
}
