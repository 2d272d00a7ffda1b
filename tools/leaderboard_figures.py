"""The figures that `mlcl reproduce --figures` wrote, for `leaderboard.py` and `leaderboard_page.py`.

D(a, b) is the mean over the seeds of a minus b on one data set, in points, and p the sign-flip test's.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import rankdata

from mlcl.significance.paired_tests import holm, paired_p

CONTROL = {"labels": "BCE", "classes": "cross-entropy"}
MAIN = {"labels": "micro-F1", "classes": "accuracy", "unseen": "1-NN accuracy"}
ALONE = " without neighbours"
DECIDED = 0.05


@dataclass(frozen=True)
class Difference:
    """D(a, b): `points` and `p`; `adjusted` is p with Holm's correction where several were tested."""

    points: float
    p: float
    adjusted: float = 1.0


@dataclass(frozen=True)
class Figures:
    """The values by seed of one table's cells: by (row, column), then by the figure's name.

    `searches` has what the search of a tuned cell found, `baselines` the cells that are fitted, not trained.
    """

    cells: dict[tuple[str, str], dict[str, list[float]]]
    searches: dict[tuple[str, str], dict[str, Any]]
    baselines: frozenset[tuple[str, str]]
    main: str

    def columns(self, *rows: str) -> list[str]:
        """The columns that have all these rows, in the order of their names."""
        every = sorted({column for _, column in self.cells})
        return [column for column in every if all((row, column) in self.cells for row in rows)]

    def rows(self, column: str) -> list[str]:
        """The rows of a column, the best mean of `main` first."""
        here = [row for row, its in self.cells if its == column]
        return sorted(here, key=lambda row: -self.mean(row, column))

    def mean(self, row: str, column: str, figure: str = "") -> float:
        """Over the seeds, of `main` where no figure is named."""
        return mean(self.cells[row, column][figure or self.main])

    def shown_mean(self, row: str, column: str, figure: str) -> str:
        """The mean with the standard deviation over the seeds, where there are several that differ."""
        values = self.cells[row, column][figure]
        return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len({*values}) > 1 else "")

    def difference(self, a: str, b: str, column: str, figure: str = "") -> Difference:
        """D(a, b) of a figure, `main` where none is named."""
        x, y = (self.cells[row, column][figure or self.main] for row in (a, b))
        return Difference(mean(x) - mean(y), paired_p(y, x))

    def beside(self, control: str, column: str, figure: str = "") -> dict[str, Difference]:
        """Every other row's D(row, control), the best first, with Holm's correction over these rows."""
        rows = [row for row in self.rows(column) if row != control]
        found = [self.difference(row, control, column, figure) for row in rows]
        adjusted = holm([each.p for each in found])
        both = {
            row: Difference(each.points, each.p, p)
            for row, each, p in zip(rows, found, adjusted, strict=True)
        }
        return dict(sorted(both.items(), key=lambda each: -each[1].points))

    def average_ranks(self, rows: tuple[str, ...]) -> dict[str, float]:
        """Of the means of `main` over the columns that have all these rows; 1 is the best."""
        columns = self.columns(*rows)
        ranks = [rankdata([-self.mean(row, column) for row in rows]) for column in columns]
        return {row: float(mean(rank[i] for rank in ranks)) for i, row in enumerate(rows) if ranks}


def read(folder: Path, table: str) -> Figures:
    """The cells in FOLDER/TABLE."""
    cells, searches, baselines = {}, {}, set()
    for file in sorted((folder / table).glob("*/*.json")):
        cell = json.loads(file.read_text())
        place = cell["row"], cell["column"]
        cells[place] = {each["name"]: each["values"] for each in cell["figures"]}
        if cell.get("search"):
            searches[place] = cell["search"]
        if cell.get("baseline"):
            baselines.add(place)
    return Figures(cells, searches, frozenset(baselines), MAIN[table])


def folder_of_figures(about: str) -> Path:
    """The command line's argument; a folder without a cell ends the command in one line."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("figures", type=Path, help="what `mlcl reproduce --figures` wrote")
    folder: Path = parser.parse_args().figures
    if not any(folder.glob("*/*/*.json")):
        parser.error(f"{folder}: no cell in it; allowed: a folder with {' and '.join(CONTROL)}")
    return folder
