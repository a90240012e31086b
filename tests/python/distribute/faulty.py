"""Training that saves after each step, and a fault in it: `faulty.py FOLDER STEPS`.

`AT=N` chooses the step: `DO=die` ends the process without notice, `DO=hang` sleeps for longer than
the others wait, `DO=lose` loses the GPU of one replica (tests/fault_layer). It is a worker of
MultiWorkerMirroredStrategy if `TF_CONFIG` says so, otherwise it uses MirroredStrategy. Prints the
error, if there is one, the time that it took, the weights, and the number of steps that are done.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
at, do = int(os.environ.get("AT", "-1")), os.environ.get("DO", "")
#: Seconds that a collective waits for the other workers.
PATIENCE = 8
LOST, ENDLESS = -4, 2**64 - 1

is_worker = "TF_CONFIG" in os.environ
if is_worker:
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=PATIENCE)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
else:
    strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    weights = tf.Variable(np.linspace(-1, 1, 40 * 30, dtype="float32").reshape(40, 30))
    done = tf.Variable(0, dtype=tf.int64)
index = strategy.cluster_resolver.task_id if is_worker else 0
checkpoint = tf.train.Checkpoint(weights=weights, done=done)
# All workers save, as in TensorFlow's tutorial, but only the first one's checkpoint is read.
mine = folder if not index else folder / f"worker_{index}"
manager = tf.train.CheckpointManager(checkpoint, str(mine), max_to_keep=2)
checkpoint.restore(tf.train.latest_checkpoint(str(folder)))


def apply(strategy, gradient):
    strategy.extended.update(weights, lambda w, g: w.assign_sub(0.01 * g), args=(gradient,))


def replica():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weights) * weights)
    context = tf.distribute.get_replica_context()
    gradient = context.all_reduce("mean", tape.gradient(loss, weights))
    context.merge_call(apply, args=(gradient,))
    return loss


@tf.function
def step():
    return strategy.reduce("MEAN", strategy.run(replica), axis=None)


def trouble():
    if do == "die":
        os._exit(9)
    elif do == "hang":
        time.sleep(2 * PATIENCE)
    elif do == "lose":
        layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
        layer.fault_layer_arm.argtypes = [
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_int32,
        ]
        # One submission, of one of the replicas.
        layer.fault_layer_arm(b"vkQueueSubmit", 1, 1, LOST)


def told(error):
    ended = {"error": type(error).__name__, "text": str(error)[:2000], "seconds": seconds()}
    if error is None:
        ended = {"weights": weights.numpy().tolist()}
    print(json.dumps({"done": int(number), **ended}), flush=True)


begin = time.monotonic()


def seconds():
    return time.monotonic() - begin


number = int(done.numpy())
try:
    while number < steps:
        if number == at:
            trouble()
        begin = time.monotonic()
        loss = float(step())
        if not np.isfinite(loss):
            raise RuntimeError("a step without an error has no loss")
        done.assign_add(1)
        number += 1
        manager.save()
    told(None)
except (tf.errors.OpError, RuntimeError) as error:
    told(error)
    # TensorFlow's services would wait for the others at the end of a process.
    os._exit(3)
