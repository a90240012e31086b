//! Groups of elementwise nodes, and what must not be in one.

use expect_test::expect;

use super::{check, refuse};

/// GELU as in Keras, with the bias in front.
#[test]
fn a_chain_with_constants_and_a_broadcast_bias() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[?2, 8]
         b = Placeholder -> float32[8]
         half = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
         root = Const {dtype: float32, value: tensor float32[] [1.4142135]} -> float32[]
         one = Const {dtype: float32, value: tensor float32[1, 1] [1]} -> float32[1, 1]
         dense/add = BiasAdd(x, b) {T: float32} -> float32[?2, 8]
         y = AddV2(x, b) {T: float32} -> float32[?2, 8]
         gelu/div = RealDiv(y, root) {T: float32} -> float32[?2, 8]
         gelu/erf = Erf(gelu/div) {T: float32} -> float32[?2, 8]
         gelu/add = AddV2(gelu/erf, one) {T: float32} -> float32[?2, 8]
         gelu/mul = Mul(y, half) {T: float32} -> float32[?2, 8]
         gelu/mul_1 = Mul(gelu/mul, gelu/add) {T: float32} -> float32[?2, 8]
         out = MatMul(gelu/mul_1, dense/add)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 8]
            b = Placeholder -> float32[8]
            out = MatMul(gelu/mul_1/wgpu_fused:1, gelu/mul_1/wgpu_fused)
            gelu/mul_1/wgpu_fused = _WgpuFusedElementwise(x, b) {
                T_in: [float32, float32],
                T_out: [float32, float32],
                constants: [0.5, 1.4142135, 1.0],
                expression:
                    "x: float32, float32; "
                    "c: 3; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, c0); "
                    "s2 = RealDiv<float32>(s0, c1); "
                    "s3 = Erf<float32>(s2); "
                    "s4 = AddV2<float32>(s3, c2); "
                    "s5 = Mul<float32>(s1, s4); "
                    "return s0, s5",
            } -> float32[?2, 8], float32[?2, 8]
        "#]],
    );
}

/// A value that is used outside is an output of the group; the condition is computed within.
#[test]
fn several_outputs_and_types() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float16[?2, 8]
         g = Placeholder -> float32[?2, 8]
         zero = Const {dtype: float32, value: tensor float32[] [0]} -> float32[]
         c = Cast(x) {SrcT: float16, DstT: float32, Truncate: false} -> float32[?2, 8]
         positive = Greater(c, zero) {T: float32} -> bool[?2, 8]
         d = SelectV2(positive, g, zero) {T: float32} -> float32[?2, 8]
         leaky = LeakyRelu(d) {T: float32, alpha: 0.25} -> float32[?2, 8]
         out = Custom(leaky, c)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float16[?2, 8]
            g = Placeholder -> float32[?2, 8]
            out = Custom(leaky/wgpu_fused:1, leaky/wgpu_fused)
            leaky/wgpu_fused = _WgpuFusedElementwise(x, g) {
                T_in: [float16, float32],
                T_out: [float32, float32],
                constants: [0.0, 0.25],
                expression:
                    "x: float16, float32; "
                    "c: 2; "
                    "s0 = Cast<float16, float32>(x0); "
                    "s1 = Greater<float32>(s0, c0); "
                    "s2 = SelectV2<float32>(s1, x1, c0); "
                    "s3 = LeakyRelu<float32>(s2, c1); "
                    "return s0, s3",
            } -> float32[?2, 8], float32[?2, 8]
        "#]],
    );
}

/// Nodes that read the same large tensor, though neither reads the other.
#[test]
fn siblings() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4, 8]
         a = Tanh(x) {T: float32} -> float32[4, 8]
         b = Square(x) {T: float32} -> float32[4, 8]
         out = Custom(a, b)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4, 8]
            out = Custom(a/wgpu_fused:1, a/wgpu_fused)
            a/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32, float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Square<float32>(x0); "
                    "s1 = Tanh<float32>(x0); "
                    "return s0, s1",
            } -> float32[4, 8], float32[4, 8]
        "#]],
    );
}

/// Shapes of unknown rank: a node that keeps its input's shape is in the group, whatever the shape
/// is.
#[test]
fn unknown_ranks() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32
         c = Const {dtype: float32, value: tensor float32[] [2]} -> float32[]
         a = Exp(x) {T: float32} -> float32
         b = Mul(a, c) {T: float32} -> float32
         out = Custom(a, b)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32
            out = Custom(b/wgpu_fused, b/wgpu_fused:1)
            b/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32, float32],
                constants: [2.0],
                expression:
                    "x: float32; "
                    "c: 1; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Mul<float32>(s0, c0); "
                    "return s0, s1",
            } -> float32, float32
        "#]],
    );
}

