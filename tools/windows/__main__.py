"""windows: TensorFlow for Windows with the wheel of dist/wheels, under Wine, and the crate's tests.

    windows rust [SUITE...]              the crate's tests, compiled for Windows
    windows python [PYTEST ARGUMENT...]  the Python tests; all without arguments

Wine is Debian 13's, in a system of its own (tools/roots), which needs root. That is not Windows:
the drivers are Linux's by way of Wine's Vulkan, and the C library is Wine's. What it tells is that
the plug-in loads in TensorFlow's own process there, and computes, and what Python lacks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import interpreter

ROOT = Path(__file__).parents[2]
#: The root system of tools/roots whose Wine is used.
SYSTEM = "debian-13"
TRIPLE = "x86_64-pc-windows-gnu"
#: The crate's tests in one program, by suites. Others need no adapter or are only for Linux.
KIT = "kit"
PROGRAMS = (KIT, "scalar", "proto", "pipeline_cache", "graphs", "optimizer_limits")
#: Suites that do not run, with the reason.
LEFT_OUT = {
    "pipeline_cache": "Wine's Vulkan gives no pipeline cache's data",
}
#: Tests that are skipped, by a part of their names, with the reason.
SKIPPED = {
    "Pow float64": "the reference is mingw's pow, of which 14 digits are right",
}
#: Files of Python tests that are left out, with the reason.
ELSEWHERE = {
    "test_faults.py": "its layer between plug-in and driver is a library for Linux",
    "test_gpu_kit.py": "the kit is for Linux",
    "test_hostile_shapes.py": "Wine ends some processes that ask for terabytes",
    "test_licenses.py": "the same on all systems, and its tools are the host's",
    "test_profiler.py": "needs xprof, and events, which TensorFlow's profiler lacks on Windows",
    "test_profiler_models.py": "reads profiles by Chromium",
    "test_wheels.py": "reads wheels on the host",
    "test_workflows.py": "reads workflows on the host",
}

_INT32 = "sums int32, for which TensorFlow without CUDA has no kernel but the CPU's"
_VARIANTS = "lists and optionals stay on the CPU: TensorFlow's DLLs export nothing to read them by"
#: Python tests that are left out, with the reason.
DESELECTED = {
    "test_image.py::test_functions[rot90]": _INT32,
    "test_optimizer_update.py::test_errors_are_those_of_the_plain_ops": "2.19 words them otherwise",
    "test_profiler_operations.py::test_an_op_counts[integers]": _INT32,
    "test_recurrent.py::test_a_model_trains_as_on_the_cpu": _VARIANTS,
    "test_smoke.py::test_a_profile_shows_the_device": "its profiler writes no events there",
    "test_sweep.py::test_every_case_is_of_a_registered_op": _VARIANTS,
    "test_sweep.py::test_sweep[AddN-T:variant]": _VARIANTS,
    "test_variant_values.py::test_errors_of_lists": _VARIANTS,
    "test_variant_values.py::test_errors_of_optionals": _VARIANTS,
    "test_variant_values.py::test_no_memory_is_lost": "needs Linux's account of memory",
    "test_variant_values.py::test_values_of_other_types_are_refused": "classes' names are others",
    "test_variants.py::test_tensor_array": _INT32,
    "test_variants.py::test_training_with_dropout_and_masking": _VARIANTS,
}


def main() -> int:
    """Runs what the command line asks for."""
    tests = {"rust": rust, "python": python}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if tests:
        return tests(sys.argv[2:])
    print(__doc__, file=sys.stderr)
    return 2


def rust(suites: list[str]) -> int:
    """Compiles the crate's tests for Windows and runs them, each suite in a separate process."""
    programs = dict(executables())
    runs = [(name, [programs[name]]) for name in programs if name != KIT]
    modules = re.findall(r"^mod (\w+);", (ROOT / "tests/kit/main.rs").read_text("utf-8"), re.M)
    runs += [(suite, [programs[KIT], f"{suite}::"]) for suite in modules]
    failed = []
    for name, command in runs:
        if suites and name not in suites:
            continue
        if not suites and name in LEFT_OUT:
            print(f"windows: {name} is left out: {LEFT_OUT[name]}")
            continue
        print(f"windows: {name}", flush=True)
        command += ["--test-threads", "2"]
        command += [word for test in SKIPPED for word in ("--skip", test)]
        if wine(command) != 0:
            failed.append(name)
    print(f"windows: failed: {', '.join(failed)}" if failed else "windows: all suites passed")
    return int(bool(failed))


def executables() -> Iterator[tuple[str, Path]]:
    """The crate's tests compiled for Windows, by the names of their targets."""
    subprocess.run([ROOT / "tools/system-packages", "mingw"], check=True)
    subprocess.run(["rustup", "target", "add", TRIPLE], check=True)
    command = ["cargo", "test", "--locked", "--no-run", "--lib", "--message-format", "json"]
    command += ["--target", TRIPLE, "--target-dir", ROOT / "target/windows"]
    command += [word for program in PROGRAMS for word in ("--test", program)]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable"):
            yield message["target"]["name"], Path(message["executable"])


def python(arguments: list[str]) -> int:
    """Runs pytest in a Python for Windows that has TensorFlow and the wheel."""
    wheels = sorted((ROOT / "dist/wheels").glob("*-win_amd64.whl"))
    if len(wheels) != 1:
        print("windows: no wheel: make wheels SYSTEMS=windows-x86_64", file=sys.stderr)
        return 1
    program = interpreter.make(ROOT / "target/windows/Pythön 3", wheels[0])
    pytest = [program, "-m", "pytest", "--numprocesses=2"]
    if arguments:
        return wine([*pytest, *arguments])
    tests = "tests/python"
    left_out = [f"--ignore={tests}/{name}" for name in ELSEWHERE]
    left_out += [f"--deselect={tests}/{test}" for test in DESELECTED]
    runs = [
        wine([program, "-m", "tensorflow_wgpu"]),
        wine([*pytest, tests, *left_out]),
        wine([*pytest, f"{tests}/test_drop_in.py"], TF_WGPU_DEVICE_TYPE="GPU"),
    ]
    return int(any(runs))


def wine(command: list[str | Path], **settings: str) -> int:
    """The exit status of a program for Windows, with these environment variables."""
    script = Path(__file__).parent / "wine.sh"
    inside = [ROOT / "tools/roots", "--in", SYSTEM, script, *command]
    return subprocess.run(inside, cwd=ROOT, env=os.environ | settings, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
