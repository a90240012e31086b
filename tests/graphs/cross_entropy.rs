//! Cross entropies of logits of 16 bits, and scaled gradients.

use expect_test::expect;

use super::{after, check, refuse};

/// The loss of a step in mixed precision, and the gradient that the logits get.
const MIXED: &str = "preserve loss, gradient
     logits = Placeholder -> bfloat16[48, 512]
     labels = Placeholder -> int64[48]
     wide = Cast(logits) {DstT: float32, SrcT: bfloat16, Truncate: false} -> float32[48, 512]
     xent = SparseSoftmaxCrossEntropyWithLogits(wide, labels) {T: float32, Tlabels: int64} -> \
                     float32[48], float32[48, 512]
     share = Placeholder -> float32[48, 1]
     scaled = Mul(xent:1, share) {T: float32} -> float32[48, 512]
     narrow = Cast(scaled) {DstT: bfloat16, SrcT: float32, Truncate: false} -> bfloat16[48, 512]
     loss = Identity(xent) {T: float32} -> float32[48]
     gradient = Identity(narrow) {T: bfloat16} -> bfloat16[48, 512]";

#[test]
fn logits_of_16_bits_are_read_as_they_are() {
    check(
        "cross_entropy",
        MIXED,
        &expect![[r#"
        preserve gradient, loss
        logits = Placeholder -> bfloat16[48, 512]
        labels = Placeholder -> int64[48]
        share = Placeholder -> float32[48, 1]
        loss = Identity(xent/fused_cross_entropy) {T: float32} -> float32[48]
        gradient = Identity(xent/fused_cross_entropy:1) {T: bfloat16} -> bfloat16[48, 512]
        xent/fused_cross_entropy = _WgpuFusedCrossEntropy(logits, labels, share) {
            T: bfloat16,
            Tbackprop: bfloat16,
            Tlabels: int64,
            Tscale: [float32],
        } -> float32[48], bfloat16[48, 512]
    "#]],
    );
}

#[test]
fn parts_of_the_pattern_are_fused_too() {
    let change = |changes: &[(&str, &str)]| {
        let mut text = MIXED.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        after("cross_entropy", &text)
    };
    // Other nodes read the logits in float32, such as a metric.
    let metric = change(&[
        ("preserve loss", "preserve metric, loss"),
        (
            "\n     loss =",
            "\n     metric = Neg(wide) {T: float32} -> float32[48, 512]\n     loss =",
        ),
    ]);
    assert!(metric.contains("= _WgpuFusedCrossEntropy(logits, labels, share)"), "{metric}");
    assert!(metric.contains("wide = Cast("), "{metric}");
    // Other nodes read the scaled gradient in float32.
    let wide = change(&[
        ("preserve loss, gradient", "preserve loss, gradient, more"),
        (
            "\n     loss =",
            "\n     more = Neg(scaled) {T: float32} -> float32[48, 512]\n     loss =",
        ),
    ]);
    assert!(wide.contains("Tbackprop: float32"), "{wide}");
    assert!(wide.contains("narrow = Cast("), "{wide}");
    // A single value scales all rows.
    let one =
        change(&[("share = Placeholder -> float32[48, 1]", "share = Placeholder -> float32[]")]);
    assert!(one.contains("(logits, labels, share)"), "{one}");
    // There is no scale.
    let plain = change(&[("Cast(scaled)", "Cast(xent:1)")]);
    assert!(plain.contains("_WgpuFusedCrossEntropy(logits, labels)"), "{plain}");
    // There is nothing to convert, and rows of a batch of unknown size.
    let float = change(&[
        (
            "xent = SparseSoftmaxCrossEntropyWithLogits(wide",
            "xent = SparseSoftmaxCrossEntropyWithLogits(more",
        ),
        ("\n     share", "\n     more = Placeholder -> float32[48, 512]\n     share"),
        ("[48", "[?0"),
    ]);
    assert!(float.contains("_WgpuFusedCrossEntropy(more, labels, share)"), "{float}");
}

/// What must stay is not part of the node, and neither is what comes behind it.
#[test]
fn what_must_stay_stays() {
    let of = |from: &str, to: &str| {
        assert!(MIXED.contains(from), "{from}");
        after("cross_entropy", &MIXED.replace(from, to))
    };
    let [loss, gradient] = ["_WgpuFusedCrossEntropy(logits, labels)", "scaled = Mul("];
    for (from, to) in [
        ("preserve loss", "preserve scaled, loss"),
        // The scale depends on the loss.
        (
            "share = Placeholder -> float32[48, 1]",
            "axis = Const {dtype: int32, value: tensor int32[] [1]} @CPU:0 -> int32[]\n     share \
             = ExpandDims(xent, axis) {T: float32, Tdim: int32} -> float32[48, 1]",
        ),
        // Each column has a scale.
        ("share = Placeholder -> float32[48, 1]", "share = Placeholder -> float32[1, 512]"),
    ] {
        let text = of(from, to);
        assert!(text.contains(loss) && text.contains(gradient), "{text}");
    }
    // A conversion that drops bits is another one.
    let truncated = of("SrcT: float32, Truncate: false", "SrcT: float32, Truncate: true");
    assert!(truncated.contains("narrow = Cast("), "{truncated}");
    let rounded = of("preserve loss", "preserve narrow, loss");
    assert!(rounded.contains("_WgpuFusedCrossEntropy(logits, labels, share)"), "{rounded}");
    assert!(rounded.contains("narrow = Cast("), "{rounded}");
    refuse("cross_entropy", &MIXED.replace("preserve loss", "preserve xent, loss"));
}

/// A caller may feed the logits in float32.
#[test]
fn converted_logits_that_must_stay_are_read() {
    let text = MIXED.replace("preserve loss", "preserve wide, loss");
    let text = after("cross_entropy", &text);
    assert!(text.contains("_WgpuFusedCrossEntropy(wide, labels, share)"), "{text}");
}