/// One or two cheap steps on a small tensor are computed within the large group, together with its
/// sum of several gradients.
#[test]
fn small_values_within() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[64, 8]
         y = Placeholder -> float32[64, 8]
         v = Placeholder -> float32[8]
         e = Const {dtype: float32, value: tensor float32[] [0.001]} -> float32[]
         s = AddV2(v, e) {T: float32} -> float32[8]
         n = AddN(x, y, x) {N: 3, T: float32} -> float32[64, 8]
         m = Mul(n, s) {T: float32} -> float32[64, 8]
         out = Custom(m)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[64, 8]
            y = Placeholder -> float32[64, 8]
            v = Placeholder -> float32[8]
            out = Custom(m/wgpu_fused)
            m/wgpu_fused = _WgpuFusedElementwise(x, y, v) {
                T_in: [float32, float32, float32],
                T_out: [float32],
                constants: [0.001],
                expression:
                    "x: float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = AddV2<float32>(s0, x0); "
                    "s2 = AddV2<float32>(x2, c0); "
                    "s3 = Mul<float32>(s1, s2); "
                    "return s3",
            } -> float32[64, 8]
        "#]],
    );
}

/// A long chain on a small tensor stays a group of its own.
#[test]
fn small_chains_stay_small() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[64, 8]
         v = Placeholder -> float32[8]
         a = Rsqrt(v) {T: float32} -> float32[8]
         b = Exp(a) {T: float32} -> float32[8]
         c = Neg(x) {T: float32} -> float32[64, 8]
         m = Mul(c, b) {T: float32} -> float32[64, 8]
         out = Custom(m)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[64, 8]
            v = Placeholder -> float32[8]
            out = Custom(m/wgpu_fused)
            m/wgpu_fused = _WgpuFusedElementwise(x, b/wgpu_fused) {
                T_in: [float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Neg<float32>(x0); "
                    "s1 = Mul<float32>(s0, x1); "
                    "return s1",
            } -> float32[64, 8]
            b/wgpu_fused = _WgpuFusedElementwise(v) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Rsqrt<float32>(x0); "
                    "s1 = Exp<float32>(s0); "
                    "return s1",
            } -> float32[8]
        "#]],
    );
}

/// Control edges of members become the group's.
#[test]
fn control_edges_stay() {
    check(
        "elementwise",
        "preserve out, after
         x = Placeholder -> float32[4]
         n = NoOp
         a = Exp(x, ^n) {T: float32} -> float32[4]
         b = Neg(a, ^n) {T: float32} -> float32[4]
         after = NoOp(^a)
         out = Custom(b)",
        &expect![[r#"
            preserve after, out
            x = Placeholder -> float32[4]
            n = NoOp
            after = NoOp(^b/wgpu_fused)
            out = Custom(b/wgpu_fused)
            b/wgpu_fused = _WgpuFusedElementwise(x, ^n) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[4]
        "#]],
    );
}

/// A path forbids to merge all three. The pair with float32 between the two saves more traffic than
/// the one with float16, which comes first in the graph.
#[test]
fn the_largest_saving_comes_first() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4096, 256]
         u = Cast(x) {SrcT: float32, DstT: float16} -> float16[4096, 256]
         n = Custom(u) -> float32[4096, 256]
         v = Cast(u) {SrcT: float16, DstT: float32} -> float32[4096, 256]
         w = Mul(v, n) {T: float32} -> float32[4096, 256]
         out = Custom(w)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4096, 256]
            u = Cast(x) {DstT: float16, SrcT: float32} -> float16[4096, 256]
            n = Custom(u) -> float32[4096, 256]
            out = Custom(w/wgpu_fused)
            w/wgpu_fused = _WgpuFusedElementwise(u, n) {
                T_in: [float16, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float16, float32; "
                    "c: 0; "
                    "s0 = Cast<float16, float32>(x0); "
                    "s1 = Mul<float32>(s0, x1); "
                    "return s1",
            } -> float32[4096, 256]
        "#]],
    );
}

