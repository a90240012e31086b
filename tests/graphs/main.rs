//! Golden graphs: the result of each pass, and the graphs that it must leave alone.

mod attention;
mod attention_gradient;
mod attention_grouped;
mod branches;
mod caches;
mod carried;
mod cleanup;
mod concat;
mod contraction;
mod contraction_int8;
mod cross_entropy;
mod elementwise;
mod folding;
mod indices;
mod invariants;
mod late;
mod linear_cross_entropy;
mod lists;
mod losses;
mod low_rank;
mod low_rank_uses;
mod predicates;
mod products;
mod quantized;
mod recompute;
mod reduce;
mod reduce_sequence;
mod reduce_tail;
mod regions;
mod rowwise;
mod stacks;
mod variables;
mod views;

use std::collections::BTreeSet;

use bytes::Bytes;
use expect_test::Expect;
use tensorflow_wgpu::Error;
use tensorflow_wgpu::optimizer::decisions::decisions;
use tensorflow_wgpu::optimizer::graph::{Graph, Output};
use tensorflow_wgpu::optimizer::passes::{self, Pass};
use tensorflow_wgpu::optimizer::refusal::Refusal;
use tensorflow_wgpu::optimizer::verify::Verifier;

/// Runs the pass `name` on a graph in text and compares the result ([`result`]).
fn check(name: &str, text: &str, expected: &Expect) {
    expected.assert_eq(&result(name, text));
}

/// The same result with each node in one line, for tests that look for a part of one.
#[track_caller]
fn after(name: &str, text: &str) -> String {
    let breaks = [
        ("(\n    ", "("),
        ("{\n    ", "{"),
        (",\n    ", ", "),
        (",\n)", ")"),
        (",\n}", "}"),
        (":\n        \"", ": \""),
        ("\"\n        \"", ""),
    ];
    let broken = result(name, text);
    breaks.iter().fold(broken, |text, (broken, whole)| text.replace(broken, whole))
}

/// The graph after the pass `name`. Checks three rules for every pass: each fused node says which
/// nodes it replaces, a second run changes nothing, and TensorFlow can still read the graph.
#[track_caller]
fn result(name: &str, text: &str) -> String {
    let pass = passes::find(name).expect("the pass exists");
    let mut graph = Graph::from_text(text).unwrap();
    graph.keep_journal();
    let verifier = Verifier::new(&graph);
    let before: BTreeSet<String> = graph.ids().map(|id| graph.node(id).name().to_owned()).collect();
    (pass.run)(&mut graph).unwrap();
    for made in decisions(&graph) {
        let node = graph.node(made.id);
        let is_told = !made.replaced.is_empty() || before.contains(node.name());
        assert!(is_told || !node.is_ours(), "{name}: {} replaces no node", node.name());
    }
    verifier.check(&graph).unwrap_or_else(|e| panic!("{name}: {e}\n{}", graph.to_text()));
    let once = graph.to_text();
    (pass.run)(&mut graph).unwrap();
    assert_eq!(graph.to_text(), once, "{name} run twice differs from once");
    let read = Graph::parse(&Bytes::from(graph.to_bytes())).unwrap();
    assert_eq!(read.len(), graph.len());
    assert!(read.order().is_some(), "{name} made a cycle");
    once
}

/// Checks that the pass `name` leaves a graph alone.
#[track_caller]
fn refuse(name: &str, text: &str) {
    let pass = passes::find(name).expect("the pass exists");
    let mut graph = Graph::from_text(text).unwrap();
    let before = graph.to_text();
    (pass.run)(&mut graph).unwrap();
    assert_eq!(graph.to_text(), before, "{name} changed what it should leave alone");
}

/// Why the pass `name` kept a node apart from a neighbour.
fn reason(name: &str, text: &str, node: &str) -> Option<Refusal> {
    let pass = passes::find(name).expect("the pass exists");
    let mut graph = Graph::from_text(text).unwrap();
    graph.keep_journal();
    (pass.run)(&mut graph).unwrap();
    graph.journal()?.apart(node).map(|apart| apart.refusal)
}

#[test]
fn a_cycle_that_passes_close_is_an_error() {
    let run = |graph: &mut Graph| {
        let (a, b) = (graph.find("a").unwrap(), graph.find("b").unwrap());
        graph.set_input(a, 0, Output { node: b, port: 0 });
        Ok(())
    };
    let pass = Pass { name: "wrong", run };
    let text = "preserve b\nx = Placeholder -> float32[2]\na = Neg(x) {T: float32} -> \
                float32[2]\nb = Neg(a) {T: float32} -> float32[2]";
    let mut graph = Graph::from_text(text).unwrap();
    let error = passes::run_all(&[&pass], &mut graph).unwrap_err();
    assert!(matches!(&error, Error::Internal(m) if m.contains("cycle")), "{error}");
    // A cycle that was there before is not the pass's fault.
    assert!(passes::run_all(&[&pass], &mut graph).is_ok());
}
