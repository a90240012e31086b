//! Epilogues of matrix products and convolutions.

use expect_test::expect;

use super::{check, refuse};

const DENSE: &str = "
    a = Placeholder -> float32[?2, 4]
    b = Placeholder -> float32[4, 8]
    bias = Placeholder -> float32[8]
    c = MatMul(a, b) {T: float32, grad_a: false, transpose_a: false, transpose_b: false} -> \
                     float32[?2, 8]
    v = BiasAdd(c, bias) {T: float32, data_format: \"NHWC\"} -> float32[?2, 8]";

const CONV: &str = "
    x = Placeholder -> float32[?2, 9, 9, 4]
    w = Placeholder -> float32[3, 3, 4, 8]
    c = Conv2D(x, w) {T: float32, data_format: \"NHWC\", dilations: [1, 1, 1, 1], \
                    explicit_paddings: [], padding: \"SAME\", strides: [1, 1, 1, 1]} -> \
                    float32[?2, 9, 9, 8]";

#[test]
fn bias_and_activation() {
    check(
        "contraction",
        &format!(
            "preserve out{DENSE}\ny = Relu(v) {{T: float32}} -> float32[?2, 8]\nout = Identity(y) \
             {{T: float32}}"
        ),
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[?2, 4]
            b = Placeholder -> float32[4, 8]
            bias = Placeholder -> float32[8]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedMatMul(a, b, bias) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Relu<float32>(s0); "
                    "return s1",
                transpose_a: false,
                transpose_b: false,
            } -> float32[?2, 8]
        "#]],
    );
}

#[test]
fn an_activation_that_reads_its_argument_twice() {
    check(
        "contraction",
        &format!(
            "preserve out{DENSE}
             half = Const {{dtype: float32, value: tensor float32[] [0.5]}} -> float32[]
             t = Tanh(v) {{T: float32}} -> float32[?2, 8]
             h = Mul(half, t) {{T: float32}} -> float32[?2, 8]
             y = Mul(v, h) {{T: float32}} -> float32[?2, 8]
             out = Identity(y) {{T: float32}}"
        ),
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[?2, 4]
            b = Placeholder -> float32[4, 8]
            bias = Placeholder -> float32[8]
            half = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedMatMul(a, b, bias) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [0.5],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Tanh<float32>(s0); "
                    "s2 = Mul<float32>(c0, s1); "
                    "s3 = Mul<float32>(s0, s2); "
                    "return s3",
                transpose_a: false,
                transpose_b: false,
            } -> float32[?2, 8]
        "#]],
    );
}

