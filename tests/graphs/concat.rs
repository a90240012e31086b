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
                    "s3 = AddV2<float32>(s1, s0); "
                    "return s2, s3",
                interleaved: false,
                parts: [-2, -1, -3, -1],
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
            y/fused = _WgpuFusedConcat(x) {
                T: float16,
                T_in: [float16],
                axis: -1,
                constants: [2.0],
                expression:
                    "x: float16; "
                    "c: 1; "
                    "s0 = Neg<float16>(x0); "
                    "s1 = Mul<float16>(s0, c0); "
                    "return s1, x0",
                interleaved: false,
                parts: [-3],
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
    assert!(after.contains("parts: [-2, -1, -3, -1]} -> float32[?1, 4, 1, 8]"), "{after}");
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
    assert!(after.contains("parts: [-2, -1, -3, -1]") && !after.contains("Slice"), "{after}");
    for (from, to) in [("[0, 0, 0, 4]", "[0, 0, 0, 3]"), ("[0, 0, 0, 4]", "[0, 1, 0, 4]")] {
        let after = super::after("concat", &text.replace(from, to));
        assert!(after.contains("parts: [-2, -1, -1, -1, -3]"), "{after}");
    }
}

/// A rotary embedding as Keras's layers write it: the halves are exchanged first, by a stack, and
/// the arithmetic comes after that.
fn exchanged(replaced: &[(&str, &str)]) -> String {
    let text = "preserve out
                x = Placeholder -> bfloat16[?1, 1, 4, 6]
                cos = Placeholder -> bfloat16[1, 1, 6]
                sin = Placeholder -> bfloat16[1, 1, 6]
                scale = Const {dtype: bfloat16, value: tensor bfloat16[] [0.5]} -> bfloat16[]
                d = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
                shape = Placeholder @CPU:0 -> int32[4]
                s = Split(d, x) {T: bfloat16, num_split: 2} -> bfloat16[?1, 1, 4, 3], \
                bfloat16[?1, 1, 4, 3]
                n = Neg(s:1) {T: bfloat16} -> bfloat16[?1, 1, 4, 3]
                p = Pack(n, s) {N: 2, T: bfloat16, axis: -2} -> bfloat16[?1, 1, 4, 2, 3]
                r = Reshape(p, shape) {T: bfloat16, Tshape: int32} -> bfloat16[?1, 1, 4, 6]
                a = Mul(x, cos) {T: bfloat16} -> bfloat16[?1, 1, 4, 6]
                b = Mul(r, sin) {T: bfloat16} -> bfloat16[?1, 1, 4, 6]
                c = AddV2(a, b) {T: bfloat16} -> bfloat16[?1, 1, 4, 6]
                y = Mul(c, scale) {T: bfloat16} -> bfloat16[?1, 1, 4, 6]
                out = Custom(y)";
    replaced.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn halves_are_exchanged_where_they_are_read() {
    check(
        "concat",
        &exchanged(&[]),
        &expect![[r#"
            preserve out
            x = Placeholder -> bfloat16[?1, 1, 4, 6]
            cos = Placeholder -> bfloat16[1, 1, 6]
            sin = Placeholder -> bfloat16[1, 1, 6]
            scale = Const {dtype: bfloat16, value: tensor bfloat16[] [0.5]} -> bfloat16[]
            d = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            shape = Placeholder @CPU:0 -> int32[4]
            out = Custom(y/fused)
            y/fused = _WgpuFusedConcat(x, cos, x, sin) {
                T: bfloat16,
                T_in: [bfloat16, bfloat16, bfloat16, bfloat16],
                axis: -1,
                constants: [0.5],
                expression:
                    "x: bfloat16, bfloat16, bfloat16, bfloat16; "
                    "c: 1; "
                    "s0 = Mul<bfloat16>(x0, x1); "
                    "s1 = Neg<bfloat16>(x2); "
                    "s2 = Mul<bfloat16>(s1, x3); "
                    "s3 = AddV2<bfloat16>(s0, s2); "
                    "s4 = Mul<bfloat16>(s3, c0); "
                    "s5 = Mul<bfloat16>(x2, x3); "
                    "s6 = AddV2<bfloat16>(s0, s5); "
                    "s7 = Mul<bfloat16>(s6, c0); "
                    "return s4, s7",
                interleaved: false,
                parts: [-2, -2, -3, -2],
            } -> bfloat16[?1, 1, 4, 6]
        "#]],
    );
}

/// The same node, by other ways to take halves and to join them.
#[test]
fn halves_in_every_notation() {
    let whole = super::after("concat", &exchanged(&[]));
    let node = |text: &str| {
        let found = text.lines().find(|line| line.contains("_WgpuFusedConcat"));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    const SPLIT: &str = "s = Split(d, x) {T: bfloat16, num_split: 2}";
    const STACK: &str = "p = Pack(n, s) {N: 2, T: bfloat16, axis: -2} -> bfloat16[?1, 1, 4, 2, 3]";
    const JOIN: &str = "r = Reshape(p, shape) {T: bfloat16, Tshape: int32}";
    const SIZES: &str = "z = Const {dtype: int32, value: tensor int32[2] [3, 3]} -> int32[2]
                         s = SplitV(x, z, d) {T: bfloat16, Tlen: int32, num_split: 2}";
    const CONCAT: &str = "r = ConcatV2(n, s, d) {N: 2, T: bfloat16, Tidx: int32}";
    for replaced in
        [&[(STACK, ""), (JOIN, CONCAT)][..], &[(SPLIT, SIZES)], &[("axis: -2", "axis: 3")]]
    {
        let after = super::after("concat", &exchanged(replaced));
        assert_eq!(node(&after), node(&whole), "{after}");
    }
    // `x[..., :3]` and `x[..., 3:]`, and `x[..., ::2]` and `x[..., 1::2]` stacked at the end.
    let slices = |low: &str, high: &str, step: &str| {
        let strided = |name: &str, begin: &str, end: i32| {
            format!(
                "{name}b = Const {{dtype: int32, value: tensor int32[2] [0, {begin}]}} -> int32[2]
                 {name}e = Const {{dtype: int32, value: tensor int32[2] [0, {end}]}} -> int32[2]
                 {name} = StridedSlice(x, {name}b, {name}e, step) {{T: bfloat16, Index: int32, \
                 begin_mask: 0, end_mask: {}, ellipsis_mask: 1}} -> bfloat16[?1, 1, 4, 3]",
                if end == 0 { 2 } else { 0 }
            )
        };
        let ends = if step == "1" { [3, 0] } else { [0, 0] };
        format!(
            "step = Const {{dtype: int32, value: tensor int32[2] [1, {step}]}} -> int32[2]
             {}
             {}",
            strided("s", low, ends[0]),
            strided("h", high, ends[1])
        )
    };
    const HALVES: &str = "s = Split(d, x) {T: bfloat16, num_split: 2} -> bfloat16[?1, 1, 4, 3], \
                          bfloat16[?1, 1, 4, 3]";
    let blocks = exchanged(&[(HALVES, &slices("0", "3", "1")), ("s:1", "h")]);
    assert_eq!(node(&super::after("concat", &blocks)), node(&whole));
    let turns = exchanged(&[
        (HALVES, &slices("0", "1", "2")),
        ("s:1", "h"),
        ("axis: -2} -> bfloat16[?1, 1, 4, 2, 3]", "axis: -1} -> bfloat16[?1, 1, 4, 3, 2]"),
    ]);
    let after = node(&super::after("concat", &turns));
    let blocks = after.replace("interleaved: true", "interleaved: false");
    assert_eq!(blocks, node(&whole), "{after}");
    assert_ne!(blocks, after);
    // Every second element in a join of blocks is a tensor of its own.
    let mixed = exchanged(&[(HALVES, &slices("0", "1", "2")), ("s:1", "h")]);
    let after = super::after("concat", &mixed);
    assert!(after.contains("= StridedSlice(x, hb") && after.contains("parts: [-1, -1]"), "{after}");
}

/// The gradient of the same: the tensor that is taken apart is an elementwise value, too.
#[test]
fn exchanged_gradients() {
    check(
        "concat",
        "preserve out
         dy = Placeholder -> float32[2, 6]
         cos = Placeholder -> float32[6]
         sin = Placeholder -> float32[1, 6]
         d = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         shape = Const {dtype: int32, value: tensor int32[3] [2, 2, 3]} -> int32[3]
         a = Mul(dy, sin) {T: float32} -> float32[2, 6]
         r = Reshape(a, shape) {T: float32, Tshape: int32} -> float32[2, 2, 3]
         u = Unpack(r) {T: float32, axis: 1, num: 2} -> float32[2, 3], float32[2, 3]
         n = Neg(u) {T: float32} -> float32[2, 3]
         c = ConcatV2(u:1, n, d) {N: 2, T: float32, Tidx: int32} -> float32[2, 6]
         b = Mul(dy, cos) {T: float32} -> float32[2, 6]
         dx = AddV2(b, c) {T: float32} -> float32[2, 6]
         out = Custom(dx)",
        &expect![[r#"
            preserve out
            dy = Placeholder -> float32[2, 6]
            cos = Placeholder -> float32[6]
            sin = Placeholder -> float32[1, 6]
            d = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
            shape = Const {dtype: int32, value: tensor int32[3] [2, 2, 3]} -> int32[3]
            out = Custom(dx/fused)
            dx/fused = _WgpuFusedConcat(dy, cos, dy, sin) {
                T: float32,
                T_in: [float32, float32, float32, float32],
                axis: -1,
                constants: [],
                expression:
                    "x: float32, float32, float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x0, x1); "
                    "s1 = Mul<float32>(x2, x3); "
                    "s2 = AddV2<float32>(s0, s1); "
                    "s3 = Neg<float32>(s1); "
                    "s4 = AddV2<float32>(s0, s3); "
                    "return s2, s4",
                interleaved: false,
                parts: [-2, -2, -3, -3],
            } -> float32[2, 6]
        "#]],
    );
}

/// A loop's body, whose constants wait for the loop.
#[test]
fn exchanged_halves_in_a_loop() {
    let text = "preserve out
         x = Placeholder -> float32[2, 6]
         cos = Placeholder -> float32[6]
         e = Enter(x) {T: float32, frame_name: \"f\", is_constant: false} -> float32[2, 6]
         k = Enter(cos) {T: float32, frame_name: \"f\", is_constant: true} -> float32[6]
         m = Merge(e, next) {N: 2, T: float32} -> float32[2, 6], int32[]
         test = Custom(m) -> bool[]
         more = LoopCond(test) -> bool[]
         w = Switch(m, more) {T: float32} -> float32[2, 6], float32[2, 6]
         i = Identity(w:1) {T: float32} -> float32[2, 6]
         d = Const(^i) {dtype: int32, value: tensor int32[] [1]} -> int32[]
         half = Const(^i) {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
         s = Split(d, i) {T: float32, num_split: 2} -> float32[2, 3], float32[2, 3]
         n = Neg(s:1) {T: float32} -> float32[2, 3]
         c = ConcatV2(n, s, d) {N: 2, T: float32, Tidx: int32} -> float32[2, 6]
         a = Mul(c, k) {T: float32} -> float32[2, 6]
         b = Mul(a, half) {T: float32} -> float32[2, 6]
         next = NextIteration(b) {T: float32} -> float32[2, 6]
         last = Exit(w) {T: float32} -> float32[2, 6]
         out = Custom(last)";
    let after = super::after("concat", text);
    assert!(after.contains("b/fused = _WgpuFusedConcat(i, k, ^i)"), "{after}");
    assert!(after.contains("next = NextIteration(b/fused)"), "{after}");
}

/// Where nodes behind the exchange cannot follow, the exchange is a node without them.
#[test]
fn exchanges_alone() {
    for replaced in [
        // Others read the exchanged halves, or wait for them; a node behind them waits.
        &[("Custom(y)", "Custom(y, r)")][..],
        &[("Custom(y)", "Custom(y, ^r)")],
        &[("Mul(r, sin)", "Mul(r, sin, ^x)")],
        // The next node has another shape.
        &[("sin = Placeholder -> bfloat16[1, 1, 6]", "sin = Placeholder -> bfloat16[?2, 1, 6]")],
        &[(
            "Mul(r, sin) {T: bfloat16} -> bfloat16[?1, ",
            "Mul(r, sin) {T: bfloat16} -> bfloat16[?, ",
        )],
    ] {
        let after = super::after("concat", &exchanged(replaced));
        assert!(after.contains("r/fused = _WgpuFusedConcat(x) {"), "{after}");
        assert!(after.contains("b = Mul(r/fused, sin"), "{after}");
    }
    // A value behind them that must keep its name, or that others read, is the last.
    for (preserved, read) in [("out, c", "y"), ("out", "y, b")] {
        let text = exchanged(&[("preserve out", &format!("preserve {preserved}"))])
            .replace("Custom(y)", &format!("Custom({read})"));
        let after = super::after("concat", &text);
        assert!(after.contains("b/fused = _WgpuFusedConcat(x, sin)"), "{after}");
    }
    // One node binds six operands.
    let more: String = (0..4)
        .map(|k| {
            let last = if k == 0 { "c".to_owned() } else { format!("m{}", k - 1) };
            format!(
                "t{k} = Placeholder -> bfloat16[1, 1, 6]
                 m{k} = Mul({last}, t{k}) {{T: bfloat16}} -> bfloat16[?1, 1, 4, 6]
                 "
            )
        })
        .collect();
    let text = exchanged(&[("y = Mul(c, ", &format!("{more}y = Mul(m3, "))]);
    let after = super::after("concat", &text);
    assert!(after.contains("m1/fused = _WgpuFusedConcat("), "{after}");
}

/// Nodes that other nodes read as well stay, and are read where nothing is lost.
#[test]
fn halves_that_others_read_stay() {
    let after = super::after("concat", &exchanged(&[("Custom(y)", "Custom(y, s:1, n)")]));
    assert!(after.contains("n = Neg(s:1)"), "{after}");
    let after = super::after("concat", &exchanged(&[("Custom(y)", "Custom(y, s:1)")]));
    assert!(after.contains("s = Split(d, x)") && after.contains("= _WgpuFusedConcat(x, cos"));
}

#[test]
fn stacks_that_exchange_nothing_stay() {
    for replaced in [
        // Others read the stack, or it waits, or keeps its name.
        &[("Custom(y)", "Custom(y, p)")][..],
        &[("Pack(n, s)", "Pack(n, s, ^x)")],
        &[("preserve out", "preserve out, p")],
        &[("Reshape(p, shape)", "Reshape(p, shape, ^x)")],
        // The elements come into another order, or into another shape.
        &[("axis: -2} -> bfloat16[?1, 1, 4, 2, 3]", "axis: 0} -> bfloat16[2, ?1, 1, 4, 3]")],
        &[(
            "{T: bfloat16, Tshape: int32} -> bfloat16[?1, ",
            "{T: bfloat16, Tshape: int32} -> bfloat16[?2, ",
        )],
        &[("bfloat16[?1, 1, 4, 6]", "bfloat16[?1, 1, 4, ?]")],
        // On another device.
        &[("Tshape: int32} ->", "Tshape: int32} @CPU:0 ->")],
    ] {
        refuse("concat", &exchanged(replaced));
    }
    // Halves of several sizes are tensors of their own.
    let uneven = exchanged(&[
        (
            "s = Split(d, x) {T: bfloat16, num_split: 2} -> bfloat16[?1, 1, 4, 3], \
                          bfloat16[?1, 1, 4, 3]",
            "z = Const {dtype: int32, value: tensor int32[2] [3, 4]} -> int32[2]
             s = SplitV(w, z, d) {T: bfloat16, Tlen: int32, num_split: 2} -> \
             bfloat16[?1, 1, 4, 3], bfloat16[?1, 1, 4, 4]",
        ),
        (
            "d = Const",
            "w = Placeholder -> bfloat16[?1, 1, 4, 7]
         d = Const",
        ),
        ("Pack(n, s)", "Pack(n, s:1)"),
    ]);
    refuse("concat", &uneven);
}
