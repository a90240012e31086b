"""Networks on ONNX Runtime's WebGPU provider: `onnxruntime_networks.py FOLDER`, which
networks_export.py has filled.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from onnxruntime_webgpu import KEPT, PROVIDER, Held, np, ort, probe, refusal
from rows import Run, difference, serve, tell


def nodes(session: ort.InferenceSession) -> dict[str, int]:
    """The nodes that are not on WebGPU, by op."""
    found: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name != PROVIDER:
            found.update(node.op_type for node in part.get_nodes())
    return dict(found)


def of(folder: Path, key: str) -> Callable[[], Run]:
    """The maker of a row. Floats are on the device, whole numbers, which are few, on the host."""

    def make() -> Run:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        providers = [PROVIDER, "CPUExecutionProvider"]
        session = ort.InferenceSession(folder / f"{key}.onnx", options, providers=providers)
        arrays = np.load(folder / f"{key}.npz")
        binding, held = session.io_binding(), []
        for source in session.get_inputs():
            value = arrays[source.name.partition(":")[0]]
            if value.dtype == "float32":
                held.append(Held(value))
                binding.bind_ortvalue_input(source.name, held[-1].value)
            else:
                binding.bind_cpu_input(source.name, value)
        for result in session.get_outputs():
            binding.bind_output(result.name, "webgpu", 0)
        wait = probe()

        def run(times: int) -> None:
            for _ in range(times):
                session.run_with_iobinding(binding)
            wait()

        run(1)
        wanted = [arrays[f"y{i}"] for i in range(len(session.get_outputs()))]
        run.told = {
            "difference": difference([y.numpy() for y in binding.get_outputs()], wanted),
            "on_cpu": nodes(session),
        }
        KEPT.append((held, binding, session))
        return run

    return make


def main() -> None:
    """Runs all networks of the folder, or reports why there are none."""
    why = refusal()
    if why:
        tell(refused=why)
        return
    tell(about=f"onnxruntime-webgpu {ort.__version__}")
    folder = Path(sys.argv[1])
    serve({path.stem: of(folder, path.stem) for path in folder.glob("*.onnx")})


if __name__ == "__main__":
    main()
    # Everything has been printed, and destructors may abort.
    sys.stdout.flush()
    os._exit(0)
