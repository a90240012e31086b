//! Nodes that run only in some branch stay apart from those that always run.

use super::{after, refuse};

const START: &str = "preserve u, v\nx = Placeholder -> float32[4]\np = Placeholder -> bool[]\ns = \
                     Switch(x, p) {T: float32} -> float32[4], float32[4]\n";

#[test]
fn a_node_that_always_runs_does_not_wait_for_a_branch() {
    // Both read x, but b exists in only one branch.
    let nodes = "a = Exp(x) {T: float32} -> float32[4]\nb = Mul(x, s:1) {T: float32} -> \
                 float32[4]\nu = Tan(a) {T: float32} -> float32[4]\nv = Tan(b) {T: float32} -> \
                 float32[4]";
    refuse("elementwise", &format!("{START}{nodes}"));
    // One value goes into a branch and elsewhere.
    let nodes = "a = Exp(x) {T: float32} -> float32[4]\nb = Mul(a, s:1) {T: float32} -> \
                 float32[4]\nu = Tan(a) {T: float32} -> float32[4]\nv = Tan(b) {T: float32} -> \
                 float32[4]";
    refuse("elementwise", &format!("{START}{nodes}"));
}

#[test]
fn nodes_of_one_branch_are_fused() {
    let nodes = "a = Exp(s:1) {T: float32} -> float32[4]\nb = Mul(a, s:1) {T: float32} -> \
                 float32[4]\nu = Tan(b) {T: float32} -> float32[4]\nv = Tan(x) {T: float32} -> \
                 float32[4]";
    let text = after("elementwise", &format!("{START}{nodes}"));
    assert!(text.contains("b/wgpu_fused = _WgpuFusedElementwise(s:1)"), "{text}");
}
