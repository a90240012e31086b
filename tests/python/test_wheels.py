"""tools/wheels: the checks of wheels on intentionally broken libraries, and the data that is read
from src/ffi and from TensorFlow's wheels. `make wheels` itself takes long, and is no test.
"""

import ctypes
import gzip
import re
import runpy
import shutil
import struct
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import apple
import audit
import behaviour
import build
import check
import dxcompiler
import exports
import lief
import lookups
import page
import pytest
import tensorflow_wgpu
import wine
from support import program
from systems import SYSTEMS, System, by_name

ROOT = Path(__file__).parents[2]
LIBRARIES = Path(__file__).parent / "libraries"

FILES = {
    "linux-x86_64": "linux-x86_64.so",
    "windows-x86_64": "windows-x86_64.dll",
    "macos-arm64": "macos-arm64.dylib",
}


def good(name: str) -> bytes:
    """The library of a system that passes its checks."""
    return gzip.decompress((LIBRARIES / f"{FILES[name]}.gz").read_bytes())


def problems(tmp_path: Path, name: str, content: bytes) -> list[str]:
    """The problems that the checks of a system find in a library."""
    path = tmp_path / FILES[name]
    path.write_bytes(content)
    return check.library(path, by_name(name))[1]


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    """The content with some bytes replaced by others of the same number."""
    assert len(old) == len(new)
    assert old in content
    return content.replace(old, new)


def patched(content: bytes, offset: int, new: bytes) -> bytes:
    """The content with other bytes at an offset."""
    return content[:offset] + new + content[offset + len(new) :]


def load_command(content: bytes, kind: int) -> int:
    """The offset of the first load command of a kind in a Mach-O file."""
    offset = 32
    for _ in range(struct.unpack_from("<I", content, 16)[0]):
        found, size = struct.unpack_from("<II", content, offset)
        if found == kind:
            return offset
        offset += size
    raise AssertionError(f"no load command {kind:#x}")


def pe_header(content: bytes) -> int:
    """The offset of the COFF header of a PE file."""
    return struct.unpack_from("<I", content, 0x3C)[0] + 4


def with_runpath(content: bytes) -> bytes:
    elf = lief.ELF.parse(list(content))
    elf.add(lief.ELF.DynamicEntryRunPath("/opt/lib"))
    return bytes(elf.write_to_bytes())


def not_at_a_page(content: bytes) -> bytes:
    """With another address of the first segment."""
    return patched(content, load_command(content, 0x19) + 24, struct.pack("<Q", 0x1000))


def unsigned(content: bytes) -> bytes:
    # Another command that takes its data from the same place: LC_LINKER_OPTIMIZATION_HINT.
    return patched(content, load_command(content, 0x1D), struct.pack("<I", 0x2E))


def without_names_of_libraries(content: bytes) -> bytes:
    """Without the flag MH_TWOLEVEL."""
    flags = struct.unpack_from("<I", content, 24)[0]
    return patched(content, 24, struct.pack("<I", flags & ~0x80))


def searched_at_run_time(content: bytes) -> bytes:
    """With names of no library in the symbol table: the upper byte of n_desc is the library."""
    table, count = struct.unpack_from("<II", content, load_command(content, 2) + 8)
    for entry in range(table, table + 16 * count, 16):
        kind = content[entry + 4]
        if kind & 0x0E == 0 and kind & 1:
            content = patched(content, entry + 7, b"\xfe")
    return content


def for_macos_15(content: bytes) -> bytes:
    return patched(content, load_command(content, 0x32) + 12, struct.pack("<I", 15 << 16))


