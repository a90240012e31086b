//! Reductions with the nodes in front of them, reductions of the same tensors, mean and variance.

use expect_test::expect;

use super::{check, refuse};

#[test]
fn values_that_only_the_reduction_reads_go_into_it() {
    check(
        "reduce",
        "preserve out
         y = Placeholder -> float32[?2, 3]
         x = Placeholder -> float32[?2, 3]
         d = Sub(y, x) {T: float32} -> float32[?2, 3]
         s = Square(d) {T: float32} -> float32[?2, 3]
         a = Const {value: tensor int32[] [-1]} -> int32[]
         m = Mean(s, a) {T: float32, keep_dims: false} -> float32[?2]
         out = NoOp(^m)",
        &expect![[r#"
            preserve out
            y = Placeholder -> float32[?2, 3]
            x = Placeholder -> float32[?2, 3]
            out = NoOp(^m/reduce)
            m/reduce = _WgpuFusedReduce(y, x) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32],
                axes: [1],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = Sub<float32>(x0, x1); "
                    "s1 = Square<float32>(s0); "
                    "return s1",
                keep_dims: false,
                reductions: "Mean",
                whole: false,
            } -> float32[?2]
        "#]],
    );
}

#[test]
fn mean_and_variance_are_one_pass() {
    check(
        "reduce",
        "preserve out
         x = Placeholder -> float32[?2, 4, 4, 3]
         a = Const {value: tensor int32[3] [0, 1, 2]} -> int32[3]
         mean = Mean(x, a) {T: float32, keep_dims: true} -> float32[1, 1, 1, 3]
         stop = StopGradient(mean) {T: float32} -> float32[1, 1, 1, 3]
         d = SquaredDifference(x, stop) {T: float32} -> float32[?2, 4, 4, 3]
         b = Const {value: tensor int32[3] [0, 1, 2]} -> int32[3]
         variance = Mean(d, b) {T: float32, keep_dims: true} -> float32[1, 1, 1, 3]
         out = AddV2(mean, variance) {T: float32} -> float32[1, 1, 1, 3]",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 4, 4, 3]
            out = AddV2(variance/moments, variance/moments:1) {T: float32} -> float32[1, 1, 1, 3]
            variance/moments = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32, float32],
                axes: [0, 1, 2],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
                keep_dims: true,
                reductions: "Moments",
                whole: false,
            } -> float32[1, 1, 1, 3], float32[1, 1, 1, 3]
        "#]],
    );
}

#[test]
fn a_shape_is_read_further_up() {
    // Gradients read the shape this way if the batch is unknown.
    check(
        "reduce",
        "preserve out
         x = Placeholder -> float32[?2, 3]
         v = Placeholder -> float32[?3, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         d = Mul(v, x) {T: float32} -> float32[?2, 3]
         s = Square(d) {T: float32} -> float32[?2, 3]
         n = Shape(s) {T: float32, out_type: int32} -> int32[2]
         r = Sum(s, a) {T: float32, keep_dims: false} -> float32[3]
         out = NoOp(^n, ^r)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 3]
            v = Placeholder -> float32[?3, 3]
            d = Mul(v, x) {T: float32} -> float32[?2, 3]
            n = Shape(x) {T: float32, out_type: int32} -> int32[2]
            out = NoOp(^n, ^r/reduce)
            r/reduce = _WgpuFusedReduce(d) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32],
                axes: [0],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Square<float32>(x0); "
                    "return s0",
                keep_dims: false,
                reductions: "Sum",
                whole: false,
            } -> float32[3]
        "#]],
    );
}

