//! Shapes of losses whose batch is unknown, and shapes that the graph asks of reshapes.

use super::after;

/// A loss of a batch of unknown size: rows of logits and labels, and the gradient's scale, in which
/// TensorFlow sees extents of their own.
const LOSS: &str = "preserve y
    x = Placeholder -> float32[?1, 32, 500]
    s = Shape(x) {T: float32, out_type: int32} -> int32[3]
    two = Const {dtype: int32, value: tensor int32[1] [2]} -> int32[1]
    three = Const {dtype: int32, value: tensor int32[1] [3]} -> int32[1]
    one = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
    last = StridedSlice(s, two, three, one) {Index: int32, T: int32, begin_mask: 0, \
    ellipsis_mask: 0, end_mask: 0, new_axis_mask: 0, shrink_axis_mask: 1} -> int32[]
    open = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]
    target = Pack(open, last) {N: 2, T: int32, axis: 0} -> int32[2]
    rows = Reshape(x, target) {T: float32, Tshape: int32} -> float32[?3, ?4]
    labels = Placeholder -> int64[?2, 32]
    all = Const {dtype: int32, value: tensor int32[1] [-1]} -> int32[1]
    l = Reshape(labels, all) {T: int64, Tshape: int32} -> int64[?3]
    xent = SparseSoftmaxCrossEntropyWithLogits(rows, l) {T: float32, Tlabels: int64} -> \
    float32[?3], float32[?3, ?4]
    g = Placeholder -> float32[?2, 32]
    h = Reshape(g, all) {T: float32, Tshape: int32} -> float32[?5]
    axis = Const {dtype: int32, value: tensor int32[] [1]} -> int32[]
    e = ExpandDims(h, axis) {T: float32, Tdim: int32} -> float32[?5, 1]
    y = Mul(xent:1, e) {T: float32} -> float32[?6, ?4]";

/// Both the logits and the labels have 32 rows for each item of a batch. So their batches are
/// equal, and so are the numbers of rows.
#[test]
fn equal_multiples_of_a_batch_are_equal() {
    let inferred = after("lists", LOSS);
    assert!(inferred.contains("y = Mul(xent:1, e) {T: float32} -> float32[?3, 500]"), "{inferred}");
    assert!(inferred.contains("x = Placeholder -> float32[?1, 32, 500]"), "{inferred}");
    assert!(inferred.contains("labels = Placeholder -> int64[?1, 32]"), "{inferred}");
    // Other multiples tell nothing of each other.
    let other =
        LOSS.replace("g = Placeholder -> float32[?2, 32]", "g = Placeholder -> float32[?2, 16]");
    let inferred = after("lists", &other);
    assert!(
        inferred.contains("e = ExpandDims(h, axis) {T: float32, Tdim: int32} -> float32[?5, 1]")
    );
}

/// The target of a reshape is the shape of its result, unless an extent of it is open.
#[test]
fn shapes_of_reshapes_are_their_targets() {
    let text = "preserve y, z
        x = Placeholder -> float32[?1, 8]
        s = Shape(x) {T: float32, out_type: int32} -> int32[2]
        more = Const {dtype: int32, value: tensor int32[1] [1]} -> int32[1]
        zero = Const {dtype: int32, value: tensor int32[] [0]} -> int32[]
        target = ConcatV2(s, more, zero) {N: 2, T: int32, Tidx: int32} -> int32[3]
        v = Reshape(x, target) {T: float32, Tshape: int32} -> float32[?1, 8, 1]
        w = Neg(v) {T: float32} -> float32[?1, 8, 1]
        t = Shape(w) {T: float32, out_type: int32} -> int32[3]
        y = Fill(t, zero) {T: int32, index_type: int32}
        z = Identity(w) {T: float32}";
    let inferred = after("lists", text);
    assert!(inferred.contains("y = Fill(target, zero)"), "{inferred}");
    for (from, to) in [
        ("tensor int32[1] [1]", "tensor int32[1] [-1]"),
        (
            "t = Shape(w) {T: float32, out_type: int32}",
            "t = Shape(w) {T: float32, out_type: int64}",
        ),
        ("t = Shape(w)", "t = Shape(w, ^x)"),
        // A scalar is a target, too.
        ("-> int32[3]\n        v =", "-> int32[]\n        v ="),
    ] {
        let inferred = after("lists", &text.replace(from, to));
        assert!(inferred.contains("y = Fill(t, zero)"), "{inferred}");
    }
}
