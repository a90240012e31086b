#!/usr/bin/env python3
"""Language models of KerasHub as a table for RESULTS.md: memory at most, dispatches, bytes, speed.

    make install && .venv/bin/pip install keras-hub
    .venv/bin/python benches/language.py                     # every model in every precision
    .venv/bin/python benches/language.py --only gemma3-270m --precisions int8 int4 --layers 4

The models have random weights in bfloat16 and the shapes of published ones; `--layers` makes fewer
layers of the same widths. Each row is a process of its own. It makes the model, saves its weights
and loads them, quantizes them, reads a prompt and generates one token (`prefill`), generates more
tokens, and takes a step of training with LoRA. Each of these columns is the most bytes of tensors
that the device had at any time of that stage, by `get_memory_info`. "Held" is what it had before
the prompt: the weights, in pieces of memory of up to twice their size, as TensorFlow cuts them.
"Goal" is what generation should take at most: the weights, 10 %, and the caches. The figures of a
token are the difference of two generations from the same sequence, one with more tokens to fill.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


class Model(NamedTuple):
    """A model: its title, its class without the word Backbone or CausalLM, its shapes."""

    title: str
    family: str
    shapes: dict[str, Any]


def gemma(layers: int, width: int, hidden: int) -> dict[str, Any]:
    """The shapes of a small Gemma 3."""
    return {
        "vocabulary_size": 262144,
        "image_size": None,
        "num_layers": layers,
        "num_query_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "hidden_dim": width,
        "intermediate_dim": hidden,
        "use_post_ffw_norm": True,
        "use_post_attention_norm": True,
        "use_sliding_window_attention": True,
        "sliding_window_size": 512,
    }


MODELS = {
    "gemma3-270m": Model("Gemma 3 270M", "Gemma3", gemma(18, 640, 2048)),
    "gemma3-1b": Model("Gemma 3 1B", "Gemma3", gemma(26, 1152, 6912)),
    "llama3.2-1b": Model(
        "Llama 3.2 1B",
        "Llama3",
        {
            "vocabulary_size": 128256,
            "num_layers": 16,
            "num_query_heads": 32,
            "num_key_value_heads": 8,
            "hidden_dim": 2048,
            "intermediate_dim": 8192,
            "tie_word_embeddings": True,
        },
    ),
}
PRECISIONS = ("bfloat16", "int8", "int4")
#: The stages in their order.
STAGES = ("make", "load", "quantize", "prefill", "tokens", "lora")
RANK = 4


class Peaks:
    """The most bytes of tensors in each stage."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.found: dict[str, int] = {}

    def of(self, stage: str, call: Callable[[], Any]) -> Any:
        """Calls, and notes the most memory while it ran."""
        import tensorflow as tf

        tf.config.experimental.reset_memory_stats(self.device)
        result = call()
        self.found[stage] = tf.config.experimental.get_memory_info(self.device)["peak"]
        return result


def bytes_of(variables: list[Any]) -> int:
    """The bytes of variables."""
    import numpy as np
    import tensorflow as tf

    return sum(int(np.prod(v.shape, dtype="int64")) * tf.as_dtype(v.dtype).size for v in variables)


def caches(model: Any, length: int) -> int:
    """The bytes of keys and values of one sequence in bfloat16."""
    backbone = model.backbone
    head = getattr(backbone, "head_dim", None)
    head = head or backbone.hidden_dim // backbone.num_query_heads
    return 2 * 2 * backbone.num_layers * length * backbone.num_key_value_heads * head


