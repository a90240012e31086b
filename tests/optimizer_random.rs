//! Random graphs: the optimized graphs give the same numbers, and the optimizer follows its own
//! rules.
//!
//! The graph of a seed is always the same. Tolerances are bounds of rounding errors that the
//! generator computes along the way; choices depend only on exact values, so that no rounding can
//! change them.
//!
//! `TF_WGPU_DEVICE_GRAPHS` is the number of graphs that run on the device, `TF_WGPU_GRAPHS_FROM`
//! their first seed.

#[expect(dead_code, reason = "the products' tests use the rest")]
mod numeric;
mod random_graphs;

use std::collections::BTreeSet;

use numeric::Random;
use random_graphs::executor::{run, run_with_effects};
use random_graphs::generate::{Case, Profile, case};
use random_graphs::run::{OnDevice, assert_same, number, on_host};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::kernels::fused::region;
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes::{PASSES, REGIONS, run_all};

/// Only scalar functions, which the host evaluates.
const SCALAR: Profile =
    Profile { device: false, branches: false, loops: false, layers: false, nodes: 24 };
const EVERYTHING: Profile = Profile { device: true, ..SCALAR };
/// Everything, with more of the nodes that are fused with products.
const LAYERS: Profile = Profile { layers: true, nodes: 8, ..EVERYTHING };
/// Scalar functions, some of which run under conditions, and nodes with effects.
const BRANCHES: Profile = Profile { branches: true, ..SCALAR };

fn parsed(case: &Case) -> Graph {
    Graph::from_text(&case.text).unwrap_or_else(|e| panic!("{e}\n{}", case.text))
}

fn optimize(graph: &mut Graph) {
    let passes: Vec<_> = PASSES.iter().collect();
    run_all(&passes, graph).unwrap_or_else(|e| panic!("{e}"));
}

fn optimized(case: &Case) -> Graph {
    let mut graph = parsed(case);
    optimize(&mut graph);
    graph
}

/// Ops that the optimizer must make in some of the graphs.
const WANTED: &[&str] = &[
    "_WgpuFusedArg",
    "_WgpuFusedConcat",
    "_WgpuFusedElementwise",
    "_WgpuFusedMatMul",
    "_WgpuFusedMatMulWithArgument",
    "_WgpuFusedReduce",
    "_WgpuFusedRowwise",
    "_WgpuFusedUpdate",
];

/// The number of nodes that the optimizer made.
fn fused(graph: &Graph) -> usize {
    graph.ids().filter(|id| graph.node(*id).op().starts_with("_Wgpu")).count()
}

#[test]
fn a_graph_is_what_its_text_says() {
    for seed in 0..300 {
        let case = case(seed, EVERYTHING);
        let graph = parsed(&case);
        let text = graph.to_text();
        let preserved = |text: &str| {
            let mut names: Vec<String> =
                text.lines().next().unwrap()[9..].split(", ").map(str::to_owned).collect();
            names.sort();
            names
        };
        assert_eq!(preserved(&text), preserved(&case.text), "seed {seed}");
        let again = Graph::from_text(&text).unwrap();
        assert_eq!(again.to_text(), text, "seed {seed}");
        // The first line names the preserved nodes.
        assert_eq!(graph.ids().count() + 1, case.text.lines().count(), "seed {seed}");
        let changed = optimized(&case).to_text();
        let read =
            Graph::from_text(&changed).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{changed}"));
        assert_eq!(read.to_text(), changed, "seed {seed}");
    }
}

#[test]
fn the_optimizer_keeps_its_rules() {
    let cases = [
        (1000, EVERYTHING),
        (200, LAYERS),
        // Larger graphs find more problems: nodes that wait for each other, and levels of updates.
        (400, Profile { nodes: 42, ..EVERYTHING }),
        (400, Profile { nodes: 80, ..EVERYTHING }),
        (200, Profile { nodes: 200, ..EVERYTHING }),
        (200, Profile { nodes: 120, ..LAYERS }),
        (400, Profile { nodes: 41, ..BRANCHES }),
    ];
    for (seed, profile) in
        cases.into_iter().flat_map(|(seeds, profile)| (0..seeds).map(move |seed| (seed, profile)))
    {
        let case = case(seed, profile);
        let before = parsed(&case);
        let mut after = optimized(&case);
        let text = after.to_text();
        let what = || format!("seed {seed}\n{}\n\n{text}", case.text);
        assert!(after.order().is_some(), "a cycle, {}", what());
        for name in before.preserved() {
            let Some(id) = after.find(name) else { panic!("{name} is lost, {}", what()) };
            let (old, new) = (before.node(before.find(name).unwrap()), after.node(id));
            assert_eq!((old.op(), old.device()), (new.op(), new.device()), "{name}, {}", what());
        }
        for id in before.ids().filter(|id| !before.node(*id).on_wgpu()) {
            assert!(
                after.find(before.node(id).name()).is_some(),
                "{} is lost, {}",
                before.node(id).name(),
                what()
            );
        }
        // TensorFlow runs it twice.
        let bytes = after.to_bytes();
        optimize(&mut after);
        let twice = after.to_text();
        let new: Vec<&str> =
            twice.lines().filter(|line| !text.lines().any(|l| l == *line)).collect();
        assert!(text == twice, "the second time it changes more: {new:#?}\n{}", what());
        assert_eq!(after.to_bytes(), bytes, "the same text in other bytes, {}", what());
    }
}

