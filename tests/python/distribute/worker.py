"""One worker of MultiWorkerMirroredStrategy, whose cluster TF_CONFIG describes, as in TensorFlow's
tutorials: `loop RING`, a custom loop, or `fit AUTO FOLDER`, tf_keras's fit with BackupAndRestore.
Prints the losses; `DIE_AT=N` ends the process without notice in epoch N.
"""

import json
import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras

what, communication = sys.argv[1:3]
implementation = tf.distribute.experimental.CommunicationImplementation[communication]
options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

rng = np.random.default_rng(2)
x = rng.normal(size=(64, 20)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int64")
GLOBAL_BATCH = 16
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH)

tf_keras.utils.set_random_seed(5)
with strategy.scope():
    model = tf_keras.Sequential(
        [
            tf_keras.layers.InputLayer((20,)),
            tf_keras.layers.Dense(32, activation="relu"),
            tf_keras.layers.Dense(2),
        ]
    )
    optimizer = tf_keras.optimizers.SGD(0.1)
    loss_object = tf_keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf_keras.losses.Reduction.SUM_OVER_BATCH_SIZE
    )


class Die(tf_keras.callbacks.Callback):
    """Ends the process in the middle of an epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1 and self.epoch == int(os.environ.get("DIE_AT", "-1")):
            os._exit(9)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        print(f"epoch {epoch}", flush=True)


def fit(folder):
    with strategy.scope():
        model.compile(optimizer, loss_object, metrics=["accuracy"])
    backup = tf_keras.callbacks.BackupAndRestore(folder)
    # The backup comes last: it is notified of an epoch's begin after the callback that ends the
    # process.
    history = model.fit(dataset, epochs=4, verbose=0, callbacks=[Die(), backup])
    return history.history["loss"]


def loop():
    distributed = strategy.experimental_distribute_dataset(dataset)
    objective = tf_keras.losses.SparseCategoricalCrossentropy(True, reduction="none")

    def step(inputs):
        features, labels = inputs
        with tf.GradientTape() as tape:
            losses = objective(labels, model(features, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def distributed_step(inputs):
        losses = strategy.run(step, args=(inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return [float(distributed_step(batch)) for batch in distributed]


losses = fit(sys.argv[3]) if what == "fit" else loop()
told = {
    "replicas": strategy.num_replicas_in_sync,
    "devices": strategy.extended.worker_devices,
    "loss": losses,
    "weights": float(sum(np.abs(w).sum() for w in model.get_weights())),
}
print(json.dumps(told), flush=True)
