"""The model of a table: the values of its cells over seeds, and whether they match the printed ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mlcl.results.sweep_result import TrainingResult
from mlcl.significance.baseline_verdict import BaselineVerdict
from mlcl.significance.table_tests import CellScores, table_verdicts, verdict_sentences
from mlcl.tracking import State

Agreement = Literal["within", "outside", "not judged", "missing"]


@dataclass(frozen=True)
class FigureResult:
    """One number of a cell in the table's unit: ours, over seeds, beside the printed one.

    `values` has an entry for each seed, None where its run or the number is missing. `digits` are shown after
    the point. `validation` has the same metric on the validation split.
    """

    name: str
    metric: str
    printed: float | None
    values: tuple[float | None, ...]
    tolerance: float | None
    digits: int = 2
    validation: tuple[float | None, ...] = ()

    @property
    def by_seed(self) -> dict[int, float]:
        """The values that are not missing, by the position of their seed."""
        return _by_seed(self.values)

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that are there; None for none."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds; None below two."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the printed value."""
        mean = self.mean
        return None if mean is None or self.printed is None else mean - self.printed

    @property
    def verdict(self) -> Agreement:
        """Whether our mean is within the tolerance of the printed value."""
        if None in self.values:
            return "missing"
        difference = self.difference
        if self.tolerance is None or difference is None:
            return "not judged"
        # A billionth of a unit: 71.3 + 1.5 must hold 72.8, whatever binary makes of them.
        return "within" if abs(difference) <= self.tolerance + 1e-9 else "outside"


@dataclass(frozen=True)
class SearchResult:
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
class Origin:
    """What the values of a cell were made of.

    `setting` is equal for equal jobs and searches, wherever their data lies and whatever their seeds. `data`
    and `fingerprint` are the data set's, `mlcl` and `commit` those of the trainings, of several joined by a
    comma; a commit with uncommitted changes ends with `+`. Empty is not known.
    """

    setting: str
    data: str = ""
    fingerprint: str = ""
    mlcl: str = ""
    commit: str = ""


@dataclass(frozen=True)
class CellResult:
    """A cell: its figures and its trainings.

    Attributes:
        runs: The run of each seed, None where it is missing: its folder's name, of a tuned cell its log.
        reasons: Why runs or their numbers are missing.
        settings: The best settings that the search of a tuned cell found.
        data: Equal for cells that saw the same rows and labels.
        baseline: Whether the others are compared with this cell.
        params: The parameters of the jobs of all seeds.
        trainings: The trainings of the seeds, failed ones too.
        neighbours: Whether the cell scores its runs with other settings of the neighbours than theirs.
    """

    row: str
    column: str
    id: str
    figures: tuple[FigureResult, ...]
    runs: tuple[str | None, ...]
    reasons: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None
    search: SearchResult | None = None
    data: str = ""
    baseline: bool = False
    origin: Origin | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    trainings: tuple[TrainingResult, ...] = ()
    neighbours: bool = False

    @property
    def label(self) -> str:
        """`ROW, COLUMN`, by which the command line names the cell."""
        return f"{self.row}, {self.column}"

    def run_id(self, seed: int) -> str | None:
        """The id in MLflow of the run at the position of a seed; None where it is missing."""
        name = self.runs[seed] if seed < len(self.runs) else None
        found = (each.run_id for each in self.trainings if name in (each.key, each.log))
        return None if name is None else next(found, None)

    def run_ids(self, figure: FigureResult) -> list[str]:
        """The ids of the runs of a figure's values."""
        return [run_id for seed in figure.by_seed if (run_id := self.run_id(seed)) is not None]

    def scores(self) -> list[CellScores]:
        """The values of each figure, for tests."""
        return [
            CellScores(
                row=self.row,
                column=self.column,
                data=self.data,
                baseline=self.baseline,
                figure=figure.name,
                digits=figure.digits,
                validation=_by_seed(figure.validation),
                test=figure.by_seed,
                complete=None not in figure.values,
            )
            for figure in self.figures
        ]


@dataclass(frozen=True)
class TableResult:
    """A table as it stands when the command ends.

    Attributes:
        higher: Whether more is better, by the name of a figure.
        ranks: The tests over data sets of each figure, where the table asks for them.
        lower_is_better: Patterns of metrics that are better where they are lower.
        notes: The notes on the data sets of the cells, by the data set's name.
        provenance: Code, libraries and data, of the table and all of its trainings, by title.
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
    cells: tuple[CellResult, ...]
    unit: str
    higher: Mapping[str, bool]
    undelivered: int = 0
    run_id: str | None = None
    ranks: tuple[Mapping[str, Any], ...] = ()
    lower_is_better: tuple[str, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """The names of the rows in the table's order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns in the table's order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def figure_names(self) -> list[str]:
        """The names of the figures of the cells."""
        return list(dict.fromkeys(figure.name for cell in self.cells for figure in cell.figures))

    def cell(self, row: str, column: str) -> CellResult | None:
        """A cell; None where it was not asked for."""
        return next((c for c in self.cells if (c.row, c.column) == (row, column)), None)

    @property
    def scores(self) -> list[CellScores]:
        """The values of the figures of all cells, for tests."""
        return [each for cell in self.cells for each in cell.scores()]

    @property
    def verdicts(self) -> list[tuple[str, BaselineVerdict]]:
        """Whether the best cells beat the best baselines: what their cells share, and the verdict."""
        return table_verdicts(self.scores, self.higher)

    @property
    def conclusions(self) -> list[str]:
        """The verdicts in words."""
        return verdict_sentences(self.scores, self.higher)

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

    def _judged(self, *verdicts: Agreement) -> list[str]:
        return [
            f"{cell.id} {figure.name}"
            for cell in self.cells
            for figure in cell.figures
            if figure.verdict in verdicts
        ]


def _by_seed(values: Iterable[float | None]) -> dict[int, float]:
    return {seed: value for seed, value in enumerate(values) if value is not None}


def scaled(value: float | None, unit: str) -> float | None:
    """A metric in a table's unit; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    return 100.0 * value if unit == "percent" else value
