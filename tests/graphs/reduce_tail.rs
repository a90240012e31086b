//! Nodes that follow reductions and are computed with them.

use expect_test::expect;

use super::{after, check, refuse};

#[test]
fn a_normalization_leaves_scale_and_shift() {
    // As in Keras: the moments lose their axes and get them again; the running average is left to
    // the update.
    check(
        "reduce",
        "preserve x, v, out, beta, more
         x = Placeholder -> float32[?2, 4, 4, 3]
         beta = Placeholder -> float32[1, 1, 1, 3]
         g = Placeholder -> float32[3]
         v = VarHandleOp {dtype: float32, shape: shape [3]} -> resource
         s = Const {value: tensor int32[4] [1, 1, 1, 3]} -> int32[4]
         gamma = Reshape(g, s) {T: float32, Tshape: int32} -> float32[1, 1, 1, 3]
         a = Const {value: tensor int32[3] [0, 1, 2]} -> int32[3]
         mean = Mean(x, a) {T: float32, keep_dims: true} -> float32[1, 1, 1, 3]
         d = SquaredDifference(x, mean) {T: float32} -> float32[?2, 4, 4, 3]
         variance = Mean(d, a) {T: float32, keep_dims: true} -> float32[1, 1, 1, 3]
         squeezed = Squeeze(mean) {T: float32, squeeze_dims: [0, 1, 2]} -> float32[3]
         squeezed2 = Squeeze(variance) {T: float32, squeeze_dims: [0, 1, 2]} -> float32[3]
         c = Const {value: tensor float32[] [0.01]} -> float32[]
         step = Mul(squeezed, c) {T: float32} -> float32[3]
         assign = AssignSubVariableOp(v, step) {dtype: float32}
         m = Reshape(squeezed, s) {T: float32, Tshape: int32} -> float32[1, 1, 1, 3]
         w = Reshape(squeezed2, s) {T: float32, Tshape: int32} -> float32[1, 1, 1, 3]
         e = Const {value: tensor float32[] [0.001]} -> float32[]
         add = AddV2(w, e) {T: float32} -> float32[1, 1, 1, 3]
         inverse = Rsqrt(add) {T: float32} -> float32[1, 1, 1, 3]
         scale = Mul(gamma, inverse) {T: float32} -> float32[1, 1, 1, 3]
         moved = Mul(m, scale) {T: float32} -> float32[1, 1, 1, 3]
         shift = Sub(beta, moved) {T: float32} -> float32[1, 1, 1, 3]
         scaled = Mul(x, scale) {T: float32} -> float32[?2, 4, 4, 3]
         out = AddV2(scaled, shift) {T: float32} -> float32[?2, 4, 4, 3]
         more = NoOp(^assign)",
        &expect![[r#"
            preserve beta, more, out, v, x
            x = Placeholder -> float32[?2, 4, 4, 3]
            beta = Placeholder -> float32[1, 1, 1, 3]
            g = Placeholder -> float32[3]
            v = VarHandleOp {dtype: float32, shape: shape [3]} -> resource
            s = Const {value: tensor int32[4] [1, 1, 1, 3]} -> int32[4]
            gamma = Reshape(g, s) {T: float32, Tshape: int32} -> float32[1, 1, 1, 3]
            squeezed = Squeeze(variance/moments) {T: float32, squeeze_dims: [0, 1, 2]} -> float32[3]
            c = Const {value: tensor float32[] [0.009999999776482582]} -> float32[]
            step = Mul(squeezed, c) {T: float32} -> float32[3]
            assign = AssignSubVariableOp(v, step) {dtype: float32}
            scaled = Mul(x, variance/moments:1) {T: float32} -> float32[?2, 4, 4, 3]
            out = AddV2(scaled, variance/moments:2) {T: float32} -> float32[?2, 4, 4, 3]
            more = NoOp(^assign)
            variance/moments = _WgpuFusedReduce(x, gamma, beta) {
                T_extra: [float32, float32],
                T_in: [float32],
                T_out: [float32, float32, float32],
                axes: [0, 1, 2],
                constants: [],
                epilogue:
                    "x: float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x1, c0); "
                    "s1 = Rsqrt<float32>(s0); "
                    "s2 = Mul<float32>(x2, s1); "
                    "s3 = Mul<float32>(x0, s2); "
                    "s4 = Sub<float32>(x3, s3); "
                    "return x0, s2, s4",
                epilogue_constants: [0.001],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
                keep_dims: true,
                reductions: "Moments",
                whole: false,
            } -> float32[1, 1, 1, 3], float32[1, 1, 1, 3], float32[1, 1, 1, 3]
        "#]],
    );
}

#[test]
fn two_normalizations_with_a_common_gradient_are_one_node_each() {
    // Two steps share the gradient `w`. A node with the reductions of both could not write the
    // results of what follows them.
    check(
        "reduce",
        "preserve o1, o2
         x = Placeholder -> float32[8, 3]
         w = Placeholder -> float32[8, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         e = Const {value: tensor float32[] [0.001]} -> float32[]
         sw = Sum(w, a) {T: float32, keep_dims: true} -> float32[1, 3]
         n = Neg(sw) {T: float32} -> float32[1, 3]
         g1 = Placeholder -> float32[1, 3]
         x1 = Tanh(x) {T: float32} -> float32[8, 3]
         m1 = Mean(x1, a) {T: float32, keep_dims: true} -> float32[1, 3]
         d1 = SquaredDifference(x1, m1) {T: float32} -> float32[8, 3]
         v1 = Mean(d1, a) {T: float32, keep_dims: true} -> float32[1, 3]
         p1 = Mul(x1, w) {T: float32} -> float32[8, 3]
         s1 = Sum(p1, a) {T: float32, keep_dims: true} -> float32[1, 3]
         b1 = AddV2(v1, e) {T: float32} -> float32[1, 3]
         r1 = Rsqrt(b1) {T: float32} -> float32[1, 3]
         c1 = Mul(m1, n) {T: float32} -> float32[1, 3]
         t1 = AddV2(s1, c1) {T: float32} -> float32[1, 3]
         u1 = Mul(t1, g1) {T: float32} -> float32[1, 3]
         q1 = RsqrtGrad(r1, u1) {T: float32} -> float32[1, 3]
         o1 = Custom(x1, m1, t1, r1, q1)
         g2 = Placeholder -> float32[1, 3]
         x2 = Tanh(x1) {T: float32} -> float32[8, 3]
         m2 = Mean(x2, a) {T: float32, keep_dims: true} -> float32[1, 3]
         d2 = SquaredDifference(x2, m2) {T: float32} -> float32[8, 3]
         v2 = Mean(d2, a) {T: float32, keep_dims: true} -> float32[1, 3]
         p2 = Mul(x2, w) {T: float32} -> float32[8, 3]
         s2 = Sum(p2, a) {T: float32, keep_dims: true} -> float32[1, 3]
         b2 = AddV2(v2, e) {T: float32} -> float32[1, 3]
         r2 = Rsqrt(b2) {T: float32} -> float32[1, 3]
         c2 = Mul(m2, n) {T: float32} -> float32[1, 3]
         t2 = AddV2(s2, c2) {T: float32} -> float32[1, 3]
         u2 = Mul(t2, g2) {T: float32} -> float32[1, 3]
         q2 = RsqrtGrad(r2, u2) {T: float32} -> float32[1, 3]
         o2 = Custom(x2, m2, t2, r2, q2)",
        &expect![[r#"
            preserve o1, o2
            x = Placeholder -> float32[8, 3]
            w = Placeholder -> float32[8, 3]
            g1 = Placeholder -> float32[1, 3]
            x1 = Tanh(x) {T: float32} -> float32[8, 3]
            o1 = Custom(x1, s1/moments, s1/moments:1, s1/moments:2, s1/moments:3)
            g2 = Placeholder -> float32[1, 3]
            x2 = Tanh(x1) {T: float32} -> float32[8, 3]
            o2 = Custom(x2, sw/moments, sw/moments:2, sw/moments:3, sw/moments:4)
            s1/moments = _WgpuFusedReduce(x1, w, sw/moments:1, g1) {
                T_extra: [float32, float32],
                T_in: [float32, float32],
                T_out: [float32, float32, float32, float32],
                axes: [0],
                constants: [],
                epilogue:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, x3); "
                    "s1 = AddV2<float32>(x2, s0); "
                    "s2 = AddV2<float32>(x1, c0); "
                    "s3 = Rsqrt<float32>(s2); "
                    "s4 = Mul<float32>(s1, x4); "
                    "s5 = RsqrtGrad<float32>(s3, s4); "
                    "return x0, s1, s3, s5",
                epilogue_constants: [0.001],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "return x0, s0",
                keep_dims: true,
                reductions: "Moments,Sum",
                whole: false,
            } -> float32[1, 3], float32[1, 3], float32[1, 3], float32[1, 3]
            sw/moments = _WgpuFusedReduce(x2, w, g2) {
                T_extra: [float32],
                T_in: [float32, float32],
                T_out: [float32, float32, float32, float32, float32],
                axes: [0],
                constants: [],
                epilogue:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = Neg<float32>(x3); "
                    "s1 = Mul<float32>(x0, s0); "
                    "s2 = AddV2<float32>(x2, s1); "
                    "s3 = AddV2<float32>(x1, c0); "
                    "s4 = Rsqrt<float32>(s3); "
                    "s5 = Mul<float32>(s2, x4); "
                    "s6 = RsqrtGrad<float32>(s4, s5); "
                    "return x0, s0, s2, s4, s6",
                epilogue_constants: [0.001],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "return x0, s0, x1",
                keep_dims: true,
                reductions: "Moments,Sum,Sum",
                whole: false,
            } -> float32[1, 3], float32[1, 3], float32[1, 3], float32[1, 3], float32[1, 3]
        "#]],
    );
}

#[test]
fn a_gradients_node_computes_the_scale_of_its_normalization_again() {
    // The forward pass has fewer nodes behind its reductions. If its node took the scale `k` in
    // first, the gradient's node would read it, and have more tensors than one dispatch binds.
    check(
        "reduce",
        "preserve o
         x = Placeholder -> float32[8, 5, 3]
         g = Placeholder -> float32[1, 1, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         e = Const {value: tensor float32[] [0.001]} -> float32[]
         m = Mean(x, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         d = SquaredDifference(x, m) {T: float32} -> float32[8, 5, 3]
         v = Mean(d, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         b = AddV2(v, e) {T: float32} -> float32[1, 1, 3]
         r = Rsqrt(b) {T: float32} -> float32[1, 1, 3]
         k = Mul(r, g) {T: float32} -> float32[1, 1, 3]
         w = Custom(x, m, k) -> float32[8, 5, 3]
         s = Sum(w, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         p = Mul(x, w) {T: float32} -> float32[8, 5, 3]
         t = Sum(p, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         n = Neg(s) {T: float32} -> float32[1, 1, 3]
         h = Mul(n, k) {T: float32} -> float32[1, 1, 3]
         c = Mul(m, n) {T: float32} -> float32[1, 1, 3]
         z = AddV2(t, c) {T: float32} -> float32[1, 1, 3]
         y = Mul(z, r) {T: float32} -> float32[1, 1, 3]
         u = Mul(z, g) {T: float32} -> float32[1, 1, 3]
         q = RsqrtGrad(r, u) {T: float32} -> float32[1, 1, 3]
         o = Custom(x, w, s, h, y, q)",
        &expect![[r#"
            preserve o
            x = Placeholder -> float32[8, 5, 3]
            g = Placeholder -> float32[1, 1, 3]
            w = Custom(x, v/moments, v/moments:2) -> float32[8, 5, 3]
            o = Custom(x, w, s/reduce, s/reduce:3, s/reduce:2, s/reduce:1)
            s/reduce = _WgpuFusedReduce(x, w, v/moments:1, v/moments, g) {
                T_extra: [float32, float32, float32],
                T_in: [float32, float32],
                T_out: [float32, float32, float32, float32],
                axes: [0, 1],
                constants: [],
                epilogue:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Neg<float32>(x1); "
                    "s1 = Mul<float32>(x3, s0); "
                    "s2 = AddV2<float32>(x0, s1); "
                    "s3 = Mul<float32>(s2, x4); "
                    "s4 = RsqrtGrad<float32>(x2, s3); "
                    "s5 = Mul<float32>(s2, x2); "
                    "s6 = Mul<float32>(x2, x4); "
                    "s7 = Mul<float32>(s0, s6); "
                    "return x1, s4, s5, s7",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "return s0, x1",
                keep_dims: true,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[1, 1, 3], float32[1, 1, 3], float32[1, 1, 3], float32[1, 1, 3]
            v/moments = _WgpuFusedReduce(x, g) {
                T_extra: [float32],
                T_in: [float32],
                T_out: [float32, float32, float32],
                axes: [0, 1],
                constants: [],
                epilogue:
                    "x: float32, float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x1, c0); "
                    "s1 = Rsqrt<float32>(s0); "
                    "s2 = Mul<float32>(s1, x2); "
                    "return x0, s1, s2",
                epilogue_constants: [0.001],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
                keep_dims: true,
                reductions: "Moments",
                whole: false,
            } -> float32[1, 1, 3], float32[1, 1, 3], float32[1, 1, 3]
        "#]],
    );
}

/// The reductions of each fused node. Four reductions read a tensor of `rows` rows, and an `Exp`
/// follows each of them.
fn reductions_of_one_tensor(rows: usize) -> Vec<String> {
    let mut text = format!(
        "preserve out
         x = Placeholder -> float32[{rows}, 3]
         a = Const {{value: tensor int32[1] [0]}} -> int32[1]\n"
    );
    for op in ["Sum", "Mean", "Max", "Min"] {
        text += &format!("{op} = {op}(x, a) {{T: float32, keep_dims: true}} -> float32[1, 3]\n");
        text += &format!("e{op} = Exp({op}) {{T: float32}} -> float32[1, 3]\n");
    }
    text += "out = Custom(Sum, eSum, Mean, eMean, Max, eMax, Min, eMin)";
    let text = after("reduce", &text);
    let names = text.split("reductions: \"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

#[test]
fn reductions_share_a_pass_if_that_saves_more_than_the_nodes_behind_them() {
    // One node writes six results: three reductions and what follows them.
    let small = reductions_of_one_tensor(8);
    assert_eq!(small.iter().map(|names| names.split(',').count()).sum::<usize>(), 4, "{small:?}");
    assert_eq!(small.len(), 2, "{small:?}");
    assert_eq!(reductions_of_one_tensor(1 << 20).len(), 1);
}

#[test]
fn the_gradient_of_a_normalization_is_one_node() {
    // `scale` follows from `gamma` and `inverse`, which are read anyway.
    check(
        "reduce",
        "preserve x, dy, out, gamma, mean, inverse, flat
         x = Placeholder -> float32[8, 4, 3]
         dy = Placeholder -> float32[8, 4, 3]
         gamma = Placeholder -> float32[1, 1, 3]
         mean = Placeholder -> float32[1, 1, 3]
         inverse = Placeholder -> float32[1, 1, 3]
         scale = Mul(gamma, inverse) {T: float32} -> float32[1, 1, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         p = Mul(dy, x) {T: float32} -> float32[8, 4, 3]
         sb = Sum(dy, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         sg = Sum(p, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         n = Neg(sb) {T: float32} -> float32[1, 1, 3]
         dmean = Mul(n, scale) {T: float32} -> float32[1, 1, 3]
         dscale = Mul(n, mean) {T: float32} -> float32[1, 1, 3]
         t = AddN(sg, dscale) {T: float32, N: 2} -> float32[1, 1, 3]
         tg = Mul(t, gamma) {T: float32} -> float32[1, 1, 3]
         dgamma = Mul(t, inverse) {T: float32} -> float32[1, 1, 3]
         dvariance = RsqrtGrad(inverse, tg) {T: float32} -> float32[1, 1, 3]
         l = Const {value: tensor int32[1] [3]} -> int32[1]
         beta = Reshape(sb, l) {T: float32, Tshape: int32} -> float32[3]
         flat = Identity2(beta, dgamma)
         out = Where(dmean, dvariance, scale)",
        &expect![[r#"
            preserve dy, flat, gamma, inverse, mean, out, x
            x = Placeholder -> float32[8, 4, 3]
            dy = Placeholder -> float32[8, 4, 3]
            gamma = Placeholder -> float32[1, 1, 3]
            mean = Placeholder -> float32[1, 1, 3]
            inverse = Placeholder -> float32[1, 1, 3]
            scale = Mul(gamma, inverse) {T: float32} -> float32[1, 1, 3]
            l = Const {value: tensor int32[1] [3]} -> int32[1]
            beta = Reshape(sb/reduce, l) {T: float32, Tshape: int32} -> float32[3]
            flat = Identity2(beta, sb/reduce:1)
            out = Where(sb/reduce:3, sb/reduce:2, scale)
            sb/reduce = _WgpuFusedReduce(dy, x, mean, inverse, gamma) {
                T_extra: [float32, float32, float32],
                T_in: [float32, float32],
                T_out: [float32, float32, float32, float32],
                axes: [0, 1],
                constants: [],
                epilogue:
                    "x: float32, float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Neg<float32>(x1); "
                    "s1 = Mul<float32>(s0, x2); "
                    "s2 = AddV2<float32>(x0, s1); "
                    "s3 = Mul<float32>(s2, x3); "
                    "s4 = Mul<float32>(s2, x4); "
                    "s5 = RsqrtGrad<float32>(x3, s4); "
                    "s6 = Mul<float32>(x4, x3); "
                    "s7 = Mul<float32>(s0, s6); "
                    "return x1, s3, s5, s7",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "return s0, x0",
                keep_dims: true,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[1, 1, 3], float32[1, 1, 3], float32[1, 1, 3], float32[1, 1, 3]
        "#]],
    );
}

#[test]
fn values_of_other_extents_get_them_behind_the_node() {
    check(
        "reduce",
        "preserve x, out
         x = Placeholder -> float32[8, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         s = Sum(x, a) {T: float32, keep_dims: true} -> float32[1, 3]
         q = Squeeze(s) {T: float32, squeeze_dims: [0]} -> float32[3]
         r = Sqrt(q) {T: float32} -> float32[3]
         e = Exp(r) {T: float32} -> float32[3]
         h = Cast(e) {SrcT: float32, DstT: float16} -> float16[3]
         out = Where(r, h)",
        &expect![[r#"
            preserve out, x
            x = Placeholder -> float32[8, 3]
            out = Where(r/shape, h/shape)
            r/shape = Squeeze(s/reduce) {T: float32, squeeze_dims: [0]} -> float32[3]
            h/shape = Squeeze(s/reduce:1) {T: float16, squeeze_dims: [0]} -> float16[3]
            s/reduce = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32, float16],
                axes: [0],
                constants: [],
                epilogue:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Sqrt<float32>(x0); "
                    "s1 = Exp<float32>(s0); "
                    "s2 = Cast<float32, float16>(s1); "
                    "return s0, s2",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
                keep_dims: true,
                reductions: "Sum",
                whole: false,
            } -> float32[1, 3], float16[1, 3]
        "#]],
    );
}

#[test]
fn a_loss_is_scaled_where_it_is_summed() {
    check(
        "reduce",
        "preserve x, y, n, out
         x = Placeholder -> float32[8, 3]
         y = Placeholder -> float32[8, 3]
         n = Placeholder -> float32[]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         d = SquaredDifference(x, y) {T: float32} -> float32[8, 3]
         s = Sum(d, a) {T: float32, keep_dims: false} -> float32[]
         l = DivNoNan(s, n) {T: float32} -> float32[]
         h = Cast(l) {SrcT: float32, DstT: float16} -> float16[]
         out = Where(h)",
        &expect![[r#"
            preserve n, out, x, y
            x = Placeholder -> float32[8, 3]
            y = Placeholder -> float32[8, 3]
            n = Placeholder -> float32[]
            out = Where(s/reduce)
            s/reduce = _WgpuFusedReduce(x, y, n) {
                T_extra: [float32],
                T_in: [float32, float32],
                T_out: [float16],
                axes: [0, 1],
                constants: [],
                epilogue:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = DivNoNan<float32>(x0, x1); "
                    "s1 = Cast<float32, float16>(s0); "
                    "return s1",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = SquaredDifference<float32>(x0, x1); "
                    "return s0",
                keep_dims: false,
                reductions: "Sum",
                whole: false,
            } -> float16[]
        "#]],
    );
}

#[test]
fn other_nodes_stay() {
    let around = |rest: &str| {
        format!(
            "preserve x, v, out\nx = Placeholder -> float32[8, 3]\nv = VarHandleOp {{dtype: \
             float32}} -> resource
             z = Placeholder -> float32[3]\nw = Placeholder -> float32[3, 3]\nu = Placeholder
             a = Const {{value: tensor int32[1] [0]}} -> int32[1]
             s = Sum(x, a) {{T: float32, keep_dims: false}} -> float32[3]\n{rest}"
        )
    };
    for rest in [
        // Larger than the results.
        "t = Mul(s, w) {T: float32} -> float32[3, 3]\nout = Where(t)",
        "t = Mul(s, x) {T: float32} -> float32[8, 3]\nout = Where(t)",
        // An operand of an unknown shape.
        "t = Mul(s, u) {T: float32} -> float32[3]\nout = Where(t)",
        // An operand that needs the result.
        "k = Where(s) -> float32[3]\nt = Mul(s, k) {T: float32} -> float32[3]\nout = Where(t)",
        "k = Where(s) -> float32[3]\nt = Mul(s, z, ^k) {T: float32} -> float32[3]\nout = Where(t)",
        // It is fetched, or on another device.
        "out = Mul(s, z) {T: float32} -> float32[3]",
        "t = Mul(s, z) {T: float32} @CPU:0 -> float32[3]\nout = Where(t)",
        // Nothing is computed.
        "t = Reshape(s, a) {T: float32, Tshape: int32} -> float32[1, 3]\nout = Where(t)",
        // A variable's step is part of the update.
        "t = Mul(s, z) {T: float32} -> float32[3]\nc = AssignSubVariableOp(v, t) {dtype: \
         float32}\nout = NoOp(^c)",
    ] {
        refuse("reduce", &around(rest));
    }
}

#[test]
fn control_inputs_stay_with_their_value() {
    // One value more than a node can return. Without `n` it reads two tensors less, but `w`, which
    // the others need, waits for it.
    let others = ["Abs", "Erf", "Exp", "Relu", "Sigmoid", "Tanh"];
    let nodes: String =
        others.iter().map(|op| format!("f{op} = {op}(w) {{T: float32}} -> float32[3]\n")).collect();
    let text = format!(
        "preserve x, d, e, out
         x = Placeholder -> float32[8, 3]
         d = Placeholder -> float32[3]
         e = Placeholder -> float32[3]
         a = Const {{value: tensor int32[1] [0]}} -> int32[1]
         r = Sum(x, a) {{T: float32, keep_dims: false}} -> float32[3]
         n = AddN(r, d, e) {{T: float32, N: 3}} -> float32[3]
         w = Neg(r, ^n) {{T: float32}} -> float32[3]
         out = Custom(n, f{})\n{nodes}",
        others.join(", f")
    );
    let after = after("reduce", &text);
    assert!(after.contains("r/reduce = _WgpuFusedReduce(x, d, e)"), "{after}");
    assert!(after.contains("out = Custom(r/reduce, "), "{after}");
}
