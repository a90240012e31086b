//! Nodes that become regions.

use expect_test::expect;

use super::{after, check, refuse};

/// A node of float32 vectors.
fn line(name: &str, op: &str, inputs: &str) -> String {
    format!("{name} = {op}({inputs}) {{T: float32}} -> float32[4]\n")
}

/// Four nodes between `x` and the node `out`.
fn four() -> String {
    let nodes = [("a", "Exp", "x"), ("b", "Neg", "a"), ("c", "Tanh", "a"), ("d", "Mul", "b, c")];
    let nodes: String = nodes.iter().map(|(name, op, inputs)| line(name, op, inputs)).collect();
    format!("preserve out\nx = Placeholder -> float32[4]\n{nodes}")
}

#[test]
fn nodes_without_the_host_between_them_become_one() {
    check(
        "regions",
        &format!(
            "{}s = Const {{dtype: int32, value: tensor int32[2] [2]}} -> int32[2]
            r = Reshape(d, s) {{T: float32, Tshape: int32}} -> float32[2, 2]
            out = Custom(r, a)",
            four()
        ),
        &expect![[r#"
            preserve out
            x = Placeholder -> float32[4]
            out = Custom(r/region:1, r/region)
            r/region = _WgpuRegion(x) {
                NR: 0,
                Thost: [],
                Tout: [float32, float32],
                Ttensors: [float32],
                nodes: [
                    0: a = Exp(t0) {T: float32, _wgpu_types: [float32]},
                    1: b = Neg(0:0) {T: float32, _wgpu_types: [float32]},
                    2: c = Tanh(0:0) {T: float32, _wgpu_types: [float32]},
                    3: d = Mul(1:0, 2:0) {T: float32, _wgpu_types: [float32]},
                    4: s = Const() {value: tensor int32[2] [2]},
                    5: r = Reshape(3:0, 4:0) {T: float32, Tshape: int32, _wgpu_types: [float32]},
                ],
                outputs: [0, 0, 5, 0],
            } -> float32[4], float32[2, 2]
        "#]],
    );
}

#[test]
fn a_value_that_is_read_in_host_memory_comes_from_another_region() {
    let chain = "x = Placeholder -> int64[2]
        y = Placeholder -> float32[4]
        a = Neg(x) {T: int64} -> int64[2]
        b = Neg(a) {T: int64} -> int64[2]
        c = Neg(b) {T: int64} -> int64[2]
        r = Reshape(y, c) {T: float32, Tshape: int64} -> float32[2, 2]
        e = Exp(r) {T: float32} -> float32[2, 2]
        f = Neg(e) {T: float32} -> float32[2, 2]
        out = Custom(f)";
    let text = after("regions", &format!("preserve out\n{chain}"));
    assert_eq!(text.matches("= _WgpuRegion").count(), 2, "{text}");
}

#[test]
fn a_path_that_leaves_a_region_does_not_come_back() {
    // The host sees `a` before `d` runs.
    let text = four().replace("(b, c)", "(b, h)") + "h = Custom(a) -> float32[4]\n";
    let text = text + &line("e", "Exp", "d") + &line("f", "Neg", "e") + "out = Custom(f, c)";
    let text = after("regions", &text);
    assert_eq!(text.matches("_WgpuRegion").count(), 2, "{text}");
}

#[test]
fn control_edges_lead_into_a_region_and_out_of_it() {
    let text = four().replace("Tanh(a)", "Tanh(a, ^w)") + "w = NoOp\nv = NoOp(^b)\nout = Custom(d)";
    let text = after("regions", &text);
    assert!(text.contains("d/region = _WgpuRegion(x, ^w)"), "{text}");
    assert!(text.contains("v = NoOp(^d/region)"), "{text}");
}

#[test]
fn nodes_that_no_edge_connects_do_not_wait_for_each_other() {
    let other = four().replace("preserve out\n", "");
    let other = ["a", "b", "c", "d", "x"].iter().fold(other, |text, name| {
        text.replace(&format!("{name} ="), &format!("{name}2 ="))
            .replace(&format!("({name})"), &format!("({name}2)"))
    });
    let text = four() + &other.replace("(b, c)", "(b2, c2)") + "out = Custom(d, d2)";
    let text = after("regions", &text);
    assert_eq!(text.matches("_WgpuRegion").count(), 2, "{text}");
}

/// What goes into a queue comes from no region that waits for what leaves it: no edge between the
/// two would tell TensorFlow.
#[test]
fn nodes_that_wait_for_a_queue_have_regions_of_their_own() {
    let take = "q = Placeholder -> resource[]
        y = QueueDequeueV2(q) {component_types: [float32]} @CPU:0 -> float32[4]
        p = QueueEnqueueV2(q, d) {Tcomponents: [float32]} @CPU:0\n";
    let chain = [("e", "Exp", "y"), ("f", "Neg", "e"), ("g", "Tanh", "f"), ("h", "Mul", "d, g")];
    let chain: String = chain.iter().map(|(name, op, inputs)| line(name, op, inputs)).collect();
    let text = after("regions", &(four() + take + &chain + "out = Custom(h)"));
    assert!(text.contains("d/region = _WgpuRegion(x)"), "{text}");
    assert!(text.contains("g/region = _WgpuRegion(y)"), "{text}");
}

#[test]
fn branches_have_regions_of_their_own() {
    let branch = |name: &str, input: &str| {
        line(&format!("{name}1"), "Exp", input)
            + &line(&format!("{name}2"), "Neg", &format!("{name}1"))
            + &line(&format!("{name}3"), "Tanh", &format!("{name}2"))
    };
    let text = format!(
        "preserve m\nx = Placeholder -> float32[4]\np = Placeholder -> bool[]\ns = Switch(x, p) \
         {{T: float32}} -> float32[4], float32[4]\n{}{}m = Merge(a3, b3) {{T: float32}} -> \
         float32[4], int32[]",
        branch("a", "s"),
        branch("b", "s:1")
    );
    let text = after("regions", &text);
    assert!(text.contains("a3/region = _WgpuRegion(s)"), "{text}");
    assert!(text.contains("b3/region = _WgpuRegion(s:1)"), "{text}");
}

#[test]
fn nodes_that_need_the_host_stay() {
    let text = four() + "out = Custom(d)";
    refuse("regions", &text.replace("preserve out", "preserve out, a, b"));
    refuse("regions", &text.replace("Tanh(a) {T: float32}", "Tanh(a) {T: float32} @CPU:0"));
    // Too few, unknown ops, types that are not known, and tensors of int32.
    refuse("regions", &text.replace("Mul", "Custom").replace("Tanh", "Custom"));
    refuse(
        "regions",
        &text
            .replace("float32[4]", "?")
            .replace("x = Placeholder -> ?", "x = Placeholder -> float32[4]"),
    );
    refuse("regions", &text.replace("float32", "int32"));
}

/// A step of training: two reads, a gradient, and changes of the two variables.
const STEP: &str = "v = _Arg {T: resource, index: 0} -> resource[]
    n = _Arg {T: resource, index: 1} -> resource[]
    x = _Arg {T: float32, index: 2} -> float32[4]
    r = ReadVariableOp(v) {dtype: float32} -> float32[4]
    a = Exp(r) {T: float32} -> float32[4]
    b = Mul(a, x) {T: float32} -> float32[4]
    u = AssignSubVariableOp(v, b, ^r) {dtype: float32}
    w = AssignAddVariableOp(n, b) {dtype: float32}
";

/// A function names what it must run. Names stay, and wait for the region.
#[test]
fn variables_are_read_and_changed_within() {
    check(
        "regions",
        &format!("preserve r, u, w, out\n{STEP}out = _Retval(b, ^u) {{T: float32, index: 0}}"),
        &expect![[r#"
            preserve out, r, u, w
            v = _Arg {T: resource, index: 0} -> resource[]
            n = _Arg {T: resource, index: 1} -> resource[]
            x = _Arg {T: float32, index: 2} -> float32[4]
            r = NoOp(^b/region)
            u = NoOp(^b/region)
            w = NoOp(^b/region)
            out = _Retval(b/region, ^u) {T: float32, index: 0}
            b/region = _WgpuRegion(x, v, n) {
                NR: 2,
                Thost: [],
                Tout: [float32],
                Ttensors: [float32],
                nodes: [
                    0: r = ReadVariableOp(v0) {_wgpu_types: [float32], dtype: float32},
                    1: a = Exp(0:0) {T: float32, _wgpu_types: [float32]},
                    2: b = Mul(1:0, t0) {T: float32, _wgpu_types: [float32]},
                    3: u = AssignSubVariableOp(v0, 2:0) {_wgpu_types: [], dtype: float32},
                    4: w = AssignAddVariableOp(v1, 2:0) {_wgpu_types: [], dtype: float32},
                ],
                outputs: [2, 0],
            } -> float32[4]
        "#]],
    );
}

#[test]
fn changes_alone_have_no_outputs() {
    let text = after("regions", &format!("preserve u, w\n{STEP}"));
    assert!(text.contains("Tout: []"), "{text}");
    assert!(text.contains("u = NoOp(^w/region)"), "{text}");
}

/// A region reads its variables when it begins.
#[test]
fn a_read_after_a_change_is_in_another_region() {
    let late = "s = ReadVariableOp(v, ^u) {dtype: float32} -> float32[4]
        c = Exp(s) {T: float32} -> float32[4]
        d = Neg(c) {T: float32} -> float32[4]
        e = Tanh(d) {T: float32} -> float32[4]
        out = _Retval(e) {T: float32, index: 0}";
    let text = after("regions", &format!("preserve u, w, out\n{STEP}{late}"));
    assert_eq!(text.matches("_WgpuRegion").count(), 2, "{text}");
    assert!(text.contains("u = NoOp(^w/region)"), "{text}");
    assert!(text.contains("e/region = _WgpuRegion(v, ^u)"), "{text}");
}

/// TensorFlow would keep the value until the region has run, so no change would be in place.
#[test]
fn a_variable_whose_value_comes_from_outside_is_not_changed_within() {
    let text = format!("preserve u, w, out\n{STEP}out = _Retval(b, ^u) {{T: float32, index: 0}}");
    let text = text.replace("r = ReadVariableOp(v) {dtype: float32}", "r = ReadVariableOp(v)");
    let text = text + "\nc = Neg(a) {T: float32} -> float32[4]\nd = Custom(c)";
    let text = after("regions", &text);
    assert!(text.contains("u = AssignSubVariableOp(v, "), "{text}");
}

/// Outside of functions the value itself may be wanted.
#[test]
fn a_read_that_may_be_fetched_stays() {
    let text = STEP.replace("v = _Arg {T: resource, index: 0}", "v = VarHandleOp");
    let text = after("regions", &format!("preserve r, u, w, out\n{text}out = Custom(b, ^u)"));
    assert!(text.contains("r = ReadVariableOp(v)"), "{text}");
    assert!(text.contains("u = AssignSubVariableOp(v, "), "{text}");
}
