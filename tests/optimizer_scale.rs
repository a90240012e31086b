//! The optimizer on large graphs: its time grows like the graph, and it does not recurse as deep as
//! the graph.

#[path = "optimizer_scale/families.rs"]
mod families;

use std::time::{Duration, Instant};

use families::FAMILIES;
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes::{PASSES, Pass};

/// The number of nodes of a graph. The variable `SCALE_NODES` overrides it, for instance with
/// 100000 in a release build.
const NODES: usize = 1000;
/// No graph takes nearly this long.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs passes on a graph, twice, on a stack that is smaller than TensorFlow's threads have.
fn run(name: &str, passes: &[&Pass], text: &str) {
    let run = || {
        let mut graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nodes = graph.len();
        let mut times = vec![Duration::ZERO; passes.len()];
        for _ in 0..2 {
            for (pass, time) in passes.iter().zip(&mut times) {
                let start = Instant::now();
                (pass.run)(&mut graph).unwrap_or_else(|e| panic!("{name}: {}: {e}", pass.name));
                *time += start.elapsed();
            }
        }
        let took: Duration = times.iter().sum();
        let mut slow: Vec<_> =
            passes.iter().zip(&times).filter(|(_, time)| **time > took / 20).collect();
        slow.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
        let slow: Vec<String> =
            slow.iter().map(|(pass, time)| format!("{} {time:.1?}", pass.name)).collect();
        println!("{name}: {nodes} nodes became {} in {took:.1?}: {}", graph.len(), slow.join(", "));
        assert!(graph.order().is_some(), "{name}: a cycle");
        assert!(took < LIMIT, "{name}: {took:.1?}");
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, run).unwrap();
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
}

fn nodes() -> usize {
    std::env::var("SCALE_NODES").ok().and_then(|n| n.parse().ok()).unwrap_or(NODES)
}

/// The families, or only the one that the variable `SCALE_FAMILY` names.
#[test]
fn large_graphs_take_little_time() {
    let only = std::env::var("SCALE_FAMILY").ok();
    let passes: Vec<&Pass> = PASSES.iter().collect();
    for (name, family) in
        FAMILIES.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
    {
        run(name, &passes, &family(nodes()));
    }
}
