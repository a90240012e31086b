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
