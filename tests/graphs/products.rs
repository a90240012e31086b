//! Products that several nodes spell out.

use expect_test::expect;

use super::{check, refuse};

#[test]
fn products_that_are_summed_over_their_batch_are_one() {
    check(
        "products",
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
            p = BatchMatMulV2(x/rows, y/rows) {T: float32, adj_x: true, adj_y: false} -> float32[3, 5]
            q = BatchMatMulV2(x/rows, z/rows) {T: float32, adj_x: true, adj_y: false} -> float32[3, 4]
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
        refuse("products", &text);
    }
}
