//! The optimizer on large graphs: time that grows as the graph does, and no recursion as deep as the graph.

#[path = "optimizer_scale/families.rs"]
mod families;

use std::time::{Duration, Instant};

use families::FAMILIES;
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes::{PASSES, Pass};

/// Nodes of a graph; the variable `SCALE_NODES` asks for others, as 100000, and `SCALE_FAMILY` for the families whose names hold it.
const NODES: usize = 1000;
/// No graph takes longer, by far: most take milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs passes on a graph, twice, on a stack that is smaller than TensorFlow's threads have.
fn run(name: &str, passes: &[&Pass], text: &str) {
    let run = || {
        let mut graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nodes = graph.len();
        let (start, mut slowest) = (Instant::now(), (Duration::ZERO, ""));
        for pass in [passes, passes].concat() {
            let start = Instant::now();
            (pass.run)(&mut graph).unwrap_or_else(|e| panic!("{name}: {}: {e}", pass.name));
            slowest = slowest.max((start.elapsed(), pass.name));
        }
        let took = start.elapsed();
        println!("{name}: {nodes} nodes became {} in {took:.1?}, {} took {:.1?}", graph.len(), slowest.1, slowest.0);
        assert!(graph.order().is_some(), "{name}: a cycle");
        assert!(took < LIMIT, "{name}: {took:.1?}");
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, run).unwrap();
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
}

fn nodes() -> usize {
    std::env::var("SCALE_NODES").ok().and_then(|n| n.parse().ok()).unwrap_or(NODES)
}

#[test]
fn large_graphs_take_little_time() {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    let wanted = std::env::var("SCALE_FAMILY").unwrap_or_default();
    for (name, family) in FAMILIES.iter().filter(|(name, _)| name.contains(&wanted)) {
        run(name, &passes, &family(nodes()));
    }
}

/// Hundreds of assignments to one variable took minutes, and 100,000 nodes more than a gigabyte.
#[test]
fn many_assignments_take_little_time() {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    for (name, family) in
        FAMILIES.iter().filter(|(name, _)| name.contains("assignments to one") || name.contains("reads of one"))
    {
        run(name, &passes, &family(4 * nodes()));
    }
}
