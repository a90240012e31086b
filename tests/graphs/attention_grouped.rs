//! Attention whose queries have an axis for the heads that share a head of the keys.

use expect_test::expect;

use super::{check, refuse};

/// Attention with grouped queries as Keras expands `btkgh,bskh->bkgts` and `bkgts,bskh->btkgh`,
/// with its masked softmax in float32: two heads of the keys, three heads of the query for each.
const GROUPED: &str = "
preserve y
q = Placeholder {dtype: bfloat16} -> bfloat16[?2, 7, 6, 8]
k = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 2, 8]
v = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 2, 5]
m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 7, 9]
c = Const {dtype: bfloat16, value: tensor bfloat16[] [0.5]} -> bfloat16[]
low = Const {dtype: float32, value: tensor float32[] [-1000000000]} -> float32[]
zero = Const {dtype: float32, value: tensor float32[] [0]} -> float32[]
q_shape = Const {dtype: int32, value: tensor int32[5] [-1, 7, 2, 3, 8]} -> int32[5]
q_turn = Const {dtype: int32, value: tensor int32[5] [0, 2, 3, 1, 4]} -> int32[5]
q_rows = Const {dtype: int32, value: tensor int32[4] [-1, 2, 21, 8]} -> int32[4]
k_turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
v_turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 1, 3]} -> int32[4]
s_shape = Const {dtype: int32, value: tensor int32[5] [-1, 2, 3, 7, 9]} -> int32[5]
p_shape = Const {dtype: int32, value: tensor int32[4] [-1, 2, 21, 9]} -> int32[4]
o_shape = Const {dtype: int32, value: tensor int32[5] [-1, 2, 3, 7, 5]} -> int32[5]
o_turn = Const {dtype: int32, value: tensor int32[5] [0, 3, 1, 2, 4]} -> int32[5]
y_shape = Const {dtype: int32, value: tensor int32[4] [-1, 7, 6, 5]} -> int32[4]
qs = Mul(q, c) {T: bfloat16} -> bfloat16[?2, 7, 6, 8]
q1 = Reshape(qs, q_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 7, 2, 3, 8]
q2 = Transpose(q1, q_turn) {T: bfloat16, Tperm: int32} -> bfloat16[?2, 2, 3, 7, 8]
q3 = Reshape(q2, q_rows) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 21, 8]
k1 = Transpose(k, k_turn) {T: bfloat16, Tperm: int32} -> bfloat16[?2, 2, 8, 9]
qk = BatchMatMulV2(q3, k1) {T: bfloat16, adj_x: false, adj_y: false} -> bfloat16[?2, 2, 21, 9]
s1 = Reshape(qk, s_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 3, 7, 9]
s2 = Cast(s1) {DstT: float32, SrcT: bfloat16} -> float32[?2, 2, 3, 7, 9]
s3 = SelectV2(m, s2, low) {T: float32} -> float32[?2, 2, 3, 7, 9]
soft = Softmax(s3) {T: float32} -> float32[?2, 2, 3, 7, 9]
kept = SelectV2(m, soft, zero) {T: float32} -> float32[?2, 2, 3, 7, 9]
p1 = Cast(kept) {DstT: bfloat16, SrcT: float32} -> bfloat16[?2, 2, 3, 7, 9]
p2 = Reshape(p1, p_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 21, 9]
v1 = Transpose(v, v_turn) {T: bfloat16, Tperm: int32} -> bfloat16[?2, 2, 9, 5]
qkv = BatchMatMulV2(p2, v1) {T: bfloat16, adj_x: false, adj_y: false} -> bfloat16[?2, 2, 21, 5]
o1 = Reshape(qkv, o_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 3, 7, 5]
o2 = Transpose(o1, o_turn) {T: bfloat16, Tperm: int32} -> bfloat16[?2, 7, 2, 3, 5]
o3 = Reshape(o2, y_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 7, 6, 5]
y = Identity(o3) {T: bfloat16} -> bfloat16[?2, 7, 6, 5]
";

#[test]
fn queries_with_an_axis_for_groups() {
    check(
        "attention",
        GROUPED,
        &expect![[r#"
        preserve y
        q = Placeholder {dtype: bfloat16} -> bfloat16[?2, 7, 6, 8]
        k = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 2, 8]
        v = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 2, 5]
        m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 7, 9]
        c = Const {dtype: bfloat16, value: tensor bfloat16[] [0.5]} -> bfloat16[]
        low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
        zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
        q_shape = Const {dtype: int32, value: tensor int32[5] [-1, 7, 2, 3, 8]} -> int32[5]
        q_turn = Const {dtype: int32, value: tensor int32[5] [0, 2, 3, 1, 4]} -> int32[5]
        q_rows = Const {dtype: int32, value: tensor int32[4] [-1, 2, 21, 8]} -> int32[4]
        k_turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
        v_turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 1, 3]} -> int32[4]
        s_shape = Const {dtype: int32, value: tensor int32[5] [-1, 2, 3, 7, 9]} -> int32[5]
        p_shape = Const {dtype: int32, value: tensor int32[4] [-1, 2, 21, 9]} -> int32[4]
        o_shape = Const {dtype: int32, value: tensor int32[5] [-1, 2, 3, 7, 5]} -> int32[5]
        o_turn = Const {dtype: int32, value: tensor int32[5] [0, 3, 1, 2, 4]} -> int32[5]
        y_shape = Const {dtype: int32, value: tensor int32[4] [-1, 7, 6, 5]} -> int32[4]
        y = Identity(o3/attention) {T: bfloat16} -> bfloat16[?2, 7, 6, 5]
        o3/attention/mask = Squeeze(m) {T: bool, squeeze_dims: [1]} -> bool[?2, 1, 7, 9]
        o3/attention = _WgpuFusedAttention(q, k, v, o3/attention/mask) {
            T: bfloat16,
            Textra: [bool],
            Tsaved: [],
            broadcast: true,
            causal: false,
            fill: -1000000000.0,
            grouped: true,
            keep: true,
            layout: "BTNH",
            mask: "choice",
            scale: 0.5,
            zero_masked: true,
        } -> bfloat16[?2, 7, 6, 5]
    "#]],
    );
}