LINUX, WINDOWS, MACOS = FILES
BROKEN: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (LINUX, lambda c: patched(c, 18, struct.pack("<H", 183)), "it is for AARCH64"),
    (LINUX, lambda c: replaced(c, b"GLIBC_2.2.5\0", b"GLIBC_2.34\0\0"), "2.34 is asked for"),
    (LINUX, lambda c: replaced(c, b"GLIBC_2.2.5\0", b"GLIBC_2.3x\0\0"), "asks for GLIBC_2.3x"),
    (LINUX, lambda c: replaced(c, b"libc.so.6\0", b"libz.so.1\0"), "it needs libz.so.1"),
    (LINUX, lambda c: replaced(c, b"TF_InitGraph", b"TF_InitGr_ph"), "not export TF_InitGraph"),
    (LINUX, with_runpath, "it has a RUNPATH"),
    (LINUX, lambda _: good(WINDOWS), "is no ELF file"),
    (LINUX, lambda c: c[:3], "is no ELF file"),
    (WINDOWS, lambda c: patched(c, pe_header(c), b"\x64\xaa"), "it is for ARM64"),
    (WINDOWS, lambda c: replaced(c, b"msvcrt.dll", b"mingwx.dll"), "it imports mingwx.dll"),
    (WINDOWS, lambda c: replaced(c, b"SE_InitPlugin", b"SE_InitPlug_n"), "export SE_InitPlugin"),
    (WINDOWS, lambda c: patched(c, pe_header(c) + 18, b"\x02\x00"), "it is no DLL"),
    (WINDOWS, lambda c: patched(c, pe_header(c) + 20 + 70, b"\x00\x00"), "without NX_COMPAT"),
    (WINDOWS, lambda _: good(LINUX), "is no PE file"),
    (MACOS, lambda c: patched(c, 4, struct.pack("<I", 0x01000007)), "it is for X86_64"),
    (MACOS, for_macos_15, "macOS 12.0 is promised, 15.0 is asked for"),
    (MACOS, lambda c: replaced(c, b"/libSystem.B", b"/libSistem.B"), "it needs /usr/lib/libSis"),
    (MACOS, lambda c: replaced(c, b"@rpath/libtensor", b"/rpath/libtensor"), "where it was built"),
    (MACOS, lambda c: replaced(c, b"InitProfiler", b"InitProf_ler"), "export _TF_InitProfiler"),
    (MACOS, without_names_of_libraries, "its names are bound to no libraries"),
    (MACOS, searched_at_run_time, "no library is named that has _malloc"),
    (MACOS, not_at_a_page, "its segment __TEXT does not begin at a page"),
    (MACOS, unsigned, "it is not signed"),
    (MACOS, lambda c: c + b"\0", "its signature is not the end of the file"),
    (MACOS, lambda c: replaced(c, b"InitKernel", b"InitKerne_"), "are not what was signed"),
    (MACOS, lambda c: replaced(c, b"\xfa\xde\x0c\x02", b"\xfa\xde\x0c\x03"), "no directory"),
    (MACOS, lambda _: good(LINUX), "is no Mach-O file"),
]


@pytest.mark.parametrize("name", FILES)
def test_a_good_library_passes(tmp_path, name):
    assert problems(tmp_path, name, good(name)) == []


@pytest.mark.parametrize(("name", "break_", "says"), BROKEN)
def test_a_broken_library_is_found_out(tmp_path, name, break_, says):
    found = problems(tmp_path, name, break_(good(name)))
    assert any(says in problem for problem in found), found


def test_a_library_for_another_processor_is_found_out(tmp_path):
    path = tmp_path / "libtensorflow_wgpu.so"
    path.write_bytes(good(LINUX))
    assert check.library(path, by_name("linux-aarch64"))[1] == [
        "it is for X86_64, not for linux-aarch64"
    ]


COMPILER = {
    dxcompiler.IN_WHEEL: b"dxcompiler.dll",
    f"{dxcompiler.IN_WHEEL}.LICENSE.txt": b"its licence",
}


