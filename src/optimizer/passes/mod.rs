//! The passes, in the order in which they run.

use super::graph::Graph;
use crate::error::Result;

mod attention;
mod cleanup;
mod contraction;
mod elementwise;
mod folding;
mod reads;
mod reduce;
mod rows;
mod update;

/// A rewriting of graphs. It works on what [`Graph`] knows alone, and running it twice does what running it once does.
pub struct Pass {
    /// The name for `TF_WGPU_OPTIMIZER`.
    pub name: &'static str,
    /// Changes the graph.
    pub run: fn(&mut Graph) -> Result<()>,
}

/// Every pass.
pub const PASSES: &[Pass] = &[
    Pass { name: "cleanup", run: cleanup::run },
    Pass { name: "reads", run: reads::run },
    Pass { name: "folding", run: folding::run },
    Pass { name: "attention", run: attention::run },
    Pass { name: "contraction", run: contraction::run },
    Pass { name: "rows", run: rows::run },
    Pass { name: "reduce", run: reduce::run },
    Pass { name: "update", run: update::run },
    Pass { name: "elementwise", run: elementwise::run },
];

/// Runs passes in their order, and the first of them once more where it is `cleanup`: what others leave unused must be gone, for else
/// a second run would find it.
///
/// # Errors
/// Those of the passes.
pub fn run_all(passes: &[&Pass], graph: &mut Graph) -> Result<()> {
    let last = passes.first().filter(|p| p.name == "cleanup");
    passes.iter().chain(last).try_for_each(|pass| (pass.run)(graph))
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    PASSES.iter().find(|p| p.name == name)
}
