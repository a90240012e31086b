"""`tools/drivers`: what is read of a compiler's statistics, and the table that keeps other rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import compilers
import pytest
import report
from chips import CHIPS
from compilers import Result, Variant

#: A program in place of `compile`: its second variant ends the process.
PROGRAM = """
import os, sys
start = int(sys.argv[sys.argv.index("--start") + 1])
print("@@ adapter A GPU", "@@ variants 4", sep="\\n", file=sys.stderr)
TOLD = [
    ["@@ pipeline it", "@@ statistic VGPRs: 24", "@@ statistic Spilled VGPRs: 2",
     "@@ statistic Spilled SGPRs: 1", "@@ statistic LDS size: 512",
     "@@ statistic Subgroups per SIMD: 16", "@@ listed", "@@ other", "@@ end 0.5"],
    ["a driver's last words"],
    ["@@ refused too large"],
    ["@@ skipped"],
]
for i in range(start, 4):
    print(f"@@ begin {i} family label {i}", *TOLD[i], sep="\\n", file=sys.stderr, flush=True)
    if i == 1:
        os._exit(3)
"""


def test_statistics_refusals_and_crashes_are_read(tmp_path: Path) -> None:
    program = tmp_path / "compile.py"
    program.write_text(PROGRAM)
    command = [sys.executable, program]
    found = compilers.compile_part(command, dict(os.environ), "navi31", ["--every", "1"])
    assert (found.adapter, found.problem) == ("A GPU", "")
    first, second, third, fourth = found.variants
    assert first == Variant(
        "family",
        "label 0",
        seconds=0.5,
        other=True,
        spills=2,
        scalars=1,
        occupancy=16,
        registers=24,
        shared=512,
    )
    assert second.refused == "the compiler ended the process (3): a driver's last words"
    assert third.refused == "too large"
    assert fourth.skipped


@pytest.mark.parametrize("target", CHIPS)
def test_each_vendor_has_names_for_what_the_table_needs(target: str) -> None:
    vendor, variant = CHIPS[target].vendor, Variant("family", "label")
    for name, value in ((vendor.spills, 1), (vendor.registers, 2), (vendor.occupancy, 3)):
        compilers.read(vendor, variant, f"{name}: {value}")
    assert (variant.spills, variant.registers, variant.occupancy) == (1, 2, 3)
    assert f"| {target} | A GPU | 1 | 0 | 0 | 1 | 0 |" in report.row(
        Result(target, "A GPU", variants=[variant])
    )


def test_a_written_table_keeps_the_rows_of_other_targets(tmp_path: Path) -> None:
    page = tmp_path / "DRIVERS.md"
    page.write_text(f"before\n{report.BEGIN}\n{report.HEAD}\n{report.END}\nafter\n")
    report.write(page, [Result("dxc", "DXC"), Result("ada", "old")])
    report.write(page, [Result("ada", "new"), Result("navi31", "first")])
    lines = page.read_text().splitlines()
    assert [line.split("|")[1:3] for line in lines[4:-2]] == [
        [" navi31 ", " first "],
        [" ada ", " new "],
        [" dxc ", " DXC "],
    ]
    assert (lines[0], lines[1], lines[-2], lines[-1]) == (
        "before",
        report.BEGIN,
        report.END,
        "after",
    )
