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

/// The text of the node that the pass makes.
fn fused<'t>(text: &'t str, op: &str) -> &'t str {
    text.lines().find(|line| line.contains(op)).unwrap_or_else(|| panic!("no {op}: {text}"))
}

#[test]
fn rows_do_not_wait_for_a_branch() {
    let text = after(
        "rowwise",
        "preserve u, v\nx = Placeholder -> float32[4, 8]\ny = Placeholder -> float32[4, 1]\np = \
         Placeholder -> bool[]\ns = Switch(y, p) {T: float32} -> float32[4, 1], float32[4, \
         1]\naxis = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]\nm = Max(x, axis) \
         {T: float32, Tidx: int32, keep_dims: true} -> float32[4, 1]\nd = Sub(x, m) {T: float32} \
         -> float32[4, 8]\ne = Exp(d) {T: float32} -> float32[4, 8]\nz = Sum(e, axis) {T: \
         float32, Tidx: int32, keep_dims: true} -> float32[4, 1]\nq = RealDiv(e, z) {T: float32} \
         -> float32[4, 8]\nw = Mul(z, s:1) {T: float32} -> float32[4, 1]\nu = Custom(q)\nv = \
         Custom(w)",
    );
    let made = fused(&text, "_WgpuFusedRowwise(");
    assert!(!made.contains("s:1"), "{text}");
    assert!(text.contains("w = Mul("), "{text}");
}

#[test]
fn reductions_do_not_wait_for_a_branch() {
    let start = "preserve u, v\nx = Placeholder -> float32[4, 8]\ny = Placeholder -> \
                 float32[8]\nk = Placeholder -> float32[8]\np = Placeholder -> bool[]\ns = \
                 Switch(y, p) {T: float32} -> float32[8], float32[8]\naxis = Const {dtype: \
                 int32, value: tensor int32[1] [0]} -> int32[1]\na = Sum(x, axis) {T: float32, \
                 Tidx: int32, keep_dims: false} -> float32[8]\n";
    // The epilogue of a sum.
    let text = after(
        "reduce",
        &format!(
            "{start}b = Mul(a, k) {{T: float32}} -> float32[8]\nc = Mul(a, s:1) {{T: float32}} -> \
             float32[8]\nu = Custom(b)\nv = Custom(c)"
        ),
    );
    assert!(!fused(&text, "_WgpuFusedReduce(").contains("s:1"), "{text}");
    // Two sums of one tensor.
    refuse(
        "reduce",
        &format!(
            "{start}b = Mul(x, s:1) {{T: float32}} -> float32[4, 8]\nc = Sum(b, axis) {{T: \
             float32, Tidx: int32, keep_dims: false}} -> float32[8]\nu = Custom(a)\nv = Custom(b, \
             c)"
        ),
    );
}
