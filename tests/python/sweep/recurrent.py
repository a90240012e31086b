"""CudnnRNN and its relatives, for which TensorFlow has no CPU kernels: the reference is a loop of
plain operations in float64.
"""

import numpy as np
import tensorflow as tf

from .core import case

TOL = {"float16": (2e-2, 2e-2), "bfloat16": (1e-1, 1e-1), "float32": (2e-5, 2e-5)}
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def on_cpu() -> bool:
    """Whether the program runs for the reference."""
    return "CPU" in tf.constant(0.0).device


def split(params, mode, layers, directions, inputs, units, outputs=None):
    """For each pseudo-layer the input's weights, the recurrent weights, the matrix that projects to
    `outputs` outputs (None without a number), and both biases.
    """
    gates, at, parts = GATES[mode], 0, []

    def take(*shape):
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return tf.reshape(params[at - size : at], shape)

    for p in range(layers * directions):
        width = inputs if p < directions else directions * (outputs or units)
        weights = [take(gates, units, width), take(gates, units, outputs or units)]
        parts.append([*weights, take(outputs, units) if outputs else None])
    for part in parts:
        part += [take(gates, units), take(gates, units)]
    return parts


def step(mode, x, h, c, weights, recurrent, projection, bias, recurrent_bias):
    """Output and cell of one step."""
    from_x = tf.einsum("bi,gui->gbu", x, weights) + bias[:, tf.newaxis]
    from_h = tf.einsum("bi,gui->gbu", h, recurrent) + recurrent_bias[:, tf.newaxis]
    if mode == "gru":
        r, u = tf.sigmoid(from_x[0] + from_h[0]), tf.sigmoid(from_x[1] + from_h[1])
        return (1 - u) * tf.tanh(from_x[2] + r * from_h[2]) + u * h, c
    gates = from_x + from_h
    if mode == "lstm":
        c = tf.sigmoid(gates[1]) * c + tf.sigmoid(gates[0]) * tf.tanh(gates[2])
        h = tf.sigmoid(gates[3]) * tf.tanh(c)
        return h if projection is None else tf.einsum("bu,pu->bp", h, projection), c
    return (tf.tanh if mode == "rnn_tanh" else tf.nn.relu)(gates[0]), c


