"""Images: resizing, crops, projective transforms, colours and contrast."""

import numpy as np
import tensorflow as tf

from .core import case
from .removed import removed_op

SIZES = [
    ((5, 7), (9, 4)),
    ((3, 4), (7, 11)),
    ((6, 5), (6, 5)),
    ((4, 6), (1, 1)),
    ((1, 1), (3, 2)),
    ((2, 3), (40, 3)),
]
FLAGS = [{}, {"align_corners": True}, {"half_pixel_centers": True}]


@case(
    "ResizeBilinear",
    "ResizeNearestNeighbor",
    tol={"float64": (1e-6, 1e-6), "float16": (5e-3, 5e-3)},
)
def resize(t):
    for flags in FLAGS:
        for old, new in SIZES:
            yield dict(images=t.normal("T", (2, *old, 3)), size=np.array(new, "int32"), **flags)
    yield dict(images=t.normal("T", (1, 4, 3, 8)), size=np.array((5, 6), "int32"))
    yield dict(images=t.normal("T", (0, 4, 3, 2)), size=np.array((5, 6), "int32"))


@case(
    "ResizeBilinearGrad",
    tol={"float64": (1e-5, 1e-5), "float16": (1e-2, 2e-2), "bfloat16": (5e-2, 2e-1)},
)
def resize_bilinear_grad(t):
    for flags in FLAGS:
        for old, new in SIZES:
            grads = t.normal(tf.float32, (2, *new, 3))
            yield dict(grads=grads, original_image=t.normal("T", (2, *old, 3)), **flags)
    yield dict(grads=t.normal(tf.float32, (0, 2, 2, 1)), original_image=t.normal("T", (0, 3, 3, 1)))


@case("ResizeNearestNeighborGrad", tol={"float16": (1e-2, 2e-2), "bfloat16": (5e-2, 2e-1)})
def resize_nearest_grad(t):
    for flags in FLAGS:
        for old, new in SIZES:
            yield dict(grads=t.normal("T", (2, *new, 3)), size=np.array(old, "int32"), **flags)
    yield dict(grads=t.normal("T", (0, 2, 2, 1)), size=np.array((3, 3), "int32"))


KERNELS = [
    "lanczos1",
    "lanczos3",
    "lanczos5",
    "gaussian",
    "box",
    "triangle",
    "keyscubic",
    "mitchellcubic",
]
MAPS = [
    # Old and new size, scale, translation.
    ((5, 7), (9, 4), (1.8, 0.6), (0, 0)),
    ((6, 5), (6, 5), (1, 1), (0.5, -1.25)),
    ((9, 8), (3, 2), (0.3, 0.25), (0.1, 0)),
    ((2, 3), (20, 3), (9, 1), (4, 30)),
]


def pair(values):
    return np.array(values, "float32")


@case("ScaleAndTranslate", rtol=1e-4, atol=1e-4)
def scale_and_translate(t):
    for kernel in KERNELS:
        for antialias in True, False:
            for old, new, scale, translation in MAPS:
                channels = 4 if antialias else 3
                yield dict(
                    images=t.values("T", (2, *old, channels)),
                    size=np.array(new, "int32"),
                    scale=pair(scale),
                    translation=pair(translation),
                    kernel_type=kernel,
                    antialias=antialias,
                )
    yield dict(
        images=t.values("T", (0, 4, 3, 2)),
        size=np.array((5, 6), "int32"),
        scale=pair((1, 1)),
        translation=pair((0, 0)),
    )


@case("ScaleAndTranslateGrad", rtol=1e-4, atol=1e-4)
def scale_and_translate_grad(t):
    for kernel in KERNELS:
        for antialias in True, False:
            for old, new, scale, translation in MAPS:
                channels = 4 if antialias else 3
                yield dict(
                    grads=t.normal("T", (2, *new, channels)),
                    original_image=t.normal("T", (2, *old, channels)),
                    scale=pair(scale),
                    translation=pair(translation),
                    kernel_type=kernel,
                    antialias=antialias,
                )
    yield dict(
        grads=t.normal("T", (2, 0, 3, 2)),
        original_image=t.normal("T", (2, 3, 3, 2)),
        scale=pair((1, 1)),
        translation=pair((0, 0)),
    )