@pytest.fixture
def small_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few bytes replaces the shader compiler, which is large."""
    digest = dxcompiler.digest(COMPILER[dxcompiler.IN_WHEEL])
    monkeypatch.setattr(dxcompiler, "SHA256", digest)


def wheel(
    folder: Path,
    system: System,
    library: str | None = None,
    tag: str | None = None,
    compiler: dict[str, bytes] | None = None,
) -> check.Report:
    """The report on a wheel with a good library. `compiler` has the files of the shader compiler in
    a wheel for Windows, if they are not the right ones.
    """
    path = folder / f"tensorflow_wgpu-0.1.0-py3-none-{system.tag}.whl"
    name = f"tensorflow-plugins/{library or check.library_name(system)}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, good(system.name))
        if system.name == WINDOWS:
            for member, content in (COMPILER if compiler is None else compiler).items():
                archive.writestr(member, content)
        archive.writestr(
            "tensorflow_wgpu-0.1.0.dist-info/WHEEL",
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-{tag or system.tag}\n",
        )
    return check.check(path)


@pytest.mark.usefixtures("small_compiler")
@pytest.mark.parametrize("name", FILES)
def test_a_good_wheel_passes(tmp_path, name):
    report = wheel(tmp_path, by_name(name))
    assert report.problems == []
    assert len(report.facts) == 3


@pytest.mark.usefixtures("small_compiler")
def test_a_wheel_that_says_something_else_is_found_out(tmp_path):
    windows = by_name(WINDOWS)
    (problem,) = wheel(tmp_path, windows, tag="win32").problems
    assert "['py3-none-win32']" in problem
    (problem,) = wheel(tmp_path, windows, library="tensorflow_wgpu.pyd").problems
    assert "['tensorflow-plugins/tensorflow_wgpu.pyd'" in problem
    unknown = tmp_path / "tensorflow_wgpu-0.1.0-py3-none-any.whl"
    unknown.touch()
    (problem,) = check.check(unknown).problems
    assert "no" in problem


@pytest.mark.usefixtures("small_compiler")
def test_a_wheel_for_windows_has_the_pinned_shader_compiler(tmp_path):
    file, licence = COMPILER
    windows = by_name(WINDOWS)
    (missing, _) = wheel(tmp_path, windows, compiler={}).problems
    assert missing == f"there is no {file}"
    (other,) = wheel(tmp_path, windows, compiler={**COMPILER, file: b"another"}).problems
    assert other == f"{file} is another file than the pinned one"
    (unlicensed,) = wheel(tmp_path, windows, compiler={file: COMPILER[file]}).problems
    assert unlicensed == f"{file} lacks its licence"
    assert licence.startswith(file)


def test_auditwheel_is_believed():
    system = by_name(LINUX)
    says = 'x.whl is consistent with the\nfollowing platform\ntag: "manylinux_2_17_x86_64".'
    assert audit.judge(says, system) == (["auditwheel: manylinux_2_17_x86_64"], [])
    assert audit.judge(says.replace("2_17", "2_35"), system)[1] == [
        "auditwheel finds manylinux_2_35_x86_64 only"
    ]
    assert audit.judge(says.replace("x86_64", "aarch64"), system)[1]
    assert audit.judge('consistent with the platform tag: "linux_x86_64"', system)[1]
    assert audit.judge("", system)[1]


def test_a_dll_without_a_device_fails(capsys):
    adapter = {"name": "llvmpipe", "backend": "Vulkan", "device": "WGPU:0", "problem": None}
    report = {"version": "0.1.0", "ops": [1], "problem": None, "adapters": [adapter]}
    assert wine.described(report) == 0
    assert "llvmpipe (Vulkan): WGPU:0" in capsys.readouterr().out
    assert wine.described({**report, "adapters": [], "problem": "no GPU"}) == 1
    assert "no GPU" in capsys.readouterr().err
    broken = {**adapter, "problem": "memory holds something else"}
    assert wine.described({**report, "adapters": [broken]}) == 1


# What hatch_build.py and the linkers are told


@pytest.fixture
def hatch_build(monkeypatch):
    """hatch_build.py, which hatch loads, on a machine that may not have hatch."""
    for interface, hook in (
        ("hatchling.builders.hooks.plugin.interface", "BuildHookInterface"),
        ("hatchling.metadata.plugin.interface", "MetadataHookInterface"),
    ):
        names = interface.split(".")
        for end in range(1, len(names) + 1):
            monkeypatch.setitem(sys.modules, ".".join(names[:end]), types.ModuleType("hatchling"))
        setattr(sys.modules[interface], hook, object)
    return runpy.run_path(str(ROOT / "hatch_build.py"))


def test_the_description_leads_to_the_repository(hatch_build):
    """PyPI shows README.md without the repository's files."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    address = "https://example.com/owner/name"
    described = hatch_build["description"](readme, address + "/")
    targets = re.findall(r"\]\(([^)\s]+)\)", described)
    assert len(targets) == len(re.findall(r"\]\(", readme)) > 20
    assert [target for target in targets if not target.startswith("https://")] == []
    ours = [target.removeprefix(address) for target in targets if target.startswith(address)]
    assert "/raw/main/docs/pictures/overview.svg" in ours
    for target in ours:
        path = re.fullmatch(r"/(?:raw|blob)/main/([^#]+)(?:#.*)?", target)[1]
        assert (ROOT / path).exists(), path


