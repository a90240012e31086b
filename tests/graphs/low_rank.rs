//! Weights to which a product of low rank is added, as low-rank adapters do.

use expect_test::expect;

use super::{after, check, refuse};

/// A dense layer of Keras whose adapter is scaled, with a batch of unknown size: the weights are
/// the right operand as they are.
pub(super) const DENSE: &str = "preserve y, dx, da, db
     x = Placeholder -> float32[?2, 64]
     dy = Placeholder -> float32[?2, 128]
     w = Placeholder -> float32[64, 128]
     a = Placeholder -> float32[64, 4]
     b = Placeholder -> float32[4, 128]
     s = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
     ab = MatMul(a, b) {T: float32, transpose_a: false, transpose_b: false} -> float32[64, 128]
     scaled = Mul(s, ab) {T: float32} -> float32[64, 128]
     sum = AddV2(w, scaled) {T: float32} -> float32[64, 128]
     y0 = MatMul(x, sum) {T: float32, transpose_a: false, transpose_b: false} -> float32[?2, 128]
     dx0 = MatMul(dy, sum) {T: float32, transpose_a: false, transpose_b: true} -> float32[?2, 64]
     dw = MatMul(x, dy) {T: float32, transpose_a: true, transpose_b: false} -> float32[64, 128]
     dab = Mul(s, dw) {T: float32} -> float32[64, 128]
     da0 = MatMul(dab, b) {T: float32, transpose_a: false, transpose_b: true} -> float32[64, 4]
     db0 = MatMul(a, dab) {T: float32, transpose_a: true, transpose_b: false} -> float32[4, 128]
     y = Identity(y0) {T: float32} -> float32[?2, 128]
     dx = Identity(dx0) {T: float32} -> float32[?2, 64]
     da = Identity(da0) {T: float32} -> float32[64, 4]
     db = Identity(db0) {T: float32} -> float32[4, 128]";

#[test]
fn a_dense_layer_multiplies_with_the_factors() {
    check(
        "low_rank",
        DENSE,
        &expect![[r#"
        preserve da, db, dx, y
        x = Placeholder -> float32[?2, 64]
        dy = Placeholder -> float32[?2, 128]
        w = Placeholder -> float32[64, 128]
        a = Placeholder -> float32[64, 4]
        b = Placeholder -> float32[4, 128]
        s = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
        y0 = MatMul(x, w) {
            T: float32,
            transpose_a: false,
            transpose_b: false,
        } -> float32[?2, 128]
        dx0 = MatMul(dy, w) {
            T: float32,
            transpose_a: false,
            transpose_b: true,
        } -> float32[?2, 64]
        y = Identity(sum/low_rank/sum) {T: float32} -> float32[?2, 128]
        dx = Identity(sum/low_rank/sum_1) {T: float32} -> float32[?2, 64]
        da = Identity(sum/low_rank/gradient_a) {T: float32} -> float32[64, 4]
        db = Identity(sum/low_rank/gradient_b) {T: float32} -> float32[4, 128]
        sum/low_rank/x_a = MatMul(x, a) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: false,
        } -> float32[?2, 4]
        sum/low_rank/scale = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
        sum/low_rank/scaled = Mul(sum/low_rank/x_a, sum/low_rank/scale) {
            T: float32,
        } -> float32[?2, 4]
        sum/low_rank/x_a_b = MatMul(sum/low_rank/scaled, b) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: false,
        } -> float32[?2, 128]
        sum/low_rank/sum = AddV2(y0, sum/low_rank/x_a_b) {T: float32} -> float32[?2, 128]
        sum/low_rank/y_b = MatMul(dy, b) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: true,
        } -> float32[?2, 4]
        sum/low_rank/scale_1 = Const {
            dtype: float32,
            value: tensor float32[] [0.5],
        } -> float32[]
        sum/low_rank/scaled_1 = Mul(sum/low_rank/y_b, sum/low_rank/scale_1) {
            T: float32,
        } -> float32[?2, 4]
        sum/low_rank/y_b_a = MatMul(sum/low_rank/scaled_1, a) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: true,
        } -> float32[?2, 64]
        sum/low_rank/sum_1 = AddV2(dx0, sum/low_rank/y_b_a) {T: float32} -> float32[?2, 64]
        sum/low_rank/gradient_a = MatMul(x, sum/low_rank/scaled_1) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: true,
            transpose_b: false,
        } -> float32[64, 4]
        sum/low_rank/gradient_b = MatMul(sum/low_rank/scaled, dy) {
            T: float32,
            grad_a: false,
            grad_b: false,
            transpose_a: true,
            transpose_b: false,
        } -> float32[4, 128]
    "#]],
    );
}

