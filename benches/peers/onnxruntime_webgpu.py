"""ONNX Runtime's WebGPU execution provider (Dawn), with operands and results on the device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rows import measure, tell

INSTALL = "python -m pip install onnxruntime-webgpu onnx numpy"
try:
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as error:
    tell(refused=f"{error}; {INSTALL}")
    raise SystemExit(0) from None

PROVIDER = "WebGpuExecutionProvider"
DRIVER = (
    "Dawn wants a newer Vulkan driver: for lavapipe Mesa 25, on Debian 12 mesa-vulkan-drivers of bookworm-backports"
)
Node = tuple[str, list[str], dict]


def model(nodes: list[Node], shapes: list[list[int]]) -> bytes:
    """A model of `nodes` (op, inputs, attributes), each of which makes the tensor that its index names."""
    made = [helper.make_node(op, inputs, [f"t{i}"], **attributes) for i, (op, inputs, attributes) in enumerate(nodes)]
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(shapes)]
    output = helper.make_tensor_value_info(f"t{len(nodes) - 1}", TensorProto.FLOAT, None)
    constants = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        for name, value in (("half", 0.5), ("one", 1.0), ("cube", 0.044715), ("scale", 0.7978845608))
    ]
    constants += [helper.make_tensor(f"axis{a}", TensorProto.INT64, [1], [a]) for a in (0, 1)]
    used = {name for _, names, _ in nodes for name in names}
    graph = helper.make_graph(made, "row", inputs, [output], [c for c in constants if c.name in used])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def session(serialized: bytes) -> ort.InferenceSession:
    """A session on WebGPU. Raises where there is none, for ONNX Runtime would take the CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # What a user does not see in the model shall not be computed ahead or left out, but for fusions.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(serialized, options, providers=[PROVIDER], enable_fallback=0)


def of(nodes: list[Node], *shapes: list[int], repeat: int = 1) -> Callable[[], Callable[[int], None]]:
    """The maker of a row."""

    def make() -> Callable[[int], None]:
        made = session(model(nodes, list(shapes)))
        rng = np.random.default_rng(0)
        binding = made.io_binding()
        for i, shape in enumerate(shapes):
            value = rng.standard_normal(shape, dtype="float32")
            binding.bind_ortvalue_input(f"x{i}", ort.OrtValue.ortvalue_from_numpy(value, "webgpu", 0))
        binding.bind_output(f"t{len(nodes) - 1}", "webgpu", 0)

        def run(times: int) -> None:
            for _ in range(times * repeat):
                made.run_with_iobinding(binding)
            # Reading the result waits for the queue.
            binding.copy_outputs_to_cpu()

        return run

    return make


def conv(pad: int, filters: list[int]) -> list[Node]:
    """A convolution, NCHW as ONNX has it."""
    return [("Conv", ["x0", "x1"], {"kernel_shape": filters, "pads": [pad] * 4})]


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


def main() -> None:
    """All rows, or why there are none."""
    if PROVIDER not in ort.get_available_providers():
        tell(refused=f"onnxruntime {ort.__version__} was built without WebGPU; {INSTALL}")
        return
    try:
        session(model([("Add", ["x0", "x0"], {})], [[4]])).run(None, {"x0": np.ones(4, "float32")})
    except Exception as error:  # Whatever Dawn has against the driver; it comes in several classes.
        # ONNX Runtime's own condition stands in front of what Dawn says.
        reason = str(error).rpartition("was false. ")[2].strip().splitlines()[:1] or [type(error).__name__]
        tell(refused=f"onnxruntime-webgpu {ort.__version__} finds no adapter that it takes ({reason[0]}). {DRIVER}")
        return
    tell(about=f"onnxruntime-webgpu {ort.__version__}")
    measure(
        {
            "matmul": of([("MatMul", ["x0", "x1"], {})], [1024, 1024], [1024, 1024]),
            "conv3": of(conv(1, [3, 3]), [8, 64, 56, 56], [64, 64, 3, 3]),
            "conv1": of(conv(0, [1, 1]), [8, 256, 14, 14], [1024, 256, 1, 1]),
            "add": of([("Add", ["x0", "x1"], {})], [16 << 20], [16 << 20]),
            "gelu": of(GELU, [16 << 20]),
            "softmax": of([("Softmax", ["x0"], {"axis": -1})], [4096, 1024]),
            "sum_last": of([("ReduceSum", ["x0", "axis1"], {"keepdims": 0})], [4096, 4096]),
            "sum_first": of([("ReduceSum", ["x0", "axis0"], {"keepdims": 0})], [4096, 4096]),
            "layer_norm": of(
                [("LayerNormalization", ["x0", "x1", "x2"], {"epsilon": 1e-3})], [4096, 1024], [1024], [1024]
            ),
            "small": of([("Add", ["x0", "x1"], {})], [64], [64], repeat=1000),
        }
    )


if __name__ == "__main__":
    main()
    # Dawn's destructors are known to abort at exit with some drivers; everything has been printed.
    sys.stdout.flush()
    os._exit(0)
