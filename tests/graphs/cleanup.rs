//! Copies, conversions there and back, transposes that cancel, dead nodes.

use expect_test::expect;

use super::{after, check, refuse};

#[test]
fn copies_go_and_control_edges_stay() {
    check(
        "cleanup",
        "preserve out
         x = Placeholder
         a = Identity(x) {T: float32}
         b = StopGradient(a) {T: float32}
         w = NoOp(^b)
         y = Exp(b) {T: float32}
         out = Identity(y) {T: float32}",
        &expect![[r"
            preserve out
            x = Placeholder
            w = NoOp(^x)
            y = Exp(x) {T: float32}
            out = Identity(y) {T: float32}
        "]],
    );
}

#[test]
fn a_copy_stays_where_it_means_something() {
    for text in [
        // A transfer between devices.
        "preserve y\nx = Placeholder @CPU:0\na = Identity(x) {T: float32}\ny = Exp(a) {T: float32}",
        // A node on another device.
        "preserve y\nx = Placeholder @CPU:0\na = Identity(x) {T: float32} @CPU:0\ny = Exp(a) {T: \
         float32}",
        // It waits for another node.
        "preserve y\nx = Placeholder\nn = NoOp\na = Identity(x, ^n) {T: float32}\ny = Exp(a) {T: \
         float32}",
        // It says which branch runs.
        "preserve y\nx = Placeholder\ns = Switch(x, x)\na = Identity(s:1) {T: float32}\ny = \
         NoOp(^a)",
        // It is fetched.
        "preserve a\nx = Placeholder\na = Identity(x) {T: float32}",
    ] {
        refuse("cleanup", text);
    }
}

#[test]
fn a_conversion_there_and_back_goes() {
    check(
        "cleanup",
        "preserve y
         x = Placeholder
         a = Cast(x) {SrcT: float16, DstT: float32}
         b = Cast(a) {SrcT: float32, DstT: float16}
         y = Exp(b) {T: float16}",
        &expect![[r"
            preserve y
            x = Placeholder
            y = Exp(x) {T: float16}
        "]],
    );
}

#[test]
fn a_conversion_that_rounds_stays() {
    refuse(
        "cleanup",
        "preserve y
         x = Placeholder
         a = Cast(x) {SrcT: float32, DstT: float16}
         b = Cast(a) {SrcT: float16, DstT: float32}
         y = Exp(b) {T: float32}",
    );
}

#[test]
fn transposes_that_cancel_go() {
    check(
        "cleanup",
        "preserve y
         x = Placeholder
         p = Const {dtype: int32, value: tensor int32[3] [2, 0, 1]}
         q = Const {dtype: int32, value: tensor int32[3] [1, 2, 0]}
         a = Transpose(x, p) {T: float32}
         b = Transpose(a, q) {T: float32}
         y = Exp(b) {T: float32}",
        &expect![[r"
            preserve y
            x = Placeholder
            y = Exp(x) {T: float32}
        "]],
    );
}

#[test]
fn transposes_that_do_not_cancel_stay() {
    refuse(
        "cleanup",
        "preserve y
         x = Placeholder
         p = Const {dtype: int32, value: tensor int32[3] [2, 0, 1]}
         a = Transpose(x, p) {T: float32}
         b = Transpose(a, p) {T: float32}
         y = Exp(b) {T: float32}",
    );
}

#[test]
fn dead_nodes_go_but_stateful_ones_stay() {
    check(
        "cleanup",
        "preserve y
         x = Placeholder
         d = Exp(x) {T: float32}
         e = Log(d) {T: float32}
         r = RandomUniform(x) {T: float32}
         y = Exp(x) {T: float32}",
        &expect![[r"
            preserve y
            x = Placeholder
            r = RandomUniform(x) {T: float32}
            y = Exp(x) {T: float32}
        "]],
    );
}

#[test]
fn whoever_reads_a_constant_waits_in_its_place() {
    check(
        "cleanup",
        "preserve y, z
         x = Placeholder
         a = Exp(x) {T: float32}
         b = Exp(a) {T: float32}
         c = Const(^a, ^b) {dtype: float32, value: tensor float32[] [2]}
         n = NoOp(^c)
         y = Mul(c, b) {T: float32}
         z = Mul(c, a, ^b) {T: float32}
         w = NoOp(^n)",
        &expect![[r#"
            preserve y, z
            x = Placeholder
            a = Exp(x) {T: float32}
            b = Exp(a) {T: float32}
            c = Const {dtype: float32, value: tensor float32[] [2.0]}
            n = NoOp(^a, ^b)
            y = Mul(c, b, ^a) {T: float32}
            z = Mul(c, a, ^b) {T: float32}
            w = NoOp(^n)
        "#]],
    );
}

#[test]
fn a_constant_that_must_wait_does() {
    for text in [
        // A branch that may not run.
        "preserve y\nx = Placeholder\ns = Switch(x, x) {T: bool}\na = Identity(s) {T: bool}\nc = \
         Const(^a) {dtype: float32, value: tensor float32[] [2]}\ny = Exp(c) {T: float32}",
        // It is fetched.
        "preserve c\nx = Placeholder\nc = Const(^x) {dtype: float32, value: tensor float32[] [2]}",
        // Nodes on other devices.
        "preserve y\nx = Placeholder\nc = Const(^x) {dtype: float32, value: tensor float32[] \
         [2]}\ny = Exp(c) {T: float32} @CPU:0",
    ] {
        refuse("cleanup", text);
    }
}

#[test]
fn reshapes_that_end_where_they_began_go() {
    check(
        "cleanup",
        "preserve y, z
         x = Placeholder -> float32[1, 1, 8]
         d = Const {dtype: int32, value: tensor int32[3] [1, 1, 8]}
         e = Const {dtype: int32, value: tensor int32[2] [2, 4]}
         a = Squeeze(x) {T: float32, squeeze_dims: [0, 1]} -> float32[8]
         b = Reshape(a, d) {T: float32, Tshape: int32} -> float32[1, 1, 8]
         c = Reshape(a, e) {T: float32, Tshape: int32} -> float32[2, 4]
         y = Exp(b) {T: float32}
         z = Exp(c) {T: float32}",
        &expect![[r#"
            preserve y, z
            x = Placeholder -> float32[1, 1, 8]
            e = Const {dtype: int32, value: tensor int32[2] [2, 4]}
            c = Reshape(x, e) {T: float32, Tshape: int32} -> float32[2, 4]
            y = Exp(x) {T: float32}
            z = Exp(c) {T: float32}
        "#]],
    );
}

#[test]
fn reshapes_that_mean_something_stay() {
    for text in [
        // Two extents that may or may not be equal.
        "preserve y\nx = Placeholder -> float32[?, 8]\nd = Placeholder -> int32[2]\na = \
         Reshape(x, d) {T: float32, Tshape: int32} -> float32[?, 8]\ny = Exp(a) {T: float32}",
        // The first may be an error.
        "preserve y\nx = Placeholder -> float32[4, 2]\nd = Placeholder -> int32[2]\ne = Const \
         {dtype: int32, value: tensor int32[2] [4, 2]}\na = Reshape(x, d) {T: float32, Tshape: \
         int32} -> float32[?, 8]\nb = Reshape(a, e) {T: float32, Tshape: int32} -> float32[4, \
         2]\ny = Exp(b) {T: float32}",
        // It waits for another node.
        "preserve y\nx = Placeholder -> float32[8]\nn = NoOp\nd = Const {dtype: int32, value: \
         tensor int32[1] [8]}\na = Reshape(x, d, ^n) {T: float32, Tshape: int32} -> float32[8]\ny \
         = Exp(a) {T: float32}",
    ] {
        refuse("cleanup", text);
    }
}

/// A residual of a single word, to which Keras adds a layer's result like a bias.
fn residual(value: &str, vector: &str, more: &str) -> String {
    format!(
        "preserve out
         x = Placeholder -> float32[{value}]
         y = Placeholder -> float32[{vector}]
         {more}
         s = Squeeze(y) {{T: float32, squeeze_dims: []}} -> float32[6]
         b = BiasAdd(x, s) {{T: float32, data_format: \"NHWC\"}} -> float32[{value}]
         out = Custom(b)"
    )
}

#[test]
fn a_residual_is_no_bias() {
    check(
        "cleanup",
        &residual("1, 1, 6", "1, 1, 6", ""),
        &expect![[r#"
        preserve out
        x = Placeholder -> float32[1, 1, 6]
        y = Placeholder -> float32[1, 1, 6]
        out = Custom(b/sum)
        b/sum = AddV2(x, y) {T: float32} -> float32[1, 1, 6]
    "#]],
    );
}

#[test]
fn other_biases_stay() {
    for text in [
        // More rows, another shape, one channel, channels elsewhere.
        residual("1, 2, 6", "1, 1, 6", ""),
        residual("1, 1, 6", "1, 6, 1", ""),
        residual("1, 1, 6", "1, 1, 6", "").replace("float32[6]", "float32[?]"),
        residual("?1, 1, 6", "?1, 1, 6", ""),
        residual("1, 1, 6", "1, 1, 6", "").replace("NHWC", "NCHW"),
        residual("1, 1, 6", "1, 1, 6", "d = NoOp()").replace("Squeeze(y)", "Squeeze(y, ^d)"),
    ] {
        refuse("cleanup", &text);
    }
}

#[test]
fn a_shape_is_asked_of_what_is_asked_already() {
    let text = "preserve out
        x = Placeholder -> float32[?1, 4]
        m = Placeholder -> float32[?1, 1]
        d = SquaredDifference(x, m) {T: float32} -> float32[?1, 4]
        e = Neg(d) {T: float32} -> float32[?1, 4]
        s = Shape(x) {T: float32, out_type: int32} -> int32[2]
        t = Shape(e) {T: float32, out_type: int32} -> int32[2]
        out = Custom(s, t, e)";
    let after = super::after("cleanup", text);
    assert!(after.contains("out = Custom(s, s, e)") && !after.contains("\nt = "), "{after}");
    for (from, to) in [
        // There is no reader; another type; another shape; a shape that waits for another node.
        ("s = Shape(x) {T: float32, out_type: int32} -> int32[2]\n", "s = Placeholder\n"),
        (
            "s = Shape(x) {T: float32, out_type: int32}",
            "s = Shape(x) {T: float32, out_type: int64}",
        ),
        ("e = Neg(d) {T: float32} -> float32[?1, 4]", "e = Neg(d) {T: float32} -> float32[?2, 4]"),
        ("s = Shape(x)", "s = Shape(x, ^m)"),
        ("e = Neg(d)", "e = Custom(d)"),
    ] {
        assert!(text.contains(from), "{from}");
        refuse("cleanup", &text.replace(from, to));
    }
}

#[test]
fn a_reshape_to_the_same_unknown_extents_goes() {
    let text = "preserve out
        x = Placeholder -> float32[?1, 4]
        s = Placeholder -> int32[2]
        r = Reshape(x, s) {T: float32, Tshape: int32} -> float32[?1, 4]
        out = Custom(r)";
    let after = super::after("cleanup", text);
    assert!(after.contains("out = Custom(x)"), "{after}");
    refuse("cleanup", &text.replace("int32} -> float32[?1, 4]", "int32} -> float32[?2, 4]"));
    refuse("cleanup", &text.replace("?1", "?"));
}

/// The pivot of a branch says that the branch runs. A node that waits for it must not wait for the
/// switch instead, which runs whichever branch is chosen.
#[test]
fn nodes_that_wait_for_a_branch_of_several_go_on_to() {
    let text = "preserve m
        i = Placeholder -> int32[]
        x = Placeholder -> float32[]
        s = _SwitchN(i, i) {T: int32, num_outs: 2} -> int32[], int32[]
        pivot = Identity(s) {T: int32} -> int32[]
        d = _SwitchN(x, i) {T: float32, num_outs: 2} -> float32[], float32[]
        a = Const(^pivot) {value: tensor float32[] [1], dtype: float32} -> float32[]
        b = Neg(d:1) {T: float32} -> float32[]
        m = Merge(a, b) {N: 2, T: float32} -> float32[], int32[]";
    refuse("cleanup", text);
}

#[test]
fn nodes_that_wait_for_a_conversion_of_a_branch_stay_in_the_branch() {
    let text = "preserve m
        p = Placeholder -> bool[]
        x = Placeholder -> float32[]
        s = Switch(x, p) {T: float32} -> float32[], float32[]
        w = Cast(s) {SrcT: float32, DstT: float64} -> float64[]
        n = Cast(w) {SrcT: float64, DstT: float32} -> float32[]
        a = Const(^n) {value: tensor float32[] [1], dtype: float32} -> float32[]
        b = Neg(s:1) {T: float32} -> float32[]
        m = Merge(a, b) {N: 2, T: float32} -> float32[], int32[]";
    let after = after("cleanup", text);
    assert!(after.contains("a = Const(^s/branch_0)"), "{after}");
}

/// A check comes before the shape in the program. Nothing reads the shape any more.
#[test]
fn unread_shapes_do_not_wait_for_checks() {
    let text = "preserve y
        x = Placeholder -> float32[?1, 8]
        ok = Placeholder -> bool[]
        check = Assert(ok, x) {T: [float32], summarize: 3}
        s = Shape(x, ^check) {T: float32, out_type: int32} -> int32[2]
        y = Neg(x) {T: float32} -> float32[?1, 8]";
    assert!(!super::after("cleanup", text).contains("Shape"));
    refuse("cleanup", &text.replace("preserve y", "preserve y, s"));
}

#[test]
fn cubes_are_products() {
    let text = "preserve y
        x = Placeholder -> bfloat16[?0, 8]
        three = Const {dtype: bfloat16, value: tensor bfloat16[] [3.0]} -> bfloat16[]
        y = Neg(p) {T: bfloat16} -> bfloat16[?0, 8]
        p = Pow(x, three) {T: bfloat16} -> bfloat16[?0, 8]";
    check(
        "cleanup",
        text,
        &expect![[r#"
        preserve y
        x = Placeholder -> bfloat16[?0, 8]
        y = Neg(p/cube) {T: bfloat16} -> bfloat16[?0, 8]
        p/square = Square(x) {T: bfloat16} -> bfloat16[?0, 8]
        p/cube = Mul(x, p/square) {T: bfloat16} -> bfloat16[?0, 8]
    "#]],
    );
    for (from, to) in [
        ("[3.0]", "[2.5]"),
        ("preserve y", "preserve y, p"),
        // The exponent gives the power a dimension more.
        (
            "tensor bfloat16[] [3.0]} -> bfloat16[]",
            "tensor bfloat16[1, 1, 1] [3.0]} -> bfloat16[1, 1, 1]",
        ),
        ("bfloat16", "int64"),
    ] {
        let text = text.replace(from, to).replace("tensor int64[] [3.0]", "tensor int64[] [3]");
        refuse("cleanup", &text);
    }
}

#[test]
fn reductions_of_single_elements_are_views() {
    let text = "preserve y
        x = Placeholder -> float32[1, ?0, 8]
        axis = Const {dtype: int32, value: tensor int32[1] [0]} -> int32[1]
        s = Sum(x, axis) {T: float32, Tidx: int32, keep_dims: false} -> float32[?0, 8]
        y = Neg(s) {T: float32} -> float32[?0, 8]";
    check(
        "cleanup",
        text,
        &expect![[r#"
        preserve y
        x = Placeholder -> float32[1, ?0, 8]
        y = Neg(s/single) {T: float32} -> float32[?0, 8]
        s/single/shape = Const {dtype: int32, value: tensor int32[2] [-1, 8]} -> int32[2]
        s/single = Reshape(x, s/single/shape) {T: float32, Tshape: int32} -> float32[?0, 8]
    "#]],
    );
    let kept = text.replace("false} -> float32[?0", "true} -> float32[1, ?0");
    assert!(super::after("cleanup", &kept).contains("y = Neg(x)"));
    let of_all = text.replace("float32[1, ?0, 8]", "float32[?1, ?0, 8]");
    for text in [of_all, text.replace("preserve y", "preserve y, s"), text.replace("[0]", "[1]")] {
        refuse("cleanup", &text);
    }
}
