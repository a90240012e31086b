//! The pass `attention` where a gradient reads the weights.

use expect_test::expect;

use super::{check, refuse};

/// A tape's nodes for the gradient of Keras's `MultiHeadAttention` with a mask.
const EINSUMS: &str = "
preserve y, dq, dk, dv
q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
dy = Placeholder {dtype: float32} -> float32[?2, 7, 3, 5]
m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
low = Const {dtype: float32, value: tensor float32[] [-1000000000]} -> float32[]
zero = Const {dtype: float32, value: tensor float32[] [0]} -> float32[]
axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
qk = Einsum(q, k) {T: float32, equation: \"BTNH,BSNH->BNTS\"} -> float32[?2, 3, 7, 9]
x = Mul(c, qk) {T: float32} -> float32[?2, 3, 7, 9]
z = SelectV2(m, x, low) {T: float32} -> float32[?2, 3, 7, 9]
soft = Softmax(z) {T: float32} -> float32[?2, 3, 7, 9]
qkv = Einsum(soft, v) {T: float32, equation: \"BNTS,BSNH->BTNH\"} -> float32[?2, 7, 3, 5]
y = Identity(qkv) {T: float32} -> float32[?2, 7, 3, 5]
gw = Einsum(dy, v) {T: float32, equation: \"BTNH,BSNH->BNTS\"} -> float32[?2, 3, 7, 9]
gv = Einsum(dy, soft) {T: float32, equation: \"BTNH,BNTS->BSNH\"} -> float32[?2, 9, 3, 5]
gm = Mul(gw, soft) {T: float32} -> float32[?2, 3, 7, 9]
gs = Sum(gm, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[?2, 3, 7, 1]
gd = Sub(gw, gs) {T: float32} -> float32[?2, 3, 7, 9]
gz = Mul(gd, soft) {T: float32} -> float32[?2, 3, 7, 9]
gx = SelectV2(m, gz, zero) {T: float32} -> float32[?2, 3, 7, 9]
gp = Mul(gx, c) {T: float32} -> float32[?2, 3, 7, 9]
gq = Einsum(gp, k) {T: float32, equation: \"BNTS,BSNH->BTNH\"} -> float32[?2, 7, 3, 8]
gk = Einsum(gp, q) {T: float32, equation: \"BNTS,BTNH->BSNH\"} -> float32[?2, 9, 3, 8]
dq = Identity(gq) {T: float32} -> float32[?2, 7, 3, 8]
dk = Identity(gk) {T: float32} -> float32[?2, 9, 3, 8]
dv = Identity(gv) {T: float32} -> float32[?2, 9, 3, 5]
";

#[test]
fn einsums_with_a_mask() {
    check(
        "attention",
        EINSUMS,
        &expect![[r#"
            preserve dk, dq, dv, y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            dy = Placeholder {dtype: float32} -> float32[?2, 7, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            dq = Identity(gq/attention_gradient) {T: float32} -> float32[?2, 7, 3, 8]
            dk = Identity(gq/attention_gradient:1) {T: float32} -> float32[?2, 9, 3, 8]
            dv = Identity(gq/attention_gradient:2) {T: float32} -> float32[?2, 9, 3, 5]
            gq/attention_gradient = _WgpuFusedAttentionGrad(
                q,
                k,
                v,
                qkv/attention,
                dy,
                qkv/attention:1,
                m,
            ) {
                T: float32,
                Textra: [bool],
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 8], float32[?2, 9, 3, 8], float32[?2, 9, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, m) {
                T: float32,
                Textra: [bool],
                Tsaved: [float32],
                broadcast: false,
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5], float32
        "#]],
    );
}

/// Written by hand in mixed precision, with transposes, and with the scale multiplied with the
/// weights beforehand, as grappler does.
const PRODUCTS: &str = "
preserve y, dq, dk, dv
q = Placeholder {dtype: float16} -> float16[4, 6, 8]
k = Placeholder {dtype: float16} -> float16[4, 9, 8]
v = Placeholder {dtype: float16} -> float16[4, 9, 5]
dy = Placeholder {dtype: float16} -> float16[4, 6, 5]
c = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]
axis = Const {dtype: int32, value: tensor int32[1] [2]} -> int32[1]
turn = Const {dtype: int32, value: tensor int32[3] [0, 2, 1]} -> int32[3]
qk = BatchMatMulV2(q, k) {T: float16, adj_x: false, adj_y: true} -> float16[4, 6, 9]
wide = Cast(qk) {DstT: float32, SrcT: float16} -> float32[4, 6, 9]
x = Mul(wide, c) {T: float32} -> float32[4, 6, 9]
soft = Softmax(x) {T: float32} -> float32[4, 6, 9]
half = Cast(soft) {DstT: float16, SrcT: float32} -> float16[4, 6, 9]
qkv = BatchMatMulV2(half, v) {T: float16, adj_x: false, adj_y: false} -> float16[4, 6, 5]
y = Identity(qkv) {T: float16} -> float16[4, 6, 5]
gw0 = BatchMatMulV2(dy, v) {T: float16, adj_x: false, adj_y: true} -> float16[4, 6, 9]
gw = Cast(gw0) {DstT: float32, SrcT: float16} -> float32[4, 6, 9]
gv = BatchMatMulV2(half, dy) {T: float16, adj_x: true, adj_y: false} -> float16[4, 9, 5]
gm = Mul(soft, gw) {T: float32} -> float32[4, 6, 9]
gs = Sum(gm, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[4, 6, 1]
gd = Sub(gw, gs) {T: float32} -> float32[4, 6, 9]
cs = Mul(c, soft) {T: float32} -> float32[4, 6, 9]
gp = Mul(cs, gd) {T: float32} -> float32[4, 6, 9]
gh = Cast(gp) {DstT: float16, SrcT: float32} -> float16[4, 6, 9]
gq = BatchMatMulV2(gh, k) {T: float16, adj_x: false, adj_y: false} -> float16[4, 6, 8]
gkt = BatchMatMulV2(q, gh) {T: float16, adj_x: true, adj_y: false} -> float16[4, 8, 9]
gk = Transpose(gkt, turn) {T: float16, Tperm: int32} -> float16[4, 9, 8]
dq = Identity(gq) {T: float16} -> float16[4, 6, 8]
dk = Identity(gk) {T: float16} -> float16[4, 9, 8]
dv = Identity(gv) {T: float16} -> float16[4, 9, 5]
";

#[test]
fn products_with_conversions_and_a_transpose() {
    check(
        "attention",
        PRODUCTS,
        &expect![[r#"
            preserve dk, dq, dv, y
            q = Placeholder {dtype: float16} -> float16[4, 6, 8]
            k = Placeholder {dtype: float16} -> float16[4, 9, 8]
            v = Placeholder {dtype: float16} -> float16[4, 9, 5]
            dy = Placeholder {dtype: float16} -> float16[4, 6, 5]
            c = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]
            axis = Const {dtype: int32, value: tensor int32[1] [2]} -> int32[1]
            turn = Const {dtype: int32, value: tensor int32[3] [0, 2, 1]} -> int32[3]
            y = Identity(qkv/attention) {T: float16} -> float16[4, 6, 5]
            dq = Identity(gq/attention_gradient) {T: float16} -> float16[4, 6, 8]
            dk = Identity(gq/attention_gradient:1) {T: float16} -> float16[4, 9, 8]
            dv = Identity(gq/attention_gradient:2) {T: float16} -> float16[4, 9, 5]
            gq/attention_gradient = _WgpuFusedAttentionGrad(
                q,
                k,
                v,
                qkv/attention,
                dy,
                qkv/attention:1,
            ) {
                T: float16,
                Textra: [],
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BNTH",
                mask: "none",
                scale: 0.25,
                zero_masked: false,
            } -> float16[4, 6, 8], float16[4, 9, 8], float16[4, 9, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v) {
                T: float16,
                Textra: [],
                Tsaved: [float32],
                broadcast: true,
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BNTH",
                mask: "none",
                scale: 0.25,
                zero_masked: false,
            } -> float16[4, 6, 5], float32
        "#]],
    );
}

/// The text with a replacement, or with another line.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in the graph");
    text.replace(from, to)
}

#[test]
fn values_with_other_readers_stay() {
    for name in ["soft", "qk", "z", "gw", "gm", "gd", "gz", "gp"] {
        refuse(
            "attention",
            &format!("{EINSUMS}o = Neg({name}) {{T: float32}} -> float32[?2, 3, 7, 9]\n"),
        );
        refuse("attention", &changed(EINSUMS, "preserve y", &format!("preserve {name}, y")));
    }
    refuse("attention", &format!("{PRODUCTS}o = Neg(half) {{T: float16}} -> float16[4, 6, 9]\n"));
    refuse(
        "attention",
        &changed(
            EINSUMS,
            "BSNH->BTNH\"} -> float32[?2, 7, 3, 8]",
            "BSNH->BTNH\"} @CPU:0 -> float32[?2, 7, 3, 8]",
        ),
    );
}

#[test]
fn other_products_stay() {
    for (from, to) in [
        // Other weights, another scale, mask, sum, order, value, key, query or result.
        ("gz = Mul(gd, soft)", "gz = Mul(gd, gw)"),
        ("gp = Mul(gx, c)", "gp = Mul(gx, low)"),
        ("gx = SelectV2(m, gz, zero)", "gx = SelectV2(m, zero, gz)"),
        ("gx = SelectV2(m, gz, zero)", "gx = SelectV2(m, gz, low)"),
        (
            "gs = Sum(gm, axis) {T: float32, Tidx: int32, keep_dims: true}",
            "gs = Mean(gm, axis) {T: float32, Tidx: int32, keep_dims: true}",
        ),
        ("tensor int32[] [-1]", "tensor int32[] [-2]"),
        ("gd = Sub(gw, gs)", "gd = Sub(gs, gw)"),
        ("gw = Einsum(dy, v)", "gw = Einsum(dy, v2)"),
        ("gq = Einsum(gp, k)", "gq = Einsum(gp, k2)"),
        ("gk = Einsum(gp, q)", "gk = Einsum(gp, q2)"),
        ("gv = Einsum(dy, soft)", "gv = Einsum(qkv, soft)"),
        // A mask that may have more batches than the scores.
        (
            "soft = Softmax(z) {T: float32} -> float32[?2, 3, 7, 9]",
            "soft = Softmax(z) {T: float32} -> float32[?3, 3, 7, 9]",
        ),
        ("bool[?2, 1, 1, 9]", "bool"),
        // Control edges that lead from the gradient to the forward pass.
        ("qkv = Einsum(soft, v)", "qkv = Einsum(soft, v, ^gv)"),
    ] {
        let more = "v2 = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]\nk2 = Placeholder \
                    {dtype: float32} -> float32[?2, 9, 3, 8]\nq2 = Placeholder {dtype: float32} \
                    -> float32[?2, 7, 3, 8]\nq = Placeholder";
        refuse("attention", &changed(&changed(EINSUMS, from, to), "q = Placeholder", more));
    }
    // One of the gradients is missing, or there are too many.
    let only_query = EINSUMS.lines().filter(|l| !l.starts_with("gk") && !l.starts_with("dk"));
    let only_query = only_query.collect::<Vec<_>>().join("\n").replace("dq, dk, dv", "dq, dv");
    refuse("attention", &only_query);
    // Batches that may broadcast.
    refuse(
        "attention",
        &changed(
            PRODUCTS,
            "k = Placeholder {dtype: float16} -> float16[4, 9, 8]",
            "k = Placeholder {dtype: float16} -> float16[1, 9, 8]",
        ),
    );
}

#[test]
fn control_edges_go_on() {
    let text = changed(
        EINSUMS,
        "gx = SelectV2(m, gz, zero)",
        "w = NoOp(^gd, ^soft)\ngx = SelectV2(m, gz, zero, ^go)",
    );
    let text = changed(&text, "q = Placeholder", "go = NoOp()\nq = Placeholder");
    let text = changed(&text, "preserve y", "preserve w, y");
    check(
        "attention",
        &text,
        &expect![[r#"
            preserve dk, dq, dv, w, y
            go = NoOp
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            dy = Placeholder {dtype: float32} -> float32[?2, 7, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            w = NoOp(^gq/attention_gradient, ^qkv/attention)
            dq = Identity(gq/attention_gradient) {T: float32} -> float32[?2, 7, 3, 8]
            dk = Identity(gq/attention_gradient:1) {T: float32} -> float32[?2, 9, 3, 8]
            dv = Identity(gq/attention_gradient:2) {T: float32} -> float32[?2, 9, 3, 5]
            gq/attention_gradient = _WgpuFusedAttentionGrad(
                q,
                k,
                v,
                qkv/attention,
                dy,
                qkv/attention:1,
                m,
                ^go,
            ) {
                T: float32,
                Textra: [bool],
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 8], float32[?2, 9, 3, 8], float32[?2, 9, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, m) {
                T: float32,
                Textra: [bool],
                Tsaved: [float32],
                broadcast: false,
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5], float32
        "#]],
    );
}

/// A mask as large as the scores, as Keras makes it.
fn with_shape() -> String {
    let text = changed(EINSUMS, "SelectV2(m, x, low)", "SelectV2(mx, x, low)");
    let text = changed(&text, "SelectV2(m, gz, zero)", "SelectV2(mx, gz, zero)");
    let mask = "z = SelectV2";
    let wide = "sx = Shape(x) {T: float32, out_type: int32} -> int32[4]\nmx = BroadcastTo(m, sx) \
                {T: bool, Tidx: int32} -> bool[?2, 3, 7, 9]\nz = SelectV2";
    changed(&text, mask, wide)
}

#[test]
fn a_mask_of_the_shape_of_scores() {
    check(
        "attention",
        &with_shape(),
        &expect![[r#"
            preserve dk, dq, dv, y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            dy = Placeholder {dtype: float32} -> float32[?2, 7, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            mx = BroadcastTo(m, sx/packed) {T: bool, Tidx: int32} -> bool[?2, 3, 7, 9]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            dq = Identity(gq/attention_gradient) {T: float32} -> float32[?2, 7, 3, 8]
            dk = Identity(gq/attention_gradient:1) {T: float32} -> float32[?2, 9, 3, 8]
            dv = Identity(gq/attention_gradient:2) {T: float32} -> float32[?2, 9, 3, 5]
            sx/operand = Shape(q) {T: float32, out_type: int32} -> int32[4]
            sx/extent = Const {dtype: int32, value: tensor int32[1] [0]} -> int32[1]
            sx/extent_1 = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
            sx/extent_2 = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
            sx/extent_3 = StridedSlice(sx/operand, sx/extent, sx/extent_1, sx/extent_2) {
                Index: int32,
                T: int32,
                begin_mask: 0,
                ellipsis_mask: 0,
                end_mask: 0,
                new_axis_mask: 0,
                shrink_axis_mask: 1,
            } -> int32[]
            sx/extent_4 = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
            sx/extent_5 = Const {dtype: int32, value: tensor int32[] [7]} -> int32[]
            sx/extent_6 = Const {dtype: int32, value: tensor int32[] [9]} -> int32[]
            sx/packed = Pack(sx/extent_3, sx/extent_4, sx/extent_5, sx/extent_6) {
                N: 4,
                T: int32,
                axis: 0,
            } -> int32[4]
            gq/attention_gradient = _WgpuFusedAttentionGrad(
                q,
                k,
                v,
                qkv/attention,
                dy,
                qkv/attention:1,
                mx,
            ) {
                T: float32,
                Textra: [bool],
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 8], float32[?2, 9, 3, 8], float32[?2, 9, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, mx) {
                T: float32,
                Textra: [bool],
                Tsaved: [float32],
                broadcast: false,
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5], float32
        "#]],
    );
}

#[test]
fn a_shape_that_must_stay() {
    refuse("attention", &changed(&with_shape(), "preserve y", "preserve sx, y"));
    refuse(
        "attention",
        &changed(&with_shape(), "out_type: int32} -> int32[4]", "out_type: int64} -> int64[4]"),
    );
    // A gradient that does not match for another reason keeps its shape.
    refuse("attention", &changed(&with_shape(), "gp = Mul(gx, c)", "gp = Mul(gx, low)"));
}
