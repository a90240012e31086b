//! A serialized GraphDef through the whole optimizer, as TensorFlow calls it: twice. Any bytes are
//! an error or a graph.
#![no_main]

use std::collections::HashMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tensorflow_wgpu::DType;
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::memory::Memory;
use tensorflow_wgpu::optimizer::proto::attr_value::Value;
use tensorflow_wgpu::optimizer::proto::{GraphDef, NodeDef, OpDef};
use tensorflow_wgpu::optimizer::settings::Settings;
use tensorflow_wgpu::optimizer::shape::{Dim, TensorInfo};
use tensorflow_wgpu::optimizer::{Item, optimize};
use tensorflow_wgpu::{Error, Result};

/// Nodes above this count only make the fuzzer slow.
const MAX_NODES: usize = 2000;

/// What the graph's own attributes say: `_output_shapes`, which TensorFlow adds on request, and the
/// first type.
struct Attributes {
    infos: HashMap<String, Vec<TensorInfo>>,
    inputs: HashMap<String, Vec<TensorInfo>>,
    preserved: Vec<String>,
}

impl Attributes {
    fn of(def: &GraphDef) -> Self {
        let infos: HashMap<String, Vec<TensorInfo>> =
            def.node.iter().map(|n| (n.name.clone(), outputs(n))).collect();
        let input = |text: &String| {
            let (name, port) = text.rsplit_once(':').unwrap_or((text, "0"));
            let port: usize = port.parse().unwrap_or(0);
            infos.get(name).and_then(|infos| infos.get(port)).cloned().unwrap_or_default()
        };
        let data =
            |n: &NodeDef| n.input.iter().filter(|i| !i.starts_with('^')).map(input).collect();
        let inputs = def.node.iter().map(|n| (n.name.clone(), data(n))).collect();
        // Nodes that nobody reads are what a caller fetches.
        let read = |name: &str| {
            let names = |i: &String| i.trim_start_matches('^').split(':').next() == Some(name);
            def.node.iter().any(|n| n.input.iter().any(names))
        };
        let preserved =
            def.node.iter().filter(|n| !read(&n.name)).map(|n| n.name.clone()).collect();
        Self { infos, inputs, preserved }
    }
}

/// Types and shapes that a node's attributes name.
fn outputs(node: &NodeDef) -> Vec<TensorInfo> {
    let of = |name: &str| node.attr.get(name).and_then(|a| a.value.as_ref());
    let dtype = ["dtype", "DstT", "out_type", "T"].iter().find_map(|name| match of(name) {
        Some(Value::Type(t)) => Some(DType::from_tf(*t)),
        _ => None,
    });
    let Some(Value::List(list)) = of("_output_shapes") else { return Vec::new() };
    let dim = |size: i64| usize::try_from(size).map_or(Dim::Unknown, Dim::Known);
    let shapes = list
        .shape
        .iter()
        .map(|s| (!s.unknown_rank).then(|| s.dim.iter().map(|d| dim(d.size)).collect()));
    shapes.map(|shape| TensorInfo { dtype: dtype.flatten(), shape }).collect()
}

impl Item for Attributes {
    fn preserved(&self) -> Result<Vec<String>> {
        Ok(self.preserved.clone())
    }

    fn infer(&self, _annotated: bool) -> Result<()> {
        Ok(())
    }

    fn infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        Ok(self.infos.get(name).cloned().unwrap_or_default())
    }

    fn input_infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        Ok(self.inputs.get(name).cloned().unwrap_or_default())
    }

    fn op_def(&self, _op: &str) -> Result<Option<OpDef>> {
        Ok(None)
    }
}

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    // Two readers of one format: what ours takes, prost takes too.
    let ours = Graph::parse(&bytes);
    let Ok(def) = GraphDef::decode(data) else {
        return;
    };
    if def.node.len() > MAX_NODES {
        return;
    }
    if let Ok(graph) = &ours {
        let written =
            GraphDef::decode(graph.to_bytes().as_slice()).expect("a GraphDef that was only read");
        assert_eq!(written.node, def.node, "reading and writing changed the nodes");
    }
    let (settings, memory, item) = (Settings::parse("").0, Memory::default(), Attributes::of(&def));
    let once = match optimize(&bytes, &item, &settings, &memory) {
        Ok(Some(once)) => once,
        Ok(None) | Err(Error::InvalidArgument(_) | Error::Internal(_)) => return,
        Err(e) => panic!("an error that says nothing of the graph: {e}"),
    };
    let def = GraphDef::decode(once.as_slice()).expect("what the optimizer writes is a GraphDef");
    let graph = Graph::parse(&Bytes::from(once.clone()))
        .expect("what the optimizer writes has edges between its nodes");
    for name in &item.preserved {
        assert!(graph.find(name).is_some(), "{name} is lost");
    }
    let _ = optimize(&Bytes::from(once), &Attributes::of(&def), &settings, &memory);
});
