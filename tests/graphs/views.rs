//! Elementwise groups around nodes that repeat a tensor or only change its shape.

use expect_test::expect;

use super::{check, refuse};

/// The gradient of a batch normalization: what is repeated is read where it is small.
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
            n/wgpu_fused = _WgpuFusedElementwise(v, w, x, mean, dy) {T_in: [float32, float32, float32, float32, float32], T_out: [float32], constants: [0.25, 2.0], expression: "x: float32, float32, float32, float32, float32; c: 2; s0 = Mul<float32>(x0, c0); s1 = Sub<float32>(x2, x3); s2 = Mul<float32>(c1, s0); s3 = Mul<float32>(s2, s1); s4 = AddV2<float32>(x4, s3); s5 = AddV2<float32>(s4, x1); return s5"} -> float32[4, 8]
        "#]],
    );
}

/// Outer extents of 1 say nothing where others give the result its shape.
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
            f = Reshape(a/wgpu_fused, d) {T: float32, Tshape: int32} -> float32[1, 8]
            out = Custom(z/wgpu_fused, h/wgpu_fused)
            a/wgpu_fused = _WgpuFusedElementwise(w, v) {T_in: [float32, float32], T_out: [float32, float32], constants: [], expression: "x: float32, float32; c: 0; s0 = Exp<float32>(x0); s1 = Mul<float32>(x1, x0); return s0, s1"} -> float32[8], float32[8]
            h/wgpu_fused = _WgpuFusedElementwise(f) {T_in: [float32], T_out: [float32], constants: [], expression: "x: float32; c: 0; s0 = Neg<float32>(x0); s1 = Square<float32>(s0); return s1"} -> float32[1, 8]
            z/wgpu_fused = _WgpuFusedElementwise(a/wgpu_fused:1, x, a/wgpu_fused) {T_in: [float32, float32, float32], T_out: [float32], constants: [], expression: "x: float32, float32, float32; c: 0; s0 = AddV2<float32>(x1, x0); s1 = Mul<float32>(s0, x2); return s1"} -> float32[4, 8]
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

/// Some of a group read a view that others look through: it stays.
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
            e/wgpu_fused = _WgpuFusedElementwise(b, v) {T_in: [float32, float32], T_out: [float32], constants: [], expression: "x: float32, float32; c: 0; s0 = Tanh<float32>(x1); s1 = Mul<float32>(x1, s0); return s1"} -> float32[1, 8]
        "#]],
    );
}
