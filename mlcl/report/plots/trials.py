"""What plots of a search show: its trials, its keys, and its scores by stage."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mlcl.markup import counted
from mlcl.report.plots.plot import PlotSkipped
from mlcl.report.sweep_data import SweepData
from mlcl.tracking import State

_PREFIXES = ("objective.heads.", "objective.")
MOST = 3
"""Most stages before the last one."""


def short(key: str) -> str:
    """The key without a prefix of the objective: `section.temperature`, `classifier.weight`, `train.lr`."""
    prefix = next((each for each in _PREFIXES if key.startswith(each)), "")
    return key.removeprefix(prefix)


def head_key(key: str, option: str) -> str | None:
    """The name of the head where the key is that option of a head; otherwise None."""
    prefix, suffix = _PREFIXES[0], f".{option}"
    name = key.removeprefix(prefix).removesuffix(suffix)
    return name if key == f"{prefix}{name}{suffix}" and "." not in name else None


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
        stages[f"{metric} at epoch {epoch}: {counted(len(reached), 'trial')}"] = pd.Series(
            reached, dtype=float
        )
    stages[f"{data.score} at the end: {counted(len(data.complete), 'trial')}"] = data.complete["score"]
    return stages


def _spread(lengths: set[int]) -> list[int]:
    """At most `MOST` of them, the smallest and the largest among these."""
    ordered = sorted(lengths)
    places = np.linspace(0, len(ordered) - 1, min(MOST, len(ordered))).round().astype(int)
    return [ordered[place] for place in places]
