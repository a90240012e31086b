//! Products with quantized weights.

use expect_test::expect;
use tensorflow_wgpu::optimizer::refusal::Refusal;

use super::{after, check, reason, refuse};

/// The codes of int4 `q`, whose bytes `packed` hold two columns each, as Keras unpacks them.
const UNPACKED: &str = "perm = Const {dtype: int32, value: tensor int32[2] [1, 0]} -> int32[2]
     t = Transpose(packed, perm) {T: int8, Tperm: int32} -> int8[4, 6]
     mask = Const {dtype: int8, value: tensor int8[] [15]} -> int8[]
     sign = Const {dtype: int8, value: tensor int8[] [8]} -> int8[]
     four = Const {dtype: int8, value: tensor int8[] [4]} -> int8[]
     low = BitwiseAnd(mask, t) {T: int8} -> int8[4, 6]
     low1 = BitwiseXor(low, sign) {T: int8} -> int8[4, 6]
     low2 = Sub(low1, sign) {T: int8} -> int8[4, 6]
     moved = RightShift(t, four) {T: int8} -> int8[4, 6]
     high = BitwiseAnd(moved, mask) {T: int8} -> int8[4, 6]
     high1 = BitwiseXor(sign, high) {T: int8} -> int8[4, 6]
     high2 = Sub(high1, sign) {T: int8} -> int8[4, 6]
     pairs = Pack(low2, high2) {N: 2, T: int8, axis: 1} -> int8[4, 2, 6]
     flat = Const {dtype: int32, value: tensor int32[2] [-1, 6]} -> int32[2]
     all = Reshape(pairs, flat) {T: int8, Tshape: int32} -> int8[8, 6]
     zeros = Const {dtype: int32, value: tensor int32[2] [0]} -> int32[2]
     ends = Const {dtype: int32, value: tensor int32[2] [7, 0]} -> int32[2]
     ones = Const {dtype: int32, value: tensor int32[2] [1]} -> int32[2]
     own = StridedSlice(all, zeros, ends, ones) {
         Index: int32,
         T: int8,
         begin_mask: 1,
         ellipsis_mask: 2,
         end_mask: 0,
         new_axis_mask: 0,
         shrink_axis_mask: 0,
     } -> int8[7, 6]
     q = Transpose(own, perm) {T: int8, Tperm: int32} -> int8[6, 7]\n";

/// The weights `w` of groups of rows, in float16.
const GROUPS: &str = "zero = Placeholder -> int8[2, 7]
     scale = Placeholder -> float32[2, 7]
     index = Placeholder -> float32[6]
     index1 = Cast(index) {DstT: float16, SrcT: float32, Truncate: false} -> float16[6]
     i = Cast(index1) {DstT: int32, SrcT: float16, Truncate: false} -> int32[6]
     none = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
     groups = Const {dtype: int32, value: tensor int32[] [2]} -> int32[]
     less = Less(i, none) {T: int32} -> bool[6]
     sum = AddV2(i, groups) {T: int32} -> int32[6]
     of = SelectV2(less, sum, i) {T: int32} -> int32[6]
     z = GatherV2(zero, of, none) {
         Taxis: int32,
         Tindices: int32,
         Tparams: int8,
         batch_dims: 0,
     } -> int8[6, 7]
     half = Cast(scale) {DstT: float16, SrcT: float32, Truncate: false} -> float16[2, 7]
     s = GatherV2(half, of, none) {
         Taxis: int32,
         Tindices: int32,
         Tparams: float16,
         batch_dims: 0,
     } -> float16[6, 7]
     zf = Cast(z) {DstT: float16, SrcT: int8, Truncate: false} -> float16[6, 7]
     qf = Cast(q) {DstT: float16, SrcT: int8, Truncate: false} -> float16[6, 7]
     d = Sub(qf, zf) {T: float16} -> float16[6, 7]
     w = Mul(s, d) {T: float16} -> float16[6, 7]\n";

const PRODUCT: &str = "y = MatMul(x, w) {T: float16, transpose_a: false, transpose_b: false} -> \
                       float16[?1, 7]\n";

fn int4(more: &str) -> String {
    format!(
        "preserve r
         x = Placeholder -> float16[?1, 6]
         packed = Placeholder -> int8[6, 4]
         {UNPACKED}{GROUPS}{more}
         r = Identity(y) {{T: float16}}"
    )
}

