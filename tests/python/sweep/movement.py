"""Data movement: transposes, slices, joins, pads, diagonals, blocks of space."""

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from . import reference
from .core import case
from .removed import removed_op


def by_parts(t, call):
    """A call that the CPU does for the real and the imaginary parts, if it has no complex
    kernel.
    """
    raw = getattr(tf.raw_ops, t.op)

    def run():
        if "CPU" not in tf.constant(0.0).device:
            return raw(**call)
        real, imaginary = (
            raw(
                **{k: getattr(v, part) if np.iscomplexobj(v) else v for k, v in call.items()}
            ).numpy()
            for part in ("real", "imag")
        )
        return tf.constant((real + 1j * imaginary).astype(t.numpy("T")))

    return t.program(run) if t["T"].is_complex else call


def index(t, values, attr="Tidx"):
    """An index tensor of the type in the registration."""
    return np.array(values, t.get(attr, tf.int32).as_numpy_dtype)


@case("Transpose", "ConjugateTranspose")
def transposes(t):
    many = [(shape, (1, 0)) for shape in t.many_rows()]
    for shape, perm in [
        ((3, 5, 7), (2, 0, 1)),
        ((4, 33), (1, 0)),
        ((2, 3, 4, 5), (0, 2, 3, 1)),
        ((0, 3), (1, 0)),
        *many,
    ]:
        yield dict(x=t.values("T", shape), perm=np.array(perm, "int32"))
    # TensorFlow's CPU aborts on ConjugateTranspose of a scalar.
    if t.op == "Transpose":
        yield dict(x=t.values("T", ()), perm=np.zeros(0, "int32"))


@case("Slice")
def slices(t):
    for shape, begin, size in [
        ((5, 7), (1, 2), (3, -1)),
        ((3, 4, 6), (0, 1, 2), (3, 2, 1)),
        ((4,), (4,), (0,)),
        ((), (), ()),
    ]:
        yield dict(
            input=t.values("T", shape), begin=np.array(begin, "int64"), size=np.array(size, "int64")
        )


@case("BroadcastTo")
def broadcasts(t):
    for shape, to in [
        ((3, 1), (3, 5)),
        ((1,), (2, 3, 4)),
        ((), (7,)),
        ((2, 1, 3), (2, 0, 3)),
        ((), ()),
    ]:
        yield dict(input=t.values("T", shape), shape=np.array(to, "int32"))


@case("Tile", cpu_as={"uint16": "int32"}, tol={"float16": (1e-2, 2e-2), "bfloat16": (5e-2, 1e-1)})
def tiles(t):
    for shape, times in [
        ((2, 3), (3, 2)),
        ((5,), (1,)),
        ((2, 1, 3), (1, 4, 2)),
        ((2, 3), (0, 2)),
        ((), ()),
    ]:
        yield dict(input=t.values("T", shape), multiples=index(t, times, "Tmultiples"))


@case("ReverseV2")
def reversals(t):
    for shape, axes in [
        ((3, 5, 2), (0, -1)),
        ((7,), (0,)),
        ((2, 3), ()),
        ((0, 3), (1,)),
        ((2, 4, 3), (1,)),
    ]:
        yield dict(tensor=t.values("T", shape), axis=index(t, axes))


@case("Reverse")
def flagged_reversals(t):
    for shape, flags in [
        ((3, 5, 2), (True, False, True)),
        ((7,), (True,)),
        ((3, 0), (True, True)),
        ((2, 3), (False, True)),
    ]:
        yield dict(tensor=t.values("T", shape), dims=np.array(flags))


@case("Roll")
def rolls(t):
    for shape, shift, axis in [
        ((3, 5), (2,), (1,)),
        ((4, 3, 5), (-1, 7), (0, 2)),
        ((5, 2), (1, 1), (0, 0)),
        ((0, 3), (1,), (1,)),
    ]:
        yield dict(
            input=t.values("T", shape),
            shift=index(t, shift, "Tshift"),
            axis=index(t, axis, "Taxis"),
        )
    yield dict(input=t.values("T", (6,)), shift=index(t, 2, "Tshift"), axis=index(t, 0, "Taxis"))


# Shape, begin, end, strides, masks.
STRIDED = [
    ((7, 6), (1, 0), (6, 5), (2, 1), {}),
    ((7, 6), (-1, -1), (0, 0), (-2, -1), dict(begin_mask=1, end_mask=3)),
    ((3, 4, 5), (0, 2), (0, 3), (1, 1), dict(ellipsis_mask=1, shrink_axis_mask=2)),
    ((5,), (0, 1), (0, 4), (1, 1), dict(new_axis_mask=1)),
    ((4, 3), (3, 0), (1, 3), (1, 1), {}),
    ((), (), (), (), {}),
]


