//! Elementwise groups around nodes that repeat a tensor or only change its shape.

use expect_test::expect;

use super::{check, refuse};

/// The gradient of a batch normalization: a repeated tensor is read before it is repeated.
#[test]
fn repetitions_within() {
    check(
        "elementwise",
        "preserve out
         dy = Placeholder -> float32[4, 8]
         x = Placeholder -> float32[4, 8]
         mean = Placeholder -> float32[1, 8]
         v = Placeholder -> float32[1, 8]
         w = Placeholder -> float32[8]
         multiples = Const {dtype: int32, value: tensor int32[2] [4, 1]} -> int32[2]
         whole = Const {dtype: int32, value: tensor int32[2] [4, 8]} -> int32[2]
         two = Const {dtype: float32, value: tensor float32[] [2]} -> float32[]
         quarter = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]
         t = Tile(v, multiples) {T: float32, Tmultiples: int32} -> float32[4, 8]
         d = Mul(t, quarter) {T: float32} -> float32[4, 8]
         e = Mul(two, d) {T: float32} -> float32[4, 8]
         s = Sub(x, mean, ^d) {T: float32} -> float32[4, 8]
         g = Mul(e, s) {T: float32} -> float32[4, 8]
         b = BroadcastTo(w, whole) {T: float32, Tidx: int32} -> float32[4, 8]
         n = AddN(dy, g, b) {N: 3, T: float32} -> float32[4, 8]
         out = Custom(n)",
        &expect![[r#"
            preserve out
            dy = Placeholder -> float32[4, 8]
            x = Placeholder -> float32[4, 8]
            mean = Placeholder -> float32[1, 8]
            v = Placeholder -> float32[1, 8]
            w = Placeholder -> float32[8]
            multiples = Const {dtype: int32, value: tensor int32[2] [4, 1]} -> int32[2]
            whole = Const {dtype: int32, value: tensor int32[2] [4, 8]} -> int32[2]
            out = Custom(n/wgpu_fused)
            n/wgpu_fused = _WgpuFusedElementwise(v, w, x, mean, dy) {
                T_in: [float32, float32, float32, float32, float32],
                T_out: [float32],
                constants: [0.25, 2.0],
                expression:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 2; "
                    "s0 = Mul<float32>(x0, c0); "
                    "s1 = Sub<float32>(x2, x3); "
                    "s2 = Mul<float32>(c1, s0); "
                    "s3 = Mul<float32>(s2, s1); "
                    "s4 = AddV2<float32>(x4, s3); "
                    "s5 = AddV2<float32>(s4, x1); "
                    "return s5",
            } -> float32[4, 8]
        "#]],
    );
}

/// Outer extents of 1 do not matter if other nodes give the result its shape.
#[test]
fn views_are_looked_through() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4, 8]
         v = Placeholder -> float32[8]
         w = Placeholder -> float32[8]
         d = Const {dtype: int32, value: tensor int32[2] [1, 8]} -> int32[2]
         m = Const {dtype: int32, value: tensor int32[2] [4, 1]} -> int32[2]
         a = Mul(v, w) {T: float32} -> float32[8]
         b = Reshape(a, d) {T: float32, Tshape: int32} -> float32[1, 8]
         t = Tile(b, m) {T: float32, Tmultiples: int32} -> float32[4, 8]
         y = AddV2(x, t) {T: float32} -> float32[4, 8]
         e = Exp(w) {T: float32} -> float32[8]
         f = Reshape(e, d) {T: float32, Tshape: int32} -> float32[1, 8]
         z = Mul(y, f) {T: float32} -> float32[4, 8]
         g = Neg(f) {T: float32} -> float32[1, 8]
         h = Square(g) {T: float32} -> float32[1, 8]
         out = Custom(z, h)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4, 8]
            v = Placeholder -> float32[8]
            w = Placeholder -> float32[8]
            d = Const {dtype: int32, value: tensor int32[2] [1, 8]} -> int32[2]
            m = Const {dtype: int32, value: tensor int32[2] [4, 1]} -> int32[2]
            out = Custom(z/wgpu_fused, h/behind)
            h/behind = Reshape(a/wgpu_fused:1, d) {T: float32, Tshape: int32} -> float32[1, 8]
            a/wgpu_fused = _WgpuFusedElementwise(w, v) {
                T_in: [float32, float32],
                T_out: [float32, float32, float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Neg<float32>(s0); "
                    "s2 = Square<float32>(s1); "
                    "s3 = Mul<float32>(x1, x0); "
                    "return s0, s2, s3",
            } -> float32[8], float32[8], float32[8]
            z/wgpu_fused = _WgpuFusedElementwise(a/wgpu_fused:2, x, a/wgpu_fused) {
                T_in: [float32, float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x1, x0); "
                    "s1 = Mul<float32>(s0, x2); "
                    "return s1",
            } -> float32[4, 8]
        "#]],
    );
}

/// A reshape that gives the result its rank divides a group.
#[test]
fn reshapes_divide() {
    refuse(
        "elementwise",
        "preserve out
         v = Placeholder -> float32[8]
         d = Const {dtype: int32, value: tensor int32[2] [1, 8]} -> int32[2]
         a = Square(v) {T: float32} -> float32[8]
         b = Reshape(a, d) {T: float32, Tshape: int32} -> float32[1, 8]
         c = Mul(b, v) {T: float32} -> float32[1, 8]
         out = Custom(c)",
    );
}