/// Runs both graphs and compares fetches and variables.
fn compare(
    seed: u64,
    case: &Case,
    graphs: [&Graph; 2],
    mut engine: impl FnMut(&Graph) -> (Vec<HostTensor>, Vec<HostTensor>),
) {
    let [(want, kept), (got, changed)] = graphs.map(&mut engine);
    let what =
        |name: &str| format!("{name}, seed {seed}\n{}\n\n{}", case.text, graphs[1].to_text());
    for ((got, want), (name, tolerance)) in got.iter().zip(&want).zip(&case.fetches) {
        assert_same(got, want, *tolerance, &|| what(name));
    }
    for ((got, want), ((name, _), tolerance)) in
        changed.iter().zip(&kept).zip(case.variables.iter().zip(&case.tolerances))
    {
        assert_same(got, want, *tolerance, &|| what(name));
    }
}

#[test]
fn scalar_graphs_give_the_same_numbers_by_the_references() {
    let mut made = 0;
    for seed in 0..600 {
        let case = case(seed, SCALAR);
        let (before, after) = (parsed(&case), optimized(&case));
        made += fused(&after);
        let mut random = Random::new(seed);
        compare(seed, &case, [&before, &after], |graph| {
            (run(graph, &case, &mut random, &mut on_host), Vec::new())
        });
    }
    assert!(made > 500, "only {made} fused nodes");
}

#[test]
fn branches_and_effects_stay_what_they_are() {
    let (mut made, mut effects) = (0, 0);
    for seed in 0..600 {
        let case = case(seed, BRANCHES);
        let (before, mut after) = (parsed(&case), optimized(&case));
        made += fused(&after);
        let mut random = Random::new(seed);
        let mut did = Vec::new();
        compare(seed, &case, [&before, &after], |graph| {
            let (fetched, effects) = run_with_effects(graph, &case, &mut random, &mut on_host);
            did.push(effects);
            (fetched, Vec::new())
        });
        assert_eq!(did[0], did[1], "seed {seed}\n{}\n\n{}", case.text, after.to_text());
        effects += did[0].len();
        let text = after.to_text();
        optimize(&mut after);
        assert_eq!(
            after.to_text(),
            text,
            "the second time it changes more, seed {seed}\n{}",
            case.text
        );
    }
    assert!(made > 300 && effects > 100, "only {made} fused nodes, {effects} effects");
}

#[test]
fn graphs_give_the_same_numbers_on_the_device() {
    let (mut made, mut regions, mut replayed, mut adapted) = (0, 0, 0, 0);
    let mut ops: BTreeSet<String> = BTreeSet::new();
    let (first, count) = (number("TF_WGPU_GRAPHS_FROM", 0), number("TF_WGPU_DEVICE_GRAPHS", 150));
    let everything = (first..first + count).map(|seed| (seed, EVERYTHING));
    let layers = (first..first + count * 2 / 5).map(|seed| (seed, LAYERS));
    for (seed, profile) in everything.chain(layers) {
        let case = case(seed, profile);
        let (before, after) = (parsed(&case), optimized(&case));
        made += fused(&after);
        ops.extend(after.ids().map(|id| after.node(id).op().to_owned()));
        adapted += u32::from(after.ids().any(|id| after.node(id).name().contains("/low_rank/")));
        let mut variants = vec![after];
        // Some graphs run as regions, too, of the program's nodes or of the optimizer's.
        if seed % 3 == 0 {
            let mut parted = if seed % 2 == 0 { before.clone() } else { variants[0].clone() };
            run_all(&[&REGIONS], &mut parted).unwrap_or_else(|e| panic!("{e}"));
            regions += parted.ids().filter(|id| parted.node(*id).op() == region::OP).count();
            variants.push(parted);
        }
        for after in &variants {
            let mut random = Random::new(seed);
            compare(seed, &case, [&before, after], |graph| {
                let mut device = OnDevice::new(numeric::session(), &case);
                let fetched =
                    run(graph, &case, &mut random, &mut |node, inputs| device.node(node, inputs));
                replayed += device.replayed;
                (fetched, (0..case.variables.len()).map(|v| device.value(v)).collect())
            });
        }
    }
    assert!(made > 400 && regions > 20, "only {made} fused nodes, {regions} regions");
    assert!(replayed > 20, "only {replayed} of {regions} regions were replayed");
    assert!(adapted > 1, "only {adapted} graphs with rewritten low-rank adapters");
    let missing: Vec<_> = WANTED.iter().filter(|op| !ops.contains(**op)).collect();
    assert!(missing.is_empty(), "no graph has {missing:?}");
}
