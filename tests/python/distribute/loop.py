"""As in TensorFlow's tutorial "Custom training with tf.distribute.Strategy": a custom loop, with
mixed precision or without, with batch normalization over all replicas or over each. Prints the
losses.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

synchronized, mixed = (word in sys.argv[2:] for word in ("synchronized", "mixed"))
strategy = tf.distribute.MirroredStrategy()
GLOBAL_BATCH = 32

rng = np.random.default_rng(2)
x = rng.normal(size=(128, 20)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH)
distributed = strategy.experimental_distribute_dataset(dataset)

keras.utils.set_random_seed(5)
if mixed:
    keras.mixed_precision.set_global_policy("mixed_float16")
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Input((20,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.BatchNormalization(synchronized=synchronized),
            keras.layers.Dense(2, dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.1)
    if mixed:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = keras.metrics.SparseCategoricalAccuracy()


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = tf.nn.compute_average_loss(
            loss_object(labels, predictions), global_batch_size=GLOBAL_BATCH
        )
        scaled = optimizer.scale_loss(loss) if mixed else loss
    gradients = tape.gradient(scaled, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    accuracy.update_state(labels, predictions)
    return loss


@tf.function
def distributed_train_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


losses = [float(distributed_train_step(batch)) for _ in range(2) for batch in distributed]
told = {
    "replicas": strategy.num_replicas_in_sync,
    "loss": losses,
    "accuracy": float(accuracy.result()),
}
print(json.dumps(told))
