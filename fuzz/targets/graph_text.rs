//! A graph in the optimizer's text format, which says types and shapes, through the whole
//! optimizer: what is fetched stays, and no cycle comes of a graph that has none.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::memory::Memory;
use tensorflow_wgpu::optimizer::proto::OpDef;
use tensorflow_wgpu::optimizer::settings::Settings;
use tensorflow_wgpu::optimizer::shape::TensorInfo;
use tensorflow_wgpu::optimizer::{Item, optimize};
use tensorflow_wgpu::{Error, Result};

/// Nodes above this count only make the fuzzer slow.
const MAX_NODES: usize = 2000;

/// What the text says.
struct Text(Graph);

impl Item for Text {
    fn preserved(&self) -> Result<Vec<String>> {
        Ok(self.0.preserved().iter().cloned().collect())
    }

    fn infer(&self, _annotated: bool) -> Result<()> {
        Ok(())
    }

    fn infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        Ok(self.0.find(name).map(|id| self.0.node(id).infos().to_vec()).unwrap_or_default())
    }

    fn input_infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        let Some(id) = self.0.find(name) else { return Ok(Vec::new()) };
        Ok(self.0.node(id).inputs().iter().map(|i| self.0.info(*i)).collect())
    }

    fn op_def(&self, _op: &str) -> Result<Option<OpDef>> {
        Ok(None)
    }
}

fuzz_target!(|text: &str| {
    let Ok(graph) = Graph::from_text(text) else { return };
    if graph.len() > MAX_NODES {
        return;
    }
    if !text.contains('…') {
        let again = Graph::from_text(&graph.to_text());
        assert_eq!(
            again.expect("the text of a graph").to_text(),
            graph.to_text(),
            "reading and writing changed it"
        );
    }
    let had_order = graph.order().is_some();
    let bytes = Bytes::from(graph.to_bytes());
    let item = Text(graph);
    let optimized = match optimize(&bytes, &item, &Settings::parse("").0, &Memory::default()) {
        Ok(Some(optimized)) => {
            Graph::parse(&Bytes::from(optimized)).expect("a GraphDef whose edges lead to nodes")
        }
        Ok(None) | Err(Error::InvalidArgument(_) | Error::Internal(_)) => return,
        Err(e) => panic!("an error that says nothing of the graph: {e}"),
    };
    assert!(!had_order || optimized.order().is_some(), "a cycle:\n{}", optimized.to_text());
    for name in item.0.preserved() {
        let lost = item.0.find(name).is_some() && optimized.find(name).is_none();
        assert!(!lost, "{name} is lost:\n{}", optimized.to_text());
    }
});
