"""A coordinator of ParameterServerStrategy that saves: `chief FOLDER`, or a `worker` or `ps`.
`DIE_AT=N` ends the coordinator without notice when N steps are scheduled.
"""

import json
import os
import sys

import servers
import tensorflow as tf

resolver = servers.coordinators_cluster()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.ones([4, 4]))
    done = tf.Variable(0)
checkpoint = tf.train.Checkpoint(weights=weights, done=done)
manager = tf.train.CheckpointManager(checkpoint, sys.argv[2], max_to_keep=1)
checkpoint.restore(manager.latest_checkpoint)


@tf.function
def step(inputs):
    def replica(x):
        weights.assign_sub(0.01 * tf.ones([4, 2]) @ x)

    strategy.run(replica, args=(inputs,))


began = int(done.numpy())
for i in range(began, 6):
    coordinator.schedule(step, args=(tf.fill([2, 4], float(i)),))
    if i == int(os.environ.get("DIE_AT", "-1")):
        os._exit(9)
    if i % 2:
        coordinator.join()
        done.assign(i + 1)
        manager.save()
print(json.dumps({"began": began, "weights": weights.numpy().tolist()}), flush=True)
