"""tf.image and Keras's augmentation layers with forced placement, and models that contain them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import WGPU, float_ops, on_both

IMAGE = tf.image
BOXES = np.array([[0.1, 0.2, 0.7, 0.8], [0, 0, 1, 1]], "float32")

FUNCTIONS = {
    "adjust_brightness": lambda x: IMAGE.adjust_brightness(x, 0.1),
    "adjust_contrast": lambda x: IMAGE.adjust_contrast(x, 1.5),
    "adjust_gamma": lambda x: IMAGE.adjust_gamma(x, 1.2, 1.1),
    "adjust_hue": lambda x: IMAGE.adjust_hue(x, 0.2),
    "adjust_saturation": lambda x: IMAGE.adjust_saturation(x, 0.5),
    "central_crop": lambda x: IMAGE.central_crop(x, 0.5),
    "crop_and_resize": lambda x: IMAGE.crop_and_resize(x, BOXES, tf.constant([0, 1]), [5, 6]),
    "extract_patches": lambda x: IMAGE.extract_patches(
        x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"
    ),
    "flip_left_right": IMAGE.flip_left_right,
    "hsv_to_rgb": IMAGE.hsv_to_rgb,
    "image_gradients": IMAGE.image_gradients,
    "pad_to_bounding_box": lambda x: IMAGE.pad_to_bounding_box(x, 1, 2, 20, 24),
    "per_image_standardization": IMAGE.per_image_standardization,
    "psnr": lambda x: IMAGE.psnr(x, 0.9 * x, 1.0),
    "resize": lambda x: IMAGE.resize(x, [8, 9]),
    "resize_nearest": lambda x: IMAGE.resize(x, [21, 9], "nearest"),
    "resize_with_crop_or_pad": lambda x: IMAGE.resize_with_crop_or_pad(x, 10, 30),
    "resize_with_pad": lambda x: IMAGE.resize_with_pad(x, 10, 30),
    "rgb_to_grayscale": IMAGE.rgb_to_grayscale,
    "rgb_to_hsv": IMAGE.rgb_to_hsv,
    "rgb_to_yuv": IMAGE.rgb_to_yuv,
    "rot90": IMAGE.rot90,
    "sobel_edges": IMAGE.sobel_edges,
    "ssim": lambda x: IMAGE.ssim(x, 0.9 * x, 1.0),
    "stateless_random_contrast": lambda x: IMAGE.stateless_random_contrast(x, 0.2, 0.9, (1, 2)),
    "stateless_random_flip": lambda x: IMAGE.stateless_random_flip_left_right(x, (1, 2)),
    "stateless_random_hue": lambda x: IMAGE.stateless_random_hue(x, 0.2, (1, 2)),
    "total_variation": IMAGE.total_variation,
    "yiq_to_rgb": IMAGE.yiq_to_rgb,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(rng, name):
    on_both(
        FUNCTIONS[name], rng.uniform(0, 1, (2, 16, 18, 3)).astype("float32"), rtol=1e-4, atol=1e-4
    )


def test_adjusting_half_images(rng):
    images = rng.uniform(0, 1, (2, 5, 7, 3)).astype("float16")
    with tf.device(WGPU):
        got = IMAGE.adjust_saturation(IMAGE.adjust_hue(tf.constant(images), 0.2), 0.6)
    want = IMAGE.adjust_saturation(
        IMAGE.adjust_hue(tf.constant(images.astype("float32")), 0.2), 0.6
    )
    np.testing.assert_allclose(got.numpy().astype("float32"), want, atol=5e-3)


LAYERS = {
    "CenterCrop": lambda: layers.CenterCrop(20, 20),
    "RandomBrightness": lambda: layers.RandomBrightness(0.2, value_range=(0, 1)),
    "RandomContrast": lambda: layers.RandomContrast(0.2),
    "RandomCrop": lambda: layers.RandomCrop(20, 20),
    "RandomFlip": lambda: layers.RandomFlip(),
    "RandomRotation": lambda: layers.RandomRotation(0.2),
    "RandomTranslation": lambda: layers.RandomTranslation(0.2, 0.2, fill_mode="wrap"),
    "RandomZoom": lambda: layers.RandomZoom(0.2, fill_mode="constant", interpolation="nearest"),
    "Rescaling": lambda: layers.Rescaling(1 / 255),
    "Resizing": lambda: layers.Resizing(16, 20, crop_to_aspect_ratio=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(rng, name):
    x = rng.uniform(0, 1, (4, 32, 32, 3)).astype("float32")
    with tf.device(WGPU):
        layer = LAYERS[name]()
        for run in layer, tf.function(layer):
            y = run(tf.constant(x), training=True)
            assert np.isfinite(y.numpy()).all()


def test_a_model_that_augments_trains_on_the_device(rng):
    """Between convolutions, so that the gradients of the layers are needed."""
    x = rng.uniform(0, 1, (8, 24, 24, 3)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            layers.Conv2D(4, 3, padding="same"),
            layers.RandomFlip(),
            layers.RandomRotation(0.2),
            layers.RandomZoom(0.2),
            layers.RandomTranslation(0.1, 0.1),
            layers.RandomContrast(0.2),
            layers.Resizing(16, 16),
            layers.Conv2D(4, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # Keras makes its optimizer's counters on the CPU.
    tf.config.set_soft_device_placement(True)
    try:
        ops = float_ops(lambda: model.train_on_batch(x, rng.integers(0, 3, 8)))
    finally:
        tf.config.set_soft_device_placement(False)
    assert set(ops) == {"WGPU:0"}, ops
    assert {"ImageProjectiveTransformV3", "ResizeBilinear", "ResizeBilinearGrad"} <= set(
        ops["WGPU:0"]
    )
    assert np.isfinite(model.get_weights()[0]).all()