def specification(begin, end, strides):
    return {k: np.array(v, "int32") for k, v in dict(begin=begin, end=end, strides=strides).items()}


def sliced_shape(shape, spec, masks):
    """The shape of a strided slice, by the CPU."""
    with tf.device("/device:CPU:0"):
        return tuple(tf.raw_ops.StridedSlice(input=tf.zeros(shape), **spec, **masks).shape)


@case("StridedSlice")
def strided_slices(t):
    for shape, *bounds, masks in STRIDED:
        yield dict(input=t.values("T", shape), **specification(*bounds), **masks)


@case("StridedSliceGrad")
def strided_slice_gradients(t):
    for shape, *bounds, masks in STRIDED:
        spec = specification(*bounds)
        dy = t.values("T", sliced_shape(shape, spec, masks))
        yield dict(shape=np.array(shape, "int32"), dy=dy, **spec, **masks)


@case("TensorStridedSliceUpdate")
def strided_slice_updates(t):
    for shape, *bounds, masks in STRIDED:
        spec = specification(*bounds)
        value = t.values("T", sliced_shape(shape, spec, masks))
        yield dict(input=t.values("T", shape), value=value, **spec, **masks)
    # Any value can be assigned to an empty slice.
    for shape in ((), (1, 0), (5, 0)):
        yield dict(
            input=t.values("T", (3, 4)),
            value=t.values("T", shape),
            **specification((1, 1), (1, 1), (1, 1)),
        )
    for shape in BROADCAST:
        yield dict(
            input=t.values("T", (3, 4)),
            value=t.values("T", shape),
            **specification((0, 0), (2, 3), (1, 2)),
        )


#: Shapes of values that become [2, 2].
BROADCAST = [(), (1,), (2,), (2, 1), (1, 1, 2)]


@case("ResourceStridedSliceAssign", "StridedSliceAssign")
def strided_slice_assignments(t):
    values = [(shape, specification(*bounds), masks, None) for shape, *bounds, masks in STRIDED] + [
        ((3, 4), specification((0, 0), (2, 3), (1, 2)), {}, value) for value in BROADCAST
    ]
    for shape, spec, masks, of in values:
        of = sliced_shape(shape, spec, masks) if of is None else of
        start, value = t.values("T", shape), t.values("T", of)

        def assign(start=start, value=value, spec=spec, masks=masks):
            if t.op == "StridedSliceAssign":
                return reference.changed(
                    {"ref": start},
                    lambda v: tf.raw_ops.StridedSliceAssign(**v, value=value, **spec, **masks),
                )
            variable = tf.Variable(start)
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=variable.handle, value=tf.constant(value), **spec, **masks
            )
            return variable.read_value()

        yield t.program(assign)


#: Shapes of a tensor and of a box in it, and the box's position: clamped if it would not fit.
BOXES = [
    ((3, 4), (2, 2), (1, 1)),
    ((3, 4), (2, 3), (7, -5)),
    ((2, 5, 7), (1, 5, 3), (1, 0, 2)),
    ((9,), (4,), (3,)),
    ((3, 4), (0, 2), (1, 1)),
    ((), (), ()),
]


# Python has other names for them; TensorFlow's CPU compiles them.
@case("XlaDynamicSlice")
def dynamic_slices(t):
    for shape, size, start in BOXES:
        x, start = t.values("T", shape), index(t, start, "Tindices")
        size = index(t, size, "Tindices")
        yield t.program(
            lambda x=x, start=start, size=size: gen_xla_ops.xla_dynamic_slice(
                tf.constant(x), tf.constant(start), tf.constant(size)
            ),
            graph=True,
        )


@case("XlaDynamicUpdateSlice")
def dynamic_updates(t):
    for shape, size, start in BOXES:
        x, value = t.values("T", shape), t.values("T", size)
        start = index(t, start, "Tindices")
        yield t.program(
            lambda x=x, value=value, start=start: gen_xla_ops.xla_dynamic_update_slice(
                tf.constant(x), tf.constant(value), tf.constant(start)
            ),
            graph=True,
        )


PADDED = [
    ((3, 4), ((1, 2), (0, 3))),
    ((5,), ((0, 0),)),
    ((2, 3, 4), ((1, 1), (2, 0), (0, 1))),
    ((0, 2), ((1, 0), (1, 1))),
]


