//! Products of int8 with the scales of their rows and channels, as in quantized layers.

use expect_test::expect;

use super::{after, check, refuse};

/// A product of int8 with the following nodes of a quantized layer: the scales of its channels and
/// rows, a bias and an activation.
const INT8: &str = "
    x = Placeholder -> int8[?2, 4]
    w = Placeholder -> int8[4, 8]
    scale = Placeholder -> float32[8]
    row = Placeholder -> float32[?2, 1]
    bias = Placeholder -> float32[8]
    c = BatchMatMulV3(x, w) {Ta: int8, Tb: int8, Tout: int32, adj_x: false, adj_y: false, \
                    grad_x: false, grad_y: false} -> int32[?2, 8]
    f = Cast(c) {DstT: float32, SrcT: int32, Truncate: false} -> float32[?2, 8]
    s = Mul(scale, row) {T: float32} -> float32[?2, 8]
    d = RealDiv(f, s) {T: float32} -> float32[?2, 8]
    v = BiasAdd(d, bias) {T: float32, data_format: \"NHWC\"} -> float32[?2, 8]
    y = Relu(v) {T: float32} -> float32[?2, 8]
    out = Identity(y) {T: float32}";

#[test]
fn a_product_of_int8_is_scaled() {
    check(
        "contraction",
        &format!("preserve out{INT8}"),
        &expect![[r#"
            preserve out
            x = Placeholder -> int8[?2, 4]
            w = Placeholder -> int8[4, 8]
            scale = Placeholder -> float32[8]
            row = Placeholder -> float32[?2, 1]
            bias = Placeholder -> float32[8]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedBatchMatMulV3(x, w, scale, row, bias) {
                T: int8,
                T_extra: [float32, float32, float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [],
                expression:
                    "x: int32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Cast<int32, float32>(x0); "
                    "s1 = Mul<float32>(x1, x2); "
                    "s2 = RealDiv<float32>(s0, s1); "
                    "s3 = AddV2<float32>(s2, x3); "
                    "s4 = Relu<float32>(s3); "
                    "return s4",
            } -> float32[?2, 8]
        "#]],
    );
}

/// For a token there is one row: its scale has one element, and as many dimensions as the result.
#[test]
fn a_product_of_int8_with_one_row_is_scaled() {
    let token = INT8.replace("int8[?2, 4]", "int8[1, 1, 4]").replace("[?2, ", "[1, 1, ");
    let after = after("contraction", &format!("preserve out{token}"));
    assert!(!after.contains("= Mul(") && !after.contains("= Reshape("), "{after}");
    assert!(after.contains("_WgpuFusedBatchMatMulV3(x, w, scale, row, bias)"), "{after}");
}

/// Without a conversion to floats it stays as it is.
#[test]
fn a_product_of_int8_that_stays_an_integer() {
    refuse(
        "contraction",
        "preserve out
         x = Placeholder -> int8[2, 4]
         w = Placeholder -> int8[4, 8]
         c = BatchMatMulV3(x, w) {Ta: int8, Tb: int8, Tout: int32, adj_x: false, adj_y: false, \
                    grad_x: false, grad_y: false} -> int32[2, 8]
         f = Cast(c) {DstT: int64, SrcT: int32, Truncate: false} -> int64[2, 8]
         out = Identity(f) {T: int64}",
    );
}

/// As in an `EinsumDense` of several heads: behind the reshape that splits channels into heads.
#[test]
fn a_product_of_int8_whose_channels_are_split() {
    check(
        "contraction",
        "preserve out
         x = Placeholder -> int8[?2, 5, 16]
         w = Placeholder -> int8[16, 32]
         heads = Const {dtype: int32, value: tensor int32[4] [-1, 5, 4, 8]} -> int32[4]
         scale = Placeholder -> float32[1, 1, 4, 8]
         row = Placeholder -> float32[?2, 5, 1, 1]
         bias = Placeholder -> float32[4, 8]
         c = BatchMatMulV3(x, w) {Ta: int8, Tb: int8, Tout: int32, adj_x: false, adj_y: false, \
                    grad_x: false, grad_y: false} -> int32[?2, 5, 32]
         r = Reshape(c, heads) {T: int32, Tshape: int32} -> int32[?2, 5, 4, 8]
         f = Cast(r) {DstT: float32, SrcT: int32, Truncate: false} -> float32[?2, 5, 4, 8]
         s = Mul(row, scale) {T: float32} -> float32[?2, 5, 4, 8]
         d = RealDiv(f, s) {T: float32} -> float32[?2, 5, 4, 8]
         y = AddV2(d, bias) {T: float32} -> float32[?2, 5, 4, 8]
         out = Identity(y) {T: float32}",
        &expect![[r#"
            preserve out
            x = Placeholder -> int8[?2, 5, 16]
            w = Placeholder -> int8[16, 32]
            heads = Const {dtype: int32, value: tensor int32[4] [-1, 5, 4, 8]} -> int32[4]
            scale = Placeholder -> float32[1, 1, 4, 8]
            row = Placeholder -> float32[?2, 5, 1, 1]
            bias = Placeholder -> float32[4, 8]
            out = Identity(r/behind) {T: float32}
            row/before/shape = Const {dtype: int32, value: tensor int32[3] [-1, 5, 1]} -> int32[3]
            row/before = Reshape(row, row/before/shape) {
                T: float32,
                Tshape: int32,
            } -> float32[?, 5, 1]
            scale/before/shape = Const {dtype: int32, value: tensor int32[1] [32]} -> int32[1]
            scale/before = Reshape(scale, scale/before/shape) {
                T: float32,
                Tshape: int32,
            } -> float32[32]
            bias/before/shape = Const {dtype: int32, value: tensor int32[1] [32]} -> int32[1]
            bias/before = Reshape(bias, bias/before/shape) {
                T: float32,
                Tshape: int32,
            } -> float32[32]
            y/fused = _WgpuFusedBatchMatMulV3(x, w, row/before, scale/before, bias/before) {
                T: int8,
                T_extra: [float32, float32, float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [],
                expression:
                    "x: int32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Cast<int32, float32>(x0); "
                    "s1 = Mul<float32>(x1, x2); "
                    "s2 = RealDiv<float32>(s0, s1); "
                    "s3 = AddV2<float32>(s2, x3); "
                    "return s3",
            } -> float32[?2, 5, 32]
            r/behind = Reshape(y/fused, heads) {T: float32, Tshape: int32} -> float32[?2, 5, 4, 8]
        "#]],
    );
}
