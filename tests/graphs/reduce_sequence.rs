//! Reductions of reductions, and gradients of biases.

use expect_test::expect;

use super::{after, check, refuse};

#[test]
fn the_sum_of_the_rows_means_is_one_reduction() {
    // As in Keras's losses, for a batch of unknown size.
    check(
        "reduce",
        "preserve x, y, out
         x = Placeholder -> float32[?2, 5]
         y = Placeholder -> float32[?2, 5]
         a = Const {value: tensor int32[1] [-1]} -> int32[1]
         b = Const {value: tensor int32[1] [0]} -> int32[1]
         d = SquaredDifference(x, y) {T: float32} -> float32[?2, 5]
         m = Mean(d, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[?2]
         s = Sum(m, b) {T: float32, Tidx: int32, keep_dims: false} -> float32[]
         out = Where(s)",
        &expect![[r#"
            preserve out, x, y
            x = Placeholder -> float32[?2, 5]
            y = Placeholder -> float32[?2, 5]
            a = Const {value: tensor int32[1] [-1]} -> int32[1]
            b = Const {value: tensor int32[1] [0]} -> int32[1]
            out = Where(s/reduce)
            s/reduce = _WgpuFusedReduce(x, y) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32],
                axes: [0, 1],
                constants: [],
                epilogue:
                    "x: float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, c0); "
                    "return s0",
                epilogue_constants: [0.2],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = SquaredDifference<float32>(x0, x1); "
                    "return s0",
                keep_dims: false,
                reductions: "Sum",
                whole: false,
            } -> float32[]
        "#]],
    );
}

#[test]
fn alike_reductions_join_whatever_is_known() {
    check(
        "reduce",
        "preserve x, out
         x = Placeholder -> float16[?2, ?3, ?4]
         a = Const {value: tensor int64[1] [1]} -> int64[1]
         b = Const {value: tensor int64[2] [0, 1]} -> int64[2]
         c = Const {value: tensor int64[1] [2]} -> int64[1]
         m = Max(x, a) {T: float16, Tidx: int64, keep_dims: true} -> float16[?2, 1, ?4]
         n = Max(m, b) {T: float16, Tidx: int64, keep_dims: false} -> float16[?4]
         p = Mean(x, a) {T: float16, Tidx: int64, keep_dims: true} -> float16[?2, 1, ?4]
         q = Mean(p, c) {T: float16, Tidx: int64, keep_dims: true} -> float16[?2, 1, 1]
         out = Where(n, q)",
        &expect![[r#"
            preserve out, x
            x = Placeholder -> float16[?2, ?3, ?4]
            a = Const {value: tensor int64[1] [1]} -> int64[1]
            b = Const {value: tensor int64[2] [0, 1]} -> int64[2]
            c = Const {value: tensor int64[1] [2]} -> int64[1]
            n = Max(x, n/axes) {T: float16, Tidx: int64, keep_dims: false} -> float16[?4]
            q = Mean(x, q/axes) {T: float16, Tidx: int64, keep_dims: true} -> float16[?2, 1, 1]
            out = Where(n, q)
            n/axes = Const {dtype: int64, value: tensor int64[2] [0, 1]} -> int64[2]
            q/axes = Const {dtype: int64, value: tensor int64[2] [1, 2]} -> int64[2]
        "#]],
    );
}

#[test]
fn reductions_that_must_be_two_stay() {
    let around = |rest: &str| {
        format!(
            "preserve x, out\nx = Placeholder -> float32[?2, 5]\nh = Placeholder -> float16[4, 5]
             a = Const {{value: tensor int32[1] [1]}} -> int32[1]
             b = Const {{value: tensor int32[1] [0]}} -> int32[1]\n{rest}\nout = Where(t)"
        )
    };
    for rest in [
        // The inner one has another reader.
        "s = Sum(x, a) {T: float32, keep_dims: false} -> float32[?2]
         t = Sum(s, b) {T: float32, keep_dims: false} -> float32[]\nmore = Where(s)",
        // It is fetched.
        "preserve s\ns = Sum(x, a) {T: float32, keep_dims: false} -> float32[?2]
         t = Sum(s, b) {T: float32, keep_dims: false} -> float32[]",
        // Other functions.
        "s = Sum(x, a) {T: float32, keep_dims: false} -> float32[?2]
         t = Max(s, b) {T: float32, keep_dims: false} -> float32[]",
        // An unknown count.
        "s = Mean(x, b) {T: float32, keep_dims: true} -> float32[1, 5]
         t = Sum(s, a) {T: float32, keep_dims: true} -> float32[1, 1]",
        // The sum of all rows overflows, the means do not.
        "s = Mean(h, b) {T: float16, keep_dims: true} -> float16[1, 5]
         t = Sum(s, a) {T: float16, keep_dims: true} -> float16[1, 1]",
        // Axes that are kept by one and not by the other.
        "s = Sum(x, a) {T: float32, keep_dims: true} -> float32[?2, 1]
         t = Sum(s, b) {T: float32, keep_dims: false} -> float32[1]",
        "s = Sum(x, a) {T: float32, keep_dims: false} -> float32[?2]
         t = Sum(s, b) {T: float32, keep_dims: true} -> float32[1]",
        // Another device.
        "s = Sum(x, a) {T: float32, keep_dims: false} @WGPU:1 -> float32[?2]
         t = Sum(s, b) {T: float32, keep_dims: false} -> float32[]",
    ] {
        refuse("reduce", &around(rest));
    }
}

#[test]
fn the_gradient_of_a_bias_is_a_sum() {
    check(
        "reduce",
        "preserve x, g, db, dw, df
         x = Placeholder -> float32[8, 4, 4, 3]
         g = Placeholder -> float32[8, 4, 4, 3]
         f = Placeholder -> float32[8, 3, 4, 4]
         d = ReluGrad(g, x) {T: float32} -> float32[8, 4, 4, 3]
         b = BiasAddGrad(d) {T: float32, data_format: \"NHWC\"} -> float32[3]
         a = Const {value: tensor int32[3] [0, 1, 2]} -> int32[3]
         p = Mul(d, x) {T: float32} -> float32[8, 4, 4, 3]
         w = Sum(p, a) {T: float32, keep_dims: false} -> float32[3]
         e = Exp(f) {T: float32} -> float32[8, 3, 4, 4]
         c = BiasAddGrad(e) {T: float32, data_format: \"NCHW\"} -> float32[3]
         db = Where(b)
         dw = Where(w)
         df = Where(c)",
        &expect![[r#"
            preserve db, df, dw, g, x
            x = Placeholder -> float32[8, 4, 4, 3]
            g = Placeholder -> float32[8, 4, 4, 3]
            f = Placeholder -> float32[8, 3, 4, 4]
            db = Where(w/reduce)
            dw = Where(w/reduce:1)
            df = Where(c/reduce)
            c/reduce = _WgpuFusedReduce(f) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32],
                axes: [0, 2, 3],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "return s0",
                keep_dims: false,
                reductions: "Sum",
                whole: false,
            } -> float32[3]
            w/reduce = _WgpuFusedReduce(g, x) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32, float32],
                axes: [0, 1, 2],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = ReluGrad<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, x1); "
                    "return s0, s1",
                keep_dims: false,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[3], float32[3]
        "#]],
    );
    for rest in [
        // Alone it stays as it is.
        "b = BiasAddGrad(x) {T: float32, data_format: \"NHWC\"} -> float32[3]",
        // An unknown rank.
        "e = Exp(u) {T: float32} -> float32\nb = BiasAddGrad(e) {T: float32, data_format: \
         \"NHWC\"} -> float32[3]",
    ] {
        refuse(
            "reduce",
            &format!("preserve x, u, b\nx = Placeholder -> float32[8, 3]\nu = Placeholder\n{rest}"),
        );
    }
}

/// A reduction of a reduction in each step of a loop. The new node has constants, which TensorFlow
/// refuses if they come from outside of the loop.
#[test]
fn in_a_loop_the_constants_are_in_the_loop() {
    let text = "preserve y
        x = Placeholder -> float32[4, 8]
        e = Enter(x) {T: float32, frame_name: \"f\"} -> float32[4, 8]
        m = Merge(e, n) {N: 2, T: float32} -> float32[4, 8], int32[]
        go = LoopCond(test) -> bool[]
        test = Custom(m) -> bool[]
        s = Switch(m, go) {T: float32} -> float32[4, 8], float32[4, 8]
        one = Const(^s) {value: tensor int32[1] [1], dtype: int32} -> int32[1]
        zero = Const(^s) {value: tensor int32[1] [0], dtype: int32} -> int32[1]
        a = Mean(s:1, one) {T: float32, Tidx: int32, keep_dims: false} -> float32[4]
        b = Sum(a, zero) {T: float32, Tidx: int32, keep_dims: false} -> float32[]
        c = AddV2(s:1, b) {T: float32} -> float32[4, 8]
        n = NextIteration(c) {T: float32} -> float32[4, 8]
        y = Exit(s) {T: float32} -> float32[4, 8]";
    let after = after("reduce", text);
    for line in ["b/axes = Const(^s)", "b/factor = Const(^b)"] {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
}