/// A path that leaves a group and comes back would make a cycle: two groups.
#[test]
fn detours_divide() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4, 4]
         a = Exp(x) {T: float32} -> float32[4, 4]
         b = Tanh(a) {T: float32} -> float32[4, 4]
         m = MatMul(b, x) {T: float32} -> float32[4, 4]
         c = Mul(a, m) {T: float32} -> float32[4, 4]
         d = Neg(c) {T: float32} -> float32[4, 4]
         out = Custom(d)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4, 4]
            m = MatMul(b/wgpu_fused:1, x) {T: float32} -> float32[4, 4]
            out = Custom(d/wgpu_fused)
            b/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32, float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Tanh<float32>(s0); "
                    "return s0, s1",
            } -> float32[4, 4], float32[4, 4]
            d/wgpu_fused = _WgpuFusedElementwise(b/wgpu_fused, m) {
                T_in: [float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[4, 4]
        "#]],
    );
}

/// A constant that gives the result its rank stays an input.
#[test]
fn constants_that_shape_the_result_stay() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4]
         c = Const {dtype: float32, value: tensor float32[1, 1] [3]} -> float32[1, 1]
         a = Mul(x, c) {T: float32} -> float32[1, 4]
         b = Neg(a) {T: float32} -> float32[1, 4]
         out = Custom(b)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4]
            c = Const {dtype: float32, value: tensor float32[1, 1] [3.0]} -> float32[1, 1]
            out = Custom(b/wgpu_fused)
            b/wgpu_fused = _WgpuFusedElementwise(x, c) {
                T_in: [float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[1, 4]
        "#]],
    );
}

/// A tensor of one repeated number is a parameter if other nodes give the result its shape.
#[test]
fn filled_tensors_are_parameters() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[?2, 4]
         z = ZerosLike(x) {T: float32} -> float32[?2, 4]
         c = Const {dtype: float32, value: tensor float32[4] [3]} -> float32[4]
         m = Greater(x, c) {T: float32} -> bool[?2, 4]
         s = SelectV2(m, x, z) {T: float32} -> float32[?2, 4]
         out = Custom(s)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 4]
            out = Custom(s/wgpu_fused)
            s/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32],
                constants: [3.0, 0.0],
                expression:
                    "x: float32; "
                    "c: 2; "
                    "s0 = Greater<float32>(x0, c0); "
                    "s1 = SelectV2<float32>(s0, x0, c1); "
                    "return s1",
            } -> float32[?2, 4]
        "#]],
    );
}

