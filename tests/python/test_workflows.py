"""GitHub's workflows: their jobs' permissions, and whether the files that they call exist. None has
run yet.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: The permissions of a job besides reading, by workflow and job.
RIGHTS = {
    ("release", "attest"): {"attestations", "id-token"},
    ("release", "pypi"): {"id-token"},
    ("release", "github"): {"contents"},
    ("site", "deploy"): {"id-token", "pages"},
}


def jobs() -> list[tuple[str, str, dict]]:
    """Each job with the names of its workflow and of the job."""
    return [
        (path.stem, name, job)
        for path in FILES
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_reads_and_does_not_run_twice(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]


def test_jobs_write_only_what_is_listed():
    found = {
        (workflow, name): {right for right, kind in job["permissions"].items() if kind == "write"}
        for workflow, name, job in jobs()
        if "permissions" in job
    }
    assert found == RIGHTS


def test_jobs_end_and_take_pinned_actions():
    used = set()
    for workflow, name, job in jobs():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file(), job["uses"]
            continue
        assert job["timeout-minutes"] <= 240, (workflow, name)
        used |= {step["uses"] for step in job["steps"] if "uses" in step}
    assert used
    pinned = re.compile(r"[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})")
    assert [action for action in used if not pinned.fullmatch(action)] == []


def test_what_the_steps_call_is_there():
    steps = [step["run"] for _, _, job in jobs() for step in job.get("steps", []) if "run" in step]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = {t for step in steps for t in re.findall(r"^make ([a-z-]+)", step, re.MULTILINE)}
    assert called
    assert called <= targets
    suites = {s for step in steps for s in re.findall(r"--test (\w+)", step)}
    assert suites
    for suite in suites:
        assert list((ROOT / "tests").glob(f"{suite}.rs")) or (ROOT / "tests" / suite).is_dir()
    files = {f for step in steps for f in re.findall(r"\b(?:tests|tools)/[\w./-]+", step)}
    assert files
    assert [f for f in files if not (ROOT / f).exists()] == []