#[test]
fn a_residual_and_conversions() {
    check(
        "contraction",
        "preserve out
         a = Placeholder -> float16[?2, 4]
         b = Placeholder -> float16[4, 8]
         r = Placeholder -> float32[?2, 8]
         s = Placeholder -> float16[]
         c = MatMul(a, b) {T: float16, transpose_a: true, transpose_b: false} -> float16[?2, 8]
         d = Mul(c, s) {T: float16} -> float16[?2, 8]
         e = Cast(d) {SrcT: float16, DstT: float32, Truncate: false} -> float32[?2, 8]
         y = AddV2(e, r) {T: float32} -> float32[?2, 8]
         l = LeakyRelu(y) {T: float32, alpha: 0.3} -> float32[?2, 8]
         out = Identity(l) {T: float32}",
        &expect![[r#"
            preserve out
            a = Placeholder -> float16[?2, 4]
            b = Placeholder -> float16[4, 8]
            r = Placeholder -> float32[?2, 8]
            s = Placeholder -> float16[]
            out = Identity(l/fused) {T: float32}
            l/fused = _WgpuFusedMatMul(a, b, s, r) {
                T: float16,
                T_extra: [float16, float32],
                T_out: float32,
                constants: [0.3],
                expression:
                    "x: float16, float16, float32; "
                    "c: 1; "
                    "s0 = Mul<float16>(x0, x1); "
                    "s1 = Cast<float16, float32>(s0); "
                    "s2 = AddV2<float32>(s1, x2); "
                    "s3 = LeakyRelu<float32>(s2, c0); "
                    "return s3",
                transpose_a: true,
                transpose_b: false,
            } -> float32[?2, 8]
        "#]],
    );
}

/// Training keeps the argument of an activation: the tail ends with it.
#[test]
fn a_tail_ends_where_its_value_is_needed() {
    check(
        "contraction",
        &format!(
            "preserve out, g{DENSE}
             y = Exp(v) {{T: float32}} -> float32[?2, 8]
             out = Identity(y) {{T: float32}}
             g = Abs(v) {{T: float32}}"
        ),
        &expect![[r#"
            preserve g, out
            a = Placeholder -> float32[?2, 4]
            b = Placeholder -> float32[4, 8]
            bias = Placeholder -> float32[8]
            y = Exp(v/fused) {T: float32} -> float32[?2, 8]
            out = Identity(y) {T: float32}
            g = Abs(v/fused) {T: float32}
            v/fused = _WgpuFusedMatMul(a, b, bias) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "return s0",
                transpose_a: false,
                transpose_b: false,
            } -> float32[?2, 8]
        "#]],
    );
}

/// Keras's nodes for Conv2D, BatchNormalization and ReLU in inference.
#[test]
fn a_convolution_with_vectors_for_channels() {
    check(
        "contraction",
        &format!(
            "preserve out{CONV}
             bias = Placeholder -> float32[1, 1, 1, 8]
             scale = Placeholder -> float32[8]
             shift = Placeholder -> float32[8]
             d = AddV2(c, bias) {{T: float32}} -> float32[?2, 9, 9, 8]
             e = Mul(d, scale) {{T: float32}} -> float32[?2, 9, 9, 8]
             f = AddV2(e, shift) {{T: float32}} -> float32[?2, 9, 9, 8]
             y = Relu(f) {{T: float32}} -> float32[?2, 9, 9, 8]
             out = Identity(y) {{T: float32}}"
        ),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 9, 9, 4]
            w = Placeholder -> float32[3, 3, 4, 8]
            bias = Placeholder -> float32[1, 1, 1, 8]
            scale = Placeholder -> float32[8]
            shift = Placeholder -> float32[8]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedConv2D(x, w, bias, scale, shift) {
                T: float32,
                T_extra: [float32, float32, float32],
                T_out: float32,
                constants: [],
                data_format: "NHWC",
                dilations: [1, 1, 1, 1],
                explicit_paddings: [],
                expression:
                    "x: float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, x2); "
                    "s2 = AddV2<float32>(s1, x3); "
                    "s3 = Relu<float32>(s2); "
                    "return s3",
                padding: "SAME",
                strides: [1, 1, 1, 1],
            } -> float32[?2, 9, 9, 8]
        "#]],
    );
}

#[test]
fn a_batch_normalization_by_given_moments() {
    check(
        "contraction",
        "preserve out
         x = Placeholder -> float16[2, 4, 9, 9]
         w = Placeholder -> float16[3, 3, 4, 8]
         scale = Placeholder -> float32[8]
         offset = Placeholder -> float32[8]
         mean = Placeholder -> float32[8]
         variance = Placeholder -> float32[8]
         c = Conv2D(x, w) {T: float16, data_format: \"NCHW\", dilations: [1, 1, 1, 1], \
         explicit_paddings: [], padding: \"SAME\", strides: [1, 1, 1, 1]} -> float16[2, 8, 9, 9]
         y = FusedBatchNormV3(c, scale, offset, mean, variance) {T: float16, U: float32, \
         data_format: \"NCHW\", epsilon: 0.001, is_training: false} -> float16[2, 8, 9, 9]
         out = Identity(y) {T: float16}",
        &expect![[r#"
            preserve out
            x = Placeholder -> float16[2, 4, 9, 9]
            w = Placeholder -> float16[3, 3, 4, 8]
            scale = Placeholder -> float32[8]
            offset = Placeholder -> float32[8]
            mean = Placeholder -> float32[8]
            variance = Placeholder -> float32[8]
            out = Identity(y/fused) {T: float16}
            y/fused = _WgpuFusedConv2D(x, w, scale, offset, mean, variance) {
                T: float16,
                T_extra: [float32, float32, float32, float32],
                T_out: float16,
                constants: [0.001],
                data_format: "NCHW",
                dilations: [1, 1, 1, 1],
                explicit_paddings: [],
                expression:
                    "x: float16, float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = Cast<float16, float32>(x0); "
                    "s1 = Sub<float32>(s0, x3); "
                    "s2 = AddV2<float32>(x4, c0); "
                    "s3 = Rsqrt<float32>(s2); "
                    "s4 = Mul<float32>(s3, x1); "
                    "s5 = Mul<float32>(s1, s4); "
                    "s6 = AddV2<float32>(s5, x2); "
                    "s7 = Cast<float32, float16>(s6); "
                    "return s7",
                padding: "SAME",
                strides: [1, 1, 1, 1],
            } -> float16[2, 8, 9, 9]
        "#]],
    );
}

/// Dense layers over sequences multiply matrices and reshape the result before they add the bias.
#[test]
fn a_reshape_comes_behind() {
    check(
        "contraction",
        "preserve out
         a = Placeholder -> float32[6, 4]
         b = Placeholder -> float32[4, 8]
         bias = Placeholder -> float32[8]
         shape = Const {dtype: int32, value: tensor int32[3] [2, 3, 8]} @CPU:0 -> int32[3]
         n = NoOp
         c = MatMul(a, b, ^n) {T: float32, transpose_a: false, transpose_b: false} -> float32[6, 8]
         r = Reshape(c, shape) {T: float32, Tshape: int32} -> float32[2, 3, 8]
         v = AddV2(r, bias) {T: float32} -> float32[2, 3, 8]
         y = Tanh(v) {T: float32} -> float32[2, 3, 8]
         z = Cast(y) {SrcT: float32, DstT: float16, Truncate: false} -> float16[2, 3, 8]
         out = Identity(z) {T: float16}",
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[6, 4]
            b = Placeholder -> float32[4, 8]
            bias = Placeholder -> float32[8]
            shape = Const {dtype: int32, value: tensor int32[3] [2, 3, 8]} @CPU:0 -> int32[3]
            n = NoOp
            out = Identity(r/behind) {T: float16}
            z/fused = _WgpuFusedMatMul(a, b, bias, ^n) {
                T: float32,
                T_extra: [float32],
                T_out: float16,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Tanh<float32>(s0); "
                    "s2 = Cast<float32, float16>(s1); "
                    "return s2",
                transpose_a: false,
                transpose_b: false,
            } -> float16[6, 8]
            r/behind = Reshape(z/fused, shape, ^n) {T: float16, Tshape: int32} -> float16[2, 3, 8]
        "#]],
    );
}

#[test]
fn a_fused_node_takes_more() {
    check(
        "contraction",
        "preserve out
         x = Placeholder -> float32[2, 4, 4, 4, 3]
         w = Placeholder -> float32[1, 1, 1, 3, 8]
         bias = Placeholder -> float32[8]
         c = _WgpuFusedConv3D(x, w, bias) {T: float32, T_extra: [float32], T_out: float32, \
         constants: [2], data_format: \"NDHWC\", dilations: [1, 1, 1, 1, 1], explicit_paddings: \
         [0, 0, 1, 1, 0, 0, 0, 0, 0, 0], expression: \"x: float32, float32; c: 1; s0 = \
         AddV2<float32>(x0, x1); s1 = Mul<float32>(s0, c0); return s1\", padding: \"EXPLICIT\", \
         strides: [1, 1, 1, 1, 1]} -> float32[2, 6, 4, 4, 8]
         y = Sigmoid(c) {T: float32} -> float32[2, 6, 4, 4, 8]
         out = Identity(y) {T: float32}",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[2, 4, 4, 4, 3]
            w = Placeholder -> float32[1, 1, 1, 3, 8]
            bias = Placeholder -> float32[8]
            c = _WgpuFusedConv3D(x, w, bias) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [2],
                data_format: "NDHWC",
                dilations: [1, 1, 1, 1, 1],
                explicit_paddings: [0, 0, 1, 1, 0, 0, 0, 0, 0, 0],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, c0); "
                    "return s1",
                padding: "EXPLICIT",
                strides: [1, 1, 1, 1, 1],
            } -> float32[2, 6, 4, 4, 8]
            y = Sigmoid(c) {T: float32} -> float32[2, 6, 4, 4, 8]
            out = Identity(y) {T: float32}
        "#]],
    );
}

#[test]
fn contractions_that_stay_alone() {
    for tail in [
        // No node follows that could be an epilogue.
        "out = Softmax(c) {T: float32}",
        // A CPU's node.
        "y = Relu(c) {T: float32} @CPU:0\nout = Identity(y) {T: float32}",
        // It is fetched.
        "out = Relu(c) {T: float32} -> float32[?2, 8]",
        // A mask that no contraction reads.
        "m = Placeholder -> float32[?2, 1]\ny = Mul(c, m) {T: float32} -> float32[?2, 8]\nout = \
         Identity(y) {T: float32}",
        // The result would be no float.
        "y = IsNan(c) {T: float32} -> bool[?2, 8]\nout = Identity(y) {T: bool}",
        // The operand needs the result.
        "s = Sum(c, axes) {T: float32} -> float32[]\ny = Sub(c, s) {T: float32} -> float32[?2, \
         8]\nout = Identity(y) {T: float32}",
        // A bias of one element is an error.
        "one = Placeholder -> float32[1]\ny = BiasAdd(c, one) {T: float32, data_format: \
         \"NHWC\"}\nout = Identity(y) {T: float32}",
    ] {
        refuse(
            "contraction",
            &format!(
                "preserve out
                 axes = Placeholder @CPU:0 -> int32[2]
                 a = Placeholder -> float32[?2, 4]
                 b = Placeholder -> float32[4, 8]
                 c = MatMul(a, b) {{T: float32, transpose_a: false, transpose_b: false}} -> \
                 float32[?2, 8]\n{tail}"
            ),
        );
    }
    // Integers have no epilogue.
    refuse(
        "contraction",
        "preserve out\na = Placeholder\nb = Placeholder\nc = MatMul(a, b) {T: int32}\ny = Neg(c) \
         {T: int32}\nout = Identity(y) {T: int32}",
    );
}

/// TensorFlow's own optimizer makes sums of additions of equal shapes.
#[test]
fn a_sum_of_one_shape() {
    let sum = |shape: &str| {
        format!(
            "preserve out{CONV}
             u = Placeholder -> float32{shape}
             y = AddN(u, c, c) {{N: 3, T: float32}} -> float32{shape}
             out = Identity(y) {{T: float32}}"
        )
    };
    check(
        "contraction",
        &sum("[?2, 9, 9, 8]"),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 9, 9, 4]
            w = Placeholder -> float32[3, 3, 4, 8]
            u = Placeholder -> float32[?2, 9, 9, 8]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedConv2D(x, w, u) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [],
                data_format: "NHWC",
                dilations: [1, 1, 1, 1],
                explicit_paddings: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x1, x0); "
                    "s1 = AddV2<float32>(s0, x0); "
                    "return s1",
                padding: "SAME",
                strides: [1, 1, 1, 1],
            } -> float32[?2, 9, 9, 8]
        "#]],
    );
    // A sum of unequal shapes is an error.
    refuse("contraction", &sum("[?3, 9, 9, 8]"));
}

#[test]
fn a_row_is_no_vector_of_channels() {
    refuse(
        "contraction",
        "preserve out
         x = Placeholder -> float32[2, 4, 8, 8]
         w = Placeholder -> float32[1, 1, 4, 8]
         row = Placeholder -> float32[8]
         c = Conv2D(x, w) {T: float32, data_format: \"NCHW\", dilations: [1, 1, 1, 1], \
         explicit_paddings: [], padding: \"SAME\", strides: [1, 1, 1, 1]} -> float32[2, 8, 8, 8]
         y = AddV2(c, row) {T: float32} -> float32[2, 8, 8, 8]
         out = Identity(y) {T: float32}",
    );
}

/// The channels of a product that a reshape splits into heads.
fn heads(shape: &str, operand: &str) -> String {
    format!(
        "preserve out
         a = Placeholder -> float32[?2, 7, 4]
         b = Placeholder -> float32[4, 8]
         e = Placeholder -> float32[{operand}]
         shape = Const {{dtype: int32, value: tensor int32[4] [-1, 7, 2, 4]}} @CPU:0
         c = BatchMatMulV2(a, b) {{T: float32, adj_x: false, adj_y: false}} -> float32[?2, 7, 8]
         r = Reshape(c, shape) {{T: float32, Tshape: int32}} -> float32[{shape}]
         y = AddV2(e, r) {{T: float32}} -> float32[{shape}]
         out = Identity(y) {{T: float32}}"
    )
}

#[test]
fn a_bias_of_split_channels_is_a_vector() {
    check(
        "contraction",
        &heads("?2, 7, 2, 4", "2, 4"),
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[?2, 7, 4]
            b = Placeholder -> float32[4, 8]
            e = Placeholder -> float32[2, 4]
            shape = Const {dtype: int32, value: tensor int32[4] [-1, 7, 2, 4]} @CPU:0
            out = Identity(r/behind) {T: float32}
            e/before/shape = Const {dtype: int32, value: tensor int32[1] [8]} -> int32[1]
            e/before = Reshape(e, e/before/shape) {T: float32, Tshape: int32} -> float32[8]
            y/fused = _WgpuFusedBatchMatMulV2(a, b, e/before) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x1, x0); "
                    "return s0",
            } -> float32[?2, 7, 8]
            r/behind = Reshape(y/fused, shape) {T: float32, Tshape: int32} -> float32[?2, 7, 2, 4]
        "#]],
    );
}

#[test]
fn a_residual_behind_a_reshape_is_reshaped_itself() {
    check(
        "contraction",
        &heads("?2, 7, 2, 4", "?2, 7, 2, 4"),
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[?2, 7, 4]
            b = Placeholder -> float32[4, 8]
            e = Placeholder -> float32[?2, 7, 2, 4]
            shape = Const {dtype: int32, value: tensor int32[4] [-1, 7, 2, 4]} @CPU:0
            out = Identity(r/behind) {T: float32}
            e/before/shape = Const {dtype: int32, value: tensor int32[3] [-1, 7, 8]} -> int32[3]
            e/before = Reshape(e, e/before/shape) {T: float32, Tshape: int32} -> float32[?, 7, 8]
            y/fused = _WgpuFusedBatchMatMulV2(a, b, e/before) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x1, x0); "
                    "return s0",
            } -> float32[?2, 7, 8]
            r/behind = Reshape(y/fused, shape) {T: float32, Tshape: int32} -> float32[?2, 7, 2, 4]
        "#]],
    );
}

