"""Writes the serialized graphs of tests/data/graphs, on which the Rust tests run."""

import pathlib

import keras
import tensorflow as tf

OUT = pathlib.Path(__file__).parent.parent / "data" / "graphs"


def write(name, function, *signature):
    """Writes the graph of a tf.function, with its library and without source lines."""
    graph = function.get_concrete_function(*signature).graph.as_graph_def()
    graph.ClearField("debug_info")
    OUT.mkdir(parents=True, exist_ok=True)
    # Map entries in a fixed order: the files should change only with TensorFlow.
    (OUT / f"{name}.pb").write_bytes(graph.SerializeToString(deterministic=True))


def main():
    """Writes every graph."""

    @tf.function
    def loops(x):
        total = tf.zeros_like(x)
        for i in tf.range(3):
            total = tf.cond(
                tf.reduce_sum(total) > 0, lambda t=total, i=i: t + tf.cast(i, tf.float32), lambda: x
            )
        return total, tf.strings.as_string(x)

    write("loops", loops, tf.TensorSpec((None, 4)))
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    write("step", step, tf.TensorSpec((None, 8, 8, 3)), tf.TensorSpec((None, 2)))


if __name__ == "__main__":
    main()
