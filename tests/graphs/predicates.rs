//! Conditions of loops that stay in host memory.

use expect_test::expect;

use super::{check, refuse};

/// A loop's condition as in Keras's recurrent layers.
const CONDITION: &str = "i = Placeholder -> int32[]
     n = Placeholder -> int32[]
     a = Less(i, n) {T: int32}
     b = Less(i, n) {T: int32}";

#[test]
fn conditions_of_a_loop_are_computed_on_the_host() {
    check(
        "predicates",
        &format!(
            "{CONDITION}\n d = LogicalNot(b)\n c = LogicalAnd(a, d)\n e = LogicalOr(c, a)\n l = \
             LoopCond(e)"
        ),
        &expect![[r#"
            i = Placeholder -> int32[]
            n = Placeholder -> int32[]
            a = Less(i, n) {T: int32}
            b = Less(i, n) {T: int32}
            d = _WgpuHostLogicalNot(b)
            c = _WgpuHostLogicalAnd(a, d)
            e = _WgpuHostLogicalOr(c, a)
            l = LoopCond(e)
        "#]],
    );
}

#[test]
fn conditions_of_branches_too() {
    check(
        "predicates",
        &format!(
            "preserve y\n{CONDITION}\n c = LogicalAnd(a, b)\n p = Switch(c, c) {{T: bool}}\n y = \
             Identity(p:1) {{T: bool}}"
        ),
        &expect![[r#"
            preserve y
            i = Placeholder -> int32[]
            n = Placeholder -> int32[]
            a = Less(i, n) {T: int32}
            b = Less(i, n) {T: int32}
            c = _WgpuHostLogicalAnd(a, b)
            p = Switch(c, c) {T: bool}
            y = Identity(p:1) {T: bool}
        "#]],
    );
}

#[test]
fn values_that_the_device_makes_or_reads_stay() {
    // A bool that the device computes.
    refuse(
        "predicates",
        &format!(
            "{CONDITION}\n f = Placeholder -> bool[]\n c = LogicalAnd(a, f)\n l = LoopCond(c)"
        ),
    );
    // A comparison on the device.
    refuse(
        "predicates",
        "x = Placeholder -> float32[]\n a = Less(x, x) {T: float32}\n c = LogicalAnd(a, a)\n l = \
         LoopCond(c)",
    );
    // All readers on the device, also those of the node that reads it.
    refuse(
        "predicates",
        &format!(
            "preserve y\n{CONDITION}\n c = LogicalAnd(a, b)\n d = LogicalOr(c, a)\n y = Cast(d) \
             {{SrcT: bool, DstT: float32}}"
        ),
    );
    // It is fetched by its name, or has no readers.
    refuse(
        "predicates",
        &format!("preserve c\n{CONDITION}\n c = LogicalAnd(a, b)\n l = LoopCond(c)"),
    );
    refuse("predicates", &format!("{CONDITION}\n c = LogicalAnd(a, b)"));
}
