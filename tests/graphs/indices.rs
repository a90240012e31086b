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