/// KerasHub's Gemma has weights `[heads, depth, width]`, which a copy transposes. The model is
/// stored in bfloat16, and Keras computes the sum in float32.
pub(super) const GEMMA: &str = "preserve y, dx, da, db
     p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
     s2 = Const {dtype: int32, value: tensor int32[2] [256, 4]} -> int32[2]
     s3 = Const {dtype: int32, value: tensor int32[3] [4, 64, 96]} -> int32[3]
     view = Const {dtype: int32, value: tensor int32[2] [64, -1]} -> int32[2]
     back = Const {dtype: int32, value: tensor int32[3] [64, 4, 96]} -> int32[3]
     rows = Const {dtype: int32, value: tensor int32[2] [-1, 64]} -> int32[2]
     cols = Const {dtype: int32, value: tensor int32[2] [-1, 384]} -> int32[2]
     flat = Const {dtype: int32, value: tensor int32[2] [256, 96]} -> int32[2]
     x = Placeholder -> bfloat16[2, 10, 64]
     dy = Placeholder -> bfloat16[2, 10, 384]
     w16 = Placeholder -> bfloat16[4, 64, 96]
     a3 = Placeholder -> float32[4, 64, 4]
     b = Placeholder -> float32[4, 96]
     w = Cast(w16) {DstT: float32, SrcT: bfloat16, Truncate: false} -> float32[4, 64, 96]
     a = Reshape(a3, s2) {T: float32, Tshape: int32} -> float32[256, 4]
     ab = MatMul(a, b) {T: float32, transpose_a: false, transpose_b: false} -> float32[256, 96]
     ab3 = Reshape(ab, s3) {T: float32, Tshape: int32} -> float32[4, 64, 96]
     sum = AddV2(w, ab3) {T: float32} -> float32[4, 64, 96]
     sum16 = Cast(sum) {DstT: bfloat16, SrcT: float32, Truncate: false} -> bfloat16[4, 64, 96]
     moved = Transpose(sum16, p) {T: bfloat16, Tperm: int32} -> bfloat16[64, 4, 96]
     v = Reshape(moved, view) {T: bfloat16, Tshape: int32} -> bfloat16[64, 384]
     y0 = BatchMatMulV2(x, v) {T: bfloat16, adj_x: false, adj_y: false} -> bfloat16[2, 10, 384]
     dx0 = BatchMatMulV2(dy, v) {T: bfloat16, adj_x: false, adj_y: true} -> bfloat16[2, 10, 64]
     xr = Reshape(x, rows) {T: bfloat16, Tshape: int32} -> bfloat16[?, 64]
     dyr = Reshape(dy, cols) {T: bfloat16, Tshape: int32} -> bfloat16[?, 384]
     dv = BatchMatMulV2(xr, dyr) {T: bfloat16, adj_x: true, adj_y: false} -> bfloat16[64, 384]
     dv3 = Reshape(dv, back) {T: bfloat16, Tshape: int32} -> bfloat16[64, 4, 96]
     dmoved = Transpose(dv3, p) {T: bfloat16, Tperm: int32} -> bfloat16[4, 64, 96]
     dflat = Reshape(dmoved, flat) {T: bfloat16, Tshape: int32} -> bfloat16[256, 96]
     dab = Cast(dflat) {DstT: float32, SrcT: bfloat16, Truncate: false} -> float32[256, 96]
     da0 = MatMul(dab, b) {T: float32, transpose_a: false, transpose_b: true} -> float32[256, 4]
     db0 = MatMul(a, dab) {T: float32, transpose_a: true, transpose_b: false} -> float32[4, 96]
     y = Identity(y0) {T: bfloat16} -> bfloat16[2, 10, 384]
     dx = Identity(dx0) {T: bfloat16} -> bfloat16[2, 10, 64]
     da = Identity(da0) {T: float32} -> float32[256, 4]
     db = Identity(db0) {T: float32} -> float32[4, 96]";

