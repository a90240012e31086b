"""The Rust suites on other Vulkan drivers, under preset profiles, with fast mathematics and with
checked indices, and training under the Khronos validation layer. Compiles them once, runs them with
each driver, prints one table. Exits with 1 if a test failed, or validation had a message that is
not known.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import fetch
import layers

ROOT = Path(__file__).parents[2]

#: The preset profiles (src/device/profile.rs), on the system's own driver.
PRESETS = ("amd", "intel", "nvidia", "apple", "webgpu", "llvmpipe", "swiftshader")
NEWEST = "mesa-newest"
DRIVERS = ("swiftshader-driver", "mesa25", NEWEST)
VALIDATION = "validation"
#: Shaders as a compiler with fast mathematics, such as Metal's, treats them: tests/fault_layer.
FAST_MATH = "fast-math"
#: Shaders that check the indices of arrays: tests/fault_layer.
INDICES = "indices"
#: The targets behind that layer, with the variables that tell it what to do.
REWRITTEN = {
    FAST_MATH: {"FAULT_LAYER_FAST_MATH": "on"},
    INDICES: {"FAULT_LAYER_INDICES": "on"},
}
TARGETS = (*DRIVERS, *PRESETS, *REWRITTEN, VALIDATION)

#: Suites without a device, and suites about processes and files around a device.
WITHOUT_DEVICE = {
    "docs",
    "fast_math",
    "faults",
    "graphs",
    "indices",
    # All suites once more, as one program.
    "kit",
    "house",
    "optimizer_limits",
    "optimizer_scale",
    "proto",
    "shaders",
    "stream_executor",
    "tensorflow_headers",
}
#: The suites that run under the validation layer: every step of a training, its copies and its
#: variables.
TRAINING = ("device", "variable", "fused_update", "pipelines", "norm", "softmax")
#: The suites that CI runs: a few, each of which covers much. Behind a name are the words by which
#: tests of the suite are chosen.
SAMPLE = {
    "swiftshader-driver": ("gather", "reduce", "softmax"),
    "webgpu": ("gather", "reduce", "segment", "softmax"),
    FAST_MATH: ("scalar", "checkup", "softmax", "norm", "linalg determinants"),
    INDICES: ("matmul", "reduce", "sort"),
    VALIDATION: ("variable", "fused_update"),
    # All of `matmul` takes five minutes.
    NEWEST: ("checkup", "matmul cooperative_matrices", "fused_attention by_matrices"),
}
#: Messages of the validation layer that are not our fault, with the reason.
KNOWN_MESSAGES = {
    "StandaloneSpirv-None-10684": "naga gives workgroup arrays an ArrayStride",
}
#: Tests that a driver cannot run, with the reason.
LEFT_OUT = {
    ("swiftshader-driver", "matmul"): {
        "schedules::every_tile_of_workgroup_memory": "its compiler takes 20 GB for the tiles of "
        "large GPUs, which its own profile never chooses",
    },
}
#: The most seconds that one suite may take on one driver. SwiftShader compiles slowly.
SUITE_SECONDS = 3600


class Outcome(NamedTuple):
    """The outcome of a suite on a target."""

    suite: str
    passed: int
    failed: int
    left_out: int
    messages: Counter[str]
    seconds: float
    problem: str
    log: str


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="suites", description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    parser.add_argument("--suites", nargs="+", metavar="SUITE", help="of tests/; default: all")
    parser.add_argument("--sample", action="store_true", help="the few that CI runs")
    parser.add_argument(
        "--smoke",
        metavar="PYTHON",
        help="of an environment with the plug-in: TensorFlow's smoke test, too",
    )
    parser.add_argument("--jobs", type=int, default=1, help="suites that run at once")
    parser.add_argument("--logs", type=Path, help="folder for the output of each suite")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    options.targets = options.targets or list(SAMPLE if options.sample else TARGETS)
    return options


def all_suites() -> list[str]:
    """Every suite that runs kernels on a device."""
    tests = ROOT / "tests"
    names = {path.stem for path in tests.glob("*.rs")}
    names |= {path.parent.name for path in tests.glob("*/main.rs")}
    return sorted(names - WITHOUT_DEVICE)


def compile_suites(names: list[str]) -> dict[str, Path]:
    """Compiles suites, and returns the paths of their programs."""
    wanted = [part for name in names for part in ("--test", name)]
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json", *wanted]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    programs = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] in names:
            programs[message["target"]["name"]] = Path(message["executable"])
    return programs


def environment(folder: Path, target: str) -> dict[str, str]:
    """The variables that choose a target, beside the caller's own environment."""
    chromium = folder / "chromium/usr/lib/chromium"
    mesa = folder / "mesa" / fetch.LIBRARIES
    if target == "swiftshader-driver":
        icd = fetch.manifest(folder, "swiftshader", chromium / "libvk_swiftshader.so")
        return {"VK_DRIVER_FILES": str(icd), "VK_ICD_FILENAMES": str(icd)}
    if target == "mesa25":
        icd = fetch.manifest(folder, "lavapipe", mesa / "libvulkan_lvp.so")
        libraries = f"{mesa}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        return {
            "VK_DRIVER_FILES": str(icd),
            "VK_ICD_FILENAMES": str(icd),
            "LD_LIBRARY_PATH": libraries,
        }
    if target == NEWEST:
        library = folder / fetch.NEWEST / fetch.LIBRARIES / "libvulkan_lvp.so"
        icd = fetch.manifest(folder, "lavapipe-newest", library)
        return {
            "VK_DRIVER_FILES": str(icd),
            "VK_ICD_FILENAMES": str(icd),
            # Software adapters use their matrices only if this variable asks for it.
            "TF_WGPU_COOPERATIVE_MATRIX": "1",
        }
    if target == VALIDATION:
        return {
            **layers.behind(
                folder / "layers",
                "VK_LAYER_KHRONOS_validation",
                chromium / "libVkLayer_khronos_validation.so",
            )
        }
    if target in REWRITTEN:
        return {
            **layers.behind_faults(folder / "fault-layer"),
            **REWRITTEN[target],
            # Shaders compiled this way must not be used elsewhere.
            "TF_WGPU_CACHE": "off",
        }
    return {"TF_WGPU_PROFILE": target}


