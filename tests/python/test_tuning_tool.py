"""`tools/tuning`: the shipped table, rows of compilers' bounds, and rows of users' reports."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import bounds_rows
import measured_rows
import pytest
from bounds_rows import Candidate
from shipped_table import COLUMNS, TABLE, Bound, Choice, Class, Measured, Row, Table

ROOT = Path(__file__).parents[2]
OF = Class("ada", "product", "float32", "vector", "columns", 1024, 1024, 1024, 1)
BOUND = Bound("ada", "26.2.6-1", "8x2 in 16x8 double", 0.8)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The command line, which is no module that can be imported by its name."""
    spec = importlib.util.spec_from_file_location("tuning_main", ROOT / "tools/tuning/__main__.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def report(
    times: list[int], driver: str = "570.86", date: str = "2026-11-29", **changes: Any
) -> dict[str, Any]:
    """A report of one search; candidates are named by their places."""
    tiles = ("8x2 in 16x8 double", "8x2 in 16x16 double", "8x2 in 8x8 double")
    candidates = [
        {"tile": tile, "parts": 1, "schedule": "tiles", "nanoseconds": nanoseconds}
        for tile, nanoseconds in zip(tiles, times)
    ]
    adapter = {"name": "NVIDIA GeForce RTX 4090", "driver": "NVIDIA", "driver_info": driver}
    of = {name: str(value) for name, value in OF._asdict().items()}
    tuning = [{"class": of, "candidates": candidates}]
    return {"adapter": adapter, "date": date, "tuning": tuning, **changes}


def written(tmp_path: Path, *reports: dict[str, Any]) -> list[Path]:
    """A file of each report."""
    paths = [tmp_path / f"{number}.json" for number in range(len(reports))]
    for path, one in zip(paths, reports):
        path.write_text(json.dumps(one))
    return paths


def table_of(tmp_path: Path, *rows: Row) -> Path:
    """A file with these rows."""
    path = tmp_path / "table.tsv"
    path.write_text(str(Table(["# a comment"], {row.of: row for row in rows})))
    return path


def merged(tool: ModuleType, table: Path, reports: list[Path], *more: str) -> str:
    """What `merge` writes."""
    output = table.with_name("merged.tsv")
    stored = table.with_name("none.jsonl")
    files = ["--table", table, "--output", output, "--stored", stored]
    assert tool.main(["merge", *map(str, [*reports, *files]), *more]) == 0
    return output.read_text()


def test_the_shipped_table_is_what_its_sources_say(tool: ModuleType) -> None:
    assert str(Table.read(TABLE)) == TABLE.read_text(encoding="utf-8")
    assert tool.main(["merge", "--check"]) == 0


