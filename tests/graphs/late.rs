//! Copies of weights that wait for the other operand of their product.

use expect_test::expect;

use super::{after, check, refuse};

/// A layer of a language model: the kernel of its queries is transposed for each token.
const LAYER: &str = "preserve y
    v = VarHandleOp {dtype: float32}
    p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
    s = Const {dtype: int32, value: tensor int32[2] [640, 1024]} -> int32[2]
    x = Placeholder -> float32[1, 640]
    r = ReadVariableOp(v) {dtype: float32} -> float32[4, 640, 256]
    t = Transpose(r, p) {T: float32, Tperm: int32} -> float32[640, 4, 256]
    k = Reshape(t, s) {T: float32, Tshape: int32} -> float32[640, 1024]
    n = Cumsum(x) -> float32[1, 640]
    m = MatMul(n, k) {T: float32, transpose_a: false, transpose_b: false} -> float32[1, 1024]
    y = Cumsum(m) -> float32[1, 1024]";

#[test]
fn a_transposed_weight_waits_for_the_other_operand() {
    check(
        "late",
        LAYER,
        &expect![[r#"
        preserve y
        v = VarHandleOp {dtype: float32}
        p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
        s = Const {dtype: int32, value: tensor int32[2] [640, 1024]} -> int32[2]
        x = Placeholder -> float32[1, 640]
        r = ReadVariableOp(v) {dtype: float32} -> float32[4, 640, 256]
        t = Transpose(r, p, ^n) {T: float32, Tperm: int32} -> float32[640, 4, 256]
        k = Reshape(t, s) {T: float32, Tshape: int32} -> float32[640, 1024]
        n = Cumsum(x) -> float32[1, 640]
        m = MatMul(n, k) {
            T: float32,
            transpose_a: false,
            transpose_b: false,
        } -> float32[1, 1024]
        y = Cumsum(m) -> float32[1, 1024]
    "#]],
    );
}

/// A view makes no copy, so the copy behind it waits.
#[test]
fn a_copy_behind_a_view_waits_itself() {
    let graph = LAYER.replace(
        "t = Transpose(r, p)",
        "w = Reshape(r, p) {T: float32, Tshape: int32} -> float32[4, 640, 256]\n    t = \
         Transpose(w, p)",
    );
    let lines = after("late", &graph);
    assert!(lines.contains("w = Reshape(r, p) {"), "{lines}");
    assert!(lines.contains("t = Transpose(w, p, ^n) {"), "{lines}");
}

#[test]
fn other_copies_do_not_wait() {
    for (from, to) in [
        // It is small, or has another reader.
        ("640", "4"),
        ("y = Cumsum(m)", "z = Cumsum(k) -> float32[640, 1024]\n    y = Cumsum(m)"),
        // It is no copy, no copy of a variable, or waits for another node.
        ("Transpose(r, p) {T: float32, Tperm", "Reshape(r, p) {T: float32, Tshape"),
        ("r = ReadVariableOp(v) {dtype: float32}", "r = Placeholder"),
        ("Transpose(r, p)", "Transpose(r, p, ^x)"),
        // The other operand is a weight, too.
        ("MatMul(n, k)", "MatMul(r, k)"),
        ("x = Placeholder -> float32[1, 640]", "x = Placeholder @CPU:0 -> float32[1, 640]"),
    ] {
        let graph = LAYER.replace(from, to);
        let graph =
            if to.contains("@CPU:0") { graph.replace("MatMul(n", "MatMul(x") } else { graph };
        assert!(graph != LAYER, "{from}");
        refuse("late", &graph);
    }
}
