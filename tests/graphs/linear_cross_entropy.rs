//! Products with the cross entropy of their logits and the product of the gradient.

use expect_test::expect;
use tensorflow_wgpu::optimizer::refusal::Refusal;

use super::{after, check, reason, refuse};

const PASS: &str = "linear_cross_entropy";

/// The last layer of a language model, whose embeddings do not learn, with the accuracy.
const HEAD: &str = "preserve loss, gradient, hit
     x = Placeholder -> bfloat16[1, 80, 64]
     rows = Const {dtype: int32, value: tensor int32[2] [80, 64]} -> int32[2]
     flat = Reshape(x, rows) {T: bfloat16, Tshape: int32} -> bfloat16[80, 64]
     w = Placeholder -> bfloat16[262144, 64]
     labels = Placeholder -> int64[80]
     share = Placeholder -> float32[80, 1]
     more = Placeholder -> float32[64]
     shape = Const {dtype: int32, value: tensor int32[3] [1, 80, 262144]} -> int32[3]
     last = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
     logits = MatMul(flat, w) {T: bfloat16, transpose_a: false, transpose_b: true} -> \
                    bfloat16[80, 262144]
     xent = _WgpuFusedCrossEntropy(logits, labels, share) {T: bfloat16, Tbackprop: bfloat16, \
                    Tlabels: int64, Tscale: [float32]} -> float32[80], bfloat16[80, 262144]
     d = _WgpuFusedMatMul(xent:1, w, more) {T: bfloat16, T_extra: [float32], T_out: float32, \
                    constants: [1.0], expression: \"x: bfloat16, float32; c: 1; s0 = \
                    Cast<bfloat16, float32>(x0); s1 = AddV2<float32>(x1, c0); s2 = \
                    Mul<float32>(s0, s1); return s2\", transpose_a: false, transpose_b: false} -> \
                    float32[80, 64]
     view = Reshape(logits, shape) {T: bfloat16, Tshape: int32} -> bfloat16[1, 80, 262144]
     at = _WgpuFusedArg(view, last) {T_in: [bfloat16], constants: [], expression: \"x: \
                    bfloat16; c: 0; s0 = Cast<bfloat16, float32>(x0); s1 = Neg<float32>(s0); \
                    return s1\", output_type: int32, reduction: \"ArgMax\"} -> int32[1, 80]
     loss = Identity(xent) {T: float32} -> float32[80]
     gradient = Identity(d) {T: float32} -> float32[80, 64]
     hit = Identity(at) {T: int32} -> int32[1, 80]";

/// The epilogue of the second product is left as a node.
#[test]
fn a_head_with_its_loss_gradient_and_accuracy_is_one_node() {
    check(
        PASS,
        HEAD,
        &expect![[r#"
            preserve gradient, hit, loss
            x = Placeholder -> bfloat16[1, 80, 64]
            rows = Const {dtype: int32, value: tensor int32[2] [80, 64]} -> int32[2]
            flat = Reshape(x, rows) {T: bfloat16, Tshape: int32} -> bfloat16[80, 64]
            w = Placeholder -> bfloat16[262144, 64]
            labels = Placeholder -> int64[80]
            share = Placeholder -> float32[80, 1]
            more = Placeholder -> float32[64]
            shape = Const {dtype: int32, value: tensor int32[3] [1, 80, 262144]} -> int32[3]
            last = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
            loss = Identity(xent/linear_cross_entropy) {T: float32} -> float32[80]
            gradient = Identity(d/epilogue) {T: float32} -> float32[80, 64]
            hit = Identity(xent/linear_cross_entropy:2) {T: int32} -> int32[1, 80]
            xent/linear_cross_entropy = _WgpuFusedLinearCrossEntropy(flat, w, labels, share) {
                T: bfloat16,
                T_argument: [int32],
                T_parameters: [],
                T_weights: bfloat16,
                Tlabels: int64,
                Tscale: [float32],
                adj_y: true,
                constants: [],
                dims: [1, 80],
                expression:
                    "x: bfloat16; "
                    "c: 0; "
                    "s0 = Cast<bfloat16, float32>(x0); "
                    "s1 = Neg<float32>(s0); "
                    "return s1",
            } -> float32[80], bfloat16[80, 64], int32[1, 80]
            d/epilogue = _WgpuFusedElementwise(xent/linear_cross_entropy:1, more) {
                T_in: [bfloat16, float32],
                T_out: [float32],
                constants: [1.0],
                expression:
                    "x: bfloat16, float32; "
                    "c: 1; "
                    "s0 = Cast<bfloat16, float32>(x0); "
                    "s1 = AddV2<float32>(x1, c0); "
                    "s2 = Mul<float32>(s0, s1); "
                    "return s2",
            } -> float32[80, 64]
        "#]],
    );
}

fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(HEAD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn parts_of_the_pattern_are_one_node_too() {
    // No accuracy.
    let text =
        after(PASS, &changed(&[(", hit\n", "\n"), ("hit = Identity(at)", "hit = Neg(last)")]));
    assert!(text.contains("= _WgpuFusedLinearCrossEntropy(flat, w, labels, share)"), "{text}");
    // The op itself, in float32, and a column for each class.
    let text = after(
        PASS,
        "preserve loss, d
         x = Placeholder -> float32[?0, 64]
         w = Placeholder -> float32[64, 50000]
         labels = Placeholder -> int32[?0]
         logits = MatMul(x, w) {T: float32, transpose_a: false, transpose_b: false} -> \
         float32[?0, 50000]
         xent = SparseSoftmaxCrossEntropyWithLogits(logits, labels) {T: float32, Tlabels: int32} \
         -> float32[?0], float32[?0, 50000]
         d = BatchMatMulV2(xent:1, w) {T: float32, adj_x: false, adj_y: true} -> float32[?0, 64]
         loss = Identity(xent) {T: float32} -> float32[?0]",
    );
    // A preserved product stays.
    assert!(!text.contains("_WgpuFusedLinearCrossEntropy"), "{text}");
}

/// Quantized embeddings, as Keras's int4 has them.
#[test]
fn quantized_weights_stay_packed() {
    let of = |transposed: bool| {
        format!(
            "{{T: float32, T_codes: int8, T_extra: [], T_out: float32, T_parameters: [int8, \
             float32, float32], adj_y: {transposed}, constants: [], decoder: \"- rg, * rg\", \
             expression: \"x: float32; c: 0; return x0\", extent: 64, head: 0, packing: \
             \"columns\"}}"
        )
    };
    let text = format!(
        "preserve loss, gradient
         x = Placeholder -> float32[?0, 64]
         w = Placeholder -> int8[50000, 32]
         zero = Placeholder -> int8[50000, 1]
         scale = Placeholder -> float32[50000, 1]
         group = Placeholder -> float32[64]
         labels = Placeholder -> int64[?0]
         logits = _WgpuFusedQuantizedMatMul(x, w, zero, scale, group) {} -> float32[?0, 50000]
         xent = SparseSoftmaxCrossEntropyWithLogits(logits, labels) {{T: float32, Tlabels: int64}} \
         -> float32[?0], float32[?0, 50000]
         d = _WgpuFusedQuantizedMatMul(xent:1, w, zero, scale, group) {} -> float32[?0, 64]
         loss = Identity(xent) {{T: float32}} -> float32[?0]
         gradient = Identity(d) {{T: float32}} -> float32[?0, 64]",
        of(true),
        of(false)
    );
    check(
        PASS,
        &text,
        &expect![[r#"
            preserve gradient, loss
            x = Placeholder -> float32[?0, 64]
            w = Placeholder -> int8[50000, 32]
            zero = Placeholder -> int8[50000, 1]
            scale = Placeholder -> float32[50000, 1]
            group = Placeholder -> float32[64]
            labels = Placeholder -> int64[?0]
            loss = Identity(xent/linear_cross_entropy) {T: float32} -> float32[?0]
            gradient = Identity(xent/linear_cross_entropy:1) {T: float32} -> float32[?0, 64]
            xent/linear_cross_entropy = _WgpuFusedLinearCrossEntropy(
                x,
                w,
                labels,
                zero,
                scale,
                group,
            ) {
                T: float32,
                T_argument: [],
                T_parameters: [int8, float32, float32],
                T_weights: int8,
                Tlabels: int64,
                Tscale: [],
                adj_y: true,
                constants: [],
                decoder: "- rg, * rg",
                dims: [],
                expression: "",
                extent: 64,
                packing: "columns",
            } -> float32[?0], float32[?0, 64]
        "#]],
    );
    // A byte with the codes of two classes.
    refuse(PASS, &text.replace("packing: \"columns\"", "packing: \"rows\""));
}

#[test]
fn logits_that_others_need_are_stored() {
    let reader = "\n     loss = Identity(xent) {T: float32} -> float32[80]";
    let other =
        format!("\n     kept = Neg(logits) {{T: bfloat16}} -> bfloat16[80, 262144]{reader}");
    let text = changed(&[("preserve loss", "preserve kept, loss"), (reader, &other)]);
    assert_eq!(reason(PASS, &text, "xent"), Some(Refusal::ReadElsewhere));
    // The weights learn.
    let other = format!(
        "\n     dw = MatMul(xent:1, flat) {{T: bfloat16, transpose_a: true, transpose_b: false}} \
         -> bfloat16[262144, 64]{reader}"
    );
    refuse(PASS, &changed(&[("preserve loss", "preserve dw, loss"), (reader, &other)]));
    // The logits are fetched.
    refuse(PASS, &changed(&[("preserve loss", "preserve logits, loss")]));
    // The scale of the gradient depends on the loss.
    let text = changed(&[(
        "share = Placeholder -> float32[80, 1]",
        "axis = Const {dtype: int32, value: tensor int32[] [1]} @CPU:0 -> int32[]\n     share = \
         ExpandDims(far, axis) {T: float32, Tdim: int32} -> float32[80, 1]\n     far = \
         Custom(logits) -> float32[80]",
    )]);
    assert_eq!(reason(PASS, &text, "xent"), Some(Refusal::ReadElsewhere));
}

/// What the kernel does not compute: other products, other values of logits, another axis.
#[test]
fn other_products_stay() {
    for (changes, wanted) in [
        // Small logits.
        (&[("262144", "4096")][..], None),
        // Other weights for the gradient.
        (
            &[
                ("(xent:1, w, more)", "(xent:1, v, more)"),
                ("\n     labels", "\n     v = Placeholder -> bfloat16[262144, 64]\n     labels"),
            ],
            None,
        ),
        // The rows of the gradient lie in other places.
        (
            &[
                ("(xent:1, w, more)", "(cut, w, more)"),
                (
                    "\n     d = ",
                    "\n     two = Const {dtype: int32, value: tensor int32[3] [2, 40, 262144]} -> \
                     int32[3]\n     cut = Reshape(xent:1, two) {T: bfloat16, Tshape: int32} -> \
                     bfloat16[2, 40, 262144]\n     d = ",
                ),
                ("_WgpuFusedMatMul(", "_WgpuFusedBatchMatMulV2("),
                (
                    "transpose_a: false, transpose_b: false} -> \
                    float32[80, 64]",
                    "adj_x: false, adj_y: false} -> float32[2, 40, 64]",
                ),
                ("float32[80, 64]", "float32[2, 40, 64]"),
            ],
            Some(Refusal::OtherShape),
        ),
        // The value of the index rounds, so that it may differ where it is computed again.
        (&[("s1 = Neg<float32>(s0)", "s1 = Mul<float32>(s0, s0)")], None),
        // The index is the label.
        (
            &[
                (
                    "xent = _WgpuFusedCrossEntropy(logits, labels, share)",
                    "xent = \
                 _WgpuFusedCrossEntropy(logits, own, share)",
                ),
                (", output_type: int32,", ", output_type: int64,"),
                (
                    "-> int32[1, 80]\n     loss",
                    "-> int64[80]\n     own = Identity(at) {T: int64} -> \
                 int64[80]\n     loss",
                ),
                ("_WgpuFusedArg(view, last)", "_WgpuFusedArg(logits, last)"),
                (
                    "hit = Identity(at) {T: int32} -> int32[1, 80]",
                    "hit = Identity(at) {T: int64} -> int64[80]",
                ),
            ],
            Some(Refusal::Cycle),
        ),
        // The index is not of a class.
        (&[("[-1]} -> int32[]", "[1]} -> int32[]")], Some(Refusal::UnknownAxes)),
        (&[("reduction: \"ArgMax\"", "reduction: \"ArgMin\"")], Some(Refusal::ReadElsewhere)),
        // A cap on the logits.
        (
            &[(
                "logits = MatMul(flat, w) {T: bfloat16, ",
                "logits = _WgpuFusedMatMul(flat, w) {T: bfloat16, T_extra: [], T_out: bfloat16, \
                 constants: [], expression: \"x: bfloat16; c: 0; s0 = Tanh<bfloat16>(x0); return \
                 s0\", ",
            )],
            None,
        ),
    ] {
        let text = changed(changes);
        match wanted {
            Some(wanted) => assert_eq!(reason(PASS, &text, "xent"), Some(wanted), "{changes:?}"),
            None => refuse(PASS, &text),
        }
    }
}
