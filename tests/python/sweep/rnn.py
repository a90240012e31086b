"""Recurrent cells and sequences."""

import numpy as np
import tensorflow as tf

from .core import case
from .recurrent import on_cpu

HALF = {"float16": (2e-2, 2e-2)}
CPU_AS = {"float16": "float32"}


def lstm(t, batch, width, cells, steps=None):
    """The eight inputs of a cell or a sequence."""
    x = (batch, width) if steps is None else (steps, batch, width)
    shapes = {
        "x": x,
        "cs_prev": (batch, cells),
        "h_prev": (batch, cells),
        "w": (width + cells, 4 * cells),
        **dict.fromkeys(("wci", "wcf", "wco"), (cells,)),
        "b": (4 * cells,),
    }
    return {name: t.uniform("T", shape, -1, 1) for name, shape in shapes.items()}


@case("LSTMBlockCell", tol=HALF, cpu_as=CPU_AS)
def cell(t):
    yield dict(**lstm(t, 3, 5, 7), forget_bias=1.0, cell_clip=3.0, use_peephole=True)
    yield dict(**lstm(t, 2, 4, 3), forget_bias=0.5, cell_clip=0.25)
    yield dict(**lstm(t, 1, 1, 1), cell_clip=-1.0)


@case("LSTMBlockCellGrad", tol=HALF, cpu_as=CPU_AS)
def cell_grad(t):
    for peephole in (False, True):
        saved = {
            n: t.uniform("T", (3, 7), 0, 1)
            for n in ("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad")
        }
        yield dict(**lstm(t, 3, 5, 7), **saved, use_peephole=peephole)


@case("BlockLSTM", "BlockLSTMV2", tol=HALF, cpu_as=CPU_AS, gradient=None)
def sequence(t):
    bias = {"forget_bias": 0.5} if t.op == "BlockLSTM" else {}
    yield dict(seq_len_max=np.int64(4), **lstm(t, 3, 5, 7, 4), use_peephole=True, **bias)
    yield dict(seq_len_max=np.int64(2), **lstm(t, 2, 4, 8, 2), cell_clip=0.25)
    yield dict(seq_len_max=np.int64(0), **lstm(t, 2, 3, 2, 0))


@case("BlockLSTMGrad", "BlockLSTMGradV2", tol={"float16": (3e-2, 3e-2)}, cpu_as=CPU_AS)
def sequence_grad(t):
    for steps, length, peephole in ((4, 4, True), (3, 2, False), (1, 1, True)):
        state = (steps, 3, 7)
        names = ("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")
        saved = {n: t.uniform("T", state, 0, 1) for n in names}
        yield dict(
            seq_len_max=np.int64(length), **lstm(t, 3, 5, 7, steps), **saved, use_peephole=peephole
        )


def gru(t, batch, width, cells):
    """The six inputs of a cell."""
    shapes = {
        "x": (batch, width),
        "h_prev": (batch, cells),
        "w_ru": (width + cells, 2 * cells),
        "w_c": (width + cells, cells),
        "b_ru": (2 * cells,),
        "b_c": (cells,),
    }
    return {name: t.uniform("T", shape, -1, 1) for name, shape in shapes.items()}


@case("GRUBlockCell")
def gru_cell(t):
    yield gru(t, 3, 5, 7)
    yield gru(t, 1, 4, 8)
    yield gru(t, 0, 4, 8)


@case("GRUBlockCellGrad")
def gru_grad(t):
    for batch, width, cells in ((3, 5, 7), (2, 8, 4)):
        saved = {n: t.uniform("T", (batch, cells), 0, 1) for n in ("r", "u", "c", "d_h")}
        yield dict(**gru(t, batch, width, cells), **saved)


def ctc(t, time, classes, labels, lengths=None, *, blank_is_last=True):
    """Logits, and the labels of each sequence as a SparseTensor's parts."""
    places = [(b, i) for b, own in enumerate(labels) for i in range(len(own))]
    dtype = t.get("T", tf.float32)
    shift = 0 if blank_is_last else 1
    return dict(
        inputs=t.normal(dtype, (time, len(labels), classes)),
        labels_indices=np.reshape(np.array(places, "int64"), (-1, 2)),
        labels_values=np.array([v + shift for own in labels for v in own], "int32"),
        sequence_length=np.array(lengths or [time] * len(labels), "int32"),
    )


@case("CTCLoss", rtol=1e-4, atol=1e-4, gradient=True)
def ctc_loss(t):
    yield ctc(t, 6, 4, [[0, 1], [2, 2, 1], [1]], [6, 6, 3])
    yield dict(
        **ctc(t, 5, 4, [[0, 0, 1], [2, 2, 1]], [5, 2]),
        ctc_merge_repeated=False,
        preprocess_collapse_repeated=True,
        ignore_longer_outputs_than_inputs=True,
    )
    yield ctc(t, 70, 90, [[i * 5 % 89 for i in range(40)], [3], [0, 1, 2]])
    yield ctc(t, 1, 2, [[0]])


@case("CTCLossV2", rtol=1e-4, atol=1e-4)
def ctc_loss_v2(t):
    """TensorFlow has no kernel for the CPU; there it is CTCLoss, with the blank as the last
    class.
    """
    for labels, lengths in (([[0, 1], [2, 2, 1], [1]], [6, 6, 3]), ([[2]], None)):
        call = ctc(t, 6, 4, labels, lengths, blank_is_last=False)

        def loss(call=call):
            if not on_cpu():
                x = tf.constant(call["inputs"])
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    found = tf.raw_ops.CTCLossV2(**(call | {"inputs": x}))
                    cost = tf.reduce_sum(found.loss)
                return [*found, tape.gradient(cost, x)]
            behind = {
                "inputs": np.roll(call["inputs"], -1, 2),
                "labels_values": call["labels_values"] - 1,
            }
            found = tf.raw_ops.CTCLoss(**(call | behind))
            gradient = tf.roll(found.gradient, 1, 2)
            return [found.loss, gradient, gradient]

        yield t.program(loss, graph=True)
