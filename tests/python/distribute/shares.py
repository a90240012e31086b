"""How a strategy distributes 13 elements in batches of 4, with each way of iterating."""

import json

import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
rows = tf.data.Dataset.range(13).map(lambda i: (tf.fill([4], tf.cast(i, tf.float32)), i))
shared = strategy.experimental_distribute_dataset(rows.batch(4))

batches, devices = [], []
for _, number in shared:
    parts = strategy.experimental_local_results(number)
    batches.append([part.numpy().tolist() for part in parts])
    devices.append([part.device for part in parts])


@tf.function
def total() -> tf.Tensor:
    """The sum of all first columns."""
    result = tf.zeros([])
    for element in shared:
        of_each = strategy.run(lambda row, _: tf.reduce_sum(row[:, 0]), args=element)
        result += strategy.reduce("SUM", of_each, axis=None)
    return result


@tf.function
def of_next(iterator: tf.distribute.DistributedIterator) -> tf.Tensor:
    """The sum for the next batch."""
    of_each = strategy.run(lambda row, _: tf.reduce_sum(row[:, 0]), args=next(iterator))
    return strategy.reduce("SUM", of_each, axis=None)


following = iter(shared)
sums = [float(of_next(following)) for _ in range(3)]
print(json.dumps({"batches": batches, "devices": devices, "total": float(total()), "sums": sums}))
