//! Values that gradients recompute.

use expect_test::expect;

use super::{check, refuse};

/// A GELU and its gradient, as TensorFlow writes them.
const GELU: &str = "preserve y, dx
    x = Placeholder -> float32[4, 8]
    w = Placeholder -> float32[8, 6]
    v = Placeholder -> float32[6, 5]
    g = Cumsum(y) -> float32[4, 5]
    half = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
    root = Const {dtype: float32, value: tensor float32[] [0.7]} -> float32[]
    h = MatMul(x, w) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 6]
    minus = Neg(h) {T: float32} -> float32[4, 6]
    arg = Mul(root, minus) {T: float32} -> float32[4, 6]
    cdf = Erfc(arg) {T: float32} -> float32[4, 6]
    part = Mul(h, half) {T: float32} -> float32[4, 6]
    z = Mul(part, cdf) {T: float32} -> float32[4, 6]
    y = MatMul(z, v) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 5]
    s = Square(arg) {T: float32} -> float32[4, 6]
    e = Exp(s) {T: float32} -> float32[4, 6]
    dz = MatMul(g, v) {T: float32, transpose_a: false, transpose_b: true} -> float32[4, 6]
    d1 = Mul(dz, cdf) {T: float32} -> float32[4, 6]
    d2 = Mul(dz, part) {T: float32} -> float32[4, 6]
    d3 = Mul(d2, e) {T: float32} -> float32[4, 6]
    dx = AddV2(d1, d3) {T: float32} -> float32[4, 6]";

#[test]
fn a_gradient_computes_again_what_follows_from_a_stored_tensor() {
    check(
        "recompute",
        GELU,
        &expect![[r#"
            preserve dx, y
            x = Placeholder -> float32[4, 8]
            w = Placeholder -> float32[8, 6]
            v = Placeholder -> float32[6, 5]
            g = Cumsum(y) -> float32[4, 5]
            half = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            root = Const {dtype: float32, value: tensor float32[] [0.699999988079071]} -> float32[]
            h = MatMul(x, w) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 6]
            minus = Neg(h) {T: float32} -> float32[4, 6]
            arg = Mul(root, minus) {T: float32} -> float32[4, 6]
            cdf = Erfc(arg) {T: float32} -> float32[4, 6]
            part = Mul(h, half) {T: float32} -> float32[4, 6]
            z = Mul(part, cdf) {T: float32} -> float32[4, 6]
            y = MatMul(z, v) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 5]
            s = Square(arg/again) {T: float32} -> float32[4, 6]
            e = Exp(s) {T: float32} -> float32[4, 6]
            dz = MatMul(g, v) {T: float32, transpose_a: false, transpose_b: true} -> float32[4, 6]
            d1 = Mul(dz, cdf/again) {T: float32} -> float32[4, 6]
            d2 = Mul(dz, part/again) {T: float32} -> float32[4, 6]
            d3 = Mul(d2, e) {T: float32} -> float32[4, 6]
            dx = AddV2(d1, d3) {T: float32} -> float32[4, 6]
            minus/again = Neg(h) {T: float32} -> float32[4, 6]
            arg/again = Mul(root, minus/again) {T: float32} -> float32[4, 6]
            cdf/again = Erfc(arg/again) {T: float32} -> float32[4, 6]
            part/again = Mul(h, half) {T: float32} -> float32[4, 6]
        "#]],
    );
}

#[test]
fn stored_or_expensive_values_are_not_computed_again() {
    for (from, to) in [
        // A product reads the values: they are stored anyway.
        (
            "dz = ",
            "p = MatMul(cdf, v) {T: float32}\nq = MatMul(part, v) {T: float32}\nr = \
                   MatMul(arg, v) {T: float32}\ndz = ",
        ),
        // Only a part of the graph runs.
        ("half = ", "i = Placeholder -> bool[]\nj = Switch(x, i) {T: float32}\nhalf = "),
    ] {
        let text = GELU.replace(from, to);
        refuse("recompute", &text);
    }
    // They follow from a reduction.
    refuse(
        "recompute",
        "preserve y, dx
         x = Placeholder -> float32[4, 8]
         axes = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
         r = Sum(x, axes) {T: float32, keep_dims: true} -> float32[4, 1]
         q = Rsqrt(r) {T: float32} -> float32[4, 1]
         z = Mul(x, q) {T: float32} -> float32[4, 8]
         y = MatMul(z, x) {T: float32, transpose_a: false, transpose_b: true} -> float32[4, 4]
         g = Cumsum(y) -> float32[4, 4]
         dx = Mul(g, q) {T: float32} -> float32[4, 4]",
    );
}

