"""The doctor: gathers facts, finds problems, and says how to solve them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorflow_wgpu import _library, _probe

#: The minor versions of TensorFlow 2 that work, by `sys.platform`: docs/PLATFORMS.md says why.
SUPPORTED = {"win32": (16, 17, 18, 19, 22)}
SUPPORTED_ELSEWHERE = tuple(range(16, 23))
RANGE = "2.16 to 2.19 and 2.22" if sys.platform == "win32" else "2.16 to 2.22"
KINDS = {
    "DiscreteGpu": "discrete GPU",
    "IntegratedGpu": "integrated GPU",
    "VirtualGpu": "virtual GPU",
    "Cpu": "software adapter",
}
INSTALL_TENSORFLOW = (
    "pip install 'tensorflow>=2.16,<2.23,!=2.20.*,!=2.21.*'"
    if sys.platform == "win32"
    else "pip install 'tensorflow>=2.16,<2.23'"
)


def examine() -> dict[str, Any]:
    """All facts and all problems, ready for JSON. `ok` is true when TensorFlow can compute on a
    WGPU device.
    """
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    try:
        facts["library_path"] = str(_library.library_path())
    except FileNotFoundError as e:
        facts["library_path"] = None
        facts["library"] = {"result": None, "error": str(e), "log": []}
    else:
        facts["library"] = _probe.run("library")
    facts["tensorflow_installed"] = installed_tensorflow()
    if importlib.util.find_spec("tensorflow") is None:
        facts["tensorflow"] = None
    else:
        facts["tensorflow"] = _probe.run("tensorflow")
    problems = [
        {"severity": s, "what": what, "do": do}
        for s, what, do in sorted(diagnose(facts), key=lambda p: p[0])
    ]
    return {
        "ok": not any(p["severity"] == "error" for p in problems),
        "problems": problems,
        **facts,
    }


def installed_tensorflow() -> dict[str, str]:
    """The installed distributions that hold a module `tensorflow`, with their versions."""
    names = (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-intel",
        "tensorflow-macos",
        "tensorflow-rocm",
        "tf-nightly",
        "tf-nightly-cpu",
    )
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def is_supported(version: str, system: str = sys.platform) -> bool:
    """Whether the plug-in supports this version of TensorFlow on a system."""
    numbers = re.match(r"2\.(\d+)", version)
    minors = SUPPORTED.get(system, SUPPORTED_ELSEWHERE)
    return numbers is not None and int(numbers[1]) in minors


def diagnose(facts: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each problem: severity (error or warning), description, and advice."""
    yield from diagnose_library(facts)
    yield from diagnose_tensorflow(facts)


