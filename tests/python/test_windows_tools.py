"""tools/windows: the excluded tests exist, and its changes of libraries. `make windows` itself
takes long, and is no test.
"""

import gzip
import runpy
import shutil
import subprocess
from pathlib import Path

import interpreter
import lief
import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/windows"


def test_what_is_left_out_exists() -> None:
    main = runpy.run_path(str(TOOL / "__main__.py"))
    targets = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    modules = (ROOT / "tests/kit/main.rs").read_text(encoding="utf-8")
    for suite in main["LEFT_OUT"]:
        assert f"mod {suite};" in modules or f'name = "{suite}"' in targets
    for name in main["ELSEWHERE"]:
        assert (ROOT / "tests/python" / name).is_file()
    for test in main["DESELECTED"]:
        name, function = test.split("::")
        text = (ROOT / "tests/python" / name).read_text(encoding="utf-8")
        assert f"def {function.partition('[')[0]}(" in text


def test_another_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "VERSION", (3, 1))
    with pytest.raises(SystemExit, match=r"Python 3\.1, whose library it takes"):
        interpreter.make(tmp_path / "python", tmp_path / "no.whl")
    assert not (tmp_path / "python").exists()


@pytest.mark.skipif(not shutil.which("x86_64-w64-mingw32-gcc"), reason="needs mingw")
def test_libraries_take_complex_functions_of_ours(tmp_path: Path) -> None:
    packages, folder = tmp_path / "packages", tmp_path / "python"
    packages.mkdir()
    folder.mkdir()
    other = packages / "other.dll"
    content = (ROOT / "tests/python/libraries/windows-x86_64.dll.gz").read_bytes()
    other.write_bytes(gzip.decompress(content))
    before = other.read_bytes()
    imports = tmp_path / "math.def"
    imports.write_text(f"LIBRARY {interpreter.MATH}\nEXPORTS\n  crealf\n  sinf\n")
    archive, source = tmp_path / "libmath.a", tmp_path / "user.c"
    source.write_text(
        "float sinf(float);\nfloat crealf(float);\n"
        "float use(float x) { return sinf(x) + crealf(x); }\n"
    )
    subprocess.run(["x86_64-w64-mingw32-dlltool", "-d", imports, "-l", archive], check=True)
    user = packages / "user.dll"
    subprocess.run(
        ["x86_64-w64-mingw32-gcc", "-fno-builtin", "-shared", "-o", user, source, archive],
        check=True,
    )
    interpreter.replace_math(packages, folder)
    assert other.read_bytes() == before
    read = lief.PE.parse(str(user))
    assert interpreter.OURS in [i.name for i in read.imports]
    ours = lief.PE.parse(str(folder / interpreter.OURS))
    exported = {entry.name: entry for entry in ours.get_export().entries}
    assert not exported["crealf"].is_forwarded
    assert exported["sinf"].forward_information.library == "ucrtbase"