def test_without_a_repository_a_description_has_no_links_to_files(hatch_build):
    text = "[page](docs/A.md#b) ![two\nlines](p.svg) [site](https://x.org) [above](#a)"
    assert hatch_build["description"](text, None) == "page  [site](https://x.org) [above](#a)"


@pytest.mark.parametrize("system", SYSTEMS, ids=[system.name for system in SYSTEMS])
def test_a_target_has_the_tag_that_is_checked(system, hatch_build, monkeypatch):
    monkeypatch.setenv("MACOSX_DEPLOYMENT_TARGET", "12.0")
    assert hatch_build["target_tag"](system.target) == system.tag


def test_targets_without_a_tag_are_refused(hatch_build, monkeypatch):
    target_tag = hatch_build["target_tag"]
    monkeypatch.delenv("MACOSX_DEPLOYMENT_TARGET", raising=False)
    assert target_tag("aarch64-apple-darwin") == "macosx_11_0_arm64"
    assert target_tag("x86_64-apple-darwin") == "macosx_10_12_x86_64"
    monkeypatch.setenv("MACOSX_DEPLOYMENT_TARGET", "13")
    assert target_tag("aarch64-apple-darwin") == "macosx_13_0_arm64"
    for target in ("x86_64-unknown-linux-gnu", "wasm32-unknown-unknown", "i686-pc-windows-gnu"):
        with pytest.raises(RuntimeError, match="has no platform tag"):
            target_tag(target)


def size_of_wheel(library: Path, folder: Path) -> int:
    """The bytes of a wheel that holds little except the library."""
    wheel = folder / "library.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(library, library.name)
    return wheel.stat().st_size


def test_debug_information_lies_apart(hatch_build, tmp_path):
    """Function names stay in the library, which says where their line numbers are."""
    compiler = program("cc")
    program("objcopy")
    source = tmp_path / "library.c"
    source.write_text(
        "static int hidden(int x) { return x * x; }\n"
        + "".join(f"int f{n}(int x) {{ return hidden(x) + {n}; }}\n" for n in range(2000))
    )
    library = tmp_path / "libtensorflow_wgpu.so"
    subprocess.run([compiler, "-g", "-O0", "-shared", "-fPIC", "-o", library, source], check=True)
    before = library.read_bytes()
    small = hatch_build["without_debug_information"](library)
    assert small != library
    assert small.name == library.name
    assert library.read_bytes() == before, "cargo's own file stays"
    debug = small.with_name(f"{small.name}.debug")
    sections = [lief.parse(str(path)) for path in (small, debug)]
    has_lines = [binary.has_section(".debug_line") for binary in sections]
    assert has_lines == [False, True]
    assert sections[0].has_section(".gnu_debuglink")
    assert any(symbol.name == "hidden" for symbol in sections[0].symbols), "for backtraces"
    assert small.stat().st_size < 0.8 * library.stat().st_size
    assert ctypes.CDLL(str(small)).f7(3) == 16
    dll = tmp_path / "tensorflow_wgpu.dll"
    assert hatch_build["without_debug_information"](dll) == dll


def test_a_wheel_has_at_most_12_mb(hatch_build, tmp_path):
    """A wheel of the release profile if there is one; otherwise the library of the tests, which is
    not optimized and larger.
    """
    wheels = [*ROOT.glob("dist/release/*.whl"), *ROOT.glob("dist/wheels/*.whl")]
    sizes = {wheel.name: wheel.stat().st_size for wheel in wheels}
    if not wheels:
        library = tensorflow_wgpu.library_path()
        small = tmp_path / library.name
        shutil.copy(library, small)
        small = hatch_build["without_debug_information"](small)
        sizes = {library.name: size_of_wheel(small, tmp_path)}
    assert {name: size for name, size in sizes.items() if size > 12e6} == {}


