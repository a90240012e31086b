"""A wheel's information about the crates in its library, which `make licenses` wrote from
Cargo.lock.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import support

ROOT = Path(__file__).parents[2]
SBOM = json.loads((ROOT / "tensorflow-wgpu.cdx.json").read_text(encoding="utf-8"))
TEXTS = (ROOT / "THIRD-PARTY-LICENSES.txt").read_text(encoding="utf-8")
AGAIN = "is out of date: run `make licenses`"


def locked() -> dict[tuple[str, str], str]:
    """The checksums of Cargo.lock by name and version."""
    packages = (ROOT / "Cargo.lock").read_text(encoding="utf-8").split("[[package]]")[1:]
    found = {}
    for package in packages:
        fields = dict(re.findall(r'^(\w+) = "(.*)"$', package, re.MULTILINE))
        found[fields["name"], fields["version"]] = fields.get("checksum", "")
    return found


def linked(*kinds: str) -> set[tuple[str, str]]:
    """The crates of this machine's library."""
    tree = [support.program("cargo"), "tree", "--locked", "--prefix", "none", "--format", "{p}"]
    listed = subprocess.run(
        [*tree, "--edges", ",".join(("normal", *kinds))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    crates = set(re.findall(r"^(\S+) v(\S+)", listed, re.MULTILINE))
    return {crate for crate in crates if crate[0] != "tensorflow-wgpu"}


def test_the_sbom_has_what_is_locked_and_linked():
    found = {
        (c["name"], c["version"]): c["hashes"][0]["content"]
        for c in SBOM["components"]
        if c["bom-ref"].startswith("registry+")
    }
    assert len(found) == len(SBOM["components"]) > 50
    assert found.items() <= locked().items(), f"tensorflow-wgpu.cdx.json {AGAIN}"
    assert linked() <= found.keys(), f"tensorflow-wgpu.cdx.json {AGAIN}"


def test_the_licences_name_what_is_linked():
    named = set(re.findall(r"^  (\S+) (\d+\.\S+)$", TEXTS, re.MULTILINE))
    assert linked("no-proc-macro") <= named, f"THIRD-PARTY-LICENSES.txt {AGAIN}"
    assert (
        named - {("tensorflow-wgpu", SBOM["metadata"]["component"]["version"])} <= locked().keys()
    )


@pytest.mark.parametrize(
    "licence", ["Apache License", "MIT License", "Permission is hereby granted"]
)
def test_the_licences_have_texts(licence):
    assert licence in TEXTS


def test_what_may_be_linked_is_said_once():
    """cargo-deny refuses licences that cargo-about does not accept."""
    lists = [
        re.search(rf"^{key} = (\[.*?\n\])$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)[1]
        for path, key in (("deny.toml", "allow"), ("tools/licenses/about.toml", "accepted"))
    ]
    assert lists[0] == lists[1]


def test_no_component_names_this_machine():
    assert "path+file:///tensorflow-wgpu#" in SBOM["metadata"]["component"]["bom-ref"]
    assert str(ROOT) not in json.dumps(SBOM)
