"""The programs that biologists run, on random images: StarDist, CSBDeep's CARE and Noise2Void."""

import os

import numpy as np
import pytest
import tensorflow as tf
from weights import randomize

SIZE = 64


def images(count: int):
    """Noisy discs on a dark ground, and their labels."""
    random = np.random.default_rng(3)
    y, x = np.mgrid[:SIZE, :SIZE]
    labels = np.zeros((count, SIZE, SIZE), "int32")
    for image in labels:
        for label in range(1, 9):
            cy, cx, radius = random.integers(0, SIZE), random.integers(0, SIZE), 5
            image[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = label
    clean = (labels > 0).astype("float32")
    noisy = clean + random.normal(0, 0.2, labels.shape).astype("float32")
    return clean, noisy, labels


def seed() -> None:
    """Seeds the generators from which the libraries draw patches."""
    np.random.seed(5)
    tf.random.set_seed(5)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_stardist(values, grid):
    """Training and prediction of star-convex polygons."""
    from stardist.models import Config2D, StarDist2D

    _, noisy, labels = images(4)
    config = Config2D(
        n_rays=8,
        grid=grid,
        n_channel_in=1,
        unet_n_depth=2,
        unet_n_filter_base=4,
        net_conv_after_unet=8,
        train_patch_size=(32, 32),
        train_batch_size=2,
        train_epochs=2,
        train_steps_per_epoch=2,
        train_tensorboard=False,
    )

    def program(disturb):
        seed()
        model = StarDist2D(config, name=None, basedir=None)
        randomize(model.keras_model, 1)
        disturb(model.keras_model)
        history = model.train(
            list(noisy), list(labels), validation_data=(list(noisy), list(labels)), seed=5
        )
        probability, distances = model.predict(noisy[0])
        return {
            "losses": np.asarray(history.history["loss"]),
            "probability": probability,
            "distances": distances,
        }

    values.compare(program)


@pytest.mark.parametrize("probabilistic", [False, True])
def test_care(values, probabilistic):
    """Restoration of noisy images."""
    from csbdeep.models import CARE, Config

    clean, noisy, _ = images(4)
    config = Config(
        "YXC",
        1,
        1,
        probabilistic=probabilistic,
        unet_n_depth=2,
        unet_n_first=4,
        train_batch_size=2,
        train_epochs=2,
        train_steps_per_epoch=2,
        train_tensorboard=False,
    )

    def program(disturb):
        seed()
        model = CARE(config, name=None, basedir=None)
        randomize(model.keras_model, 1)
        disturb(model.keras_model)
        pair = noisy[..., None], clean[..., None]
        history = model.train(*pair, validation_data=pair)
        restored = model.predict(noisy[0], "YX")
        return {"losses": np.asarray(history.history["loss"]), "restored": restored}

    values.compare(program)


def test_noise2void(values, tmp_path, monkeypatch):
    """Denoising without clean images."""
    # numpy 2 no longer has `product`.
    monkeypatch.setattr(np, "product", np.prod, raising=False)
    from n2v.models import N2V, N2VConfig

    _, noisy, _ = images(4)
    patches = noisy[..., None]
    config = N2VConfig(
        patches,
        unet_n_depth=2,
        unet_n_first=4,
        unet_kern_size=3,
        train_steps_per_epoch=2,
        train_epochs=2,
        train_batch_size=2,
        n2v_patch_shape=(32, 32),
        train_loss="mse",
        batch_norm=True,
    )

    def program(disturb):
        seed()
        model = N2V(config, "n2v", basedir=os.fspath(tmp_path))
        randomize(model.keras_model, 1)
        disturb(model.keras_model)
        history = model.train(patches, patches)
        denoised = model.predict(noisy[0], axes="YX")
        return {"losses": np.asarray(history.history["loss"]), "denoised": denoised}

    values.compare(program)
