"""Ops that sort, select, count and search."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .core import case
from .recurrent import on_cpu


def distinct(t, attr, shape):
    """Values with few ties in wide types and many in narrow ones."""
    x = t.values(attr, shape)
    return x if x.dtype.kind not in "iu" else t.integers(attr, shape, 0, 120)


@case("Where")
def where(t):
    for shape in ((7,), (3, 5), (2, 3, 4), (0, 4), (1500,)):
        x = t.values("T", shape)
        yield dict(condition=np.where(t.rng.uniform(size=shape) < 0.5, x, np.zeros_like(x)))


@case("TopKV2")
def top_k(t):
    for shape, k in (
        ((5,), 2),
        ((3, 7), 7),
        ((2, 1, 1100), 4),
        ((2, 1100), 300),
        ((0, 3), 2),
        ((3, 4), 0),
    ):
        yield dict(input=distinct(t, "T", shape), k=np.int32(k))
    yield dict(input=distinct(t, "T", (3, 7)), k=np.int64(3), sorted=True)


@case("ApproxTopK")
def approx_top_k(t):
    # The op's definition excludes float64, although TensorFlow's GPU list has a kernel for it: no
    # node can have this type.
    dtype = tf.float32 if t["T"] == tf.float64 else t["T"]
    for shape, k in (((5,), 2), ((3, 700), 7), ((0, 3), 2)):
        values = distinct(t, dtype, shape)
        yield t.program(
            lambda values=values, k=k: tf.raw_ops.ApproxTopK(input=values, k=k), graph=True
        )


@case("TopK")
def top_k_attribute(t):
    # TensorFlow refuses every node of TopK on every device, because its own kernels require an
    # attribute that the op lacks. So the test only checks that the op of the next version has the
    # same types.
    values = distinct(t, "T", (3, 7))
    yield t.program(lambda: tf.raw_ops.TopKV2(input=values, k=3), graph=True)


@case("Unique", "UniqueWithCounts")
def unique(t):
    for n in (0, 1, 9, 700):
        yield dict(x=t.integers("T", (n,), 0, 40), out_idx=t["out_idx"])


@case("DynamicPartition")
def dynamic_partition(t):
    for shape, rank, n in (
        ((6,), 1, 3),
        ((2, 3, 2), 2, 2),
        ((0, 2), 1, 2),
        ((), 0, 3),
        ((500, 3), 1, 20),
    ):
        partitions = t.rng.integers(0, n, shape[:rank]).astype(np.int32)
        yield dict(data=t.values("T", shape), partitions=partitions, num_partitions=n)


@case("InTopKV2")
def in_top_k(t):
    for rows, classes, k in ((3, 5, 2), (0, 5, 2), (1, 1, 1), (7, 300, 100)):
        yield dict(
            predictions=t.rng.uniform(size=(rows, classes)).astype(np.float32),
            targets=t.integers("T", (rows,), 0, classes + 1),
            k=t.integers("T", (), k, k + 1),
        )


@case("LowerBound", "UpperBound")
def search_sorted(t):
    for rows, n, m in ((1, 5, 7), (3, 50, 4), (2, 0, 3), (2, 3, 0)):
        yield dict(
            sorted_inputs=np.sort(t.integers("T", (rows, n), 0, 60), axis=1),
            values=t.integers("T", (rows, m), 0, 60),
            out_type=t["out_type"],
        )


@case("Bucketize")
def bucketize(t):
    for shape in ((7,), (2, 3), (0,), ()):
        yield dict(input=t.integers("T", shape, -5, 9), boundaries=[-2.0, 0.5, 4.0])


@case("Bincount")
def bincount(t):
    for n, size in ((9, 5), (0, 3), (500, 20)):
        x = t.rng.integers(0, size + 1, n).astype(np.int32)
        yield dict(arr=x, size=np.int32(size), weights=t.values("T", (n,)))
        yield dict(arr=x, size=np.int32(size), weights=t.values("T", (0,)))


@case("DenseBincount")
def dense_bincount(t):
    for shape, size in (((9,), 5), ((3, 40), 6), ((0,), 3)):
        x = t.integers("Tidx", shape, 0, size + 1)
        bins = t.integers("Tidx", (), size, size + 1)
        for binary in (False, True):
            yield dict(input=x, size=bins, weights=t.values("T", shape), binary_output=binary)
            yield dict(input=x, size=bins, weights=t.values("T", (0,)), binary_output=binary)


@case("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4")
def non_max_suppression(t):
    for n, limit in ((6, 3), (0, 3), (300, 40)):
        at, extent = t.rng.uniform(0, 4, (n, 2)), t.rng.uniform(0, 1.5, (n, 2))
        call = dict(
            boxes=np.concatenate([at, at + extent], axis=1).astype(np.float32),
            scores=t.uniform("T", (n,), 0, 1),
            max_output_size=np.int32(limit),
            iou_threshold=np.float32(0.4),
        )
        if t.op != "NonMaxSuppressionV2":
            call["score_threshold"] = np.float32(0.2)
        yield call
        if t.op == "NonMaxSuppressionV4":
            yield dict(call, pad_to_max_output_size=True)


@case("CombinedNonMaxSuppression")
def combined_non_max_suppression(t):
    for images, n, classes, own, call in (
        (2, 30, 3, True, {}),
        (1, 7, 2, False, {"pad_per_class": True, "clip_boxes": False}),
        (2, 0, 2, False, {}),
    ):
        shape = (images, n, classes if own else 1, 2)
        at, extent = t.rng.uniform(-0.2, 1, shape), t.rng.uniform(0, 0.5, shape)
        yield dict(
            boxes=np.concatenate([at, at + extent], axis=3).astype(np.float32),
            scores=t.uniform(tf.float32, (images, n, classes), 0, 1),
            max_output_size_per_class=np.int32(4),
            max_total_size=np.int32(9),
            iou_threshold=np.float32(0.4),
            score_threshold=np.float32(0.2),
            **call,
        )


@case("GenerateBoundingBoxProposals")
def bounding_box_proposals(t):
    """TensorFlow has no kernel for the CPU; there it is NonMaxSuppression of an image's boxes."""
    corners = t.rng.uniform(0, 30, (4, 5, 3, 2))
    anchors = np.concatenate([corners, corners + t.rng.uniform(4, 12, corners.shape)], axis=3)
    scores, deltas = t.rng.permutation(120) / 120, t.rng.uniform(-0.3, 0.3, (2, 4, 5, 3, 4))
    call = dict(
        scores=scores.reshape(2, 4, 5, 3).astype("float32"),
        bbox_deltas=deltas.reshape(2, 4, 5, 12).astype("float32"),
        image_info=np.array([[30, 40, 1, 0, 0], [40, 30, 2, 0, 0]], "float32"),
        anchors=anchors.reshape(4, 5, 12).astype("float32"),
        nms_threshold=np.float32(0.3),
        pre_nms_topn=np.int32(40),
        min_size=np.float32(1.5),
    )

    def propose():
        if not on_cpu():
            return tf.raw_ops.GenerateBoundingBoxProposals(**call, post_nms_topn=12)
        rois, chances = np.zeros((2, 12, 4), "float32"), np.zeros((2, 12), "float32")
        for image in range(2):
            score = call["scores"][image].ravel()
            order = np.argsort(-score)[:40]
            a, d = anchors.reshape(-1, 4)[order], deltas[image].reshape(-1, 4)[order]
            size = a[:, 2:] - a[:, :2]
            center = a[:, :2] + size / 2 + size * d[:, :2]
            half = size / 2 * np.exp(d[:, 2:])
            extent, scale = call["image_info"][image, :2], call["image_info"][image, 2]
            low, high = (np.clip(v, 0, extent) for v in (center - half, center + half))
            kept = np.flatnonzero(np.min(high - low, axis=1) >= 1.5 * scale)
            boxes = np.concatenate([low, high], axis=1)[kept].astype("float32")
            chosen = tf.image.non_max_suppression(boxes, score[order][kept], 12, 0.3).numpy()
            rois[image, : len(chosen)] = boxes[chosen]
            chances[image, : len(chosen)] = score[order][kept][chosen]
        return tf.constant(rois), tf.constant(chances)

    yield t.program(propose, graph=True)


