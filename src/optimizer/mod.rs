//! The graph optimizer: GraphDef in, GraphDef out. It uses no device and no global state.
//!
//! TensorFlow runs it within grappler, twice, on every graph with nodes placed on our devices.
//! [`passes`] rewrite a [`graph::Graph`]; they emit the ops of [`crate::kernels::fused`]. A graph
//! that cannot be handled stays unchanged.

mod arity;
pub mod branches;
pub mod decisions;
pub mod dump;
pub mod emit;
pub mod graph;
pub mod history;
mod inference;
pub mod journal;
pub mod legality;
pub mod meaning;
pub mod memory;
pub mod outside;
pub mod passes;
pub mod picture;
pub mod plan;
pub mod refusal;
pub mod settings;
pub mod shape;
pub mod text;
pub mod unions;
pub mod variables;
pub mod verify;
pub mod wire;

pub use crate::{attr, proto};

use std::time::Instant;

use bytes::Bytes;

use crate::error::Result;
use graph::Graph;
use memory::LastGraph;
use proto::OpDef;
use settings::Settings;
use shape::TensorInfo;

/// Ops that make reference variables.
const REFERENCES: [&str; 3] = ["TemporaryVariable", "Variable", "VariableV2"];

/// TensorFlow's knowledge of a graph besides its GraphDef.
pub trait Item {
    /// The names of the nodes that must stay unchanged, fetches included.
    fn preserved(&self) -> Result<Vec<String>>;
    /// Infers types and shapes. With `annotated`, the graph has nodes of ours, which hold their
    /// shapes in attributes.
    fn infer(&self, annotated: bool) -> Result<()>;
    /// The inferred types and shapes of the outputs of the node `name`.
    fn infos(&self, name: &str) -> Result<Vec<TensorInfo>>;
    /// The inferred types and shapes of the inputs of the node `name`.
    fn input_infos(&self, name: &str) -> Result<Vec<TensorInfo>>;
    /// The definition of an op or function; `None` for an unknown one.
    fn op_def(&self, op: &str) -> Result<Option<OpDef>>;
}

/// The optimized graph; `None` if nothing changes. `memory` holds the knowledge of the previous
/// run, and gets that of this run.
///
/// # Errors
/// The errors of parsing, of the item, and of the passes. The graph should then stay unchanged.
pub fn optimize(
    bytes: &Bytes,
    item: &dyn Item,
    settings: &Settings,
    memory: &LastGraph,
) -> Result<Option<Vec<u8>>> {
    if settings.passes.is_empty() && settings.regions.is_none() && settings.dump.is_none() {
        return Ok(None);
    }
    let start = Instant::now();
    let mut graph = Graph::parse_for(bytes, settings.device_type)?;
    // Passes assume that a value is the same wherever it is read, which does not hold for the value
    // of a reference variable.
    let has_references = graph.ids().any(|id| REFERENCES.contains(&graph.node(id).op()));
    if has_references || !graph.ids().any(|id| graph.node(id).on_wgpu()) {
        return Ok(None);
    }
    arity::check(&graph)?;
    graph.preserve(item.preserved()?);
    log::debug!("optimizer: reading {} nodes took {:.1?}", graph.len(), start.elapsed());
    let start = Instant::now();
    if settings.dump.is_some() {
        graph.keep_journal();
    }
    // Between the runs, TensorFlow's passes find more that ours can fuse, but not within a region.
    let regions = settings.regions.filter(|_| memory.is_known());
    let recalled = memory.recall(&mut graph);
    if !recalled {
        inference::ask(&mut graph, item)?;
        if cfg!(debug_assertions) {
            inference::check_edges(&graph, item)?;
        }
    }
    let source = if recalled { "the run before" } else { "TensorFlow" };
    log::debug!(
        "optimizer: types and shapes are known from {source}, which took {:.1?}",
        start.elapsed()
    );
    let mut dump = settings.dump.as_ref().map(|folder| dump::Dump::begin(folder, &graph));
    let mut watch = |step: &passes::Step, graph: &Graph| {
        if let Some(dump) = &mut dump {
            dump.step(step, graph);
        }
    };
    passes::run_watched(&settings.passes, &mut graph, &mut watch)?;
    if let Some(dump) = &mut dump {
        dump.decide(&graph);
    }
    if let Some(regions) = regions {
        let mut watch = |step: &passes::Step, graph: &Graph| {
            if let Some(dump) = &mut dump {
                dump.step(step, graph);
            }
        };
        passes::run_watched(&[regions], &mut graph, &mut watch)?;
    }
    if let Some(dump) = dump {
        dump.end(&graph);
    }
    let optimized = graph.is_changed().then(|| graph.to_bytes());
    memory.keep(graph);
    Ok(optimized)
}