/// More tensors than one program binds become two groups.
#[test]
fn bindings_are_limited() {
    check(
        "elementwise",
        "preserve out
         a = Placeholder -> float32[9]
         b = Placeholder -> float32[9]
         c = Placeholder -> float32[9]
         d = Placeholder -> float32[9]
         e = Placeholder -> float32[9]
         f = Placeholder -> float32[9]
         g = Placeholder -> float32[9]
         s1 = AddV2(a, b) {T: float32} -> float32[9]
         s2 = AddV2(s1, c) {T: float32} -> float32[9]
         s3 = AddV2(s2, d) {T: float32} -> float32[9]
         s4 = AddV2(s3, e) {T: float32} -> float32[9]
         s5 = AddV2(s4, f) {T: float32} -> float32[9]
         s6 = AddV2(s5, g) {T: float32} -> float32[9]
         s7 = Neg(s6) {T: float32} -> float32[9]
         out = Custom(s7)",
        &expect![[r#"
            preserve out
            a = Placeholder -> float32[9]
            b = Placeholder -> float32[9]
            c = Placeholder -> float32[9]
            d = Placeholder -> float32[9]
            e = Placeholder -> float32[9]
            f = Placeholder -> float32[9]
            g = Placeholder -> float32[9]
            out = Custom(s7/wgpu_fused)
            s5/wgpu_fused = _WgpuFusedElementwise(a, b, c, d, e, f) {
                T_in: [float32, float32, float32, float32, float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32, float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = AddV2<float32>(s0, x2); "
                    "s2 = AddV2<float32>(s1, x3); "
                    "s3 = AddV2<float32>(s2, x4); "
                    "s4 = AddV2<float32>(s3, x5); "
                    "return s4",
            } -> float32[9]
            s7/wgpu_fused = _WgpuFusedElementwise(s5/wgpu_fused, g) {
                T_in: [float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[9]
        "#]],
    );
}

#[test]
fn nodes_that_are_left_alone() {
    for text in [
        // One node.
        "preserve out\nx = Placeholder -> float32[4]\na = Exp(x) {T: float32} -> float32[4]\nout \
         = Custom(a)",
        // Another device's nodes.
        "preserve out\nx = Placeholder -> float32[4]\na = Exp(x) {T: float32} @CPU:0 -> \
         float32[4]\nb = Neg(a) {T: float32} @CPU:0 -> float32[4]\nout = Custom(b)",
        // Two of our devices.
        "preserve out\nx = Placeholder -> float32[4]\na = Exp(x) {T: float32} -> float32[4]\nb = \
         Neg(a) {T: float32} @WGPU:1 -> float32[4]\nout = Custom(b)",
        // int32 is TensorFlow's type for shapes, on the host.
        "preserve out\nx = Placeholder -> int32[4]\na = Neg(x) {T: int32} -> int32[4]\nb = \
         Square(a) {T: int32} -> int32[4]\nout = Custom(b)",
        "preserve out\nx = Placeholder -> int32[4]\na = Cast(x) {SrcT: int32, DstT: float32, \
         Truncate: false} -> float32[4]\nb = Square(a) {T: float32} -> float32[4]\nout = Custom(b)",
        // A preserved node keeps its name and op.
        "preserve a, b\nx = Placeholder -> float32[4]\na = Exp(x) {T: float32} -> float32[4]\nb = \
         Neg(a) {T: float32} -> float32[4]",
        // Shapes that may differ where the op demands equal ones.
        "preserve out\nx = Placeholder -> float32[?2]\ng = Placeholder -> float32[?3]\na = \
         ReluGrad(g, x) {T: float32} -> float32[?2]\nb = Neg(a) {T: float32} -> float32[?2]\nout \
         = Custom(b)",
        "preserve out\nc = Placeholder -> bool[4]\nx = Placeholder -> float32[4, 4]\na = \
         Select(c, x, x) {T: float32} -> float32[4, 4]\nb = Neg(a) {T: float32} -> float32[4, \
         4]\nout = Custom(b)",
        // Equal that answers false to shapes that do not go together, as these might not.
        "preserve out\nx = Placeholder -> float32[?2]\ny = Placeholder -> float32[?3]\na = \
         Equal(x, y) {T: float32, incompatible_shape_error: false} -> bool[?4]\nb = \
         LogicalNot(a) -> bool[?4]\nout = Custom(b)",
        // A conversion that drops bits instead of rounding.
        "preserve out\nx = Placeholder -> float32[4]\na = Cast(x) {SrcT: float32, DstT: float16, \
         Truncate: true} -> float16[4]\nb = Neg(a) {T: float16} -> float16[4]\nout = Custom(b)",
        // A small value with other readers, too.
        "preserve out\nx = Placeholder -> float32[64, 8]\nv = Placeholder -> float32[8]\na = \
         Neg(v) {T: float32} -> float32[8]\nm = Mul(x, a) {T: float32} -> float32[64, 8]\nout = \
         Custom(m, a)",
        // A small value that is expensive.
        "preserve out\nx = Placeholder -> float32[64, 8]\nv = Placeholder -> float32[8]\na = \
         Tanh(v) {T: float32} -> float32[8]\nm = Mul(x, a) {T: float32} -> float32[64, 8]\nout = \
         Custom(m)",
        // Nodes that do not run under the same conditions.
        "preserve out\nx = Placeholder -> float32[4]\np = Placeholder -> bool[]\ns = Switch(p, p) \
         {T: bool}\nn = Identity(s) {T: bool}\na = Exp(x) {T: float32} -> float32[4]\nb = Neg(a, \
         ^n) {T: float32} -> float32[4]\nout = Custom(b)",
        // Repetitions that alone give the result its shape.
        "preserve out\nx = Placeholder -> float32[1, 8]\nm = Placeholder -> int32[2]\nt = Tile(x, \
         m) {T: float32, Tmultiples: int32} -> float32[4, 8]\na = Exp(t) {T: float32} -> \
         float32[4, 8]\nout = Custom(a)",
        // A repetition that is more than broadcasting, and one whose shape is not known well
        // enough.
        "preserve out\nx = Placeholder -> float32[2, 8]\ny = Placeholder -> float32[4, 8]\nm = \
         Placeholder -> int32[2]\nt = Tile(x, m) {T: float32, Tmultiples: int32} -> float32[4, \
         8]\na = Mul(t, y) {T: float32} -> float32[4, 8]\nout = Custom(a)",
        "preserve out\nx = Placeholder -> float32[1, 8]\ny = Placeholder -> float32[4, 8]\nm = \
         Placeholder -> int32[2]\nt = Tile(x, m) {T: float32, Tmultiples: int32} -> float32[?, \
         8]\na = Mul(t, y) {T: float32} -> float32[4, 8]\nout = Custom(a)",
        // Functions whose loops are too long to be fused.
        "preserve out\nx = Placeholder -> float32[4]\na = Igamma(x, x) {T: float32} -> \
         float32[4]\nb = Zeta(a, x) {T: float32} -> float32[4]\nout = Custom(b)",
    ] {
        refuse("elementwise", text);
    }
}

/// All nodes run, because no condition decides about them. The group waits for the nodes that its
/// members waited for, but not for members.
#[test]
fn waiting_for_different_nodes() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4]
         n = NoOp
         a = Exp(x) {T: float32} -> float32[4]
         b = Square(x, ^a, ^n) {T: float32} -> float32[4]
         c = Mul(a, b) {T: float32} -> float32[4]
         out = Custom(c)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4]
            n = NoOp
            out = Custom(c/wgpu_fused)
            c/wgpu_fused = _WgpuFusedElementwise(x, ^n) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Square<float32>(x0); "
                    "s2 = Mul<float32>(s0, s1); "
                    "return s2",
            } -> float32[4]
        "#]],
    );
}

