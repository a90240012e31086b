"""Sparse tensors."""

import numpy as np

from .core import case


@case("SparseToDense")
def to_dense(t):
    def index(values):
        return np.asarray(values).astype(t.numpy("Tindices"))

    default = t.values("T", ())
    yield dict(
        sparse_indices=index([[0, 1], [1, 3], [2, 0]]),
        output_shape=index([3, 4]),
        sparse_values=t.values("T", (3,)),
        default_value=default,
    )
    yield dict(
        sparse_indices=index([2, 5]),
        output_shape=index([7]),
        sparse_values=t.values("T", ()),
        default_value=default,
    )
    yield dict(
        sparse_indices=index(np.zeros((0, 2))),
        output_shape=index([2, 3]),
        sparse_values=t.values("T", (0,)),
        default_value=default,
    )


@case("SparseTensorDenseMatMul", tol={"float16": (1e-2, 1e-2)}, cpu_as={"float16": "float32"})
def products(t):
    at = np.array([[0, 1], [3, 4], [0, 2], [3, 1], [0, 1]], t.numpy("Tindices"))
    for adjoint_a, adjoint_b in [(False, False), (True, False), (False, True), (True, True)]:
        inner = 6 if adjoint_a else 5
        yield dict(
            a_indices=at,
            a_values=t.normal("T", (5,)),
            a_shape=np.array([6, 5], "int64"),
            b=t.normal("T", (3, inner) if adjoint_b else (inner, 3)),
            adjoint_a=adjoint_a,
            adjoint_b=adjoint_b,
        )


# Coordinates of a 5 by 6 by 3 tensor, in order.
ROWS = np.array([[0, 1, 2], [0, 5, 0], [2, 0, 1], [2, 3, 0], [2, 3, 2], [4, 4, 1]], "int64")
DIMS = np.array([5, 6, 3], "int64")
NONE = np.zeros((0, 3), "int64")


@case("SparseReshape")
def reshape(t):
    yield dict(input_indices=ROWS, input_shape=DIMS, new_shape=np.array([-1, 9], "int64"))
    yield dict(
        input_indices=ROWS[::-1].copy(), input_shape=DIMS, new_shape=np.array([2, 3, 5, 3], "int64")
    )
    yield dict(input_indices=ROWS, input_shape=DIMS, new_shape=DIMS)
    yield dict(input_indices=NONE, input_shape=DIMS, new_shape=np.array([90], "int64"))
    huge = np.array([1 << 20, 1 << 20, 1 << 20], "int64")
    yield dict(
        input_indices=ROWS * 200000, input_shape=huge, new_shape=np.array([1 << 30, -1], "int64")
    )


@case("SparseReorder")
def reorder(t):
    shuffled = ROWS[[4, 0, 5, 2, 1, 3]]
    yield dict(input_indices=shuffled, input_values=t.values("T", (6,)), input_shape=DIMS)
    yield dict(input_indices=NONE, input_values=t.values("T", (0,)), input_shape=DIMS)
    huge = np.array([1 << 20, 1 << 20, 1 << 20], "int64")
    yield dict(input_indices=shuffled * 200000, input_values=t.values("T", (6,)), input_shape=huge)


@case("SparseConcat")
def concat(t):
    for axis in [0, 1, -1]:
        other = DIMS.copy()
        other[axis] += 2
        yield dict(
            indices=[ROWS, ROWS[1:4], NONE],
            values=[t.values("T", (6,)), t.values("T", (3,)), t.values("T", (0,))],
            shapes=[DIMS, other, DIMS],
            concat_dim=axis,
        )
    yield dict(
        indices=[NONE] * 2, values=[t.values("T", (0,))] * 2, shapes=[DIMS] * 2, concat_dim=1
    )


# The gradient op has no complex types, on TensorFlow's GPU either.
@case("SparseFillEmptyRows", no_gradient=("complex64", "complex128"))
def fill(t):
    default = t.values("T", ())
    yield dict(indices=ROWS, values=t.values("T", (6,)), dense_shape=DIMS, default_value=default)
    yield dict(
        indices=ROWS[[5, 0, 3, 1]],
        values=t.values("T", (4,)),
        dense_shape=DIMS,
        default_value=default,
    )
    yield dict(indices=NONE, values=t.values("T", (0,)), dense_shape=DIMS, default_value=default)


@case("SparseFillEmptyRowsGrad")
def fill_grad(t):
    yield dict(
        reverse_index_map=np.array([0, 1, 3, 4, 5, 7], "int64"), grad_values=t.values("T", (8,))
    )
    yield dict(reverse_index_map=np.zeros(0, "int64"), grad_values=t.values("T", (5,)))


@case("SparseSlice")
def slices(t):
    for start, size in [
        ([0, 1, 0], [3, 5, 3]),
        ([2, 3, 0], [9, 9, 1]),
        ([1, 0, 0], [1, 6, 3]),
        ([7, 0, 0], [1, 6, 3]),
    ]:
        start, size = np.array(start, "int64"), np.array(size, "int64")
        yield dict(indices=ROWS, values=t.values("T", (6,)), shape=DIMS, start=start, size=size)
    zeros = np.zeros(3, "int64")
    yield dict(indices=NONE, values=t.values("T", (0,)), shape=DIMS, start=zeros, size=DIMS)


@case("SparseSliceGrad")
def slice_grad(t):
    start = np.array([2, 0, 0], "int64")
    yield dict(
        backprop_val_grad=t.values("T", (3,)),
        input_indices=ROWS,
        input_start=start,
        output_indices=ROWS[2:5] - start,
    )
    yield dict(
        backprop_val_grad=t.values("T", (0,)),
        input_indices=ROWS,
        input_start=start,
        output_indices=NONE,
    )


@case("SparseSplit")
def split(t):
    for axis, n in [(0, 2), (1, 4), (-1, 3), (1, 1)]:
        axis = np.array(axis, "int64")
        yield dict(
            split_dim=axis, indices=ROWS, values=t.values("T", (6,)), shape=DIMS, num_split=n
        )
    yield dict(
        split_dim=np.array(0, "int64"),
        indices=NONE,
        values=t.values("T", (0,)),
        shape=DIMS,
        num_split=2,
    )
