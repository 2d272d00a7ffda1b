"""The model of a table's cell: its figures over seeds, its trainings, and the search of a tuned cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from mlcl.results.sweep_arms import ArmSearch
from mlcl.results.training_result import TrainingResult

Agreement = Literal["within", "outside", "not judged", "missing"]
UNLESS_NONE = Field(exclude_if=lambda its: its is None)
"""`table.json` lacks a field of a cell that is None."""


@dataclass(frozen=True)
class FigureResult:
    """One number of a cell in the table's unit: ours, over seeds, beside the one that the paper prints.

    Attributes:
        name: The figure's name in the table file, as `accuracy`.
        metric: The metric of the trainings, as `test/accuracy`.
        printed: The paper's number, None where it prints none.
        values: The number of each seed, None where its run or the number is missing.
        tolerance: How far the mean may be from the printed number; None where that is not judged.
        digits: How many digits after the point are shown.
        validation: The same metric of each seed on the validation split.
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
    def validation_by_seed(self) -> dict[int, float]:
        """The values on validation that are not missing, by the position of their seed."""
        return _by_seed(self.validation)

    @computed_field
    @property
    def mean(self) -> float | None:
        """The mean over the seeds that have a value; None for none."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @computed_field
    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds; None below two."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @computed_field
    @property
    def difference(self) -> float | None:
        """Our mean less the printed number."""
        mean = self.mean
        return None if mean is None or self.printed is None else mean - self.printed

    @computed_field
    @property
    def verdict(self) -> Agreement:
        """Whether our mean is within the tolerance of the printed number."""
        if None in self.values:
            return "missing"
        difference = self.difference
        if self.tolerance is None or difference is None:
            return "not judged"
        # A billionth of a unit: 71.3 + 1.5 must hold 72.8, whatever binary makes of them.
        return "within" if abs(difference) <= self.tolerance + 1e-9 else "outside"


@dataclass(frozen=True)
class SearchResult:
    """The searches of a tuned cell, with scores on validation, of several searches their means.

    Attributes:
        metric: The score; `mode` says whether the `max` or the `min` is best.
        trials: How many trials ended in each state.
        median: The median score of the complete trials, `best` their best one; None without one.
        fresh: The mean score of the pick over fresh seeds, None without one.
        searches: Each search with its race and its pick.
    """

    metric: str
    mode: str
    trials: Mapping[str, int]
    median: float | None
    best: float | None
    fresh: float | None
    searches: tuple[ArmSearch, ...] = ()

    @computed_field
    @property
    def kept(self) -> float | None:
        """The share of the best trial's lead over the median one that it keeps on fresh seeds."""
        if self.median is None or self.best is None or self.fresh is None or self.best == self.median:
            return None
        return (self.fresh - self.median) / (self.best - self.median)


@dataclass(frozen=True)
class Origin:
    """The setting, data and code that gave the values of a cell. An empty text stands for an unknown one.

    Attributes:
        setting: A digest, equal for equal jobs and searches, wherever their data is and whatever their seeds.
        data: The name of the data set; `fingerprint` is its digest.
        mlcl: The versions of mlcl that trained, joined by a comma.
        commit: The commits that trained; one with uncommitted changes ends with `+`.
    """

    setting: str
    data: str = ""
    fingerprint: str = ""
    mlcl: str = ""
    commit: str = ""


@dataclass(frozen=True)
class CellResult:
    """A cell of a table, with its figures and its trainings.

    Attributes:
        row: The name of its row; `column` that of its column.
        id: `ROW/COLUMN` in letters that file names may have.
        figures: The numbers of the cell.
        runs: The run of each seed, None where it is missing: its folder's name, of a tuned cell its log. The
            seeds of a tuned cell stand search by search, as many of each.
        reasons: Why runs or their numbers are missing.
        settings: The pick of a tuned cell, of several searches the best one on validation.
        search: The searches of a tuned cell.
        data: A text that is equal for cells that saw the same rows and labels.
        test_rows: The number of test rows, 0 where it is unknown.
        baseline: Whether the others are compared with this cell.
        origin: The setting, data and code of the values.
        params: The parameters of the jobs of all seeds.
        trainings: The trainings of the seeds, also those that failed.
        neighbours: Whether the cell scores its runs with other settings of the neighbours than theirs.
    """

    row: str
    column: str
    id: str
    figures: tuple[FigureResult, ...]
    runs: tuple[str | None, ...]
    reasons: tuple[str, ...] = ()
    settings: Annotated[Mapping[str, Any] | None, UNLESS_NONE] = None
    search: Annotated[SearchResult | None, UNLESS_NONE] = None
    data: str = ""
    test_rows: int = 0
    baseline: bool = False
    origin: Annotated[Origin | None, UNLESS_NONE] = None
    params: Mapping[str, Any] = field(default_factory=dict)
    trainings: tuple[TrainingResult, ...] = ()
    neighbours: bool = False

    @property
    def label(self) -> str:
        """`ROW, COLUMN`, by which the command line names the cell."""
        return f"{self.row}, {self.column}"

    @property
    def searches(self) -> list[range]:
        """The positions of the seeds of each search; a cell that is not tuned counts as one."""
        count = max(1, len(self.search.searches)) if self.search is not None else 1
        each = len(self.runs) // count
        return [range(number * each, (number + 1) * each) for number in range(count)]

    def run_id(self, seed: int) -> str | None:
        """The id in MLflow of the run at the position of a seed; None where it is missing."""
        name = self.runs[seed] if seed < len(self.runs) else None
        found = (each.run_id for each in self.trainings if name in (each.key, each.log))
        return None if name is None else next(found, None)

    def run_ids(self, figure: FigureResult) -> list[str]:
        """The ids in MLflow of the runs that gave the values of a figure."""
        return [run_id for seed in figure.by_seed if (run_id := self.run_id(seed)) is not None]


def _by_seed(values: Iterable[float | None]) -> dict[int, float]:
    return {seed: value for seed, value in enumerate(values) if value is not None}


def scaled(value: float | None, unit: str) -> float | None:
    """A metric in a table's unit; None where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return 100.0 * value if unit == "percent" else value