@pytest.mark.parametrize("system", SYSTEMS, ids=[system.name for system in SYSTEMS])
def test_the_build_knows_target_and_linker(system, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "TARGET", tmp_path)
    compiler = tmp_path / "dxcompiler.dll"
    monkeypatch.setattr(dxcompiler, "fetch", lambda _: compiler)
    variables = build.environment(system, "dev")
    assert variables["TF_WGPU_TARGET"] == system.target
    assert variables["TF_WGPU_CARGO_COMMAND"] == (
        "build" if "windows" in system.name else "zigbuild"
    )
    assert variables["CARGO_PROFILE_DEV_STRIP"] == "debuginfo"
    assert variables["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert variables.get("TF_WGPU_DXC") == (str(compiler) if "windows" in system.name else None)
    if "macos" in system.name:
        assert variables["MACOSX_DEPLOYMENT_TARGET"] == "12.0"
        assert (Path(variables["SDKROOT"]) / "usr/lib/libobjc.tbd").exists()


def test_the_sdk_names_libraries_where_macos_has_them(tmp_path):
    folder = apple.write_sdk(tmp_path)
    metal = (folder / "System/Library/Frameworks/Metal.framework/Metal.tbd").read_text()
    assert "/System/Library/Frameworks/Metal.framework/Versions/A/Metal" in metal
    assert "_MTLCreateSystemDefaultDevice" in metal
    assert "_objc_msgSend," in (folder / "usr/lib/libobjc.tbd").read_text()
    names = [name for library in apple.LIBRARIES for name in library.names.split()]
    assert len(names) == len(set(names))


# What is looked up in TensorFlow


def test_lookups_are_read_from_tables():
    text = (
        "symbol_table! {\n    /// Some.\n    pub(crate) struct Api {\n        required {\n"
        '            /// A line.\n            TF_One: unsafe extern "C" fn(a: u8,\n'
        "                *mut std::ffi::c_void),\n            TF_Two: Fn,\n        }\n"
        "        optional { TF_Three: Fn }\n    }\n}\n"
    )
    found = lookups.functions(text)
    assert {"TF_One", "TF_Two"} <= found.required
    assert found.optional == {"TF_Three"}
    with pytest.raises(ValueError, match="without"):
        lookups.functions(text.replace("optional {", "sometimes {"))


def test_symbols_are_read_by_release():
    text = (
        'const RELEASES: &[R] = &[\n R { version: "2.21.", a: c"_Z1a" },\n'
        ' R { version: "2.20.", a: c"_Z1b" },\n];\nconst C: &CStr = c"_Z1c";\n'
        '#[cfg(test)]\nmod tests { const D: &CStr = c"_Z1d"; }\n'
    )
    found = lookups.symbols(text)
    assert found.of("2.21") == {"_Z1a", "_Z1c"}
    assert found.of("2.20") == {"_Z1b", "_Z1c"}
    assert found.of("2.19") is None


def test_every_c_function_of_the_plug_in_is_read():
    """All names in tables are found, however they are written: as many as in the source."""
    named = set()
    for file in lookups.FFI.rglob("*.rs"):
        text = file.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
        named.update(re.findall(r"\bapi(?:\(\)\?)?\.(TF_\w+)\)", text))
    core = lookups.core()
    known = core.required | core.optional
    for file in ("variables/official.rs", "variants/official.rs"):
        found = lookups.functions(lookups.read(file))
        known |= found.required | found.optional
    assert len(named) > 50
    assert named <= known


def test_the_plug_in_asks_libraries_of_each_system():
    assert "libtensorflow_framework.so.2" in lookups.modules("linux")
    assert lookups.modules("apple") == (
        "libtensorflow_framework.2.dylib",
        "libtensorflow_cc.2.dylib",
    )
    assert "_pywrap_tensorflow_common.dll" in lookups.modules("windows")


def all_of(series: str) -> frozenset[str]:
    """Every name that the plug-in may look up in a release."""
    core = lookups.core()
    names = set(core.required | core.optional)
    for file in ("variables/official.rs", "variants/official.rs"):
        names |= lookups.functions(lookups.read(file)).required
    for file in ("variables/cxx.rs", "variants/release.rs", "copy_function.rs"):
        names |= lookups.symbols(lookups.read(file)).of(series) or set()
    return frozenset(names | lookups.symbols(lookups.read("determinism.rs")).common)


def test_behaviour_follows_from_what_is_exported():
    official = lookups.functions(lookups.read("variables/official.rs")).required
    windows, linux, macos = by_name(WINDOWS), by_name(LINUX), by_name(MACOS)
    dll, so = "tensorflow/python/_pywrap_tensorflow_common.dll", "libtensorflow_cc.so.2"
    names = all_of("2.21")
    whole = behaviour.behaviour(windows, "2.21.0", {dll: names})
    assert (whole.variables, whole.variants, whole.missing) == ("official", "official", ())
    assert behaviour.behaviour(windows, "2.21.0", {dll: names - official}).variables == "no device"
    less = behaviour.behaviour(linux, "2.21.0", {so: names - official})
    assert (less.variables, less.unofficial) == ("C++", tuple(sorted(official)))
    without = behaviour.behaviour(linux, "2.21.0", {so: names - official - {"TF_NewStatus"}})
    assert without.missing == ("TF_NewStatus",)
    absent = "_ZTVN10tensorflow3VarE"
    without = behaviour.behaviour(linux, "2.21.0", {so: names - official - {absent}})
    assert (without.variables, without.absent) == ("no device", (absent,))
    without = behaviour.behaviour(
        linux, "2.21.0", {so: names - official - {"_ZNK10tensorflow6Tensor13RefCountIsOneEv"}}
    )
    assert without.variables == "C++, never in place"
    # A library that the plug-in does not look into is ignored.
    elsewhere = behaviour.behaviour(macos, "2.22.0", {"libother.dylib": names})
    assert set(elsewhere.missing) == lookups.core().required
    assert behaviour.behaviour(windows, "2.22.0rc0", {dll: all_of("2.22")}).variants == "CPU"
    assert not behaviour.behaviour(windows, "2.17.1", {dll: all_of("2.17")}).copies
    assert behaviour.behaviour(linux, "2.17.1", {so: all_of("2.17")}).copies


@pytest.mark.parametrize("name", FILES)
def test_exports_are_read_from_a_wheel(tmp_path, name):
    member = {
        LINUX: "tensorflow/libtensorflow_framework.so.2",
        WINDOWS: "tensorflow/python/_pywrap_tensorflow_common.dll",
        MACOS: "tensorflow/libtensorflow_cc.2.dylib",
    }[name]
    path = tmp_path / "tensorflow.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, good(name))
        archive.writestr("tensorflow/python/_pywrap_mlir.so", b"no library")
    found = exports.read(path)
    assert list(found) == [member]
    assert set(check.ENTRIES) <= found[member]
    assert "malloc" not in found[member]
    assert list(tmp_path.iterdir()) == [path]


def test_the_page_is_written_from_what_is_looked_up_now():
    text = (ROOT / "docs/PLATFORMS.md").read_text(encoding="utf-8")
    assert page.fingerprint() in text, "docs/PLATFORMS.md is out of date: run `make platforms`"


def test_the_page_keeps_what_people_wrote(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text(f"before\n\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    names = all_of("2.21")

    def one_release(_cache: Path, _system: System, _package: str, version: str) -> exports.Exports:
        if version != "2.21.0":
            raise exports.NoWheel
        return {"tensorflow/python/_pywrap_tensorflow_common.dll": names}

    monkeypatch.setattr(exports, "exports", one_release)
    page.write(path, tmp_path, [by_name(WINDOWS)])
    text = path.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| tensorflow 2.21.0 | yes | official |" in text
    assert "| tensorflow 2.20.0 | no wheel |" in text
