//! Products that are written as several nodes.

use expect_test::expect;

use super::{check, refuse};

#[test]
fn products_that_are_summed_over_their_batch_are_one() {
    check(
        "sums",
        "preserve dw, dv
         x = Placeholder -> float32[?2, 8, 3]
         y = Placeholder -> float32[?2, 8, 5]
         z = Placeholder -> float32[?2, 8, 4]
         a = Const {dtype: int32, value: tensor int32[1] [0]} -> int32[1]
         p = BatchMatMulV2(x, y) {T: float32, adj_x: true, adj_y: false} -> float32[?2, 3, 5]
         q = BatchMatMulV2(x, z) {T: float32, adj_x: true, adj_y: false} -> float32[?2, 3, 4]
         s = Sum(p, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[3, 5]
         t = Sum(q, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[3, 4]
         dw = Identity(s) {T: float32}
         dv = Identity(t) {T: float32}",
        &expect![[r#"
            preserve dv, dw
            x = Placeholder -> float32[?2, 8, 3]
            y = Placeholder -> float32[?2, 8, 5]
            z = Placeholder -> float32[?2, 8, 4]
            a = Const {dtype: int32, value: tensor int32[1] [0]} -> int32[1]
            p = BatchMatMulV2(x/rows, y/rows) {
                T: float32,
                adj_x: true,
                adj_y: false,
            } -> float32[3, 5]
            q = BatchMatMulV2(x/rows, z/rows) {
                T: float32,
                adj_x: true,
                adj_y: false,
            } -> float32[3, 4]
            dw = Identity(p) {T: float32}
            dv = Identity(q) {T: float32}
            x/rows/shape = Const {dtype: int32, value: tensor int32[2] [-1, 3]} -> int32[2]
            x/rows = Reshape(x, x/rows/shape) {T: float32, Tshape: int32} -> float32[?, 3]
            y/rows/shape = Const {dtype: int32, value: tensor int32[2] [-1, 5]} -> int32[2]
            y/rows = Reshape(y, y/rows/shape) {T: float32, Tshape: int32} -> float32[?, 5]
            z/rows/shape = Const {dtype: int32, value: tensor int32[2] [-1, 4]} -> int32[2]
            z/rows = Reshape(z, z/rows/shape) {T: float32, Tshape: int32} -> float32[?, 4]
        "#]],
    );
}

#[test]
fn other_sums_of_products_stay() {
    let product = |x: &str, y: &str, flags: &str, axes: &str, more: &str| {
        format!(
            "preserve dw
             x = Placeholder -> float32[{x}]
             y = Placeholder -> float32[{y}]
             a = Const {{dtype: int32, value: tensor int32[1] [{axes}]}} -> int32[1]
             p = BatchMatMulV2(x, y) {{T: float32, {flags}}} -> float32[?2, 3, 5]
             s = Sum(p, a) {{T: float32, Tidx: int32, keep_dims: false}}
             dw = Identity(s) {{T: float32}}\n{more}"
        )
    };
    let flags = "adj_x: true, adj_y: false";
    for text in [
        // The rows of x are not next to each other.
        product("?2, 3, 8", "?2, 8, 5", "adj_x: false, adj_y: false", "0", ""),
        // The batch is broadcast, or may be.
        product("?2, 8, 3", "1, 8, 5", flags, "0", ""),
        product("?2, 8, 3", "?3, 8, 5", flags, "0", ""),
        // Another axis is summed.
        product("?2, 8, 3", "?2, 8, 5", flags, "1", ""),
        // The products are used.
        product("?2, 8, 3", "?2, 8, 5", flags, "0", "n = Neg(p) {T: float32}"),
        // Rows of unknown length, and of none.
        product("?2, 8, ?4", "?2, 8, 5", flags, "0", ""),
        product("?2, 8, 0", "?2, 8, 5", flags, "0", ""),
    ] {
        refuse("sums", &text);
    }
}

/// Two products of `x` and a third node.
fn two(second: &str) -> String {
    format!(
        "preserve q, k, v
         x = Placeholder -> float32[?2, 8, 4]
         wq = ReadVariableOp(rq) {{dtype: float32}} -> float32[4, 6]
         wk = ReadVariableOp(rk) {{dtype: float32}} -> float32[4, 6]
         bq = ReadVariableOp(sq) {{dtype: float32}} -> float32[6]
         bk = ReadVariableOp(sk) {{dtype: float32}} -> float32[6]
         rq = Placeholder\nrk = Placeholder\nsq = Placeholder\nsk = Placeholder
         p = _WgpuFusedBatchMatMulV2(x, wq, bq) {{T: float32, T_extra: [float32], T_out: float32, \
         adj_x: false, adj_y: false, constants: [], expression: \"x: float32, float32; c: 0; s0 = \
         AddV2<float32>(x0, x1); return s0\"}} -> float32[?2, 8, 6]
         {second}
         q = Identity(p) {{T: float32}}
         k = Identity(o) {{T: float32}}"
    )
}

const SECOND: &str = "o = _WgpuFusedBatchMatMulV2(x, wk, bk) {T: float32, T_extra: [float32], \
                      T_out: float32, adj_x: false, adj_y: false, constants: [], expression: \
                      \"x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0\"} -> \
                      float32[?2, 8, 6]";

#[test]
fn products_of_one_operand_with_weights_are_joined() {
    check(
        "joined",
        &two(SECOND),
        &expect![[r#"
            preserve k, q, v
            x = Placeholder -> float32[?2, 8, 4]
            wq = ReadVariableOp(rq) {dtype: float32} -> float32[4, 6]
            wk = ReadVariableOp(rk) {dtype: float32} -> float32[4, 6]
            bq = ReadVariableOp(sq) {dtype: float32} -> float32[6]
            bk = ReadVariableOp(sk) {dtype: float32} -> float32[6]
            rq = Placeholder
            rk = Placeholder
            sq = Placeholder
            sk = Placeholder
            q = Identity(p/joined) {T: float32}
            k = Identity(p/joined:1) {T: float32}
            p/joined = _WgpuFusedJoinedMatMul(x, wq, wk, bq, bk) {
                N: 2,
                T: float32,
                T_extra: [float32],
                T_extras: [float32, float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "return s0",
            } -> float32[?2, 8, 6], float32[?2, 8, 6]
        "#]],
    );
}

#[test]
fn products_with_the_outputs_of_one_node_are_joined() {
    check(
        "joined",
        "preserve q, k
         x = Placeholder -> float32[16, 4]
         g = Placeholder -> float32[2, 8, 6]
         shape = Const {dtype: int32, value: tensor int32[2] [16, 6]} -> int32[2]
         both = Both(g) -> float32[2, 8, 6], float32[2, 8, 6]
         a = Reshape(both, shape) {T: float32, Tshape: int32} -> float32[16, 6]
         b = Reshape(both:1, shape) {T: float32, Tshape: int32} -> float32[16, 6]
         p = MatMul(x, a) {T: float32, transpose_a: true, transpose_b: false} -> float32[4, 6]
         o = MatMul(x, b) {T: float32, transpose_a: true, transpose_b: false} -> float32[4, 6]
         q = Identity(p) {T: float32}
         k = Identity(o) {T: float32}",
        &expect![[r#"
            preserve k, q
            x = Placeholder -> float32[16, 4]
            g = Placeholder -> float32[2, 8, 6]
            shape = Const {dtype: int32, value: tensor int32[2] [16, 6]} -> int32[2]
            both = Both(g) -> float32[2, 8, 6], float32[2, 8, 6]
            a = Reshape(both, shape) {T: float32, Tshape: int32} -> float32[16, 6]
            b = Reshape(both:1, shape) {T: float32, Tshape: int32} -> float32[16, 6]
            q = Identity(o/joined:1) {T: float32}
            k = Identity(o/joined) {T: float32}
            o/joined = _WgpuFusedJoinedMatMul(x, b, a) {
                N: 2,
                T: float32,
                T_extra: [],
                T_extras: [],
                T_out: float32,
                adj_x: true,
                adj_y: false,
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
            } -> float32[4, 6], float32[4, 6]
        "#]],
    );
}

#[test]
fn products_that_differ_or_need_each_other_stay_apart() {
    for (from, to) in [
        // Another left operand, another flag, another epilogue, another device.
        ("(x, wk", "(y, wk"),
        ("adj_y: false", "adj_y: true"),
        ("AddV2<float32>(x0, x1)", "Sub<float32>(x0, x1)"),
        ("} -> ", "} @WGPU:1 -> "),
        // Operands that come later: of the epilogue, and the right one.
        ("wk, bk", "wk, later"),
        ("wk, bk", "made, bk"),
        // The second product reads the first one, and waits for it.
        ("wk, bk", "wk, p"),
        ("bk)", "bk, ^p)"),
        // It is fetched.
        ("o = ", "v = Neg(o) {T: float32}\no = "),
    ] {
        let more = "y = Placeholder -> float32[?2, 8, 4]\nlater = Neg(bk) {T: float32} -> \
                    float32[6]\nmade = Neg(wk) {T: float32} -> float32[4, 6]";
        let second = SECOND.replace(from, to);
        let text = two(&format!("{second}\n{more}"));
        let text = if from == "o = " { text.replace("preserve q", "preserve o, q") } else { text };
        refuse("joined", &text);
    }
}

#[test]
fn gradients_ask_for_the_batch_while_they_run() {
    let text = |own: &str, other: &str| {
        format!(
            "preserve dw
             x = Placeholder -> float32[?2, 8, 3]
             y = Placeholder -> float32[?2, 8, 5]
             batch = Placeholder -> int32[{other}]
             none = Placeholder -> int32[{own}]
             a = BroadcastGradientArgs(batch, none) {{T: int32}} -> int32[?7], int32[?8]
             p = BatchMatMulV2(x, y) {{T: float32, adj_x: true, adj_y: false}} -> float32[?2, 3, 5]
             s = Sum(p, a:1) {{T: float32, Tidx: int32, keep_dims: false}}
             dw = Identity(s) {{T: float32}}"
        )
    };
    let after = super::after("sums", &text("0", "1"));
    assert!(after.contains("p = BatchMatMulV2(x/rows, y/rows)"), "{after}");
    // The weight has a batch too; the axes are those of other tensors.
    refuse("sums", &text("1", "1"));
    refuse("sums", &text("0", "2"));
}

/// A layer's gradients: of the weights, and of the bias from the same rows.
fn layer(product: &str, bias: &str, more: &str) -> String {
    format!(
        "preserve dw, db
         x = Placeholder -> float32[?1, 4]
         g = Placeholder -> float32[?2, 8, 6]
         shape = Const {{dtype: int32, value: tensor int32[2] [-1, 6]}} -> int32[2]
         rows = Reshape(g, shape) {{T: float32, Tshape: int32}} -> float32[?1, 6]
         {product}
         {bias}
         dw = Identity(p) {{T: float32}}
         db = Identity(s) {{T: float32}}\n{more}"
    )
}

const WEIGHTS: &str = "p = MatMul(x, rows) {T: float32, transpose_a: true, transpose_b: false} -> \
                       float32[4, 6]";
const SUM: &str = "s = BiasAddGrad(g) {T: float32, data_format: \"NHWC\"} -> float32[6]";

#[test]
fn the_gradient_of_a_bias_goes_into_that_of_the_weights() {
    check(
        "biases",
        &layer(WEIGHTS, SUM, ""),
        &expect![[r#"
            preserve db, dw
            x = Placeholder -> float32[?1, 4]
            g = Placeholder -> float32[?2, 8, 6]
            shape = Const {dtype: int32, value: tensor int32[2] [-1, 6]} -> int32[2]
            rows = Reshape(g, shape) {T: float32, Tshape: int32} -> float32[?1, 6]
            dw = Identity(p/with_sums) {T: float32}
            db = Identity(p/with_sums:1) {T: float32}
            p/with_sums = _WgpuFusedMatMulWithSums(x, rows) {
                T: float32,
                T_extra: [],
                T_out: float32,
                adj_x: true,
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
            } -> float32[4, 6], float32[6]
        "#]],
    );
    let scaled = "p = _WgpuFusedBatchMatMulV2(x, rows, c) {T: float32, T_extra: [float32], T_out: \
                  float32, adj_x: true, adj_y: false, constants: [], expression: \"x: float32, \
                  float32; c: 0; s0 = Mul<float32>(x0, x1); return s0\"} -> float32[4, 6]\nc = \
                  Placeholder -> float32[]";
    let after = super::after("biases", &layer(scaled, SUM, ""));
    assert!(after.contains("_WgpuFusedMatMulWithSums(x, rows, c)"), "{after}");
}

/// The gradient of a bias with an element for each unit of each head.
#[test]
fn the_gradient_of_a_bias_of_heads_goes_into_that_of_the_weights() {
    let heads = |axes: &str| {
        layer(
            WEIGHTS,
            &format!(
                "axes = Const {{dtype: int32, value: tensor int32[2] {axes}}} -> int32[2]
                 split = Const {{dtype: int32, value: tensor int32[4] [-1, 8, 2, 3]}} -> int32[4]
                 h = Reshape(g, split) {{T: float32, Tshape: int32}} -> float32[?2, 8, 2, 3]
                 s = Sum(h, axes) {{T: float32, Tidx: int32, keep_dims: true}} -> \
                 float32[1, 1, 2, 3]"
            ),
            "",
        )
    };
    check(
        "biases",
        &heads("[0, 1]"),
        &expect![[r#"
            preserve db, dw
            x = Placeholder -> float32[?1, 4]
            g = Placeholder -> float32[?2, 8, 6]
            shape = Const {dtype: int32, value: tensor int32[2] [-1, 6]} -> int32[2]
            rows = Reshape(g, shape) {T: float32, Tshape: int32} -> float32[?1, 6]
            axes = Const {dtype: int32, value: tensor int32[2] [0, 1]} -> int32[2]
            split = Const {dtype: int32, value: tensor int32[4] [-1, 8, 2, 3]} -> int32[4]
            h = Reshape(g, split) {T: float32, Tshape: int32} -> float32[?2, 8, 2, 3]
            dw = Identity(p/with_sums) {T: float32}
            db = Identity(p/with_sums/sums) {T: float32}
            p/with_sums = _WgpuFusedMatMulWithSums(x, rows) {
                T: float32,
                T_extra: [],
                T_out: float32,
                adj_x: true,
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
            } -> float32[4, 6], float32[6]
            p/with_sums/sums/shape = Const {
                dtype: int32,
                value: tensor int32[4] [1, 1, 2, 3],
            } -> int32[4]
            p/with_sums/sums = Reshape(p/with_sums:1, p/with_sums/sums/shape) {
                T: float32,
                Tshape: int32,
            } -> float32[1, 1, 2, 3]
        "#]],
    );
    // Over heads, which are columns.
    refuse("biases", &heads("[0, 2]").replace("float32[1, 1, 2, 3]", "float32[1, 8, 1, 3]"));
}

#[test]
fn other_sums_beside_products_stay() {
    for (from, to) in [
        // Of columns that are the second dimension.
        ("NHWC", "NCHW"),
        // Of other rows, and of rows of another length.
        ("BiasAddGrad(g)", "BiasAddGrad(h)"),
        ("BiasAddGrad(g)", "BiasAddGrad(pairs)"),
        // The right operand is turned, or a batch.
        ("transpose_b: false", "transpose_b: true"),
        ("MatMul(x, rows)", "MatMul(x, batch)"),
        // One of both waits for the other.
        ("BiasAddGrad(g)", "BiasAddGrad(g, ^p)"),
        // The product reads the sum.
        (
            "MatMul(x, rows) {T: float32, ",
            "_WgpuFusedMatMul(x, rows, s) {T: float32, T_extra: [float32], T_out: float32, \
             constants: [], expression: \"x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); \
             return s0\", ",
        ),
        // Somewhere else.
        ("\"NHWC\"} -> ", "\"NHWC\"} @CPU:0 -> "),
    ] {
        let more = "h = Placeholder -> float32[?2, 8, 6]
                    two = Const {dtype: int32, value: tensor int32[2] [-1, 2]} -> int32[2]
                    pairs = Reshape(g, two) {T: float32, Tshape: int32} -> float32[?3, 2]
                    three = Const {dtype: int32, value: tensor int32[3] [-1, 1, 6]} -> int32[3]
                    batch = Reshape(g, three) {T: float32, Tshape: int32} -> float32[?1, 1, 6]";
        let text = layer(WEIGHTS, SUM, more).replace(from, to);
        refuse("biases", &text);
    }
}

/// Three products with the tensor that they are added to, and the nodes that add them.
fn three(k: &str, sum: &str, more: &str) -> String {
    format!(
        "preserve dx
         q = Placeholder -> float32[?1, 4, 6]
         k = Placeholder -> float32[?1, 4, 6]
         v = Placeholder -> float32[?1, 4, 6]
         wq = Placeholder -> float32[3, 6]
         wk = Placeholder -> float32[3, 6]
         wv = Placeholder -> float32[3, 6]
         r = Placeholder -> float32[?1, 4, 3]
         pq = BatchMatMulV2(q, wq) {{T: float32, adj_x: false, adj_y: true}} -> float32[?1, 4, 3]
         {k}
         s = _WgpuFusedBatchMatMulV2(v, wv, r, pk, pq) {{T: float32, T_extra: [float32, float32, \
         float32], T_out: float32, adj_x: false, adj_y: true, constants: [], expression: \"x: \
         float32, float32, float32, float32; c: 0; {sum}\"}} -> float32[?1, 4, 3]
         dx = Identity(s) {{T: float32}}\n{more}"
    )
}

const KEY: &str = "pk = BatchMatMulV2(k, wk) {T: float32, adj_x: false, adj_y: true} -> \
                   float32[?1, 4, 3]";
const ADDITIONS: &str = "s0 = AddV2<float32>(x1, x0); s1 = AddV2<float32>(x2, x3); s2 = \
                         AddV2<float32>(s0, s1); return s2";

#[test]
fn products_that_are_added_are_one() {
    check(
        "added",
        &three(KEY, ADDITIONS, ""),
        &expect![[r#"
            preserve dx
            q = Placeholder -> float32[?1, 4, 6]
            k = Placeholder -> float32[?1, 4, 6]
            v = Placeholder -> float32[?1, 4, 6]
            wq = Placeholder -> float32[3, 6]
            wk = Placeholder -> float32[3, 6]
            wv = Placeholder -> float32[3, 6]
            r = Placeholder -> float32[?1, 4, 3]
            dx = Identity(s/added) {T: float32}
            s/added = _WgpuFusedAddedMatMul(v, k, q, wv, wk, wq, r) {
                N: 3,
                T: float32,
                T_extra: [float32],
                T_out: float32,
                adj_x: false,
                adj_y: true,
                constants: [],
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x1, x0); "
                    "return s0",
            } -> float32[?1, 4, 3]
        "#]],
    );
}

#[test]
fn products_that_others_need_are_added_as_they_are() {
    let one = |text: &str| {
        let after = super::after("added", text);
        assert!(after.contains("_WgpuFusedAddedMatMul(v, q, wv, wq, r, pk)"), "{after}");
    };
    one(&three(KEY, ADDITIONS, "n = Neg(pk) {T: float32}"));
    one(&three(&KEY.replace("adj_y: true", "adj_y: false"), ADDITIONS, ""));
    one(&three(&KEY.replace("(k, wk)", "(k, wk, ^q)"), ADDITIONS, ""));
    one(&three(
        &KEY.replace("(k, wk)", "(q4, wk)"),
        ADDITIONS,
        "q4 = Placeholder -> float32[?1, 4, ?6]",
    ));
    one(&three(
        KEY,
        "s0 = AddV2<float32>(x0, x3); s1 = Mul<float32>(x1, s0); s2 = \
                     AddV2<float32>(s1, x2); return s2",
        "",
    ));
    let neither = "s0 = Mul<float32>(x0, x1); s1 = AddV2<float32>(x2, x3); s2 = \
                   AddV2<float32>(s0, s1); return s2";
    refuse("added", &three(KEY, neither, ""));
}

/// Weights' gradients that one node makes, and the sums of their right operands.
fn three_layers(product: &str, sums: &str) -> String {
    format!(
        "preserve dq, dk, bq, bk
         x = Placeholder -> float32[16, 4]
         g = Placeholder -> float32[2, 8, 2, 3]
         shape = Const {{dtype: int32, value: tensor int32[2] [16, 6]}} -> int32[2]
         both = Both(g) -> float32[2, 8, 2, 3], float32[2, 8, 2, 3]
         a = Reshape(both, shape) {{T: float32, Tshape: int32}} -> float32[16, 6]
         b = Reshape(both:1, shape) {{T: float32, Tshape: int32}} -> float32[16, 6]
         {product}
         {sums}
         dq = Identity(p) {{T: float32}}
         dk = Identity(p:1) {{T: float32}}
         bq = Identity(s:1) {{T: float32}}
         bk = Identity(s) {{T: float32}}"
    )
}

const JOINED: &str = "p = _WgpuFusedJoinedMatMul(x, a, b) {N: 2, T: float32, T_extra: [], \
                      T_extras: [], T_out: float32, adj_x: true, adj_y: false, constants: [], \
                      expression: \"x: float32; c: 0; return x0\"} -> float32[4, 6], float32[4, 6]";
const SUMS: &str = "s = _WgpuFusedReduce(both:1, both) {T_extra: [], T_in: [float32, float32], \
                    T_out: [float32, float32], axes: [0, 1], constants: [], epilogue: \"\", \
                    epilogue_constants: [], expression: \"x: float32, float32; c: 0; return x0, \
                    x1\", keep_dims: true, reductions: \"Sum,Sum\", whole: false} -> float32[1, \
                    1, 2, 3], float32[1, 1, 2, 3]";

#[test]
fn the_gradients_of_several_biases_go_into_those_of_joined_weights() {
    check(
        "biases",
        &three_layers(JOINED, SUMS),
        &expect![[r#"
            preserve bk, bq, dk, dq
            x = Placeholder -> float32[16, 4]
            g = Placeholder -> float32[2, 8, 2, 3]
            shape = Const {dtype: int32, value: tensor int32[2] [16, 6]} -> int32[2]
            both = Both(g) -> float32[2, 8, 2, 3], float32[2, 8, 2, 3]
            a = Reshape(both, shape) {T: float32, Tshape: int32} -> float32[16, 6]
            b = Reshape(both:1, shape) {T: float32, Tshape: int32} -> float32[16, 6]
            dq = Identity(p/with_sums) {T: float32}
            dk = Identity(p/with_sums:1) {T: float32}
            bq = Identity(p/with_sums/sums_1) {T: float32}
            bk = Identity(p/with_sums/sums) {T: float32}
            p/with_sums = _WgpuFusedJoinedMatMulWithSums(x, a, b) {
                N: 2,
                T: float32,
                T_out: float32,
                adj_x: true,
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
            } -> float32[4, 6], float32[4, 6], float32[6], float32[6]
            p/with_sums/sums/shape = Const {
                dtype: int32,
                value: tensor int32[4] [1, 1, 2, 3],
            } -> int32[4]
            p/with_sums/sums = Reshape(p/with_sums:3, p/with_sums/sums/shape) {
                T: float32,
                Tshape: int32,
            } -> float32[1, 1, 2, 3]
            p/with_sums/sums/shape_1 = Const {
                dtype: int32,
                value: tensor int32[4] [1, 1, 2, 3],
            } -> int32[4]
            p/with_sums/sums_1 = Reshape(p/with_sums:2, p/with_sums/sums/shape_1) {
                T: float32,
                Tshape: int32,
            } -> float32[1, 1, 2, 3]
        "#]],
    );
    // Vectors stay as they are.
    let vectors =
        SUMS.replace("keep_dims: true", "keep_dims: false").replace("[1, 1, 2, 3]", "[6]");
    let after = super::after("biases", &three_layers(JOINED, &vectors));
    assert!(!after.contains("/sums"), "{after}");
}

#[test]
fn other_sums_beside_joined_products_stay() {
    for (from, to) in [
        // Of other rows, of some of them, of rows of other lengths.
        ("Reduce(both:1, both)", "Reduce(both:1, other)"),
        ("return x0, x1", "return x0, x0"),
        ("axes: [0, 1]", "axes: [0]"),
        ("axes: [0, 1]", "axes: [1, 2]"),
        // More than sums.
        ("Sum,Sum", "Sum,Max"),
        ("return x0, x1", "s0 = Square<float32>(x1); return x0, s0"),
        // The right operands are turned, or their sums are of unknown shape.
        ("adj_y: false", "adj_y: true"),
        ("-> float32[1, 1, 2, 3], float32[1, 1, 2, 3]", "-> float32[1, 1, ?, 3], float32[?]"),
        // One of both waits for the other.
        ("Reduce(both:1, both)", "Reduce(both:1, both, ^p)"),
    ] {
        let text = three_layers(JOINED, SUMS).replace(from, to);
        let text = format!("{text}\nother = Placeholder -> float32[2, 8, 2, 3]");
        refuse("biases", &text);
    }
}

/// A layer, its activation behind a change of shape, and another reader of the activation's
/// argument.
fn activated(replaced: &[(&str, &str)]) -> String {
    let text = "preserve y, z
        x = Placeholder -> float32[?1, 4]
        w = Placeholder -> float32[4, 8]
        b = Placeholder -> float32[8]
        shape = Const {dtype: int32, value: tensor int32[3] [-1, 2, 8]} -> int32[3]
        p = _WgpuFusedMatMul(x, w, b) {T: float32, T_extra: [float32], T_out: float32, \
        constants: [], expression: \"x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); \
        return s0\", transpose_a: false, transpose_b: false} -> float32[?1, 8]
        h = Reshape(p, shape) {T: float32, Tshape: int32} -> float32[?2, 2, 8]
        a = _WgpuFusedElementwise(h) {T_in: [float32], T_out: [float32], constants: [0.5], \
        expression: \"x: float32; c: 1; s0 = Erfc<float32>(x0); s1 = Mul<float32>(s0, c0); \
        return s1\"} -> float32[?2, 2, 8]
        y = Identity(a) {T: float32}
        z = Cumsum(h) -> float32[?2, 2, 8]"
        .to_owned();
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn a_product_stores_an_activation_and_its_argument() {
    check(
        "arguments",
        &activated(&[]),
        &expect![[r#"
            preserve y, z
            x = Placeholder -> float32[?1, 4]
            w = Placeholder -> float32[4, 8]
            b = Placeholder -> float32[8]
            shape = Const {dtype: int32, value: tensor int32[3] [-1, 2, 8]} -> int32[3]
            h = Reshape(a/with_argument:1, shape) {T: float32, Tshape: int32} -> float32[?2, 2, 8]
            y = Identity(a/behind) {T: float32}
            z = Cumsum(h) -> float32[?2, 2, 8]
            a/with_argument = _WgpuFusedMatMulWithArgument(x, w, b) {
                T: float32,
                T_extra: [float32],
                T_out: float32,
                adj_x: false,
                adj_y: false,
                constants: [0.5],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "s1 = Erfc<float32>(s0); "
                    "s2 = Mul<float32>(s1, c0); "
                    "return s2, s0",
            } -> float32[?1, 8], float32[?1, 8]
            a/behind = Reshape(a/with_argument, shape) {
                T: float32,
                Tshape: int32,
            } -> float32[?2, 2, 8]
        "#]],
    );
    // One function, of the product's result itself.
    let plain = [
        (
            "a = _WgpuFusedElementwise(h) {T_in: [float32], T_out: [float32], constants: [0.5], \
        expression: \"x: float32; c: 1; s0 = Erfc<float32>(x0); s1 = Mul<float32>(s0, c0); \
        return s1\"} -> float32[?2, 2, 8]",
            "a = LeakyRelu(p) {T: float32, alpha: 0.25} -> float32[?1, 8]",
        ),
        ("z = Cumsum(h)", "z = Cumsum(p)"),
    ];
    let after = super::after("arguments", &activated(&plain));
    let wanted = "s1 = LeakyRelu<float32>(s0, c0); return s1, s0";
    assert!(after.contains(wanted) && after.contains("z = Cumsum(a/with_argument:1)"), "{after}");
    // One that reads it twice.
    let text = activated(&plain)
        .replace("LeakyRelu(p) {T: float32, alpha: 0.25}", "Mul(p, p) {T: float32}");
    let after = super::after("arguments", &text);
    let wanted = "a/with_argument = _WgpuFusedMatMulWithArgument(x, w, b)";
    assert!(after.contains(wanted) && after.contains("s1 = Mul<float32>(s0, s0)"), "{after}");
}

/// The operand of the second activation is the first one, whose node is replaced.
#[test]
fn an_activation_may_read_another_one() {
    let product = "{T: float32, transpose_a: false, transpose_b: false} -> float32[4, 8]";
    let graph = format!(
        "preserve s, t, y
         x = Placeholder -> float32[4, 8]
         v = Placeholder -> float32[8, 8]
         w = Placeholder -> float32[8, 8]
         p = MatMul(x, v) {product}
         a = Relu(p) {{T: float32}} -> float32[4, 8]
         q = MatMul(x, w) {product}
         b = Mul(q, a) {{T: float32}} -> float32[4, 8]
         s = Cumsum(p) -> float32[4, 8]
         t = Cumsum(q) -> float32[4, 8]
         y = Cumsum(b) -> float32[4, 8]"
    );
    let after = super::after("arguments", &graph);
    let wanted = "b/with_argument = _WgpuFusedMatMulWithArgument(x, w, a/with_argument)";
    assert!(after.contains(wanted), "{after}");
}

#[test]
fn other_activations_stay() {
    for replaced in [
        // The argument has no other reader; the contraction already has a reason.
        &[("z = Cumsum(h)", "z = Cumsum(x)")][..],
        // The columns are not stored four at once, and are of float64.
        &[("8]", "6]")],
        &[("float32", "float64")],
        // The product is fetched, or one of the two waits for another node.
        &[("preserve y", "preserve p, y")],
        &[("_WgpuFusedElementwise(h)", "_WgpuFusedElementwise(h, ^w)")],
        &[("z = Cumsum(h)", "z = Cumsum(h, ^p)")],
        // Another tensor is larger, or comes from the argument.
        &[
            (
                "_WgpuFusedElementwise(h) {T_in: [float32]",
                "_WgpuFusedElementwise(h, z) {T_in: [float32, float32]",
            ),
            (
                "x: float32; c: 1; s0 = Erfc<float32>(x0)",
                "x: float32, float32; c: 1; s0 = Mul<float32>(x0, x1)",
            ),
        ],
        // Only a part of the graph runs.
        &[(
            "z = Cumsum(h)",
            "i = Placeholder -> bool[]\nj = Switch(x, i) {T: float32}\nz = Cumsum(h)",
        )],
    ] {
        refuse("arguments", &activated(replaced));
    }
}