/// A path over nodes that a member waits for divides a group like a path of data.
#[test]
fn detours_of_control_divide() {
    refuse(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4]
         a = Exp(x) {T: float32} -> float32[4]
         n = Print(a)
         b = Neg(a, ^n) {T: float32} -> float32[4]
         out = Custom(b)",
    );
}

/// A cheap function of a stored value that several groups read is computed in each and stored by
/// none.
#[test]
fn cheap_values_are_computed_again() {
    check(
        "elementwise",
        "preserve out
         x = Placeholder -> float32[4, 4]
         y = Placeholder -> float32[4, 4]
         n = Neg(x) {T: float32} -> float32[4, 4]
         a = Exp(n) {T: float32} -> float32[4, 4]
         m = MatMul(a, y) {T: float32} -> float32[4, 4]
         b = Mul(n, m) {T: float32} -> float32[4, 4]
         out = Custom(b)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4, 4]
            y = Placeholder -> float32[4, 4]
            m = MatMul(a/wgpu_fused, y) {T: float32} -> float32[4, 4]
            out = Custom(b/wgpu_fused)
            a/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Neg<float32>(x0); "
                    "s1 = Exp<float32>(s0); "
                    "return s1",
            } -> float32[4, 4]
            b/wgpu_fused = _WgpuFusedElementwise(x, m) {
                T_in: [float32, float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Neg<float32>(x0); "
                    "s1 = Mul<float32>(s0, x1); "
                    "return s1",
            } -> float32[4, 4]
        "#]],
    );
}

