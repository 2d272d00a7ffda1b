"""The dataclass of a table's result: its cells, how they agree with the paper, and statistical tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, computed_field

from mlcl.results.cell_result import UNLESS_NONE, Agreement, CellResult, FigureResult
from mlcl.results.table_verdicts import conclusions_of, table_verdicts
from mlcl.significance.verdict import Verdict
from mlcl.tracking import State

Verdicts = Annotated[
    list[tuple[str, Verdict]],
    PlainSerializer(
        lambda verdicts: [{"cells": shared, **verdict.as_dict()} for shared, verdict in verdicts]
    ),
]
"""Pairs of the row or column that the compared cells share (empty for none) and the verdict on them."""


@dataclass(frozen=True)
class TableResult:
    """The result of a table of a paper, at the end of the last command on it.

    Attributes:
        id: The table's id, which is also the name of its folder.
        name: The name that the user gave it.
        command: The command line that produced it.
        title: The title in the table file.
        source: The paper and the table in it.
        about: The table file's remarks on how it differs from the paper.
        state: COMPLETE where no figure is missing; else `reason` says why not.
        folder: The folder with the table's files.
        cells: The cells in the table's order.
        unit: `percent`, or `share` for values from 0 to 1.
        higher: Whether larger values are better, keyed by the name of a figure.
        undelivered: The number of logs that have not reached MLflow yet.
        run_id: The id of the table's run in MLflow, None where it has not been delivered.
        ranks: For each figure the rank tests of methods over data sets, where the table file asks for them.
        lower_is_better: Patterns of the metrics that are better where lower.
        notes: The notes on the cells' data sets, keyed by the data set's name.
        provenance: The code, libraries and data of the table and its trainings, keyed by a title.
        control: The row with which others are compared; empty where the table names none.
        gains: The row whose gains over the others are shown, None for none.

    Example:
        >>> runs = Runs(Tracker.open_existing(Path("outputs")))
        >>> table = read_table(runs, runs.require_group("my-table"))
        >>> {cell.label: cell.figures[0].mean for cell in table.cells}
        {'Hotel, CE': 71.3, 'Hotel, MLCL': 74.5}
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
    control: str = ""
    gains: Annotated[str | None, UNLESS_NONE] = None

    @property
    def rows(self) -> list[str]:
        """The names of the rows in the table's order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns in the table's order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def figures(self) -> list[tuple[CellResult, FigureResult]]:
        """All figures, each with its cell."""
        return [(cell, figure) for cell in self.cells for figure in cell.figures]

    @property
    def figure_names(self) -> list[str]:
        """The names of the figures of the cells."""
        return list(dict.fromkeys(figure.name for _, figure in self.figures))

    def cell(self, row: str, column: str) -> CellResult | None:
        """Returns the cell of a row and column; None where the table does not have it."""
        return next((c for c in self.cells if (c.row, c.column) == (row, column)), None)

    @computed_field
    @property
    def outside(self) -> list[str]:
        """The figures whose mean is out of tolerance, each as `CELL_ID FIGURE_NAME`."""
        return self._figures_with_verdict("outside")

    @computed_field
    @property
    def missing(self) -> list[str]:
        """The figures that lack the value of a seed, each as `CELL_ID FIGURE_NAME`."""
        return self._figures_with_verdict("missing")

    @computed_field
    @property
    def verdicts(self) -> Verdicts:
        """The verdicts on the cells against a reference with the same data, see `table_verdicts`."""
        return table_verdicts(self.cells, self.higher, self.control, self.unit)

    @property
    def conclusions(self) -> list[str]:
        """The verdicts as sentences, or counts of their answers where there are many."""
        return conclusions_of(self.verdicts)

    @property
    def printed(self) -> bool:
        """Whether any figure has a number from the paper."""
        return any(figure.printed is not None for _, figure in self.figures)

    @property
    def limits(self) -> dict[str, float]:
        """The tolerances of the figures that are compared with the paper, keyed by the figure's name."""
        return {
            figure.name: figure.tolerance
            for _, figure in self.figures
            if figure.tolerance is not None and figure.printed is not None
        }

    @property
    def judged(self) -> int:
        """The number of figures that were compared with a number from the paper."""
        return len(self._figures_with_verdict("within", "outside"))

    def _figures_with_verdict(self, *verdicts: Agreement) -> list[str]:
        return [f"{cell.id} {figure.name}" for cell, figure in self.figures if figure.verdict in verdicts]