#[test]
fn heads_that_are_transposed_multiply_with_the_factors() {
    check(
        "low_rank",
        GEMMA,
        &expect![[r#"
        preserve da, db, dx, y
        p = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
        s2 = Const {dtype: int32, value: tensor int32[2] [256, 4]} -> int32[2]
        s3 = Const {dtype: int32, value: tensor int32[3] [4, 64, 96]} -> int32[3]
        view = Const {dtype: int32, value: tensor int32[2] [64, -1]} -> int32[2]
        back = Const {dtype: int32, value: tensor int32[3] [64, 4, 96]} -> int32[3]
        rows = Const {dtype: int32, value: tensor int32[2] [-1, 64]} -> int32[2]
        cols = Const {dtype: int32, value: tensor int32[2] [-1, 384]} -> int32[2]
        flat = Const {dtype: int32, value: tensor int32[2] [256, 96]} -> int32[2]
        x = Placeholder -> bfloat16[2, 10, 64]
        dy = Placeholder -> bfloat16[2, 10, 384]
        w16 = Placeholder -> bfloat16[4, 64, 96]
        a3 = Placeholder -> float32[4, 64, 4]
        b = Placeholder -> float32[4, 96]
        a = Reshape(a3, s2) {T: float32, Tshape: int32} -> float32[256, 4]
        moved = Transpose(w16, p) {T: bfloat16, Tperm: int32} -> bfloat16[64, 4, 96]
        v = Reshape(moved, view) {T: bfloat16, Tshape: int32} -> bfloat16[64, 384]
        y0 = BatchMatMulV2(x, v) {
            T: bfloat16,
            adj_x: false,
            adj_y: false,
        } -> bfloat16[2, 10, 384]
        dx0 = BatchMatMulV2(dy, v/backward) {
            T: bfloat16,
            adj_x: false,
            adj_y: true,
        } -> bfloat16[2, 10, 64]
        xr = Reshape(x, rows) {T: bfloat16, Tshape: int32} -> bfloat16[?, 64]
        dyr = Reshape(dy, cols) {T: bfloat16, Tshape: int32} -> bfloat16[?, 384]
        y = Identity(sum/low_rank/result) {T: bfloat16} -> bfloat16[2, 10, 384]
        dx = Identity(sum/low_rank/result_1) {T: bfloat16} -> bfloat16[2, 10, 64]
        da = Identity(sum/low_rank/rows_8) {T: float32} -> float32[256, 4]
        db = Identity(sum/low_rank/gradient_b_1) {T: float32} -> float32[4, 96]
        sum/low_rank/factor = Cast(a) {
            DstT: bfloat16,
            SrcT: float32,
            Truncate: false,
        } -> bfloat16[256, 4]
        sum/low_rank/factor_1 = Cast(b) {
            DstT: bfloat16,
            SrcT: float32,
            Truncate: false,
        } -> bfloat16[4, 96]
        sum/low_rank/extents = Const {
            dtype: int32,
            value: tensor int32[3] [4, 64, 4],
        } -> int32[3]
        sum/low_rank/axes = Reshape(sum/low_rank/factor, sum/low_rank/extents) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[4, 64, 4]
        sum/low_rank/order = Const {dtype: int32, value: tensor int32[3] [1, 0, 2]} -> int32[3]
        sum/low_rank/moved = Transpose(sum/low_rank/axes, sum/low_rank/order) {
            T: bfloat16,
            Tperm: int32,
        } -> bfloat16[64, 4, 4]
        sum/low_rank/extents_1 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 16],
        } -> int32[2]
        sum/low_rank/rows = Reshape(sum/low_rank/moved, sum/low_rank/extents_1) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[64, 16]
        sum/low_rank/extents_2 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 64],
        } -> int32[2]
        sum/low_rank/rows_1 = Reshape(x, sum/low_rank/extents_2) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[20, 64]
        sum/low_rank/x_a = MatMul(sum/low_rank/rows_1, sum/low_rank/rows) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: false,
        } -> bfloat16[20, 16]
        sum/low_rank/extents_3 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 4],
        } -> int32[2]
        sum/low_rank/rows_2 = Reshape(sum/low_rank/x_a, sum/low_rank/extents_3) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[80, 4]
        sum/low_rank/x_a_b = MatMul(sum/low_rank/rows_2, sum/low_rank/factor_1) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: false,
        } -> bfloat16[80, 96]
        sum/low_rank/extents_4 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 96],
        } -> int32[2]
        sum/low_rank/rows_3 = Reshape(y0, sum/low_rank/extents_4) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[80, 96]
        sum/low_rank/sum = AddV2(sum/low_rank/rows_3, sum/low_rank/x_a_b) {
            T: bfloat16,
        } -> bfloat16[80, 96]
        sum/low_rank/extents_5 = Const {
            dtype: int32,
            value: tensor int32[3] [2, 10, 384],
        } -> int32[3]
        sum/low_rank/result = Reshape(sum/low_rank/sum, sum/low_rank/extents_5) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[2, 10, 384]
        sum/low_rank/extents_6 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 384],
        } -> int32[2]
        sum/low_rank/rows_4 = Reshape(dy, sum/low_rank/extents_6) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[20, 384]
        sum/low_rank/extents_7 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 96],
        } -> int32[2]
        sum/low_rank/rows_5 = Reshape(sum/low_rank/rows_4, sum/low_rank/extents_7) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[80, 96]
        sum/low_rank/y_b = MatMul(sum/low_rank/rows_5, sum/low_rank/factor_1) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: true,
        } -> bfloat16[80, 4]
        sum/low_rank/extents_8 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 16],
        } -> int32[2]
        sum/low_rank/rows_6 = Reshape(sum/low_rank/y_b, sum/low_rank/extents_8) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[20, 16]
        sum/low_rank/y_b_a = MatMul(sum/low_rank/rows_6, sum/low_rank/rows) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: false,
            transpose_b: true,
        } -> bfloat16[20, 64]
        sum/low_rank/extents_9 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 64],
        } -> int32[2]
        sum/low_rank/rows_7 = Reshape(dx0, sum/low_rank/extents_9) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[20, 64]
        sum/low_rank/sum_1 = AddV2(sum/low_rank/rows_7, sum/low_rank/y_b_a) {
            T: bfloat16,
        } -> bfloat16[20, 64]
        sum/low_rank/extents_10 = Const {
            dtype: int32,
            value: tensor int32[3] [2, 10, 64],
        } -> int32[3]
        sum/low_rank/result_1 = Reshape(sum/low_rank/sum_1, sum/low_rank/extents_10) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[2, 10, 64]
        sum/low_rank/gradient_a = MatMul(sum/low_rank/rows_1, sum/low_rank/rows_6) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: true,
            transpose_b: false,
        } -> bfloat16[64, 16]
        sum/low_rank/gradient_a_1 = Cast(sum/low_rank/gradient_a) {
            DstT: float32,
            SrcT: bfloat16,
            Truncate: false,
        } -> float32[64, 16]
        sum/low_rank/extents_11 = Const {
            dtype: int32,
            value: tensor int32[3] [64, 4, 4],
        } -> int32[3]
        sum/low_rank/axes_1 = Reshape(sum/low_rank/gradient_a_1, sum/low_rank/extents_11) {
            T: float32,
            Tshape: int32,
        } -> float32[64, 4, 4]
        sum/low_rank/order_1 = Const {
            dtype: int32,
            value: tensor int32[3] [1, 0, 2],
        } -> int32[3]
        sum/low_rank/moved_1 = Transpose(sum/low_rank/axes_1, sum/low_rank/order_1) {
            T: float32,
            Tperm: int32,
        } -> float32[4, 64, 4]
        sum/low_rank/extents_12 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 4],
        } -> int32[2]
        sum/low_rank/rows_8 = Reshape(sum/low_rank/moved_1, sum/low_rank/extents_12) {
            T: float32,
            Tshape: int32,
        } -> float32[256, 4]
        sum/low_rank/extents_13 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 4],
        } -> int32[2]
        sum/low_rank/rows_9 = Reshape(sum/low_rank/x_a, sum/low_rank/extents_13) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[80, 4]
        sum/low_rank/extents_14 = Const {
            dtype: int32,
            value: tensor int32[2] [-1, 96],
        } -> int32[2]
        sum/low_rank/rows_10 = Reshape(sum/low_rank/rows_4, sum/low_rank/extents_14) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[80, 96]
        sum/low_rank/gradient_b = MatMul(sum/low_rank/rows_9, sum/low_rank/rows_10) {
            T: bfloat16,
            grad_a: false,
            grad_b: false,
            transpose_a: true,
            transpose_b: false,
        } -> bfloat16[4, 96]
        sum/low_rank/gradient_b_1 = Cast(sum/low_rank/gradient_b) {
            DstT: float32,
            SrcT: bfloat16,
            Truncate: false,
        } -> float32[4, 96]
        moved/backward = Transpose(w16, p) {T: bfloat16, Tperm: int32} -> bfloat16[64, 4, 96]
        v/backward = Reshape(moved/backward, view) {
            T: bfloat16,
            Tshape: int32,
        } -> bfloat16[64, 384]
    "#]],
    );
}

