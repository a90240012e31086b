"""An environment for each package: it holds the package's dependencies. TensorFlow and the plug-in
are those of the environment that runs this tool.

A `.pth` file adds the latter's `site-packages`. pip sees them, so it installs only missing
packages; a package that insists on another TensorFlow is installed without its dependencies.
"""

import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from catalogue import HERE, Package

# `tensorly` needs scipy for its build, and pip would build it only for its metadata.
PIP = ["-m", "pip", "--disable-pip-version-check"]


def environment(package: Package, folder: Path) -> Path:
    """The Python of the package's environment, which is made if it does not exist."""
    venv = folder / "environments" / package.name.replace(" ", "-")
    python = venv / "bin" / "python"
    marker = venv / ".setup"
    made_of = "\n".join([*package.requires, "--", *package.alone, sys.version])
    if marker.exists() and marker.read_text(encoding="utf-8") == made_of:
        return python
    print(f"{package.name}: installing", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site_packages(python) / "shared.pth").write_text(
        sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8"
    )
    install = [python, *PIP, "install", "--quiet", "--no-compile"]
    if package.requires:
        subprocess.run([*install, *package.requires], check=True)
    if package.alone:
        subprocess.run([*install, "--no-deps", *package.alone], check=True)
    marker.write_text(made_of, encoding="utf-8")
    return python


def site_packages(python: Path) -> Path:
    """The folder of the environment's own packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python.parent.parent / "lib" / version / "site-packages"


def root(package: Package, python: Path, folder: Path) -> Path:
    """The folder to which the package's files are relative."""
    if package.programs:
        return HERE / "programs"
    if package.source is None:
        return site_packages(python)
    sources = folder / "sources"
    name, _, version = package.source.partition("==")
    # A source distribution's name has underscores. Before that became a rule it could have hyphens.
    names = [f"{name.replace('-', '_')}-{version}", f"{name}-{version}"]
    if not any((sources / n).exists() for n in names):
        download = [sys.executable, *PIP, "download", "--quiet", "--no-deps", "--no-binary", name]
        subprocess.run([*download, "--dest", sources, package.source], check=True)
        archive = next(p for n in names if (p := sources / f"{n}.tar.gz").exists())
        with tarfile.open(archive) as opened:
            opened.extractall(sources, filter="data")
    found = next(p for n in names if (p := sources / n).exists())
    if package.parent:
        (found / package.parent / "__init__.py").touch()
    return found
