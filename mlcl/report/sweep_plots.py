"""All plots of a sweep: of its search, its fresh seeds, and what its models learnt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from mlcl.errors import UserError
from mlcl.report.fetched import fetch_all, material_of
from mlcl.report.plots import Plot
from mlcl.report.plots.learning import confirmation_plots
from mlcl.report.plots.neighbours import neighbour_plots
from mlcl.report.plots.representation import representation_plots
from mlcl.report.plots.searched import search_plots
from mlcl.report.runs import Runs
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

MOST_SETTINGS = 3
"""Settings whose embeddings are drawn beside each other."""
Drawn = tuple[list[Plot], list[tuple[str, str]]]
"""Plots, and (name, reason) of what could not be drawn."""


@dataclass
class SweepPlots:
    """Draws a sweep.

    `quick` leaves out the plots of embeddings: they need the data set, which is prepared under `home` where
    it is not there, and minutes. Files of runs are kept in `scratch` for as long as plots are drawn.
    """

    runs: Runs
    home: Path
    quick: bool
    announce: Callable[[str], None]
    scratch: Path

    def __call__(self, data: SweepData) -> Drawn:
        """The plots, those of the search first."""
        plots, missing = list[Plot](), list[tuple[str, str]]()
        for draw in (search_plots, confirmation_plots, self._learnt):
            found, left = draw(data)
            plots += found
            missing += left
        return plots, missing

    def _learnt(self, data: SweepData) -> Drawn:
        if self.quick:
            return [], [("embeddings", "left out by --quick")]
        chosen = chosen_runs(data)
        if not chosen:
            return [], [("embeddings", "no run is complete")]
        self.announce("plots of embeddings: the data set is opened, t-SNE takes a while")
        try:
            folders = fetch_all(self.runs, chosen, self.scratch)
            material = material_of(next(iter(folders.values()))[0], self.home)
        except UserError as error:
            return [], [("embeddings", error.line())]
        one_each = {setting: runs[0] for setting, runs in folders.items()}
        pictures, left = representation_plots(one_each, material)
        curves, more = neighbour_plots(folders, material)
        return [*curves, *pictures], [*more, *left]


@contextmanager
def sweep_plots(runs: Runs, home: Path, quick: bool, announce: Callable[[str], None]) -> Iterator[SweepPlots]:
    """What draws a sweep, while inside."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield SweepPlots(runs, home, quick, announce, Path(scratch))


def chosen_runs(data: SweepData) -> dict[str, list[str]]:
    """Complete runs by setting: the first confirmed one, which others are held against, and the best found.

    Where nothing was confirmed, the best search trial.
    """
    done = data.confirmation[data.confirmation["state"] == State.COMPLETE]
    settings = [str(setting) for setting in dict.fromkeys(done["setting"])]
    best = data.best
    if not settings:
        return {} if best is None else {str(best["setting"]): [str(best["run_id"])]}
    found = None if best is None else data.confirmed.get(str(best["run_id"]))
    chosen = dict.fromkeys([settings[0], *([found] if found in settings else []), *settings])
    return {str(each): _ids(done, str(each)) for each in list(chosen)[:MOST_SETTINGS]}


def _ids(runs: pd.DataFrame, setting: str) -> list[str]:
    return [str(id) for id in runs[runs["setting"] == setting]["run_id"]]