/// The same with TensorFlow's own einsums, which know no extents of rows and keys.
const GROUPED_EINSUMS: &str = "
preserve y
q = Placeholder {dtype: float32} -> float32[?2, ?3, 6, 8]
k = Placeholder {dtype: float32} -> float32[?2, ?4, 2, 8]
v = Placeholder {dtype: float32} -> float32[?2, ?4, 2, 5]
b = Placeholder {dtype: float32} -> float32[?3, ?4]
q_shape = Placeholder {dtype: int32} -> int32[5]
y_shape = Placeholder {dtype: int32} -> int32[4]
q1 = Reshape(q, q_shape) {T: float32, Tshape: int32} -> float32[?2, ?3, 2, 3, 8]
qk = Einsum(q1, k) {T: float32, equation: \"btkgh,bskh->bkgts\"} -> float32[?2, 2, 3, ?3, ?4]
z = AddV2(qk, b) {T: float32} -> float32[?2, 2, 3, ?3, ?4]
soft = Softmax(z) {T: float32} -> float32[?2, 2, 3, ?3, ?4]
qkv = Einsum(soft, v) {T: float32, equation: \"bkgts,bskh->btkgh\"} -> float32[?2, ?3, 2, 3, 5]
y0 = Reshape(qkv, y_shape) {T: float32, Tshape: int32} -> float32[?2, ?3, 6, 5]
y = Identity(y0) {T: float32} -> float32[?2, ?3, 6, 5]
";

#[test]
fn equations_with_an_axis_for_groups() {
    check(
        "attention",
        GROUPED_EINSUMS,
        &expect![[r#"
        preserve y
        q = Placeholder {dtype: float32} -> float32[?2, ?3, 6, 8]
        k = Placeholder {dtype: float32} -> float32[?2, ?4, 2, 8]
        v = Placeholder {dtype: float32} -> float32[?2, ?4, 2, 5]
        b = Placeholder {dtype: float32} -> float32[?3, ?4]
        q_shape = Placeholder {dtype: int32} -> int32[5]
        y_shape = Placeholder {dtype: int32} -> int32[4]
        y = Identity(y0/attention) {T: float32} -> float32[?2, ?3, 6, 5]
        y0/attention = _WgpuFusedAttention(q, k, v, b) {
            T: float32,
            Textra: [float32],
            Tsaved: [],
            broadcast: false,
            causal: false,
            fill: 0.0,
            grouped: true,
            keep: true,
            layout: "BTNH",
            mask: "bias",
            scale: 1.0,
            zero_masked: false,
        } -> float32[?2, ?3, 6, 5]
    "#]],
    );
}

#[test]
fn other_groups_stay() {
    for (from, to) in [
        // A mask that tells the heads of a group apart, or the heads of the keys.
        ("bool[?2, 1, 1, 7, 9]", "bool[?2, 1, 3, 7, 9]"),
        ("bool[?2, 1, 1, 7, 9]", "bool[2, 1, 7, 9]"),
        // Keys of one head, which would broadcast.
        (
            "k = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 2, 8]\n",
            "k = Placeholder {dtype: bfloat16} -> bfloat16[?2, 9, 1, 8]\n",
        ),
        // Rows of the query in another order than rows of the scores.
        ("int32[5] [0, 2, 3, 1, 4]", "int32[5] [0, 2, 1, 3, 4]"),
        // Heads of the query that are cut otherwise than the heads of the scores.
        (
            "q1 = Reshape(qs, q_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 7, 2, 3, 8]",
            "q1 = Reshape(qs, q_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 7, 3, 2, 8]",
        ),
        // Positions of unknown number: nothing tells which axis of a reshape is which.
        (
            "s1 = Reshape(qk, s_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 3, 7, 9]",
            "s1 = Reshape(qk, s_shape) {T: bfloat16, Tshape: int32} -> bfloat16[?2, 2, 3, ?5, 9]",
        ),
        // Weights and results that others read, as a gradient does.
        ("preserve y\n", "preserve y\ng = Neg(soft) {T: float32} -> float32[?2, 2, 3, 7, 9]\n"),
        ("preserve y", "preserve p1"),
        ("preserve y", "preserve o1"),
    ] {
        assert!(GROUPED.contains(from), "{from}");
        refuse("attention", &GROUPED.replace(from, to));
    }
}
