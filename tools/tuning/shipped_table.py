"""The shipped table of tuned choices: its rows, and the file that has them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src/kernels/contract/shipped.tsv"
#: Stands where the estimate decides.
ESTIMATED = "-"
#: Lines before the columns.
COMMENT = "#"


class Class(NamedTuple):
    """The contractions that a row is for: the first columns. Sizes are powers of two, at or above
    those of the contractions.
    """

    family: str
    operation: str
    type: str
    units: str
    order: str
    m: int
    n: int
    k: int
    batch: int

    @classmethod
    def read(cls, text: str) -> Class:
        """The class of columns with tabs between them."""
        columns = text.split("\t")
        if len(columns) != len(cls._fields):
            raise ValueError(f"a class has {len(cls._fields)} columns, not {len(columns)}")
        sizes = [int(size) for size in columns[5:]]
        if any(size < 1 or size & (size - 1) for size in sizes):
            raise ValueError(f"the sizes of {text!r} are no powers of two")
        return cls(*columns[:5], *sizes)


@dataclass(frozen=True, order=True)
class Bound:
    """Where a row of compilers' bounds comes from: the chip, the version of Mesa, and the cost of
    the choice as a part of that of the estimate's choice.
    """

    chip: str
    mesa: str
    estimate: str
    cost: float

    def __str__(self) -> str:
        """The last column."""
        return (
            f"bound chip={self.chip}; mesa={self.mesa}; estimate={self.estimate}; "
            f"cost={self.cost:.3f}"
        )


@dataclass(frozen=True, order=True)
class Measured:
    """Where a row of a report comes from: the adapter, its driver, the day, and the nanoseconds of
    the choice and of what would have run without tuning.
    """

    adapter: str
    driver: str
    date: str
    nanoseconds: int
    untuned: int

    def __str__(self) -> str:
        """The last column."""
        return (
            f"measured adapter={self.adapter}; driver={self.driver}; date={self.date}; "
            f"nanoseconds={self.nanoseconds}; untuned={self.untuned}"
        )


Source = Bound | Measured
KINDS: dict[str, type[Bound] | type[Measured]] = {"bound": Bound, "measured": Measured}


def read_source(text: str) -> Source:
    """The source that a last column tells."""
    kind, _, rest = text.partition(" ")
    if kind not in KINDS:
        raise ValueError(f"{text!r} is no source")
    found = dict(part.split("=", 1) for part in rest.split("; ") if "=" in part)
    wanted = [known.name for known in fields(KINDS[kind])]
    if list(found) != wanted:
        raise ValueError(f"{text!r} has not {', '.join(wanted)}")
    if kind == "bound":
        return Bound(found["chip"], found["mesa"], found["estimate"], float(found["cost"]))
    numbers = int(found["nanoseconds"]), int(found["untuned"])
    return Measured(found["adapter"], found["driver"], found["date"], *numbers)


class Choice(NamedTuple):
    """A tile, and its parts and its schedule, if a row tells them."""

    tile: str
    parts: str = ESTIMATED
    schedule: str = ESTIMATED


class Row(NamedTuple):
    """A line of the table."""

    of: Class
    choice: Choice
    source: Source

    def __str__(self) -> str:
        """The line."""
        return "\t".join([*map(str, self.of), *self.choice, str(self.source)])


COLUMNS = (*Class._fields, *Choice._fields, "source")


@dataclass
class Table:
    """The file's comments, and its rows by their classes."""

    comments: list[str] = field(default_factory=list)
    rows: dict[Class, Row] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table of a file."""
        table = cls()
        header = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith(COMMENT):
                table.comments.append(line)
                continue
            columns = line.split("\t")
            if not header:
                if tuple(columns) != COLUMNS:
                    raise SystemExit(f"{path}:{number}: the columns are {', '.join(COLUMNS)}")
                header = True
                continue
            try:
                row = read_row(columns)
            except ValueError as error:
                raise SystemExit(f"{path}:{number}: {error}") from error
            if row.of in table.rows:
                raise SystemExit(f"{path}:{number}: its class has a row already")
            table.rows[row.of] = row
        return table

    def __str__(self) -> str:
        """The file's text. It depends on nothing but the rows."""
        lines = [
            *self.comments,
            "\t".join(COLUMNS),
            *(str(self.rows[of]) for of in sorted(self.rows)),
        ]
        return "\n".join(lines) + "\n"


def read_row(columns: list[str]) -> Row:
    """The row of a line's columns."""
    if len(columns) != len(COLUMNS):
        raise ValueError(f"{len(columns)} columns, not {len(COLUMNS)}")
    of = Class.read("\t".join(columns[: len(Class._fields)]))
    return Row(of, Choice(*columns[len(Class._fields) : -1]), read_source(columns[-1]))