#[test]
fn values_that_are_no_operands_before_a_reshape_stay() {
    for (shape, operand) in [
        // One of the dimensions alone, and one more.
        ("?2, 7, 2, 4", "4"),
        ("?2, 7, 2, 4", "2, 1"),
        ("?2, 7, 2, 4", "7, 2, 4"),
        ("?2, 7, 2, 4", "1, 1, 1, 2, 4"),
        // Perhaps another batch.
        ("?2, 7, 2, 4", "?3, 7, 2, 4"),
        // The channels are not the last dimensions.
        ("?2, 2, 28", "2, 28"),
    ] {
        refuse("contraction", &heads(shape, operand));
    }
}

#[test]
fn a_tail_computes_what_is_beside_it() {
    let text = |side: &str| {
        format!(
            "preserve out
             a = Placeholder -> float32[?2, 4]
             b = Placeholder -> float32[4, 8]
             h = Placeholder -> float32[?2, 8]
             c = MatMul(a, b) {{T: float32, transpose_a: false, transpose_b: false}} -> \
             float32[?2, 8]
             {side}
             u = Mul(t, h) {{T: float32}} -> float32[?2, 8]
             y = Mul(c, u) {{T: float32}} -> float32[?2, 8]
             out = Identity(y) {{T: float32}}"
        )
    };
    check(
        "contraction",
        &text("t = Sigmoid(h, ^c) {T: float32} -> float32[?2, 8]"),
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[?2, 4]
            b = Placeholder -> float32[4, 8]
            h = Placeholder -> float32[?2, 8]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedMatMul(a, b, h) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Sigmoid<float32>(x1); "
                    "s1 = Mul<float32>(s0, x1); "
                    "s2 = Mul<float32>(x0, s1); "
                    "return s2",
                transpose_a: false,
                transpose_b: false,
            } -> float32[?2, 8]
        "#]],
    );
    for side in [
        // It waits for another node, or is needed elsewhere: the rest of it is read.
        "n = NoOp\nt = Sigmoid(h, ^n) {T: float32} -> float32[?2, 8]",
        "t = Sigmoid(h) {T: float32} -> float32[?2, 8]\nw = Where(t)",
        // It would be computed for each row, and takes long.
        "g = Placeholder -> float32[8]\nt = Digamma(g) {T: float32} -> float32[8]",
    ] {
        let left = super::after("contraction", &text(side));
        assert!(
            (left.contains("t = Sigmoid(") || left.contains("t = Digamma("))
                && !left.contains("u = Mul("),
            "{left}"
        );
    }
}