def starter(folder: Path, target: str) -> list[str | Path]:
    """The command that starts a program on a target: the newest Mesa needs a newer C library."""
    if target != NEWEST:
        return []
    newest = folder / fetch.NEWEST
    return [newest / fetch.NEWEST_LOADER, "--library-path", newest / fetch.LIBRARIES]


def run(name: str, program: list[str | Path], extra: dict[str, str]) -> Outcome:
    """Runs the program of a suite on a target."""
    # CI means "all features of the system's driver must be there", which other drivers may lack.
    variables = {k: v for k, v in {**os.environ, **extra}.items() if k != "CI"}
    variables.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    begin = time.monotonic()
    problem = ""
    try:
        done = subprocess.run(
            program,
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SUITE_SECONDS,
            check=False,
        )
        log = done.stdout.decode(errors="replace")
        if done.returncode:
            problem = f"ended with {done.returncode}"
    except subprocess.TimeoutExpired as e:
        log = (e.stdout or b"").decode(errors="replace")
        problem = f"took more than {SUITE_SECONDS} s"
    seconds = time.monotonic() - begin
    results = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed", log)
    results += [(count, "0") for count in re.findall(r"^(\d+) passed.* in [\d.]+s", log, re.M)]
    messages = Counter(re.findall(r"Validation (?:Error|Warning): \[ ?([\w-]+)", log))
    return Outcome(
        name,
        sum(int(passed) for passed, _ in results),
        sum(int(failed) for _, failed in results),
        len(re.findall(r"^.*\bskipped: ", log, re.M)),
        messages,
        seconds,
        problem,
        log,
    )