#[test]
fn a_bias_is_an_addition() {
    let text = "preserve out
        x = Placeholder -> float32[?1, 4]
        b = Placeholder -> float32[4]
        e = Exp(x) {T: float32} -> float32[?1, 4]
        y = BiasAdd(e, b) {T: float32, data_format: \"NHWC\"} -> float32[?1, 4]
        out = Custom(y)";
    let after = super::after("elementwise", text);
    let wanted = "s0 = Exp<float32>(x0); s1 = AddV2<float32>(s0, x1); return s1";
    assert!(after.contains(wanted), "{after}");
    // The bias may have one element for all channels, or be for channels that are not the last
    // dimension.
    for (from, to) in
        [("b = Placeholder -> float32[4]", "b = Placeholder -> float32[?2]"), ("NHWC", "NCHW")]
    {
        refuse("elementwise", &text.replace(from, to));
    }
}

/// Two nodes that read one tensor find each other, though in the order of its readers there is a
/// group between them that has no room for either.
#[test]
fn readers_on_both_sides_of_a_full_group() {
    check(
        "elementwise",
        "preserve o0, o1, o2, o3, o4, n
         x = Placeholder -> float32[8]
         t = Placeholder -> float32[8]
         q = Placeholder -> float32[8]
         none = Const {dtype: int32, value: tensor int32[0] []} -> int32[0]
         a = SquaredDifference(x, t) {T: float32} -> float32[8]
         n = Mean(a, none) {T: float32, Tidx: int32, keep_dims: true} -> float32[8]
         quarter = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]
         b0 = AddV2(n, quarter) {T: float32} -> float32[8]
         b1 = Rsqrt(b0) {T: float32} -> float32[8]
         b2 = Mul(t, b1) {T: float32} -> float32[8]
         b3 = Sub(q, b2) {T: float32} -> float32[8]
         b4 = Cos(b1) {T: float32} -> float32[8]
         b5 = Reciprocal(b1) {T: float32} -> float32[8]
         c = Sub(t, q) {T: float32} -> float32[8]
         o0 = Identity(b0) {T: float32} -> float32[8]
         o1 = Identity(b4) {T: float32} -> float32[8]
         o2 = Identity(b5) {T: float32} -> float32[8]
         o3 = Identity(b3) {T: float32} -> float32[8]
         o4 = Identity(c) {T: float32} -> float32[8]",
        &expect![[r#"
            preserve n, o0, o1, o2, o3, o4
            x = Placeholder -> float32[8]
            t = Placeholder -> float32[8]
            q = Placeholder -> float32[8]
            none = Const {dtype: int32, value: tensor int32[0] []} -> int32[0]
            n = Mean(c/wgpu_fused, none) {T: float32, Tidx: int32, keep_dims: true} -> float32[8]
            o0 = Identity(b3/wgpu_fused) {T: float32} -> float32[8]
            o1 = Identity(b3/wgpu_fused:2) {T: float32} -> float32[8]
            o2 = Identity(b3/wgpu_fused:1) {T: float32} -> float32[8]
            o3 = Identity(b3/wgpu_fused:3) {T: float32} -> float32[8]
            o4 = Identity(c/wgpu_fused:1) {T: float32} -> float32[8]
            c/wgpu_fused = _WgpuFusedElementwise(x, t, q) {
                T_in: [float32, float32, float32],
                T_out: [float32, float32],
                constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = SquaredDifference<float32>(x0, x1); "
                    "s1 = Sub<float32>(x1, x2); "
                    "return s0, s1",
            } -> float32[8], float32[8]
            b3/wgpu_fused = _WgpuFusedElementwise(n, t, q) {
                T_in: [float32, float32, float32],
                T_out: [float32, float32, float32, float32],
                constants: [0.25],
                expression:
                    "x: float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x0, c0); "
                    "s1 = Rsqrt<float32>(s0); "
                    "s2 = Reciprocal<float32>(s1); "
                    "s3 = Cos<float32>(s1); "
                    "s4 = Mul<float32>(x1, s1); "
                    "s5 = Sub<float32>(x2, s4); "
                    "return s0, s2, s3, s5",
            } -> float32[8], float32[8], float32[8], float32[8]
        "#]],
    );
}

#[test]
fn nodes_in_front_of_a_loop_stay_apart_from_those_behind_it() {
    // No edge but the one back into the loop leads from `a` to `last`.
    let carried = |name: &str, from: &str, back: &str| {
        format!(
            "e{name} = Enter({from}) {{T: float32, frame_name: \"f\", is_constant: false}} -> \
             float32[4]
             m{name} = Merge(e{name}, n{name}) {{N: 2, T: float32}} -> float32[4], int32[]
             s{name} = Switch(m{name}, more) {{T: float32}} -> float32[4], float32[4]
             n{name} = NextIteration({back}) {{T: float32}} -> float32[4]"
        )
    };
    let text = format!(
        "preserve out
         x = Placeholder -> float32[4]
         a = Exp(x) {{T: float32}} -> float32[4]
         test = Custom(mu) -> bool[]
         more = LoopCond(test) -> bool[]
         {}
         {}
         last = Exit(su) {{T: float32}} -> float32[4]
         b = Mul(last, a) {{T: float32}} -> float32[4]
         out = Identity(b) {{T: float32}} -> float32[4]",
        carried("u", "x", "sv:1"),
        carried("v", "a", "sv:1"),
    );
    refuse("elementwise", &text);
}

#[test]
fn a_comparison_that_never_fails_is_fused_if_its_shapes_certainly_go_together() {
    // The operator == of tensors makes such nodes.
    let text = "preserve out\nx = Placeholder -> float32[?2]\nc = Const {dtype: float32, value: \
                tensor float32[] [0.5]} -> float32[]\na = Equal(x, c) {T: float32, \
                incompatible_shape_error: false} -> bool[?2]\nb = LogicalNot(a) -> bool[?2]\nout = \
                Custom(b)";
    check(
        "elementwise",
        text,
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2]
            out = Custom(b/wgpu_fused)
            b/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [bool],
                constants: [0.5],
                expression:
                    "x: float32; "
                    "c: 1; "
                    "s0 = Equal<float32>(x0, c0); "
                    "s1 = LogicalNot<bool>(s0); "
                    "return s1",
            } -> bool[?2]
        "#]],
    );
}