/// As in Keras in inference.
#[test]
fn a_batch_normalization_of_variables_is_computed_in_place() {
    check(
        "contraction",
        &format!(
            "preserve out{CONV}
             mean = Placeholder -> float32[1, 1, 1, 8]
             variance = Placeholder -> float32[1, 1, 1, 8]
             gamma = Placeholder -> float32[1, 1, 1, 8]
             beta = Placeholder -> float32[1, 1, 1, 8]
             eps = Const {{dtype: float32, value: tensor float32[] [0.5]}} -> float32[]
             sum = AddV2(variance, eps) {{T: float32}} -> float32[1, 1, 1, 8]
             inverse = Rsqrt(sum) {{T: float32}} -> float32[1, 1, 1, 8]
             slope = Mul(inverse, gamma) {{T: float32}} -> float32[1, 1, 1, 8]
             moved = Mul(mean, slope) {{T: float32}} -> float32[1, 1, 1, 8]
             offset = Sub(beta, moved) {{T: float32}} -> float32[1, 1, 1, 8]
             v = Mul(c, slope) {{T: float32}} -> float32[?2, 9, 9, 8]
             z = AddV2(v, offset) {{T: float32}} -> float32[?2, 9, 9, 8]
             y = Relu(z) {{T: float32}} -> float32[?2, 9, 9, 8]
             out = Identity(y) {{T: float32}}"
        ),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 9, 9, 4]
            w = Placeholder -> float32[3, 3, 4, 8]
            mean = Placeholder -> float32[1, 1, 1, 8]
            variance = Placeholder -> float32[1, 1, 1, 8]
            gamma = Placeholder -> float32[1, 1, 1, 8]
            beta = Placeholder -> float32[1, 1, 1, 8]
            eps = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            out = Identity(y/fused) {T: float32}
            y/fused = _WgpuFusedConv2D(x, w, variance, gamma, mean, beta) {
                T: float32,
                T_extra: [float32, float32, float32, float32],
                T_out: float32,
                constants: [0.5],
                data_format: "NHWC",
                dilations: [1, 1, 1, 1],
                explicit_paddings: [],
                expression:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x1, c0); "
                    "s1 = Rsqrt<float32>(s0); "
                    "s2 = Mul<float32>(s1, x2); "
                    "s3 = Mul<float32>(x0, s2); "
                    "s4 = Mul<float32>(x3, s2); "
                    "s5 = Sub<float32>(x4, s4); "
                    "s6 = AddV2<float32>(s3, s5); "
                    "s7 = Relu<float32>(s6); "
                    "return s7",
                padding: "SAME",
                strides: [1, 1, 1, 1],
            } -> float32[?2, 9, 9, 8]
        "#]],
    );
}

/// Graphs that scale floats by rows mostly reduce them, too.
#[test]
fn a_product_of_floats_is_not_scaled_by_rows() {
    refuse(
        "contraction",
        "preserve out
         a = Placeholder -> float32[2, 4]
         b = Placeholder -> float32[4, 8]
         row = Placeholder -> float32[2, 1]
         c = MatMul(a, b) {T: float32, grad_a: false, transpose_a: false, transpose_b: \
                    false} -> float32[2, 8]
         y = Mul(c, row) {T: float32} -> float32[2, 8]
         out = Identity(y) {T: float32}",
    );
}
