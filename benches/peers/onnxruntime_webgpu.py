"""ONNX Runtime's WebGPU execution provider (Dawn), with operands and results on the device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rows import Run, serve, tell

INSTALL = "python -m pip install onnxruntime-webgpu onnx numpy"
try:
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as error:
    tell(refused=f"{error}; {INSTALL}")
    raise SystemExit(0) from None

PROVIDER = "WebGpuExecutionProvider"
DRIVER = "Dawn wants a newer Vulkan driver: for lavapipe Mesa 25, see the head of run.py"
Node = tuple[str, list[str], dict]
#: All objects that rows need: bindings do not keep the objects that they refer to, and Dawn's
#: destructors require an order. The process ends without running them.
KEPT: list[tuple] = []


def model(nodes: list[Node], shapes: list[list[int]]) -> bytes:
    """A model of `nodes` (op, inputs, attributes). Each node makes the tensor that is named after
    its index.
    """
    made = [
        helper.make_node(op, inputs, [f"t{i}"], **attributes)
        for i, (op, inputs, attributes) in enumerate(nodes)
    ]
    inputs = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(shapes)
    ]
    output = helper.make_tensor_value_info(f"t{len(nodes) - 1}", TensorProto.FLOAT, None)
    constants = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        for name, value in (
            ("half", 0.5),
            ("one", 1.0),
            ("cube", 0.044715),
            ("scale", 0.7978845608),
        )
    ]
    constants += [helper.make_tensor(f"axis{a}", TensorProto.INT64, [1], [a]) for a in (0, 1)]
    used = {name for _, names, _ in nodes for name in names}
    graph = helper.make_graph(
        made, "row", inputs, [output], [c for c in constants if c.name in used]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()


def session(nodes: list[Node], *shapes: list[int]) -> ort.InferenceSession:
    """A session on WebGPU. Raises if there is none, because ONNX Runtime would use the CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(
        model(nodes, list(shapes)), options, providers=[PROVIDER], enable_fallback=0
    )


class Held:
    """Floats on the device.

    This API cannot allocate on the device, so the floats are the result of a session, which has to
    live as long as they do.
    """

    def __init__(self, value: np.ndarray) -> None:
        self.session = session([("Mul", ["x0", "one"], {})], list(value.shape))
        self.binding = self.session.io_binding()
        self.binding.bind_cpu_input("x0", value)
        self.binding.bind_output("t0", "webgpu", 0)
        self.session.run_with_iobinding(self.binding)
        self.value = self.binding.get_outputs()[0]


def random(shape: list[int], seed: int) -> Held:
    """Random floats on the device."""
    return Held(np.random.default_rng(seed).standard_normal(shape, dtype="float32"))


def probe() -> Callable[[], None]:
    """Waits for the device: the work of a queue is done in order, so a result of four bytes comes
    after all earlier work.
    """
    probe, seen = random([1], 0), session([("Add", ["x0", "x0"], {})], [1])
    waiting = seen.io_binding()
    waiting.bind_ortvalue_input("x0", probe.value)
    waiting.bind_output("t0", "cpu", 0)
    KEPT.append((probe, waiting, seen))
    return lambda: seen.run_with_iobinding(waiting)


def of(nodes: list[Node], *shapes: list[int], repeat: int = 1) -> Callable[[], Run]:
    """The maker of a row."""

    def make() -> Run:
        made = session(nodes, *shapes)
        held = [random(shape, seed) for seed, shape in enumerate(shapes)]
        binding = made.io_binding()
        for i, operand in enumerate(held):
            binding.bind_ortvalue_input(f"x{i}", operand.value)
        binding.bind_output(f"t{len(nodes) - 1}", "webgpu", 0)
        wait = probe()

        def run(times: int) -> None:
            for _ in range(times * repeat):
                made.run_with_iobinding(binding)
            wait()

        KEPT.append((held, binding, made))
        return run

    return make


def convolutions(key: str, x: list[int], w: list[int]) -> dict[str, Callable[[], Run]]:
    """A convolution, NCHW as in ONNX, and its input's gradient. There is no op for the filter's
    gradient.
    """
    how = {"kernel_shape": w[2:], "pads": [w[2] // 2] * 4}
    y = [x[0], w[0], *x[2:]]
    return {
        key: of([("Conv", ["x0", "x1"], how)], x, w),
        f"{key}_x": of([("ConvTranspose", ["x0", "x1"], how)], y, w),
    }


GELU: list[Node] = [
    ("Mul", ["x0", "x0"], {}),
    ("Mul", ["t0", "x0"], {}),
    ("Mul", ["t1", "cube"], {}),
    ("Add", ["t2", "x0"], {}),
    ("Mul", ["t3", "scale"], {}),
    ("Tanh", ["t4"], {}),
    ("Add", ["t5", "one"], {}),
    ("Mul", ["x0", "half"], {}),
    ("Mul", ["t6", "t7"], {}),
]


def refusal() -> str | None:
    """The reason if there is no WebGPU here."""
    if PROVIDER not in ort.get_available_providers():
        return f"onnxruntime {ort.__version__} was built without WebGPU; {INSTALL}"
    try:
        session([("Add", ["x0", "x0"], {})], [4]).run(None, {"x0": np.ones(4, "float32")})
    except Exception as error:  # Whatever Dawn has against the driver; it comes in several classes.
        # ONNX Runtime's own condition comes before Dawn's message.
        reason = str(error).rpartition("was false. ")[2].strip().splitlines()[:1] or [
            type(error).__name__
        ]
        return (
            f"onnxruntime-webgpu {ort.__version__} finds no adapter that it takes "
            f"({reason[0]}). {DRIVER}"
        )
    return None


def main() -> None:
    """Runs all rows, or reports why there are none."""
    why = refusal()
    if why:
        tell(refused=why)
        return
    tell(about=f"onnxruntime-webgpu {ort.__version__}")
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}
    serve(
        {
            "matmul": of([("MatMul", ["x0", "x1"], {})], [1024, 1024], [1024, 1024]),
            **convolutions("conv3", [8, 64, 56, 56], [64, 64, 3, 3]),
            **convolutions("conv1", [8, 256, 14, 14], [1024, 256, 1, 1]),
            "add": of([("Add", ["x0", "x1"], {})], [16 << 20], [16 << 20]),
            "gelu": of(GELU, [16 << 20]),
            "softmax": of([("Softmax", ["x0"], {"axis": -1})], [4096, 1024]),
            "sum_last": of([("ReduceSum", ["x0", "axis1"], {"keepdims": 0})], [4096, 4096]),
            "sum_first": of([("ReduceSum", ["x0", "axis0"], {"keepdims": 0})], [4096, 4096]),
            "layer_norm": of(
                [("LayerNormalization", ["x0", "x1", "x2"], {"epsilon": 1e-3})],
                [4096, 1024],
                [1024],
                [1024],
            ),
            "transpose": of([("Transpose", ["x0"], {"perm": [1, 0]})], [4096, 4096]),
            "max_pool": of([("MaxPool", ["x0"], pool)], [8, 64, 112, 112]),
            "small": of([("Add", ["x0", "x1"], {})], [64], [64], repeat=1000),
        }
    )


if __name__ == "__main__":
    main()
    # Everything has been printed, and destructors may abort.
    sys.stdout.flush()
    os._exit(0)
