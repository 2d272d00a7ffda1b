"""Selects the trials that a plot of a search needs; raises PlotSkipped where there are too few."""

from __future__ import annotations

import pandas as pd

from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State


def require_complete(data: SweepData, count: int = 1) -> None:
    """Raises PlotSkipped where fewer trials are complete."""
    found = len(data.complete)
    if not found and count:
        raise PlotSkipped("no trial is complete")
    if found < count:
        raise PlotSkipped(f"needs {count} complete trials, and there {'is' if found == 1 else 'are'} {found}")


def differing_keys(data: SweepData) -> list[str]:
    """The varied keys with several values among complete trials. Raises PlotSkipped for none."""
    keys = [key for key in data.varied if data.complete[key].nunique() > 1]
    if not keys:
        raise PlotSkipped("no key differs between complete trials")
    return keys


def pruned_trials(data: SweepData) -> pd.DataFrame:
    """The trials that were pruned after they had a score."""
    return data.search[(data.search["state"] == State.PRUNED) & data.search["score"].notna()]


def best_number(data: SweepData) -> int:
    """The number of the best trial; -1 where no trial is complete."""
    return -1 if data.best is None else int(data.best["number"])


def pruned_note(data: SweepData) -> str:
    """A sentence of a caption on the pruned trials; empty where there are none."""
    if pruned_trials(data).empty:
        return ""
    how = "" if data.pruned_by == data.score else f" by {data.pruned_by}"
    return (
        f" Trials that were stopped early are shown with their last score{how}, that of a shorter training."
    )
