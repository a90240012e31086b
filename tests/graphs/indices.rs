//! int32 values between two ops of the device, such as indices that Keras compares and adds.

use expect_test::expect;

use super::{check, refuse};

/// The indices of Keras's `take`, from floats.
const TAKE: &str = "x = Placeholder -> float32[8]
     t = Placeholder -> float32[100, 4]
     zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
     n = Const {dtype: int32, value: tensor int32[] [100]} -> int32[]
     i = Cast(x) {SrcT: float32, DstT: int32, Truncate: false} -> int32[8]
     l = Less(i, zero) {T: int32} -> bool[8]
     s = AddV2(i, n) {T: int32} -> int32[8]
     k = SelectV2(l, s, i) {T: int32} -> int32[8]";

#[test]
fn indices_are_computed_on_the_device() {
    check(
        "elementwise",
        &format!("preserve y\n{TAKE}\n y = GatherV2(t, k, zero) -> float32[8, 4]"),
        &expect![[r#"
            preserve y
            x = Placeholder -> float32[8]
            t = Placeholder -> float32[100, 4]
            zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
            y = GatherV2(t, k/wgpu_fused, zero) -> float32[8, 4]
            k/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [int32],
                constants: [0.0, 100.0],
                expression:
                    "x: float32; "
                    "c: 2; "
                    "s0 = Cast<float32, int32>(c0); "
                    "s1 = Cast<float32, int32>(c1); "
                    "s2 = Cast<float32, int32>(x0); "
                    "s3 = Less<int32>(s2, s0); "
                    "s4 = AddV2<int32>(s2, s1); "
                    "s5 = SelectV2<int32>(s3, s4, s2); "
                    "return s5",
            } -> int32[8]
        "#]],
    );
}

/// Keras's `argmax` puts negative zeros below positive ones.
const ARGMAX: &str = "x = Placeholder -> bfloat16[8, 100]
     zero = Const {dtype: float32, value: tensor float32[] [0]} -> float32[]
     tiny = Const {dtype: float32, value: tensor float32[] [-1e-38]} -> float32[]
     sign = Const {dtype: int32, value: tensor int32[] [-2147483648]} -> int32[]
     none = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
     one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
     f = Cast(x) {SrcT: bfloat16, DstT: float32, Truncate: false} -> float32[8, 100]
     e = Equal(f, zero) {T: float32} -> bool[8, 100]
     b = Bitcast(f) {T: float32, type: int32} -> int32[8, 100]
     a = BitwiseAnd(b, sign) {T: int32} -> int32[8, 100]
     l = Less(a, none) {T: int32} -> bool[8, 100]
     z = LogicalAnd(e, l) -> bool[8, 100]
     k = SelectV2(z, tiny, f) {T: float32} -> float32[8, 100]
     y = ArgMax(k, one) {T: float32, output_type: int32} -> int32[8]";

#[test]
fn bits_are_read_within_a_group() {
    check(
        "elementwise",
        &format!("preserve y\n{ARGMAX}"),
        &expect![[r#"
        preserve y
        x = Placeholder -> bfloat16[8, 100]
        one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
        y = ArgMax(k/wgpu_fused, one) {T: float32, output_type: int32} -> int32[8]
        k/wgpu_fused = _WgpuFusedElementwise(x) {
            T_in: [bfloat16],
            T_out: [float32],
            constants: [0.0, -2147483600.0, -1e-38],
            expression:
                "x: bfloat16; "
                "c: 3; "
                "s0 = Cast<float32, int32>(c1); "
                "s1 = Cast<float32, int32>(c0); "
                "s2 = Cast<bfloat16, float32>(x0); "
                "s3 = Bitcast<float32, int32>(s2); "
                "s4 = Equal<float32>(s2, c0); "
                "s5 = BitwiseAnd<int32>(s3, s0); "
                "s6 = Less<int32>(s5, s1); "
                "s7 = LogicalAnd<bool>(s4, s6); "
                "s8 = SelectV2<float32>(s7, c2, s2); "
                "return s8",
        } -> float32[8, 100]
    "#]],
    );
}

#[test]
fn an_index_is_found_among_values_that_are_not_stored() {
    check(
        "args",
        "preserve y, z
         x = Placeholder -> float16[?, 100]
         n = Placeholder -> float32[4, 100]
         m = Placeholder -> float32[4, 100]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         f = Cast(x) {SrcT: float16, DstT: float32, Truncate: false} -> float32[?, 100]
         a = ArgMax(f, one) {T: float32, output_type: int64} -> int64[?]
         g = _WgpuFusedElementwise(n, m) {T_in: [float32, float32], T_out: [float32], constants: \
         [2.0], expression: \"x: float32, float32; c: 1; s0 = Mul<float32>(x0, c0); s1 = \
         AddV2<float32>(s0, x1); return s1\"} -> float32[4, 100]
         b = ArgMin(g, one) {T: float32, output_type: int32} -> int32[4]
         y = Identity(a) {T: int64} -> int64[?]
         z = Identity(b) {T: int32} -> int32[4]",
        &expect![[r#"
            preserve y, z
            x = Placeholder -> float16[?, 100]
            n = Placeholder -> float32[4, 100]
            m = Placeholder -> float32[4, 100]
            one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
            y = Identity(a/fused_arg) {T: int64} -> int64[?]
            z = Identity(b/fused_arg) {T: int32} -> int32[4]
            b/fused_arg = _WgpuFusedArg(n, m, one) {
                T_in: [float32, float32],
                constants: [2.0],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, c0); "
                    "s1 = AddV2<float32>(s0, x1); "
                    "return s1",
                output_type: int32,
                reduction: "ArgMin",
            } -> int32[4]
            a/fused_arg = _WgpuFusedArg(x, one) {
                T_in: [float16],
                constants: [],
                expression:
                    "x: float16; "
                    "c: 0; "
                    "s0 = Cast<float16, float32>(x0); "
                    "return s0",
                output_type: int64,
                reduction: "ArgMax",
            } -> int64[?]
        "#]],
    );
}

/// The values of an index are one output of several. The node keeps the others, and the index is
/// found among values that are computed from them.
#[test]
fn an_index_reads_the_other_outputs_of_the_node_that_makes_its_values() {
    let text = "preserve y, z
         x = Placeholder -> bfloat16[?0, 100]
         s = Placeholder -> bfloat16[100]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         g = _WgpuFusedElementwise(x, s) {T_in: [bfloat16, bfloat16], T_out: [bfloat16, float32], \
         constants: [2.0, 3.0], expression: \"x: bfloat16, bfloat16; c: 2; s0 = \
         Mul<bfloat16>(x0, x1); s1 = Cast<bfloat16, float32>(s0); s2 = Mul<float32>(s1, c1); \
         return s0, s2\"} -> bfloat16[?0, 100], float32[?0, 100]
         i = ArgMax(g:1, one) {T: float32, output_type: int32} -> int32[?0]
         y = Identity(i) {T: int32} -> int32[?0]
         z = Identity(g) {T: bfloat16} -> bfloat16[?0, 100]";
    check(
        "args",
        text,
        &expect![[r#"
        preserve y, z
        x = Placeholder -> bfloat16[?0, 100]
        s = Placeholder -> bfloat16[100]
        one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
        y = Identity(i/fused_arg) {T: int32} -> int32[?0]
        z = Identity(g/rest) {T: bfloat16} -> bfloat16[?0, 100]
        i/fused_arg = _WgpuFusedArg(g/rest, one) {
            T_in: [bfloat16],
            constants: [3.0],
            expression:
                "x: bfloat16; "
                "c: 1; "
                "s0 = Cast<bfloat16, float32>(x0); "
                "s1 = Mul<float32>(s0, c0); "
                "return s1",
            output_type: int32,
            reduction: "ArgMax",
        } -> int32[?0]
        g/rest = _WgpuFusedElementwise(x, s) {
            T_in: [bfloat16, bfloat16],
            T_out: [bfloat16],
            constants: [2.0, 3.0],
            expression:
                "x: bfloat16, bfloat16; "
                "c: 2; "
                "s0 = Mul<bfloat16>(x0, x1); "
                "return s0",
        } -> bfloat16[?0, 100]
    "#]],
    );
    // The other output does not tell the shape.
    refuse("args", &text.replace("return s0, s2", "return x1, s2"));
}

/// Another node reads the values, or they broadcast: an output of the fused node would be stored
/// anyway, and a small tensor is read once.
#[test]
fn values_that_are_stored_or_broadcast_stay() {
    refuse(
        "args",
        "preserve y, z
         x = Placeholder -> float32[8, 100]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         f = Exp(x) {T: float32} -> float32[8, 100]
         i = ArgMax(f, one) {T: float32, output_type: int32} -> int32[8]
         y = Identity(i) {T: int32} -> int32[8]
         z = Neg(f) {T: float32} -> float32[8, 100]",
    );
    refuse(
        "args",
        "preserve y
         x = Placeholder -> float32[8, 100]
         b = Placeholder -> float32[100]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         f = AddV2(x, b) {T: float32} -> float32[8, 100]
         i = ArgMax(f, one) {T: float32, output_type: int32} -> int32[8]
         y = Identity(i) {T: int32} -> int32[8]",
    );
}

/// A node that waits for the values, and for which the index waits, would be on both sides.
#[test]
fn a_node_between_the_values_and_the_index_divides_them() {
    refuse(
        "args",
        "preserve y, z
         x = Placeholder -> float32[8, 100]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         f = Exp(x) {T: float32} -> float32[8, 100]
         z = Print(x, x, ^f) {T: float32, U: [float32], message: \"m\"} -> float32[8, 100]
         i = ArgMax(f, one, ^z) {T: float32, output_type: int32} -> int32[8]
         y = Identity(i) {T: int32} -> int32[8]",
    );
}

/// It would be a second copy of a tensor: a `Bitcast` gives the memory of its input another name.
#[test]
fn a_bitcast_at_the_end_of_a_group_stays() {
    refuse(
        "elementwise",
        "preserve y, z
         x = Placeholder -> float32[8]
         y = Exp(x) {T: float32} -> float32[8]
         z = Bitcast(y) {T: float32, type: uint32} -> uint32[8]",
    );
    check(
        "elementwise",
        "preserve b, w
         x = Placeholder -> float32[8]
         y = Exp(x) {T: float32} -> float32[8]
         z = Neg(y) {T: float32} -> float32[8]
         u = Bitcast(z) {T: float32, type: uint32} -> uint32[8]
         w = Reshape(z, x) {T: float32} -> float32[2, 4]
         b = Identity(u) {T: uint32} -> uint32[8]",
        &expect![[r#"
            preserve b, w
            x = Placeholder -> float32[8]
            u = Bitcast(z/wgpu_fused) {T: float32, type: uint32} -> uint32[8]
            w = Reshape(z/wgpu_fused, x) {T: float32} -> float32[2, 4]
            b = Identity(u) {T: uint32} -> uint32[8]
            z/wgpu_fused = _WgpuFusedElementwise(x) {
                T_in: [float32],
                T_out: [float32],
                constants: [],
                expression:
                    "x: float32; "
                    "c: 0; "
                    "s0 = Exp<float32>(x0); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[8]
        "#]],
    );
}

/// One node would compute on the host, between two that do not.
#[test]
fn a_single_node_too() {
    check(
        "elementwise",
        "preserve y
         x = Placeholder -> float32[8, 10]
         t = Placeholder -> float32[100, 4]
         one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
         i = ArgMax(x, one) {T: float32, output_type: int32} -> int32[8]
         s = AddV2(i, one) {T: int32} -> int32[8]
         y = OneHot(s, one, x, x) {T: float32} -> float32[8, 4]",
        &expect![[r#"
            preserve y
            x = Placeholder -> float32[8, 10]
            t = Placeholder -> float32[100, 4]
            one = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
            i = ArgMax(x, one) {T: float32, output_type: int32} -> int32[8]
            y = OneHot(s/wgpu_fused, one, x, x) {T: float32} -> float32[8, 4]
            s/wgpu_fused = _WgpuFusedElementwise(i) {
                T_in: [int32],
                T_out: [int32],
                constants: [1.0],
                expression:
                    "x: int32; "
                    "c: 1; "
                    "s0 = Cast<float32, int32>(c0); "
                    "s1 = AddV2<int32>(x0, s0); "
                    "return s1",
            } -> int32[8]
        "#]],
    );
}

#[test]
fn int32_that_the_host_makes_or_needs_stays_there() {
    for (indices, reader) in [
        // A shape.
        ("Cast(x) {SrcT: float32, DstT: int32, Truncate: false} -> int32[8]", "Reshape(x, s)"),
        // A reader on another device, and a function that is called.
        (
            "Cast(x) {SrcT: float32, DstT: int32, Truncate: false} -> int32[8]",
            "GatherV2(x, s, one) @CPU:0",
        ),
        ("Cast(x) {SrcT: float32, DstT: int32, Truncate: false} -> int32[8]", "Custom(s)"),
        // Values of the host.
        ("Placeholder -> int32[8]", "GatherV2(x, s, one)"),
        ("Shape(x) {T: float32, out_type: int32} -> int32[1]", "GatherV2(x, s, one)"),
    ] {
        refuse(
            "elementwise",
            &format!(
                "preserve y\nx = Placeholder -> float32[8]\none = Const {{dtype: int32, value: \
                 tensor int32[] [1]}} -> int32[]\ni = {indices}\ns = AddV2(i, one) {{T: int32}} \
                 -> int32[8]\ny = {reader}"
            ),
        );
    }
}
