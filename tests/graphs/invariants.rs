//! Products that are the same in every step of a loop.

use super::{after, refuse};

/// A loop that multiplies by `w`, and adds a product of `x` and `u`, which it passes on.
fn looped(replaced: &[(&str, &str)]) -> String {
    let carried = |name: &str, shape: &str, back: &str| {
        format!(
            "e{name} = Enter({name}) {{T: float32, frame_name: \"f\", is_constant: false, \
             parallel_iterations: 10}} -> float32[{shape}]
             m{name} = Merge(e{name}, n{name}) {{N: 2, T: float32}} -> float32[{shape}], int32[]
             s{name} = Switch(m{name}, more) {{T: float32}} -> float32[{shape}], float32[{shape}]
             n{name} = NextIteration({back}) {{T: float32}} -> float32[{shape}]"
        )
    };
    let text = format!(
        "preserve out
         h = Placeholder -> float32[4, 8]
         x = Placeholder -> float32[4, 6]
         u = Placeholder -> float32[6, 8]
         w = Placeholder -> float32[8, 8]
         b = Placeholder -> float32[8]
         more = LoopCond(test) -> bool[]
         test = Custom(mh) -> bool[]
         {}
         {}
         {}
         {}
         {}
         pivot = Identity(sh:1) {{T: float32}}
         p = MatMul(sh:1, sw:1, ^pivot) {{T: float32, transpose_a: false, transpose_b: false}} -> \
         float32[4, 8]
         q = MatMul(sx:1, su:1, ^pivot) {{T: float32, transpose_a: false, transpose_b: false}} -> \
         float32[4, 8]
         r = BiasAdd(q, sb:1) {{T: float32, data_format: \"NHWC\"}} -> float32[4, 8]
         t = AddV2(p, r) {{T: float32}} -> float32[4, 8]
         last = Exit(sh) {{T: float32}} -> float32[4, 8]
         out = Identity(last) {{T: float32}}",
        carried("h", "4, 8", "t"),
        carried("x", "4, 6", "sx:1"),
        carried("u", "6, 8", "su:1"),
        carried("w", "8, 8", "sw:1"),
        carried("b", "8", "sb:1"),
    );
    replaced.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn they_are_computed_in_front_of_it() {
    let after = after("invariants", &looped(&[]));
    for line in [
        "q/in_front = MatMul(x, u) {T: float32, transpose_a: false, transpose_b: false}",
        "r/in_front = BiasAdd(q/in_front, b) {T: float32, data_format: \"NHWC\"}",
        "r/enter = Enter(r/in_front) {T: float32, frame_name: \"f\", is_constant: true, \
         parallel_iterations: 10}",
        "r/step = Switch(r/enter, more) {T: float32}",
        "t = AddV2(p, r/step:1)",
        // Values that change from step to step stay.
        "p = MatMul(sh:1, sw:1, ^pivot)",
    ] {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
}

#[test]
fn others_stay() {
    for replaced in [
        // The loop changes an operand, or begins each step with another value.
        &[("nx = NextIteration(sx:1)", "nx = NextIteration(sx)")][..],
        // A shape is unknown, so the product may fail.
        &[("x = Placeholder -> float32[4, 6]", "x = Placeholder -> float32[?1, 6]")],
        // It waits for a node of the step, or another node waits for it.
        &[("q = MatMul(sx:1, su:1, ^pivot)", "q = MatMul(sx:1, su:1, ^p)")],
        &[("t = AddV2(p, r)", "t = AddV2(p, r, ^q)")],
        // A step that does not run would read it.
        &[("MatMul(sx:1, su:1, ^pivot)", "MatMul(sx, su)")],
        // It is fetched, or on another device.
        &[("preserve out", "preserve out, q")],
        &[(
            "frame_name: \"f\", is_constant: false, parallel_iterations: 10} -> float32[6, 8]",
            "frame_name: \"g\", is_constant: false, parallel_iterations: 10} -> float32[6, 8]",
        )],
    ] {
        refuse("invariants", &looped(replaced));
    }
}
