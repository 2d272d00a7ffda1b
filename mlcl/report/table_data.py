"""A reproduced table as MLflow holds it: its figures, each seed's with its run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlflow.entities import Metric, Param, Run, RunData, RunTag

from mlcl.config import POSTHOC
from mlcl.report.runs import Runs
from mlcl.tracking.names import TABLE_JSON, Tag

NEIGHBOURS = "knn/"


@dataclass(frozen=True)
class TableFigure:
    """One number of a cell in the table's unit: ours by seed, beside the printed one.

    `runs` has the MLflow run of each seed, None where it is missing, as `values` have.
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

    @property
    def there(self) -> dict[int, float]:
        """The values by the place of their seed."""
        return {place: value for place, value in enumerate(self.values) if value is not None}

    @property
    def run_ids(self) -> list[str]:
        """Of the values that are there."""
        return [str(run.info.run_id) for place in self.there if (run := self.runs[place]) is not None]

    @property
    def mean(self) -> float | None:
        """Over the seeds that are there."""
        return statistics.fmean(self.there.values()) if self.there else None

    @property
    def deviation(self) -> float | None:
        """The sample's, between seeds."""
        return statistics.stdev(self.there.values()) if len(self.there) > 1 else None


@dataclass(frozen=True)
class TableData:
    """A table. `about` says what differs from the paper; `higher` by figure whether more is better."""

    name: str
    id: str
    state: str
    title: str
    source: str
    about: str
    command: str
    unit: str
    higher: Mapping[str, bool]
    figures: tuple[TableFigure, ...]
    run: Run

    @property
    def names(self) -> list[str]:
        """Of the figures that each cell has."""
        return list(dict.fromkeys(each.name for each in self.figures))

    @property
    def trainings(self) -> list[Run]:
        """Every run of its figures once."""
        found = {run.info.run_id: run for each in self.figures for run in each.runs if run is not None}
        return list(found.values())


def read_table(runs: Runs, table: Run) -> TableData:
    """A table's run with the runs of its figures. Raises UserError where it has not been written yet."""
    tree = json.loads(runs.text(table, TABLE_JSON))
    figures = _figures(runs, tree["cells"])
    return TableData(
        name=tree["name"],
        id=tree["id"],
        state=str(table.data.tags.get(Tag.STATE, "")),
        title=tree["title"],
        source=tree["source"],
        about=tree["about"],
        command=tree["command"],
        unit=tree["unit"],
        higher=tree["higher"],
        figures=tuple(figures),
        run=table,
    )


def read_cells(runs: Runs, table: Run, only: str | None = None) -> dict[str, list[Run]]:
    """The runs of each cell, by `ROW, COLUMN`: also those that an earlier table trained, or another cell.

    Their figures are the cell's: where its neighbours have settings of their own, they are not the run's.
    Empty before the table is written. `only` leaves out all cells but one.
    """
    if not runs.has(table, TABLE_JSON):
        return {}
    tree = json.loads(runs.text(table, TABLE_JSON))
    cells = {f"{cell['row']}, {cell['column']}": cell for cell in tree["cells"]}
    return {
        label: _as_told(_figures(runs, [cell]), tree["unit"])
        for label, cell in cells.items()
        if only in (None, label)
    }


def _as_told(figures: Sequence[TableFigure], unit: str) -> list[Run]:
    """A cell's runs; where its figures are not theirs, they say of neighbours only what the cell does."""
    share = 100.0 if unit == "percent" else 1.0
    told = [
        (run, {each.metric: value / share for each in figures if (value := each.values[place]) is not None})
        for place, run in enumerate(figures[0].runs)
        if run is not None
    ]
    own = all(
        math.isclose(run.data.metrics.get(name, math.nan), value, rel_tol=1e-9)
        for run, its in told
        for name, value in its.items()
    )
    return [run if own else _like(run, its) for run, its in told]


def _like(run: Run, told: Mapping[str, float]) -> Run:
    its = {name: value for name, value in run.data.metrics.items() if not name.startswith(NEIGHBOURS)}
    return Run(
        run.info,
        RunData(
            [Metric(name, value, 0, 0) for name, value in {**its, **told}.items()],
            [Param(key, text) for key, text in run.data.params.items() if key not in POSTHOC],
            [RunTag(key, text) for key, text in run.data.tags.items()],
        ),
    )


def _figures(runs: Runs, cells: Sequence[Mapping[str, Any]]) -> list[TableFigure]:
    names = {name for cell in cells for name in cell["runs"] if name is not None}
    by_name = {name: next(iter(runs.tagged(Tag.ID, name)), None) for name in sorted(names)}
    return [_figure(cell, figure, by_name) for cell in cells for figure in cell["figures"]]


def _figure(
    cell: Mapping[str, Any], figure: Mapping[str, Any], runs: Mapping[str, Run | None]
) -> TableFigure:
    return TableFigure(
        row=cell["row"],
        column=cell["column"],
        name=figure["name"],
        metric=figure["metric"],
        printed=figure["printed"],
        verdict=figure["verdict"],
        digits=figure["digits"],
        values=tuple(figure["values"]),
        runs=tuple(None if name is None else runs[name] for name in cell["runs"]),
    )
