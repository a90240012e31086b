"""TensorLists and optionals: sums, zeros, and lists of types that DEVICE_DEFAULT lacks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from .core import Program, Types, case

raw = tf.raw_ops
ELEMENT = "element_dtype"


def shape(*dims: int) -> tf.Tensor:
    """An element shape, which lists keep in host memory."""
    return tf.constant(dims, tf.int32)


def list_of(rows, dtype: tf.DType | None = None) -> tf.Tensor:
    """A list of the rows of `rows`, pushed one by one: these ops serve every type."""
    rows = tf.convert_to_tensor(rows, dtype)
    handle = raw.EmptyTensorList(
        element_shape=shape(*rows.shape[1:]),
        max_num_elements=tf.constant(-1),
        element_dtype=rows.dtype,
    )
    for row in tf.unstack(rows):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=row)
    return handle


def stacked(handle: tf.Tensor, dtype: tf.DType, *dims: int) -> tf.Tensor:
    """The elements as one tensor."""
    return raw.TensorListStack(input_handle=handle, element_shape=shape(*dims), element_dtype=dtype)


def reserved(dtype: tf.DType, n: int, *dims: int) -> tf.Tensor:
    """A list of `n` elements that are not set."""
    return raw.TensorListReserve(
        element_shape=shape(*dims), num_elements=tf.constant(n), element_dtype=dtype
    )


def nested(*lists: tf.Tensor) -> tf.Tensor:
    """A list of lists."""
    handle = raw.EmptyTensorList(
        element_shape=shape(), max_num_elements=tf.constant(-1), element_dtype=tf.variant
    )
    for inner in lists:
        handle = raw.TensorListPushBack(input_handle=handle, tensor=inner)
    return handle


def popped(handle: tf.Tensor, n: int) -> list[tf.Tensor]:
    """The last `n` elements of a list of lists."""
    found = []
    for _ in range(n):
        handle, inner = raw.TensorListPopBack(
            input_handle=handle, element_shape=shape(), element_dtype=tf.variant
        )
        found.append(inner)
    return found


def value(optional: tf.Tensor, *dtypes: tf.DType) -> list[tf.Tensor]:
    """The values in an optional."""
    unknown = [tf.TensorShape(None)] * len(dtypes)
    return list(raw.OptionalGetValue(optional=optional, output_types=dtypes, output_shapes=unknown))


@case("OptionalFromValue", "OptionalGetValue", "OptionalHasValue", "OptionalNone")
def optional(t: Types) -> Iterator[Program]:
    x, flags, words = (
        t.normal(tf.float32, (2, 3)),
        t.values(tf.bool, (5,)),
        tf.constant(["a", "bc"]),
    )

    def full() -> list[tf.Tensor]:
        made = raw.OptionalFromValue(
            components=[tf.constant(x), tf.constant(flags), tf.constant(7), words]
        )
        has = raw.OptionalHasValue(optional=made)
        return [has, *value(made, tf.float32, tf.bool, tf.int32, tf.string)]

    yield t.program(full, graph=True)
    yield t.program(lambda: raw.OptionalHasValue(optional=raw.OptionalNone()), graph=True)


@case("AddN:variant")
def add_n(t: Types) -> Iterator[Program]:
    for dtype in (tf.float32, tf.float16, tf.bfloat16, tf.int64):
        x = [t.values(dtype, (3, 5)) for _ in range(8)]
        yield t.program(
            lambda x=x, d=dtype: stacked(raw.AddN(inputs=[list_of(v) for v in x[:2]]), d, 5),
            graph=True,
        )
        yield t.program(
            lambda x=x, d=dtype: stacked(raw.AddN(inputs=[list_of(v) for v in x]), d, 5)
        )
    x = t.normal(tf.float32, (4, 2))

    def half() -> tf.Tensor:
        some = raw.TensorListSetItem(
            input_handle=reserved(tf.float32, 4, 2), index=tf.constant(1), item=x[0]
        )
        return stacked(
            raw.AddN(inputs=[some, list_of(x), reserved(tf.float32, 4, 2)]), tf.float32, 2
        )

    def of_lists() -> list[tf.Tensor]:
        a, b = nested(list_of(x), list_of(x[:1])), nested(list_of(2 * x), list_of(3 * x[:1]))
        return [stacked(inner, tf.float32, 2) for inner in popped(raw.AddN(inputs=[a, b]), 2)]

    def of_optionals() -> list[tf.Tensor]:
        a = raw.OptionalFromValue(components=[tf.constant(x), tf.constant(x[0]), list_of(x)])
        b = raw.OptionalFromValue(components=[tf.constant(2 * x), tf.constant(x[1]), list_of(x)])
        u, v, w = value(raw.AddN(inputs=[a, b, a]), tf.float32, tf.float32, tf.variant)
        return [u, v, stacked(w, tf.float32, 2)]

    yield t.program(of_optionals, graph=True)
    none = raw.OptionalNone
    yield t.program(lambda: raw.OptionalHasValue(optional=raw.AddN(inputs=[none(), none()])))
    yield t.program(half, graph=True)
    yield t.program(of_lists, graph=True)
    yield t.program(lambda: stacked(raw.AddN(inputs=[list_of(x)]), tf.float32, 2))
    yield t.program(
        lambda: stacked(raw.AddN(inputs=[reserved(tf.float32, 0, 2)] * 2), tf.float32, 2)
    )
    yield t.program(lambda: stacked(raw.AddN(inputs=[list_of(x[:, :0])] * 2), tf.float32, 0))


@case("ZerosLike:variant")
def zeros_like(t: Types) -> Iterator[Program]:
    for dtype in (tf.float32, tf.float16, tf.bfloat16, tf.int64, tf.bool, tf.complex64):
        x = t.values(dtype, (3, 5))
        yield t.program(lambda x=x, d=dtype: stacked(raw.ZerosLike(x=list_of(x)), d, 5), graph=True)
    x = t.normal(tf.float32, (4, 2))

    def of_lists() -> list[tf.Tensor]:
        zeros = raw.ZerosLike(x=nested(list_of(x), list_of(x[:1])))
        return [stacked(inner, tf.float32, 2) for inner in popped(zeros, 2)]

    def of_optional() -> list[tf.Tensor]:
        made = raw.OptionalFromValue(components=[tf.constant(x), tf.constant([True]), list_of(x)])
        u, v, w = value(raw.ZerosLike(x=made), tf.float32, tf.bool, tf.variant)
        return [u, v, stacked(w, tf.float32, 2)]

    yield t.program(of_optional, graph=True)
    yield t.program(lambda: raw.OptionalHasValue(optional=raw.ZerosLike(x=raw.OptionalNone())))
    yield t.program(of_lists, graph=True)
    yield t.program(lambda: stacked(raw.ZerosLike(x=reserved(tf.float32, 3, 2)), tf.float32, 2))
    yield t.program(
        lambda: raw.TensorListLength(input_handle=raw.ZerosLike(x=reserved(tf.float32, 0, 2)))
    )


@case("TensorListStack")
def stack(t: Types) -> Iterator[Program]:
    d = t[ELEMENT]
    for dims in ((3, 2, 5), (4,), (2, 0, 3), (5, 1)):
        x = t.values(ELEMENT, dims)
        yield t.program(lambda x=x: stacked(list_of(x), d, *x.shape[1:]), graph=True)
    item = t.values(ELEMENT, (3,))

    def some() -> tf.Tensor:
        handle = raw.TensorListSetItem(
            input_handle=reserved(d, 3, 3), index=tf.constant(1), item=item
        )
        return stacked(handle, d, -1)

    yield t.program(some, graph=True)


@case("TensorListFromTensor")
def from_tensor(t: Types) -> Iterator[Program]:
    for dims in ((3, 2, 5), (7,), (0, 3), (2, 0)):
        x = t.values(ELEMENT, dims)

        def run(x=x) -> tf.Tensor:
            handle = raw.TensorListFromTensor(
                tensor=tf.constant(x), element_shape=shape(*x.shape[1:])
            )
            return stacked(handle, t[ELEMENT], *x.shape[1:])

        yield t.program(run, graph=True)


@case("TensorListGetItem", "TensorListSetItem")
def item(t: Types) -> Iterator[Program]:
    d, x, new = t[ELEMENT], t.values(ELEMENT, (4, 5)), t.values(ELEMENT, (5,))

    def get(handle: tf.Tensor, index: int) -> tf.Tensor:
        return raw.TensorListGetItem(
            input_handle=handle, index=tf.constant(index), element_shape=shape(-1), element_dtype=d
        )

    def run() -> list[tf.Tensor]:
        handle = list_of(x)
        other = raw.TensorListSetItem(
            input_handle=handle, index=tf.constant(2), item=tf.constant(new)
        )
        return [get(handle, 2), get(other, 2), get(other, 3)]

    yield t.program(run, graph=True)
    yield t.program(lambda: get(reserved(d, 3, 5), 1), graph=True)


@case("TensorListPopBack")
def pop_back(t: Types) -> Iterator[Program]:
    d = t[ELEMENT]
    if d == tf.variant:
        x = t.normal(tf.float32, (3, 2))
        yield t.program(
            lambda: [
                stacked(i, tf.float32, 2) for i in popped(nested(list_of(x), list_of(x[1:])), 2)
            ],
            graph=True,
        )
        return

    def pop(handle: tf.Tensor) -> list[tf.Tensor]:
        rest, last = raw.TensorListPopBack(
            input_handle=handle, element_shape=shape(5), element_dtype=d
        )
        return [last, stacked(rest, d, 5)]

    x = t.values(ELEMENT, (3, 5))
    yield t.program(lambda: pop(list_of(x)), graph=True)
    yield t.program(lambda: pop(reserved(d, 2, 5)), graph=True)


@case("TensorListPushBackBatch")
def push_back_batch(t: Types) -> Iterator[Program]:
    x, more = t.values(ELEMENT, (2, 3, 5)), t.values(ELEMENT, (2, 5))

    def run() -> list[tf.Tensor]:
        with tf.device("CPU:0"):  # TensorFlow packs variants on the CPU only
            handles = tf.stack([list_of(x[0]), list_of(x[1])])
        pushed = raw.TensorListPushBackBatch(input_handles=handles, tensor=tf.constant(more))
        with tf.device("CPU:0"):
            return [stacked(handle, t[ELEMENT], 5) for handle in tf.unstack(pushed)]

    yield t.program(run)


@case("TensorListGather")
def gather(t: Types) -> Iterator[Program]:
    d, x = t[ELEMENT], t.values(ELEMENT, (4, 5))

    def take(handle: tf.Tensor, *indices: int) -> tf.Tensor:
        return raw.TensorListGather(
            input_handle=handle,
            indices=tf.constant(indices, tf.int32),
            element_shape=shape(5),
            element_dtype=d,
        )

    yield t.program(lambda: take(list_of(x), 2, 0, 3, 2), graph=True)
    yield t.program(lambda: take(list_of(x)), graph=True)
    yield t.program(lambda: take(reserved(d, 2, 5), 1), graph=True)


@case("TensorListScatter", "TensorListScatterV2", "TensorListScatterIntoExistingList")
def scatter(t: Types) -> Iterator[Program]:
    d = t[ELEMENT]
    for n, indices in ((3, (4, 0, 2)), (0, ())):
        x = t.values(ELEMENT, (n, 5))

        def run(x=x, indices=indices) -> tf.Tensor:
            arguments = {"tensor": tf.constant(x), "indices": tf.constant(indices, tf.int32)}
            if t.op == "TensorListScatterIntoExistingList":
                handle = raw.TensorListScatterIntoExistingList(
                    input_handle=reserved(d, 5, 5), **arguments
                )
            elif t.op == "TensorListScatterV2":
                handle = raw.TensorListScatterV2(
                    element_shape=shape(5), num_elements=tf.constant(6), **arguments
                )
            else:
                handle = raw.TensorListScatter(element_shape=shape(5), **arguments)
            return stacked(handle, d, 5)

        yield t.program(run, graph=True)


@case("TensorListConcat", "TensorListConcatV2")
def concat(t: Types) -> Iterator[Program]:
    d, x = t[ELEMENT], t.values(ELEMENT, (7, 3))

    def joined(*lengths: int) -> list[tf.Tensor]:
        handle = raw.EmptyTensorList(
            element_shape=shape(-1, 3), max_num_elements=tf.constant(-1), element_dtype=d
        )
        for start, end in zip(lengths, lengths[1:]):
            handle = raw.TensorListPushBack(input_handle=handle, tensor=tf.constant(x[start:end]))
        if t.op == "TensorListConcat":
            return list(
                raw.TensorListConcat(input_handle=handle, element_dtype=d, element_shape=[None, 3])
            )
        return list(
            raw.TensorListConcatV2(
                input_handle=handle,
                element_shape=shape(-1, 3),
                leading_dims=tf.constant([], tf.int64),
                element_dtype=d,
            )
        )

    yield t.program(lambda: joined(0, 2, 2, 7), graph=True)
    yield t.program(lambda: joined(0, 1), graph=True)
    yield t.program(lambda: joined(), graph=True)


@case("TensorListSplit")
def split(t: Types) -> Iterator[Program]:
    x = t.values(ELEMENT, (7, 3))

    def run() -> list[tf.Tensor]:
        handle = raw.TensorListSplit(
            tensor=tf.constant(x),
            element_shape=shape(-1, 3),
            lengths=tf.constant([2, 0, 5], tf.int64),
        )
        rest, last = raw.TensorListPopBack(
            input_handle=handle, element_shape=shape(-1, 3), element_dtype=t[ELEMENT]
        )
        del rest
        return [last]

    yield t.program(run, graph=True)


def ragged_types(t: Types) -> tuple[np.ndarray, list[tf.DType]]:
    """Row splits, and types of values: the parts that the op's registration leaves open."""
    splits = np.array([0, 2, 2, 5], t.numpy("Tsplits"))
    return splits, [tf.float32, tf.bfloat16, tf.int32, tf.bool, tf.complex64, tf.string]