def test_a_table_reads_back_as_it_was_written(tmp_path: Path) -> None:
    measured = Measured("RTX 4090", "NVIDIA 570.86", "2026-11-29", 90, 100)
    rows = [
        Row(OF._replace(m=2048), Choice("8x2 in 16x16 double", "4", "tiles"), measured),
        Row(OF, Choice("8x2 in 16x16 double"), BOUND),
    ]
    path = table_of(tmp_path, *rows)
    table = Table.read(path)
    assert list(table.rows.values()) == sorted(rows, key=lambda row: row.of)
    assert str(table) == path.read_text()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("ada", "1 columns, not 13"),
        ("\t".join(map(str, [*OF._replace(m=1000), *Choice("t"), BOUND])), "no powers of two"),
        ("\t".join(map(str, [*OF, *Choice("t"), "guess"])), "'guess' is no source"),
        ("\t".join(map(str, [*OF, *Choice("t"), "bound chip=ada"])), "has not chip, mesa"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(line: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("\n".join(["# a comment", "\t".join(COLUMNS), line]))
    with pytest.raises(SystemExit, match=f"table.tsv:3: .*{what}"):
        Table.read(path)


def test_reports_in_any_order_make_the_same_bytes(tool: ModuleType, tmp_path: Path) -> None:
    other = {"name": "NVIDIA GeForce RTX 4080", "driver": "NVIDIA", "driver_info": "565.1"}
    reports = written(
        tmp_path,
        report([100, 80, 90]),
        report([100, 99, 70], driver="570.9", date="2026-12-24"),
        report([100, 60, 70], date="2026-12-01", adapter=other),
        report([100, 80, 90], date="2026-11-30"),
    )
    table = table_of(tmp_path, Row(OF, Choice("8x2 in 8x8 double"), BOUND))
    texts = {merged(tool, table, list(each)) for each in itertools.permutations(reports)}
    assert len(texts) == 1
    # Merged again, and into its own result, they change nothing.
    (text,) = texts
    table.write_text(text)
    assert merged(tool, table, reports) == text
    assert merged(tool, table, []) == text


def test_what_was_measured_comes_before_a_bound(tool: ModuleType, tmp_path: Path) -> None:
    stored = tmp_path / "bounds.jsonl"
    bounds_rows.store(stored, compiled(0.5, 0.9))
    table = table_of(tmp_path)
    files = ["--table", table, "--stored", stored, "--output", table]
    assert tool.main(["merge", *map(str, files)]) == 0
    row = Table.read(table).rows[OF]
    assert (row.choice.tile, type(row.source)) == ("8x2 in 16x16 double", Bound)
    # On the card, the estimate's choice was the best: the row says so.
    reports = written(tmp_path, report([100, 120, 96]))
    assert tool.main(["merge", *map(str, [*reports, *files])]) == 0
    row = Table.read(table).rows[OF]
    assert row.choice == Choice("8x2 in 16x8 double", "1", "tiles")
    assert isinstance(row.source, Measured)
    assert tool.main(["merge", *map(str, files)]) == 0
    assert Table.read(table).rows[OF] == row


def test_the_newest_driver_of_an_adapter_counts(tool: ModuleType, tmp_path: Path) -> None:
    # 570.9 is older than 570.86, although its text is greater and its report is later.
    reports = written(
        tmp_path, report([100, 80, 90], "570.86"), report([100, 90, 70], "570.9", "2026-12-24")
    )
    text = merged(tool, table_of(tmp_path), reports)
    assert "\t8x2 in 16x16 double\t1\ttiles\tmeasured " in text
    assert "driver=NVIDIA 570.86; date=2026-11-29; nanoseconds=80; untuned=100" in text


def test_of_several_adapters_the_last_day_counts(tool: ModuleType, tmp_path: Path) -> None:
    other = {"name": "NVIDIA GeForce RTX 4080", "driver": "NVIDIA", "driver_info": "1.0"}
    reports = written(
        tmp_path, report([100, 80, 90]), report([100, 90, 70], date="2026-12-24", adapter=other)
    )
    assert "adapter=NVIDIA GeForce RTX 4080" in merged(tool, table_of(tmp_path), reports)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"adapter": None}, "it tells no adapter name"),
        ({"adapter": {"name": "a", "driver": "", "driver_info": " "}}, "no adapter driver"),
        ({"date": ""}, "it tells no date"),
        ({"date": "yesterday"}, "no report with timings"),
        ({"tuning": []}, "TF_WGPU_AUTOTUNE=1"),
        ({"tuning": [{"class": {}, "candidates": []}]}, "no report with timings"),
    ],
)
def test_a_report_that_says_too_little_is_refused(
    changes: dict[str, Any],
    what: str,
    tool: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = table_of(tmp_path)
    before = table.read_text()
    good, bad = written(tmp_path, report([100, 80, 90]), report([100, 80, 90], **changes))
    files = ["--table", table, "--output", table, "--stored", tmp_path / "none"]
    assert tool.main(["merge", *map(str, [good, bad, *files])]) == 1
    told = capsys.readouterr().err
    assert str(bad) in told
    assert what in told
    assert table.read_text() == before, "nothing is written"


def test_semicolons_of_a_driver_do_not_end_its_name(tmp_path: Path) -> None:
    (path,) = written(tmp_path, report([100, 80, 90], driver="1.2; beta\t3"))
    (row,) = measured_rows.read(path)
    assert isinstance(row.source, Measured)
    assert row.source.driver == "NVIDIA 1.2 beta 3"


def compiled(own: float, other: float, **changes: Any) -> list[Candidate]:
    """The estimate's choice and another candidate with equal estimates, and with these bounds."""
    of = "\t".join(map(str, OF))
    common = {"chip": "ada", "mesa": "26", "row": "a", "of": of, "cost": 100.0, "products": 0.5}
    common |= {"parts": 1, "schedule": "tiles", "steps": 1.0}
    first = Candidate(tile="8x2 in 16x8 double", m=128, n=64, bound=own, occupancy=16, **common)
    second = Candidate(
        tile="8x2 in 16x16 double", m=128, n=128, bound=other, occupancy=16, **common
    )
    for name, value in changes.items():
        setattr(second, name, value)
    return [first, second]


def test_a_better_bound_makes_a_row(tmp_path: Path) -> None:
    stored = tmp_path / "bounds.jsonl"
    bounds_rows.store(stored, compiled(0.5, 0.75))
    (row,) = bounds_rows.rows(bounds_rows.stored(stored))
    assert (row.of, row.choice) == (OF, Choice("8x2 in 16x16 double"))
    assert row.source == Bound("ada", "26", "8x2 in 16x8 double", 0.667)


def test_a_bound_corrects_steps_alone() -> None:
    own, other = compiled(0.5, 1.0)
    other.steps = 0.6
    assert own.corrected() == 100
    assert other.corrected() == pytest.approx(100 * (0.4 + 0.6 * 0.5))


@pytest.mark.parametrize(
    "candidates",
    [
        compiled(0.5, 0.55),
        compiled(0.5, 0.9, spills=1),
        compiled(0.5, 0.9, problem="refused"),
        compiled(0.5, 0.9, occupancy=4),
        compiled(0.5, 0.9, m=32, n=32),
        compiled(0.5, 0.9, tile="8x1 in 1x64 registers"),
        compiled(0.5, 0.9, bound=None),
        # The same class is not better in another row.
        [*compiled(0.5, 0.9), *(c for c in compiled(0.5, 0.5) if not setattr(c, "row", "b"))],
    ],
)
def test_what_speaks_against_a_candidate(candidates: list[Candidate]) -> None:
    assert list(bounds_rows.rows(candidates)) == []


@pytest.mark.parametrize(
    ("adapter", "driver"),
    [
        ({"driver": "32.0.15.6094", "driver_info": "", "backend": "Dx12"}, "32.0.15.6094"),
        ({"driver": "", "driver_info": "", "backend": "Metal"}, "Metal"),
    ],
)
def test_backends_that_tell_less_of_the_driver(adapter, driver, tmp_path: Path) -> None:
    (path,) = written(tmp_path, report([100, 80, 90], adapter={"name": "Apple M1", **adapter}))
    (row,) = measured_rows.read(path)
    assert row.source.driver == driver