def smoke(python: str) -> list[str | Path]:
    """The smoke test through TensorFlow."""
    return [python, "-m", "pytest", "--quiet", "tests/python/test_smoke.py"]


def left_out(target: str, suite: str) -> list[str]:
    """Arguments that leave out the tests that a driver cannot run. Prints the reasons."""
    tests = LEFT_OUT.get((target, suite), {})
    for test, reason in tests.items():
        print(f"{target}: {suite}: {test} is left out: {reason}", flush=True)
    return [argument for test in tests for argument in ("--skip", test)]


def is_own_harness(name: str) -> bool:
    """Whether a suite has its own main function, which captures no output."""
    text = (ROOT / "Cargo.toml").read_text()
    return f'name = "{name}"\nharness = false' in text


def row(target: str, outcomes: list[Outcome]) -> str:
    """A row of the table."""
    messages = sum((outcome.messages for outcome in outcomes), Counter())
    told = ", ".join(f"{name} ×{count}" for name, count in sorted(messages.items()))
    passed, failed, left_out = (
        sum(outcome[field] for outcome in outcomes) for field in range(1, 4)
    )
    seconds = sum(outcome.seconds for outcome in outcomes)
    shown = told or ("none" if target == VALIDATION else "")
    return (
        f"| {target} | {len(outcomes)} | {passed} | {failed} | {left_out} | {shown} "
        f"| {seconds:.0f} |"
    )


def is_bad(outcome: Outcome) -> bool:
    """Whether a suite failed, or had an unknown message of the validation layer."""
    return bool(outcome.failed or outcome.problem or set(outcome.messages) - set(KNOWN_MESSAGES))


def tell(target: str, outcome: Outcome, logs: Path | None) -> None:
    """Prints the reason if a suite is bad, and keeps its output."""
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{target}-{outcome.suite}.log").write_text(outcome.log)
    state = "bad" if is_bad(outcome) else "good"
    print(f"{target}: {outcome.suite}: {state}, {outcome.seconds:.0f} s", flush=True)
    if is_bad(outcome):
        print("\n".join(outcome.log.splitlines()[-60:]), outcome.problem, sep="\n", flush=True)


def main() -> int:
    """Runs it."""
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    if fetch.is_supported():
        fetch.fetch(folder)
        if NEWEST in options.targets:
            fetch.fetch_newest(folder)
    else:
        print("suites: the system's driver alone: others come from packages of Debian 12, x86-64")
        here = {*PRESETS, *REWRITTEN}
        options.targets = [target for target in options.targets if target in here]
    chosen = {}
    for target in options.targets:
        usual = TRAINING if target == VALIDATION else all_suites()
        sample = SAMPLE.get(target, ()) if options.sample else usual
        chosen[target] = options.suites or list(sample)
    wanted = {name.split()[0] for names in chosen.values() for name in names}
    compiled = compile_suites(sorted(wanted))
    programs: dict[str, list[str | Path]] = {
        name: [path, *([] if is_own_harness(name) else ["--nocapture"])]
        for name, path in compiled.items()
    }
    if options.smoke:
        programs["smoke"] = smoke(options.smoke)
        chosen = {target: [*names, "smoke"] for target, names in chosen.items()}
    rows, bad = [], False
    for target, names in chosen.items():
        extra, before = environment(folder, target), starter(folder, target)
        with ThreadPoolExecutor(options.jobs) as pool:
            started = [
                pool.submit(
                    run,
                    name,
                    [*before, *programs[suite], *left_out(target, suite), *words],
                    extra,
                )
                for name in names
                for suite, *words in [name.split()]
            ]
            outcomes = []
            for future in started:
                outcomes.append(future.result())
                tell(target, outcomes[-1], options.logs)
        rows.append(row(target, outcomes))
        bad = bad or any(map(is_bad, outcomes))
    print("\n| Driver or preset | Suites | Passed | Failed | Left out | Validation | Seconds |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
