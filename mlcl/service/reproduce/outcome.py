"""What a table came to, for tables on paper and for programs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlcl.tracking import State

Verdict = Literal["within", "outside", "not judged", "missing"]


@dataclass(frozen=True)
class FigureReport:
    """One number of a cell in the table's unit: ours, over seeds, beside the printed one.

    `values` has one number for each seed that is there. `deviation` is the sample's, None below two.
    """

    name: str
    metric: str
    printed: float | None
    values: tuple[float, ...]
    seeds: int
    tolerance: float | None

    @property
    def mean(self) -> float | None:
        """Over the seeds that are there."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Between seeds."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the printed one."""
        mean = self.mean
        return None if mean is None or self.printed is None else mean - self.printed

    @property
    def verdict(self) -> Verdict:
        """Whether our mean is within the tolerance of the printed figure."""
        if len(self.values) < self.seeds:
            return "missing"
        difference = self.difference
        if self.tolerance is None or difference is None:
            return "not judged"
        # A nanth of a unit: 71.3 + 1.5 must hold 72.8, whatever binary makes of them.
        return "within" if abs(difference) <= self.tolerance + 1e-9 else "outside"


@dataclass(frozen=True)
class CellReport:
    """A cell: its figures, and its runs, one a seed, by folder name; None where one is missing."""

    row: str
    column: str
    id: str
    figures: tuple[FigureReport, ...]
    runs: tuple[str | None, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableReport:
    """A table as it stands when the command ends."""

    id: str
    name: str
    title: str
    source: str
    about: str
    state: State
    reason: str
    folder: Path
    cells: tuple[CellReport, ...]
    unit: str
    digits: int
    tolerance: float | None
    higher: dict[str, bool]
    undelivered: int = 0
    run_id: str | None = None

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
    def outside(self) -> list[str]:
        """The figures that are out of tolerance."""
        return [
            f"{cell.id} {figure.name}"
            for cell in self.cells
            for figure in cell.figures
            if figure.verdict == "outside"
        ]


def scaled(values: Sequence[float], unit: str) -> tuple[float, ...]:
    """Metrics in a table's unit, those that are numbers."""
    factor = 100.0 if unit == "percent" else 1.0
    return tuple(factor * value for value in values if not math.isnan(value))
