"""All plots of a sweep: of its search, its fresh seeds, and what its models learnt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from mlcl.errors import UserError
from mlcl.report.plots import Plot
from mlcl.report.plots.searched import search_plots
from mlcl.report.runs import Runs
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State
from mlcl.training.files import EMBEDDINGS

MOST_SETTINGS = 3
"""Settings whose embeddings are drawn beside each other."""


class SweepPlots:
    """Draws a sweep; `missing` then says what could not be drawn, and why.

    `quick` leaves out what needs the data set, which is prepared under `home` where it is not there.
    """

    def __init__(self, runs: Runs, home: Path, quick: bool, announce: Callable[[str], None]) -> None:
        self._runs, self._home, self._quick, self._announce = runs, home, quick, announce
        self.missing: list[tuple[str, str]] = []

    def __call__(self, data: SweepData) -> tuple[list[Plot], list[tuple[str, str]]]:
        plots, missing = search_plots(data)
        self.missing = list(missing)
        return plots, self.missing