/// Without a transpose: KerasHub's Llama has weights `[depth, heads, width]`, and the output of an
/// attention `[heads, depth, width]`, of which the first two are rows. This graph needs neither the
/// gradient of `x` nor that of the second factor.
fn untransposed(weights: &str, view: &str, rows: &str) -> String {
    let (depth, columns) = view.split_once(", ").unwrap();
    format!(
        "preserve y, da
         s2 = Const {{dtype: int32, value: tensor int32[2] [{rows}, 4]}} -> int32[2]
         s3 = Const {{dtype: int32, value: tensor int32[3] [{weights}]}} -> int32[3]
         view = Const {{dtype: int32, value: tensor int32[2] [{view}]}} -> int32[2]
         flat = Const {{dtype: int32, value: tensor int32[2] [{rows}, 96]}} -> int32[2]
         x = Placeholder -> float16[?2, ?3, {depth}]
         xr = Placeholder -> float16[?, {depth}]
         dyr = Placeholder -> float16[?, {columns}]
         w = Placeholder -> float16[{weights}]
         a = Placeholder -> float16[{rows}, 4]
         b = Placeholder -> float16[4, 96]
         ab = MatMul(a, b) {{T: float16, transpose_a: false, transpose_b: false}} -> \
         float16[{rows}, 96]
         ab3 = Reshape(ab, s3) {{T: float16, Tshape: int32}} -> float16[{weights}]
         sum = AddV2(ab3, w) {{T: float16}} -> float16[{weights}]
         v = Reshape(sum, view) {{T: float16, Tshape: int32}} -> float16[{view}]
         y0 = BatchMatMulV2(x, v) {{T: float16, adj_x: false, adj_y: false}} -> float16[?2, ?3, \
         {columns}]
         dv = BatchMatMulV2(xr, dyr) {{T: float16, adj_x: true, adj_y: false}} -> float16[{view}]
         dab = Reshape(dv, flat) {{T: float16, Tshape: int32}} -> float16[{rows}, 96]
         da0 = MatMul(dab, b) {{T: float16, transpose_a: false, transpose_b: true}} -> \
         float16[{rows}, 4]
         y = Identity(y0) {{T: float16}} -> float16[?2, ?3, {columns}]
         da = Identity(da0) {{T: float16}} -> float16[{rows}, 4]"
    )
}

