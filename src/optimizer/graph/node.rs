//! A node of a [`super::Graph`].

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::device_type::DeviceType;
use crate::dtype::DType;
use crate::error::Result;
use crate::optimizer::attr::Attr;
use crate::optimizer::shape::TensorInfo;
use crate::optimizer::wire;

/// A node's number in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(in crate::optimizer) u32);

impl NodeId {
    /// For tables by node: all numbers are below [`Graph::capacity`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tensor: an output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Output {
    /// Who makes it.
    pub node: NodeId,
    /// Which of its outputs, lists flattened.
    pub port: u32,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) name: Arc<str>,
    pub(super) op: Arc<str>,
    pub(super) device: Arc<str>,
    /// Whether that is one of ours.
    pub(super) on_wgpu: bool,
    pub(super) inputs: Vec<Output>,
    pub(super) controls: Vec<NodeId>,
    /// Where each of these edges is among the users of its other end.
    pub(super) input_places: Vec<u32>,
    pub(super) control_places: Vec<u32>,
    /// Read from `original` when somebody asks: nobody does for most nodes.
    pub(super) attrs: OnceCell<BTreeMap<String, Attr>>,
    /// Types and shapes of the outputs, as far as they are known.
    pub(in crate::optimizer) infos: Vec<TensorInfo>,
    /// The node as it came, until it changes.
    pub(super) original: Option<Bytes>,
    /// Fields beyond name, op, inputs, device and attributes.
    pub(super) rest: Vec<Bytes>,
}

impl Node {
    /// Its unique name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its op.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Types and shapes of its outputs, as far as they are known.
    pub fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    /// The device that it was placed on, as in `/job:localhost/replica:0/task:0/device:WGPU:0`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Op and device, without a copy.
    pub(in crate::optimizer) fn shared_texts(&self) -> (Arc<str>, Arc<str>) {
        (self.op.clone(), self.device.clone())
    }

    /// Its data inputs, lists flattened.
    pub fn inputs(&self) -> &[Output] {
        &self.inputs
    }

    /// The nodes that run before it without giving it data.
    pub fn controls(&self) -> &[NodeId] {
        &self.controls
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

    /// The same, to be changed.
    pub(super) fn attrs_mut(&mut self) -> &mut BTreeMap<String, Attr> {
        self.attrs();
        self.attrs.get_mut().expect("just read")
    }

    /// The bytes that it came in, if it did not change since.
    pub const fn original(&self) -> Option<&Bytes> {
        self.original.as_ref()
    }

    /// The attribute `name`, a type of ours.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.attr(name)?.dtype()
    }

    /// Whether it was placed on one of our devices.
    pub const fn on_wgpu(&self) -> bool {
        self.on_wgpu
    }

    /// Whether its op is one that the optimizer makes.
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
    /// What tells TensorFlow the shapes of outputs, where all of them are known.
    fn annotations(&self) -> Option<[(&'static str, Attr); 2]> {
        let shapes = self.infos.iter().map(TensorInfo::dims).collect::<Option<Vec<_>>>()?;
        let told = is_ours(&self.op) && !shapes.is_empty();
        told.then(|| {
            [(ANNOTATIONS[0], Attr::from(&shapes[..])), (ANNOTATIONS[1], Attr::from(true))]
        })
    }
}

/// Attributes from which TensorFlow's shape inference takes what an op's shape function cannot say:
/// ours don't see lists of numbers and other nodes' values. A node that is written has them anew,
/// so they are kept out of [`Node::attrs`].
const ANNOTATIONS: [&str; 2] = ["_output_shape_vector", "_same_output_for_iterations"];

/// Whether the op is one that the optimizer makes.
fn is_ours(op: &str) -> bool {
    op.starts_with("_Wgpu")
}

/// The device type in a device's name: `WGPU` of `/job:localhost/replica:0/task:0/device:WGPU:0`.
pub fn device_type(device: &str) -> Option<&str> {
    let last = device.rsplit('/').next()?;
    let (kind, _) = last.strip_prefix("device:")?.split_once(':')?;
    Some(kind)
}

/// Whether a device's name is one of ours, which have this type.
pub(super) fn is_wgpu(device: &str, ours: DeviceType) -> bool {
    device_type(device) == Some(ours.name())
}

/// A node to be added, see [`Graph::add`].
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    /// The wished name; a suffix makes it unique.
    pub name: String,
    /// Its op.
    pub op: String,
    /// Its device.
    pub device: String,
    /// Its data inputs.
    pub inputs: Vec<Output>,
    /// Its control inputs.
    pub controls: Vec<NodeId>,
    /// Its attributes.
    pub attrs: Vec<(&'static str, Attr)>,
    /// Types and shapes of its outputs.
    pub infos: Vec<TensorInfo>,
}

/// Texts that many nodes of a graph have in common: ops and devices.
#[derive(Default)]
pub(super) struct Texts<'g>(FxHashMap<&'g str, Arc<str>>);

impl<'g> Texts<'g> {
    fn get(&mut self, text: &'g str) -> Arc<str> {
        self.0.entry(text).or_insert_with(|| text.into()).clone()
    }
}

/// A node without edges, from a part of `graph`. Hands its inputs' texts to `input`.
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
            // Only looked at, so that nothing can go wrong when they are read.
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

/// The attributes of a NodeDef that [`parse_node`] has seen.
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

    /// The names of a node's attributes as TensorFlow gets them.
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
        // Read again, it has them for nobody but TensorFlow, and loses them with what they tell.
        let mut again = Graph::parse(&graph.to_bytes().into()).unwrap();
        assert_eq!(again.to_bytes(), graph.to_bytes());
        let a = again.find("a").unwrap();
        assert_eq!(again.node(a).attrs().keys().collect::<Vec<_>>(), ["whole"]);
        again.set_attr(a, "whole", false);
        assert_eq!(written(&again, "a"), ["whole"]);
    }
}
