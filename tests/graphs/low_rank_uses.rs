//! Low-rank weights that others read, too, and layers in a row.

use tensorflow_wgpu::optimizer::refusal::Refusal;

use super::low_rank::{DENSE, GEMMA, changed};
use super::{after, reason, refuse};

#[test]
fn graphs_without_gradients_stay() {
    let forward = changed(DENSE, &[("preserve y, dx, da, db", "preserve y, dx")]);
    let without: Vec<&str> = forward
        .lines()
        .filter(|line| !["d", "da", "db"].iter().any(|n| line.trim().starts_with(&format!("{n}a"))))
        .filter(|line| !line.trim().starts_with("db") && !line.trim().starts_with("dw"))
        .collect();
    refuse("low_rank", &without.join("\n"));
}

/// What must stay, with the node that is told of the reason.
#[test]
fn other_uses_of_the_sum_keep_it() {
    for (changes, node, expected) in [
        // The sum is read by another node, or fetched, or a node waits for it.
        (
            vec![
                ("preserve y", "preserve z, y"),
                ("\n     y = ", "\n     z = Neg(sum) {T: float32} -> float32[64, 128]\n     y = "),
            ],
            "z",
            Refusal::ReadElsewhere,
        ),
        (vec![("preserve y", "preserve sum, y")], "sum", Refusal::Preserved),
        (
            vec![
                ("preserve y", "preserve z, y"),
                ("\n     y = ", "\n     z = NoOp(^sum)\n     y = "),
            ],
            "sum",
            Refusal::OtherConditions,
        ),
        // The product with the weights is fetched: its result would be another one.
        (vec![("preserve y", "preserve y0, y")], "y0", Refusal::Preserved),
        // The weights are trained, too.
        (
            vec![
                ("preserve y", "preserve z, y"),
                ("\n     y = ", "\n     z = Neg(dw) {T: float32} -> float32[64, 128]\n     y = "),
            ],
            "dw",
            Refusal::ReadElsewhere,
        ),
        // The gradient is summed with that of another call of the layer.
        (
            vec![(
                "dab = Mul(s, dw)",
                "other = Placeholder -> float32[64, 128]\n     both = AddV2(dw, other) {T: \
                     float32} -> float32[64, 128]\n     dab = Mul(s, both)",
            )],
            "both",
            Refusal::Operand,
        ),
        // The gradient is scaled otherwise.
        (
            vec![(
                "dab = Mul(s, dw)",
                "t = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]\n     \
                 dab = Mul(t, dw)",
            )],
            "dw",
            Refusal::OtherShape,
        ),
        // The rank is too high for the depth.
        (vec![("64, 4]", "64, 8]"), ("[4, 128]", "[8, 128]")], "da0", Refusal::HighRank),
        // Another device, and an operand whose columns are not known.
        (
            vec![(
                "da0 = MatMul(dab, b) {T: float32, transpose_a: false, transpose_b: true}",
                "da0 = MatMul(dab, b) {T: float32, transpose_a: false, transpose_b: true} @CPU:0",
            )],
            "da0",
            Refusal::OtherDevice,
        ),
        (
            vec![("x = Placeholder -> float32[?2, 64]", "x = Placeholder -> float32[?2, ?]")],
            "y0",
            Refusal::Operand,
        ),
    ] {
        let text = changed(DENSE, &changes);
        refuse("low_rank", &text);
        assert_eq!(reason("low_rank", &text, node), Some(expected), "{changes:?}");
    }
    // Weights of unknown shape, and a view that moves the last dimension.
    refuse(
        "low_rank",
        &changed(
            DENSE,
            &[(
                "sum = AddV2(w, scaled) {T: float32} -> float32[64, 128]",
                "sum = AddV2(w, scaled) {T: float32} -> float32[?, 128]",
            )],
        ),
    );
    refuse(
        "low_rank",
        &changed(
            GEMMA,
            &[("[1, 0, 2]", "[1, 2, 0]"), ("-> bfloat16[64, 4, 96]", "-> bfloat16[64, 96, 4]")],
        ),
    );
    // A residual of activations is no sum of weights.
    refuse("low_rank", &changed(DENSE, &[("MatMul(x, sum)", "MatMul(sum, x)")]));
}

/// Layers without biases that follow another one read its sum, whichever of them the pass finds
/// first.
#[test]
fn layers_read_the_whole_result_of_the_layer_before() {
    let (inputs, rest) = DENSE.split_once("     w = ").unwrap();
    let (body, _) = rest.split_once("     y = ").unwrap();
    let of = |layer: &str, x: &str, extents: [&str; 2]| {
        let names =
            ["w", "a", "b", "s", "ab", "scaled", "sum", "y0", "dx0", "dw", "dab", "da0", "db0"];
        let words = format!("     w = {body}");
        let mut text = String::new();
        for word in words.split_inclusive([' ', '(', ')', ',', '\n']) {
            let name = word.trim_end_matches([' ', '(', ')', ',', '\n']);
            let new = match name {
                "x" => x.to_owned(),
                "dy" => format!("dy{layer}"),
                _ if names.contains(&name) => format!("{name}{layer}"),
                _ => name.to_owned(),
            };
            text += &word.replacen(name, &new, usize::from(!name.is_empty()));
        }
        text.replace("64", "in").replace("128", extents[1]).replace("in", extents[0])
    };
    let first = of("1", "x", ["64", "128"]);
    let behind = ["2", "3"].map(|layer| of(layer, "y01", ["128", "128"]));
    let head = inputs
        .replace("y, dx, da, db", "y02, dx02, da02, db02, y03, dx03, da03, db03, dx01, da01, db01")
        .replace("dy = ", "dy1 = ");
    let more =
        "     dy2 = Placeholder -> float32[?2, 128]\n     dy3 = Placeholder -> float32[?2, 128]\n";
    let parts = [&first, &behind[0], &behind[1]];
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]] {
        let layers: String = order.iter().map(|at| parts[*at].as_str()).collect();
        // The text names what comes later, too.
        let ends =
            ["y02", "dx02", "da02", "db02", "y03", "dx03", "da03", "db03", "dx01", "da01", "db01"];
        let ends = ends.map(|end| format!("     {end}_end = Identity({end}) {{T: float32}}\n"));
        let head = ends.iter().fold(head.clone(), |head, end| {
            let name = end.trim().split(' ').next().unwrap();
            let own = name.trim_end_matches("_end");
            head.replacen(&format!("{own},"), &format!("{name},"), 1).replacen(
                &format!("{own}\n"),
                &format!("{name}\n"),
                1,
            )
        });
        let text = after("low_rank", &format!("{head}{more}{layers}{}", ends.concat()));
        let readers = text.matches("y01,").count() + text.matches("y01)").count();
        assert_eq!(readers, 1, "{order:?}: {text}");
        assert!(text.contains("= AddV2(y01, "), "{order:?}: {text}");
    }
}