@case("Pad")
def pads(t):
    for shape, paddings in PADDED:
        yield dict(input=t.values("T", shape), paddings=index(t, paddings, "Tpaddings"))
    yield dict(input=t.values("T", ()), paddings=np.zeros((0, 2), t.numpy("Tpaddings")))


@case("PadV2")
def filled_pads(t):
    for shape, paddings in PADDED:
        fill = t.values("T", ())
        yield dict(
            input=t.values("T", shape),
            paddings=index(t, paddings, "Tpaddings"),
            constant_values=fill,
        )


MIRRORED = [((4, 5), ((1, 3), (0, 2))), ((6,), ((0, 0),)), ((2, 3, 4), ((1, 1), (2, 0), (0, 3)))]


@case("MirrorPad", gradient=False, tol={"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)})
def mirrored_pads(t):
    for mode in "REFLECT", "SYMMETRIC":
        for shape, paddings in MIRRORED:
            yield dict(
                input=t.values("T", shape), paddings=index(t, paddings, "Tpaddings"), mode=mode
            )


@case("MirrorPadGrad", tol={"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)})
def mirrored_pad_gradients(t):
    for mode in "REFLECT", "SYMMETRIC":
        for shape, paddings in MIRRORED:
            padded = tuple(n + a + b for n, (a, b) in zip(shape, paddings))
            yield dict(
                input=t.values("T", padded), paddings=index(t, paddings, "Tpaddings"), mode=mode
            )


JOINED = [
    ([(3, 2), (3, 5), (3, 1)], 1),
    ([(2, 3), (4, 3)], 0),
    ([(2, 0, 3), (2, 4, 3), (2, 1, 3)], -2),
]


@case("ConcatV2")
def joins(t):
    for shapes, axis in JOINED:
        yield dict(values=[t.values("T", s) for s in shapes], axis=np.int32(axis))
    yield dict(values=[t.values("T", (2, 3)) for _ in range(11)], axis=np.int32(1))


@case("Concat")
def old_joins(t):
    for shapes, axis in JOINED:
        yield dict(concat_dim=np.int32(axis), values=[t.values("T", s) for s in shapes])


@case("Pack")
def packs(t):
    for shape, count, axis in [
        ((3, 2), 3, 1),
        ((), 4, 0),
        ((0, 3), 2, 0),
        ((2, 3), 1, -1),
        ((5,), 10, -1),
    ]:
        yield dict(values=[t.values("T", shape) for _ in range(count)], axis=axis)


@case("Unpack")
def unpacks(t):
    for shape, axis in [((3, 2), 0), ((3, 5, 2), 1), ((4,), 0), ((2, 0), 0), ((2, 7), -1)]:
        yield dict(value=t.values("T", shape), num=shape[axis], axis=axis)


@case("Split")
def splits(t):
    for shape, axis, count in [
        ((6, 5), 0, 3),
        ((2, 4, 3), 1, 2),
        ((3, 8), -1, 4),
        ((3, 2), 0, 1),
        ((0, 4), 1, 2),
    ]:
        yield dict(axis=np.int32(axis), value=t.values("T", shape), num_split=count)


@case("SplitV")
def sized_splits(t):
    for shape, axis, sizes in [
        ((6, 5), 0, (1, 3, 2)),
        ((2, 9), 1, (4, -1, 2)),
        ((4,), 0, (4,)),
        ((2, 5), 1, (0, 5)),
    ]:
        yield dict(
            value=t.values("T", shape),
            size_splits=index(t, sizes, "Tlen"),
            axis=np.int32(axis),
            num_split=len(sizes),
        )


ALIGNMENTS = ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"]


@case("MatrixDiag", "MatrixDiagPart")
def diagonals(t):
    name = "diagonal" if t.op == "MatrixDiag" else "input"
    for shape in [(3, 4), (2, 5, 3), (2, 1, 1), (0, 2, 2)]:
        yield {name: t.values("T", shape)}


@case("MatrixSetDiag")
def set_diagonals(t):
    for shape in [(3, 4), (2, 5, 3), (0, 2, 2)]:
        yield dict(
            input=t.values("T", shape), diagonal=t.values("T", (*shape[:-2], min(shape[-2:])))
        )


# Matrix, diagonals, packed shape.
BANDS = [
    ((4, 5), (-1, 2), (4, 4)),
    ((3, 3), (0, 0), (3,)),
    ((5, 3), (-3, -1), (3, 3)),
    ((2, 6), (1, 4), (4, 2)),
]


def aligned(t):
    """The alignments of version 3; version 2 has none."""
    return [dict(align=a) for a in ALIGNMENTS] if t.op.endswith("V3") else [{}]


@case("MatrixDiagV2", "MatrixDiagV3")
def bands_to_matrices(t):
    for (rows, columns), k, packed in BANDS:
        for align in aligned(t):
            yield dict(
                diagonal=t.values("T", (2, *packed)),
                k=np.array(k, "int32"),
                num_rows=np.int32(rows),
                num_cols=np.int32(columns),
                padding_value=t.values("T", ()),
                **align,
            )


@case("MatrixDiagPartV2", "MatrixDiagPartV3")
def bands_of_matrices(t):
    for shape, k, _ in BANDS:
        for align in aligned(t):
            fill = t.values("T", ())
            yield dict(
                input=t.values("T", (2, *shape)),
                k=np.array(k, "int32"),
                padding_value=fill,
                **align,
            )


@case("MatrixSetDiagV2", "MatrixSetDiagV3")
def set_bands(t):
    for shape, k, packed in BANDS:
        for align in aligned(t):
            yield dict(
                input=t.values("T", (2, *shape)),
                diagonal=t.values("T", (2, *packed)),
                k=np.array(k, "int32"),
                **align,
            )


@case("MatrixBandPart")
def band_parts(t):
    for shape, low, high in [
        ((4, 5), 1, 2),
        ((2, 3, 3), -1, 0),
        ((2, 5, 2), 0, -1),
        ((0, 3, 3), 1, 1),
    ]:
        yield dict(input=t.values("T", shape), num_lower=np.int64(low), num_upper=np.int64(high))


@case(
    "BatchMatrixDiag",
    "BatchMatrixDiagPart",
    "BatchMatrixSetDiag",
    "BatchMatrixBandPart",
    gradient=False,
)
def old_diagonals(t):
    # The CPU has no BatchMatrixBandPart for bool.
    if t.op == "BatchMatrixBandPart" and t["T"] == tf.bool:
        yield t.program(lambda: tf.linalg.band_part(tf.constant(np.ones((2, 3), bool)), 1, 0))
        return
    for shape in [(3, 3), (2, 5, 3)]:
        x = t.values("T", shape)
        more = {
            "BatchMatrixSetDiag": [t.values("T", (*shape[:-2], min(shape[-2:])))],
            "BatchMatrixBandPart": [np.int64(1), np.int64(0)],
        }.get(t.op, [])
        yield t.program(lambda x=x, more=more: removed_op(t.op, [x, *more], t.types, producer=12))


@case("Diag", cpu_as={"bfloat16": "float32"})
def tensor_diagonals(t):
    for shape in [(4,), (2, 3), (0,)]:
        yield dict(diagonal=t.values("T", shape))


@case("DiagPart", cpu_as={"bfloat16": "float32"})
def tensor_diagonal_parts(t):
    for shape in [(4, 4), (2, 3, 2, 3), (0, 0)]:
        yield dict(input=t.values("T", shape))


@case("DepthToSpace", "SpaceToDepth")
def depths(t):
    """NHWC, the only format of TensorFlow's CPU; test_movement.py compares the other format."""
    for shape in [(2, 4, 6, 8), (1, 2, 2, 4), (0, 2, 2, 4)]:
        yield dict(input=t.values("T", shape), block_size=2)


@case("SpaceToBatch", "BatchToSpace", cpu_as={"bool": "uint8"})
def old_blocks(t):
    batch, name = (2, "paddings") if t.op == "SpaceToBatch" else (8, "crops")
    for pairs in [((0, 0), (0, 0)), ((1, 1), (0, 2))]:
        x = t.values("T", (batch, 4, 6, 3))
        yield by_parts(t, {"input": x, name: np.array(pairs, "int32"), "block_size": 2})


@case("SpaceToBatchND", "BatchToSpaceND", cpu_as={"bool": "uint8"})
def blocks(t):
    batch, name = (2, "paddings") if t.op == "SpaceToBatchND" else (12, "crops")
    for shape, block, pairs in [
        ((4, 6, 3), (2, 3), ((0, 0), (0, 0))),
        ((4, 6, 3), (2, 3), ((1, 1), (2, 1))),
        ((5, 2), (1,), ((0, 0),)),
    ]:
        x = t.values("T", (batch, *shape))
        yield by_parts(
            t, {"input": x, "block_shape": np.array(block, "int32"), name: np.array(pairs, "int32")}
        )


@case("Snapshot")
def snapshots(t):
    for shape in [(3, 4), (), (0, 2)]:
        yield dict(input=t.values("T", shape))
