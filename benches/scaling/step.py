"""One process of a run that the model is checked by: a stack of dense layers, trained on as many
devices as TensorFlow sees, or as one worker of several. Prints a line of JSON.

    step.py LAYERS WIDTH BATCH STEPS BUCKET
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

layers, width, batch, steps, bucket = map(int, sys.argv[1:6])
options = tf.distribute.experimental.CommunicationOptions(
    bytes_per_pack=bucket,
    implementation=tf.distribute.experimental.CommunicationImplementation.RING,
)
if "TF_CONFIG" in os.environ:
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
else:
    strategy = tf.distribute.MirroredStrategy()

with strategy.scope():
    weights = [tf.Variable(tf.random.normal([width, width], stddev=0.05)) for _ in range(layers)]
    inputs = tf.Variable(tf.random.normal([batch, width]))


def forward() -> tf.Tensor:
    """The loss."""
    hidden = inputs.read_value()
    for weight in weights:
        hidden = tf.nn.relu(hidden @ weight)
    return tf.reduce_mean(hidden)


def gradients() -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The loss and its gradients."""
    with tf.GradientTape() as tape:
        loss = forward()
    return loss, tape.gradient(loss, weights)


def train() -> tf.Tensor:
    """A replica's step."""
    loss, found = gradients()
    context = tf.distribute.get_replica_context()
    found = context.all_reduce("sum", found, options)
    context.merge_call(update, args=(found,))
    return loss


def update(strategy: tf.distribute.Strategy, found: list) -> None:
    """The weights' new values."""
    for weight, gradient in zip(weights, found):
        strategy.extended.update(weight, lambda w, g: w.assign_sub(0.01 * g), args=(gradient,))


def compute() -> tf.Tensor:
    """A step without its reduction: each gradient is computed and used on its device."""
    loss, found = gradients()
    return loss + sum(tf.reduce_max(g) for g in found)


def timed(replica) -> dict[str, float]:
    """Medians of a step's seconds and processor seconds."""
    step = tf.function(
        lambda: tf.add_n(strategy.experimental_local_results(strategy.run(replica))),
        reduce_retracing=True,
    )
    for _ in range(3):
        step().numpy()
    wall, cpu = [], []
    for _ in range(steps):
        begin, used = time.perf_counter(), time.process_time()
        step().numpy()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    return {"wall": sorted(wall)[steps // 4], "cpu": sorted(cpu)[steps // 2]}


told = {"train": timed(train), "replicas": strategy.num_replicas_in_sync}
if "TF_CONFIG" not in os.environ:
    told["forward"], told["compute"] = timed(forward), timed(compute)
print(json.dumps(told), flush=True)