#[test]
fn weights_of_four_bits_by_groups_are_read_as_they_are_packed() {
    check(
        "quantized",
        &int4(PRODUCT),
        &expect![[r#"
            preserve r
            x = Placeholder -> float16[?1, 6]
            packed = Placeholder -> int8[6, 4]
            zero = Placeholder -> int8[2, 7]
            scale = Placeholder -> float32[2, 7]
            index = Placeholder -> float32[6]
            y = _WgpuFusedQuantizedMatMul(x, packed, zero, scale, index) {
                T: float16,
                T_codes: int8,
                T_extra: [],
                T_out: float16,
                T_parameters: [int8, float32, float32],
                adj_y: false,
                constants: [],
                decoder: "- gc, * gc",
                expression:
                    "x: float16; "
                    "c: 0; "
                    "return x0",
                extent: 7,
                packing: "columns",
            } -> float16[?1, 7]
            r = Identity(y) {T: float16}
        "#]],
    );
}

#[test]
fn the_transposed_weights_are_the_same_codes() {
    let views = "t1 = Const {dtype: int32, value: tensor int32[3] [3, 2, 7]} -> int32[3]
         v = Reshape(w, t1) {T: float16, Tshape: int32} -> float16[3, 2, 7]
         order = Const {dtype: int32, value: tensor int32[3] [2, 0, 1]} -> int32[3]
         vt = Transpose(v, order) {T: float16, Tperm: int32} -> float16[7, 3, 2]
         t2 = Const {dtype: int32, value: tensor int32[2] [7, 6]} -> int32[2]
         wt = Reshape(vt, t2) {T: float16, Tshape: int32} -> float16[7, 6]
         g = Placeholder -> float16[?1, 5, 7]
         y = BatchMatMulV2(g, wt) {T: float16, adj_x: false, adj_y: false} -> float16[?1, 5, 6]";
    let got = after("quantized", &int4(views));
    let product = got.lines().find(|line| line.starts_with("y = ")).expect("the product");
    assert!(product.starts_with("y = _WgpuFusedQuantizedMatMul(g, packed, zero, scale, index)"));
    assert!(product.contains("adj_y: true") && product.contains("decoder: \"- gc, * gc\""));
    assert!(!got.contains("Reshape") && !got.contains("Transpose"), "{got}");
}

/// An einsum of unknown extents stays a product of several dimensions.
#[test]
fn einsums_contract_the_last_dimensions() {
    let einsum = |equation: &str, right: &str, left: &str, result: &str| {
        int4(&format!(
            "dims = Const {{dtype: int32, value: tensor int32[3] {right}}} -> int32[3]
             v = Reshape(w, dims) {{T: float16, Tshape: int32}} -> float16{right}
             g = Placeholder -> float16{left}
             y = Einsum(g, v) {{N: 2, T: float16, equation: \"{equation}\"}} -> float16{result}\n"
        ))
    };
    let of = |text: &str| {
        let got = after("quantized", text);
        let line = got.lines().find(|line| line.starts_with("y = ")).expect("the product");
        assert!(!got.contains("Reshape"), "{got}");
        line.to_owned()
    };
    let heads = of(&einsum("btd,dnh->btnh", "[6, 7, 1]", "[?1, ?2, 6]", "[?1, ?2, 7, 1]"));
    assert!(heads.starts_with("y = _WgpuFusedQuantizedEinsum(g, packed, zero, scale, index)"));
    assert!(heads.contains("columns: [7, 1]") && heads.contains("contracted: 1"));
    let output = of(&einsum("btnh,nhd->btd", "[3, 2, 7]", "[?1, ?2, 3, 2]", "[?1, ?2, 7]"));
    assert!(
        output.contains("columns: [7]")
            && output.contains("contracted: 2")
            && output.contains("adj_y: false")
    );
    let gradient = of(&einsum("btd,nhd->btnh", "[3, 2, 7]", "[?1, ?2, 7]", "[?1, ?2, 3, 2]"));
    assert!(gradient.contains("columns: [3, 2]") && gradient.contains("adj_y: true"));
    // The rows of the codes are not next to each other.
    refuse("quantized", &einsum("btd,ndh->btnh", "[3, 2, 7]", "[?1, ?2, 2]", "[?1, ?2, 3, 7]"));
}

/// Weights of heads that were quantized as a matrix, as Keras does for Gemma's queries: their bytes
/// are read where they lie, by the einsum, by its product of matrices, and by the gradient.
#[test]
fn heads_are_read_where_they_lie() {
    let weights = "preserve r
         codes = Placeholder -> int8[6, 8]
         scale = Placeholder -> float32[8]
         f = Cast(codes) {DstT: float32, SrcT: int8, Truncate: false} -> float32[6, 8]
         w = RealDiv(f, scale) {T: float32} -> float32[6, 8]
         dims = Const {dtype: int32, value: tensor int32[3] [2, 6, 4]} -> int32[3]
         v = Reshape(w, dims) {T: float32, Tshape: int32} -> float32[2, 6, 4]\n";
    let einsum = |equation: &str, left: &str, result: &str| {
        format!(
            "{weights}g = Placeholder -> float32{left}
             y = Einsum(g, v) {{N: 2, T: float32, equation: \"{equation}\"}} -> float32{result}
             r = Identity(y) {{T: float32}}"
        )
    };
    let matrices = format!(
        "{weights}g = Placeholder -> float32[?1, 6]
         perm = Const {{dtype: int32, value: tensor int32[3] [1, 0, 2]}} -> int32[3]
         vt = Transpose(v, perm) {{T: float32, Tperm: int32}} -> float32[6, 2, 4]
         flat = Const {{dtype: int32, value: tensor int32[2] [6, 8]}} -> int32[2]
         m = Reshape(vt, flat) {{T: float32, Tshape: int32}} -> float32[6, 8]
         y = MatMul(g, m) {{T: float32, transpose_a: false, transpose_b: false}} -> float32[?1, 8]
         r = Identity(y) {{T: float32}}"
    );
    let query = einsum("btd,ndh->btnh", "[?1, ?2, 6]", "[?1, ?2, 2, 4]");
    let gradient = einsum("btnh,ndh->btd", "[?1, ?2, 2, 4]", "[?1, ?2, 6]");
    let (of_einsum, of_matrices) = ("_WgpuFusedQuantizedEinsum", "_WgpuFusedQuantizedMatMul");
    for (text, op, by_columns) in
        [(&query, of_einsum, false), (&gradient, of_einsum, true), (&matrices, of_matrices, false)]
    {
        let got = after("quantized", text);
        let line = got.lines().find(|line| line.starts_with("y = ")).expect("the product");
        assert!(line.starts_with(&format!("y = {op}(g, codes, scale)")), "{got}");
        assert!(line.contains("head: 4") && line.contains(&format!("adj_y: {by_columns}")));
        assert!(!got.contains("Reshape") && !got.contains("Transpose"), "{got}");
    }
    // Other heads than those of the matrix's rows.
    refuse("quantized", &query.replace("[2, 6, 4]", "[6, 2, 4]").replace(", 6]", ", 2]"));
}

/// An embedding takes the bytes of its rows, and unpacks these.
#[test]
fn rows_are_taken_before_they_are_unpacked() {
    let unpacked = UNPACKED.replace("[7, 0]", "[8, 0]").replace(", 7]", ", 8]");
    let unpacked = unpacked.replace("[7, 6]", "[8, 6]");
    let lookup = |columns: &str| {
        format!(
            "preserve r
             packed = Placeholder -> int8[6, 4]
             {columns}ids = Placeholder -> int32[?1, 3]
             first = Const {{dtype: int32, value: tensor int32[] [0]}} -> int32[]
             y = GatherV2(q, ids, first) {{
                 Taxis: int32,
                 Tindices: int32,
                 Tparams: int8,
                 batch_dims: 0,
             }} -> int8[?1, 3, 8]
             r = Identity(y) {{T: int8}}"
        )
    };
    check(
        "quantized",
        &lookup(&unpacked),
        &expect![[r#"
            preserve r
            packed = Placeholder -> int8[6, 4]
            ids = Placeholder -> int32[?1, 3]
            first = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
            r = Identity(y/rows) {T: int8}
            y/codes = GatherV2(packed, ids, first) {
                Taxis: int32,
                Tindices: int32,
                Tparams: int8,
                batch_dims: 0,
            } -> int8[?1, 3, 4]
            y/axis = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            y/shifts = Const {dtype: int8, value: tensor int8[2] [4, 0]} -> int8[2]
            y/four = Const {dtype: int8, value: tensor int8[] [4]} -> int8[]
            y/pairs = ExpandDims(y/codes, y/axis) {T: int8, Tdim: int32} -> int8[?1, 3, 4, 1]
            y/high = LeftShift(y/pairs, y/shifts) {T: int8} -> int8[?1, 3, 4, 2]
            y/low = RightShift(y/high, y/four) {T: int8} -> int8[?1, 3, 4, 2]
            y/rows/shape = Const {dtype: int32, value: tensor int32[3] [-1, 3, 8]} -> int32[3]
            y/rows = Reshape(y/low, y/rows/shape) {T: int8, Tshape: int32} -> int8[?1, 3, 8]
        "#]],
    );
    // A row that ends within a byte.
    refuse("quantized", &lookup(UNPACKED));
    assert_eq!(reason("quantized", &lookup(UNPACKED), "y"), Some(Refusal::Operand));
}

/// The weights of a product with an epilogue, which are bytes.
#[test]
fn weights_of_bytes_keep_the_epilogue() {
    check(
        "quantized",
        "preserve r, w
         x = Placeholder -> float32[?1, 6]
         bytes = Placeholder -> uint8[6, 7]
         scale = Placeholder -> float32[7]
         rows = Placeholder -> float32[6, 1]
         bias = Placeholder -> float32[7]
         f = Cast(bytes) {DstT: float32, SrcT: uint8, Truncate: false} -> float32[6, 7]
         s = RealDiv(f, scale) {T: float32} -> float32[6, 7]
         w = Mul(rows, s) {T: float32} -> float32[6, 7]
         y = _WgpuFusedMatMul(x, w, bias) {
             T: float32,
             T_extra: [float32],
             T_out: float32,
             constants: [],
             expression: \"x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0\",
             transpose_a: false,
             transpose_b: false,
         } -> float32[?1, 7]
         r = Identity(y) {T: float32}",
        &expect![[r#"
            preserve r, w
            x = Placeholder -> float32[?1, 6]
            bytes = Placeholder -> uint8[6, 7]
            scale = Placeholder -> float32[7]
            rows = Placeholder -> float32[6, 1]
            bias = Placeholder -> float32[7]
            f = Cast(bytes) {DstT: float32, SrcT: uint8, Truncate: false} -> float32[6, 7]
            s = RealDiv(f, scale) {T: float32} -> float32[6, 7]
            w = Mul(rows, s) {T: float32} -> float32[6, 7]
            y = _WgpuFusedQuantizedMatMul(x, bytes, scale, rows, bias) {
                T: float32,
                T_codes: uint8,
                T_extra: [float32],
                T_out: float32,
                T_parameters: [float32, float32],
                adj_y: false,
                constants: [],
                decoder: "/ c, * r",
                expression:
                    "x: float32, float32; "
                    "c: 0; "
                    "s0 = AddV2<float32>(x0, x1); "
                    "return s0",
                extent: 7,
                packing: "bytes",
            } -> float32[?1, 7]
            r = Identity(y) {T: float32}
        "#]],
    );
}

#[test]
fn what_is_not_known_stays() {
    let whole = int4(PRODUCT);
    for (known, other) in [
        ("MatMul(x, w)", "MatMul(x, w, ^half)"),
        ("transpose_a: false", "transpose_a: true"),
        ("Mul(s, d)", "AddV2(s, d)"),
        ("Sub(qf, zf)", "Sub(zf, qf)"),
        ("batch_dims: 0", "batch_dims: 1"),
        ("zf = Cast(z)", "zf = Cast(z, ^half)"),
        ("scale = Placeholder -> float32[2, 7]", "scale = Placeholder -> float32[2, ?1]"),
        ("-> int8[6, 7]", "-> int8[6, ?1]"),
    ] {
        assert!(whole.contains(known), "{known}");
        refuse("quantized", &whole.replace(known, other));
    }
}

/// The product reads the bytes that other nodes have unpacked.
#[test]
fn codes_that_are_not_packed_as_keras_does_are_bytes() {
    let whole = int4(PRODUCT);
    for (known, other) in [
        ("axis: 1", "axis: 0"),
        (
            "ones = Const {dtype: int32, value: tensor int32[2] [1]}",
            "ones = Const {dtype: int32, value: tensor int32[2] [2]}",
        ),
        ("value: tensor int8[] [4]", "value: tensor int8[] [3]"),
        ("BitwiseAnd(mask, t)", "BitwiseAnd(sign, t)"),
        ("Sub(low1, sign)", "Sub(sign, low1)"),
        ("Placeholder -> int8[6, 4]", "Placeholder -> int8[?2, 4]"),
    ] {
        assert!(whole.contains(known), "{known}");
        let got = after("quantized", &whole.replace(known, other));
        assert!(got.contains("packing: \"bytes\"") && got.contains("Pack("), "{known}: {got}");
    }
}

#[test]
fn a_walk_over_products_of_products_ends() {
    // Each square leads to its operand twice, so that all ways together are 2^60.
    let mut text = "preserve r
         x = Placeholder -> float32[4, 4]
         w0 = Placeholder -> float32[4, 4]\n"
        .to_owned();
    for k in 1..=60 {
        let before = k - 1;
        text += &format!("w{k} = Mul(w{before}, w{before}) {{T: float32}} -> float32[4, 4]\n");
    }
    text += "y = MatMul(x, w60) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, \
             4]\nr = Identity(y) {T: float32}";
    refuse("quantized", &text);
}
