"""The report of a table: the figures of its cells over seeds, and whether they match the printed ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlcl.service.tables.origin import Origin
from mlcl.tracking import State

Verdict = Literal["within", "outside", "not judged", "missing"]


@dataclass(frozen=True)
class FigureReport:
    """One number of a cell in the table's unit: ours, over seeds, beside the printed one.

    `values` has an entry for each seed, None where its run or the number is missing. `deviation` is the
    sample's, None below two. `digits` are shown after the point. `validation` has the same figures there.
    """

    name: str
    metric: str
    printed: float | None
    values: tuple[float | None, ...]
    tolerance: float | None
    digits: int = 2
    validation: tuple[float | None, ...] = ()

    @property
    def there(self) -> list[float]:
        """The values that are not missing."""
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        """Over the seeds that are there."""
        return statistics.fmean(self.there) if self.there else None

    @property
    def deviation(self) -> float | None:
        """Between seeds."""
        return statistics.stdev(self.there) if len(self.there) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the printed one."""
        mean = self.mean
        return None if mean is None or self.printed is None else mean - self.printed

    @property
    def verdict(self) -> Verdict:
        """Whether our mean is within the tolerance of the printed figure."""
        if None in self.values:
            return "missing"
        difference = self.difference
        if self.tolerance is None or difference is None:
            return "not judged"
        # A billionth of a unit: 71.3 + 1.5 must hold 72.8, whatever binary makes of them.
        return "within" if abs(difference) <= self.tolerance + 1e-9 else "outside"


@dataclass(frozen=True)
class SearchReport:
    """The search of a tuned cell: how many `trials` are in which state, and scores on validation.

    `median` and `best` are of the complete trials, `fresh` is the mean over the fresh seeds of the best; None
    where there is none. `metric` and `mode` are of the score.
    """

    metric: str
    mode: str
    trials: Mapping[str, int]
    median: float | None
    best: float | None
    fresh: float | None

    @property
    def kept(self) -> float | None:
        """The share of the best trial's lead over the median one that it keeps on fresh seeds."""
        if self.median is None or self.best is None or self.fresh is None or self.best == self.median:
            return None
        return (self.fresh - self.median) / (self.best - self.median)


@dataclass(frozen=True)
class CellReport:
    """A cell: its figures, and its runs, one a seed; None where one is missing.

    A run is named by its folder, one of a tuned cell by its log. `reasons` say why something is missing. Of
    a tuned cell, `settings` are the best that its search found. `data` is equal for cells that saw the same
    rows and labels; `baseline`: the others are compared with it.
    """

    row: str
    column: str
    id: str
    figures: tuple[FigureReport, ...]
    runs: tuple[str | None, ...]
    reasons: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    search: SearchReport | None = None
    data: str = ""
    baseline: bool = False
    origin: Origin | None = None


@dataclass(frozen=True)
class TableReport:
    """A table as it stands when the command ends.

    `ranks` has the tests over data sets of each figure, where the table asks for them.
    """

    id: str
    name: str
    command: str
    title: str
    source: str
    about: str
    state: State
    reason: str
    folder: Path
    cells: tuple[CellReport, ...]
    unit: str
    higher: dict[str, bool]
    undelivered: int = 0
    run_id: str | None = None
    ranks: tuple[Mapping[str, Any], ...] = ()

    @property
    def rows(self) -> list[str]:
        """In the table's order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """In the table's order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def cell(self, row: str, column: str) -> CellReport | None:
        """A cell; None where it was not asked for."""
        return next((c for c in self.cells if (c.row, c.column) == (row, column)), None)

    @property
    def printed(self) -> bool:
        """Whether the paper prints any of the figures."""
        return any(figure.printed is not None for cell in self.cells for figure in cell.figures)

    @property
    def limits(self) -> dict[str, float]:
        """How far a mean may be from a printed figure, by its name; empty where none is judged."""
        return {
            figure.name: figure.tolerance
            for cell in self.cells
            for figure in cell.figures
            if figure.tolerance is not None and figure.printed is not None
        }

    @property
    def outside(self) -> list[str]:
        """The figures that are out of tolerance."""
        return self._judged("outside")

    @property
    def missing(self) -> list[str]:
        """The figures that lack a number for one of their seeds."""
        return self._judged("missing")

    @property
    def judged(self) -> int:
        """How many figures were held against a printed one."""
        return len(self._judged("within", "outside"))

    def _judged(self, *verdicts: Verdict) -> list[str]:
        return [
            f"{cell.id} {figure.name}"
            for cell in self.cells
            for figure in cell.figures
            if figure.verdict in verdicts
        ]


def scaled(value: float | None, unit: str) -> float | None:
    """A metric in a table's unit; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    return 100.0 * value if unit == "percent" else value
