//! Transposes and paddings that attributes of contractions can express.

use expect_test::expect;

use super::{after, check, refuse};

#[test]
fn transposes_become_attributes() {
    check(
        "folding",
        "preserve y, z, t
         p = Const {dtype: int32, value: tensor int32[2] [1, 0]} @CPU:0
         q = Const {dtype: int32, value: tensor int32[3] [0, -1, 1]} @CPU:0
         a = Placeholder -> float32[4, 5]
         b = Placeholder -> float32[2, 4, 5]
         ta = Transpose(a, p) {T: float32}
         tb = Transpose(b, q) {T: float32}
         t = Identity(tb) {T: float32}
         c = MatMul(ta, a) {T: float32, transpose_a: false, transpose_b: true}
         d = BatchMatMulV2(b, tb) {T: float32, adj_x: false, adj_y: true}
         y = Identity(c) {T: float32}
         z = Identity(d) {T: float32}",
        &expect![[r#"
            preserve t, y, z
            p = Const {dtype: int32, value: tensor int32[2] [1, 0]} @CPU:0
            q = Const {dtype: int32, value: tensor int32[3] [0, -1, 1]} @CPU:0
            a = Placeholder -> float32[4, 5]
            b = Placeholder -> float32[2, 4, 5]
            tb = Transpose(b, q) {T: float32}
            t = Identity(tb) {T: float32}
            c = MatMul(a, a) {T: float32, transpose_a: true, transpose_b: true}
            d = BatchMatMulV2(b, b) {T: float32, adj_x: false, adj_y: false}
            y = Identity(c) {T: float32}
            z = Identity(d) {T: float32}
        "#]],
    );
}

/// The head of a language model reads its embeddings' int8 transposed.
#[test]
fn transposes_of_int8_become_attributes() {
    check(
        "folding",
        "preserve y
         p = Const {dtype: int32, value: tensor int32[2] [1, 0]} @CPU:0
         x = Placeholder -> int8[1, 3, 8]
         w = Placeholder -> int8[64, 8]
         t = Transpose(w, p) {T: int8}
         c = BatchMatMulV3(x, t) {Ta: int8, Tb: int8, Tout: int32, adj_x: false, adj_y: false}
         y = Identity(c) {T: int32}",
        &expect![[r#"
            preserve y
            p = Const {dtype: int32, value: tensor int32[2] [1, 0]} @CPU:0
            x = Placeholder -> int8[1, 3, 8]
            w = Placeholder -> int8[64, 8]
            c = BatchMatMulV3(x, w) {Ta: int8, Tb: int8, Tout: int32, adj_x: false, adj_y: true}
            y = Identity(c) {T: int32}
        "#]],
    );
}

/// The keys of a cache, of one head: their rows are the columns of the product.
#[test]
fn dimensions_of_one_element_do_not_hide_a_transpose() {
    check(
        "folding",
        "preserve y
         p = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
         q = Placeholder -> float32[?2, 1, 4, 8]
         k = Placeholder -> float32[?2, 9, 1, 8]
         t = Transpose(k, p) {T: float32, Tperm: int32} -> float32[?2, 1, 8, 9]
         c = BatchMatMulV2(q, t) {T: float32, adj_x: false, adj_y: false}
         y = Identity(c) {T: float32}",
        &expect![[r#"
            preserve y
            p = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
            q = Placeholder -> float32[?2, 1, 4, 8]
            k = Placeholder -> float32[?2, 9, 1, 8]
            c = BatchMatMulV2(q, t/rows) {T: float32, adj_x: false, adj_y: true}
            y = Identity(c) {T: float32}
            t/rows/order = Const {dtype: int32, value: tensor int32[4] [0, 2, 1, 3]} -> int32[4]
            t/rows = Transpose(k, t/rows/order) {T: float32, Tperm: int32} -> float32[?2, 1, 9, 8]
        "#]],
    );
    // Two heads, and a transpose that moves no elements.
    for (from, to) in [("9, 1, 8]", "9, 2, 8]"), ("[0, 2, 3, 1]", "[0, 2, 1, 3]")] {
        let text = "preserve y
             p = Const {dtype: int32, value: tensor int32[4] [0, 2, 3, 1]} -> int32[4]
             q = Placeholder -> float32[?2, 1, 4, 8]
             k = Placeholder -> float32[?2, 9, 1, 8]
             t = Transpose(k, p) {T: float32, Tperm: int32}
             c = BatchMatMulV2(q, t) {T: float32, adj_x: false, adj_y: false}
             y = Identity(c) {T: float32}";
        refuse("folding", &text.replace(from, to));
    }
}

/// The weights of one head, as Gemma's keys and values have them, lie as a product reads them.
#[test]
fn weights_of_one_head_are_reshaped_without_a_transpose() {
    let text = "preserve y
         p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
         s = Const {dtype: int32, value: tensor int32[2] [64, -1]} -> int32[2]
         x = Placeholder -> float32[?2, 9, 64]
         w = Placeholder -> float32[1, 64, 32]
         t = Transpose(w, p) {T: float32, Tperm: int32} -> float32[64, 1, 32]
         v = Reshape(t, s) {T: float32, Tshape: int32} -> float32[64, 32]
         c = BatchMatMulV2(x, v) {T: float32, adj_x: false, adj_y: false} -> float32[?2, 9, 32]
         y = Identity(c) {T: float32} -> float32[?2, 9, 32]";
    let after = after("folding", text);
    assert!(after.contains("v = Reshape(w, s)") && !after.contains("Transpose"), "{after}");
    refuse("folding", &text.replace("preserve y", "preserve t, y"));
    let two = text.replace("[1, 64, 32]", "[2, 64, 16]").replace("[64, 1, 32]", "[64, 2, 16]");
    refuse("folding", &two);
}

#[test]
fn other_transposes_stay() {
    for (kind, perm) in
        [("complex64", "[0, 2, 1]"), ("float32", "[1, 0, 2]"), ("float32", "[2, 1, 0]")]
    {
        refuse(
            "folding",
            &format!(
                "preserve y
                 q = Const {{dtype: int32, value: tensor int32[3] {perm}}} @CPU:0
                 b = Placeholder
                 t = Transpose(b, q) {{T: {kind}}}
                 d = BatchMatMulV2(b, t) {{T: {kind}, adj_x: false, adj_y: false}}
                 y = Identity(d) {{T: {kind}}}"
            ),
        );
    }
}

#[test]
fn paddings_become_attributes() {
    check(
        "folding",
        "preserve y, z
         p = Const {dtype: int32, value: tensor int32[4, 2] [0, 0, 1, 2, 3, 4, 0, 0]} @CPU:0
         q = Const {dtype: int32, value: tensor int32[5, 2] [0, 0, 0, 0, 1, 2, 0, 0, 0, 1]} @CPU:0
         zero = Const {dtype: float32, value: tensor float32[] [0]}
         x = Placeholder
         u = Placeholder
         w = Placeholder
         n = NoOp
         xp = Pad(x, p, ^n) {T: float32}
         up = PadV2(u, q, zero) {T: float32}
         c = DepthwiseConv2dNative(xp, w) {T: float32, data_format: \"NHWC\", dilations: [1, 1, 1, \
         1], explicit_paddings: [0, 0, 1, 1, 0, 0, 0, 0], padding: \"EXPLICIT\", strides: [1, 1, \
         1, 1]}
         d = Conv3D(up, w) {T: float32, _class: [\"loc:@w\"], data_format: \"NCDHW\", dilations: \
         [1, 1, 1, 1, 1], padding: \"VALID\", strides: [1, 1, 1, 1, 1]}
         y = Identity(c) {T: float32}
         z = Identity(d) {T: float32}",
        &expect![[r#"
            preserve y, z
            p = Const {dtype: int32, value: tensor int32[4, 2] [0, 0, 1, 2, 3, 4, 0, 0]} @CPU:0
            q = Const {
                dtype: int32,
                value: tensor int32[5, 2] [0, 0, 0, 0, 1, 2, 0, 0, 0, 1],
            } @CPU:0
            zero = Const {dtype: float32, value: tensor float32[] [0.0]}
            x = Placeholder
            u = Placeholder
            w = Placeholder
            n = NoOp
            c = DepthwiseConv2dNative(x, w, ^n) {
                T: float32,
                data_format: "NHWC",
                dilations: [1, 1, 1, 1],
                explicit_paddings: [0, 0, 2, 3, 3, 4, 0, 0],
                padding: "EXPLICIT",
                strides: [1, 1, 1, 1],
            }
            d = _WgpuFusedConv3D(u, w) {
                T: float32,
                T_extra: [],
                T_out: float32,
                constants: [],
                data_format: "NCDHW",
                dilations: [1, 1, 1, 1, 1],
                explicit_paddings: [0, 0, 0, 0, 1, 2, 0, 0, 0, 1],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "return x0",
                padding: "EXPLICIT",
                strides: [1, 1, 1, 1, 1],
            }
            y = Identity(c) {T: float32}
            z = Identity(d) {T: float32}
        "#]],
    );
}

#[test]
fn other_paddings_stay() {
    for (pads, conv, more) in [
        // Channels are padded.
        ("[0, 0, 1, 1, 1, 1, 0, 1]", "padding: \"VALID\"", ""),
        // The windows are placed by the padded extents.
        ("[0, 0, 1, 1, 1, 1, 0, 0]", "padding: \"SAME\"", ""),
        // The gradient of the filter reads the padded input.
        (
            "[0, 0, 1, 1, 1, 1, 0, 0]",
            "padding: \"VALID\"",
            "g = Conv2DBackpropFilter(xp, w, w) {T: float32}",
        ),
    ] {
        refuse(
            "folding",
            &format!(
                "preserve y, g
                 p = Const {{dtype: int32, value: tensor int32[4, 2] {pads}}} @CPU:0
                 x = Placeholder
                 w = Placeholder
                 xp = Pad(x, p) {{T: float32}}
                 c = Conv2D(xp, w) {{T: float32, data_format: \"NHWC\", dilations: [1, 1, 1, 1], \
                 explicit_paddings: [], {conv}, strides: [1, 1, 1, 1]}}
                 y = Identity(c) {{T: float32}}\n{more}"
            ),
        );
    }
}

/// `einsum("btd,ndh->btnh", x, w)` of a token, as Keras writes it for the queries of Gemma.
fn heads(x: &str, w: &str, result: &str, dtypes: &str) -> String {
    format!(
        "preserve y
         p = Const {{dtype: int32, value: tensor int32[3] [1, 0, 2]}} @CPU:0
         s = Const {{dtype: int32, value: tensor int32[2] [8, 12]}} @CPU:0
         x = Placeholder -> {x}
         w = Placeholder -> {w}
         t = Transpose(w, p) -> {w}
         m = Reshape(t, s) -> int8[8, 12]
         c = BatchMatMulV3(x, m) {{{dtypes}, adj_x: false, adj_y: false}} -> {result}
         y = Identity(c)"
    )
}

#[test]
fn one_row_reads_the_weights_of_heads_as_they_are() {
    let int8 = "Ta: int8, Tb: int8, Tout: int32";
    check(
        "folding",
        &heads("int8[1, 1, 8]", "int8[3, 8, 4]", "int32[1, 1, 12]", int8),
        &expect![[r#"
            preserve y
            p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} @CPU:0
            s = Const {dtype: int32, value: tensor int32[2] [8, 12]} @CPU:0
            x = Placeholder -> int8[1, 1, 8]
            w = Placeholder -> int8[3, 8, 4]
            c = BatchMatMulV3(x, w) {
                Ta: int8,
                Tb: int8,
                Tout: int32,
                adj_x: false,
                adj_y: false,
            } -> int32[3, 1, 4]
            y = Identity(c/heads)
            c/heads/shape = Const {dtype: int32, value: tensor int32[3] [1, 1, 12]} -> int32[3]
            c/heads = Reshape(c, c/heads/shape) {T: int32, Tshape: int32} -> int32[1, 1, 12]
        "#]],
    );
    // A row of another rank is reshaped.
    let float = |x, w| heads(x, w, "float32[1, 12]", "Ta: float32, Tb: float32, Tout: float32");
    check(
        "folding",
        &float("float32[1, 8]", "float32[3, 8, 4]").replace("int8[", "float32["),
        &expect![[r#"
            preserve y
            p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} @CPU:0
            s = Const {dtype: int32, value: tensor int32[2] [8, 12]} @CPU:0
            x = Placeholder -> float32[1, 8]
            w = Placeholder -> float32[3, 8, 4]
            c = BatchMatMulV3(c/row, w) {
                Ta: float32,
                Tb: float32,
                Tout: float32,
                adj_x: false,
                adj_y: false,
            } -> float32[3, 1, 4]
            y = Identity(c/heads)
            c/row/shape = Const {dtype: int32, value: tensor int32[3] [1, 1, 8]} -> int32[3]
            c/row = Reshape(x, c/row/shape) {T: float32, Tshape: int32} -> float32[1, 1, 8]
            c/heads/shape = Const {dtype: int32, value: tensor int32[2] [1, 12]} -> int32[2]
            c/heads = Reshape(c, c/heads/shape) {T: float32, Tshape: int32} -> float32[1, 12]
        "#]],
    );
}

/// The weights `w` of heads, decoded from codes.
const DECODED: &str = "codes = Placeholder -> int8[8, 12]
         f = Cast(codes) {DstT: float32, SrcT: int8, Truncate: false} -> float32[8, 12]
         scale = Placeholder -> float32[12]
         d = RealDiv(f, scale) {T: float32} -> float32[8, 12]
         size = Const {dtype: int32, value: tensor int32[3] [3, 8, 4]} -> int32[3]
         w = Reshape(d, size) {T: float32, Tshape: int32} -> float32[3, 8, 4]";

#[test]
fn the_weights_of_heads_are_copied_for_more_rows_and_other_forms() {
    let types = "Ta: int8, Tb: int8, Tout: int32";
    let one = heads("int8[1, 1, 8]", "int8[3, 8, 4]", "int32[1, 1, 12]", types);
    for other in [
        heads("int8[1, 2, 8]", "int8[3, 8, 4]", "int32[1, 2, 12]", types),
        heads("int8[1, ?, 8]", "int8[3, 8, 4]", "int32[1, ?, 12]", types),
        one.replace("[1, 0, 2]", "[1, 2, 0]"),
        one.replace("preserve y", "preserve y, m"),
        one.replace("adj_x: false", "adj_x: true"),
        // Codes, which the product reads where they lie.
        one.replace("w = Placeholder -> int8[3, 8, 4]", DECODED),
        one.replace("Transpose(w, p)", "Transpose(w, p, ^x)"),
    ] {
        refuse("folding", &other);
    }
}
