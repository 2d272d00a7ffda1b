"""The measurements of a case with their targets, and its line of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from losses_clock import Typical
from losses_scenes import Case

SMALL = 128
TARGETS = {
    **dict.fromkeys(("supcon", "mulsupcon", "all", "himulcon"), 1.4),
    **dict.fromkeys(("any", "simdis", "jaccard"), 1.7),
    "knn": 2.2,
    "hicone": 3.0,
}
"""The most time that a loss may take, as a multiple of the limit, from 2,048 rows on."""
WIDE_TARGETS = dict.fromkeys(("any", "simdis", "jaccard"), 2.0)
"""The most time that a loss may take at 1,000 labels, as a multiple of the limit."""
NOT_SLOWER = 1.05
"""The most time at 128 rows, as a multiple of the dense path's: equal, plus 5 % for noise of short times."""
LABEL_TARGET = 0.1
"""The largest share of a loss's time that may be label work, at 8,692 labels."""
MEMORY_TARGETS = {4_096: 60.0, 65_536: 512.0}
"""The most memory in MiB, by the number of rows."""
WIDTHS = {
    "loss": 17, "B": 7, "L": 6, "ms": 8, "MiB": 8, "dense ms": 10, "dense MiB": 11, "PML ms": 8, "PML MiB": 9,

    "bf16 ms": 9, "value": 9, "gradient": 9, "f32 value": 10, "f32 grad": 10,
    "limit ms": 10, "/ dense": 13, "/ PML": 13, "/ bf16": 13, "/ limit": 13, "target": 13, "met": 5,
}  # fmt: skip
"""The widths of the columns; columns with a solidus are ratios of times, ours first."""
ERRORS = ("value", "gradient", "f32 value", "f32 grad")


@dataclass
class Row:
    """The figures of a case by their column, and descriptions of what was left out or wrong."""

    case: Case
    figures: dict[str, Typical] = field(default_factory=dict)
    failed: bool = False
    left_out: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)

    @property
    def targets(self) -> dict[str, float]:
        """The largest allowed value of each measured column that has a target."""
        rows, loss = self.case.rows, self.case.loss
        targets = {}
        if rows == SMALL:
            targets["/ dense"] = NOT_SLOWER
        if rows >= 2_048 and loss in TARGETS and self.case.kind != "paths":
            targets["/ limit"] = (WIDE_TARGETS if self.case.labels == 1_000 else {}).get(loss, TARGETS[loss])
        if rows in MEMORY_TARGETS:
            targets["MiB"] = MEMORY_TARGETS[rows]
        return {column: limit for column, limit in targets.items() if column in self.figures}

    @property
    def met(self) -> bool | None:
        """Whether the loss passed and every target is met, None if there is no target."""
        targets = self.targets.items()
        if self.failed:
            return False
        return all(self.figures[column].median <= limit for column, limit in targets) if targets else None

    def cells(self) -> dict[str, str]:
        """Returns the text of each column."""
        target = ", ".join(f"{limit:g}{' MiB' * (column == 'MiB')}" for column, limit in self.targets.items())
        return {
            "loss": self.case.name,
            "B": f"{self.case.rows:,}",
            "L": f"{self.case.labels:,}" if self.case.labels else "-",
            **{column: _text(column, figure) for column, figure in self.figures.items()},
            "target": target or "-",
            "met": {True: "yes", False: "NO", None: "-"}[self.met],
        }

    def plain(self) -> dict[str, object]:
        """Returns the row as a dictionary for JSON."""
        return {
            **vars(self.case),
            **{column: figure._asdict() for column, figure in self.figures.items()},
            "targets": self.targets,
            "met": self.met,
            "left_out": self.left_out,
            "disagreements": self.disagreements,
        }


def line(cells: Mapping[str, str], columns: Iterable[str]) -> str:
    """Returns one line of a table, with - for a missing figure; names are aligned left, the rest right."""
    padded_cells = (
        f"{cells.get(name, '-'):{'<' if name == 'loss' else '>'}{WIDTHS[name]}}" for name in columns
    )
    return "".join(padded_cells)


def label_line(case: Case, share: Typical) -> str:
    """Returns a line with the share of a case's time that is label work, and whether the target is met."""
    verdict = "yes" if share.median < LABEL_TARGET else "NO"
    return f"{case}: {share.median:.1%}, target < {LABEL_TARGET:.0%}: {verdict}"


def _text(column: str, figure: Typical) -> str:
    value, spread = figure
    if column in ERRORS:
        return f"{value:.1e}"
    text = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    if not column.startswith("/"):
        return text
    return f"{value:.2f}" + ("" if spread is None else f" ±{spread:.2f}") if value < 100 else text
