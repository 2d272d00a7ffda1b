"""The dataclasses of a table's cell: its figures over seeds, its trainings and its searches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from mlcl.results.sweep_arms import ArmSearch
from mlcl.results.training_result import TrainingResult

Agreement = Literal["within", "outside", "not judged", "missing"]
UNLESS_NONE = Field(exclude_if=lambda value: value is None)
"""Pydantic field options that leave a field out of `table.json` where it is None."""


@dataclass(frozen=True)
class FigureResult:
    """One figure of a cell: our values over seeds beside the number in the paper, in the table's unit.

    Attributes:
        name: The figure's name in the table file, such as `accuracy`.
        metric: The metric of the trainings, such as `test/accuracy`.
        printed: The number in the paper, None where the paper has none.
        values: Our value for each seed, None where the run failed, is not done, or lacks the metric.
        tolerance: The largest accepted distance of our mean from `printed`; None: not compared.
        digits: The number of decimals that are shown.
        validation: The value of this metric on the validation split for each seed.
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
        """The values that are not None, keyed by the position of their seed."""
        return {seed: value for seed, value in enumerate(self.values) if value is not None}

    @property
    def validation_by_seed(self) -> dict[int, float]:
        """The validation values that are not None, keyed by the position of their seed."""
        return {seed: value for seed, value in enumerate(self.validation) if value is not None}

    @computed_field
    @property
    def mean(self) -> float | None:
        """The mean over the seeds that have a value; None if no seed has one."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @computed_field
    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds that have a value; None for fewer than two."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @computed_field
    @property
    def difference(self) -> float | None:
        """Our mean minus the number in the paper; None where one of them is missing."""
        mean = self.mean
        return None if mean is None or self.printed is None else mean - self.printed

    @computed_field
    @property
    def verdict(self) -> Agreement:
        """Whether our mean is `within` the tolerance of the number in the paper or `outside`.

        `missing` where a seed has no value, `not judged` where there is no tolerance or no printed number.
        """
        if None in self.values:
            return "missing"
        difference = self.difference
        if self.tolerance is None or difference is None:
            return "not judged"
        # 1e-9 more than the tolerance, so that rounding in binary does not put a mean at the limit outside.
        return "within" if abs(difference) <= self.tolerance + 1e-9 else "outside"


@dataclass(frozen=True)
class SearchResult:
    """The hyperparameter searches of a tuned cell. Scores are on validation, averaged over the searches.

    Attributes:
        metric: The metric that is the score; `mode` is `max` or `min`.
        trials: The number of trials that ended in each state.
        median: The median score of the complete trials, None without one.
        best: The best score of a complete trial, None without one.
        fresh: The mean score of the picked setting over fresh seeds, None if it was not trained on any.
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
        """The share of the lead kept: (fresh - median) / (best - median); None if not defined."""
        if self.median is None or self.best is None or self.fresh is None or self.best == self.median:
            return None
        return (self.fresh - self.median) / (self.best - self.median)


@dataclass(frozen=True)
class Origin:
    """The job, data and code that produced a cell's values. An empty string means unknown.

    Attributes:
        setting: A digest of the jobs and searches; paths of data and seeds do not change it.
        data: The name of the data set; `fingerprint` is the digest of its content.
        mlcl: The versions of mlcl that trained the runs, joined by commas.
        commit: The git commits that trained the runs; `+` follows one with uncommitted changes.
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
        row: The name of the cell's row; `column` is the name of its column.
        id: `ROW/COLUMN`, with characters that file names allow.
        figures: The figures of the cell, such as accuracy and F1.
        runs: The run of each seed, None where it is missing: the name of its folder, or for a tuned cell the
            id of its log. A tuned cell lists its seeds search by search, equally many for each search.
        reasons: Messages that say why runs or figures are missing.
        settings: The hyperparameters picked for a tuned cell; with several searches the best on validation.
        search: The searches of a tuned cell.
        data: A key that is equal for cells with the same rows and labels.
        test_rows: The number of test rows, 0 if unknown.
        baseline: Whether the cell is a fitted baseline, with which other cells may be compared.
        origin: The job, data and code that produced the values.
        params: The job's parameters that all seeds share.
        trainings: The trainings of the seeds, including those that failed.
        neighbours: Whether the cell scores its runs with k-NN parameters other than those of their jobs.
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
        """The cell's name on the command line: `ROW, COLUMN`."""
        return f"{self.row}, {self.column}"

    @property
    def searches(self) -> list[range]:
        """The positions in `runs` of each search's seeds; a cell that is not tuned counts as one search."""
        count = max(1, len(self.search.searches)) if self.search is not None else 1
        n_seeds = len(self.runs) // count
        return [range(number * n_seeds, (number + 1) * n_seeds) for number in range(count)]

    def training(self, seed: int) -> TrainingResult | None:
        """Returns the training at position `seed` of `runs`; None where it is missing."""
        name = self.runs[seed] if seed < len(self.runs) else None
        matches = (training for training in self.trainings if name in (training.key, training.log))
        return None if name is None else next(matches, None)

    def run_id(self, seed: int) -> str | None:
        """Returns MLflow's id of the run at position `seed` of `runs`; None where it is missing."""
        training = self.training(seed)
        return None if training is None else training.run_id

    def run_ids(self, figure: FigureResult) -> list[str]:
        """Returns MLflow's ids of the runs that gave the values of a figure."""
        return [run_id for seed in figure.by_seed if (run_id := self.run_id(seed)) is not None]


def scale_metric(value: float | None, unit: str) -> float | None:
    """Returns a metric in a table's `unit`: times 100 for `percent`. None where it is None or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return 100.0 * value if unit == "percent" else value
