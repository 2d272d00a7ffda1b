"""The scores of a search's trials by stage: only trials of equally many epochs are compared."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlcl.report.plots.trials import pruned_trials
from mlcl.report.sweep_data import SweepData

MOST = 3
"""Most stages before the last one."""


def score_stages(data: SweepData) -> dict[str, pd.Series[float]]:
    """The scores of the trials that reached a stage, by its title; the index is that of `data.search`.

    The last stage has the final scores of complete trials. Where trials were pruned, the largest validation
    that all trials reached comes before it, and later ones at which some were pruned, each in the metric that
    pruned them.
    """
    pruned, metric = pruned_trials(data), data.pruned_by.removeprefix("knn/")
    runs = pd.concat([data.complete, pruned])["run_id"] if len(pruned) else pd.Series(dtype=str)
    found = {row: [value for _, value in data.history(id, metric)] for row, id in runs.items()}
    stages: dict[str, pd.Series[float]] = {}
    for length in _spread({len(found[row]) for row in pruned.index} - {0}):
        reached = {row: values[length - 1] for row, values in found.items() if len(values) >= length}
        epoch = length * data.job.evaluation.every
        stages[f"{metric} at epoch {epoch}: {len(reached)} trials"] = pd.Series(reached, dtype=float)
    count = len(data.complete)
    stages[f"{data.score} at the end: {count} trial{'' if count == 1 else 's'}"] = data.complete["score"]
    return stages


def _spread(lengths: set[int]) -> list[int]:
    """At most `MOST` of them, the smallest and the largest among these."""
    ordered = sorted(lengths)
    places = np.linspace(0, len(ordered) - 1, min(MOST, len(ordered))).round().astype(int)
    return [ordered[place] for place in places]