BOXES = np.array(
    [
        [0, 0, 1, 1],
        [0.1, 0.2, 0.83, 0.91],
        [0.9, 0.1, 0.2, 0.7],
        [-0.3, 0.23, 1.2, 1.4],
        [0.37, 0.41, 0.37, 0.41],
        [2, 2, 3, 3],
        [0.07, 0.61, 0.53, 0.33],
    ],
    "float32",
)
WHERE = np.array([0, 1, 1, 0, 1, 0, 1], "int32")
CROPS = [(3, 4), (1, 1), (9, 1), (1, 13)]


@case(
    "CropAndResize",
    gradient=True,
    tol={"float16": (1e-2, 2e-2), "float64": (1e-4, 1e-4), "float32": (1e-4, 1e-4)},
)
def crop_and_resize(t):
    for size in CROPS:
        image = t.normal("T", (2, 6, 5, 3))
        common = dict(image=image, boxes=BOXES, box_ind=WHERE, crop_size=np.array(size, "int32"))
        yield dict(method="bilinear", extrapolation_value=1.5, **common)
        if t["T"] == tf.float32:
            yield dict(method="nearest", extrapolation_value=-1.0, **common)
    yield dict(
        image=t.normal("T", (1, 3, 3, 2)),
        boxes=np.zeros((0, 4), "float32"),
        box_ind=np.zeros(0, "int32"),
        crop_size=np.array((2, 2), "int32"),
    )


@case(
    "CropAndResizeGradImage",
    tol={"float16": (1e-2, 3e-2), "float64": (1e-4, 1e-4), "float32": (1e-4, 1e-4)},
)
def crop_and_resize_grad_image(t):
    for size in CROPS:
        for method in "bilinear", "nearest":
            yield dict(
                grads=t.normal(tf.float32, (len(BOXES), *size, 3)),
                boxes=BOXES,
                box_ind=WHERE,
                image_size=np.array((2, 6, 5, 3), "int32"),
                T=t["T"],
                method=method,
            )
    yield dict(
        grads=t.normal(tf.float32, (0, 2, 2, 3)),
        boxes=np.zeros((0, 4), "float32"),
        box_ind=np.zeros(0, "int32"),
        image_size=np.array((2, 6, 5, 3), "int32"),
        T=t["T"],
    )


@case("CropAndResizeGradBoxes", rtol=1e-4, atol=1e-3)
def crop_and_resize_grad_boxes(t):
    for size in CROPS:
        grads = t.normal(tf.float32, (len(BOXES), *size, 3))
        yield dict(grads=grads, image=t.normal("T", (2, 6, 5, 3)), boxes=BOXES, box_ind=WHERE)
    yield dict(
        grads=t.normal(tf.float32, (0, 2, 2, 3)),
        image=t.normal("T", (2, 6, 5, 3)),
        boxes=np.zeros((0, 4), "float32"),
        box_ind=np.zeros(0, "int32"),
    )


TRANSFORMS = np.array(
    [
        [0.9, 0.31, -2.17, -0.27, 1.13, 1.71, 0, 0],
        [1.07, 0.05, 0.77, 0.03, 0.93, -0.41, 0.013, -0.021],
        [-1, 0, 4, 0, 1, 0, 0, 0],
    ],
    "float32",
)


def transforms(t, **more):
    for mode in "CONSTANT", "REFLECT", "WRAP", "NEAREST":
        for interpolation in "BILINEAR", "NEAREST":
            for matrices in TRANSFORMS, TRANSFORMS[:1], 3 * TRANSFORMS:
                yield dict(
                    images=10 * t.values("dtype", (3, 6, 5, 2)),
                    transforms=matrices,
                    output_shape=np.array((7, 8), "int32"),
                    interpolation=interpolation,
                    fill_mode=mode,
                    **more,
                )
    yield dict(
        images=t.values("dtype", (0, 6, 5, 2)),
        transforms=TRANSFORMS[:1],
        output_shape=np.array((2, 3), "int32"),
        interpolation="NEAREST",
        **more,
    )


TRANSFORMED = {"float16": (1e-2, 5e-2), "float64": (1e-4, 1e-3), "float32": (1e-4, 1e-3)}


