"""KerasHub's language models, tiny and with random weights: training, LoRA, generation by each
sampler, quantization, save and load.
"""

import keras
import keras_hub
import numpy as np
import pytest
from values import UNITS
from weights import Snapshot, randomize

VOCABULARY, LENGTH = 64, 12
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
LLAMA = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
GPT = {
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
GEMMA = {**LLAMA, "image_size": 16, "head_dim": 4, "use_sliding_window_attention": True}
MODELS = {
    "gemma3": ("Gemma3Backbone", "Gemma3CausalLM", {**GEMMA, "sliding_window_size": 4}),
    "llama3": ("Llama3Backbone", "Llama3CausalLM", LLAMA),
    "mistral": ("MistralBackbone", "MistralCausalLM", {**LLAMA, "sliding_window": 4}),
    "gpt2": (
        "GPT2Backbone",
        "GPT2CausalLM",
        {**GPT, "dropout": 0.0, "max_sequence_length": LENGTH},
    ),
    "bloom": ("BloomBackbone", "BloomCausalLM", GPT),
    "bart": (
        "BartBackbone",
        "BartSeq2SeqLM",
        {**GPT, "dropout": 0.0, "max_sequence_length": LENGTH},
    ),
}
TOP_K, TOP_P = 5, 0.5
SAMPLERS = {
    "greedy": lambda: keras_hub.samplers.GreedySampler(),
    "top_k": lambda: keras_hub.samplers.TopKSampler(k=TOP_K, seed=1),
    "top_p": lambda: keras_hub.samplers.TopPSampler(p=TOP_P, seed=1),
    "beam": lambda: keras_hub.samplers.BeamSampler(num_beams=3),
    "contrastive": lambda: keras_hub.samplers.ContrastiveSampler(k=3, alpha=0.4),
}
#: What generation needs beside the tokens. Gemma 3 returns the images that it is given, and no
#: images at all would be None, of which KerasHub cannot make a tensor.
BESIDES = {"gemma3": {"images": np.zeros((2, 0, 16, 16, 3), "float32")}}
#: The samplers that draw a token.
DRAWING = ("top_k", "top_p")

pytestmark = [
    pytest.mark.parametrize("policy", POLICIES),
    pytest.mark.parametrize("name", MODELS),
]


def model(name: str, policy: str):
    """A model whose weights depend only on its name."""
    keras.utils.set_random_seed(7)
    backbone, task, arguments = MODELS[name]
    backbone = getattr(keras_hub.models, backbone)(**arguments, dtype=policy)
    made = getattr(keras_hub.models, task)(backbone=backbone, preprocessor=None)
    # With the narrow distributions of initializers all logits would be nearly equal.
    randomize(made, 11, 0.3)
    return made


def tokens(name: str, filled: int = LENGTH) -> dict[str, np.ndarray]:
    """A batch of two sequences. The first `filled` tokens of one, and one fewer of the other, are a
    prompt.
    """
    random = np.random.default_rng(5)
    mask = np.arange(LENGTH)[None] < np.array([[filled], [filled - 1]])
    ids = random.integers(1, VOCABULARY, (2, LENGTH)) * mask
    inputs = {"token_ids": ids.astype("int32"), "padding_mask": mask}
    if name == "bart":
        source = random.integers(1, VOCABULARY, (2, LENGTH)).astype("int32")
        inputs = {f"decoder_{key}": value for key, value in inputs.items()}
        inputs |= {"encoder_token_ids": source, "encoder_padding_mask": np.ones((2, LENGTH), bool)}
    return inputs


def dtype_of(policy: str) -> str:
    """The type that a policy computes in."""
    return policy.removeprefix("mixed_")


def trainable(made) -> Snapshot:
    """Compiles a model for training, and returns its state."""
    made.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[],
    )
    return Snapshot(made)


def train(made, name: str) -> np.ndarray:
    """The losses of a few steps."""
    labels = np.random.default_rng(6).integers(0, VOCABULARY, (2, LENGTH))
    history = made.fit(tokens(name), labels, epochs=3, batch_size=2, verbose=0)
    return np.asarray(history.history["loss"])


