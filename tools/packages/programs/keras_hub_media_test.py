"""KerasHub's models of sound and images, tiny and with random weights: Whisper, SAM and Stable
Diffusion 3.
"""

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.models.vae.vae_backbone import VAEBackbone
from weights import Snapshot, randomize

POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]
IMAGE = 64

pytestmark = pytest.mark.parametrize("policy", POLICIES)


def seeded(make, policy: str):
    """A model whose weights are the same in every process."""
    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy(policy)
    try:
        made = make()
    finally:
        keras.config.set_dtype_policy("float32")
    randomize(made, 11)
    return made


def dtype_of(policy: str) -> str:
    """The type that a policy computes in."""
    return policy.removeprefix("mixed_")


def whisper():
    """Whisper's encoder and decoder, with a head of tokens."""
    backbone = keras_hub.models.WhisperBackbone(
        vocabulary_size=32,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        num_mels=20,
        max_encoder_sequence_length=24,
        max_decoder_sequence_length=10,
    )
    output = keras.layers.Dense(32, dtype="float32")(backbone.output["decoder_sequence_output"])
    return keras.Model(backbone.input, output)


def test_whisper(values, policy):
    """Training on spectra and tokens."""
    random = np.random.default_rng(2)
    inputs = {
        "encoder_features": random.normal(0, 1, (2, 24, 20)).astype("float32"),
        "decoder_token_ids": random.integers(0, 32, (2, 10)).astype("int32"),
        "decoder_padding_mask": np.arange(10)[None] < np.array([[10], [7]]),
    }
    labels = random.integers(0, 32, (2, 10))

    made = seeded(whisper, policy)
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    snapshot = Snapshot(made)

    def program(disturb):
        snapshot.restore()
        disturb(made)
        history = made.fit(inputs, labels, epochs=3, verbose=0)
        return {
            "losses": np.asarray(history.history["loss"]),
            "after": made.predict(inputs, verbose=0),
        }

    values.compare(program, dtype_of(policy))


def sam():
    """The segmenter with encoders of images and prompts."""
    backbone = keras_hub.models.SAMBackbone(
        image_encoder=keras_hub.models.ViTDetBackbone(
            hidden_size=16,
            num_layers=4,
            intermediate_dim=32,
            num_heads=4,
            global_attention_layer_indices=[1, 3],
            patch_size=16,
            num_output_channels=8,
            window_size=2,
            image_shape=(IMAGE, IMAGE, 3),
        ),
        prompt_encoder=keras_hub.layers.SAMPromptEncoder(
            hidden_size=8,
            image_embedding_size=(IMAGE // 16, IMAGE // 16),
            input_image_size=(IMAGE, IMAGE),
            mask_in_channels=16,
        ),
        mask_decoder=keras_hub.layers.SAMMaskDecoder(
            num_layers=2,
            hidden_size=8,
            intermediate_dim=32,
            num_heads=2,
            embedding_dim=8,
            num_multimask_outputs=3,
            iou_head_depth=3,
            iou_head_hidden_dim=8,
        ),
    )
    return keras_hub.models.SAMImageSegmenter(backbone=backbone)


def test_sam(values, policy):
    """Masks out of points, boxes and a mask."""
    random = np.random.default_rng(3)
    inputs = {
        "images": random.normal(0, 1, (2, IMAGE, IMAGE, 3)).astype("float32"),
        "points": random.uniform(0, IMAGE, (2, 2, 2)).astype("float32"),
        "labels": np.array([[0, 1], [1, 0]], "float32"),
        "boxes": np.array([[[[5, 5], [40, 30]]]] * 2, "float32"),
        "masks": random.normal(0, 1, (2, 1, IMAGE // 4, IMAGE // 4, 1)).astype("float32"),
    }

    made = seeded(sam, policy)
    weights = made.get_weights()

    def program(disturb):
        made.set_weights(weights)
        disturb(made)
        outputs = made.predict(inputs, verbose=0)
        return {name: np.asarray(value).astype("float32") for name, value in outputs.items()}

    values.compare(program, dtype_of(policy))


def diffusion():
    """Stable Diffusion 3 for images of 64 × 64."""
    text = {
        "vocabulary_size": 20,
        "embedding_dim": 8,
        "hidden_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_dim": 16,
        "intermediate_output_index": 0,
    }
    backbone = keras_hub.models.StableDiffusion3Backbone(
        mmdit_patch_size=2,
        mmdit_hidden_dim=16 * 2,
        mmdit_num_layers=2,
        mmdit_num_heads=2,
        mmdit_position_size=192,
        mmdit_qk_norm="rms_norm",
        mmdit_dual_attention_indices=(0,),
        vae=VAEBackbone([32, 32, 32, 32], [1, 1, 1, 1], [32, 32, 32, 32], [1, 1, 1, 1]),
        clip_l=keras_hub.models.CLIPTextEncoder(**text, name="clip_l"),
        clip_g=keras_hub.models.CLIPTextEncoder(**text, name="clip_g"),
        image_shape=(IMAGE, IMAGE, 3),
    )
    return keras_hub.models.StableDiffusion3TextToImage(backbone=backbone, preprocessor=None)


def test_stable_diffusion(values, policy):
    """Three steps from given latents to an image."""
    random = np.random.default_rng(4)
    latents = random.normal(0, 1, (1, IMAGE // 8, IMAGE // 8, 16)).astype("float32")
    ids = [
        {name: random.integers(0, 20, (1, 77)).astype("int32") for name in ("clip_l", "clip_g")}
        for _ in range(2)
    ]

    made = seeded(diffusion, policy)
    made.compile()
    weights = made.get_weights()

    def program(disturb):
        made.set_weights(weights)
        disturb(made)
        made.backbone.configure_scheduler(3)
        step = made.make_generate_function()
        image = step(
            keras.ops.convert_to_tensor(latents),
            keras.tree.map_structure(keras.ops.convert_to_tensor, tuple(ids)),
            keras.ops.convert_to_tensor(3),
            keras.ops.convert_to_tensor(4.0),
        )
        return {"image": np.asarray(image).astype("float32")}

    values.compare(program, dtype_of(policy))