def ragged_values(t: Types, dtype: tf.DType) -> np.ndarray:
    return (
        np.array([b"a", b"", b"c", b"d", b"e"]) if dtype == tf.string else t.values(dtype, (5, 2))
    )


def of_ragged(handle: tf.Tensor, dtype: tf.DType, splits: np.ndarray, rank: int) -> list[tf.Tensor]:
    """The splits and the values within a variant, as the components of one ragged tensor."""
    result = raw.RaggedTensorFromVariant(
        encoded_ragged=handle,
        input_ragged_rank=-1,
        output_ragged_rank=rank,
        Tvalues=dtype,
        Tsplits=splits.dtype,
    )
    return [*result.output_nested_splits, result.output_dense_values]


@case("RaggedTensorFromVariant", "RaggedTensorToVariant")
def ragged(t: Types) -> Iterator[Program]:
    splits, dtypes = ragged_types(t)
    for dtype in dtypes:
        values = ragged_values(t, dtype)
        for batched in (False, True):

            def there_and_back(values=values, batched=batched, d=dtype) -> list[tf.Tensor]:
                handle = raw.RaggedTensorToVariant(
                    rt_nested_splits=[tf.constant(splits)],
                    rt_dense_values=tf.constant(values, d),
                    batched_input=batched,
                )
                return of_ragged(handle, d, splits, 1)

            # In a function the constant strings would be on the device.
            yield t.program(there_and_back, graph=dtype != tf.string)
    handle_values = t.normal(tf.float32, (5, 2))

    def gradient() -> list[tf.Tensor]:
        """The gradient of the values within a variant, as a variant."""
        handle = raw.RaggedTensorToVariant(
            rt_nested_splits=[tf.constant(splits)],
            rt_dense_values=tf.constant(handle_values),
            batched_input=True,
        )
        with tf.GradientTape() as tape:
            tape.watch(handle)
            y = tf.reduce_sum(of_ragged(handle, tf.float32, splits, 1)[-1] ** 3)
        return of_ragged(tape.gradient(y, handle), tf.float32, splits, 1)

    yield t.program(gradient)


@case("DeserializeSparse")
def sparse(t: Types) -> Iterator[Program]:
    at = t.integers(tf.int64, (4, 2), 0, 3)
    for dtype in (tf.float32, tf.int64, tf.bool, tf.string):
        values = ragged_values(t, dtype)[:4]
        values = values if dtype == tf.string else values[:, 0]

        def back(values=values, d=dtype) -> list[tf.Tensor]:
            # TensorFlow makes these variants only on the CPU.
            with tf.device("CPU:0"):
                made = raw.SerializeSparse(
                    sparse_indices=at,
                    sparse_values=tf.constant(values, d),
                    sparse_shape=tf.constant([3, 3], tf.int64),
                    out_type=tf.variant,
                )
            return list(raw.DeserializeSparse(serialized_sparse=made, dtype=d))

        yield t.program(back, graph=True)