def logits(made, name: str) -> np.ndarray:
    """The model's predictions, in float32."""
    return np.asarray(made.predict(tokens(name), verbose=0)).astype("float32")


def test_fit(values, name, policy):
    """The losses of training, and the predictions after it."""
    made = model(name, policy)
    snapshot = trainable(made)

    def program(disturb):
        snapshot.restore()
        disturb(made)
        before = logits(made, name)
        losses = train(made, name)
        return {"before": before, "losses": losses, "after": logits(made, name)}

    values.compare(program, dtype_of(policy))


def test_lora(values, name, policy):
    """Training of only the low-rank adapters."""
    made = model(name, policy)
    weights = len(made.trainable_variables)
    made.backbone.enable_lora(4)
    assert 0 < len(made.trainable_variables) < weights
    snapshot = trainable(made)

    def program(disturb):
        snapshot.restore()
        disturb(made)
        return {"losses": train(made, name), "after": logits(made, name)}

    values.compare(program, dtype_of(policy))


def likely(made, name: str, prompt: dict[str, np.ndarray], key: str, ids: np.ndarray) -> bool:
    """Whether each generated token is one of those from which `SAMPLERS` draw: the `TOP_K` with the
    largest probabilities, or the most likely ones with a sum of `TOP_P`.
    """
    inputs = prompt | {key: ids.astype("int32")}
    inputs[key.replace("token_ids", "padding_mask")] = np.ones_like(ids, bool)
    scores = np.asarray(made.predict(inputs, verbose=0)).astype("float64")
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    odds /= odds.sum(-1, keepdims=True)
    filled = prompt[key.replace("token_ids", "padding_mask")]
    for row, at in zip(*np.nonzero(~filled), strict=True):
        before = odds[row, at - 1]
        # Generation keeps a cache, so its probabilities differ in the last places.
        above = before[before > before[ids[row, at]] * (1 + 1e-4)]
        if made.sampler.__class__.__name__.startswith("TopK"):
            right = above.size < TOP_K
        else:
            right = above.sum() < TOP_P * (1 + 1e-4)
        if not right:
            return False
    return True


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_generate(values, name, policy, sampler):
    """In float32 the tokens are the CPU's. TensorFlow's CPU kernel for random classes gives other
    numbers than its GPU kernel, so drawn tokens must be likely ones. In 16 bits logits are often
    equal, and either token is right; then the prompt must stay and the rest must be tokens.
    """

    def program(_):
        made = model(name, policy)
        made.compile(sampler=SAMPLERS[sampler]())
        prompt = tokens(name, filled=4)
        made_ids = made.generate(prompt | BESIDES.get(name, {}), stop_token_ids=None)
        key = "decoder_token_ids" if name == "bart" else "token_ids"
        ids = np.asarray(made_ids[key]).astype("int64")
        mask = prompt[key.replace("token_ids", "padding_mask")]
        assert np.array_equal(ids[mask], prompt[key][mask])
        assert np.all((ids >= 0) & (ids < VOCABULARY))
        if policy != "float32":
            return {"shape": np.array(ids.shape)}
        if sampler in DRAWING:
            return {"likely": np.array(likely(made, name, prompt, key, ids))}
        return {"ids": ids}

    values.compare(program)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantize(values, name, policy, mode):
    """The predictions of a quantized model."""

    def program(disturb):
        made = model(name, policy)
        disturb(made)
        made.quantize(mode)
        return {"after": logits(made, name)}

    values.compare(program, dtype_of(policy))


def test_save_and_load(tmp_path, name, policy, values):
    """A loaded model predicts the same as the saved one, to the last places."""

    def program(disturb):
        made = model(name, policy)
        disturb(made)
        before = logits(made, name)
        made.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        after = logits(loaded, name)
        unit = UNITS[dtype_of(policy)]
        np.testing.assert_allclose(after, before, rtol=4 * unit, atol=4 * unit)
        return {"after": after}

    values.compare(program, dtype_of(policy))