def close_transforms(got, want):
    """Interpolated integers may round to a neighbour."""
    for g, w in zip(got, want):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        if g.dtype.kind in "iu":
            difference = np.abs(g.astype("int64") - w.astype("int64"))
            assert difference.max(initial=0) <= 1
            assert np.count_nonzero(difference) <= 0.05 * g.size
        else:
            rtol, atol = TRANSFORMED[w.dtype.name]
            np.testing.assert_allclose(g.astype("float64"), w.astype("float64"), rtol, atol)


@case("ImageProjectiveTransformV2", compare=close_transforms, tol=TRANSFORMED)
def projective_transform(t):
    yield from transforms(t)


@case("ImageProjectiveTransformV3", compare=close_transforms, tol=TRANSFORMED)
def filled_projective_transform(t):
    yield from transforms(t, fill_value=np.float32(2.7))


@case("HSVToRGB", "RGBToHSV", tol={"float64": (1e-10, 1e-10)})
def color_spaces(t):
    for shape in [(5, 7, 3), (3,), (0, 3)]:
        yield dict(images=t.uniform("T", shape, 0, 1))
    yield dict(images=t.integers("T", (4, 5, 3), 0, 2))


@case(
    "AdjustHue",
    "AdjustSaturation",
    cpu_as={"float16": "float32"},
    tol={"float16": (5e-3, 5e-3), "float32": (1e-4, 1e-5)},
)
def adjusted_colors(t):
    name = "delta" if t.op == "AdjustHue" else "scale"
    for amount in 0.3, -0.7, 1.6, 0.0:
        yield {"images": t.uniform("T", (2, 5, 3, 3), 0, 1), name: np.float32(amount)}
    yield {"images": t.integers("T", (4, 5, 3), 0, 2), name: np.float32(0.25)}
    yield {"images": t.uniform("T", (4, 5, 3), -1, 0.5), name: np.float32(0.25)}
    yield {"images": t.uniform("T", (0, 5, 3), 0, 1), name: np.float32(0.5)}


@case("AdjustContrastv2", cpu_as={"float16": "float32"}, tol={"float16": (5e-3, 5e-3)})
def contrast(t):
    for shape in [(2, 5, 7, 3), (4, 3, 2), (2, 2, 1, 3, 5), (40, 50, 3), (0, 4, 4, 3)]:
        yield dict(images=t.normal("T", shape), contrast_factor=np.float32(1.7))


@case("AdjustContrast", gradient=False)
def bounded_contrast(t):
    """Current graphs refuse the op; those of TensorFlow 0.5 do not."""
    for shape in [(2, 5, 7, 3), (4, 3, 2), (0, 4, 4, 3)]:
        images = 5 * t.values("T", shape)
        bounds = [np.float32(v) for v in (1.7, -12.5, 11.25)]
        yield t.program(
            lambda images=images, bounds=bounds: removed_op(
                "AdjustContrast", [images, *bounds], t.types
            )
        )


@case("Cross", gradient=None, tol={"float16": (5e-3, 1e-2), "bfloat16": (5e-2, 1e-1)})
def cross(t):
    for shape in [(5, 3), (3,), (2, 4, 3), (0, 3)]:
        yield dict(a=t.values("T", shape), b=t.values("T", shape))


@case("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def draw_bounding_boxes(t):
    boxes = np.array(
        [
            [0, 0, 1, 1],
            [0.2, 0.3, 0.7, 0.8],
            [-0.3, 0.1, 0.6, 1.7],
            [0.9, 0.1, 0.2, 0.7],
            [2, 2, 3, 3],
            [-0.1, -0.1, 0.4, 0.4],
            [np.nan, 0.5, 0.5, np.inf],
            [0.5, 0.5, 0.5, 0.5],
        ],
        "float32",
    )
    second = t.op == "DrawBoundingBoxesV2"
    tables = [t.normal(tf.float32, (3, 4)), np.zeros((0, 4), "float32")] if second else [None]
    for colors in tables:
        more = {} if colors is None else {"colors": colors}
        for depth in 1, 3, 4:
            for count in 12, 3, 0:
                # Every image has other boxes.
                of = np.stack([np.roll(boxes, shift, 0) for shift in range(2)])
                of = np.concatenate([of, of[:, ::-1]], 1)[:, :count]
                yield dict(images=t.normal("T", (2, 9, 11, depth)), boxes=of, **more)