@case("HistogramFixedWidth")
def histogram(t):
    # The op's definition excludes the 16-bit types, although TensorFlow's GPU list has kernels for
    # them.
    dtype = t["T"] if t["T"] in (tf.float32, tf.float64) else tf.float32
    for n, nbins in ((9, 5), (0, 3), (700, 37)):
        values, span = t.uniform(dtype, (n,), -1, 6), np.asarray([0, 5], t.numpy(dtype))

        def fn(values=values, span=span, nbins=nbins):
            return tf.raw_ops.HistogramFixedWidth(values=values, value_range=span, nbins=nbins)

        yield t.program(fn, graph=True)


# Its gradient is registered only for real types, by TensorFlow too: it has a case of its own.
@case("RaggedFillEmptyRows", gradient=False)
def ragged_fill_empty_rows(t):
    for n, rows in ((3, 6), (0, 3), (0, 0), (40, 30)):
        yield dict(
            value_rowids=t.rng.integers(0, max(rows, 1), n),
            values=t.values("T", (n,)),
            nrows=np.int64(rows),
            default_value=t.values("T", ()),
        )


@case("RaggedTensorToTensor")
def ragged_tensor_to_tensor(t):
    index = t.numpy("Tindex")
    splits = np.array([0, 2, 2, 5, 6], index)
    kinds = dict(row_partition_types=["ROW_SPLITS"], row_partition_tensors=[splits])
    for inner, default in (((), ()), ((3,), (3,)), ((2, 3), (1, 3))):
        values, default = t.values("T", (6, *inner)), t.values("T", default)
        shape = np.full(2 + len(inner), -1, "int64")
        yield dict(shape=shape, values=values, default_value=default, **kinds)
    values, default = t.values("T", (6,)), t.values("T", ())
    yield dict(shape=np.array([5, 2], "int32"), values=values, default_value=default, **kinds)
    yield dict(
        shape=np.array([-1, -1, 2], "int64"),
        values=t.values("T", (5,)),
        default_value=default,
        row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS"],
        row_partition_tensors=[
            np.asarray(3, index),
            np.array([0, 2, 2], index),
            np.array([0, 1, 4, 5], index),
        ],
    )
    yield dict(
        shape=np.array([-1, -1], "int32"),
        values=t.values("T", (0,)),
        default_value=default,
        row_partition_types=["ROW_SPLITS"],
        row_partition_tensors=[np.zeros(3, index)],
    )


@case("RaggedFillEmptyRowsGrad")
def ragged_fill_empty_rows_grad(t):
    for n, m in ((3, 6), (0, 3), (0, 0), (30, 40)):
        yield dict(
            reverse_index_map=np.sort(t.rng.permutation(m)[:n]),
            grad_values=t.integers("T", (m,), 0, 3),
        )
