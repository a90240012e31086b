//! The pass `attention`.

use expect_test::expect;

use super::{after, check, refuse};

/// Keras's nodes for `MultiHeadAttention`, and the same with `MIDDLE` between the products.
fn einsums(middle: &str, between: &str) -> String {
    format!(
        "preserve y
q = Placeholder {{dtype: float32}} -> float32[?2, 7, 3, 8]
k = Placeholder {{dtype: float32}} -> float32[?2, 9, 3, 8]
v = Placeholder {{dtype: float32}} -> float32[?2, 9, 3, 5]
m = Placeholder {{dtype: bool}} -> bool[?2, 1, 1, 9]
b = Placeholder {{dtype: float32}} -> float32[3, 7, 9]
c = Const {{dtype: float32, value: tensor float32[] [0.5]}} -> float32[]
low = Const {{dtype: float32, value: tensor float32[] [-1000000000]}} -> float32[]
zero = Const {{dtype: float32, value: tensor float32[] [0]}} -> float32[]
qk = Einsum(q, k) {{T: float32, equation: \"BTNH,BSNH->BNTS\"}} -> float32[?2, 3, 7, 9]
{middle}
soft = Softmax({between}) {{T: float32}} -> float32[?2, 3, 7, 9]
qkv = Einsum(soft, v) {{T: float32, equation: \"BNTS,BSNH->BTNH\"}} -> float32[?2, 7, 3, 5]
y = Identity(qkv) {{T: float32}} -> float32[?2, 7, 3, 5]
"
    )
}

const SCALED: &str = "x = Mul(qk, c) {T: float32} -> float32[?2, 3, 7, 9]";

#[test]
fn einsums_with_a_scale() {
    check(
        "attention",
        &einsums(SCALED, "x"),
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            b = Placeholder {dtype: float32} -> float32[3, 7, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v) {
                T: float32,
                Textra: [],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BTNH",
                mask: "none",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5]
        "#]],
    );
}

#[test]
fn a_mask_chooses() {
    let middle =
        format!("{SCALED}\nz = SelectV2(m, x, low) {{T: float32}} -> float32[?2, 3, 7, 9]");
    check(
        "attention",
        &einsums(&middle, "z"),
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            b = Placeholder {dtype: float32} -> float32[3, 7, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, m) {
                T: float32,
                Textra: [bool],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: -1000000000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5]
        "#]],
    );
}

#[test]
fn a_bias_is_added() {
    let middle = format!("{SCALED}\nz = AddV2(b, x) {{T: float32}} -> float32[?2, 3, 7, 9]");
    check(
        "attention",
        &einsums(&middle, "z"),
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            b = Placeholder {dtype: float32} -> float32[3, 7, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, b) {
                T: float32,
                Textra: [float32],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BTNH",
                mask: "bias",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5]
        "#]],
    );
}

/// A soft cap as Gemma 2 has it, with a mask after it.
const CAPPED: &str = "x = Mul(qk, c) {T: float32} -> float32[?2, 3, 7, 9]
bent = Tanh(x) {T: float32} -> float32[?2, 3, 7, 9]
cap = Const {dtype: float32, value: tensor float32[] [2]} -> float32[]
capped = Mul(bent, cap) {T: float32} -> float32[?2, 3, 7, 9]
z = SelectV2(m, capped, low) {T: float32} -> float32[?2, 3, 7, 9]";

#[test]
fn a_soft_cap_bounds_scores() {
    let text = after("attention", &einsums(CAPPED, "z"));
    for part in
        ["scale: 0.5", "soft_cap: 2.0", "mask: \"choice\"", "_WgpuFusedAttention(q, k, v, m)"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    // A mask before the cap, a second cap, a gradient.
    let before = CAPPED
        .replace("Tanh(x)", "Tanh(w)")
        .replace("\nbent", "\nw = SelectV2(m, x, low) {T: float32} -> float32[?2, 3, 7, 9]\nbent");
    refuse("attention", &einsums(&before, "capped"));
    let twice = CAPPED.replace("SelectV2(m, capped, low)", "Tanh(capped)");
    refuse("attention", &einsums(&twice, "z"));
    let read = format!("{CAPPED}\ng = Neg(soft) {{T: float32}} -> float32[?2, 3, 7, 9]");
    refuse("attention", &einsums(&read, "z"));
}

#[test]
fn a_penalty_is_subtracted() {
    let middle = format!(
        "{SCALED}\nbig = Const {{dtype: float32, value: tensor float32[] [1000000000]}} -> \
         float32[]\nless = Sub(x, big) {{T: float32}} -> float32[?2, 3, 7, 9]\nz = SelectV2(m, \
         less, x) {{T: float32}} -> float32[?2, 3, 7, 9]"
    );
    check(
        "attention",
        &einsums(&middle, "z"),
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 3, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 3, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, 9]
            b = Placeholder {dtype: float32} -> float32[3, 7, 9]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            low = Const {dtype: float32, value: tensor float32[] [-1000000000.0]} -> float32[]
            zero = Const {dtype: float32, value: tensor float32[] [0.0]} -> float32[]
            big = Const {dtype: float32, value: tensor float32[] [1000000000.0]} -> float32[]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v, m) {
                T: float32,
                Textra: [bool],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: -1000000000.0,
                keep: false,
                layout: "BTNH",
                mask: "penalty",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 3, 5]
        "#]],
    );
}

/// Keras's nodes for `MultiHeadAttention` with dropout, in inference and with a mask.
const TRANSPOSED: &str = "
preserve y
q = Placeholder {dtype: float16} -> float16[?2, ?3, 3, 8]
k = Placeholder {dtype: float16} -> float16[?2, ?4, 3, 8]
v = Placeholder {dtype: float16} -> float16[?2, ?4, 3, 5]
m = Placeholder {dtype: bool} -> bool[?2, 1, 1, ?4]
c = Const {dtype: float16, value: tensor float16[] [0.5]} -> float16[]
low = Const {dtype: float16, value: tensor float16[] [-30000]} -> float16[]
zero = Const {dtype: float16, value: tensor float16[] [0]} -> float16[]
swap = Const {dtype: int32, value: tensor int32[4] [0, 2, 1, 3]} -> int32[4]
turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
last = Const {dtype: int32, value: tensor int32[4] [0, 1, 3, 2]} -> int32[4]
qs = Mul(q, c) {T: float16} -> float16[?2, ?3, 3, 8]
kt = Transpose(k, swap) {T: float16, Tperm: int32} -> float16[?2, 3, ?4, 8]
qt = Transpose(qs, turn) {T: float16, Tperm: int32} -> float16[?2, 3, 8, ?3]
kq = BatchMatMulV2(kt, qt) {T: float16, adj_x: false, adj_y: false} -> float16[?2, 3, ?4, ?3]
qk = Transpose(kq, last) {T: float16, Tperm: int32} -> float16[?2, 3, ?3, ?4]
x = SelectV2(m, qk, low) {T: float16} -> float16[?2, 3, ?3, ?4]
soft = Softmax(x) {T: float16} -> float16[?2, 3, ?3, ?4]
kept = SelectV2(m, soft, zero) {T: float16} -> float16[?2, 3, ?3, ?4]
vt = Transpose(v, swap) {T: float16, Tperm: int32} -> float16[?2, 3, ?4, 5]
qkv = BatchMatMulV2(kept, vt) {T: float16, adj_x: false, adj_y: false} -> float16[?2, 3, ?3, 5]
y0 = Transpose(qkv, swap) {T: float16, Tperm: int32} -> float16[?2, ?3, 3, 5]
y = Identity(y0) {T: float16} -> float16[?2, ?3, 3, 5]
";

#[test]
fn transposes_around_vanish() {
    check(
        "attention",
        TRANSPOSED,
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float16} -> float16[?2, ?3, 3, 8]
            k = Placeholder {dtype: float16} -> float16[?2, ?4, 3, 8]
            v = Placeholder {dtype: float16} -> float16[?2, ?4, 3, 5]
            m = Placeholder {dtype: bool} -> bool[?2, 1, 1, ?4]
            c = Const {dtype: float16, value: tensor float16[] [0.5]} -> float16[]
            low = Const {dtype: float16, value: tensor float16[] [-30000.0]} -> float16[]
            zero = Const {dtype: float16, value: tensor float16[] [0.0]} -> float16[]
            swap = Const {dtype: int32, value: tensor int32[4] [0, 2, 1, 3]} -> int32[4]
            turn = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
            last = Const {dtype: int32, value: tensor int32[4] [0, 1, 3, 2]} -> int32[4]
            y = Identity(y0/attention) {T: float16} -> float16[?2, ?3, 3, 5]
            y0/attention = _WgpuFusedAttention(q, k, v, m) {
                T: float16,
                Textra: [bool],
                Tsaved: [],
                broadcast: true,
                causal: false,
                fill: -30000.0,
                keep: true,
                layout: "BTNH",
                mask: "choice",
                scale: 0.5,
                zero_masked: true,
            } -> float16[?2, ?3, 3, 5]
        "#]],
    );
}

/// By hand, with conversions as in mixed precision.
const BY_HAND: &str = "
preserve y
q = Placeholder {dtype: float16} -> float16[?2, ?3, 8]
k = Placeholder {dtype: float16} -> float16[?2, ?4, 8]
v = Placeholder {dtype: float16} -> float16[?2, ?4, 5]
c = Const {dtype: float32, value: tensor float32[] [2]} -> float32[]
qk = BatchMatMulV2(q, k) {T: float16, adj_x: false, adj_y: true} -> float16[?2, ?3, ?4]
wide = Cast(qk) {DstT: float32, SrcT: float16} -> float32[?2, ?3, ?4]
x = RealDiv(wide, c) {T: float32} -> float32[?2, ?3, ?4]
soft = Softmax(x) {T: float32} -> float32[?2, ?3, ?4]
half = Cast(soft) {DstT: float16, SrcT: float32} -> float16[?2, ?3, ?4]
qkv = BatchMatMulV2(half, v) {T: float16, adj_x: false, adj_y: false} -> float16[?2, ?3, 5]
y = Identity(qkv) {T: float16} -> float16[?2, ?3, 5]
";

#[test]
fn matrix_products_with_conversions() {
    check(
        "attention",
        BY_HAND,
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float16} -> float16[?2, ?3, 8]
            k = Placeholder {dtype: float16} -> float16[?2, ?4, 8]
            v = Placeholder {dtype: float16} -> float16[?2, ?4, 5]
            c = Const {dtype: float32, value: tensor float32[] [2.0]} -> float32[]
            y = Identity(qkv/attention) {T: float16} -> float16[?2, ?3, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v) {
                T: float16,
                Textra: [],
                Tsaved: [],
                broadcast: true,
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BNTH",
                mask: "none",
                scale: 0.5,
                zero_masked: false,
            } -> float16[?2, ?3, 5]
        "#]],
    );
}

#[test]
fn values_with_other_readers_stay() {
    // Weights that a gradient reads, scores that are fetched.
    let plain = einsums(SCALED, "x");
    refuse("attention", &format!("{plain}\ng = Neg(soft) {{T: float32}} -> float32[?2, 3, 7, 9]"));
    refuse("attention", &format!("preserve x\n{plain}"));
    refuse("attention", &format!("preserve qkv\n{plain}"));
    refuse(
        "attention",
        &plain.replace(
            "equation: \"BNTS,BSNH->BTNH\"} ->",
            "equation: \"BNTS,BSNH->BTNH\"} @CPU:0 ->",
        ),
    );
}

#[test]
fn other_products_stay() {
    let plain = einsums(SCALED, "x");
    for (from, to) in [
        // Heads that are summed, a scale that is no constant, a repeated axis.
        ("BNTS,BSNH->BTNH", "BNTS,BSNH->BTH"),
        ("Mul(qk, c)", "Mul(qk, b)"),
        ("BTNH,BSNH->BNTS", "BTNT,BSNH->BNTS"),
    ] {
        refuse("attention", &plain.replace(from, to));
    }
    // A scale after the mask, a mask of unknown rank, a mask that depends on the scores.
    let outer = "z = AddV2(b, qk) {T: float32} -> float32[?2, 3, 7, 9]\nx = Mul(z, c) {T: \
                 float32} -> float32[?2, 3, 7, 9]";
    refuse("attention", &einsums(outer, "x"));
    let masked =
        format!("{SCALED}\nz = SelectV2(m, x, low) {{T: float32}} -> float32[?2, 3, 7, 9]");
    refuse("attention", &einsums(&masked, "z").replace("bool[?2, 1, 1, 9]", "bool"));
    let own = format!(
        "{SCALED}\nn = Less(x, zero) {{T: float32}} -> bool[?2, 3, 7, 9]\nz = SelectV2(n, x, low) \
         {{T: float32}} -> float32[?2, 3, 7, 9]"
    );
    refuse("attention", &einsums(&own, "z"));
    // Masked weights by another mask, and heads in different places.
    refuse(
        "attention",
        &TRANSPOSED.replace("SelectV2(m, soft, zero)", "SelectV2(m2, soft, zero)").replace(
            "\nc = Const",
            "\nm2 = Placeholder {dtype: bool} -> bool[?2, 1, 1, ?4]\nc = Const",
        ),
    );
    refuse(
        "attention",
        &BY_HAND.replace("adj_x: false, adj_y: true", "adj_x: false, adj_y: false"),
    );
}

/// `tf.repeat` of the heads of key and value, of `ENDS` and with `MULTIPLES`.
fn repeats(multiples: &str, after: &str) -> String {
    format!(
        "preserve y
q = Placeholder {{dtype: float32}} -> float32[?2, 7, 6, 8]
k = Placeholder {{dtype: float32}} -> float32[?2, 9, 2, 8]
v = Placeholder {{dtype: float32}} -> float32[?2, 9, 2, 5]
c = Const {{dtype: float32, value: tensor float32[] [0.5]}} -> float32[]
axis = Const {{dtype: int32, value: tensor int32[] [3]}} -> int32[]
by = Const {{dtype: int32, value: tensor int32[5] {multiples}}} -> int32[5]
shape_k = Placeholder {{dtype: int32}} -> int32[4]
shape_v = Placeholder {{dtype: int32}} -> int32[4]
k1 = ExpandDims(k, axis) {{T: float32, Tdim: int32}} -> float32[?2, 9, 2, 1, 8]
k2 = Tile(k1, by) {{T: float32, Tmultiples: int32}} -> float32[?2, 9, 2, 3, 8]
k3 = Reshape(k2, shape_k) {{T: float32, Tshape: int32}} -> float32[{after}, 9, 6, 8]
v1 = ExpandDims(v, axis) {{T: float32, Tdim: int32}} -> float32[?2, 9, 2, 1, 5]
v2 = Tile(v1, by) {{T: float32, Tmultiples: int32}} -> float32[?2, 9, 2, 3, 5]
v3 = Reshape(v2, shape_v) {{T: float32, Tshape: int32}} -> float32[{after}, 9, 6, 5]
qk = Einsum(q, k3) {{T: float32, equation: \"BTNH,BSNH->BNTS\"}} -> float32[?2, 6, 7, 9]
x = Mul(qk, c) {{T: float32}} -> float32[?2, 6, 7, 9]
soft = Softmax(x) {{T: float32}} -> float32[?2, 6, 7, 9]
qkv = Einsum(soft, v3) {{T: float32, equation: \"BNTS,BSNH->BTNH\"}} -> float32[?2, 7, 6, 5]
y = Identity(qkv) {{T: float32}} -> float32[?2, 7, 6, 5]
"
    )
}

#[test]
fn repeated_heads_are_read_as_they_were() {
    check(
        "attention",
        &repeats("[1, 1, 1, 3, 1]", "?5"),
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 6, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 2, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 2, 5]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            shape_k = Placeholder {dtype: int32} -> int32[4]
            shape_v = Placeholder {dtype: int32} -> int32[4]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 6, 5]
            qkv/attention = _WgpuFusedAttention(q, k, v) {
                T: float32,
                Textra: [],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: 0.0,
                grouped: true,
                keep: true,
                layout: "BTNH",
                mask: "none",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 6, 5]
        "#]],
    );
}

#[test]
fn other_repetitions_stay() {
    // The batch is repeated as well.
    let text = repeats("[3, 1, 1, 3, 1]", "?5");
    check(
        "attention",
        &text,
        &expect![[r#"
            preserve y
            q = Placeholder {dtype: float32} -> float32[?2, 7, 6, 8]
            k = Placeholder {dtype: float32} -> float32[?2, 9, 2, 8]
            v = Placeholder {dtype: float32} -> float32[?2, 9, 2, 5]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            axis = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
            by = Const {dtype: int32, value: tensor int32[5] [3, 1, 1, 3, 1]} -> int32[5]
            shape_k = Placeholder {dtype: int32} -> int32[4]
            shape_v = Placeholder {dtype: int32} -> int32[4]
            k1 = ExpandDims(k, axis) {T: float32, Tdim: int32} -> float32[?2, 9, 2, 1, 8]
            k2 = Tile(k1, by) {T: float32, Tmultiples: int32} -> float32[?2, 9, 2, 3, 8]
            k3 = Reshape(k2, shape_k) {T: float32, Tshape: int32} -> float32[?5, 9, 6, 8]
            v1 = ExpandDims(v, axis) {T: float32, Tdim: int32} -> float32[?2, 9, 2, 1, 5]
            v2 = Tile(v1, by) {T: float32, Tmultiples: int32} -> float32[?2, 9, 2, 3, 5]
            v3 = Reshape(v2, shape_v) {T: float32, Tshape: int32} -> float32[?5, 9, 6, 5]
            y = Identity(qkv/attention) {T: float32} -> float32[?2, 7, 6, 5]
            qkv/attention = _WgpuFusedAttention(q, k3, v3) {
                T: float32,
                Textra: [],
                Tsaved: [],
                broadcast: false,
                causal: false,
                fill: 0.0,
                keep: true,
                layout: "BTNH",
                mask: "none",
                scale: 0.5,
                zero_masked: false,
            } -> float32[?2, 7, 6, 5]
        "#]],
    );
}
