"""A Python for Windows from PyPI, with TensorFlow and the plug-in's wheel, made on Linux.

No package of PyPI is CPython for Windows itself. panda3d's wheels contain the interpreter's DLL and
its C modules, as python.org signed them, for programs that panda3d freezes. The Python modules are
the same on all systems: they are taken from the Python that runs this, which has the same minor
version.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import lief

HERE = Path(__file__).parent
#: A Python for which TensorFlow for Windows with devices has wheels, and which Debian 12 has.
VERSION = (3, 11)
PANDA3D = "panda3d==1.10.16"
#: The newest TensorFlow that has WGPU devices on Windows (docs/PLATFORMS.md), and the packages that
#: tests need.
REQUIREMENTS = (
    "tensorflow==2.19.1",
    "msvc-runtime",
    "pytest==9.2.0",
    "pytest-xdist==3.8.0",
    "colorama",
)
#: Installed without dependencies, which would include a second TensorFlow.
ALONE = ("tf_keras==2.19.0",)
#: The C library's DLL of mathematics, and our own DLL in its place.
MATH = "api-ms-win-crt-math-l1-1-0.dll"
OURS = "wgp" + MATH[3:]


def make(folder: Path, wheel: Path) -> Path:
    """Makes it if it is not there yet, installs the wheel anew, and returns python.exe."""
    if sys.version_info[:2] != VERSION:
        wanted = ".".join(map(str, VERSION))
        raise SystemExit(f"windows: run this with Python {wanted}, whose library it takes")
    program = folder / "python.exe"
    packages = folder / "Lib/site-packages"
    if not program.exists():
        shutil.rmtree(folder, ignore_errors=True)
        unpack(folder)
        install(packages, *REQUIREMENTS)
        install(packages, "--no-deps", *ALONE)
        for library in (packages / "Scripts").glob("*.dll"):
            shutil.copy(library, folder)
        replace_math(packages, folder)
        compile_c("python.c", program, folder / "python311.dll", "-municode")
    for name in ("tensorflow_wgpu", "tensorflow-plugins"):
        shutil.rmtree(packages / name, ignore_errors=True)
    install(packages, "--no-deps", "--upgrade", str(wheel))
    return program


def unpack(folder: Path) -> None:
    """The interpreter's DLLs and its library."""
    libraries = folder / "DLLs"
    libraries.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        pip("download", "--no-deps", "--dest", name, PANDA3D)
        with zipfile.ZipFile(next(Path(name).glob("*.whl"))) as archive:
            for member in archive.infolist():
                path = Path(member.filename)
                if path.parent.name == "deploy_libs" and not path.name.startswith("api-ms-"):
                    with archive.open(member) as source:
                        (libraries / path.name).write_bytes(source.read())
    for name in ("python311.dll", "VCRUNTIME140.dll"):
        shutil.move(libraries / name, folder)
    left_out = shutil.ignore_patterns("__pycache__", "site-packages", "lib-dynload", "config-*")
    shutil.copytree(sysconfig.get_path("stdlib"), folder / "Lib", ignore=left_out)
    # Debian's file redirects to its own packages, and would stop pip on another system.
    (folder / "Lib/EXTERNALLY-MANAGED").unlink(missing_ok=True)


def install(packages: Path, *what: str) -> None:
    """Puts packages for Windows into a folder."""
    pip("install", "--target", str(packages), *what)


def pip(command: str, *arguments: str) -> None:
    """pip for Windows, on Linux."""
    platform = ["--platform", "win_amd64", "--python-version", ".".join(map(str, VERSION))]
    platform += ["--implementation", "cp", "--only-binary", ":all:"]
    line = [sys.executable, "-m", "pip", command, "--quiet", *platform, *arguments]
    subprocess.run(line, check=True)


def replace_math(packages: Path, folder: Path) -> None:
    """Makes the packages' libraries import the C library's mathematics from our own DLL.

    It forwards all functions to Wine's, except the complex functions, which Wine lacks:
    `complex.c`. The libraries' imports name the DLL, so the name in them is changed, to one of the
    same length.
    """
    names: set[str] = set()
    for library in [*packages.rglob("*.pyd"), *packages.rglob("*.dll")]:
        read = lief.PE.parse(str(library))
        imports = [i for i in read.imports if i.name == MATH] if read else []
        if imports:
            names |= {entry.name for i in imports for entry in i.entries}
            library.write_bytes(library.read_bytes().replace(MATH.encode(), OURS.encode()))
    with tempfile.TemporaryDirectory() as name:
        unit, exports = Path(name) / "complex.o", Path(name) / "math.def"
        compile_c("complex.c", unit, "-c")
        listed = ["x86_64-w64-mingw32-nm", "--defined-only", "--extern-only", "-j", unit]
        symbols = subprocess.run(listed, check=True, stdout=subprocess.PIPE, text=True).stdout
        ours = {symbol for symbol in symbols.split() if symbol.startswith("shim_")}
        lines = [f"LIBRARY {OURS}", "EXPORTS"]
        for function in sorted(names):
            target = f"shim_{function}"
            lines.append(f"  {function} = {target if target in ours else f'ucrtbase.{function}'}")
        exports.write_text("\n".join([*lines, ""]), encoding="utf-8")
        link = ["x86_64-w64-mingw32-gcc", "-shared", "-static-libgcc", "-o", folder / OURS]
        subprocess.run([*link, unit, exports], check=True)


def compile_c(source: str, output: Path, *options: str | Path) -> None:
    """Compiles a file of this folder for Windows."""
    command = ["x86_64-w64-mingw32-gcc", "-O1", "-Wall", "-Werror", "-o", output, HERE / source]
    subprocess.run([*command, *options], check=True)
