//! Random graphs with loops and branches of TensorFlow 1: all passes, and pairs of them, keep the
//! numbers and the effects, and a second run changes nothing.
//!
//! `TF_WGPU_GRAPHS=50000` runs 50,000 graphs on the host; `TF_WGPU_DEVICE_GRAPHS` is the number
//! that run on the device. `TF_WGPU_GRAPHS_FROM` is the first seed.

#[expect(dead_code, reason = "other tests use the rest")]
mod numeric;
#[expect(dead_code, reason = "graphs without loops use the rest")]
mod random_graphs;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use numeric::Random;
use random_graphs::executor::run_with_effects;
use random_graphs::generate::{Case, Profile, case};
use random_graphs::run::{OnDevice, assert_same, number, on_host};
use tensorflow_wgpu::optimizer::graph::{Frame, Graph, NodeId};
use tensorflow_wgpu::optimizer::passes::{PASSES, Pass, REGIONS, run_all};
use tensorflow_wgpu::{DType, Error};

/// Scalar functions, which the host evaluates.
const LOOPS: Profile =
    Profile { device: false, branches: true, loops: true, layers: false, nodes: 6 };
const ON_DEVICE: Profile = Profile { device: true, layers: true, ..LOOPS };

/// Ops that the optimizer must make in some of the graphs that run on the device.
const WANTED: &[&str] = &[
    "_WgpuFusedElementwise",
    "_WgpuFusedMatMul",
    "_WgpuFusedReduce",
    "_WgpuFusedRowwise",
    "_WgpuHostLogicalAnd",
];

fn parsed(case: &Case) -> Graph {
    Graph::from_text(&case.text).unwrap_or_else(|e| panic!("{e}\n{}", case.text))
}

/// The graph after the passes; it is verified after each, and a second run changes nothing.
fn optimized(passes: &[&Pass], seed: u64, case: &Case) -> Graph {
    let mut graph = parsed(case);
    let what = |graph: &Graph| format!("seed {seed}\n{}\n\n{}", case.text, graph.to_text());
    run_all(passes, &mut graph).unwrap_or_else(|e| panic!("{e}\n{}", what(&graph)));
    let once = graph.to_text();
    run_all(passes, &mut graph).unwrap_or_else(|e| panic!("{e}\n{}", what(&graph)));
    assert_eq!(graph.to_text(), once, "the second time it changes more, {}", what(&graph));
    graph
}

fn has(graph: &Graph, op: &str) -> bool {
    graph.ids().any(|id| graph.node(id).op() == op)
}

/// Runs a graph before and after, on the host, and compares fetches and effects.
fn check(seed: u64, case: &Case, after: &Graph) {
    let mut random = Random::new(seed);
    let run =
        |graph: &Graph, random: &mut Random| run_with_effects(graph, case, random, &mut on_host);
    let (want, wanted) = run(&parsed(case), &mut random);
    let (got, done) = run(after, &mut random);
    let what = |name: &str| format!("{name}, seed {seed}\n{}\n\n{}", case.text, after.to_text());
    for ((got, want), (name, tolerance)) in got.iter().zip(&want).zip(&case.fetches) {
        assert_same(got, want, *tolerance, &|| what(name));
    }
    assert_eq!(done, wanted, "{}", what("effects"));
}

#[test]
fn graphs_with_loops_keep_their_numbers() {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    let (first, count) = (number("TF_WGPU_GRAPHS_FROM", 0), number("TF_WGPU_GRAPHS", 1500));
    let (mut loops, mut fused) = (0, 0);
    for seed in first..first + count {
        let case = case(seed, LOOPS);
        let after = optimized(&passes, seed, &case);
        loops += u64::from(has(&after, "NextIteration"));
        fused += u64::from(has(&after, "_WgpuFusedElementwise"));
        check(seed, &case, &after);
        if seed % 4 == 0 {
            let mut random = Random::new(seed ^ 0x5eed);
            random.below(2);
            let pair = [random.pick_of(&passes), random.pick_of(&passes)];
            check(seed, &case, &optimized(&pair, seed, &case));
        }
    }
    assert!(loops * 3 > count && fused * 3 > count, "{loops} loops, {fused} fused of {count}");
}

/// A pass that turns the sums in loops' steps into differences.
fn wrong(graph: &mut Graph) -> Result<(), Error> {
    let order = graph.order().expect("there is no cycle");
    let is_sum = |id: &NodeId| {
        let node = graph.node(*id);
        let is_float = node.dtype("T").is_some_and(DType::is_float);
        graph.frame(*id) != Frame::OUTSIDE && node.op() == "AddV2" && is_float
    };
    let found: Vec<NodeId> = order.iter().copied().filter(is_sum).collect();
    found.into_iter().for_each(|id| graph.set_op(id, "Sub"));
    Ok(())
}

#[test]
fn a_wrong_sum_in_a_loop_is_found() {
    let pass = Pass { name: "wrong", run: wrong };
    let mut found = 0;
    for seed in 0..100 {
        let case = case(seed, LOOPS);
        let mut after = parsed(&case);
        (pass.run)(&mut after).unwrap();
        let checked = || check(seed, &case, &after);
        found += usize::from(std::panic::catch_unwind(AssertUnwindSafe(checked)).is_err());
    }
    assert!(found > 10, "{found} of 100");
}

#[test]
fn graphs_with_loops_keep_their_numbers_on_the_device() {
    let passes: Vec<&Pass> = PASSES.iter().collect();
    let (first, count) = (number("TF_WGPU_GRAPHS_FROM", 0), number("TF_WGPU_DEVICE_GRAPHS", 50));
    let mut ops: BTreeSet<String> = BTreeSet::new();
    for seed in first..first + count {
        let case = case(seed, ON_DEVICE);
        let mut after = optimized(&passes, seed, &case);
        ops.extend(after.ids().map(|id| after.node(id).op().to_owned()));
        // Every second graph runs as regions.
        if seed % 2 == 1 {
            run_all(&[&REGIONS], &mut after).unwrap_or_else(|e| panic!("{e}"));
        }
        let mut random = Random::new(seed);
        let [want, got] = [&parsed(&case), &after].map(|graph| {
            let mut device = OnDevice::new(numeric::session(), &case);
            run_with_effects(graph, &case, &mut random, &mut |n, inputs| device.node(n, inputs))
        });
        let what =
            |name: &str| format!("{name}, seed {seed}\n{}\n\n{}", case.text, after.to_text());
        for ((got, want), (name, tolerance)) in got.0.iter().zip(&want.0).zip(&case.fetches) {
            assert_same(got, want, *tolerance, &|| what(name));
        }
        assert_eq!(got.1, want.1, "{}", what("effects"));
    }
    let missing: Vec<_> = WANTED.iter().filter(|op| !ops.contains(**op)).collect();
    assert!(missing.is_empty(), "no graph has {missing:?}, but {ops:?}");
}