def measured(key: str, precision: str, layers: int, prompt: int, tokens: int) -> dict[str, Any]:
    """The figures of a model in this process."""
    import keras
    import keras_hub
    import numpy as np
    import tensorflow as tf
    from tensorflow_wgpu._library import first_device, statistics

    title, family, shapes = MODELS[key]
    shapes = {**shapes, "num_layers": layers or shapes["num_layers"], "dtype": "bfloat16"}
    device = first_device()
    peaks = Peaks(device)
    length = prompt + tokens

    def make() -> Any:
        backbone = getattr(keras_hub.models, f"{family}Backbone")(**shapes)
        return getattr(keras_hub.models, f"{family}CausalLM")(backbone=backbone, preprocessor=None)

    def generate(count: int) -> None:
        filled = np.arange(length)[None] < length - count
        ids = np.random.default_rng(1).integers(1, 1000, (1, length)) * filled
        inputs = {"token_ids": ids.astype("int32"), "padding_mask": filled}
        # Not generate(): without a preprocessor it fails for Gemma 3, whose images are None.
        made = model.make_generate_function()(inputs, stop_token_ids=None)["token_ids"]
        assert np.asarray(made).shape == ids.shape

    model = peaks.of("make", make)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.weights.h5")
        model.backbone.save_weights(path)
        peaks.of("load", lambda: model.backbone.load_weights(path))
    if precision != "bfloat16":
        peaks.of("quantize", lambda: model.quantize(precision))
    weights = bytes_of(model.variables)
    held = tf.config.experimental.get_memory_info(device)["current"]
    model.compile(sampler="greedy")
    peaks.of("prefill", lambda: generate(1))

    def timed(count: int) -> tuple[float, dict[str, int]]:
        before, start = statistics()[device], time.perf_counter()
        generate(count)
        taken = time.perf_counter() - start
        return taken, {name: n - before[name] for name, n in statistics()[device].items()}

    peaks.of("tokens", lambda: generate(tokens))
    (one, first), (all_, then) = timed(1), timed(tokens)
    each = {name: (then[name] - first[name]) / (tokens - 1) for name in ("dispatches", "bytes")}

    def lora() -> None:
        model.backbone.enable_lora(RANK)
        model.compile(
            optimizer=keras.optimizers.Adam(1e-4),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        ids = np.ones((1, length), "int32")
        inputs = {"token_ids": ids, "padding_mask": np.ones((1, length), bool)}
        assert np.isfinite(model.train_on_batch(inputs, ids, return_dict=True)["loss"])

    peaks.of("lora", lora)
    return {
        "title": title,
        "layers": shapes["num_layers"],
        "weights": weights,
        "held": held,
        "goal": int(1.1 * weights) + caches(model, length),
        "per_second": (tokens - 1) / (all_ - one),
        **each,
        "peaks": peaks.found,
    }


def row(precision: str, told: dict[str, Any]) -> str:
    """A row of the table, in megabytes."""
    peaks = (told["peaks"].get(stage) for stage in STAGES)
    sizes = (*(told[name] for name in ("weights", "held", "goal")), *peaks)
    cells = [f"{told['title']}, {told['layers']} layers", precision]
    cells += ["" if size is None else f"{size / 1e6:,.0f}" for size in sizes]
    cells += [f"{told['per_second']:.2f}", f"{told['dispatches']:,.0f}"]
    cells.append(f"{told['bytes'] / 1e6:,.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table, or the figures of one row as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--layers", type=int, default=0, help="fewer layers of the same widths")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    numbers = (options.layers, options.prompt, options.tokens)
    if options.own:
        print(json.dumps(measured(options.only[0], options.precisions[0], *numbers)))
        return
    headings = ["Model", "Precision", "Weights", "Held", "Goal", *STAGES, "Tokens/s"]
    headings += ["Dispatches of a token", "MB of a token"]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}", flush=True)
    for key in options.only:
        for precision in options.precisions:
            command = [sys.executable, __file__, "--own", "--only", key, "--precisions", precision]
            command += ["--layers", str(numbers[0]), "--prompt", str(numbers[1])]
            command += ["--tokens", str(numbers[2])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                print(f"{key}, {precision}: ended with {done.returncode}", file=sys.stderr)
            else:
                print(row(precision, json.loads(done.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
