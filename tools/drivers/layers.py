"""Vulkan layers between a program and its driver."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def behind(folder: Path, name: str, library: Path) -> dict[str, str]:
    """Variables for a process behind a Vulkan layer, whose manifest goes into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    layer = {
        "name": name,
        "type": "GLOBAL",
        "library_path": str(library),
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": name,
    }
    manifest = {"file_format_version": "1.2.0", "layer": layer}
    (folder / "layer.json").write_text(json.dumps(manifest))
    return {"VK_LAYER_PATH": str(folder), "VK_INSTANCE_LAYERS": name}


def behind_faults(folder: Path) -> dict[str, str]:
    """Variables for a process behind the layer of tests/fault_layer, which is compiled here."""
    command = ["cargo", "build", "--locked", "--package", "fault_layer", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    files = [f for line in done.stdout.splitlines() for f in json.loads(line).get("filenames", [])]
    library = next(f for f in files if "fault_layer" in f and f.endswith(".so"))
    text = (ROOT / "tests/fault_layer/src/lib.rs").read_text()
    found = re.search(r'NAME: &str = "(\w+)"', text)
    assert found is not None
    return {
        **behind(folder, found[1], Path(library)),
        # Mesa's layer that orders devices reads uninitialized memory if its calls fail.
        "NODEVICE_SELECT": "1",
        "TF_WGPU_FAULT_LAYER": library,
    }
