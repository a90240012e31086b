//! Concatenations of elementwise values.

use expect_test::expect;

use super::{check, refuse};

/// A rotary embedding of heads, with other nodes in place of some of its own.
fn rotary(replaced: &[(&str, &str)]) -> String {
    let text = "preserve out
                x = Placeholder -> float32[?1, 4, 1, 8]
                cos = Placeholder -> float32[1, 1, 4]
                sin = Placeholder -> float32[1, 1, 4]
                d = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
                e = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
                s = Split(d, x) {T: float32, num_split: 2} -> float32[2, 4, 1, 4], float32[2, 4, \
                1, 4]
                a = Mul(s, cos) {T: float32} -> float32[2, 4, 1, 4]
                b = Mul(s:1, sin) {T: float32} -> float32[2, 4, 1, 4]
                p = Sub(a, b) {T: float32} -> float32[2, 4, 1, 4]
                f = Mul(s, sin) {T: float32} -> float32[2, 4, 1, 4]
                g = Mul(s:1, cos) {T: float32} -> float32[2, 4, 1, 4]
                q = AddV2(f, g) {T: float32} -> float32[2, 4, 1, 4]
                y = ConcatV2(p, q, e) {N: 2, T: float32, Tidx: int32} -> float32[2, 4, 1, 8]
                out = Custom(y)"
        .replace("?1", "2");
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn halves_that_are_turned_are_read_where_they_are() {
    check(
        "concat",
        &rotary(&[]),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[2, 4, 1, 8]
            cos = Placeholder -> float32[1, 1, 4]
            sin = Placeholder -> float32[1, 1, 4]
            d = Const {dtype: int32, value: tensor int32[] [3]} -> int32[]
            e = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            out = Custom(y/fused)
            y/fused = _WgpuFusedConcat(x, cos, x, sin) {
                T: float32,
                T_in: [float32, float32, float32, float32],
                axis: -1,
                constants: [],
                expression:
                    "x: float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Mul<float32>(x2, x3); "
                    "s2 = Sub<float32>(s0, s1); "
                    "s3 = Mul<float32>(x0, x3); "
                    "s4 = Mul<float32>(x2, x1); "
                    "s5 = AddV2<float32>(s3, s4); "
                    "return s2, s5",
                parts: [0, -1, 1, -1],
            } -> float32[2, 4, 1, 8]
        "#]],
    );
}

#[test]
fn half_a_rotation() {
    check(
        "concat",
        "preserve out
         x = Placeholder -> float16[2, 6]
         two = Const {dtype: float16, value: tensor float16[] [2]} -> float16[]
         d = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         s = Split(d, x) {T: float16, num_split: 2} -> float16[2, 3], float16[2, 3]
         n = Neg(s:1) {T: float16} -> float16[2, 3]
         m = Mul(n, two) {T: float16} -> float16[2, 3]
         y = ConcatV2(m, s, d) {N: 2, T: float16, Tidx: int32} -> float16[2, 6]
         out = Custom(y, s:1)",
        &expect![[r#"
            preserve out
            x = Placeholder -> float16[2, 6]
            two = Const {dtype: float16, value: tensor float16[] [2.0]} -> float16[]
            d = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
            s = Split(d, x) {T: float16, num_split: 2} -> float16[2, 3], float16[2, 3]
            out = Custom(y/fused, s:1)
            y/fused = _WgpuFusedConcat(x, x) {
                T: float16,
                T_in: [float16, float16],
                axis: -1,
                constants: [2.0],
                expression:
                    "x: float16, float16; "
                    "c: 1; "
                    "s0 = Neg<float16>(x0); "
                    "s1 = Mul<float16>(s0, c0); "
                    "return s1, x1",
                parts: [1, 0],
            } -> float16[2, 6]
        "#]],
    );
}

/// A value with other readers is stored in any case, and so is a value that is larger than a part.
#[test]
fn values_with_other_readers_are_no_members() {
    let after = super::after("concat", &rotary(&[("Custom(y)", "Custom(y, b)")]));
    assert!(after.contains("b = Mul(s:1, sin)"), "{after}");
    assert!(after.contains("= _WgpuFusedConcat("), "{after}");
}

#[test]
fn other_concatenations_stay() {
    for replaced in [
        // Nothing is computed.
        &[("ConcatV2(p, q, e)", "ConcatV2(s, s:1, e)")][..],
        // Of an unknown axis, of parts of several extents, of integers.
        &[("value: tensor int32[] [-1]", "value: tensor int32[2] [-1, 0]")],
        &[("ConcatV2(p, q, e)", "ConcatV2(p, x, e)")],
        // The parts or the result wait for another node.
        &[("ConcatV2(p, q, e)", "ConcatV2(p, q, e, ^x)")],
        // Elsewhere.
        &[("-> float32[2, 4, 1, 8]\n                out", "@CPU:0 -> float32[2, 4, 1, 8]\nout")],
    ] {
        refuse("concat", &rotary(replaced));
    }
    // Split along another axis: the halves are read as tensors of their own.
    let after = super::after(
        "concat",
        &rotary(&[("value: tensor int32[] [3]", "value: tensor int32[] [0]")]),
    );
    assert!(after.contains("parts: [-1, -1, -1, -1]"), "{after}");
}

/// The batch may be of unknown size, if all parts surely have the same one.
#[test]
fn halves_of_an_unknown_batch() {
    let text = rotary(&[]);
    let symbolic = |extent: &str| {
        let unknown = text.replace("float32[2, ", "float32[?1, ");
        unknown.replace(
            "y = ConcatV2(p, q, e) {N: 2, T: float32, Tidx: int32} -> float32[?1, ",
            &format!(
                "y = ConcatV2(p, q, e) {{N: 2, T: float32, Tidx: int32}} -> float32[{extent}, "
            ),
        )
    };
    let after = super::after("concat", &symbolic("?1"));
    assert!(after.contains("y/fused = _WgpuFusedConcat(x, cos, x, sin)"), "{after}");
    assert!(after.contains("parts: [0, -1, 1, -1]} -> float32[?1, 4, 1, 8]"), "{after}");
    // If the extent may be split differently, the halves are read as they are.
    let after = super::after("concat", &symbolic("?2"));
    assert!(after.contains("parts: [-1, -1, -1, -1]"), "{after}");
    refuse("concat", &text.replace("float32[2, ", "float32[?, "));
}

/// The gradient of a concatenation takes parts by `Slice`.
#[test]
fn slices_are_parts() {
    let slices = [
        (
            "s = Split(d, x) {T: float32, num_split: 2} -> float32[2, 4, 1, 4], float32[2, 4, 1, \
             4]",
            "o = Const {dtype: int32, value: tensor int32[4] [0, 0, 0, 0]} -> int32[4]
                h = Const {dtype: int32, value: tensor int32[4] [0, 0, 0, 4]} -> int32[4]
                z = Const {dtype: int32, value: tensor int32[4] [2, -1, 1, 4]} -> int32[4]
                s = Slice(x, o, z) {T: float32, Index: int32} -> float32[2, 4, 1, 4]
                r = Slice(x, h, z) {T: float32, Index: int32} -> float32[2, 4, 1, 4]",
        ),
        ("Mul(s:1, sin)", "Mul(r, sin)"),
        ("Mul(s:1, cos)", "Mul(r, cos)"),
    ];
    let text = rotary(&slices);
    let after = super::after("concat", &text);
    assert!(after.contains("parts: [0, -1, 1, -1]") && !after.contains("Slice"), "{after}");
    for (from, to) in [("[0, 0, 0, 4]", "[0, 0, 0, 3]"), ("[0, 0, 0, 4]", "[0, 1, 0, 4]")] {
        let after = super::after("concat", &text.replace(from, to));
        assert!(after.contains("parts: [0, -1, -1, -1]"), "{after}");
    }
}
