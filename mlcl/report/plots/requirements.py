"""The trials that a plot of a search shows, and the least that it needs."""

from __future__ import annotations

import pandas as pd

from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State


def need_complete(data: SweepData, count: int = 1) -> None:
    """Raise LeftOut where fewer trials are complete."""
    found = len(data.complete)
    if not found and count:
        raise PlotSkipped("no trial is complete")
    if found < count:
        raise PlotSkipped(f"needs {count} complete trials, and there {'is' if found == 1 else 'are'} {found}")


def differing(data: SweepData) -> list[str]:
    """The varied keys with several values among complete trials. Raises LeftOut where there are none."""
    keys = [key for key in data.varied if data.complete[key].nunique() > 1]
    if not keys:
        raise PlotSkipped("no key differs between complete trials")
    return keys


def stopped_early(data: SweepData) -> pd.DataFrame:
    """The trials that the scheduler stopped, where they had a score by then."""
    return data.search[(data.search["state"] == State.PRUNED) & data.search["score"].notna()]


def best_number(data: SweepData) -> int:
    """The best trial's number; -1 where no trial is complete."""
    return -1 if data.best is None else int(data.best["number"])


def told_early(data: SweepData) -> str:
    """The sentence on such trials for a caption; empty where there are none."""
    if stopped_early(data).empty:
        return ""
    how = "" if data.pruned_by == data.score else f" by {data.pruned_by}"
    return (
        f" Trials that were stopped early are shown with their last score{how}, that of a shorter training."
    )