def network(x, h, c, params, mode, directions, lengths):
    """Outputs and last states; steps come first everywhere."""
    steps, batch, inputs = x.shape
    pseudo, _, outputs = h.shape
    units = c.shape[2] if mode == "lstm" else outputs
    projected = outputs if outputs < units else None
    parts = split(params, mode, pseudo // directions, directions, inputs, units, projected)
    last_h, last_c = [], []
    for layer in range(pseudo // directions):
        outputs = []
        for d in range(directions):
            p = layer * directions + d
            state, cell = h[p], c[p] if mode == "lstm" else tf.zeros_like(h[p])
            seen = tf.reverse_sequence(x, lengths, 0, 1) if d else x
            rows = []
            for s in range(steps):
                new = step(mode, seen[s], state, cell, *parts[p])
                valid = (tf.range(batch) * 0 + s < lengths)[:, tf.newaxis]
                state, cell = tf.where(valid, new[0], state), tf.where(valid, new[1], cell)
                rows.append(tf.where(valid, state, tf.zeros_like(state)))
            y = tf.stack(rows)
            outputs.append(tf.reverse_sequence(y, lengths, 0, 1) if d else y)
            last_h.append(state)
            last_c.append(cell)
        x = tf.concat(outputs, 2)
    return x, tf.stack(last_h), tf.stack(last_c)


def program(t, op, mode, *, layers=1, directions=1, lengths=None, time_major=True, num_proj=0):
    """Outputs and gradients of one network, by the op or by the reference."""
    steps, batch, inputs, units = 4, 3, 5, 6
    outputs = num_proj or units
    size = sum(
        GATES[mode] * units * ((inputs if p < directions else directions * outputs) + outputs + 2)
        + num_proj * units
        for p in range(layers * directions)
    )
    dtype = t["T"]
    state, cells = [(layers * directions, batch, n) for n in (outputs, units)]
    shapes = [(steps, batch, inputs), state, cells if mode == "lstm" else (), (size,)]
    values = [t.uniform("T", shape, -0.7, 0.7) for shape in shapes]
    all_lengths = np.full(batch, steps, "int32") if lengths is None else lengths
    seen = ((steps, batch, directions * outputs), state, cells)
    seeds = [t.uniform("T", s, -1, 1) for s in seen]
    kept = 3 if mode == "lstm" else 2

    def ordered(x):
        return x if time_major or len(x.shape) < 3 else tf.transpose(x, [1, 0, 2])

    def by_op(x, h, c, params):
        arguments = {
            "sequence_lengths": all_lengths,
            "time_major": time_major,
            "num_proj": num_proj,
        }
        outputs = getattr(tf.raw_ops, op)(
            input=x,
            input_h=h,
            input_c=c,
            params=params,
            rnn_mode=mode,
            direction=["unidirectional", "bidirectional"][directions - 1],
            is_training=True,
            **(arguments if op == "CudnnRNNV3" else {}),
        )
        return outputs[:kept]

    def run():
        cpu = on_cpu()
        wanted = tf.float64 if cpu else dtype
        with tf.GradientTape() as tape:
            tensors = [ordered(tf.cast(v, wanted)) for v in values]
            tape.watch(tensors)
            if cpu:
                args = [ordered(v) for v in tensors]
                found = network(*args, mode, directions, tf.constant(all_lengths))
                found = [ordered(y) for y in found[:kept]]
            else:
                found = by_op(*tensors)
        grads = tape.gradient(
            found, tensors, output_gradients=[ordered(tf.cast(s, wanted)) for s in seeds[:kept]]
        )
        grads = [g for g, shape in zip(grads, shapes) if shape]
        return [tf.cast(y, dtype) for y in [*found, *grads]]

    return t.program(run, graph=True)


def networks(t, op):
    """A network of each mode."""
    for mode in GATES:
        yield program(t, op, mode)
    yield program(t, op, "lstm", layers=2, directions=2)
    if op == "CudnnRNNV3":
        for mode in ("gru", "lstm"):
            lengths = np.array([4, 1, 2], "int32")
            yield program(t, op, mode, directions=2, lengths=lengths, time_major=False)
        yield program(t, op, "lstm", layers=2, num_proj=4)
        yield program(t, op, "lstm", directions=2, lengths=lengths, time_major=False, num_proj=2)


@case("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", tol=TOL)
def forward(t):
    yield from networks(t, t.op)


@case("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3", tol=TOL)
def backward(t):
    yield from networks(t, t.op.replace("Backprop", ""))


SIZES = {"num_layers": 2, "num_units": 3, "input_size": 5}
COUNT = 2 * 2 * 4
PARAMS = 4 * 3 * (5 + 3 + 3 + 3 + 2 * 2)
#: The same with outputs projected to two elements.
PROJECTED = 4 * 3 * (5 + 2 + 2 + 2 + 2 * 2) + 2 * 2 * 3


@case("CudnnRNNParamsSize")
def params_size(t):
    def size():
        if on_cpu():
            return [tf.constant([PARAMS, PROJECTED])]
        sizes = [
            tf.raw_ops.CudnnRNNParamsSize(**SIZES, T=t["T"], S=tf.int32, num_proj=n) for n in (0, 2)
        ]
        return [tf.concat(sizes, 0)]

    yield t.program(size, graph=True)


def parts_of(params, outputs=None):
    """The weights and biases of a network of `SIZES`."""
    parts = split(params, "lstm", 2, 1, SIZES["input_size"], SIZES["num_units"], outputs)
    matrices = []
    for part in parts:
        matrices += [m for kind in part[:2] for m in tf.unstack(kind)]
        matrices += [part[2]] if outputs else []
    vectors = [b for part in parts for kind in part[3:] for b in tf.unstack(kind)]
    return [matrices, vectors]


def counts(op, num_proj=0):
    """The attributes with the numbers of weights and biases."""
    if op.endswith("V2"):
        weights = COUNT + 2 if num_proj else COUNT
        return {
            "num_params_weights": weights,
            "num_params_biases": COUNT,
            "num_proj": num_proj,
        }
    return {"num_params": COUNT}


def projections(op):
    """The op's sizes of projected outputs, with the numbers of parameters."""
    return [(0, PARAMS), (2, PROJECTED)] if op.endswith("V2") else [(0, PARAMS)]


@case("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2")
def to_canonical(t):
    for num_proj, size in projections(t.op):
        params = t.uniform("T", (size,), -1, 1)

        def parts(num_proj=num_proj, params=params):
            given = tf.constant(params)
            if on_cpu():
                return tf.nest.flatten(parts_of(given, num_proj or None))
            found = getattr(tf.raw_ops, t.op)(**SIZES, params=given, **counts(t.op, num_proj))
            return tf.nest.flatten(found)

        yield t.program(parts, graph=True)


@case("CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2")
def to_params(t):
    for num_proj, size in projections(t.op):
        params = t.uniform("T", (size,), -1, 1)

        def whole(num_proj=num_proj, params=params):
            given = tf.constant(params)
            if on_cpu():
                return [given]
            weights, biases = parts_of(given, num_proj or None)
            kwargs = {"num_proj": num_proj} if num_proj else {}
            op = getattr(tf.raw_ops, t.op)
            return [op(**SIZES, weights=weights, biases=biases, **kwargs)]

        yield t.program(whole, graph=True)
