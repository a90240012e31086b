"""Batch normalization. The last reserved output is not for users, and the CPU's differs from a
GPU's.
"""

from support import assert_close

from .core import case

TOL = {"float32": (1e-4, 1e-4), "float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}


def visible(got, want):
    """Compares the normalized values and the batch's moments, but not the reserved moments, whose
    form depends on the device.
    """
    for g, w in list(zip(got, want))[:3]:
        assert_close(g, w, *TOL[w.dtype.name])


@case("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", compare=visible, tol=TOL)
def forward(t):
    float32 = t.get("U", t["T"])
    for shape, training, epsilon in [
        ((2, 3, 4, 5), True, 1e-3),
        ((1, 2, 2, 3), False, 1e-2),
        ((0, 2, 2, 3), False, 0.1),
    ]:
        channels = shape[-1:]
        moments = [t.normal(float32, channels), t.uniform(float32, channels, 0.5, 2)]
        if training:
            moments = [moments[0][:0], moments[1][:0]]
        yield dict(
            x=t.normal("T", shape),
            scale=t.uniform(float32, channels, 0.5, 2),
            offset=t.normal(float32, channels),
            mean=moments[0],
            variance=moments[1],
            epsilon=epsilon,
            is_training=training,
        )


def gradients_only(got, want):
    """Compares the gradients of x, scale and offset."""
    visible(got, want)


@case(
    "FusedBatchNormGrad",
    "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
    compare=gradients_only,
    gradient=False,
)
def backward(t):
    float32 = t.get("U", t["T"])
    for shape in [(2, 3, 4, 5), (1, 2, 2, 3)]:
        channels = shape[-1:]
        # Not in training the reserved tensors are the mean and the variance on every device.
        call = dict(
            y_backprop=t.normal("T", shape),
            x=t.normal("T", shape),
            scale=t.uniform(float32, channels, 0.5, 2),
            reserve_space_1=t.normal(float32, channels),
            reserve_space_2=t.uniform(float32, channels, 0.5, 2),
            epsilon=1e-2,
            is_training=False,
        )
        if t.op.endswith("V3"):
            call["reserve_space_3"] = t.normal(float32, channels)
        yield call