/// Some nodes of a group read a view that the others look through: it stays.
#[test]
fn a_view_of_both_kinds() {
    check(
        "elementwise",
        "preserve out
         v = Placeholder -> float32[8]
         d = Const {dtype: int32, value: tensor int32[2] [1, 8]} -> int32[2]
         b = Reshape(v, d) {T: float32, Tshape: int32} -> float32[1, 8]
         c = Tanh(b) {T: float32} -> float32[1, 8]
         e = Mul(b, c) {T: float32} -> float32[1, 8]
         out = Custom(e)",
        &expect![[r#"
            preserve out
            v = Placeholder -> float32[8]
            d = Const {dtype: int32, value: tensor int32[2] [1, 8]} -> int32[2]
            b = Reshape(v, d) {T: float32, Tshape: int32} -> float32[1, 8]
            out = Custom(e/wgpu_fused)
            e/wgpu_fused = _WgpuFusedElementwise(b) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Tanh<float32>(x0); "
                    "s1 = Mul<float32>(x0, s0); "
                    "return s1",
            } -> float32[1, 8]
        "#]],
    );
}

/// A group normalization's last step and the activation behind the shape of its input.
fn groups(activation: &str, more: &str) -> String {
    format!(
        "preserve out
         x = Placeholder -> float32[2, 4, 3, 2]
         scale = Placeholder -> float32[1, 1, 3, 2]
         mean = Placeholder -> float32[2, 1, 3, 1]
         d = Const {{dtype: int32, value: tensor int32[3] [2, 4, 6]}} -> int32[3]
         a = Sub(x, mean) {{T: float32}} -> float32[2, 4, 3, 2]
         b = Mul(a, scale) {{T: float32}} -> float32[2, 4, 3, 2]
         r = Reshape(b, d) {{T: float32, Tshape: int32}} -> float32[2, 4, 6]
         {activation}
         out = Custom(z)
         {more}"
    )
}

const SILU: &str = "y = Sigmoid(r) {T: float32} -> float32[2, 4, 6]
                    z = Mul(y, r) {T: float32} -> float32[2, 4, 6]";

#[test]
fn changes_of_shape_come_behind_what_is_elementwise() {
    check(
        "elementwise",
        &groups(SILU, ""),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[2, 4, 3, 2]
            scale = Placeholder -> float32[1, 1, 3, 2]
            mean = Placeholder -> float32[2, 1, 3, 1]
            d = Const {dtype: int32, value: tensor int32[3] [2, 4, 6]} -> int32[3]
            out = Custom(z/behind)
            z/behind = Reshape(z/wgpu_fused, d) {T: float32, Tshape: int32} -> float32[2, 4, 6]
            z/wgpu_fused = _WgpuFusedElementwise(x, mean, scale) {
                T_in: [float32, float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = Sub<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, x2); "
                    "s2 = Sigmoid<float32>(s1); "
                    "s3 = Mul<float32>(s2, s1); "
                    "return s3",
            } -> float32[2, 4, 3, 2]
        "#]],
    );
    // A value with other readers in the new shape is stored too.
    let after = super::after("elementwise", &groups(SILU, "more = Custom(r)"));
    assert!(after.contains("return s1, s3"), "{after}");
    // Single numbers have no shape.
    let half = "h = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
                z = Mul(r, h) {T: float32} -> float32[2, 4, 6]";
    let after = super::after("elementwise", &groups(half, ""));
    assert!(after.contains("z/behind = Reshape(z/wgpu_fused"), "{after}");
}

#[test]
fn changes_of_shape_stay_where_others_meet() {
    for (activation, more) in [
        // The other operand cannot be read in the old shape, or has another one.
        ("z = Mul(r, v) {T: float32} -> float32[2, 4, 6]", "v = Placeholder -> float32[6]"),
        (
            "z = Mul(r, q) {T: float32} -> float32[2, 4, 6]",
            "p = Placeholder -> float32[8, 6]
             q = Reshape(p, d) {T: float32, Tshape: int32} -> float32[2, 4, 6]",
        ),
    ] {
        let after = super::after("elementwise", &groups(activation, more));
        assert!(after.contains("r = Reshape(b/wgpu_fused, d)"), "{after}");
    }
    // The change of shape waits for a node, or a node waits for it.
    for (from, to) in [("Reshape(b, d)", "Reshape(b, d, ^scale)"), ("Sigmoid(r)", "Sigmoid(r, ^r)")]
    {
        let after = super::after("elementwise", &groups(SILU, "").replace(from, to));
        assert!(after.contains("= Reshape(b/wgpu_fused, d"), "{after}");
    }
}

#[test]
fn values_computed_again_behind_a_view_read_one_tensor() {
    // `c` is recomputed by `s`, whose value has its shape from it, and by `m`, which has another
    // tensor of that shape.
    let after = super::after(
        "elementwise",
        "preserve x, t, out
         x = Placeholder -> float16[3]
         t = Placeholder -> float32[1, 3]
         d = Const {dtype: int32, value: tensor int32[2] [1, 3]} -> int32[2]
         v = Reshape(x, d) {T: float16, Tshape: int32} -> float16[1, 3]
         c = Cast(v) {SrcT: float16, DstT: float32, Truncate: false} -> float32[1, 3]
         s = Square(c) {T: float32} -> float32[1, 3]
         m = Mul(c, t) {T: float32} -> float32[1, 3]
         sum = AddV2(s, m) {T: float32} -> float32[1, 3]
         out = Custom(sum)",
    );
    assert!(after.contains("sum/wgpu_fused = _WgpuFusedElementwise(v, t)"), "{after}");
}
