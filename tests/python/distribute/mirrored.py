"""As in TensorFlow's tutorial "Distributed training with Keras", with two replicas: a convolutional
network, callbacks, evaluation, saving and loading. Prints the values that the test compares.
"""

import json
import os
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
told = {"replicas": strategy.num_replicas_in_sync, "devices": strategy.extended.worker_devices}

rng = np.random.default_rng(1)
images = rng.integers(0, 256, (96, 12, 12, 1)).astype("uint8")
labels = (images.mean((1, 2, 3)) > 127).astype("int64")


def scale(image, label):
    return tf.cast(image, tf.float32) / 255.0, label


BATCH = 16 * int(sys.argv[1])
train = tf.data.Dataset.from_tensor_slices((images, labels)).map(scale).batch(BATCH)

keras.utils.set_random_seed(5)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Input((12, 12, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )

folder = tempfile.mkdtemp()


def decay(epoch):
    return 1e-2 if epoch < 2 else 1e-3


callbacks = [
    keras.callbacks.ModelCheckpoint(
        filepath=os.path.join(folder, "ckpt_{epoch}.weights.h5"), save_weights_only=True
    ),
    keras.callbacks.LearningRateScheduler(decay),
]
history = model.fit(train, epochs=3, callbacks=callbacks, verbose=0)
told["loss"] = history.history["loss"]
model.load_weights(os.path.join(folder, "ckpt_3.weights.h5"))
told["evaluation"] = model.evaluate(train, verbose=0)
told["prediction"] = model.predict(train, verbose=0)[:4].tolist()
told["checkpoints"] = sorted(os.listdir(folder))

path = os.path.join(folder, "my_model.keras")
model.save(path)
alone = keras.models.load_model(path)
told["alone"] = alone.evaluate(train, verbose=0)
with strategy.scope():
    told["replicated"] = keras.models.load_model(path).evaluate(train, verbose=0)
print(json.dumps(told))
