//! Reads that see the same value, and updates of variables.

use expect_test::expect;

use super::{check, refuse};

/// Two variables with the same step, each of which reads its own rate.
const DESCENT: &str = "preserve out
    v = VarHandleOp {dtype: float32, shared_name: \"v\"} -> resource[]
    w = VarHandleOp {dtype: float32, shared_name: \"w\"} -> resource[]
    l = VarHandleOp {dtype: float32, shared_name: \"l\"} -> resource[]
    g = Placeholder {dtype: float32} -> float32[3]
    h = Placeholder {dtype: float32} -> float32[2, 2]
    r = ReadVariableOp(l) {dtype: float32} -> float32[]
    s = ReadVariableOp(l) {dtype: float32} -> float32[]
    a = Mul(g, r) {T: float32} -> float32[3]
    b = Mul(h, s) {T: float32} -> float32[2, 2]
    x = AssignSubVariableOp(v, a) {dtype: float32}
    y = AssignSubVariableOp(w, b) {dtype: float32}
    out = NoOp(^x, ^y, ^r, ^s)";

#[test]
fn reads_of_the_same_value_are_merged_and_what_follows_from_them() {
    check(
        "reads",
        "preserve out
         l = VarHandleOp {dtype: float32, shared_name: \"l\"}
         x = Placeholder {dtype: float32}
         r = ReadVariableOp(l) {dtype: float32}
         s = ReadVariableOp(l) {dtype: float32}
         c = Const {dtype: float32, value: tensor float32[] [0.5]}
         d = Const {dtype: float32, value: tensor float32[] [0.5]}
         e = Const {dtype: float32, value: tensor float32[] [0.25]}
         p = Pow(c, r) {T: float32}
         q = Pow(d, s) {T: float32}
         o = Pow(e, s) {T: float32}
         a = Mul(x, p) {T: float32}
         b = Sub(x, q) {T: float32}
         u = AssignVariableOp(l, o, ^r, ^s) {dtype: float32}
         out = NoOp(^a, ^b, ^u)",
        &expect![[r#"
            preserve out
            l = VarHandleOp {dtype: float32, shared_name: "l"}
            x = Placeholder {dtype: float32}
            s = ReadVariableOp(l) {dtype: float32}
            c = Const {dtype: float32, value: tensor float32[] [0.5]}
            e = Const {dtype: float32, value: tensor float32[] [0.25]}
            p = Pow(c, s) {T: float32}
            o = Pow(e, s) {T: float32}
            a = Mul(x, p) {T: float32}
            b = Sub(x, p) {T: float32}
            u = AssignVariableOp(l, o, ^s) {dtype: float32}
            out = NoOp(^a, ^b, ^u)
        "#]],
    );
}

/// Reads that a function names as its control outputs, and that nothing reads. Outside of functions
/// the value itself may be wanted.
#[test]
fn reads_without_readers_are_no_reads() {
    check(
        "reads",
        "preserve r, s, u, out
         v = _Arg {T: resource, index: 0}
         w = VarHandleOp {dtype: float32, shared_name: \"w\"}
         r = ReadVariableOp(v) {dtype: float32} -> float32[2]
         s = ReadVariableOp(v, ^r) {dtype: float32} -> float32[2]
         t = ReadVariableOp(v, ^s) {dtype: float32} -> float32[2]
         u = ReadVariableOp(w) {dtype: float32} -> float32[2]
         out = Neg(t, ^s) {T: float32} -> float32[2]",
        &expect![[r#"
            preserve out, r, s, u
            v = _Arg {T: resource, index: 0}
            w = VarHandleOp {dtype: float32, shared_name: "w"}
            r = NoOp
            s = NoOp(^r)
            t = ReadVariableOp(v, ^s) {dtype: float32} -> float32[2]
            u = ReadVariableOp(w) {dtype: float32} -> float32[2]
            out = Neg(t, ^s) {T: float32} -> float32[2]
        "#]],
    );
}

#[test]
fn reads_around_a_write_stay_apart() {
    for text in [
        // The second sees what was written in between.
        "preserve out
         l = VarHandleOp {dtype: float32}
         x = Placeholder {dtype: float32}
         r = ReadVariableOp(l) {dtype: float32}
         u = AssignVariableOp(l, x, ^r) {dtype: float32}
         s = ReadVariableOp(l, ^u) {dtype: float32}
         a = Mul(r, s) {T: float32}
         out = NoOp(^a)",
        // The write may come before or after the second.
        "preserve out
         l = VarHandleOp {dtype: float32}
         x = Placeholder {dtype: float32}
         r = ReadVariableOp(l) {dtype: float32}
         s = ReadVariableOp(l) {dtype: float32}
         u = AssignVariableOp(l, x, ^r) {dtype: float32}
         a = Mul(r, s) {T: float32}
         out = NoOp(^a, ^u)",
        // So may anything that a function does.
        "preserve out
         l = VarHandleOp {dtype: float32}
         r = ReadVariableOp(l) {dtype: float32}
         f = StatefulPartitionedCall(l, ^r)
         s = ReadVariableOp(l, ^f) {dtype: float32}
         a = Mul(r, s) {T: float32}
         out = NoOp(^a)",
        // The second runs in a branch only.
        "preserve out
         l = VarHandleOp {dtype: float32}
         p = Placeholder {dtype: bool}
         t = Switch(l, p) {T: resource}
         r = ReadVariableOp(l) {dtype: float32}
         s = ReadVariableOp(t:1) {dtype: float32}
         a = Exp(r) {T: float32}
         b = Log(s) {T: float32}
         out = NoOp(^a, ^b)",
    ] {
        refuse("reads", text);
    }
}

#[test]
fn equal_steps_of_several_variables_become_one() {
    check(
        "reads",
        DESCENT,
        &expect![[r#"
        preserve out
        v = VarHandleOp {dtype: float32, shared_name: "v"} -> resource[]
        w = VarHandleOp {dtype: float32, shared_name: "w"} -> resource[]
        l = VarHandleOp {dtype: float32, shared_name: "l"} -> resource[]
        g = Placeholder {dtype: float32} -> float32[3]
        h = Placeholder {dtype: float32} -> float32[2, 2]
        s = ReadVariableOp(l) {dtype: float32} -> float32[]
        a = Mul(g, s) {T: float32} -> float32[3]
        b = Mul(h, s) {T: float32} -> float32[2, 2]
        x = AssignSubVariableOp(v, a) {dtype: float32}
        y = AssignSubVariableOp(w, b) {dtype: float32}
        out = NoOp(^x, ^y, ^s)
    "#]],
    );
    check(
        "update",
        &DESCENT.replace("b = Mul(h, s)", "b = Mul(h, r)").replace(", ^s", ""),
        &expect![[r#"
            preserve out
            v = VarHandleOp {dtype: float32, shared_name: "v"} -> resource[]
            w = VarHandleOp {dtype: float32, shared_name: "w"} -> resource[]
            l = VarHandleOp {dtype: float32, shared_name: "l"} -> resource[]
            g = Placeholder {dtype: float32} -> float32[3]
            h = Placeholder {dtype: float32} -> float32[2, 2]
            r = ReadVariableOp(l) {dtype: float32} -> float32[]
            s = ReadVariableOp(l) {dtype: float32} -> float32[]
            out = NoOp(^r, ^y/update)
            y/update = _WgpuFusedUpdate(v, w, g, h, r) {
                N: 2,
                NR: 2,
                Tscalars: [float32],
                Ttensors: [float32, float32],
                constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = Mul<float32>(x1, x2); "
                    "s1 = Sub<float32>(x0, s0); "
                    "return s1",
            }
        "#]],
    );
}

#[test]
fn assignments_that_build_on_each_other_become_one() {
    check(
        "update",
        "preserve out
         m = VarHandleOp {dtype: float32, shared_name: \"m\"}
         v = VarHandleOp {dtype: float32, shared_name: \"v\"}
         g = Placeholder {dtype: float32} -> float32[3]
         l = Placeholder {dtype: float32} -> float32[]
         c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
         f = ReadVariableOp(v) {dtype: float32} -> float32[3]
         z = Exp(f) {T: float32} -> float32[3]
         r = ReadVariableOp(m) {dtype: float32} -> float32[3]
         d = Sub(g, r) {T: float32} -> float32[3]
         e = Mul(d, c) {T: float32} -> float32[3]
         x = AssignAddVariableOp(m, e, ^r) {dtype: float32}
         s = ReadVariableOp(m, ^x) {dtype: float32} -> float32[3]
         t = Mul(s, l) {T: float32} -> float32[3]
         y = AssignSubVariableOp(v, t, ^f) {dtype: float32}
         n = ReadVariableOp(v, ^y) {dtype: float32} -> float32[3]
         k = Exp(n) {T: float32} -> float32[3]
         out = NoOp(^y, ^z, ^k, ^s)",
        &expect![[r#"
            preserve out
            m = VarHandleOp {dtype: float32, shared_name: "m"}
            v = VarHandleOp {dtype: float32, shared_name: "v"}
            g = Placeholder {dtype: float32} -> float32[3]
            l = Placeholder {dtype: float32} -> float32[]
            c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
            f = ReadVariableOp(v) {dtype: float32} -> float32[3]
            z = Exp(f) {T: float32} -> float32[3]
            n = ReadVariableOp(v, ^y/update) {dtype: float32} -> float32[3]
            k = Exp(n) {T: float32} -> float32[3]
            out = NoOp(^z, ^k, ^y/update)
            y/update = _WgpuFusedUpdate(m, v, g, l, ^f) {
                N: 1,
                NR: 2,
                Tscalars: [float32],
                Ttensors: [float32],
                constants: [0.5],
                expression:
                    "x: float32, float32, float32, float32; "
                    "c: 1; "
                    "s0 = Sub<float32>(x2, x0); "
                    "s1 = Mul<float32>(s0, c0); "
                    "s2 = AddV2<float32>(x0, s1); "
                    "s3 = Mul<float32>(s2, x3); "
                    "s4 = Sub<float32>(x1, s3); "
                    "return s2, s4",
            }
        "#]],
    );
}

#[test]
fn an_average_is_updated_in_place() {
    check(
        "update",
        "preserve out
         a = VarHandleOp {dtype: float32, shared_name: \"a\"}
         g = Placeholder {dtype: float32} -> float32[3]
         c = Const {dtype: float32, value: tensor float32[] [0.75]} -> float32[]
         r = ReadVariableOp(a) {dtype: float32} -> float32[3]
         d = Mul(r, c) {T: float32} -> float32[3]
         e = AddV2(d, g) {T: float32} -> float32[3]
         x = AssignVariableOp(a, e, ^r) {dtype: float32, validate_shape: true}
         out = NoOp(^x, ^r)",
        &expect![[r#"
            preserve out
            a = VarHandleOp {dtype: float32, shared_name: "a"}
            g = Placeholder {dtype: float32} -> float32[3]
            c = Const {dtype: float32, value: tensor float32[] [0.75]} -> float32[]
            out = NoOp(^x/update)
            x/update = _WgpuFusedUpdate(a, g) {
                N: 1,
                NR: 1,
                Tscalars: [],
                Ttensors: [float32],
                constants: [0.75],
                expression:
                    "x: float32, float32; "
                    "c: 1; "
                    "s0 = Mul<float32>(x0, c0); "
                    "s1 = AddV2<float32>(s0, x1); "
                    "return s1",
            }
        "#]],
    );
}

#[test]
fn names_that_must_stay_wait_for_the_update() {
    check(
        "update",
        "preserve x, y, s, r
         m = VarHandleOp {dtype: float32, shared_name: \"m\"}
         v = VarHandleOp {dtype: float32, shared_name: \"v\"}
         g = Placeholder {dtype: float32} -> float32[3]
         r = ReadVariableOp(m) {dtype: float32} -> float32[3]
         d = Sub(g, r) {T: float32} -> float32[3]
         x = AssignAddVariableOp(m, d, ^r) {dtype: float32}
         s = ReadVariableOp(m, ^x) {dtype: float32} -> float32[3]
         t = Square(s) {T: float32} -> float32[3]
         y = AssignSubVariableOp(v, t) {dtype: float32}",
        &expect![[r#"
            preserve r, s, x, y
            m = VarHandleOp {dtype: float32, shared_name: "m"}
            v = VarHandleOp {dtype: float32, shared_name: "v"}
            g = Placeholder {dtype: float32} -> float32[3]
            r = ReadVariableOp(m) {dtype: float32} -> float32[3]
            x = NoOp(^y/update)
            s = ReadVariableOp(m, ^x) {dtype: float32} -> float32[3]
            y = NoOp(^y/update)
            y/update = _WgpuFusedUpdate(m, v, g, ^r) {
                N: 1,
                NR: 2,
                Tscalars: [],
                Ttensors: [float32],
                constants: [],
                expression:
                    "x: float32, float32, float32; "
                    "c: 0; "
                    "s0 = Sub<float32>(x2, x0); "
                    "s1 = AddV2<float32>(x0, s0); "
                    "s2 = Square<float32>(s1); "
                    "s3 = Sub<float32>(x1, s2); "
                    "return s1, s3",
            }
        "#]],
    );
    // A value that is read in between and kept would be wrong.
    refuse(
        "update",
        "preserve x, y, s, r
         v = VarHandleOp {dtype: float32, shared_name: \"v\"}
         g = Placeholder {dtype: float32} -> float32[3]
         r = ReadVariableOp(v) {dtype: float32} -> float32[3]
         x = AssignAddVariableOp(v, g, ^r) {dtype: float32}
         s = ReadVariableOp(v, ^x) {dtype: float32} -> float32[3]
         y = AssignSubVariableOp(v, s, ^s) {dtype: float32}",
    );
}

#[test]
fn reads_that_may_differ_stay() {
    let line = |line: &str| {
        format!(
            "preserve out
             a = VarHandleOp {{dtype: float32, shared_name: \"a\"}}
             g = Placeholder {{dtype: float32}} -> float32[3]
             u = Placeholder {{dtype: float32}} -> float32[?]
             i = Placeholder {{dtype: int32}} -> int32[3]
             r = ReadVariableOp(a) {{dtype: float32}} -> float32[3]
             {line}
             out = NoOp(^x, ^r)"
        )
    };
    for text in [
        // The variable may not have a value.
        line("d = Exp(g) {T: float32} -> float32[3]\nx = AssignVariableOp(a, d) {dtype: float32}"),
        // Unknown extents.
        line(
            "d = Exp(u) {T: float32} -> float32[?]\nx = AssignAddVariableOp(a, d, ^r) {dtype: \
             float32}",
        ),
        // The read has no order.
        line(
            "d = Mul(r, g) {T: float32} -> float32[3]\nx = AssignVariableOp(a, g) {dtype: float32}",
        ),
        // A plain op does the same.
        line("x = AssignAddVariableOp(a, g, ^r) {dtype: float32}"),
        // int32 is on the host.
        line("d = Neg(i) {T: int32} -> int32[3]\nx = AssignAddVariableOp(a, d, ^r) {dtype: int32}"),
        // The change has another reader, so there is nothing to fuse.
        line(
            "d = Exp(g) {T: float32} -> float32[3]\nx = AssignAddVariableOp(a, d, ^r) {dtype: \
             float32}\ne = Exp(d) {T: float32}",
        ),
        // Another device's variable.
        line(
            "d = Exp(g) {T: float32} -> float32[3]\nx = AssignAddVariableOp(a, d, ^r) {dtype: \
             float32} @CPU:0",
        ),
        // Another update comes from somewhere in between.
        line(
            "f = StatefulPartitionedCall(a)\nd = Exp(g) {T: float32} -> float32[3]\nx = \
             AssignAddVariableOp(a, d, ^r) {dtype: float32}",
        ),
    ] {
        refuse("update", &text);
    }
}

#[test]
fn steps_that_depend_on_each_other_stay_apart() {
    // The change of w comes from the new v through a node that is not elementwise.
    refuse(
        "update",
        "preserve out
         v = VarHandleOp {dtype: float32, shared_name: \"v\"}
         w = VarHandleOp {dtype: float32, shared_name: \"w\"}
         g = Placeholder {dtype: float32} -> float32[3]
         x = AssignSubVariableOp(v, g) {dtype: float32}
         r = ReadVariableOp(v, ^x) {dtype: float32} -> float32[3]
         c = Cumsum(r) {T: float32} -> float32[3]
         y = AssignSubVariableOp(w, c) {dtype: float32}
         out = NoOp(^x, ^y)",
    );
}