/// As in the gradient of a gradient: the copy for the first reader cannot serve the second one.
#[test]
fn readers_at_different_times_have_copies_of_their_own() {
    let after = super::after(
        "recompute",
        "preserve y, t
         x = Placeholder -> float32[4, 4]
         h = MatMul(x, x) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 4]
         p = Exp(h) {T: float32} -> float32[4, 4]
         a = Mul(p, h) {T: float32} -> float32[4, 4]
         y = MatMul(a, x) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 4]
         b = Mul(p, y) {T: float32} -> float32[4, 4]
         q = Exp(p) {T: float32} -> float32[4, 4]
         c = Mul(b, q) {T: float32} -> float32[4, 4]
         z = MatMul(c, x) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 4]
         r = Mul(z, q) {T: float32} -> float32[4, 4]
         s = Mul(r, p) {T: float32} -> float32[4, 4]
         t = MatMul(s, x) {T: float32, transpose_a: false, transpose_b: false} -> float32[4, 4]",
    );
    assert_eq!(after.matches("= Exp(h)").count(), 3, "{after}");
    assert_eq!(after.matches("= Exp(p").count(), 2, "{after}");
}

/// TensorFlow makes gradients wait for the one before them.
#[test]
fn a_gradient_that_waits_reads_what_is_computed_again() {
    let after = super::after("recompute", &GELU.replace("s = Square(arg)", "s = Square(arg, ^d2)"));
    assert!(after.contains("s = Square(arg/again, ^d2)"), "{after}");
    // A node that itself waits is not copied.
    let after = super::after(
        "recompute",
        &GELU.replace("arg = Mul(root, minus)", "arg = Mul(root, minus, ^w)"),
    );
    assert!(after.contains("s = Square(arg)"), "{after}");
}

/// The products of two vectors are recomputed from them, also where one is the result of a
/// reduction; a product of a whole tensor and such a vector is stored.
#[test]
fn products_of_vectors_are_computed_again() {
    let text = "preserve y, dx
        x = Placeholder -> float32[?0, 512]
        scale = Placeholder -> float32[512]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} @CPU:0 -> int32[1]
        row = Max(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[?0, 1]
        both = Mul(row, scale) {T: float32} -> float32[?0, 512]
        z = RealDiv(x, both) {T: float32} -> float32[?0, 512]
        y = Cumsum(z) -> float32[?0, 512]
        g = Softmax(y) {T: float32} -> float32[?0, 512]
        dx = RealDiv(g, both) {T: float32} -> float32[?0, 512]";
    check(
        "recompute",
        text,
        &expect![[r#"
        preserve dx, y
        x = Placeholder -> float32[?0, 512]
        scale = Placeholder -> float32[512]
        axis = Const {dtype: int32, value: tensor int32[1] [1]} @CPU:0 -> int32[1]
        row = Max(x, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[?0, 1]
        both = Mul(row, scale) {T: float32} -> float32[?0, 512]
        z = RealDiv(x, both) {T: float32} -> float32[?0, 512]
        y = Cumsum(z) -> float32[?0, 512]
        g = Softmax(y) {T: float32} -> float32[?0, 512]
        dx = RealDiv(g, both/again) {T: float32} -> float32[?0, 512]
        both/again = Mul(row, scale) {T: float32} -> float32[?0, 512]
    "#]],
    );
    refuse("recompute", &text.replace("Mul(row, scale)", "Mul(row, x)"));
}
