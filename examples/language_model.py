"""A tiny language model that is trained, quantized and adapted. examples/make_notebook.py makes
language_model.ipynb of its cells.
"""

# %% [markdown]
# # A language model on any GPU
#
# A tiny decoder learns four of Shakespeare's sonnets letter by letter. Its weights are then
# quantized to int8 and frozen, and low-rank adapters (LoRA) learn another text, Lewis Carroll's
# *Jabberwocky*. Both texts are in the public domain and lie in `examples/texts`. It needs
# TensorFlow and tensorflow-wgpu alone; a software adapter takes about a minute.
#
# [Language models](../docs/LANGUAGE-MODELS.md) tells what real models need, and how to run them
# with KerasHub.

# %%
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow_wgpu import statistics

texts = next(path for path in (Path("texts"), Path("examples/texts")) if path.is_dir())
sonnets = (texts / "sonnets.txt").read_text(encoding="utf-8")
jabberwocky = (texts / "jabberwocky.txt").read_text(encoding="utf-8")
letters = sorted(set(sonnets + jabberwocky))
number_of = {letter: number for number, letter in enumerate(letters)}
print(f"{len(sonnets)} and {len(jabberwocky)} letters, {len(letters)} different ones")

# %% [markdown]
# ## The model
#
# A decoder as language models have it: blocks of causal attention and of a gated layer, with a
# normalization before each. Two heads of queries share one of keys and values.

# %%
LENGTH, WIDTH, BLOCKS = 48, 64, 2


class Places(keras.layers.Layer):
    """Adds a learned vector for each place of a sequence."""

    def build(self, shape):
        """Makes the vectors for sequences of the input's length."""
        self.places = self.add_weight(shape=shape[1:], initializer="random_normal", name="places")

    def call(self, x):
        """The sequences with the vectors added."""
        return x + self.places


def block(x):
    """The result of a block."""
    attention = keras.layers.GroupQueryAttention(16, 4, 2, use_bias=False)
    y = keras.layers.RMSNormalization()(x)
    x = x + attention(y, y, use_causal_mask=True)
    y = keras.layers.RMSNormalization()(x)
    gate = keras.layers.Dense(2 * WIDTH, activation="silu", use_bias=False)(y)
    up = keras.layers.Dense(2 * WIDTH, use_bias=False)(y)
    return x + keras.layers.Dense(WIDTH, use_bias=False)(gate * up)


keras.utils.set_random_seed(1)
tokens = keras.Input((LENGTH,), dtype="int32")
x = Places()(keras.layers.Embedding(len(letters), WIDTH)(tokens))
for _ in range(BLOCKS):
    x = block(x)
x = keras.layers.RMSNormalization()(x)
model = keras.Model(tokens, keras.layers.Dense(len(letters), name="head")(x))
print(f"{model.count_params():,} weights")

# %% [markdown]
# ## Learn the sonnets
#
# Each example is a piece of the text and the same piece one letter later.


# %%
def pieces(text):
    """All pieces of a text, as numbers."""
    numbers = np.array([number_of[letter] for letter in text], "int32")
    windows = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH + 1)
    return windows[:, :-1], windows[:, 1:]


def learn(text, epochs, rate):
    """The losses of each epoch over a text."""
    model.compile(
        optimizer=keras.optimizers.Adam(rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = pieces(text)
    # Neighbouring pieces share nearly all of their letters: every fourth is enough.
    history = model.fit(x[::4], y[::4], batch_size=32, epochs=epochs, verbose=2)
    return history.history["loss"]


sonnet_losses = learn(sonnets, epochs=4, rate=3e-3)

# %% [markdown]
# ## Quantize, and adapt
#
# `quantize` replaces the weights of layers layer by layer; products then read int8. `enable_lora`
# adds two narrow factors beside the frozen weights, and only they are trained: the optimizer keeps
# state for them alone.

# %%
DENSE = (keras.layers.Dense, keras.layers.EinsumDense)
model.quantize("int8", filters=lambda layer: isinstance(layer, DENSE))
for layer in model._flatten_layers(include_self=False):
    layer.trainable = False
for layer in model.layers:
    if isinstance(layer, keras.layers.GroupQueryAttention):
        layer.trainable = True
        adapted = [layer._query_dense, layer._value_dense]
    elif isinstance(layer, keras.layers.Dense):
        adapted = [layer]
    else:
        continue
    for dense in adapted:
        dense.trainable = True
        dense.enable_lora(8)
trainable = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
print(f"{trainable:,} of {model.count_params():,} weights are trained")
jabberwocky_losses = learn(jabberwocky, epochs=8, rate=1e-2)

# %% [markdown]
# ## Generate
#
# A letter at a time, each drawn from the most likely ones. KerasHub's `generate` keeps keys and
# values in a cache; this model reads its last letters again each time.


# %%
def generate(prompt, count, k=3):
    """`prompt` and `count` more letters, each one of the `k` most likely."""
    random = np.random.default_rng(1)
    numbers = [number_of[letter] for letter in prompt]
    for _ in range(count):
        window = numbers[-LENGTH:]
        padded = np.zeros((1, LENGTH), "int32")
        padded[0, : len(window)] = window
        logits = model.predict_on_batch(padded)[0, len(window) - 1].astype("float64")
        best = np.argsort(logits)[-k:]
        odds = np.exp(logits[best] - logits[best].max())
        numbers.append(int(random.choice(best, p=odds / odds.sum())))
    return "".join(letters[number] for number in numbers)


generated = generate("And the slithy ", 60)
print(generated)

# %% [markdown]
# ## What did it take?

# %%
device = next(iter(statistics()))
memory = tf.config.experimental.get_memory_info(device)
print(f"{device}: {memory['peak'] / 1e6:.1f} MB at most, {memory['current'] / 1e6:.1f} MB now")
statistics()