#[test]
fn a_variance_alone_may_drop_its_axes() {
    check(
        "reduce",
        "preserve out
         h = Placeholder -> float16[5, 3]
         x = Cast(h) {SrcT: float16, DstT: float32} -> float32[5, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         mean = Mean(x, a) {T: float32, keep_dims: true} -> float32[1, 3]
         d = Sub(x, mean) {T: float32} -> float32[5, 3]
         s = Square(d) {T: float32} -> float32[5, 3]
         variance = Mean(s, a) {T: float32, keep_dims: false} -> float32[3]
         out = Exp(variance) {T: float32} -> float32[3]",
        &expect![[r#"
            preserve out
            h = Placeholder -> float16[5, 3]
            out = Exp(variance/moments:1) {T: float32} -> float32[3]
            variance/moments = _WgpuFusedReduce(h) {
                T_extra: [],
                T_in: [float16],
                T_out: [float32, float32],
                axes: [0],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float16; "
                    "c: 0; "
                    "s0 = Cast<float16, float32>(x0); "
                    "return s0",
                keep_dims: false,
                reductions: "Moments",
                whole: false,
            } -> float32[3], float32[3]
        "#]],
    );
}

#[test]
fn sums_of_a_common_tensor_share_a_pass() {
    // The gradient of batch normalization: `dy` is used elsewhere, `x` is read narrow.
    check(
        "reduce",
        "preserve db, dg, dx
         h = Placeholder -> float16[?2, 3]
         g = Placeholder -> float32[?2, 3]
         x = Cast(h) {SrcT: float16, DstT: float32} -> float32[?2, 3]
         dy = Tanh(g) {T: float32} -> float32[?2, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         sb = Sum(dy, a) {T: float32, keep_dims: true} -> float32[1, 3]
         p = Mul(x, dy) {T: float32} -> float32[?2, 3]
         sg = Sum(p, a) {T: float32, keep_dims: true} -> float32[1, 3]
         db = Exp(sb) {T: float32} -> float32[1, 3]
         dg = Exp(sg) {T: float32} -> float32[1, 3]
         dx = AddN(x, dy) {T: float32, N: 2} -> float32[?2, 3]",
        &expect![[r#"
            preserve db, dg, dx
            h = Placeholder -> float16[?2, 3]
            g = Placeholder -> float32[?2, 3]
            x = Cast(h) {DstT: float32, SrcT: float16} -> float32[?2, 3]
            dy = Tanh(g) {T: float32} -> float32[?2, 3]
            db = Exp(sb/reduce:1) {T: float32} -> float32[1, 3]
            dg = Exp(sb/reduce) {T: float32} -> float32[1, 3]
            dx = AddN(x, dy) {N: 2, T: float32} -> float32[?2, 3]
            sb/reduce = _WgpuFusedReduce(h, dy) {
                T_extra: [],
                T_in: [float16, float32],
                T_out: [float32, float32],
                axes: [0],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float16, float32; "
                    "c: 0; "
                    "s0 = Cast<float16, float32>(x0); "
                    "s1 = Mul<float32>(s0, x1); "
                    "return s1, x1",
                keep_dims: true,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[1, 3], float32[1, 3]
        "#]],
    );
}

#[test]
fn repeated_gradients_are_read_where_they_are_small() {
    check(
        "reduce",
        "preserve out
         g = Placeholder -> float32[1, 3]
         x = Placeholder -> float32[8, 3]
         n = Const {value: tensor int32[2] [8, 1]} -> int32[2]
         t = Tile(g, n) {T: float32, Tmultiples: int32} -> float32[8, 3]
         p = Mul(t, x) {T: float32} -> float32[8, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         c = Const {value: tensor float32[] [0.5]} -> float32[]
         q = Mul(p, c) {T: float32} -> float32[8, 3]
         s = Sum(q, a) {T: float32, keep_dims: false} -> float32[]
         out = Exp(s) {T: float32} -> float32[]",
        &expect![[r#"
            preserve out
            g = Placeholder -> float32[1, 3]
            x = Placeholder -> float32[8, 3]
            out = Exp(s/reduce) {T: float32} -> float32[]
            s/reduce = _WgpuFusedReduce(g, x) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32],
                axes: [0, 1],
                constants: [0.5],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, c0); "
                    "return s1",
                keep_dims: false,
                reductions: "Sum",
                whole: false,
            } -> float32[]
        "#]],
    );
}

#[test]
fn all_elements_and_tests() {
    check(
        "reduce",
        "preserve out, all
         x = Placeholder -> float32[8, 3]
         y = Relu(x) {T: float32} -> float32[8, 3]
         l = L2Loss(y) {T: float32} -> float32[]
         f = IsFinite(x) {T: float32} -> bool[8, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         r = All(f, a) {keep_dims: false} -> bool[]
         out = Exp(l) {T: float32} -> float32[]
         all = LogicalNot(r) -> bool[]",
        &expect![[r#"
            preserve all, out
            x = Placeholder -> float32[8, 3]
            out = Exp(l/reduce) {T: float32} -> float32[]
            all = LogicalNot(r/reduce) -> bool[]
            r/reduce = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [bool],
                axes: [0, 1],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = IsFinite<float32>(x0); "
                    "return s0",
                keep_dims: false,
                reductions: "All",
                whole: false,
            } -> bool[]
            l/reduce = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32],
                axes: [],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Relu<float32>(x0); "
                    "return s0",
                keep_dims: false,
                reductions: "L2Loss",
                whole: true,
            } -> float32[]
        "#]],
    );
}

#[test]
fn values_that_are_rounded_are_reduced() {
    // The kernel rounds them, so a test of overflow sees what it would see in memory.
    check(
        "reduce",
        "preserve out
         x = Placeholder -> float32[?2, 3]
         a = Const {value: tensor int32[1] [0]} -> int32[1]
         y = Cast(x) {SrcT: float32, DstT: float16} -> float16[?2, 3]
         s = Square(y) {T: float16} -> float16[?2, 3]
         f = IsFinite(s) {T: float16} -> bool[?2, 3]
         r = All(f, a) {keep_dims: false} -> bool[3]
         out = NoOp(^r)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[?2, 3]
            out = NoOp(^r/reduce)
            r/reduce = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [bool],
                axes: [0],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Cast<float32, float16>(x0); "
                    "s1 = Square<float16>(s0); "
                    "s2 = IsFinite<float16>(s1); "
                    "return s2",
                keep_dims: false,
                reductions: "All",
                whole: false,
            } -> bool[3]
        "#]],
    );
}

#[test]
fn nodes_of_unknown_shapes_stay() {
    let around = |before: &str, reduction: &str| {
        format!(
            "preserve out\nx = Placeholder -> float32[?2, 3]\nz = Placeholder -> float32[?4, \
             3]\nv = Placeholder -> float32[3]
             a = Const {{value: tensor int32[1] [0]}} -> int32[1]\n{before}\nr = {reduction} -> \
             float32[3]
             out = NoOp(^r)"
        )
    };
    let sum = "Sum(y, a) {T: float32, keep_dims: false}";
    for text in [
        // A reduction alone.
        around("", "Sum(x, a) {T: float32, keep_dims: false}"),
        // Another reader needs the value.
        around("y = Exp(x) {T: float32} -> float32[?2, 3]\nu = NoOp2(y)", sum),
        // It is fetched.
        around("preserve y\ny = Exp(x) {T: float32} -> float32[?2, 3]", sum),
        // Another device has it.
        around("y = Exp(x) {T: float32} @CPU:0 -> float32[?2, 3]", sum),
        // Computed once on few elements, not on many.
        around(
            "y = Exp(v) {T: float32} -> float32[3]\nb = BroadcastTo(y, a) {T: float32} -> ?",
            "Sum(b, a) {T: float32, keep_dims: false}",
        ),
        // Unknown shapes.
        around("y = Exp(x) {T: float32} -> float32", sum),
        // Axes that are computed.
        around(
            "y = Exp(x) {T: float32} -> float32[?2, 3]\nb = Neg(a) {T: int32} -> int32[1]",
            "Sum(y, b) {T: float32, keep_dims: false}",
        ),
        // A function of long loops.
        around("y = Betainc(x, x, x) {T: float32} -> float32[?2, 3]", sum),
        // A repeated tensor would be summed only once.
        around("y = Tile(v, x) {T: float32} -> float32[?2, 3]", sum),
    ] {
        refuse("reduce", &text);
    }
}

#[test]
fn reductions_that_need_each_other_or_differ_stay_apart() {
    let x = "preserve out, more\nx = Placeholder -> float32[8, 3]\na = Const {value: tensor \
             int32[1] [0]} -> int32[1]
             b = Const {value: tensor int32[1] [1]} -> int32[1]";
    for text in [
        "s = Sum(x, a) {T: float32, keep_dims: true} -> float32[1, 3]
         w = Where(s) -> float32[8, 3]
         t = Sum(x, a, ^w) {T: float32, keep_dims: true} -> float32[1, 3]
         out = NoOp(^s)\nmore = NoOp(^t)",
        "s = Sum(x, a) {T: float32, keep_dims: true} -> float32[1, 3]
         t = Sum(x, b) {T: float32, keep_dims: true} -> float32[8, 1]
         out = NoOp(^s)\nmore = NoOp(^t)",
        "s = Sum(x, a) {T: float32, keep_dims: true} -> float32[1, 3]
         t = Sum(x, a) {T: float32, keep_dims: true} @WGPU:1 -> float32[1, 3]
         out = NoOp(^s)\nmore = NoOp(^t)",
    ] {
        refuse("reduce", &format!("{x}\n{text}"));
    }
}

#[test]
fn reductions_share_a_pass_though_only_some_keep_their_axes() {
    check(
        "reduce",
        "preserve out, more
         x = Placeholder -> float32[?2, 8, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         s = Sum(x, a) {T: float32, keep_dims: true} -> float32[1, 1, 3]
         t = BiasAddGrad(x) {T: float32, data_format: \"NHWC\"} -> float32[3]
         out = Identity(s) {T: float32}
         more = Identity(t) {T: float32}",
        &expect![[r#"
            preserve more, out
            x = Placeholder -> float32[?2, 8, 3]
            out = Identity(s/reduce:1) {T: float32}
            more = Identity(s/reduce/squeezed) {T: float32}
            s/reduce = _WgpuFusedReduce(x) {
                T_extra: [],
                T_in: [float32],
                T_out: [float32, float32],
                axes: [0, 1],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0, x0",
                keep_dims: true,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[1, 1, 3], float32[1, 1, 3]
            s/reduce/squeezed = Squeeze(s/reduce) {T: float32, squeeze_dims: [0, 1]} -> float32[3]
        "#]],
    );
}

/// As in the gradients of repeated heads of key and value: each is summed behind a change of shape.
#[test]
fn reductions_of_what_one_node_makes_share_a_pass_behind_changes_of_shape() {
    check(
        "reduce",
        "preserve out
         x = Placeholder -> float32[2, 6, 6, 10]
         axis = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
         n = Const {dtype: int32, value: tensor int32[2] [5, 5]} -> int32[2]
         m = SplitV(x, n, axis) {T: float32, Tlen: int32, num_split: 2} -> \
                    float32[2, 6, 6, 5], float32[2, 6, 6, 5]
         s = Const {dtype: int32, value: tensor int32[5] [2, 6, 2, 3, 5]} -> int32[5]
         k = Reshape(m, s) {T: float32, Tshape: int32} -> float32[2, 6, 2, 3, 5]
         v = Reshape(m:1, s) {T: float32, Tshape: int32} -> float32[2, 6, 2, 3, 5]
         a = Const {dtype: int32, value: tensor int32[1] [3]} -> int32[1]
         dk = Sum(k, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[2, 6, 2, 5]
         dv = Sum(v, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[2, 6, 2, 5]
         out = NoOp(^dk, ^dv)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[2, 6, 6, 10]
            axis = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
            n = Const {dtype: int32, value: tensor int32[2] [5]} -> int32[2]
            m = SplitV(x, n, axis) {
                T: float32,
                Tlen: int32,
                num_split: 2,
            } -> float32[2, 6, 6, 5], float32[2, 6, 6, 5]
            s = Const {dtype: int32, value: tensor int32[5] [2, 6, 2, 3, 5]} -> int32[5]
            k = Reshape(m, s) {T: float32, Tshape: int32} -> float32[2, 6, 2, 3, 5]
            v = Reshape(m:1, s) {T: float32, Tshape: int32} -> float32[2, 6, 2, 3, 5]
            out = NoOp(^dk/reduce)
            dk/reduce = _WgpuFusedReduce(v, k) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32, float32],
                axes: [3],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "return x0, x1",
                keep_dims: false,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[2, 6, 2, 5], float32[2, 6, 2, 5]
        "#]],
    );
}

#[test]
fn reductions_of_the_outputs_of_one_node_share_a_pass() {
    check(
        "reduce",
        "preserve out, more
         x = Placeholder -> float32[?2, 8, 3]
         a = Const {value: tensor int32[2] [0, 1]} -> int32[2]
         both = Both(x) -> float32[?2, 8, 3], float32[?2, 8, 3]
         s = Sum(both, a) {T: float32, keep_dims: false} -> float32[3]
         t = Sum(both:1, a) {T: float32, keep_dims: false} -> float32[3]
         out = Identity(s) {T: float32}
         more = Identity(t) {T: float32}",
        &expect![[r#"
            preserve more, out
            x = Placeholder -> float32[?2, 8, 3]
            both = Both(x) -> float32[?2, 8, 3], float32[?2, 8, 3]
            out = Identity(s/reduce:1) {T: float32}
            more = Identity(s/reduce) {T: float32}
            s/reduce = _WgpuFusedReduce(both:1, both) {
                T_extra: [],
                T_in: [float32, float32],
                T_out: [float32, float32],
                axes: [0, 1],
                constants: [],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "return x0, x1",
                keep_dims: false,
                reductions: "Sum,Sum",
                whole: false,
            } -> float32[3], float32[3]
        "#]],
    );
}

/// The sums for two normalizations' weights, with the nodes `uses` that read them.
fn two_ends(second: &str, uses: &str) -> String {
    let sums = |name: &str, x: &str, y: &str| {
        format!(
            "{name} = _WgpuFusedReduce({x}, {y}) {{T_extra: [], T_in: [float32, float32], T_out: \
             [float32, float32], axes: [0], constants: [2.0], epilogue: \"\", \
             epilogue_constants: [], expression: \"x: float32, float32; c: 1; s0 = \
             Mul<float32>(x0, x1); s1 = Mul<float32>(s0, c0); return s1, x0\", keep_dims: false, \
             reductions: \"Sum,Sum\", whole: false}} -> float32[3], float32[3]"
        )
    };
    format!(
        "preserve out
         x = Placeholder -> float32[8, 3]
         y = Placeholder -> float32[8, 3]
         z = Placeholder -> float32[8, 1]
         {}
         {second}
         out = NoOp(^p, ^q)
         {uses}",
        sums("p", "x", "z")
    )
    .replace("SUMS", &sums("q", "y", "z"))
}

#[test]
fn reductions_with_whose_results_nothing_goes_on_are_one() {
    check(
        "ends",
        &two_ends("SUMS", ""),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[8, 3]
            y = Placeholder -> float32[8, 3]
            z = Placeholder -> float32[8, 1]
            out = NoOp(^q/with_others)
            q/with_others = _WgpuFusedReduce(y, z, x) {
                T_extra: [],
                T_in: [float32, float32, float32],
                T_out: [float32, float32, float32, float32],
                axes: [0],
                constants: [2.0, 2.0],
                epilogue: "",
                epilogue_constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 2; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Mul<float32>(s0, c0); "
                    "s2 = Mul<float32>(x2, x1); "
                    "s3 = Mul<float32>(s2, c1); "
                    "return s1, x0, s3, x2",
                keep_dims: false,
                reductions: "Sum,Sum,Sum,Sum",
                whole: false,
            } -> float32[3], float32[3], float32[3], float32[3]
        "#]],
    );
}

#[test]
fn reductions_with_whose_results_something_goes_on_stay() {
    for (from, to) in [
        // One reads the other, or waits for it.
        ("_WgpuFusedReduce(y, z)", "_WgpuFusedReduce(y, p)"),
        ("_WgpuFusedReduce(y, z)", "_WgpuFusedReduce(y, z, ^p)"),
    ] {
        refuse("ends", &two_ends("SUMS", "").replace(from, to));
    }
    // Other axes, other shapes, other reductions, an epilogue, another device.
    let text = two_ends("SUMS", "");
    let second = text.lines().nth(5).expect("the second reduction").trim();
    let other = |from: &str, to: &str| two_ends(&second.replace(from, to), "");
    for (from, to) in [
        ("axes: [0]", "axes: [-2]"),
        ("keep_dims: false", "keep_dims: true"),
        ("(y, z)", "(z, z)"),
        ("s0 = Mul<float32>(x0, x1); s1 = Mul<float32>(s0, c0); return s1, x0", "return x1, x0"),
        ("Sum,Sum", "Sum,Moments"),
        ("epilogue: \"\"", "epilogue: \"x: float32, float32; c: 0; return x1, x0\""),
        ("whole: false}", "whole: false} @CPU:0"),
    ] {
        let text = other(from, to);
        assert_ne!(text, two_ends("SUMS", ""), "{from}");
        refuse("ends", &text);
    }
    // One of them has many nodes behind it.
    let chain: String = (0..40)
        .map(|i| {
            let before = if i == 0 { "p".to_owned() } else { format!("n{}", i - 1) };
            format!("n{i} = Neg({before}) {{T: float32}} -> float32[3]\n")
        })
        .collect();
    refuse("ends", &two_ends("SUMS", &chain));
}
