"""Microsoft's HLSL compiler, which DX12 uses: compiles every text with the options that wgpu uses.

This file is also the worker: `dxc.py LIBRARY FILE ...` compiles files in one process, and prints a
line of JSON for each.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from compilers import PATIENCE, Result, Variant

#: The arguments that wgpu passes.
ARGUMENTS = ("-E", "main", "-T", "cs_6_0", "-HV", "2018", "-no-warnings", "-Ges")
#: The package that holds the library, and its path there.
PACKAGE = "compushady-lrtu==0.18.0"
MEMBER = "compushady/backends/libdxcompiler_x86_64.so"

COMPILER_CLASS = "73e22d93-e6ce-47f3-b5bf-f0664f39c1b0"
COMPILER = "228b4687-5a6a-4730-900c-9702b2203f54"
RESULT = "58346cda-dde7-4497-9461-6f87af5e0659"
UTF8 = 65001
#: The number of texts for one process.
GROUP = 100


class Buffer(ctypes.Structure):
    """DxcBuffer."""

    _fields_ = (
        ("text", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("encoding", ctypes.c_uint32),
    )


def guid(text: str) -> ctypes.Array[ctypes.c_char]:
    """A GUID in memory."""
    return ctypes.create_string_buffer(UUID(text).bytes_le, 16)


class Interface:
    """A COM object. Methods are identified by their index in its table: QueryInterface, AddRef and
    Release are the first three.
    """

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        """Takes ownership of the reference."""
        self.pointer = pointer

    def call(self, place: int, *arguments: object, result: object = ctypes.c_int32) -> int:
        """Calls a method."""
        table = ctypes.cast(self.pointer, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        kinds = [ctypes.c_void_p] * (1 + len(arguments))
        kinds[1:] = [
            ctypes.c_uint32 if isinstance(a, ctypes.c_uint32) else ctypes.c_void_p
            for a in arguments
        ]
        method = ctypes.CFUNCTYPE(result, *kinds)(table[place])
        return method(self.pointer, *arguments)

    def bytes(self) -> bytes:
        """The contents of a blob."""
        start = self.call(3, result=ctypes.c_void_p)
        size = self.call(4, result=ctypes.c_size_t)
        return ctypes.string_at(start, size) if start else b""

    def release(self) -> None:
        """Releases the reference."""
        self.call(2, result=ctypes.c_uint32)


class Compiler:
    """The compiler."""

    def __init__(self, library: Path) -> None:
        """Loads it."""
        create = ctypes.CDLL(str(library)).DxcCreateInstance
        pointer = ctypes.c_void_p()
        status = create(guid(COMPILER_CLASS), guid(COMPILER), ctypes.byref(pointer))
        if status != 0 or not pointer:
            raise SystemExit(f"dxc: no compiler: {status & 0xFFFFFFFF:#x}")
        self.compiler = Interface(pointer)
        self.wanted = guid(RESULT)
        # wchar_t has four bytes here.
        self.arguments = (ctypes.c_wchar_p * len(ARGUMENTS))(*ARGUMENTS)

    def compile(self, text: bytes) -> str:
        """Compiles a text; returns a description of the error, or an empty string."""
        source = Buffer(text, len(text), UTF8)
        pointer = ctypes.c_void_p()
        status = self.compiler.call(
            3,
            ctypes.addressof(source),
            ctypes.addressof(self.arguments),
            ctypes.c_uint32(len(ARGUMENTS)),
            None,
            ctypes.addressof(self.wanted),
            ctypes.addressof(pointer),
        )
        if status != 0:
            return f"Compile: {status & 0xFFFFFFFF:#x}"
        result = Interface(pointer)
        verdict, blob = ctypes.c_int32(), ctypes.c_void_p()
        result.call(3, ctypes.addressof(verdict))
        if verdict.value == 0:
            # Success without a program would not count.
            result.call(4, ctypes.addressof(blob))
            program = Interface(blob)
            bad = "" if program.bytes().startswith(b"DXBC") else "no DXIL came out"
            program.release()
        else:
            result.call(5, ctypes.addressof(blob))
            errors = Interface(blob)
            bad = errors.bytes().decode(errors="replace").strip("\0\n") or "no reason given"
            errors.release()
        result.release()
        return bad


def work(library: Path, files: Iterable[Path]) -> None:
    """Compiles files, and prints the result of each."""
    compiler = Compiler(library)
    for path in files:
        # After a crash only this line of the file is there.
        print(json.dumps({"file": path.name}), flush=True)
        start = time.monotonic()
        bad = compiler.compile(path.read_bytes())
        took = time.monotonic() - start
        print(json.dumps({"file": path.name, "seconds": took, "refused": bad}), flush=True)


def install(root: Path) -> Path:
    """The library, which comes from a package of PyPI."""
    folder = root / "dxc"
    library = folder / "libdxcompiler.so"
    if library.exists():
        return library
    folder.mkdir(exist_ok=True)
    # This is a wheel for one version of Python, but only a library in it is used.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.11", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        written = library.with_suffix(".new")
        written.write_bytes(archive.read(MEMBER))
    wheel.unlink()
    written.rename(library)
    return library


def compile_files(library: Path, files: list[Path]) -> dict[str, tuple[float, str]]:
    """Seconds and the error, by a file's name. A file that ends the process counts as refused."""
    found: dict[str, tuple[float, str]] = {}
    while files:
        try:
            done = subprocess.run(
                [sys.executable, __file__, str(library)],
                input="\n".join(map(str, files)),
                stdout=subprocess.PIPE,
                timeout=PATIENCE * GROUP,
                text=True,
            )
            code, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            code, text = 124, (expired.stdout or b"").decode()
        reports = [json.loads(line) for line in text.splitlines()]
        found |= {r["file"]: (r["seconds"], r["refused"]) for r in reports if "refused" in r}
        if code == 0:
            break
        begun = reports[-1]["file"] if reports else files[0].name
        found.setdefault(begun, (0.0, f"the compiler ended the process ({code})"))
        files = [path for path in files if path.name not in found]
    return found


def compile_all(root: Path, program: Path, every: int, jobs: int, options: list[str]) -> Result:
    """Compiles each `every`-th text of those that `options` choose, `jobs` processes at a time."""
    library = install(root)
    result = Result("dxc", f"DXC of {PACKAGE}")
    with tempfile.TemporaryDirectory(dir=root) as folder:
        command = [str(program), "--every", str(every), *options, "--hlsl", folder]
        subprocess.run(command, check=True)
        files = sorted(Path(folder).glob("*.hlsl"), key=lambda path: int(path.stem))
        groups = [files[i : i + GROUP] for i in range(0, len(files), GROUP)]
        with ThreadPoolExecutor(jobs) as pool:
            parts = pool.map(lambda group: compile_files(library, group), groups)
            found = {name: report for part in parts for name, report in part.items()}
        for path in files:
            with path.open() as text:
                family, _, label = text.readline().removeprefix("// ").rstrip().partition(" ")
            seconds, refused = found[path.name]
            result.variants.append(Variant(family, label, seconds, refused))
    return result


if __name__ == "__main__":
    work(Path(sys.argv[1]), map(Path, sys.stdin.read().split()))
