"""A reproduced table, read from MLflow: its figures, with the run of each seed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlcl.config import POSTHOC
from mlcl.report.runs import Runs
from mlcl.tracking.names import TABLE_JSON, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

NEIGHBOURS = "knn/"


@dataclass(frozen=True)
class TableFigure:
    """A figure of a cell in the table's unit: our `values` by seed, and the `printed` one.

    `runs` has the MLflow run of each seed. Missing values and runs are None. `data` is equal for cells that
    saw the same rows and labels.
    """

    row: str
    column: str
    name: str
    metric: str
    printed: float | None
    verdict: str
    digits: int
    values: tuple[float | None, ...]
    runs: tuple[Run | None, ...]
    data: str = ""

    @property
    def by_seed(self) -> dict[int, float]:
        """The values that are not missing, by the position of their seed."""
        return {place: value for place, value in enumerate(self.values) if value is not None}

    @property
    def run_ids(self) -> list[str]:
        """The ids of the runs of `by_seed`."""
        return [str(run.info.run_id) for place in self.by_seed if (run := self.runs[place]) is not None]

    @property
    def mean(self) -> float | None:
        """The mean over `by_seed`."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over `by_seed`."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None


@dataclass(frozen=True)
class TableData:
    """A table. `about` says what differs from the paper; `higher`: whether more is better, by figure.

    `verdicts` say whether its best cells beat the best baselines. As `table.json` has them: `ranks`, the
    tests of each figure over data sets, and `searches`, the tuned cells by row and column.
    """

    name: str
    title: str
    source: str
    about: str
    command: str
    unit: str
    higher: Mapping[str, bool]
    figures: tuple[TableFigure, ...]
    run: Run
    verdicts: tuple[str, ...] = ()
    ranks: tuple[Mapping[str, Any], ...] = ()
    searches: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its own id."""
        return str(self.run.data.tags[Tag.ID])

    @property
    def state(self) -> str:
        """What has become of it."""
        return str(self.run.data.tags.get(Tag.STATE, ""))

    @property
    def names(self) -> list[str]:
        """The names of the figures, which each cell has."""
        return list(dict.fromkeys(each.name for each in self.figures))

    @property
    def trainings(self) -> list[Run]:
        """The runs of the figures, each once."""
        found = {run.info.run_id: run for each in self.figures for run in each.runs if run is not None}
        return list(found.values())


def read_table(runs: Runs, table: Run) -> TableData:
    """Reads a table and the runs of its figures. Raises UserError where it has not been written yet."""
    tree = json.loads(runs.text(table, TABLE_JSON))
    figures = _figures(runs, tree["cells"])
    return TableData(
        **{name: tree[name] for name in ("name", "title", "source", "about", "command", "unit", "higher")},
        figures=tuple(figures),
        run=table,
        verdicts=tuple(_sentence(its) for its in tree.get("verdicts", ())),
        ranks=tuple(tree.get("ranks", ())),
        searches={(cell["row"], cell["column"]): cell for cell in tree["cells"] if "search" in cell},
    )


def _sentence(verdict: Mapping[str, Any]) -> str:
    cells, sentence = str(verdict["cells"]), str(verdict["sentence"])
    return f"{cells}: {sentence}" if cells else sentence


def read_cells(runs: Runs, table: Run, only: str | None = None) -> dict[str, list[Run]]:
    """The runs of each cell by `ROW, COLUMN`, also runs that another cell or table trained.

    The metrics of the runs are those of the cell, which may use other settings for its neighbours. Empty
    before the table is written. `only`: read this cell alone.
    """
    if not runs.has(table, TABLE_JSON):
        return {}
    tree = json.loads(runs.text(table, TABLE_JSON))
    cells = {f"{cell['row']}, {cell['column']}": cell for cell in tree["cells"]}
    return {
        label: _with_cell_metrics(_figures(runs, [cell]), tree["unit"])
        for label, cell in cells.items()
        if only in (None, label)
    }


def _with_cell_metrics(figures: Sequence[TableFigure], unit: str) -> list[Run]:
    """The runs of a cell. Where its figures are not theirs, its figures replace all their kNN metrics."""
    share = 100.0 if unit == "percent" else 1.0
    measured = [
        (run, {each.metric: value / share for each in figures if (value := each.values[place]) is not None})
        for place, run in enumerate(figures[0].runs)
        if run is not None
    ]
    own = all(
        math.isclose(run.data.metrics.get(name, math.nan), value, rel_tol=1e-9)
        for run, its in measured
        for name, value in its.items()
    )
    return [run if own else _replace_metrics(run, its) for run, its in measured]


def _replace_metrics(run: Run, measured: Mapping[str, float]) -> Run:
    from mlflow.entities import Metric, Param, Run, RunData, RunTag

    its = {name: value for name, value in run.data.metrics.items() if not name.startswith(NEIGHBOURS)}
    return Run(
        run.info,
        RunData(
            [Metric(name, value, 0, 0) for name, value in {**its, **measured}.items()],
            [Param(key, text) for key, text in run.data.params.items() if key not in POSTHOC],
            [RunTag(key, text) for key, text in run.data.tags.items()],
        ),
    )


def _figures(runs: Runs, cells: Sequence[Mapping[str, Any]]) -> list[TableFigure]:
    names = {name for cell in cells for name in cell["runs"] if name is not None}
    by_name = {name: _run(runs, name) for name in sorted(names)}
    return [_figure(cell, figure, by_name) for cell in cells for figure in cell["figures"]]


def _run(runs: Runs, name: str) -> Run | None:
    """The run of this name; that of a tuned cell is named by its log."""
    known = (run for tag in (Tag.ID, Tag.LOG) for run in runs.tagged(tag, name))
    return next(known, None)


def _figure(
    cell: Mapping[str, Any], figure: Mapping[str, Any], runs: Mapping[str, Run | None]
) -> TableFigure:
    return TableFigure(
        row=cell["row"],
        column=cell["column"],
        **{name: figure[name] for name in ("name", "metric", "printed", "verdict", "digits")},
        values=tuple(figure["values"]),
        runs=tuple(None if name is None else runs[name] for name in cell["runs"]),
        data=cell.get("data", f"{cell['row']}, {cell['column']}"),  # of release 0.1: nothing to compare
    )
