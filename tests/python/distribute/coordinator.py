"""ParameterServerStrategy with a coordinator: `chief`, or a serving `worker` or `ps`. The
coordinator prints the results of its workers.
"""

import json

import servers
import tensorflow as tf

resolver = servers.coordinators_cluster()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.ones([4, 4]))


@tf.function
def step(inputs):
    def replica(x):
        with tf.GradientTape() as tape:
            product = tf.linalg.matmul(x, weights)
            loss = tf.reduce_sum(tf.nn.relu(product))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    return strategy.run(replica, args=(inputs,))


# A parameter server runs asynchronously, so only the sum of all updates is certain.
for i in range(6):
    coordinator.schedule(step, args=(tf.fill([2, 4], float(i)),))
coordinator.join()
told = {
    "replicas": strategy.num_replicas_in_sync,
    "devices": strategy.extended.worker_devices,
    "weights": weights.numpy().tolist(),
    "on": weights.device,
}
print(json.dumps(told), flush=True)