#[test]
fn heads_that_are_columns_multiply_with_the_factors() {
    check(
        "low_rank",
        &untransposed("64, 2, 96", "64, 192", "128"),
        &expect![[r#"
            preserve da, y
            s2 = Const {dtype: int32, value: tensor int32[2] [128, 4]} -> int32[2]
            s3 = Const {dtype: int32, value: tensor int32[3] [64, 2, 96]} -> int32[3]
            view = Const {dtype: int32, value: tensor int32[2] [64, 192]} -> int32[2]
            flat = Const {dtype: int32, value: tensor int32[2] [128, 96]} -> int32[2]
            x = Placeholder -> float16[?2, ?3, 64]
            xr = Placeholder -> float16[?, 64]
            dyr = Placeholder -> float16[?, 192]
            w = Placeholder -> float16[64, 2, 96]
            a = Placeholder -> float16[128, 4]
            b = Placeholder -> float16[4, 96]
            ab = MatMul(a, b) {
                T: float16,
                transpose_a: false,
                transpose_b: false,
            } -> float16[128, 96]
            ab3 = Reshape(ab, s3) {T: float16, Tshape: int32} -> float16[64, 2, 96]
            sum = AddV2(ab3, w) {T: float16} -> float16[64, 2, 96]
            v = Reshape(sum, view) {T: float16, Tshape: int32} -> float16[64, 192]
            y0 = BatchMatMulV2(x, v) {
                T: float16,
                adj_x: false,
                adj_y: false,
            } -> float16[?2, ?3, 192]
            dv = BatchMatMulV2(xr, dyr) {T: float16, adj_x: true, adj_y: false} -> float16[64, 192]
            dab = Reshape(dv, flat) {T: float16, Tshape: int32} -> float16[128, 96]
            da0 = MatMul(dab, b) {
                T: float16,
                transpose_a: false,
                transpose_b: true,
            } -> float16[128, 4]
            y = Identity(y0) {T: float16} -> float16[?2, ?3, 192]
            da = Identity(da0) {T: float16} -> float16[128, 4]
        "#]],
    );
}

#[test]
fn heads_that_are_rows_multiply_with_the_factors() {
    check(
        "low_rank",
        &untransposed("2, 64, 96", "128, 96", "128"),
        &expect![[r#"
            preserve da, y
            s2 = Const {dtype: int32, value: tensor int32[2] [128, 4]} -> int32[2]
            s3 = Const {dtype: int32, value: tensor int32[3] [2, 64, 96]} -> int32[3]
            view = Const {dtype: int32, value: tensor int32[2] [128, 96]} -> int32[2]
            flat = Const {dtype: int32, value: tensor int32[2] [128, 96]} -> int32[2]
            x = Placeholder -> float16[?2, ?3, 128]
            xr = Placeholder -> float16[?, 128]
            dyr = Placeholder -> float16[?, 96]
            w = Placeholder -> float16[2, 64, 96]
            a = Placeholder -> float16[128, 4]
            b = Placeholder -> float16[4, 96]
            ab = MatMul(a, b) {
                T: float16,
                transpose_a: false,
                transpose_b: false,
            } -> float16[128, 96]
            ab3 = Reshape(ab, s3) {T: float16, Tshape: int32} -> float16[2, 64, 96]
            sum = AddV2(ab3, w) {T: float16} -> float16[2, 64, 96]
            v = Reshape(sum, view) {T: float16, Tshape: int32} -> float16[128, 96]
            y0 = BatchMatMulV2(x, v) {T: float16, adj_x: false, adj_y: false} -> float16[?2, ?3, 96]
            dv = BatchMatMulV2(xr, dyr) {T: float16, adj_x: true, adj_y: false} -> float16[128, 96]
            dab = Reshape(dv, flat) {T: float16, Tshape: int32} -> float16[128, 96]
            da0 = MatMul(dab, b) {
                T: float16,
                transpose_a: false,
                transpose_b: true,
            } -> float16[128, 4]
            y = Identity(y0) {T: float16} -> float16[?2, ?3, 96]
            da = Identity(da0) {T: float16} -> float16[128, 4]
        "#]],
    );
}

pub(super) fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// One head, whose transpose moves no elements: the factors need none.
#[test]
fn one_head_needs_no_transpose() {
    let one = changed(
        GEMMA,
        &[
            ("[4, 64, 96]", "[1, 64, 96]"),
            ("[64, 4, 96]", "[64, 1, 96]"),
            ("[4, 64, 4]", "[1, 64, 4]"),
            ("[256, ", "[64, "),
            ("384", "96"),
        ],
    );
    let text = after("low_rank", &one);
    assert!(!text.contains("\nsum = ") && !text.contains("low_rank/moved"), "{text}");
}

/// In mixed precision, the copy for the backward pass is converted after its transpose: equal
/// conversions would become one, whose result would be kept.
#[test]
fn weights_of_mixed_precision_are_converted_twice() {
    let lines = GEMMA.lines().filter(|line| !line.contains("sum16 =") && !line.contains("dab ="));
    let text = lines.collect::<Vec<_>>().join("\n").replace("float32", "bfloat16");
    let mixed = changed(
        &text,
        &[
            ("w16 = Placeholder -> bfloat16", "w32 = Placeholder -> float32"),
            (
                "Cast(w16) {DstT: bfloat16, SrcT: bfloat16",
                "Cast(w32) {DstT: bfloat16, SrcT: float32",
            ),
            ("Transpose(sum16, p)", "Transpose(sum, p)"),
            ("MatMul(dab, b)", "MatMul(dflat, b)"),
            ("MatMul(a, dab)", "MatMul(a, dflat)"),
        ],
    );
    let text = after("low_rank", &mixed);
    for line in [
        "moved = Transpose(w, p) {T: bfloat16, Tperm: int32} -> bfloat16[64, 4, 96]",
        "moved/backward = Transpose(w32, p) {T: float32, Tperm: int32} -> float32[64, 4, 96]",
        "v/backward = Reshape(moved/backward, view) {T: float32, Tshape: int32} -> float32[64, \
         384]",
        "w/backward = Cast(v/backward) {DstT: bfloat16, SrcT: float32, Truncate: false} -> \
         bfloat16[64, 384]",
        "dx0 = BatchMatMulV2(dy, w/backward)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// In loops, TensorFlow lets gradients wait for constants.
#[test]
fn the_gradients_wait_for_what_the_gradient_of_the_sum_waits_for() {
    let waits = changed(
        DENSE,
        &[("\n     x = ", "\n     n = NoOp\n     x = "), ("MatMul(x, dy)", "MatMul(x, dy, ^n)")],
    );
    let text = after("low_rank", &waits);
    assert!(text.contains("gradient_a = MatMul(x, sum/low_rank/scaled_1, ^n)"), "{text}");
    assert!(text.contains("gradient_b = MatMul(sum/low_rank/scaled, dy, ^n)"), "{text}");
    // One gradient waits for the other.
    let turns = after("low_rank", &changed(DENSE, &[("MatMul(a, dab)", "MatMul(a, dab, ^da)")]));
    assert!(turns.contains("gradient_b = MatMul(sum/low_rank/scaled, dy, ^da)"), "{turns}");
    assert!(turns.contains("gradient_a = MatMul(x, sum/low_rank/scaled_1)"), "{turns}");
    // Another node waits for the gradient of the sum.
    refuse("low_rank", &changed(&waits, &[("MatMul(a, b)", "MatMul(a, b, ^dw)")]));
}
