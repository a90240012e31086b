//! The passes, in the order in which they run.

use std::time::{Duration, Instant};

use super::graph::Graph;
use super::verify::Verifier;
use crate::error::{Error, Result};

mod args;
mod attention;
mod caches;
mod carried;
mod cleanup;
mod concat;
mod contraction;
mod cross_entropy;
mod elementwise;
mod folding;
mod invariants;
mod late;
mod linear_cross_entropy;
mod lists;
mod low_rank;
mod predicates;
mod products;
mod reads;
mod recompute;
mod reduce;
mod regions;
mod reshape;
mod rowwise;
mod stacks;
mod update;

/// A rewrite of graphs. It uses only the knowledge in [`Graph`]. A second run after the first
/// changes nothing.
pub struct Pass {
    /// The name for `TF_WGPU_OPTIMIZER`.
    pub name: &'static str,
    /// Changes the graph.
    pub run: fn(&mut Graph) -> Result<()>,
}

/// Every pass.
pub const PASSES: &[Pass] = &[
    Pass { name: "lists", run: lists::run },
    Pass { name: "cleanup", run: cleanup::run },
    Pass { name: "predicates", run: predicates::run },
    Pass { name: "stacks", run: stacks::run },
    Pass { name: "carried", run: carried::run },
    Pass { name: "reads", run: reads::run },
    Pass { name: "caches", run: caches::run },
    Pass { name: "folding", run: folding::run },
    Pass { name: "invariants", run: invariants::run },
    Pass { name: "sums", run: products::summed::run },
    Pass { name: "low_rank", run: low_rank::run },
    Pass { name: "attention", run: attention::run },
    Pass { name: "cross_entropy", run: cross_entropy::run },
    Pass { name: "recompute", run: recompute::run },
    Pass { name: "contraction", run: contraction::run },
    Pass { name: "quantized", run: products::quantized::run },
    Pass { name: "rowwise", run: rowwise::run },
    Pass { name: "reduce", run: reduce::run },
    Pass { name: "update", run: update::run },
    Pass { name: "concat", run: concat::run },
    Pass { name: "elementwise", run: elementwise::run },
    Pass { name: "args", run: args::run },
    Pass { name: "linear_cross_entropy", run: linear_cross_entropy::run },
    Pass { name: "joined", run: products::joined::run },
    Pass { name: "added", run: products::added::run },
    Pass { name: "biases", run: products::column_sums::run },
    Pass { name: "arguments", run: products::argument::run },
    Pass { name: "ends", run: reduce::ends::run },
    Pass { name: "late", run: late::run },
];

/// The pass that runs after all others, unless `TF_WGPU_CAPTURE` is off.
pub const REGIONS: Pass = Pass { name: "regions", run: regions::run };

/// The same, if `TF_WGPU_CAPTURE` asks for checks.
pub const CHECKED_REGIONS: Pass = Pass { name: "regions", run: regions::run_checked };

/// One run of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The number of rounds of all passes so far, this one included.
    pub round: usize,
    /// The pass's name.
    pub pass: &'static str,
    /// The time that it ran.
    pub run: Duration,
    /// The time that the verifier ran after it.
    pub verifying: Duration,
    /// The number of changes that it made.
    pub edits: u64,
}

/// The largest number of rounds of [`run_all`], in case two passes undo each other's work.
const MAX_ROUNDS: usize = 8;

/// Runs passes in their order, again and again until none finds anything to do. So a second run
/// changes nothing. The graph is verified after each pass that changed it.
///
/// # Errors
/// The errors of the passes; `Internal` with a pass's name if it broke the graph.
pub fn run_all(passes: &[&Pass], graph: &mut Graph) -> Result<()> {
    run_watched(passes, graph, &mut |_, _| {})
}

/// Like [`run_all`]; `watch` gets the graph after each run of a pass, even if the pass broke it.
///
/// # Errors
/// As for [`run_all`].
pub fn run_watched(
    passes: &[&Pass],
    graph: &mut Graph,
    watch: &mut dyn FnMut(&Step, &Graph),
) -> Result<()> {
    let verifier = Verifier::new(graph);
    // The graph's count of edits when each pass last found nothing. As long as the count stays the
    // same, the pass has nothing to do.
    let mut idle: Vec<Option<u64>> = vec![None; passes.len()];
    for round in 1..=MAX_ROUNDS {
        for (pass, idle) in passes.iter().zip(&mut idle) {
            let before = graph.edits();
            if *idle == Some(before) {
                continue;
            }
            let start = Instant::now();
            (pass.run)(graph)?;
            let run = start.elapsed();
            *idle = (graph.edits() == before).then_some(before);
            let verified = if idle.is_none() { verifier.check(graph) } else { Ok(()) };
            let step = Step {
                round,
                pass: pass.name,
                run,
                verifying: start.elapsed() - run,
                edits: graph.edits() - before,
            };
            log::debug!(
                "optimizer, round {round}: {} took {run:.1?}, verifying {:.1?}, {} nodes, {} edits",
                step.pass,
                step.verifying,
                graph.len(),
                step.edits
            );
            watch(&step, graph);
            verified.map_err(|e| broken(pass, &e))?;
        }
    }
    Ok(())
}

/// The error for a graph that a pass broke, which is a bug of ours.
fn broken(pass: &Pass, rule: &Error) -> Error {
    Error::Internal(format!(
        "the optimizer's pass {} broke it ({rule}). This is a fault of tensorflow-wgpu: please \
         report it with the program. TF_WGPU_OPTIMIZER=off silences this line",
        pass.name
    ))
}

/// The pass of this name.
pub fn find(name: &str) -> Option<&'static Pass> {
    PASSES.iter().chain([&REGIONS]).find(|p| p.name == name)
}
