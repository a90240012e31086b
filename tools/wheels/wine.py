"""wine: the wheel for Windows, loaded on Linux by Wine, whose Vulkan is that of Linux.

Builds a small program that loads the DLL, and prints the adapters it computes on. This is not
Windows: Wine has its own loader and C library. It shows that the DLL loads, that its imports are
found, that its kernels run with Windows's calling convention, and that a driver which crashes is
left out in place of ending the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from entries import ENTRIES

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "wine"
#: The paths of Wine's 64-bit loader; the second one is Debian's if the 32-bit loader is not
#: installed.
LOADERS = ("wine64", "/usr/lib/wine/wine64", "wine")


def main() -> int:
    """Runs it."""
    wheels = sorted((ROOT / "dist/wheels").glob("*-win_amd64.whl"))
    if len(wheels) != 1:
        print("wine: there is no wheel: make wheels SYSTEMS=windows-x86_64", file=sys.stderr)
        return 1
    subprocess.run([ROOT / "tools/system-packages", "wine"], check=True)
    subprocess.run([ROOT / "tools/system-packages", "mingw"], check=True)
    loader = next(filter(None, map(shutil.which, LOADERS)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheels[0]) as archive:
            library = Path(archive.extract("tensorflow-plugins/tensorflow_wgpu.dll", folder))
        host = folder / "host.exe"
        compile_c("host.c", host)
        # It lies beside the program, and is used if Wine has none of its own.
        compile_c("bcryptprimitives.c", folder / "bcryptprimitives.dll", "-shared", "-ladvapi32")
        # The prefix is Wine's drive C:, which is deleted with the folder.
        environment = {**os.environ, "WINEPREFIX": str(folder / "prefix")}
        environment.setdefault("WINEDEBUG", "-all")
        environment.setdefault("WGPU_BACKEND", "vulkan")
        with display() as environment["DISPLAY"]:
            # Makes the drive, into which the file goes that Wine lacks.
            run([loader, "wineboot", "--init"], environment)
            system = folder / "prefix" / "drive_c" / "windows" / "system32"
            shutil.copy(folder / "bcryptprimitives.dll", system)
            try:
                done = run([loader, host, library, *ENTRIES], environment)
                compile_c("crashing_vulkan.c", system / "vulkan-1.dll", "-shared")
                crashed = run(
                    [loader, host, library],
                    {**environment, "WINEDLLOVERRIDES": "vulkan-1=n", "TF_WGPU_CACHE": "off"},
                )
            finally:
                server = shutil.which("wineserver") or "/usr/lib/wine/wineserver64"
                subprocess.run([server, "--kill"], env=environment, check=False)
    if done.returncode != 0:
        print(f"wine: the host ended with {done.returncode}", file=sys.stderr)
        return 1
    return described(json.loads(done.stdout)) or survived(crashed)


def run(command: list[str | Path], environment: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs a program, and reads its output."""
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )


def survived(done: subprocess.CompletedProcess) -> int:
    """1 where a driver that crashes has ended the host, or is not named in its report."""
    line = "Vulkan is left out: a driver crashes (exit code 0xc0000005)"
    if done.returncode == 0 and any(
        warning.startswith(line) for warning in json.loads(done.stdout)["warnings"]
    ):
        print(f"  with a driver that crashes: {line}")
        return 0
    print(f"wine: with a driver that crashes: {done.returncode}: {done.stdout}", file=sys.stderr)
    return 1


@contextlib.contextmanager
def display() -> Iterator[str]:
    """A virtual display: Wine reaches Vulkan through its driver for windows."""
    command = ["Xvfb", "-displayfd", "1", "-nolisten", "tcp"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True) as server:
        try:
            yield f":{server.stdout.readline().strip()}"
        finally:
            server.terminate()


def compile_c(source: str, output: Path, *options: str) -> None:
    """Compiles a file of `wine/` for Windows."""
    compiler = ["x86_64-w64-mingw32-gcc", "-O1", "-Wall", "-Werror", "-static-libgcc"]
    command = [*compiler, "-o", str(output), str(SOURCES / source), *options]
    subprocess.run(command, check=True)


def described(report: dict) -> int:
    """Prints the DLL's report about itself; returns 1 if it has no device, or one that does not
    work.
    """
    print(f"tensorflow-wgpu {report['version']}: {len(report['ops'])} ops")
    problems = [report["problem"]] if report["problem"] else []
    for adapter in report["adapters"]:
        where = adapter["device"] or f"no device: {adapter.get('rejected')}"
        print(f"  {adapter['name']} ({adapter['backend']}): {where}")
        problems += [adapter["problem"]] if adapter["problem"] else []
    if not any(adapter["device"] for adapter in report["adapters"]):
        problems.append("there is no device")
    for problem in problems:
        print(f"wine: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
