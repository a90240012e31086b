"""Builds the Vulkan layer of tests/fault_layer, which fails calls, for processes of the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import support

ROOT = Path(__file__).parents[2]


def behind(directory: Path) -> dict[str, str]:
    """Variables for a process behind the layer, whose manifest goes into `directory`."""
    built = subprocess.run(
        [
            support.program("cargo"),
            "build",
            "--locked",
            "--package",
            "fault_layer",
            "--message-format",
            "json",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    files = [f for line in built.stdout.splitlines() for f in json.loads(line).get("filenames", [])]
    library = next(f for f in files if "fault_layer" in f and f.endswith(".so"))
    name = re.search(
        r'NAME: &str = "(\w+)"', (ROOT / "tests/fault_layer/src/lib.rs").read_text()
    ).group(1)
    layer = {
        "name": name,
        "type": "GLOBAL",
        "library_path": library,
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "fails chosen calls",
    }
    (directory / "faults.json").write_text(
        json.dumps({"file_format_version": "1.2.0", "layer": layer})
    )
    return {
        **os.environ,
        "VK_LAYER_PATH": str(directory),
        "VK_INSTANCE_LAYERS": name,
        # Mesa's layer that orders devices reads memory that nobody wrote where its calls fail.
        "NODEVICE_SELECT": "1",
        "TF_WGPU_FAULT_LAYER": library,
    }
