//! Rows that a mask lets into a cache.

use expect_test::expect;

use super::{check, refuse};

/// A row that goes into a cache where a mask holds, as KerasHub writes it.
const MASKED: &str = "preserve out
     cache = Placeholder -> bfloat16[1, 24, 2, 64]
     mask = Placeholder -> bool[1, 1, 1, 1]
     row = Placeholder -> bfloat16[1, 1, 2, 64]
     at = Placeholder @CPU:0 -> int32[]
     zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
     begin = Pack(zero, at, zero, zero) {N: 4, T: int32, axis: 0} -> int32[4]
     indices = Pack(zero, at, zero, zero) {N: 4, T: int32, axis: 0} -> int32[4]
     size = Const {dtype: int32, value: tensor int32[4] [1, 1, 2, 64]} -> int32[4]
     old = Slice(cache, begin, size) {Index: int32, T: bfloat16} -> bfloat16[1, 1, 2, 64]
     new = SelectV2(mask, row, old) {T: bfloat16} -> bfloat16[1, 1, 2, 64]
     y = XlaDynamicUpdateSlice(cache, new, indices) {T: bfloat16, Tindices: int32} -> \
                      bfloat16[1, 24, 2, 64]
     out = Identity(y) {T: bfloat16} -> bfloat16[1, 24, 2, 64]";

#[test]
fn a_masked_row_is_one_update() {
    check(
        "caches",
        MASKED,
        &expect![[r#"
        preserve out
        cache = Placeholder -> bfloat16[1, 24, 2, 64]
        mask = Placeholder -> bool[1, 1, 1, 1]
        row = Placeholder -> bfloat16[1, 1, 2, 64]
        at = Placeholder @CPU:0 -> int32[]
        zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
        begin = Pack(zero, at, zero, zero) {N: 4, T: int32, axis: 0} -> int32[4]
        indices = Pack(zero, at, zero, zero) {N: 4, T: int32, axis: 0} -> int32[4]
        size = Const {dtype: int32, value: tensor int32[4] [1, 1, 2, 64]} -> int32[4]
        old = Slice(cache, begin, size) {Index: int32, T: bfloat16} -> bfloat16[1, 1, 2, 64]
        y = _WgpuMaskedUpdateSlice(cache, mask, row, begin) {
            T: bfloat16,
        } -> bfloat16[1, 24, 2, 64]
        out = Identity(y) {T: bfloat16} -> bfloat16[1, 24, 2, 64]
    "#]],
    );
}

#[test]
fn other_rows_stay() {
    for (from, to) in [
        // Another place, another tensor, rows that others read, another shape.
        ("indices = Pack(zero, at", "indices = Pack(at, zero"),
        ("Slice(cache, begin", "Slice(other, begin"),
        ("preserve out", "preserve out, new"),
        ("preserve out", "preserve out, old"),
        ("row = Placeholder -> bfloat16[1, 1, 2, 64]", "row = Placeholder -> bfloat16[1, 1, 2, 1]"),
        ("SelectV2(mask, row, old)", "SelectV2(mask, old, row)"),
        ("SelectV2(mask, row, old)", "SelectV2(mask, row, old, ^at)"),
    ] {
        assert!(MASKED.contains(from), "{from}");
        let other = "\n     other = Placeholder -> bfloat16[1, 24, 2, 64]\n     mask";
        refuse("caches", &MASKED.replacen("\n     mask", other, 1).replace(from, to));
    }
}