def diagnose_library(facts: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The library, the driver and the adapters."""
    if facts["library_path"] is None:
        yield (
            "error",
            facts["library"]["error"],
            "pip install --force-reinstall the wheel, or unset the variable.",
        )
        return
    error, library = facts["library"]["error"], facts["library"]["result"]
    if error is not None:
        if "signal" in error or "seconds" in error:
            do = (
                "A GPU driver crashed or hangs: update it, or choose another with "
                "WGPU_ADAPTER_NAME or VK_DRIVER_FILES."
            )
        else:
            do = (
                "The library does not load on this system: build the wheel here, with `pip wheel "
                ".` in its sources."
            )
        yield "error", f"The library's own report failed: {error}", do
        return
    if library["problem"]:
        yield "error", f"There is no device: {library['problem']}", advice_for_no_device(library)
    for warning in library["warnings"]:
        yield "warning", warning, "Correct the variable, or unset it."
    for adapter in library["adapters"]:
        if adapter["problem"]:
            yield (
                "error",
                f"{adapter['device']} ({adapter['name']}) was tried out and failed: "
                f"{adapter['problem']}",
                "Update its driver, or hide it: set TF_WGPU_VISIBLE_DEVICES to the other devices.",
            )
    used = [a for a in library["adapters"] if a["device"]]
    if used and all(a["type"] == "Cpu" for a in used):
        yield (
            "warning",
            "The only device is a software adapter, which computes on the CPU; TensorFlow's own "
            "CPU device is faster.",
            f"{software_advice()} If this machine has no GPU, TF_WGPU_VISIBLE_DEVICES=-1 switches "
            "WGPU off.",
        )


def advice_for_no_device(library: dict[str, Any]) -> str:
    """Advice if there is no device."""
    for name, value in library["environment"].items():
        if name == "TF_WGPU_VISIBLE_DEVICES" and value.strip() == "-1":
            return f"Unset {name} to use the GPU: its value switches WGPU off."
        if name in library["problem"]:
            return f"Unset {name}, which is {value!r}, or correct it."
    if library["adapters"]:
        return "Update the driver of an adapter that is named above. " + driver_advice()
    return driver_advice()


def driver_advice() -> str:
    """How to get a driver on this machine."""
    if sys.platform != "linux":
        return "Update the system and the GPU's driver; wgpu needs Metal, DX12 or Vulkan."
    if Path("/dev/nvidia0").exists():
        return (
            "For NVIDIA install the driver's Vulkan part (Debian: nvidia-vulkan-icd, Ubuntu: "
            "libnvidia-gl-<version>); "
            "a container needs NVIDIA_DRIVER_CAPABILITIES=all."
        )
    nodes = render_nodes()
    if nodes and not any(readable(node) for node in nodes):
        return (
            f"Your user lacks permission to open {nodes[0]}: sudo usermod -aG render $USER, then "
            "log in again."
        )
    return (
        "On Debian and Ubuntu: sudo apt-get install mesa-vulkan-drivers libvulkan1 (AMD, Intel, or "
        "no GPU at all)."
    )


def software_advice() -> str:
    """How to get from a software adapter to the GPU. Mesa's software adapter is in the package of
    its drivers, so on Linux that package is there already.
    """
    if sys.platform != "linux" or Path("/dev/nvidia0").exists():
        return f"If this machine has a GPU, install its Vulkan driver. {driver_advice()}"
    nodes = render_nodes()
    if not nodes:
        return (
            "Linux shows no GPU here: there is no /dev/dri/renderD*. A container sees a GPU only "
            "if you pass it through, as in docker run --device /dev/dri."
        )
    if not any(readable(node) for node in nodes):
        return driver_advice()
    return (
        f"There is a GPU ({nodes[0]}), but no Vulkan driver for it. If mesa-vulkan-drivers is "
        "installed, it may be older than the GPU: take a newer Mesa."
    )


def render_nodes() -> list[Path]:
    """The device nodes of GPUs that the Linux kernel has."""
    return sorted(Path("/dev/dri").glob("renderD*")) if Path("/dev/dri").exists() else []


def readable(node: Path) -> bool:
    """Whether this user may use a device node."""
    try:
        with node.open("r+b"):
            return True
    except OSError:
        return False


def diagnose_tensorflow(facts: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """TensorFlow, and how it uses the library."""
    if facts["tensorflow"] is None:
        yield (
            "error",
            "TensorFlow is not installed.",
            f"{INSTALL_TENSORFLOW}, in the Python that runs this.",
        )
        return
    installed = facts["tensorflow_installed"]
    if len(installed) > 1:
        names = ", ".join(f"{n} {v}" for n, v in installed.items())
        yield (
            "warning",
            f"Several packages hold TensorFlow: {names}.",
            "pip uninstall them all, then install one.",
        )
    error, seen = facts["tensorflow"]["error"], facts["tensorflow"]["result"]
    version = seen["version"] if seen else next(iter(installed.values()), None)
    if version and not is_supported(version):
        yield (
            "error",
            f"TensorFlow {version} is installed, which this version of the plug-in does not "
            f"support ({RANGE}).",
            INSTALL_TENSORFLOW,
        )
    if error is not None:
        yield (
            "error",
            f"A program that imports TensorFlow and uses the devices failed: {error}",
            "See whether it works with TF_WGPU_VISIBLE_DEVICES=-1 (no device); if not, install "
            "TensorFlow again.",
        )
        return
    variables = seen["variables"]
    if variables and variables["problem"]:
        yield "error", f"Variables cannot be used: {variables['problem']}", INSTALL_TENSORFLOW
    library = facts["library"]["result"]
    if not seen["devices"] and library and not library["problem"]:
        said = "; ".join(
            line.removeprefix("tensorflow-wgpu: ") for line in facts["tensorflow"]["log"]
        )
        yield (
            "error",
            f"TensorFlow sees no WGPU device, although the library finds one. {said}".strip(),
            "TF_WGPU_LOG=debug shows how it was loaded; is the wheel installed beside this "
            "TensorFlow?",
        )
    for line in facts["tensorflow"]["log"]:
        if "TF_WGPU_DEVICE_TYPE" in line:
            yield (
                "warning",
                line.removeprefix("tensorflow-wgpu: warn: "),
                "Install tensorflow-cpu in the place of tensorflow, or unset TF_WGPU_DEVICE_TYPE.",
            )
    for device, failure in seen["failures"].items():
        yield (
            "error",
            f"A computation on {device} failed: {failure}",
            "Update the driver; TF_WGPU_LOG=debug says more.",
        )
    if seen["devices"] and not seen["hooks"]:
        yield (
            "warning",
            "The library could not install its Keras hooks, so that Keras asks for XLA, which "
            "fails.",
            "Install library and package from one wheel, or compile models with jit_compile=False.",
        )


def text(found: dict[str, Any], list_ops: bool) -> str:
    """The findings as text for people."""
    return "\n".join([*describe(found, list_ops), *prescribe(found["problems"])])


def describe(found: dict[str, Any], list_ops: bool) -> Iterator[str]:
    """The lines that describe the facts."""
    library = found["library"]["result"]
    yield f"tensorflow-wgpu {library['version'] if library else ''}".strip()
    yield f"  library      {found['library_path'] or 'not found'}"
    yield f"  system       {found['system']}, Python {found['python']}"
    if library and library["environment"]:
        settings = " ".join(f"{name}={value}" for name, value in library["environment"].items())
        yield f"  environment  {settings}"
    seen = found["tensorflow"] and found["tensorflow"]["result"]
    if seen:
        support = "supported" if is_supported(seen["version"]) else f"not supported, {RANGE} is"
        yield f"\nTensorFlow {seen['version']} ({support})"
        yield f"  devices      {', '.join(seen['devices']) or 'none'}"
        variables = seen["variables"] or {}
        yield f"  variables    {variables.get('api') or 'no API: ' + str(variables.get('problem'))}"
    else:
        yield "\nTensorFlow: " + ("not installed" if found["tensorflow"] is None else "failed")
    if not library:
        return
    yield "\nAdapters"
    for adapter in library["adapters"]:
        yield from describe_adapter(adapter, library["environment"])
    if not library["adapters"]:
        yield "  none"
    types = ", ".join(f"{name} {count}" for name, count in library["types"].items())
    yield "\nOps with kernels of WGPU's own, besides TensorFlow's for every device: " + (
        f"{len(library['ops'])}" + (f", by type: {types}" if types else "")
    )
    for op in library["ops"] if list_ops else ():
        kernels = {", ".join(f"{a}={t}" for a, t in kernel.items()) for kernel in op["types"]}
        yield f"  {op['op']}: {'; '.join(sorted(kernels))}"


def why_no_device(adapter: dict[str, Any], environment: dict[str, str]) -> str:
    """The reason why an adapter is no device."""
    if adapter["index"] is None:
        return f"not used: {adapter['rejected']}"
    if "TF_WGPU_VISIBLE_DEVICES" in environment:
        return "hidden by TF_WGPU_VISIBLE_DEVICES"
    return (
        "not used beside a GPU unless it is asked for: "
        f"TF_WGPU_VISIBLE_DEVICES={adapter['index']} takes it"
    )


def describe_adapter(adapter: dict[str, Any], environment: dict[str, str]) -> Iterator[str]:
    """One adapter."""
    index = "" if adapter["index"] is None else f", index {adapter['index']}"
    yield f"  {', '.join(adapter['devices']) or '-'}  {adapter['name']}{index}"
    driver = " ".join(filter(None, (adapter["driver"], adapter["driver_info"]))) or "unknown"
    kind = KINDS.get(adapter["type"], "adapter")
    yield f"    {kind} of {adapter['vendor']}, {adapter['backend']}, driver {driver}"
    yield f"    kernels of the profile {adapter['profile']}"
    if adapter["device"] is None:
        yield f"    {why_no_device(adapter, environment)}"
    memory = adapter["memory"]
    if memory:
        source = (
            "as the driver reports"
            if memory["reported_by_driver"]
            else "an estimate, since the driver reports none"
        )
        devices = len(adapter["devices"])
        share = f"; each device has a share of 1/{devices}" if devices > 1 else ""
        yield f"    memory {size(memory['total'])}, {size(memory['free'])} free, {source}{share}"
    limits = adapter["limits"]
    yield (
        f"    buffers of {size(limits['max_buffer'])}, bindings of {size(limits['max_binding'])} "
        "at multiples of "
        f"{limits['storage_alignment']}, {limits['max_bindings']} per shader"
    )
    yield (
        f"    workgroups of {limits['max_invocations']} with {size(limits['workgroup_memory'])}, "
        f"immediates of {limits['immediates']} bytes"
    )
    features = [name for name, has in adapter["features"].items() if has]
    missing = [name for name, has in adapter["features"].items() if not has]
    yield f"    has {', '.join(features) or 'no optional feature'}" + (
        f"; lacks {', '.join(missing)}" if missing else ""
    )
    if adapter["matrix_units"]:
        yield f"    matrix units: {describe_matrix_units(adapter['matrix_units'])}"
    if adapter["native_float16"] is not None:
        how = "the GPU's own" if adapter["native_float16"] else "by integer arithmetic"
        yield f"    conversions to float16: {how}"
    if adapter["numbers"]:
        yield f"    numbers checked at its first use: {adapter['numbers']}"


def describe_matrix_units(found: dict[str, Any]) -> str:
    """The matrices that there are, and whether products use them."""
    if not found["sizes"]:
        return "none"
    use = {
        "off": "not used",
        "forced": "used, since TF_WGPU_COOPERATIVE_MATRIX=1",
        "probed": "used where test products are right and faster",
    }[found["policy"]]
    return f"{', '.join(found['sizes'])}; {use}"


def prescribe(problems: list[dict[str, str]]) -> Iterator[str]:
    """The problems, each with its advice."""
    if not problems:
        yield "\nNothing is wrong."
        return
    yield ""
    for problem in problems:
        yield f"{problem['severity'].upper()}: {problem['what']}"
        yield f"  -> {problem['do']}"
    if all(problem["severity"] == "warning" for problem in problems):
        yield "\nNothing else is wrong: TensorFlow computes on WGPU."


def size(count: int) -> str:
    """Bytes for people."""
    value, unit = float(count), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
